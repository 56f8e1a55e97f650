// Calls llmguard with the official SDKs, and prints what they return as JSON.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

const { URL, KEY, LARGE, PROMPT, LARGE_PROMPT } = process.env
const claude = (apiKey) => new Anthropic({ baseURL: URL.replace(/\/v1$/, ''), apiKey })
const openai = (apiKey) => new OpenAI({ baseURL: URL, apiKey })
const messages = (content) => [{ role: 'user', content }]
const claudeCall = (content) => ({ model: 'claude-opus-5', max_tokens: 200, messages: messages(content) })
const refusal = (call) => call.then(() => 'none', (e) => `${e.constructor.name} ${e.status} ${e.message}`)

const out = {}
out.message = (await claude(KEY).messages.create(claudeCall(PROMPT))).content[0].text
out.stream = await claude(KEY).messages.stream(claudeCall(PROMPT)).finalText()
out.tokens = (await claude(KEY).messages.countTokens({ model: 'claude-opus-5', messages: messages(PROMPT) })).input_tokens
out.models = (await claude(KEY).models.list()).data.length
out.refused = await refusal(claude(LARGE).messages.create(claudeCall(LARGE_PROMPT)))
out.response = (await openai(KEY).responses.create({ model: 'gpt-5', input: PROMPT })).output_text
out.refusedResponse = await refusal(openai(LARGE).responses.create({ model: 'gpt-5', input: LARGE_PROMPT }))
console.log(JSON.stringify(out))

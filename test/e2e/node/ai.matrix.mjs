// The Vercel AI SDK.
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText } from 'ai';
import { limit, run } from './matrix.mjs';

const provider = (c) => createOpenAI({ baseURL: c.baseURL, apiKey: c.apiKey, fetch: c.fetch });
const request = (model, c) => ({ model, messages: [{ role: 'user', content: c.content }], maxOutputTokens: limit, maxRetries: 1 });

async function plain(model, c) {
  const data = await generateText(request(model, c));
  return { text: `${data.finishReason} ${data.text}`, usage: data.usage.totalTokens };
}

async function streamed(model, c) {
  let text = '', usage;
  for await (const part of streamText({ ...request(model, c), onError() {} }).fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'finish') { text = `${part.finishReason} ${text}`; usage = part.totalUsage.totalTokens; }
  }
  return { text, usage };
}

run('ai', {
  describe(err) {
    const data = err.data?.error ?? err.error ?? {};
    return { status: err.statusCode, code: data.code, type: data.type, message: err.message };
  },
  kinds: {
    chat: (c) => plain(provider(c).chat(c.model), c),
    stream: (c) => streamed(provider(c).chat(c.model), c),
    response: (c) => plain(provider(c)(c.model), c),
    events: (c) => streamed(provider(c)(c.model), c),
  },
});

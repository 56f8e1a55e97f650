// LangChain.
import { ChatOpenAI } from '@langchain/openai';
import { limit, run } from './matrix.mjs';

const open = (c, more) => new ChatOpenAI({
  model: c.model, apiKey: c.apiKey, maxRetries: 1, maxTokens: limit, configuration: { baseURL: c.baseURL, fetch: c.fetch }, ...more,
});
const words = (content) => (typeof content === 'string' ? content : content.map((part) => part.text ?? '').join(''));

async function plain(model, c) {
  const data = await model.invoke(c.content);
  return { text: words(data.content), usage: data.usage_metadata?.total_tokens };
}

async function streamed(model, c) {
  let text = '', usage;
  for await (const chunk of await model.stream(c.content)) {
    text += words(chunk.content);
    usage = chunk.usage_metadata?.total_tokens ?? usage;
  }
  return { text, usage };
}

run('langchain', {
  describe: (err) => ({ status: err.status, code: err.code, type: err.type, message: err.message }),
  kinds: {
    chat: (c) => plain(open(c), c),
    stream: (c) => streamed(open(c), c),
    response: (c) => plain(open(c, { useResponsesApi: true }), c),
    events: (c) => streamed(open(c, { useResponsesApi: true }), c),
  },
});

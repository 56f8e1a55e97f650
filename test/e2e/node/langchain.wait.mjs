// LangChain. Its retries are not marked as such, so it sends a key.
import { randomUUID } from 'node:crypto';
import { ChatOpenAI } from '@langchain/openai';
import { baseURL, clientTests } from './waiting.mjs';

const open = ({ key, fetch, maxRetries, model }) => new ChatOpenAI({
  model, apiKey: key, maxRetries, maxTokens: 100, configuration: { baseURL, fetch },
});
const call = () => ({ options: { headers: { 'Idempotency-Key': randomUUID() } } });

clientTests('langchain', {
  status: (err) => err.status,
  plain: async (o) => (await open(o).invoke(o.messages, call())).content,
  async stream(o) {
    let text = '';
    for await (const chunk of await open(o).stream(o.messages, call())) text += chunk.content;
    return text;
  },
});

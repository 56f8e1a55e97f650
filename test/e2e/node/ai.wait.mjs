// The Vercel AI SDK. Its retries are not marked as such, so it sends a key.
import { randomUUID } from 'node:crypto';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText } from 'ai';
import { baseURL, clientTests } from './waiting.mjs';

const request = ({ key, fetch, maxRetries, messages, model }) => ({
  model: createOpenAI({ baseURL, apiKey: key, fetch }).chat(model), messages, maxRetries, maxOutputTokens: 100,
  headers: { 'Idempotency-Key': randomUUID() },
});

clientTests('ai', {
  retriesRefusals: true, // it ignores X-Should-Retry
  status: (err) => err.statusCode ?? err.lastError?.statusCode,
  plain: async (o) => (await generateText(request(o))).text,
  async stream(o) {
    let text = '';
    for await (const part of streamText({ ...request(o), onError() {} }).fullStream) {
      if (part.type === 'error') throw part.error;
      if (part.type === 'text-delta') text += part.text;
    }
    return text;
  },
});

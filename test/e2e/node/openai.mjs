import { baseURL, clientTests } from './waiting.mjs';

export function openaiTests(OpenAI) {
  const open = ({ key, fetch, maxRetries }) => new OpenAI({ baseURL, apiKey: key, fetch, maxRetries });
  clientTests('openai', {
    status: (err) => err.status,
    async plain(o) {
      const data = await open(o).chat.completions.create({ model: o.model, messages: o.messages, max_tokens: 20 });
      return data.choices[0].message.content;
    },
    async stream(o) {
      const stream = await open(o).chat.completions.create({ model: o.model, messages: o.messages, max_tokens: 100, stream: true });
      let text = '';
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      return text;
    },
  });
}

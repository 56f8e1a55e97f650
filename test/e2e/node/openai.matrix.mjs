// The openai package, for Node 22 and Node 20.
import { limit, run } from './matrix.mjs';

export function openaiMatrix(OpenAI) {
  const open = (c) => new OpenAI({ baseURL: c.baseURL, apiKey: c.apiKey, fetch: c.fetch });
  const chat = (c) => ({ model: c.model, messages: [{ role: 'user', content: c.content }], max_tokens: limit });
  const response = (c) => ({ model: c.model, input: c.content, max_output_tokens: limit });
  run(`openai ${process.version}`, {
    describe: (err) => ({ status: err.status, code: err.code, type: err.type, param: err.param, message: err.message }),
    kinds: {
      async chat(c) {
        const data = await open(c).chat.completions.create(chat(c));
        return { text: data.choices[0].message.content, usage: data.usage.total_tokens };
      },
      async stream(c) {
        let text = '';
        for await (const chunk of await open(c).chat.completions.create({ ...chat(c), stream: true })) {
          text += chunk.choices.length ? chunk.choices[0].delta.content ?? '' : '(empty)';
        }
        return { text };
      },
      async helper(c) {
        const data = await open(c).chat.completions.stream({ ...chat(c), stream_options: { include_usage: true } }).finalChatCompletion();
        return { text: data.choices[0].message.content, usage: data.usage?.total_tokens };
      },
      async response(c) {
        const data = await open(c).responses.create(response(c));
        return { text: data.output_text, usage: data.usage.total_tokens };
      },
      async events(c) {
        const seen = [];
        for await (const event of await open(c).responses.create({ ...response(c), stream: true })) seen.push(event.type, event.delta ?? '');
        return { text: seen.join(' ') };
      },
      async eventhelper(c) {
        const data = await open(c).responses.stream(response(c)).finalResponse();
        return { text: `${data.status} ${data.output_text}`, usage: data.usage?.total_tokens };
      },
    },
  });
}

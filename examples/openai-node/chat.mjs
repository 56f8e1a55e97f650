// A chat completion, a stream, and what they cost.
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.LLMGUARD_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.LLMGUARD_KEY,
});
const messages = [{ role: 'user', content: 'Say hello' }];

// A plain call.
const completion = await client.chat.completions.create({ model: 'gpt-4o-mini', messages, max_tokens: 60 });
console.log(completion.choices[0].message.content);

// The same call with its headers: the cost, and what remains of each limit.
const { data, response } = await client.chat.completions
  .create({ model: 'gpt-4o-mini', messages, max_tokens: 60 })
  .withResponse();
console.log(data.choices[0].message.content);
console.log('cost $', response.headers.get('x-llmguard-cost-usd'));
for (const limit of response.headers.get('x-llmguard-limits').split(', ')) console.log('limit', limit);

// A stream.
const stream = await client.chat.completions.create({ model: 'gpt-4o-mini', messages, max_tokens: 60, stream: true });
for await (const chunk of stream) process.stdout.write(chunk.choices[0].delta.content ?? '');
console.log();

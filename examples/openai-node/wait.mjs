// Over the limit: calls wait instead of failing. What can never fit is refused.
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.LLMGUARD_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.LLMGUARD_KEY, // Bob's of `llmguard dev`
  timeout: 300_000, // llmguard holds a plain call for up to 280 s, then says when to come back
  maxRetries: 10, // and the SDK comes back by itself
});
const messages = [{ role: 'user', content: 'Say hello' }];

for (let i = 1; i <= 3; i++) {
  const start = performance.now();
  const { response } = await client.chat.completions
    .create({ model: 'gpt-4o-mini', messages, max_tokens: 100 })
    .withResponse();
  const waited = Number(response.headers.get('x-llmguard-waited-ms') ?? 0);
  console.log(`call ${i}: ${Math.round(performance.now() - start)} ms, of which ${waited} ms in the queue`);
}

// More than the whole limit: no waiting would help, so it is refused at once,
// with the limit's name and the largest max_tokens that would fit.
try {
  await client.chat.completions.create({ model: 'gpt-4o-mini', messages, max_tokens: 16000 });
} catch (e) {
  if (!(e instanceof OpenAI.RateLimitError)) throw e;
  console.log(e.code, '-', e.message);
}

// Calls over the limit wait. A call that can never fit is refused.
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.LLMGUARD_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.LLMGUARD_KEY, // Bob's key of `llmguard dev`
  timeout: 300_000, // llmguard keeps a plain call for up to 280 s, then answers 429 with Retry-After
  maxRetries: 10, // and the SDK retries after that time
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

// This call costs more than the whole limit, so it is refused immediately.
// The message names the limit and the largest max_tokens that would fit.
try {
  await client.chat.completions.create({ model: 'gpt-4o-mini', messages, max_tokens: 16000 });
} catch (e) {
  if (!(e instanceof OpenAI.APIError) || e.status !== 402) throw e;
  console.log(e.code, '-', e.message);
}

// Submit a call as a durable job with Prefer: respond-async, and fetch its answer later.
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.LLMGUARD_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.LLMGUARD_KEY,
});

// The answer is 202 with a job instead of a completion, so read the raw response.
const accepted = await client.chat.completions
  .create(
    { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'Say hello' }], max_tokens: 100 },
    { headers: { Prefer: 'respond-async' } },
  )
  .asResponse();
let job = await accepted.json();
console.log('queued as', job.id);

while (job.status === 'queued' || job.status === 'running') {
  await sleep(1000);
  job = await client.get(`/jobs/${job.id}`);
  console.log(job.status, 'ahead:', job.ahead ?? 0);
}

// charged_cost_usd is the final cost. A failed job has an error.
console.log('cost $', job.charged_cost_usd, job.error ?? '');
if (job.status === 'succeeded') {
  const answer = await client.get(`/jobs/${job.id}/result`);
  console.log(answer.choices[0].message.content);
}

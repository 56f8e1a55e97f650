// One chat completion with retries, using only fetch. Node 20 or newer.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const url = process.env.LLMGUARD_URL ?? 'http://127.0.0.1:8080/v1';
const key = process.env.LLMGUARD_KEY;
const retryable = new Set([408, 409, 429, 500, 502, 503, 504]);
const attempts = 8;

// delay returns seconds: what the server says plus jitter, or exponential backoff with full jitter.
function delay(attempt, headers) {
  const seconds = Number.parseFloat(headers?.get('retry-after'));
  if (seconds >= 0) return seconds + Math.random();
  return Math.random() * Math.min(30, 0.5 * 2 ** attempt);
}

// post sends one attempt. A connection that fails gives an error instead of a status.
async function post(path, body, headers) {
  try {
    const response = await fetch(url + path, { method: 'POST', body, headers, signal: AbortSignal.timeout(300_000) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  } catch (error) {
    return { error };
  }
}

// call sends one call, repeating it while a retry can help.
async function call(path, request) {
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'application/json',
    'idempotency-key': randomUUID(), // the same for all attempts of this call
  };
  for (let attempt = 0; ; attempt++) {
    const answer = await post(path, JSON.stringify(request), headers);
    if (answer.status < 300) return JSON.parse(answer.text);
    const advice = answer.headers?.get('x-should-retry');
    const retry = answer.error || advice === 'true' || (advice !== 'false' && retryable.has(answer.status));
    if (!retry || attempt === attempts - 1) throw answer.error ?? new Error(`${answer.status}: ${answer.text}`);
    const wait = delay(attempt, answer.headers);
    console.error(`${answer.status ?? answer.error}: retry in ${wait.toFixed(1)} s`);
    await sleep(wait * 1000);
  }
}

const answer = await call('/chat/completions', {
  model: 'gpt-4o-mini',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'Say hello' }],
});
console.log(answer.choices[0].message.content);

// Shared by the tests of waiting. BASE_URL is the server; KEYS has an API key for every user;
// MODEL is the client's own model; HOLD_MS is how long the proxy holds a silent call; GATE is
// the server that makes the provider answer a gated call.
import assert from 'node:assert/strict';
import { test } from 'node:test';

export const baseURL = process.env.BASE_URL;
export const keys = JSON.parse(process.env.KEYS);
export const hold = Number(process.env.HOLD_MS);
export const model = process.env.MODEL; // in a pool with a concurrency of one
export const free = 'gpt-4o-mini';
export const messages = [{ role: 'user', content: 'Say hello' }];
export const cutMessages = [{ role: 'user', content: '[fake: output=50 cut=eof]' }];
export const retries = hold > 60_000 ? 2 : 20; // short holds need more retries, many on a busy machine

const post = (key, body) => fetch(`${baseURL}/chat/completions`, {
  method: 'POST', body: JSON.stringify(body), headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
});

// gated makes a call that the provider answers when the gate is released. It waits for its turn like
// any other: a call that has just been answered may still have the slot.
async function gated(key) {
  for (;;) {
    const r = await post(key, { model, max_tokens: 5, messages: [{ role: 'user', content: '[gated]' }] });
    if (r.status !== 429) return r;
    await r.text();
  }
}

// occupy takes the pool's only slot until the returned function is called.
export async function occupy(key) {
  const call = gated(key);
  await fetch(`${process.env.GATE}/held`);
  return async () => {
    await fetch(`${process.env.GATE}/release`);
    await (await call).text();
  };
}

// spend uses up a user's hourly limit, and returns when the call has been charged. While it
// is held, another call would wait for its outcome.
export async function spend(key) {
  const r = await post(key, { model: free, max_tokens: 400, messages: [{ role: 'user', content: '[fake: output=400]' }] });
  assert.equal(r.status, 200, await r.text());
  const held = async () => {
    const limits = await fetch(`${baseURL}/limits`, { headers: { authorization: `Bearer ${key}` } });
    return (await limits.json()).data.some((limit) => limit.held !== 0);
  };
  while (await held()) await new Promise((done) => setTimeout(done, 20));
}

export async function jobs(key) {
  const r = await fetch(`${baseURL}/jobs`, { headers: { authorization: `Bearer ${key}` } });
  return (await r.json()).data;
}

// counting is a fetch that counts its calls, and calls again() at the second one.
export function counting(again = () => {}) {
  const counted = (...args) => {
    if (++counted.calls === 2) again();
    return fetch(...args);
  };
  counted.calls = 0;
  return counted;
}

// rejoins makes a call that is turned away at least once, and checks that its retries became
// one job.
export async function rejoins(occupant, key, call) {
  const leave = await occupy(occupant);
  let left;
  const counted = counting(() => { left = leave(); });
  const text = await call(counted);
  assert.ok(text.length > 0);
  assert.ok(counted.calls >= 2, `${counted.calls} requests: it was never sent away`);
  const list = await jobs(key);
  assert.equal(list.length, 1, JSON.stringify(list));
  assert.equal(list[0].status, 'succeeded');
  await left;
}

// clientTests run with every client. The client's functions take a key, a fetch and a number
// of retries, and return the text or throw.
export function clientTests(name, client) {
  test(`${name}: rejoins its place`, async () => {
    const key = keys[`${name}-rejoin`];
    await rejoins(keys[`${name}-occupant`], key, (counted) => client.plain({ key, fetch: counted, maxRetries: retries, messages, model }));
  });
  if (hold > 60_000) return;
  test(`${name}: a stream waits`, async () => {
    const key = keys[`${name}-stream`];
    const leave = await occupy(keys[`${name}-occupant`]);
    const counted = counting();
    const streaming = client.stream({ key, fetch: counted, maxRetries: 0, messages, model });
    while ((await jobs(key)).length === 0) await new Promise((done) => setTimeout(done, 20));
    await leave();
    const text = await streaming;
    assert.ok(text.length > 0);
    assert.equal(counted.calls, 1);
    assert.equal((await jobs(key)).length, 1);
  });
  test(`${name}: is refused at once`, async () => {
    const key = keys[`${name}-refused`];
    await spend(key);
    const counted = counting();
    await assert.rejects(
      client.plain({ key, fetch: counted, maxRetries: client.retriesRefusals ? 0 : 2, messages, model: free }),
      (err) => client.status(err) === 429 && /Rate limit reached/.test(String(err.message)),
    );
    assert.equal(counted.calls, 1);
    assert.equal((await jobs(key)).length, 0);
  });
  test(`${name}: a cut stream is an error`, async () => {
    await assert.rejects(client.stream({ key: keys[`${name}-cut`], fetch, maxRetries: 0, messages: cutMessages, model: free }));
  });
}

// Runs the JavaScript of docs/cookbook.md against a running llmguard, which LLMGUARD_URL and LLMGUARD_KEY select. DOCS
// is the directory of the documents. What the lines send is read from the requests.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const sent = [];
const send = globalThis.fetch;
globalThis.fetch = (url, options) => {
  sent.push(new Headers(url instanceof Request ? url.headers : options?.headers));
  return send(url, options);
};
const { default: OpenAI } = await import('openai');
const { createOpenAI } = await import('@ai-sdk/openai');
const { ChatOpenAI } = await import('@langchain/openai');
const { generateText } = await import('ai');

const page = readFileSync(join(process.env.DOCS, 'cookbook.md'), 'utf8');
const blocks = [...page.matchAll(/^```js\n(.*?)^```/gms)].map((m) => m[1]);
const prompt = 'Say hello';
const messages = [{ role: 'user', content: prompt }];
const common = {
  OpenAI, createOpenAI, ChatOpenAI, generateText, randomUUID, prompt, messages, model: 'gpt-4o-mini',
  body: { model: 'gpt-4o-mini', messages, max_tokens: 20 },
};

// run runs code with the names of scope, and returns what it declares.
async function run(code, scope) {
  const declared = [...code.matchAll(/^const (\w+) =/gm)].map((m) => m[1]);
  const names = Object.keys(scope).filter((name) => !declared.includes(name));
  const AsyncFunction = (async () => {}).constructor;
  const text = code.replace(/^import .*$/gm, '') + `\nreturn { ${declared.join(', ')} };`;
  return new AsyncFunction(...names, text)(...names.map((name) => scope[name]));
}

const made = {};
for (const block of blocks.filter((b) => b.startsWith('import '))) {
  const sdk = block.match(/\/\/ (openai-node|AI SDK|LangChain)/)[1];
  made[sdk] = { ...common, ...await run(block, common) };
}
made['AI SDK'].model = made['AI SDK'].openai.chat('gpt-4o-mini');

test('every block is run', () => {
  assert.deepEqual(Object.keys(made), ['openai-node', 'AI SDK', 'LangChain']);
  assert.equal(blocks.length, 5, 'a new block needs a test here');
});

test('the cost of a call', async () => {
  const printed = [];
  const console = { log: (...values) => printed.push(...values) };
  await run(blocks.find((b) => b.includes('withResponse')), { ...made['openai-node'], console });
  assert.match(printed[0], /^[0-9.]+$/);
  assert.ok(printed[1].length > 0);
});

for (const line of blocks.find((b) => b.includes('Idempotency-Key') || b.includes('idempotencyKey')).trim().split('\n')) {
  const sdk = line.split('// ')[1];
  test(`a key for repetitions with ${sdk}`, async () => {
    sent.length = 0;
    await run(line, made[sdk]);
    assert.ok(sent.length > 0, 'no request');
    for (const headers of sent) assert.match(headers.get('idempotency-key') ?? '', /^[0-9a-f-]{36}$/);
  });
}

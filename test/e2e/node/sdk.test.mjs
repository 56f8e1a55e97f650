// Tests the openai package against a running llmguard, which BASE_URL and API_KEY select.
// TIGHT_KEY belongs to a user over the limit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY });
const messages = [{ role: 'user', content: 'Say hello' }];
const model = 'gpt-4o-mini';

test('completion', async () => {
  const { data, response } = await client.chat.completions.create({ model, messages, max_tokens: 20 }).withResponse();
  assert.ok(data.choices[0].message.content.length > 0);
  assert.ok(data.usage.total_tokens > 0);
  assert.ok(data._request_id);
  assert.ok(response.headers.get('x-llmguard-cost-usd'));
  assert.match(response.headers.get('x-ratelimit-reset-tokens'), /^[0-9.]+(h|m|s|ms)/);
  assert.ok(Number(response.headers.get('x-ratelimit-remaining')) <= Number(response.headers.get('x-ratelimit-limit')));
  assert.match(response.headers.get('x-ratelimit-reset'), /^[0-9]+$/);
});

test('stream without usage: every chunk has a choice', async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 20, stream: true });
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? '';
  assert.ok(text.length > 0);
});

test('stream with usage', async () => {
  const stream = await client.chat.completions.create({
    model, messages, max_tokens: 20, stream: true, stream_options: { include_usage: true },
  });
  let usage;
  for await (const chunk of stream) usage = chunk.usage ?? usage;
  assert.ok(usage.completion_tokens > 0);
});

test('stream helper', async () => {
  const completion = await client.chat.completions.stream({ model, messages, max_tokens: 20 }).finalChatCompletion();
  assert.ok(completion.choices[0].message.content.length > 0);
});

test('tools', async () => {
  const tools = [{
    type: 'function',
    function: {
      name: 'weather', description: 'The weather in a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  }];
  const data = await client.chat.completions.create({ model, messages, tools, max_tokens: 100 });
  const call = data.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, 'weather');
  assert.equal(typeof JSON.parse(call.function.arguments).city, 'string');
});

test('structured output', async () => {
  const data = await client.chat.completions.create({
    model, messages, max_tokens: 200,
    response_format: {
      type: 'json_schema',
      json_schema: {
        name: 'person', strict: true,
        schema: {
          type: 'object', additionalProperties: false, required: ['name', 'age'],
          properties: { name: { type: 'string' }, age: { type: 'integer' } },
        },
      },
    },
  });
  const person = JSON.parse(data.choices[0].message.content);
  assert.equal(typeof person.name, 'string');
  assert.ok(Number.isInteger(person.age));
});

test('embeddings', async () => {
  const data = await client.embeddings.create({ model: 'text-embedding-3-small', input: ['one', 'two'] });
  assert.equal(data.data.length, 2);
  assert.equal(typeof data.data[0].embedding[0], 'number');
});

test('models', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert.ok(ids.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
});

test('errors', async () => {
  const once = { maxRetries: 0 };
  await assert.rejects(client.chat.completions.create({ model: 'no-such-model', messages }, once), OpenAI.BadRequestError);
  await assert.rejects(client.chat.completions.create({ model, messages, max_tokens: -1 }, once), OpenAI.BadRequestError);
  const stranger = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: 'sk-wrong', maxRetries: 0 });
  await assert.rejects(stranger.chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
});

test('over the limit: waits instead of failing', async () => {
  const tight = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.TIGHT_KEY, maxRetries: 0 });
  for (let i = 0; i < 2; i++) {
    const data = await tight.chat.completions.create({ model: 'gpt-4o', messages, max_tokens: 50 });
    assert.ok(data.choices.length === 1);
  }
});

test('a stream the provider breaks off is an error', async () => {
  await assert.rejects(async () => {
    const stream = await client.chat.completions.create({
      model, stream: true, max_tokens: 100, messages: [{ role: 'user', content: '[fake: output=50 cut=eof]' }],
    });
    for await (const chunk of stream) void chunk;
  }, OpenAI.APIError);
});

test('batch: upload, create, poll, read', async () => {
  const line = (id, url = '/v1/chat/completions') => JSON.stringify({
    custom_id: id, method: 'POST', url, body: { model, messages, max_tokens: 20 },
  });
  const upload = (text) => client.files.create({ file: new File([text], 'in.jsonl'), purpose: 'batch' });
  const run = async (file) => {
    const made = await client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
    assert.equal(made.status, 'validating');
    for (;;) {
      const batch = await client.batches.retrieve(made.id);
      if (['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) return batch;
      await new Promise((wake) => setTimeout(wake, 100));
    }
  };
  const file = await upload([line('a'), line('b')].join('\n'));
  assert.equal(file.purpose, 'batch');
  const batch = await run(file);
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  assert.ok(batch.usage.total_tokens > 0);
  const lines = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((l) => JSON.parse(l));
  assert.deepEqual(lines.map((l) => l.custom_id).sort(), ['a', 'b']);
  assert.ok(lines.every((l) => l.response.status_code === 200 && l.response.body.choices[0].message.content));

  const broken = await run(await upload([line('a'), line('a')].join('\n')));
  assert.equal(broken.status, 'failed');
  assert.equal(broken.errors.data[0].code, 'duplicate_custom_id');
  assert.equal(broken.errors.data[0].line, 2);

  const ids = [];
  for await (const one of client.batches.list({ limit: 1 })) ids.push(one.id);
  assert.deepEqual(ids, [broken.id, batch.id]);
  assert.equal((await client.files.delete(file.id)).deleted, true);
  await assert.rejects(client.files.retrieve(file.id), (e) => e.status === 404);
  await assert.rejects(client.batches.cancel(batch.id), (e) => e.status === 400);
});

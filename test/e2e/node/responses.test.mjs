// Tests Responses with the openai package, the AI SDK and LangChain against a running
// llmguard, which BASE_URL and API_KEY select. The same tests run with a provider that
// supports Responses and with one that supports only chat completions.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const model = 'gpt-4o-mini';
const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const tools = [{ type: 'function', name: 'weather', description: 'The weather in a city', parameters: schema, strict: true }];

test('create', async () => {
  const r = await client.responses.create({ model, instructions: 'Be kind', input: 'Say hello', max_output_tokens: 200 });
  assert.equal(r.status, 'completed');
  assert.ok(r.output_text.length > 0);
  assert.ok(r.usage.input_tokens > 0 && r.usage.output_tokens > 0);
  assert.equal(r.usage.input_tokens_details.cached_tokens, 0);
  assert.equal(r.usage.output_tokens_details.reasoning_tokens, 0);
  assert.equal(r.instructions, 'Be kind');
});

test('goes on, lists, deletes', async () => {
  const first = await client.responses.create({ model, input: 'Say hello', max_output_tokens: 200 });
  const next = await client.responses.create({ model, input: 'Again', previous_response_id: first.id, max_output_tokens: 200 });
  assert.equal(next.previous_response_id, first.id);
  assert.ok(next.usage.input_tokens > first.usage.output_tokens);
  assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);
  const items = [];
  for await (const item of client.responses.inputItems.list(first.id)) items.push(item);
  assert.equal(items.length, 1);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), (e) => e.status === 404);
});

test('stream', async () => {
  const stream = await client.responses.create({ model, input: 'Say hello', max_output_tokens: 200, stream: true });
  const kinds = [];
  let text = '', last = -1, final;
  for await (const event of stream) {
    kinds.push(event.type);
    assert.equal(event.sequence_number, ++last);
    if (event.type === 'response.output_text.delta') text += event.delta;
    if (event.type === 'response.completed') final = event.response;
  }
  const once = kinds.filter((kind, i) => kind !== kinds[i - 1]);
  assert.deepEqual(once, [
    'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added', 'response.output_text.delta',
    'response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed',
  ]);
  assert.equal(final.output[0].content[0].text, text);
});

test('stream helper', async () => {
  const final = await client.responses.stream({ model, input: 'Say hello', max_output_tokens: 200 }).finalResponse();
  assert.ok(final.output_text.length > 0);
});

test('a function, called and answered', async () => {
  const input = [{ role: 'user', content: 'What is the weather in Paris?' }];
  const r = await client.responses.create({ model, input, tools, max_output_tokens: 200 });
  const call = r.output.find((item) => item.type === 'function_call');
  assert.equal(call.name, 'weather');
  assert.equal(typeof JSON.parse(call.arguments).city, 'string');
  input.push(...r.output, { type: 'function_call_output', call_id: call.call_id, output: 'sunny' });
  const next = await client.responses.create({ model, input, max_output_tokens: 200 });
  assert.ok(next.output_text.length > 0);
});

test('a function in a stream', async () => {
  const stream = client.responses.stream({ model, input: 'Weather in Paris?', tools, max_output_tokens: 200 });
  let args = '', done;
  for await (const event of stream) {
    if (event.type === 'response.function_call_arguments.delta') args += event.delta;
    if (event.type === 'response.function_call_arguments.done') done = event;
  }
  assert.equal(done.arguments, args);
  const call = (await stream.finalResponse()).output[0];
  assert.equal(call.arguments, args);
  assert.equal(call.name, 'weather');
});

test('parse', async () => {
  const r = await client.responses.parse({
    model, input: 'Which city?', max_output_tokens: 200,
    text: { format: { type: 'json_schema', name: 'place', schema, strict: true } },
  });
  assert.equal(typeof JSON.parse(r.output_text).city, 'string');
});

test('a picture', async () => {
  const picture = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const r = await client.responses.create({
    model, max_output_tokens: 200,
    input: [{ role: 'user', content: [{ type: 'input_text', text: 'What is it?' }, { type: 'input_image', image_url: picture, detail: 'low' }] }],
  });
  assert.ok(r.output_text.length > 0);
});

test('a stream that breaks off is an error, numbered', async () => {
  await assert.rejects(async () => {
    const stream = await client.responses.create({ model, input: '[fake: output=50 cut=eof]', max_output_tokens: 100, stream: true });
    for await (const event of stream) void event;
  }, OpenAI.APIError);
});

test('in the background', async () => {
  let r = await client.responses.create({ model, input: 'Say hello', max_output_tokens: 200, background: true });
  while (r.status === 'queued' || r.status === 'in_progress') {
    await new Promise((wake) => setTimeout(wake, 50));
    r = await client.responses.retrieve(r.id);
  }
  assert.equal(r.status, 'completed');
  assert.ok(r.output_text.length > 0);
});

test('batch lines', async () => {
  const lines = ['a', 'b'].map((id) => JSON.stringify({
    custom_id: id, method: 'POST', url: '/v1/responses', body: { model, input: 'Say hello', max_output_tokens: 200 },
  }));
  const file = await client.files.create({ file: new File([lines.join('\n')], 'in.jsonl'), purpose: 'batch' });
  let batch = await client.batches.create({ input_file_id: file.id, endpoint: '/v1/responses', completion_window: '24h' });
  while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
    await new Promise((wake) => setTimeout(wake, 100));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  const out = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((l) => JSON.parse(l));
  assert.ok(out.every((l) => l.response.status_code === 200 && l.response.body.object === 'response' && l.response.body.output[0].content[0].text));
});

// The AI SDK uses Responses by default.
const ai = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY })(model);

test('AI SDK: text', async () => {
  const r = await generateText({ model: ai, prompt: 'Say hello', maxOutputTokens: 200, maxRetries: 0 });
  assert.ok(r.text.length > 0);
  assert.ok(r.usage.inputTokens > 0 && r.usage.outputTokens > 0);
  assert.equal(r.finishReason, 'stop');
});

test('AI SDK: stream', async () => {
  let text = '';
  const r = streamText({ model: ai, prompt: 'Say hello', maxOutputTokens: 200, maxRetries: 0 });
  for await (const part of r.fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') text += part.text;
  }
  assert.ok(text.length > 0);
  assert.equal(await r.finishReason, 'stop');
});

test('AI SDK: a tool, called and answered', async () => {
  let asked;
  const weather = tool({
    description: 'The weather in a city', inputSchema: jsonSchema(schema),
    execute: ({ city }) => { asked = city; return 'sunny'; },
  });
  const r = await generateText({
    model: ai, prompt: 'Weather in Paris?', tools: { weather }, maxOutputTokens: 200, maxRetries: 0,
    stopWhen: ({ steps }) => steps.length === 2,
  });
  assert.equal(typeof asked, 'string');
  assert.equal(r.steps.length, 2);
});

test('LangChain over Responses: text, stream', async () => {
  const chat = new ChatOpenAI({
    model, apiKey: process.env.API_KEY, useResponsesApi: true, maxTokens: 200, maxRetries: 0, configuration: { baseURL: process.env.BASE_URL },
  });
  const r = await chat.invoke('Say hello');
  assert.ok(r.text.length > 0);
  assert.ok(r.usage_metadata.input_tokens > 0);
  let text = '';
  for await (const chunk of await chat.stream('Say hello')) text += chunk.text;
  assert.ok(text.length > 0);
});

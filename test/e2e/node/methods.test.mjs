// Tests every method of the openai package against llmguard: supported methods are called, and
// the others must be listed as not served in docs/openai-api.md. A new version of the package
// with a method that is neither fails here. BASE_URL and API_KEY select the server, DOCS is
// the directory of the documents.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import OpenAI, { toFile } from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY });
const messages = [{ role: 'user', content: 'Say hello' }];
const model = 'gpt-4o-mini';
const bytes = (name = 'notes.txt') => toFile(Buffer.from('some words'), name);
const picture = () => toFile(Buffer.alloc(64), 'a.png', { type: 'image/png' });

// One second of silence: mono, 16 kHz, 16 bit.
function sound() {
  const b = Buffer.alloc(44 + 32_000);
  b.write('RIFF', 0); b.writeUInt32LE(36 + 32_000, 4); b.write('WAVEfmt ', 8); b.writeUInt32LE(16, 16);
  b.writeUInt16LE(1, 20); b.writeUInt16LE(1, 22); b.writeUInt32LE(16_000, 24); b.writeUInt32LE(32_000, 28);
  b.writeUInt16LE(2, 32); b.writeUInt16LE(16, 34); b.write('data', 36); b.writeUInt32LE(32_000, 40);
  return toFile(b, 'a.wav');
}

const wants = (id) => (made) => { assert.ok(made.id.startsWith(id), made.id); return made; };
const lists = async (page, id) => {
  const ids = [];
  for await (const one of page) ids.push(one.id);
  if (id) assert.ok(ids.includes(id), `${ids} has ${id}`);
  return ids;
};
const gone = async (deleted) => assert.equal((await deleted).deleted, true);

// one creates a thing once and returns the same one to every test.
const made = {};
const one = (name, make) => (made[name] ??= make());
const file = () => one('file', async () => wants('file')(await client.files.create({ file: await bytes(), purpose: 'user_data' })));
const store = () => one('store', async () => wants('vs_')(await client.vectorStores.create({ name: 'docs' })));
const container = () => one('container', async () => wants('cntr_')(await client.containers.create({ name: 'box' })));
const boxed = () => one('boxed', async () => client.containers.files.create((await container()).id, { file: await bytes() }));
const talk = () => one('talk', async () => wants('conv_')(await client.conversations.create({ items: [{ type: 'message', role: 'user', content: 'hi' }] })));
const item = () => one('item', async () => (await client.conversations.items.create((await talk()).id, { items: [{ type: 'message', role: 'user', content: 'more' }] })).data[0]);
const chat = () => one('chat', async () => client.chat.completions.create({ model, messages, max_tokens: 20, store: true }));
const response = () => one('response', async () => client.responses.create({ model, input: 'hi', max_output_tokens: 20 }));
const background = () => client.responses.create({ model, input: 'hi', max_output_tokens: 20, background: true });
const lines = () => toFile(Buffer.from(JSON.stringify({
  custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model, messages, max_tokens: 20 },
})), 'in.jsonl');
const batch = () => one('batch', async () => {
  const input = await client.files.create({ file: await lines(), purpose: 'batch' });
  return client.batches.create({ input_file_id: input.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
});
const attached = () => one('attached', async () => client.vectorStores.files.create((await store()).id, { file_id: (await file()).id }));
const filled = () => one('filled', async () => client.vectorStores.fileBatches.create((await store()).id, { file_ids: [(await file()).id] }));
const pending = () => client.uploads.create({ filename: 'a.txt', purpose: 'user_data', bytes: 10, mime_type: 'text/plain' });

const served = {
  'audio.speech.create': async () => assert.ok((await (await client.audio.speech.create({ model: 'tts-1', input: 'hi', voice: 'alloy' })).arrayBuffer()).byteLength > 0),
  'audio.transcriptions.create': async () => client.audio.transcriptions.create({ model: 'whisper-1', file: await sound() }),
  'audio.translations.create': async () => client.audio.translations.create({ model: 'whisper-1', file: await sound() }),
  'batches.create': batch,
  'batches.retrieve': async () => client.batches.retrieve((await batch()).id),
  'batches.list': async () => lists(client.batches.list(), (await batch()).id),
  'batches.cancel': async () => client.batches.cancel((await batch()).id).catch((e) => assert.equal(e.code, 'batch_ended')),
  'chat.completions.create': chat,
  'chat.completions.retrieve': async () => assert.equal((await client.chat.completions.retrieve((await chat()).id)).id, (await chat()).id),
  'chat.completions.update': async () => client.chat.completions.update((await chat()).id, { metadata: { a: 'b' } }),
  'chat.completions.list': async () => lists(client.chat.completions.list(), (await chat()).id),
  'chat.completions.delete': async () => {
    const { id } = await client.chat.completions.create({ model, messages, max_tokens: 20, store: true });
    await gone(client.chat.completions.delete(id));
  },
  'chat.completions.messages.list': async () => lists(client.chat.completions.messages.list((await chat()).id)),
  'chat.completions.parse': async () => client.chat.completions.parse({ model, messages, max_tokens: 500 }),
  'chat.completions.stream': async () => client.chat.completions.stream({ model, messages, max_tokens: 20 }).finalChatCompletion(),
  'chat.completions.runTools': async () => client.chat.completions.runTools({
    model, messages, max_tokens: 500, tools: [{ type: 'function', function: { name: 'f', parameters: {}, parse: JSON.parse, function: () => 'x' } }], tool_choice: 'none',
  }).done(),
  'completions.create': async () => client.completions.create({ model, prompt: 'hi', max_tokens: 5 }),
  'containers.create': container,
  'containers.retrieve': async () => client.containers.retrieve((await container()).id),
  'containers.list': async () => lists(client.containers.list(), (await container()).id),
  'containers.delete': async () => client.containers.delete((await client.containers.create({ name: 'x' })).id),
  'containers.files.create': boxed,
  'containers.files.retrieve': async () => client.containers.files.retrieve((await boxed()).id, { container_id: (await container()).id }),
  'containers.files.list': async () => lists(client.containers.files.list((await container()).id), (await boxed()).id),
  'containers.files.content.retrieve': async () => assert.equal(await (await client.containers.files.content.retrieve((await boxed()).id, { container_id: (await container()).id })).text(), 'the file'),
  'containers.files.delete': async () => {
    const { id } = await client.containers.files.create((await container()).id, { file_id: (await file()).id });
    await client.containers.files.delete(id, { container_id: (await container()).id });
  },
  'conversations.create': talk,
  'conversations.retrieve': async () => client.conversations.retrieve((await talk()).id),
  'conversations.update': async () => client.conversations.update((await talk()).id, { metadata: { a: 'b' } }),
  'conversations.delete': async () => gone(client.conversations.delete((await client.conversations.create({})).id)),
  'conversations.items.create': item,
  'conversations.items.retrieve': async () => client.conversations.items.retrieve((await item()).id, { conversation_id: (await talk()).id }),
  'conversations.items.list': async () => lists(client.conversations.items.list((await talk()).id), (await item()).id),
  'conversations.items.delete': async () => {
    const { data } = await client.conversations.items.create((await talk()).id, { items: [{ type: 'message', role: 'user', content: 'x' }] });
    await client.conversations.items.delete(data[0].id, { conversation_id: (await talk()).id });
  },
  'embeddings.create': async () => client.embeddings.create({ model: 'text-embedding-3-small', input: 'x' }),
  'files.create': file,
  'files.retrieve': async () => client.files.retrieve((await file()).id),
  'files.list': async () => lists(client.files.list(), (await file()).id),
  'files.content': async () => assert.equal(await (await client.files.content((await file()).id)).text(), 'some words'),
  'files.waitForProcessing': async () => client.files.waitForProcessing((await file()).id),
  'files.delete': async () => gone(client.files.delete((await client.files.create({ file: await bytes(), purpose: 'assistants' })).id)),
  'images.generate': async () => client.images.generate({ prompt: 'an otter' }),
  'images.edit': async () => client.images.edit({ prompt: 'an otter', image: await picture() }),
  'images.createVariation': async () => client.images.createVariation({ image: await picture() }),
  'models.list': async () => lists(client.models.list(), model),
  'models.retrieve': async () => client.models.retrieve(model),
  'moderations.create': async () => client.moderations.create({ input: 'x' }),
  'responses.create': response,
  'responses.parse': async () => client.responses.parse({ model, input: 'hi', max_output_tokens: 20 }),
  'responses.stream': async () => client.responses.stream({ model, input: 'hi', max_output_tokens: 20 }).finalResponse(),
  'responses.retrieve': async () => client.responses.retrieve((await response()).id),
  'responses.delete': async () => client.responses.delete((await client.responses.create({ model, input: 'hi', max_output_tokens: 20 })).id),
  'responses.cancel': async () => client.responses.cancel((await background()).id),
  'responses.compact': async () => client.responses.compact({ model, input: 'hi' }),
  'responses.inputItems.list': async () => lists(client.responses.inputItems.list((await response()).id)),
  'responses.inputTokens.count': async () => client.responses.inputTokens.count({ model, input: 'hi' }),
  'uploads.create': pending,
  'uploads.parts.create': async () => client.uploads.parts.create((await pending()).id, { data: await bytes() }),
  'uploads.complete': async () => {
    const { id } = await pending();
    const part = await client.uploads.parts.create(id, { data: await bytes() });
    const done = await client.uploads.complete(id, { part_ids: [part.id] });
    assert.equal((await client.files.retrieve(done.file.id)).bytes, 10);
  },
  'uploads.cancel': async () => assert.equal((await client.uploads.cancel((await pending()).id)).status, 'cancelled'),
  'vectorStores.create': store,
  'vectorStores.retrieve': async () => client.vectorStores.retrieve((await store()).id),
  'vectorStores.update': async () => assert.equal((await client.vectorStores.update((await store()).id, { name: 'new' })).name, 'new'),
  'vectorStores.list': async () => lists(client.vectorStores.list(), (await store()).id),
  'vectorStores.delete': async () => gone(client.vectorStores.delete((await client.vectorStores.create({})).id)),
  'vectorStores.search': async () => lists(client.vectorStores.search((await store()).id, { query: 'words' })),
  'vectorStores.files.create': attached,
  'vectorStores.files.createAndPoll': async () => client.vectorStores.files.createAndPoll((await store()).id, { file_id: (await file()).id }),
  'vectorStores.files.poll': async () => client.vectorStores.files.poll((await store()).id, (await attached()).id),
  'vectorStores.files.retrieve': async () => client.vectorStores.files.retrieve((await attached()).id, { vector_store_id: (await store()).id }),
  'vectorStores.files.update': async () => client.vectorStores.files.update((await attached()).id, { vector_store_id: (await store()).id, attributes: { a: 'b' } }),
  'vectorStores.files.list': async () => lists(client.vectorStores.files.list((await store()).id), (await attached()).id),
  'vectorStores.files.content': async () => lists(client.vectorStores.files.content((await attached()).id, { vector_store_id: (await store()).id })),
  'vectorStores.files.upload': async () => client.vectorStores.files.upload((await store()).id, await bytes()),
  'vectorStores.files.uploadAndPoll': async () => client.vectorStores.files.uploadAndPoll((await store()).id, await bytes()),
  'vectorStores.files.delete': async () => {
    const { id } = await client.vectorStores.files.upload((await store()).id, await bytes());
    await gone(client.vectorStores.files.delete(id, { vector_store_id: (await store()).id }));
  },
  'vectorStores.fileBatches.create': filled,
  'vectorStores.fileBatches.createAndPoll': async () => client.vectorStores.fileBatches.createAndPoll((await store()).id, { file_ids: [(await file()).id] }),
  'vectorStores.fileBatches.poll': async () => client.vectorStores.fileBatches.poll((await store()).id, (await filled()).id),
  'vectorStores.fileBatches.retrieve': async () => client.vectorStores.fileBatches.retrieve((await filled()).id, { vector_store_id: (await store()).id }),
  'vectorStores.fileBatches.cancel': async () => client.vectorStores.fileBatches.cancel((await filled()).id, { vector_store_id: (await store()).id }),
  'vectorStores.fileBatches.listFiles': async () => lists(client.vectorStores.fileBatches.listFiles((await filled()).id, { vector_store_id: (await store()).id })),
  'vectorStores.fileBatches.uploadAndPoll': async () => client.vectorStores.fileBatches.uploadAndPoll((await store()).id, { files: [await bytes()] }),
};

// notServed are the other parts of the package with a path of each; '' sends no request.
const notServed = {
  admin: '/organization/projects', 'audio.voices': '/audio/voices', 'audio.voiceConsents': '/audio/voice_consents', beta: '/assistants',
  contentProvenanceChecks: '/content_provenance_checks', decisions: '/decisions', evals: '/evals', fineTuning: '/fine_tuning/jobs',
  graders: '/fine_tuning/alpha/graders/run', live: '/live/sessions', 'models.delete': '', realtime: '/realtime/client_secrets',
  safety: '/safety/alerts/x', skills: '/skills', videos: '/videos', webhooks: '',
};

// methods lists the methods of a resource and of its subresources.
function methods(resource, prefix = '') {
  const found = [];
  for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(resource))) {
    if (name !== 'constructor' && !name.startsWith('_') && typeof resource[name] === 'function') found.push(prefix + name);
  }
  for (const [name, value] of Object.entries(resource)) {
    if (!name.startsWith('_') && value && typeof value === 'object' && '_client' in value) found.push(...methods(value, `${prefix}${name}.`));
  }
  return found;
}

const all = Object.entries(client).filter(([, value]) => value && typeof value === 'object' && '_client' in value)
  .flatMap(([name, value]) => methods(value, `${name}.`));
const belongs = (name, part) => name === part || name.startsWith(`${part}.`);
const works = new Set();

for (const [name, call] of Object.entries(served)) {
  test(name, async () => {
    assert.ok(all.includes(name), 'the package has no such method');
    await call();
    works.add(name);
  });
}

test('every other method is listed as not served', () => {
  const rest = all.filter((name) => !served[name] && !Object.keys(notServed).some((part) => belongs(name, part)));
  assert.deepEqual(rest, []);
});

test('what is not served is a 404 that leads to the page, and the page lists it', async () => {
  const page = readFileSync(join(process.env.DOCS, 'openai-api.md'), 'utf8').split('## Not served')[1];
  for (const path of Object.values(notServed)) {
    if (!path) continue;
    await assert.rejects(client.post(path, { body: {}, maxRetries: 0 }), (e) => e.status === 404 && e.message.includes('docs/openai-api.md#not-served'));
    assert.ok(page.includes(`/v1/${path.split('/')[1]}`), `the page has ${path}`);
  }
});

after(() => console.log(`# ${works.size} methods of ${all.length} work`));

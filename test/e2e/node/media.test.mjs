// Tests images, speech and transcripts, and Azure's client, with the openai package. BASE_URL
// and API_KEY select the server.
import assert from 'node:assert/strict';
import { createReadStream, writeFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import OpenAI, { AzureOpenAI, toFile } from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY });

// One second of silence: mono, 16 kHz, 16 bit.
function wav() {
  const b = Buffer.alloc(44 + 32_000);
  b.write('RIFF', 0); b.writeUInt32LE(36 + 32_000, 4); b.write('WAVEfmt ', 8); b.writeUInt32LE(16, 16);
  b.writeUInt16LE(1, 20); b.writeUInt16LE(1, 22); b.writeUInt32LE(16_000, 24); b.writeUInt32LE(32_000, 28);
  b.writeUInt16LE(2, 32); b.writeUInt16LE(16, 34); b.write('data', 36); b.writeUInt32LE(32_000, 40);
  return b;
}

test('images.generate', async () => {
  const { data, response } = await client.images.generate({ model: 'gpt-image-1', prompt: 'an otter', quality: 'low', n: 2 }).withResponse();
  assert.equal(data.data.length, 2);
  assert.ok(data.data[0].b64_json && data.usage.output_tokens > 0);
  assert.ok(Number(response.headers.get('x-llmguard-cost-usd')) > 0);
});

test('images.generate as a stream', async () => {
  const kinds = [];
  for await (const e of await client.images.generate({ model: 'gpt-image-1', prompt: 'an otter', quality: 'low', stream: true, partial_images: 1 })) kinds.push(e.type);
  assert.deepEqual(kinds, ['image_generation.partial_image', 'image_generation.completed']);
});

test('images.edit', async () => {
  const image = await toFile(Buffer.from('not really a picture'), 'a.png', { type: 'image/png' });
  const result = await client.images.edit({ model: 'gpt-image-1', image: [image, image], prompt: 'an otter', quality: 'low' });
  assert.ok(result.data[0].b64_json);
});

test('images.generate that cannot be priced', async () => {
  await assert.rejects(client.images.generate({ model: 'dall-e-3', prompt: 'x', size: '640x480' }), { status: 400, code: 'image_not_priced' });
});

test('audio.transcriptions of a file stream', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'llmguard-')), 'second.wav');
  writeFileSync(path, wav());
  const { data, response } = await client.audio.transcriptions.create({ file: createReadStream(path), model: 'whisper-1' }).withResponse();
  assert.ok(data.text.length > 0);
  assert.equal(data.usage.type, 'duration');
  assert.ok(Number(response.headers.get('x-llmguard-cost-usd')) > 0);
});

test('audio.transcriptions as a stream', async () => {
  const stream = await client.audio.transcriptions.create({ file: await toFile(wav(), 'a.wav'), model: 'gpt-4o-transcribe', stream: true });
  let text = '', done;
  for await (const e of stream) {
    if (e.type === 'transcript.text.delta') text += e.delta;
    if (e.type === 'transcript.text.done') done = e;
  }
  assert.equal(done.text, text);
});

test('audio.translations', async () => {
  const result = await client.audio.translations.create({ file: await toFile(wav(), 'a.wav'), model: 'whisper-1' });
  assert.ok(result.text.length > 0);
});

test('audio.speech', async () => {
  const response = await client.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: 'hello' });
  const sound = Buffer.from(await response.arrayBuffer());
  assert.equal(response.headers.get('content-type'), 'audio/mpeg');
  assert.equal(sound[0], 0xff);
  assert.equal(response.headers.get('x-llmguard-cost-usd'), '0.000075000');
});

test("azure's client", async () => {
  const azure = new AzureOpenAI({
    endpoint: new URL(process.env.BASE_URL).origin, apiKey: process.env.API_KEY, apiVersion: '2024-10-21', deployment: 'gpt-4o-mini',
  });
  const result = await azure.chat.completions.create({ model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }], max_tokens: 5 });
  assert.ok(result.choices[0].message.content.length > 0);
});

// Verifies llmguard's webhook deliveries with the openai package. POSTS is [{headers, body}],
// SECRET the receiver's secret.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({ apiKey: 'not used' });
const posts = JSON.parse(process.env.POSTS);
const { SECRET, OLD_SECRET, WRONG_SECRET } = process.env;

test('there is something to check', () => assert.ok(posts.length > 0));

for (const { headers, body } of posts) {
  test(`unwrap ${headers['webhook-id']}`, async () => {
    for (const secret of [SECRET, OLD_SECRET]) { // during a rotation, either is valid
      const event = await client.webhooks.unwrap(body, headers, secret);
      assert.equal(event.object, 'event');
      assert.equal(event.id, headers['webhook-id']);
      assert.match(event.type, /^(job\.(succeeded|cancelled)|response\.(completed|incomplete|failed)|batch\.(completed|failed|expired|cancelled))$/);
      assert.match(event.data.id, /^(job|resp|batch)_/);
      assert.ok(Math.abs(event.created_at - Date.now() / 1000) < 3600);
    }
    await assert.rejects(client.webhooks.unwrap(body, headers, WRONG_SECRET));
    await assert.rejects(client.webhooks.unwrap(body.replace('type', 'tipe'), headers, SECRET));
  });
}

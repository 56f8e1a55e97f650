// Shared by the clients of the matrix. ROWS are the trials; each runs at the provider
// itself and through llmguard, and its outcome is a line of JSON. A client's functions
// take (connection, row), one per kind of call; they return {text, usage} or throw.
const rows = JSON.parse(process.env.ROWS);
const vias = { direct: [process.env.DIRECT_URL, process.env.DIRECT_KEY], through: [process.env.BASE_URL, process.env.API_KEY] };

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// once runs one trial. On a busy machine a call may wait in the queue and end like a job,
// which is not what is tested, so it is repeated.
async function once(name, client, row, kind, via) {
  let out;
  for (let tries = 0; tries < 60; tries++) {
    let waited = false;
    const counted = async (...args) => {
      counted.calls++;
      const response = await fetch(...args);
      waited ||= response.headers.has('x-llmguard-job-id');
      return response;
    };
    counted.calls = 0;
    out = { row: row.name, kind, via, ok: true };
    try {
      const [baseURL, apiKey] = vias[via];
      const content = `[fake: text=one+two+three+four+five+six ${row.fake}] ${name} ${row.name} ${kind} ${via[0]} ${tries}`;
      let call = client.kinds[kind]({ baseURL, apiKey, fetch: counted, content, model: row.model });
      if (via === 'direct' && row.direct_ms) call = Promise.race([call, sleep(row.direct_ms).then(() => { throw new Error('no end'); })]);
      Object.assign(out, await call);
    } catch (thrown) {
      const err = thrown.lastError ?? thrown; // the AI SDK's, after its retries
      const told = client.describe(err);
      Object.assign(out, { ok: false, class: err.constructor.name, ...told, code: `${told.code ?? ''}` });
    }
    out.attempts = counted.calls;
    if (row.busy || !waited) break;
  }
  console.log(JSON.stringify(out));
}

export async function run(name, client) {
  const trials = [];
  for (const row of rows) {
    for (const kind of row.kinds) {
      if (client.kinds[kind]) for (const via of Object.keys(vias)) trials.push(() => once(name, client, row, kind, via));
    }
  }
  let next = 0;
  const worker = async () => { while (next < trials.length) await trials[next++](); };
  await Promise.all(Array.from({ length: 8 }, worker));
  process.exit(0);
}

export const limit = 50;

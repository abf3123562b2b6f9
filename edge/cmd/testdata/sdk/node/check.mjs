// Uses OpenAI's JavaScript SDK as an app would, against the base URL and with
// the key that it is given, and prints one JSON line per check.
//
// The upstream behind the base URL is Eisbach's simulator, which takes its
// script from the name of the model. ../go makes the same checks.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [baseURL, apiKey] = process.argv.slice(2);
// They never try again, so that a check sees the first answer.
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });
const stranger = new OpenAI({ baseURL, apiKey: 'no-such-key', maxRetries: 0, timeout: 10_000 });

const ask = (model, more) => ({ model, messages: [{ role: 'user', content: 'Hello' }], ...more });

const checks = {
  async 'lists models'() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert(ids.includes('simulated'), `the simulator's model is not among ${ids}`);
  },

  async 'gets a whole answer'() {
    const whole = await client.chat.completions.create(ask('sim_tokens=10'));
    const stream = await read(ask('sim_tokens=10'));
    assert.equal(whole.choices.length, 1);
    assert.equal(whole.choices[0].finish_reason, 'stop');
    assert.notEqual(stream.text, '');
    assert.equal(whole.choices[0].message.content, stream.text);
    assert.equal(whole.usage.completion_tokens, 10);
  },

  async 'gets a stream piece by piece'() {
    const got = await read(ask('sim_tokens=10_tpot=20ms'));
    assert.equal(got.pieces, 10);
    // A tenth of the upstream's time.
    assert(got.last - got.first >= 18, 'the pieces came all at once');
    complete(got);
  },

  async 'gets usage when it asks'() {
    const got = await read(ask('sim_tokens=10', { stream_options: { include_usage: true } }));
    assert.equal(got.usages.length, 1);
    assert.equal(got.usages[0].completion_tokens, 10);
    assert.equal(got.usages[0].total_tokens, got.usages[0].prompt_tokens + 10);
    complete(got);
  },

  async 'gets no usage unasked'() {
    const got = await read(ask('sim_tokens=10'));
    assert.deepEqual(got.usages, []);
    assert.equal(got.bare, 0);
    complete(got);
  },

  async 'gets a tool call'() {
    const tools = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }];
    const got = await read(ask('sim_tokens=10_tools=1', { tools }));
    assert.ifError(got.error);
    assert.notEqual(got.toolID, '');
    assert.notEqual(got.tool, '');
    JSON.parse(got.arguments);
    assert.deepEqual(got.finishes, ['tool_calls']);
  },

  // The upstream is silent for longer than the route waits before it answers
  // and begins to beat.
  async 'waits through heartbeats'() {
    const got = await read(ask('sim_tokens=10_ttft=500ms'));
    assert(got.first - got.head >= 40, `the status came only ${got.first - got.head} ms before the text`);
    complete(got);
  },

  async 'reads what the upstream writes oddly'() {
    const plain = await read(ask('sim_tokens=10'));
    for (const way of ['keepalive', 'crlf', 'split', 'no-done']) {
      try {
        const got = await read(ask(`sim_tokens=10_fail=${way}`));
        complete(got);
        assert.equal(got.text, plain.text);
      } catch (e) {
        throw new Error(way, { cause: e });
      }
    }
  },

  async 'raises a refused key'() {
    const error = await raised(stranger.chat.completions.create(ask('sim_tokens=10')));
    assert(error instanceof OpenAI.AuthenticationError, String(error));
    answered(error, 401, 'invalid_request_error', 'invalid_api_key');
  },

  async 'raises an error in a stream'() {
    broken(await read(ask('sim_tokens=10_fail=error-mid')), 'upstream_error', /The model crashed\./);
  },

  async 'raises a cut stream'() {
    broken(await read(ask('sim_tokens=10_fail=drop-mid')), 'upstream_disconnected');
  },

  async 'raises an overloaded upstream'() {
    const error = await raised(client.chat.completions.create(ask('sim_tokens=10_fail=429')));
    assert(error instanceof OpenAI.InternalServerError, String(error));
    answered(error, 503, 'server_error', 'upstream_overloaded');
  },
};

// read tells what a stream brought.
async function read(question) {
  const stream = await client.chat.completions.create({ ...question, stream: true });
  const got = {
    head: performance.now(), first: 0, last: 0, // of the status, of the first and the last piece of text
    text: '', pieces: 0, finishes: [], usages: [],
    bare: 0, // chunks without a choice
    toolID: '', tool: '', arguments: '',
  };
  try {
    for await (const chunk of stream) {
      if (chunk.usage) got.usages.push(chunk.usage);
      if (chunk.choices.length === 0) got.bare++;
      else add(got, chunk.choices[0]);
    }
  } catch (error) {
    got.error = error;
  }
  return got;
}

function add(got, { delta, finish_reason }) {
  if (delta.content) {
    got.last = performance.now();
    if (got.pieces === 0) got.first = got.last;
    got.text += delta.content;
    got.pieces++;
  }
  for (const call of delta.tool_calls ?? []) {
    got.toolID += call.id ?? '';
    got.tool += call.function?.name ?? '';
    got.arguments += call.function?.arguments ?? '';
  }
  if (finish_reason) got.finishes.push(finish_reason);
}

// complete wants a stream that came to its end.
function complete(got) {
  assert.ifError(got.error);
  assert.notEqual(got.text, '');
  assert.deepEqual(got.finishes, ['stop']);
}

// broken wants a stream that brought text and then failed: with the upstream's
// own words, where it had some.
function broken(got, code, words = /./) {
  assert(got.error instanceof OpenAI.APIError, `got ${got.error} after ${got.text}`);
  assert.equal(got.error.code, code);
  assert.equal(got.error.type, 'server_error');
  assert.match(got.error.message, words);
  assert.notEqual(got.text, '');
  assert.deepEqual(got.finishes, []);
}

// answered wants the error of an answer that has a status.
function answered(error, status, type, code) {
  assert.equal(error.status, status);
  assert.equal(error.type, type);
  assert.equal(error.code, code);
  assert(error.requestID, 'the answer has no x-request-id');
}

async function raised(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error('nothing was raised');
}

for (const [name, check] of Object.entries(checks)) {
  let detail = '';
  try {
    await check();
  } catch (error) {
    detail = error.stack + (error.cause ? `\ncaused by ${error.cause.stack ?? error.cause}` : '');
  }
  console.log(JSON.stringify({ name, ok: detail === '', detail }));
}

// Takes one of the JavaScript clients through the matrix: puts the questions on
// standard input, all at once, and prints what the client showed, one JSON line
// each. ../matrix/client does the same in Go.
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';

// A client is the npm package to show the version of, the module that knows how
// to ask with it, and what else that has to be told.
const clients = {
  'openai': ['openai', 'openai', 'openai'],
  'openai6': ['openai6', 'openai', 'openai6'],
  'openai4': ['openai4', 'openai', 'openai4'],
  'sambanova': ['sambanova', 'openai', 'sambanova'],
  'ai': ['ai', 'ai', 'ai', '@ai-sdk/openai-compatible'],
  'ai6': ['ai6', 'ai', 'ai6', 'openai-compatible2'],
  'langchain': ['@langchain/openai', 'langchain'],
  'anthropic': ['@anthropic-ai/sdk', 'anthropic'],
};

const [client, baseURL, apiKey, signalURL] = process.argv.slice(2);
const [shown, module, ...packages] = clients[client];
const { version } = JSON.parse(readFileSync(new URL(`node_modules/${shown}/package.json`, import.meta.url)));
const { default: connect } = await import(`./clients/${module}.mjs`);
const ask = await connect({ baseURL, apiKey, packages });

// Sighting is what a client showed of one stream.
class Sighting {
  SDK = version;
  Text = '';
  Reasoning = '';
  Finish = [];
  Usage = [];
  Tools = [];
  Error = null;
  #seen = false;

  constructor(model) { this.Model = model; }

  addText(piece) { this.#delta(piece); this.Text += piece ?? ''; }

  addReasoning(piece) { this.#delta(piece); this.Reasoning += piece ?? ''; }

  addFinish(reason) { if (reason) this.Finish.push(reason); }

  addUsage(Prompt, Completion) { this.Usage.push({ Prompt, Completion }); }

  // addCall takes a piece of the tool call with that index.
  addCall(index, id, name, args) {
    this.#delta('a call');
    const call = this.Tools[index] ??= { ID: '', Name: '', Arguments: '' };
    call.ID += id ?? '';
    call.Name += name ?? '';
    call.Arguments += args ?? '';
  }

  // #delta tells the upstream that the first delta was seen.
  #delta(piece) {
    if (!piece || this.#seen) return;
    this.#seen = true;
    fetch(`${signalURL}?model=${encodeURIComponent(this.Model)}`, { method: 'POST' }).catch(() => {});
  }
}

// failure takes an error apart that names its parts, or holds a body that does.
function failure(error) {
  const said = [error, error.error, error.error?.error].find((e) => e?.code || e?.type) ?? error;
  return {
    Message: String(said.message ?? error.message ?? error), Code: String(said.code ?? ''), Type: String(said.type ?? ''),
  };
}

await Promise.all(JSON.parse(await text(process.stdin)).map(async (question) => {
  const seen = new Sighting(question.Model);
  try {
    await ask(question, seen);
  } catch (error) {
    seen.Error = failure(error);
  }
  console.log(JSON.stringify(seen));
}));

// Anthropic's SDK, which knows the Messages API alone.
import Anthropic from '@anthropic-ai/sdk';

export default async function connect({ baseURL, apiKey }) {
  // The SDK adds the version to the path by itself.
  const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ''), apiKey, maxRetries: 0 });
  return async ({ Model, Tools }, seen) => {
    const stream = await client.messages.create({
      model: Model, max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }], stream: true,
      ...(Tools && { tools: [{ name: 'get_weather', input_schema: { type: 'object' } }] }),
    });
    const usage = {};
    let ended = false;
    for await (const event of stream) {
      take(event, seen, usage);
      ended ||= event.type === 'message_stop';
    }
    if (!ended) throw new Error('the stream has no message_stop');
    seen.addUsage(usage.input_tokens, usage.output_tokens);
  };
}

function take({ type, index, message, delta, content_block, usage }, seen, total) {
  switch (type) {
    case 'message_start': Object.assign(total, message.usage); break;
    case 'message_delta':
      seen.addFinish(delta.stop_reason);
      Object.assign(total, usage);
      break;
    case 'content_block_start':
      if (content_block.type === 'tool_use') seen.addCall(index, content_block.id, content_block.name);
      break;
    case 'content_block_delta':
      seen.addText(delta.text);
      seen.addReasoning(delta.thinking);
      if (delta.type === 'input_json_delta') seen.addCall(index, '', '', delta.partial_json);
  }
}

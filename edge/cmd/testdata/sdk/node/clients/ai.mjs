// Vercel's AI SDK with its provider for OpenAI-compatible APIs.
export default async function connect({ baseURL, apiKey, packages: [core, provider] }) {
  const [{ jsonSchema, streamText, tool }, { createOpenAICompatible }] = await Promise.all([import(core), import(provider)]);
  return async ({ Model, Usage, Tools }, seen) => {
    const models = createOpenAICompatible({ name: 'eisbach', baseURL, apiKey, includeUsage: Usage });
    const { fullStream } = streamText({
      model: models(Model), prompt: 'Hello', maxRetries: 0,
      onError() {}, // would print it; it is a part as well
      ...(Tools && { tools: { get_weather: tool({ inputSchema: jsonSchema({ type: 'object' }) }) } }),
    });
    const calls = []; // ids, in the order of their first pieces
    for await (const part of fullStream) take(part, seen, calls);
  };
}

function take(part, seen, calls) {
  switch (part.type) {
    case 'text-delta': return seen.addText(part.text);
    case 'reasoning-delta': return seen.addReasoning(part.text);
    case 'tool-input-start':
      calls.push(part.id);
      return seen.addCall(calls.length - 1, part.id, part.toolName);
    case 'tool-input-delta': return seen.addCall(calls.indexOf(part.id), '', '', part.delta);
    case 'error': throw part.error;
    case 'finish':
      seen.addFinish(part.finishReason.replace('-', '_'));
      if (part.totalUsage.inputTokens !== undefined) seen.addUsage(part.totalUsage.inputTokens, part.totalUsage.outputTokens);
  }
}

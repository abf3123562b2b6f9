// OpenAI's SDK in its major versions, and SambaNova's, which is made like it.
export default async function connect({ baseURL, apiKey, packages: [name] }) {
  const { default: SDK } = await import(name);
  const client = new SDK({ baseURL, apiKey, maxRetries: 0 });
  return async ({ Model, Usage, Tools }, seen) => {
    const stream = await client.chat.completions.create({
      model: Model, messages: [{ role: 'user', content: 'Hello' }], stream: true,
      ...(Usage && { stream_options: { include_usage: true } }),
      ...(Tools && { tools: [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }] }),
    });
    for await (const { choices, usage } of stream) {
      if (usage) seen.addUsage(usage.prompt_tokens, usage.completion_tokens);
      for (const { delta, finish_reason } of choices) {
        seen.addReasoning(delta.reasoning ?? delta.reasoning_content);
        seen.addText(delta.content);
        for (const call of delta.tool_calls ?? []) {
          seen.addCall(call.index, call.id, call.function?.name, call.function?.arguments);
        }
        seen.addFinish(finish_reason);
      }
    }
  };
}

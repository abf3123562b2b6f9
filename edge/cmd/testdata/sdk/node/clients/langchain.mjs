// LangChain's integration of OpenAI-style APIs.
import { ChatOpenAI } from '@langchain/openai';

export default async function connect({ baseURL, apiKey }) {
  return async ({ Model, Usage, Tools }, seen) => {
    let model = new ChatOpenAI({ model: Model, apiKey, maxRetries: 0, streamUsage: Usage, configuration: { baseURL } });
    if (Tools) model = model.bindTools([{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }]);
    for await (const chunk of await model.stream('Hello')) {
      seen.addReasoning(chunk.additional_kwargs.reasoning_content ?? chunk.additional_kwargs.reasoning);
      seen.addText(chunk.text);
      for (const call of chunk.tool_call_chunks ?? []) seen.addCall(call.index, call.id, call.name, call.args);
      seen.addFinish(chunk.response_metadata.finish_reason);
      if (chunk.usage_metadata) seen.addUsage(chunk.usage_metadata.input_tokens, chunk.usage_metadata.output_tokens);
    }
  };
}

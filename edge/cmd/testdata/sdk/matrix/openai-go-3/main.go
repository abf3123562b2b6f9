// Program openai-go-3 takes OpenAI's Go SDK of the third major version through
// the matrix. It is built with go.mod and again with old.mod, which holds the
// last release that can't read a comment followed by a blank line.
package main

import (
	"context"
	"encoding/json"

	"client"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() { client.Main("github.com/openai/openai-go/v3", ask) }

func ask(ctx context.Context, base, key string, q client.Question, s *client.Sighting) {
	api := openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithMaxRetries(0))
	stream := api.Chat.Completions.NewStreaming(ctx, params(q))
	defer stream.Close()
	for stream.Next() {
		chunk := stream.Current()
		if chunk.JSON.Usage.Valid() {
			s.AddUsage(chunk.Usage.PromptTokens, chunk.Usage.CompletionTokens)
		}
		for _, choice := range chunk.Choices {
			delta := choice.Delta
			for _, name := range []string{"reasoning", "reasoning_content"} {
				var piece string
				json.Unmarshal([]byte(delta.JSON.ExtraFields[name].Raw()), &piece)
				s.AddReasoning(piece)
			}
			s.AddText(delta.Content)
			for _, call := range delta.ToolCalls {
				s.AddCall(int(call.Index), call.ID, call.Function.Name, call.Function.Arguments)
			}
			s.AddFinish(choice.FinishReason)
		}
	}
	if err := stream.Err(); err != nil {
		s.Error = client.FailureIn(err)
	}
}

func params(q client.Question) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:    q.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
	if q.Usage {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	if q.Tools {
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
			openai.FunctionDefinitionParam{Name: client.Tool, Parameters: openai.FunctionParameters{"type": "object"}})}
	}
	return p
}

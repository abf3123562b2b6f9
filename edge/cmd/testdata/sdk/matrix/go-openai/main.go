// Program go-openai takes the Go client of that name through the matrix.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"client"

	openai "github.com/sashabaranov/go-openai"
)

func main() { client.Main("github.com/sashabaranov/go-openai", ask) }

func ask(ctx context.Context, base, key string, q client.Question, s *client.Sighting) {
	config := openai.DefaultConfig(key)
	config.BaseURL = base
	stream, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(ctx, request(q))
	if err != nil {
		s.Error = failure(err)
		return
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			s.Error = failure(err)
			return
		}
		if chunk.Usage != nil {
			s.AddUsage(int64(chunk.Usage.PromptTokens), int64(chunk.Usage.CompletionTokens))
		}
		for _, choice := range chunk.Choices {
			s.AddReasoning(choice.Delta.ReasoningContent)
			s.AddText(choice.Delta.Content)
			for _, call := range choice.Delta.ToolCalls {
				if call.Index == nil {
					s.Error = &client.Failure{Message: "a piece of a tool call has no index"}
					return
				}
				s.AddCall(*call.Index, call.ID, call.Function.Name, call.Function.Arguments)
			}
			s.AddFinish(string(choice.FinishReason))
		}
	}
}

func request(q client.Question) openai.ChatCompletionRequest {
	r := openai.ChatCompletionRequest{
		Model:    q.Model,
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Hello"}},
	}
	if q.Usage {
		r.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	if q.Tools {
		r.Tools = []openai.Tool{{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: client.Tool, Parameters: map[string]string{"type": "object"}}}}
	}
	return r
}

func failure(err error) *client.Failure {
	var api *openai.APIError
	if !errors.As(err, &api) {
		return &client.Failure{Message: err.Error()}
	}
	return &client.Failure{Message: api.Message, Code: fmt.Sprint(api.Code), Type: api.Type}
}

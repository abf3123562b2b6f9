package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

func (s *sdk) listsModels(ctx context.Context) error {
	page, err := s.client.Models.List(ctx)
	if err != nil {
		return err
	}
	for _, model := range page.Data {
		if model.ID == "simulated" {
			return nil
		}
	}
	return fmt.Errorf("the simulator's model is not among %d", len(page.Data))
}

func (s *sdk) getsWholeAnswer(ctx context.Context) error {
	whole, err := s.client.Chat.Completions.New(ctx, ask("sim_tokens=10"))
	if err != nil {
		return err
	}
	stream := s.stream(ctx, ask("sim_tokens=10"))
	switch {
	case len(whole.Choices) != 1 || whole.Choices[0].FinishReason != "stop":
		return fmt.Errorf("got %s", whole.RawJSON())
	case stream.text == "" || whole.Choices[0].Message.Content != stream.text:
		return fmt.Errorf("got the text %q, and %q as a stream", whole.Choices[0].Message.Content, stream.text)
	case whole.Usage.CompletionTokens != 10:
		return fmt.Errorf("got the usage %s", whole.Usage.RawJSON())
	}
	return nil
}

func (s *sdk) getsStreamPieceByPiece(ctx context.Context) error {
	got := s.stream(ctx, ask("sim_tokens=10_tpot=20ms"))
	switch {
	case got.pieces != 10:
		return fmt.Errorf("10 tokens came in %d pieces", got.pieces)
	case got.last.Sub(got.first) < 18*time.Millisecond: // a tenth of the upstream's time
		return fmt.Errorf("the pieces came all at once")
	}
	return got.complete()
}

func (s *sdk) getsUsageWhenItAsks(ctx context.Context) error {
	question := ask("sim_tokens=10")
	question.StreamOptions.IncludeUsage = openai.Bool(true)
	got := s.stream(ctx, question)
	if got.usages != 1 || got.usage.CompletionTokens != 10 || got.usage.TotalTokens != got.usage.PromptTokens+10 {
		return fmt.Errorf("got %d usages, the last one %s", got.usages, got.usage.RawJSON())
	}
	return got.complete()
}

func (s *sdk) getsNoUsageUnasked(ctx context.Context) error {
	got := s.stream(ctx, ask("sim_tokens=10"))
	if got.usages != 0 || got.bare != 0 {
		return fmt.Errorf("got %d usages and %d chunks without a choice", got.usages, got.bare)
	}
	return got.complete()
}

func (s *sdk) getsToolCall(ctx context.Context) error {
	question := ask("sim_tokens=10_tools=1")
	question.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
		openai.FunctionDefinitionParam{Name: "get_weather", Parameters: openai.FunctionParameters{"type": "object"}})}
	got := s.stream(ctx, question)
	if got.err != nil {
		return got.err
	}
	if got.toolID == "" || got.tool == "" || !json.Valid([]byte(got.arguments)) || got.finish != "tool_calls" {
		return fmt.Errorf("got the call %q of %q with %q, and it finished with %q", got.toolID, got.tool, got.arguments, got.finish)
	}
	return nil
}

// waitsThroughHeartbeats meets an upstream that is silent for longer than the
// route waits before it answers and begins to beat.
func (s *sdk) waitsThroughHeartbeats(ctx context.Context) error {
	got := s.stream(ctx, ask("sim_tokens=10_ttft=500ms"))
	if wait := got.first.Sub(got.head); wait < 40*time.Millisecond {
		return fmt.Errorf("the status came only %v before the text", wait)
	}
	return got.complete()
}

func (s *sdk) readsWhatIsWrittenOddly(ctx context.Context) error {
	plain := s.stream(ctx, ask("sim_tokens=10"))
	for _, way := range []string{"keepalive", "crlf", "split", "no-done"} {
		got := s.stream(ctx, ask("sim_tokens=10_fail="+way))
		if err := got.complete(); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		if got.text != plain.text {
			return fmt.Errorf("%s: got %q, not %q", way, got.text, plain.text)
		}
	}
	return nil
}

func (s *sdk) raisesRefusedKey(ctx context.Context) error {
	_, err := s.stranger.Chat.Completions.New(ctx, ask("sim_tokens=10"))
	return wantAnswer(err, 401, "invalid_request_error", "invalid_api_key")
}

func (s *sdk) raisesErrorInStream(ctx context.Context) error {
	return s.stream(ctx, ask("sim_tokens=10_fail=error-mid")).wantBroken("upstream_error", "The model crashed.")
}

func (s *sdk) raisesCutStream(ctx context.Context) error {
	return s.stream(ctx, ask("sim_tokens=10_fail=drop-mid")).wantBroken("upstream_disconnected", "")
}

func (s *sdk) raisesOverloadedUpstream(ctx context.Context) error {
	_, err := s.client.Chat.Completions.New(ctx, ask("sim_tokens=10_fail=429"))
	return wantAnswer(err, 503, "server_error", "upstream_overloaded")
}

// wantAnswer wants the error of an answer that has a status.
func wantAnswer(err error, status int, kind, code string) error {
	var answer *openai.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("got %v, not an answer's error", err)
	}
	if answer.StatusCode != status || answer.Type != kind || answer.Code != code || answer.Message == "" {
		return fmt.Errorf("got %d %s", answer.StatusCode, answer.RawJSON())
	}
	if answer.Response.Header.Get("x-request-id") == "" {
		return errors.New("the answer has no x-request-id")
	}
	return nil
}

// reading is what a stream brought.
type reading struct {
	head, first, last time.Time // of the status, of the first and the last piece of text
	text              string
	pieces            int
	finish            string
	finishes          int
	usage             openai.CompletionUsage
	usages            int
	bare              int // chunks without a choice
	toolID, tool      string
	arguments         string
	err               error
}

func (s *sdk) stream(ctx context.Context, question openai.ChatCompletionNewParams) *reading {
	stream := s.client.Chat.Completions.NewStreaming(ctx, question)
	defer stream.Close()
	r := &reading{head: time.Now()}
	for stream.Next() {
		chunk := stream.Current()
		if chunk.JSON.Usage.Valid() {
			r.usages++
			r.usage = chunk.Usage
		}
		if len(chunk.Choices) == 0 {
			r.bare++
			continue
		}
		r.add(&chunk.Choices[0])
	}
	r.err = stream.Err()
	return r
}

func (r *reading) add(choice *openai.ChatCompletionChunkChoice) {
	if text := choice.Delta.Content; text != "" {
		if r.last = time.Now(); r.pieces == 0 {
			r.first = r.last
		}
		r.text += text
		r.pieces++
	}
	for _, call := range choice.Delta.ToolCalls {
		r.toolID += call.ID
		r.tool += call.Function.Name
		r.arguments += call.Function.Arguments
	}
	if choice.FinishReason != "" {
		r.finish = choice.FinishReason
		r.finishes++
	}
}

// complete wants a stream that came to its end.
func (r *reading) complete() error {
	if r.err != nil {
		return r.err
	}
	if r.text == "" || r.finish != "stop" || r.finishes != 1 {
		return fmt.Errorf("got the text %q and %d finish reasons, the last one %q", r.text, r.finishes, r.finish)
	}
	return nil
}

// wantBroken wants a stream that brought text and then failed: with the
// upstream's own words, where it had some.
func (r *reading) wantBroken(code, words string) error {
	var broken *ssestream.StreamError
	if !errors.As(r.err, &broken) {
		return fmt.Errorf("got %v after %q, not an error in the stream", r.err, r.text)
	}
	var failure struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(broken.Event.Data, &failure); err != nil {
		return err
	}
	if failure.Error.Code != code || failure.Error.Type != "server_error" || failure.Error.Message == "" || !strings.Contains(failure.Error.Message, words) {
		return fmt.Errorf("got %s", broken.Event.Data)
	}
	if r.text == "" || r.finishes != 0 {
		return fmt.Errorf("got the text %q and %d finish reasons before the error", r.text, r.finishes)
	}
	return nil
}

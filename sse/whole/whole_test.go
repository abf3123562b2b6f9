package whole

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// read splits a stream, each of whose events must be legal.
func read(t *testing.T, stream []byte) (all []sse.Event) {
	t.Helper()
	var r sse.Reader
	r.Reset(128 << 20)
	r.Advance(copy(r.Free(len(stream)), stream))
	total := 0
	for e, ok, err := r.Next(); ok; e, ok, err = r.Next() {
		if err != nil || !e.Legal {
			t.Fatalf("not legal: %q, %v", e.Raw, err)
		}
		total += len(e.Raw)
		all = append(all, sse.Event{Name: bytes.Clone(e.Name), Data: bytes.Clone(e.Data)})
	}
	if total != len(stream) {
		t.Fatalf("%d of %d bytes are events", total, len(stream))
	}
	return all
}

// assemble puts a stream together.
func assemble(t *testing.T, shape chunk.Shape, stream string) (string, error) {
	t.Helper()
	var a Assembler
	a.Reset(shape)
	for _, e := range read(t, []byte(stream)) {
		if err := a.Add(e.Name, e.Data); err != nil {
			out, again := a.Append([]byte("x"))
			if string(out) != "x" || again != err {
				t.Errorf("Append after %v: %q, %v", err, out, again)
			}
			return "", err
		}
	}
	out, err := a.Append([]byte("before "))
	text, ok := strings.CutPrefix(string(out), "before ")
	if !ok || err != nil && text != "" {
		t.Errorf("Append gives %q, %v", out, err)
	}
	return text, err
}

func data(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

func typed(events ...string) string {
	var dst []byte
	for _, e := range events {
		dst = sse.Append(dst, value(e).get("type").text(), []byte(e))
	}
	return string(dst)
}

func decode(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	if !reflect.DeepEqual(decode(t, got), decode(t, want)) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func checkAssembled(t *testing.T, shape chunk.Shape) func(stream, want string) {
	return func(stream, want string) {
		t.Helper()
		got, err := assemble(t, shape, stream)
		if err != nil {
			t.Errorf("%v: %s", err, stream)
			return
		}
		sameJSON(t, got, want)
	}
}

func TestAChatStreamBecomesACompletion(t *testing.T) {
	f := checkAssembled(t, chunk.Chat)
	// The canonical stream, with what OpenAI adds.
	f(data(
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"f","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null,"obfuscation":"x"}`,
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"H\u00e9"},"finish_reason":null}],"usage":null}`,
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"\"\ud83d"},"finish_reason":null}]}`,
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"\ude00\\"},"finish_reason":null}]}`,
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"total_latency":0.1000000000000000055}}`,
		`[DONE]`,
	), `{"id":"c","object":"chat.completion","created":1,"model":"m","system_fingerprint":"f","choices":[{"index":0,"message":{"role":"assistant","content":"H\u00e9\"😀\\"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"total_latency":0.1000000000000000055}}`)
	// Azure begins with a chunk of no id; choices null, absent, empty; usage on several; after the end.
	f(data(`{"id":"","created":0,"model":"","choices":[],"prompt_filter_results":[1]}`, `null`, `{"choices":null}`, `{}`,
		`{"id":"c","created":7,"model":"m","choices":[{"delta":{"reasoning":"th"}}],"usage":{"a":1}}`,
		`{"choices":[{"delta":{"role":"","reasoning":"ink","refusal":"no"},"logprobs":{"content":[{"token":"a"}]}}],"usage":{"a":2}}`,
		`{"choices":[{"delta":{"content":null},"logprobs":{"content":[{"token":"b"},1e400]},"finish_reason":""}],"usage":null}`,
		`{"choices":[{"delta":{"content":"x"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}`, `[DONE]`, `{"choices":[{"delta":{"content":"late"}}]}`),
		`{"id":"c","created":7,"model":"m","object":"chat.completion","prompt_filter_results":[1],"usage":{"a":2},"choices":[{"index":0,"message":{"role":"assistant","content":"x","reasoning":"think","refusal":"no"},"logprobs":{"content":[{"token":"a"},{"token":"b"},1e400]},"finish_reason":"length","stop_reason":null}]}`)
	// Several choices, in whatever order, without [DONE].
	f(data(`{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"}]}`),
		`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"},{"index":1,"message":{"role":"assistant","content":"bb"},"finish_reason":"length"}]}`)
	// One event that is a whole completion; a message so far beside each delta.
	f(data(`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`),
		`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`)
	f(data(`{"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}]}`, `{"choices":[{"message":{"content":"ab"},"delta":{"content":"b"},"finish_reason":"stop"}]}`),
		`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ab"},"finish_reason":"stop"}]}`)
	// [DONE] says it all.
	f(data(`{"choices":[{"delta":{"role":"assistant"}}]}`, `[DONE]`),
		`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"stop"}]}`)
}

func TestToolCallsAreJoinedByTheirIndex(t *testing.T) {
	f := func(want, reason string, deltas ...string) {
		t.Helper()
		var stream []string
		for _, d := range deltas {
			stream = append(stream, `{"choices":[{"index":0,"delta":`+d+`}]}`)
		}
		got, err := assemble(t, chunk.Chat, data(append(stream, "[DONE]")...))
		if err != nil {
			t.Error(err)
			return
		}
		sameJSON(t, got, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,`+want+`},"finish_reason":"`+reason+`"}]}`)
	}
	f(`"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1.0}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`, "tool_calls",
		`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`,
		`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}]}`,
		`{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"{\"x\":1"}}]}`,
		`{"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"","arguments":".0}"}},{"index":1,"function":{"arguments":"}"}}]}`)
	// Gemini: no index, whole calls; pieces without an index.
	f(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}},{"id":"b","function":{"name":"f","arguments":"{}"}},{"id":"c","function":{"name":"f","arguments":"{}"}}]`, "tool_calls",
		`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}},{"id":"b","function":{"name":"f","arguments":"{}"}}]}`,
		`{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]}`, `{"tool_calls":[{"function":{"arguments":"}"}}]}`)
	f(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]`, "tool_calls",
		`{"tool_calls":[{"index":-1,"id":"a","function":{"name":"f","arguments":"{"}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`)
	f(`"tool_calls":null`, "stop", `{"tool_calls":null}`)
	f(`"tool_calls":[]`, "stop", `{"tool_calls":[]}`)
	f(`"function_call":{"name":"f","arguments":"{}"}`, "stop", `{"function_call":{"name":"f","arguments":"{"}}`, `{"function_call":{"arguments":"}"}}`)
	f(`"audio":{"id":"a","data":"AABB","expires_at":2}`, "stop", `{"audio":{"id":"a","data":"AA"}}`, `{"audio":{"id":"a","data":"BB","expires_at":2}}`)
	f(`"reasoning_details":[{"index":0,"type":"t","text":"ab","format":"v1"},{"index":1,"type":"t","text":"c"}],"annotations":[1,2]`, "stop",
		`{"reasoning_details":[{"index":0,"type":"t","text":"a","format":"v1"}],"annotations":[1]}`,
		`{"reasoning_details":[{"index":0,"type":"t","text":"b","format":"v1"},{"index":1,"type":"t","text":"c"}],"annotations":[2]}`)
}

func TestACompletionStreamBecomesACompletion(t *testing.T) {
	checkAssembled(t, chunk.Completion)(data(
		`{"id":"c","object":"text_completion","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"text_offset":[0]},"finish_reason":null}]}`,
		`{"id":"c","object":"text_completion","choices":[{"index":0,"text":"b","logprobs":{"tokens":["b"],"text_offset":[1]},"finish_reason":"stop"}],"usage":{"x":1}}`, "[DONE]"),
		`{"id":"c","object":"text_completion","choices":[{"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"text_offset":[0,1]},"finish_reason":"stop"}],"usage":{"x":1}}`)
}

func TestAChatMayComeAsEventsOfTheResponsesAPI(t *testing.T) {
	f := func(message, reason, rest string, events ...string) {
		t.Helper()
		checkAssembled(t, chunk.Chat)(typed(events...),
			`{"object":"chat.completion",`+rest+`"choices":[{"index":0,"message":{"role":"assistant",`+message+`},"finish_reason":"`+reason+`"}]}`)
	}
	identity := `"id":"resp_1","created":5,"model":"m",`
	created := `{"type":"response.created","response":{"id":"resp_1","created_at":5,"model":"m","status":"in_progress"}}`
	f(`"content":"Hi\n!"`, "stop", identity+`"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"completion_tokens_details":{"reasoning_tokens":1}},`,
		created, `{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}`,
		`{"type":"response.output_text.delta","delta":"Hi"}`, `{"type":"response.output_text.delta","delta":"\n!"}`, `{"type":"response.output_text.done","text":"Hi\n!"}`,
		`{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"Hi\n!"}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5,"output_tokens_details":{"reasoning_tokens":1}}}}`)
	f(`"content":"Hi"`, "stop", "", `{"type":"response.output_text.delta","delta":"Hi"}`, `{"type":"response.completed"}`)
	f(`"content":"ab","refusal":"no","reasoning_content":"rs"`, "length", "", `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"rs"}]},{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"},{"type":"refusal","refusal":"no"}]}]}}`)
	call := `"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]`
	item := `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}`
	end := `{"type":"response.completed","response":{"output":[` + item + `]}}`
	f(call, "tool_calls", "", end)
	f(call, "tool_calls", "", `{"type":"response.output_item.done","output_index":0,"item":`+item+`}`, end)
	f(call, "tool_calls", "", `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"f","arguments":""}}`,
		`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{"}`, `{"type":"response.function_call_arguments.delta","output_index":0,"delta":"}"}`,
		`{"type":"response.output_item.done","output_index":0,"item":`+item+`}`, `{"type":"response.completed","response":{}}`)
}

func TestAResponsesStreamBecomesItsResponse(t *testing.T) {
	f := checkAssembled(t, chunk.Responses)
	response := `{"id":"r","status":"completed","output":[{"type":"message","id":"m"}],"x":1.50}`
	f(typed(`{"type":"response.created","response":{}}`, `{"type":"response.output_item.done","output_index":0,"item":{"type":"other"}}`, `{"type":"response.completed","response":`+response+`}`), response)
	f(typed(`{"type":"response.incomplete","response":`+response+`}`), response)
	item := `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m"}}`
	f(typed(item, `{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"x":1.50}}`), response)
	f(typed(item, `{"type":"response.completed","response":{"id":"r","status":"completed","x":1.50}}`), response)
}

func TestAMessagesStreamBecomesAMessage(t *testing.T) {
	checkAssembled(t, chunk.Messages)(typed(
		`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"c","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`, `{"type":"ping"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\n"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig=="}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"","citations":null}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"A"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"n":1}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"n":2}}}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\": 1.0, \"b\": \"\ud83d"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\ude00\\n\"}"}}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"u","name":"g","input":{}}}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"web_search_tool_result","content":[{"deep":{"er":[1]}}]}}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":0,"output_tokens":15,"server_tool_use":{"x":1}}}`,
		`{"type":"something_new"}`, `{"type":"message_stop"}`,
	), `{"id":"m","type":"message","role":"assistant","model":"c","stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":15,"server_tool_use":{"x":1}},
		"content":[{"type":"thinking","thinking":"hm\n","signature":"sig=="},{"type":"text","text":"A","citations":[{"n":1},{"n":2}]},{"type":"tool_use","id":"t","name":"f","input":{"a":1.0,"b":"😀\n"}},
		{"type":"tool_use","id":"u","name":"g","input":{}},{"type":"web_search_tool_result","content":[{"deep":{"er":[1]}}]}]}`)
}

func TestAStreamThatCantBeAnAnswerIsAnError(t *testing.T) {
	f := func(shape chunk.Shape, want error, stream string) {
		t.Helper()
		if got, err := assemble(t, shape, stream); !errors.Is(err, want) {
			t.Errorf("%s\n got %s, %v", stream[:min(len(stream), 300)], got, err)
		}
	}
	text := `{"choices":[{"index":0,"delta":{"content":"a"}}]}`
	f(chunk.Chat, ErrUnfinished, "")
	f(chunk.Chat, ErrUnfinished, data("[DONE]"))
	f(chunk.Chat, ErrUnfinished, data(`{"choices":[],"usage":{"prompt_tokens":1}}`, "[DONE]"))
	f(chunk.Chat, ErrUnfinished, data(text))
	f(chunk.Chat, ErrUnfinished, data(text, `{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`))
	f(chunk.Chat, ErrUnfinished, data(text, `{"choices":[{"index":0,"delta":{},"finish_reason":""}]}`))
	f(chunk.Chat, ErrFailed, data(text, `{"error":{"message":"m"}}`))
	f(chunk.Chat, ErrFailed, "event: error\ndata: {}\n\n")
	f(chunk.Chat, ErrFailed, data(`{"type":"response.failed","response":{}}`))
	f(chunk.Chat, ErrUnfinished, data(`{"type":"response.output_text.delta","delta":"a"}`))
	f(chunk.Chat, ErrShape, data(`{"type":"response.completed","response":{"output":[]}}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"delta":{"content":"a`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"delta":{"content":"\q"}}]}`))
	f(chunk.Chat, ErrShape, data(`{"choices":{}}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[null]}`))
	f(chunk.Chat, ErrShape, data(`[]`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"delta":"a"}]}`))
	f(chunk.Chat, ErrShape, data(text, `{"choices":[{"index":0,"delta":{"content":["a"]}}]}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"index":"0"}]}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"index":-2}]}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"delta":{"tool_calls":[1]}}]}`))
	f(chunk.Chat, ErrShape, data(`{"choices":[{"delta":{"tool_calls":"a"}},{"delta":{"tool_calls":[{}]}}]}`))
	f(chunk.Chat, ErrShape, data(strings.Repeat("[", 300)+strings.Repeat("]", 300)))
	f(chunk.Chat, ErrTooLarge, data(`{"choices":[{"index":128,"delta":{}}]}`))
	f(chunk.Chat, ErrTooLarge, data(`{"choices":[{"delta":{"tool_calls":[{"index":9007199254740993}]}}]}`))
	f(chunk.Chat, ErrTooLarge, data(`{"choices":[{"delta":{"tool_calls":[`+strings.Repeat(`{"function":{"name":"f"}},`, 100_000)+`{}]}}]}`))
	f(chunk.Completion, ErrUnfinished, data(`{"choices":[{"text":"a"}]}`))
	f(chunk.Responses, ErrUnfinished, data("[DONE]"))
	f(chunk.Responses, ErrFailed, typed(`{"type":"response.failed","response":{}}`))
	f(chunk.Responses, ErrShape, typed(`{"type":"response.completed"}`))
	f(chunk.Responses, ErrTooLarge, typed(`{"type":"response.output_item.done","output_index":128,"item":{}}`))
	start := `{"type":"message_start","message":{}}`
	block := `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}`
	piece := `{"type":"content_block_delta","index":0,"delta":{"partial_json":"{"}}`
	f(chunk.Messages, ErrUnfinished, typed(start))
	f(chunk.Messages, ErrUnfinished, typed(start)+data("[DONE]"))
	f(chunk.Messages, ErrShape, typed(`{"type":"message_stop"}`))
	f(chunk.Messages, ErrShape, typed(start, start))
	f(chunk.Messages, ErrShape, typed(start, block, block))
	f(chunk.Messages, ErrShape, typed(start, piece))
	f(chunk.Messages, ErrShape, typed(start, block, piece, `{"type":"message_stop"}`))
	f(chunk.Messages, ErrFailed, typed(start, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`))
	f(chunk.Embeddings, ErrShape, "")
	f(chunk.Other, ErrShape, data("{}"))
}

func TestAnAssemblerKeepsABoundedAmount(t *testing.T) {
	f := func(events func(i int) string) {
		t.Helper()
		var a Assembler
		for i := range 100 {
			if err := a.Add(nil, []byte(events(i))); err != nil {
				if err != ErrTooLarge || i < 30 {
					t.Errorf("%v at event %d", err, i)
				}
				if a.store.kept > 2*maxBytes {
					t.Errorf("%d bytes are kept", a.store.kept)
				}
				return
			}
		}
		t.Error("there was no limit")
	}
	big := strings.Repeat("a", 1<<20)
	f(func(int) string { return `{"choices":[{"delta":{"content":"` + big + `"}}]}` })
	f(func(i int) string { return fmt.Sprintf(`{"member%d":"`, i) + big + `"}` })
	var a Assembler
	for range 70 { // what is replaced takes its place once
		if err := a.Add(nil, []byte(`{"usage":{"x":"`+big+`"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if a.Reset(chunk.Chat); a.store.kept != 0 || a.root.nodes != nil {
		t.Error("Reset keeps something")
	}
}

func TestEventsAreNotKept(t *testing.T) {
	var a Assembler
	event := []byte(`{"id":"c","choices":[{"index":0,"delta":{"content":"a","k":{"l":"m"}},"finish_reason":"stop"}]}`)
	if err := a.Add(nil, event); err != nil {
		t.Fatal(err)
	}
	clear(event)
	got, err := a.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, string(got), `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a","k":{"l":"m"}},"finish_reason":"stop"}]}`)
}

package chunk

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func (v View) String() string {
	return fmt.Sprintf("{kind %d finish %v broken %v text %d usage %+v message %q type %q code %q}",
		v.Kind, v.Finish, v.Broken, v.TextBytes, v.Usage, v.Message, v.Type, v.Code)
}

func (v View) equal(w View) bool { return v.String() == w.String() }

func failed(message, kind, code string) View {
	return View{Kind: Error, Message: []byte(message), Type: []byte(kind), Code: []byte(code)}
}

func tokens(prompt, completion, total int64) Usage {
	return Usage{Known: true, Prompt: prompt, Completion: completion, Total: total}
}

// checkView reads each event twice with one Reader, after one that leaves
// everything behind that could leak.
func checkView(t *testing.T, shape Shape) func(name, data string, want View) {
	var r Reader
	return func(name, data string, want View) {
		t.Helper()
		r.View(Chat, nil, []byte(`{"choices":[{"delta":{"content":"x"},"finish_reason":"insufficient_system_resource"}],"usage":{"total_tokens":1}}`))
		r.ErrorBody([]byte(`{"error":{"message":"a","type":"b","code":"c"}}`))
		in := []byte(data)
		if got := r.View(shape, []byte(name), in); !got.equal(want) {
			t.Errorf("%s\n got %v\nwant %v", short(data), got, want)
		}
		if string(in) != data {
			t.Errorf("%s: the data was changed", short(data))
		}
	}
}

func short(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

func TestChatChunks(t *testing.T) {
	f := func(data string, want View) {
		t.Helper()
		checkView(t, Chat)("", data, want)
	}
	text := func(n int) View { return View{Kind: Content, TextBytes: n} }

	// The canonical stream.
	f(`{"id":"…","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, View{})
	f(`{"id":"…","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`, text(2))
	f(`{"id":"…","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, View{Finish: true})
	f(`{"id":"…","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`,
		View{Kind: UsageOnly, Usage: tokens(9, 1, 10)})
	f(`[DONE]`, View{Kind: Done})
	f(`[DONE]  `, View{Kind: Done})

	// SambaNova: keys in another order, a fractional created, text with each role.
	f(`{"choices":[{"delta":{"content":", several words at once","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1771518114.35,"id":"283ffbf5-591e-4187-9361-391602be5586","model":"gpt-oss-120b","object":"chat.completion.chunk","system_fingerprint":"fastcoe"}`, text(23))
	f(`{"choices":[{"delta":{"content":""},"finish_reason":"length","index":0}]}`, View{Finish: true})
	f(`{"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1},"time_to_first_token":0.25,"time_to_first_token_graph":0.2,"total_latency":1.5,"completion_tokens_per_sec":250.5,"completion_tokens_after_first_per_sec":1e3,"start_time":1771518114.35,"is_last_response":true,"stop_reason":"stop"}}`,
		View{Kind: UsageOnly, Usage: Usage{Known: true, Prompt: 3, Completion: 1, Total: 4, Cached: 2, Reasoning: 1, TotalLatency: 1.5, TimeToFirstToken: 0.25, TokensPerSecond: 250.5}})
	f(`{"choices":[{"index":0,"delta":{"reasoning":"hm","channel":"analysis"}}]}`, text(2))

	// DeepSeek: reasoning, its cache's names, its own finish reason.
	f(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm","content":null}}]}`, text(2))
	f(`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}}`,
		View{Kind: UsageOnly, Usage: Usage{Known: true, Prompt: 10, Completion: 2, Total: 12, Cached: 8}})
	f(`{"choices":[{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}]}`, View{Finish: true, Broken: true})

	// OpenAI: padding, a null usage; Gemini: a call without index, extra content.
	f(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null,"obfuscation":"xxxxxxxx","service_tier":"default"}`, text(1))
	f(`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]},"finish_reason":"stop"}]}`,
		View{Kind: Content, Finish: true, TextBytes: 3})

	// Tool calls and other content.
	f(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}`, text(1))
	f(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"x\":1}"}}]},"finish_reason":null}]}`, text(7))
	f(`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_b"}]}}]}`, text(0))
	f(`{"choices":[{"index":0,"delta":{"tool_calls":[]}}]}`, View{})
	f(`{"choices":[{"index":0,"delta":{"tool_calls":null,"function_call":null,"audio":null,"refusal":null}}]}`, View{})
	f(`{"choices":[{"index":0,"delta":{"function_call":{"name":"ab","arguments":"c"}}}]}`, text(3))
	f(`{"choices":[{"index":0,"delta":{"audio":{"id":"a","data":"AAAA"}}}]}`, text(0))
	f(`{"choices":[{"index":0,"delta":{"audio":{"transcript":"abc"}}}]}`, text(3))
	f(`{"choices":[{"index":0,"delta":{"refusal":"No."}}]}`, text(3))
	f(`{"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"ab"}]},{"type":"text","text":"c"}]}}]}`, text(3))
	f(`{"choices":[{"index":0,"delta":{"reasoning":"same","reasoning_content":"same"}}]}`, text(4))
	f(`{"choices":[{"index":0,"finish_reason":""}]}`, View{})

	// All choices count.
	f(`{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"ab"}},{"index":2,"delta":{"content":"c"},"finish_reason":"stop"}]}`, View{Kind: Content, TextBytes: 3, Finish: true})

	// No choices: a filter's result is not the usage.
	f(`{"id":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, View{})
	f(`{"id":"c1","object":"chat.completion.chunk","choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`, View{Kind: UsageOnly, Usage: tokens(3, 1, 4)})
	f(`{"id":"c1","object":"chat.completion.chunk"}`, View{})
	f(`{"choices":[],"usage":null}`, View{})
	f(`{"choices":[ ],"usage":{}}`, View{Kind: UsageOnly})

	// Usage on any chunk.
	f(`{"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`, View{Kind: Content, TextBytes: 1, Usage: tokens(10, 2, 12)})
	f(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":23,"completion_tokens":235,"total_tokens":258}}`, View{Finish: true, Usage: tokens(23, 235, 258)})
	f(`{"choices":[{"index":0,"delta":{"content":"w"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, View{Kind: Content, TextBytes: 1, Usage: Usage{Known: true}})

	// Data over several lines.
	f("{\"choices\":[],\n\"usage\":{\"prompt_tokens\":3,\n\"completion_tokens\":1,\"total_tokens\":4}}", View{Kind: UsageOnly, Usage: tokens(3, 1, 4)})

	// A null error is none.
	f(`{"choices":[{"delta":{"content":"a"}}],"error":null}`, text(1))
	f(`{"choices":[{"delta":{"content":"a"}}],"error":""}`, text(1))
}

func TestNothingIsReadWhereNothingIsSaid(t *testing.T) {
	for _, shape := range []Shape{Chat, Completion, Responses, Messages, Embeddings, Other} {
		f := checkView(t, shape)
		f("", "", View{})
		f("", " ", View{})
		f("", "null", View{})
		f("", "{}", View{})
		f("", "{ }", View{})
		f("", "ping", View{})
		f("ping", "{}", View{})
		f("ping", `{"type":"ping"}`, View{})
		f("", "[DONE]", View{Kind: Done})
		f("", "[DONE] \t", View{Kind: Done})
	}
	for _, shape := range []Shape{Chat, Completion, Responses, Messages} {
		f := checkView(t, shape)
		f("", "hello", View{})
		f("", `{"choices":[{"delta":{"content":"a"}}]`, View{})
		f("", `{"choices":[{"delta":{"content":"a"}}]}}`, View{})
		f("", `{"choices":[{"delta":{"content":"a}}]}`, View{})
		f("", `[]`, View{})
		f("", `1`, View{})
		f("", `"text"`, View{})
		f("", `true`, View{})
		f("", `{"choices":{"delta":{"content":"a"}},"delta":"x","type":7,"usage":[1]}`, View{})
		f("", `{"choices":["a",1,null,[],{"delta":"a"},{"delta":{"content":5}},{"finish_reason":5}]}`, View{})
	}
}

func TestErrorsInStreams(t *testing.T) {
	for _, shape := range []Shape{Chat, Completion, Responses, Messages, Embeddings, Other} {
		f := checkView(t, shape)
		f("", `{"error":{"message":"rate limited","code":429,"type":"rate_limit_error"}}`, failed("rate limited", "rate_limit_error", "429"))
		f("error", `{"error":{"message":"…","type":"server_error","param":null,"code":"upstream_disconnected"}}`, failed("…", "server_error", "upstream_disconnected"))
		f("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, failed("Overloaded", "overloaded_error", ""))
		f("error", `{"message":"m","code":"c"}`, failed("m", "", "c"))
		f("error", `overloaded`, failed("overloaded", "", ""))
		f("error", ``, failed("", "", ""))
		f("error", `null`, failed("", "", ""))
		f("", `{"error":"text"}`, failed("text", "", ""))
		f("", `{"error":{},"choices":[{"delta":{"content":"a"}}]}`, failed("", "", ""))
		f("", `[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`, failed("busy", "", "UNAVAILABLE"))
		f("", `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`, failed("m", "BadRequestError", "400"))
	}
}

func TestCompletionChunks(t *testing.T) {
	f := checkView(t, Completion)
	f("", `{"choices":[{"text":"Hi","index":0,"finish_reason":null}]}`, View{Kind: Content, TextBytes: 2})
	f("", `{"choices":[{"text":"","index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, View{Finish: true, Usage: tokens(1, 2, 3)})
	f("", `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, View{Kind: UsageOnly, Usage: tokens(1, 2, 3)})
}

func TestResponsesEvents(t *testing.T) {
	f := checkView(t, Responses)
	text := func(n int) View { return View{Kind: Content, TextBytes: n} }
	f("response.created", `{"type":"response.created","response":{"status":"in_progress","usage":null,"error":null}}`, View{})
	f("", `{"type":"response.output_text.delta","delta":"Hi"}`, text(2))
	f("response.output_text.delta", `{"delta":"Hi"}`, text(2))
	f("", `{"type":"response.output_text.delta","delta":""}`, View{})
	f("", `{"type":"response.output_text.done","text":"Hi"}`, View{})
	f("", `{"type":"response.reasoning_text.delta","delta":"hm"}`, text(2))
	f("", `{"type":"response.reasoning_summary_text.delta","delta":"hm"}`, text(2))
	f("", `{"type":"response.function_call_arguments.delta","delta":"{\""}`, text(2))
	f("", `{"type":"response.refusal.delta","delta":"No"}`, text(2))
	f("", `{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}`, text(1))
	f("", `{"type":"response.output_item.added","item":{"type":"message","content":[]}}`, View{})
	f("", `{"type":"response.completed","response":{"status":"completed","error":null,"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":14}}}`,
		View{Kind: Done, Finish: true, Usage: Usage{Known: true, Prompt: 9, Completion: 5, Total: 14, Cached: 4, Reasoning: 2}})
	f("", `{"type":"response.incomplete","response":{"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}`, View{Kind: Done, Finish: true, Usage: tokens(1, 2, 3)})
	f("", `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"broke"}}}`, failed("broke", "", "server_error"))
	f("", `{"type":"error","code":"ERR","message":"m","param":null,"sequence_number":1}`, failed("m", "", "ERR"))
}

func TestMessagesEvents(t *testing.T) {
	f := checkView(t, Messages)
	text := func(n int) View { return View{Kind: Content, TextBytes: n} }
	f("message_start", `{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":1000,"output_tokens":1}}}`,
		View{Usage: Usage{Known: true, Prompt: 1110, Cached: 100, Completion: 1}})
	f("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, View{})
	f("content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"get","input":{}}}`, text(3))
	f("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`, text(2))
	f("content_block_delta", `{"index":0,"delta":{"type":"thinking_delta","thinking":"hmm"}}`, text(3))
	f("content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`, text(4))
	f("content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`, View{})
	f("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc"}}`, View{})
	f("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"cited_text":"a"}}}`, View{})
	f("content_block_stop", `{"type":"content_block_stop","index":0}`, View{})
	f("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}`, View{Finish: true, Usage: Usage{Known: true, Completion: 15}})
	f("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":15}}`, View{Usage: Usage{Known: true, Completion: 15}})
	f("message_stop", `{"type":"message_stop"}`, View{Kind: Done})
	f("ping", `{"type": "ping"}`, View{})
	f("new_kind", `{"type":"new_kind","text":"a"}`, View{})
	f("error", `{"type":"error","error":{"type":"overloaded_error","message":"…"}}`, failed("…", "overloaded_error", ""))
	f("", `{"type":"error","error":{"type":"overloaded_error","message":"…"}}`, failed("…", "overloaded_error", ""))
}

func TestOtherEventsAreContent(t *testing.T) {
	f := checkView(t, Other)
	f("", `{"type":"transcript.text.delta","delta":"Hi"}`, View{Kind: Content, TextBytes: 2})
	f("", `{"type":"transcript.text.done","text":"Hi","usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}`, View{Kind: Content, Usage: tokens(3, 1, 4)})
	f("", `anything`, View{Kind: Content})
	f("", `{"cut":`, View{Kind: Content})
}

func TestTextIsCountedDecoded(t *testing.T) {
	f := func(escaped string, want int) {
		t.Helper()
		checkView(t, Chat)("", `{"choices":[{"delta":{"content":"`+escaped+`"}}]}`, View{Kind: Content, TextBytes: want})
	}
	f(`é`, 2)
	f(`\n\t\"\\\/`, 5)
	f(`\\\"`, 2)
	f(`a\\`, 2)
	f(`\u0041`, 1)
	f(`\u00e9\u20AC`, 5)
	f(`\ud83d\ude00`, 4)
	f(`\ud83d`, 3)
	f(`\ud83d\u0041`, 4)
	f(`\ude00x`, 4)
	f(`a\u00`, 4) // broken: any count will do, no panic
}

func TestMergeOfAStreamsUsage(t *testing.T) {
	f := func(want Usage, said ...Usage) {
		t.Helper()
		var u Usage
		for _, s := range said {
			u.Merge(s)
		}
		if u != want {
			t.Errorf("got %+v, want %+v", u, want)
		}
	}
	f(Usage{})
	f(Usage{}, Usage{})
	f(tokens(10, 3, 13), tokens(10, 1, 11), tokens(10, 2, 12), Usage{}, tokens(10, 3, 13), tokens(10, 3, 13))
	f(tokens(10, 3, 13), tokens(10, 3, 13), tokens(0, 0, 0))
	f(Usage{Known: true, Prompt: 1110, Cached: 100, Completion: 15},
		Usage{Known: true, Prompt: 1110, Cached: 100, Completion: 1}, Usage{Known: true, Completion: 15})
	f(Usage{Known: true, TotalLatency: 2, TokensPerSecond: 5, TimeToFirstToken: 1, Reasoning: 7},
		Usage{Known: true, TotalLatency: 1, TokensPerSecond: 5, Reasoning: 7}, Usage{TotalLatency: 2, TimeToFirstToken: 1})
}

func TestCountsAreNeverNegativeAndNeverOverflow(t *testing.T) {
	f := func(number string, want int64, known bool) {
		t.Helper()
		checkView(t, Chat)("", `{"choices":[],"usage":{"prompt_tokens":`+number+`}}`, View{Kind: UsageOnly, Usage: Usage{Known: known, Prompt: want}})
	}
	f("7", 7, true)
	f("-7", 0, true)
	f("7.9", 7, true)
	f("0.9", 0, true)
	f("1e3", 1000, true)
	f("9223372036854775808", maxCount, true)
	f("1e400", maxCount, true)
	f("-1e400", 0, true)
	f(`"7"`, 0, false)
	f("null", 0, false)
	f("[7]", 0, false)
	checkView(t, Chat)("", `{"usage":{"total_latency":-1,"time_to_first_token":1e300,"completion_tokens_per_sec":"x"}}`, View{Kind: UsageOnly})
}

func TestWholeAnswers(t *testing.T) {
	f := func(shape Shape, body string, want View) {
		t.Helper()
		var r Reader
		for _, before := range []string{"", "\n\n\n", " \r\n\t"} {
			if got, ok := r.Whole(shape, []byte(before+body+"\n")); !ok || !got.equal(want) {
				t.Errorf("%s\n got %v, %v\nwant %v", short(body), got, ok, want)
			}
		}
	}
	f(Chat, `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`,
		View{Kind: Content, TextBytes: 2, Finish: true, Usage: tokens(3, 1, 4)})
	f(Chat, `{"choices":[{"message":{"content":null,"reasoning_content":"hm","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		View{Kind: Content, TextBytes: 5, Finish: true})
	f(Chat, `{"choices":[{"message":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`, View{Finish: true, Usage: tokens(3, 1, 4)})
	f(Chat, `{"error":{"message":"m","type":"t","code":"c"}}`, failed("m", "t", "c"))
	f(Chat, `{}`, View{})
	f(Chat, `null`, View{})
	f(Completion, `{"choices":[{"text":"abc","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`, View{Kind: Content, TextBytes: 3, Finish: true, Usage: tokens(3, 1, 4)})
	f(Embeddings, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],"model":"E5","usage":{"prompt_tokens":8,"total_tokens":8}}`, View{Kind: Content, Usage: tokens(8, 0, 8)})
	f(Embeddings, `{"object":"list","data":[]}`, View{})
	f(Responses, `{"id":"r","status":"completed","error":null,"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"Hi"},{"type":"refusal","refusal":"no"}]},{"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":9,"output_tokens":5,"total_tokens":14}}`,
		View{Kind: Content, TextBytes: 9, Finish: true, Usage: tokens(9, 5, 14)})
	f(Responses, `{"status":"failed","error":{"code":"server_error","message":"broke"},"output":[]}`, failed("broke", "", "server_error"))
	f(Messages, `{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"Hi"},{"type":"tool_use","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_read_input_tokens":2,"output_tokens":3}}`,
		View{Kind: Content, TextBytes: 12, Finish: true, Usage: Usage{Known: true, Prompt: 3, Completion: 3, Cached: 2}})
	f(Messages, `{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"r"}`, failed("m", "api_error", ""))
	f(Other, `{"text":"Hello"}`, View{Kind: Content, TextBytes: 5})
	f(Other, `{}`, View{})
}

func TestWholeIsFalseUnlessTheAnswerIsOneCompleteValue(t *testing.T) {
	var r Reader
	f := func(body string) {
		t.Helper()
		if _, ok := r.Whole(Chat, []byte(body)); ok {
			t.Errorf("%q is taken as complete", short(body))
		}
	}
	f("")
	f("\n\n\n")
	f(`{"id":"c1","choices":[{"index":0,"message":{"content":"Hal`)
	f(`{"a":1`)
	f(`{"a":1}}`)
	f(`{"a":1} {"b":2}`)
	f(`{"a":1,}`)
	f(`{"a" 1}`)
	f(`{a:1}`)
	f(`{"a":}`)
	f(`{,}`)
	f(`[1,]`)
	f(`[,1]`)
	f(`[1 2]`)
	f(`[1}`)
	f(`{"a":1]`)
	f(`"abc`)
	f(`"abc\"`)
	f(`nul`)
	f(`nulll`)
	f(`01`)
	f(`1.`)
	f(`.5`)
	f(`-`)
	f(`1e`)
	f(`+1`)
	f(`NaN`)
	f("data: {\"a\":1}\n\n")
	f("<html></html>")
	f(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1))
}

func TestCompleteKnowsACutEvent(t *testing.T) {
	f := func(data string, want bool) {
		t.Helper()
		if got := Complete([]byte(data)); got != want {
			t.Errorf("%q: %v", data, got)
		}
	}
	f("[DONE]", true)
	f("[DONE] ", true)
	f("[DONE", false)
	f(`{"choices":[]}`, true)
	f(`{"choices":[]`, false)
	f("", false)
	f(strings.Repeat(`[`, maxDepth)+strings.Repeat(`]`, maxDepth), true)
}

func TestErrorBodies(t *testing.T) {
	var r Reader
	f := func(body, message, kind, code string) {
		t.Helper()
		if got := r.ErrorBody([]byte(body)); !got.equal(failed(message, kind, code)) {
			t.Errorf("%s\n got %v", short(body), got)
		}
	}
	// SambaNova
	f(`{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":"context_length_exceeded"},"request_id":"r"}`, "too long", "invalid_request_error", "context_length_exceeded")
	f(`{"error":{"message":"m","type":"server_error","code":"adapter_mapping_failed","error_model_output":"{\"a\":{"}}`, "m", "server_error", "adapter_mapping_failed")
	f(`{"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}}`, "m", "invalid_request_error", "")
	f(`{"error":"Not found"}`, "Not found", "", "")
	f("Service Temporarily Unavailable\n", "Service Temporarily Unavailable", "", "")
	// DeepSeek, OpenAI
	f(`{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, "Insufficient Balance", "unknown_error", "invalid_request_error")
	f(`{"error":{"message":"m","type":"insufficient_quota","code":"credit_balance_exhausted"}}`, "m", "insufficient_quota", "credit_balance_exhausted")
	// Gemini
	f(`[{"error":{"code":400,"message":"Unknown name \"x\"","status":"INVALID_ARGUMENT","details":[{"@type":"t"}]}}]`, `Unknown name "x"`, "", "INVALID_ARGUMENT")
	f(`{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}`, "m", "", "INVALID_ARGUMENT")
	// Anthropic
	f(`{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"r"}`, "m", "rate_limit_error", "enforced_spend_limit_reached")
	// Others
	f(`{"message":"m","type":"t","code":"c"}`, "m", "t", "c")
	f(`{"message":"m","code":1302}`, "m", "", "1302")
	f(`{"error":"text","code":"c"}`, "text", "", "c")
	f(`{"detail":"Not authenticated"}`, "Not authenticated", "", "")
	f(`{"detail":[{"loc":["body","x"],"msg":"field required","type":"value_error.missing"}]}`, "field required", "value_error.missing", "")
	f(`{"detail":{"message":"m","code":"c"}}`, "m", "", "c")
	f(`"just text"`, "just text", "", "")
	f(`{"error":{"message":"a\u00e9\n\"b\""}}`, "aé\n\"b\"", "", "")
	// Nothing that a person should see.
	f("<html><body>502 Bad Gateway</body></html>", "", "", "")
	f("<!DOCTYPE html>", "", "", "")
	f(`{"error":{"message":"cut`, "", "", "")
	f("", "", "", "")
	f("\xff\xfe", "", "", "")
	f(`[]`, "", "", "")
	f(`{"error":{"message":{"a":1},"type":5,"code":[1]}}`, "", "", "")
	f(strings.Repeat(`{"error":`, 1000), "", "", "")
	f(`{"error":{"message":"`+strings.Repeat("a", maxText)+`","code":"c"}}`, "", "", "c")
}

func TestLargeAnswersAreReadLikeSmallOnes(t *testing.T) {
	large := strings.Repeat(`\"a\u00e9`, 100_000) // 400,000 bytes decoded
	f := checkView(t, Chat)
	f("", `{"choices":[{"delta":{"content":"`+large+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}`,
		View{Kind: Content, TextBytes: 400_000, Finish: true, Usage: tokens(3, 9, 12)})
	f("", `{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"`+large+`"}}]}}]}`, View{Kind: Content, TextBytes: 400_000})
	f("", `{"padding":"`+large+`","choices":[]}`, View{})
	f("", `{"error":{"message":"m","error_model_output":"`+large+`"}}`, failed("m", "", ""))
	checkView(t, Responses)("", `{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"`+large+`"}]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}`,
		View{Kind: Done, Finish: true, Usage: tokens(1, 2, 3)})
	var r Reader
	vector := strings.Repeat("0.125,", 300_000)
	got, ok := r.Whole(Embeddings, []byte(`{"data":[{"embedding":[`+vector+`1]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`))
	if !ok || !got.equal(View{Kind: Content, Usage: tokens(8, 0, 8)}) {
		t.Errorf("embeddings: %v, %v", got, ok)
	}
}

func TestViewLendsWhatItDecodedUntilTheNextCall(t *testing.T) {
	var r Reader
	body := []byte(`{"error":{"message":"one","type":"two","code":"three"}}`)
	got := *r.ErrorBody(body)
	clear(body)
	if !got.equal(failed("one", "two", "three")) {
		t.Errorf("the view hangs on its input: %v", got)
	}
}

func TestReaderKeepsLittleMemory(t *testing.T) {
	var r Reader
	r.ErrorBody([]byte(`{"error":{"message":"` + strings.Repeat("a", maxText-2) + `"}}`))
	if len(r.view.Message) != maxText-2 {
		t.Fatalf("a message of %d bytes", len(r.view.Message))
	}
	if r.View(Chat, nil, nil); cap(r.text) > keep {
		t.Errorf("%d bytes are kept", cap(r.text))
	}
}

var typical = []struct {
	shape      Shape
	name, data string
}{
	{Chat, "", `{"id":"c1","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`},
	{Chat, "", `{"id":"c1","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{"content":"Hi \"you\"\n"},"finish_reason":null}]}`},
	{Chat, "", `{"id":"c1","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
	{Chat, "", `{"id":"c1","object":"chat.completion.chunk","created":1790000000,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":2},"total_latency":1.5}}`},
	{Chat, "", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},"finish_reason":null}]}`},
	{Chat, "", `[DONE]`},
	{Chat, "error", `{"error":{"message":"m","type":"t","code":"c"}}`},
	{Messages, "content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`},
	{Messages, "message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`},
	{Responses, "response.function_call_arguments.delta", `{"type":"response.function_call_arguments.delta","delta":"Hi"}`},
	{Responses, "response.completed", `{"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}`},
}

func TestViewAllocatesNothing(t *testing.T) {
	for _, c := range typical {
		var r Reader
		name, data := []byte(c.name), []byte(c.data)
		if n := testing.AllocsPerRun(100, func() { r.View(c.shape, name, data) }); n != 0 {
			t.Errorf("%v allocations for %s", n, c.data)
		}
	}
}

// allocated returns how many bytes f allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostileJSONTakesLittleMemory(t *testing.T) {
	f := func(name, data string) {
		t.Helper()
		var r Reader
		in := []byte(data)
		n := allocated(func() {
			r.View(Chat, nil, in)
			r.Whole(Responses, in)
			r.ErrorBody(in)
		})
		if n > 1<<20 {
			t.Errorf("%s: %d bytes of input took %d", name, len(data), n)
		}
	}
	const size = 1 << 18
	f("deep", strings.Repeat("[", size))
	f("deep and closed", strings.Repeat("[", size)+strings.Repeat("]", size))
	f("deep objects", strings.Repeat(`{"error":`, size/9))
	f("elements", `{"choices":[`+strings.Repeat("0,", size)+`0]}`)
	f("usage", `{"usage":{"prompt_tokens":[`+strings.Repeat("0,", size)+`0]}}`)
	f("error", `{"error":{"message":[`+strings.Repeat("{},", size)+`0]}}`)
	f("message", `{"error":{"message":"`+strings.Repeat(`\\`, size)+`"}}`)
	f("quotes", `{"error":{"message":"`+strings.Repeat(`\"`, size)+`"`)
}

func seed(f *testing.F) {
	for _, c := range typical {
		f.Add(uint8(c.shape), []byte(c.name), []byte(c.data))
	}
	for _, s := range []string{`{"error":{"message":"a\u00e9","code":429}}`, `[{"error":{"status":"X","code":1}}]`, `{"detail":[{"msg":"m"}]}`,
		`{"usage":{"prompt_tokens":1e99}}`, `[[[[[[]]]]]]`, "<html>", `{"a":"\ud83d\ude00\u00","b":[{},[],"",-0.5e+3]}`} {
		f.Add(uint8(Chat), []byte(nil), []byte(s))
	}
}

// bounded runs f and wants its memory to be in proportion to the input.
func bounded(t *testing.T, input int, f func()) {
	t.Helper()
	if n := allocated(f); n > uint64(100*input+256<<10) {
		t.Fatalf("%d bytes of input took %d", input, n)
	}
}

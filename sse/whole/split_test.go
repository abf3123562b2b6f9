package whole

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eisbach/sse/chunk"
)

var update = flag.Bool("update", false, "write the golden streams anew")

var wholes = []struct {
	name  string
	shape chunk.Shape
	body  string
}{
	{"chat", chunk.Chat, `{"id":"c1","object":"chat.completion","created":1790000000,"model":"m","service_tier":null,"error":null,"citations":["u"],
 "choices":[{"index":0,"message":{"role":"assistant","content":"Hi \ud83d\ude00","reasoning_content":"hm","refusal":null},"logprobs":{"content":[{"token":"Hi","logprob":-0.10}]},"finish_reason":"length","stop_reason":null}],
 "usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`},
	{"chat_tools", chunk.Chat, `{"id":"c2","object":"chat.completion","created":1,"model":"m","choices":[
 {"index":1,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"},
 {"index":0,"message":{"role":"assistant","content":"no"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}`},
	{"completion", chunk.Completion, `{"id":"t1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a\nb","logprobs":null,"finish_reason":"stop"},{"index":1,"text":"","finish_reason":"length"}],"usage":{"total_tokens":2}}`},
	{"responses", chunk.Responses, `{"id":"resp_1","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"m","output":[
 {"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"content":[{"type":"reasoning_text","text":"so"}],"status":"completed"},
 {"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation","url":"u"}],"logprobs":[]},{"type":"refusal","refusal":"no"}]},
 {"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"f","arguments":"{}"},
 {"id":"ct_1","type":"custom_tool_call","status":"completed","call_id":"call_2","name":"g","input":"in"},
 {"type":"function_call","status":"completed","call_id":"call_3","name":"h","arguments":"{}"},
 {"id":"ws_1","type":"web_search_call","status":"completed","action":{"query":"q"}}],
 "parallel_tool_calls":true,"tools":[],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`},
	{"messages", chunk.Messages, `{"id":"msg_1","type":"message","role":"assistant","model":"c","content":[
 {"type":"thinking","thinking":"hm","signature":"sig=="},{"type":"text","text":"A\"B","citations":[{"type":"char_location","cited_text":"A"}]},{"type":"text","text":"C","citations":null},
 {"type":"tool_use","id":"t1","name":"f","input":{"a": 1.50, "b": "\u00e9\"\\"}},{"type":"tool_use","id":"t2","name":"g","input":{}},
 {"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"u"}]},{"type":"redacted_thinking","data":"xyz"}],
 "stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":0}}`},
}

func TestSplitMakesTheseStreams(t *testing.T) {
	for _, w := range wholes {
		got, err := Split(nil, w.shape, []byte(w.body), true)
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		read(t, got)
		file := filepath.Join("testdata", w.name+".sse")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n got %s\nwant %s", w.name, err, got, want)
		}
	}
}

func TestSplitAndAppendGiveTheSameAnswer(t *testing.T) {
	for _, w := range wholes {
		want := strings.Replace(w.body, `"error":null,"citations"`, `"citations"`, 1) // no key "error" in a chunk
		if w.name == "chat_tools" {
			v := value(w.body)
			var choices []value
			for _, c := range v.get("choices").elements() {
				choices = append(choices, c)
			}
			want = string(v.appendChanged(nil, change{"choices", fmt.Sprintf("[%s,%s]", choices[1], choices[0])}))
		}
		roundTrip(t, w.shape, w.body, want)
	}
}

func roundTrip(t *testing.T, shape chunk.Shape, body, want string) {
	t.Helper()
	stream, err := Split([]byte(nil), shape, []byte(body), true)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	got, err := assemble(t, shape, string(stream))
	if err != nil {
		t.Fatalf("%v: %s", err, stream)
	}
	sameJSON(t, got, want)
}

func TestSplitFillsWhatClientsWaitFor(t *testing.T) {
	f := func(choice, delta, end string) {
		t.Helper()
		got, err := Split(nil, chunk.Chat, []byte(`{"choices":[`+choice+`]}`), true)
		events := read(t, got)
		if err != nil || len(events) != 3 || string(events[2].Data) != "[DONE]" {
			t.Fatalf("%s, %v", got, err)
		}
		sameJSON(t, string(events[0].Data), `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":`+delta+`,"finish_reason":null}]}`)
		sameJSON(t, string(events[1].Data), `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"`+end+`"}]}`)
	}
	f(`{"message":{"content":"a"}}`, `{"role":"assistant","content":"a"}`, "stop")
	f(`{"index":null,"message":{"role":"model","content":"a"},"finish_reason":null}`, `{"role":"assistant","content":"a"}`, "stop")
	f(`{"message":{"tool_calls":[{"id":"a","type":null,"index":7,"function":{"name":"f"}}]},"finish_reason":""}`,
		`{"role":"assistant","tool_calls":[{"index":0,"type":"function","id":"a","function":{"name":"f"}}]}`, "tool_calls")
	f(`{"message":{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f"}}]},"finish_reason":"stop"}`,
		`{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f"}}]}`, "stop")
	f(`{"message":{"tool_calls":null}}`, `{"role":"assistant","tool_calls":null}`, "stop")
}

func TestSplitTellsUsageOnlyIfAsked(t *testing.T) {
	body := []byte(wholes[0].body)
	for _, ask := range []bool{true, false} {
		got, err := Split([]byte("before "), chunk.Chat, body, ask)
		if err != nil || bytes.Contains(got, []byte("usage")) != ask || !bytes.HasPrefix(got, []byte("before data: ")) {
			t.Errorf("asked %v: %s, %v", ask, got, err)
		}
	}
}

func TestSplitRefusesWhatIsNoCompleteAnswer(t *testing.T) {
	f := func(shape chunk.Shape, want error, body string) {
		t.Helper()
		got, err := Split([]byte("x"), shape, []byte(body), true)
		if string(got) != "x" || !errors.Is(err, want) {
			t.Errorf("%s: %q, %v", body[:min(len(body), 200)], got[:min(len(got), 200)], err)
		}
	}
	for shape := range chunk.Other + 1 {
		for _, body := range []string{"", "\n\n", "null", "[]", "{}", "{", "data: {}\n\n", "<html>", `"a"`, `{"choices":[]}`, `{"object":"chat.completion"}`} {
			f(shape, ErrShape, body)
		}
		f(shape, ErrFailed, `{"error":{"message":"m"}}`)
	}
	f(chunk.Chat, ErrShape, `{"choices":[{"text":"a"}]}`)
	f(chunk.Chat, ErrShape, `{"choices":[1]}`)
	f(chunk.Chat, ErrShape, `{"choices":[{"index":1,"message":{}},{"message":{}}]}`)
	f(chunk.Chat, ErrShape, `{"choices":[{"index":1.5,"message":{}}]}`)
	f(chunk.Chat, ErrShape, `{"choices":[{"message":{"content":"`+"\x01"+`"}}]}`)
	f(chunk.Chat, ErrTooLarge, `{"choices":[{"index":128,"message":{}}]}`)
	f(chunk.Chat, ErrTooLarge, `{"id":"`+strings.Repeat("a", 1<<20)+`","choices":[{"message":{}}`+strings.Repeat(`,{"message":{}}`, 127)+`]}`)
	f(chunk.Chat, ErrTooLarge, `{"choices":[{"message":{}}`+strings.Repeat(`,{"message":{}}`, 128)+`]}`)
	f(chunk.Completion, ErrShape, `{"choices":[{"message":{}}]}`)
	f(chunk.Responses, ErrShape, `{"status":"in_progress","output":[]}`)
	f(chunk.Responses, ErrShape, `{"status":"completed"}`)
	f(chunk.Responses, ErrShape, `{"status":"completed","output":[1]}`)
	f(chunk.Responses, ErrTooLarge, `{"output":[{"type":"message","id":"`+strings.Repeat("a", 1<<20)+`","content":[1`+strings.Repeat(`,1`, 100)+`]}]}`)
	f(chunk.Messages, ErrShape, `{"content":"a"}`)
	f(chunk.Messages, ErrShape, `{"content":[1]}`)
	f(chunk.Embeddings, ErrShape, `{"object":"list","data":[{"embedding":[1]}]}`)
}

// random writes answers of all that both forms can carry.
type random struct{ *rand.Rand }

func (r random) pick(of ...string) string { return of[r.IntN(len(of))] }

func (r random) text() string {
	s := ""
	for range r.IntN(4) {
		s += r.pick("a", `\n`, `\"`, `\\`, "é", `\ud83d\ude00`, `\u0000`, "😀", " ", "{", "]", ",", ":", `\/`)
	}
	return `"` + s + `"`
}

func (r random) value(depth int) string {
	if depth == 0 {
		return r.pick("null", "true", "-1.50e+3", "1e400", "12345678901234567890", r.text())
	}
	return r.pick("{}", "[]", `{"a": `+r.value(depth-1)+" }", "[ "+r.value(depth-1)+",\n"+r.value(depth-1)+"]", r.value(0))
}

func (r random) maybe(member string) string { return r.pick("", ","+member) }

func (r random) times(n int, f func(i int) string) string {
	var all []string
	for i := range r.IntN(n + 1) {
		all = append(all, f(i))
	}
	return strings.Join(all, ",")
}

func (r random) chat() string {
	choice := func(i int) string {
		calls := r.times(3, func(i int) string {
			return fmt.Sprintf(`{"id":"call%d","type":"function","function":{"name":"f","arguments":%s}%s}`, i, r.text(), r.maybe(`"extra":`+r.value(1)))
		})
		return fmt.Sprintf(`{"index":%d,"message":{"role":"assistant","content":%s%s%s%s%s%s},"finish_reason":%s%s%s}`, i, r.pick("null", r.text()),
			r.maybe(`"reasoning_content":`+r.text()), r.maybe(`"refusal":`+r.pick("null", r.text())), r.maybe(`"tool_calls":[`+calls+`]`),
			r.maybe(`"annotations":[`+r.value(2)+`]`), r.maybe(`"audio":{"id":"a","data":`+r.text()+`}`),
			r.pick(`"stop"`, `"length"`, `"tool_calls"`), r.maybe(`"logprobs":`+r.pick("null", `{"content":[`+r.value(2)+`]}`)), r.maybe(`"stop_reason":`+r.value(2)))
	}
	return fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"choices":[%s%s]%s%s%s}`, choice(0), r.pick("", ","+choice(1)),
		r.maybe(`"usage":{"prompt_tokens":`+r.pick("0", "5", "1e2")+`}`), r.maybe(`"model":`+r.text()), r.maybe(`"other":`+r.value(3)))
}

func (r random) response() string {
	part := func(int) string {
		return r.pick(`{"type":"output_text","text":`+r.text()+`,"annotations":[`+r.value(1)+`]}`, `{"type":"refusal","refusal":`+r.text()+`}`, r.value(2))
	}
	item := func(i int) string {
		return r.pick(fmt.Sprintf(`{"id":"i%d","type":"message","content":[%s]}`, i, r.times(3, part)),
			fmt.Sprintf(`{"id":"i%d","type":"function_call","name":"f","call_id":"c","arguments":%s}`, i, r.text()), `{"type":"x","y":`+r.value(3)+`}`)
	}
	return fmt.Sprintf(`{"id":"r","status":%s,"output":[%s]%s}`, r.pick(`"completed"`, `"incomplete"`), r.times(4, item), r.maybe(`"usage":`+r.value(2)))
}

func (r random) message() string {
	block := func(i int) string {
		return r.pick(`{"type":"text","text":`+r.text()+r.maybe(`"citations":`+r.pick("null", "["+r.value(2)+"]"))+`}`,
			`{"type":"thinking","thinking":`+r.text()+`,"signature":`+r.text()+`}`,
			`{"type":"tool_use","id":"t","name":"f","input":{"a":`+r.value(3)+`}}`, `{"type":"x","content":`+r.value(3)+`,"n":`+r.value(0)+`}`)
	}
	return fmt.Sprintf(`{"id":"m","type":"message","role":"assistant","content":[%s],"stop_reason":%s,"stop_sequence":%s%s%s}`, r.times(5, block),
		r.pick(`"end_turn"`, `"tool_use"`), r.pick("null", r.text()), r.maybe(`"usage":{"input_tokens":3,"x":`+r.value(2)+`}`), r.maybe(`"other":`+r.value(2)))
}

func TestRandomAnswersSurviveBothWays(t *testing.T) {
	for seed := range uint64(500) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		for shape, body := range map[chunk.Shape]string{chunk.Chat: r.chat(), chunk.Responses: r.response(), chunk.Messages: r.message()} {
			roundTrip(t, shape, body, body)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

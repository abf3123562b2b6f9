package chunk

import (
	"strings"
	"testing"
	"time"
)

// repaired views an event with r and repairs it, and makes sure that nothing is
// left to repair, and that the repaired one says the same.
func repaired(t *testing.T, r *Reader, shape Shape, data string) (string, Fix) {
	t.Helper()
	in := []byte(data)
	view := *r.View(shape, nil, in)
	out := string(r.Repair([]byte("data: "), in))
	if string(in) != data {
		t.Errorf("%s: the data was changed", short(data))
	}
	out, ok := strings.CutPrefix(out, "data: ")
	if !ok {
		t.Errorf("%s: what dst held is gone", short(data))
	}
	if view.Fix == 0 && out != data {
		t.Errorf("%s\nhas nothing to repair and became\n%s", short(data), short(out))
	}
	var fresh Reader
	again := *fresh.View(shape, nil, []byte(out))
	if !again.equal(view) || again.Fix != 0 {
		t.Errorf("%s\nviewed as %v\nrepaired is %s\nviewed as %v, fix %b", short(data), view, short(out), again, again.Fix)
	}
	if strings.TrimSpace(data) != "" && complete([]byte(data)) != complete([]byte(out)) {
		t.Errorf("%s\nbecame\n%s", short(data), short(out))
	}
	return out, view.Fix
}

func repairs(t *testing.T, shape Shape) func(in, out string, fix Fix) {
	return func(in, out string, fix Fix) {
		t.Helper()
		var r Reader
		if got, why := repaired(t, &r, shape, in); got != out || why != fix {
			t.Errorf("%s\n got %s, fix %b\nwant %s, fix %b", short(in), short(got), why, short(out), fix)
		}
	}
}

func TestCleanChunksNeedNoRepair(t *testing.T) {
	for _, c := range typical {
		repairs(t, c.shape)(c.data, c.data, 0)
	}
	f := repairs(t, Chat)
	for _, data := range []string{
		``, ` `, `null`, `{}`, `{ }`, `[]`, `1`, `"a"`, `ping`, `[DONE]`, ` [DONE] `, `{"choices":[}`, `{"error":null,`,
		`{"choices":[{"index":0,"delta":{"role":"","content":"Hi"},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"message":{"role":"user","tool_calls":[{"id":"a"}]},"finish_reason":"stop"}]}`,
		`{"created":-5,"choices":[]}`, `{"created":999999999999999999,"choices":[ ]}`,
		`{"choices":[{"delta":{"content":"\"error\":null, \"role\":null"}}],"system":{"error":null,"created":1.5,"role":null}}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"x\":1}"}}]},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":"0","id":"a"},null,7]},"finish_reason":"stop"}]}`,
		`{"error":{"message":"m"},"created":1.5,"choices":null}`, `{"created":1.5,"error":"text"}`, `{"created":1.5,"error":true,"message":"m"}`,
		`{"created":1.5,"object":"error","message":"m"}`, `[{"error":{"code":503},"created":1.5}]`,
	} {
		f(data, data, 0)
	}
	for _, shape := range []Shape{Responses, Messages, Embeddings, Other} {
		data := `{"error":null,"created":1.5,"choices":null,"delta":{"role":null}}`
		repairs(t, shape)(data, data, 0)
	}
}

func TestErrorKeyOfNoErrorGoes(t *testing.T) {
	f := repairs(t, Chat)
	f(`{"id":"c","choices":[{"delta":{"content":"a"}}],"error":null}`, `{"id":"c","choices":[{"delta":{"content":"a"}}]}`, FixError)
	f(`{"error":null,"id":"c","choices":[]}`, `{"id":"c","choices":[]}`, FixError)
	f(`{"id":"c","error":null,"choices":[]}`, `{"id":"c","choices":[]}`, FixError)
	f("{ \"error\" : null , \"choices\":[]}", "{ \"choices\":[]}", FixError)
	f("{\"choices\":[] ,\n\"error\":\nnull\n}", "{\"choices\":[] \n}", FixError)
	f(`{"error":null,"error":null,"choices":[],"error":"","error":0}`, `{"choices":[]}`, FixError)
	f(`{"error":null}`, `{"choices":[]}`, FixError|FixChoices)
	f(`{"error":null,"created":"x"}`, `{"choices":[]}`, FixError|FixChoices|FixCreated)
	for _, falsy := range []string{`null`, `false`, `0`, `0.0`, `-0`, `""`, `[]`, `[ ]`} {
		f(`{"choices":[],"error":`+falsy+`,"usage":{"total_tokens":1}}`, `{"choices":[],"usage":{"total_tokens":1}}`, FixError)
	}
	repairs(t, Completion)(`{"choices":[{"text":"a"}],"error":null}`, `{"choices":[{"text":"a"}]}`, FixError)
}

func TestChoicesBecomeAnArray(t *testing.T) {
	f := repairs(t, Chat)
	f(`{"id":"c1","choices":null,"usage":{"total_tokens":4}}`, `{"id":"c1","choices":[],"usage":{"total_tokens":4}}`, FixChoices)
	f(`{"id":"c1","object":"chat.completion.chunk"}`, `{"id":"c1","object":"chat.completion.chunk","choices":[]}`, FixChoices)
	f(` {"usage":{"total_tokens":4} } `, ` {"usage":{"total_tokens":4} ,"choices":[]} `, FixChoices)
	f(`{"choices":{"delta":{"content":"a"}},"usage":{}}`, `{"choices":[],"usage":{}}`, FixChoices)
	f(`{"choices":"","id":1}`, `{"choices":[],"id":1}`, FixChoices)
	f(`{"choices":null,"choices":[]}`, `{"choices":null,"choices":[]}`, 0)
	f(`{"choices":[],"choices":null}`, `{"choices":[],"choices":[]}`, FixChoices)
	repairs(t, Completion)(`{"usage":{"total_tokens":4}}`, `{"usage":{"total_tokens":4},"choices":[]}`, FixChoices)
}

func TestCreatedBecomesAWholeNumber(t *testing.T) {
	f := func(in, out string) {
		t.Helper()
		repairs(t, Chat)(`{"choices":[],"created":`+in+`,"id":"c"}`, `{"choices":[],"created":`+out+`,"id":"c"}`, FixCreated)
	}
	f(`1771518114.35`, `1771518114`)
	f(`1771518114.0`, `1771518114`)
	f(`-0.5`, `-0`)
	f(`"1771518114"`, `1771518114`)
	f(`"1771518114.35"`, `1771518114`)
	f(`1.77151811435e+09`, `1771518114`)
	f(`"17E8"`, `1700000000`)
	f(`5e-1`, `0`)
	gone := func(in string) {
		t.Helper()
		repairs(t, Chat)(`{"choices":[],"created":`+in+`,"id":"c"}`, `{"choices":[],"id":"c"}`, FixCreated)
	}
	gone(`null`)
	gone(`true`)
	gone(`""`)
	gone(`"-"`)
	gone(`"null"`)
	gone(`"2026-11-30T00:00:00Z"`)
	gone(`{"seconds":1}`)
	gone(`[1.5]`)
	gone(`1e400`)
	gone(`-1e3`)
	gone(`1e17`)
	gone(`9999999999999999999`)
	gone(`9999999999999999999.5`)
	g := repairs(t, Chat)
	g(`{"created":1.5,"created":null,"choices":[]}`, `{"created":1,"choices":[]}`, FixCreated)
	// SambaNova's chunk, as it comes.
	g(`{"choices":[{"delta":{"content":", several words at once","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1771518114.35,"id":"283ffbf5-591e-4187-9361-391602be5586","model":"gpt-oss-120b","object":"chat.completion.chunk","system_fingerprint":"fastcoe"}`,
		`{"choices":[{"delta":{"content":", several words at once","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1771518114,"id":"283ffbf5-591e-4187-9361-391602be5586","model":"gpt-oss-120b","object":"chat.completion.chunk","system_fingerprint":"fastcoe"}`, FixCreated)
}

func TestRoleThatIsNotTheAssistantsGoes(t *testing.T) {
	f := func(in, out string) {
		t.Helper()
		repairs(t, Chat)(`{"choices":[{"index":0,"delta":`+in+`},{"index":1,"delta":{"role":"assistant"}}]}`,
			`{"choices":[{"index":0,"delta":`+out+`},{"index":1,"delta":{"role":"assistant"}}]}`, FixRole)
	}
	f(`{"role":null,"content":"a"}`, `{"content":"a"}`)
	f(`{"content":"a","role":null}`, `{"content":"a"}`)
	f(`{"role":null}`, `{}`)
	f(`{"role":"model","content":"a"}`, `{"content":"a"}`)
	f(`{"role":"user","role":null,"content":"a","role":7}`, `{"content":"a"}`)
}

func TestSeveralMistakesOfOneChunk(t *testing.T) {
	repairs(t, Chat)(`{"error":null,"choices":[{"finish_reason":"stop","delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{}],"role":null},"index":0}],"created":"1.5"}`,
		`{"choices":[{"finish_reason":"tool_calls","delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":0}]},"index":0}],"created":1}`,
		FixError|FixCreated|FixRole|FixIndex|FixFinish)
}

// deltas is a stream: of each chunk the tool calls as they come, and as they go.
type deltas [][2]string

func (d deltas) check(t *testing.T, r *Reader) {
	t.Helper()
	for _, c := range d {
		const head, tail = `{"choices":[{"index":0,"delta":{"tool_calls":[`, `]},"finish_reason":null}]}`
		if got, _ := repaired(t, r, Chat, head+c[0]+tail); got != head+c[1]+tail {
			t.Errorf("%s\n got %s\nwant %s", c[0], got, head+c[1]+tail)
		}
	}
}

func TestToolCallsWithoutIndexAreCountedInTheirStream(t *testing.T) {
	var r Reader
	f := func(d deltas) {
		t.Helper()
		r.Reset(Unknown)
		d.check(t, &r)
	}
	// Gemini: whole calls.
	f(deltas{
		{`{"function":{"arguments":"{}","name":"f"},"id":"a","type":"function"}`, `{"index":0,"function":{"arguments":"{}","name":"f"},"id":"a","type":"function"}`},
		{`{"function":{"arguments":"{}","name":"f"},"id":"b","type":"function"}`, `{"index":1,"function":{"arguments":"{}","name":"f"},"id":"b","type":"function"}`},
		{`{"id":"c"},{"id":"d"}`, `{"index":2,"id":"c"},{"index":3,"id":"d"}`},
	})
	// Pieces: by their id, or of the last call.
	f(deltas{
		{`{"id":"a","function":{"name":"f","arguments":""}}`, `{"index":0,"id":"a","function":{"name":"f","arguments":""}}`},
		{`{"function":{"arguments":"{"}}`, `{"index":0,"function":{"arguments":"{"}}`},
		{`{"id":null,"type":null,"function":{"name":null,"arguments":"}"}}`, `{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"}"}}`},
		{`{"id":"b","function":{"name":"g"}}`, `{"index":1,"id":"b","function":{"name":"g"}}`},
		{`{"id":"","function":{"arguments":"{}"}}`, `{"index":1,"id":"","function":{"arguments":"{}"}}`},
		{`{"id":"a","function":{"arguments":" "}}`, `{"index":0,"id":"a","function":{"arguments":" "}}`},
		{`{"function":{"arguments":" "}}`, `{"index":0,"function":{"arguments":" "}}`},
		{`{"id":"c"}`, `{"index":2,"id":"c"}`},
		{`{"function":{"name":"h"}}`, `{"index":2,"function":{"name":"h"}}`},
	})
	// Whole calls without an id.
	f(deltas{
		{`{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}`, `{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"f","arguments":"{}"}}`},
		{`{"function":{"name":"","arguments":" "}}`, `{"index":1,"function":{"name":"","arguments":" "}}`},
		{`{"function":{"name":"g","arguments":"{}"}}`, `{"index":2,"function":{"name":"g","arguments":"{}"}}`},
	})
	// An index that is there stays, and counts; null is none.
	f(deltas{
		{`{"index":3,"id":"a","function":{"name":"f"}}`, `{"index":3,"id":"a","function":{"name":"f"}}`},
		{`{"index":3,"function":{"arguments":"{}"}}`, `{"index":3,"function":{"arguments":"{}"}}`},
		{`{"id":"b","index":null}`, `{"id":"b","index":4}`},
		{`{"id":"a"}`, `{"index":3,"id":"a"}`},
		{`{"index": null ,"id":"b"}`, `{"index": 4 ,"id":"b"}`},
		{`{}`, `{"index":4}`},
		{`{"index":99999999999999999999,"id":"z"}`, `{"index":99999999999999999999,"id":"z"}`},
	})
	f(deltas{{`{ }`, `{"index":0 }`}})
}

func TestToolCallsAreCountedByChoice(t *testing.T) {
	var r Reader
	f := func(in, out string) {
		t.Helper()
		if got, _ := repaired(t, &r, Chat, in); got != out {
			t.Errorf("%s\n got %s\nwant %s", in, got, out)
		}
	}
	f(`{"choices":[{"index":1,"delta":{"tool_calls":[{"id":"a"}]}},{"delta":{"tool_calls":[{"id":"a"}]},"index":0}]}`,
		`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"a"}]}},{"delta":{"tool_calls":[{"index":0,"id":"a"}]},"index":0}]}`)
	f(`{"choices":[{"index":1,"delta":{"tool_calls":[{"id":"b"}]}}]}`, `{"choices":[{"index":1,"delta":{"tool_calls":[{"index":1,"id":"b"}]}}]}`)
	f(`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"b"}]}}]}`, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b"}]}}]}`)
	f(`{"choices":[{"index":2,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[{"index":2,"delta":{},"finish_reason":"stop"}]}`)
	f(`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[{"index":1,"delta":{},"finish_reason":"tool_calls"}]}`)
}

func TestStopAfterToolsBecomesToolCallsWhereTheIndexWasMissing(t *testing.T) {
	const (
		without = `{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"f"}}]}}]}`
		with    = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}`
		text    = `{"choices":[{"index":0,"delta":{"content":"a"}}]}`
	)
	f := func(before, reason, want string) {
		t.Helper()
		var r Reader
		r.View(Chat, nil, []byte(before))
		end := func(reason string) string {
			return `{"choices":[{"delta":{},"finish_reason":` + reason + `,"index":0}]}`
		}
		if got, _ := repaired(t, &r, Chat, end(reason)); got != end(want) {
			t.Errorf("%s\n got %s\nwant %s", before, got, end(want))
		}
		r.Reset(Unknown)
		if got, _ := repaired(t, &r, Chat, end(reason)); got != end(reason) {
			t.Errorf("the stream before is remembered: %s", got)
		}
	}
	f(without, `"stop"`, `"tool_calls"`)
	f(without, `"length"`, `"length"`)
	f(without, `"tool_calls"`, `"tool_calls"`)
	f(without, `null`, `null`)
	f(with, `"stop"`, `"stop"`)
	f(text, `"stop"`, `"stop"`)
}

func TestWholeAnswersAreNotRepaired(t *testing.T) {
	var r Reader
	in := []byte(`{"choices":[{"message":{"role":"model","tool_calls":[{"id":"a"}]},"delta":{"role":null,"tool_calls":[{"id":"b"}]},"finish_reason":"stop"}],"created":1.5,"error":null}`)
	r.View(Chat, nil, in)
	if v, _ := r.Whole(Chat, in); v.Fix != 0 || string(r.Repair(nil, in)) != string(in) {
		t.Errorf("fix %b", v.Fix)
	}
}

func TestRepairWorksWhereverTheDataLies(t *testing.T) {
	const in, out = `{"error":null,"choices":[]}`, `{"choices":[]}`
	long := []byte("xx " + in + " yy")
	var r Reader
	for _, data := range [][]byte{long[3 : 3+len(in)], long[3 : 3+len(in) : 3+len(in)]} {
		r.View(Chat, nil, data)
		moved := []byte(in)
		if got := string(r.Repair(nil, moved)); got != out {
			t.Errorf("%s", got)
		}
	}
}

var mistakes = []string{
	`{"choices":[{"delta":{"content":"Hi","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1771518114.35,"id":"283ffbf5-591e-4187-9361-391602be5586","model":"gpt-oss-120b","object":"chat.completion.chunk"}`,
	`{"id":"c","error":null,"choices":null,"created":"1e9","usage":{"total_tokens":1}}`,
	`{"choices":[{"index":0,"delta":{"role":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}`,
}

func TestRepairAllocatesNothing(t *testing.T) {
	for _, s := range mistakes {
		var r Reader
		data, dst := []byte(s), make([]byte, 0, 1024)
		n := testing.AllocsPerRun(100, func() {
			r.View(Chat, nil, data)
			dst = r.Repair(dst[:0], data)
		})
		if n != 0 || r.view.Fix == 0 {
			t.Errorf("%v allocations for %s", n, s)
		}
	}
}

func TestManyMistakesTakeLittleMemoryAndTimeAndAreForgotten(t *testing.T) {
	for _, piece := range []string{`{},`, `{"id":"%"},`, `{"index":null},`} {
		var b strings.Builder
		b.WriteString(`{"choices":[{"delta":{"tool_calls":[`)
		for i := range 100_000 {
			b.WriteString(strings.Replace(piece, "%", string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)), 1))
		}
		b.WriteString(`{}]},"finish_reason":"stop","index":999999}]}`)
		in := []byte(b.String())
		var r Reader
		start := time.Now()
		if n := allocated(func() { r.View(Chat, nil, in) }); n > uint64(60*len(in)) {
			t.Errorf("%s: %d bytes of input took %d", piece, len(in), n)
		}
		if out := r.Repair(nil, in); !complete(out) {
			t.Errorf("%s is broken", piece)
		}
		if took := time.Since(start); took > 5*time.Second { // some ten milliseconds, unless each piece costs a walk
			t.Errorf("%s: %d bytes took %v", piece, len(in), took)
		}
		r.View(Chat, nil, nil)
		if cap(r.edits) > keepEdits || len(r.calls.known) > maxCalls || len(r.calls.choices) > maxChoices {
			t.Errorf("kept: %d edits, %d calls, %d choices", cap(r.edits), len(r.calls.known), len(r.calls.choices))
		}
	}
}

func BenchmarkRepair(b *testing.B) {
	for _, s := range mistakes {
		b.Run("", func(b *testing.B) {
			var r Reader
			data, dst := []byte(s), make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				r.View(Chat, nil, data)
				dst = r.Repair(dst[:0], data)
			}
		})
	}
}

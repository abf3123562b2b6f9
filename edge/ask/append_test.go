package ask

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"eisbach/sse/chunk"
)

func splice(t *testing.T, shape chunk.Shape, body string, e Edits) string {
	t.Helper()
	var a, again Ask
	if err := a.Parse(shape, []byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	out := a.AppendTo([]byte("> "), &e)
	if err := again.Parse(shape, out[2:]); err != nil {
		t.Errorf("%s became %s: %v", body, out[2:], err)
	}
	if string(out[:2]) != "> " {
		t.Errorf("dst was written over: %q", out[:2])
	}
	return string(out[2:])
}

func TestAppendToChangesNothingWithoutEdits(t *testing.T) {
	for _, body := range []string{`{}`, " { \"a\" : 1.0 , \"\\u0062\":\"\\/\" }\n", `{"stream":true,"max_tokens":5,"model":null}`} {
		if got := splice(t, chunk.Completion, body, Edits{}); got != body {
			t.Errorf("%s became %s", body, got)
		}
	}
}

func TestAppendToSetsTheModel(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if got := splice(t, chunk.Embeddings, body, Edits{Model: []byte(`a"b`), Limit: 5, System: []byte("s"), IncludeUsage: true}); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	f(`{}`, `{"model":"a\"b"}`)
	f(" {\n} ", " {\"model\":\"a\\\"b\"\n} ")
	f(`{ "x":1}`, `{"model":"a\"b", "x":1}`)
	f(`{"x":1, "model" : "old" }`, `{"x":1, "model" : "a\"b" }`)
	f(`{"\u006dodel":"\u006f"}`, `{"\u006dodel":"a\"b"}`)
	f(`{"model":null,"stream":true}`, `{"model":"a\"b","stream":true}`)
}

func TestAppendToEnforcesTheLimit(t *testing.T) {
	f := func(shape chunk.Shape, body, want string) {
		t.Helper()
		if got := splice(t, shape, body, Edits{Limit: 100}); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	const m = `,"messages":[{}]}`
	f(chunk.Chat, `{"messages":[{}]}`, `{"max_tokens":100,"messages":[{}]}`)
	f(chunk.Chat, `{"max_tokens":100`+m, `{"max_tokens":100`+m)
	f(chunk.Chat, `{"max_tokens":7`+m, `{"max_tokens":7`+m)
	f(chunk.Chat, `{"max_tokens": 101 `+m, `{"max_tokens": 100 `+m)
	f(chunk.Chat, `{"max_tokens":null`+m, `{"max_tokens":100`+m)
	f(chunk.Chat, `{"max_completion_tokens":5`+m, `{"max_completion_tokens":5`+m)
	f(chunk.Chat, `{"max_completion_tokens":500`+m, `{"max_completion_tokens":100`+m)
	f(chunk.Chat, `{"max_completion_tokens":null`+m, `{"max_completion_tokens":100`+m)
	f(chunk.Chat, `{"max_tokens":null,"max_completion_tokens":null`+m, `{"max_tokens":null,"max_completion_tokens":100`+m)
	f(chunk.Chat, `{"max_tokens":null,"max_completion_tokens":5`+m, `{"max_tokens":null,"max_completion_tokens":5`+m)
	f(chunk.Chat, `{"max_tokens":5,"max_completion_tokens":null`+m, `{"max_tokens":5,"max_completion_tokens":null`+m)
	f(chunk.Chat, `{"max_tokens":9007199254740992,"max_completion_tokens":5`+m, `{"max_tokens":100,"max_completion_tokens":5`+m)
	f(chunk.Chat, `{"max_completion_tokens":200,"x":0,"max_tokens":300`+m, `{"max_completion_tokens":100,"x":0,"max_tokens":100`+m)
	f(chunk.Completion, `{}`, `{"max_tokens":100}`)
	f(chunk.Completion, `{"max_completion_tokens":500}`, `{"max_tokens":100,"max_completion_tokens":500}`)
	f(chunk.Messages, `{"max_tokens":500`+m, `{"max_tokens":100`+m)
	f(chunk.Responses, `{"max_output_tokens":500}`, `{"max_output_tokens":100}`)
	f(chunk.Responses, `{"max_tokens":500}`, `{"max_output_tokens":100,"max_tokens":500}`)
	f(chunk.Embeddings, `{"max_tokens":500}`, `{"max_tokens":500}`)
	f(chunk.Other, `{}`, `{}`)
}

func TestAppendToAsksStreamsForUsage(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if got := splice(t, chunk.Completion, body, Edits{IncludeUsage: true}); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	f(`{"stream":false}`, `{"stream":false}`)
	f(`{"stream_options":{}}`, `{"stream_options":{}}`)
	f(`{"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`)
	f(`{"stream_options":null,"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`)
	f(`{"stream_options":{},"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`)
	f(`{"stream_options":{ },"stream":true}`, `{"stream_options":{"include_usage":true },"stream":true}`)
	f(`{"stream_options":{ "x":{}},"stream":true}`, `{"stream_options":{"include_usage":true, "x":{}},"stream":true}`)
	f(`{"stream_options":{"include_usage":false},"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`)
	f(`{"stream_options":{"a":1,"include_usage": null },"stream":true}`, `{"stream_options":{"a":1,"include_usage": true },"stream":true}`)
	f(`{"stream_options":{"include_usage":true},"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`)
	const responses = `{"stream":true}`
	if got := splice(t, chunk.Responses, responses, Edits{IncludeUsage: true}); got != responses {
		t.Errorf("responses, which always tell their usage: %s", got)
	}
}

func TestAppendToPutsTheSystemPromptInFront(t *testing.T) {
	f := func(shape chunk.Shape, body, want string) {
		t.Helper()
		if got := splice(t, shape, body, Edits{System: []byte("Be\n\"kind\".")}); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	f(chunk.Chat, `{"messages":[ {"role":"user"}],"x":1}`,
		`{"messages":[{"role":"system","content":"Be\n\"kind\"."}, {"role":"user"}],"x":1}`)
	f(chunk.Messages, `{"messages":[{}]}`, `{"system":"Be\n\"kind\".","messages":[{}]}`)
	f(chunk.Messages, `{"messages":[{}],"system":null}`, `{"messages":[{}],"system":"Be\n\"kind\"."}`)
	f(chunk.Messages, `{"messages":[{}],"system":"Rhyme."}`, `{"messages":[{}],"system":"Be\n\"kind\".\n\nRhyme."}`)
	f(chunk.Messages, `{"messages":[{}],"system":[]}`, `{"messages":[{}],"system":[{"type":"text","text":"Be\n\"kind\"."}]}`)
	f(chunk.Messages, `{"messages":[{}],"system":[ {"type":"text"}]}`,
		`{"messages":[{}],"system":[{"type":"text","text":"Be\n\"kind\"."}, {"type":"text"}]}`)
	f(chunk.Responses, `{}`, `{"instructions":"Be\n\"kind\"."}`)
	f(chunk.Responses, `{"instructions":null}`, `{"instructions":"Be\n\"kind\"."}`)
	f(chunk.Responses, `{"instructions":"Rhyme."}`, `{"instructions":"Be\n\"kind\".\n\nRhyme."}`)
	f(chunk.Completion, `{"prompt":"a"}`, `{"prompt":"a"}`)
	f(chunk.Embeddings, `{"input":"a"}`, `{"input":"a"}`)
}

func TestAppendToMakesAllEditsTogether(t *testing.T) {
	f := func(shape chunk.Shape, body, want string) {
		t.Helper()
		e := Edits{Model: []byte("m"), Limit: 9, IncludeUsage: true, System: []byte("s")}
		if got := splice(t, shape, body, e); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	f(chunk.Responses, `{}`, `{"model":"m","max_output_tokens":9,"instructions":"s"}`)
	f(chunk.Responses, "{ \n}", "{\"model\":\"m\",\"max_output_tokens\":9,\"instructions\":\"s\" \n}")
	f(chunk.Chat, `{"messages":[{}],"stream":true}`,
		`{"model":"m","max_tokens":9,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"s"},{}],"stream":true}`)
	f(chunk.Chat, `{"stream_options":{},"max_completion_tokens":10,"max_tokens":10,"messages":[{}],"stream":true,"model":"x"}`,
		`{"stream_options":{"include_usage":true},"max_completion_tokens":9,"max_tokens":9,`+
			`"messages":[{"role":"system","content":"s"},{}],"stream":true,"model":"m"}`)
}

func TestAppendStringIsValidWhateverItIsGiven(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		got := AppendString(nil, []byte(in))
		if string(got) != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != string([]rune(in)) {
			t.Errorf("%q came back as %q: %v", in, back, err)
		}
	}
	f("", `""`)
	f("plain text, longer than one word", `"plain text, longer than one word"`)
	f("\"\\/", `"\"\\/"`)
	f("\n\r\t\b\f\v\a\x00\x1f\x7f", `"\n\r\t\u0008\u000c\u000b\u0007\u0000\u001f`+"\x7f\"")
	f("é€😀\U000e0067\u2028", "\"é€😀\U000e0067\u2028\"")
	f("a\xffb\xed\xa0\x80c\xe2\x82", `"a`+"\ufffdb\ufffd\ufffd\ufffdc\ufffd\ufffd"+`"`)
	f("\ufffd", "\"\ufffd\"")
	for c := range 256 {
		for at := range 17 { // every byte at every offset of a stride
			s := []byte("0123456789abcdefg")
			s[at] = byte(c)
			var back string
			if out := AppendString(nil, s); !utf8.Valid(out) || json.Unmarshal(out, &back) != nil || back != string([]rune(string(s))) {
				t.Fatalf("%q became %s", s, out)
			}
		}
	}
}

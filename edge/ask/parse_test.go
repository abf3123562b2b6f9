package ask

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"eisbach/sse/chunk"
)

// refusal parses and gives the code and the param of the problem, "" for none.
func refusal(t *testing.T, shape chunk.Shape, body string) (code, param string) {
	t.Helper()
	var a Ask
	err := a.Parse(shape, []byte(body))
	if err == nil {
		return "", ""
	}
	var p *Problem
	if !errors.As(err, &p) {
		t.Fatalf("%.80q: the error is a %T", body, err)
	}
	if len(p.Param) > 64 || len(p.Message) > 400 || !utf8.ValidString(p.Message) ||
		strings.ContainsFunc(p.Message+p.Param, unicode.IsControl) || !strings.HasSuffix(p.Message, ".") {
		t.Errorf("%.80q: not fit to be shown: %q, param %q", body, p.Message, p.Param)
	}
	return p.Code, p.Param
}

func TestParseRefusesWhatIsNotStrictJSON(t *testing.T) {
	f := func(body, needle string) {
		t.Helper()
		if code, param := refusal(t, chunk.Completion, body); code != CodeInvalidJSON || param != "" {
			t.Errorf("%.80q: %q, param %q", body, code, param)
		}
		var a Ask
		if err := a.Parse(chunk.Completion, []byte(body)); !strings.Contains(fmt.Sprint(err), needle) {
			t.Errorf("%.80q: %v, which does not say %q", body, err, needle)
		}
	}
	f(``, `ends at byte 0`)
	f(` `, `ends at byte 1`)
	f(`[]`, `one JSON object`)
	f(`"a"`, `one JSON object`)
	f(`null`, `one JSON object`)
	f("\xef\xbb\xbf{}", `byte order mark`)
	f("\x1f\x8b\x08", `compressed`)
	f("\xff\xfe{\x00}\x00", `byte 0x`)
	f(`{}{}`, `the end of the body`)
	f(`{} x`, `at byte 3`)
	f("{}\x00", `0x00`)
	f("{}\x0c", `0x0c`)
	f("\u00a0{}", `0xc2`)
	f(`{`, `ends at byte 1`)
	f(`{"a"`, `a colon`)
	f(`{"a":`, `a value`)
	f(`{"a":1`, `a comma or '}'`)
	f(`{"a":1,`, `a key`)
	f(`{"a":1,}`, `no comma before`)
	f(`{"a":[1,]}`, `no comma before`)
	f(`{"a":[1 2]}`, `a comma or ']'`)
	f(`{,}`, `a key`)
	f(`{"a":[,1]}`, `a value`)
	f(`{"a":1 "b":2}`, `a comma`)
	f(`{"a" 1}`, `a colon`)
	f(`{"a"::1}`, `a value`)
	f(`{"a":[1}`, `a comma or ']'`)
	f(`{"a":{]}`, `a key`)
	f(`{a:1}`, `a key in double quotes`)
	f(`{1:1}`, `a key in double quotes`)
	f(`{'a':1}`, `double quotes`)
	f(`{"a":'b'}`, `double quotes`)
	f("{\"a\":`b`}", `a value`)
	f(`{"a":1} // end`, `no comments`)
	f(`{/* a */"a":1}`, `no comments`)
	f("{# a\n}", `no comments`)
	f(`{"a":NaN}`, `NaN`)
	f(`{"a":Infinity}`, `Infinity`)
	f(`{"a":-Infinity}`, `a digit`)
	f(`{"a":True}`, `true, false and null`)
	f(`{"a":None}`, `true, false and null`)
	f(`{"a":undefined}`, `a value`)
	f(`{"a":nul}`, `the word null`)
	f(`{"a":truee}`, `a comma`)
	f(`{"a":fals`, `the word false`)
	f(`{"a":01}`, `a comma`)
	f(`{"a":+1}`, `a value`)
	f(`{"a":-}`, `a digit`)
	f(`{"a":-01}`, `a comma`)
	f(`{"a":.5}`, `a value`)
	f(`{"a":1.}`, `a digit`)
	f(`{"a":1.e5}`, `a digit`)
	f(`{"a":1e}`, `a digit`)
	f(`{"a":1e+}`, `a digit`)
	f(`{"a":1e1.5}`, `a comma`)
	f(`{"a":0x10}`, `a comma`)
	f(`{"a":1_000}`, `a comma`)
	f(`{"a":1-2}`, `a comma`)
	f(`{"a":--1}`, `a digit`)
	f(`{"a":"b`, `closing quote`)
	f(`{"a":"b\"}`, `closing quote`)
	f(`{"a":"\`, `the escapes`)
	f(`{"a":"\q"}`, `the escapes`)
	f(`{"a":"\x41"}`, `the escapes`)
	f(`{"a":"\'"}`, `the escapes`)
	f(`{"a":"\U0041"}`, `the escapes`)
	f(`{"a":"\u12"}`, `a hexadecimal digit`)
	f(`{"a":"\u12g4"}`, `a hexadecimal digit`)
	f(`{"a":"\u`, `a hexadecimal digit`)
	f("{\"a\":\"b\nc\"}", `control character`)
	f("{\"a\":\"0123456789\x1f\"}", `control character`)
	f("{\"a\":\"\x00\"}", `control character`)
	f("{\"a\tb\":1}", `control character`)
	f("{\"a\":\"\xff\"}", `UTF-8`)
	f("{\"a\":\"\xc0\x80\"}", `UTF-8`)
	f("{\"a\":\"\xed\xa0\x80\"}", `UTF-8`)
	f("{\"a\":\"\xf4\x90\x80\x80\"}", `UTF-8`)
	f("{\"a\":\"\xe2\x82\"}", `UTF-8`)
	f("{\"a\xff\":1}", `UTF-8`)
	f(`{"\ud800":1}`, `surrogate`)
	f(`{"\udc00\ud800":1}`, `surrogate`)
	f(`{"a":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`}`, `64 levels`)
	f(strings.Repeat(`{"a":`, 65)+`1`+strings.Repeat("}", 65), `64 levels`)
	f(strings.Repeat("[", 10_000), `one JSON object`)
	f(`{"a":`+strings.Repeat("[", 10_000), `64 levels`)
}

func TestParseTakesAllOfJSON(t *testing.T) {
	f := func(body string) {
		t.Helper()
		if code, param := refusal(t, chunk.Completion, body); code != "" {
			t.Errorf("%.80q: %s %s", body, code, param)
		}
	}
	f(`{}`)
	f(" \t\r\n{ \t\r\n} \t\r\n")
	f(`{ "a" : [ 1 , { "b" : null } , [ ] , { } , true , false , "" ] , "" : -0.0e-0 }`)
	f(`{"a":[0,-0,1,-1,10,0.5,1.25,1e5,1E+5,1e-5,-1.5E05,1e999,` + strings.Repeat("9", 400) + `]}`)
	f(`{"a":"\"\\\/\b\f\n\r\t\u0000\u00e9\uD83D\ude00"}`)
	f(`{"a":"é€😀` + "\u2028\u007f\u0080" + `"}`)
	f(`{"a":"\ud800"}`) // an emoji cut in half: for the upstream to say
	f(`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`)
	f(`{"a":{"a":{"a":1}},"b":{"a":1},"c":[{"a":1},{"a":1}]}`)
	f(`{"A":1,"a":2,"ſ":3,"s":4}`) // no known ones: upstreams have to tell them apart
	f(`{"tools":[{"type":"function","function":{"parameters":{"Model":1,"MODEL":2,"Stream":"x"}}}]}`)
}

func TestParseRefusesKeysThatTwoReadersCouldUnderstandDifferently(t *testing.T) {
	f := func(body, wantCode, wantParam string) {
		t.Helper()
		code, param := refusal(t, chunk.Chat, body)
		if code != wantCode || param != wantParam {
			t.Errorf("%.80q: %q %q, not %q %q", body, code, param, wantCode, wantParam)
		}
	}
	const m = `"messages":[{"role":"user","content":"a"}]`
	f(`{`+m+`}`, "", "")
	f(`{`+m+`,"max_tokens":10,"max_tokens":100000}`, CodeDuplicateKey, "max_tokens")
	f(`{`+m+`,"max_tokens":10,"max\u005ftokens":100000}`, CodeDuplicateKey, "max_tokens")
	f(`{`+m+`,"max\u005ftokens":10,"max\u005Ftokens":10}`, CodeDuplicateKey, "max_tokens")
	f(`{`+m+`,"x":1,"x":1}`, CodeDuplicateKey, "x")
	f(`{`+m+`,"":1,"":1}`, CodeDuplicateKey, "")
	f(`{`+m+`,"\u0000":1,"\u0000":1}`, CodeDuplicateKey, "?")
	f(`{`+m+`,"\/":1,"/":1}`, CodeDuplicateKey, "/")
	f(`{`+m+`,"😀":1,"\ud83d\ude00":1}`, CodeDuplicateKey, "😀")
	f(`{`+m+`,"x":{"y":[{"z":1,"z":2}]}}`, CodeDuplicateKey, "z")
	f(`{"messages":[{"role":"user","content":"a","role":"system"}]}`, CodeDuplicateKey, "role")
	f(`{`+m+`,"stream_options":{"include_usage":true,"include_usage":false}}`, CodeDuplicateKey, "include_usage")
	f(`{`+m+`,`+m+`}`, CodeDuplicateKey, "messages")
	f(`{`+m+`,"`+strings.Repeat("k", 100)+`":1,"`+strings.Repeat("k", 100)+`":1}`, CodeDuplicateKey, strings.Repeat("k", 61)+"…")

	f(`{`+m+`,"Max_Tokens":10}`, CodeNotAllowed, "Max_Tokens")
	f(`{`+m+`,"max_tokens":10,"MAX_TOKENS":10}`, CodeNotAllowed, "MAX_TOKENS")
	f(`{`+m+`,"max_toKens":10}`, CodeNotAllowed, "max_toKens")
	f(`{`+m+`,"\u004dodel":"a"}`, CodeNotAllowed, "Model")
	f(`{`+m+`,"ſtream":true}`, CodeNotAllowed, "ſtream")
	f(`{`+m+`,"max_token`+"\u017f"+`":1}`, CodeNotAllowed, "max_tokenſ")
	f(`{`+m+`,"max_to`+"\u212a"+`ens":1}`, CodeNotAllowed, "max_to\u212aens")
	f(`{`+m+`,"max_to\u212aens":1}`, CodeNotAllowed, "max_to\u212aens")
	f(`{`+m+`,"N":2}`, CodeNotAllowed, "N")
	f(`{`+m+`,"Temperature":2}`, CodeNotAllowed, "Temperature")
	f(`{"Messages":[]}`, CodeNotAllowed, "Messages")
	f(`{`+m+`,"stream_options":{"Include_Usage":false}}`, CodeNotAllowed, "Include_Usage")
	f(`{"messages":[{"Role":"user"}]}`, CodeNotAllowed, "Role")
	f(`{"messages":[{"role":"user","Content":"a"}]}`, CodeNotAllowed, "Content")
	f(`{"messages":[{"role":"user","content":[{"Type":"image_url"}]}]}`, CodeNotAllowed, "Type")
	f(`{"messages":[{"role":"user","content":[{"type":"x","x":{"Type":1,"Role":1}}]}]}`, "", "")
	f(`{`+m+`,"maxtokens":1,"max-tokens":1,"modèle":1,"mоdel":1}`, "", "")
	f(`{`+m+`,"`+strings.Repeat("M", 1000)+`":1}`, "", "")
}

func TestParseRefusesDuplicatesInLargeObjects(t *testing.T) {
	for _, size := range []int{15, 16, 17, 47, 48, 49, 96, 97, 1000} {
		var b strings.Builder
		for i := range size {
			fmt.Fprintf(&b, `"k%d":{"k1":{},"k\u0032":[{"k1":1}]},`, i)
		}
		body := `{"prompt":[{` + strings.TrimSuffix(b.String(), ",")
		if code, _ := refusal(t, chunk.Completion, body+`}]}`); code != "" {
			t.Errorf("%d keys: %s", size, code)
		}
		for _, again := range []string{"k0", fmt.Sprint("k", size-1), `k\u00310`} {
			if again == `k\u00310` && size < 11 {
				continue
			}
			if code, _ := refusal(t, chunk.Completion, body+`,"`+again+`":1}]}`); code != CodeDuplicateKey {
				t.Errorf("%d keys and %s again: %q", size, again, code)
			}
		}
	}
}

func TestParseChecksTheMembersThatTheEdgeDependsOn(t *testing.T) {
	f := func(member, wantParam string) {
		t.Helper()
		wantCode := CodeInvalidValue
		if wantParam == "" {
			wantCode = ""
		}
		code, param := refusal(t, chunk.Chat, `{"messages":[{}],`+member+`}`)
		if code != wantCode || param != wantParam {
			t.Errorf("%.80q: %q %q, not %q %q", member, code, param, wantCode, wantParam)
		}
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"} {
		for _, bad := range []string{`0`, `-0`, `-1`, `1.0`, `1e3`, `1E0`, `"5"`, `true`, `[]`, `{}`, `[5]`, `""`,
			`9007199254740993`, `18446744073709551617`, `99999999999999999999999`} {
			f(`"`+name+`":`+bad, name)
		}
		f(`"`+name+`":1`, "")
		f(`"`+name+`": 128 `, "")
		f(`"`+name+`":null`, "")
	}
	f(`"max_tokens":9007199254740992`, "")
	f(`"n":129`, "n")
	f(`"best_of":129`, "best_of")

	f(`"stream":"true"`, "stream")
	f(`"stream":1`, "stream")
	f(`"stream":[]`, "stream")
	f(`"stream":null`, "")
	f(`"stream_options":[]`, "stream_options")
	f(`"stream_options":true`, "stream_options")
	f(`"stream_options":null`, "")
	f(`"stream_options":{}`, "")
	f(`"stream_options":{"include_usage":1}`, "stream_options.include_usage")
	f(`"stream_options":{"include_usage":{}}`, "stream_options.include_usage")
	f(`"stream_options":{"include_usage":null}`, "")

	f(`"model":1`, "model")
	f(`"model":["a"]`, "model")
	f(`"model":""`, "model")
	f(`"model":"a\nb"`, "model")
	f(`"model":"a\u007f"`, "model")
	f(`"model":"a\u0085"`, "model")
	f(`"model":"\ud800"`, "model")
	f(`"model":"`+strings.Repeat("a", 257)+`"`, "model")
	f(`"model":"`+strings.Repeat("a", 1e5)+`"`, "model")
	f(`"model":"`+strings.Repeat(`\u0061`, 257)+`"`, "model")
	f(`"model":"`+strings.Repeat(`\u0061`, 256)+`"`, "")
	f(`"model":"`+strings.Repeat("a", 256)+`"`, "")
	f(`"model":null`, "")
}

func TestParseWantsMessagesWhereTheEndpointNeedsThem(t *testing.T) {
	f := func(shape chunk.Shape, body, wantParam string) {
		t.Helper()
		if _, param := refusal(t, shape, body); param != wantParam {
			t.Errorf("%d %s: param %q, not %q", shape, body, param, wantParam)
		}
	}
	for _, shape := range []chunk.Shape{chunk.Chat, chunk.Messages} {
		f(shape, `{}`, "messages")
		f(shape, `{"messages":null}`, "messages")
		f(shape, `{"messages":[ ]}`, "messages")
		f(shape, `{"messages":{}}`, "messages")
		f(shape, `{"messages":{"a":{}}}`, "messages")
		f(shape, `{"messages":"a"}`, "messages")
		f(shape, `{"messages":[{},"a"]}`, "messages")
		f(shape, `{"messages":[[]]}`, "messages")
		f(shape, `{"messages":[{}]}`, "")
	}
	for _, shape := range []chunk.Shape{chunk.Completion, chunk.Responses, chunk.Embeddings, chunk.Other} {
		f(shape, `{}`, "")
		f(shape, `{"messages":1}`, "messages")
		f(shape, `{"messages":null,"input":[[1,2],[3]]}`, "")
		f(shape, `{"input":["a",{"role":"user"}]}`, "")
	}
	f(chunk.Messages, `{"messages":[{}],"system":1}`, "system")
	f(chunk.Messages, `{"messages":[{}],"system":{}}`, "system")
	f(chunk.Messages, `{"messages":[{}],"system":null}`, "")
	f(chunk.Chat, `{"messages":[{}],"system":1}`, "")
	f(chunk.Responses, `{"instructions":["a"]}`, "instructions")
	f(chunk.Responses, `{"instructions":null}`, "")
}

func TestParseKnowsWhatIsAskedFor(t *testing.T) {
	f := func(shape chunk.Shape, body, want string) {
		t.Helper()
		var a Ask
		if err := a.Parse(shape, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		got := fmt.Sprintf("%q %t stream=%t usage=%t limit=%d %s n=%d",
			a.Model, a.Named, a.Stream, a.IncludeUsage, a.Limit, a.LimitName(), a.N)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want)
		}
	}
	f(chunk.Chat, `{"messages":[{}]}`, `"" false stream=false usage=false limit=0 max_tokens n=1`)
	f(chunk.Chat, `{"messages":[{}],"model":null,"stream":null,"n":null,"max_tokens":null}`,
		`"" false stream=false usage=false limit=0 max_tokens n=1`)
	f(chunk.Chat, `{"model":"a\/\u00e9","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"n":2,"messages":[{}]}`,
		`"a/é" true stream=true usage=true limit=5 max_tokens n=2`)
	f(chunk.Chat, `{"messages":[{}],"max_tokens":5,"max_completion_tokens":7}`,
		`"" false stream=false usage=false limit=7 max_completion_tokens n=1`)
	f(chunk.Chat, `{"messages":[{}],"max_tokens":9,"max_completion_tokens":7,"max_output_tokens":70}`,
		`"" false stream=false usage=false limit=9 max_tokens n=1`)
	f(chunk.Completion, `{"n":2,"best_of":5,"max_tokens":3,"max_completion_tokens":9}`,
		`"" false stream=false usage=false limit=3 max_tokens n=5`)
	f(chunk.Responses, `{"max_output_tokens":3,"max_tokens":9,"stream":true}`,
		`"" false stream=true usage=false limit=3 max_output_tokens n=1`)
	f(chunk.Messages, `{"messages":[{}],"max_tokens":3,"n":4}`, `"" false stream=false usage=false limit=3 max_tokens n=1`)
	f(chunk.Embeddings, `{"model":"e","stream":true,"max_tokens":3}`, `"e" true stream=false usage=false limit=0  n=1`)
}

func TestAskIsAsNewWithEachBody(t *testing.T) {
	var a Ask
	full := []byte(`{"model":"\u0061","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"n":2,"messages":[{}]}`)
	for _, next := range []string{`{"messages":[{}]}`, `{"model":`} {
		if err := a.Parse(chunk.Chat, full); err != nil {
			t.Fatal(err)
		}
		a.Release()
		if a.Model != nil || a.Value("model") != nil || !a.Stream || a.Limit != 5 || a.LimitName() != "max_tokens" || a.N != 2 {
			t.Errorf("after Release: %q %+v %d %d", a.Model, a.Stream, a.Limit, a.N)
		}
		err := a.Parse(chunk.Chat, []byte(next))
		if a.Model != nil || a.Named || a.Stream || a.IncludeUsage || a.Limit != 0 || a.N != 1 || a.Value("stream") != nil {
			t.Errorf("%s (%v): knows of the body before it", next, err)
		}
	}
}

func TestMembersAreTheTopLevelInOrder(t *testing.T) {
	var a Ask
	body := `{ "b" : [1, {"x":2}] ,"\u0061":"\n", "messages":[{"role":"user"}],"c":{}, "d":-1.5 }`
	if err := a.Parse(chunk.Chat, []byte(body)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for name, value := range a.Members {
		got = append(got, string(name)+"="+string(value))
	}
	want := `b=[1, {"x":2}] a="\n" messages=[{"role":"user"}] c={} d=-1.5`
	if strings.Join(got, " ") != want {
		t.Errorf("got %s", got)
	}
	if v := a.Value("a"); string(v) != `"\n"` {
		t.Errorf("Value(a) is %s", v)
	}
	if v := a.Value("x"); v != nil {
		t.Errorf("Value(x) is %s", v)
	}
}

package ask

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"eisbach/sse/chunk"
)

func seed(add func(shape uint8, body []byte)) {
	for _, body := range []string{
		`{}`, ` { "a" : [ 1 , -0.5e+7 , true , null , "x\u0041\ud83d\ude00\n" , {} , [] ] } `,
		`{"model":"m","messages":[{"role":"user","content":"é"}],"stream":true,"stream_options":{"include_usage":false},"max_tokens":5}`,
		`{"model":null,"max_tokens":null,"max_completion_tokens":7,"n":2,"best_of":3,"messages":[{}],"system":"s"}`,
		`{"system":[{"type":"text","text":"a"}],"messages":[{"content":[{"type":"text"}]}]}`,
		`{"instructions":null,"max_output_tokens":99,"input":[{"role":"user"}],"stream_options":{ }}`,
		`{"Max_Tokens":1}`, `{"a":1,"\u0061":2}`, `{"a":01}`, `{"a":"\ud800"}`, `{"\ud800":1}`, "{\"a\":\"\xff\"}", `{"a":[1,]}`, `{}x`,
		`{"stream":1}`, `{"max_tokens":1e3}`, `{"messages":[{"Role":1}]}`, strings.Repeat(`{"a":[`, 33),
		`{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":{},"1":0}`,
	} {
		for shape := chunk.Chat; shape <= chunk.Other; shape++ {
			add(uint8(shape), []byte(body))
		}
	}
}

// strict says by means of encoding/json whether a body is what this package
// calls strict JSON, the keys' surrogates left aside.
func strict(body []byte) bool {
	if !utf8.Valid(body) || !json.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{' {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var open []map[string]bool // nil for an array
	isKey := false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return true
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(open) == 64 {
				return false
			}
			if isKey = token == json.Delim('{'); isKey {
				open = append(open, map[string]bool{})
			} else {
				open = append(open, nil)
			}
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
			isKey = len(open) > 0 && open[len(open)-1] != nil
			continue
		}
		own := open[len(open)-1]
		if isKey {
			if own[token.(string)] {
				return false
			}
			own[token.(string)] = true
		}
		isKey = own != nil && !isKey
	}
}

// sound says whether the members of a strict body are what they must be.
func sound(shape chunk.Shape, body []byte) bool {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return false
	}
	is := func(pattern string, names ...string) bool {
		for _, name := range names {
			if v, ok := top[name]; ok && string(v) != "null" && !regexp.MustCompile(`(?s)^(`+pattern+`)$`).Match(v) {
				return false
			}
		}
		return true
	}
	limits := []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}
	needed := shape == chunk.Chat || shape == chunk.Messages
	if needed && (top["messages"] == nil || string(top["messages"]) == "null") {
		return false
	}
	type list []map[string]json.RawMessage
	var said, input list
	if top["messages"] != nil && (json.Unmarshal(top["messages"], &said) != nil || needed && len(said) == 0 || slices.ContainsFunc(said, isNil)) {
		return false
	}
	var items []json.RawMessage // of an input, which may be anything
	json.Unmarshal(top["input"], &items)
	for _, item := range items {
		var m map[string]json.RawMessage
		json.Unmarshal(item, &m)
		input = append(input, m)
	}
	var options map[string]json.RawMessage
	var name string
	if v := top["model"]; v != nil && string(v) != "null" {
		if json.Unmarshal(v, &name) != nil || name == "" || len(name) > 256 || strings.ContainsFunc(name, unicode.IsControl) {
			return false
		}
	}
	return is(`true|false`, "stream") && is(`\{.*`, "stream_options") &&
		json.Unmarshal(orNull(top["stream_options"]), &options) == nil &&
		(options["include_usage"] == nil || regexp.MustCompile(`^(true|false|null)$`).Match(options["include_usage"])) &&
		is(`[1-9]\d{0,15}`, limits...) && !slices.ContainsFunc(limits, func(name string) bool {
		v, _ := strconv.ParseInt(string(top[name]), 10, 64)
		return v > 1<<53
	}) &&
		is(`[1-9]\d?|1[01]\d|12[0-8]`, "n", "best_of") &&
		(shape != chunk.Messages || is(`".*|\[.*`, "system")) && (shape != chunk.Responses || is(`".*`, "instructions")) &&
		cased(top, "model", "stream", "max_tokens", "messages", "n", "temperature") && cased(options, "include_usage") &&
		!slices.ContainsFunc(slices.Concat(said, input), func(m map[string]json.RawMessage) bool { return !cased(m, "role", "content") })
}

func isNil(m map[string]json.RawMessage) bool { return m == nil }

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// cased says whether no key equals one of names but for its case.
func cased(object map[string]json.RawMessage, names ...string) bool {
	for key := range object {
		for _, name := range names {
			if key != name && strings.EqualFold(key, name) {
				return false
			}
		}
	}
	return true
}

func FuzzParse(f *testing.F) {
	seed(func(shape uint8, body []byte) { f.Add(shape, body) })
	var a Ask
	f.Fuzz(func(t *testing.T, s uint8, body []byte) {
		shape := chunk.Shape(s % uint8(chunk.Other+1))
		err := a.Parse(shape, body)
		if err == nil {
			if !strict(body) || !sound(shape, body) {
				t.Fatalf("taken: %q", body)
			}
			return
		}
		var p *Problem
		if !errors.As(err, &p) || len(p.Param) > 64 || !utf8.ValidString(p.Message+p.Param) || strings.ContainsFunc(p.Message+p.Param, unicode.IsControl) {
			t.Fatalf("%q: not fit to be shown: %v", body, err)
		}
		surrogate := regexp.MustCompile(`(?i)\\ud[89a-f]`).Match(body)
		switch p.Code {
		case CodeInvalidJSON, CodeDuplicateKey:
			if strict(body) && !surrogate {
				t.Fatalf("refused: %q: %v", body, err)
			}
		case CodeInvalidValue:
			if strict(body) && sound(shape, body) && !surrogate {
				t.Fatalf("refused: %q: %v", body, err)
			}
		case CodeNotAllowed:
			if p.Param == strings.ToLower(p.Param) && !strings.ContainsAny(p.Param, "ſ\u212a") {
				t.Fatalf("refused: %q: %v", body, err)
			}
		default:
			t.Fatalf("the code is %q", p.Code)
		}
	})
}

// edited is what the edits make of a decoded body.
func edited(a *Ask, shape chunk.Shape, top map[string]any, e Edits) {
	valid := func(b []byte) string { return string([]rune(string(b))) }
	if len(e.Model) > 0 {
		top["model"] = valid(e.Model)
	}
	limit := json.Number(jsonInt(e.Limit))
	names := map[chunk.Shape][]string{chunk.Chat: {"max_completion_tokens", "max_tokens"}, chunk.Completion: {"max_tokens"},
		chunk.Messages: {"max_tokens"}, chunk.Responses: {"max_output_tokens"}}[shape]
	if e.Limit > 0 && len(names) > 0 {
		add := names[len(names)-1]
		if _, there := top[names[0]]; there {
			add = names[0]
		}
		for _, name := range names {
			if v, ok := top[name].(json.Number); ok {
				add = ""
				if n, _ := v.Int64(); n > e.Limit {
					top[name] = limit
				}
			}
		}
		if add != "" {
			top[add] = limit
		}
	}
	if e.IncludeUsage && a.Stream && (shape == chunk.Chat || shape == chunk.Completion) {
		o, _ := top["stream_options"].(map[string]any)
		if o == nil {
			o = map[string]any{}
		}
		o["include_usage"] = true
		top["stream_options"] = o
	}
	if text := valid(e.System); text != "" {
		name := map[chunk.Shape]string{chunk.Messages: "system", chunk.Responses: "instructions"}[shape]
		old, isText := top[name].(string)
		blocks, isList := top[name].([]any)
		switch {
		case shape == chunk.Chat:
			top["messages"] = append([]any{map[string]any{"role": "system", "content": text}}, top["messages"].([]any)...)
		case name == "":
		case isText:
			top[name] = text + "\n\n" + old
		case isList:
			top[name] = append([]any{map[string]any{"type": "text", "text": text}}, blocks...)
		default:
			top[name] = text
		}
	}
}

func jsonInt(v int64) string { b, _ := json.Marshal(v); return string(b) }

func decode(t *testing.T, body []byte) (top map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&top); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return top
}

func FuzzAppendTo(f *testing.F) {
	seed(func(shape uint8, body []byte) {
		f.Add(shape, body, "m", int64(6), true, "be\n\"kind\"")
		f.Add(shape, body, "", int64(100), true, "\xff")
		f.Add(shape, body, "é\xed", int64(0), false, "")
	})
	var a, again Ask
	f.Fuzz(func(t *testing.T, s uint8, body []byte, name string, limit int64, usage bool, text string) {
		shape := chunk.Shape(s % uint8(chunk.Other+1))
		e := Edits{Model: []byte(name), Limit: limit, IncludeUsage: usage, System: []byte(text)}
		if limit > maxInteger || len(name) > 80 || strings.ContainsFunc(name, unicode.IsControl) || a.Parse(shape, body) != nil {
			return
		}
		if same := a.AppendTo(nil, &Edits{}); !bytes.Equal(same, body) {
			t.Fatalf("%q became %q without edits", body, same)
		}
		out := a.AppendTo(nil, &e)
		if err := again.Parse(shape, out); err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		want, got := decode(t, body), decode(t, out)
		edited(&a, shape, want, e)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n became %q\n with %+v", body, out, e)
		}
		var before, after []string // what no edit touches stays as it is, in order
		note := func(list *[]string) func(name, value []byte) bool {
			return func(name, value []byte) bool {
				switch string(name) {
				case "model", "max_tokens", "max_completion_tokens", "max_output_tokens", "stream_options", "messages", "system", "instructions":
				default:
					*list = append(*list, string(name)+":"+string(value))
				}
				return true
			}
		}
		a.Members(note(&before))
		again.Members(note(&after))
		if !slices.Equal(before, after) {
			t.Fatalf("%q became %q", before, after)
		}
	})
}

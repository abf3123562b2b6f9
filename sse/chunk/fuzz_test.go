package chunk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func FuzzView(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, shape uint8, name, data []byte) {
		var r Reader
		before := bytes.Clone(data)
		bounded(t, len(data), func() {
			v := r.View(Shape(shape)%(Other+1), name, data)
			if v.TextBytes < 0 || v.TextBytes > len(data) || v.Usage.Prompt < 0 || v.Usage.Completion < 0 || v.Usage.Total < 0 {
				t.Errorf("%q: %v", data, v)
			}
			if v.Kind != Error && len(v.Message)+len(v.Type)+len(v.Code) > 0 {
				t.Errorf("%q: a message without an error: %v", data, v)
			}
		})
		if !bytes.Equal(data, before) {
			t.Errorf("the data was changed")
		}
	})
}

func FuzzWhole(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, shape uint8, _, body []byte) {
		var r Reader
		ok := false
		bounded(t, 2*len(body), func() {
			_, ok = r.Whole(Shape(shape)%(Other+1), body)
			if v := r.ErrorBody(body); v.Kind != Error {
				t.Errorf("%q: %v", body, v)
			}
		})
		// What encoding/json takes is complete; what it refuses is so only
		// because of what stands inside a string, or is deeper than we go.
		valid := json.Valid(body)
		if valid && !ok && bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) <= maxDepth {
			t.Errorf("%q is refused", body)
		}
		if ok && !valid && bytes.IndexByte(body, '"') < 0 {
			t.Errorf("%q is taken", body)
		}
	})
}

// FuzzRepair repairs a stream of one event and compares with what encoding/json
// and the rules, written down a second time, make of it.
func FuzzRepair(f *testing.F) {
	for _, c := range typical {
		f.Add(c.data)
	}
	for _, s := range mistakes {
		f.Add(s)
	}
	f.Add(`{"error":null,"error":0,"created":"x","choices":{}} `)
	f.Add(`{"created":-1.5e0,"choices":[{"finish_reason":"stop","index":1,"delta":{"tool_calls":[{},{"index":null,"id":"a"},{"id":"b"},{"id":"a"}],"role":7}},{}]}`)
	f.Fuzz(checkRepair)
}

func checkRepair(t *testing.T, data string) {
	for _, shape := range []Shape{Chat, Completion, Responses, Messages} {
		var r Reader
		out, fix := repaired(t, &r, shape, data)
		kind := r.View(shape, nil, []byte(data)).Kind
		if !json.Valid([]byte(data)) {
			continue
		}
		if !json.Valid([]byte(out)) {
			t.Fatalf("%q became %q", data, out)
		}
		in, err := decode(data)
		if err != nil || strings.Contains(data, `\`) {
			continue // a key twice, or an escaped one
		}
		got, err := decode(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, out, err)
		}
		if fix != 0 && (shape > Completion || kind == Error || kind == Done) {
			t.Fatalf("fix %b in %q", fix, data)
		}
		if top, ok := in.(map[string]any); ok && len(top) > 0 && shape <= Completion && kind != Error {
			expect(top)
		}
		if !reflect.DeepEqual(got, in) {
			t.Fatalf("%q became %q, decoded %v, not %v", data, out, got, in)
		}
	}
}

func TestRepairOfRandomChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	list := func(most int, of func() string) string {
		var all []string
		for range rng.IntN(most + 1) {
			if s := of(); s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, one(",", ",", " , ", ",\n"))
	}
	call := func() string {
		members := []string{one("", `"index":0`, `"index":2`, `"index":null`, `"index":"1"`), one("", `"id":"a"`, `"id":"b"`, `"id":""`, `"id":null`),
			one("", `"function":{"name":"f","arguments":"{}"}`, `"function":{"arguments":"x"}`, `"function":{"name":""}`)}
		return "{" + joined(rng, members) + "}"
	}
	choice := func() string {
		delta := []string{one("", `"role":null`, `"role":"assistant"`, `"role":"x"`), one("", `"content":"a"`),
			one("", `"tool_calls":[`+list(3, call)+`]`)}
		members := []string{one("", `"index":0`, `"index":1`), one("", `"finish_reason":null`, `"finish_reason":"stop"`),
			`"delta":{` + joined(rng, delta) + `}`}
		return "{" + joined(rng, members) + "}"
	}
	for range 3000 {
		members := []string{one("", `"error":null`, `"error":false`), one("", `"choices":null`, `"choices":[`+list(3, choice)+`]`, `"choices":[`+list(3, choice)+`]`),
			one("", `"created":1.5`, `"created":7`, `"created":"8.9"`, `"created":null`, `"created":1.25e2`, `"created":"x"`),
			one("", `"usage":null`, `"usage":{"total_tokens":3}`), one("", `"id":"c"`)}
		checkRepair(t, one("", " ")+"{"+one("", " ")+joined(rng, members)+one("", " ")+"}")
	}
}

// joined makes members of an object, in any order, out of those that are not empty.
func joined(rng *rand.Rand, members []string) string {
	members = slices.DeleteFunc(members, func(s string) bool { return s == "" })
	rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return strings.Join(members, ",")
}

// expect applies the rules to a chunk with a mistake.
func expect(top map[string]any) {
	delete(top, "error")
	switch created := top["created"].(type) {
	case json.Number:
		truncated(top, string(created))
	case string:
		truncated(top, created)
	default:
		delete(top, "created")
	}
	choices, ok := top["choices"].([]any)
	if !ok {
		top["choices"] = []any{}
	}
	e := expected{ids: map[string]string{}, last: map[int]string{}, next: map[int]int{}, named: map[int]bool{}}
	for _, c := range choices {
		e.choice(c)
	}
}

func truncated(top map[string]any, number string) {
	var digits json.Number
	f, _, err := big.ParseFloat(number, 10, 200, big.ToZero)
	if err != nil || json.Unmarshal([]byte(number), &digits) != nil || string(digits) != number {
		delete(top, "created")
		return
	}
	whole, _ := f.Int(nil)
	text := whole.String()
	switch exponent := strings.ContainsAny(number, "eE"); {
	case exponent && (f.Sign() < 0 || whole.BitLen() > 53), len(strings.TrimPrefix(text, "-")) > 18:
		delete(top, "created")
		return
	case !exponent && number[0] == '-' && text == "0":
		text = "-0"
	}
	top["created"] = json.Number(text)
}

// expected knows the tool calls so far.
type expected struct {
	ids        map[string]string
	last       map[int]string
	next       map[int]int
	named      map[int]bool
	geminiLike bool
}

func (e *expected) choice(c any) {
	choice, _ := c.(map[string]any)
	number, _ := choice["index"].(json.Number)
	at, _ := ordinal([]byte(number))
	at = min(at, maxChoices-1)
	delta, _ := choice["delta"].(map[string]any)
	if role, there := delta["role"]; there && role != "" && role != "assistant" {
		delete(delta, "role")
	}
	calls, _ := delta["tool_calls"].([]any)
	for _, c := range calls {
		if call, ok := c.(map[string]any); ok {
			e.call(at, call)
		}
	}
	if _, called := e.last[at]; called && e.geminiLike && choice["finish_reason"] == "stop" {
		choice["finish_reason"] = "tool_calls"
	}
}

func (e *expected) call(at int, call map[string]any) {
	function, _ := call["function"].(map[string]any)
	name, _ := function["name"].(string)
	id := ""
	if v := call["id"]; v != nil && v != "" && !reflect.DeepEqual(v, []any{}) && !reflect.DeepEqual(v, map[string]any{}) {
		id = fmt.Sprintf("%d %T %v", at, v, v)
	}
	last, called := e.last[at]
	index := fmt.Sprint(e.next[at])
	known, seen := e.ids[id]
	number, _ := call["index"].(json.Number)
	_, plain := ordinal([]byte(number))
	switch {
	case plain:
		n, _ := ordinal([]byte(number))
		index = fmt.Sprint(n)
	case seen:
		index = known
	case id == "" && called && (name == "" || !e.named[at]):
		index = last
	}
	if call["index"] == nil {
		call["index"] = json.Number(index)
		e.geminiLike = true
	}
	if id != "" && !seen {
		e.ids[id] = index
	}
	e.named[at] = name != "" || seen || called && last == index && e.named[at]
	n, _ := ordinal([]byte(index))
	e.last[at], e.next[at] = index, max(e.next[at], n+1)
}

var errTwice = errors.New("a key stands twice")

// decode is json.Unmarshal with numbers as written, for documents without a key
// that stands twice in its object.
func decode(data string) (any, error) {
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if err := twice(d); err != nil {
		return nil, err
	}
	d = json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	var v any
	return v, d.Decode(&v)
}

// twice goes over one value.
func twice(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil || token != json.Delim('{') && token != json.Delim('[') {
		return err
	}
	var keys []string
	for d.More() {
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if slices.Contains(keys, key.(string)) {
				return errTwice
			}
			keys = append(keys, key.(string))
		}
		if err := twice(d); err != nil {
			return err
		}
	}
	if _, err = d.Token(); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func BenchmarkView(b *testing.B) {
	for _, c := range typical[1:5] {
		b.Run("", func(b *testing.B) {
			var r Reader
			data := []byte(c.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				r.View(c.shape, nil, data)
			}
		})
	}
}

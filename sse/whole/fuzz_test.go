package whole

import (
	"encoding/json"
	"testing"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

func FuzzSplit(f *testing.F) {
	for _, w := range wholes {
		f.Add(uint8(w.shape), []byte(w.body))
	}
	f.Add(uint8(chunk.Chat), []byte("{\"choices\":\r\n[{\"message\":{\"a\":\r[1 ,2]}}]}"))
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		shape := chunk.Shape(n) % (chunk.Other + 1)
		stream, err := Split(nil, shape, body, true)
		if err != nil {
			if len(stream) > 0 {
				t.Fatalf("%v and %q", err, stream)
			}
			return
		}
		var a Assembler
		a.Reset(shape)
		for _, e := range read(t, stream) {
			if string(e.Data) != "[DONE]" && !json.Valid(e.Data) {
				t.Fatalf("not JSON: %q", e.Data)
			}
			// What doesn't go back says so: strange members, or too many.
			if a.Add(e.Name, e.Data) != nil {
				return
			}
		}
		if whole, err := a.Append(nil); err == nil && !json.Valid(whole) {
			t.Fatalf("not JSON: %q", whole)
		} else if err == ErrUnfinished {
			t.Fatalf("does not end: %q", stream)
		}
	})
}

func FuzzAssemble(f *testing.F) {
	for _, w := range wholes {
		stream, err := Split(nil, w.shape, []byte(w.body), true)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(w.shape), stream)
	}
	f.Add(uint8(chunk.Chat), []byte(typed(`{"type":"response.output_text.delta","delta":"a"}`,
		`{"type":"response.completed","response":{"output":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}],"usage":{"input_tokens":1}}}`)))
	f.Add(uint8(chunk.Chat), []byte(data(`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f"}},{}]}}]}`, `[DONE]`)))
	f.Fuzz(func(t *testing.T, n uint8, stream []byte) {
		shape := chunk.Shape(n) % (chunk.Other + 1)
		var a Assembler
		a.Reset(shape)
		var r sse.Reader
		r.Reset(len(stream) + 1)
		r.Advance(copy(r.Free(len(stream)), stream))
		for e, ok, _ := r.Next(); ok; e, ok, _ = r.Next() {
			if a.Add(e.Name, e.Data) != nil {
				break
			}
		}
		whole, err := a.Append(nil)
		if err != nil {
			return
		}
		if !json.Valid(whole) {
			t.Fatalf("%q\nis not JSON: %q", stream, whole)
		}
		// An answer can be told again.
		again, err := Split(nil, shape, whole, true)
		if err != nil && (shape == chunk.Chat || shape == chunk.Completion) {
			t.Fatalf("%v: %q", err, whole)
		}
		read(t, again)
	})
}

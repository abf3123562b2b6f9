package chunk

import (
	"bytes"
	"encoding/json"
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

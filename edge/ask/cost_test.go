package ask

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"eisbach/sse/chunk"
)

// chat is a chat request with about size bytes of text in it.
func chat(size int, text string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"MiniMax-M2.7","stream":true,"temperature":0.7,"max_tokens":1024,"stream_options":{"include_usage":false},"messages":[`)
	turns := max(1, min(8, size/256))
	for i := range turns {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"user","content":"%s"}`, strings.Repeat(text, max(1, size/turns/len(text))))
	}
	b.WriteString(`],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]}`)
	return b.Bytes()
}

const (
	english = "The quick brown fox jumps over the lazy dog, and it is \\\"pleased\\\".\\n"
	german  = "Zwölf große Boxkämpfer jagen Viktor quer über den Sylter Deich. "
	chinese = "床前明月光,疑是地上霜。举头望明月,低头思故乡。"
)

func TestParseAndAppendToDoNotAllocate(t *testing.T) {
	var a Ask
	var dst []byte
	e := Edits{Model: []byte("m"), Limit: 10, IncludeUsage: true, System: []byte("Be kind.")}
	var wide strings.Builder
	for i := range 200 {
		fmt.Fprintf(&wide, `"k\u0061%d":{"a":1},`, i)
	}
	for name, body := range map[string][]byte{
		"small": chat(1000, english), "large": chat(200_000, english), "chinese": chat(1000, chinese),
		"escaped model": []byte(`{"m\u006fdel":"\u0061","messages":[{}]}`),
		"many keys":     []byte(`{` + wide.String() + `"messages":[{` + strings.TrimSuffix(wide.String(), ",") + `}]}`),
	} {
		allocs := testing.AllocsPerRun(20, func() {
			if err := a.Parse(chunk.Chat, body); err != nil {
				t.Fatal(err)
			}
			dst = a.AppendTo(dst[:0], &e)
			for range a.Members {
			}
			a.Release()
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// hostile bodies of about size bytes.
func hostile(size int) map[string][]byte {
	var keys, small, medium strings.Builder
	for i := 0; keys.Len() < size; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	for small.Len() < size {
		small.WriteString(`{"a":{}},`)
	}
	for i := 0; medium.Len() < size; i++ {
		fmt.Fprintf(&medium, `"%d":{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0},`, i)
	}
	trim := func(b *strings.Builder) string { return strings.TrimSuffix(b.String(), ",") }
	deep := strings.Repeat(`{"a":[`, 31) + "1" + strings.Repeat("]}", 31) + ","
	return map[string][]byte{
		"keys at the top":       []byte("{" + trim(&keys) + "}"),
		"keys further down":     []byte(`{"x":[{` + trim(&keys) + "}]}"),
		"escaped keys":          []byte(`{"x":{` + strings.ReplaceAll(trim(&keys), `":`, `\u0020":`) + "}}"),
		"small objects":         []byte(`{"x":[` + trim(&small) + "]}"),
		"medium objects":        []byte(`{"x":{` + trim(&medium) + "}}"),
		"small numbers":         []byte(`{"x":[` + strings.Repeat("0,", size/2) + "0]}"),
		"one number":            []byte(`{"max_tokens":` + strings.Repeat("9", size) + "}"),
		"one key":               []byte(`{"` + strings.Repeat("K", size) + `":1}`),
		"one model":             []byte(`{"model":"` + strings.Repeat(`\u0061`, size/6) + `"}`),
		"escapes":               []byte(`{"x":"` + strings.Repeat(`\u0000`, size/6) + `"}`),
		"spaces":                []byte("{" + strings.Repeat(" \n", size/2) + "}"),
		"brackets":              []byte(strings.Repeat("[", size)),
		"brackets further down": []byte(`{"x":` + strings.Repeat("[", size)),
		"63 brackets, junk":     []byte(`{"x":` + strings.Repeat("[", 63) + "tX" + strings.Repeat("\x00\xff", size/2)),
		"deep, again and again": []byte(`{"x":[` + strings.Repeat(deep, size/len(deep)) + "1]}"),
		"open, again and again": []byte(strings.Repeat(`{"x":`, size/5)),
		"messages":              []byte(`{"messages":[` + trim(&small) + "]}"),
	}
}

func TestParseIsLinearAndBoundedWhateverItIsGiven(t *testing.T) {
	const size = 1 << 20
	edits := Edits{Model: []byte("m"), Limit: 1, System: []byte("s"), IncludeUsage: true}
	for name, body := range hostile(size) {
		var a Ask
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin := time.Now()
		if err := a.Parse(chunk.Responses, body); err == nil {
			a.AppendTo(make([]byte, 0, size+size/4), &edits)
		}
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		if took > time.Second { // some 50 ms at worst
			t.Errorf("%s: took %v", name, took)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 20*size {
			t.Errorf("%s: allocated %d MiB in all", name, spent>>20)
		}
		a.Release()
		if kept := 8*cap(a.keys) + 8*cap(a.values) + cap(a.texts) + 4*cap(a.slots) + cap(a.model); kept > 1<<20 || a.body != nil {
			t.Errorf("%s: keeps %d KiB, and the body: %t", name, kept>>10, a.body != nil)
		}
	}
}

func TestHundredThousandKeysOfOneObjectAreToldApart(t *testing.T) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"%x":0`, i)
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	all := strings.Join(keys, ",")
	var a Ask
	if err := a.Parse(chunk.Completion, []byte(`{"x":{`+all+`}}`)); err != nil {
		t.Error(err)
	}
	if err := a.Parse(chunk.Completion, []byte(`{"x":{`+all+`,`+keys[50_000]+`}}`)); err == nil || err.(*Problem).Code != CodeDuplicateKey {
		t.Errorf("a key twice: %v", err)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name, text string
		size       int
	}{{"1KB", english, 600}, {"200KB", english, 200_000}, {"200KB-de", german, 200_000}, {"200KB-zh", chinese, 200_000}} {
		b.Run(c.name, func(b *testing.B) {
			var a Ask
			body := chat(c.size, c.text)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Parse(chunk.Chat, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTo(b *testing.B) {
	for _, size := range []int{600, 200_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var a Ask
			body := chat(size, english)
			if err := a.Parse(chunk.Chat, body); err != nil {
				b.Fatal(err)
			}
			e := Edits{Model: []byte("m"), Limit: 10, IncludeUsage: true, System: []byte("Be kind.")}
			dst := make([]byte, 0, 2*len(body))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				dst = a.AppendTo(dst[:0], &e)
			}
		})
	}
}

func BenchmarkParseHostile(b *testing.B) {
	for name, body := range hostile(1 << 20) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			var a Ask
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				a.Parse(chunk.Completion, body)
			}
		})
	}
}

package sse

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// seen is a copy of an Event.
type seen struct {
	raw, name, data string
	legal           bool
}

func (s seen) String() string {
	return fmt.Sprintf("{%q %q %q %v}", s.raw, s.name, s.data, s.legal)
}

// read feeds stream in pieces whose sizes next returns, and copies what comes.
func read(r *Reader, stream string, next func() int) ([]seen, error) {
	var events []seen
	for {
		for {
			e, ok, err := r.Next()
			if err != nil {
				return events, err
			}
			if !ok {
				break
			}
			events = append(events, seen{string(e.Raw), string(e.Name), string(e.Data), e.Legal})
		}
		if len(stream) == 0 {
			break
		}
		n := copy(r.Free(1), stream[:min(len(stream), max(1, next()))])
		r.Advance(n)
		stream = stream[n:]
	}
	if e, ok := r.Last(); ok {
		events = append(events, seen{string(e.Raw), string(e.Name), string(e.Data), e.Legal})
	}
	return events, nil
}

func readAll(stream string, piece int) []seen {
	var r Reader
	r.Reset(1 << 20)
	events, err := read(&r, stream, func() int { return piece })
	if err != nil {
		panic(err)
	}
	return events
}

// same compares events of a stream that was cut into pieces to those of the
// whole: where a CRLF was cut, Raw ends with the CR and is not Legal.
func same(got, want []seen) bool {
	if len(got) != len(want) {
		return false
	}
	for i, g := range got {
		w := want[i]
		if g.raw != w.raw && strings.HasSuffix(g.raw, "\r") && g.raw+"\n" == w.raw && !g.legal {
			g.raw, g.legal = w.raw, w.legal
		}
		if g != w {
			return false
		}
	}
	return true
}

var golden = []struct {
	name, stream string
	want         []seen
}{
	{"nothing", "", nil},
	{"a data line", "data: a\n\n", []seen{{"data: a\n\n", "", "a", true}}},
	{"no space after the colon", "data:a\n\ndata:[DONE]\n\n", []seen{{"data:a\n\n", "", "a", true}, {"data:[DONE]\n\n", "", "[DONE]", true}}},
	{"only one space is taken", "data:  a \n\n", []seen{{"data:  a \n\n", "", " a ", true}}},
	{"a colon in the value", "data: a:b\n\n", []seen{{"data: a:b\n\n", "", "a:b", true}}},
	{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []seen{{"data: a\r\n\r\n", "", "a", true}, {"data: b\r\n\r\n", "", "b", true}}},
	{"CR", "data: a\r\rdata: b\r\r", []seen{{"data: a\r\r", "", "a", false}, {"data: b\r\r", "", "b", false}}},
	{"CR then LF streams", "data: a\r\rdata: [DONE]\n\n", []seen{{"data: a\r\r", "", "a", false}, {"data: [DONE]\n\n", "", "[DONE]", true}}},
	{"mixed line ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\rdata: e\n\n", []seen{
		{"data: a\r\n\n", "", "a", true}, {"data: b\n\r\n", "", "b", true}, {"data: c\r\r\n", "", "c", false},
		{"data: d\n\r", "", "d", false}, {"data: e\n\n", "", "e", true}}},
	{"a CR inside a line that LF ends", "data: a\rdata: b\n\n", []seen{{"data: a\rdata: b\n\n", "", "a\nb", false}}},
	{"BOM", bom + "data: a\n\n", []seen{{"data: a\n\n", "", "a", true}}},
	{"a second BOM is a part of the name", bom + bom + "data: a\n\ndata: b\n\n", []seen{{"data: b\n\n", "", "b", true}}},
	{"half a BOM", bom[:2] + "\ndata: a\n\n", []seen{{bom[:2] + "\ndata: a\n\n", "", "a", false}}},
	{"event names", "event: ping\ndata: {}\n\nevent:x\ndata:y\n\n", []seen{{"event: ping\ndata: {}\n\n", "ping", "{}", true}, {"event:x\ndata:y\n\n", "x", "y", true}}},
	{"the last event name counts", "event: a\nevent: b\ndata: c\n\n", []seen{{"event: a\nevent: b\ndata: c\n\n", "b", "c", false}}},
	{"an empty event name", "event:\ndata: c\n\nevent\ndata: c\n\n", []seen{{"event:\ndata: c\n\n", "", "c", false}, {"event\ndata: c\n\n", "", "c", false}}},
	{"a name after the data", "data: c\nevent: n\n\n", []seen{{"data: c\nevent: n\n\n", "n", "c", false}}},
	{"a block without data leaves no name", "event: keepalive\n\ndata: a\n\n", []seen{{"data: a\n\n", "", "a", true}}},
	{"empty data", "data:\n\ndata: \n\ndata\n\n", []seen{{"data:\n\n", "", "", false}, {"data: \n\n", "", "", false}, {"data\n\n", "", "", false}}},
	{"null, empty and pings", "data: null\n\ndata:\n\nevent: ping\ndata: {}\n\nevent: keepalive\n\ndata: {\"a\":1}\n\n", []seen{
		{"data: null\n\n", "", "null", true}, {"data:\n\n", "", "", false}, {"event: ping\ndata: {}\n\n", "ping", "{}", true},
		{"data: {\"a\":1}\n\n", "", `{"a":1}`, true}}},
	{"data over several lines", "data: {\"a\":[],\ndata: \"b\":{\ndata\ndata: }}\n\ndata: x\n\n", []seen{
		{"data: {\"a\":[],\ndata: \"b\":{\ndata\ndata: }}\n\n", "", "{\"a\":[],\n\"b\":{\n\n}}", false}, {"data: x\n\n", "", "x", true}}},
	{"comments before events", ": OPENROUTER PROCESSING\n\n: again\n\n:\ndata: a\n\n:end\n", []seen{{"data: a\n\n", "", "a", true}}},
	{"a comment inside an event", "data: a\n: hm\n\n", []seen{{"data: a\n: hm\n\n", "", "a", false}}},
	{"id and retry", "id: 1\ndata: a\n\ndata: b\nretry: 5\n\nid\n\ndata: c\n\n", []seen{
		{"id: 1\ndata: a\n\n", "", "a", false}, {"data: b\nretry: 5\n\n", "", "b", false}, {"data: c\n\n", "", "c", true}}},
	{"unknown fields", "Data: x\n data: y\ndata : z\ndata: a\n\n", []seen{{"Data: x\n data: y\ndata : z\ndata: a\n\n", "", "a", false}}},
	{"stray blank lines", "\n\r\n\rdata: a\n\n\n\n\r\ndata: b\n\n", []seen{{"data: a\n\n", "", "a", true}, {"data: b\n\n", "", "b", true}}},
	{"spaces around DONE", "data: [DONE] \n\ndata:  [DONE]\n\ndata: [DONE]\n\n", []seen{
		{"data: [DONE] \n\n", "", "[DONE] ", false}, {"data:  [DONE]\n\n", "", " [DONE]", false}, {"data: [DONE]\n\n", "", "[DONE]", true}}},
	{"events after DONE", "data: [DONE]\n\ndata: {}\n\n", []seen{{"data: [DONE]\n\n", "", "[DONE]", true}, {"data: {}\n\n", "", "{}", true}}},
	{"the end after a line", "data: a\n\ndata: [DONE]\n", []seen{{"data: a\n\n", "", "a", true}, {"data: [DONE]\n", "", "[DONE]", false}}},
	{"the end in a line", "event: e\ndata: {\"a\"", []seen{{"event: e\ndata: {\"a\"", "e", `{"a"`, false}}},
	{"the end in the second data line", "data: a\ndata: b", []seen{{"data: a\ndata: b", "", "a\nb", false}}},
	{"the end in a field's name", "data: a\n\ndat", []seen{{"data: a\n\n", "", "a", true}}},
	{"the end in a block without data", "event: a\nid: 7\n: c", nil},
}

func TestReaderSplitsByTheStandard(t *testing.T) {
	for _, g := range golden {
		if got := readAll(g.stream, 1<<20); !same(got, g.want) {
			t.Errorf("%s:\n got %v\nwant %v", g.name, got, g.want)
		}
		if got := reference([]byte(g.stream)); !same(got, g.want) {
			t.Errorf("%s: the reference reader:\n got %v\nwant %v", g.name, got, g.want)
		}
	}
}

func TestReaderGivesTheSameEventsHoweverTheStreamIsCut(t *testing.T) {
	for _, g := range golden {
		for size := 1; size < 4; size++ {
			if got := readAll(g.stream, size); !same(got, g.want) {
				t.Errorf("%s, in pieces of %d:\n got %v\nwant %v", g.name, size, got, g.want)
			}
		}
		for cut := 1; cut < len(g.stream); cut++ {
			var r Reader
			r.Reset(1 << 20)
			sizes := []int{cut, len(g.stream)}
			got, _ := read(&r, g.stream, func() int { n := sizes[0]; sizes = sizes[1:]; return n })
			if !same(got, g.want) {
				t.Errorf("%s, cut once at %d:\n got %v\nwant %v", g.name, cut, got, g.want)
			}
		}
	}
}

func feed(r *Reader, s string) {
	r.Advance(copy(r.Free(len(s)), s))
}

func TestReaderDoesNotWaitForTheLFOfACRLF(t *testing.T) {
	var r Reader
	r.Reset(100)
	feed(&r, "data: a\r\n\r")
	e, ok, err := r.Next()
	if !ok || err != nil || string(e.Data) != "a" || e.Legal {
		t.Fatalf("got %q, %v, %v", e.Raw, ok, err)
	}
	feed(&r, "\ndata: b\r")
	if e, ok, _ := r.Next(); ok {
		t.Fatalf("the LF made an event: %q", e.Raw)
	}
	feed(&r, "\n\r\n")
	if e, ok, _ := r.Next(); !ok || string(e.Raw) != "data: b\r\n\r\n" || !e.Legal {
		t.Fatalf("got %q, %v", e.Raw, ok)
	}
	if n := r.Buffered(); n != 0 {
		t.Fatalf("%d bytes are left", n)
	}
}

func TestReaderLendsDataOutOfRaw(t *testing.T) {
	f := func(stream string) {
		t.Helper()
		var r Reader
		r.Reset(100)
		feed(&r, stream)
		e, _, _ := r.Next()
		at := bytes.Index(e.Raw, e.Data)
		if len(e.Data) == 0 || &e.Raw[at] != &e.Data[0] {
			t.Errorf("%q: data is a copy", stream)
		}
	}
	f("data: abc\n\n")
	f("data: abc\r\n\r\n")
	f("event: x\ndata: abc\n\n")
}

func TestReaderRefusesEventsOverTheLimit(t *testing.T) {
	f := func(limit int, stream string, want int, tooLong bool) {
		t.Helper()
		for _, piece := range []int{1, 2, 3, 7, 1 << 10} {
			var r Reader
			r.Reset(limit)
			got, err := read(&r, stream, func() int { return piece })
			if len(got) != want || errors.Is(err, ErrTooLong) != tooLong {
				t.Errorf("limit %d, %q in pieces of %d: %d events, error %v", limit, stream, piece, len(got), err)
			}
			if _, _, err := r.Next(); tooLong && err != ErrTooLong {
				t.Error("the error went away")
			}
		}
	}
	f(9, "data: a\n\ndata: b\n\n", 2, false)
	f(8, "data: a\n\n", 0, true)
	f(9, "data: a\n\ndata: bb\n\ndata: c\n\n", 1, true)
	f(9, "data: aaaaaaaaaaaa", 0, true)
	f(9, ":23456789\n", 0, true)
	f(9, ":2345678\n:2345678\n:2345678\ndata: a\n\n", 1, false)
	f(20, "id: 1\nid: 2\nid: 3\nid: 4\n", 0, true)
	f(9, "\n\n\n\n\n\n\n\n\n\n\n\n\ndata: a\n\n", 1, false)
}

func TestReaderReadsAMegabyteInSmallPieces(t *testing.T) {
	for _, n := range []int{65536, 65537, 1_500_000} {
		text := `{"choices":[{"delta":{"content":"` + strings.Repeat("a", n) + `"}}]}`
		stream := "data: " + text + "\n\ndata: [DONE]\n\n"
		var r Reader
		r.Reset(8 << 20)
		events, err := read(&r, stream, func() int { return 7001 })
		if err != nil || len(events) != 2 || events[0].data != text || !events[0].legal {
			t.Errorf("%d bytes: %d events, %v", n, len(events), err)
		}
	}
}

func TestReaderGrowsItsBufferByDoubling(t *testing.T) {
	text := "data: " + strings.Repeat("a", 1<<20)
	allocs := testing.AllocsPerRun(1, func() {
		var r Reader
		r.Reset(2 << 20)
		feedAll(&r, text, 7001)
	})
	if allocs > 12 { // from 4 KB to 2 MB are 9 doublings
		t.Errorf("%v allocations for an event of 1 MB", allocs)
	}
}

// The cost of a byte must not grow with the event: an event 64 times as large
// takes 64 times as long; with a reader that begins anew at each piece, 4096.
func TestReaderTakesLinearTime(t *testing.T) {
	f := func(name, lineEnd string) {
		t.Helper()
		cost := func(size int) time.Duration {
			text := "data: " + strings.Repeat("a", size) + lineEnd + lineEnd
			var r Reader
			r.Reset(64 << 20)
			feedAll(&r, text, 701) // the buffer grows once
			best := time.Hour
			for range 10 {
				start := time.Now()
				feedAll(&r, text, 701)
				best = min(best, time.Since(start))
			}
			return best
		}
		small, large := cost(1<<14), cost(1<<20)
		if large > small*64*10 {
			t.Errorf("%s: 16 KB take %v, 1 MB take %v", name, small, large)
		}
	}
	f("LF", "\n")
	f("CR", "\r")
}

// A stream without any LF must not be searched for one at each event, which
// would take some hundred times as long.
func TestReaderTakesLinearTimeForManyCREventsAtOnce(t *testing.T) {
	const events = 100_000
	cost := func(event string) time.Duration {
		var r Reader
		r.Reset(1 << 20)
		start := time.Now()
		if n := feedAll(&r, strings.Repeat(event, events), 1<<20); n != events {
			t.Fatalf("%d events", n)
		}
		return time.Since(start)
	}
	if lf, cr := cost("data: a\n\n"), cost("data: a\r\r"); cr > 30*lf {
		t.Errorf("%d events take %v with LF, %v with CR", events, lf, cr)
	}
}

// feedAll reads text in pieces and counts the events.
func feedAll(r *Reader, text string, piece int) (events int) {
	for len(text) > 0 {
		n := copy(r.Free(min(piece, len(text))), text[:min(piece, len(text))])
		r.Advance(n)
		text = text[n:]
		for _, ok, _ := r.Next(); ok; _, ok, _ = r.Next() {
			events++
		}
	}
	return events
}

func TestReaderAllocatesNothingInSteadyState(t *testing.T) {
	f := func(name, text string, piece, want int) {
		t.Helper()
		var r Reader
		r.Reset(1 << 20)
		got := feedAll(&r, text, piece)
		allocs := testing.AllocsPerRun(20, func() {
			r.Reset(1 << 20)
			feedAll(&r, text, piece)
		})
		if allocs != 0 || got != want {
			t.Errorf("%s: %v allocations, %d events", name, allocs, got)
		}
	}
	f("plain", strings.Repeat("data: {\"choices\":[]}\n\n", 1000), 1<<10, 1000)
	f("named", strings.Repeat("event: x\r\ndata: {\"choices\":[]}\r\n\r\n", 1000), 1<<10, 1000)
	f("lines", strings.Repeat("data: {\"choices\":\ndata: []}\n\n", 1000), 333, 1000)
	f("large", strings.Repeat("data: "+strings.Repeat("a", 20000)+"\n\n", 10), 7001, 10)
}

func TestReaderKeepsNoLargeBuffer(t *testing.T) {
	var r Reader
	r.Reset(1 << 20)
	feed(&r, "data: a\n\ndata: b")
	r.Next()
	if r.Release(); r.Buffered() != 7 {
		t.Fatalf("%d bytes are buffered", r.Buffered())
	}
	feed(&r, "\n\n")
	if e, ok, _ := r.Next(); !ok || string(e.Raw) != "data: b\n\n" {
		t.Fatalf("after a Release that had to keep bytes: %q", e.Raw)
	}
	if r.Release(); r.buf != nil {
		t.Error("Release kept the buffer of an idle stream")
	}
	feed(&r, "data: c\n\n")
	if e, ok, _ := r.Next(); !ok || string(e.Data) != "c" {
		t.Fatalf("after Release: %q", e.Raw)
	}
	if r.Reset(1); cap(r.buf) < 4<<10 {
		t.Error("Reset dropped a small buffer")
	}
	r.Free(maxKept + 1)
	if r.Reset(1); r.buf != nil {
		t.Error("Reset kept a large buffer")
	}
}

func TestReaderBoundsItsBufferByTheLargestEvent(t *testing.T) {
	var r Reader
	r.Reset(1 << 20)
	feedAll(&r, strings.Repeat("data: "+strings.Repeat("a", 10_000)+"\n\n", 100), 1000)
	if cap(r.buf) > 64<<10 {
		t.Errorf("events of 10 KB made a buffer of %d", cap(r.buf))
	}
}

func TestAppendWritesOneLegalEvent(t *testing.T) {
	f := func(name, data, want string) {
		t.Helper()
		got := Append([]byte("before;"), []byte(name), []byte(data))
		if string(got) != "before;"+want {
			t.Errorf("got %q, want %q", got, want)
		}
		events := readAll(want, 1<<10)
		if len(events) != 1 || events[0].raw != want || !events[0].legal {
			t.Errorf("read back: %v", events)
		}
	}
	f("", `{"a":1}`, "data: {\"a\":1}\n\n")
	f("error", `{}`, "event: error\ndata: {}\n\n")
	f("", "{\n\"a\":\r\n1\r}", "data: { \"a\":  1 }\n\n")
	f("a\nb", "x\n", "event: a b\ndata: x \n\n")
	f("", " x", "data:  x\n\n")
	f("", "[DONE]\t ", "data: [DONE]\n\n")
}

func TestCommentsAreSingleLinesWithoutABlankOne(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := string(AppendComment(nil, []byte(text))); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := readAll(want+"data: a\n\n", 1<<10); len(got) != 1 || !got[0].legal {
			t.Errorf("a comment disturbs: %v", got)
		}
	}
	f("", Heartbeat)
	f(" a", ": a\n")
	f("a\r\n\ndata: x", ":a   data: x\n")
}

var legalEvent = regexp.MustCompile(`\A(?:event:(?: [^\r\n]+|[^ \r\n][^\r\n]*)\r?\n)?data:(?: [^\r\n]+|[^ \r\n][^\r\n]*)\r?\n\r?\n\z`)

// reference is the standard word by word: first all lines, then all events.
func reference(stream []byte) (events []seen) {
	rest := strings.TrimPrefix(string(stream), bom)
	var raw, name string
	var data []string
	dispatch := func() {
		if len(data) > 0 {
			joined := strings.Join(data, "\n")
			isLegal := legalEvent.MatchString(raw)
			if strings.TrimSpace(joined) == "[DONE]" && joined != "[DONE]" {
				isLegal = false
			}
			events = append(events, seen{raw, name, joined, isLegal})
		}
		raw, name, data = "", "", nil
	}
	for rest != "" {
		text, end := rest, len(rest)
		if i := strings.IndexAny(rest, "\r\n"); i >= 0 {
			text, end = rest[:i], i+1
			if strings.HasPrefix(rest[i:], "\r\n") {
				end++
			}
		}
		whole := rest[:end]
		rest = rest[end:]
		if text == "" {
			raw += whole
			dispatch()
			continue
		}
		comment := text[0] == ':'
		if raw != "" || !comment {
			raw += whole
		}
		field, value, _ := strings.Cut(text, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	dispatch()
	return events
}

func FuzzReader(f *testing.F) {
	for i, g := range golden {
		f.Add([]byte(g.stream), uint64(i))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		var r Reader
		r.Reset(len(stream) + 1)
		got, err := read(&r, string(stream), func() int { return 1 + random.IntN(1+int(seed%64)) })
		if err != nil {
			t.Fatal(err)
		}
		if want := reference(stream); !same(got, want) {
			t.Fatalf("%q\n got %v\nwant %v", stream, got, want)
		}
		for _, e := range got {
			if e.legal && !legalEvent.MatchString(e.raw) {
				t.Fatalf("not legal: %q", e.raw)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	f := func(name, event string, count int) {
		text := strings.Repeat(event, count)
		b.Run(name, func(b *testing.B) {
			var r Reader
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(2 << 20)
				if n := feedAll(&r, text, 4000); n != count {
					b.Fatal(n)
				}
			}
		})
	}
	chunk := `{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`
	f("plain", fmt.Sprintf("data: %s\n\n", chunk), 200)
	f("CRLF", fmt.Sprintf("data: %s\r\n\r\n", chunk), 200)
	f("named", fmt.Sprintf("event: content_block_delta\ndata: %s\n\n", chunk), 200)
	f("1MB", "data: "+strings.Repeat("a", 1<<20)+"\n\n", 1)
}

package relay

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// list is a Source whose events are there, or come with the next wait. It knows
// no time, and makes no garbage.
type list struct {
	items []item
	at    int
	ready bool
	err   error // in the end
	lent  []byte
	view  chunk.View
}

type item struct {
	event sse.Event
	view  chunk.View
	waits bool
}

func (l *list) Next(until time.Time) (sse.Event, *chunk.View, error) {
	for i := range l.lent {
		l.lent[i] = '#'
	}
	l.view = chunk.View{Kind: chunk.Error}
	if l.at == len(l.items) {
		return sse.Event{}, nil, l.err
	}
	it := &l.items[l.at]
	if it.waits && !l.ready {
		l.ready = !until.IsZero()
		if until.IsZero() || l.at%3 == 0 { // some waits are for nothing
			return sse.Event{}, nil, os.ErrDeadlineExceeded
		}
	}
	l.at++
	l.ready = false
	l.lent = append(append(l.lent[:0], it.event.Raw...), it.event.Data...)
	e := it.event
	e.Raw, e.Data = l.lent[:len(e.Raw)], l.lent[len(e.Raw):]
	l.view = it.view
	return e, &l.view, nil
}

// items are what a stream may hold, by a fuzzer's choice.
func items(script []byte) []item {
	var read chunk.Reader
	var all []item
	kinds := [...]string{role, hi, you, stop, usage, done, failed, "data: null\n\n",
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"insufficient_system_resource\"}]}\n\n", hi, you, hi}
	for _, b := range script {
		text := kinds[int(b&0x3f)%len(kinds)]
		data := strings.TrimSuffix(strings.TrimPrefix(text, "data: "), "\n\n")
		e := sse.Event{Raw: []byte(text), Data: []byte(data), Legal: b&0x40 == 0}
		if !e.Legal {
			e.Raw = []byte("id: 1\n" + text)
		}
		v := read.View(chunk.Chat, nil, e.Data)
		all = append(all, item{e, *v, b&0x80 != 0})
	}
	return all
}

// FuzzRun plays any sequence of events with any end: what the client gets is
// never more, nor looks more complete, than what the upstream said.
func FuzzRun(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5}, uint16(4096), byte(0))
	f.Add([]byte{0x80, 0x81, 0xc2, 3, 4, 5, 5}, uint16(1), byte(1))
	f.Add([]byte{0, 1, 6, 5}, uint16(60), byte(0x12))
	f.Add([]byte{0, 7, 0x41, 8, 5}, uint16(300), byte(0x23))
	f.Add([]byte{0, 3, 0x84}, uint16(17), byte(0x34))
	f.Add([]byte{5}, uint16(9), byte(0))
	f.Fuzz(func(t *testing.T, script []byte, size uint16, how byte) {
		ends := [...]error{io.EOF, errReset, ErrDrained, ErrClientLeft}
		src := &list{items: items(script), err: ends[how%4]}
		c := Config{IncludeUsage: how&0x10 != 0, Choices: int64(how >> 5 & 1), Door: plainDoor{}}
		if how&0x40 != 0 {
			c.Total = time.Now().Add(-time.Second)
		}
		var r Run
		r.Start(&c, src)
		if how&0x80 != 0 {
			if err := r.Await(time.Now().Add(time.Minute)); err != nil {
				res := r.Result()
				if res.Outcome == Success || res.Err != err || res.Events > 0 {
					t.Fatalf("Await: %v, %+v", err, res)
				}
				return
			}
		}
		body, err := readAll(t, &r, int(size%4096)+1)
		check(t, &c, src, body, err, r.Result())
	})
}

func check(t *testing.T, c *Config, src *list, body string, end error, res Result) {
	t.Helper()
	events := strings.SplitAfter(body, "\n\n")
	if last := events[len(events)-1]; last != "" {
		t.Fatalf("the body ends within an event: %q", last)
	}
	events = events[:len(events)-1]
	ends := slices.IndexFunc(events, func(e string) bool { return e == done || strings.HasPrefix(e, "event: error") })
	if ends >= 0 && ends != len(events)-1 {
		t.Fatalf("something stands behind the end: %q", events[ends:])
	}
	complete := ends >= 0 && events[ends] == done
	if (end == io.EOF) != (ends >= 0) || (end == io.EOF) == (res.Outcome == ClientLeft) {
		t.Fatalf("the end is %v, outcome %v, body %q", end, res.Outcome, body)
	}

	finished, said, broken := false, false, false
	var want []string
	for _, it := range src.items[:src.at] { // what the run has looked at
		if said {
			break // only for its usage
		}
		finished = finished || it.view.Finish
		broken = broken || it.view.Broken
		said = it.view.Kind == chunk.Done
		text := "data: " + string(it.event.Data) + "\n\n"
		if it.view.Kind == chunk.Content || it.view.Kind == chunk.Empty && text != "data: null\n\n" ||
			it.view.Kind == chunk.UsageOnly && c.IncludeUsage {
			want = append(want, text)
		}
	}
	if complete && !finished && !(said && res.Events > 0) {
		t.Fatalf("looks complete, which nobody said: %q", body)
	}
	if (res.Outcome == Success) != (complete && !broken) {
		t.Fatalf("outcome %v, complete %v, broken %v", res.Outcome, complete, broken)
	}
	if ends >= 0 {
		events = events[:ends]
	}
	if !slices.Equal(events, want) && !(res.Events == 0 && len(events) == 0) {
		t.Fatalf("outcome %v\n got %q\nwant %q", res.Outcome, events, want)
	}
}

func TestAStreamAllocatesNothing(t *testing.T) {
	script := []byte{0, 0x80 + 1}
	for range 100 {
		script = append(script, 1, 0x80+2, 0x40+1, 7, 0)
	}
	src := &list{items: items(append(script, 3, 4, 5)), err: io.EOF}
	c := Config{Heartbeat: time.Hour, Idle: time.Hour, Total: time.Now().Add(time.Hour), Door: plainDoor{}}
	p := make([]byte, buffer)
	var r Run
	for _, end := range []int{len(src.items), len(src.items) - 3} {
		src.items = src.items[:end]
		allocs := testing.AllocsPerRun(100, func() {
			src.at = 0
			r.Start(&c, src)
			if err := r.Await(c.Total); err != nil {
				t.Fatal(err)
			}
			for err := error(nil); err == nil; {
				_, err = r.Read(p)
			}
		})
		if allocs > 0 {
			t.Errorf("%v allocations for a stream of %d events", allocs, end)
		}
	}
	if got := r.Result(); got.Outcome != UpstreamDisconnected || got.Events != 301 {
		t.Errorf("%+v", got)
	}
}

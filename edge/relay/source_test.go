package relay

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// step is what an upstream does next: it writes, or it ends.
type step struct {
	after time.Duration
	text  string
	err   error
}

func write(text ...string) step { return step{text: strings.Join(text, "")} }
func later(d time.Duration, text ...string) step {
	return step{after: d, text: strings.Join(text, "")}
}
func end(err error) step { return step{err: err} }

// wire is a Source as the pool's streams are one: what was not read off the
// socket yet needs a wait, and a time in the past gives nothing.
type wire struct {
	t      testing.TB
	shape  chunk.Shape
	steps  []step
	due    time.Time // of steps[0]
	events sse.Reader
	view   chunk.Reader
	ended  error
	last   bool
	lent   []byte
	gone   bool // returned its final error
}

func newWire(t testing.TB, shape chunk.Shape, steps ...step) *wire {
	w := &wire{t: t, shape: shape, steps: steps}
	w.events.Reset(1 << 20)
	w.due = time.Now()
	w.schedule()
	return w
}

func (w *wire) schedule() {
	if len(w.steps) > 0 {
		w.due = w.due.Add(w.steps[0].after)
	}
}

func (w *wire) Next(until time.Time) (sse.Event, *chunk.View, error) {
	for i := range w.lent {
		w.lent[i] = '#' // whoever still looks at it is wrong
	}
	if w.gone {
		w.t.Error("the source was asked again after its final error")
	}
	for {
		event, ok, err := w.events.Next()
		if err == nil && !ok && w.ended != nil && !w.last {
			w.last = true
			event, ok = w.events.Last()
		}
		switch {
		case err != nil:
			w.gone = true
			return sse.Event{}, nil, err
		case ok:
			return w.lend(event)
		case w.ended != nil:
			w.gone = true
			return sse.Event{}, nil, w.ended
		case !w.wait(until):
			return sse.Event{}, nil, os.ErrDeadlineExceeded
		}
	}
}

// wait reads off the socket.
func (w *wire) wait(until time.Time) bool {
	if !until.After(time.Now()) {
		return false
	}
	if len(w.steps) == 0 || w.due.After(until) {
		time.Sleep(time.Until(until))
		return false
	}
	time.Sleep(time.Until(w.due))
	s := w.steps[0]
	w.steps = w.steps[1:]
	w.ended = s.err
	copy(w.events.Free(len(s.text)), s.text)
	w.events.Advance(len(s.text))
	w.schedule()
	return true
}

func (w *wire) lend(e sse.Event) (sse.Event, *chunk.View, error) {
	v := w.view.View(w.shape, e.Name, e.Data)
	n, m := len(e.Raw), len(e.Raw)+len(e.Name)
	w.lent = append(append(append(w.lent[:0], e.Raw...), e.Name...), e.Data...)
	e.Raw, e.Name, e.Data = w.lent[:n], w.lent[n:m], w.lent[m:]
	return e, v, nil
}

var errReset = errors.New("connection reset by peer")

// plainDoor tells failures in words.
type plainDoor struct{}

func (plainDoor) Classify(err error) Outcome {
	switch err {
	case ErrClientLeft:
		return ClientLeft
	case ErrDrained:
		return Drained
	case errReset:
		return UpstreamDisconnected
	default:
		return UpstreamError
	}
}

func (plainDoor) AppendError(dst []byte, o Outcome, err error) []byte {
	what := o.String()
	if said, ok := err.(*EventError); ok {
		what = said.Message
	}
	return append(append(append(dst, "event: error\ndata: "...), what...), "\n\n"...)
}

func told(what string) string { return "event: error\ndata: " + what + "\n\n" }

// Events of chat/completions.
const (
	role   = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	hi     = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n"
	you    = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" you\"},\"finish_reason\":null}]}\n\n"
	stop   = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usage  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}\n\n"
	done   = "data: [DONE]\n\n"
	failed = "data: {\"error\":{\"message\":\"rate limited\",\"code\":429,\"type\":\"rate_limit_error\"}}\n\n"
)

// seen is what came of a stream.
type seen struct {
	await error
	body  string
	err   error // of the last Read; nil where Await failed
	took  time.Duration
	Result
}

// play runs a stream in virtual time, with reads of size bytes. Await has early
// time; below 0 it isn't called.
func play(t *testing.T, c Config, early time.Duration, size int, steps ...step) (s seen) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, at := range []*time.Time{&c.FirstToken, &c.Total} {
			if !at.IsZero() {
				*at = start.Add(at.Sub(time.Time{})) // given as time since the start
			}
		}
		c.Door = plainDoor{}
		var r Run
		r.Start(&c, newWire(t, c.Shape, steps...))
		if early >= 0 {
			s.await = r.Await(start.Add(early))
		}
		if s.await == nil || s.await == os.ErrDeadlineExceeded {
			s.body, s.err = readAll(t, &r, size)
		}
		s.took, s.Result = time.Since(start), r.Result()
	})
	return s
}

// since is a time that play makes one after the start.
func since(d time.Duration) time.Time { return time.Time{}.Add(d) }

func readAll(t testing.TB, r *Run, size int) (string, error) {
	t.Helper()
	var body strings.Builder
	p := make([]byte, size)
	for {
		n, err := r.Read(p)
		body.Write(p[:n])
		switch {
		case err != nil && n > 0:
			t.Error("Read gave bytes and an error")
		case err != nil:
			if _, again := r.Read(p); again != err {
				t.Errorf("Read after the end: %v, want %v", again, err)
			}
			return body.String(), err
		case n == 0:
			t.Fatal("Read gave nothing at all")
		}
	}
}

const buffer = 4096 // what the HTTP server reads with

// whole checks a stream that begins well and ends as it should.
func whole(t *testing.T, c Config, want string, outcome Outcome, steps ...step) Result {
	t.Helper()
	var first Result
	for _, size := range []int{buffer, 1, 7, len(hi), len(hi) + 1} {
		s := play(t, c, time.Hour, size, steps...)
		if s.await != nil || s.err != io.EOF || s.body != want || s.Outcome != outcome {
			t.Errorf("reads of %d: Await: %v, outcome %v (%v), Read: %v\n got %q\nwant %q",
				size, s.await, s.Outcome, s.Err, s.err, s.body, want)
		}
		if (s.Err == nil) != (outcome == Success) {
			t.Errorf("outcome %v with the error %v", outcome, s.Err)
		}
		if size == buffer {
			first = s.Result
		}
	}
	return first
}

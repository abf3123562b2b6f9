package relay

import (
	"os"
	"strings"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// Door is what a Run asks of the request that it serves: what failures mean,
// and how they are written for this client.
type Door interface {
	// Classify says what a Source's final error means.
	Classify(err error) Outcome
	// AppendError appends the event that tells the client of a failure.
	AppendError(dst []byte, o Outcome, err error) []byte
}

// Config is what a Run is to do.
type Config struct {
	Shape        chunk.Shape
	IncludeUsage bool  // the client asked for the usage chunk
	Prime        bool  // a long comment comes first, for clients that hold the first bytes back
	Choices      int64 // how many answers the stream holds (n); 0 is 1

	Heartbeat  time.Duration // a comment is sent after so long without an event; 0: none is
	Idle       time.Duration // the longest wait between data events, once content came; 0: any
	FirstToken time.Time     // content has to come until then; zero: whenever
	Total      time.Time     // all has to be done by then; zero: whenever

	Door Door
}

// Result is what is known of a stream.
type Result struct {
	Outcome      Outcome // ClientLeft as long as the stream has not ended
	Err          error   // the cause of any Outcome but Success
	FirstContent time.Time
	LastContent  time.Time     // both zero without content
	Gap          time.Duration // the longest wait for a data event once content came
	Events       int           // content events passed on
	TextBytes    int           // decoded bytes of generated text in them
	Usage        chunk.Usage   // what the upstream said of it in all its events
	Finished     bool          // each choice said how it ended
	Done         bool          // the upstream said that all is said
}

// Run pumps one stream. What goes to the client is always one of two things: an
// event that the Source lends, or bytes of the Run's own. The Source is asked
// again only when they are all out, so an event is never copied but into the
// reader's buffer, and comments and failures stand between events only.
//
// The time spent between two calls of Read is the client's: it counts against
// Total alone.
//
// A Run is used by one goroutine at a time. Its zero value is ready for Start,
// which may be called again after the end.
type Run struct {
	c   *Config
	src Source
	res Result

	lead string // the prime comment, as far as it is not out
	out  []byte // goes out next: lent by src, or a part of own
	own  []byte // while holding: what is held back
	// holding is set until content comes: what stands before it goes out with it,
	// and not at all if it never comes.
	holding   bool
	committed bool  // the client has its 200: failures are told in band
	ended     bool  // src is not asked any more
	end       error // what Read returns in the end
	told      bool  // and has returned: whatever was read before is written

	now      time.Time     // when waiting began or ended last
	quiet    time.Duration // waited since the last data event
	finished int64         // choices that said how they ended
	broken   bool          // one of them was broken off by the provider
	beat     [len(sse.Heartbeat)]byte
}

// primeComment is a comment line of 512 bytes: URLSession gives the first bytes
// of a text only once there are so many (Apple Developer Forums, thread 64875).
var primeComment = ":" + strings.Repeat(" ", 510) + "\n"

// maxKept bounds the buffer of a Run that is used again, in bytes.
const maxKept = 64 << 10

// Start begins to pump src. Both are used, and c is not changed, until the end.
func (r *Run) Start(c *Config, src Source) {
	own := r.own[:0]
	if cap(own) > maxKept {
		own = nil
	}
	*r = Run{c: c, src: src, own: own, holding: true, now: time.Now()}
	if c.Prime {
		r.lead = primeComment
	}
	r.res.Outcome, r.res.Err = ClientLeft, ErrClientLeft
}

// Await waits for the stream to be worth a 200: for its first content, or a good
// end. os.ErrDeadlineExceeded says that the given time came first; the answer is
// then begun without, and Read does the rest. Any other error is final, and
// Result has its Outcome: nothing of the stream must be shown.
func (r *Run) Await(until time.Time) error {
	r.now = time.Now()
	for r.holding && !r.ended {
		if r.wait(until) {
			return os.ErrDeadlineExceeded
		}
	}
	if r.ended && r.res.Outcome != Success {
		return r.res.Err
	}
	return nil
}

// Read waits for what the client has to get next, and gives as many whole events
// as are there and fit into p; only an event larger than p comes in pieces.
// io.EOF ends a stream that has told the client how it ended. Any other error
// means that the client can't be told, and that what it got must not look
// complete.
func (r *Run) Read(p []byte) (int, error) {
	r.committed = true
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.lead) > 0 {
		n := copy(p, r.lead)
		r.lead = r.lead[n:]
		return n + r.fill(p[n:]), nil
	}
	n := r.fill(p)
	if n == 0 && !r.ended {
		r.await()
		n = r.fill(p)
	}
	if n == 0 {
		r.told = true
		return 0, r.end
	}
	return n, nil
}

// fill copies what is there into p.
func (r *Run) fill(p []byte) int {
	n := 0
	for n < len(p) {
		if len(r.out) == 0 {
			if !r.poll() {
				break
			}
			continue
		}
		if n > 0 && len(r.out) > len(p)-n {
			break
		}
		m := copy(p[n:], r.out)
		r.out = r.out[m:]
		n += m
	}
	return n
}

// await waits until there is something for the client, if only a heartbeat.
func (r *Run) await() {
	r.now = time.Now() // the client was away
	var beat time.Time
	if r.c.Heartbeat > 0 {
		beat = r.now.Add(r.c.Heartbeat)
	}
	for len(r.out) == 0 && !r.ended {
		if r.wait(beat) {
			r.out = append(r.beat[:0], sse.Heartbeat...)
		}
	}
}

// poll takes an event that is already there, if one is.
func (r *Run) poll() bool {
	if r.ended {
		return false
	}
	event, view, err := r.src.Next(time.Time{})
	if err == os.ErrDeadlineExceeded {
		return false
	}
	r.take(event, view, err)
	return true
}

// forever is how long a Run without any limit waits at a time.
const forever = time.Hour

// wait waits for one event, or until a limit is reached and ends the stream. It
// reports whether the given time has come instead; zero is none. What is there
// already comes before any limit.
func (r *Run) wait(until time.Time) bool {
	limit, outcome := r.limit()
	switch {
	case r.reached(limit):
		if !r.poll() {
			r.stop(outcome, errTimeout)
		}
		return false
	case r.reached(until):
		return !r.poll()
	}
	start := r.now
	event, view, err := r.src.Next(earliest(start.Add(forever), limit, until))
	r.now = time.Now()
	r.quiet += r.now.Sub(start)
	if err != os.ErrDeadlineExceeded { // else the next call sees what was reached
		r.take(event, view, err)
	}
	return false
}

func (r *Run) reached(t time.Time) bool { return !t.IsZero() && !t.After(r.now) }

// limit gives the time that the upstream has, and what it means when that is
// over; zero is none.
func (r *Run) limit() (time.Time, Outcome) {
	next, outcome := r.c.FirstToken, FirstTokenTimeout
	if r.res.Events > 0 {
		next, outcome = time.Time{}, IdleTimeout
		if r.c.Idle > 0 {
			next = r.now.Add(r.c.Idle - r.quiet)
		}
	}
	if total := r.c.Total; next.IsZero() || !total.IsZero() && !total.After(next) {
		return total, TotalTimeout
	}
	return next, outcome
}

func earliest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if !o.IsZero() && o.Before(t) {
			t = o
		}
	}
	return t
}

// Abandon says that nothing more will be read, and why. A stream that has failed
// by itself, or was read to its end, stays as it ended.
func (r *Run) Abandon(o Outcome) {
	if r.told || r.ended && r.res.Outcome != Success {
		return
	}
	r.ended, r.end, r.out = true, ErrClientLeft, nil
	r.res.Outcome, r.res.Err = o, ErrClientLeft
}

// Result says how the stream ended and what it held.
func (r *Run) Result() Result { return r.res }

package sim

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is what a server has seen and done since New.
//
// Attempts and Executed count inference requests by id: the body's
// metadata.request_id, else its user, else the x-request-id header (for an upload
// that header alone). The body comes first because it passes unchanged through a
// gateway that renames requests. Every request that can be read is an attempt. It
// is executed once it is accepted: not when it is refused (a status from 400 on)
// and not with the faults drop-before and html. Requests without an id and those
// that a script answers are not listed. The first 65,536 ids are kept.
type Stats struct {
	Accepted int64 // connections
	Open     int   // connections open now
	Requests int64 // requests whose head was read
	Streams  int64 // of those, answered as an event stream
	Active   int64 // requests under way now
	Faults   int64 // answers spoilt on purpose

	PromptTokens     int64 // of accepted inference requests
	CompletionTokens int64 // produced, reasoning included

	Left      int64  // clients that left before the end of their answer
	Leavings  []Left // the latest 1000 of them, oldest first
	Attempts  map[string]int
	Executed  map[string]int
	BodyBytes int64 // request bodies, decoded
}

// Left is a client that went away before its answer was complete.
type Left struct {
	At     time.Time // when it was noticed
	N      int64     // Call.N
	ID     string    // as in Stats.Executed, "" without one
	Phase  Phase
	Tokens int64 // produced by then
}

// Phase is how far an exchange had come.
type Phase string

// The phases in which a client can leave.
const (
	Asking    Phase = "asking"    // its request had not arrived as a whole
	Waiting   Phase = "waiting"   // no byte of the answer had been written
	Answering Phase = "answering" // the answer was under way
)

const (
	keptLeavings = 1000
	keptIDs      = 1 << 16
)

type idCount struct{ attempts, executed int }

type counts struct {
	accepted, requests, streams, active, faults atomic.Int64
	prompt, completion, bodyBytes, rated        atomic.Int64

	mu       sync.Mutex
	left     int64
	leavings []Left
	ids      map[string]*idCount
}

// Stats returns the counters now; the caller owns the result.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	c := &s.counts
	st := Stats{
		Accepted: c.accepted.Load(), Open: open,
		Requests: c.requests.Load(), Streams: c.streams.Load(), Active: c.active.Load(), Faults: c.faults.Load(),
		PromptTokens: c.prompt.Load(), CompletionTokens: c.completion.Load(), BodyBytes: c.bodyBytes.Load(),
		Attempts: map[string]int{}, Executed: map[string]int{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Left, st.Leavings = c.left, slices.Clone(c.leavings)
	for id, n := range c.ids {
		st.Attempts[id] = n.attempts
		if n.executed > 0 {
			st.Executed[id] = n.executed
		}
	}
	return st
}

func (c *counts) noteLeft(l Left) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
	if len(c.leavings) == keptLeavings {
		c.leavings = slices.Delete(c.leavings, 0, 1)
	}
	c.leavings = append(c.leavings, l)
}

func (c *counts) noteID(id []byte, attempts, executed int) {
	if len(id) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.ids[string(id)]
	if n == nil {
		if len(c.ids) == keptIDs {
			return
		}
		n = new(idCount)
		c.ids[string(id)] = n
	}
	n.attempts += attempts
	n.executed += executed
}

// chosen spreads the share rate evenly and exactly: of any 10 requests in a row
// with rate 0.3, 3 are chosen.
func (c *counts) chosen(rate float64) bool {
	if rate >= 1 {
		return true
	}
	n := c.rated.Add(1)
	const slack = 1e-9 // 0.1 × 10 must be 1
	return int64(float64(n)*rate+slack) > int64(float64(n-1)*rate+slack)
}

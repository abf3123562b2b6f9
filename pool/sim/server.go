// Package sim plays a provider: an OpenAI-compatible server on a small HTTP/1.1
// implementation of its own, so that every byte, pause, frame and reset is under
// control. It answers like Infercom's and SambaNova's stack, at a scripted pace,
// and misbehaves on request: by the name of the model, by x-sim-… headers, or
// byte by byte through [Server.Script].
//
// It waits by package time alone, so over net.Pipe it runs inside a
// testing/synctest bubble.
package sim

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what a provider offers. The zero value accepts every key and every
// model and answers at a pace that is pleasant to read.
type Options struct {
	// Params is how models without "sim_" in their name answer. The zero value
	// stands for Friendly.
	Params Params
	// Models are the ids that /models lists. If set, other models are refused
	// with 404, except scripted ones ("sim_" in the name).
	Models []string
	// Keys are the API keys accepted as bearer token or x-api-key. Empty: any, or none.
	Keys []string
	// PerMinute and PerDay limit the inference requests of a calendar minute and
	// day (UTC); beyond them the answer is 429. 0: 100,000 and 10,000,000.
	// They are what the x-ratelimit-… headers tell.
	PerMinute, PerDay int64
	// FractionalCreated makes "created" a number like 1771518114.35, as
	// SambaNova does at times. Otherwise it is an integer.
	FractionalCreated bool
}

// Server is one simulated provider. Its methods may be called from any goroutine.
type Server struct {
	// URL is where Start and StartTLS listen, as "http://127.0.0.1:port" without
	// a path; any path in front of the endpoints is accepted.
	URL string

	o      Options
	words  []string
	script atomic.Pointer[func(*Call)]
	counts counts
	quota  quota

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*conn]struct{}
	closing   atomic.Bool // written with mu held
	running   sync.WaitGroup
}

// New returns a provider that serves nothing yet.
func New(o Options) *Server {
	if o.Params == (Params{}) {
		o.Params = Friendly()
	}
	if o.PerMinute == 0 {
		o.PerMinute = 100_000
	}
	if o.PerDay == 0 {
		o.PerDay = 10_000_000
	}
	return &Server{
		o:      o,
		words:  strings.Fields(prose),
		counts: counts{ids: map[string]*idCount{}},
		conns:  map[*conn]struct{}{},
	}
}

// Script makes f answer every request from the next one on; nil gives the
// answers back to the built-in provider. Several connections call f at the same
// time. If f returns without having written or closed anything, the built-in
// provider answers, so a script may also just look on.
func (s *Server) Script(f func(*Call)) {
	if f == nil {
		s.script.Store(nil)
		return
	}
	s.script.Store(&f)
}

// Serve accepts connections from ln, which may be a TLS listener, and owns it.
// It returns nil after Close and otherwise the error of Accept.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners = append(s.listeners, ln)
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	defer ln.Close()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.closing.Load() {
				return nil
			}
			return err
		}
		s.start(nc)
	}
}

func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.counts.accepted.Add(1)
	s.running.Go(func() {
		defer s.forget(c)
		c.serve()
	})
}

func (s *Server) forget(c *conn) {
	c.nc.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close closes listeners and connections and returns when every goroutine of the
// server has ended. A script must not call it. Further calls wait as well.
func (s *Server) Close() error {
	var errs []error
	s.mu.Lock()
	s.closing.Store(true)
	for _, ln := range s.listeners {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for c := range s.conns {
		rawConn(c.nc).Close() // without TLS's goodbye, which could block
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(errs...)
}

// CloseIdle closes the connections on which no request is under way, as a
// provider does with connections that it has kept long enough.
func (s *Server) CloseIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.busy.Load() {
			c.nc.Close()
		}
	}
}

// quota counts inference requests by calendar minute and day.
type quota struct {
	mu          sync.Mutex
	minute, day window
}

type window struct{ start, used int64 } // start in epoch seconds

func (w *window) at(now, length int64) {
	if start := now - now%length; w.start != start {
		*w = window{start: start}
	}
}

// limits is what the rate-limit headers tell about a request.
type limits struct {
	minute, minuteLeft, minuteReset int64 // resets in epoch seconds
	day, dayLeft, dayReset          int64
}

// take counts one request, or none if n is 0, and reports whether it is within
// the limits. A refused request is not counted.
func (s *Server) take(now time.Time, n int64) (limits, bool) {
	q := &s.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	q.minute.at(now.Unix(), 60)
	q.day.at(now.Unix(), 86400)
	within := q.minute.used+n <= s.o.PerMinute && q.day.used+n <= s.o.PerDay
	if within {
		q.minute.used += n
		q.day.used += n
	}
	return limits{
		minute: s.o.PerMinute, minuteLeft: s.o.PerMinute - q.minute.used, minuteReset: q.minute.start + 60,
		day: s.o.PerDay, dayLeft: s.o.PerDay - q.day.used, dayReset: q.day.start + 86400,
	}, within
}

// Package pool gets one answer from some upstream: it chooses a connection,
// sends the request, tries again where nothing can have run twice, and hands
// over an open Stream that can be cancelled in every phase.
//
// It speaks HTTP/1.1 (RFC 9112) by itself, on fasthttp's header parser, since a
// client library's one deadline for an answer can't tell a first token from the
// next, nor can its request be cancelled before there are headers.
package pool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"eisbach/pool/watch"
	"eisbach/sse/chunk"
)

// Config says where an upstream is and how to be let in.
type Config struct {
	Name      string
	URL       *url.URL       // http or https; an endpoint is appended to its path
	Keys      []string       // used in turn; none: no key is sent
	KeyHeader string         // "authorization" (as a bearer token) or "x-api-key"
	RootCAs   *x509.CertPool // nil: the system's
	MaxConns  int            // connections at once, kept ones included
}

// Upstream keeps the connections to one provider. It is safe for concurrent use.
type Upstream struct {
	name        string
	provider    chunk.Provider
	addr        string
	tls         *tls.Config // nil: plain
	prefix      string      // path in front of every endpoint
	fixed       []byte      // header lines of every request
	auth        [][]byte    // the header line of each key
	turn        atomic.Uint32
	maxConns    int
	watcher     *watch.Watcher
	dialer      net.Dialer
	freeHeads   sync.Pool      // of *headBuffer
	freeParsers sync.Pool      // of *headReader
	tasks       sync.WaitGroup // dials and connections that finish an answer in the background

	mu      sync.Mutex
	idle    []*conn // the last one put back is taken first: it is the warmest
	open    int     // connections, idle ones and those being dialled included
	waiters []*turn
	retired bool // nothing is kept any more
	closed  bool
}

var errClosed = errors.New("the pool is closed")

// New makes the pool of one upstream. The watcher outlives it.
func New(c Config, w *watch.Watcher) *Upstream {
	u := &Upstream{
		name: c.Name, provider: chunk.ProviderOf(c.URL.Host), prefix: c.URL.EscapedPath(), maxConns: c.MaxConns, watcher: w,
		dialer: net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}},
	}
	u.freeHeads.New = func() any { return new(headBuffer) }
	u.freeParsers.New = func() any { return newHeadReader() }
	port := c.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[c.URL.Scheme]
	}
	u.addr = net.JoinHostPort(c.URL.Hostname(), port)
	if c.URL.Scheme == "https" {
		u.tls = &tls.Config{
			ServerName: c.URL.Hostname(), RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(64),
		}
	}
	u.fixed = []byte("host: " + c.URL.Host + "\r\nuser-agent: eisbach\r\naccept-encoding: identity\r\n")
	for _, key := range c.Keys {
		if c.KeyHeader == "x-api-key" {
			u.auth = append(u.auth, []byte("x-api-key: "+key+"\r\n"))
		} else {
			u.auth = append(u.auth, []byte("authorization: Bearer "+key+"\r\n"))
		}
	}
	return u
}

// Name is the upstream's name in the configuration.
func (u *Upstream) Name() string { return u.name }

// Stats counts an upstream's connections.
type Stats struct {
	Open, Idle, Waiting int
}

// Stats gives a snapshot.
func (u *Upstream) Stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Stats{Open: u.open, Idle: len(u.idle), Waiting: len(u.waiters)}
}

// Close closes the idle connections and waits for what runs in the background.
// Streams that are still open keep their connection, which is closed with them.
func (u *Upstream) Close() {
	u.mu.Lock()
	u.closed = true
	idle, waiters := u.idle, u.waiters
	u.idle, u.waiters = nil, nil
	u.mu.Unlock()
	for _, c := range idle {
		u.watcher.Remove(c.token)
		u.discard(c)
	}
	for _, t := range waiters {
		t.deliver(grant{err: errClosed})
	}
	u.tasks.Wait()
}

// Retire closes the idle connections and keeps none from now on, for an upstream
// that a new configuration replaces. Streams that have it go on.
func (u *Upstream) Retire() {
	u.mu.Lock()
	u.retired = true
	idle := u.idle
	u.idle = nil
	u.mu.Unlock()
	for _, c := range idle {
		u.watcher.Remove(c.token)
		u.discard(c)
	}
}

// acquire gives the warmest idle connection, or else a turn to wait for: a
// connection is being dialled for it, or will be once there is room. fresh asks
// for a new one, where an idle one has just turned out to be stale.
func (u *Upstream) acquire(fresh bool, connect time.Duration) (*conn, *turn, error) {
	for {
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			return nil, nil, errClosed
		}
		full := u.open >= u.maxConns
		if len(u.idle) > 0 && (!fresh || full) {
			c := u.popIdle()
			u.mu.Unlock()
			u.watcher.Remove(c.token)
			if fresh || !watch.Quiet(c.fd) {
				u.discard(c)
				continue
			}
			c.reused = true
			return c, nil, nil
		}
		t := newTurn(u, fresh, connect)
		if full {
			u.waiters = append(u.waiters, t)
			u.mu.Unlock()
			return nil, t, nil
		}
		u.open++
		u.startDial(t)
		u.mu.Unlock()
		return nil, t, nil
	}
}

// put keeps a connection whose answer was read to its end, for the next Stream.
func (u *Upstream) put(c *conn) {
	// Watched first and listed then, so that no Stream takes it in between; a
	// peer that has left by then is seen by dead.
	token, err := u.watcher.Add(c.fd, watch.Readable, c)
	if err != nil {
		u.discard(c)
		return
	}
	u.mu.Lock()
	if c.dead || u.closed || u.retired && len(u.waiters) == 0 {
		u.mu.Unlock()
		u.watcher.Remove(token)
		u.discard(c)
		return
	}
	c.token = token
	u.idle = append(u.idle, c)
	u.mu.Unlock()
	u.serve()
}

// popIdle takes the last idle connection; u.mu is held.
func (u *Upstream) popIdle() *conn {
	n := len(u.idle) - 1
	c := u.idle[n]
	u.idle[n], u.idle = nil, u.idle[:n]
	return c
}

// serve gives what is free to those that wait, first come first served.
func (u *Upstream) serve() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.waiters) > 0 && (len(u.idle) > 0 || u.open < u.maxConns) {
		t := u.waiters[0]
		u.waiters = append(u.waiters[:0], u.waiters[1:]...)
		if len(u.idle) == 0 {
			u.open++
			u.startDial(t)
			continue
		}
		c := u.popIdle()
		u.mu.Unlock()
		u.watcher.Remove(c.token) // not under u.mu: the watcher takes it the other way round
		if good := !t.fresh && watch.Quiet(c.fd); good {
			c.reused = true
			t.deliver(grant{conn: c})
			u.mu.Lock()
			continue
		}
		c.raw.Close() // its place goes to a new one
		u.mu.Lock()
		if u.closed {
			u.open--
			t.deliver(grant{err: errClosed})
			continue
		}
		u.startDial(t)
	}
}

// discard closes a connection and gives its place to one that waits.
func (u *Upstream) discard(c *conn) {
	c.raw.Close()
	u.release()
}

// release gives back the place of a connection that is gone or was never made.
func (u *Upstream) release() {
	u.mu.Lock()
	u.open--
	u.mu.Unlock()
	u.serve()
}

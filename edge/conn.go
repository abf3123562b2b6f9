package edge

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"eisbach/pool/watch"
)

// Bounds of how long a client may keep the edge waiting.
const (
	writeWait    = 30 * time.Second // for a client that reads nothing
	lastWait     = time.Second      // the same, once its time is over, to be told so
	lingerWait   = time.Second      // for a client to read why its request was refused
	lingerBytes  = 8 << 20          // that it may send meanwhile
	socketBuffer = 128 << 10        // what a client that doesn't read can hold of ours

	minAcceptWait = 5 * time.Millisecond // when the machine can't take another client
	maxAcceptWait = time.Second
)

// listener accepts clients as clientConns.
type listener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener. Running out of descriptors passes: it must not
// end the server, which is what fasthttp does with any error.
func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	for wait := minAcceptWait; temporary(err); wait = min(2*wait, maxAcceptWait) {
		time.Sleep(wait)
		nc, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	c := &clientConn{Conn: nc, server: l.server, fd: -1}
	l.server.clients.add(c)
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.ip = host
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(socketBuffer)
		if fd, err := watch.FD(tcp); err == nil {
			c.fd = fd
		}
	}
	return c, nil
}

func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary() || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// clientConn is a client's connection: it knows its descriptor, so that it can
// be watched, bounds each write, and counts what writing took.
type clientConn struct {
	net.Conn
	server   *Server
	fd       int          // -1: it can't be watched
	ip       string       // of the peer
	written  atomic.Int64 // nanoseconds spent in writes
	deadline time.Time    // of writes, as set
	linger   bool         // the request was refused unread
	heard    bool         // the client has sent something
	busy     atomic.Bool  // a request is served, or its answer is on its way
	arrived  time.Time    // the first byte of the request that is read or answered; zero: none is
	until    atomic.Int64 // Unix nanoseconds up to which the answer may take; 0: any time
}

// begin takes the connection's request up, and gives the time of its first
// byte; fallback is for one that came together with the one before.
func (c *clientConn) begin(fallback time.Time) time.Time {
	if c.arrived.IsZero() {
		c.arrived = fallback
	}
	c.busy.Store(true)
	return c.arrived
}

// hurry gives a write that waits for its client no more time than to be told.
func (c *clientConn) hurry() {
	now := time.Now()
	c.until.Store(now.UnixNano())
	c.Conn.SetWriteDeadline(now.Add(lastWait))
}

func (c *clientConn) end() {
	c.arrived = time.Time{}
	c.until.Store(0)
}

// Write implements net.Conn. The deadline is for each write and moves in steps,
// since setting it costs more than looking at the clock.
func (c *clientConn) Write(p []byte) (int, error) {
	start := time.Now()
	limit := start.Add(writeWait)
	if until := c.until.Load(); until > 0 && until < limit.UnixNano() {
		limit = time.Unix(0, max(until, start.Add(lastWait).UnixNano()))
	}
	if c.deadline.Sub(start) < writeWait/2 || c.deadline.After(limit) {
		c.deadline = limit
		if err := c.Conn.SetWriteDeadline(c.deadline); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Write(p)
	c.written.Add(int64(time.Since(start)))
	return n, err
}

// SetDeadline implements net.Conn: what is set here is not known to Write.
func (c *clientConn) SetDeadline(t time.Time) error {
	c.deadline = time.Time{}
	return c.Conn.SetDeadline(t)
}

// Read implements net.Conn. That the next request is waited for, and not that
// the handler has ended, says that the answer is written.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.arrived.IsZero() {
		c.busy.Store(false)
	}
	n, err := c.Conn.Read(p)
	if n > 0 && c.arrived.IsZero() {
		c.heard, c.arrived = true, time.Now()
	}
	return n, err
}

// Close implements net.Conn. A client whose request was refused before all of
// it was read is given time to read the answer: closing at once would reset the
// connection and with it what is still on its way (RFC 9112, 9.6).
func (c *clientConn) Close() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.linger {
		c.linger = false
		tcp.CloseWrite()
		tcp.SetReadDeadline(time.Now().Add(lingerWait))
		io.CopyN(io.Discard, tcp, lingerBytes)
	}
	c.server.clients.remove(c)
	return c.Conn.Close()
}

// clients are the connections that are open.
type clients struct {
	mu   sync.Mutex
	open map[*clientConn]struct{}
}

func (l *clients) add(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
}

func (l *clients) remove(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// hangUp closes the connections that serve no request, or all.
func (l *clients) hangUp(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if all || !c.busy.Load() {
			c.Conn.Close() // whoever uses it removes it
		}
	}
}

package edge

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"eisbach/pool/watch"
)

// Bounds of how long a client may keep the edge waiting.
const (
	writeWait    = 30 * time.Second // for a client that reads nothing
	lingerWait   = time.Second      // for a client to read why its request was refused
	lingerBytes  = 8 << 20          // that it may send meanwhile
	socketBuffer = 128 << 10        // what a client that doesn't read can hold of ours

	minAcceptWait = 5 * time.Millisecond // when the machine can't take another client
	maxAcceptWait = time.Second
)

// listener accepts clients as clientConns.
type listener struct{ net.Listener }

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
	c := &clientConn{Conn: nc, fd: -1}
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
	fd       int          // -1: it can't be watched
	ip       string       // of the peer
	written  atomic.Int64 // nanoseconds spent in writes
	deadline time.Time    // of writes, as set
	linger   bool         // the request was refused unread
	heard    bool         // the client has sent something
}

// Write implements net.Conn. The deadline is for each write and moves in steps,
// since setting it costs more than looking at the clock.
func (c *clientConn) Write(p []byte) (int, error) {
	start := time.Now()
	if c.deadline.Sub(start) < writeWait/2 {
		c.deadline = start.Add(writeWait)
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

// Read implements net.Conn.
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard = c.heard || n > 0
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
	return c.Conn.Close()
}

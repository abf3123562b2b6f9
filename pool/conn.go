package pool

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"eisbach/pool/watch"
)

// conn is one connection to an upstream.
type conn struct {
	up    *Upstream
	raw   *net.TCPConn
	rw    net.Conn // raw, or TLS over it
	fd    int
	token watch.Token // while it is idle

	reused bool // it has served a request before
	dead   bool // the upstream closed it, or sent what nobody asked for, while it was idle; by up.mu

	readDeadline time.Time // what is set on rw

	// Of an answer whose end is read in the background. They are kept with the
	// connection, since most servers send their last chunk on its own.
	chunked dechunker
	rest    [64]byte
	finish  func() // readEnd, bound once
}

// dial makes a connection, TLS handshake included, within ctx.
func (u *Upstream) dial(ctx context.Context) (*conn, error) {
	nc, err := u.dialer.DialContext(ctx, "tcp", u.addr)
	if err != nil {
		return nil, err
	}
	raw := nc.(*net.TCPConn) // what "tcp" gives
	c := &conn{up: u, raw: raw, rw: raw}
	if c.fd, err = watch.FD(raw); err != nil {
		raw.Close()
		return nil, err
	}
	if u.tls != nil {
		secure := tls.Client(raw, u.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		c.rw = secure
	}
	return c, nil
}

// PeerLeft takes an idle connection out of the pool: the upstream closed it, or
// sent bytes that no request asked for, which must not become the next
// request's answer.
func (c *conn) PeerLeft(watch.Token) {
	u := c.up
	u.mu.Lock()
	c.dead = true
	for i := len(u.idle) - 1; i >= 0; i-- {
		if u.idle[i] == c {
			u.idle = append(u.idle[:i], u.idle[i+1:]...)
			u.tasks.Add(1)
			go func() { // closing must not happen under the watcher's lock: it may serve one that waits
				defer u.tasks.Done()
				u.discard(c)
			}()
			break
		}
	}
	u.mu.Unlock()
}

// interrupt wakes whoever reads or writes on c, for good, and tells the
// upstream at once. Unlike a deadline it can't be overwritten by the reader.
func (c *conn) interrupt() {
	c.raw.CloseWrite()
	c.raw.CloseRead()
}

// read reads within until. The deadline is moved only where it would fire too
// late; one that fires too early is noticed and moved then.
func (c *conn) read(p []byte, until time.Time) (int, error) {
	for {
		if c.readDeadline.IsZero() || c.readDeadline.After(until) {
			if err := c.rw.SetReadDeadline(until); err != nil {
				return 0, err
			}
			c.readDeadline = until
		}
		n, err := c.rw.Read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil && isTimeout(err) && c.readDeadline.Before(until) {
			c.readDeadline = time.Time{}
			continue
		}
		return 0, err
	}
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

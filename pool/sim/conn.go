package sim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/valyala/fastjson"
)

// conn is one client connection, served by one goroutine. While an answer
// pauses, a second one reads ahead to notice the client leaving; it ends before
// the next request is read.
type conn struct {
	srv  *Server
	nc   net.Conn
	br   *bufio.Reader // the look-out's while watching
	req  request
	body body
	call Call
	busy atomic.Bool // a request has begun to arrive

	answer answer
	parser fastjson.Parser
	in     []byte // the request's body
	out    []byte // what is written next

	timer    *time.Timer
	watching bool
	gone     chan struct{} // closed when the client left, which ends the connection
	stopped  chan struct{} // the look-out has ended
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, br: bufio.NewReaderSize(nc, readBuffer),
		gone: make(chan struct{}), stopped: make(chan struct{}, 1),
	}
	c.call.conn = c
	return c
}

func (c *conn) serve() {
	for {
		c.busy.Store(false)
		if _, err := c.br.Peek(1); err != nil {
			return
		}
		c.busy.Store(true)
		if !c.exchange() {
			return
		}
	}
}

// exchange serves one request and reports whether another may follow.
func (c *conn) exchange() bool {
	counts := &c.srv.counts
	counts.active.Add(1)
	defer counts.active.Add(-1)
	call := &c.call
	call.begin()
	if err := c.req.read(c.br); err != nil {
		return c.reject(err)
	}
	call.N = counts.requests.Add(1)
	call.Method, call.Path = c.req.method, c.req.path
	if c.req.expect {
		if _, err := c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return false
		}
	}
	c.body = newBody(c.br, c.req.length)
	script := c.srv.script.Load()
	if script != nil || !call.streamsBody() {
		if err := c.readBody(); err != nil {
			return c.reject(err)
		}
	}
	if script != nil {
		(*script)(call)
		c.unwatch()
	}
	if !call.started.Load() && c.lasts() {
		err := call.play()
		c.unwatch()
		if err != nil {
			return c.reject(err)
		}
	}
	return c.lasts() && !c.req.close
}

// lasts reports whether neither side has ended the connection.
func (c *conn) lasts() bool {
	select {
	case <-c.gone:
		return false
	default:
		return !c.call.closed.Load() && !c.call.left.Load()
	}
}

func (c *conn) readBody() error {
	if cap(c.in) > 1<<20 {
		c.in = nil // one large prompt should not stay with an idle connection
		c.parser = fastjson.Parser{}
	}
	in, err := c.body.readAll(c.in[:0])
	if err != nil {
		return err
	}
	c.in = in
	c.arrived(int64(len(in)))
	c.call.Body = in
	return nil
}

// arrived notes that the request is complete.
func (c *conn) arrived(bytes int64) {
	c.call.asked.Store(true)
	c.srv.counts.bodyBytes.Add(bytes)
}

// reject answers what cannot be read or notes that the client went away. Either
// way the connection ends.
func (c *conn) reject(err error) bool {
	switch {
	case errors.Is(err, errMalformed):
		c.call.answer(400, "text/plain", []byte(err.Error()), "connection: close")
	case errors.Is(err, errTooLarge):
		c.call.answer(413, "text/plain", []byte(err.Error()), "connection: close")
	case err != io.EOF:
		c.call.leave(true)
	}
	return false
}

// watch starts the look-out unless it runs already.
func (c *conn) watch() {
	if !c.watching {
		c.watching = true
		go c.lookOut()
	}
}

// lookOut reads ahead until the client leaves or unwatch calls it back. A
// request sent ahead stays in the buffer; if it fills the buffer, leaving is
// only noticed by the next write.
func (c *conn) lookOut() {
	for {
		_, err := c.br.Peek(c.br.Buffered() + 1)
		if err == nil {
			continue
		}
		if err != bufio.ErrBufferFull && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.call.leave(false)
			close(c.gone)
		}
		c.stopped <- struct{}{}
		return
	}
}

func (c *conn) unwatch() {
	if c.watching {
		c.nc.SetReadDeadline(time.Unix(1, 0)) // interrupts the read
		<-c.stopped
		c.nc.SetReadDeadline(time.Time{})
		c.watching = false
	}
}

// rawConn returns the connection below TLS.
func rawConn(nc net.Conn) net.Conn {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return nc
}

// authorized reports whether the request carries one of keys; named is whether
// it carries any key at all.
func (r *request) authorized(keys []string) (ok, named bool) {
	key := r.get("x-api-key")
	if scheme, token, found := bytes.Cut(r.get("authorization"), []byte(" ")); found && bytes.EqualFold(scheme, []byte("bearer")) {
		key = bytes.TrimSpace(token)
	}
	for _, k := range keys {
		if string(key) == k {
			return true, true
		}
	}
	return len(keys) == 0, len(key) > 0
}

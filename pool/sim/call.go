package sim

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrLeft is returned when the client went away, or the server is closed, before
// an answer was complete.
var ErrLeft = errors.New("sim: the client left")

// Call is one request and the way to answer it. It belongs to the script that
// got it and is valid until that returns; only Gone's channel may be used from
// another goroutine.
type Call struct {
	Method string
	Path   string // without the query
	Body   []byte // decoded; borrowed until the script returns
	N      int64  // 1 for the first request of the server

	conn      *conn
	remaining int64 // bytes due by Content-Length; 0: unknown or none
	id        []byte
	asked     atomic.Bool // the request is complete
	started   atomic.Bool // something was written
	done      atomic.Bool // the last byte is written, or about to be
	closed    atomic.Bool // by us
	left      atomic.Bool // by the client
	tokens    atomic.Int64
}

func (c *Call) begin() {
	c.Method, c.Path, c.Body, c.N = "", "", nil, 0
	c.remaining, c.id = 0, nil
	for _, flag := range []*atomic.Bool{&c.asked, &c.started, &c.done, &c.closed, &c.left} {
		flag.Store(false)
	}
	c.tokens.Store(0)
}

// Header returns the first value of a request header, "" without one. The name
// is in lower case.
func (c *Call) Header(name string) string { return string(c.conn.req.get(name)) }

// Write writes bytes as they are: no framing, no buffer.
func (c *Call) Write(p []byte) (int, error) {
	if c.remaining > 0 {
		if c.remaining -= int64(len(p)); c.remaining <= 0 {
			c.done.Store(true)
		}
	}
	return c.write(p)
}

// WriteString is Write for a string.
func (c *Call) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

func (c *Call) write(p []byte) (int, error) {
	c.started.Store(true)
	n, err := c.conn.nc.Write(p)
	if err != nil {
		c.leave(true)
		return n, ErrLeft
	}
	return n, nil
}

// Head writes a response head; fields are "name: value". Without Content-Length
// or Transfer-Encoding among them the body is chunked: Chunk and End follow.
func (c *Call) Head(status int, fields ...string) error {
	chunked := true
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		switch strings.ToLower(name) {
		case "content-length":
			chunked = false
			c.remaining, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			c.done.Store(c.remaining == 0)
		case "transfer-encoding":
			chunked = false
		}
	}
	out := appendStatus(c.conn.out[:0], status)
	for _, f := range fields {
		out = append(append(out, f...), "\r\n"...)
	}
	if chunked {
		out = append(out, "transfer-encoding: chunked\r\n"...)
	}
	c.conn.out = append(out, "\r\n"...)
	_, err := c.write(c.conn.out)
	return err
}

// Chunk writes p as one chunk of a chunked body in one write. Nothing is written
// for an empty p, which would end the body.
func (c *Call) Chunk(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	c.conn.out = appendChunk(c.conn.out[:0], p)
	_, err := c.write(c.conn.out)
	return err
}

// End writes the last chunk.
func (c *Call) End() error {
	c.done.Store(true)
	_, err := c.write([]byte(lastChunk))
	return err
}

// answer writes a whole response.
func (c *Call) answer(status int, contentType string, body []byte, fields ...string) error {
	out := appendStatus(c.conn.out[:0], status)
	out = append(append(append(out, "content-type: "...), contentType...), "\r\n"...)
	out = appendField(out, "content-length: ", int64(len(body)))
	for _, f := range fields {
		out = append(append(out, f...), "\r\n"...)
	}
	c.conn.out = append(append(out, "\r\n"...), body...)
	c.done.Store(true)
	_, err := c.write(c.conn.out)
	return err
}

// Pause waits, and returns ErrLeft as soon as the client leaves. A client that
// ends its sending side has left.
func (c *Call) Pause(d time.Duration) error {
	if d <= 0 {
		if c.left.Load() {
			return ErrLeft
		}
		return nil
	}
	c.conn.watch()
	if c.conn.timer == nil {
		c.conn.timer = time.NewTimer(d)
	} else {
		c.conn.timer.Reset(d)
	}
	select {
	case <-c.conn.timer.C:
		return nil
	case <-c.conn.gone:
		c.conn.timer.Stop()
		return ErrLeft
	}
}

// Gone is closed when the client leaves or the server is closed.
func (c *Call) Gone() <-chan struct{} {
	c.conn.watch()
	return c.conn.gone
}

// WaitGone is silent until the client leaves, or for the timeout if that is
// shorter, and reports whether it left.
func (c *Call) WaitGone(timeout time.Duration) bool { return c.Pause(timeout) != nil }

// Close closes the connection in order: what was written still arrives.
func (c *Call) Close() {
	c.closed.Store(true)
	c.conn.nc.Close()
}

// Reset drops the connection with a TCP reset; the client may lose what it has
// not read yet. Connections other than TCP are closed.
func (c *Call) Reset() {
	c.closed.Store(true)
	nc := rawConn(c.conn.nc)
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	nc.Close()
}

// leave notes once that the client has left; failed says that a write or a read
// of the request did, which counts even when the answer seemed complete.
func (c *Call) leave(failed bool) {
	s := c.conn.srv
	if c.closed.Load() || s.closing.Load() || (c.done.Load() && !failed) || c.left.Swap(true) {
		return
	}
	phase := Asking
	switch {
	case c.started.Load():
		phase = Answering
	case c.asked.Load():
		phase = Waiting
	}
	s.counts.noteLeft(Left{At: time.Now(), N: c.N, ID: string(c.id), Phase: phase, Tokens: c.tokens.Load()})
}

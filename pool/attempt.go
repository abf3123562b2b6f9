package pool

import (
	"bytes"
	"os"
	"time"

	"github.com/valyala/fasthttp"
)

// Head waits for the head of the answer, until the given time at the latest:
// then the error is os.ErrDeadlineExceeded, and Head can be called again.
func (s *Stream) Head(until time.Time) error {
	for {
		var err error
		switch s.phase {
		case phaseConnect:
			err = s.connect()
		case phaseTurn:
			err = s.awaitTurn(until)
		case phaseSend:
			err = s.send()
		case phaseHead:
			err = s.readHead(until)
		case phaseFailed:
			return s.err
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// connect takes a connection of the next upstream, or a turn to wait for one.
func (s *Stream) connect() error {
	if s.up == nil {
		s.up = s.req.Upstreams[s.next]
		s.next++
		s.view.Reset(s.up.provider)
	}
	s.trace.Upstream, s.trace.Reused = s.up.name, false
	s.trace.Attempts++
	c, t, err := s.up.acquire(s.fresh, s.req.Connect)
	if err != nil {
		return s.fail(err)
	}
	if t != nil {
		s.turn, s.turnFrom, s.phase = t, time.Now(), phaseTurn
		return nil
	}
	return s.connected(c)
}

func (s *Stream) connected(c *conn) error {
	if err := s.use(c); err != nil {
		c.up.giveBack(grant{conn: c})
		return s.fail(err)
	}
	s.trace.Reused = c.reused
	s.phase = phaseSend
	return nil
}

func (s *Stream) awaitTurn(until time.Time) error {
	s.timer.Reset(time.Until(until))
	defer s.timer.Stop()
	select {
	case g := <-s.turn.ch:
		s.turn = nil
		s.trace.Connect += g.took
		s.trace.Queue += max(time.Since(s.turnFrom)-g.took, 0)
		if g.err != nil {
			return s.unreachable(g.err)
		}
		return s.connected(g.conn)
	case <-s.woken:
		return s.fail(s.Cancelled())
	case <-s.timer.C:
		return os.ErrDeadlineExceeded
	}
}

// unreachable goes on to the next upstream: nothing was sent, so nothing can
// run twice.
func (s *Stream) unreachable(err error) error {
	if s.next == len(s.req.Upstreams) || s.Cancelled() != nil {
		return s.fail(err)
	}
	s.up, s.fresh, s.phase = nil, false, phaseConnect
	return nil
}

// broken tells a connection that was stale from one that broke: on a kept one
// that died without a byte, be it of an interim head, the request can't have been
// answered, and is sent once more on a new one. Anything else may have run, and
// is not repeated.
func (s *Stream) broken(err error) error {
	c := s.drop()
	stale := c.reused && s.trace.FirstByte.IsZero() && !isTimeout(err) && s.req.Upload == nil && s.Cancelled() == nil
	c.up.discard(c)
	s.returnHead()
	if stale && !s.fresh {
		s.fresh, s.phase = true, phaseConnect
		return nil
	}
	return s.fail(&Failure{Reason: Disconnected, Err: err})
}

// maxJoined is the size up to which a body is copied behind its head, so that
// both leave in one write, and over TLS in one record.
const maxJoined = 14 << 10

func (s *Stream) send() error {
	c := s.conn
	s.out = c.up.appendHead(s.out[:0], s.req)
	if err := c.rw.SetWriteDeadline(s.req.Deadline); err != nil {
		return s.broken(err)
	}
	if err := s.write(c); err != nil {
		switch {
		case s.phase == phaseFailed: // the upload's fault
			return s.err
		case isTimeout(err): // the caller's time is over; half a request can't be gone on with
			return s.fail(os.ErrDeadlineExceeded)
		}
		return s.answeredEarly(err)
	}
	s.trace.Sent = time.Now()
	s.phase = phaseHead
	return nil
}

// answeredEarly looks for the answer of an upstream that did not want all of the
// request, and has closed the connection behind it (RFC 9112, 9.6). Without one,
// cause is why the stream is broken.
func (s *Stream) answeredEarly(cause error) error {
	s.phase = phaseHead
	for until := time.Now().Add(errorBodyWait); s.phase == phaseHead; {
		switch err := s.readHead(until); {
		case err == os.ErrDeadlineExceeded:
			return s.broken(cause)
		case err != nil:
			return err
		}
	}
	s.surplus = true // it may still wait for the rest
	return nil
}

func (s *Stream) write(c *conn) error {
	body := s.req.Body
	if s.req.Upload == nil && len(body) > 0 && len(body) <= maxJoined {
		s.out = append(s.out, body...)
		body = nil
	}
	if len(body) == 0 || c.up.tls != nil {
		if _, err := c.rw.Write(s.out); err != nil {
			return err
		}
		if s.req.Upload != nil {
			return s.upload(c)
		}
		if len(body) == 0 {
			return nil
		}
		_, err := c.rw.Write(body)
		return err
	}
	s.iovs = [2][]byte{s.out, body}
	s.iov = s.iovs[:]
	_, err := s.iov.WriteTo(c.raw)
	return err
}

func (s *Stream) readHead(until time.Time) error {
	if s.head == nil {
		s.head = s.up.freeHeads.Get().(*headBuffer)
		s.buf = s.head[:0]
	}
	if len(s.buf) == cap(s.buf) {
		s.buf = append(s.buf, 0)[:len(s.buf)]
	}
	n, err := s.read(s.buf[len(s.buf):cap(s.buf)], until)
	if err != nil {
		if isTimeout(err) {
			return os.ErrDeadlineExceeded
		}
		return s.broken(err)
	}
	if s.trace.FirstByte.IsZero() {
		s.trace.FirstByte = s.trace.LastByte
	}
	from := max(len(s.buf)-len(headEnd)+1, 0)
	s.buf = s.buf[:len(s.buf)+n]
	for {
		i := bytes.Index(s.buf[from:], headEnd)
		if i < 0 {
			switch {
			case len(s.buf) > maxHead:
				return s.fail(&Failure{Reason: Malformed, Err: errHeadTooLarge})
			case bytes.Contains(s.buf, bareEnd): // it would be waited for in vain
				return s.fail(&Failure{Reason: Malformed, Err: errHead})
			}
			return nil
		}
		interim, err := s.parseHead(from + i + len(headEnd))
		if err != nil {
			return s.fail(&Failure{Reason: Malformed, Err: err})
		}
		if !interim {
			return nil
		}
		from = 0
	}
}

// parseHead takes a head of n bytes off s.buf. An interim one (RFC 9110, 15.2)
// is passed over.
func (s *Stream) parseHead(n int) (interim bool, err error) {
	head := s.buf[:n]
	parser := s.up.freeParsers.Get().(*headReader)
	err = parser.parse(head, &s.hdr)
	s.up.freeParsers.Put(parser)
	if err != nil {
		return false, err
	}
	switch status := s.hdr.StatusCode(); {
	case status == fasthttp.StatusSwitchingProtocols:
		return false, errSwitching
	case status < 200:
		s.buf = append(s.buf[:0], s.buf[n:]...)
		return true, nil
	}
	s.kind, s.left = framing(&s.hdr, s.req.Method)
	// Both framings: the coding wins, and the connection is not trusted again (RFC 9112, 6.3).
	s.surplus = s.kind == bodyChunked && hasLine(head, "content-length")
	s.buf = append(s.buf[:0], s.buf[n:]...)
	if len(s.buf) == 0 {
		s.returnHead()
	}
	s.phase = phaseBody
	switch encoding := string(s.hdr.ContentEncoding()); encoding {
	case "", "identity":
	case "gzip", "x-gzip", "br":
		if s.kind != bodyNone {
			s.decoder = newDecoder(encoding)
		}
	default:
		s.encoded = true
	}
	if s.kind == bodyNone {
		// A body that is announced where none may be can come all the same.
		announced := s.req.Method != fasthttp.MethodHead && (hasLine(head, "transfer-encoding") || s.hdr.ContentLength() > 0)
		s.surplus = announced || len(s.buf) > 0
		s.phase = phaseEnd
	}
	return false, nil
}

// read reads from the connection, and notes how long that took.
func (s *Stream) read(p []byte, until time.Time) (int, error) {
	start := time.Now()
	n, err := s.conn.read(p, until)
	now := time.Now()
	s.trace.Waited += now.Sub(start)
	if n > 0 {
		s.trace.LastByte = now
	}
	return n, err
}

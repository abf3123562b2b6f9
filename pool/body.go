package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// Body reads the answer's body as it comes, after Head. io.EOF says that it was
// complete, as far as its framing can tell.
func (s *Stream) Body(p []byte, until time.Time) (int, error) {
	for {
		switch s.phase {
		case phaseEnd:
			return 0, io.EOF
		case phaseFailed:
			return 0, s.err
		}
		if n, err := s.fill(p, until); n > 0 || err != nil {
			return n, err
		}
	}
}

// fill reads once, and takes framing and coding off: n may be 0 without an
// error.
func (s *Stream) fill(p []byte, until time.Time) (int, error) {
	if s.decoder != nil {
		return s.fillDecoded(p, until)
	}
	return s.fillPlain(p, until)
}

func (s *Stream) fillPlain(p []byte, until time.Time) (int, error) {
	var got int
	if len(s.buf) > 0 { // came behind the head
		got = copy(p, s.buf)
		if s.buf = s.buf[:copy(s.buf, s.buf[got:])]; len(s.buf) == 0 {
			s.returnHead()
		}
	} else {
		var err error
		if got, err = s.read(p, until); err != nil {
			return 0, s.endOfConnection(err)
		}
	}
	n, used := got, got
	switch s.kind {
	case bodyChunked:
		var err error
		if n, used, err = s.chunked.decode(p[:got]); err != nil {
			return 0, s.fail(&Failure{Reason: Disconnected, Err: err})
		}
		if s.chunked.done() {
			s.phase = phaseEnd
		}
	case bodyLength:
		if uint64(got) >= s.left {
			n, used = int(s.left), int(s.left)
			s.phase = phaseEnd
		}
		s.left -= uint64(n)
	}
	if s.phase == phaseEnd && (used < got || len(s.buf) > 0) {
		s.surplus = true
	}
	if status := s.hdr.StatusCode(); n > 0 && status >= 200 && status <= 299 {
		s.trace.Body = true
	}
	return n, nil
}

// endOfConnection says what the end of the connection means in the body.
func (s *Stream) endOfConnection(err error) error {
	if isTimeout(err) {
		return os.ErrDeadlineExceeded
	}
	if err == io.EOF && s.kind == bodyClose && s.Cancelled() == nil {
		s.phase = phaseEnd
		return nil
	}
	return s.fail(&Failure{Reason: Disconnected, Err: err})
}

// errWholeTooLarge is the cause of a Failure: an answer beyond its bound.
var errWholeTooLarge = errors.New("the answer is larger than the edge holds")

// Accepted waits for the head of an answer with a status of 2xx; any other is a
// Failure. The time is as with Head.
func (s *Stream) Accepted(until time.Time) error {
	if err := s.Head(until); err != nil {
		return err
	}
	return s.checkHead()
}

// Length is the length of what Body gives, or -1 where it is not known before.
func (s *Stream) Length() int64 {
	switch {
	case s.kind == bodyNone:
		return 0
	case s.kind == bodyLength && s.decoder == nil:
		return int64(s.hdr.ContentLength())
	default:
		return -1
	}
}

// Whole waits for the whole answer, of at most limit bytes, and lends its body
// until Close; events are put together to one. A status other than 2xx is a
// Failure. It can't be called again after os.ErrDeadlineExceeded.
func (s *Stream) Whole(until time.Time, limit int) ([]byte, error) {
	if err := s.Accepted(until); err != nil {
		return nil, err
	}
	s.whole = s.whole[:0]
	for s.phase == phaseBody {
		if err := s.fillWhole(until); err != nil {
			return nil, err
		}
		if len(s.whole) > limit {
			return nil, s.fail(&Failure{Reason: Unexpected, Status: s.hdr.StatusCode(), Err: errWholeTooLarge})
		}
	}
	s.release()
	if looksLikeEvents(s.whole) {
		return s.join()
	}
	return s.whole, nil
}

// fillWhole reads once into whole, and makes room for that.
func (s *Stream) fillWhole(until time.Time) error {
	if len(s.whole) == cap(s.whole) {
		s.whole = append(s.whole, make([]byte, max(4<<10, len(s.whole)))...)[:len(s.whole)]
	}
	n, err := s.fill(s.whole[len(s.whole):cap(s.whole)], until)
	s.whole = s.whole[:len(s.whole)+n]
	return err
}

// Bounds of reading an answer that is not the one asked for: it is only read
// for its error message.
const (
	maxErrorBody  = 64 << 10
	errorBodyWait = time.Second
)

// refuse reads the beginning of an answer that can't be used and makes it the
// stream's error. A body that doesn't end in time costs the connection.
func (s *Stream) refuse(cause error) error {
	until := time.Now().Add(errorBodyWait)
	s.whole = s.whole[:0]
	for s.phase == phaseBody && len(s.whole) < maxErrorBody {
		if s.fillWhole(until) != nil {
			break
		}
	}
	if s.phase == phaseEnd {
		s.release()
	}
	return s.Reject(cause)
}

// Reject makes the answer that Whole gave the stream's error, where it is not
// one that can be used.
func (s *Stream) Reject(cause error) error {
	return s.fail(&Failure{Reason: Unexpected, Status: s.hdr.StatusCode(), Body: s.whole, Err: cause})
}

var (
	errNoEvents = errors.New("a stream was asked for, and something else came")
	errEncoded  = errors.New("the answer is compressed in a way that is not understood")
)

// checkHead makes sure that the answer is one to a request that was understood.
func (s *Stream) checkHead() error {
	switch status := s.hdr.StatusCode(); {
	case status < 200 || status > 299:
		return s.refuse(nil)
	case s.encoded:
		return s.refuse(errEncoded)
	}
	return nil
}

// beginEvents makes sure that the answer is a stream of events, or makes it one.
func (s *Stream) beginEvents(until time.Time) error {
	if !s.checked {
		if err := s.checkHead(); err != nil {
			return err
		}
		s.checked, s.whole = true, s.whole[:0]
	}
	switch kind := s.hdr.ContentType(); {
	case bytes.HasPrefix(kind, []byte("text/event-stream")):
		s.streaming = true
		return nil
	case bytes.HasPrefix(kind, []byte("text/html")):
		return s.refuse(errNoEvents)
	}
	return s.split(until)
}

// Next waits for the next event of a streamed answer, from the request on: it
// implements the source of a relay. See Head for the time; the zero time means
// not to wait at all. The event and its view are lent until the next call.
// io.EOF says that the body ended as its framing wants it. What official SDKs
// would stumble over is repaired, and a whole answer is made events.
func (s *Stream) Next(until time.Time) (sse.Event, *chunk.View, error) {
	if !s.streaming {
		if until.IsZero() && s.phase != phaseFailed {
			return sse.Event{}, nil, os.ErrDeadlineExceeded
		}
		if err := s.Head(until); err != nil {
			return sse.Event{}, nil, err
		}
		if err := s.beginEvents(until); err != nil {
			return sse.Event{}, nil, err
		}
	}
	for {
		event, ok, err := s.events.Next()
		if err != nil {
			return sse.Event{}, nil, s.fail(err)
		}
		if !ok && s.phase >= phaseEnd && !s.last && s.Cancelled() == nil {
			s.last = true
			event, ok = s.events.Last()
		}
		if ok {
			view := s.view.View(s.req.Shape, event.Name, event.Data)
			s.done = s.done || view.Kind == chunk.Done
			if view.Fix != 0 {
				s.repaired = s.view.Repair(s.repaired[:0], event.Data)
				event.Data, event.Legal = s.repaired, false
			}
			return event, view, nil
		}
		switch {
		case s.phase == phaseEnd:
			return sse.Event{}, nil, io.EOF
		case s.phase == phaseFailed:
			return sse.Event{}, nil, s.err
		case until.IsZero():
			return sse.Event{}, nil, os.ErrDeadlineExceeded
		}
		n, err := s.fill(s.events.Free(minRead), until)
		if err == os.ErrDeadlineExceeded {
			return sse.Event{}, nil, err
		}
		s.events.Advance(n) // after a failure none; what came before it is still given out
	}
}

// minRead is the room for a read: some events of a token each.
const minRead = 1 << 10

// UploadError is the error of a Stream whose Upload could not be read: the
// client's fault, not the upstream's.
type UploadError struct{ Err error }

func (e *UploadError) Error() string { return "reading the request's body: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *UploadError) Unwrap() error { return e.Err }

var errUploadSize = errors.New("the body is not as long as announced")

// upload sends the request's body on as it comes.
func (s *Stream) upload(c *conn) error {
	buf := make([]byte, 32<<10)
	const room = 10 // for a chunk's size line
	sent := int64(0)
	for {
		n, err := s.req.Upload.Read(buf[room : len(buf)-2])
		if err != nil && err != io.EOF {
			return s.fail(&UploadError{err})
		}
		sent += int64(n)
		out := buf[room : room+n]
		if s.req.UploadSize < 0 && n > 0 {
			size := fmt.Appendf(nil, "%x\r\n", n)
			out = append(buf[room-len(size):room-len(size)], size...)[:len(size)+n]
			out = append(out, "\r\n"...)
		}
		if len(out) > 0 {
			if _, err := c.rw.Write(out); err != nil {
				return err
			}
		}
		if err == nil {
			continue
		}
		if s.req.UploadSize >= 0 {
			if sent != s.req.UploadSize {
				return s.fail(&UploadError{errUploadSize})
			}
			return nil
		}
		_, err = io.WriteString(c.rw, "0\r\n\r\n")
		return err
	}
}

// release gives the connection of a complete answer back.
func (s *Stream) release() {
	if c := s.drop(); c != nil {
		if s.Cancelled() == nil && s.reusable() {
			c.up.put(c)
		} else {
			c.up.discard(c)
		}
	}
}

// finishWait is how long an answer may take to end its body after it has said
// that it is done.
const finishWait = time.Second

// finishLater reads the end of a chunked body in the background, so that the
// connection can be kept and the client need not wait for it.
func (u *Upstream) finishLater(c *conn, d dechunker) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		u.discard(c)
		return
	}
	u.tasks.Add(1)
	u.mu.Unlock()
	c.chunked = d
	if c.finish == nil {
		c.finish = c.readEnd
	}
	go c.finish()
}

// readEnd reads the end of a chunked body, and keeps the connection if that
// comes in time and nothing behind it.
func (c *conn) readEnd() {
	defer c.up.tasks.Done()
	for until := time.Now().Add(finishWait); ; {
		got, err := c.read(c.rest[:], until)
		if err != nil {
			break
		}
		_, used, err := c.chunked.decode(c.rest[:got])
		if err != nil || used < got {
			break
		}
		if c.chunked.done() {
			c.up.put(c)
			return
		}
	}
	c.up.discard(c)
}

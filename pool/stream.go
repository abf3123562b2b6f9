package pool

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// Request is what a Stream asks an upstream for. What it holds is lent to the
// Stream: Body until Ready or the stream's end, the rest until Close.
type Request struct {
	Upstreams  []*Upstream // in order: where one can't be reached, the next is tried
	Method     string
	Endpoint   string // below the upstream's URL, without a leading slash; legal in a request line
	Header     []byte // complete header lines to pass on, each with its CRLF
	Body       []byte
	Upload     io.Reader // instead of Body: sent on as it is read, and therefore only once
	UploadSize int64     // bytes of Upload, or -1
	Shape      chunk.Shape
	MaxEvent   int           // bytes
	Connect    time.Duration // for dialling and the TLS handshake, each try
	Deadline   time.Time     // for sending the request
}

// Trace is what happened to a Stream, for the record.
type Trace struct {
	Upstream  string // the one that answered or was tried last
	Attempts  int    // times that the request was sent or a connection was tried for
	Reused    bool   // the answer came on a kept connection
	Queue     time.Duration
	Connect   time.Duration
	Waited    time.Duration // for the upstream to send something
	Sent      time.Time     // the last attempt's request was written
	FirstByte time.Time     // of the answer's head
	LastByte  time.Time     // the last time that anything came
}

type phase uint8

const (
	phaseConnect phase = iota
	phaseTurn          // waiting for a connection
	phaseSend
	phaseHead
	phaseBody
	phaseEnd // the body was read to its end
	phaseFailed
)

// Stream is one answer, from the request to its last byte. It is used by one
// goroutine, but for Cancel. Its zero value is ready for Open; after Close it
// can be opened again and keeps its buffers.
type Stream struct {
	req      *Request
	phase    phase
	err      error // final, with phaseFailed
	up       *Upstream
	next     int  // index of the upstream after up
	fresh    bool // an idle connection was stale: the next one has to be new
	turn     *turn
	turnFrom time.Time
	woken    chan struct{} // Cancel came while waiting for a turn
	timer    *time.Timer
	out      []byte
	iov      net.Buffers
	iovs     [2][]byte
	trace    Trace

	heads   *headReader
	hdr     fasthttp.ResponseHeader
	buf     []byte // bytes of the head, and of a whole body
	kind    bodyKind
	left    uint64 // with bodyLength
	chunked dechunker
	decoder *decoder
	encoded bool // in a coding that can't be taken off
	surplus bool // the upstream sent more than its answer, or framed it in two ways

	events sse.Reader
	view   chunk.Reader
	last   bool // the last, unfinished event was given out
	done   bool // the upstream has said that all is said
	whole  []byte

	streaming bool // the answer's head promised events

	mu    sync.Mutex // guards what Cancel needs
	conn  *conn
	cause error
}

// Open begins; nothing is sent before the first wait.
func (s *Stream) Open(r *Request) {
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
		s.timer = time.NewTimer(time.Hour)
		s.heads = newHeadReader()
	}
	select {
	case <-s.woken:
	default:
	}
	s.req, s.phase, s.err = r, phaseConnect, nil
	s.up, s.next, s.fresh, s.turn = nil, 0, false, nil
	s.trace = Trace{}
	s.resetAnswer()
	s.mu.Lock()
	s.conn, s.cause = nil, nil
	s.mu.Unlock()
}

func (s *Stream) resetAnswer() {
	s.hdr.Reset()
	s.buf = s.buf[:0]
	s.stopDecoder()
	s.kind, s.left, s.chunked, s.surplus = bodyNone, 0, dechunker{}, false
	s.streaming, s.last, s.done = false, false, false
	s.events.Reset(s.req.MaxEvent)
}

// Cancel ends the stream from any goroutine, in any phase, with cause as its
// error. The upstream is told at once.
func (s *Stream) Cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return
	}
	s.cause = cause
	if s.conn != nil {
		s.conn.interrupt()
	}
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Cancelled gives the cause of a Cancel, or nil.
func (s *Stream) Cancelled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// use makes c the stream's connection, unless it was cancelled meanwhile.
func (s *Stream) use(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	s.conn = c
	return nil
}

// drop takes the connection away from the stream.
func (s *Stream) drop() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	s.conn = nil
	return c
}

// Close ends the stream: its connection is kept where the answer was read to
// its end, and closed otherwise. An answer whose end is all that is missing has
// a second to deliver it, in the background.
func (s *Stream) Close() {
	if s.turn != nil {
		s.turn.abandon()
		s.turn = nil
	}
	switch {
	case s.phase == phaseEnd:
		s.release()
	case s.phase == phaseBody && s.kind == bodyChunked && s.done && s.reusable() && s.Cancelled() == nil:
		c := s.drop()
		c.up.finishLater(c, s.chunked)
	default:
		if c := s.drop(); c != nil {
			c.up.discard(c)
		}
	}
	if s.phase != phaseFailed {
		s.phase, s.err = phaseFailed, os.ErrClosed
	}
	s.trimBuffers()
}

func (s *Stream) reusable() bool {
	return !s.surplus && s.kind != bodyClose && !s.hdr.ConnectionClose()
}

func (s *Stream) stopDecoder() {
	if s.decoder != nil {
		s.decoder.stop()
		s.decoder = nil
	}
	s.encoded = false
}

// maxKeptBuffer bounds what an idle Stream keeps.
const maxKeptBuffer = 64 << 10

func (s *Stream) trimBuffers() {
	s.stopDecoder()
	s.req = nil
	s.iovs = [2][]byte{}
	if cap(s.buf) > maxKeptBuffer {
		s.buf = nil
	}
	if cap(s.whole) > maxKeptBuffer {
		s.whole = nil
	}
}

// Trace gives what happened so far.
func (s *Stream) Trace() Trace { return s.trace }

// Status is the answer's status, or 0 before there is one.
func (s *Stream) Status() int {
	if s.phase < phaseBody || s.phase == phaseFailed && s.trace.FirstByte.IsZero() {
		return 0
	}
	return s.hdr.StatusCode()
}

// Header lends a field of the answer's head until Close.
func (s *Stream) Header(name string) []byte { return s.hdr.Peek(name) }

func (s *Stream) fail(err error) error {
	s.mu.Lock()
	if s.cause != nil {
		err = s.cause // whatever it looks like from here: we broke it ourselves
	}
	s.mu.Unlock()
	s.phase, s.err = phaseFailed, err
	return err
}

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
// that died without a byte, the request can't have been answered, and is sent
// once more on a new one. Anything else may have run, and is not repeated.
func (s *Stream) broken(err error) error {
	c := s.drop()
	stale := c.reused && len(s.buf) == 0 && !isTimeout(err) && s.req.Upload == nil && s.Cancelled() == nil
	c.up.discard(c)
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
		return s.broken(err)
	}
	s.trace.Sent = time.Now()
	s.phase = phaseHead
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
	if s.buf == nil {
		s.buf = make([]byte, 0, 4<<10)
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
			if len(s.buf) > maxHead {
				return s.fail(&Failure{Reason: Malformed, Err: errHeadTooLarge})
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
	if err := s.heads.parse(head, &s.hdr); err != nil {
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
		s.surplus = s.surplus || len(s.buf) > 0
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

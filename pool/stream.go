package pool

import (
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
// Stream: Body until the first content or the stream's end, the rest until Close.
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
	Body      bool          // a byte of a 2xx answer's body came
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

	hdr     fasthttp.ResponseHeader
	head    *headBuffer // lent by up while buf holds something
	buf     []byte      // the head, and what came behind it
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

	checked   bool // the answer's head is good
	streaming bool // its body is events
	repaired  []byte

	mu    sync.Mutex // guards what Cancel needs
	conn  *conn
	cause error
}

// Open begins; nothing is sent before the first wait.
func (s *Stream) Open(r *Request) {
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
		s.timer = time.NewTimer(time.Hour)
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
	s.returnHead()
	s.stopDecoder()
	s.kind, s.left, s.chunked, s.surplus = bodyNone, 0, dechunker{}, false
	s.checked, s.streaming, s.last, s.done = false, false, false, false
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
	case s.phase == phaseBody && s.kind == bodyChunked && s.done && len(s.buf) == 0 && s.reusable() && s.Cancelled() == nil:
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
	s.returnHead()
	if cap(s.whole) > maxKeptBuffer {
		s.whole = nil
	}
	if cap(s.repaired) > maxKeptBuffer {
		s.repaired = nil
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

// Provider says whose words the answer is in.
func (s *Stream) Provider() chunk.Provider {
	if s.up == nil {
		return chunk.Unknown
	}
	return s.up.provider
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

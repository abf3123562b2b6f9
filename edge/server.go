// Package edge takes one request from its first byte to its last: handle.go is
// the way it goes.
package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/pool/watch"
)

// Server is the public listener's side of Eisbach.
type Server struct {
	table      atomic.Pointer[Table]
	http       fasthttp.Server
	watcher    *watch.Watcher
	log        *slog.Logger
	journal    *journal
	free       sync.Pool // of *request
	freeBodies sync.Pool // of *[]byte
	draining   atomic.Bool
	clients    clients

	mu        sync.Mutex
	first     *request // those that are open upstream
	active    int
	idle      chan struct{} // not nil: is to be closed once active is 0
	listeners []net.Listener
	over      bool // the drain has ended: what comes all the same is cut at once
	tasks     sync.WaitGroup
}

// Bounds of what a client may take before its request is whole.
const (
	maxHeaders = 32 << 10
	headWait   = 10 * time.Second
	idleWait   = 3 * time.Minute // beyond what proxies in front keep connections for
	bodySpeed  = 32 << 10        // bytes a second that a body must at least come at
)

// New makes a server. It logs to log, and writes a line for each request to
// records. The watcher outlives it.
func New(t *Table, w *watch.Watcher, log *slog.Logger, records io.Writer) *Server {
	s := &Server{watcher: w, log: log, journal: newJournal(records), clients: clients{open: make(map[*clientConn]struct{})}}
	s.free.New = func() any { return new(request) }
	s.freeBodies.New = func() any { return new([]byte) }
	s.table.Store(t)
	s.http = fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.refuseUnread,
		HeaderReceived:               s.headerReceived,
		Logger:                       quiet{log},
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		NoDefaultDate:                true,
		SecureErrorLogMessage:        true,
		ReadBufferSize:               maxHeaders,
		ReadTimeout:                  headWait,
		IdleTimeout:                  idleWait,
		ReduceMemoryUsage:            true, // a stream that waits needs no buffer to read with
		DisablePreParseMultipartForm: true,
		Concurrency:                  1 << 20,
		MaxRequestBodySize:           t.MaxBody,
	}
	return s
}

// Swap puts new settings in force for the requests that come from now on.
func (s *Server) Swap(t *Table) { s.table.Store(t) }

// Serve accepts clients until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners = append(s.listeners, ln)
	s.mu.Unlock()
	return s.http.Serve(listener{ln, s})
}

// Shutdown drains: new requests are refused, those that run may go on until ctx
// ends, then they are ended as the contract says. It returns once the last
// client has been told.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	idle := make(chan struct{})
	if s.active == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.cut()
	// What is left is telling the clients, of whom some may not listen.
	s.clients.hangUp(false)
	last, cancel := context.WithTimeout(context.Background(), cutWait)
	defer cancel()
	err := s.http.ShutdownWithContext(last)
	if errors.Is(err, context.DeadlineExceeded) {
		s.clients.hangUp(true)
		err = s.http.Shutdown()
	}
	s.mu.Lock()
	for _, ln := range s.listeners {
		ln.Close() // fasthttp does not know one whose Serve has only just begun
	}
	s.mu.Unlock()
	s.tasks.Wait()
	s.journal.close()
	return err
}

// cutWait is how long clients may take to read that their stream was cut.
const cutWait = 5 * time.Second

// cut ends what is open.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for q := s.first; q != nil; q = q.next {
		q.drain()
	}
}

// drain ends one request that is open; its server's mu is held.
func (q *request) drain() {
	q.up.Cancel(relay.ErrDrained)
	if q.uploading && q.conn != nil {
		q.conn.SetReadDeadline(time.Unix(1, 0)) // it waits for its client, not for the upstream
	}
	if q.conn != nil {
		q.conn.hurry()
	}
}

// enter lists a request that is open upstream.
func (s *Server) enter(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.prev, q.next = nil, s.first
	if s.first != nil {
		s.first.prev = q
	}
	s.first = q
	s.active++
	if s.over { // it passed the door just before that was shut
		q.drain()
	}
}

func (s *Server) exit(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		s.first = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	}
	q.next, q.prev = nil, nil
	if s.active--; s.active == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Active is the number of requests that are open upstream.
func (s *Server) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// health answers what platforms ask; it is neither counted nor recorded.
func (s *Server) health(ctx *fasthttp.RequestCtx) bool {
	switch string(ctx.URI().PathOriginal()) {
	case "/healthz":
	case "/readyz":
		if s.draining.Load() {
			ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
			ctx.SetConnectionClose()
		}
	default:
		return false
	}
	var id [idLength]byte
	newID(&id)
	ctx.Response.Header.SetBytesV("X-Request-Id", id[:])
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(fasthttp.StatusMessage(ctx.Response.StatusCode()) + "\n")
	return true
}

// headerReceived bounds the body before it is read, and leaves bodies that
// nobody has to read on the connection.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	t := s.table.Load()
	length := h.ContentLength()
	if length == -1 { // in chunks: as long as may be
		length = t.MaxBody
	}
	s.holdBody(t, h)
	return fasthttp.RequestConfig{
		MaxRequestBodySize: t.MaxBody,
		ReadTimeout:        headWait + time.Duration(max(length, 0)/bodySpeed)*time.Second,
	}
}

// refuseUnread answers what is no request, or too large a one.
func (s *Server) refuseUnread(ctx *fasthttp.RequestCtx, err error) {
	if c, ok := ctx.Conn().(*clientConn); ok && !c.heard { // opened ahead, and not used: no request
		ctx.SetStatusCode(fasthttp.StatusRequestTimeout)
		return
	}
	q := s.begin(ctx)
	q.arrived = time.Now() // ctx's time is that of the request before
	defer q.leave(ctx)
	q.table.setCORS(ctx)
	if q.conn != nil {
		q.conn.linger = true
	}
	if clientBroke(err) {
		q.fail(ctx, relay.ClientLeft, err)
		return
	}
	q.refuse(ctx, q.unread(err))
}

// clientBroke reports whether a request ended with its connection.
func clientBroke(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (q *request) unread(err error) *refusal {
	var small *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &small):
		return &refusal{status: fasthttp.StatusRequestHeaderFieldsTooLarge, code: "request_too_large",
			message: "The request's headers are larger than 32 KiB."}
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return tooLarge(q.table.MaxBody)
	case errors.As(err, &network) && network.Timeout():
		return &refusal{status: fasthttp.StatusRequestTimeout, code: "request_timeout",
			message: "The request did not arrive in time."}
	default:
		return invalid("invalid_value", "", "This is not an HTTP request that can be understood.")
	}
}

// panicked logs a panic with its stack and without its value, which may hold
// what a client sent.
func (s *Server) panicked(v any) {
	s.log.Error("panic", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
}

// quiet keeps fasthttp's log to its kind of trouble: its messages can quote
// what clients sent.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l quiet) Printf(format string, _ ...any) { l.log.Debug("http", "format", format) }

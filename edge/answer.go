package edge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/sse/chunk"
)

// maxWhole bounds an answer that is held whole, in bytes.
const maxWhole = 64 << 20

var errNotJSON = errors.New("the answer is not JSON")

// answer waits for a whole answer and passes it on, once it is known to be
// complete.
func (q *request) answer(ctx *fasthttp.RequestCtx) {
	body, err := q.up.Whole(q.total, maxWhole)
	if err == nil {
		view, ok := q.whole(body)
		if !ok || view.Kind == chunk.Error {
			err = q.up.Reject(errNotJSON)
		}
		q.view = *view
	}
	if err != nil {
		q.fail(ctx, q.Classify(err), err)
		return
	}
	q.passUpstreamID(ctx)
	q.outcome, q.status = relay.Success, q.up.Status()
	ctx.SetStatusCode(q.status)
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.SetBody(body)
}

// stream waits until the stream is worth a 200, or until early_headers, and
// then lets the server read the rest.
func (q *request) stream(ctx *fasthttp.RequestCtx) {
	q.config = relay.Config{
		Shape: q.shape, IncludeUsage: q.ask.IncludeUsage, Heartbeat: q.route.Heartbeat, Idle: q.route.Idle, Choices: q.ask.N,
		FirstToken: q.firstToken, Total: q.total, Door: q,
		Prime: q.route.Prime.needs(ctx.Request.Header.UserAgent()),
	}
	q.run.Start(&q.config, &q.up)
	early := q.total.Add(time.Second) // later than whatever ends the wait
	if q.route.EarlyHeader > 0 {
		early = q.arrived.Add(q.route.EarlyHeader)
	}
	err := q.run.Await(early)
	if err != nil && err != os.ErrDeadlineExceeded {
		q.fail(ctx, q.run.Result().Outcome, err)
		return
	}
	if err == nil {
		q.letGo() // nothing is sent again after the first content
	}
	q.passUpstreamID(ctx)
	q.streamed, q.status = true, fasthttp.StatusOK
	if !ctx.Request.Header.IsHTTP11() {
		q.streamUnframed(ctx)
		return
	}
	h := &ctx.Response.Header
	for _, field := range streamHeaders {
		h.Set(field[0], field[1])
	}
	// Without content yet, the head must not wait for it.
	ctx.Response.ImmediateHeaderFlush = err != nil
	ctx.Response.SetBodyStream(q, -1)
}

// streamHeaders keep what lies between from holding events back: no-transform
// (RFC 9111), x-accel-buffering (nginx), incremental (RFC 10036).
var streamHeaders = [...][2]string{
	{"Content-Type", "text/event-stream"},
	{"Cache-Control", "no-cache, no-transform"},
	{"X-Accel-Buffering", "no"},
	{"Incremental", "?1"},
}

// Read implements io.Reader for the server that writes the stream. Where it
// panics the server would not call CloseWithError.
func (q *request) Read(p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			q.srv.panicked(v)
			q.run.Abandon(relay.UpstreamError)
			n, err = 0, fmt.Errorf("panic while streaming")
		}
	}()
	return q.run.Read(p)
}

// unwritten says why the client could not be written to.
func (q *request) unwritten(err error) relay.Outcome {
	var network net.Error
	switch {
	case !errors.As(err, &network) || !network.Timeout():
		return relay.ClientLeft
	case q.up.Cancelled() == relay.ErrDrained:
		return relay.Drained
	case !time.Now().Before(q.total):
		return relay.TotalTimeout
	default:
		return relay.ClientLeft
	}
}

// CloseWithError ends the stream: the server has written all of it, or can't.
func (q *request) CloseWithError(err error) error {
	if err != nil && err != io.EOF {
		q.run.Abandon(q.unwritten(err))
	}
	q.outcome = q.run.Result().Outcome
	q.end()
	return nil
}

package edge

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/ask"
	"eisbach/edge/auth"
	"eisbach/edge/relay"
	"eisbach/pool"
	"eisbach/pool/watch"
	"eisbach/sse/chunk"
)

const idLength = len("req_") + 24

// request is one request from its first byte to its record. It is recycled.
type request struct {
	srv        *Server
	next, prev *request // among those that are open upstream
	table      *Table
	target
	id      [idLength]byte
	caller  auth.Identity
	conn    *clientConn // nil: a connection that can't be watched
	token   watch.Token
	wrote   time.Duration // conn's at the beginning
	arrived time.Time

	firstToken, total time.Time

	ask    ask.Ask
	sent   *[]byte // the body that goes upstream, of freeBodies
	size   int     // of it, also once it was let go
	header []byte
	model  []byte // as the client named it
	// renamed and system are what the route puts into the body.
	renamed, system []byte
	// upstreamID is the upstream's own name of the request, where it told one.
	upstreamID []byte
	call       pool.Request
	up         pool.Stream
	run        relay.Run
	config     relay.Config
	bodies     chunk.Reader
	out        []byte // a rendered failure

	opened     bool // the upstream is being asked
	uploading  bool // and gets the body as the client sends it
	unrecorded bool // a browser's question, and no request
	streamed   bool // the answer is read by the server, and ends with CloseWithError
	status     int
	outcome    relay.Outcome
	view       chunk.View // of a whole answer
	facts      record
}

// begin takes a request up.
func (s *Server) begin(ctx *fasthttp.RequestCtx) *request {
	q := s.free.Get().(*request)
	q.srv, q.table, q.arrived = s, s.table.Load(), ctx.Time()
	q.target, q.caller, q.status, q.outcome = target{}, auth.Identity{}, 0, relay.Refused
	q.opened, q.uploading, q.streamed, q.unrecorded, q.size, q.view = false, false, false, false, 0, chunk.View{}
	q.model, q.upstreamID, q.token = q.model[:0], q.upstreamID[:0], 0
	if q.conn, _ = ctx.Conn().(*clientConn); q.conn != nil {
		q.wrote = time.Duration(q.conn.written.Load())
		q.arrived = q.conn.begin(q.arrived)
	}
	newID(&q.id)
	ctx.Response.Header.SetBytesV("X-Request-Id", q.id[:])
	return q
}

func newID(dst *[idLength]byte) {
	var random [12]byte
	rand.Read(random[:])
	copy(dst[:], "req_")
	hex.Encode(dst[len("req_"):], random[:])
}

// leave ends the handler's part, and with it the request, unless its answer is
// still to be streamed. A panic ends the request that caused it and no other.
func (q *request) leave(ctx *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		q.srv.panicked(p)
		ctx.Response.ResetBody()
		q.outcome, q.streamed = relay.UpstreamError, false
		q.refuse(ctx, internal())
	}
	if !q.streamed {
		q.abandonUpload(ctx)
		if q.status == 0 {
			q.status = ctx.Response.StatusCode()
		}
		q.end()
	}
}

func internal() *refusal {
	return &refusal{status: fasthttp.StatusInternalServerError, code: "internal_error",
		message: "Something went wrong inside of this server."}
}

// end settles and records the request and recycles it.
func (q *request) end() {
	if q.opened {
		q.srv.watcher.Remove(q.token)
		q.srv.exit(q) // after these two nobody cancels any more
	}
	if !q.unrecorded {
		q.srv.journal.add(q.record())
	}
	if q.opened {
		q.up.Close()
	}
	q.letGo()
	if q.conn != nil {
		q.conn.end()
	}
	q.srv.free.Put(q)
}

// letGo recycles the body that went upstream, once nothing is sent again.
func (q *request) letGo() {
	if q.sent == nil {
		return
	}
	if cap(*q.sent) <= maxKept {
		q.srv.freeBodies.Put(q.sent)
	}
	q.sent, q.call.Body = nil, nil
}

// maxKept bounds a recycled body, in bytes.
const maxKept = 1 << 20

// refuse answers with a failure.
func (q *request) refuse(ctx *fasthttp.RequestCtx, r *refusal) {
	q.status = r.status
	q.out = r.appendBody(q.out[:0], q.shape, q.id[:])
	ctx.Response.SetStatusCode(r.status)
	ctx.Response.Header.SetContentType("application/json")
	r.setHeaders(&ctx.Response.Header)
	ctx.Response.SetBody(q.out)
}

// fail answers with how the upstream's part ended.
func (q *request) fail(ctx *fasthttp.RequestCtx, o relay.Outcome, err error) {
	q.outcome = o
	if o == relay.ClientLeft {
		q.status = statusClientLeft
		ctx.SetConnectionClose()
		ctx.SetStatusCode(q.status)
		return
	}
	r := q.explain(o, err)
	q.passUpstreamID(ctx)
	q.refuse(ctx, r)
}

// setUpstreamID notes the upstream's own name of the request, which its support
// asks for: from its error, or else from its head.
func (q *request) setUpstreamID(id []byte) {
	const most = 128
	if len(id) == 0 {
		id = q.up.Header("X-Request-Id")
	}
	if len(id) == 0 {
		id = q.up.Header("Request-Id") // Anthropic
	}
	if len(q.upstreamID) == 0 && len(id) <= most && plainName(id) && !q.reveals(id) {
		q.upstreamID = append(q.upstreamID, id...)
	}
}

func (q *request) passUpstreamID(ctx *fasthttp.RequestCtx) {
	if q.opened {
		q.setUpstreamID(nil)
	}
	if len(q.upstreamID) > 0 {
		ctx.Response.Header.SetBytesV("X-Upstream-Request-Id", q.upstreamID)
	}
}

// statusClientLeft is what is recorded where the client left before any status
// was sent (nginx's number for it).
const statusClientLeft = 499

// identify finds out who calls.
func (q *request) identify(ctx *fasthttp.RequestCtx) *refusal {
	if q.route.Open {
		if q.conn != nil {
			q.caller.User = q.conn.ip
		}
		return nil
	}
	id, r := q.table.identify(&ctx.Request.Header, q.target)
	q.caller = id
	return r
}

// identify finds out by the head alone who calls, and whether they may.
func (t *Table) identify(h *fasthttp.RequestHeader, to target) (auth.Identity, *refusal) {
	key, r := presented(h, to.shape)
	if r != nil {
		return auth.Identity{}, r
	}
	id, ok := t.Keys.Identify(key)
	if !ok {
		return id, &refusal{status: fasthttp.StatusUnauthorized, code: "invalid_api_key",
			message: "This server does not know the key that the request shows."}
	}
	if !id.May(to.route.Name) {
		return id, &refusal{status: fasthttp.StatusForbidden, code: "route_not_allowed",
			message: "This key is not for this route."}
	}
	return id, nil
}

func unclearKey() *refusal {
	return &refusal{status: fasthttp.StatusUnauthorized, code: "invalid_api_key",
		message: `A request shows its key as "Authorization: Bearer KEY", once.`}
}

// presented gives the key of the request: a bearer token (RFC 6750, 2.1), or
// for messages also x-api-key.
func presented(h *fasthttp.RequestHeader, shape chunk.Shape) ([]byte, *refusal) {
	var key []byte
	switch fields := h.PeekAll(fasthttp.HeaderAuthorization); len(fields) {
	case 0:
	case 1:
		scheme, rest, _ := bytes.Cut(fields[0], []byte(" "))
		key = bytes.TrimSpace(rest)
		if !bytes.EqualFold(scheme, []byte("bearer")) || len(key) == 0 {
			return nil, unclearKey()
		}
	default:
		return nil, unclearKey()
	}
	if shape != chunk.Messages {
		return key, nil
	}
	other := h.PeekAll("X-Api-Key")
	switch {
	case len(other) == 0:
		return key, nil
	case len(other) > 1 || len(key) > 0 && !bytes.Equal(key, other[0]):
		return nil, invalid("invalid_value", "x-api-key", "The request shows two different keys.")
	}
	return other[0], nil
}

// read reads the body of an endpoint that the edge understands.
func (q *request) read(ctx *fasthttp.RequestCtx) *refusal {
	if encoding := ctx.Request.Header.ContentEncoding(); ctx.IsPost() && len(encoding) > 0 && string(encoding) != "identity" {
		return invalid("invalid_value", "content-encoding", "A request's body must not be compressed.")
	}
	if q.raw || q.endpoint == endpointModels {
		q.ask.Stream = false // of the request before
		return nil
	}
	if err := q.ask.Parse(q.shape, ctx.PostBody()); err != nil {
		var p *ask.Problem
		errors.As(err, &p)
		return invalid(p.Code, p.Param, p.Message)
	}
	edits, r := q.allow()
	if r != nil {
		return r
	}
	q.sent = q.srv.freeBodies.Get().(*[]byte)
	*q.sent = q.ask.AppendTo((*q.sent)[:0], &edits)
	q.size = len(*q.sent)
	q.ask.Release()
	ctx.Request.ResetBody() // what is needed of it is in sent
	return nil
}

// allow holds what is asked for against what the route allows, and gives what
// has to be changed.
func (q *request) allow() (ask.Edits, *refusal) {
	q.system = append(q.system[:0], q.route.System...)
	e := ask.Edits{IncludeUsage: true, System: q.system}
	q.model = append(q.model, q.ask.Model...)
	if len(q.model) == 0 {
		q.model = append(q.model, q.route.Model...)
		e.Model = q.model
	}
	if len(q.model) == 0 {
		return e, invalid("invalid_value", "model", "The request names no model, and this route has none of its own.")
	}
	upstream, ok := q.route.upstreamModel(q.model)
	if !ok {
		return e, &refusal{status: fasthttp.StatusNotFound, code: "model_not_found", param: "model",
			message: "This route does not have this model."}
	}
	if upstream != "" && upstream != string(q.ask.Model) {
		q.renamed = append(q.renamed[:0], upstream...)
		e.Model = q.renamed
	}
	if q.shape != chunk.Embeddings {
		e.Limit = q.route.Output
	}
	if q.route.RefuseOver && e.Limit > 0 && q.ask.Limit > e.Limit {
		return e, invalid("invalid_value", q.ask.LimitName(),
			fmt.Sprintf("The output limit is above this route's, which is %d tokens.", e.Limit))
	}
	return e, nil
}

// prepare puts the call upstream together.
func (q *request) prepare(ctx *fasthttp.RequestCtx) {
	in := &ctx.Request.Header
	h := q.header[:0]
	h = append(h, "content-type: application/json\r\n"...)
	h = appendHeader(h, in, "accept", fasthttp.HeaderAccept)
	h = appendHeader(h, in, "traceparent", "Traceparent")
	if q.shape == chunk.Messages {
		h = appendHeader(h, in, "anthropic-version", "Anthropic-Version")
		h = appendHeader(h, in, "anthropic-beta", "Anthropic-Beta")
	}
	q.header = h
	deadline := q.total
	if q.ask.Stream && q.firstToken.Before(deadline) {
		deadline = q.firstToken
	}
	var body []byte
	if q.sent != nil {
		body = *q.sent
	}
	q.call = pool.Request{
		Upstreams: q.route.Upstreams, Method: fasthttp.MethodPost, Endpoint: q.endpoint,
		Header: h, Body: body, Shape: q.shape, MaxEvent: q.route.MaxEvent,
		Connect: q.route.Connect, Deadline: deadline,
	}
}

// appendHeader passes a field on; fasthttp has seen to it that it holds no line
// break.
func appendHeader(dst []byte, in *fasthttp.RequestHeader, name, canonical string) []byte {
	value := in.Peek(canonical)
	if len(value) == 0 {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

// watchClient ends the request upstream once the client has left.
func (q *request) watchClient() {
	if q.conn == nil || q.conn.fd < 0 {
		return
	}
	// A client that can't be watched is noticed by the next write to it.
	q.token, _ = q.srv.watcher.Add(q.conn.fd, watch.Left, q)
}

// PeerLeft implements watch.Listener.
func (q *request) PeerLeft(watch.Token) { q.up.Cancel(relay.ErrClientLeft) }

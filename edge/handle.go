package edge

import (
	"time"

	"github.com/valyala/fasthttp"
)

// handle is the way of a request, in the order in which things happen.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	if !strict(ctx.Request.Header.RawHeaders()) {
		s.refuseUnread(ctx, errAmbiguous)
		ctx.SetConnectionClose()
		return
	}
	if s.health(ctx) {
		return
	}
	q := s.begin(ctx)
	defer q.leave(ctx)
	q.table.setCORS(ctx)
	if q.table.preflight(ctx) {
		q.unrecorded = true
		return
	}
	for _, step := range steps {
		if r := step(q, ctx); r != nil {
			q.refuse(ctx, r)
			return
		}
	}
	switch {
	case q.raw:
		q.pass(ctx)
	case q.endpoint == endpointModels:
		q.listModels(ctx)
	case q.ask.Stream:
		q.open(ctx)
		q.stream(ctx)
	default:
		q.open(ctx)
		q.answer(ctx)
	}
}

// steps are what every request has to pass before anything is spent on it.
var steps = [...]func(*request, *fasthttp.RequestCtx) *refusal{
	(*request).find,     // which route and endpoint
	(*request).identify, // who calls
	(*request).read,     // what is asked for, and what of it the route allows
}

// find decides on the route and the endpoint.
func (q *request) find(ctx *fasthttp.RequestCtx) *refusal {
	if q.srv.draining.Load() {
		ctx.SetConnectionClose()
		return draining()
	}
	if q.table.local {
		if r := refuseForeign(ctx); r != nil {
			return r
		}
	}
	if q.table.foreign(ctx) {
		return &refusal{status: fasthttp.StatusForbidden, code: "origin_not_allowed",
			message: "Pages on this origin may not call this server."}
	}
	t, r := q.table.find(ctx.URI().PathOriginal())
	q.target = t
	if r != nil {
		return r
	}
	read := ctx.IsGet() || ctx.IsHead()
	switch {
	case q.raw && (read || ctx.IsPost()):
	case q.endpoint == endpointModels && read:
	case q.endpoint != endpointModels && !q.raw && ctx.IsPost():
	default:
		ctx.Response.Header.Set("Allow", q.methods())
		return &refusal{status: fasthttp.StatusMethodNotAllowed, code: "method_not_allowed",
			message: "This endpoint is not asked with this method."}
	}
	return nil
}

// methods are those that the endpoint is asked with.
func (q *request) methods() string {
	switch {
	case q.raw:
		return "GET, HEAD, POST"
	case q.endpoint == endpointModels:
		return "GET, HEAD"
	default:
		return "POST"
	}
}

// open begins to ask upstream. From here on the client's leaving ends it.
func (q *request) open(ctx *fasthttp.RequestCtx) {
	q.total = q.arrived.Add(q.route.Total)
	q.firstToken = time.Now().Add(q.route.FirstToken)
	if q.conn != nil {
		q.conn.until.Store(q.total.UnixNano())
	}
	q.prepare(ctx)
	q.up.Open(&q.call)
	q.opened = true
	q.srv.enter(q)
	q.watchClient()
}

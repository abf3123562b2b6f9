package edge

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"
)

// Origins are the web origins that may call: exact ones, "*", or ones with a
// leading wildcard label such as https://*.example.com, which stands for one
// whole label.
type Origins []string

var anyOrigin = []byte("*")

// allow gives the value of access-control-allow-origin, or nothing.
func (o Origins) allow(origin []byte) []byte {
	if len(origin) == 0 {
		return nil
	}
	for _, pattern := range o {
		switch {
		case pattern == "*":
			return anyOrigin
		case pattern == string(origin) || matchLabel(pattern, origin):
			return origin
		}
	}
	return nil
}

func matchLabel(pattern string, origin []byte) bool {
	scheme, domain, ok := strings.Cut(pattern, "*.")
	if !ok || len(origin) < len(scheme) || string(origin[:len(scheme)]) != scheme {
		return false
	}
	label, rest, ok := bytes.Cut(origin[len(scheme):], []byte("."))
	return ok && len(label) > 0 && string(rest) == domain && !bytes.ContainsAny(label, "/:@")
}

// exposed are the fields that a page's script may read.
const exposed = "x-request-id, x-upstream-request-id, retry-after, retry-after-ms, x-should-retry, " +
	"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, " +
	"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"

// setCORS lets a page on an allowed origin read the answer, an error too: the
// check of the Fetch standard applies whatever the status.
func (t *Table) setCORS(ctx *fasthttp.RequestCtx) {
	if len(t.Origins) == 0 {
		return
	}
	h := &ctx.Response.Header
	h.Set("Vary", "Origin")
	if origin := t.Origins.allow(ctx.Request.Header.Peek("Origin")); origin != nil {
		h.SetBytesV("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
	}
}

// foreign reports whether a page of an origin that is not allowed asks. The
// server's own pages may, and what is no page shows no origin.
func (t *Table) foreign(ctx *fasthttp.RequestCtx) bool {
	origin := ctx.Request.Header.Peek("Origin")
	if len(t.Origins) == 0 || len(origin) == 0 || t.Origins.allow(origin) != nil {
		return false
	}
	_, host, _ := bytes.Cut(origin, []byte("://"))
	return !bytes.Equal(host, ctx.Request.Header.Host())
}

// preflight answers a browser's question whether it may ask. It comes without
// credentials, so it is answered before anybody is asked for theirs; false
// where the request is none.
func (t *Table) preflight(ctx *fasthttp.RequestCtx) bool {
	in := &ctx.Request.Header
	if !ctx.IsOptions() || len(in.Peek("Access-Control-Request-Method")) == 0 || len(t.Origins) == 0 {
		return false
	}
	h := &ctx.Response.Header
	h.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	if t.Origins.allow(in.Peek("Origin")) != nil {
		h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
		h.Set("Access-Control-Max-Age", "7200")
		// Named one by one: "*" does not cover authorization (Fetch standard, 4.10).
		if asked := in.Peek("Access-Control-Request-Headers"); len(asked) <= 4<<10 && !bytes.ContainsAny(asked, "\r\n*") {
			h.SetBytesV("Access-Control-Allow-Headers", asked)
		}
	}
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return true
}

package edge

import (
	"net"
	"net/url"

	"github.com/valyala/fasthttp"
)

// LocalOnly makes a table answer only this machine's own programs and pages: a
// web page elsewhere must not spend the key that a developer's server holds.
// The name that the request gives the server counts too, since a page's own
// host name may be made to lead here (DNS rebinding). They need no key.
func LocalOnly(t *Table) {
	t.local = true
	for _, route := range t.Routes {
		route.Open = true
	}
}

func refuseForeign(ctx *fasthttp.RequestCtx) *refusal {
	host := ctx.Request.Header.Host()
	if !loopback(string(host)) || !ctx.RemoteIP().IsLoopback() {
		return &refusal{status: fasthttp.StatusForbidden, code: "denied",
			message: "This server holds a real key and answers only on a loopback address."}
	}
	origin := ctx.Request.Header.Peek(fasthttp.HeaderOrigin)
	if len(origin) == 0 {
		return nil
	}
	if u, err := url.Parse(string(origin)); err != nil || u.Host != string(host) {
		return &refusal{status: fasthttp.StatusForbidden, code: "origin_not_allowed",
			message: "This server holds a real key and answers only its own pages."}
	}
	return nil
}

// loopback reports whether host, which may have a port, names this machine.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
		if len(name) > 2 && name[0] == '[' {
			name = name[1 : len(name)-1]
		}
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

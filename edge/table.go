package edge

import (
	"bytes"
	"net/url"
	"slices"
	"time"

	"eisbach/edge/auth"
	"eisbach/pool"
	"eisbach/sse/chunk"
)

// Table is what a server is set to. It is immutable: a reload swaps it whole.
type Table struct {
	Routes  map[string]*Route
	Keys    *auth.Keys
	Origins Origins
	MaxBody int // bytes
	local   bool
}

// Route is one entrance: /v1 for "default", /NAME/v1 for any other.
type Route struct {
	Name      string
	Upstreams []*pool.Upstream // in order: the next one is the fallback
	Secrets   []string         // of the upstreams, to be kept out of messages
	Endpoints []string
	Open      bool              // nobody has to show a key
	Model     string            // where the client names none
	Models    map[string]string // the client's name → the upstream's; nil: any
	System    string            // put in front of the client's messages

	Output      int64 // the output limit, also the default; 0: none. Reasoning included
	RefuseOver  bool  // a higher one is refused instead of lowered
	MaxEvent    int   // bytes
	Connect     time.Duration
	FirstToken  time.Duration
	Idle        time.Duration
	Total       time.Duration
	Heartbeat   time.Duration // 0: off
	EarlyHeader time.Duration // 0: off
	Prime       Prime
}

// Prime says which clients get a long comment first, because they hold the
// first bytes of a stream back.
type Prime uint8

// PrimeAuto primes the clients that are known to need it.
const (
	PrimeAuto Prime = iota
	PrimeAlways
	PrimeNever
)

// needs reports whether a client with that User-Agent is to be primed: Apple's
// URLSession, which calls itself CFNetwork.
func (p Prime) needs(userAgent []byte) bool {
	return p == PrimeAlways || p == PrimeAuto && bytes.Contains(userAgent, []byte("CFNetwork"))
}

// endpointModels is the one endpoint that the edge answers by itself where it can.
const endpointModels = "models"

// shapes are the endpoints that the edge understands.
var shapes = map[string]chunk.Shape{
	"chat/completions": chunk.Chat,
	"completions":      chunk.Completion,
	"responses":        chunk.Responses,
	"embeddings":       chunk.Embeddings,
	"messages":         chunk.Messages,
}

// target is where a path leads.
type target struct {
	route    *Route
	endpoint string
	shape    chunk.Shape
	model    string // of models/{id}, unescaped
	raw      bool   // an endpoint that the edge does not understand: it passes through
}

// find decides once, on the path as it was written, for routing, identity and
// what goes upstream alike: a path that has to be normalised first is no path
// of ours.
func (t *Table) find(path []byte) (target, *refusal) {
	name, rest, ok := bytes.Cut(bytes.TrimPrefix(path, []byte("/")), []byte("/"))
	if !ok || len(path) == 0 || path[0] != '/' {
		return target{}, notFound("There is nothing at this path.")
	}
	routeName := "default"
	if string(name) != "v1" {
		routeName = string(name)
		if rest, ok = bytes.CutPrefix(rest, []byte("v1/")); !ok || routeName == "default" {
			return target{}, notFound("There is nothing at this path.")
		}
	}
	route := t.Routes[routeName]
	if route == nil {
		return target{}, notFound("There is no such route.")
	}
	if id, ok := bytes.CutPrefix(rest, []byte(endpointModels+"/")); ok && slices.Contains(route.Endpoints, endpointModels) {
		model, err := url.PathUnescape(string(id))
		if err != nil || !plainName([]byte(model)) {
			return target{route: route}, notFound("There is no such model.")
		}
		return target{route: route, endpoint: endpointModels, shape: chunk.Other, model: model}, nil
	}
	for _, endpoint := range route.Endpoints {
		if string(rest) == endpoint {
			shape, known := shapes[endpoint]
			if !known {
				shape = chunk.Other
			}
			return target{route: route, endpoint: endpoint, shape: shape, raw: !known && endpoint != endpointModels}, nil
		}
	}
	return target{route: route}, notFound("This route has no such endpoint.")
}

// plainName keeps out what could be more than a name in a path.
func plainName(s []byte) bool {
	if len(s) == 0 || len(s) > 256 {
		return false
	}
	for _, c := range s {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	for segment := range bytes.SplitSeq(s, []byte("/")) {
		switch string(segment) {
		case "", ".", "..":
			return false
		}
	}
	return bytes.IndexByte(s, '\\') < 0
}

// upstreamModel gives the upstream's name for the client's; false where the
// route does not allow it.
func (r *Route) upstreamModel(name []byte) (string, bool) {
	if r.Models == nil {
		return "", true
	}
	model, ok := r.Models[string(name)]
	return model, ok
}

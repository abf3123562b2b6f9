package config

import (
	"maps"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// builder makes a Config and collects what is wrong on the way.
type builder struct {
	file, dir string
	lookup    func(string) (string, bool)
	problems  Problems
	warnings  []Problem
	refused   position            // what TOML itself refused: said once is enough
	owners    map[[32]byte]string // who has the client key of that hash
}

// build goes by what refers to what: upstreams, then the routes over them,
// then the clients of the routes.
func (b *builder) build(root *table) *Config {
	c := &Config{
		Listen: ":8080", Drain: 30 * time.Second, MaxBody: 20 << 20,
		Upstreams: make(map[string]*Upstream), Routes: make(map[string]*Route), Clients: make(map[string]*Client),
	}
	var upstreams, routes, clients []*entry
	b.read(root, fields{
		"listen":   b.address(&c.Listen),
		"drain":    b.duration(&c.Drain),
		"max_body": b.size(&c.MaxBody),
		"upstream": b.named(&upstreams),
		"route":    b.named(&routes, "v1", "healthz", "readyz"),
		"client":   b.named(&clients),
		"cors":     b.table(fields{"origins": b.origins(&c.CORS.Origins)}),
	})
	for _, e := range upstreams {
		c.Upstreams[e.key] = b.upstream(e)
	}
	if e := root.get("upstream"); len(upstreams) == 0 && (e == nil || e.value.table != nil) {
		b.report(position{1, 1}, "there is no upstream: add [upstream.NAME] with its url")
	}
	if len(routes) == 0 {
		routes = b.defaultRoute(c)
	}
	for _, e := range routes {
		c.Routes[e.key] = b.route(e, c)
	}
	for _, e := range upstreams {
		b.compareQueue(e, c)
	}
	for _, e := range clients {
		c.Clients[e.key] = b.client(e, c)
	}
	for _, e := range routes {
		b.requireClient(e, c)
	}
	return c
}

// maxTokens is the largest limit that a client can ask for, too: 2^53, up to
// which a JSON number is exact everywhere.
const maxTokens = 1 << 53

func (b *builder) route(e *entry, c *Config) *Route {
	t := e.value.table
	r := &Route{
		Name: e.key, Endpoints: []string{"chat/completions", "models"},
		Priority: "normal", OverOutput: "clamp", Heartbeat: 5 * time.Second, EarlyHeaders: 7 * time.Second, MaxEvent: 1 << 20, Prime: "auto",
	}
	r.Profile = profile(t)
	r.fill()
	b.read(t, fields{
		"upstreams": b.upstreams(&r.Upstreams, c),
		"endpoints": b.endpoints(&r.Endpoints),
		"auth":      b.auth(&r.Auth),
		"model":     b.text(&r.Model),
		"models":    b.models(&r.Models),
		"profile":   b.choice(new(string), profiles()...),
		"priority":  b.choice(&r.Priority, "high", "normal"),
		"retries":   count(b, &r.Retries, 0, 10),
		"timeout": b.table(fields{
			"connect":     b.duration(&r.Timeout.Connect),
			"first_token": b.duration(&r.Timeout.FirstToken),
			"idle":        b.duration(&r.Timeout.Idle),
			"total":       b.duration(&r.Timeout.Total),
		}),
		"tokens": b.table(fields{
			"output":    count(b, &r.Tokens.Output, 1, maxTokens),
			"reasoning": count(b, &r.Tokens.Reasoning, 0, maxTokens),
		}),
		"over_output":   b.choice(&r.OverOutput, "clamp", "reject"),
		"system":        b.text(&r.System),
		"heartbeat":     b.durationOrOff(&r.Heartbeat),
		"early_headers": b.durationOrOff(&r.EarlyHeaders),
		"max_event":     b.size(&r.MaxEvent),
		"prime":         b.switchable(&r.Prime),
	})
	b.completeUpstreams(r, e, c)
	b.compare(r, t)
	return r
}

func (b *builder) client(e *entry, c *Config) *Client {
	client := &Client{Name: e.key, Routes: slices.Sorted(maps.Keys(c.Routes))}
	t := e.value.table
	b.read(t, fields{
		"hash":   b.hashes(&client.Hashes, e.key),
		"routes": b.routes(&client.Routes, c),
	})
	if t.get("hash") == nil {
		b.report(e.at, `%s has no hash: "eisbach key" makes a key and its hash`, t.path)
	}
	return client
}

// defaultRoute stands in where the file has no route at all: "default", over
// all upstreams. Tables of TOML have no order, so the names give it.
func (b *builder) defaultRoute(c *Config) []*entry {
	start := position{1, 1}
	list := &value{at: start, kind: unstable.Array}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		list.list = append(list.list, &value{at: start, kind: unstable.String, text: name})
	}
	e := &entry{key: "default", at: start, value: newTable(start)}
	e.value.table.path = "route.default"
	if len(list.list) > 0 {
		e.value.table.add("upstreams", start, list)
	}
	if len(list.list) > 1 {
		b.warn(start, "there is no route: the default one falls back over all upstreams by their names; set route.default.upstreams for an order of your own")
	}
	return []*entry{e}
}

// completeUpstreams fills in the upstream of a route where there is only one.
func (b *builder) completeUpstreams(r *Route, e *entry, c *Config) {
	if e.value.table.get("upstreams") != nil {
		return
	}
	names := slices.Sorted(maps.Keys(c.Upstreams))
	if len(names) > 1 {
		b.report(e.at, "%s has no upstreams: list some of %s in order, the next one is the fallback", e.value.table.path, quoted(names))
		return
	}
	for _, name := range names {
		r.Upstreams = append(r.Upstreams, c.Upstreams[name])
	}
}

// compare looks at settings that are good alone and not together.
func (b *builder) compare(r *Route, t *table) {
	if model := t.get("model"); model != nil && r.Models != nil && r.Model != "" {
		if _, ok := r.Models[r.Model]; !ok {
			b.report(model.value.at, "%s is not among the models of the route: add it to models, or leave models out to allow any", model.value.path)
		}
	}
	if timeout := t.get("timeout"); timeout != nil && r.Timeout.Total < r.Timeout.FirstToken {
		b.warn(timeout.value.at, "%s: total (%s) ends before first_token (%s) can", timeout.value.path, r.Timeout.Total, r.Timeout.FirstToken)
	}
	if tokens := t.get("tokens"); tokens != nil && r.Tokens.Output == 0 && r.Tokens.Reasoning > 0 {
		b.warn(tokens.value.at, "%s: reasoning limits nothing without output", tokens.value.path)
	}
}

// requireClient settles who may call a route, once the clients are known.
func (b *builder) requireClient(e *entry, c *Config) {
	r, at := c.Routes[e.key], e.at
	if auth := e.value.table.get("auth"); auth != nil {
		at = auth.value.at
	} else if len(c.Clients) == 0 {
		r.Auth = []string{"none"}
		b.warn(at, `%s is open: nobody has to show a key; add a [client.NAME], or say auth = "none"`, e.value.table.path)
		return
	}
	if len(r.Auth) == 0 {
		r.Auth = []string{"key"}
	}
	mayCall := func(client *Client) bool { return slices.Contains(client.Routes, r.Name) }
	if r.Auth[0] == "key" && !slices.ContainsFunc(slices.Collect(maps.Values(c.Clients)), mayCall) {
		b.warn(at, "%s is closed: no client may use it; add it to the routes of a [client.NAME]", e.value.table.path)
	}
}

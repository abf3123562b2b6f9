package cmd

import (
	"slices"

	"eisbach/edge"
	"eisbach/edge/auth"
	"eisbach/edge/config"
	"eisbach/pool"
	"eisbach/pool/watch"
)

// rooms are the pools and the table that one configuration stands for.
type rooms struct {
	table *edge.Table
	pools map[string]furnished
}

// furnished is a pool and what it was built from.
type furnished struct {
	*pool.Upstream
	from pool.Config
}

// furnish builds what a configuration describes. Pools of before that have not
// changed stay, with their warm connections; the others are retired.
func furnish(c *config.Config, w *watch.Watcher, before *rooms) *rooms {
	r := &rooms{pools: make(map[string]furnished), table: &edge.Table{
		Routes: make(map[string]*edge.Route), Keys: auth.NewKeys(),
		Origins: c.CORS.Origins, MaxBody: int(c.MaxBody),
	}}
	for name, u := range c.Upstreams {
		from := pool.Config{
			Name: name, URL: u.URL, Keys: reveal(u.Keys), KeyHeader: u.KeyHeader,
			RootCAs: u.RootCAs, MaxConns: u.MaxConns,
		}
		p, ok := before.pool(name)
		if !ok || !same(p.from, from) {
			p = furnished{pool.New(from, w), from}
		}
		r.pools[name] = p
	}
	if before != nil {
		for name, p := range before.pools {
			if r.pools[name].Upstream != p.Upstream {
				p.Retire()
			}
		}
	}
	for name, client := range c.Clients {
		for _, hash := range client.Hashes {
			r.table.Keys.Add(hash, auth.Identity{User: name, Routes: client.Routes})
		}
	}
	for name, route := range c.Routes {
		r.table.Routes[name] = newRoute(route, r.pools)
	}
	return r
}

func (r *rooms) pool(name string) (furnished, bool) {
	if r == nil {
		return furnished{}, false
	}
	p, ok := r.pools[name]
	return p, ok
}

func same(a, b pool.Config) bool {
	return a.URL.String() == b.URL.String() && slices.Equal(a.Keys, b.Keys) && a.KeyHeader == b.KeyHeader &&
		a.RootCAs.Equal(b.RootCAs) && a.MaxConns == b.MaxConns
}

func newRoute(c *config.Route, pools map[string]furnished) *edge.Route {
	r := &edge.Route{
		Name: c.Name, Endpoints: c.Endpoints, Open: len(c.Auth) == 1 && c.Auth[0] == "none",
		Model: c.Model, Models: c.Models, System: c.System,
		RefuseOver: c.OverOutput == "reject", MaxEvent: int(c.MaxEvent),
		Connect: c.Timeout.Connect, FirstToken: c.Timeout.FirstToken, Idle: c.Timeout.Idle, Total: c.Timeout.Total,
		Heartbeat: c.Heartbeat, EarlyHeader: c.EarlyHeaders,
		Prime: map[string]edge.Prime{"auto": edge.PrimeAuto, "true": edge.PrimeAlways, "false": edge.PrimeNever}[c.Prime],
	}
	if c.Tokens.Output > 0 {
		r.Output = c.Tokens.Output + c.Tokens.Reasoning
	}
	for _, u := range c.Upstreams {
		r.Upstreams = append(r.Upstreams, pools[u.Name].Upstream)
		r.Secrets = append(r.Secrets, reveal(u.Keys)...)
	}
	return r
}

func reveal(secrets []config.Secret) []string {
	out := make([]string, len(secrets))
	for i, s := range secrets {
		out[i] = s.Reveal()
	}
	return out
}

package cmd

import (
	"eisbach/edge"
	"eisbach/edge/auth"
	"eisbach/edge/config"
	"eisbach/pool"
	"eisbach/pool/watch"
)

// rooms are the pools and the table that one configuration stands for.
type rooms struct {
	table *edge.Table
	pools []*pool.Upstream
}

// furnish builds what a configuration describes.
func furnish(c *config.Config, w *watch.Watcher) *rooms {
	r := &rooms{table: &edge.Table{
		Routes: make(map[string]*edge.Route), Keys: auth.NewKeys(),
		Origins: c.CORS.Origins, MaxBody: int(c.MaxBody),
	}}
	byName := make(map[string]*pool.Upstream)
	for name, u := range c.Upstreams {
		p := pool.New(pool.Config{
			Name: name, URL: u.URL, Keys: reveal(u.Keys), KeyHeader: u.KeyHeader,
			RootCAs: u.RootCAs, MaxConns: u.MaxConns,
		}, w)
		byName[name] = p
		r.pools = append(r.pools, p)
	}
	for name, client := range c.Clients {
		for _, hash := range client.Hashes {
			r.table.Keys.Add(hash, auth.Identity{User: name, Routes: client.Routes})
		}
	}
	for name, route := range c.Routes {
		r.table.Routes[name] = newRoute(route, byName)
	}
	return r
}

func newRoute(c *config.Route, pools map[string]*pool.Upstream) *edge.Route {
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
		r.Upstreams = append(r.Upstreams, pools[u.Name])
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

// close closes the pools; streams that are still open keep their connections.
func (r *rooms) close() {
	for _, p := range r.pools {
		p.Close()
	}
}

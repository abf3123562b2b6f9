package config

import (
	"maps"
	"slices"
	"time"
)

func (b *builder) upstream(e *entry) *Upstream {
	u := &Upstream{
		Name: e.key, KeyHeader: "authorization",
		Queue: Queue{High: 100, Normal: 1000, Wait: 10 * time.Second, Reserve: 0.10},
	}
	t := e.value.table
	u.Keys, u.reread = b.keys(t), b.rereader(t)
	b.read(t, fields{
		"url":        b.url(&u.URL),
		"keys":       func(*value) {}, // read above, with the key file
		"key_file":   func(v *value) { u.KeyFile = b.resolve(v.text) },
		"key_header": b.choice(&u.KeyHeader, "authorization", "x-api-key"),
		"ca_file":    b.certificates(&u.RootCAs),
		"warm":       count(b, &u.Warm, 0, maxConns),
		"max_conns":  count(b, &u.MaxConns, 1, maxConns),
		"queue": b.table(fields{
			"high":    count(b, &u.Queue.High, 0, maxQueue),
			"normal":  count(b, &u.Queue.Normal, 0, maxQueue),
			"wait":    b.duration(&u.Queue.Wait),
			"reserve": b.ratio(&u.Queue.Reserve, 0, 0.9), // some turns are left for the others
		}),
		"ping": b.ping(&u.Ping),
	})
	b.completeConns(u, t)
	if url := t.get("url"); url == nil {
		b.report(e.at, `%s has no url: set it to the base URL, like "https://api.example.com/v1"`, t.path)
	} else if u.URL != nil && u.URL.Scheme == "http" && len(u.Keys) > 0 && isPublic(u.URL.Hostname()) {
		b.warn(url.value.at, "%s is http: the keys travel unencrypted; use https", url.value.path)
	}
	return u
}

const (
	maxConns = 65535     // the ports of one address
	maxQueue = 1_000_000 // requests that wait hold their bodies in memory
)

// completeConns fills in the defaults of max_conns and warm, of which the
// second depends on the first.
func (b *builder) completeConns(u *Upstream, t *table) {
	if t.get("max_conns") == nil {
		u.MaxConns = 200
	}
	warm := t.get("warm")
	switch {
	case warm == nil:
		u.Warm = min(4, u.MaxConns)
	case u.Warm > u.MaxConns && u.MaxConns > 0: // 0 is one that was reported
		b.fail(warm.value, "must be at most max_conns, which is %d", u.MaxConns)
	}
}

func (b *builder) ping(dst *Ping) field {
	return func(v *value) {
		p := Ping{Every: 5 * time.Minute}
		b.table(fields{"model": b.model(&p.Model), "every": b.atLeast(&p.Every, time.Second)})(v)
		if v.table != nil && v.table.get("model") == nil {
			b.fail(v, "has no model: name the upstream's model to keep loaded")
		}
		*dst = p
	}
}

// compareQueue looks at a wait that the file sets: it ends with the route's
// first_token, which runs in the queue already.
func (b *builder) compareQueue(e *entry, c *Config) {
	u, queue := c.Upstreams[e.key], e.value.table.get("queue")
	if queue == nil || queue.value.table == nil || queue.value.table.get("wait") == nil {
		return
	}
	wait := queue.value.table.get("wait").value
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[name]
		if slices.Contains(r.Upstreams, u) && u.Queue.Wait > r.Timeout.FirstToken {
			b.warn(wait.at, "%s (%s) is longer than first_token of route.%s (%s): its streams end before their turn can come",
				wait.path, u.Queue.Wait, name, r.Timeout.FirstToken)
			return
		}
	}
}

package config

import "time"

// profiles are the names that a route's profile may have.
func profiles() []string { return []string{"streaming", "realtime", "batch"} }

// profile gives the name of a route's profile. It is read before the route's
// other settings, which change what it fills in.
func profile(t *table) string {
	if e := t.get("profile"); e != nil {
		return e.value.text
	}
	return "streaming"
}

// fill sets what comes of the route's profile.
func (r *Route) fill() {
	switch r.Profile {
	case "realtime":
		r.Timeout = Timeouts{Connect: 3 * time.Second, FirstToken: 45 * time.Second, Idle: 20 * time.Second, Total: 90 * time.Second}
		r.Retries, r.Backoff = 2, 300*time.Millisecond
	case "batch":
		r.Timeout = Timeouts{Connect: 5 * time.Second, FirstToken: 180 * time.Second, Idle: 180 * time.Second, Total: 300 * time.Second}
		r.Retries, r.Backoff = 3, time.Second
	default:
		r.Timeout = Timeouts{Connect: 2 * time.Second, FirstToken: 30 * time.Second, Idle: 20 * time.Second, Total: 60 * time.Second}
		r.Retries, r.Backoff = 2, 500*time.Millisecond
	}
}

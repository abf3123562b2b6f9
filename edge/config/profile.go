package config

import "time"

// profiles are the names that a route's profile may have.
func profiles() []string { return []string{"streaming", "realtime", "batch"} }

// profile gives a route's profile and the timeouts that it fills in. It is
// read before the route's other settings, which change it.
func (b *builder) profile(t *table) (string, Timeouts) {
	name := "streaming"
	if e := t.get("profile"); e != nil {
		name = e.value.text
	}
	switch name {
	case "realtime":
		return name, Timeouts{Connect: 3 * time.Second, FirstToken: 45 * time.Second, Idle: 20 * time.Second, Total: 90 * time.Second}
	case "batch":
		return name, Timeouts{Connect: 5 * time.Second, FirstToken: 180 * time.Second, Idle: 180 * time.Second, Total: 300 * time.Second}
	}
	return name, Timeouts{Connect: 2 * time.Second, FirstToken: 30 * time.Second, Idle: 20 * time.Second, Total: 60 * time.Second}
}

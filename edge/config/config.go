// Package config turns the flags, the environment, a .env file and a TOML file
// into validated, immutable settings. It reports every problem of a file at
// once, each at its line and column, and never shows a secret.
package config

import (
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Config is what a server runs with. It is shared by everyone who reads it
// and never changes: a reload makes a new one.
type Config struct {
	Listen    string        // host:port; port 0 takes a free one
	Drain     time.Duration // how long open streams may finish after SIGTERM
	MaxBody   int64         // bytes of a request's body
	Upstreams map[string]*Upstream
	Routes    map[string]*Route
	Clients   map[string]*Client
	CORS      CORS
	Warnings  []Problem // what works but hurts, by position
}

// Upstream is a provider, by its OpenAI-compatible base URL.
type Upstream struct {
	Name      string
	URL       *url.URL       // http or https, without a slash at its end
	Keys      []Secret       // rotated, those of KeyFile last; none: no authorization is sent
	KeyFile   string         // the path, relative to the working directory or absolute; "" is none
	KeyHeader string         // "authorization" or "x-api-key"
	RootCAs   *x509.CertPool // nil: those of the system
	MaxConns  int
	Warm      int // connections kept open, up to MaxConns
	Queue     Queue
	Ping      Ping

	reread func() ([]Secret, error) // as Reread; nil: Keys are all there is
}

// Queue bounds the requests that wait for a connection of an upstream.
type Queue struct {
	High, Normal int           // how many may wait, by their route's priority; 0: none waits
	Wait         time.Duration // the longest that one waits
	Reserve      float64       // the share of each limit that is for high priority alone, up to 0.9
}

// Ping keeps a model loaded: a request of one token at an interval, which the
// provider bills.
type Ping struct {
	Model string        // as the upstream names it
	Every time.Duration // at least 1 s; 0: off
}

// Route is one entrance: /v1 for "default", /NAME/v1 for any other.
type Route struct {
	Name         string
	Upstreams    []*Upstream       // in order: the next one is the fallback
	Endpoints    []string          // below the base URL, such as "chat/completions"
	Auth         []string          // "key", or "none" alone
	Model        string            // where the client names none; "" has no default
	Models       map[string]string // the client's name → the upstream's; nil: any
	Timeout      Timeouts
	Profile      string        // "streaming", "realtime" or "batch"
	Priority     string        // "high" or "normal": whose turn it is where requests wait
	Retries      int           // attempts after the first one
	Backoff      time.Duration // before the first retry, by the profile
	Tokens       Tokens
	OverOutput   string        // "clamp" or "reject"
	System       string        // put in front of the client's messages; "" is none
	Heartbeat    time.Duration // 0: off
	EarlyHeaders time.Duration // 0: the status waits for the upstream, however long
	MaxEvent     int64         // bytes of an upstream's event
	Prime        string        // "auto", "true" or "false"
}

// Timeouts bound a request. Connect and Total hold for whole answers too,
// FirstToken and Idle for streams alone.
type Timeouts struct {
	Connect, FirstToken, Idle, Total time.Duration
}

// Tokens bound what one request may generate. The upstream's limit is their sum.
type Tokens struct {
	Output    int64 // also the default where the client names none; 0: no limit
	Reasoning int64 // on top of Output
}

// Client is an application that calls with a key of its own.
type Client struct {
	Name   string
	Hashes [][32]byte // SHA-256 of its key; two while it is rotated
	Routes []string   // every route of the file where it lists none
}

// CORS names the web origins that may call: exact ones, "*", or ones whose
// first label is a wildcard, https://*.example.com.
type CORS struct {
	Origins []string
}

// Options are what the command line knows.
type Options struct {
	File   string                      // the path of the TOML file
	Lookup func(string) (string, bool) // the environment, as Dotenv or os.LookupEnv gives it; Upstream.Reread asks it, too, from any goroutine
	Listen string                      // of the flag or EISBACH_LISTEN: goes before the file's; "" is none
}

// Load reads and validates the file. Its error is Problems, all that were
// found, sorted by position; with an error there is no Config, so that a bad
// file is never half in force.
func Load(o Options) (*Config, error) {
	if o.File == "" {
		return nil, Problems{{Message: "no configuration file: name it with --config"}}
	}
	data, err := os.ReadFile(o.File)
	if err != nil {
		return nil, Problems{{File: o.File, Message: "cannot be read: " + reason(err)}}
	}
	c, err := Parse(o.File, data, filepath.Dir(o.File), o.Lookup)
	if o.Listen == "" {
		return c, err
	}
	if !isAddress(o.Listen) {
		var problems Problems
		errors.As(err, &problems)
		return nil, append(Problems{{Message: "--listen (or EISBACH_LISTEN) " + wantAddress}}, problems...)
	}
	if err == nil {
		c.Listen = o.Listen
	}
	return c, err
}

// Parse validates the file's content. Problems name the file name; relative
// paths start at dir; "$NAME" is asked of lookup, and nil knows no variable.
// data is not kept, lookup is: Upstream.Reread asks it again, from any goroutine. Its error is Problems, as that of Load.
func Parse(name string, data []byte, dir string, lookup func(string) (string, bool)) (*Config, error) {
	b := &builder{file: name, dir: dir, lookup: lookup, owners: make(map[[32]byte]string)}
	root, err := parseDocument(data)
	if err != nil {
		b.report(err.at, "%s", err.message)
		b.refused = err.at
	}
	if root == nil {
		return nil, b.problems
	}
	c := b.build(root)
	if len(b.problems) > 0 {
		slices.SortStableFunc(b.problems, byPosition)
		return nil, b.problems
	}
	slices.SortStableFunc(b.warnings, byPosition)
	c.Warnings = b.warnings
	return c, nil
}

func byPosition(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// reason is an error of the file system without the path: the problem names
// it already.
func reason(err error) string {
	if wrapped := (*fs.PathError)(nil); errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}

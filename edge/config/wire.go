package config

import (
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

const wantAddress = `must be "host:port" or ":port", like ":8080"`

func (b *builder) address(dst *string) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		if !isAddress(v.text) {
			b.fail(v, wantAddress)
			return
		}
		*dst = v.text
	}
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && isPort(port) && !strings.ContainsAny(host, " \t\r\n/@")
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func (b *builder) url(dst **url.URL) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		u, complaint := parseURL(v.text)
		if complaint != "" {
			b.fail(v, "%s", complaint)
			return
		}
		*dst = u
	}
}

// parseURL gives a base URL, or what is wrong with it in words that do not
// repeat it: a URL is where keys are put by mistake.
func parseURL(s string) (*url.URL, string) {
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.Port() != "" && !isPort(u.Port()):
		return nil, `must be an http or https URL with a host, like "https://api.example.com/v1"`
	case u.User != nil:
		return nil, "must not hold a user or password: use keys"
	case strings.ContainsAny(s, "?#"):
		return nil, "must not have a query or fragment: use keys for the key"
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	if u.Path != "" && path.Clean(u.Path) != u.Path {
		return nil, `must not have "//", "/./" or "/../" in its path`
	}
	return u, ""
}

// isPublic guesses whether a host is reached over the internet.
func isPublic(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate()
	}
	return strings.Contains(host, ".") && !strings.HasSuffix(host, ".internal") && !strings.HasSuffix(host, ".local")
}

func (b *builder) origins(dst *[]string) field {
	return func(v *value) {
		for _, element := range b.texts(v) {
			if complaint := checkOrigin(element.text); complaint != "" {
				b.fail(element, "%s", complaint)
				continue
			}
			*dst = append(*dst, element.text)
		}
	}
}

// checkOrigin accepts what a browser or the web view of an app can send as
// Origin, in the very form in which it does (RFC 6454, 6.2): what is written
// in another way would match nothing.
func checkOrigin(s string) string {
	if s == "*" {
		return ""
	}
	scheme, host, ok := strings.Cut(s, "://")
	rest, wildcard := strings.CutPrefix(host, "*.")
	u, err := url.Parse(scheme + "://" + rest)
	switch {
	case s == "null":
		return `must not be "null": any sandboxed page sends it`
	case strings.Contains(rest, "*"):
		return `may have a wildcard only for the whole first label, like "https://*.example.com"`
	case !ok || err != nil || u.Hostname() == "" || u.User != nil || u.Port() != "" && !isPort(u.Port()):
		return `must be an origin like "https://app.example.com", or "*"`
	case strings.ContainsAny(rest, "/?#"):
		return "must end after the host or port: browsers send no path"
	case s != strings.ToLower(s):
		return "must be in lower case: browsers send it so"
	case strings.HasSuffix(host, ":") || scheme == "https" && u.Port() == "443" || scheme == "http" && u.Port() == "80":
		return "must not name the scheme's own port: browsers leave it out"
	case !isHost(u.Hostname()):
		return "must have a host as browsers send it: ASCII letters, xn-- for others"
	case wildcard && u.Hostname() != "localhost" && !strings.Contains(strings.Trim(u.Hostname(), "."), "."):
		return `must not allow a whole top-level domain: "https://*.example.com" has two labels after the wildcard`
	}
	return ""
}

func isHost(s string) bool {
	for _, c := range []byte(s) {
		if !isNameByte(c) && c != '.' && c != ':' { // ":" of an IPv6 address
			return false
		}
	}
	return s[0] != '.'
}

func (b *builder) endpoints(dst *[]string) field {
	return func(v *value) {
		var endpoints []string
		for _, element := range b.nonempty(v) {
			if complaint := checkEndpoint(element.text); complaint != "" {
				b.fail(element, "%s", complaint)
				continue
			}
			known := understood()
			if near := nearest(element.text, known); near != "" && near != element.text {
				b.warn(element.at, "%s: this endpoint passes through without limits; did you mean %q?", element.path, near)
			}
			endpoints = b.once(endpoints, element)
		}
		*dst = endpoints
	}
}

// understood are the endpoints that the edge knows the shape of.
func understood() []string {
	return []string{"chat/completions", "completions", "responses", "embeddings", "messages", "models"}
}

func checkEndpoint(s string) string {
	for _, c := range []byte(s) {
		if !isNameByte(c) && c != '/' {
			s = ""
		}
	}
	switch {
	case s == "", strings.HasPrefix(s, "/"), strings.HasSuffix(s, "/"), strings.Contains(s, "//"):
		return `must be a path of a-z, 0-9, -, _ with single slashes between, like "chat/completions"`
	case strings.HasPrefix(s, "v1/"):
		return `must be without "v1/": that belongs to the upstream's url`
	}
	return ""
}

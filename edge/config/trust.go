package config

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

func (b *builder) secrets(dst *[]Secret) field {
	return func(v *value) {
		for _, element := range b.texts(v) {
			if secret, ok := b.secret(element); ok {
				*dst = append(*dst, secret)
			}
		}
	}
}

// secret reads a text that is to be sent as a header field. Files and
// variables often end with a newline, which is no part of it.
func (b *builder) secret(v *value) (Secret, bool) {
	text, source := v.text, ""
	if name, ok := strings.CutPrefix(text, "$"); ok {
		if !isVariable(name) {
			b.fail(v, `must have the name of an environment variable after "$"`)
			return Secret{}, false
		}
		source = " (the environment variable " + name + ")"
		if text, ok = b.environment(name); !ok || strings.TrimSpace(text) == "" {
			b.fail(v, "needs the environment variable %s, which is empty or not set", name)
			return Secret{}, false
		}
	}
	text = strings.TrimSpace(text)
	if text == "" {
		b.fail(v, "must not be empty: an upstream without a key has keys left out")
		return Secret{}, false
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			b.fail(v, "has a space, a newline or another character in it that no key has%s", source)
			return Secret{}, false
		}
	}
	return NewSecret(text), true
}

func (b *builder) environment(name string) (string, bool) {
	if b.lookup == nil {
		return "", false
	}
	return b.lookup(name)
}

func isVariable(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (b *builder) certificates(dst **x509.CertPool) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		file := v.text
		if !filepath.IsAbs(file) {
			file = filepath.Join(b.dir, file)
		}
		pem, err := os.ReadFile(file)
		if err != nil {
			b.fail(v, "cannot be read: %s", reason(err))
			return
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			b.fail(v, "holds no certificate in PEM form")
			return
		}
		*dst = pool
	}
}

// hashes reads those of a client's keys. They are no secrets, yet are not
// repeated: somebody will put the key itself here.
func (b *builder) hashes(dst *[][32]byte, client string) field {
	return func(v *value) {
		if v.kind == unstable.Array && (len(v.list) == 0 || len(v.list) > 2) {
			b.fail(v, "must be one hash, or two while a key is rotated")
		}
		for _, element := range b.texts(v) {
			hash, ok := parseHash(element.text)
			if !ok {
				b.fail(element, `must be "sha256:" and 64 hex digits, as "eisbach key" prints it`)
				continue
			}
			if owner, taken := b.owners[hash]; taken {
				b.fail(element, "is that of client.%s already: every key has one client", owner)
				continue
			}
			b.owners[hash] = client
			*dst = append(*dst, hash)
		}
	}
}

func parseHash(s string) (hash [sha256.Size]byte, ok bool) {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(digits) != hex.EncodedLen(len(hash)) {
		return hash, false
	}
	_, err := hex.Decode(hash[:], []byte(digits))
	return hash, err == nil
}

func (b *builder) auth(dst *[]string) field {
	return func(v *value) {
		var methods []string
		for _, element := range b.nonempty(v) {
			if element.text != "key" && element.text != "none" {
				b.fail(element, `must be "key" or "none"`)
				continue
			}
			methods = b.once(methods, element)
		}
		if len(methods) > 1 && slices.Contains(methods, "none") {
			b.fail(v, `must have "none" alone: with it nobody is asked for a key`)
		}
		*dst = methods
	}
}

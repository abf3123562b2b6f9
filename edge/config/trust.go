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

func (b *builder) certificates(dst **x509.CertPool) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		pem, err := os.ReadFile(b.resolve(v.text))
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

// resolve gives the path of a file that the configuration names.
func (b *builder) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(b.dir, path)
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

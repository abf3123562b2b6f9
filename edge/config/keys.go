package config

import (
	"errors"
	"io"
	"os"
	"strings"
)

// Reread reads the keys anew from where Keys came from: the environment, as
// Options.Lookup knows it now, and the key file. It is for a provider that
// refuses a key, which may have been rotated since. It may be called from
// several goroutines. Its error is Problems, as that of Load, and shows no key.
func (u *Upstream) Reread() ([]Secret, error) {
	if u.reread == nil {
		return u.Keys, nil
	}
	return u.reread()
}

// rereader keeps what it takes to read an upstream's keys again. It is a
// function, because fmt prints none of what that holds: the keys among it.
func (b *builder) rereader(t *table) func() ([]Secret, error) {
	file, dir, lookup := b.file, b.dir, b.lookup
	return func() ([]Secret, error) {
		again := &builder{file: file, dir: dir, lookup: lookup}
		keys := again.keys(t)
		if len(again.problems) > 0 {
			return nil, again.problems
		}
		return keys, nil
	}
}

// keys reads those of an upstream: the listed ones come before the key file's,
// in whatever order the two settings are.
func (b *builder) keys(t *table) []Secret {
	var keys []Secret
	if e := t.get("keys"); e != nil {
		b.secrets(&keys)(e.value)
	}
	if e := t.get("key_file"); e != nil {
		b.keyFile(&keys)(e.value)
	}
	return keys
}

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
	if !isKey(text) {
		b.fail(v, "has a space, a newline or another character in it that no key has%s", source)
		return Secret{}, false
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

// isKey keeps out what would break a header field, or be cut off from it.
func isKey(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return s != ""
}

// maxKeyFile is far beyond any list of keys: what is larger is another file.
const maxKeyFile = 64 << 10

// keyFile reads a key from each line that is neither blank nor a comment.
func (b *builder) keyFile(dst *[]Secret) field {
	return func(v *value) {
		var name string
		if b.text(&name)(v); name == "" {
			return
		}
		data, err := readKeyFile(b.resolve(name))
		if err != nil {
			b.fail(v, "cannot be read: %s", reason(err))
			return
		}
		if len(data) > maxKeyFile {
			b.fail(v, "is larger than 64 KiB: it holds one key a line")
			return
		}
		var keys []Secret
		for i, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			if !isKey(line) {
				b.fail(v, "has a space or another character that no key has in line %d of the file: it holds one key a line", i+1)
				return
			}
			keys = append(keys, NewSecret(line))
		}
		if len(keys) == 0 {
			b.fail(v, "holds no key: it has one a line, and comments behind #")
			return
		}
		*dst = append(*dst, keys...)
	}
}

// readKeyFile reads no more than it takes to see that a file is too large.
// Only a regular file can be read twice, and a pipe would hold up whoever asks.
func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKeyFile+1))
}

package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func reveal(keys []Secret) []string {
	var texts []string
	for _, key := range keys {
		texts = append(texts, key.Reveal())
	}
	return texts
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRereadFindsRotatedKeys(t *testing.T) {
	t.Setenv("CONFIG_TEST_REAL", "real")
	dir := t.TempDir()
	dotenv, keyFile := filepath.Join(dir, ".env"), filepath.Join(dir, "keys")
	write(t, dotenv, "CONFIG_TEST_KEY=old\n")
	write(t, keyFile, "old-of-file\n")
	lookup, err := Dotenv(dotenv)
	if err != nil {
		t.Fatal(err)
	}
	text := oneUpstream + "key_file = 'keys'\nkeys = ['literal', '$CONFIG_TEST_KEY', '$CONFIG_TEST_REAL']\n"
	c, err := Parse("t.toml", []byte(text), dir, lookup)
	if err != nil {
		t.Fatal(err)
	}
	u := c.Upstreams["one"]
	if got := reveal(u.Keys); !slices.Equal(got, []string{"literal", "old", "real", "old-of-file"}) || u.KeyFile != keyFile {
		t.Errorf("at first: %q, %s", got, u.KeyFile)
	}

	write(t, dotenv, "CONFIG_TEST_KEY=new\n")
	write(t, keyFile, "new-of-file\nmore\n")
	t.Setenv("CONFIG_TEST_REAL", "unreal")
	keys, err := u.Reread()
	if got := reveal(keys); err != nil || !slices.Equal(got, []string{"literal", "new", "unreal", "new-of-file", "more"}) {
		t.Errorf("after the rotation: %q, %v", got, err)
	}
	if got := reveal(u.Keys); !slices.Equal(got, []string{"literal", "old", "real", "old-of-file"}) {
		t.Errorf("the shared settings changed to %q", got)
	}

	f := func(spoil, file, want string) {
		t.Helper()
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, spoil)
		keys, err := u.Reread()
		var problems Problems
		if !errors.As(err, &problems) || err.Error() != want || keys != nil {
			t.Errorf("%q gives %v and %v, want %s", spoil, keys, err, want)
		}
		write(t, file, string(good))
		if _, err := u.Reread(); err != nil {
			t.Errorf("an error stays: %v", err)
		}
	}
	f("SECRET\nSECRET two\n", keyFile, "t.toml:3:12: upstream.one.key_file has a space or another character that no key has in line 2 of the file: it holds one key a line")
	f("", keyFile, "t.toml:3:12: upstream.one.key_file holds no key: it has one a line, and comments behind #")
	f("SECRET\n", dotenv, "t.toml:4:20: upstream.one.keys needs the environment variable CONFIG_TEST_KEY, which is empty or not set")
	f("CONFIG_TEST_KEY='SECRET two'\n", dotenv, "t.toml:4:20: upstream.one.keys has a space, a newline or another character in it that no key has (the environment variable CONFIG_TEST_KEY)")
}

func TestRereadOfFixedKeysGivesThem(t *testing.T) {
	f := func(u *Upstream, want ...string) {
		t.Helper()
		if keys, err := u.Reread(); err != nil || !slices.Equal(reveal(keys), want) {
			t.Errorf("got %q, %v, want %q", reveal(keys), err, want)
		}
	}
	f(parseText(t, oneUpstream).Upstreams["one"])
	f(parseText(t, oneUpstream+"keys = 'literal'\n").Upstreams["one"], "literal")
	f(&Upstream{Keys: []Secret{NewSecret("by-hand")}}, "by-hand")
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	f := func(text, wantProblem string, want ...string) {
		t.Helper()
		write(t, file, text)
		c, err := Parse("t.toml", []byte(oneUpstream+"key_file = '"+file+"'\n"), "elsewhere", nil)
		if wantProblem != "" {
			if err == nil || !strings.Contains(err.Error(), wantProblem) {
				t.Errorf("%.40q gives %v, want %s", text, err, wantProblem)
			}
			return
		}
		if err != nil || !slices.Equal(reveal(c.Upstreams["one"].Keys), want) || c.Upstreams["one"].KeyFile != file {
			t.Errorf("%.40q gives %v, %v", text, c, err)
		}
	}
	full := strings.Repeat("#", maxKeyFile-2) + "\nk"
	f("k", "", "k")
	f("\r\n k \r\n#c\r\n\tl", "", "k", "l")
	f("k#no-comment\n", "", "k#no-comment")
	f("$HOME\n", "", "$HOME")
	f(full, "", "k")
	f(full+"\n", "is larger than 64 KiB")
	f("\xef\xbb\xbfk", "in line 1 of the file")
	f("k\n\nk\x7f\n", "in line 3 of the file")
	f("k\nsch\u00fc\n", "in line 2 of the file")
}

// A pipe would hold up the start, or the request whose key was refused; a device
// may never end.
func TestOnlyRegularFilesAreKeyFiles(t *testing.T) {
	_, err := Parse("t.toml", []byte(oneUpstream+"key_file = '"+os.DevNull+"'\n"), "", nil)
	if want := "t.toml:3:12: upstream.one.key_file cannot be read: not a regular file"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Several requests may be refused at once; the race detector watches.
func TestRereadMayRunInParallel(t *testing.T) {
	c, err := Load(Options{File: "testdata/good.toml", Lookup: environment})
	if err != nil {
		t.Fatal(err)
	}
	u := c.Upstreams["infercom"]
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if keys, err := u.Reread(); err != nil || len(keys) != len(u.Keys) {
				t.Errorf("got %v, %v", keys, err)
			}
		})
	}
	group.Wait()
}

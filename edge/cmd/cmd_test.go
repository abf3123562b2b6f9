package cmd

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs the command line and gives what it printed.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"eisbach"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodesTellUsageFromFailure(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("listen = 1\nnope = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want int, stderr string, args ...string) {
		t.Helper()
		code, _, got := command(args...)
		if code != want || !strings.Contains(got, stderr) {
			t.Errorf("%v: exit code %d, %q", args, code, got)
		}
	}
	f(0, "")
	f(0, "", "--help")
	f(0, "", "serve", "--help")
	f(0, "", "version")
	f(2, "no command", "nope")
	f(2, "nope", "--nope")
	f(2, "nope", "serve", "--nope")
	f(2, "--config", "serve")
	f(2, "no argument", "dev", "nope")
	f(1, "nope.toml", "serve", "--config", "nope.toml")
	f(1, bad+":1:10: ", "serve", "--config", bad)
	f(1, bad+":2:1: ", "serve", "--config", bad)
	f(1, "", "dev", "--listen", "256.0.0.1:1")
	f(2, "--listen 8080", "dev", "--listen", "8080")
}

func TestAKeyIsPrintedWithItsHash(t *testing.T) {
	_, first, _ := command("key")
	_, second, _ := command("key")
	lines := strings.Split(first, "\n")
	if len(lines) != 3 || lines[1] != fmt.Sprintf("hash = \"sha256:%x\"", sha256.Sum256([]byte(lines[0]))) || len(lines[0]) < 43 {
		t.Errorf("printed %q", first)
	}
	if first == second {
		t.Error("the same key twice")
	}
}

func TestVersionTellsTheGoVersion(t *testing.T) {
	if _, out, _ := command("version"); !strings.HasPrefix(out, "eisbach ") || !strings.Contains(out, "commit") || !strings.Contains(out, "go1.") {
		t.Errorf("printed %q", out)
	}
}

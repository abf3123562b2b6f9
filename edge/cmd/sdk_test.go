package cmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"eisbach/pool/sim"
)

const (
	sdkClientKey   = "key-of-an-app"
	sdkUpstreamKey = "key-of-the-operator"
)

// sdkRoutes has heartbeats so early and often that slow answers have some.
const sdkRoutes = `
[upstream.plain]
url  = "%[1]s/v1"
keys = [%[3]q]

[upstream.tls]
url     = "%[2]s/v1"
keys    = [%[3]q]
ca_file = "ca.pem"

[upstream.stranger]
url  = "%[2]s/v1"
keys = [%[3]q]

[client.app]
hash = "sha256:%[4]x"

[route.default]
upstreams     = ["plain"]
heartbeat     = "20ms"
early_headers = "50ms"

[route.tls]
upstreams     = ["tls"]
heartbeat     = "20ms"
early_headers = "50ms"

[route.stranger]
upstreams = ["stranger"]
`

// sdkChecks are what each program in testdata/sdk must have checked.
var sdkChecks = []string{
	"lists models",
	"gets a whole answer",
	"gets a stream piece by piece",
	"gets usage when it asks",
	"gets no usage unasked",
	"gets a tool call",
	"waits through heartbeats",
	"reads what the upstream writes oddly",
	"raises a refused key",
	"raises an error in a stream",
	"raises a cut stream",
	"raises an overloaded upstream",
}

// The SDKs are those that apps use, as published: they know of Eisbach the base
// URL alone. Each runs as a process of its own, and so does the server.
func TestOfficialSDKsWorkThroughServe(t *testing.T) {
	provider := sim.Options{Params: sim.Instant(), Models: []string{"simulated"}, Keys: []string{sdkUpstreamKey}}
	plain := sim.Start(t, provider)
	private, ca := sim.StartTLS(t, provider)
	dir := t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.pem", ca)
	write("eisbach.toml", fmt.Appendf(nil, sdkRoutes, plain.URL, private.URL, sdkUpstreamKey, sha256.Sum256([]byte(sdkClientKey))))
	origin := startServe(t, dir)

	f := func(sdk string, program func(*testing.T) ([]string, error)) {
		t.Run(sdk, func(t *testing.T) {
			command, err := program(t)
			require(t, err)
			for _, cell := range []struct{ upstream, base string }{{"plain", "/v1"}, {"tls", "/tls/v1"}} {
				t.Run(cell.upstream, func(t *testing.T) { runSDK(t, append(command, origin+cell.base, sdkClientKey)) })
			}
		})
	}
	f("go", func(t *testing.T) ([]string, error) { return goProgram(t, "go", "go.mod") })
	f("node", func(*testing.T) ([]string, error) { return nodeProgram([]string{"openai"}, "check.mjs") })

	// Without ca_file the same provider is a stranger: above, its certificate was looked at.
	t.Run("a private authority is trusted only where ca_file names it", func(t *testing.T) {
		request, _ := http.NewRequest(http.MethodGet, origin+"/stranger/v1/models", nil)
		request.Header.Set("authorization", "Bearer "+sdkClientKey)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusBadGateway || !bytes.Contains(body, []byte(`"upstream_error"`)) {
			t.Errorf("got %d %s", answer.StatusCode, body)
		}
	})
}

// startServe builds the binary, runs its serve with the configuration in dir
// until the test has ended, and returns its origin. It must then obey SIGTERM.
func startServe(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "eisbach")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "eisbach").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	address := freeAddress(t)
	var log bytes.Buffer // read once the process has ended
	serve := exec.Command(binary, "serve", "--config", "eisbach.toml", "--listen", address)
	serve.Dir, serve.Env, serve.Stderr = dir, cleanEnvironment(), &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	t.Cleanup(func() {
		serve.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve ended after SIGTERM with %v", err)
			}
		case <-time.After(20 * time.Second):
			serve.Process.Kill()
			<-ended
			t.Error("serve did not end after SIGTERM")
		}
		if t.Failed() {
			t.Logf("serve said:\n%s", log.String())
		}
	})
	awaitReady(t, "http://"+address)
	return "http://" + address
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// cleanEnvironment lacks what would configure the server or an SDK.
func cleanEnvironment() []string {
	var out []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "EISBACH_") && !strings.HasPrefix(variable, "OPENAI_") {
			out = append(out, variable)
		}
	}
	return out
}

func awaitReady(t *testing.T, origin string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		answer, err := http.Get(origin + "/readyz")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("serve was not ready in time: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// runSDK makes a subtest of each line that the program prints.
func runSDK(t *testing.T, command []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Env, program.Stderr = cleanEnvironment(), &stderr
	out, err := program.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s", command[0], err, stderr.Bytes())
	}
	type report struct {
		Name   string
		OK     bool
		Detail string
	}
	reports := make(map[string]report)
	for line := range bytes.Lines(out) {
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		reports[r.Name] = r
	}
	for _, name := range sdkChecks {
		t.Run(name, func(t *testing.T) {
			if r, ok := reports[name]; !ok {
				t.Error("the program did not check this")
			} else if !r.OK {
				t.Error(r.Detail)
			}
		})
	}
	if len(reports) != len(sdkChecks) {
		t.Errorf("the program made %d checks, not %d", len(reports), len(sdkChecks))
	}
}

// goProgram builds the program in a folder of testdata/sdk, a module of its own
// so that its SDK is no dependency of Eisbach, with one of its mod files.
func goProgram(t *testing.T, folder, modfile string) ([]string, error) {
	folder = filepath.Join("testdata/sdk", folder)
	run := func(args ...string) ([]byte, error) {
		return exec.Command("go", append([]string{"-C", folder}, args...)...).CombinedOutput()
	}
	modfile = "-modfile=" + modfile
	if out, err := run("mod", "download", modfile); err != nil {
		return nil, absentError(fmt.Sprintf("its modules could not be downloaded (go -C edge/cmd/%s mod download %s): %s", folder, modfile, out))
	}
	binary := filepath.Join(t.TempDir(), "sdk")
	if out, err := run("build", modfile, "-buildvcs=false", "-o", binary, "."); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return []string{binary}, nil
}

// nodeProgram runs a script of testdata/sdk/node that needs npm packages, with
// the Node.js that those bring, or one that is there.
func nodeProgram(packages []string, script string, args ...string) ([]string, error) {
	const folder = "testdata/sdk/node"
	const remedy = " (make packages)"
	for _, name := range packages {
		if _, err := os.Stat(filepath.Join(folder, "node_modules", name)); err != nil {
			return nil, absentError("the npm package " + name + " is not installed" + remedy)
		}
	}
	for _, node := range []string{folder + "/node_modules/.bin/node", "node"} {
		out, err := exec.Command(node, "--version").Output()
		if err != nil {
			continue
		}
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if version, _ := strconv.Atoi(major); version >= 22 { // as the packages' engines say
			return append([]string{node, filepath.Join(folder, script)}, args...), nil
		}
	}
	return nil, absentError("there is no Node.js 22: install it, or the npm package that has it" + remedy)
}

// absentError says what a program lacks that the machine does not have, and how
// to get it.
type absentError string

func (e absentError) Error() string { return string(e) }

// require leaves the test out where something is absent. Any other error is one.
func require(t *testing.T, err error) {
	t.Helper()
	var absent absentError
	switch {
	case errors.As(err, &absent):
		leaveOut(t, "%v", err)
	case err != nil:
		t.Fatal(err)
	}
}

// leaveOut skips the test, but not where all that tests need must be there.
func leaveOut(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

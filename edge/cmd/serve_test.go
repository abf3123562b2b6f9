package cmd

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"eisbach/pool/sim"
)

// process is a running eisbach serve.
type process struct {
	t      *testing.T
	config string
	url    string
	cmd    *exec.Cmd
	mu     sync.Mutex
	log    bytes.Buffer
	ended  chan struct{}
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// says waits until its log has a text for the nth time.
func (p *process) says(text string, n int) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		log := p.log.String()
		p.mu.Unlock()
		if strings.Count(log, text) >= n {
			return
		}
	}
	p.t.Fatalf("%q was not logged %d times: %s", text, n, p.log.String())
}

func (p *process) configure(format string, args ...any) {
	p.t.Helper()
	if err := os.WriteFile(p.config, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end and gives the exit code.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		p.t.Fatal("it did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func startProcess(t *testing.T, format string, args ...any) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, config: filepath.Join(dir, "eisbach.toml"), ended: make(chan struct{})}
	p.configure(format, args...)
	binary := filepath.Join(dir, "eisbach")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "eisbach").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	address := freeAddress(t)
	p.url = "http://" + address
	p.cmd = exec.Command(binary, "serve", "--config", p.config, "--listen", address)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = dir, cleanEnvironment(), p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	awaitReady(t, p.url)
	return p
}

// ask gives the status and body of a chat, as a stream or not.
func (p *process) ask(model string, stream bool) (int, string) {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":"hi"}]}`, model, stream)
	response, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Error(err)
	}
	return response.StatusCode, string(b)
}

const oneUpstream = "[upstream.a]\nurl = \"%s/v1\"\n[route.default]\nauth = \"none\"\nmodels = { %s = \"sim_tokens=3\", slow = \"sim_tokens=20_tpot=30ms\" }\n"

func TestAReloadPutsAGoodFileInForceAndLeavesStreamsAndABadOneAlone(t *testing.T) {
	s := sim.Start(t, sim.Options{})
	p := startProcess(t, oneUpstream, s.URL, "old")
	status := func(model string, want int) {
		t.Helper()
		if got, body := p.ask(model, false); got != want {
			t.Errorf("%s: %d %s", model, got, body)
		}
	}
	status("old", 200)
	accepted := s.Stats().Accepted
	running := make(chan string, 1)
	go func() {
		_, body := p.ask("slow", true)
		running <- body
	}()
	for s.Stats().Active == 0 {
		time.Sleep(time.Millisecond)
	}
	p.configure("tiemout = 1\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.says("not reloaded", 1)
	p.says("eisbach.toml:1:1: ", 1)
	status("old", 200)
	p.configure(oneUpstream, s.URL, "new")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.says(`"reloaded"`, 1)
	status("new", 200)
	status("old", 404)
	if body := <-running; !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream that ran: %q", body)
	}
	if n := s.Stats().Accepted; n > accepted+1 {
		t.Errorf("%d connections for two requests at once: the warm ones were not kept", n)
	}
}

func TestAFirstSignalDrainsAndASecondEndsAtOnce(t *testing.T) {
	s := sim.Start(t, sim.Options{})
	p := startProcess(t, oneUpstream, s.URL, "old")
	done := make(chan string, 1)
	go func() {
		_, body := p.ask("slow", true)
		done <- body
	}()
	for s.Stats().Active == 0 {
		time.Sleep(time.Millisecond)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.says("draining", 1)
	if got, body := p.ask("old", false); got != 503 || !strings.Contains(body, `"draining"`) {
		t.Errorf("while it drains: %d %s", got, body)
	}
	if body := <-done; !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream that ran: %q", body)
	}
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	p = startProcess(t, oneUpstream, s.URL, "old")
	go http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"slow","messages":[{"role":"user","content":"hi"}]}`))
	for s.Stats().Active == 0 {
		time.Sleep(time.Millisecond)
	}
	p.cmd.Process.Signal(os.Interrupt)
	p.says("draining", 1)
	p.cmd.Process.Signal(os.Interrupt)
	if code := p.code(); code != 1 {
		t.Errorf("exit code %d after a second signal", code)
	}
}

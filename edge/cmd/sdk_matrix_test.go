package cmd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"eisbach/pool/sim"
)

const matrixRoutes = `
[upstream.stage]
url  = "%[1]s/v1"
keys = [%[2]q]

[client.app]
hash = "sha256:%[3]x"

[route.default]
upstreams     = ["stage"]
endpoints     = ["chat/completions", "messages"]
heartbeat     = "1s"
early_headers = "1s"
`

// sdkClient is a client that apps use, and what of a stream it shows to them.
type sdkClient struct {
	name, version string // what the version begins with
	// program gives the command of its program. Without one it is curl.
	program   func(*testing.T) ([]string, error)
	messages  bool     // it knows the Messages API, not chats
	reasoning []string // the members of a delta that it takes for reasoning
	failure   string   // what it shows of an error: message, code, type
}

func sdkClients() []sdkClient {
	goClient := func(folder, modfile string) func(*testing.T) ([]string, error) {
		return func(t *testing.T) ([]string, error) { return goProgram(t, "matrix/"+folder, modfile) }
	}
	nodeClient := func(name string, packages ...string) func(*testing.T) ([]string, error) {
		return func(*testing.T) ([]string, error) { return nodeProgram(packages, "matrix.mjs", name) }
	}
	both := []string{"reasoning", "reasoning_content"}
	const all = "message code type"
	return []sdkClient{
		{"openai", "7.", nodeClient("openai", "openai"), false, both, all},
		{"openai", "6.", nodeClient("openai6", "openai6"), false, both, all},
		{"openai", "4.", nodeClient("openai4", "openai4"), false, both, all},
		{"sambanova", "1.", nodeClient("sambanova", "sambanova"), false, both, all},
		{"ai", "7.", nodeClient("ai", "ai", "@ai-sdk/openai-compatible"), false, both, all},
		{"ai", "6.", nodeClient("ai6", "ai6", "openai-compatible2"), false, both, all},
		{"@langchain/openai", "1.", nodeClient("langchain", "@langchain/openai"), false, both[1:], all},
		{"@anthropic-ai/sdk", "1.", nodeClient("anthropic", "@anthropic-ai/sdk"), true, nil, "message type"},
		{"openai-go", "v3.99.", goClient("openai-go-3", "go.mod"), false, both, all},
		{"openai-go", "v3.42.", goClient("openai-go-3", "old.mod"), false, both, all},
		{"openai-go", "v1.", goClient("openai-go-1", "go.mod"), false, both, all},
		// go-openai takes the name of the event for a part of the error's JSON.
		{"go-openai", "v1.", goClient("go-openai", "go.mod"), false, both[1:], ""},
		{"curl", "", nil, false, both, all},
	}
}

func (c *sdkClient) String() string {
	return strings.TrimSpace(c.name + " " + strings.Trim(c.version, "."))
}

// sighting is what a client showed of a stream: see testdata/sdk/matrix/client.
type sighting struct {
	Model, SDK, Text, Reasoning string
	Finish                      []string
	Usage                       []tokens
	Tools                       []toolCall
	Error                       *streamFailure
	beats                       [2]int // before the first delta and behind it: curl's alone
}

type tokens struct{ Prompt, Completion int }

type toolCall struct{ ID, Name, Arguments string }

type streamFailure struct{ Message, Code, Type string }

// question is what a client is to ask: see testdata/sdk/matrix/client.
type question struct {
	Model        string
	Usage, Tools bool
}

// Each client, as published, asks for a stream in each situation, and must show
// what the upstream said: no more, no less, and each piece when it came.
func TestEveryOfficialClientSeesATrueStream(t *testing.T) {
	stage := new(stage)
	upstream := sim.Start(t, sim.Options{Keys: []string{sdkUpstreamKey}})
	upstream.Script(stage.answer)
	signal := httptest.NewServer(stage)
	defer signal.Close()
	dir := t.TempDir()
	routes := fmt.Appendf(nil, matrixRoutes, upstream.URL, sdkUpstreamKey, sha256.Sum256([]byte(sdkClientKey)))
	if err := os.WriteFile(filepath.Join(dir, "eisbach.toml"), routes, 0o600); err != nil {
		t.Fatal(err)
	}
	base := startServe(t, dir) + "/v1"

	clients := sdkClients()
	runs := make([]*sdkRun, len(clients))
	busy := make(chan struct{}, 2) // a client's start keeps a processor busy
	var running sync.WaitGroup
	for i := range clients {
		runs[i] = &sdkRun{client: &clients[i], stage: stage, base: base, key: sdkClientKey, signal: signal.URL}
		running.Go(func() { runs[i].all(t, busy) })
	}
	running.Wait()
	for _, run := range runs {
		t.Run(run.client.String(), run.judge)
	}
	t.Logf("what the clients saw:\n%s", table(runs))

	old := runs[slices.IndexFunc(clients, func(c sdkClient) bool { return strings.HasPrefix(c.version, "v3.42") })]
	fresh := runs[slices.IndexFunc(clients, func(c sdkClient) bool { return strings.HasPrefix(c.version, "v3.99") })]
	t.Run("a client that can't read what it gets is seen to fail", func(t *testing.T) {
		for _, run := range []*sdkRun{fresh, old} {
			require(t, run.err)
			control := commentBlock()
			direct := sdkRun{client: run.client, stage: stage, command: run.command, base: upstream.URL + "/v1", key: sdkUpstreamKey, signal: signal.URL}
			if err := direct.ask(t.Context(), []situation{control}, func() {}); err != nil {
				t.Fatal(err)
			}
			err := direct.verdict(&control)
			if failed := err != nil; failed != (run == old) {
				t.Errorf("%v: %v", run.client, err)
			}
		}
	})
}

// sdkRun is one client's way through the situations.
type sdkRun struct {
	client            *sdkClient
	stage             *stage
	base, key, signal string
	command           []string
	sightings         map[string]*sighting // by model
	took              time.Duration
	err               error
}

// all builds the client's program and asks for everything. It is busy until
// only silence is left to wait for.
func (r *sdkRun) all(t *testing.T, busy chan struct{}) {
	busy <- struct{}{}
	quiet := sync.OnceFunc(func() { <-busy })
	defer quiet()
	start := time.Now()
	if r.client.program != nil {
		if r.command, r.err = r.client.program(t); r.err != nil {
			return
		}
	} else if _, err := exec.LookPath("curl"); err != nil {
		r.err = absentError("curl is not installed")
		return
	}
	r.err = r.ask(t.Context(), r.client.situations(), quiet)
	r.took = time.Since(start)
}

// situations are those that the client can get into.
func (c *sdkClient) situations() []situation {
	return slices.DeleteFunc(situations(), func(s situation) bool { return c.messages && s.messages == nil })
}

func (r *sdkRun) model(s *situation) string { return s.name + "@" + r.client.String() }

// ask asks for all at once. It calls quiet when all but the silence is over.
func (r *sdkRun) ask(ctx context.Context, all []situation, quiet func()) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	questions := make([]question, len(all))
	for i, s := range all {
		questions[i] = question{Model: r.model(&s), Usage: s.usage, Tools: s.tools}
	}
	r.sightings = make(map[string]*sighting)
	var noting sync.Mutex
	note := func(s *sighting) {
		noting.Lock()
		defer noting.Unlock()
		r.sightings[s.Model] = s
		if len(r.sightings) == len(all)-1 {
			quiet()
		}
	}
	if r.command == nil {
		return r.askByCurl(ctx, questions, note)
	}
	in, _ := json.Marshal(questions)
	var stderr bytes.Buffer
	program := exec.CommandContext(ctx, r.command[0], append(r.command[1:], r.base, r.key, r.signal)...)
	program.Env, program.Stdin, program.Stderr = cleanEnvironment(), bytes.NewReader(in), &stderr
	out, err := program.StdoutPipe()
	if err != nil {
		return err
	}
	if err := program.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s := new(sighting)
		if err := json.Unmarshal(lines.Bytes(), s); err != nil {
			s.Error = &streamFailure{Message: lines.Text()}
		}
		note(s)
	}
	if err := program.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return nil
}

func (r *sdkRun) judge(t *testing.T) {
	require(t, r.err)
	for _, s := range r.client.situations() {
		t.Run(s.name, func(t *testing.T) {
			if err := r.verdict(&s); err != nil {
				t.Error(err)
			}
		})
	}
}

// verdict holds what the client showed against what there was to see.
func (r *sdkRun) verdict(s *situation) error {
	got, ok := r.sightings[r.model(s)]
	want := r.client.expects(s)
	switch {
	case !ok:
		return errors.New("the client said nothing of it")
	case !strings.HasPrefix(got.SDK, r.client.version):
		return fmt.Errorf("this is version %q", got.SDK)
	case got.Error == nil && want.Error != nil, got.Error != nil && want.Error == nil:
		return fmt.Errorf("got the error %+v after %q, want %+v", got.Error, got.Text, want.Error)
	case got.Text != want.Text || got.Reasoning != want.Reasoning:
		return fmt.Errorf("got the text %q and the reasoning %q", got.Text, got.Reasoning)
	case !slices.Equal(got.Finish, want.Finish):
		return fmt.Errorf("got the finish reasons %q, want %q", got.Finish, want.Finish)
	case !slices.Equal(got.Tools, want.Tools):
		return fmt.Errorf("got the calls %q", got.Tools)
	case r.stage.gate(r.model(s)).missed.Load():
		return errors.New("the first delta came only with the end")
	case r.client.program == nil && s.name == silence && (got.beats[0] < 1 || got.beats[1] < 1):
		return fmt.Errorf("got %d heartbeats", got.beats)
	}
	if want.Error != nil && (got.Error.Code != want.Error.Code || got.Error.Type != want.Error.Type || !strings.Contains(got.Error.Message, want.Error.Message)) {
		return fmt.Errorf("got the error %+v", *got.Error)
	}
	if want.Error == nil && !slices.Equal(got.Usage, want.Usage) {
		return fmt.Errorf("got the usage %v, want %v", got.Usage, want.Usage)
	}
	return nil
}

// expects is what of a situation the client can show.
func (c *sdkClient) expects(s *situation) sighting {
	want := s.want
	if c.messages && s.wantMessages != nil {
		want = *s.wantMessages
	}
	if s.member != "" && !c.messages && !slices.Contains(c.reasoning, s.member) {
		want.Reasoning = ""
	}
	if s.usage || c.messages {
		want.Usage = []tokens{{5, 7}}
	}
	if c.messages {
		want.Finish = slices.Clone(want.Finish)
		for i, reason := range want.Finish {
			want.Finish[i] = map[string]string{"stop": "end_turn", "tool_calls": "tool_use"}[reason]
		}
	}
	if want.Error != nil {
		want.Error = c.shows(*want.Error)
	}
	return want
}

// shows leaves out what the client does not show of an error.
func (c *sdkClient) shows(f streamFailure) *streamFailure {
	if c.messages {
		f.Type = "api_error"
	}
	for part, value := range map[string]*string{"message": &f.Message, "code": &f.Code, "type": &f.Type} {
		if !strings.Contains(c.failure, part) {
			*value = ""
		}
	}
	return &f
}

// table has a row for each client and a column for each situation.
func table(runs []*sdkRun) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	io.WriteString(w, "client")
	for _, s := range situations() {
		io.WriteString(w, "\t"+s.name)
	}
	io.WriteString(w, "\ttook\n")
	for _, r := range runs {
		version := r.client.version
		for _, s := range r.sightings {
			version = s.SDK
		}
		fmt.Fprintf(w, "%s %s", r.client.name, version)
		for _, s := range situations() {
			io.WriteString(w, "\t"+r.mark(&s))
		}
		fmt.Fprintf(w, "\t%.1fs\n", r.took.Seconds())
	}
	w.Flush()
	return out.String()
}

func (r *sdkRun) mark(s *situation) string {
	switch {
	case r.client.messages && s.messages == nil:
		return "-"
	case r.err != nil:
		return "left out"
	case r.verdict(s) != nil:
		return "FAILED"
	}
	return "ok"
}

// askByCurl asks with a curl for each question.
func (r *sdkRun) askByCurl(ctx context.Context, questions []question, note func(*sighting)) error {
	about, err := exec.CommandContext(ctx, "curl", "--version").Output()
	if err != nil {
		return err
	}
	version := strings.Fields(string(about))[1]
	var running sync.WaitGroup
	for _, q := range questions {
		running.Go(func() {
			s := &sighting{Model: q.Model, SDK: version}
			if err := r.curl(ctx, q, s); err != nil {
				s.Error = &streamFailure{Message: err.Error()}
			}
			note(s)
		})
	}
	running.Wait()
	return nil
}

func (r *sdkRun) curl(ctx context.Context, q question, s *sighting) error {
	body, _ := json.Marshal(map[string]any{
		"model": q.Model, "stream": true, "stream_options": map[string]bool{"include_usage": q.Usage},
		"messages": []map[string]string{{"role": "user", "content": "Hello"}},
	})
	curl := exec.CommandContext(ctx, "curl", "-sSN", "--fail", "-H", "content-type: application/json",
		"-H", "authorization: Bearer "+r.key, "-d", string(body), r.base+"/chat/completions")
	out, err := curl.StdoutPipe()
	if err != nil {
		return err
	}
	if err := curl.Start(); err != nil {
		return err
	}
	seen := wireReader{sighting: s, first: func() { r.stage.seen(q.Model) }}
	for lines := bufio.NewScanner(out); lines.Scan() && err == nil; {
		err = seen.line(lines.Text())
	}
	return errors.Join(err, curl.Wait(), seen.end())
}

// wireReader reads a stream line by line as the contract has it, and nothing else.
type wireReader struct {
	*sighting
	first       func() // nil once it was called
	named, data string // of the event that is not yet over
	done        bool
}

func (w *wireReader) line(line string) error {
	data, isData := strings.CutPrefix(line, "data: ")
	switch {
	case w.done:
		return fmt.Errorf("behind the end there is %q", line)
	case line == ":" && w.named == "" && w.data == "":
		if w.first != nil {
			w.beats[0]++
		} else {
			w.beats[1]++
		}
	case line == "event: error" && w.named == "" && w.data == "":
		w.named = "error"
	case isData && w.data == "":
		w.data = data
	case line == "" && w.data == "[DONE]" && w.named == "":
		w.done = true
	case line == "" && w.data != "":
		err := w.event()
		w.named, w.data = "", ""
		return err
	default:
		return fmt.Errorf("got the line %q", line)
	}
	return nil
}

// wireChunk has the types that the strictest clients have.
type wireChunk struct {
	Choices *[]wireChoice   `json:"choices"`
	Created int64           `json:"created"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

type wireChoice struct {
	Finish string `json:"finish_reason"`
	Delta  struct {
		Content          string     `json:"content"`
		Reasoning        string     `json:"reasoning"`
		ReasoningContent string     `json:"reasoning_content"`
		Calls            []wireCall `json:"tool_calls"`
	} `json:"delta"`
}

type wireCall struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (w *wireReader) event() error {
	var chunk wireChunk
	if err := json.Unmarshal([]byte(w.data), &chunk); err != nil {
		return err
	}
	if len(chunk.Error) > 0 || w.named != "" {
		w.done = true
		w.Error = new(streamFailure)
		return json.Unmarshal(chunk.Error, w.Error)
	}
	if chunk.Choices == nil {
		return fmt.Errorf("a chunk has no choices: %s", w.data)
	}
	if chunk.Usage != nil {
		w.Usage = append(w.Usage, tokens{chunk.Usage.Prompt, chunk.Usage.Completion})
	}
	for _, choice := range *chunk.Choices {
		w.Text += choice.Delta.Content
		w.Reasoning += choice.Delta.Reasoning + choice.Delta.ReasoningContent
		for _, call := range choice.Delta.Calls {
			if err := w.call(call); err != nil {
				return err
			}
		}
		if choice.Finish != "" {
			w.Finish = append(w.Finish, choice.Finish)
		}
	}
	if w.first != nil && (w.Text+w.Reasoning != "" || len(w.Tools) > 0) {
		w.first()
		w.first = nil
	}
	return nil
}

func (w *wireReader) call(piece wireCall) error {
	if piece.Index == nil || *piece.Index > len(w.Tools) {
		return fmt.Errorf("a piece of a call has no fitting index: %s", w.data)
	}
	if *piece.Index == len(w.Tools) {
		w.Tools = append(w.Tools, toolCall{})
	}
	call := &w.Tools[*piece.Index]
	call.ID += piece.ID
	call.Name += piece.Function.Name
	call.Arguments += piece.Function.Arguments
	return nil
}

func (w *wireReader) end() error {
	if !w.done {
		return errors.New("the stream has neither [DONE] nor an error")
	}
	return nil
}

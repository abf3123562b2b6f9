package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"eisbach/edge/auth"
	"eisbach/pool"
	"eisbach/pool/watch"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp's clock, and its cleaner, which looks for its server's end every 10 s
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// soon is far beyond what a test that works waits for anything.
const soon = 10 * time.Second

// upstream is a provider that the test plays, byte by byte.
type upstream struct {
	addr     string
	conns    atomic.Int64
	requests atomic.Int64
}

// call is one request that an upstream got.
type call struct {
	net.Conn
	req  *http.Request
	n    int64 // from 1
	body string
}

// say writes to the edge; "|" between two pieces is a pause.
func (c *call) say(pieces ...string) {
	for i, s := range pieces {
		if i > 0 {
			time.Sleep(30 * time.Millisecond)
		}
		io.WriteString(c, s)
	}
}

func (c *call) reset() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// left waits until the edge has closed the connection.
func (c *call) left() bool {
	c.SetReadDeadline(time.Now().Add(soon))
	_, err := c.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	return err != nil && !(ok && timeout.Timeout())
}

func play(t testing.TB, answer func(c *call)) *upstream {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{addr: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			u.conns.Add(1)
			wg.Go(func() {
				defer nc.Close()
				for r := bufio.NewReader(nc); ; {
					request, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					body, err := io.ReadAll(request.Body)
					if err != nil {
						return
					}
					answer(&call{Conn: nc, req: request, n: u.requests.Add(1), body: string(body)})
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return u
}

const (
	jsonHead   = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
	streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" // ends with its connection
	role       = `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	hi         = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}` + "\n\n"
	stop       = `data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usage      = `data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}` + "\n\n"
	done       = "data: [DONE]\n\n"
	completion = `{"id":"c1","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

	wholeBody   = `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`
	streamBody  = `{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	streamUsage = `{"model":"m1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
)

func whole(body string) string {
	return fmt.Sprintf("%scontent-length: %d\r\n\r\n%s", jsonHead, len(body), body)
}

// lines is what a server wrote down.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// front is a server under test.
type front struct {
	t       testing.TB
	server  *Server
	url     string
	addr    string
	table   *Table
	route   *Route
	records *lines
	client  *http.Client
	ups     []*pool.Upstream
}

// open starts a server over upstreams; adjust may change its table before.
func open(t testing.TB, adjust func(*Table), ups ...*upstream) *front {
	t.Helper()
	w, err := watch.New()
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, records: &lines{}, client: &http.Client{Transport: &http.Transport{}}}
	f.route = &Route{
		Name: "default", Endpoints: []string{"chat/completions", "completions", "embeddings", "messages", "responses", "models", "audio/transcriptions"},
		Open: true, MaxEvent: 1 << 20, Connect: soon, FirstToken: soon, Idle: soon, Total: 3 * soon,
	}
	for i, u := range ups {
		p := pool.New(pool.Config{Name: fmt.Sprint("u", i+1), URL: &url.URL{Scheme: "http", Host: u.addr, Path: "/base/v1"}, Keys: []string{"UK-cccc3333dddd4444"}, MaxConns: 1000}, w)
		f.ups = append(f.ups, p)
	}
	f.route.Upstreams, f.route.Secrets = f.ups, []string{"UK-cccc3333dddd4444"}
	f.table = &Table{Routes: map[string]*Route{"default": f.route}, Keys: auth.NewKeys(), MaxBody: 1 << 20}
	if adjust != nil {
		adjust(f.table)
	}
	f.server = New(f.table, w, slog.New(slog.NewTextHandler(f.records, nil)), f.records)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	f.url = "http://" + f.addr
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ln) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		f.server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, p := range f.ups {
			p.Close()
			if n := p.Stats().Open; n != 0 {
				t.Errorf("%d connections to the upstream are left", n)
			}
		}
		w.Close()
	})
	return f
}

// post asks for an answer and reads it.
func (f *front) post(path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequest("POST", f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.do(r)
}

func (f *front) chat(body string) (*http.Response, string) {
	f.t.Helper()
	return f.post("/v1/chat/completions", body)
}

func (f *front) do(r *http.Request) (*http.Response, string) {
	f.t.Helper()
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return response, string(b) + "<" + err.Error() + ">"
	}
	return response, string(b)
}

// raw sends bytes on a connection of its own and reads until the end of it.
func (f *front) raw(request string) string {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Errorf("dial: %v", err)
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	io.WriteString(c, request)
	b, err := io.ReadAll(c)
	if err != nil {
		return string(b) + "<" + err.Error() + ">"
	}
	return string(b)
}

// entry is a request's record, as tests look at it.
type entry struct {
	ID         string   `json:"request_id"`
	Route      string   `json:"route"`
	Model      string   `json:"model"`
	Upstream   string   `json:"upstream"`
	User       string   `json:"user"`
	Status     int      `json:"status"`
	Outcome    string   `json:"outcome"`
	Prompt     int      `json:"prompt_tokens"`
	Completion int      `json:"completion_tokens"`
	Usage      string   `json:"usage"`
	Attempts   int      `json:"attempts"`
	TTFT       *float64 `json:"ttft_ms"`
	Total      float64  `json:"total_ms"`
	Edge       float64  `json:"edge_ms"`
}

// record waits for the nth record, from 1.
func (f *front) record(n int) entry {
	f.t.Helper()
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		f.records.mu.Lock()
		text := f.records.buf.String()
		f.records.mu.Unlock()
		all := strings.SplitAfter(text, "\n")
		found := 0
		for _, line := range all {
			if !strings.Contains(line, `"msg":"request"`) {
				continue
			}
			if found++; found == n {
				var e entry
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					f.t.Fatalf("%q: %v", line, err)
				}
				return e
			}
		}
	}
	f.t.Fatalf("record %d did not come", n)
	return entry{}
}

// failure is an error body, as tests look at it.
type failure struct {
	Error struct {
		Message, Type, Code string
		Param               *string
	}
}

func parseFailure(t testing.TB, body string) failure {
	t.Helper()
	var e failure
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%q is not an error object: %v", body, err)
	}
	return e
}

// keyed lets only key in.
func keyed(key, user string, routes ...string) func(*Table) {
	return func(t *Table) {
		t.Routes["default"].Open = false
		t.Keys.Add(sha256.Sum256([]byte(key)), auth.Identity{User: user, Routes: routes})
	}
}

package edge

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/pool"
	"eisbach/pool/watch"
)

// Chunks as providers write them.
const (
	chunkHi    = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}` + "\n\n"
	chunkStop  = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	chunkUsage = `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}` + "\n\n"

	chunkedStreamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
	lastChunk         = "0\r\n\r\n"
)

// content is a chunk that says s.
func content(s string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + s + `"},"finish_reason":null}]}` + "\n\n"
}

// peer is a client's connection that is used for more than one request.
type peer struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (f *front) dial() *peer {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	return &peer{Conn: c, t: f.t, r: bufio.NewReader(c)}
}

// send writes a request, "|" between two pieces being a pause.
func (p *peer) send(pieces ...string) { (&call{Conn: p.Conn}).say(pieces...) }

// answer reads one answer to a request with that method.
func (p *peer) answer(method string) (int, string) {
	p.t.Helper()
	response, err := http.ReadResponse(p.r, &http.Request{Method: method})
	if err != nil {
		p.t.Errorf("no answer: %v", err)
		return 0, ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, string(body) + "<" + err.Error() + ">"
	}
	return response.StatusCode, string(body)
}

// over reports whether the connection has ended, and with nothing more to read.
func (p *peer) over() bool {
	_, err := p.r.ReadByte()
	timeout, ok := err.(net.Error)
	return err != nil && !(ok && timeout.Timeout())
}

// kept is a request that leaves the connection open.
func kept(path, headers, body string) string {
	return strings.Replace(post(path, headers, body), "connection: close\r\n", "", 1)
}

// narrow makes a table whose upstream is at an address and has few connections.
func narrow(t testing.TB, address string, conns int) (*pool.Upstream, func(*Table)) {
	t.Helper()
	w, err := watch.New()
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := pool.New(pool.Config{Name: "narrow", URL: at, MaxConns: conns}, w)
	t.Cleanup(func() {
		p.Close()
		w.Close()
	})
	return p, func(table *Table) { table.Routes["default"].Upstreams = []*pool.Upstream{p} }
}

func TestWhatProvidersWriteBecomesWhatEveryClientReads(t *testing.T) {
	f := func(name, from, want string, prompt, completion int, outcome string) {
		t.Helper()
		u := play(t, func(c *call) { c.say(chunkedStreamHead, hexChunk(from)+lastChunk) })
		s := open(t, nil, u)
		response, body := s.chat(streamUsage)
		if response.StatusCode != 200 || body != want {
			t.Errorf("%s: %d %q\nwant %q", name, response.StatusCode, body, want)
		}
		if r := s.record(1); r.Outcome != outcome || r.Prompt != prompt || r.Completion != completion || r.Usage != "actual" {
			t.Errorf("%s: record %+v", name, r)
		}
	}
	good := chunkHi + chunkStop + chunkUsage + done
	cr := func(s string) string { return strings.ReplaceAll(s, "\n\n", "\r\r") }
	f("bare CR, then LF", cr(content("A")+chunkStop+chunkUsage)+done, content("A")+chunkStop+chunkUsage+done, 3, 1, "success")
	f("an id before the first event", "id: 1\n"+good, good, 3, 1, "success")
	f("no space behind the colon", strings.ReplaceAll(good, "data: ", "data:"), strings.ReplaceAll(chunkHi+chunkStop+chunkUsage, "data: ", "data:")+done, 3, 1, "success")
	f("one chunk on several data lines",
		chunkHi+chunkStop+`data: {"id":"c1","object":"chat.completion.chunk","choices":[],`+"\n"+`data: "usage":{"prompt_tokens":3,`+"\n"+`data: "completion_tokens":1,"total_tokens":4}}`+"\n\n"+done,
		chunkHi+chunkStop+`data: {"id":"c1","object":"chat.completion.chunk","choices":[], "usage":{"prompt_tokens":3, "completion_tokens":1,"total_tokens":4}}`+"\n\n"+done, 3, 1, "success")
	f("data that says nothing", "data: null\n\ndata:\n\ndata: \n\nevent: ping\ndata: {}\n\nevent: keepalive\n\n"+good, good, 3, 1, "success")
	f("comments", ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n"+good, good, 3, 1, "success")
	f("usage and a mark behind the mark", chunkHi+chunkStop+done+chunkUsage+done, chunkHi+chunkStop+done, 3, 1, "success")

	total := func(n int) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n", n, 10+n)
	}
	w := strings.TrimSuffix(content("w"), "}\n\n") + ","
	running := w + total(1) + w + total(2) + w + total(3) + chunkStop +
		`data: {"id":"c1","object":"chat.completion.chunk","choices":[],` + total(3) + done
	f("running totals", running, running, 10, 3, "success")
	const spent = `,"usage":{"prompt_tokens":23,"completion_tokens":235,"total_tokens":258}}` + "\n\n"
	const length = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"length"}]`
	const trailer = `data: {"id":"c1","object":"chat.completion.chunk","choices":[]` + spent
	for _, s := range []string{chunkHi + length + spent + trailer + done, chunkHi + length + spent + done, chunkHi + length + "}\n\n" + trailer + done} {
		f("usage on the last chunk or behind it", s, s, 23, 235, "success")
	}
	broken := content("Half") + strings.Replace(chunkStop, "stop", "insufficient_system_resource", 1) + chunkUsage + done
	f("a provider that gives up", broken, broken, 3, 1, "upstream_error")
}

func TestChunksWithoutChoicesDoNoHarm(t *testing.T) {
	filter := `data: {"id":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}` + "\n\n"
	u := play(t, func(c *call) {
		c.say(streamHead + filter + chunkHi + chunkStop + strings.Replace(chunkUsage, "[]", "null", 1) + `data: {"id":"c1","object":"chat.completion.chunk"}` + "\n\n" + done)
		c.Close()
	})
	s := open(t, nil, u)
	response, body := s.chat(streamUsage)
	if response.StatusCode != 200 || !strings.HasPrefix(body, filter+chunkHi+chunkStop) || !strings.HasSuffix(body, done) || strings.Contains(body, "error") {
		t.Errorf("%d %q", response.StatusCode, body)
	}
	if r := s.record(1); r.Outcome != "success" || r.Prompt != 3 || r.Completion != 1 || r.Usage != "actual" {
		t.Errorf("record %+v", r)
	}
}

func TestToolCallsPassAsTheyWereWritten(t *testing.T) {
	call1 := `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"x\":1}"}}]},"finish_reason":null}]}` + "\n\n"
	call2 := `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_b","function":{"arguments":"{}"}}]},"finish_reason":null}]}` + "\n\n"
	end := strings.Replace(chunkStop, "stop", "tool_calls", 1) + done
	u := play(t, func(c *call) { c.say(streamHead + call1 + call2 + end); c.Close() })
	s := open(t, nil, u)
	if _, body := s.chat(streamUsage); !strings.HasPrefix(body, call1) || !strings.HasSuffix(body, end) || !strings.Contains(body, `"call_b"`) {
		t.Errorf("got %q", body)
	}
	if r := s.record(1); r.Outcome != "success" || r.TTFT == nil {
		t.Errorf("record %+v", r)
	}
}

func TestTheLastRunningTotalCountsWhereAStreamIsCut(t *testing.T) {
	w := strings.TrimSuffix(content("w"), "}\n\n") + `,"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}` + "\n\n"
	u := play(t, func(c *call) {
		c.say(streamHead+fmt.Sprintf(w, 1, 11)+fmt.Sprintf(w, 2, 12)+fmt.Sprintf(w, 3, 13), "")
		c.reset()
	})
	s := open(t, nil, u)
	s.chat(streamUsage)
	if r := s.record(1); r.Outcome != "upstream_disconnected" || r.Prompt != 10 || r.Completion != 3 || r.Usage != "actual" {
		t.Errorf("record %+v", r)
	}
}

func TestHeartbeatsAreOneLineAndNeverInsideAnEvent(t *testing.T) {
	f := func(name string, least int, want string, pieces ...string) {
		t.Helper()
		u := play(t, func(c *call) {
			c.say(streamHead)
			for i, s := range pieces {
				if i > 0 {
					time.Sleep(200 * time.Millisecond)
				}
				io.WriteString(c, s)
			}
			c.Close()
		})
		s := open(t, func(table *Table) { table.Routes["default"].Heartbeat = 20 * time.Millisecond }, u)
		_, body := s.chat(streamUsage)
		var events []string
		beats := 0
		for line := range strings.SplitSeq(body, "\n") {
			switch {
			case line == ":":
				beats++
			default:
				events = append(events, line)
			}
		}
		if got := strings.Join(events, "\n"); got != want || beats < least {
			t.Errorf("%s: %d heartbeats, %q", name, beats, body)
		}
	}
	f("between events", 2, chunkHi+chunkStop+done, "id: 1\n"+chunkHi, chunkStop+done)
	cut := strings.Index(chunkHi, `"delta"`)
	f("in the first event", 0, chunkHi+chunkStop+done, chunkHi[:cut], chunkHi[cut:]+chunkStop+done)
	f("in a later event", 0, chunkHi+chunkHi+chunkStop+done, chunkHi+chunkHi[:cut], chunkHi[cut:]+chunkStop+done)
}

func TestEventsMayBeLarge(t *testing.T) {
	for _, n := range []int{65_536, 65_537, 1_500_000} {
		all := content(strings.Repeat("a", n)) + chunkStop + strings.Replace(chunkUsage, `"completion_tokens":1,"total_tokens":4`, `"completion_tokens":9,"total_tokens":12`, 1) + done
		u := play(t, func(c *call) {
			c.say(streamHead)
			for rest := all; len(rest) > 0; rest = rest[min(7001, len(rest)):] {
				io.WriteString(c, rest[:min(7001, len(rest))])
			}
			c.Close()
		})
		s := open(t, func(table *Table) { table.Routes["default"].MaxEvent = 8 << 20 }, u)
		if _, body := s.chat(streamUsage); body != all {
			t.Errorf("%d: %d bytes of %d", n, len(body), len(all))
		}
		if r := s.record(1); r.Completion != 9 || r.Usage != "actual" {
			t.Errorf("record %+v", r)
		}
	}
}

func TestAnEventStreamIsNeverCalledJSON(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "text/plain", "application/json"} {
		u := play(t, func(c *call) {
			c.say("HTTP/1.1 200 OK\r\ncontent-type: " + kind + "\r\n\r\n" + chunkHi + chunkStop + chunkUsage + done)
			c.Close()
		})
		s := open(t, nil, u)
		response, body := s.chat(wholeBody)
		if response.StatusCode == 200 && (!json.Valid([]byte(body)) || s.record(1).Prompt != 3) {
			t.Errorf("%s: %q", kind, body)
		}
		if response.StatusCode != 200 && (response.StatusCode != 502 || parseFailure(t, body).Error.Code != "upstream_error") {
			t.Errorf("%s: %d %q", kind, response.StatusCode, body)
		}
	}
}

func TestAnErrorUnderA200IsTranslatedLikeAnyOther(t *testing.T) {
	f := func(said string, status int, code string) {
		t.Helper()
		for name, answer := range map[string]string{
			streamBody: streamHead + "data: " + said + "\n\n",
			wholeBody:  whole(said),
			// a stream was asked for and JSON came
			streamUsage: whole(said),
		} {
			u := play(t, func(c *call) { c.say(answer); c.Close() })
			s := open(t, nil, u)
			response, body := s.chat(name)
			if response.StatusCode != status || parseFailure(t, body).Error.Code != code || u.requests.Load() != 1 {
				t.Errorf("%q: %d %s, %d requests", answer, response.StatusCode, body, u.requests.Load())
			}
			if code == "upstream_auth" && (strings.Contains(body, "UK-") || response.Header.Get("X-Should-Retry") != "false") {
				t.Errorf("%q: %s", answer, body)
			}
			if r := s.record(1); r.Outcome != "upstream_error" || r.Prompt != 0 || r.Completion != 0 {
				t.Errorf("%q: record %+v", answer, r)
			}
		}
	}
	f(`{"error":{"message":"rate limited","code":429,"type":"rate_limit_error"}}`, 503, "upstream_overloaded")
	f(`{"error":{"message":"Incorrect API key provided: UK-cccc****","code":401,"type":"rate_limit_error"}}`, 502, "upstream_auth")
	f(`{"error":{"message":"Incorrect API key provided: UK-cccc****","code":"invalid_api_key"}}`, 502, "upstream_auth")
	f(`{"error":{"message":"crashed"}}`, 502, "upstream_error")
}

func TestBlankLinesBeforeAWholeAnswerAreWaitedThrough(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(jsonHead + "transfer-encoding: chunked\r\n\r\n")
		for range 10 {
			if _, err := io.WriteString(c, hexChunk("\n")); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		if strings.Contains(c.body, "only") {
			c.left()
			return
		}
		c.say(hexChunk(completion) + lastChunk)
	})
	s := open(t, func(table *Table) {
		table.Routes["default"].FirstToken, table.Routes["default"].Total = 50*time.Millisecond, time.Second
	}, u)
	if response, body := s.chat(wholeBody); response.StatusCode != 200 || strings.TrimSpace(body) != completion {
		t.Errorf("%d %q", response.StatusCode, body)
	}
	if r := s.record(1); r.Prompt != 3 || r.Completion != 1 {
		t.Errorf("record %+v", r)
	}
	if response, body := s.chat(strings.Replace(wholeBody, "hi", "only", 1)); response.StatusCode != 504 || parseFailure(t, body).Error.Code != "total_timeout" {
		t.Errorf("%d %q", response.StatusCode, body)
	}
}

func TestAWholeAnswerThatIsCutIsNoAnswer(t *testing.T) {
	half := `{"id":"c1","choices":[{"index":0,"message":{"content":"Hal`
	for _, answer := range []string{jsonHead + "Content-Length: 400\r\n\r\n" + half, jsonHead + "Transfer-Encoding: chunked\r\n\r\n" + hexChunk(half)} {
		u := play(t, func(c *call) {
			if c.n == 1 {
				c.say(answer)
				c.Close()
				return
			}
			c.say(whole(completion))
		})
		s := open(t, nil, u)
		response, body := s.chat(wholeBody)
		if response.StatusCode != 502 || parseFailure(t, body).Error.Code != "upstream_disconnected" || strings.Contains(body, "Hal") {
			t.Errorf("%d %q", response.StatusCode, body)
		}
		if r := s.record(1); r.Outcome != "upstream_disconnected" || r.Prompt != 15 || r.Completion != 0 || r.Attempts != 1 {
			t.Errorf("record %+v", r)
		}
		if response, _ := s.chat(wholeBody); response.StatusCode != 200 || u.conns.Load() != 2 {
			t.Errorf("then %d on connection %d", response.StatusCode, u.conns.Load())
		}
	}
}

func TestNothingIsAskedForAgainOnceTheClientHasLeft(t *testing.T) {
	asked, answered := make(chan struct{}), make(chan struct{})
	u := play(t, func(c *call) {
		close(asked)
		c.left()
		c.say("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
		c.Close()
		close(answered)
	})
	other := play(t, func(c *call) { c.say(whole(completion)) })
	s := open(t, nil, u, other)
	p := s.dial()
	p.send(kept("/v1/chat/completions", "", streamUsage))
	<-asked
	p.Close()
	<-answered
	if r := s.record(1); r.Outcome != "client_left" || u.requests.Load() != 1 || other.requests.Load() != 0 {
		t.Errorf("record %+v, %d and %d requests", r, u.requests.Load(), other.requests.Load())
	}
}

func TestTheUpstreamStopsWhenItsReaderLeavesInTheStream(t *testing.T) {
	const pause = 20 * time.Millisecond
	stopped := make(chan int, 1)
	u := play(t, func(c *call) {
		c.say(streamHead)
		for n := range 100 {
			if _, err := io.WriteString(c, content("w ")); err != nil {
				stopped <- n
				return
			}
			time.Sleep(pause)
		}
		stopped <- 100
	})
	s := open(t, nil, u)
	for n := range 10 {
		p := s.dial()
		p.send(kept("/v1/chat/completions", "", streamUsage))
		for range 8 + 3*4 { // lines of the head, and of three chunks and their framing
			p.r.ReadString('\n')
		}
		if n%2 == 1 {
			p.Conn.(*net.TCPConn).SetLinger(0)
		}
		p.Close()
		if chunks := <-stopped; chunks > 50 {
			t.Errorf("the upstream wrote %d chunks", chunks)
		}
		if r := s.record(n + 1); r.Outcome != "client_left" || r.Status != 200 || r.Usage != "estimated" || r.Prompt == 0 || r.Completion < 3 || r.Completion > 50 {
			t.Errorf("record %+v", r)
		}
	}
	if n := s.server.Active(); n != 0 {
		t.Errorf("%d requests are active", n)
	}
}

func TestACompressionThatIsOfferedIsNotUsedForStreams(t *testing.T) {
	next := make(chan struct{})
	u := play(t, func(c *call) {
		c.say(streamHead)
		for range 5 {
			<-next
			c.say(content(strings.Repeat("a", 30)))
		}
		c.say(chunkStop + done)
		c.Close()
	})
	s := open(t, nil, u)
	p := s.dial()
	p.send(kept("/v1/chat/completions", "accept-encoding: gzip, br\r\n", streamUsage))
	next <- struct{}{}
	response, err := http.ReadResponse(p.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("Content-Encoding") != "" || response.ContentLength >= 0 {
		t.Errorf("%v", response.Header)
	}
	event := make([]byte, len(content(strings.Repeat("a", 30))))
	for i := range 5 {
		if _, err := io.ReadFull(response.Body, event); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if i < 4 {
			next <- struct{}{}
		}
	}
	if rest, err := io.ReadAll(response.Body); string(rest) != chunkStop+done || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

func TestAHeadWithoutEventsIsNoFirstToken(t *testing.T) {
	for _, early := range []time.Duration{0, 50 * time.Millisecond} {
		u := play(t, func(c *call) { c.say(streamHead); c.left() })
		s := open(t, func(table *Table) {
			r := table.Routes["default"]
			r.FirstToken, r.Idle, r.EarlyHeader = 150*time.Millisecond, 20*time.Millisecond, early
		}, u)
		response, body := s.chat(streamUsage)
		if (response.StatusCode == 200) != (early > 0) || !strings.Contains(body, `"first_token_timeout"`) {
			t.Errorf("%d %q", response.StatusCode, body)
		}
		if r := s.record(1); r.Outcome != "first_token_timeout" || r.TTFT != nil || r.Prompt != 0 {
			t.Errorf("record %+v", r)
		}
	}
}

// deaf accepts connections and never reads.
func deaf(t testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return "http://" + ln.Addr().String() + "/base/v1"
}

func TestAnUpstreamThatDoesNotReadIsTimedOut(t *testing.T) {
	large := strings.Repeat("A", 6<<20) // beyond what sockets hold
	f := func(path, body, code string, first, total time.Duration) {
		t.Helper()
		up, adjust := narrow(t, deaf(t), 10)
		s := open(t, func(table *Table) {
			adjust(table)
			table.MaxBody = 32 << 20
			table.Routes["default"].FirstToken, table.Routes["default"].Total = first, total
		})
		response, got := s.post(path, body)
		if response.StatusCode != 504 || parseFailure(t, got).Error.Code != code {
			t.Errorf("%s: %d %q", path, response.StatusCode, got)
		}
		s.record(1)
		for deadline := time.Now().Add(soon); up.Stats().Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d connections are left", path, up.Stats().Open)
			}
		}
	}
	f("/v1/chat/completions", strings.Replace(streamBody, "hi", large, 1), "first_token_timeout", 300*time.Millisecond, soon)
	f("/v1/chat/completions", strings.Replace(wholeBody, "hi", large, 1), "total_timeout", soon, 500*time.Millisecond)
	f("/v1/audio/transcriptions", large, "total_timeout", soon, 500*time.Millisecond)
}

func TestErrorAnswersGiveTheirConnectionsBack(t *testing.T) {
	u := play(t, func(c *call) {
		switch {
		case strings.Contains(c.body, "good"):
			c.say(chunkedStreamHead + hexChunk(chunkHi+chunkStop+done) + lastChunk)
		case c.n%3 == 0:
			c.say("HTTP/1.1 429 Slow\r\ntransfer-encoding: chunked\r\n\r\n" + hexChunk(strings.Repeat(" ", 100)))
			c.left()
		default:
			c.say("HTTP/1.1 429 Slow\r\ntransfer-encoding: chunked\r\n\r\n" + hexChunk(strings.Repeat(" ", 200)) + lastChunk)
		}
	})
	up, adjust := narrow(t, "http://"+u.addr, 4)
	s := open(t, adjust)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			response, body := s.chat(streamUsage)
			if response.StatusCode != 503 || !strings.Contains(body, "upstream_overloaded") {
				t.Errorf("%d %q", response.StatusCode, body)
			}
			if n := up.Stats().Open; n > 4 {
				t.Errorf("%d connections", n)
			}
		})
	}
	wg.Wait()
	for range 8 {
		if response, body := s.chat(strings.Replace(streamUsage, "hi", "good", 1)); response.StatusCode != 200 || body != chunkHi+chunkStop+done {
			t.Errorf("%d %q", response.StatusCode, body)
		}
	}
}

func TestARefusedKeyOfOursIsNotTheClientsFault(t *testing.T) {
	body := `{"error":{"message":"Incorrect API key provided: UK-cccc****","code":"invalid_api_key"}}`
	u := play(t, func(c *call) {
		c.say("HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body)
	})
	s := open(t, keyed("CK-good", "ios", "default"), u)
	response, got := s.post("/v1/chat/completions", streamUsage, "authorization", "Bearer CK-good")
	if response.StatusCode != 502 || parseFailure(t, got).Error.Code != "upstream_auth" || strings.Contains(got, "UK-") ||
		response.Header.Get("WWW-Authenticate") != "" || response.Header.Get("X-Should-Retry") != "false" || u.requests.Load() != 1 {
		t.Errorf("%d %v %s", response.StatusCode, response.Header, got)
	}
	if response, _ := s.post("/v1/chat/completions", streamUsage, "authorization", "Bearer CK-bad"); response.StatusCode != 401 {
		t.Errorf("a wrong key of the client's: %d", response.StatusCode)
	}
}

func TestNoKeyShowsAnywhere(t *testing.T) {
	const ours = "UK-cccc3333dddd4444"
	var answer string
	u := play(t, func(c *call) { c.say(answer); c.Close() })
	s := open(t, keyed("CK-aaaa1111bbbb2222", "ios", "default"), u)
	var seen bytes.Buffer
	ask := func(key, body string) {
		t.Helper()
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/audio/transcriptions"} {
			if strings.HasPrefix(path, "/v1/audio") && strings.HasPrefix(answer, "HTTP/1.1 200") {
				continue // it passes through as it is
			}
			body := body
			if path == "/v1/responses" {
				body = strings.Replace(body, `"messages":[{"role":"user","content":"hi"}]`, `"input":"hi"`, 1)
			}
			response, got := s.post(path, strings.Replace(body, `{`, `{"max_tokens":5,`, 1), "authorization", "Bearer "+key)
			fmt.Fprintln(&seen, response.Header, got)
		}
	}
	ask("CK-eeee5555", wholeBody)
	padded := strings.Repeat("x", 1000-len(ours)/2) + ours // the key lies across the bound of messages
	for _, said := range []string{
		`{"error":{"message":"bad ` + ours + `","type":"` + ours + `","code":"` + ours + `"}}`, `{"error":"` + ours + `"}`, ours, padded,
		`{"error":{"message":"` + padded + `"}}`, `[{"error":{"message":"` + ours + `","status":"` + ours + `"}}]`, `{"detail":"` + ours + `"}`,
	} {
		for _, status := range []string{"200 OK", "400 Bad", "401 No", "404 No", "422 No", "429 Slow", "500 Oh"} {
			answer = "HTTP/1.1 " + status + "\r\ncontent-type: application/json\r\nx-request-id: " + ours + "\r\ncontent-length: " + itoa(len(said)) + "\r\n\r\n" + said
			if status == "200 OK" {
				answer = streamHead + hi + "event: error\ndata: " + said + "\n\n"
			}
			ask("CK-aaaa1111bbbb2222", streamBody)
		}
	}
	answer = "HTTP/1.1 200 OK " + ours + "\r\nbroken " + ours + "\r\n\r\n"
	ask("CK-aaaa1111bbbb2222", wholeBody)
	bad := *s.table
	bad.Routes = map[string]*Route{"default": {Name: "default", Endpoints: s.route.Endpoints, Total: soon, FirstToken: soon}} // no upstream: it panics
	s.server.Swap(&bad)
	ask("CK-aaaa1111bbbb2222", wholeBody)
	s.raw("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer CK-aaaa1111bbbb2222\r\nbroken\r\n\r\n")
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	seen.Write(s.records.buf.Bytes())
	for _, secret := range []string{"CK-aaaa1111", "CK-eeee5555", "UK-cccc3333", u.addr} {
		if i := strings.Index(seen.String(), secret); i >= 0 {
			t.Errorf("%s shows: …%s", secret, seen.String()[max(i-200, 0):i+len(secret)])
		}
	}
}

func TestLateFailuresCanBeReadByAnAllowedPageToo(t *testing.T) {
	refusing, adjust := narrow(t, "http://127.0.0.1:1", 4)
	_ = refusing
	silent := play(t, func(c *call) { c.left() })
	s := open(t, func(table *Table) {
		table.Origins = Origins{"https://app.example"}
		r := table.Routes["default"]
		r.FirstToken = 50 * time.Millisecond
		refused, broken := *r, *r
		refused.Name, broken.Name, broken.Upstreams = "refused", "broken", nil
		table.Routes["refused"], table.Routes["broken"] = &refused, &broken
		adjust(&Table{Routes: map[string]*Route{"default": &refused}})
	}, silent)
	f := func(path string, status int) {
		t.Helper()
		response, body := s.post(path, streamUsage, "origin", "https://app.example")
		h := response.Header
		if response.StatusCode != status || h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Vary") != "Origin" ||
			!strings.Contains(h.Get("Access-Control-Expose-Headers"), "retry-after") || parseFailure(t, body).Error.Code == "" {
			t.Errorf("%s: %d %v %s", path, response.StatusCode, h, body)
		}
	}
	f("/v1/chat/completions", 504)
	f("/refused/v1/chat/completions", 502)
	f("/broken/v1/chat/completions", 500)
	f("/broken/v1/audio/transcriptions", 500)
	s.server.draining.Store(true)
	f("/v1/chat/completions", 503)
	s.server.draining.Store(false)
	got := s.raw("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\norigin: https://app.example\r\nx: " + strings.Repeat("y", 40<<10) + "\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431 ") || !strings.Contains(got, "request_too_large") {
		t.Errorf("large headers: %q", got)
	}
}

func TestAPreflightNamesEachHeaderAskedFor(t *testing.T) {
	u := play(t, func(c *call) {})
	s := open(t, func(table *Table) {
		keyed("CK-good", "ios", "default")(table)
		table.Origins = Origins{"https://app.example"}
	}, u)
	for _, path := range []string{"/v1/chat/completions", "/unknown"} {
		r, _ := http.NewRequest("OPTIONS", s.url+path, nil)
		r.Header.Set("Origin", "https://app.example")
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,x-stainless-os,x-stainless-retry-count")
		response, body := s.do(r)
		allowed := strings.ToLower(response.Header.Get("Access-Control-Allow-Headers"))
		for _, name := range []string{"authorization", "content-type", "x-stainless-os", "x-stainless-retry-count"} {
			if !strings.Contains(allowed, name) {
				t.Errorf("%s: %s is not among %q", path, name, allowed)
			}
		}
		if response.StatusCode != 204 || body != "" || !strings.Contains(response.Header.Get("Access-Control-Allow-Methods"), "POST") || response.Header.Get("Access-Control-Max-Age") == "" {
			t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
		}
	}
	if response, _ := s.chat(wholeBody); response.StatusCode != 401 || u.requests.Load() != 0 {
		t.Errorf("without a key: %d", response.StatusCode)
	}
	for _, request := range []string{"OPTIONS /v1/chat/completions", "OPTIONS *"} {
		got := s.raw(request + " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 40") || strings.Contains(strings.ToLower(got), "access-control-allow-origin") {
			t.Errorf("%s without an origin: %q", request, got)
		}
	}
}

func TestHEADHasNoBodyAndLeavesTheConnectionUsable(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(jsonHead + "transfer-encoding: chunked\r\n\r\n" + hexChunk(`{"object":"list","data":[]}`) + lastChunk)
	})
	s := open(t, nil, u)
	p := s.dial()
	f := func(path string, status int) {
		t.Helper()
		p.send("HEAD " + path + " HTTP/1.1\r\nhost: x\r\n\r\n")
		if got, body := p.answer("HEAD"); got != status || body != "" {
			t.Errorf("HEAD %s: %d %q", path, got, body)
		}
		p.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
		if got, body := p.answer("GET"); got != 200 || body != "OK\n" {
			t.Errorf("after HEAD %s: %d %q", path, got, body)
		}
	}
	f("/healthz", 200)
	f("/v1/models", 200)
	f("/v1/chat/completions", 405)
	f("/nowhere", 404)
}

func TestHTTP10ClientsGetAnswersWithoutChunks(t *testing.T) {
	u := play(t, func(c *call) {
		if c.req.Method == "HEAD" {
			c.say("HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ncontent-length: 12\r\n\r\n")
			return
		}
		c.say(jsonHead + "transfer-encoding: chunked\r\n\r\n" + hexChunk(completion) + lastChunk)
	})
	s := open(t, nil, u)
	f := func(request, body string, status int, want string) {
		t.Helper()
		for _, keepAlive := range []string{"", "connection: keep-alive\r\n"} {
			p := s.dial()
			p.send(request + " HTTP/1.0\r\n" + keepAlive + "content-length: " + itoa(len(body)) + "\r\n\r\n" + body)
			response, err := http.ReadResponse(p.r, &http.Request{Method: request[:strings.Index(request, " ")]})
			if err != nil {
				t.Errorf("%s: %v", request, err)
				continue
			}
			got, err := io.ReadAll(response.Body)
			if response.StatusCode != status || err != nil || !strings.Contains(string(got), want) || want == "" && len(got) > 0 || len(response.TransferEncoding) > 0 {
				t.Errorf("%s: %d %v %q %v", request, response.StatusCode, response.TransferEncoding, got, err)
			}
			if response.Close && !p.over() {
				t.Errorf("%s: the connection stays open", request)
			}
		}
	}
	f("POST /v1/chat/completions", wholeBody, 200, completion)
	f("POST /v1/chat/completions", "{", 400, "invalid_json")
	f("POST /v1/audio/transcriptions", "RIFF", 200, completion)
	f("GET /v1/audio/transcriptions", "", 200, completion)
	f("HEAD /v1/audio/transcriptions", "", 200, "")
	f("GET /v1/models", "", 200, completion)
	f("HEAD /v1/models", "", 200, "")
	f("GET /healthz", "", 200, "OK")
	f("GET /nowhere", "", 404, "not_found")
}

func TestTheBoundOfBodiesIsTheSameHoweverTheyAreFramed(t *testing.T) {
	u := play(t, func(c *call) { c.say(whole(completion)) })
	s := open(t, nil, u)
	fits := wholeBody + strings.Repeat(" ", 1<<20-len(wholeBody))
	line := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
	chunked := line + "transfer-encoding: chunked\r\n\r\n"
	f := func(name, request string, status int) {
		t.Helper()
		got := s.raw(request)
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: %.300q, want %d", name, got, status)
		}
	}
	f("fits", post("/v1/chat/completions", "", fits), 200)
	f("fits, chunked", chunked+hexChunk(fits[:7])+hexChunk(fits[7:])+lastChunk, 200)
	f("too large", post("/v1/chat/completions", "", fits+" "), 413)
	f("too large, chunked", chunked+hexChunk(fits)+hexChunk(" ")+lastChunk, 413)
	f("announced, unsent", line+"content-length: 5000000000\r\n\r\n", 413)
	f("compressed", line+"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x8b", 400)
	f("a long size line", chunked+strings.Repeat("0", 64<<10)+"1\r\n \r\n"+lastChunk, 400)
	if n := u.requests.Load(); n != 2 {
		t.Errorf("%d requests went upstream", n)
	}
	upload := strings.ReplaceAll(chunked, "chat/completions", "audio/transcriptions")
	f("an upload with a long size line", upload+strings.Repeat("0", 64<<10)+"1\r\n \r\n"+lastChunk, 400)
	f("an upload with endless extensions", upload+"1;"+strings.Repeat("a=b;", 250_000)+"\r\n \r\n"+lastChunk, 400)
	f("a compressed upload", strings.ReplaceAll(line, "chat/completions", "audio/transcriptions")+"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x8b", 400)
}

func TestALargeImageReachesTheUpstreamUnchanged(t *testing.T) {
	body := strings.Replace(streamUsage, `"hi"`, `[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+strings.Repeat("A", 20_971_520)+`"}}]`, 1)
	u := play(t, func(c *call) {
		if c.body != body {
			t.Errorf("upstream got %d bytes of %d", len(c.body), len(body))
		}
		c.say(streamHead + chunkHi + chunkStop + done)
		c.Close()
	})
	s := open(t, func(table *Table) { table.MaxBody = 32 << 20 }, u)
	if response, _ := s.chat(body); response.StatusCode != 200 {
		t.Errorf("with its length: %d", response.StatusCode)
	}
	if r := s.record(1); r.Prompt == 0 {
		t.Errorf("the prompt counts nothing: %+v", r)
	}
	r, _ := http.NewRequest("POST", s.url+"/v1/chat/completions", io.MultiReader(strings.NewReader(body)))
	if response, _ := s.do(r); response.StatusCode != 200 {
		t.Errorf("chunked: %d", response.StatusCode)
	}
}

func TestNamingAHeaderInConnectionDoesNotRemoveOurs(t *testing.T) {
	u := play(t, func(c *call) {
		if c.req.Header.Get("Authorization") != "Bearer UK-cccc3333dddd4444" || c.req.Header.Get("Content-Type") == "" || c.req.Header.Get("Trailer") != "" {
			t.Errorf("upstream got %v", c.req.Header)
		}
		c.say(whole(completion))
	})
	s := open(t, nil, u)
	got := s.raw(post("/v1/chat/completions", "connection: authorization, content-type, host, x-request-id\r\ntrailer: x\r\n", wholeBody))
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(strings.ToLower(got), "x-request-id: req_") {
		t.Errorf("got %q", got)
	}
}

func TestAnswersOfAnyTypePassThroughAsTheyCome(t *testing.T) {
	next := make(chan struct{})
	u := play(t, func(c *call) {
		if strings.Contains(c.body, "srt") {
			c.say("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nsrt")
			return
		}
		c.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
		for _, event := range []string{"event: transcript.text.delta\ndata: {}\n\n", "event: transcript.text.done\ndata: {}\n\n"} {
			c.say(hexChunk(event))
			<-next
		}
		c.say(lastChunk)
	})
	s := open(t, nil, u)
	f := func(boundary string) {
		t.Helper()
		body := "--B1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a name=\\\"model\\\".wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--B\r\n--B1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--B1--\r\n"
		p := s.dial()
		p.send(kept("/v1/audio/transcriptions", "content-type: multipart/form-data; boundary="+boundary+"\r\n", body))
		response, err := http.ReadResponse(p.r, nil)
		if err != nil || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v %v", response, err)
		}
		r := bufio.NewReader(response.Body)
		for _, want := range []string{"event: transcript.text.delta\n", "event: transcript.text.done\n"} {
			if line, _ := r.ReadString('\n'); line != want {
				t.Errorf("got %q, want %q", line, want)
			}
			r.ReadString('\n')
			r.ReadString('\n')
			next <- struct{}{}
		}
		if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
			t.Errorf("then %q %v", rest, err)
		}
	}
	f("B1")
	f(`"B1"`)
	if response, body := s.post("/v1/audio/transcriptions", "srt"); body != "srt" || response.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%v %q", response.Header, body)
	}
}

// From here on the clients are hostile.

func TestEachRequestOfAConnectionGetsItsOwnAnswer(t *testing.T) {
	u := play(t, func(c *call) {
		var asked struct {
			Model  string
			Stream bool
		}
		json.Unmarshal([]byte(c.body), &asked)
		if asked.Stream {
			c.say(chunkedStreamHead+hexChunk(content(asked.Model)), hexChunk(chunkStop+done)+lastChunk)
			return
		}
		c.say(whole(`{"is":"` + asked.Model + c.req.Method + `"}`))
	})
	s := open(t, nil, u)
	p := s.dial()
	named := func(body, name string) string { return strings.Replace(body, "m1", name, 1) }
	p.send(kept("/v1/chat/completions", "", named(streamBody, "first")) +
		kept("/v1/chat/completions", "", named(wholeBody, "second")) +
		kept("/v1/chat/completions", "", "{") +
		"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" +
		"GET /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 27\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n\r\n" +
		"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + hexChunk(named(streamBody, "third")) + "0\r\nx: y\r\n\r\n" +
		"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n" +
		kept("/v1/audio/transcriptions", "", "RIFF"))
	f := func(method string, status int, want string) {
		t.Helper()
		if got, body := p.answer(method); got != status || body != want && !(status >= 400 && strings.Contains(body, want)) {
			t.Errorf("%d %q, want %q", got, body, want)
		}
	}
	f("POST", 200, content("first")+chunkStop+done)
	f("POST", 200, `{"is":"second"}`[:13]+`POST"}`)
	f("POST", 400, "invalid_json")
	f("HEAD", 200, "")
	f("GET", 200, `{"is":"GET"}`)
	f("POST", 200, content("third")+chunkStop+done)
	f("GET", 404, "not_found")
	f("POST", 200, `{"is":"POST"}`)
	if !p.over() {
		t.Error("the connection goes on behind an upload")
	}
}

func TestWhatCouldBeReadInTwoWaysEndsTheConnection(t *testing.T) {
	u := play(t, func(c *call) { c.say(whole(completion)) })
	s := open(t, nil, u)
	const hidden = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
	f := func(name, head, body string) {
		t.Helper()
		for _, path := range []string{"/v1/chat/completions", "/v1/audio/transcriptions", "/healthz", "/nowhere"} {
			got := s.raw("POST " + path + " HTTP/1.1\r\n" + head + "\r\n" + body + hidden)
			if strings.Count(got, "HTTP/1.1 ") != 1 || !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("%s, %s: %q", name, path, got)
			}
		}
	}
	sized := "content-length: " + itoa(len(wholeBody)) + "\r\n"
	f("a folded field", "host: x\r\n"+sized+"x: a\r\n b\r\n", wholeBody)
	f("a folded length", "host: x\r\ncontent-length:\r\n "+itoa(len(wholeBody))+"\r\n", wholeBody)
	f("a bare LF", "host: x\n"+sized, wholeBody)
	f("a bare LF before the body", "host: x\r\n"+sized+"x: y\n", wholeBody)
	f("a space in a name", "host: x\r\n"+sized+"transfer encoding: chunked\r\n", wholeBody)
	f("a space behind a name", "host: x\r\n"+sized+"transfer-encoding : chunked\r\n", wholeBody)
	f("a space before the fields", " host: x\r\n"+sized, wholeBody)
	f("no colon", "host: x\r\n"+sized+"chunked\r\n", wholeBody)
	f("an unknown coding", "host: x\r\ntransfer-encoding: gzip, chunked\r\n", hexChunk(wholeBody)+lastChunk)
	f("an unknown coding behind", "host: x\r\ntransfer-encoding: chunked, identity\r\n", hexChunk(wholeBody)+lastChunk)
	f("no coding", "host: x\r\ntransfer-encoding: identity\r\n"+sized, wholeBody)
	f("a coding twice", "host: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", hexChunk(wholeBody)+lastChunk)
	f("two hosts", "host: x\r\nhost: y\r\n"+sized, wholeBody)
	f("two lengths", "host: x\r\n"+sized+sized, wholeBody)
	f("a signed length", "host: x\r\ncontent-length: +"+itoa(len(wholeBody))+"\r\n", wholeBody)
	f("a length in hex", "host: x\r\ncontent-length: 0x10\r\n", wholeBody)
	f("a CR in a value", "host: x\r\nx: a\rb\r\n"+sized, wholeBody)
	f("a NUL in a value", "host: x\r\nx: a\x00b\r\n"+sized, wholeBody)
	if n := u.requests.Load(); n != 0 {
		t.Errorf("%d requests went upstream", n)
	}
	once := func(name, request string) {
		t.Helper()
		if got := s.raw(request + hidden); strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
	both := "POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n" + hexChunk(wholeBody) + lastChunk
	once("length and coding", fmt.Sprintf(both, "/v1/chat/completions"))
	once("length and coding of an upload", fmt.Sprintf(both, "/v1/audio/transcriptions"))
	once("length and coding at a health check", fmt.Sprintf(both, "/healthz"))
	once("chunks from HTTP/1.0", strings.Replace(fmt.Sprintf(both, "/v1/chat/completions"), "HTTP/1.1", "HTTP/1.0", 1))
	chunked := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
	once("a bare LF in a chunk's size", chunked+"1\n \n0\n\n")
	once("a chunk longer than its size", chunked+"1\r\n{}\r\n0\r\n\r\n")
	once("a negative size", chunked+"-1\r\n")
	once("a size beyond all", chunked+"fffffffffffffffff\r\n")
	once("a forbidden trailer", chunked+hexChunk(wholeBody)+"0\r\ncontent-length: 5\r\n\r\n")
}

func TestExpectationsAreMetBeforeTheBodyIsSent(t *testing.T) {
	u := play(t, func(c *call) { c.say(whole(`{"got":` + itoa(len(c.body)) + `}`)) })
	s := open(t, keyed("CK-good", "ios", "default"), u)
	f := func(name, path, headers, body string, status int, want string) {
		t.Helper()
		p := s.dial()
		p.send("POST " + path + " HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n" + headers + "\r\n")
		response, err := http.ReadResponse(p.r, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, answer := response.StatusCode, []byte(nil)
		if got == 100 {
			p.send(body)
			var text string
			got, text = p.answer("POST")
			answer = []byte(text)
		} else {
			answer, _ = io.ReadAll(response.Body)
		}
		if got != status || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %d %q", name, got, answer)
		}
	}
	key := "authorization: Bearer CK-good\r\n"
	sized := func(s string) string { return "content-length: " + itoa(len(s)) + "\r\n" }
	f("good", "/v1/chat/completions", key+sized(wholeBody), wholeBody, 200, `{"got":58}`)
	f("good, chunked", "/v1/chat/completions", key+"transfer-encoding: chunked\r\n", hexChunk(wholeBody)+lastChunk, 200, `{"got":58}`)
	f("no key", "/v1/chat/completions", sized(wholeBody), wholeBody, 401, "invalid_api_key")
	f("too large", "/v1/chat/completions", key+"content-length: 2000000\r\n", strings.Repeat(" ", 2_000_000), 413, "request_too_large")
	f("nowhere", "/nowhere", key+sized(wholeBody), wholeBody, 404, "not_found")
	f("an upload", "/v1/audio/transcriptions", key+sized("RIFF"), "RIFF", 200, `{"got":4}`)
	f("an upload, chunked", "/v1/audio/transcriptions", key+"transfer-encoding: chunked\r\n", hexChunk("RIFF")+lastChunk, 200, `{"got":4}`)
	f("an upload without a key", "/v1/audio/transcriptions", sized("RIFF"), "RIFF", 401, "invalid_api_key")
	f("an upload too large", "/v1/audio/transcriptions", key+"content-length: 2000000\r\n", strings.Repeat(" ", 2_000_000), 413, "request_too_large")
}

func TestAClientThatClosesItsSideIsTakenForGone(t *testing.T) {
	for _, request := range []string{kept("/v1/chat/completions", "", streamBody), kept("/v1/chat/completions", "", wholeBody), kept("/v1/audio/transcriptions", "", "RIFF")} {
		u := play(t, func(c *call) { c.left() })
		s := open(t, nil, u)
		p := s.dial()
		p.send(request)
		p.Conn.(*net.TCPConn).CloseWrite()
		if rest, _ := io.ReadAll(p.r); strings.Contains(string(rest), "HTTP/1.1 200") {
			t.Errorf("got %q", rest)
		}
		if r := s.record(1); r.Outcome != "client_left" || r.Status != 499 {
			t.Errorf("record %+v", r)
		}
	}
}

func TestAConnectionWithoutARequestLeavesNoRecord(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	for _, reset := range []bool{true, false} {
		p := s.dial()
		if reset {
			p.Conn.(*net.TCPConn).SetLinger(0)
		}
		p.Close()
	}
	time.Sleep(50 * time.Millisecond)
	s.raw("GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
	if r := s.record(1); r.Status != 404 {
		t.Errorf("record %+v", r)
	}
}

func TestABodyInChunksHasTheTimeOfTheLargestOne(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	var chunked, sized fasthttp.RequestHeader
	for h, length := range map[*fasthttp.RequestHeader]int{&chunked: -1, &sized: s.table.MaxBody} {
		h.SetMethod("POST")
		h.SetRequestURI("/v1/chat/completions")
		h.SetContentLength(length)
	}
	if got, want := s.server.headerReceived(&chunked).ReadTimeout, s.server.headerReceived(&sized).ReadTimeout; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzAStrictHeadIsReadByNetHTTPAlike(f *testing.F) {
	for _, s := range []string{"host: x\r\n\r\n", "a: b\n\r\n", "a: b\r\n c\r\n\r\n", "a b: c\r\n\r\n", "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "transfer-encoding:\tchunked \r\n\r\n", "\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		if !strict(fields) {
			return
		}
		h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(fields))).ReadMIMEHeader()
		if err != nil {
			return // it is stricter still
		}
		n := 0
		for _, values := range h {
			n += len(values)
		}
		if lines := max(bytes.Count(fields, []byte("\r\n"))-1, 0); n != lines {
			t.Errorf("%q: %d fields on %d lines", fields, n, lines)
		}
	})
}

func TestARecordTellsOfItsOwnRequestOnly(t *testing.T) {
	u := play(t, func(c *call) {
		if strings.Contains(c.req.URL.Path, "audio") {
			c.say(whole("{}"))
			return
		}
		c.say(chunkedStreamHead + hexChunk(chunkHi+chunkStop+chunkUsage+done) + lastChunk)
	})
	s := open(t, nil, u)
	for n := 1; n <= 9; n += 3 {
		s.chat(streamUsage)
		s.record(n)
		s.post("/v1/audio/transcriptions", "RIFF")
		if r := s.record(n + 1); r.Outcome != "success" || r.Prompt != 0 || r.Completion != 0 || r.TTFT != nil {
			t.Errorf("an upload's record %+v", r)
		}
		s.raw("no request\r\n\r\n")
		if r := s.record(n + 2); r.Outcome != "refused" || r.Total > 10_000 || r.Edge > 10_000 || r.Status != 400 {
			t.Errorf("a broken request's record %+v", r)
		}
	}
}

func TestWritesAreBoundedAlsoWhereDeadlinesWereCleared(t *testing.T) {
	d := &deadlines{}
	c := &clientConn{Conn: d, fd: -1}
	c.Write(nil)
	c.SetDeadline(time.Time{}) // as fasthttp does before a connection is taken over
	c.Write(nil)
	if d.write.IsZero() {
		t.Error("the second write may last for ever")
	}
}

func TestAListenerOutlivesALackOfDescriptors(t *testing.T) {
	server := open(t, nil, play(t, func(c *call) {})).server
	ln := &scarce{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}}
	if c, err := (listener{ln, server}).Accept(); err != nil || c == nil {
		t.Errorf("%v %v", c, err)
	}
	if _, err := (listener{ln, server}).Accept(); err != net.ErrClosed {
		t.Errorf("then %v", err)
	}
}

// scarce is a listener that fails, has one client, and is closed.
type scarce struct {
	net.Listener
	errs []error
	one  bool
}

func (s *scarce) Accept() (net.Conn, error) {
	switch {
	case len(s.errs) > 0:
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	case s.one:
		return nil, net.ErrClosed
	}
	s.one = true
	c, _ := net.Pipe()
	return c, nil
}

// deadlines is a connection that remembers the deadline of its writes.
type deadlines struct {
	net.Conn
	write time.Time
}

func (d *deadlines) Write(p []byte) (int, error)        { return len(p), nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }
func (d *deadlines) SetDeadline(t time.Time) error      { d.write = t; return nil }

// From here on the upstreams are hostile.

// harmed asks an upstream that gives its first answer only as it is told to, and
// then asks it something else.
func harmed(t *testing.T, path, body string, answer func(c *call), status int, code string) {
	u := play(t, func(c *call) {
		if c.n == 1 {
			answer(c)
			return
		}
		c.say(whole(completion))
	})
	s := open(t, func(table *Table) {
		r := table.Routes["default"]
		r.FirstToken, r.Total = time.Second, 1100*time.Millisecond
	}, u)
	response, got := s.post(path, body)
	good := response.StatusCode == status && strings.Contains(got, code)
	if status == 0 {
		good = response.StatusCode >= 500 || response.StatusCode == 204 && got == ""
	}
	if !good {
		t.Errorf("%d %q", response.StatusCode, got)
	}
	time.Sleep(100 * time.Millisecond) // what came behind the answer is there
	if response, got := s.post(path, wholeBody); response.StatusCode != 200 || got != completion {
		t.Errorf("the next answer is %d %q", response.StatusCode, got)
	}
}

func TestAHostileUpstreamHarmsOneRequestOnly(t *testing.T) {
	f := func(name string, answer func(c *call), status int, code string) {
		t.Helper()
		for _, path := range []string{"/v1/chat/completions", "/v1/audio/transcriptions"} {
			for _, body := range []string{streamBody, wholeBody} {
				t.Run(name+path, func(t *testing.T) {
					t.Parallel()
					harmed(t, path, body, answer, status, code)
				})
			}
		}
	}
	say := func(s string) func(c *call) { return func(c *call) { c.say(s) } }
	shut := func(s string) func(c *call) { return func(c *call) { c.say(s); c.Close() } }
	const garbage = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nEVIL"
	f("endless interim heads", func(c *call) {
		for {
			if _, err := io.WriteString(c, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)); err != nil {
				return
			}
		}
	}, 0, "error")
	f("a head of 40 KB", say("HTTP/1.1 200 OK\r\nx: "+strings.Repeat("a", 40<<10)+"\r\n\r\n"), 502, "upstream_error")
	f("an endless head", func(c *call) {
		for {
			if _, err := io.WriteString(c, "x: "+strings.Repeat("a", 1000)+"\r\n"); err != nil {
				return
			}
		}
	}, 502, "upstream_error")
	f("bare LFs", say("HTTP/1.1 200 OK\ncontent-type: application/json\ncontent-length: 2\n\n{}"), 502, "upstream_error")
	f("a head that ends in bare LFs", say("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\n\n{}\r\n\r\n"), 502, "upstream_error")
	f("a body of no content", shut("HTTP/1.1 204 No\r\ncontent-length: 4\r\n\r\n"+garbage), 0, "upstream_error")
	f("not modified", say("HTTP/1.1 304 No\r\ncontent-length: 4\r\n\r\nEVIL"), 502, "upstream_error")
	f("an unknown coding", say("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nxx"), 502, "upstream_error")
	f("two lengths", say("HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nEVIL!"), 502, "upstream_error")
	f("a negative length", say("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nEVIL!"), 502, "upstream_error")
	f("switched protocols", say("HTTP/1.1 101 Now\r\nupgrade: h2c\r\n\r\n"), 502, "upstream_error")
	f("a failure, then garbage", say("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}"+garbage), 502, "upstream_error")
	f("a failure in chunks, then garbage", say("HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n"+hexChunk("{}")+lastChunk+garbage), 502, "upstream_error")
	f("a failure, then late garbage", func(c *call) { c.say("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}", garbage) }, 502, "upstream_error")
	f("a failure in HTTP/1.0", shut("HTTP/1.0 500 Oh\r\ncontent-length: 2\r\n\r\n{}"), 502, "upstream_error")
	f("a failure with length and coding", say("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"+hexChunk("{}")+lastChunk), 502, "upstream_error")
	f("no status", say("HTTP/1.1 abc\r\n\r\n"), 502, "upstream_error")
	f("a CR in a field", say("HTTP/1.1 200 OK\r\ncontent-type: application/json\rset-cookie: a=b\r\ncontent-length: 2\r\n\r\n{}"), 502, "upstream_error")
	f("a NUL in a field", say("HTTP/1.1 200 OK\r\ncontent-type: application/json\x00\r\ncontent-length: 2\r\n\r\n{}"), 502, "upstream_error")
}

func TestStreamsMayBeFramedInAnyWay(t *testing.T) {
	all := chunkHi + chunkStop + done
	f := func(name, answer, want string, conns int64) {
		t.Helper()
		u := play(t, func(c *call) {
			c.say(answer)
			if strings.Contains(name, "close") {
				c.Close()
			}
		})
		s := open(t, nil, u)
		for range 2 {
			if response, body := s.chat(streamBody); response.StatusCode != 200 || body != want {
				t.Errorf("%s: %d %q", name, response.StatusCode, body)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n := u.conns.Load(); n != conns {
			t.Errorf("%s: %d connections", name, n)
		}
	}
	head := "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
	sized := "content-length: " + itoa(len(all)) + "\r\n\r\n" + all
	f("by length", head+sized, all, 1)
	f("by length, then garbage", head+sized+"HTTP/1.1 200 OK\r\n\r\n", all, 2)
	f("by length, in HTTP/1.0", strings.Replace(head, "1.1", "1.0", 1)+sized, all, 2)
	f("by length, to be closed", head+"connection: close\r\n"+sized, all, 2)
	f("in chunks, then garbage", chunkedStreamHead+hexChunk(all)+lastChunk+"HTTP/1.1 200 OK\r\n\r\n", all, 2)
	f("in chunks with trailers", chunkedStreamHead+hexChunk(all)+"0\r\nx: y\r\n\r\n", all, 1)
	f("after interim heads", strings.Repeat("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", 50)+chunkedStreamHead+hexChunk(all)+lastChunk, all, 1)
	f("in upper case", "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=UTF-8\r\n"+sized, all, 1)
}

func TestEndlessFramingEndsAStream(t *testing.T) {
	f := func(name, framing string) {
		t.Helper()
		u := play(t, func(c *call) {
			c.say(chunkedStreamHead+hexChunk(chunkHi), framing)
			c.left()
		})
		s := open(t, nil, u)
		if _, body := s.chat(streamBody); !strings.HasPrefix(body, chunkHi+"event: error\n") || strings.Contains(body, "[DONE]") {
			t.Errorf("%s: %.300q", name, body)
		}
		if r := s.record(1); r.Outcome != "upstream_disconnected" {
			t.Errorf("%s: record %+v", name, r)
		}
	}
	f("an extension", "1;"+strings.Repeat("a", 100_000))
	f("a size", strings.Repeat("0", 100))
	f("trailers", "0\r\n"+strings.Repeat("x: y\r\n", 100_000))
	f("spaces", "1"+strings.Repeat(" ", 100_000))
}

func TestFieldsThatPassCarryNoOthers(t *testing.T) {
	u := play(t, func(c *call) {
		c.say("HTTP/1.1 200 OK\r\ncontent-type: audio/wav;\r\n set-cookie: a=b\r\ncontent-disposition: attachment; filename=\"a\r\n\tx-evil: 1\"\r\ncontent-length: 2\r\n\r\n{}")
	})
	s := open(t, nil, u)
	head, _, _ := strings.Cut(s.raw(post("/v1/audio/transcriptions", "", "RIFF")), "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\n") {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimLeft(line, " \t\r")), ":")
		if name == "set-cookie" || name == "x-evil" || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			t.Errorf("%q in %q", line, head)
		}
	}
}

func TestACompressedAnswerPassesThroughDecoded(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	text := strings.Repeat("all of it, ", 1000)
	io.WriteString(z, text)
	z.Close()
	u := play(t, func(c *call) {
		c.say("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/plain\r\ncontent-length: " + itoa(packed.Len()) + "\r\n\r\n" + packed.String())
	})
	s := open(t, nil, u)
	if response, body := s.post("/v1/audio/transcriptions", "RIFF"); body != text || response.Header.Get("Content-Encoding") != "" {
		t.Errorf("%v, %d bytes of %d", response.Header, len(body), len(text))
	}
}

func TestACutAnswerLooksCutToHTTP10Too(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(jsonHead+"transfer-encoding: chunked\r\n\r\n"+hexChunk("half"), "")
		c.reset()
	})
	s := open(t, nil, u)
	got := s.raw("POST /v1/audio/transcriptions HTTP/1.0\r\ncontent-length: 4\r\n\r\nRIFF")
	if !strings.Contains(got, "<") {
		t.Errorf("it looks complete: %q", got)
	}
	if r := s.record(1); r.Outcome != "upstream_disconnected" {
		t.Errorf("record %+v", r)
	}
}

// rawUpstream is a provider that does not read requests to their end: answer
// gets each connection and its number, from 1.
func rawUpstream(t testing.TB, answer func(c net.Conn, n int)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				answer(c, n)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return "http://" + ln.Addr().String() + "/base/v1"
}

func TestAnAnswerThatComesBeforeTheBodyWasReadIsTheAnswer(t *testing.T) {
	const refused = `{"error":{"message":"too much","code":"too_much"}}`
	large := strings.Repeat("A", 8<<20)
	for _, warm := range []bool{false, true} {
		conns := make(chan int, 10)
		at := rawUpstream(t, func(c net.Conn, n int) {
			conns <- n
			r := bufio.NewReader(c)
			if warm {
				request, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				io.Copy(io.Discard, request.Body)
				io.WriteString(c, whole(completion))
			}
			r.ReadString('\n')
			fmt.Fprintf(c, "HTTP/1.1 413 Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(refused), refused)
			time.Sleep(50 * time.Millisecond)
		})
		for _, path := range []string{"/v1/chat/completions", "/v1/audio/transcriptions"} {
			_, adjust := narrow(t, at, 10)
			s := open(t, func(table *Table) { adjust(table); table.MaxBody = 32 << 20 })
			if warm {
				s.chat(wholeBody)
				<-conns
			}
			response, body := s.post(path, strings.Replace(wholeBody, "hi", large, 1))
			if response.StatusCode != 413 || parseFailure(t, body).Error.Code != "too_much" {
				t.Errorf("%s, warm %v: %d %s", path, warm, response.StatusCode, body)
			}
			if !warm {
				<-conns
			}
			if len(conns) > 0 {
				t.Errorf("%s, warm %v: it was sent twice", path, warm)
			}
		}
	}
}

func TestARequestIsNotRepeatedOnceTheUpstreamHasSaidAnything(t *testing.T) {
	u := play(t, func(c *call) {
		switch c.n {
		case 1:
			c.say(whole(completion))
		case 2:
			c.say("HTTP/1.1 102 Processing\r\n\r\n", "")
			c.Close()
		default:
			c.say(whole(completion))
		}
	})
	s := open(t, nil, u)
	s.chat(wholeBody)
	if response, body := s.chat(wholeBody); response.StatusCode != 502 || u.requests.Load() != 2 {
		t.Errorf("%d %s after %d requests", response.StatusCode, body, u.requests.Load())
	}
}

func TestAReloadLeavesStreamsAlone(t *testing.T) {
	next := make(chan struct{})
	u := play(t, func(c *call) {
		c.say(streamHead + chunkHi)
		<-next
		c.say(chunkHi + chunkStop + done)
		c.Close()
	})
	other := play(t, func(c *call) { c.say(whole(`{"other":1}`)) })
	s := open(t, nil, u, other)
	first, second := *s.table, *s.table
	one, two := *s.route, *s.route
	one.Upstreams, two.Upstreams = s.ups[:1], s.ups[1:]
	first.Routes, second.Routes = map[string]*Route{"default": &one}, map[string]*Route{"default": &two}
	s.server.Swap(&first)
	const streams = 5
	var all []*peer
	for range streams {
		p := s.dial()
		p.send(kept("/v1/chat/completions", "", streamBody))
		p.r.Peek(1)
		all = append(all, p)
	}
	s.server.Swap(&second)
	if _, body := s.chat(wholeBody); body != `{"other":1}` {
		t.Errorf("a new request: %q", body)
	}
	close(next)
	for _, p := range all {
		if status, body := p.answer("POST"); status != 200 || body != chunkHi+chunkHi+chunkStop+done {
			t.Errorf("%d %q", status, body)
		}
		p.send(kept("/v1/chat/completions", "", wholeBody))
		if _, body := p.answer("POST"); body != `{"other":1}` {
			t.Errorf("then on the same connection: %q", body)
		}
	}
}

func TestADrainEndsWhatWaitsInEveryPhase(t *testing.T) {
	silent := deaf(t)
	f := func(name, address string, conns int, adjust func(*Route), requests ...string) {
		t.Helper()
		_, route := narrow(t, address, conns)
		s := open(t, func(table *Table) {
			route(table)
			if adjust != nil {
				adjust(table.Routes["default"])
			}
		})
		var all []*peer
		for i, request := range requests {
			p := s.dial()
			p.send(request)
			all = append(all, p)
			for s.server.Active() <= i {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("%s: the drain took %v", name, took)
		}
		for i, p := range all {
			status, body := p.answer("POST")
			if status != 503 && !(adjust != nil && status == 200) || !strings.Contains(body, `"draining"`) || !p.over() {
				t.Errorf("%s, %d: %d %q", name, i, status, body)
			}
			if r := s.record(i + 1); r.Outcome != "drained" || r.Status != status {
				t.Errorf("%s, %d: record %+v", name, i, r)
			}
		}
	}
	stream, plain, upload := kept("/v1/chat/completions", "", streamBody), kept("/v1/chat/completions", "", wholeBody), kept("/v1/audio/transcriptions", "", "RIFF")
	f("the answer's head", silent, 10, nil, stream, plain, upload)
	f("a turn", silent, 1, nil, stream, plain, upload)
	f("a handshake", strings.Replace(silent, "http:", "https:", 1), 10, nil, stream, plain, upload)
	f("early headers", silent, 10, func(r *Route) { r.EarlyHeader, r.Heartbeat = 10*time.Millisecond, 10*time.Millisecond }, stream)
	f("an upload", silent, 10, nil, "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nRIFF")
}

func TestARequestThatComesBehindADrainIsEndedAtOnce(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	if err := s.server.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	var late request
	s.server.enter(&late)
	if err := late.up.Cancelled(); err != relay.ErrDrained {
		t.Errorf("it goes on: %v", err)
	}
	s.server.exit(&late)
}

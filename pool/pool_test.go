package pool

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"eisbach/pool/watch"
	"eisbach/sse/chunk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is far beyond what a test that works waits for anything.
const soon = 10 * time.Second

// provider is an upstream that the test plays: play answers a connection.
type provider struct {
	ln       net.Listener
	conns    atomic.Int64
	requests atomic.Int64
	wg       sync.WaitGroup
}

// peer is one connection of a provider.
type peer struct {
	net.Conn
	r *bufio.Reader
	p *provider
	n int64 // of the connection, from 1
}

func (c *peer) request() (*http.Request, string, error) {
	r, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, "", err
	}
	c.p.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	return r, string(body), err
}

func (c *peer) say(s string) { io.WriteString(c, s) }

func (c *peer) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// waitLeft waits until the other side has closed.
func (c *peer) waitLeft() error {
	c.SetReadDeadline(time.Now().Add(soon))
	_, err := c.r.ReadByte()
	if err == nil {
		return errors.New("a byte instead of the end")
	}
	if isTimeout(err) {
		return err
	}
	return nil
}

func listen(t testing.TB, ln net.Listener, play func(c *peer)) *provider {
	p := &provider{ln: ln}
	p.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := &peer{Conn: nc, r: bufio.NewReader(nc), p: p, n: p.conns.Add(1)}
			p.wg.Go(func() {
				defer c.Close()
				play(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		p.wg.Wait()
	})
	return p
}

func start(t testing.TB, play func(c *peer)) (*provider, *Upstream) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, ln, play), newUpstream(t, Config{Name: "u", URL: mustURL("http://" + ln.Addr().String() + "/v1"), Keys: []string{"k1"}, MaxConns: 8})
}

func newUpstream(t testing.TB, c Config) *Upstream {
	w, err := watch.New()
	if err != nil {
		t.Fatal(err)
	}
	u := New(c, w)
	t.Cleanup(func() {
		u.Close()
		w.Close()
	})
	return u
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func ask(ups ...*Upstream) *Request {
	return &Request{Upstreams: ups, Method: "POST", Endpoint: "chat/completions", Header: []byte("content-type: application/json\r\n"),
		Body: []byte(`{"model":"m"}`), Shape: chunk.Chat, MaxEvent: 1 << 20, Connect: soon, Deadline: time.Now().Add(soon)}
}

// answerOf gets one whole answer.
func answerOf(t testing.TB, r *Request) (string, Trace, error) {
	t.Helper()
	var s Stream
	s.Open(r)
	defer s.Close()
	body, err := s.Whole(time.Now().Add(soon), 1<<20)
	return string(body), s.Trace(), err
}

// drain reads a stream's events until its error.
func drain(s *Stream) (data []string, err error) {
	for {
		e, _, err := s.Next(time.Now().Add(soon))
		if err != nil {
			return data, err
		}
		data = append(data, string(e.Data))
	}
}

const (
	jsonHead   = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
	streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
	hi         = `{"choices":[{"delta":{"content":"Hi"}}]}`
)

func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// answering answers every request of every connection with the same bytes.
func answering(answer string) func(c *peer) {
	return func(c *peer) {
		for {
			if _, _, err := c.request(); err != nil {
				return
			}
			c.say(answer)
		}
	}
}

func TestWholeAnswersOfEveryFramingAreRead(t *testing.T) {
	f := func(answer, want string, closes bool) {
		t.Helper()
		_, u := start(t, func(c *peer) {
			c.request()
			c.say(answer)
			if !closes {
				c.waitLeft()
			}
		})
		if body, _, err := answerOf(t, ask(u)); err != nil || body != want {
			t.Errorf("%q: body %q, error %v", answer, body, err)
		}
	}
	f(jsonHead+"content-length: 2\r\n\r\n{}", "{}", false)
	f(jsonHead+"transfer-encoding: chunked\r\n\r\n"+chunked("{")+chunked("}")+"0\r\n\r\n", "{}", false)
	f(jsonHead+"\r\n{}", "{}", true)
	f("HTTP/1.0 200 OK\r\n\r\n{}", "{}", true)
	f("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"+jsonHead+"content-length: 2\r\n\r\n{}", "{}", false)
	f(jsonHead+"content-length: 0\r\n\r\n", "", false)
	f("HTTP/1.1 204 No Content\r\n\r\n", "", false)
}

func TestBrokenAnswersAreFailures(t *testing.T) {
	f := func(answer string, want Reason) {
		t.Helper()
		_, u := start(t, func(c *peer) {
			c.request()
			c.say(answer)
		})
		_, _, err := answerOf(t, ask(u))
		var failure *Failure
		if !errors.As(err, &failure) || failure.Reason != want {
			t.Errorf("%q: error %v, want reason %d", answer, err, want)
		}
	}
	f("", Disconnected)
	f("HTTP/1.1 200", Disconnected)
	f(jsonHead+"content-length: 400\r\n\r\n{\"id\"", Disconnected)
	f(jsonHead+"transfer-encoding: chunked\r\n\r\n"+chunked("{}"), Disconnected)
	f(jsonHead+"transfer-encoding: chunked\r\n\r\nzz\r\n", Disconnected)
	f("SSH-2.0-OpenSSH\r\n\r\n", Malformed)
	f("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", Malformed)
	f("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", Malformed)
	f("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", Malformed)
	f("HTTP/1.1 200 OK\r\nx: "+strings.Repeat("y", maxHead)+"\r\n\r\n", Malformed)
	f("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}", Unexpected)
	f("HTTP/1.1 200 OK\r\ncontent-encoding: zstd\r\ncontent-length: 2\r\n\r\n{}", Unexpected)
	f("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", Disconnected)
}

func TestTheRequestHasTheKeyAndNothingOfTheClients(t *testing.T) {
	heads := make(chan *http.Request, 1)
	_, u := start(t, func(c *peer) {
		r, body, _ := c.request()
		if body != `{"model":"m"}` {
			t.Errorf("body %q", body)
		}
		heads <- r
		c.say(jsonHead + "content-length: 2\r\n\r\n{}")
	})
	if _, _, err := answerOf(t, ask(u)); err != nil {
		t.Fatal(err)
	}
	r := <-heads
	want := http.Header{"User-Agent": {"eisbach"}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer k1"}, "Content-Type": {"application/json"}, "Content-Length": {"13"}}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) || r.RequestURI != "/v1/chat/completions" || r.Host != u.addr {
		t.Errorf("got %s %s %v", r.Host, r.RequestURI, r.Header)
	}
}

func TestKeysAreUsedInTurn(t *testing.T) {
	var keys []string
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	listen(t, ln, func(c *peer) {
		for {
			r, _, err := c.request()
			if err != nil {
				return
			}
			keys = append(keys, r.Header.Get("X-Api-Key"))
			c.say(jsonHead + "content-length: 2\r\n\r\n{}")
		}
	})
	u := newUpstream(t, Config{URL: mustURL("http://" + ln.Addr().String()), Keys: []string{"a", "b"}, KeyHeader: "x-api-key", MaxConns: 1})
	for range 3 {
		if _, _, err := answerOf(t, ask(u)); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(keys) != "[a b a]" {
		t.Errorf("keys %v", keys)
	}
}

func TestAnEventIsGivenOutBeforeItsChunkEnds(t *testing.T) {
	given := make(chan struct{})
	_, u := start(t, func(c *peer) {
		c.request()
		event := "data: " + hi + "\n\n"
		c.say(streamHead + fmt.Sprintf("%x\r\n%s", len(event), event)) // its CRLF comes later
		<-given
		c.say("\r\n" + chunked("data: [DONE]\n\n") + "0\r\n\r\n")
		c.waitLeft()
	})
	var s Stream
	s.Open(ask(u))
	defer s.Close()
	e, v, err := s.Next(time.Now().Add(soon))
	close(given)
	if err != nil || string(e.Data) != hi || v.Kind != chunk.Content {
		t.Fatalf("event %q, %v", e.Data, err)
	}
	if data, err := drain(&s); err != io.EOF || fmt.Sprint(data) != "[[DONE]]" {
		t.Fatalf("then %q, %v", data, err)
	}
}

func TestNextReturnsWhenItsTimeIsOverAndGoesOnAfterwards(t *testing.T) {
	next := make(chan struct{})
	_, u := start(t, func(c *peer) {
		c.request()
		<-next
		c.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-")
		<-next
		c.say("stream\r\n\r\ndata: " + hi)
		<-next
		c.say("\n\ndata: [DONE]\n\n")
	})
	var s Stream
	s.Open(ask(u))
	defer s.Close()
	for range 3 {
		if _, _, err := s.Next(time.Now().Add(20 * time.Millisecond)); err != os.ErrDeadlineExceeded {
			t.Fatalf("error %v", err)
		}
		if _, _, err := s.Next(time.Time{}); err != os.ErrDeadlineExceeded {
			t.Fatalf("error %v", err)
		}
		next <- struct{}{}
	}
	if data, err := drain(&s); err != io.EOF || fmt.Sprint(data) != "["+hi+" [DONE]]" {
		t.Fatalf("%q, %v", data, err)
	}
}

func TestWhatCameBeforeACutIsGivenOut(t *testing.T) {
	_, u := start(t, func(c *peer) {
		c.request()
		c.say(streamHead + chunked("data: 1\n\ndata: 2\n\ndata: 3"))
	})
	var s Stream
	s.Open(ask(u))
	defer s.Close()
	data, err := drain(&s)
	var failure *Failure
	if fmt.Sprint(data) != "[1 2 3]" || !errors.As(err, &failure) || failure.Reason != Disconnected {
		t.Fatalf("%q, %v", data, err)
	}
}

func TestAConnectionIsKeptOnlyAfterAnAnswerThatEndedWell(t *testing.T) {
	f := func(answer string, kept bool) {
		t.Helper()
		p, u := start(t, answering(answer))
		for range 2 {
			var s Stream
			s.Open(ask(u))
			drain(&s)
			s.Close()
			for deadline := time.Now().Add(soon); u.Stats().Idle != u.Stats().Open && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond) // the end is read in the background
			}
		}
		if got := p.conns.Load() == 1; got != kept {
			t.Errorf("%q: %d connections, kept should be %v", answer, p.conns.Load(), kept)
		}
	}
	body := chunked("data: " + hi + "\n\ndata: [DONE]\n\n")
	f(streamHead+body+"0\r\n\r\n", true)
	f(streamHead+body+"0\r\nx: y\r\n\r\n", true)
	f(streamHead+body+"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", false) // more than was asked for
	f(strings.Replace(streamHead, "\r\n\r\n", "\r\ncontent-length: 5\r\n\r\n", 1)+body+"0\r\n\r\n", false)
	f(strings.Replace(streamHead, "\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1)+body+"0\r\n\r\n", false)
	f("HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno", true)
	f("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nno", true)
}

func TestAnAnswerThatIsDoneMayEndItsBodyLater(t *testing.T) {
	p, u := start(t, func(c *peer) {
		for {
			if _, _, err := c.request(); err != nil {
				return
			}
			c.say(streamHead + chunked("data: "+hi+"\n\ndata: [DONE]\n\n"))
			time.Sleep(20 * time.Millisecond)
			c.say("0\r\n\r\n")
		}
	})
	for range 2 {
		var s Stream
		s.Open(ask(u))
		for done := false; !done; {
			_, v, err := s.Next(time.Now().Add(soon))
			if err != nil {
				t.Fatal(err)
			}
			done = v.Kind == chunk.Done
		}
		s.Close()
		for u.Stats().Idle == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if p.conns.Load() != 1 {
		t.Errorf("%d connections", p.conns.Load())
	}
}

func TestAKeptConnectionLeavesThePoolWhenItsUpstreamClosesOrSpeaks(t *testing.T) {
	f := func(name string, then func(c *peer)) {
		_, u := start(t, func(c *peer) {
			c.request()
			c.say(jsonHead + "content-length: 2\r\n\r\n{}")
			if c.n == 1 {
				time.Sleep(20 * time.Millisecond)
				then(c)
			}
			c.waitLeft()
		})
		if _, _, err := answerOf(t, ask(u)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(soon); u.Stats().Open > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the connection is still there", name)
			}
		}
		if body, trace, err := answerOf(t, ask(u)); err != nil || body != "{}" || trace.Attempts != 1 {
			t.Errorf("%s: then %q, %d attempts, %v", name, body, trace.Attempts, err)
		}
	}
	f("FIN", func(c *peer) { c.Close() })
	f("RST", func(c *peer) { c.reset() })
	f("bytes", func(c *peer) { c.say(jsonHead + "content-length: 4\r\n\r\nEVIL") })
}

func TestAStaleConnectionCostsOneMoreTryAndAFreshOneNone(t *testing.T) {
	p, u := start(t, func(c *peer) {
		for {
			_, body, err := c.request()
			if err != nil {
				return
			}
			if strings.Contains(body, "die") || c.n == 1 && strings.Contains(body, "stale") {
				return
			}
			c.say(jsonHead + "content-length: 2\r\n\r\n{}")
		}
	})
	if _, _, err := answerOf(t, ask(u)); err != nil {
		t.Fatal(err)
	}
	r := ask(u)
	r.Body = []byte(`{"model":"stale"}`)
	if _, trace, err := answerOf(t, r); err != nil || trace.Attempts != 2 {
		t.Errorf("on a stale connection: %d attempts, %v", trace.Attempts, err)
	}
	before := p.requests.Load()
	r.Body = []byte(`{"model":"die"}`) // the kept one dies, and then the fresh one
	if _, trace, err := answerOf(t, r); err == nil || trace.Attempts != 2 || p.requests.Load() != before+2 {
		t.Errorf("on a dying upstream: %d attempts, %d requests, %v", trace.Attempts, p.requests.Load()-before, err)
	}
	before = p.requests.Load()
	if _, trace, err := answerOf(t, r); err == nil || trace.Attempts != 1 || p.requests.Load() != before+1 {
		t.Errorf("on a fresh connection: %d attempts, %d requests, %v", trace.Attempts, p.requests.Load()-before, err)
	}
}

func TestAnUpstreamThatCantBeReachedIsPassedOver(t *testing.T) {
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	ln.Close()
	gone := newUpstream(t, Config{Name: "gone", URL: mustURL("http://" + ln.Addr().String()), MaxConns: 1})
	_, u := start(t, answering(jsonHead+"content-length: 2\r\n\r\n{}"))
	if body, trace, err := answerOf(t, ask(gone, u)); err != nil || body != "{}" || trace.Upstream != "u" || trace.Attempts != 2 {
		t.Errorf("%q, %+v, %v", body, trace, err)
	}
	_, _, err := answerOf(t, ask(gone))
	var failure *Failure
	if !errors.As(err, &failure) || failure.Reason != NoConnection {
		t.Errorf("alone: %v", err)
	}
	if n := gone.Stats().Open; n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}

func TestAHandshakeThatTakesTooLongIsAConnectTimeout(t *testing.T) {
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	listen(t, ln, func(c *peer) { c.SetReadDeadline(time.Now().Add(soon)); io.Copy(io.Discard, c) })
	u := newUpstream(t, Config{URL: mustURL("https://" + ln.Addr().String()), MaxConns: 1})
	r := ask(u)
	r.Connect = 50 * time.Millisecond
	_, _, err := answerOf(t, r)
	var failure *Failure
	if !errors.As(err, &failure) || failure.Reason != ConnectTimeout {
		t.Errorf("error %v", err)
	}
}

func TestRequestsWaitForOneOfMaxConnsInOrder(t *testing.T) {
	p, u := start(t, answering(jsonHead+"content-length: 2\r\n\r\n{}"))
	u.maxConns = 2
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if body, _, err := answerOf(t, ask(u)); err != nil || body != "{}" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	wg.Wait()
	if n := p.conns.Load(); n > 2 {
		t.Errorf("%d connections", n)
	}
	if s := u.Stats(); s.Waiting != 0 || s.Open != s.Idle {
		t.Errorf("left: %+v", s)
	}
}

func TestThoseThatWaitGetNoConnectionThatItsUpstreamHasClosed(t *testing.T) {
	_, u := start(t, func(c *peer) {
		if _, _, err := c.request(); err == nil {
			c.say(jsonHead + "content-length: 2\r\n\r\n{}") // and closes, without having said so
		}
	})
	u.maxConns = 2
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for range 15 {
				if body, _, err := answerOf(t, ask(u)); err != nil || body != "{}" {
					t.Errorf("%q, %v", body, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestARetiredUpstreamServesWhoHasItAndKeepsNothing(t *testing.T) {
	p, u := start(t, answering(jsonHead+"content-length: 2\r\n\r\n{}"))
	u.maxConns = 1
	var first Stream
	first.Open(ask(u))
	if err := first.Head(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, _, err := answerOf(t, ask(u))
		waits <- err
	}()
	for u.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	u.Retire()
	if _, err := first.Whole(time.Now().Add(soon), 100); err != nil {
		t.Error(err)
	}
	first.Close()
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if _, _, err := answerOf(t, ask(u)); err != nil {
		t.Error(err)
	}
	if s := u.Stats(); s.Open != 0 || p.conns.Load() > 3 {
		t.Errorf("left %+v, %d connections", s, p.conns.Load())
	}
}

func TestErrorAnswersThatNeverEndDontKeepTheirPlace(t *testing.T) {
	p, u := start(t, func(c *peer) {
		for {
			_, body, err := c.request()
			if err != nil {
				return
			}
			if strings.Contains(body, "never") {
				c.say("HTTP/1.1 429 Too Many Requests\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(`{"error":`))
				c.waitLeft()
				return
			}
			c.say(jsonHead + "content-length: 2\r\n\r\n{}")
		}
	})
	u.maxConns = 1
	r := ask(u)
	r.Body = []byte("never")
	var failure *Failure
	if _, _, err := answerOf(t, r); !errors.As(err, &failure) || failure.Status != 429 || string(failure.Body) != `{"error":` {
		t.Errorf("error %v", err)
	}
	if body, _, err := answerOf(t, ask(u)); err != nil || body != "{}" || p.conns.Load() != 2 {
		t.Errorf("then %q, %v on %d connections", body, err, p.conns.Load())
	}
}

func TestCancelReachesTheUpstreamInEveryPhase(t *testing.T) {
	cause := errors.New("the client left")
	left := make(chan error, 1)
	f := func(name string, secure bool, play func(c *peer)) {
		ln, _ := net.Listen("tcp", "127.0.0.1:0")
		began := make(chan struct{}, 4)
		c := Config{Name: "u", URL: mustURL("http://" + ln.Addr().String()), MaxConns: 1}
		if secure {
			ln, c.RootCAs = secured(t, ln)
			c.URL.Scheme = "https"
		}
		listen(t, ln, func(c *peer) {
			play(c)
			began <- struct{}{}
			left <- c.waitLeft()
		})
		u := newUpstream(t, c)
		var s Stream
		s.Open(ask(u))
		go func() {
			<-began
			time.Sleep(10 * time.Millisecond)
			s.Cancel(cause)
		}()
		var err error
		for err == nil {
			_, _, err = s.Next(time.Now().Add(soon))
		}
		s.Close()
		if err != cause {
			t.Errorf("%s: error %v", name, err)
		}
		if err := <-left; err != nil {
			t.Errorf("%s: the upstream did not see it: %v", name, err)
		}
		if n := u.Stats().Open; n != 0 {
			t.Errorf("%s: %d connections left", name, n)
		}
	}
	for _, secure := range []bool{false, true} {
		f("waiting for the head", secure, func(c *peer) { c.request() })
		f("in the head", secure, func(c *peer) { c.request(); c.say("HTTP/1.1 200 OK\r\n") })
		f("silent in the stream", secure, func(c *peer) { c.request(); c.say(streamHead + chunked("data: "+hi+"\n\n")) })
	}
	// The handshake never ends.
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	began := make(chan struct{})
	listen(t, ln, func(c *peer) {
		c.r.Peek(1)
		close(began)
		_, err := io.Copy(io.Discard, c.r)
		left <- err
	})
	u := newUpstream(t, Config{URL: mustURL("https://" + ln.Addr().String()), MaxConns: 1})
	var s Stream
	s.Open(ask(u))
	go func() { <-began; s.Cancel(cause) }()
	if _, _, err := s.Next(time.Now().Add(soon)); err != cause {
		t.Errorf("dialling: error %v", err)
	}
	s.Close()
	if err := <-left; err != nil {
		t.Errorf("dialling: the upstream saw %v", err)
	}
}

func TestCancelEndsAWaitForAConnection(t *testing.T) {
	_, u := start(t, func(c *peer) { c.request(); c.waitLeft() })
	u.maxConns = 1
	var first, second Stream
	first.Open(ask(u))
	first.Head(time.Now().Add(20 * time.Millisecond))
	second.Open(ask(u))
	cause := errors.New("gone")
	time.AfterFunc(20*time.Millisecond, func() { second.Cancel(cause) })
	if err := second.Head(time.Now().Add(soon)); err != cause {
		t.Errorf("error %v", err)
	}
	second.Close()
	if s := u.Stats(); s.Waiting != 0 {
		t.Errorf("still waiting: %+v", s)
	}
	first.Close()
}

func TestUploadsArePassedOnAsTheyCome(t *testing.T) {
	f := func(size int64, body string, wantErr bool) {
		t.Helper()
		got := make(chan string, 1)
		_, u := start(t, func(c *peer) {
			_, b, _ := c.request()
			got <- b
			c.say(jsonHead + "content-length: 2\r\n\r\n{}")
		})
		r := ask(u)
		r.Body, r.Upload, r.UploadSize = nil, io.MultiReader(strings.NewReader(body[:len(body)/2]), strings.NewReader(body[len(body)/2:])), size
		_, _, err := answerOf(t, r)
		var upload *UploadError
		if errors.As(err, &upload) != wantErr || !wantErr && (err != nil || <-got != body) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	big := strings.Repeat("0123456789abcdef", 10_000)
	f(int64(len(big)), big, false)
	f(-1, big, false)
	f(int64(len(big))+1, big, true)
	f(-1, "x", false)
}

// secured puts TLS over a listener, with a certificate of its own.
func secured(t testing.TB, ln net.Listener) (net.Listener, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}), roots
}

func TestTLSConnectionsAreVerifiedAndKept(t *testing.T) {
	raw, _ := net.Listen("tcp", "127.0.0.1:0")
	ln, roots := secured(t, raw)
	p := listen(t, ln, answering(jsonHead+"content-length: 2\r\n\r\n{}"))
	u := newUpstream(t, Config{URL: mustURL("https://" + raw.Addr().String()), RootCAs: roots, MaxConns: 2})
	for range 3 {
		if body, _, err := answerOf(t, ask(u)); err != nil || body != "{}" {
			t.Fatalf("%q, %v", body, err)
		}
	}
	if n := p.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	stranger := newUpstream(t, Config{URL: mustURL("https://" + raw.Addr().String()), RootCAs: x509.NewCertPool(), MaxConns: 1})
	if _, _, err := answerOf(t, ask(stranger)); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

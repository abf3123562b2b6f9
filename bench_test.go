package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"eisbach/edge"
	"eisbach/edge/auth"
	"eisbach/pool"
	"eisbach/pool/sim"
	"eisbach/pool/watch"
)

// soon is far beyond what anything that works takes.
const soon = 10 * time.Second

const clientKey = "eb-bench"

// front is the edge as "eisbach serve" puts it together, with a route for each
// upstream.
type front struct {
	addr    string
	server  *edge.Server
	pools   []*pool.Upstream
	records records
}

// records counts what the edge wrote down.
type records struct{ all, left atomic.Int64 }

// Write implements io.Writer; the edge writes whole lines.
func (r *records) Write(p []byte) (int, error) {
	r.all.Add(int64(bytes.Count(p, []byte(`"msg":"request"`))))
	r.left.Add(int64(bytes.Count(p, []byte(`"outcome":"client_left"`))))
	return len(p), nil
}

func serve(b *testing.B, upstreams ...pool.Config) *front {
	b.Helper()
	w, err := watch.New()
	if err != nil {
		b.Fatal(err)
	}
	f := &front{}
	table := &edge.Table{Routes: map[string]*edge.Route{}, Keys: auth.NewKeys(), MaxBody: 20 << 20}
	var names []string
	for _, c := range upstreams {
		c.Keys, c.MaxConns = []string{"upstream-key"}, 10_000
		p := pool.New(c, w)
		f.pools, names = append(f.pools, p), append(names, c.Name)
		table.Routes[c.Name] = &edge.Route{
			Name: c.Name, Upstreams: []*pool.Upstream{p}, Secrets: c.Keys, Endpoints: []string{"chat/completions"}, MaxEvent: 1 << 20,
			Connect: time.Minute, FirstToken: time.Hour, Idle: time.Hour, Total: time.Hour, Heartbeat: 5 * time.Second, EarlyHeader: 7 * time.Second,
		}
	}
	table.Keys.Add(sha256.Sum256([]byte(clientKey)), auth.Identity{User: "bench", Routes: names})
	f.server = edge.New(table, w, slog.New(slog.DiscardHandler), &f.records)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ln) }()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		f.server.Shutdown(ctx)
		<-served
		for _, p := range f.pools {
			p.Close()
		}
		w.Close()
	})
	return f
}

func upstreamAt(b *testing.B, name, base string) pool.Config {
	b.Helper()
	u, err := url.Parse(base + "/v1")
	if err != nil {
		b.Fatal(err)
	}
	return pool.Config{Name: name, URL: u}
}

// ask is a chat request to a route; the same bytes go to an upstream. The prompt
// of 1 KiB also makes whole and streamed requests alike in size: fasthttp keeps no
// buffers for bodies larger than most have been.
func ask(route, model string, stream bool) []byte {
	path, options := "/v1", ""
	if route != "default" {
		path = "/" + route + path
	}
	if stream {
		options = `"stream":true,"stream_options":{"include_usage":true},`
	}
	body := fmt.Sprintf(`{"model":%q,%s"messages":[{"role":"system","content":%q},{"role":"user","content":"What is the Eisbach?"}]}`,
		model, options, strings.Repeat("You know rivers. ", 60))
	return fmt.Appendf(nil, "POST %s/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n"+
		"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s", path, clientKey, len(body), body)
}

// client asks the same again and again on one connection, and allocates nothing.
type client struct {
	conn    net.Conn
	request []byte
	content []byte // shows that the answer's content has begun
	times   int    // that content is in the answer
	end     func(answer []byte) bool
	buf     []byte
}

// tokens is the length of an answer, in tokens and so in events.
const tokens = 20

func newClient(b *testing.B, addr string, k kind) *client {
	b.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	c := &client{conn: nc, request: ask("default", "m", k.stream), content: []byte(`"content":`), times: 1, end: wholeEnds, buf: make([]byte, 64<<10)}
	if k.stream {
		c.times, c.end = tokens+1, streamEnds // the last one says how it ended
	}
	c.ask(b) // warms the connections up
	return c
}

// ask gives the times to the first content and to the end of the answer.
func (c *client) ask(b *testing.B) (first, all time.Duration) {
	start := time.Now()
	if _, err := c.conn.Write(c.request); err != nil {
		b.Fatal(err)
	}
	for n := 0; ; {
		m, err := c.conn.Read(c.buf[n:])
		if err != nil {
			b.Fatal(err)
		}
		n += m
		answer := c.buf[:n]
		if first == 0 && bytes.Contains(answer, c.content) {
			first = time.Since(start)
		}
		if !c.end(answer) {
			continue
		}
		all = time.Since(start)
		if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || bytes.Count(answer, c.content) != c.times {
			b.Fatalf("not the answer: %q", answer)
		}
		return first, all
	}
}

func wholeEnds(answer []byte) bool {
	head, body, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(": "))
		if bytes.EqualFold(name, []byte("content-length")) {
			length, _ := strconv.Atoi(string(value)) // short enough to need no allocation
			return len(body) == length
		}
	}
	return false
}

func streamEnds(answer []byte) bool {
	return bytes.HasSuffix(answer, []byte("data: [DONE]\n\n\r\n0\r\n\r\n"))
}

func serveSimulated(b *testing.B) (*sim.Server, *front) {
	const noLimit = 1 << 40
	upstream := sim.Start(b, sim.Options{Params: sim.Params{Tokens: tokens}, PerMinute: noLimit, PerDay: noLimit})
	return upstream, serve(b, upstreamAt(b, "default", upstream.URL))
}

// kind is an answer to ask for.
type kind struct {
	name   string
	stream bool
}

func kinds() []kind { return []kind{{"whole", false}, {"stream20", true}} }

// BenchmarkRequest asks over loopback, directly beside through the edge. What is
// allocated is that of the whole process, and neither client nor simulator do.
func BenchmarkRequest(b *testing.B) {
	upstream, f := serveSimulated(b)
	for _, kind := range kinds() {
		for _, way := range []struct{ name, addr string }{{"direct", strings.TrimPrefix(upstream.URL, "http://")}, {"edge", f.addr}} {
			b.Run(way.name+"/"+kind.name, func(b *testing.B) {
				c := newClient(b, way.addr, kind)
				b.ReportAllocs()
				for b.Loop() {
					c.ask(b)
				}
			})
		}
	}
}

// BenchmarkAdded asks in turn directly and through the edge, so that whatever
// else the machine does meets both alike. It reports what the edge adds to the
// mean, to the median and to the 99th percentile of the time that an answer
// takes, and to that of its first content. Of stream20 only the latter says
// something: events that come faster than they can be read one by one come
// together in the end. For a stream at a pace see BenchmarkEvent.
func BenchmarkAdded(b *testing.B) {
	upstream, f := serveSimulated(b)
	for _, kind := range kinds() {
		b.Run(kind.name, func(b *testing.B) {
			direct := newClient(b, strings.TrimPrefix(upstream.URL, "http://"), kind)
			through := newClient(b, f.addr, kind)
			var first, all [2][]time.Duration
			for b.Loop() {
				for i, c := range [...]*client{direct, through} {
					began, ended := c.ask(b)
					first[i], all[i] = append(first[i], began), append(all[i], ended)
				}
			}
			b.ReportMetric(0, "ns/op") // both ways together say nothing
			b.ReportMetric(micros(mean(all[1])-mean(all[0])), "added-µs/op")
			b.ReportMetric(micros(quantile(all[0], 50)), "direct-p50-µs")
			for _, percent := range []int{50, 99} {
				added := func(d [2][]time.Duration) float64 { return micros(quantile(d[1], percent) - quantile(d[0], percent)) }
				b.ReportMetric(added(all), fmt.Sprintf("added-p%d-µs", percent))
				b.ReportMetric(added(first), fmt.Sprintf("added-ttft-p%d-µs", percent))
			}
		})
	}
}

// BenchmarkEvent is how long events are on their way, from the upstream's write
// to the client's read: in turn directly and through the edge, an event every
// millisecond, as of a fast model. It reports what the edge adds to the median
// and to the 99th percentile. An operation is two streams of 20 events.
func BenchmarkEvent(b *testing.B) {
	upstream, f := serveSimulated(b)
	upstream.Script(sayTheTime)
	stamped := kind{stream: true}
	direct := newClient(b, strings.TrimPrefix(upstream.URL, "http://"), stamped)
	through := newClient(b, f.addr, stamped)
	var took [2][]time.Duration
	for b.Loop() {
		for i, c := range [...]*client{direct, through} {
			took[i] = c.follow(b, took[i])
		}
	}
	b.ReportMetric(0, "ns/op") // the pace
	b.ReportMetric(micros(quantile(took[0], 50)), "direct-p50-µs")
	for _, percent := range []int{50, 99} {
		b.ReportMetric(micros(quantile(took[1], percent)-quantile(took[0], percent)), fmt.Sprintf("added-p%d-µs", percent))
	}
}

// sayTheTime answers with events that say when they were sent.
func sayTheTime(c *sim.Call) {
	c.Head(200, "content-type: text/event-stream")
	for range tokens {
		c.WaitGone(time.Millisecond)
		c.Chunk(fmt.Appendf(nil, `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"%d"},"finish_reason":null}]}`+"\n\n", time.Now().UnixNano()))
	}
	c.Chunk([]byte(`data: {"id":"c1","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"))
	c.End()
}

// follow appends how long each event was on its way.
func (c *client) follow(b *testing.B, took []time.Duration) []time.Duration {
	if _, err := c.conn.Write(c.request); err != nil {
		b.Fatal(err)
	}
	before := len(took)
	for n, from := 0, 0; ; {
		m, err := c.conn.Read(c.buf[n:])
		now := time.Now().UnixNano()
		if err != nil {
			b.Fatal(err)
		}
		n += m
		for {
			_, text, ok := bytes.Cut(c.buf[from:n], c.content)
			stamp, rest, whole := bytes.Cut(bytes.TrimPrefix(text, []byte(`"`)), []byte(`"`))
			if !ok || !whole {
				break
			}
			from = n - len(rest)
			if sent, err := strconv.ParseInt(string(stamp), 10, 64); err == nil {
				took = append(took, time.Duration(now-sent))
			}
		}
		if streamEnds(c.buf[:n]) {
			if len(took) != before+tokens {
				b.Fatalf("not the answer: %q", c.buf[:n])
			}
			return took
		}
	}
}

func mean(d []time.Duration) time.Duration {
	var sum time.Duration
	for _, each := range d {
		sum += each
	}
	return sum / time.Duration(len(d))
}

// quantile sorts d. With fewer than a hundred, the 99th percentile is the
// longest.
func quantile(d []time.Duration, percent int) time.Duration {
	slices.Sort(d)
	return d[(len(d)*percent+99)/100-1]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Bounds of BenchmarkClientLeaves.
const (
	others    = 500                   // streams that are open beside
	mostLeave = 50 * time.Millisecond // the 99th percentile must not be above
)

// BenchmarkClientLeaves is how long it takes until an upstream sees that a
// client has left, in whatever phase the request is, while 500 other streams get
// an event a second each. The client's clock starts right before it leaves, and
// the upstream's stops when its read returns; both are one clock. A client
// leaves by a FIN (its sending side is shut down, the first thing that a close
// shows) or by a RST.
//
// A trial is an operation: -benchtime=1000x makes 1,000 of them in each phase, in
// little more than a minute. It fails where the 99th percentile is above 50 ms, or
// where a trial leaves a request or a connection behind.
func BenchmarkClientLeaves(b *testing.B) {
	for _, scheme := range []string{"plain", "tls"} {
		b.Run(scheme, func(b *testing.B) {
			phases := []string{"waiting", "role", "silent", "streaming", "whole"}
			if scheme == "tls" {
				phases = append(phases, "handshake")
			}
			l := newLeaving(b, scheme == "tls")
			for _, phase := range phases {
				for _, way := range []string{"fin", "rst"} {
					if !b.Run(phase+"/"+way, func(b *testing.B) { l.run(b, phase, way == "rst") }) {
						return // what this one left would be taken for the next one's
					}
				}
			}
		})
	}
}

// leaving is an upstream that tells when its client leaves, and the edge in
// front of it.
type leaving struct {
	front   *front
	sim     *sim.Server
	reached chan struct{}  // a trial's request is in its phase
	seen    chan time.Time // its client has left
}

func newLeaving(b *testing.B, secure bool) *leaving {
	b.Helper()
	l := &leaving{reached: make(chan struct{}, 1), seen: make(chan time.Time, 1)}
	var ca []byte
	if secure {
		l.sim, ca = sim.StartTLS(b, sim.Options{})
	} else {
		l.sim = sim.Start(b, sim.Options{})
	}
	l.sim.Script(l.play)
	upstream := upstreamAt(b, "default", l.sim.URL)
	if secure {
		upstream.RootCAs = x509.NewCertPool()
		upstream.RootCAs.AppendCertsFromPEM(ca)
	}
	l.front = serve(b, upstream, upstreamAt(b, "handshake", "https://"+l.mute(b)))
	var reading sync.WaitGroup
	b.Cleanup(reading.Wait)
	for range others {
		nc := l.send(b, "other")
		b.Cleanup(func() { nc.Close() })
		readContent(b, nc)
		reading.Go(func() { io.Copy(io.Discard, nc) })
	}
	return l
}

// mute accepts connections and never says a word, so that no handshake ends.
func (l *leaving) mute(b *testing.B) string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			var hello [4 << 10]byte
			nc.Read(hello[:])
			l.reached <- struct{}{}
			io.Copy(io.Discard, nc)
			l.seen <- time.Now()
			nc.Close()
		}
	}()
	b.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

const (
	roleEvent    = `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	contentEvent = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}` + "\n\n"
)

// play answers as far as the phase goes, which is the model's name.
func (l *leaving) play(c *sim.Call) {
	is := func(phase string) bool { return bytes.Contains(c.Body, []byte(`"model":"`+phase+`"`)) }
	if !is("waiting") && !is("whole") {
		c.Head(200, "content-type: text/event-stream")
		c.Chunk([]byte(roleEvent))
	}
	if is("other") {
		c.Chunk([]byte(contentEvent))
		c.WaitGone(time.Duration(c.N%others) * time.Second / others) // they don't all speak at once
		repeat(c, time.Second)
		return
	}
	if is("silent") || is("streaming") {
		c.Chunk([]byte(contentEvent))
	}
	l.reached <- struct{}{}
	if is("streaming") {
		repeat(c, 2*time.Millisecond)
	}
	<-c.Gone()
	l.seen <- time.Now()
}

// repeat says the same until nobody listens.
func repeat(c *sim.Call, every time.Duration) {
	for !c.WaitGone(every) && c.Chunk([]byte(contentEvent)) == nil {
	}
}

// send asks for what is to be played, on a connection of its own.
func (l *leaving) send(b *testing.B, phase string) *net.TCPConn {
	b.Helper()
	nc, err := net.Dial("tcp", l.front.addr)
	if err != nil {
		b.Fatal(err)
	}
	route := "default"
	if phase == "handshake" {
		route = phase
	}
	if _, err := nc.Write(ask(route, phase, phase != "whole")); err != nil {
		b.Fatal(err)
	}
	return nc.(*net.TCPConn)
}

func readContent(b *testing.B, nc net.Conn) {
	b.Helper()
	nc.SetReadDeadline(time.Now().Add(soon))
	defer nc.SetReadDeadline(time.Time{})
	var buf [4 << 10]byte
	for n := 0; !bytes.Contains(buf[:n], []byte(`"Hi"`)); {
		m, err := nc.Read(buf[n:])
		if err != nil {
			b.Fatalf("%v after %q", err, buf[:n])
		}
		n += m
	}
}

func (l *leaving) run(b *testing.B, phase string, reset bool) {
	before := l.front.records.left.Load()
	var took []time.Duration
	for b.Loop() {
		took = append(took, l.trial(b, phase, reset))
	}
	b.ReportMetric(0, "ns/op") // mostly the way into the phase
	p99 := quantile(took, 99)
	b.ReportMetric(micros(quantile(took, 50)), "p50-µs")
	b.ReportMetric(micros(p99), "p99-µs")
	b.ReportMetric(micros(took[len(took)-1]), "max-µs")
	if p99 > mostLeave {
		b.Errorf("the 99th percentile of %d trials is %v, above %v", len(took), p99, mostLeave)
	}
	l.checkNothingIsLeft(b, before+int64(len(took)))
}

func (l *leaving) trial(b *testing.B, phase string, reset bool) time.Duration {
	nc := l.send(b, phase)
	defer nc.Close()
	await(b, l.reached)
	if phase == "silent" || phase == "streaming" {
		readContent(b, nc)
	}
	time.Sleep(time.Millisecond + rand.N(2*time.Millisecond)) // anywhere between two events
	start := time.Now()
	if reset {
		nc.SetLinger(0)
		nc.Close()
	} else {
		nc.CloseWrite()
	}
	return await(b, l.seen).Sub(start)
}

func await[T any](b *testing.B, c <-chan T) T {
	b.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		b.Fatal("waited in vain")
		panic("unreachable")
	}
}

// checkNothingIsLeft waits until only the other streams are there, and each
// trial is written down as what it was.
func (l *leaving) checkNothingIsLeft(b *testing.B, left int64) {
	b.Helper()
	const pause = time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		trials, open := l.front.pools[1].Stats(), l.front.pools[0].Stats()
		if l.front.records.left.Load() == left && l.front.server.Active() == others && l.sim.Stats().Open == others &&
			open == (pool.Stats{Open: others}) && trials == (pool.Stats{}) {
			return
		}
		if waited > soon {
			b.Fatalf("%d of %d recorded as client_left; %d requests, %d and %+v, %+v connections are open beside %d streams",
				l.front.records.left.Load(), left, l.front.server.Active(), l.sim.Stats().Open, open, trials, others)
		}
		time.Sleep(pause)
	}
}

//go:build !race

// The race detector makes sync.Pool forget at random, so allocations can't be
// counted with it.

package edge

import (
	"bytes"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"eisbach/pool"
)

// canned is an upstream that answers without allocating: with the answer whose
// name is in the request. A 0 byte in it is a pause.
func canned(t *testing.T, answers map[string]string) *upstream {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var names [][]byte
	var bodies [][][]byte
	for name, body := range answers {
		names, bodies = append(names, []byte(name)), append(bodies, bytes.Split([]byte(body), []byte{0}))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				p := make([]byte, 8<<10)
				for {
					n, err := c.Read(p)
					if err != nil {
						return
					}
					for i, name := range names {
						if bytes.Contains(p[:n], name) {
							writeParts(c, bodies[i])
						}
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return &upstream{addr: ln.Addr().String()}
}

func writeParts(c net.Conn, parts [][]byte) {
	for i, part := range parts {
		if i > 0 {
			time.Sleep(time.Millisecond)
		}
		c.Write(part)
	}
}

// asker asks the same again and again, on one connection and without
// allocating.
type asker struct {
	t       *testing.T
	c       net.Conn
	up      *pool.Upstream
	request []byte
	end     []byte // of each answer
	p       []byte
}

func newAsker(t *testing.T, s *front, path, headers, body, end string) *asker {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return &asker{t: t, c: c, up: s.ups[0], p: make([]byte, 64<<10), end: []byte(end),
		request: []byte("POST " + path + " HTTP/1.1\r\nhost: x\r\nauthorization: Bearer CK-good\r\n" + headers + "content-length: " + itoa(len(body)) + "\r\n\r\n" + body)}
}

// ask gives the answer, lent until the next call. It returns once the
// connection upstream is kept, so that no second one is made.
func (a *asker) ask() []byte {
	a.c.Write(a.request)
	have := 0
	for !bytes.HasSuffix(a.p[:have], a.end) {
		n, err := a.c.Read(a.p[have:])
		if err != nil {
			a.t.Fatalf("%v after %q", err, a.p[:have])
		}
		have += n
	}
	for stats := a.up.Stats(); stats.Idle < stats.Open; stats = a.up.Stats() {
		time.Sleep(50 * time.Microsecond)
	}
	return a.p[:have]
}

// allocations are those of the whole process, for each answer: of some rounds
// the fewest, because each processor has a free list of its own to fill first.
// Collections, which empty them, are held off.
func (a *asker) allocations() float64 {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const rounds, n = 6, 100
	fewest := uint64(math.MaxUint64)
	for range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			a.ask()
		}
		runtime.ReadMemStats(&after)
		fewest = min(fewest, after.Mallocs-before.Mallocs)
	}
	return float64(fewest) / n
}

// fasthttps is what fasthttp allocates for each request: the byte with which it
// waits for a kept connection's next one, where that takes no read buffer
// (acquireByteReader, by Server.ReduceMemoryUsage). room is for what the
// runtime does beside.
const (
	fasthttps = 1
	room      = 0.1
)

// cannedStream has n events of content.
func cannedStream(n int) string {
	return chunkedStreamHead + hexChunk(role) + strings.Repeat(hexChunk(hi), n) + hexChunk(stop+usage+done) + lastChunk
}

func TestAForwardedEventAllocatesNothing(t *testing.T) {
	s := open(t, keyed("CK-good", "ios", "default"), canned(t, map[string]string{"few": cannedStream(10), "many": cannedStream(210)}))
	f := func(name string, events int) float64 {
		a := newAsker(t, s, "/v1/chat/completions", "", strings.Replace(streamBody, "m1", name, 1), lastChunk)
		if got := bytes.Count(a.ask(), []byte(`"Hi"`)); got != events {
			t.Fatalf("%d events, want %d", got, events)
		}
		return a.allocations()
	}
	few, many := f("few", 10), f("many", 210)
	t.Logf("a stream of 10 events %.2f allocations, of 210 %.2f", few, many)
	if per := (many - few) / 200; per > 0.01 {
		t.Errorf("%.3f allocations an event", per)
	}
}

func TestASteadyRequestAllocatesNothingThatCouldBeKept(t *testing.T) {
	const id = "req_0123456789abcdef0123456789abcdef"
	named := func(answer string) string {
		return strings.Replace(answer, "\r\n", "\r\nx-request-id: "+id+"\r\nserver: cloudflare\r\n", 1)
	}
	message := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	few := cannedStream(10)
	up := canned(t, map[string]string{
		`"few"`:     few,
		`"named"`:   named(few),
		`"late"`:    strings.TrimSuffix(few, lastChunk) + "\x00" + lastChunk,
		`"slow"`:    chunkedStreamHead + "\x00" + hexChunk(role) + "\x00" + hexChunk(hi) + "\x00" + hexChunk(stop+usage+done) + lastChunk,
		`"entire"`:  whole(completion),
		`"entire2"`: named(whole(completion)),
		"of trains": few,
		`"message"`: chunkedStreamHead + hexChunk(message) + lastChunk,
	})
	f := func(name, model, path, headers, want string, stream bool, adjust func(*Route, *Table)) {
		t.Helper()
		s := open(t, func(table *Table) {
			keyed("CK-good", "ios", "default", "other")(table)
			if adjust != nil {
				adjust(table.Routes["default"], table)
			}
		}, up)
		body, end := wholeBody, completion
		if stream {
			body, end = streamBody, lastChunk
		}
		a := newAsker(t, s, path, headers, strings.Replace(body, "m1", model, 1), end)
		if got := a.ask(); !bytes.Contains(got, []byte(" 200 OK\r\n")) || !bytes.Contains(got, []byte(want)) {
			t.Fatalf("%s: %q, want %q", name, got, want)
		}
		got := a.allocations()
		t.Logf("%-28s %.2f", name, got)
		if got > fasthttps+room {
			t.Errorf("%s: %.2f allocations", name, got)
		}
	}
	const chat, origin = "/v1/chat/completions", "https://a-branch-with-a-long-name.preview.example.com"
	f("a stream", "few", chat, "", done, true, nil)
	f("a whole answer", "entire", chat, "", completion, false, nil)
	f("a stream that the upstream names", "named", chat, "", "X-Upstream-Request-Id: "+id, true, func(r *Route, _ *Table) {
		r.Secrets = []string{"sk-" + strings.Repeat("0123456789", 10)}
	})
	f("a whole answer that it names", "entire2", chat, "", "X-Upstream-Request-Id: "+id, false, nil)
	f("a last chunk of its own", "late", chat, "", done, true, nil)
	f("events one by one", "slow", chat, "", done, true, nil)
	f("messages", "message", "/v1/messages", "anthropic-version: 2023-06-01\r\n", "message_stop", true, nil)
	f("another name of the model", "public", chat, "", done, true, func(r *Route, _ *Table) { r.Models = map[string]string{"public": "few"} })
	f("a system text", "m1", chat, "", done, true, func(r *Route, _ *Table) { r.System = "Speak of trains only, and of nothing else." })
	f("a limit", "few", chat, "", done, true, func(r *Route, _ *Table) { r.Output = 100 })
	f("limits of time", "few", chat, "", done, true, func(r *Route, _ *Table) { r.Heartbeat, r.EarlyHeader = time.Second, time.Second })
	f("another route", "few", "/other/v1/chat/completions", "", done, true, func(r *Route, table *Table) {
		other := *r
		other.Name = "other"
		table.Routes["other"] = &other
	})
	f("a browser's fields", "few", chat, "content-type: application/json\r\naccept: text/event-stream\r\nuser-agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"+
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\naccept-encoding: gzip, br\r\n", done, true, nil)
	for _, pattern := range []string{"*", origin, "https://*.preview.example.com"} {
		allowed := origin
		if pattern == "*" {
			allowed = pattern
		}
		f("origin "+pattern, "few", chat, "origin: "+origin+"\r\n", "Access-Control-Allow-Origin: "+allowed+"\r\n", true, func(_ *Route, table *Table) { table.Origins = Origins{pattern} })
	}
}

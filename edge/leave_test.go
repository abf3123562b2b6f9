package edge

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"eisbach/pool"
	"eisbach/pool/sim"
	"eisbach/pool/watch"
)

func TestAnUpstreamSeesAtOnceThatAClientLeftAndNothingOfItStays(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			c := newCrowd(t, scheme == "https")
			f := func(phase string, status int) {
				t.Helper()
				c.leaveOften(phase, false, status)
				c.leaveOften(phase, true, status)
			}
			f("waiting for the head", statusClientLeft)
			f("role only", statusClientLeft)
			f("silent in the stream", 200)
			f("streaming", 200)
			f(wholeAnswer, statusClientLeft)
			if scheme == "https" {
				f(handshake, statusClientLeft)
			}
		})
	}
}

// others are streams that are open while a client leaves.
const others = 50

// Phases that are asked for in another way than the rest.
const (
	wholeAnswer = "whole answer"
	handshake   = "handshake"
)

// crowd is an edge with many streams, and an upstream that tells when one of its
// clients has left.
type crowd struct {
	t          testing.TB
	front      *front
	sim        *sim.Server
	mute       *pool.Upstream // no handshake with it ends
	left       int            // clients, so far
	goroutines int            // of ours, before any of them
	reached    chan struct{}  // a request is in its phase
	seen       chan time.Time
}

func newCrowd(t testing.TB, secure bool) *crowd {
	t.Helper()
	c := &crowd{t: t, reached: make(chan struct{}, 1), seen: make(chan time.Time, 1)}
	var roots *x509.CertPool
	if secure {
		var ca []byte
		c.sim, ca = sim.StartTLS(t, sim.Options{})
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
	} else {
		c.sim = sim.Start(t, sim.Options{})
	}
	c.sim.Script(c.play)
	watcher, err := watch.New()
	if err != nil {
		t.Fatal(err)
	}
	talking := pool.New(pool.Config{Name: "u1", URL: parseURL(t, c.sim.URL), RootCAs: roots, MaxConns: 2 * others}, watcher)
	c.mute = pool.New(pool.Config{Name: "u2", URL: parseURL(t, "https://"+c.startMute()), MaxConns: 1}, watcher)
	t.Cleanup(func() { watcher.Close() })
	c.front = open(t, func(table *Table) {
		route := table.Routes["default"]
		route.Upstreams = []*pool.Upstream{talking}
		other := *route
		other.Name, other.Upstreams = handshake, []*pool.Upstream{c.mute}
		table.Routes[handshake] = &other
	})
	c.front.ups = []*pool.Upstream{talking, c.mute}
	c.gather()
	return c
}

func parseURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// gather opens the other streams.
func (c *crowd) gather() {
	var reading sync.WaitGroup
	c.t.Cleanup(reading.Wait)
	for range others {
		nc := c.send("other")
		c.t.Cleanup(func() { nc.Close() })
		c.readContent(nc)
		reading.Go(func() { io.Copy(io.Discard, nc) })
	}
	time.Sleep(100 * time.Millisecond) // until all of them wait for their next event
	c.goroutines = ourGoroutines()
}

// startMute listens without ever saying a word, so that no handshake ends.
func (c *crowd) startMute() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			nc.Read(make([]byte, 4<<10)) // the client's hello
			c.reached <- struct{}{}
			io.Copy(io.Discard, nc)
			c.seen <- time.Now()
			nc.Close()
		}
	}()
	c.t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

// play answers as far as the phase goes, which is the model's name.
func (c *crowd) play(call *sim.Call) {
	is := func(phase string) bool { return bytes.Contains(call.Body, []byte(`"model":"`+phase+`"`)) }
	if !is("waiting for the head") && !is(wholeAnswer) {
		call.Head(200, "content-type: text/event-stream")
		call.Chunk([]byte(role))
	}
	every := time.Second
	switch {
	case is("silent in the stream"):
		call.Chunk([]byte(hi))
	case is("streaming"):
		every = 2 * time.Millisecond
		call.Chunk([]byte(hi))
	case is("other"):
		for call.Chunk([]byte(hi)) == nil && !call.WaitGone(every) {
		}
		return
	}
	c.reached <- struct{}{}
	for is("streaming") && !call.WaitGone(every) && call.Chunk([]byte(hi)) == nil {
	}
	<-call.Gone()
	c.seen <- time.Now()
}

// send asks for what is to be played, on a connection of its own.
func (c *crowd) send(phase string) *net.TCPConn {
	c.t.Helper()
	nc, err := net.Dial("tcp", c.front.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	path := "/v1"
	if phase == handshake {
		path = "/" + handshake + "/v1"
	}
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":"hi"}]}`, phase, phase != wholeAnswer)
	fmt.Fprintf(nc, "POST %s/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s", path, len(body), body)
	return nc.(*net.TCPConn)
}

func (c *crowd) readContent(nc net.Conn) {
	c.t.Helper()
	nc.SetReadDeadline(time.Now().Add(soon))
	defer nc.SetReadDeadline(time.Time{})
	var got []byte
	for buf := make([]byte, 4<<10); !bytes.Contains(got, []byte(`"Hi"`)); {
		n, err := nc.Read(buf)
		if got = append(got, buf[:n]...); err != nil {
			c.t.Fatalf("%v after %q", err, got)
		}
	}
}

// leaveOften lets ten clients leave, by a RST or a FIN, one after the other.
func (c *crowd) leaveOften(phase string, reset bool, status int) {
	c.t.Helper()
	name := phase + ", FIN"
	if reset {
		name = phase + ", RST"
	}
	for range 10 {
		if took := c.leave(name, phase, reset); took > 500*time.Millisecond {
			c.t.Fatalf("%s: seen after %v", name, took)
		}
		c.left++
		if r := c.front.record(c.left); r.Outcome != "client_left" || r.Status != status {
			c.t.Fatalf("%s: record %+v", name, r)
		}
	}
	c.checkNothingStays(name)
}

// leave gives how long it took the upstream to see it.
func (c *crowd) leave(name, phase string, reset bool) time.Duration {
	c.t.Helper()
	nc := c.send(phase)
	defer nc.Close()
	select {
	case <-c.reached:
	case <-time.After(soon):
		c.t.Fatalf("%s: the request did not come so far", name)
	}
	if phase == "silent in the stream" || phase == "streaming" {
		c.readContent(nc)
	}
	time.Sleep(time.Millisecond + rand.N(2*time.Millisecond)) // anywhere between two events
	start := time.Now()
	if reset {
		nc.SetLinger(0)
		nc.Close()
	} else {
		nc.CloseWrite() // the first thing that a close shows
	}
	select {
	case at := <-c.seen:
		return at.Sub(start)
	case <-time.After(soon):
		c.t.Fatalf("%s: the upstream was not told", name)
		return 0
	}
}

// checkNothingStays waits until only the others are there.
func (c *crowd) checkNothingStays(name string) {
	c.t.Helper()
	talking := c.front.ups[0]
	var requests, conns, goroutines int
	var places, dials pool.Stats
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		requests, conns, goroutines = c.front.server.Active(), c.sim.Stats().Open, ourGoroutines()
		places, dials = talking.Stats(), c.mute.Stats()
		if requests == others && conns == others && goroutines == c.goroutines && places == (pool.Stats{Open: others}) && dials == (pool.Stats{}) {
			return
		}
	}
	c.t.Fatalf("%s: %d requests, %d connections (of the pools %+v and %+v) and %d goroutines instead of %d stay beside %d others",
		name, requests, conns, places, dials, goroutines, c.goroutines, others)
}

// ourGoroutines counts the goroutines that run code of this module: those of
// fasthttp wait a while for new clients.
func ourGoroutines() int {
	buf := make([]byte, 4<<20)
	stacks := bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n"))
	return len(slices.DeleteFunc(stacks, func(stack []byte) bool { return !bytes.Contains(stack, []byte("eisbach/")) }))
}

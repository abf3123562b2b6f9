//go:build !race

// The race detector makes sync.Pool forget at random, so allocations can't be
// counted with it.

package edge

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// canned is an upstream that answers without allocating: with the answer whose
// name is in the request.
func canned(t *testing.T, answers map[string]string) *upstream {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var names, bodies [][]byte
	for name, body := range answers {
		names, bodies = append(names, []byte(name)), append(bodies, []byte(body))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				p := make([]byte, 8<<10)
				for {
					n, err := c.Read(p)
					if err != nil {
						return
					}
					for i, name := range names {
						if bytes.Contains(p[:n], name) {
							c.Write(bodies[i])
						}
					}
				}
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return &upstream{addr: ln.Addr().String()}
}

func TestSteadyRequestsAllocateNothingThatCouldBeKept(t *testing.T) {
	stream := func(n int) string {
		return strings.Replace(streamHead, "\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n", 1) +
			hexChunk(role) + strings.Repeat(hexChunk(hi), n) + hexChunk(stop+usage+done) + "0\r\n\r\n"
	}
	s := open(t, keyed("CK-good", "ios", "default"), canned(t, map[string]string{"few": stream(10), "many": stream(210), "entire": whole(completion)}))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	allocations := func(body, end string) float64 {
		request := []byte("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer CK-good\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body)
		p, last := make([]byte, 64<<10), []byte(end)
		ask := func() {
			c.Write(request)
			for have := 0; !bytes.HasSuffix(p[:have], last); {
				if have > len(p)/2 {
					have = copy(p, p[have-len(last):have])
				}
				n, err := c.Read(p[have:])
				if err != nil {
					t.Fatal(err)
				}
				have += n
			}
		}
		const n = 500
		for range 50 {
			ask()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			ask()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / n
	}
	few := allocations(strings.Replace(streamBody, "m1", "few", 1), "0\r\n\r\n")
	many := allocations(strings.Replace(streamBody, "m1", "many", 1), "0\r\n\r\n")
	entire := allocations(strings.Replace(wholeBody, "m1", "entire", 1), completion)
	t.Logf("a stream of 10 events %.2f, of 210 %.2f, a whole answer %.2f allocations", few, many, entire)
	if per := (many - few) / 200; per > 0.01 {
		t.Errorf("%.3f allocations an event", per)
	}
	// fasthttp allocates the byte with which it waits for a kept connection's
	// next request. The rest is room for what the runtime does beside.
	const fasthttps, room = 1, 0.5
	if few > fasthttps+room || entire > fasthttps+room {
		t.Errorf("%.2f allocations a stream, %.2f a whole answer", few, entire)
	}
}

//go:build !race

// The race detector makes sync.Pool forget at random, so allocations can't be
// counted with it.

package pool

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"time"
)

func TestASteadyRequestAllocatesNothing(t *testing.T) {
	body := chunked("data: "+hi+"\n\n") + chunked("data: [DONE]\n\n") + "0\r\n\r\n"
	answer := []byte(streamHead + body)
	_, u := start(t, func(c *peer) {
		p := make([]byte, 4096)
		for {
			if n, err := c.Conn.Read(p); err != nil || !bytes.HasSuffix(p[:n], []byte("}")) {
				return
			}
			c.Conn.Write(answer)
		}
	})
	var s Stream
	r := ask(u)
	r.Deadline = time.Now().Add(time.Minute)
	until := time.Now().Add(time.Minute)
	run := func() {
		s.Open(r)
		for {
			if _, _, err := s.Next(until); err != nil {
				if err != io.EOF {
					t.Fatal(err)
				}
				break
			}
		}
		s.Close()
	}
	for range 20 {
		run()
	}
	var before, after runtime.MemStats
	const n = 500
	runtime.ReadMemStats(&before)
	for range n {
		run()
	}
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.1 {
		t.Errorf("%.2f allocations a request", per)
	}
}

package edge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// fate is what an upstream does with one request, and its client.
type fate struct {
	id     int
	rand   *rand.Rand // the upstream's alone
	whole  bool       // no stream
	events int
	end    int // one of the ends below
	cut    int // events that are whole before the end
	leaves int // bytes after which the client leaves; -1: it stays
	reset  bool
}

const (
	endsWell = iota
	endsWithoutMark
	endsEarly // FIN, or a missing last chunk
	endsReset
	endsInEvent
	endsWithError
	endings
)

// newFate decides everything by the seed and the number, so that the upstream
// and the client know the same.
func newFate(seed uint64, id int) *fate {
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	f := &fate{id: id, events: 1 + r.IntN(30), leaves: -1, reset: r.IntN(2) == 0}
	f.whole = r.IntN(5) == 0
	if r.IntN(2) == 0 {
		f.end = r.IntN(endings)
	}
	if f.whole && f.end != endsEarly {
		f.end = endsWell
	}
	f.cut = f.events
	if f.end >= endsEarly {
		f.cut = r.IntN(f.events + 1)
	}
	if r.IntN(6) == 0 {
		f.leaves = r.IntN(4000)
		if r.IntN(3) == 0 {
			f.leaves = 0
		}
	}
	f.rand = rand.New(rand.NewPCG(seed+1, uint64(id)))
	return f
}

func (f *fate) piece(i int) string {
	return fmt.Sprintf("<%d:%d:%s>", f.id, i, strings.Repeat("x", (f.id*7+i*13)%97))
}

func (f *fate) text() (text string) {
	for i := range f.events {
		text += f.piece(i)
	}
	return text
}

func (f *fate) request() string {
	body := fmt.Sprintf(`{"model":"%d","stream":%v,"messages":[{"role":"user","content":"hi"}]}`, f.id, !f.whole)
	return "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body
}

// answer plays the upstream; it reports whether the connection can go on.
func (f *fate) answer(c *call) {
	if f.whole {
		body := fmt.Sprintf(`{"choices":[{"message":{"content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, f.text())
		out := whole(body)
		if f.end == endsEarly {
			f.write(c, out[:len(out)-1-f.rand.IntN(len(body)-1)])
			c.Close()
			return
		}
		f.write(c, out)
		return
	}
	var body strings.Builder
	body.WriteString(role)
	for i := range f.cut {
		fmt.Fprintf(&body, `data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", f.piece(i))
	}
	switch f.end {
	case endsWell:
		body.WriteString(stop + usage + done)
	case endsWithoutMark:
		body.WriteString(stop + usage)
	case endsInEvent:
		body.WriteString(hi[:1+f.rand.IntN(len(hi)-10)])
	case endsWithError:
		body.WriteString(`data: {"error":{"message":"The model crashed.","type":"server_error"}}` + "\n\n")
	}
	chunked := f.rand.IntN(3) > 0
	out := streamHead + body.String()
	if chunked {
		out = strings.Replace(streamHead, "\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n", 1) + f.chunks(body.String())
		if f.end <= endsWithoutMark || f.end == endsWithError {
			out += "0\r\n\r\n"
		}
	}
	f.write(c, out)
	switch {
	case f.end == endsReset:
		c.reset()
	case !chunked || f.end == endsEarly || f.end == endsInEvent:
		c.Close()
	}
}

func (f *fate) chunks(s string) (out string) {
	for len(s) > 0 {
		n := min(1+f.rand.IntN(700), len(s))
		out += hexChunk(s[:n])
		s = s[n:]
	}
	return out
}

// write cuts anywhere, and pauses now and then.
func (f *fate) write(c *call, s string) {
	for len(s) > 0 {
		n := min(1+f.rand.IntN(3000), len(s))
		if f.rand.IntN(4) == 0 {
			n = min(1+f.rand.IntN(5), len(s))
		}
		if _, err := io.WriteString(c, s[:n]); err != nil {
			return
		}
		s = s[n:]
		if f.rand.IntN(8) == 0 {
			time.Sleep(time.Duration(f.rand.IntN(3000)) * time.Microsecond)
		}
	}
}

// check holds what a client got that stayed to the end against what was sent.
func (f *fate) check(status int, body string, readErr error) error {
	if readErr != nil {
		return fmt.Errorf("the body does not end properly: %v", readErr)
	}
	if f.whole {
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
		}
		switch err := json.Unmarshal([]byte(body), &answer); {
		case err != nil:
			return err
		case f.end == endsEarly && status == 502:
			return nil
		case f.end == endsEarly || status != 200 || len(answer.Choices) != 1 || answer.Choices[0].Message.Content != f.text():
			return fmt.Errorf("whole answer: %d %q", status, body)
		}
		return nil
	}
	good := f.end <= endsWithoutMark
	if f.cut == 0 && !good {
		if status < 500 || strings.Contains(body, "data:") {
			return fmt.Errorf("broken before its content: %d %q", status, body)
		}
		return nil
	}
	got, broken, marks := "", false, 0
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case data == "[DONE]":
			marks++
		case strings.HasPrefix(event, "event: error\n"):
			broken = true
		case !ok:
			return fmt.Errorf("event %q", event)
		default:
			var chunk struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
				return fmt.Errorf("event %q: %v", event, err)
			}
			got += chunk.Choices[0].Delta.Content
		}
	}
	want := ""
	for i := range f.cut {
		want += f.piece(i)
	}
	// A reset may overtake what was sent before it, but not mix it up.
	exact := got == want || f.end == endsReset && strings.HasPrefix(want, got)
	if !exact || broken == good || good != (marks == 1) || marks > 1 {
		return fmt.Errorf("end %d: broken %v, %d marks, got %q, want %q", f.end, broken, marks, got, want)
	}
	return nil
}

// outcomes are what a record may say of it.
func (f *fate) outcomes() string {
	end := map[int]string{endsWell: "success", endsWithoutMark: "success", endsWithError: "upstream_error"}[f.end]
	if end == "" {
		end = "upstream_disconnected"
	}
	if f.leaves >= 0 {
		end += " client_left"
	}
	return end
}

// run plays the client on a connection, and reports whether that can go on.
func (f *fate) run(c net.Conn, r *bufio.Reader) (goesOn bool, err error) {
	c.SetDeadline(time.Now().Add(soon))
	if _, err := io.WriteString(c, f.request()); err != nil {
		return false, err
	}
	if f.leaves >= 0 {
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // there may not be so many bytes
		io.CopyN(io.Discard, r, int64(f.leaves))
		if f.reset {
			c.(*net.TCPConn).SetLinger(0)
		}
		return false, nil
	}
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	body, readErr := io.ReadAll(response.Body)
	return !response.Close, f.check(response.StatusCode, string(body), readErr)
}

func TestNoByteIsLostDoubledOrMixedUpInChaos(t *testing.T) {
	streams, clients, seed := 10_000, 100, rand.Uint64()
	if testing.Short() {
		streams = 1_000
	}
	t.Logf("seed %d", seed)
	u := play(t, func(c *call) {
		var asked struct{ Model string }
		json.Unmarshal([]byte(c.body), &asked)
		var id int
		fmt.Sscan(asked.Model, &id)
		newFate(seed, id).answer(c)
	})
	s := open(t, func(table *Table) { table.Routes["default"].Idle = 3 * soon }, u)
	ids := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var c net.Conn
			var r *bufio.Reader
			for id := range ids {
				if c == nil {
					var err error
					if c, err = net.Dial("tcp", s.addr); err != nil {
						t.Error(err)
						return
					}
					r = bufio.NewReader(c)
				}
				f := newFate(seed, id)
				goesOn, err := f.run(c, r)
				if err != nil {
					t.Errorf("seed %d, stream %d, %+v: %v", seed, id, *f, err)
				}
				if !goesOn || err != nil {
					c.Close()
					c = nil
				}
			}
			if c != nil {
				c.Close()
			}
		})
	}
	for id := range streams {
		ids <- id
	}
	close(ids)
	wg.Wait()
	checkRecords(t, s, seed, streams)
	if n := s.server.Active(); n != 0 {
		t.Errorf("%d requests are still open", n)
	}
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if stats := s.ups[0].Stats(); stats.Open == stats.Idle && stats.Waiting == 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("connections left: %+v", stats)
		}
	}
}

// checkRecords waits for one record for each request, with a fitting outcome.
// A request that its client left before it was read is none.
func checkRecords(t *testing.T, s *front, seed uint64, streams int) {
	seen := make(map[int]string)
	for deadline := time.Now().Add(soon); s.server.Active() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // the journal's
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	for line := range bytes.Lines(s.records.buf.Bytes()) {
		var e entry
		if !bytes.Contains(line, []byte(`"msg":"request"`)) {
			continue
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var id int
		if _, err := fmt.Sscan(e.Model, &id); err != nil {
			t.Errorf("a record of no request: %s", line)
			continue
		}
		if was, twice := seen[id]; twice {
			t.Errorf("stream %d has two records: %s and %s", id, was, e.Outcome)
		}
		seen[id] = e.Outcome
		if want := newFate(seed, id).outcomes(); !strings.Contains(want, e.Outcome) {
			t.Errorf("seed %d, stream %d: outcome %s, want %s", seed, id, e.Outcome, want)
		}
	}
	for id := range streams {
		if _, ok := seen[id]; !ok && newFate(seed, id).leaves < 0 {
			t.Errorf("stream %d has no record", id)
		}
	}
}

func TestAnOpenStreamIsOneGoroutine(t *testing.T) {
	u := play(t, func(c *call) { c.say(streamHead + hi); c.left() })
	s := open(t, nil, u)
	request := post("/v1/chat/completions", "", streamBody)
	p := make([]byte, 1<<10)
	one := func() net.Conn {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(soon))
		c.Write([]byte(request))
		for have := ""; !strings.Contains(have, "Hi"); {
			n, err := c.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			have += string(p[:n])
		}
		return c
	}
	defer one().Close()
	before := runtime.NumGoroutine()
	const n = 200
	for range n {
		defer one().Close()
	}
	// Half of them are the test's: its upstream has one for each connection.
	if grown := runtime.NumGoroutine() - before; grown > 2*n+5 || grown < 2*n-5 {
		t.Errorf("%d goroutines for %d streams and as many answers of the test's upstream", grown, n)
	}
}

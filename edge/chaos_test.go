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
	"os"
	"runtime"
	"strconv"
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
	old    bool       // the client speaks HTTP/1.0
	events int
	end    int // one of the ends below
	cut    int // events that are whole before the end
	leaves int // one of the ways below
	at     int // bytes after which the client leaves
	by     int // one of the ways to leave
	reset  bool
}

const (
	endsWell = iota
	endsWithoutMark
	endsEarly // FIN, or a missing last chunk
	endsReset
	endsInEvent
	endsWithError
	endsUnsaid // not a byte came
	endsInHead
	endings
)

// When a client leaves.
const (
	stays        = iota
	inRequest    // which it has not sent to its end
	afterRequest // without reading
	inAnswer
)

// How it leaves.
const (
	byFIN = iota // a RST all the same, where it has not read what came
	byRST
	byHalf // a FIN, behind which it goes on reading
	ways
)

// newFate decides everything by the seed and the number, so that the upstream
// and the client know the same.
func newFate(seed uint64, id int) *fate {
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	f := &fate{id: id, events: 1 + r.IntN(30), reset: r.IntN(2) == 0, whole: r.IntN(5) == 0, old: r.IntN(10) == 0}
	if r.IntN(2) == 0 {
		f.end = r.IntN(endings)
	}
	if f.whole && f.end < endsUnsaid && f.end != endsEarly {
		f.end = endsWell
	}
	f.cut = f.events
	if f.end >= endsEarly {
		f.cut = r.IntN(f.events + 1)
	}
	if f.end >= endsUnsaid {
		f.cut = 0
	}
	if r.IntN(6) == 0 {
		f.leaves, f.by, f.at = inRequest+r.IntN(inAnswer), r.IntN(ways), r.IntN(4000)
	}
	f.rand = rand.New(rand.NewPCG(seed+1, uint64(id)))
	return f
}

// good reports whether the upstream says all that it has to say.
func (f *fate) good() bool { return f.end <= endsWithoutMark }

func (f *fate) piece(i int) string {
	return fmt.Sprintf("<%d:%d:%s>", f.id, i, strings.Repeat("x", (f.id*7+i*13)%97))
}

// text is that of the first n events.
func (f *fate) text(n int) (text string) {
	for i := range n {
		text += f.piece(i)
	}
	return text
}

func (f *fate) request() string {
	version := "1.1"
	if f.old {
		version = "1.0"
	}
	body := fmt.Sprintf(`{"model":"%d","stream":%v,"messages":[{"role":"user","content":"hi"}]}`, f.id, !f.whole)
	return "POST /v1/chat/completions HTTP/" + version + "\r\nhost: x\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body
}

func (f *fate) completion() string {
	return fmt.Sprintf(`{"choices":[{"message":{"content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, f.text(f.events))
}

// answer plays the upstream.
func (f *fate) answer(c *call) {
	switch {
	case f.end >= endsUnsaid:
		if f.end == endsInHead {
			f.write(c, jsonHead[:1+f.rand.IntN(len(jsonHead)-1)])
		}
		f.hangUp(c)
	case f.whole && f.end == endsEarly:
		body := f.completion()
		out := whole(body)
		f.write(c, out[:len(out)-1-f.rand.IntN(len(body)-1)])
		c.Close()
	case f.whole:
		f.write(c, whole(f.completion()))
	default:
		f.stream(c)
	}
}

func (f *fate) hangUp(c *call) {
	if f.reset {
		c.reset()
		return
	}
	c.Close()
}

func (f *fate) stream(c *call) {
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
		if f.good() || f.end == endsWithError {
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

// heard is what the whole events of a stream say.
type heard struct {
	text   string
	broken bool
	marks  int
}

func listen(body string) (h heard, err error) {
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		switch {
		case h.broken || h.marks > 0:
			return h, fmt.Errorf("event %q behind the end", event)
		case data == "[DONE]":
			h.marks++
		case strings.HasPrefix(event, "event: error\n"):
			h.broken = true
		case !ok:
			return h, fmt.Errorf("event %q", event)
		default:
			var chunk struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
				return h, fmt.Errorf("event %q: %v", event, err)
			}
			h.text += chunk.Choices[0].Delta.Content
		}
	}
	return h, nil
}

// check holds what a client got that stayed to the end against what was sent.
func (f *fate) check(status int, body string, readErr error) error {
	refused := status >= 500 && strings.HasPrefix(body, `{"error":`)
	switch {
	case readErr != nil:
		return fmt.Errorf("the body does not end properly: %v", readErr)
	case f.whole && (f.good() && status == 200 && body == f.completion() || !f.good() && refused):
		return nil
	case f.whole:
		return fmt.Errorf("whole answer: %d %q", status, body)
	case refused && (f.cut == 0 || f.end == endsReset) && !f.good(): // broken before its content
		return nil
	}
	h, err := listen(body)
	if err != nil {
		return err
	}
	// A reset may overtake what was sent before it, but not mix it up.
	want := f.text(f.cut)
	exact := h.text == want || f.end == endsReset && strings.HasPrefix(want, h.text)
	if status != 200 || !exact || h.broken == f.good() || f.good() != (h.marks == 1) {
		return fmt.Errorf("%d: got %+v, want %q", status, h, want)
	}
	return nil
}

// checkPart does so for a client that left, with all that it read.
func (f *fate) checkPart(raw []byte) error {
	if !bytes.Contains(raw, []byte("\r\n\r\n")) {
		return nil
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return err
	}
	part, _ := io.ReadAll(response.Body) // it may lack its end
	body := string(part)
	switch {
	case response.StatusCode != 200:
		if strings.Contains(body, "data:") {
			return fmt.Errorf("%d with events: %q", response.StatusCode, body)
		}
		return nil
	case f.whole:
		if !f.good() || !strings.HasPrefix(f.completion(), body) {
			return fmt.Errorf("a part of a whole answer: %q", body)
		}
		return nil
	}
	end := strings.LastIndex(body, "\n\n")
	if end < 0 {
		return nil
	}
	h, err := listen(body[:end])
	want := f.text(f.cut)
	if err == nil && (!strings.HasPrefix(want, h.text) || h.broken && f.good() || h.marks > 0 && (!f.good() || h.text != want)) {
		err = fmt.Errorf("a part: got %+v, want the beginning of %q", h, want)
	}
	return err
}

// fits reports whether a record says what happened.
func (f *fate) fits(e *entry) bool {
	end := map[int]string{endsWell: "success", endsWithoutMark: "success", endsWithError: "upstream_error"}[f.end]
	if end == "" {
		end = "upstream_disconnected"
	}
	switch {
	case f.leaves != stays && e.Outcome == "client_left":
		return true
	case e.Outcome != end:
		return false
	case end != "success":
		return f.whole || e.Status == 200 || f.cut == 0 || f.end == endsReset
	case f.whole:
		return e.Status == 200 && e.Usage == "actual" && e.Prompt == 1 && e.Completion == 2
	default:
		return e.Status == 200 && e.Usage == "actual" && e.Prompt == 3 && e.Completion == 1
	}
}

// run plays the client on a connection, and reports whether that can go on.
func (f *fate) run(c *net.TCPConn, r *bufio.Reader) (goesOn bool, err error) {
	c.SetDeadline(time.Now().Add(soon))
	request := f.request()
	if f.leaves == inRequest {
		request = request[:1+f.at%(len(request)-1)]
	}
	if _, err := io.WriteString(c, request); err != nil {
		return false, err
	}
	if f.leaves != stays {
		return false, f.leave(c, r)
	}
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	body, readErr := io.ReadAll(response.Body)
	return !response.Close, f.check(response.StatusCode, string(body), readErr)
}

func (f *fate) leave(c *net.TCPConn, r *bufio.Reader) error {
	var got []byte
	if f.leaves == inAnswer {
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // there may not be so many bytes
		got, _ = io.ReadAll(io.LimitReader(r, int64(f.at)))
	}
	switch f.by {
	case byRST:
		c.SetLinger(0)
	case byHalf:
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(soon))
		rest, err := io.ReadAll(r)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return fmt.Errorf("the edge keeps the connection of a client that left")
		}
		got = append(got, rest...)
	}
	return f.checkPart(got)
}

// chaosSeed is a new one for each run, or the one of a run that failed.
func chaosSeed(t *testing.T) uint64 {
	text := os.Getenv("CHAOS_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_SEED: %v", err)
	}
	return seed
}

func TestNoByteIsLostDoubledOrMixedUpInChaos(t *testing.T) {
	streams, clients, seed := 10_000, 300, chaosSeed(t)
	if testing.Short() {
		streams = 1_000
	}
	t.Logf("CHAOS_SEED=%d", seed)
	u := play(t, func(c *call) {
		var asked struct{ Model string }
		json.Unmarshal([]byte(c.body), &asked)
		id, err := strconv.Atoi(asked.Model)
		if err != nil {
			t.Errorf("the upstream was asked %q", c.body)
		}
		newFate(seed, id).answer(c)
	})
	s := open(t, func(table *Table) { table.Routes["default"].Idle = 3 * soon }, u)
	ids := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { runClient(t, s, seed, ids) })
	}
	for id := range streams {
		ids <- id
	}
	close(ids)
	wg.Wait()
	awaitRest(t, s)
	checkRecords(t, s, seed, streams)
}

// runClient asks for one stream after the other, on one connection as long as
// that goes on.
func runClient(t *testing.T, s *front, seed uint64, ids <-chan int) {
	var c *net.TCPConn
	var r *bufio.Reader
	for id := range ids {
		if c == nil {
			nc, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Error(err)
				continue // to take the rest of the numbers
			}
			c = nc.(*net.TCPConn)
			r = bufio.NewReader(c)
		}
		f := newFate(seed, id)
		goesOn, err := f.run(c, r)
		if err != nil {
			t.Errorf("CHAOS_SEED=%d, stream %d, %+v: %v", seed, id, *f, err)
		}
		if !goesOn || err != nil {
			c.Close()
			c = nil
		}
	}
	if c != nil {
		c.Close()
	}
}

// awaitRest waits until nothing is open but idle connections, on either side.
func awaitRest(t *testing.T, s *front) {
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		stats, active := s.ups[0].Stats(), s.server.Active()
		s.server.clients.mu.Lock()
		clients := len(s.server.clients.open)
		s.server.clients.mu.Unlock()
		if stats.Open == stats.Idle && stats.Waiting == 0 && active == 0 && clients == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests and %d clients are left, and connections: %+v", active, clients, stats)
		}
	}
}

// checkRecords looks for one record for each request, with what happened to it.
// Those that did not come whole have no name.
func checkRecords(t *testing.T, s *front, seed uint64, streams int) {
	time.Sleep(50 * time.Millisecond) // the journal's
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	seen, counts, nameless := make(map[int]string), make(map[string]int), 0
	for line := range bytes.Lines(s.records.buf.Bytes()) {
		var e entry
		if !bytes.Contains(line, []byte(`"msg":"request"`)) {
			t.Errorf("CHAOS_SEED=%d: logged: %s", seed, line)
			continue
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		counts[e.Outcome]++
		if e.Model == "" && e.Outcome == "client_left" {
			nameless++
			continue
		}
		id, err := strconv.Atoi(e.Model)
		if err != nil || newFate(seed, id).leaves == inRequest {
			t.Errorf("CHAOS_SEED=%d: a record of no request: %s", seed, line)
			continue
		}
		if was, twice := seen[id]; twice {
			t.Errorf("CHAOS_SEED=%d: stream %d has two records: %s and %s", seed, id, was, e.Outcome)
		}
		seen[id] = e.Outcome
		if f := newFate(seed, id); !f.fits(&e) {
			t.Errorf("CHAOS_SEED=%d, stream %d, %+v: record %s", seed, id, *f, line)
		}
	}
	least, most := 0, 0
	for id := range streams {
		f := newFate(seed, id)
		_, ok := seen[id]
		// Where it isn't Linux, a reset can take with it what was not read yet.
		certain := f.leaves == stays || f.by != byRST || runtime.GOOS == "linux"
		switch {
		case f.leaves == inRequest:
			if most++; certain {
				least++
			}
		case !ok && certain:
			t.Errorf("CHAOS_SEED=%d, stream %d, %+v: no record", seed, id, *f)
		}
	}
	if nameless < least || nameless > most {
		t.Errorf("CHAOS_SEED=%d: %d records of requests that did not come whole, want %d to %d", seed, nameless, least, most)
	}
	t.Logf("%v, of which %d did not come whole", counts, nameless)
	for _, outcome := range []string{"success", "client_left", "upstream_error", "upstream_disconnected"} {
		if counts[outcome] == 0 {
			t.Errorf("CHAOS_SEED=%d: nothing ended in %s", seed, outcome)
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

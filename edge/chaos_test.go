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
	stray  bool       // an answer that nobody asked for comes with the end of this one
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
	endsUnfinished // without the blank line behind the mark
	endsEarly      // FIN, or a missing last chunk
	endsReset
	endsInEvent
	endsWithError
	endsUnsaid // before a byte came
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
	f.stray = f.good() && r.IntN(10) == 0
	if r.IntN(6) == 0 {
		f.leaves, f.by, f.at = inRequest+r.IntN(inAnswer), r.IntN(ways), r.IntN(4000)
	}
	f.rand = rand.New(rand.NewPCG(seed+1, uint64(id)))
	return f
}

// good reports whether the upstream says all that it has to say.
func (f *fate) good() bool { return f.end <= endsUnfinished }

func (f *fate) piece(i int) string {
	return fmt.Sprintf("<%d:%d:%s>", f.id, i, strings.Repeat("x", (f.id*7+i*13)%97))
}

func (f *fate) text() (text string) {
	for i := range f.events {
		text += f.piece(i)
	}
	return text
}

// said is what the client has to get of a stream, byte for byte.
func (f *fate) said() string {
	var b strings.Builder
	b.WriteString(role)
	for i := range f.cut {
		fmt.Fprintf(&b, `data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", f.piece(i))
	}
	if f.good() {
		b.WriteString(stop + done)
	}
	return b.String()
}

// tokens are what the upstream says that it has used.
func (f *fate) tokens() (prompt, completion int) { return f.id + 1, f.id%89 + 1 }

func (f *fate) usage() string {
	prompt, completion := f.tokens()
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, prompt, completion, prompt+completion)
}

func (f *fate) request() string {
	version := "1.1"
	if f.old {
		version = "1.0"
	}
	body := fmt.Sprintf(`{"model":"%d","stream":%v,"messages":[{"role":"user","content":%q}]}`, f.id, !f.whole, strings.Repeat("hi", 1+f.id%50))
	return "POST /v1/chat/completions HTTP/" + version + "\r\nhost: x\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body
}

func (f *fate) completion() string {
	return fmt.Sprintf(`{"choices":[{"message":{"content":%q},"finish_reason":"stop"}],%s}`, f.text(), f.usage())
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
	body := f.said()
	switch f.end {
	case endsWell, endsWithoutMark, endsUnfinished:
		body = strings.TrimSuffix(body, done) + "data: {\"choices\":[]," + f.usage() + "}\n\n"
		body += map[int]string{endsWell: done, endsUnfinished: done[:len(done)-1-f.rand.IntN(2)]}[f.end]
	case endsInEvent:
		body += hi[:1+f.rand.IntN(len(hi)-10)]
	case endsWithError:
		body += `data: {"error":{"message":"The model crashed.","type":"server_error"}}` + "\n\n"
	}
	chunked := f.rand.IntN(3) > 0
	out := streamHead + body
	if chunked {
		out = strings.Replace(streamHead, "\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n", 1) + f.chunks(body)
		if f.good() || f.end == endsWithError {
			out += lastChunk
		}
	}
	f.stray = f.stray && chunked
	if f.good() && chunked && f.rand.IntN(3) == 0 { // as most servers do
		stray := f.stray
		f.stray = false
		f.write(c, strings.TrimSuffix(out, lastChunk))
		time.Sleep(f.pause())
		f.stray, out = stray, lastChunk
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

// pause is less than the second that the edge waits for a last chunk.
func (f *fate) pause() time.Duration { return time.Duration(f.rand.IntN(30_000)) * time.Microsecond }

// write cuts anywhere, and pauses now and then.
func (f *fate) write(c *call, s string) {
	var last string
	if f.stray { // together with the last byte: later, it would answer the next request
		// It is more than one read takes, so that some of it would be left.
		last = s[len(s)-1:] + strings.Repeat(whole(`{"choices":[{"message":{"content":"stray"}}]}`), 1+f.rand.IntN(80))
		s = s[:len(s)-1]
		defer func() { io.WriteString(c, last) }()
	}
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
			time.Sleep(f.pause())
		}
	}
}

// brokenOff is how the event begins that tells a client of a failure.
const brokenOff = "event: error\ndata: {\"error\":{"

// check holds what a client got that stayed to the end against what was sent.
func (f *fate) check(status int, body string, readErr error) error {
	refused := status >= 500 && strings.HasPrefix(body, `{"error":`)
	want := f.said()
	switch {
	case readErr != nil:
		return fmt.Errorf("the body does not end properly: %v", readErr)
	case f.whole:
		if f.good() && status == 200 && body == f.completion() || !f.good() && refused {
			return nil
		}
		want = f.completion()
	case f.good():
		if status == 200 && body == want {
			return nil
		}
	case refused:
		if f.cut == 0 || f.end == endsReset { // before its content
			return nil
		}
	default:
		got, failure, told := strings.Cut(body, brokenOff)
		// A reset may overtake what was sent before it, but not mix it up.
		exact := got == want || f.end == endsReset && strings.HasPrefix(want, got) && strings.HasSuffix(got, "\n\n")
		if status == 200 && exact && told && strings.Index(failure, "\n\n") == len(failure)-2 && f.cut > 0 {
			return nil
		}
	}
	return fmt.Errorf("%d: got %q, want %q", status, body, want)
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
	body, want := string(part), f.said()
	switch {
	case response.StatusCode != 200:
		if strings.Contains(body, "data:") || strings.Contains(body, "<") {
			return fmt.Errorf("%d with content: %q", response.StatusCode, body)
		}
		return nil
	case f.whole && f.good():
		want = f.completion()
	case f.whole:
		want = ""
	case !f.good():
		body, _, _ = strings.Cut(body, brokenOff)
		if n := strings.LastIndex(body, "\n\n") + 2; n > 1 && strings.HasPrefix(brokenOff, body[n:]) {
			body = body[:n]
		}
	}
	if !strings.HasPrefix(want, body) {
		return fmt.Errorf("a part: got %q, want the beginning of %q", body, want)
	}
	return nil
}

// fits reports whether a record says what happened.
func (f *fate) fits(e *entry) bool {
	end := "upstream_disconnected"
	switch {
	case f.good():
		end = "success"
	case f.end == endsWithError:
		end = "upstream_error"
	}
	prompt, completion := f.tokens()
	switch {
	case f.leaves != stays && e.Outcome == "client_left":
		return true
	case e.Outcome != end:
		return false
	case f.good():
		return e.Status == 200 && e.Usage == "actual" && e.Prompt == prompt && e.Completion == completion
	default:
		return e.Usage == "estimated" && (f.whole || f.cut == 0 || f.end == endsReset || e.Status == 200)
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
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // there may not be so many bytes
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
	streams, clients, seed := 10_000, 500, chaosSeed(t)
	if testing.Short() {
		streams = 1_000
	}
	t.Logf("CHAOS_SEED=%d", seed)
	const system = "Speak of trains only."
	u := play(t, func(c *call) {
		var asked struct {
			Model    string
			Messages []struct{ Content string }
		}
		json.Unmarshal([]byte(c.body), &asked)
		id, err := strconv.Atoi(strings.TrimSuffix(asked.Model, "-upstream"))
		if err != nil || len(asked.Messages) != 2 || asked.Messages[0].Content != system || asked.Messages[1].Content != strings.Repeat("hi", 1+id%50) {
			t.Errorf("CHAOS_SEED=%d: the upstream was asked %q", seed, c.body)
		}
		newFate(seed, id).answer(c)
	})
	s := open(t, func(table *Table) {
		route := table.Routes["default"]
		route.Idle, route.System, route.Models = 3*soon, system, make(map[string]string)
		for id := range streams {
			route.Models[strconv.Itoa(id)] = strconv.Itoa(id) + "-upstream"
		}
	}, u)
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

package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is a response as far as it could be read.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of the request or of reading the body
}

// post sends a body with net/http's client, which is closed with the test.
func post(t *testing.T, url, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req, headers...)
}

func do(t *testing.T, req *http.Request, headers ...string) reply {
	t.Helper()
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport, Timeout: 3 * time.Second}).Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text), err}
}

func get(t *testing.T, url string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req, headers...)
}

func chatBody(model string, stream bool, more string) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"Where do I surf?"}]%s}`, model, stream, more)
}

func member(t *testing.T, text, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			var i int
			fmt.Sscan(key, &i)
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// datas returns the data of every event, strictly: one data line, LF ends.
func datas(t *testing.T, stream string) (out []string) {
	t.Helper()
	rest, ok := strings.CutSuffix(stream, "\n\n")
	if !ok {
		t.Fatalf("the stream does not end with an event: %q", stream)
	}
	for event := range strings.SplitSeq(rest, "\n\n") {
		_, data, ok := strings.Cut("\n"+event, "\ndata: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("odd event %q", event)
		}
		out = append(out, data)
	}
	return out
}

func TestChatStreamIsWrittenLikeSambaNova(t *testing.T) {
	s := Start(t, Options{})
	r := post(t, s.URL+"/any/base/v1/chat/completions", chatBody("sim_tokens=3", true, `,"stream_options":{"include_usage":true}`))
	if r.err != nil || r.status != 200 || r.header.Get("content-type") != "text/event-stream" {
		t.Fatalf("%+v", r)
	}
	events := datas(t, r.body)
	if len(events) != 6 || events[5] != "[DONE]" {
		t.Fatalf("%d events: %q", len(events), events)
	}
	if want := `{"choices":[{"delta":{"content":"You said “Where do I surf?”.","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":`; !strings.HasPrefix(events[0], want) {
		t.Errorf("first chunk %s", events[0])
	}
	if want := `,"id":"00000000-0000-4000-8000-000000000001","model":"sim_tokens=3","object":"chat.completion.chunk","system_fingerprint":"fastcoe"}`; !strings.HasSuffix(events[1], want) {
		t.Errorf("second chunk %s", events[1])
	}
	if member(t, events[3], "choices.0.finish_reason") != "stop" || member(t, events[2], "usage") != nil {
		t.Errorf("finish %s", events[3])
	}
	usage := member(t, events[4], "usage").(map[string]any)
	if len(member(t, events[4], "choices").([]any)) != 0 || usage["completion_tokens"] != 3.0 || usage["prompt_tokens"] != 4.0 || usage["total_tokens"] != 7.0 || usage["is_last_response"] != true {
		t.Errorf("usage %v", usage)
	}
	for _, key := range []string{"time_to_first_token", "total_latency", "completion_tokens_per_sec", "completion_tokens_after_first_per_sec", "total_tokens_per_sec", "start_time", "end_time"} {
		if v, ok := usage[key].(float64); !ok || v < 0 {
			t.Errorf("usage.%s = %v", key, usage[key])
		}
	}
	if r.header.Get("x-ratelimit-limit-requests") != "100000" || r.header.Get("x-ratelimit-remaining-requests-day") != "9999999" {
		t.Errorf("headers %v", r.header)
	}
}

func TestChatShapes(t *testing.T) {
	s := Start(t, Options{})
	url := s.URL + "/v1/chat/completions"
	f := func(stream bool, model, more, path string, want any) {
		t.Helper()
		r := post(t, url, chatBody(model, stream, more))
		text := r.body
		if stream {
			text = "[" + strings.Join(datas(t, r.body[:strings.LastIndex(r.body, "data: [DONE]")]), ",") + "]"
		}
		if got := member(t, text, path); got != want {
			t.Errorf("%s %s: %s is %v, not %v in %s", model, more, path, got, want, text)
		}
	}
	f(false, "sim_tokens=3", "", "choices.0.message.content", "You said “Where do I surf?”. The Eisbach")
	f(false, "sim_tokens=3", "", "object", "chat.completion")
	f(false, "sim_tokens=3", "", "usage.total_tokens", 7.0)
	f(false, "sim_tokens=9", `,"max_tokens":2`, "choices.0.finish_reason", "length")
	f(false, "sim_tokens=9", `,"max_tokens":2`, "usage.completion_tokens", 2.0)
	f(true, "sim_tokens=9", `,"max_completion_tokens":2`, "2.choices.0.finish_reason", "length")
	f(true, "sim_tokens=1", `,"n":2`, "1.choices.0.index", 1.0)
	f(false, "sim_tokens=1", `,"n":2`, "choices.1.index", 1.0)
	f(true, "sim_tokens=2_reasoning=1", "", "0.choices.0.delta.reasoning", " The")
	f(true, "sim_tokens=2_reasoning=1", "", "1.choices.0.delta.content", "You said “Where do I surf?”.")
	f(false, "sim_tokens=2_reasoning=2", "", "choices.0.message.reasoning", " The Eisbach")
	f(false, "sim_tokens=2_reasoning=2", "", "usage.completion_tokens_details.reasoning_tokens", 2.0)
	f(true, "sim_tokens=2_tools=1", `,"tools":[{"type":"function","function":{"name":"map"}}]`, "0.choices.0.delta.tool_calls.0.function.name", "map")
	f(true, "sim_tokens=2_tools=1", "", "2.choices.0.finish_reason", "tool_calls")
	f(false, "sim_tokens=2_tools=1", "", "choices.0.message.tool_calls.0.function.arguments", `{"query":" The Eisbach"}`)
	f(true, "sim_tokens=2_chunk-bytes=7", "", "0.choices.0.delta.content", " bcdefg")
	f(true, "sim_tokens=0", "", "0.choices.0.finish_reason", "stop")
	f(true, `x"\y sim_tokens=0`, "", "0.model", `x"\y sim_tokens=0`)
}

func TestFriendlyAnswerIsWhole(t *testing.T) {
	s := New(Options{})
	if n := len(s.words) + 1; n != defaultTokens {
		t.Errorf("the prose has %d tokens, the default is %d", n, defaultTokens)
	}
	if s.o.Params != Friendly() {
		t.Errorf("defaults %+v", s.o.Params)
	}
}

func TestOtherEndpoints(t *testing.T) {
	s := Start(t, Options{Params: Instant()})
	f := func(path, body, where string, want any) {
		t.Helper()
		r := post(t, s.URL+path, body)
		if got := member(t, r.body, where); got != want {
			t.Errorf("%s: %s is %v, not %v in %s", path, where, got, want, r.body)
		}
	}
	f("/v1/completions", `{"model":"sim_tokens=2","prompt":"Hi"}`, "choices.0.text", "You said “Hi”. The")
	f("/v1/embeddings", `{"model":"e","input":["a","b","a"]}`, "data.2.index", 2.0)
	f("/v1/embeddings", `{"model":"e","input":"abcdefgh","dimensions":3}`, "usage.total_tokens", 2.0)
	f("/v1/embeddings", `{"model":"e","input":"a","dimensions":3}`, "data.0.embedding.3", nil)
	if r := post(t, s.URL+"/v1/embeddings", `{"model":"e","input":"a","dimensions":3,"encoding_format":"base64"}`); len(member(t, r.body, "data.0.embedding").(string)) != 16 {
		t.Errorf("base64 %s", r.body)
	}
	f("/v1/responses", `{"model":"sim_tokens=2","input":"Hi"}`, "output.0.content.0.text", "You said “Hi”. The")
	f("/v1/responses", `{"model":"sim_tokens=2","input":"Hi","max_output_tokens":1}`, "incomplete_details.reason", "max_output_tokens")
	f("/v1/messages", `{"model":"sim_tokens=2","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}`, "content.0.text", "You said “Hi”. The")
	f("/v1/messages", `{"model":"sim_tokens=2"}`, "error.type", "invalid_request_error")
	f("/v1/images", `{}`, "error", "Not found")

}

func TestTypedEventsAreNamed(t *testing.T) {
	s := Start(t, Options{Params: Instant()})
	f := func(path, body, names string) {
		t.Helper()
		r := post(t, s.URL+path, body)
		var got []string
		for line := range strings.SplitSeq(r.body, "\n") {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				got = append(got, name)
			}
		}
		for _, data := range datas(t, r.body) {
			if !json.Valid([]byte(data)) {
				t.Errorf("%s: %s", path, data)
			}
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%s: events %q", path, got)
		}
	}
	f("/v1/responses", `{"model":"sim_tokens=1","input":"Hi","stream":true}`, "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.done response.content_part.done response.output_item.done response.completed")
	f("/v1/messages", `{"model":"sim_tokens=1","max_tokens":5,"messages":[],"stream":true}`, "message_start content_block_start ping content_block_delta content_block_stop message_delta message_stop")
	f("/v1/messages", `{"model":"sim_tokens=2_fail=error-mid","max_tokens":5,"messages":[],"stream":true}`, "message_start content_block_start ping content_block_delta error")
	if got := datas(t, post(t, s.URL+"/v1/completions", `{"model":"sim_tokens=2","prompt":"Hi","stream":true}`).body); len(got) != 4 || member(t, got[1], "choices.0.text") != " The" {
		t.Errorf("completions %q", got)
	}
}

func TestModels(t *testing.T) {
	s := Start(t, Options{Models: []string{"a", "org/b"}})
	if r := get(t, s.URL+"/v1/models"); member(t, r.body, "data.1.id") != "org/b" {
		t.Errorf("%+v", r)
	}
	if r := get(t, s.URL+"/v1/models/org/b"); member(t, r.body, "sn_metadata.region") != "EU" {
		t.Errorf("%+v", r)
	}
	if r := get(t, s.URL+"/v1/models/c"); r.status != 404 || member(t, r.body, "error.code") != "model_not_found" {
		t.Errorf("%+v", r)
	}
	if r := post(t, s.URL+"/chat/completions", chatBody("c", false, "")); r.status != 404 || member(t, r.body, "error.code") != "model_not_found" {
		t.Errorf("%+v", r)
	}
	if r := get(t, s.URL+"/v1/models", "x-sim-fail: 503"); r.status != 503 {
		t.Errorf("%+v", r)
	}
}

func TestUploadIsHashedNotHeld(t *testing.T) {
	s := Start(t, Options{})
	upload := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	sum := fmt.Sprintf("%x", sha256.Sum256(upload))
	for _, chunked := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var body io.Reader = bytes.NewReader(upload)
		if chunked {
			body = struct{ io.Reader }{body}
		}
		req, _ := http.NewRequest("POST", s.URL+"/v1/audio/transcriptions", body)
		r := do(t, req)
		runtime.ReadMemStats(&after)
		if member(t, r.body, "sim_bytes") != float64(len(upload)) || member(t, r.body, "sim_sha256") != sum {
			t.Errorf("chunked=%t: %+v", chunked, r)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("chunked=%t: %d bytes allocated", chunked, got)
		}
	}
}

func TestKeysAreAskedFor(t *testing.T) {
	s := Start(t, Options{Keys: []string{"k1", "k2"}, Params: Instant()})
	f := func(header string, status int, code any) {
		t.Helper()
		r := post(t, s.URL+"/v1/chat/completions", chatBody("m", false, ""), header)
		if r.status != status || (status != 200 && member(t, r.body, "error.code") != code) {
			t.Errorf("%q: %+v", header, r)
		}
	}
	f("authorization: Bearer k2", 200, nil)
	f("x-api-key: k1", 200, nil)
	f("authorization: Bearer k3", 401, "invalid_api_key")
	f("accept: */*", 401, nil)
	if r := post(t, s.URL+"/v1/messages", "{}"); r.status != 401 || member(t, r.body, "error.type") != "authentication_error" {
		t.Errorf("%+v", r)
	}
}

func TestLimitsAreKept(t *testing.T) {
	s := Start(t, Options{PerDay: 2, Params: Instant()})
	for i, want := range []int{200, 200, 429} {
		r := post(t, s.URL+"/v1/chat/completions", chatBody("m", false, ""))
		if r.status != want || r.header.Get("x-ratelimit-remaining-requests-day") != []string{"1", "0", "0"}[i] {
			t.Errorf("request %d: %+v", i, r)
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	s := Start(t, Options{Params: Instant()})
	f := func(body string, code any) {
		t.Helper()
		r := post(t, s.URL+"/v1/chat/completions", body)
		if r.status != 400 || member(t, r.body, "error.code") != code || member(t, r.body, "request_id") == nil {
			t.Errorf("%s: %+v", body, r)
		}
	}
	f(`{`, nil)
	f(`[]`, nil)
	f(`{"messages":[]}`, nil)
	f(`{"model":"m"}`, nil)
	f(chatBody("m", true, `,"n":9`), "invalid_value")
	f(chatBody("m", true, `,"max_tokens":0`), "integer_below_min_value")
	f(chatBody("m", true, `,"max_tokens":"1"`), "invalid_type")
	for _, script := range []string{"colour=red", "tokens", "tokens=-1", "tokens=x", "ttft=-1s", "ttft=NaN", "fail=x", "fail-rate=2", "tools=2"} {
		f(chatBody("sim_"+script, true, ""), "invalid_value")
	}
}

func TestFaultsOfStreams(t *testing.T) {
	s := Start(t, Options{})
	url := s.URL + "/v1/chat/completions"
	f := func(fault string, check func(r reply) bool) {
		t.Helper()
		r := post(t, url, chatBody("sim_tokens=4_fail="+fault, true, ""))
		if !check(r) {
			t.Errorf("%s: %+v", fault, r)
		}
	}
	plain := post(t, url, chatBody("sim_tokens=4", true, ""))
	chunks := func(r reply) int { return strings.Count(r.body, `"role":"assistant"`) }
	done := func(r reply) bool { return strings.HasSuffix(r.body, doneEvent) }
	f("429", func(r reply) bool { return r.status == 429 && r.header.Get("retry-after") == "1" })
	f("500", func(r reply) bool { return r.status == 500 && r.header.Get("content-type") == "text/plain" })
	f("503", func(r reply) bool { return r.status == 503 && r.body == "Service Temporarily Unavailable" })
	f("drop-before", func(r reply) bool { return errors.Is(r.err, io.EOF) })
	f("drop-mid", func(r reply) bool { return errors.Is(r.err, io.ErrUnexpectedEOF) && chunks(r) == 2 })
	f("reset-mid", func(r reply) bool { return errors.Is(r.err, syscall.ECONNRESET) })
	f("error-first", func(r reply) bool {
		return r.err == nil && r.status == 200 && strings.HasPrefix(r.body, `data: {"error":`)
	})
	f("error-mid", func(r reply) bool {
		return r.err == nil && chunks(r) == 2 && strings.Contains(r.body, `data: {"error":`) && !done(r)
	})
	f("no-done", func(r reply) bool { return r.err == nil && chunks(r) == 5 && !done(r) })
	f("empty", func(r reply) bool { return r.err == nil && r.status == 200 && r.body == "" })
	f("gzip", func(r reply) bool {
		zr, err := gzip.NewReader(strings.NewReader(r.body))
		if err != nil {
			return false
		}
		text, err := io.ReadAll(zr)
		return err == nil && r.header.Get("content-encoding") == "gzip" && strings.HasSuffix(string(text), doneEvent)
	})
	f("split", func(r reply) bool { return len(r.body) == len(plain.body)+len("_fail=split")*5 && done(r) })
	f("keepalive", func(r reply) bool { return strings.Count(r.body, ": keepalive\n\n") == 5 && done(r) })
	f("crlf", func(r reply) bool {
		return strings.Count(r.body, "\r\n\r\n") == 6 && !strings.Contains(strings.ReplaceAll(r.body, "\r\n", ""), "\n")
	})
	f("html", func(r reply) bool { return r.status == 200 && r.header.Get("content-type") == "text/html" })
	f("json", func(r reply) bool {
		return r.header.Get("content-type") == "application/json" && member(t, r.body, "object") == "chat.completion"
	})
	f("cut-last", func(r reply) bool { return r.err == nil && strings.HasSuffix(r.body, "\n\ndata: [") })
	f("short", func(r reply) bool { return errors.Is(r.err, io.ErrUnexpectedEOF) && done(r) })
	f("429_fail-rate=1", func(r reply) bool { return r.status == 429 })
	if got := s.Stats().Faults; got != 19 {
		t.Errorf("%d faults counted", got)
	}
}

func TestFaultsOfWholeAnswers(t *testing.T) {
	s := Start(t, Options{})
	f := func(fault string, check func(r reply) bool) {
		t.Helper()
		r := post(t, s.URL+"/v1/chat/completions", chatBody("sim_tokens=4", false, ""), "x-sim-fail: "+fault)
		if !check(r) {
			t.Errorf("%s: %+v", fault, r)
		}
	}
	whole := func(r reply) bool { return r.err == nil && json.Valid([]byte(r.body)) }
	cut := func(r reply) bool { return errors.Is(r.err, io.ErrUnexpectedEOF) && len(r.body) > 100 }
	f("split", whole)
	f("no-done", whole)
	f("sse", func(r reply) bool {
		return r.header.Get("content-type") == "text/event-stream" && strings.HasSuffix(r.body, doneEvent)
	})
	f("drop-mid", cut)
	f("short", func(r reply) bool { return cut(r) && json.Valid([]byte(r.body)) })
	f("reset-mid", func(r reply) bool { return errors.Is(r.err, syscall.ECONNRESET) })
	f("error-first", func(r reply) bool { return member(t, r.body, "error.type") == "server_error" })
	f("empty", func(r reply) bool { return r.status == 200 && r.body == "" })
	f("gzip", func(r reply) bool { return strings.HasPrefix(r.body, "\x1f\x8b") })
}

func TestFailRateIsExact(t *testing.T) {
	s := Start(t, Options{})
	failed := 0
	for range 20 {
		if post(t, s.URL+"/chat/completions", chatBody("sim_tokens=1_fail=503_fail-rate=0.3", false, "")).status == 503 {
			failed++
		}
	}
	if failed != 6 {
		t.Errorf("%d of 20 failed", failed)
	}
}

// wire is a raw client connection.
type wire struct {
	net.Conn
	*bufio.Reader
}

func (w wire) Read(p []byte) (int, error) { return w.Reader.Read(p) }

func dial(t *testing.T, s *Server) wire {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(3 * time.Second))
	return wire{nc, bufio.NewReader(nc)}
}

func rawChat(model, more string) string {
	body := chatBody(model, true, more)
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func (w wire) until(t *testing.T, text string) string {
	t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, []byte(text)) {
		b, err := w.ReadByte()
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, b)
	}
	return string(got)
}

// waitFor polls, for what another goroutine is about to count.
func waitFor(t *testing.T, s *Server, what string, ok func(Stats) bool) Stats {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond / 2) {
		st := s.Stats()
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("never %s: %+v", what, st)
		}
	}
}

func TestLeavingIsNoticedInEachPhase(t *testing.T) {
	f := func(name, send, until string, phase Phase, tokens int64) {
		t.Helper()
		s := Start(t, Options{})
		w := dial(t, s)
		io.WriteString(w, send)
		if until != "" {
			w.until(t, until)
		} else {
			waitFor(t, s, "read", func(st Stats) bool {
				return st.Requests == 1 && (phase == Asking || st.BodyBytes > 0)
			})
		}
		at := time.Now()
		w.Conn.Close()
		st := waitFor(t, s, "left", func(st Stats) bool { return st.Left == 1 && st.Open == 0 })
		l := st.Leavings[0]
		if l.Phase != phase || l.Tokens != tokens || l.N != 1 {
			t.Errorf("%s: %+v", name, l)
		}
		if late := l.At.Sub(at); late > 100*time.Millisecond {
			t.Errorf("%s: noticed after %v", name, late)
		}
		if st.Active != 0 {
			t.Errorf("%s: still active", name)
		}
	}
	asking := rawChat("sim_ttft=1m", "")
	f("in the request", asking[:len(asking)-5], "", Asking, 0)
	f("before the first token", asking, "", Waiting, 0)
	f("between tokens", rawChat("sim_tpot=1m", ""), endEvent, Answering, 1)
	f("in a stall", rawChat("sim_tokens=6_fail=stall", ""), "Eisbach\",\"role\":\"assistant\"},\"finish_reason\":null,", Answering, 3)
	f("in the head", rawChat("sim_fail=slow-headers", ""), "HTTP/1.1", Answering, 0)
	f("after [DONE]", rawChat("sim_tokens=2_delay-last=1m", ""), "[DONE]", Answering, 2)
	f("with a request sent ahead", rawChat("sim_tpot=1m", "")+rawChat("sim_tokens=1", ""), endEvent, Answering, 1)
}

func TestLeavingDuringABurstStopsProduction(t *testing.T) {
	s := Start(t, Options{})
	w := dial(t, s)
	io.WriteString(w, rawChat("sim_tokens=10000000", ""))
	w.until(t, endEvent)
	w.Conn.Close()
	st := waitFor(t, s, "left", func(st Stats) bool { return st.Left == 1 && st.Active == 0 })
	if st.CompletionTokens > 1_000_000 {
		t.Errorf("%d tokens", st.CompletionTokens)
	}
}

func TestACompleteAnswerIsNotLeft(t *testing.T) {
	s := Start(t, Options{})
	for range 20 {
		w := dial(t, s)
		io.WriteString(w, rawChat("sim_tokens=2_tpot=1ms", ""))
		w.until(t, lastChunk)
		w.Conn.Close()
	}
	if st := waitFor(t, s, "closed", func(st Stats) bool { return st.Open == 0 }); st.Left != 0 || st.Accepted != 20 {
		t.Errorf("%+v", st)
	}
}

func TestRequestsSentAheadAreAnsweredInOrder(t *testing.T) {
	s := Start(t, Options{})
	w := dial(t, s)
	io.WriteString(w, rawChat("sim_tokens=2_tpot=5ms", "")+rawChat("sim_tokens=1", "")+"GET /v1/models HTTP/1.1\r\n\r\n")
	w.until(t, lastChunk)
	w.until(t, "sim_tokens=1")
	w.until(t, lastChunk)
	w.until(t, "eisbach-sim")
}

func TestWireDetails(t *testing.T) {
	s := Start(t, Options{})
	w := dial(t, s)
	io.WriteString(w, "POST /chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
	w.until(t, "HTTP/1.1 100 Continue\r\n\r\n")
	body := chatBody("sim_tokens=1_coalesce=3", true, "")
	fmt.Fprintf(w, "5;x=y\r\n%s\r\n%x\r\n%s\r\n0\r\nA: b\r\n\r\n", body[:5], len(body)-5, body[5:])
	w.until(t, lastChunk)
	if _, err := w.ReadByte(); err != io.EOF {
		t.Errorf("the connection stays after close: %v", err)
	}
	f := func(send, want string) {
		t.Helper()
		w := dial(t, s)
		io.WriteString(w, send)
		if got, _ := io.ReadAll(w); !strings.HasPrefix(string(got), want) {
			t.Errorf("%q: %q", send, got)
		}
	}
	f("GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 400 ")
	f("POST /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 400 ")
	f("POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 400 ")
	f("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 ")
	f("GET /x HTTP/1.1\r\nA: "+strings.Repeat("a", readBuffer)+"\r\n\r\n", "HTTP/1.1 413 ")
	f("POST /x HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413 ")
}

func TestExecutionsAreCountedById(t *testing.T) {
	s := Start(t, Options{})
	url := s.URL + "/chat/completions"
	post(t, url, chatBody("sim_tokens=1", false, `,"metadata":{"request_id":"a"},"user":"u"`), "x-request-id: h")
	post(t, url, chatBody("sim_tokens=1", false, `,"user":"u"`), "x-request-id: h")
	post(t, url, chatBody("sim_tokens=1_fail=503", false, ""), "x-request-id: h")
	post(t, url, chatBody("sim_tokens=1_fail=drop-before", false, ""), "x-request-id: h")
	post(t, url, chatBody("sim_tokens=1", true, ""), "x-request-id: h")
	st := s.Stats()
	if fmt.Sprint(st.Attempts) != "map[a:1 h:3 u:1]" || fmt.Sprint(st.Executed) != "map[a:1 h:1 u:1]" {
		t.Errorf("attempts %v, executed %v", st.Attempts, st.Executed)
	}
	if st.PromptTokens != 12 || st.CompletionTokens != 3 || st.Streams != 1 || st.Requests != 5 {
		t.Errorf("%+v", st)
	}
}

func TestScriptTakesOver(t *testing.T) {
	s := Start(t, Options{})
	left := make(chan bool, 1)
	s.Script(func(c *Call) {
		switch c.N {
		case 1:
			c.Head(200, "Content-Type: text/plain", "X-Saw: "+c.Method+" "+c.Path+" "+c.Header("x-in"))
			c.Chunk(c.Body)
			c.Chunk([]byte("!"))
			c.End()
		case 2:
			c.Head(200, "Content-Length: 10")
			c.WriteString("half")
			c.Reset()
		case 3:
			c.Close()
		case 4:
			c.Head(200)
			left <- c.WaitGone(2 * time.Second)
		}
	})
	if r := post(t, s.URL+"/p?q", "hello", "x-in: y"); r.body != "hello!" || r.header.Get("x-saw") != "POST /p y" {
		t.Errorf("%+v", r)
	}
	if r := post(t, s.URL+"/p", ""); !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("reset: %+v", r)
	}
	if r := post(t, s.URL+"/p", ""); !errors.Is(r.err, io.EOF) {
		t.Errorf("close: %+v", r)
	}
	w := dial(t, s)
	io.WriteString(w, "GET / HTTP/1.1\r\n\r\n")
	w.until(t, "\r\n\r\n")
	w.Conn.Close()
	if !<-left {
		t.Error("the script was not told that the client left")
	}
	if r := post(t, s.URL+"/chat/completions", chatBody("sim_tokens=1", false, "")); member(t, r.body, "object") != "chat.completion" {
		t.Errorf("a silent script: %+v", r)
	}
	s.Script(nil)
	if r := get(t, s.URL+"/models"); r.status != 200 {
		t.Errorf("%+v", r)
	}
	if n := s.Stats().Left; n != 1 {
		t.Errorf("%d clients left", n)
	}
}

func TestTLS(t *testing.T) {
	s, ca := StartTLS(t, Options{})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 3 { // the look-out comes and goes on one TLS connection
		res, err := client.Post(s.URL+"/chat/completions", "", strings.NewReader(chatBody("sim_tokens=3_tpot=1ms", true, "")))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || !bytes.HasSuffix(body, []byte(doneEvent)) {
			t.Errorf("%q %v", body, err)
		}
		res.Body.Close()
	}
	res, err := client.Post(s.URL+"/chat/completions", "", strings.NewReader(chatBody("sim_tokens=4_fail=reset-mid", true, "")))
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	if n := s.Stats().Accepted; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestCloseEndsAnswersAndGoroutines(t *testing.T) {
	s := Start(t, Options{})
	for _, model := range []string{"sim_ttft=1m", "sim_tpot=1m", "sim_fail=stall"} {
		io.WriteString(dial(t, s), rawChat(model, ""))
	}
	dial(t, s) // idle
	waitFor(t, s, "active", func(st Stats) bool { return st.Active == 3 && st.Accepted == 4 })
	before := time.Now()
	s.Close()
	if took := time.Since(before); took > time.Second {
		t.Errorf("Close took %v", took)
	}
	if st := s.Stats(); st.Open != 0 || st.Active != 0 || st.Left != 0 {
		t.Errorf("%+v", st)
	}
	goleak.VerifyNone(t)
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestCloseIdleSparesAnswers(t *testing.T) {
	s := Start(t, Options{})
	idle, busy := dial(t, s), dial(t, s)
	io.WriteString(idle, rawChat("sim_tokens=1", ""))
	idle.until(t, lastChunk)
	io.WriteString(busy, rawChat("sim_tokens=4_tpot=10ms", ""))
	busy.until(t, endEvent)
	waitFor(t, s, "idle", func(st Stats) bool { return st.Active == 1 })
	time.Sleep(time.Millisecond)
	s.CloseIdle()
	if _, err := idle.ReadByte(); err != io.EOF {
		t.Errorf("idle: %v", err)
	}
	busy.until(t, lastChunk)
}

// pipes is a listener without sockets, for synthetic time.
type pipes struct {
	conns chan net.Conn
	close func()
}

func newPipes() pipes {
	conns := make(chan net.Conn)
	return pipes{conns, sync.OnceFunc(func() { close(conns) })}
}

func (p pipes) Accept() (net.Conn, error) {
	nc, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}
func (p pipes) Close() error   { p.close(); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func TestPaceIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		ln := newPipes()
		go s.Serve(ln)
		client, server := net.Pipe()
		ln.conns <- server
		f := func(model string, want ...time.Duration) {
			t.Helper()
			start := time.Now()
			io.WriteString(client, rawChat(model, ""))
			var got []time.Duration
			br := bufio.NewReader(client)
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line, "data: ") || line == "0\r\n" {
					got = append(got, time.Since(start))
				}
				if line == "0\r\n" {
					br.ReadString('\n')
					break
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, not %v", model, got, want)
			}
		}
		const ms = time.Millisecond
		f("sim_ttft=20ms_tpot=5_tokens=3", 20*ms, 25*ms, 30*ms, 30*ms, 30*ms, 30*ms)
		f("sim_ttft=20ms_tpot=5ms_tokens=4_coalesce=2", 20*ms, 20*ms, 30*ms, 30*ms, 30*ms, 30*ms, 30*ms)
		f("sim_tokens=1_delay-last=1s", 0, 0, 0, time.Second)
		f("sim_tokens=1_reasoning=2_tpot=1ms", 0, 1*ms, 2*ms, 2*ms, 2*ms, 2*ms)
		client.Close()
		s.Close()
	})
}

func TestSlowHeadersTakeTheirTime(t *testing.T) {
	s := Start(t, Options{})
	start := time.Now()
	w := dial(t, s)
	io.WriteString(w, rawChat("sim_fail=slow-headers", ""))
	w.until(t, "HTTP/1.1 200 OK\r\n")
	if took := time.Since(start); took < 16*10*time.Millisecond {
		t.Errorf("17 bytes in %v", took)
	}
}

func TestTokensAllocateNothing(t *testing.T) {
	f := func(model string) {
		t.Helper()
		s := Start(t, Options{})
		w := dial(t, s)
		buf := make([]byte, 64<<10)
		run := func(tokens int) uint64 {
			send := []byte(rawChat(fmt.Sprintf("%s_tokens=%d", model, tokens), ""))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w.Conn.Write(send)
			tail := make([]byte, 0, 2*len(lastChunk))
			for {
				n, err := w.Conn.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				if tail = append(tail, buf[max(0, n-len(lastChunk)):n]...); len(tail) > len(lastChunk) {
					tail = append(tail[:0], tail[len(tail)-len(lastChunk):]...)
				}
				if string(tail) == lastChunk {
					break
				}
			}
			runtime.ReadMemStats(&after)
			return after.Mallocs - before.Mallocs
		}
		run(10)
		few, many := run(10), run(1010)
		if many > few+50 {
			t.Errorf("%s: %d allocations for 10 tokens, %d for 1010", model, few, many)
		}
	}
	f("sim_ttft=0")
	f("sim_chunk-bytes=40")
	f("sim_tpot=10us")
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(rawChat("m", "")))
	f.Add([]byte("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a\r\nabc\r\n0\r\nT: u\r\n\r\n"))
	f.Add([]byte("GET /x?y HTTP/1.1\nA: b\n\n"))
	f.Add([]byte("POST /x HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, in []byte) {
		read := func(r io.Reader) (request, []byte, error) {
			br := bufio.NewReaderSize(r, readBuffer)
			var req request
			if err := req.read(br); err != nil {
				return req, nil, err
			}
			body := newBody(br, req.length)
			text, err := body.readAll(nil)
			return req, text, err
		}
		req, body, err := read(bytes.NewReader(in))
		again, body2, err2 := read(oneByte{bytes.NewReader(in)})
		if (err == nil) != (err2 == nil) || !bytes.Equal(body, body2) || req.path != again.path {
			t.Fatalf("cut into bytes it reads differently: %v %v, %q %q", err, err2, body, body2)
		}
		if err == nil && (len(body) > len(in) || req.path == "" || req.path[0] != '/') {
			t.Fatalf("%q from %q", body, in)
		}
	})
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func FuzzScript(f *testing.F) {
	f.Add("sim_ttft=20ms_tpot=5_tokens=100_chunk-bytes=3_coalesce=2_reasoning=1_tools=1_fail=429_fail-rate=.5_delay-last=1")
	f.Add("x/sim_")
	f.Add("m")
	f.Fuzz(func(t *testing.T, model string) {
		p := Friendly()
		found, err := p.script(model)
		if err != nil {
			return
		}
		if !found && p != Friendly() || p.TTFT < 0 || p.TPOT < 0 || p.DelayLast < 0 || p.Tokens < 0 || p.Tokens > maxCount || !p.Fail.known() {
			t.Fatalf("%q: %+v", model, p)
		}
	})
}

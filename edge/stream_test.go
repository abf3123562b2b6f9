package edge

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAGoodStreamReachesTheClientByteForByte(t *testing.T) {
	f := func(name, from, want string, record entry) {
		t.Helper()
		u := play(t, func(c *call) { c.say(streamHead, from); c.Close() })
		s := open(t, nil, u)
		response, body := s.chat(streamUsage)
		if response.StatusCode != 200 || body != want {
			t.Errorf("%s: %d %q\nwant %q", name, response.StatusCode, body, want)
		}
		got := s.record(1)
		if got.Outcome != "success" || got.Prompt != record.Prompt || got.Completion != record.Completion || got.Usage != record.Usage {
			t.Errorf("%s: record %+v", name, got)
		}
	}
	actual := entry{Prompt: 3, Completion: 1, Usage: "actual"}
	good := role + hi + stop + usage + done
	f("plain", good, good, actual)
	f("without a mark", role+hi+stop+usage, good, actual)
	f("unterminated mark", role+hi+stop+usage+"data: [DONE]", good, actual)
	f("no space", strings.ReplaceAll(good, "data: ", "data:"), strings.ReplaceAll(role+hi+stop+usage, "data: ", "data:")+done, actual)
	f("comments", ": ping\n\n"+role+": ping\n\n"+hi+stop+usage+done, good, actual)
	f("after the mark", role+hi+stop+done+usage+done, role+hi+stop+done, actual)
	f("no usage", role+hi+stop+done, role+hi+stop+done, entry{Prompt: 28, Completion: 1, Usage: "estimated"})
}

func TestUsageIsAskedForAndWithheldFromWhoDidNotAsk(t *testing.T) {
	bodies := make(chan string, 2)
	u := play(t, func(c *call) { bodies <- c.body; c.say(streamHead + role + hi + stop + usage + done); c.Close() })
	s := open(t, nil, u)
	_, body := s.chat(streamBody)
	if body != role+hi+stop+done {
		t.Errorf("got %q", body)
	}
	if sent := <-bodies; !strings.Contains(sent, `"stream_options":{"include_usage":true}`) {
		t.Errorf("sent %q", sent)
	}
	if r := s.record(1); r.Prompt != 3 || r.Completion != 1 || r.Usage != "actual" {
		t.Errorf("record %+v", r)
	}
}

func TestStreamHeadersKeepWhatLiesBetweenFromHoldingBack(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(strings.Replace(streamHead, "\r\n\r\n", "\r\nset-cookie: a=b\r\nserver: x\r\nx-foo: 1\r\nkeep-alive: timeout=5\r\n\r\n", 1) + hi + stop + done)
		c.Close()
	})
	s := open(t, nil, u)
	response, _ := s.chat(streamBody)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Incremental": "?1",
		"Content-Encoding": "", "Set-Cookie": "", "Server": "", "X-Foo": "", "Keep-Alive": "", "Content-Length": "",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(response.Header.Get("X-Request-Id"), "req_") {
		t.Errorf("x-request-id: %q", response.Header.Get("X-Request-Id"))
	}
}

func TestEachEventLeavesBeforeTheNextHasCome(t *testing.T) {
	next := make(chan struct{})
	u := play(t, func(c *call) {
		c.say(streamHead + role)
		for _, event := range []string{hi, hi, stop + done} {
			<-next
			c.say(event)
		}
		c.Close()
	})
	s := open(t, nil, u)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "+itoa(len(streamBody))+"\r\n\r\n"+streamBody)
	next <- struct{}{} // the head waits for the first content
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(response.Body)
	want := func(events string) {
		t.Helper()
		p := make([]byte, len(events))
		if _, err := io.ReadFull(body, p); err != nil || string(p) != events {
			t.Fatalf("got %q %v, want %q", p, err, events)
		}
	}
	want(role + hi)
	next <- struct{}{}
	want(hi)
	next <- struct{}{}
	want(stop + done)
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestABrokenStreamNeverLooksComplete(t *testing.T) {
	f := func(name string, answer func(c *call), status int, want, code, outcome string) {
		t.Helper()
		u := play(t, answer)
		s := open(t, nil, u)
		response, body := s.chat(streamUsage)
		if response.StatusCode != status {
			t.Errorf("%s: status %d", name, response.StatusCode)
		}
		rest, ok := strings.CutPrefix(body, want)
		if !ok || strings.Contains(body, "[DONE]") {
			t.Errorf("%s: body %q", name, body)
		}
		if status == 200 {
			rest, ok = strings.CutPrefix(rest, "event: error\ndata: ")
			if !ok || !strings.HasSuffix(rest, "\n\n") {
				t.Fatalf("%s: no error event: %q", name, rest)
			}
		}
		if got := parseFailure(t, rest).Error.Code; got != code {
			t.Errorf("%s: code %q, want %q", name, got, code)
		}
		if got := s.record(1); got.Outcome != outcome || got.Status != status {
			t.Errorf("%s: record %+v", name, got)
		}
	}
	half := role + hi
	chunkedHead := strings.Replace(streamHead, "\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n", 1)
	f("end", func(c *call) { c.say(streamHead + half); c.Close() }, 200, half, "upstream_disconnected", "upstream_disconnected")
	f("reset", func(c *call) { c.say(streamHead+half, ""); c.reset() }, 200, half, "upstream_disconnected", "upstream_disconnected")
	f("no last chunk", func(c *call) { c.say(chunkedHead + hexChunk(half)); c.Close() }, 200, half, "upstream_disconnected", "upstream_disconnected")
	f("in an event", func(c *call) { c.say(streamHead + half + hi[:40]); c.Close() }, 200, half, "upstream_disconnected", "upstream_disconnected")
	f("error event", func(c *call) {
		c.say(streamHead + half + `data: {"error":{"message":"The model crashed.","type":"server_error","code":500}}` + "\n\n")
		c.Close()
	}, 200, half, "upstream_error", "upstream_error")
	f("only a role", func(c *call) { c.say(streamHead + role); c.Close() }, 502, "", "upstream_disconnected", "upstream_disconnected")
	f("empty", func(c *call) { c.say(streamHead); c.Close() }, 502, "", "upstream_disconnected", "upstream_disconnected")
	f("only the mark", func(c *call) { c.say(streamHead + done); c.Close() }, 502, "", "upstream_error", "upstream_error")
	f("error first", func(c *call) {
		c.say(streamHead + `data: {"error":{"message":"rate limited","code":429,"type":"rate_limit_error"}}` + "\n\n")
		c.Close()
	}, 503, "", "upstream_overloaded", "upstream_error")
	f("html", func(c *call) { c.say("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>"); c.Close() }, 502, "", "upstream_error", "upstream_error")
	f("gone before a byte", func(c *call) { c.Close() }, 502, "", "upstream_disconnected", "upstream_disconnected")
	f("too large", func(c *call) {
		c.say(streamHead + half + "data: " + strings.Repeat("a", 2<<20))
		c.left()
	}, 200, half, "upstream_error", "upstream_error")
}

func hexChunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func TestUpstreamsErrorsAreTranslated(t *testing.T) {
	f := func(answer string, status int, code string) {
		t.Helper()
		for _, body := range []string{wholeBody, streamBody} {
			u := play(t, func(c *call) { c.say(answer); c.Close() })
			s := open(t, nil, u)
			response, got := s.chat(body)
			e := parseFailure(t, got).Error
			if response.StatusCode != status || e.Code != code || e.Message == "" || response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%q: %d %s", answer, response.StatusCode, got)
			}
			if strings.Contains(got, "UK-cccc3333dddd4444") {
				t.Errorf("%q: the key shows: %s", answer, got)
			}
		}
	}
	answer := func(status, body string) string {
		return "HTTP/1.1 " + status + "\r\ncontent-type: application/json\r\ncontent-length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	f(answer("400 Bad", `{"error":{"message":"too long","code":"context_length_exceeded"}}`), 400, "context_length_exceeded")
	f(answer("400 Bad", `{"error":"bad UK-cccc3333dddd4444"}`), 400, "invalid_value")
	f(answer("401 No", `{"error":{"message":"Incorrect API key provided: UK-cccc3333dddd4444","code":"invalid_api_key"}}`), 502, "upstream_auth")
	f(answer("402 Pay", ``), 502, "upstream_auth")
	f(answer("403 No", ``), 502, "upstream_auth")
	f(answer("404 No", `{"error":{"message":"no","code":"model_not_found"}}`), 404, "model_not_found")
	f(answer("410 Gone", `{"error":"gone"}`), 404, "model_not_found")
	f(answer("422 No", `[{"error":{"code":422,"message":"no","status":"INVALID_ARGUMENT"}}]`), 422, "INVALID_ARGUMENT")
	f(answer("429 Slow", `{"error":{"message":"slow","code":"insufficient_quota"}}`), 503, "upstream_overloaded")
	f(answer("500 Oh", `text`), 502, "upstream_error")
	f(answer("503 Busy", `Service Temporarily Unavailable`), 503, "upstream_overloaded")
	f(answer("529 Busy", `{}`), 503, "upstream_overloaded")
	f(answer("301 Elsewhere", ``), 502, "upstream_error")
	f("SSH-2.0\r\n\r\n", 502, "upstream_error")
}

func TestWholeAnswersAreWholeOrRefused(t *testing.T) {
	f := func(name, answer string, status int, code string) {
		t.Helper()
		u := play(t, func(c *call) { c.say(answer); c.Close() })
		s := open(t, nil, u)
		response, body := s.chat(wholeBody)
		if response.StatusCode != status {
			t.Fatalf("%s: %d %s", name, response.StatusCode, body)
		}
		if status == 200 {
			if strings.TrimSpace(body) != completion {
				t.Errorf("%s: body %q", name, body)
			}
			if r := s.record(1); r.Prompt != 3 || r.Completion != 1 || r.Usage != "actual" || r.Outcome != "success" || r.TTFT != nil {
				t.Errorf("%s: record %+v", name, r)
			}
		} else if got := parseFailure(t, body).Error.Code; got != code {
			t.Errorf("%s: code %q", name, got)
		}
	}
	f("good", whole(completion), 200, "")
	f("blank lines first", whole("\n\n\n"+completion), 200, "")
	f("to the end of the connection", jsonHead+"\r\n"+completion, 200, "")
	f("cut by length", jsonHead+"content-length: 400\r\n\r\n"+completion[:30], 502, "upstream_disconnected")
	f("cut by chunks", jsonHead+"transfer-encoding: chunked\r\n\r\n"+hexChunk(completion), 502, "upstream_disconnected")
	f("cut without either", jsonHead+"\r\n"+completion[:30], 502, "upstream_error")
	f("error with 200", whole(`{"error":{"message":"no"}}`), 502, "upstream_error")
}

func TestTimeouts(t *testing.T) {
	const short = 150 * time.Millisecond
	f := func(name string, adjust func(*Route), body string, answer func(c *call), status int, code string, least time.Duration) {
		t.Helper()
		u := play(t, answer)
		s := open(t, func(table *Table) { adjust(table.Routes["default"]) }, u)
		start := time.Now()
		response, got := s.chat(body)
		took := time.Since(start)
		if response.StatusCode != status || !strings.Contains(got, `"`+code+`"`) || strings.Contains(got, "[DONE]") {
			t.Errorf("%s: %d %q", name, response.StatusCode, got)
		}
		if took < least || took > 10*least {
			t.Errorf("%s: after %v, want %v", name, took, least)
		}
		if r := s.record(1); r.Outcome != code || r.Status != status {
			t.Errorf("%s: record %+v", name, r)
		}
	}
	silent := func(say ...string) func(c *call) {
		return func(c *call) { c.say(say...); c.left() }
	}
	first := func(r *Route) { r.FirstToken = short }
	f("no head", first, streamBody, silent(), 504, "first_token_timeout", short)
	f("a role and comments", first, streamBody, func(c *call) {
		c.say(streamHead + role)
		for c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); ; c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) {
			if _, err := c.Write([]byte(": ping\n\n")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}, 504, "first_token_timeout", short)
	f("idle", func(r *Route) { r.Idle = short }, streamBody, silent(streamHead+role+hi), 200, "idle_timeout", short)
	f("total", func(r *Route) { r.Total = short }, streamBody, silent(streamHead+role+hi), 200, "total_timeout", short)
	f("total of a whole answer", func(r *Route) { r.Total, r.FirstToken = short, time.Millisecond }, wholeBody, silent(jsonHead+"\r\n\n"), 504, "total_timeout", short)
}

func TestASlowFirstTokenIsNotAnIdleStream(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(streamHead)
		time.Sleep(200 * time.Millisecond)
		c.say(hi, hi, hi, stop+done)
		c.Close()
	})
	s := open(t, func(table *Table) { table.Routes["default"].Idle = 150 * time.Millisecond }, u)
	if _, body := s.chat(streamBody); body != hi+hi+hi+stop+done {
		t.Errorf("got %q", body)
	}
}

func TestHeartbeatsStandBetweenEventsAndBeforeTheAnswer(t *testing.T) {
	adjust := func(table *Table) {
		table.Routes["default"].Heartbeat, table.Routes["default"].EarlyHeader = 20*time.Millisecond, 40*time.Millisecond
	}
	u := play(t, func(c *call) {
		time.Sleep(200 * time.Millisecond)
		c.say(streamHead + role + hi[:20])
		time.Sleep(200 * time.Millisecond)
		c.say(hi[20:]+stop, "")
		time.Sleep(100 * time.Millisecond)
		c.say(done)
		c.Close()
	})
	s := open(t, adjust, u)
	response, body := s.chat(streamBody)
	if response.StatusCode != 200 || strings.ReplaceAll(body, ":\n", "") != strings.ReplaceAll(role+hi+stop+done, ":\n", "") {
		t.Errorf("%d %q", response.StatusCode, body)
	}
	before, _, _ := strings.Cut(body, "data")
	if n := strings.Count(before, ":\n"); n < 4 {
		t.Errorf("%d heartbeats before the answer: %q", n, body)
	}
	if !strings.Contains(body, stop+":\n") {
		t.Errorf("none between events: %q", body)
	}
	if r := s.record(1); r.TTFT == nil || *r.TTFT < 390 {
		t.Errorf("record %+v", r)
	}

	late := play(t, func(c *call) {
		time.Sleep(200 * time.Millisecond)
		c.say("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n")
	})
	s = open(t, adjust, late)
	response, body = s.chat(streamBody)
	if response.StatusCode != 200 || !strings.Contains(body, "event: error\n") || strings.Contains(body, "[DONE]") {
		t.Errorf("a late failure: %d %q", response.StatusCode, body)
	}
	if response, body = s.chat(wholeBody); response.StatusCode != 502 || body[0] != '{' {
		t.Errorf("a whole answer: %d %q", response.StatusCode, body)
	}
}

func TestAClientThatLeavesEndsTheUpstreamsWork(t *testing.T) {
	f := func(name, body string, reset bool, say ...string) {
		t.Helper()
		began, left := make(chan struct{}, 1), make(chan bool, 1)
		u := play(t, func(c *call) {
			c.say(say...)
			began <- struct{}{}
			left <- c.left()
		})
		s := open(t, nil, u)
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "+itoa(len(body))+"\r\n\r\n"+body)
		<-began
		time.Sleep(20 * time.Millisecond)
		if reset {
			c.(*net.TCPConn).SetLinger(0)
		}
		start := time.Now()
		c.Close()
		if !<-left {
			t.Errorf("%s: the upstream was not told", name)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("%s: told after %v", name, took)
		}
		r := s.record(1)
		status := 499
		if strings.Contains(strings.Join(say, ""), "Hi") {
			status = 200
		}
		if r.Outcome != "client_left" || r.Status != status || u.requests.Load() != 1 || r.Prompt == 0 {
			t.Errorf("%s: record %+v, %d requests", name, r, u.requests.Load())
		}
	}
	for _, reset := range []bool{false, true} {
		f("before the head", streamBody, reset)
		f("whole answer", wholeBody, reset, jsonHead+"content-length: 100\r\n\r\n{")
		f("after the role", streamBody, reset, streamHead+role)
		f("silent in the stream", streamBody, reset, streamHead+role+hi)
	}
}

func TestAnHTTP10ClientGetsAStreamWithoutChunks(t *testing.T) {
	for _, keepAlive := range []string{"", "connection: keep-alive\r\n"} {
		u := play(t, func(c *call) { c.say(streamHead+role+hi, stop+done); c.Close() })
		s := open(t, nil, u)
		got := s.raw("POST /v1/chat/completions HTTP/1.0\r\n" + keepAlive + "content-length: " + itoa(len(streamBody)) + "\r\n\r\n" + streamBody)
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if body != role+hi+stop+done || strings.Contains(strings.ToLower(head), "transfer-encoding") || !strings.Contains(strings.ToLower(head), "connection: close") {
			t.Errorf("got %q", got)
		}
		if r := s.record(1); r.Outcome != "success" {
			t.Errorf("record %+v", r)
		}
	}
}

func TestClientsThatHoldTheFirstBytesBackArePrimed(t *testing.T) {
	u := play(t, func(c *call) { c.say(streamHead + hi + stop + done); c.Close() })
	f := func(prime Prime, agent string, want bool) {
		t.Helper()
		s := open(t, func(table *Table) { table.Routes["default"].Prime = prime }, u)
		_, body := s.post("/v1/chat/completions", streamBody, "user-agent", agent)
		if first, rest, _ := strings.Cut(body, "\n"); (len(first) >= 511 && first[0] == ':') != want || want && rest != hi+stop+done {
			t.Errorf("%d, %s: %q", prime, agent, body)
		}
	}
	f(PrimeAuto, "MyApp/1 CFNetwork/1568.100.1 Darwin/24.0.0", true)
	f(PrimeAuto, "OpenAI/JS 7.59.0", false)
	f(PrimeAlways, "OpenAI/JS 7.59.0", true)
	f(PrimeNever, "MyApp/1 CFNetwork/1568.100.1 Darwin/24.0.0", false)
}

func TestAClientGetsWhatItAskedForWhateverTheUpstreamAnswers(t *testing.T) {
	joined := `{"object":"chat.completion","id":"c1","usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4},` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"HiHi"},"finish_reason":"stop"}]}`
	f := func(name, body, answer string, status int, want, outcome string) {
		t.Helper()
		u := play(t, func(c *call) { c.say(answer[:len(answer)/2], answer[len(answer)/2:]); c.Close() })
		s := open(t, nil, u)
		response, got := s.chat(body)
		kind := "application/json"
		if status == 200 && body != wholeBody {
			kind = "text/event-stream"
		}
		if response.StatusCode != status || !strings.Contains(got, want) || response.Header.Get("Content-Type") != kind {
			t.Errorf("%s: %d %q", name, response.StatusCode, got)
		}
		if r := s.record(1); r.Outcome != outcome || status == 200 && (r.Prompt != 3 || r.Completion != 1 || r.Usage != "actual") {
			t.Errorf("%s: record %+v", name, r)
		}
	}
	events := role + hi + hi + stop + usage + done
	f("events", wholeBody, streamHead+events, 200, joined, "success")
	f("events that call themselves text", wholeBody, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"+events, 200, joined, "success")
	f("events that call themselves JSON", wholeBody, jsonHead+"\r\n"+events, 200, joined, "success")
	f("events that are cut", wholeBody, streamHead+role+hi, 502, "upstream_disconnected", "upstream_disconnected")
	f("an error event", wholeBody, streamHead+role+hi+"data: {\"error\":{\"message\":\"busy\",\"type\":\"overloaded_error\"}}\n\n", 503, "upstream_overloaded", "upstream_error")
	f("nothing", wholeBody, streamHead, 502, "upstream_error", "upstream_error")
	f("a whole answer", streamBody, whole("\n\n"+completion), 200, `"content":"Hi"}`, "success")
	f("a whole answer and usage", streamUsage, whole(completion), 200, `"choices":[],"usage":{"prompt_tokens":3`, "success")
	f("a whole answer's end", streamUsage, whole(completion), 200, done, "success")
	f("events that call themselves text", streamBody, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"+events, 200, role+hi+hi+stop+done, "success")
	f("an error", streamBody, whole(`{"error":{"message":"busy","code":"rate_limit_exceeded"}}`), 503, "upstream_overloaded", "upstream_error")
	f("other JSON", streamBody, whole(`{"ok":true}`), 502, "upstream_error", "upstream_error")
	f("half an answer", streamBody, jsonHead+"content-length: 400\r\n\r\n"+completion[:30], 502, "upstream_disconnected", "upstream_disconnected")
	f("text", streamBody, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhello", 502, "upstream_error", "upstream_error")
}

func TestWhatSDKsStumbleOverIsRepaired(t *testing.T) {
	after := stop + done
	f := func(from, want string) {
		t.Helper()
		u := play(t, func(c *call) { c.say(streamHead + from + stop + done); c.Close() })
		s := open(t, nil, u)
		if _, got := s.chat(streamUsage); got != want+after {
			t.Errorf("%q\nbecame %q\nwant   %q", from, got, want+after)
		}
	}
	f(hi, hi)
	f("\xEF\xBB\xBF"+hi, hi)
	f(strings.ReplaceAll(hi, "\n", "\r"), hi)
	f("id: 7\n"+hi, hi)
	f(strings.Replace(hi, ",", ",\ndata: ", 1), strings.Replace(hi, ",", ", ", 1))
	f(strings.Replace(hi, `"id"`, `"error":null,"id"`, 1), hi)
	f(strings.Replace(hi, `"id"`, `"created":1771518114.35,"id"`, 1), strings.Replace(hi, `"id"`, `"created":1771518114,"id"`, 1))
	f(hi+`data: {"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`+"\n\n",
		hi+`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`+"\n\n")
	call := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}]}` + "\n\n"
	f(call, call)
	null := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{\"x\":1}"}}]},"finish_reason":null}]}` + "\n\n"
	f(call+null, call+null) // null stays null
	bare := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"b","function":{"arguments":"{}"}}]},"finish_reason":null}]}` + "\n\n"
	f(hi+`data: {"id":"c1","object":"chat.completion.chunk"}`+"\n\n", hi+`data: {"id":"c1","object":"chat.completion.chunk","choices":[]}`+"\n\n")
	after = strings.Replace(stop, `"stop"`, `"tool_calls"`, 1) + done // who leaves the index out says stop (Gemini)
	f(call+bare, call+strings.Replace(bare, `{"id":"b"`, `{"index":1,"id":"b"`, 1))
}

func TestCompressedStreamsAreDecoded(t *testing.T) {
	u := play(t, func(c *call) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(c, strings.Replace(streamHead, "\r\n\r\n", "\r\ncontent-encoding: gzip\r\n\r\n", 1))
		for _, event := range []string{role, hi, stop, done} {
			io.WriteString(z, event)
			z.Flush()
			c.say(b.String(), "")
			b.Reset()
		}
		z.Close()
		c.say(b.String())
		c.Close()
	})
	s := open(t, nil, u)
	response, body := s.chat(streamBody)
	if body != role+hi+stop+done || response.Header.Get("Content-Encoding") != "" {
		t.Errorf("%v %q", response.Header, body)
	}
}

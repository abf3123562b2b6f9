package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func post(path, headers, body string) string {
	return "POST " + path + " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + headers + "content-length: " + itoa(len(body)) + "\r\n\r\n" + body
}

func TestPathsLeadWhereTheySayOrNowhere(t *testing.T) {
	targets := make(chan string, 1)
	u := play(t, func(c *call) { targets <- c.req.RequestURI; c.say(whole(completion)) })
	s := open(t, func(table *Table) {
		other := *table.Routes["default"]
		other.Name = "voice"
		table.Routes["voice"] = &other
	}, u)
	f := func(target string, want int) {
		t.Helper()
		got := s.raw(post(target, "", wholeBody))
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%s: %.200q, want %d", target, got, want)
		}
		if want == 200 {
			if target := <-targets; target != "/base/v1/chat/completions" {
				t.Errorf("upstream was asked for %s", target)
			}
		}
	}
	f("/v1/chat/completions", 200)
	f("/voice/v1/chat/completions", 200)
	f("/v1/chat/completions?model=m2&x=%20y", 200)
	f("http://evil/v1/chat/completions", 200)
	for _, target := range []string{
		"/v1/../admin", "/v1/%2e%2e/admin", "/v1/chat%2fcompletions", "/v1/chat%2f..%2f..%2fadmin", "//v1//chat//completions",
		"/v1/chat/completions/", "/V1/chat/completions", "/v1/chat/completions;x=1", "/v1/chat/completions%00", "/v1/./chat/completions",
		"/nobody/v1/chat/completions", "/default/v1/chat/completions", "/v1", "/", "/v1/", "/v1/chat", "/v1/files", "/v1/models/..",
	} {
		f(target, 404)
	}
	if n := u.requests.Load(); n != 4 {
		t.Errorf("%d requests went upstream", n)
	}
}

func TestMethodsAreHeldToTheEndpoint(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	f := func(method, path string, status int, allow string) {
		t.Helper()
		r, _ := http.NewRequest(method, s.url+path, nil)
		response, body := s.do(r)
		if response.StatusCode != status || response.Header.Get("Allow") != allow {
			t.Errorf("%s %s: %d allow %q %s", method, path, response.StatusCode, response.Header.Get("Allow"), body)
		}
	}
	f("GET", "/v1/chat/completions", 405, "POST")
	f("DELETE", "/v1/chat/completions", 405, "POST")
	f("POST", "/v1/models", 405, "GET, HEAD")
	f("GET", "/healthz", 200, "")
	f("GET", "/readyz", 200, "")
	f("HEAD", "/healthz", 200, "")
}

func TestClientKeys(t *testing.T) {
	u := play(t, func(c *call) {
		if got := c.req.Header.Get("Authorization"); got != "Bearer UK-cccc3333dddd4444" {
			t.Errorf("upstream got %q", got)
		}
		c.say(whole(completion))
	})
	s := open(t, func(table *Table) {
		keyed("CK-good", "ios", "default")(table)
		keyed("CK-other", "web", "voice")(table)
	}, u)
	f := func(headers string, status int, code string) {
		t.Helper()
		got := s.raw(post("/v1/chat/completions", headers, wholeBody))
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%q: %q", headers, got)
			return
		}
		if status != 200 && parseFailure(t, body).Error.Code != code {
			t.Errorf("%q: %s", headers, body)
		}
		if (status == 401) != strings.Contains(strings.ToLower(head), "www-authenticate: bearer") || strings.Contains(got, "CK-") {
			t.Errorf("%q: %q", headers, got)
		}
	}
	for _, good := range []string{"authorization: bearer CK-good", "Authorization: BEARER CK-good", "Authorization: Bearer  CK-good", "Authorization: Bearer CK-good\t"} {
		f(good+"\r\n", 200, "")
	}
	for _, bad := range []string{
		"", "Authorization: BearerCK-good\r\n", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", "Authorization: Basic CK-good\r\n",
		"Authorization: Bearer CK-good,CK-other\r\n", "Authorization: Bearer CK-nobody\r\n", "x-api-key: CK-good\r\n",
		"Authorization: Bearer CK-good\r\nAuthorization: Bearer CK-nobody\r\n",
	} {
		f(bad, 401, "invalid_api_key")
	}
	f("Authorization: Bearer CK-other\r\n", 403, "route_not_allowed")
	if r := s.record(1); r.User != "ios" {
		t.Errorf("record %+v", r)
	}
}

func TestMessagesTakeEitherKeyAndFailInTheirShape(t *testing.T) {
	u := play(t, func(c *call) {
		if c.req.Header.Get("Anthropic-Version") != "2023-06-01" {
			t.Errorf("upstream got %v", c.req.Header)
		}
		c.say(whole(`{"type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":5,"output_tokens":7}}`))
	})
	s := open(t, keyed("CK-good", "ios", "default"), u)
	body := `{"model":"m1","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	f := func(status int, kind string, headers ...string) {
		t.Helper()
		response, got := s.post("/v1/messages", body, append(headers, "anthropic-version", "2023-06-01")...)
		if response.StatusCode != status || !strings.Contains(got, `"type":"`+kind+`"`) {
			t.Errorf("%v: %d %s", headers, response.StatusCode, got)
		}
		if status >= 400 && !strings.HasPrefix(got, `{"type":"error","error":{`) {
			t.Errorf("%v: %s", headers, got)
		}
	}
	f(200, "message", "x-api-key", "CK-good")
	f(200, "message", "authorization", "Bearer CK-good")
	f(200, "message", "authorization", "Bearer CK-good", "x-api-key", "CK-good")
	f(400, "invalid_request_error", "authorization", "Bearer CK-good", "x-api-key", "CK-other")
	f(401, "authentication_error", "x-api-key", "CK-other")
	if r := s.record(1); r.Prompt != 5 || r.Completion != 7 {
		t.Errorf("record %+v", r)
	}
}

func TestMessagesAndResponsesStreamWithTheirOwnEvents(t *testing.T) {
	f := func(path, body, good, cut, broken string, prompt, completion int) {
		t.Helper()
		answer := good
		u := play(t, func(c *call) { c.say(streamHead, answer); c.Close() })
		s := open(t, nil, u)
		if _, got := s.post(path, body); got != good {
			t.Errorf("%s: %q\nwant %q", path, got, good)
		}
		if r := s.record(1); r.Outcome != "success" || r.Prompt != prompt || r.Completion != completion || r.Usage != "actual" {
			t.Errorf("%s: record %+v", path, r)
		}
		answer = cut
		if _, got := s.post(path, body); !strings.HasPrefix(got, cut+"event: error\ndata: "+broken) || strings.Contains(got, "[DONE]") {
			t.Errorf("%s cut: %q", path, got)
		}
	}
	messages := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\":\"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
	f("/v1/messages", `{"model":"m1","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		messages+"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n"+
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", messages, `{"type":"error","error":{"type":"api_error"`, 5, 7)
	responses := "event: response.created\ndata: {\"type\":\"response.created\"}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
	f("/v1/responses", `{"model":"m1","stream":true,"input":"hi"}`,
		responses+"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":3,\"total_tokens\":5}}}\n\n",
		responses, `{"type":"error",`, 2, 3)
}

func TestBodiesAreReadStrictlyAndSplicedExactly(t *testing.T) {
	bodies := make(chan string, 1)
	u := play(t, func(c *call) { bodies <- c.body; c.say(whole(completion)) })
	s := open(t, func(table *Table) {
		r := table.Routes["default"]
		r.Model, r.Models, r.Output, r.System = "fast", map[string]string{"fast": "gpt-oss-120b", "m1": "m1"}, 100, "Be brief."
	}, u)
	sent := func(in, want string) {
		t.Helper()
		if response, body := s.chat(in); response.StatusCode != 200 {
			t.Errorf("%s: %d %s", in, response.StatusCode, body)
		} else if got := <-bodies; got != want {
			t.Errorf("%s\nsent %s\nwant %s", in, got, want)
		}
	}
	refused := func(in string, status int, code, param string) {
		t.Helper()
		response, body := s.chat(in)
		e := parseFailure(t, body).Error
		if response.StatusCode != status || e.Code != code || e.Param == nil && param != "" || e.Param != nil && *e.Param != param {
			t.Errorf("%s: %d %s", in, response.StatusCode, body)
		}
	}
	sent(`{ "model":"fast","max_tokens":50, "messages":[{"role":"user","content":"A\u00e9"}] }`,
		`{ "model":"gpt-oss-120b","max_tokens":50, "messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"A\u00e9"}] }`)
	sent(`{"messages":[{"role":"user","content":"x"}],"max_completion_tokens":5000,"model":"m1"}`,
		`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"x"}],"max_completion_tokens":100,"model":"m1"}`)
	refused(`{"model":"m2","messages":[{"role":"user","content":"x"}]}`, 404, "model_not_found", "model")
	refused(`{"model":"m1","model":"m1","messages":[]}`, 400, "duplicate_key", "model")
	refused(`{"model":"m1","Max_Tokens":5,"messages":[{"role":"user","content":"x"}]}`, 400, "parameter_not_allowed", "Max_Tokens")
	refused(`{"model":"m1","max_tokens":1e3,"messages":[{"role":"user","content":"x"}]}`, 400, "invalid_value", "max_tokens")
	refused(`{"model":"m1"`, 400, "invalid_json", "")
	refused(``, 400, "invalid_json", "")
	refused(`[]`, 400, "invalid_json", "")
	if n := u.requests.Load(); n != 2 {
		t.Errorf("%d requests went upstream", n)
	}
}

func TestOverLimitsCanBeRefused(t *testing.T) {
	s := open(t, func(table *Table) {
		table.Routes["default"].Output, table.Routes["default"].RefuseOver = 100, true
	}, play(t, func(c *call) { c.say(whole(completion)) }))
	response, body := s.chat(`{"model":"m1","max_tokens":101,"messages":[{"role":"user","content":"x"}]}`)
	if e := parseFailure(t, body).Error; response.StatusCode != 400 || e.Param == nil || *e.Param != "max_tokens" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestModelsAreThoseOfTheRoute(t *testing.T) {
	u := play(t, func(c *call) {
		c.say(whole(fmt.Sprintf(`{"object":"list","asked":%q,"method":%q}`, c.req.RequestURI, c.req.Method)))
	})
	s := open(t, func(table *Table) {
		some := *table.Routes["default"]
		some.Name, some.Models = "some", map[string]string{"fast": "gpt-oss-120b", "a/b": "c"}
		table.Routes["some"] = &some
	}, u)
	f := func(path string, status int, want string) {
		t.Helper()
		r, _ := http.NewRequest("GET", s.url+path, nil)
		if response, body := s.do(r); response.StatusCode != status || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
	f("/v1/models", 200, `"asked":"/base/v1/models","method":"GET"`)
	f("/v1/models/m1", 200, `"asked":"/base/v1/models/m1"`)
	f("/v1/models/a%2Fb", 200, `"asked":"/base/v1/models/a%2Fb"`)
	f("/v1/models/a%0d%0ab", 404, "not_found")
	f("/v1/models/..%2f..%2fadmin", 404, "not_found")
	f("/some/v1/models", 200, `{"object":"list","data":[{"id":"a/b",`)
	f("/some/v1/models/fast", 200, `{"id":"fast","object":"model"`)
	f("/some/v1/models/a%2Fb", 200, `{"id":"a/b"`)
	f("/some/v1/models/gpt-oss-120b", 404, "model_not_found")
	r, _ := http.NewRequest("HEAD", s.url+"/v1/models", nil)
	if response, body := s.do(r); response.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", response.StatusCode, body)
	}
}

func TestEveryAnswerCanBeReadByAnAllowedPage(t *testing.T) {
	u := play(t, func(c *call) { c.Close() })
	s := open(t, func(table *Table) {
		keyed("CK-good", "ios", "default")(table)
		table.Origins = Origins{"https://app.example", "https://*.preview.example"}
	}, u)
	f := func(origin string, status int, request string, allowed bool) {
		t.Helper()
		got := strings.ToLower(s.raw(strings.Replace(request, "host: x\r\n", "host: x\r\norigin: "+origin+"\r\n", 1)))
		if !strings.HasPrefix(got, fmt.Sprintf("http/1.1 %d ", status)) {
			t.Errorf("%.60q: %.300q, want %d", request, got, status)
		}
		has := strings.Contains(got, "access-control-allow-origin: "+origin+"\r\n")
		if has != allowed || !strings.Contains(got, "vary: origin") || strings.Contains(got, "access-control-allow-credentials") {
			t.Errorf("%s, %.60q: %q", origin, request, got)
		}
		if allowed && status >= 400 && (!strings.Contains(got, "content-type: application/json") || !strings.Contains(got, "access-control-expose-headers: x-request-id, ")) {
			t.Errorf("%.60q: %q", request, got)
		}
	}
	key := "authorization: Bearer CK-good\r\n"
	for _, origin := range []string{"https://app.example", "https://pr-7.preview.example"} {
		f(origin, 400, post("/v1/chat/completions", key, "{"), true)
		f(origin, 401, post("/v1/chat/completions", "", wholeBody), true)
		f(origin, 404, post("/v2/chat/completions", key, wholeBody), true)
		f(origin, 405, "GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", true)
		f(origin, 413, post("/v1/chat/completions", key, strings.Repeat(" ", 1<<20+1)), true)
		f(origin, 502, post("/v1/chat/completions", key, wholeBody), true)
	}
	for _, origin := range []string{"https://evil.example", "https://a.b.preview.example", "https://preview.example", "http://pr-7.preview.example", "https://evil.com/.preview.example", "null"} {
		f(origin, 403, post("/v1/chat/completions", "", wholeBody), false)
	}
	preflight := func(path, origin string, allowed bool) {
		t.Helper()
		got := strings.ToLower(s.raw("OPTIONS " + path + " HTTP/1.1\r\nhost: x\r\nconnection: close\r\norigin: " + origin +
			"\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type,x-stainless-os\r\n\r\n"))
		if !strings.HasPrefix(got, "http/1.1 204 ") || !strings.Contains(got, "vary: origin") {
			t.Errorf("%s: %q", path, got)
		}
		for _, want := range []string{"access-control-allow-origin: " + origin, "access-control-allow-headers: authorization,content-type,x-stainless-os", "access-control-allow-methods: get, post", "access-control-max-age: "} {
			if strings.Contains(got, want) != allowed {
				t.Errorf("%s from %s: %q in %q", path, origin, want, got)
			}
		}
	}
	preflight("/v1/chat/completions", "https://app.example", true)
	preflight("/nowhere", "https://app.example", true)
	preflight("/v1/chat/completions", "https://evil.example", false)
}

func TestWhatIsNoRequestIsRefusedInOurWords(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	f := func(name, request string, status int, code string) {
		t.Helper()
		got := s.raw(request)
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) || strings.Contains(got, "secret") {
			t.Errorf("%s: %.300q, want %d", name, got, status)
			return
		}
		if e := parseFailure(t, body).Error; e.Code != code {
			t.Errorf("%s: %s", name, body)
		}
	}
	line := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
	f("large headers", line+"x: "+strings.Repeat("secret", 6000)+"\r\n\r\n", 431, "request_too_large")
	f("large body", line+"content-length: 1048577\r\n\r\n"+strings.Repeat(" ", 1048577), 413, "request_too_large")
	f("large body, unsent", line+"content-length: 5000000000\r\n\r\n", 413, "request_too_large")
	f("large chunked body", line+"transfer-encoding: chunked\r\n\r\n100001\r\n"+strings.Repeat(" ", 0x100001)+"\r\n0\r\n\r\n", 413, "request_too_large")
	f("two lengths", line+"content-length: 1\r\ncontent-length: 2\r\nx-secret: secret\r\n\r\n{}", 400, "invalid_value")
	f("bad chunk", line+"transfer-encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_value")
	f("no http", "hello secret\r\n\r\n", 400, "invalid_value")
	f("compressed", line+"connection: close\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", 400, "invalid_value")
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	if strings.Contains(s.records.buf.String(), "secret") {
		t.Errorf("the log holds what clients sent: %s", s.records.buf.String())
	}
}

func TestHeadersOfTheConnectionStayOnIt(t *testing.T) {
	u := play(t, func(c *call) {
		for _, name := range []string{"X-Internal-User", "Keep-Alive", "Te", "Trailer", "Upgrade", "Proxy-Connection", "Connection", "Cookie", "X-Forwarded-For"} {
			if got := c.req.Header.Get(name); got != "" {
				t.Errorf("upstream got %s: %q", name, got)
			}
		}
		c.say(strings.Replace(whole(completion), "\r\n\r\n", "\r\nconnection: x-foo\r\nx-foo: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: x\r\n\r\n", 1))
	})
	s := open(t, nil, u)
	for range 2 {
		got := strings.ToLower(s.raw("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close, x-internal-user\r\nkeep-alive: timeout=1\r\nte: trailers\r\nupgrade: h2c\r\n" +
			"proxy-connection: keep-alive\r\nx-internal-user: a\r\ncookie: a=b\r\nx-forwarded-for: 1.2.3.4\r\ntransfer-encoding: chunked\r\n\r\n" + hexChunk(wholeBody[:9]) + hexChunk(wholeBody[9:]) + "0\r\n\r\n"))
		if !strings.HasPrefix(got, "http/1.1 200") || !strings.Contains(got, "connection: close") {
			t.Errorf("got %q", got)
		}
		for _, name := range []string{"x-foo", "keep-alive:", "proxy-authenticate"} {
			if strings.Contains(got, name) {
				t.Errorf("%s passed: %q", name, got)
			}
		}
	}
	if n := u.conns.Load(); n != 1 {
		t.Errorf("%d connections to the upstream", n)
	}
}

func TestUploadsPassThroughByteForByte(t *testing.T) {
	bodies := make(chan *call, 10)
	answer := whole(`{"text":""}`)
	u := play(t, func(c *call) { bodies <- c; c.say(answer) })
	s := open(t, keyed("CK-good", "ios", "default"), u)
	multipart := "--B1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a name=\\\"model\\\".wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--B\r\n" +
		strings.Repeat("\x00\xff\r\n", 50_000) + "--B1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--B1--\r\n"
	f := func(framing, framed string, status int, want string) {
		t.Helper()
		got := s.raw("POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer CK-good\r\ncontent-type: multipart/form-data; boundary=B1\r\n" + framing + "\r\n\r\n" + framed)
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) || !strings.Contains(body, want) {
			t.Fatalf("%s: %.300q", framing, got)
		}
		if status != 200 {
			return
		}
		if c := <-bodies; c.body != multipart || c.req.Header.Get("Content-Type") != "multipart/form-data; boundary=B1" || c.req.Header.Get("Authorization") != "Bearer UK-cccc3333dddd4444" {
			t.Errorf("%s: upstream got %d bytes %v", framing, len(c.body), c.req.Header)
		}
	}
	f("content-length: "+itoa(len(multipart)), multipart, 200, `{"text":""}`)
	f("transfer-encoding: chunked", hexChunk(multipart[:70_000])+hexChunk(multipart[70_000:])+"0\r\n\r\n", 200, `{"text":""}`)
	answer = jsonHead + "transfer-encoding: chunked\r\n\r\n" + hexChunk("1\n00:00 --> 00:01\n") + hexChunk("Hi\n") + "0\r\n\r\n"
	f("content-length: "+itoa(len(multipart)), multipart, 200, "\r\n1\n00:00 --> 00:01\n")
	f("content-length: 1048577", strings.Repeat("x", 1048577), 413, "request_too_large")
	f("transfer-encoding: chunked", hexChunk(strings.Repeat("x", 1<<20+1))+"0\r\n\r\n", 413, "request_too_large")
	answer = "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
	f("content-length: 0", "", 502, "upstream_error")
	<-bodies
	got := s.raw("POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\nx-eisbach-upload: 5\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello")
	if !strings.HasPrefix(got, "HTTP/1.1 401 ") || strings.Count(got, "HTTP/1.1") != 1 || !strings.HasSuffix(got, "}}") {
		t.Errorf("without a key: %q", got) // its body must not be taken for a request
	}
	for _, path := range []string{"/v1/audio/transcriptions", "/v1/chat/completions", "/v1/nothing"} {
		// A large body is not even read; the connection ends, so that it is not taken for a request.
		got = s.raw("POST " + path + " HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nPOST ")
		if !strings.HasPrefix(got, "HTTP/1.1 40") || strings.Count(got, "HTTP/1.1") != 1 || !strings.HasSuffix(got, "}}") {
			t.Errorf("%s: %q", path, got)
		}
	}
	answer = jsonHead + "content-length: 100\r\n\r\nhalf"
	u2 := play(t, func(c *call) { c.say(answer); c.Close() })
	s = open(t, nil, u2)
	if _, body := s.post("/v1/audio/transcriptions", "x"); !strings.Contains(body, "unexpected EOF") {
		t.Errorf("a cut answer looks complete: %q", body)
	}
	if r := s.record(1); r.Outcome != "upstream_disconnected" {
		t.Errorf("record %+v", r)
	}
}

func TestADrainLetsStreamsFinishAndEndsWhatLastsTooLong(t *testing.T) {
	next := make(chan struct{})
	u := play(t, func(c *call) {
		c.say(streamHead + role + hi)
		<-next
		c.say(stop + done)
		c.Close()
	})
	f := func(wait time.Duration, finish bool, want, outcome string) {
		t.Helper()
		s := open(t, nil, u)
		response, err := s.client.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		shut := make(chan error, 1)
		go func() { shut <- s.server.Shutdown(ctx) }()
		for !s.server.draining.Load() {
			time.Sleep(time.Millisecond)
		}
		if got := s.raw("GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
			t.Errorf("readyz: %q", got)
		}
		if got := s.raw(strings.Replace(post("/v1/chat/completions", "", streamBody), "connection: close\r\n", "", 1)); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, `"draining"`) || !strings.Contains(strings.ToLower(got), "connection: close") {
			t.Errorf("a new request: %q", got)
		}
		if finish {
			next <- struct{}{}
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.HasPrefix(string(body), role+hi+want) {
			t.Errorf("%q %v, want %q", body, err, want)
		}
		if err := <-shut; err != nil {
			t.Error(err)
		}
		if !finish {
			next <- struct{}{}
		}
		for n := 1; n <= 2; n++ {
			if r := s.record(n); r.Status == 200 && r.Outcome != outcome {
				t.Errorf("record %+v", r)
			}
		}
	}
	f(soon, true, stop+done, "success")
	f(50*time.Millisecond, false, "event: error\ndata: {\"error\":{\"message\":\"This server is shutting down; ask again.\",\"type\":\"server_error\",\"param\":null,\"code\":\"draining\"}}\n\n", "drained")
}

func TestALocalServerAnswersOnlyItsOwn(t *testing.T) {
	s := open(t, func(table *Table) {
		keyed("CK-good", "ios", "default")(table) // nobody needs one
		LocalOnly(table)
	}, play(t, func(c *call) { c.say(whole(completion)) }))
	f := func(host, origin string, status int) {
		t.Helper()
		request := strings.Replace(post("/v1/chat/completions", "", wholeBody), "host: x\r\n", "host: "+host+"\r\n", 1)
		if origin != "" {
			request = strings.Replace(request, "connection", "origin: "+origin+"\r\nconnection", 1)
		}
		if got := s.raw(request); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%s from %s: %q", host, origin, got)
		}
	}
	f("localhost:8080", "", 200)
	f("127.0.0.1", "", 200)
	f("[::1]:8080", "", 200)
	f("localhost:8080", "http://localhost:8080", 200)
	f("localhost:8080", "https://evil.example", 403)
	f("localhost:8080", "http://localhost:3000", 403)
	f("localhost:8080", "null", 403)
	f("evil.example", "", 403)
	f("evil.example:8080", "http://evil.example:8080", 403)
	f("localhost.evil.example", "", 403)
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) { c.say(whole(completion)) }))
	bad := *s.table
	bad.Routes = map[string]*Route{"default": {Name: "default", Endpoints: s.route.Endpoints, Open: true, Total: soon, FirstToken: soon}} // no upstream
	s.server.Swap(&bad)
	response, body := s.chat(wholeBody)
	if response.StatusCode != 500 || parseFailure(t, body).Error.Code != "internal_error" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	s.server.Swap(s.table)
	if response, _ := s.chat(wholeBody); response.StatusCode != 200 {
		t.Errorf("then %d", response.StatusCode)
	}
	if r := s.record(1); r.Status != 500 || r.Outcome != "upstream_error" {
		t.Errorf("record %+v", r)
	}
}

func TestAnUpstreamsRetryAfterIsPassedOn(t *testing.T) {
	f := func(fields, seconds, millis string) {
		t.Helper()
		s := open(t, nil, play(t, func(c *call) { c.say("HTTP/1.1 429 Slow\r\n" + fields + "content-length: 0\r\n\r\n") }))
		response, _ := s.chat(streamBody)
		if response.StatusCode != 503 || response.Header.Get("Retry-After") != seconds || response.Header.Get("Retry-After-Ms") != millis {
			t.Errorf("%q: %d %v", fields, response.StatusCode, response.Header)
		}
	}
	f("", "1", "1000")
	f("retry-after: 20\r\n", "20", "20000")
	f("retry-after: 20\r\nretry-after-ms: 1500\r\n", "2", "1500")
	f("retry-after: 0\r\n", "1", "1000")
	f("retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "1", "1000")
	f("retry-after: soon\r\n", "1", "1000")
}

func TestAClientThatLeavesWhileItSendsHasLeft(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/audio/transcriptions"} {
		s := open(t, nil, play(t, func(c *call) {}))
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST "+path+" HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
		time.Sleep(20 * time.Millisecond)
		c.Close()
		if r := s.record(1); r.Outcome != "client_left" || r.Status != 499 {
			t.Errorf("%s: record %+v", path, r)
		}
	}
}

func TestTimesRunFromTheFirstByteOfTheRequest(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) { c.say(whole(completion)) }))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for n := 1; n <= 2; n++ { // on a kept connection too, and not from the answer before
		io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "+itoa(len(wholeBody))+"\r\n\r\n"+wholeBody[:9])
		time.Sleep(100 * time.Millisecond)
		io.WriteString(c, wholeBody[9:])
		if r := s.record(n); r.Total < 100 || r.Total > 1000 {
			t.Errorf("record %+v", r)
		}
		time.Sleep(100 * time.Millisecond)
		io.CopyN(io.Discard, c, 1)
	}
}

func TestTheTotalTimeIsKeptWhereTheClientDoesNotRead(t *testing.T) {
	left := make(chan time.Time, 1)
	u := play(t, func(c *call) {
		c.say(streamHead)
		for {
			if _, err := io.WriteString(c, strings.Repeat(hi, 1000)); err != nil {
				left <- time.Now()
				return
			}
		}
	})
	s := open(t, func(table *Table) { table.Routes["default"].Total = 300 * time.Millisecond }, u)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	io.WriteString(c, post("/v1/chat/completions", "", streamBody)) // and never reads
	if took := (<-left).Sub(start); took < 300*time.Millisecond || took > 3*time.Second {
		t.Errorf("the upstream was let go after %v", took)
	}
	if r := s.record(1); r.Outcome != "total_timeout" {
		t.Errorf("record %+v", r)
	}
}

func TestAShutdownDoesNotWaitForClientsThatDoNothing(t *testing.T) {
	s := open(t, nil, play(t, func(c *call) {}))
	for _, said := range []string{"", "POST /v1/chat", post("/v1/chat/completions", "", wholeBody)[:100]} {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, said)
	}
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	if err := s.server.Shutdown(context.Background()); err != nil || time.Since(start) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

func TestADrainDoesNotCutAnAnswerThatIsOnItsWay(t *testing.T) {
	long := `{"choices":[{"message":{"content":"` + strings.Repeat("x", 16<<20) + `"},"finish_reason":"stop"}]}`
	s := open(t, nil, play(t, func(c *call) { c.say(whole(long)) }))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	io.WriteString(c, post("/v1/chat/completions", "", wholeBody))
	s.record(1) // the handler has ended, and the answer waits for its client
	shut := make(chan error, 1)
	go func() { shut <- s.server.Shutdown(context.Background()) }()
	time.Sleep(200 * time.Millisecond)
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(got), long) {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
	if err := <-shut; err != nil {
		t.Error(err)
	}
}

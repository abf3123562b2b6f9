package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/bad.golden anew")

func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"INFERCOM_API_KEY": "\n sk-from-the-environment \r\n",
		"EMPTY_KEY":        " \n",
		"TORN_KEY":         "SECRET\nSECRET",
	}[name]
	return value, ok
}

func parseText(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("t.toml", []byte(text), "testdata", environment)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const oneUpstream = "[upstream.one]\nurl = 'https://one.example/v1'\n"

func TestFullFileBecomesSettings(t *testing.T) {
	c, err := Load(Options{File: "testdata/good.toml", Lookup: environment})
	if err != nil {
		t.Fatal(err)
	}
	f := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", what, got, want)
		}
	}
	f("listen", c.Listen, "127.0.0.1:8443")
	f("drain", c.Drain, 90*time.Second)
	f("max_body", c.MaxBody, int64(512<<10))
	f("origins", c.CORS.Origins, []string{"https://app.example.com", "https://*.preview.example.com", "capacitor://localhost", "http://localhost:5173"})

	infercom, local := c.Upstreams["infercom"], c.Upstreams["local"]
	f("url", infercom.URL.String(), "https://api.infercom.ai/v1")
	f("keys, then those of the file", reveal(infercom.Keys), []string{"sk-from-the-environment", "literal-key", "key-of-the-file", "other-key", "last-key"})
	f("key file", infercom.KeyFile, filepath.Join("testdata", "keys.txt"))
	f("key header", infercom.KeyHeader, "x-api-key")
	f("max_conns", infercom.MaxConns, 50)
	f("system CAs", infercom.RootCAs == nil, true)
	f("own CA", local.RootCAs != nil, true)
	f("no keys", len(local.Keys), 0)
	f("no key file", local.KeyFile, "")
	f("warm", infercom.Warm, 50)
	f("not warm", local.Warm, 0)
	f("queue", infercom.Queue, Queue{High: 0, Normal: 1_000_000, Wait: 15 * time.Second, Reserve: 0.25})
	f("queue with an integer", local.Queue, Queue{High: 100, Normal: 1000, Wait: 10 * time.Second, Reserve: 0})
	f("ping", infercom.Ping, Ping{"gpt-oss-120b", time.Second})
	f("ping with its default", local.Ping, Ping{"qwen", 5 * time.Minute})
	f("default key header", local.KeyHeader, "authorization")

	f("client's hashes", len(c.Clients["ios"].Hashes), 2)
	f("client's hash", c.Clients["ios"].Hashes[1], [32]byte(bytes.Repeat([]byte{0xcd}, 32)))
	f("client's routes", c.Clients["ios"].Routes, []string{"chat"})
	f("client without routes", c.Clients["web"].Routes, []string{"bulk", "chat", "default"})

	f("chat", c.Routes["chat"], &Route{
		Name: "chat", Upstreams: []*Upstream{infercom, local},
		Endpoints: []string{"chat/completions", "audio/transcriptions"}, Auth: []string{"key"},
		Model: "fast", Models: map[string]string{"fast": "gpt-oss-120b", "MiniMax-M2.7": "MiniMax-M2.7"},
		Timeout: Timeouts{3 * time.Second, 45 * time.Second, 20 * time.Second, 2 * time.Minute}, Profile: "realtime",
		Priority: "high", Retries: 0, Backoff: 300 * time.Millisecond,
		Tokens: Tokens{1024, 4096}, OverOutput: "reject", System: "You are kind.", MaxEvent: 65536, Prime: "true",
	})
	f("bulk's timeouts", c.Routes["bulk"].Timeout, Timeouts{time.Second, 180 * time.Second, 180 * time.Second, 300 * time.Second})
	f("bulk's retries", c.Routes["bulk"].Retries, 3)
	f("bulk's backoff", c.Routes["bulk"].Backoff, time.Second)
	f("bulk's auth", c.Routes["bulk"].Auth, []string{"key"})
	f("default's auth", c.Routes["default"].Auth, []string{"none"})
	f("warnings", c.Warnings, []Problem(nil))
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	c := parseText(t, oneUpstream)
	if c.Listen != ":8080" || c.Drain != 30*time.Second || c.MaxBody != 20<<20 || c.Upstreams["one"].MaxConns != 200 {
		t.Errorf("got %+v and %+v", c, c.Upstreams["one"])
	}
	u := c.Upstreams["one"]
	if u.Warm != 4 || u.Queue != (Queue{High: 100, Normal: 1000, Wait: 10 * time.Second, Reserve: 0.1}) || u.Ping != (Ping{}) || u.KeyFile != "" {
		t.Errorf("got %+v", u)
	}
	want := &Route{
		Name: "default", Upstreams: []*Upstream{c.Upstreams["one"]}, Endpoints: []string{"chat/completions", "models"},
		Auth: []string{"none"}, Profile: "streaming", Priority: "normal", Retries: 2, Backoff: 500 * time.Millisecond, OverOutput: "clamp",
		Timeout:   Timeouts{2 * time.Second, 30 * time.Second, 20 * time.Second, 60 * time.Second},
		Heartbeat: 5 * time.Second, EarlyHeaders: 7 * time.Second, MaxEvent: 1 << 20, Prime: "auto",
	}
	if got := c.Routes["default"]; !reflect.DeepEqual(got, want) || len(c.Routes) != 1 {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestWarmIsAtMostMaxConns(t *testing.T) {
	f := func(text string, want int) {
		t.Helper()
		if c := parseText(t, oneUpstream+text); c.Upstreams["one"].Warm != want {
			t.Errorf("%q: got %d, want %d", text, c.Upstreams["one"].Warm, want)
		}
	}
	f("max_conns = 3\n", 3)
	f("max_conns = 4\n", 4)
	f("max_conns = 5\n", 4)
	f("warm = 5\nmax_conns = 5\n", 5)
	f("warm = 200\n", 200)
}

func TestRatios(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		if c := parseText(t, oneUpstream+"queue.reserve = "+text+"\n"); c.Upstreams["one"].Queue.Reserve != want {
			t.Errorf("%s is %g, want %g", text, c.Upstreams["one"].Queue.Reserve, want)
		}
	}
	f("0", 0)
	f("0x0", 0)
	f("-0.0", 0)
	f("0.9", 0.9)
	f("+0.5", 0.5)
	f("5e-1", 0.5)
	f("0.1_25", 0.125)
}

func TestWithoutRoutesTheDefaultFallsBackByName(t *testing.T) {
	c := parseText(t, "[upstream.b]\nurl='https://b.example'\n[upstream.a]\nurl='https://a.example'\n")
	want := []*Upstream{c.Upstreams["a"], c.Upstreams["b"]}
	if got := c.Routes["default"].Upstreams; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestOnlyUpstreamNeedsNotBeNamed(t *testing.T) {
	c := parseText(t, oneUpstream+"[route.chat]\n")
	if got := c.Routes["chat"].Upstreams; !slices.Equal(got, []*Upstream{c.Upstreams["one"]}) {
		t.Errorf("got %v", got)
	}
}

func TestWarningsTellWhatWorksButHurts(t *testing.T) {
	client := "[client.ios]\nhash = 'sha256:" + strings.Repeat("ab", 32) + "'\nroutes = ['chat']\n"
	f := func(text, want string) {
		t.Helper()
		c := parseText(t, text)
		if got := Problems(c.Warnings).Error(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	f(oneUpstream, "t.toml:1:1: route.default is open: nobody has to show a key")
	f(oneUpstream+"[route.chat]\n", "t.toml:3:8: route.chat is open: nobody has to show a key")
	f(oneUpstream+"[route.chat]\nauth = 'none'\n", "")
	f(oneUpstream+"[route.chat]\n"+client, "")
	f(oneUpstream+"[route.chat]\nauth = 'key'\n", "t.toml:4:8: route.chat is closed: no client may use it")
	f(oneUpstream+"[route.chat]\n[route.other]\n"+client, "t.toml:4:8: route.other is closed: no client may use it")
	f(oneUpstream+"[route.chat]\ntimeout = { total = '9s' }\n", "t.toml:4:11: route.chat.timeout: total (9s) ends before first_token (30s) can")
	f(oneUpstream+"[route.chat]\ntokens = { reasoning = 9 }\n", "t.toml:4:10: route.chat.tokens: reasoning limits nothing without output")
	f(oneUpstream+"[route.chat]\nendpoints = ['chat/completion']\n", `t.toml:4:14: route.chat.endpoints: this endpoint passes through without limits; did you mean "chat/completions"?`)
	f("[upstream.a]\nurl='https://a.example'\n[upstream.b]\nurl='https://b.example'\n", "t.toml:1:1: there is no route")
	open := "auth = 'none'\n"
	f(oneUpstream+"queue.wait = '31s'\n[route.b]\n"+open+"[route.a]\n"+open+"[route.c]\n"+open,
		"t.toml:3:14: upstream.one.queue.wait (31s) is longer than first_token of route.a (30s): its streams end before their turn can come")
	f(oneUpstream+"queue.wait = '30s'\n[route.chat]\n"+open, "")
	f(oneUpstream+"queue.wait = '31s'\n[upstream.two]\nurl='https://two.example'\n[route.chat]\nupstreams='two'\n"+open, "")
	f(oneUpstream+"warm = 0\n[route.chat]\ntimeout.first_token = '1s'\n"+open, "") // the wait is nobody's choice
	f("[upstream.a]\nurl='http://a.example'\nkeys='k'\n[route.chat]\nauth='none'\n", "t.toml:2:5: upstream.a.url is http: the keys travel unencrypted")
	f("[upstream.a]\nurl='http://10.0.0.1'\nkeys='k'\n[route.chat]\nauth='none'\n", "")
	f("[upstream.a]\nurl='http://vllm.internal'\nkeys='k'\n[route.chat]\nauth='none'\n", "")
}

func TestWaitBeyondSeveralRoutesIsOneWarning(t *testing.T) {
	c := parseText(t, oneUpstream+"queue.wait = '31s'\n[route.a]\nauth = 'none'\n[route.b]\nauth = 'none'\n")
	if len(c.Warnings) != 1 {
		t.Errorf("got %v", c.Warnings)
	}
}

// TestEachMistakeIsOneProblem has a file for each mistake. A file that one of
// them replaces at a reload changes nothing: there is no Config to put in force.
func TestEachMistakeIsOneProblem(t *testing.T) {
	files, err := filepath.Glob("testdata/bad.*.toml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var got bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(filepath.Base(file), data, "testdata", environment)
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || c != nil {
			t.Errorf("%s: got %v and %v, want one problem alone", file, c, err)
			continue
		}
		got.WriteString(problems.Error() + "\n")
	}
	golden(t, "testdata/bad.golden", got.Bytes())
	if bytes.Contains(got.Bytes(), []byte("SECRET")) || bytes.Contains(got.Bytes(), []byte("sk-")) {
		t.Error("a problem shows a secret")
	}
}

func TestAllProblemsAreReportedAtOnceByPosition(t *testing.T) {
	c, err := Load(Options{File: "testdata/all.toml", Lookup: environment, Listen: ":1"})
	if err == nil || c != nil {
		t.Fatalf("got %v, %v", c, err)
	}
	golden(t, "testdata/all.golden", []byte(err.Error()+"\n"))
	if strings.Contains(err.Error(), "SECRET") {
		t.Error("a problem shows a secret")
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			t.Fatalf("%s:%d:\n got %s\nwant %s", file, i+1, g, w)
		}
	}
}

func TestListenOfTheCommandLineGoesFirst(t *testing.T) {
	f := func(listen, want string) {
		t.Helper()
		c, err := Load(Options{File: "testdata/good.toml", Lookup: environment, Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		if c.Listen != want {
			t.Errorf("got %q, want %q", c.Listen, want)
		}
	}
	f("", "127.0.0.1:8443")
	f(":9", ":9")
	f("[::1]:0", "[::1]:0")

	_, err := Load(Options{File: "testdata/good.toml", Lookup: environment, Listen: "9"})
	if want := `--listen (or EISBACH_LISTEN) must be "host:port" or ":port", like ":8080"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFileThatCannotBeReadIsAProblem(t *testing.T) {
	f := func(file, want string) {
		t.Helper()
		c, err := Load(Options{File: file})
		if c != nil || err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want %s", c, err, want)
		}
	}
	f("", "no configuration file: name it with --config")
	f("testdata/gone.toml", "testdata/gone.toml: cannot be read: no such file or directory")
	f("testdata", "testdata: cannot be read: is a directory")
}

func TestWithoutAnEnvironmentNoVariableIsSet(t *testing.T) {
	_, err := Parse("t.toml", []byte(oneUpstream+"keys = '$HOME'\n"), "", nil)
	if want := "t.toml:3:8: upstream.one.keys needs the environment variable HOME, which is empty or not set"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestSizes(t *testing.T) {
	f := func(text string, want int64) {
		t.Helper()
		if c := parseText(t, "max_body = "+text+"\n"+oneUpstream); c.MaxBody != want {
			t.Errorf("%s is %d, want %d", text, c.MaxBody, want)
		}
	}
	f(`1`, 1)
	f(`0xff`, 255)
	f(`1_000`, 1000)
	f(`"1000"`, 1000)
	f(`"7B"`, 7)
	f(`"1MB"`, 1000000)
	f(`"512KiB"`, 512<<10)
	f(`"1GiB"`, 1<<30)
}

func TestOrigins(t *testing.T) {
	f := func(origin string, good bool) {
		t.Helper()
		if complaint := checkOrigin(origin); (complaint == "") != good {
			t.Errorf("%q: %q", origin, complaint)
		}
	}
	f("*", true)
	f("https://app.example.com", true)
	f("https://app.example.com:8443", true)
	f("http://[::1]:3000", true)
	f("http://localhost", true)
	f("https://*.example.com", true)
	f("http://*.localhost:3000", true)
	f("ionic://localhost", true)
	f("chrome-extension://abcdefgh", true)
	f("", false)
	f("https://", false)
	f("https://*", false)
	f("https://*.", false)
	f("https://*.com.", false)
	f("https://*.*.example.com", false)
	f("https://a.*.example.com", false)
	f("*.example.com", false)
	f("https://app.example.com?x", false)
	f("https://app.example.com#x", false)
	f("https://app.example.com:", false)
	f("http://app.example.com:80", false)
	f("https://me@app.example.com", false)
	f("https://app.example.com:99999", false)
	f("https://.example.com", false)
	f("https://a b.example.com", false)
	f("HTTPS://app.example.com", false)
}

func TestNearestKnownName(t *testing.T) {
	known := []string{"timeout", "tokens", "url", "model", "models"}
	f := func(name, want string) {
		t.Helper()
		if got := nearest(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	f("tiemout", "timeout")
	f("timeouts", "timeout")
	f("token", "tokens")
	f("uri", "url")
	f("ur", "url")
	f("id", "")
	f("rul", "url")
	f("modl", "model")
	f("temperature", "")
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\xef\xbb\xbf[upstream.one]\r\nurl = 'https://one.example'\r\n"))
	f.Add([]byte(oneUpstream + "warm = 1\nqueue = { high = 1, wait = '1h', reserve = 0.5 }\nping.model = 'm'\n[route.a]\npriority = 'high'\nretries = 1\n"))
	f.Add([]byte("upstream = [[{ a = [1, {}] }]]\n[[upstream]]\n[upstream.x.y]\na.b.c = 1\na.b = 2\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("ca_file")) || bytes.Contains(data, []byte("key_file")) {
			t.Skip("reads files")
		}
		c, err := Parse("f.toml", data, dir, environment)
		if err == nil {
			if c == nil || len(c.Upstreams) == 0 || len(c.Routes) == 0 {
				t.Fatalf("a good file without anything to serve: %+v", c)
			}
			checkPositions(t, data, c.Warnings)
			return
		}
		var problems Problems
		if !errors.As(err, &problems) || len(problems) == 0 || c != nil {
			t.Fatalf("got %v with %v", c, err)
		}
		checkPositions(t, data, problems)
	})
}

func checkPositions(t *testing.T, data []byte, problems []Problem) {
	t.Helper()
	lines := strings.Split(string(data), "\n")
	for i, p := range problems {
		if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1])+1 || p.Message == "" {
			t.Fatalf("%s is outside the file", p)
		}
		if i > 0 && byPosition(problems[i-1], p) > 0 {
			t.Fatalf("%s is not in order", p)
		}
	}
}

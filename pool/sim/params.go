package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Params script one answer. They come from Options, or from the name of the
// model, which passes through any gateway:
//
//	sim_ttft=20ms_tpot=5ms_tokens=100
//
// What stands before "sim_" is ignored; such a name starts from Instant, never
// from Options. Headers like "x-sim-ttft: 20ms" override both. Durations are Go
// durations or bare milliseconds. An unknown setting is refused with 400.
type Params struct {
	TTFT       time.Duration // ttft: silence before the first byte of an answer, scripted refusals included
	TPOT       time.Duration // tpot: time between tokens, kept to a schedule that does not drift
	Tokens     int           // tokens: of content, one event each
	ChunkBytes int           // chunk-bytes: bytes of content per token exactly; 0: words
	Coalesce   int           // coalesce: tokens per write, due with the first of them; 0 is 1
	Reasoning  int           // reasoning: tokens before the content; delta.reasoning in chats, silence elsewhere
	Tools      bool          // tools=1: a chat answers with one tool call, its arguments in Tokens pieces
	Fail       Fault         // fail
	FailRate   float64       // fail-rate: share of requests that fail, spread evenly; 0 is 1
	DelayLast  time.Duration // delay-last: pause between data: [DONE] and the last chunk
}

// Friendly is the pace at which an answer is pleasant to read.
func Friendly() Params {
	return Params{TTFT: 150 * time.Millisecond, TPOT: 15 * time.Millisecond, Tokens: defaultTokens}
}

// Instant answers as fast as the socket takes it.
func Instant() Params { return Params{Tokens: defaultTokens} }

const (
	defaultTokens = 40 // the greeting and the words of prose
	maxCount      = 1 << 24
)

// Fault is a way to fail. Those that need a stream leave a whole answer alone.
type Fault string

// The faults, by their names in a script.
const (
	TooManyRequests Fault = "429"          // with retry-after: 1
	InternalError   Fault = "500"          // text/plain
	Unavailable     Fault = "503"          // text/plain
	DropBefore      Fault = "drop-before"  // close without a byte
	DropMid         Fault = "drop-mid"     // close half way
	ResetMid        Fault = "reset-mid"    // the same with a TCP reset
	Stall           Fault = "stall"        // silent from half way until the client leaves
	ErrorFirst      Fault = "error-first"  // status 200, then an error
	ErrorMid        Fault = "error-mid"    // an error event half way, then a clean end
	NoDone          Fault = "no-done"      // a clean end without the closing event
	Empty           Fault = "empty"        // status 200 and an empty body
	Gzip            Fault = "gzip"         // compressed, asked for or not
	SlowHeaders     Fault = "slow-headers" // the head in single bytes, 10 ms apart
	Split           Fault = "split"        // every write in two halves, 1 ms apart
	KeepAlive       Fault = "keepalive"    // an SSE comment block before every write
	CRLF            Fault = "crlf"         // SSE lines that end in CR LF
	HTML            Fault = "html"         // status 200 and a page
	JSON            Fault = "json"         // a whole answer although a stream was asked for
	SSE             Fault = "sse"          // a stream although a whole answer was asked for
	CutLast         Fault = "cut-last"     // a clean end inside the last event
	Short           Fault = "short"        // Content-Length 100 larger than the body, then close
)

func (f Fault) known() bool {
	switch f {
	case "", TooManyRequests, InternalError, Unavailable, DropBefore, DropMid, ResetMid, Stall, ErrorFirst,
		ErrorMid, NoDone, Empty, Gzip, SlowHeaders, Split, KeepAlive, CRLF, HTML, JSON, SSE, CutLast, Short:
		return true
	}
	return false
}

// midway reports whether f ends the answer half way.
func (f Fault) midway() bool {
	return f == DropMid || f == ResetMid || f == Stall || f == ErrorMid
}

// Set changes one setting by its name in a script. The error says what is wrong
// with it.
func (p *Params) Set(name, value string) (err error) {
	switch name {
	case "ttft":
		p.TTFT, err = parseDuration(value)
	case "tpot":
		p.TPOT, err = parseDuration(value)
	case "delay-last":
		p.DelayLast, err = parseDuration(value)
	case "tokens":
		p.Tokens, err = parseCount(value)
	case "chunk-bytes":
		p.ChunkBytes, err = parseCount(value)
	case "coalesce":
		p.Coalesce, err = parseCount(value)
	case "reasoning":
		p.Reasoning, err = parseCount(value)
	case "tools":
		p.Tools = value == "1"
		if value != "0" && value != "1" {
			err = fmt.Errorf("%q is neither 0 nor 1", value)
		}
	case "fail":
		p.Fail = Fault(value)
		if !p.Fail.known() {
			err = fmt.Errorf("there is no fault %q", value)
		}
	case "fail-rate":
		p.FailRate, err = strconv.ParseFloat(value, 64)
		if err == nil && !(p.FailRate > 0 && p.FailRate <= 1) {
			err = fmt.Errorf("%q is not above 0 and at most 1", value)
		}
	default:
		return fmt.Errorf("there is no setting %q", name)
	}
	if err != nil {
		return fmt.Errorf("setting %s: %w", name, err)
	}
	return nil
}

// script reads the settings of a model's name. It reports whether the name holds
// any; p then starts from Instant.
func (p *Params) script(model string) (bool, error) {
	_, settings, ok := strings.Cut(model, "sim_")
	if !ok {
		return false, nil
	}
	*p = Instant()
	if settings == "" {
		return true, nil
	}
	for setting := range strings.SplitSeq(settings, "_") {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			return true, fmt.Errorf("setting %q has no value", setting)
		}
		if err := p.Set(name, value); err != nil {
			return true, err
		}
	}
	return true, nil
}

func parseDuration(s string) (time.Duration, error) {
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil {
		d, err := time.ParseDuration(s)
		if err == nil && d < 0 {
			err = fmt.Errorf("%q is negative", s)
		}
		return d, err
	}
	if !(ms >= 0 && ms < math.MaxInt64/1e6) {
		return 0, fmt.Errorf("%q is out of range", s)
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 0 || n > maxCount) {
		err = fmt.Errorf("%q is out of range", s)
	}
	return n, err
}

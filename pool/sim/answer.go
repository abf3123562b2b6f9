package sim

import (
	"bytes"
	"compress/gzip"
	"strings"
	"time"
)

// answer is one built-in answer on its way out. Its buffers are reused by the
// next answer on the connection.
type answer struct {
	call     *Call
	endpoint endpoint
	ask      ask
	p        Params
	shape    shape
	limits   limits

	start, first time.Time // the request had arrived; the first token was due
	reasoning    int       // tokens that come before the content
	steps        int       // tokens of each choice, reasoning included
	cut          bool      // the limit ended it

	greeting []byte // the first token, JSON-escaped
	tail     []byte // what ends every chunk
	events   []byte // what is sent next, unframed
	spoilt   []byte // the same after a fault
	sequence int    // of the next event of the Responses API

	gz  *gzip.Writer
	zip bytes.Buffer
}

// shape is how an endpoint writes tokens down. Every method appends whole events
// (whole: one JSON body) to dst.
type shape interface {
	begin(dst []byte) []byte
	token(dst []byte, step, choice int) []byte
	end(dst []byte) []byte  // all that follows the tokens but for the closing event
	last(dst []byte) []byte // the closing event
	failure(dst []byte, p *problem) []byte
	whole(dst []byte) []byte
}

func (a *answer) begin(c *Call, e endpoint) {
	a.call, a.endpoint = c, e
	a.ask, a.p = ask{}, Params{}
	a.start = time.Now()
	a.limits, _ = c.conn.srv.take(a.start, 0)
	a.sequence, a.gz = 0, nil
	switch e {
	case completions:
		a.shape = (*completionShape)(a)
	case responses:
		a.shape = (*responseShape)(a)
	case messages:
		a.shape = (*messageShape)(a)
	default:
		a.shape = (*chatShape)(a)
	}
}

// settle decides on the parameters: model name over base, headers over both.
func (a *answer) settle(base Params) *problem {
	a.p = base
	if a.ask.scripted() {
		if _, err := a.p.script(string(a.ask.model)); err != nil {
			return invalid("invalid_value", "%v", err)
		}
	}
	for _, f := range a.call.conn.req.fields {
		if name, ok := bytes.CutPrefix(f.name, []byte("x-sim-")); ok {
			if err := a.p.Set(string(name), string(f.value)); err != nil {
				return invalid("invalid_value", "%v", err)
			}
		}
	}
	if a.p.Tools && a.endpoint != chat {
		return invalid("invalid_value", "setting tools: only chats call tools")
	}
	a.p.Coalesce = max(a.p.Coalesce, 1)
	counts := &a.call.conn.srv.counts
	if a.p.Fail != "" && a.p.FailRate > 0 && !counts.chosen(a.p.FailRate) {
		a.p.Fail = ""
	}
	if a.p.Fail != "" {
		counts.faults.Add(1)
	}
	a.steps = a.p.Reasoning + a.p.Tokens
	a.cut = a.ask.limit >= 0 && a.steps > a.ask.limit
	if a.cut {
		a.steps = a.ask.limit
	}
	a.reasoning = min(a.p.Reasoning, a.steps)
	a.greet()
	return nil
}

// await waits until step is due.
func (a *answer) await(step int) error {
	due := a.p.TTFT + time.Duration(step)*a.p.TPOT
	if due == 0 {
		return nil
	}
	return a.call.Pause(due - time.Since(a.start))
}

// stream answers with server-sent events.
func (a *answer) stream() error {
	if err := a.await(0); err != nil {
		return err
	}
	a.first = time.Now()
	a.prepare()
	if err := a.streamHead(); err != nil {
		return err
	}
	stop := a.steps
	switch {
	case a.p.Fail == Empty:
		return a.call.End()
	case a.p.Fail == ErrorFirst:
		return a.finish(a.shape.failure(a.events[:0], crashed()), nil)
	case a.p.Fail.midway():
		stop = min(max(1, (stop+1)/2), stop)
	}
	if err := a.run(stop); err != nil {
		return err
	}
	if a.p.Fail.midway() {
		return a.breakOff()
	}
	// The closing event is appended behind the others and cut out again, so that
	// both may use the one buffer.
	a.events = a.shape.end(a.events[:0])
	n := len(a.events)
	a.events = a.shape.last(a.events)
	return a.finish(a.events[:n], a.events[n:])
}

// run sends the tokens before step stop.
func (a *answer) run(stop int) error {
	buf := a.shape.begin(a.events[:0])
	for step := 0; step < stop; {
		if err := a.await(step); err != nil {
			return err
		}
		group := min(a.p.Coalesce, stop-step)
		for range group {
			for choice := range a.ask.choices {
				buf = a.shape.token(buf, step, choice)
			}
			step++
		}
		a.produced(group * a.ask.choices)
		if err := a.send(buf); err != nil {
			return err
		}
		a.events, buf = buf, buf[:0]
	}
	return a.send(buf) // what begin appended, if there was no token
}

// produced counts tokens before they are written, so that a client that has read
// them finds them counted.
func (a *answer) produced(tokens int) {
	a.call.tokens.Add(int64(tokens))
	a.call.conn.srv.counts.completion.Add(int64(tokens))
}

// send writes events in one chunk, unless a fault has it otherwise.
func (a *answer) send(events []byte) error {
	switch a.p.Fail {
	case Gzip, KeepAlive, CRLF, Split, Short:
		return a.sendSpoilt(events)
	}
	return a.call.Chunk(events)
}

// finish sends the end of a stream; last is its closing event.
func (a *answer) finish(events, last []byte) error {
	switch a.p.Fail {
	case NoDone:
		last = nil
	case CutLast:
		last = last[:len(last)/2]
	case Gzip, KeepAlive, CRLF, Split, Short:
		if err := a.sendSpoilt(append(events, last...)); err != nil {
			return err
		}
		return a.endSpoilt()
	}
	out := a.call.conn.out[:0]
	if n := len(events) + len(last); n > 0 {
		out = appendChunk(out, append(events, last...))
	}
	if a.p.DelayLast > 0 {
		a.call.conn.out = out
		if _, err := a.call.write(out); err != nil {
			return err
		}
		if err := a.call.Pause(a.p.DelayLast); err != nil {
			return err
		}
		out = out[:0]
	}
	a.call.conn.out = append(out, lastChunk...)
	a.call.done.Store(true)
	_, err := a.call.write(a.call.conn.out)
	return err
}

// prepare builds what all chunks share.
func (a *answer) prepare() {
	dst := append(a.tail[:0], `],"created":`...)
	dst = a.appendCreated(dst)
	dst = append(dst, `,"id":"`...)
	dst = append(appendUUID(dst, a.call.N), '"')
	dst = appendQuoted(dst, `,"model":`, a.ask.model)
	if a.endpoint == completions {
		dst = append(dst, `,"object":"text_completion"`...)
	} else {
		dst = append(dst, `,"object":"chat.completion.chunk"`...)
	}
	a.tail = append(dst, `,"system_fingerprint":"fastcoe"`...)
}

func (a *answer) appendCreated(dst []byte) []byte {
	if a.call.conn.srv.o.FractionalCreated {
		return appendFloat(dst, "", float64(a.start.UnixMilli())/1e3)
	}
	return appendInt(dst, "", int(a.start.Unix()))
}

// wholly answers with one JSON body, once so many steps would have been taken.
func (a *answer) wholly(steps int, body func(a *answer, dst []byte) []byte) error {
	if err := a.await(max(steps-1, 0)); err != nil {
		return err
	}
	a.first = a.start.Add(a.p.TTFT)
	a.prepare()
	a.events = body(a, a.events[:0])
	switch a.p.Fail {
	case ErrorFirst, ErrorMid:
		a.events = append(appendProblem(append(a.events[:0], `{"error":`...), crashed()), '}')
	case Empty:
		a.events = a.events[:0]
	}
	if a.p.Fail != Empty && !a.p.Fail.midway() {
		a.produced(steps * a.ask.choices)
	}
	return a.wholeBody()
}

// head writes a response head, and with it the body if there is one already. A
// length of -1 announces a chunked body.
func (a *answer) head(status int, contentType string, length int64, body []byte, fields ...string) error {
	out := appendLimits(appendStatus(a.call.conn.out[:0], status), a.limits)
	out = append(append(append(out, "content-type: "...), contentType...), "\r\n"...)
	if length < 0 {
		out = append(out, "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n"...)
	} else {
		out = appendField(out, "content-length: ", length)
	}
	for _, f := range fields {
		out = append(append(out, f...), "\r\n"...)
	}
	out = append(out, "\r\n"...)
	headBytes := len(out)
	a.call.conn.out = append(out, body...)
	a.call.done.Store(length >= 0 && int64(len(body)) >= length)
	if a.p.Fail == SlowHeaders {
		return a.trickle(a.call.conn.out, headBytes)
	}
	_, err := a.call.write(a.call.conn.out)
	return err
}

// prose is the answer of a provider that has nothing to say, in words; with the
// greeting it has defaultTokens tokens.
const prose = "The Eisbach is a cold side arm of the Isar that runs through the English Garden in Munich, " +
	"and by the bridge on Prinzregentenstrasse it throws up a standing wave on which people surf all year round. " +
	"(Simulated answer.)"

// greet builds the first token, which echoes the start of what the user said.
func (a *answer) greet() {
	a.greeting = append(a.greeting[:0], "Hello from the simulator."...)
	const most = 60
	said := a.ask.user
	if len(said) > most {
		said = said[:most]
		if end := bytes.LastIndexByte(said, ' '); end > 0 {
			said = said[:end]
		}
	}
	if said = bytes.TrimSpace([]byte(strings.ToValidUTF8(string(said), ""))); len(said) > 0 {
		a.greeting = append(a.greeting[:0], "You said “"...)
		a.greeting = append(appendEscaped(a.greeting, said), "”."...)
	}
}

// appendContent appends content token i, JSON-escaped.
func (a *answer) appendContent(dst []byte, i int) []byte {
	if i == 0 && a.p.ChunkBytes == 0 {
		return append(dst, a.greeting...)
	}
	return a.appendWord(dst, i-1)
}

// appendWord appends word i of the prose, or as many bytes as asked for.
func (a *answer) appendWord(dst []byte, i int) []byte {
	if a.p.ChunkBytes == 0 {
		words := a.call.conn.srv.words
		return append(append(dst, ' '), words[i%len(words)]...)
	}
	const letters = " bcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ+"
	for n := a.p.ChunkBytes; n > 0; n -= len(letters) {
		dst = append(dst, letters[:min(n, len(letters))]...)
	}
	return dst
}

// appendText appends the whole content.
func (a *answer) appendText(dst []byte) []byte {
	for i := range a.steps - a.reasoning {
		dst = a.appendContent(dst, i)
	}
	return dst
}

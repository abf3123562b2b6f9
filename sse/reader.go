package sse

import "bytes"

const (
	firstBuffer = 4 << 10  // a read of some dozen tokens
	maxKept     = 64 << 10 // a buffer that grew beyond it is not kept for another stream
	bom         = "\xEF\xBB\xBF"
)

// Reader splits a stream into events, by sections 9.2.5 and 9.2.6 of the WHATWG
// HTML standard. It owns the buffer that the stream is read into:
//
//	r.Reset(1 << 20)
//	for {
//		for event, ok, err := r.Next(); ok; event, ok, err = r.Next() { … }
//		n, err := conn.Read(r.Free(1 << 10))
//		r.Advance(n)
//	}
//
// Each byte is looked at a fixed number of times, however an event is cut into
// pieces. The zero value needs Reset.
//
// An event's Raw begins at its first field: the BOM, comments and blank lines
// before it are left out. Legal is true if Raw is at most one event line with a
// name, exactly one data line that is not empty, in that order, and the blank
// line; if the lines end in LF or CRLF; and if [DONE] stands alone. This is
// what the official SDKs of OpenAI read alike; any other event is made so by
// Append.
type Reader struct {
	buf     []byte // its length is how far it is filled
	line    int    // where the current line begins
	seen    int    // buf[line:seen] has no line end
	lf      int    // buf[seen:lf] has no LF
	max     int
	begun   bool  // a BOM can no longer come
	swallow bool  // a CR ended the buffer: an LF after it belongs to it
	failed  bool  // an event was too long
	block   block // what the lines before the current one have said
	joined  []byte
}

// block is an event in the making. Its positions are in Reader.buf.
type block struct {
	open  bool // it has a field
	odd   bool // it has what makes it not Legal
	named bool
	lines int // of data
	start int
	name  span
	data  span // of the first data line; several are in Reader.joined
}

type span struct{ from, to int }

// line is a line of the buffer without its end, and where the next one begins.
type line struct {
	from, end, next int
	bareCR          bool
}

// Reset forgets everything and reads another stream, whose events may have
// maxEvent bytes with their line ends. The buffer is kept unless it has grown
// beyond 64 KB.
func (r *Reader) Reset(maxEvent int) {
	buf, joined := r.buf[:0], r.joined[:0]
	if cap(buf) > maxKept {
		buf = nil
	}
	if cap(joined) > maxKept {
		joined = nil
	}
	*r = Reader{buf: buf, joined: joined, max: maxEvent}
}

// Free lends at least least bytes to read into, until the next call of any
// method.
func (r *Reader) Free(least int) []byte {
	base := r.base()
	pending := len(r.buf) - base
	switch room := cap(r.buf) - len(r.buf); {
	case pending == 0 && cap(r.buf) >= least && cap(r.buf) > 0:
		r.shift(base)
	case room >= least && room > 0:
	case pending <= base && cap(r.buf)-pending >= least: // moves no more than was consumed
		copy(r.buf, r.buf[base:])
		r.shift(base)
	default:
		size := max(firstBuffer, 2*pending, pending+least)
		grown := make([]byte, pending, size)
		copy(grown, r.buf[base:])
		r.shift(base)
		r.buf = grown
	}
	return r.buf[len(r.buf):cap(r.buf)]
}

// Advance says that the first n bytes of what Free lent are filled.
func (r *Reader) Advance(n int) {
	r.buf = r.buf[:len(r.buf)+n]
}

// Buffered returns how many bytes wait to become an event.
func (r *Reader) Buffered() int {
	return len(r.buf) - r.base()
}

// Release gives the memory of an idle stream back if nothing is Buffered; the
// next Free allocates. It is for streams that are silent, not for each event.
func (r *Reader) Release() {
	if r.Buffered() == 0 {
		r.shift(len(r.buf))
		r.buf, r.joined = nil, nil
	}
}

// Next returns the next complete event that has data, or false when it needs
// more bytes. An event ends with the CR of its blank line, without waiting for
// an LF. ErrTooLong is final: an event, or a line outside of one, is larger
// than the limit.
func (r *Reader) Next() (Event, bool, error) {
	if r.failed {
		return Event{}, false, ErrTooLong
	}
	if !r.begin() {
		return Event{}, false, nil
	}
	if event, ok := r.nextPlain(); ok {
		return event, true, nil
	}
	for {
		l, ok := r.nextLine()
		if !ok {
			break
		}
		if l.next-r.base() > r.max {
			r.failed = true
			return Event{}, false, ErrTooLong
		}
		r.skipTo(l.next)
		if l.end > l.from {
			r.field(l)
		} else if event, ok := r.dispatch(l); ok {
			return event, true, nil
		}
	}
	if r.Buffered() > r.max {
		r.failed = true
		return Event{}, false, ErrTooLong
	}
	return Event{}, false, nil
}

// Last returns the event that the end of the body has cut, once Next has said
// false: the standard drops it, but providers forget the last blank line. It
// is false where no data came. Raw lacks its end, so Legal is false, and
// whether Data is complete is for the caller to know.
func (r *Reader) Last() (Event, bool) {
	r.begin()
	end := len(r.buf)
	if end > r.line {
		r.field(line{from: r.line, end: end, next: end})
	}
	r.skipTo(end)
	event, ok := r.dispatch(line{from: end, end: end, next: end})
	event.Legal = false
	if r.failed {
		return Event{}, false
	}
	return event, ok
}

// base is where the bytes begin that are still needed.
func (r *Reader) base() int {
	if r.block.open {
		return r.block.start
	}
	return r.line
}

// shift follows the bytes of the buffer that have moved to its front.
func (r *Reader) shift(by int) {
	r.buf = r.buf[:len(r.buf)-by]
	r.line -= by
	r.seen -= by
	r.lf -= by
	if !r.block.open {
		return
	}
	b := &r.block
	b.start -= by
	b.name = span{b.name.from - by, b.name.to - by}
	b.data = span{b.data.from - by, b.data.to - by}
}

// begin reads what depends on the bytes before: the BOM, and the LF of a CRLF
// that was cut in two. It is false while a BOM may still become complete.
func (r *Reader) begin() bool {
	rest := r.buf[r.line:]
	if !r.begun {
		if len(rest) < len(bom) && bom[:len(rest)] == string(rest) {
			return false
		}
		r.begun = true
		if bytes.HasPrefix(rest, []byte(bom)) {
			r.skipTo(r.line + len(bom))
		}
		return true
	}
	if r.swallow && len(rest) > 0 {
		r.swallow = false
		if rest[0] == '\n' {
			r.skipTo(r.line + 1)
		} else {
			r.block.odd = r.block.open
		}
	}
	return true
}

// nextPlain is the fast path: "data: …" LF LF, as nearly all events are.
func (r *Reader) nextPlain() (Event, bool) {
	const field = "data:"
	if r.block.open || !bytes.HasPrefix(r.buf[r.line:], []byte(field)) {
		return Event{}, false
	}
	r.findLF()
	end := r.lf + len("\n\n")
	if end > len(r.buf) || r.buf[end-1] != '\n' || end-r.line > r.max {
		return Event{}, false
	}
	if bytes.IndexByte(r.buf[r.seen:r.lf], '\r') >= 0 {
		return Event{}, false
	}
	data := value(r.buf[r.line+len(field) : r.lf])
	event := Event{Raw: r.buf[r.line:end], Data: data, Legal: legal(data)}
	r.skipTo(end)
	return event, true
}

// findLF moves lf to the next LF, or to the end of the buffer.
func (r *Reader) findLF() {
	if i := bytes.IndexByte(r.buf[r.lf:], '\n'); i >= 0 {
		r.lf += i
	} else {
		r.lf = len(r.buf)
	}
}

// nextLine finds the end of the current line. The LF is searched first and
// remembered, and a CR only before it: so neither is searched twice in the same
// bytes, whichever the stream uses.
func (r *Reader) nextLine() (line, bool) {
	r.findLF()
	l := line{from: r.line}
	i := bytes.IndexByte(r.buf[r.seen:r.lf], '\r')
	if i < 0 {
		l.end, l.next = r.lf, r.lf+1
		r.seen = r.lf
		return l, r.lf < len(r.buf)
	}
	l.end = r.seen + i
	l.next = l.end + 1
	switch {
	case l.next == len(r.buf):
		r.swallow = true
	case r.buf[l.next] == '\n':
		l.next++
	default:
		l.bareCR = true
	}
	return l, true
}

func (r *Reader) skipTo(next int) {
	r.line, r.seen, r.lf = next, next, max(r.lf, next)
}

// field takes one line that is not blank.
func (r *Reader) field(l line) {
	text := r.buf[l.from:l.end]
	colon := bytes.IndexByte(text, ':')
	b := &r.block
	if colon == 0 { // a comment
		b.odd = b.odd || b.open
		return
	}
	if !b.open {
		b.open, b.start = true, l.from
	}
	name, val := text, text[len(text):]
	if colon > 0 {
		name, val = text[:colon], value(text[colon+1:])
	}
	at := span{l.end - len(val), l.end}
	b.odd = b.odd || l.bareCR || colon < 0
	switch string(name) {
	case "data":
		b.odd = b.odd || b.lines > 0
		r.addData(at)
	case "event":
		b.odd = b.odd || b.named || b.lines > 0 || len(val) == 0
		b.named, b.name = true, at
	default: // id and retry steer a reconnection, which an answer to POST has not
		b.odd = true
	}
}

// addData keeps one data line where it is, and joins several by LF.
func (r *Reader) addData(at span) {
	b := &r.block
	b.lines++
	switch b.lines {
	case 1:
		b.data = at
		return
	case 2:
		r.joined = append(r.joined[:0], r.buf[b.data.from:b.data.to]...)
	}
	r.joined = append(r.joined, '\n')
	r.joined = append(r.joined, r.buf[at.from:at.to]...)
}

// dispatch ends the block at its blank line.
func (r *Reader) dispatch(blank line) (Event, bool) {
	b := r.block
	r.block = block{}
	if b.lines == 0 {
		return Event{}, false
	}
	event := Event{Raw: r.buf[b.start:blank.next], Data: r.joined}
	if b.lines == 1 {
		event.Data = r.buf[b.data.from:b.data.to]
	}
	if b.named {
		event.Name = r.buf[b.name.from:b.name.to]
	}
	event.Legal = !b.odd && !blank.bareCR && !r.swallow && legal(event.Data)
	return event, true
}

// value is what stands behind a field's colon, without one leading space.
func value(b []byte) []byte {
	if len(b) > 0 && b[0] == ' ' {
		return b[1:]
	}
	return b
}

const done = "[DONE]"

func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == done }

// legal reports whether SDKs read data without failing: openai-node does not
// know [DONE] by spaces around it, and parses an empty data as JSON.
func legal(data []byte) bool {
	return len(data) > 0 && (len(data) == len(done) || !isDone(data))
}

package chunk

import (
	"bytes"

	"github.com/valyala/fastjson"
)

const (
	maxText = 64 << 10 // bytes of a message that is decoded; a longer one is left out
	keep    = 4 << 10  // what took more memory than for this is not kept
	blanks  = " \t\r\n"
)

// Reader reads the events of a stream or a whole answer. It is not for several
// goroutines at once; the zero value is ready, and after a Reset it can be used
// for another stream.
//
// Time and memory are bounded for whatever an upstream sends: nothing is read
// that is nested deeper than 256 levels, only small pieces are decoded, and
// large pieces are found where they are, without a copy. Where a key stands
// twice in an object, which of the two is read is not promised.
type Reader struct {
	view   View
	parser fastjson.Parser
	text   []byte // decoded, for the view

	provider Provider
	calls    calls // of the stream
	capacity int   // of the viewed data
	edits    []edit
}

// Reset begins a new stream, or a whole answer, of a provider: the tool calls of
// the one before are forgotten.
func (r *Reader) Reset(p Provider) {
	r.reset()
	r.provider = p
	r.calls.reset()
}

// View reads one event's name and data. It never fails: data that is no
// complete JSON says nothing (Empty), but for Other, where it is Content. The
// View is lent until the next call.
func (r *Reader) View(shape Shape, name, data []byte) *View {
	r.reset()
	r.capacity = cap(data)
	v := &r.view
	data = bytes.Trim(data, blanks)
	switch {
	case string(data) == "[DONE]":
		v.Kind = Done
	case string(name) == "error":
		r.failure(data)
	case len(data) == 0, string(data) == "ping", string(name) == "ping":
	case !complete(data):
		if shape == Other {
			v.Kind = Content
		}
	case shape <= Completion && data[0] == '{':
		r.chunk(value(data))
	case isFailure(data):
		r.failure(data)
	default:
		r.event(shape, name, value(data))
	}
	return v
}

func (r *Reader) event(shape Shape, name []byte, doc value) {
	switch shape {
	case Chat, Completion: // no object: nothing
	case Responses:
		r.responsesEvent(eventType(name, doc), doc)
	case Messages:
		r.messagesEvent(eventType(name, doc), doc)
	default:
		if doc.absent() || doc.isEmpty() {
			return
		}
		r.view.Kind = Content
		r.produced(doc.get("delta").textBytes())
		r.usage(shape, doc.get("usage"))
	}
}

// eventType is the type that is in the data, or else the event's name.
func eventType(name []byte, doc value) []byte {
	if t := doc.get("type").text(); len(t) > 0 {
		return t
	}
	return name
}

// Whole reads a whole answer: its usage, and whether it is Content, an Error or
// Empty. It is false if body is not one complete JSON value; white space and
// blank lines around it, which busy providers send, are allowed. The View is
// lent until the next call.
func (r *Reader) Whole(shape Shape, body []byte) (*View, bool) {
	r.reset()
	v := &r.view
	body = bytes.Trim(body, blanks)
	if !complete(body) {
		return v, false
	}
	if isFailure(body) {
		r.failure(body)
		return v, true
	}
	doc := value(body)
	r.usage(shape, doc.get("usage"))
	switch shape {
	case Chat, Completion:
		r.choices(doc.get("choices"), false)
	case Responses:
		r.responsesWhole(doc)
	case Messages:
		r.messagesWhole(doc)
	case Embeddings:
		if data := doc.get("data"); !data.absent() && !data.isEmpty() {
			v.Kind = Content
		}
	default:
		if !doc.absent() && !doc.isEmpty() {
			v.Kind = Content
		}
		r.produced(doc.get("text").textBytes())
	}
	return v, true
}

// Complete reports whether an event's data is all there, for one that the end
// of the body has cut: one complete JSON value or [DONE].
func Complete(data []byte) bool {
	return string(bytes.Trim(data, blanks)) == "[DONE]" || complete(data)
}

func (r *Reader) reset() {
	r.view = View{}
	if cap(r.text) > keep {
		r.text = nil
	}
	r.text = r.text[:0]
	if cap(r.edits) > keepEdits {
		r.edits = nil
	}
	r.edits = r.edits[:0]
}

// produced notes n bytes of generated text.
func (r *Reader) produced(n int) {
	if n > 0 {
		r.view.Kind = Content
		r.view.TextBytes += n
	}
}

// decoded returns a string decoded, a number as its digits, nil for all else.
// Earlier results stay.
func (r *Reader) decoded(v value) []byte {
	from := len(r.text)
	switch {
	case len(v) == 0 || len(v) > maxText:
		return nil
	case v.isNumber():
		r.text = append(r.text, v...)
	case v[0] == '"':
		doc, err := r.parser.ParseBytes(v)
		if err != nil {
			return nil
		}
		r.text = append(r.text, doc.GetStringBytes()...)
		r.letGo(v)
	}
	return r.text[from:len(r.text):len(r.text)]
}

// float reads a number.
func (r *Reader) float(v value) (f float64, ok bool) {
	doc, err := r.parser.ParseBytes(v)
	if err != nil {
		return 0, false
	}
	f, err = doc.Float64()
	r.letGo(v)
	return f, err == nil
}

// letGo drops the parser, and the memory that it keeps, after a large piece.
func (r *Reader) letGo(v value) {
	if len(v) > keep {
		r.parser = fastjson.Parser{}
	}
}

// isEmpty is true for {}, [] and "".
func (v value) isEmpty() bool {
	if v.is('"') {
		return len(v) == 2
	}
	return (v.is('{') || v.is('[')) && space(v, 1) == len(v)-1
}

// textIn counts the text of a value that is a string, or that is made of
// typed parts: content of Mistral, Anthropic and the Responses API.
func textIn(v value) (n int) {
	if v.is('"') {
		return v.textBytes()
	}
	for part := v.elements(); part.next(); {
		for m := part.value.members(); m.next(); {
			switch string(m.key) {
			case "text", "refusal", "transcript":
				n += m.value.textBytes()
			case "thinking":
				n += textIn(m.value)
			}
		}
	}
	return n
}

// hasTypeSuffix compares the end of an object's type.
func hasTypeSuffix(v value, suffix string) bool {
	return bytes.HasSuffix(v.get("type").text(), []byte(suffix))
}

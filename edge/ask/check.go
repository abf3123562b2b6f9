package ask

import (
	"bytes"
	"fmt"
	"unicode"

	"eisbach/sse/chunk"
)

// take notes a value that the scan has just gone over.
func (a *Ask) take(f *frame, start int) *Problem {
	v := span{uint32(start), uint32(a.pos)}
	switch f.place {
	case root:
		a.values = append(a.values, v)
	case messageList:
		if a.body[start] != '{' {
			return invalid("messages", "Each of messages is an object.")
		}
	}
	switch f.member {
	case none, known, input, content:
		return nil
	}
	a.at[f.member] = v
	if a.isNull(f.member) {
		return nil
	}
	return a.check(f.member)
}

// check holds a value against what it must be.
func (a *Ask) check(m member) *Problem {
	c := a.raw(m)[0]
	switch m {
	case model:
		return a.checkModel()
	case stream, includeUsage:
		if c != 't' && c != 'f' {
			return invalid(m.String(), m.String()+" is true or false.")
		}
		if m == stream {
			a.Stream = c == 't'
		} else {
			a.IncludeUsage = c == 't'
		}
	case streamOptions:
		if c != '{' {
			return invalid(m.String(), "stream_options is an object.")
		}
	case messages:
		needed := a.shape == chunk.Chat || a.shape == chunk.Messages
		if c != '[' || needed && hollow(a.raw(m)) {
			return invalid(m.String(), "messages is an array with at least one message.")
		}
	case system:
		if a.shape == chunk.Messages && c != '"' && c != '[' {
			return invalid(m.String(), "system is a string or an array of blocks.")
		}
	case instructions:
		if a.shape == chunk.Responses && c != '"' {
			return invalid(m.String(), "instructions is a string.")
		}
	case maxTokens, maxCompletionTokens, maxOutputTokens:
		return a.checkInteger(m, maxInteger)
	case n, bestOf:
		return a.checkInteger(m, maxN)
	}
	return nil
}

const (
	maxInteger = 1 << 53 // the last up to which all JSON readers agree (RFC 8259, section 6)
	maxN       = 128     // OpenAI's API reference
)

// checkInteger wants a positive integer written in digits alone: 1e3, 1.0 and "5"
// are integers to some upstreams and not to others.
func (a *Ask) checkInteger(m member, most int64) *Problem {
	if v := a.integer(m); v < 1 || v > most {
		return invalid(m.String(), fmt.Sprintf("%s is an integer from 1 to %d, written in digits.", m, most))
	}
	return nil
}

// integer gives the value of a member in digits, 0 if it is anything else or
// absent, and one above maxInteger if it is larger than that.
func (a *Ask) integer(m member) (v int64) {
	for _, c := range a.raw(m) {
		if !isDigit(c) {
			return 0
		}
		v = min(v*10+int64(c-'0'), maxInteger+1)
	}
	return v
}

// maxModel is how long the name of a model may be, in bytes.
const maxModel = 256

func (a *Ask) checkModel() *Problem {
	raw := a.raw(model)
	if raw[0] != '"' {
		return invalid("model", "model is a string.")
	}
	name := raw[1 : len(raw)-1]
	if len(name) > maxModel*len(`\u0000`) {
		name = name[:maxModel+1]
	} else if bytes.IndexByte(name, '\\') >= 0 {
		whole := false
		if a.model, whole = unescape(a.model[:0], name); !whole {
			return invalid("model", "model has half of a surrogate pair.")
		}
		name = a.model
	}
	if len(name) == 0 || len(name) > maxModel {
		return invalid("model", fmt.Sprintf("model is a string of 1 to %d bytes.", maxModel))
	}
	if bytes.ContainsFunc(name, unicode.IsControl) {
		return invalid("model", "model has a control character in it.")
	}
	a.Model, a.Named = name, true
	return nil
}

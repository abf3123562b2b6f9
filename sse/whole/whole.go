// Package whole turns a whole answer into a stream of events and a stream into
// a whole answer, for upstreams that answer what was not asked for.
//
// Strings, numbers and members that it does not know are copied as the upstream
// wrote them: nothing is decoded that would have to be encoded again.
package whole

import (
	"errors"
	"slices"

	"eisbach/sse/chunk"
)

// Errors of Split, Add and Append.
var (
	ErrShape      = errors.New("the upstream's answer is not one of this endpoint")
	ErrTooLarge   = errors.New("the upstream's answer is too large to be put into another form")
	ErrFailed     = errors.New("the upstream's answer says that it failed")
	ErrUnfinished = errors.New("the upstream's stream did not say that it ended")
)

const (
	maxBytes = 64 << 20 // of what an Assembler keeps, and of the stream that Split makes
	maxItems = 128      // choices (OpenAI's limit of n), tool calls, blocks, members of an object
)

// Split appends the stream that says what the whole answer in body says: each
// text in one piece, and the events that the official SDKs need around it. A
// chat or completion ends with [DONE], and its usage is told in a chunk of its
// own if includeUsage; the events of the other shapes carry it always.
//
// Where a choice has no finish reason it gets "tool_calls" or "stop": a client
// waits for one, and a body that is all there has ended. ErrShape says that body
// is not a complete answer of the shape, which embeddings and others never are;
// ErrFailed that it is an error; ErrTooLarge that the stream would exceed 64 MiB
// or has over 128 choices. dst is then returned as it was. body is not kept.
func Split(dst []byte, shape chunk.Shape, body []byte, includeUsage bool) ([]byte, error) {
	doc, ok := parse(body)
	if !ok || !doc.is('{') {
		return dst, ErrShape
	}
	var reader chunk.Reader
	if saysFailure(&reader, nil, doc) {
		return dst, ErrFailed
	}
	e := events{dst: dst, from: len(dst)}
	var err error
	switch shape {
	case chunk.Chat, chunk.Completion:
		err = e.choices(shape, doc, includeUsage)
	case chunk.Responses:
		e.numbered = true
		err = e.response(doc)
	case chunk.Messages:
		err = e.message(doc)
	default:
		err = ErrShape
	}
	if err == nil {
		err = e.err
	}
	if err != nil {
		return dst, err
	}
	return e.dst, nil
}

// Assembler puts the events of one stream together. The zero value reads a
// chat. It is not for several goroutines at once.
//
// It keeps copies, of at most about 64 MiB; indexes go to 127.
type Assembler struct {
	shape  chunk.Shape
	reader chunk.Reader
	store  store
	root   node // the members of the answer
	parts  node // its choices, its blocks, or its output items, by their index
	ended  bool
	err    error
}

// Reset forgets everything and puts another stream together.
func (a *Assembler) Reset(shape chunk.Shape) {
	*a = Assembler{shape: shape}
}

// Add takes one event, whose slices are not kept. Events that say nothing, of
// unknown types, and after the end, are passed over. An event that can't be put
// together with the others is ErrShape, an error event is ErrFailed, one index
// or byte too much is ErrTooLarge; an error is final.
//
// A chat may come as typed events of the Responses API, which is what HolySheep
// does.
func (a *Assembler) Add(name, data []byte) error {
	if a.err == nil && !a.ended {
		a.err = a.add(name, data)
	}
	return a.err
}

// saysFailure asks chunk, which knows how providers say that they failed. That
// is the same in all shapes; read as another one, the rest is not looked at.
func saysFailure(reader *chunk.Reader, name, data []byte) bool {
	return reader.View(chunk.Other, name, data).Kind == chunk.Error
}

func (a *Assembler) add(name, data []byte) error {
	switch {
	case saysFailure(&a.reader, name, data):
		return ErrFailed
	case saysNothing(name, data):
		return nil
	case isDone(data):
		a.ended = a.shape == chunk.Chat || a.shape == chunk.Completion
		return nil
	}
	doc, ok := parse(data)
	if !ok || !doc.is('{') {
		return ErrShape
	}
	kind := doc.get("type").text()
	if len(kind) == 0 {
		kind = name
	}
	switch {
	case a.shape == chunk.Chat && isResponses(kind):
		return a.addForeign(string(kind), doc)
	case a.shape == chunk.Chat, a.shape == chunk.Completion:
		return a.addChunk(doc)
	case a.shape == chunk.Responses:
		return a.addResponses(string(kind), doc)
	case a.shape == chunk.Messages:
		return a.addMessages(string(kind), doc)
	}
	return ErrShape
}

// Append appends the whole answer. ErrUnfinished says that the stream broke off:
// there was neither [DONE] nor a finish reason for each choice, no
// response.completed or response.incomplete, no message_stop; or that it ended
// without any choice. An error of Add is returned again. dst is then returned as
// it was.
func (a *Assembler) Append(dst []byte) ([]byte, error) {
	if a.err != nil {
		return dst, a.err
	}
	out, err := dst, ErrShape
	switch a.shape {
	case chunk.Chat, chunk.Completion:
		out, err = a.appendChoices(dst)
	case chunk.Responses:
		out, err = a.appendResponse(dst)
	case chunk.Messages:
		out, err = a.appendMessage(dst)
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// part returns the choice, block or item at an index of the stream.
func (a *Assembler) part(index int) (*node, error) {
	a.parts.kind = list
	return a.store.element(&a.parts, index)
}

// hasPart is true if the part at an index has begun.
func (a *Assembler) hasPart(index int) bool {
	return slices.ContainsFunc(a.parts.nodes, func(n *node) bool { return n.index == index })
}

// Package ask reads the body of a request once, strictly, and knows where the
// bytes are that the edge replaces.
//
// What it accepts is RFC 8259 and nothing beside it. It is stricter where two
// readers of one body could understand it differently, for then a budget that
// was held for the one meaning is spent on the other:
//
//   - the body is one object, in valid UTF-8 without a byte order mark, at most
//     64 levels deep;
//   - no object has a key twice, also not in two spellings ("a" and "\u0061");
//   - no key differs from one that the edge knows by its letter case alone, since
//     Go's encoding/json takes such a key for the known one. Letters fold as they
//     do there: U+017F is an s, U+212A is a k;
//   - no key, and no model, has half of a surrogate pair: some decoders refuse it,
//     some keep it, some make it U+FFFD, and with it two keys may become one. In
//     other strings it passes: JavaScript writes one where an app cuts a text
//     within an emoji, and what becomes of it is for the upstream to say.
package ask

import (
	"bytes"
	"hash/maphash"
	"math"
	"slices"

	"eisbach/sse/chunk"
)

// Ask is what a request asks for. Its zero value is ready, and it is made to be
// used again: Parse keeps the buffers. It is not for use by two goroutines at a time.
type Ask struct {
	Model        []byte // decoded; lent until Release or the next Parse, and no longer than the body
	Named        bool   // there is a model, and it isn't null
	Stream       bool   // the answer shall be a stream; never for embeddings, which have none
	IncludeUsage bool   // stream_options.include_usage is true
	Limit        int64  // the largest output limit that the endpoint heeds, in tokens; 0: none was given
	N            int64  // how many answers are produced: the larger of n and best_of, 1 where none was given

	shape     chunk.Shape
	limitedBy member
	body      []byte
	pos       int // of the scan, in body
	depth     int // of frames in use
	frames    [maxDepth]frame

	at     [memberCount]span // values of the members that the edge depends on
	keys   []key             // of the objects that are open; after Parse the top level's
	values []span            // of the top level, beside keys
	texts  []byte            // decoded keys, where they had escapes
	slots  []uint32          // hash tables of the open objects that need one
	model  []byte            // decoded model, where it had escapes
	seed   maphash.Seed
}

// span is a part of the body, in bytes.
type span struct{ from, to uint32 }

// maxKept bounds, in bytes, each of the four buffers that grow with the body and
// are kept for the next one: 1 MiB in all.
const maxKept = 256 << 10

// Parse reads the body of a request to an endpoint of the given shape. The Ask
// keeps hold of body until Release or the next Parse; the body must stay as it is
// until then. An error is a *Problem, and leaves an Ask that knows nothing. Work
// and memory are proportional to the body's length, whatever is in it.
func (a *Ask) Parse(shape chunk.Shape, body []byte) error {
	a.Release()
	a.forget()
	a.shape, a.pos, a.depth = shape, 0, 0
	if len(body) > math.MaxInt32 {
		return &Problem{Code: CodeInvalidJSON, Message: "The body is larger than 2 GiB."}
	}
	a.body = body
	p := a.scan()
	if p == nil {
		p = a.conclude()
	}
	if p != nil {
		a.Release()
		a.forget()
		return p
	}
	a.shrink()
	return nil
}

// conclude checks and adds up what can be known only at the end.
func (a *Ask) conclude() *Problem {
	if (a.shape == chunk.Chat || a.shape == chunk.Messages) && !a.has(messages) {
		return invalid("messages", "The request has no messages.")
	}
	own, other := limitMembers(a.shape)
	a.Limit, a.limitedBy = a.integer(own), own
	if v := a.integer(other); v > a.Limit {
		a.Limit, a.limitedBy = v, other
	}
	switch a.shape {
	case chunk.Chat, chunk.Completion:
		// best_of is a parameter of completions; some servers heed it in a chat too.
		a.N = max(1, a.integer(n), a.integer(bestOf))
	case chunk.Embeddings:
		a.Stream = false
	}
	return nil
}

// Release lets go of the body and of buffers that one large body made large.
// Stream, IncludeUsage, Named, Limit, LimitName and N stay; Model, Value and Members know
// nothing any more, and AppendTo must not be called before the next Parse.
func (a *Ask) Release() {
	a.keys, a.values, a.texts = a.keys[:0], a.values[:0], a.texts[:0]
	a.shrink()
	a.Model, a.body = nil, nil
	a.at = [memberCount]span{}
}

// forget sets back what stays after Release.
func (a *Ask) forget() {
	a.Named, a.Stream, a.IncludeUsage, a.Limit, a.N, a.limitedBy = false, false, false, 0, 1, none
}

// shrink drops what is larger than is worth keeping and isn't needed.
func (a *Ask) shrink() {
	a.keys = shrunk(a.keys, maxKept/8)
	a.values = shrunk(a.values, maxKept/8)
	a.texts = shrunk(a.texts, maxKept)
	a.slots = shrunk(a.slots[:0], maxKept/4)
}

// shrunk gives s in a buffer of its own length if its buffer is above limit.
func shrunk[T any](s []T, limit int) []T {
	if cap(s) <= limit || len(s) == cap(s) {
		return s
	}
	return slices.Clip(append([]T(nil), s...))
}

// Members yields the keys, decoded, and the values, as they are written, of the
// top level, in order. Both are lent as Model is.
func (a *Ask) Members(yield func(name, value []byte) bool) {
	for i, v := range a.values {
		if !yield(a.name(a.keys[i]), a.body[v.from:v.to]) {
			return
		}
	}
}

// Value gives the value of a member of the top level as it is written, or nil.
// It is lent as Model is.
func (a *Ask) Value(name string) []byte {
	for key, value := range a.Members {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// LimitName is the member that gave Limit or, where none did, the one that
// AppendTo adds for one. It is empty for an endpoint without such a limit.
func (a *Ask) LimitName() string {
	return a.limitedBy.String()
}

// has says whether the member is there and isn't null.
func (a *Ask) has(m member) bool { return a.at[m].to > 0 && a.body[a.at[m].from] != 'n' }

// isNull says whether the member is there and is null.
func (a *Ask) isNull(m member) bool { return a.at[m].to > 0 && a.body[a.at[m].from] == 'n' }

// raw is the member's value as it is written; it must be there.
func (a *Ask) raw(m member) []byte { return a.body[a.at[m].from:a.at[m].to] }

// hollow says whether an object or array, valid and as it is written, has nothing in it.
func hollow(value []byte) bool {
	c := bytes.TrimLeft(value[1:], " \t\r\n")[0]
	return c == '}' || c == ']'
}

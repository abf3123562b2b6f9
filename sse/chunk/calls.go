package chunk

import "hash/fnv"

// Bounds of what is remembered of a stream's tool calls.
const (
	maxChoices = 128 // OpenAI's bound of n; those above it count as one
	maxCalls   = 256 // calls known by their id
)

// calls knows the tool calls of one stream, so that each piece that comes
// without an index can be given that of its call.
type calls struct {
	choices   []choiceCalls // by the choice's index
	known     []knownCall
	unindexed bool // a piece without an index was seen
	current   int  // the choice that is read, once enter has found it; else -1
}

// choiceCalls counts within one choice.
type choiceCalls struct {
	called     bool
	named      bool // the last call has its function's name
	last, next int
}

// knownCall is a call that came with an id, of which the hash is kept.
type knownCall struct {
	id            uint64
	choice, index int
}

// piece is what a piece of a tool call says beside its arguments.
type piece struct {
	index, id value
	named     bool
}

func (c *calls) reset() {
	c.choices, c.known, c.unindexed = c.choices[:0], c.known[:0], false
}

// enter makes a choice the current one. It looks for its index only the first
// time after leave: behind a large delta that is far away.
func (c *calls) enter(choice value) *choiceCalls {
	if c.current < 0 {
		i, _ := ordinal(choice.get("index"))
		c.current = min(i, maxChoices-1)
	}
	for len(c.choices) <= c.current {
		c.choices = append(c.choices, choiceCalls{})
	}
	return &c.choices[c.current]
}

// leave is called before another choice is read.
func (c *calls) leave() { c.current = -1 }

// called reports whether a choice has called a tool so far.
func (c *calls) called(choice value) bool { return c.enter(choice).called }

// index takes a piece in and returns the index of its call: its own; else that
// of the call of its id; else that of the last call. A piece without an id that
// names a function, while the last call has its name, is a call for itself:
// whole calls without an id are legal at SambaNova.
func (c *calls) index(choice value, p piece) int {
	of := c.enter(choice)
	id := idOf(p.id)
	index, said := ordinal(p.index)
	known, seen := c.find(id)
	switch {
	case said:
	case seen:
		index = known
	case id == 0 && of.called && !(p.named && of.named):
		index = of.last
	default:
		index = of.next
	}
	if id != 0 && !seen && len(c.known) < maxCalls {
		c.known = append(c.known, knownCall{id: id, choice: c.current, index: index})
	}
	of.named = p.named || seen || of.named && of.last == index
	of.called, of.last, of.next = true, index, max(of.next, index+1)
	return index
}

// find returns the index of the current choice's call with an id.
func (c *calls) find(id uint64) (index int, ok bool) {
	for _, k := range c.known {
		if k.id == id && k.choice == c.current {
			return k.index, true
		}
	}
	return 0, false
}

// idOf is a hash of an id, or 0 where there is none: null and "" are none.
func idOf(id value) uint64 {
	if id.absent() || id.isEmpty() {
		return 0
	}
	h := fnv.New64a()
	h.Write(id)
	return h.Sum64()
}

// ordinal reads a small non-negative whole number.
func ordinal(v value) (n int, ok bool) {
	const most = 6 // digits
	if len(v) == 0 || len(v) > most {
		return 0, false
	}
	for _, c := range v {
		if c-'0' > 9 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

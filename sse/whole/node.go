package whole

import (
	"cmp"
	"slices"
)

// kind is how the pieces of a value are put together.
type kind uint8

const (
	none   kind = iota
	raw         // one value, the first or the last that came
	text        // a string: its pieces one after another, escaped as they are
	array       // its elements one after another, divided by commas
	object      // member by member
	list        // element by element, each by its index
)

// node is a value in the making.
type node struct {
	key   []byte // of a member of an object, escaped
	index int    // of an element of a list
	kind  kind
	bytes []byte  // of raw, text and array
	nodes []*node // of object, in the order in which they came; of list, by index
}

const nodeCost = 128 // bytes that a node takes beside its own, about

// store makes nodes and bounds what they keep together.
type store struct{ kept int }

func (s *store) write(n *node, b []byte) error {
	if len(b) > maxBytes-s.kept {
		return ErrTooLarge
	}
	before := cap(n.bytes)
	n.bytes = append(n.bytes, b...)
	s.kept += cap(n.bytes) - before
	return nil
}

// replace makes a node the value v.
func (s *store) replace(n *node, v []byte) error {
	n.kind, n.bytes, n.nodes = raw, n.bytes[:0], nil
	return s.write(n, v)
}

// first keeps the first value that says something.
func (s *store) first(n *node, v value) error {
	if n.kind != none && (v.blank() || !value(n.bytes).blank()) {
		return nil
	}
	return s.replace(n, v)
}

// last keeps the last value that is not null.
func (s *store) last(n *node, v value) error {
	if n.kind != none && v.absent() {
		return nil
	}
	return s.replace(n, v)
}

// join adds a piece to a value by the convention of deltas: strings and arrays
// go on, objects do so member by member down to a depth, all else is replaced.
// Pieces of different kinds are ErrShape.
func (s *store) join(n *node, v value, depth int) error {
	if v.absent() && n.kind != none {
		return nil
	}
	k := kindOf(v, depth)
	if n.kind != k {
		if n.kind != none && (n.kind != raw || !value(n.bytes).absent()) {
			return ErrShape
		}
		n.kind, n.bytes = k, n.bytes[:0]
	}
	switch k {
	case text:
		return s.write(n, v.text())
	case array:
		for _, element := range v.elements() {
			if err := s.push(n, element); err != nil {
				return err
			}
		}
		return nil
	case object:
		for key, member := range v.members() {
			c, err := s.member(n, key)
			if err == nil {
				err = s.joinMember(c, member, depth-1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return s.replace(n, v)
}

func kindOf(v value, depth int) kind {
	switch {
	case v.is('"'):
		return text
	case v.is('['):
		return array
	case v.is('{') && depth > 0:
		return object
	}
	return raw
}

// joinMember knows the members of a delta that don't come in pieces, and the
// arrays whose elements do.
func (s *store) joinMember(n *node, v value, depth int) error {
	switch string(n.key) {
	case "role", "type", "id", "name", "index", "format":
		return s.first(n, v)
	case "tool_calls", "reasoning_details":
		if v.is('[') && depth > 0 {
			return s.joinList(n, v, depth-1)
		}
	}
	return s.join(n, v, depth)
}

func (s *store) joinList(n *node, v value, depth int) error {
	if n.kind != list {
		if n.kind != none && (n.kind != raw || !value(n.bytes).absent()) {
			return ErrShape
		}
		n.kind, n.bytes = list, n.bytes[:0]
	}
	for place, element := range v.elements() {
		if !element.is('{') {
			return ErrShape
		}
		index, err := element.get("index").index(n.unnumbered(place, element))
		if err != nil {
			return err
		}
		c, err := s.element(n, index)
		if err == nil {
			err = s.join(c, element, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unnumbered is the index of an element that has none. A tool call, such as
// Gemini's, goes on with the last one if it comes alone, without another id, and
// without a name of its own.
func (n *node) unnumbered(place int, element value) int {
	if len(n.nodes) == 0 {
		return 0
	}
	last := n.nodes[len(n.nodes)-1]
	id, name := element.get("id"), element.get("function").get("name")
	sameID := !id.blank() && string(id) == string(last.get("id"))
	if place == 0 && string(n.key) == "tool_calls" && (sameID || id.blank() && name.blank()) {
		return last.index
	}
	return last.index + 1
}

// push adds an element to an array.
func (s *store) push(n *node, element value) error {
	if n.kind != array {
		n.kind, n.bytes = array, n.bytes[:0]
	}
	if len(n.bytes) > 0 {
		if err := s.write(n, []byte(",")); err != nil {
			return err
		}
	}
	return s.write(n, element)
}

// member returns a member of an object, a new one where there was none.
func (s *store) member(n *node, key []byte) (*node, error) {
	if m := n.find(string(key)); m != nil {
		return m, nil
	}
	if len(n.nodes) == maxItems || nodeCost+len(key) > maxBytes-s.kept {
		return nil, ErrTooLarge
	}
	s.kept += nodeCost + len(key)
	m := &node{key: slices.Clone(key)}
	n.kind, n.nodes = object, append(n.nodes, m)
	return m, nil
}

// element returns an element of a list, a new one where there was none.
func (s *store) element(n *node, index int) (*node, error) {
	at, found := slices.BinarySearchFunc(n.nodes, index, func(e *node, index int) int { return cmp.Compare(e.index, index) })
	if found {
		return n.nodes[at], nil
	}
	if index >= maxItems || nodeCost > maxBytes-s.kept {
		return nil, ErrTooLarge
	}
	s.kept += nodeCost
	e := &node{index: index}
	n.nodes = slices.Insert(n.nodes, at, e)
	return e, nil
}

func (n *node) find(key string) *node {
	for _, m := range n.nodes {
		if string(m.key) == key {
			return m
		}
	}
	return nil
}

// get returns a member that is one value, else nil.
func (n *node) get(key string) value {
	if m := n.find(key); m != nil && m.kind == raw {
		return m.bytes
	}
	return nil
}

// says is true for a value that is more than null or nothing.
func (n *node) says() bool {
	if n == nil || n.kind == raw && value(n.bytes).absent() {
		return false
	}
	return len(n.bytes) > 0 || len(n.nodes) > 0
}

// append appends the value as JSON.
func (n *node) append(dst []byte) []byte {
	switch n.kind {
	case raw:
		return append(dst, n.bytes...)
	case text:
		dst = append(dst, '"')
		dst = append(dst, n.bytes...)
		return append(dst, '"')
	case array:
		dst = append(dst, '[')
		dst = append(dst, n.bytes...)
		return append(dst, ']')
	case list:
		dst = append(dst, '[')
		for _, e := range n.nodes {
			dst = appendComma(dst)
			if string(n.key) == "tool_calls" { // whose index only a stream needs
				dst = e.appendWithout(dst, "index")
				continue
			}
			dst = e.append(dst)
		}
		return append(dst, ']')
	case object:
		return n.appendWithout(dst, "")
	}
	return append(dst, "null"...)
}

func (n *node) appendWithout(dst []byte, key string) []byte {
	dst = append(dst, '{')
	for _, m := range n.nodes {
		if string(m.key) != key {
			dst = m.append(appendKey(dst, m.key))
		}
	}
	return append(dst, '}')
}

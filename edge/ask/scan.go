package ask

import "fmt"

// maxDepth is how many objects and arrays may be within one another, the
// request itself included.
const maxDepth = 64

// frame is an object or array that is open.
type frame struct {
	start     uint32 // of its bracket, in Ask.body
	firstKey  uint32 // its own part of Ask.keys, which ends where that ends, begins here;
	firstText uint32 // of Ask.texts likewise,
	firstSlot uint32 // and of Ask.slots
	closer    byte   // its closing bracket
	filled    bool   // something is in it
	place     place
	member    member // whose value is being read
}

// scan reads the whole body. It is a loop with a stack of its own, so that no
// body can make it deep.
func (a *Ask) scan() *Problem {
	a.skipSpace()
	if a.peek() != '{' {
		return a.wrong("one JSON object")
	}
	a.open(root)
	for a.depth > 0 {
		more, p := a.advance(&a.frames[a.depth-1])
		if p != nil {
			return p
		}
		if more {
			p = a.value(&a.frames[a.depth-1])
		} else {
			p = a.close()
		}
		if p != nil {
			return p
		}
	}
	a.skipSpace()
	if a.pos < len(a.body) {
		return a.wrong("the end of the body")
	}
	return nil
}

// advance goes to the next value of an object or array, and past its key, or
// past the closing bracket.
func (a *Ask) advance(f *frame) (more bool, p *Problem) {
	a.skipSpace()
	if a.peek() == f.closer {
		a.pos++
		return false, nil
	}
	if f.filled {
		if a.peek() != ',' {
			return false, a.wrong("a comma or '" + string(rune(f.closer)) + "'")
		}
		a.pos++
		a.skipSpace()
	}
	f.filled = true
	if f.closer == ']' {
		return true, nil
	}
	return true, a.key(f)
}

// key reads a key and its colon.
func (a *Ask) key(f *frame) *Problem {
	if a.peek() != '"' {
		return a.wrong("a key in double quotes")
	}
	start := a.pos + 1
	escaped, p := a.skipString()
	if p != nil {
		return p
	}
	k := key{uint32(start), uint32(a.pos - 1)}
	if escaped {
		from, whole := len(a.texts), false
		if a.texts, whole = unescape(a.texts, a.body[start:a.pos-1]); !whole {
			a.pos = start - 1
			return a.wrong("a key without half of a surrogate pair")
		}
		k = key{uint32(from), uint32(len(a.texts)) | inTexts}
	}
	name := a.name(k)
	if !a.add(f, k, name) {
		shown := printable(name)
		return &Problem{Code: CodeDuplicateKey, Param: shown,
			Message: fmt.Sprintf("The key %q is twice in one object.", shown)}
	}
	if f.member, p = find(f.place, name); p != nil {
		return p
	}
	a.skipSpace()
	if a.peek() != ':' {
		return a.wrong("a colon")
	}
	a.pos++
	a.skipSpace()
	return nil
}

// value reads a value, or opens it if it is an object or array.
func (a *Ask) value(f *frame) (p *Problem) {
	start := a.pos
	switch c := a.peek(); c {
	case '{', '[':
		if a.depth == maxDepth {
			return &Problem{Code: CodeInvalidJSON,
				Message: fmt.Sprintf("The body is more than %d levels deep, at byte %d.", maxDepth, a.pos)}
		}
		a.open(f.place.child(f.member))
		return nil
	case '"':
		_, p = a.skipString()
	case 't':
		p = a.skipLiteral("true")
	case 'f':
		p = a.skipLiteral("false")
	case 'n':
		p = a.skipLiteral("null")
	default:
		if c != '-' && !isDigit(c) {
			return a.wrong("a value")
		}
		p = a.skipNumber()
	}
	if p != nil || f.place == elsewhere {
		return p
	}
	return a.take(f, start)
}

// open begins the object or array whose bracket is next.
func (a *Ask) open(at place) {
	closer := byte('}')
	if a.body[a.pos] == '[' {
		closer = ']'
	}
	a.frames[a.depth] = frame{
		start: uint32(a.pos), closer: closer, place: at,
		firstKey: uint32(len(a.keys)), firstText: uint32(len(a.texts)), firstSlot: uint32(len(a.slots)),
	}
	a.depth++
	a.pos++
}

// close ends the innermost object or array: it is a value of the one around it.
func (a *Ask) close() *Problem {
	a.depth--
	if a.depth == 0 {
		return nil // the keys of the top level are for Members
	}
	f, around := &a.frames[a.depth], &a.frames[a.depth-1]
	a.keys, a.texts, a.slots = a.keys[:f.firstKey], a.texts[:f.firstText], a.slots[:f.firstSlot]
	if around.place == elsewhere {
		return nil
	}
	return a.take(around, int(f.start))
}

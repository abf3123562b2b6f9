package chunk

import (
	"bytes"
	"unicode/utf8"
)

// A DOM of an answer can take fifty times its size, and an upstream is trusted
// only half. So answers of any size are read in place: complete checks the
// structure once, and then value finds members in it without a copy. Only the
// small pieces that are found go to fastjson, which decodes them.

// maxDepth bounds nesting; what is deeper is not read. Tool schemas that an
// answer repeats come near 30.
const maxDepth = 256

// complete reports whether b is one JSON value (RFC 8259) with nothing but
// white space around. Escapes and control characters inside strings are not
// looked at.
func complete(b []byte) bool {
	var objects [maxDepth / 64]uint64 // a bit for each open level that is an object
	depth, i := 0, 0
	for {
		i = space(b, i)
		if i == len(b) {
			return false
		}
		switch c := b[i]; c {
		case '{', '[':
			if depth == maxDepth {
				return false
			}
			bit := uint64(1) << (depth % 64)
			objects[depth/64] &^= bit
			if c == '{' {
				objects[depth/64] |= bit
			}
			depth++
			i = space(b, i+1)
			if i < len(b) && b[i] == c+2 { // '{' + 2 is '}', '[' + 2 is ']'
				break // closed below
			}
			if c == '{' {
				i = keyEnd(b, i)
			}
			if i < 0 {
				return false
			}
			continue
		case '"':
			i = stringEnd(b, i)
		default:
			i = scalarEnd(b, i)
		}
		if i < 0 {
			return false
		}
		if i, depth = afterValue(b, i, depth, &objects); i < 0 || depth == 0 {
			return i >= 0
		}
	}
}

// afterValue closes what ends behind a value and goes to where the next one
// begins. Depth 0 says that the outermost value has ended, -1 a mistake.
func afterValue(b []byte, i, depth int, objects *[maxDepth / 64]uint64) (int, int) {
	for {
		i = space(b, i)
		if depth == 0 {
			if i < len(b) {
				i = -1
			}
			return i, 0
		}
		if i == len(b) {
			return -1, depth
		}
		object := objects[(depth-1)/64]>>((depth-1)%64)&1 == 1
		switch {
		case b[i] == ',' && object:
			return keyEnd(b, space(b, i+1)), depth
		case b[i] == ',':
			return i + 1, depth
		case b[i] == '}' && object, b[i] == ']' && !object:
			i++
			depth--
		default:
			return -1, depth
		}
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// keyEnd returns the index behind the colon of the key that begins at i, or -1.
func keyEnd(b []byte, i int) int {
	if i == len(b) || b[i] != '"' {
		return -1
	}
	if i = stringEnd(b, i); i < 0 {
		return -1
	}
	if i = space(b, i); i == len(b) || b[i] != ':' {
		return -1
	}
	return i + 1
}

// stringEnd returns the index behind the string whose quote is at i, or -1.
func stringEnd(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i+1:], '"')
		if n < 0 {
			return -1
		}
		from := i + 1
		i = from + n
		slashes := i
		for slashes > from && b[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			return i + 1
		}
	}
}

// scalarEnd returns the index behind the literal or number at i, or -1.
func scalarEnd(b []byte, i int) int {
	for _, word := range [...]string{"null", "true", "false"} {
		if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
			return i + len(word)
		}
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = digits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = digits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return digits(b, i)
	}
	return i
}

// digits returns the index behind at least one digit at i, or -1.
func digits(b []byte, i int) int {
	from := i
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

// value is one value inside of a complete document, without space around it.
// An absent one is empty.
type value []byte

func (v value) is(first byte) bool { return len(v) > 0 && v[0] == first }

// absent is true for null too.
func (v value) absent() bool { return len(v) == 0 || v[0] == 'n' }

// text is what stands between the quotes of a string, escaped; else nil.
func (v value) text() []byte {
	if !v.is('"') {
		return nil
	}
	return v[1 : len(v)-1]
}

// textBytes is the length of a string when decoded, as UTF-8; else 0.
func (v value) textBytes() int {
	s := v.text()
	n := 0
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			return n + len(s)
		}
		n += i
		s = s[i+1:]
		if s[0] != 'u' || len(s) < 5 {
			n++
			s = s[1:]
			continue
		}
		r := hex4(s[1:])
		s = s[5:]
		if r>>10 == 0xD800>>10 && len(s) >= 6 && s[0] == '\\' && s[1] == 'u' && hex4(s[2:])>>10 == 0xDC00>>10 {
			n += 4
			s = s[6:]
			continue
		}
		n += runeBytes(r)
	}
}

// runeBytes counts a lone surrogate as U+FFFD, which decoders make of it.
func runeBytes(r rune) int {
	if n := utf8.RuneLen(r); n > 0 {
		return n
	}
	return utf8.RuneLen(utf8.RuneError)
}

func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		r <<= 4
		switch {
		case c-'0' < 10:
			r |= rune(c - '0')
		case c|0x20-'a' < 6:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

func (v value) isNumber() bool { return len(v) > 0 && (v[0] == '-' || v[0]-'0' < 10) }

// get returns a member of an object. Keys are compared as they are written:
// nobody escapes the letters of these names.
func (v value) get(key string) value {
	for m := v.members(); m.next(); {
		if string(m.key) == key {
			return m.value
		}
	}
	return nil
}

// items walks over the members of an object or the elements of an array.
type items struct {
	rest  []byte
	key   []byte // of a member, as written
	value value
}

// members walks over an object; over nothing if v is none.
func (v value) members() items {
	if !v.is('{') {
		return items{}
	}
	return items{rest: v}
}

// elements walks over an array; over nothing if v is none.
func (v value) elements() items {
	if !v.is('[') {
		return items{}
	}
	return items{rest: v}
}

// next goes to the next item: rest begins with the bracket or comma before it.
func (it *items) next() bool {
	b := it.rest
	if len(b) == 0 {
		return false
	}
	object := b[0] == '{' || it.key != nil
	i := space(b, 1)
	if i >= len(b) || b[0] == '}' || b[0] == ']' || b[i] == '}' || b[i] == ']' {
		return false
	}
	if object {
		end := stringEnd(b, i)
		it.key = b[i+1 : end-1]
		i = space(b, space(b, end)+1)
	}
	end := valueEnd(b, i)
	it.value = value(b[i:end])
	it.rest = b[space(b, end):]
	return true
}

// valueEnd returns the index behind the value at i of a complete document.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
	default:
		return scalarEnd(b, i)
	}
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

package whole

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"

	"eisbach/sse/chunk"
)

const blanks = " \t\r\n"

// value is one JSON value inside of a valid document, without space around it.
// An absent one is empty.
type value []byte

// parse takes one JSON value with nothing but white space around. chunk bounds
// its depth, encoding/json knows what may stand inside a string.
func parse(b []byte) (value, bool) {
	b = bytes.Trim(b, blanks)
	return b, chunk.Complete(b) && json.Valid(b)
}

// saysNothing is true for what providers send to keep a connection alive.
func saysNothing(name, data []byte) bool {
	data = bytes.Trim(data, blanks)
	return string(name) == "ping" || len(data) == 0 || string(data) == "null" || string(data) == "ping"
}

func isDone(data []byte) bool { return string(bytes.Trim(data, blanks)) == "[DONE]" }

func (v value) is(first byte) bool { return len(v) > 0 && v[0] == first }

// absent is true for null too.
func (v value) absent() bool { return len(v) == 0 || v[0] == 'n' }

// blank is true for what a later value may replace: nothing, null, "" and 0.
func (v value) blank() bool {
	return v.absent() || string(v) == `""` || string(v) == "0"
}

// empty is true for an array or object without anything in it.
func (v value) empty() bool {
	return (v.is('[') || v.is('{')) && space(v, 1) == len(v)-1
}

// text is what stands between the quotes of a string, escaped; else nil.
func (v value) text() []byte {
	if !v.is('"') {
		return nil
	}
	return v[1 : len(v)-1]
}

// get returns a member of an object, the last where a key stands twice, as
// clients see it. Keys are compared as they are written.
func (v value) get(key string) (found value) {
	for k, member := range v.members() {
		if string(k) == key {
			found = member
		}
	}
	return found
}

// index is the value of an index, or missing where it is absent. Some providers
// number a single tool call with -1, which openai-go reads as 0.
func (v value) index(missing int) (int, error) {
	if v.absent() {
		return missing, nil
	}
	if string(v) == "-1" {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(v[:min(len(v), 20)]), 10, 63)
	if err != nil {
		return 0, ErrShape
	}
	if n >= maxItems {
		return 0, ErrTooLarge
	}
	return int(n), nil
}

// members walks over an object; over nothing if v is none. Keys are escaped.
func (v value) members() iter.Seq2[[]byte, value] {
	return func(yield func([]byte, value) bool) {
		if !v.is('{') {
			return
		}
		for i := space(v, 1); v[i] != '}'; {
			end := stringEnd(v, i)
			key := v[i+1 : end-1]
			from := space(v, space(v, end)+1)
			end = valueEnd(v, from)
			if !yield(key, v[from:end]) {
				return
			}
			i = afterComma(v, end)
		}
	}
}

// elements walks over an array; over nothing if v is none.
func (v value) elements() iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		if !v.is('[') {
			return
		}
		n := 0
		for i := space(v, 1); v[i] != ']'; n++ {
			end := valueEnd(v, i)
			if !yield(n, v[i:end]) {
				return
			}
			i = afterComma(v, end)
		}
	}
}

func afterComma(b []byte, i int) int {
	if i = space(b, i); b[i] == ',' {
		i = space(b, i+1)
	}
	return i
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// stringEnd returns the index behind the string whose quote is at i.
func stringEnd(b []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(b[i:], '"')
		slashes := i
		for b[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			return i + 1
		}
	}
}

// valueEnd returns the index behind the value at i.
func valueEnd(b []byte, i int) int {
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\r', '\t':
			i++
		default:
			for i < len(b) && bytes.IndexByte([]byte(",]} \t\r\n"), b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// change is another value for a member, or none: it is left out.
type change struct {
	key string
	to  string
}

// appendChanged appends an object with some of its members changed. A null
// stays, unless it is left out: it says what a stream would not.
func (v value) appendChanged(dst []byte, changes ...change) []byte {
	dst = append(dst, '{')
next:
	for key, member := range v.members() {
		for _, c := range changes {
			if string(key) != c.key {
				continue
			}
			if c.to == "" {
				continue next
			}
			if !member.absent() {
				member = value(c.to)
			}
		}
		dst = appendMember(dst, key, member)
	}
	return append(dst, '}')
}

// appendMember appends a member to an object that is open. The key is escaped.
func appendMember[K string | []byte](dst []byte, key K, member []byte) []byte {
	return append(appendKey(dst, key), member...)
}

func appendKey[K string | []byte](dst []byte, key K) []byte {
	dst = append(appendComma(dst), '"')
	dst = append(dst, key...)
	return append(dst, `":`...)
}

// appendComma appends a comma unless an object or array has just been opened:
// no value ends in such a bracket.
func appendComma(dst []byte) []byte {
	if last := dst[len(dst)-1]; last != '{' && last != '[' {
		dst = append(dst, ',')
	}
	return dst
}

// appendQuoted appends JSON text as a string.
func appendQuoted(dst []byte, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20: // white space alone: all else is escaped in valid JSON
			dst = append(dst, ' ')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func number(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

package ask

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// peek gives the next byte, 0 at the end. A 0 in a body is nowhere allowed, so
// that the two need not be told apart before an error is worded.
func (a *Ask) peek() byte {
	if a.pos < len(a.body) {
		return a.body[a.pos]
	}
	return 0
}

func (a *Ask) skipSpace() {
	for a.pos < len(a.body) {
		switch a.body[a.pos] {
		case ' ', '\t', '\n', '\r':
			a.pos++
		default:
			return
		}
	}
}

func (a *Ask) skipLiteral(word string) *Problem {
	for i := range len(word) {
		if a.peek() != word[i] {
			return a.wrong("the word " + word)
		}
		a.pos++
	}
	return nil
}

// skipNumber goes over a number (RFC 8259, section 6).
func (a *Ask) skipNumber() *Problem {
	if a.peek() == '-' {
		a.pos++
	}
	if a.peek() == '0' {
		a.pos++
	} else if !a.skipDigits() {
		return a.wrong("a digit")
	}
	if a.peek() == '.' {
		a.pos++
		if !a.skipDigits() {
			return a.wrong("a digit")
		}
	}
	if a.peek()|0x20 == 'e' {
		a.pos++
		if c := a.peek(); c == '+' || c == '-' {
			a.pos++
		}
		if !a.skipDigits() {
			return a.wrong("a digit")
		}
	}
	return nil
}

// skipDigits says whether there was one.
func (a *Ask) skipDigits() bool {
	start := a.pos
	for isDigit(a.peek()) {
		a.pos++
	}
	return a.pos > start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// skipString goes over a string, from quote to quote, and says whether there are
// escapes in it.
func (a *Ask) skipString() (escaped bool, p *Problem) {
	a.pos++
	for {
		a.pos = plain(a.body, a.pos)
		if a.pos == len(a.body) {
			return escaped, a.wrong("the closing quote of a string")
		}
		switch c := a.body[a.pos]; {
		case c == '"':
			a.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if p := a.skipEscape(); p != nil {
				return escaped, p
			}
		case c < ' ':
			return escaped, a.wrong("an escape like \\n instead of a control character")
		default:
			if !a.skipRunes() {
				return escaped, a.wrong("valid UTF-8")
			}
		}
	}
}

// skipRunes goes over the characters that aren't ASCII, up to one that is or to
// the first that isn't valid, of which it tells by false.
func (a *Ask) skipRunes() bool {
	end := a.pos
	for end < len(a.body) && a.body[end] >= utf8.RuneSelf {
		end++
	}
	if utf8.Valid(a.body[a.pos:end]) {
		a.pos = end
		return true
	}
	for {
		_, size := utf8.DecodeRune(a.body[a.pos:end])
		if size == 1 {
			return false
		}
		a.pos += size
	}
}

// plain gives the offset of the first byte from i on that can't stand in a string
// as it is or isn't ASCII. It looks at eight bytes at a time, for prompts are
// almost all of a body. A byte's high bit in stop means that the byte is below
// 0x20, a quote, a backslash or above 0x7f; the subtractions may borrow from the
// bytes above one that is, so that only the lowest is to be trusted.
func plain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, backslash := x^ones*'"', x^ones*'\\'
		stop := ((x-ones*' ')&^x | (quote-ones)&^quote | (backslash-ones)&^backslash | x) & highs
		if stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// skipEscape goes over one escape (RFC 8259, section 7).
func (a *Ask) skipEscape() *Problem {
	a.pos++
	switch a.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		a.pos++
		return nil
	case 'u':
		a.pos++
		for range 4 {
			if _, ok := hexDigit(a.peek()); !ok {
				return a.wrong("a hexadecimal digit")
			}
			a.pos++
		}
		return nil
	}
	return a.wrong("one of the escapes that JSON knows")
}

func hexDigit(c byte) (value rune, ok bool) {
	switch {
	case isDigit(c):
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}

// unescape appends the decoded inside of a string that skipString has gone over.
// It says whether all surrogates were pairs; half a pair becomes U+FFFD.
func unescape(dst, s []byte) (out []byte, whole bool) {
	whole = true
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			i++
			continue
		}
		if s[i+1] != 'u' {
			dst = append(dst, unescaped(s[i+1]))
			i += 2
			continue
		}
		r := unit(s[i:])
		i += 6
		if utf16.IsSurrogate(r) {
			if r = utf16.DecodeRune(r, unit(s[i:])); r == utf8.RuneError {
				whole = false
			} else {
				i += 6
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, whole
}

// unit is the UTF-16 code unit that s begins with as an escape, or -1.
func unit(s []byte) (r rune) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	for _, c := range s[2:6] {
		v, _ := hexDigit(c)
		r = r<<4 | v
	}
	return r
}

// unescaped is the character of an escape of one letter.
func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

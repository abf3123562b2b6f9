package ask

import "unicode/utf8"

// AppendString appends s as a JSON string, quotes included. Whatever s holds, the
// result is valid: each byte that isn't UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s []byte) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped appends the inside of a JSON string.
func appendEscaped(dst, s []byte) []byte {
	done := 0
	for i := 0; ; {
		if i = plain(s, i); i == len(s) {
			return append(dst, s[done:]...)
		}
		size := 1
		if s[i] >= utf8.RuneSelf {
			if _, size = utf8.DecodeRune(s[i:]); size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[done:i]...)
		dst = appendEscape(dst, s[i])
		i++
		done = i
	}
}

// appendEscape appends what stands for a byte that can't be in a string itself.
func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c >= utf8.RuneSelf {
		return utf8.AppendRune(dst, utf8.RuneError)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

package edge

import (
	"bytes"
	"errors"
)

var errAmbiguous = errors.New("the request's head can be read in two ways")

// strict reports whether a head's fields can be read in one way only: each line
// is a name of token characters, a colon and a value, and ends in CRLF (RFC 9112,
// 5), and the body is framed by a length or by chunks, not both. fasthttp also
// takes folded lines, bare LFs and spaces in names; a proxy in front may read
// them otherwise, and between two readings a second request can be hidden.
func strict(fields []byte) bool {
	framed := false
	for len(fields) > 0 {
		line, rest, ok := bytes.Cut(fields, []byte("\n"))
		end := len(line) - 1
		if !ok || end < 0 || line[end] != '\r' {
			return false
		}
		line, fields = line[:end], rest
		if len(line) == 0 {
			return len(rest) == 0
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !token(name) {
			return false
		}
		coding := bytes.EqualFold(name, []byte("transfer-encoding"))
		if coding || bytes.EqualFold(name, []byte("content-length")) {
			if framed || coding && !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
				return false
			}
			framed = true
		}
	}
	return true
}

// token reports whether b is a token of RFC 9110, 5.6.2.
func token(b []byte) bool {
	for _, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && bytes.IndexByte([]byte("-_!#$%&'*+.^`|~"), c) < 0 {
			return false
		}
	}
	return len(b) > 0
}

package sim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

var (
	errMalformed = errors.New("the request is not valid HTTP/1.1")
	errTooLarge  = errors.New("the request is too large")
)

const (
	readBuffer = 8 << 10  // also the longest header line
	maxHead    = 64 << 10 // all header lines
	maxBody    = 64 << 20 // of a body that is held in memory
)

// request is the head of one request (RFC 9112). Its memory is reused: all
// slices are valid until the next read.
type request struct {
	method, path string // path without the query
	fields       []field
	raw          []byte // what fields point into
	length       int64  // of the body; -1: chunked
	framed       bool   // a field has set length
	expect       bool   // the client waits for 100 Continue
	close        bool
}

type field struct{ name, value []byte } // name in lower case

// read parses a head. io.EOF: the client closed between requests.
func (r *request) read(br *bufio.Reader) error {
	*r = request{method: r.method, path: r.path, fields: r.fields[:0], raw: r.raw[:0]}
	line, err := r.line(br)
	if err != nil {
		return err
	}
	method, rest, ok1 := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || string(version) != "HTTP/1.1" || len(method) == 0 || len(target) == 0 || target[0] != '/' {
		return errMalformed
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	// A connection mostly asks for the same: strings are made where that changes.
	if string(method) != r.method {
		r.method = string(method)
	}
	if string(path) != r.path {
		r.path = string(path)
	}
	for {
		line, err := r.line(br)
		if err != nil {
			return noEOF(err)
		}
		if len(line) == 0 {
			return nil
		}
		if err := r.field(line); err != nil {
			return err
		}
	}
}

// line returns the next line without its end, kept in r.raw.
func (r *request) line(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull || len(r.raw)+len(line) > maxHead:
		return nil, errTooLarge
	case err == io.EOF && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	from := len(r.raw)
	r.raw = append(r.raw, line...)
	return trimEOL(r.raw[from:]), nil
}

func (r *request) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
		return errMalformed
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			name[i] = b + 'a' - 'A'
		}
	}
	value = bytes.TrimSpace(value)
	switch string(name) {
	case "content-length":
		n, err := strconv.ParseUint(string(value), 10, 62)
		// RFC 9112 section 6.3: never both, never two that differ.
		if err != nil || (r.framed && r.length != int64(n)) {
			return errMalformed
		}
		r.length, r.framed = int64(n), true
	case "transfer-encoding":
		if !bytes.EqualFold(value, []byte("chunked")) || r.framed {
			return errMalformed
		}
		r.length, r.framed = -1, true
	case "expect":
		r.expect = bytes.EqualFold(value, []byte("100-continue"))
	case "connection":
		r.close = r.close || bytes.EqualFold(value, []byte("close"))
	}
	r.fields = append(r.fields, field{name, value})
	return nil
}

func (r *request) get(name string) []byte {
	for _, f := range r.fields {
		if string(f.name) == name {
			return f.value
		}
	}
	return nil
}

// body reads the body of one request and stops where it ends.
type body struct {
	br      *bufio.Reader
	left    int64 // of the body or of the chunk
	chunked bool
	begun   bool // a chunk has been read whose CR LF is due
	ended   bool
}

func newBody(br *bufio.Reader, length int64) body {
	if length < 0 {
		return body{br: br, chunked: true}
	}
	return body{br: br, left: length, ended: length == 0}
}

// Read implements io.Reader. A body that breaks off is io.ErrUnexpectedEOF.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.left == 0 && !b.ended {
		if err := b.nextChunk(); err != nil {
			return 0, noEOF(err)
		}
	}
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.ended = b.left == 0 && !b.chunked
	return n, noEOF(err)
}

func (b *body) nextChunk() error {
	if b.begun {
		line, err := b.line()
		if err != nil {
			return err
		}
		if len(line) > 0 {
			return errMalformed
		}
	}
	b.begun = true
	line, err := b.line()
	if err != nil {
		return err
	}
	size, _, _ := bytes.Cut(line, []byte(";")) // extensions mean nothing here
	n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 62)
	if err != nil {
		return errMalformed
	}
	if b.left = int64(n); n > 0 {
		return nil
	}
	for { // the trailer section
		line, err := b.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			b.ended = true
			return nil
		}
	}
}

func (b *body) line() ([]byte, error) {
	line, err := b.br.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = errTooLarge
	}
	return trimEOL(line), err
}

// readAll appends the rest of the body to dst, at most maxBody bytes of it.
func (b *body) readAll(dst []byte) ([]byte, error) {
	if !b.chunked && b.left > maxBody {
		return dst, errTooLarge
	}
	if need := len(dst) + int(b.left); cap(dst) < need {
		dst = append(make([]byte, 0, need), dst...)
	}
	for {
		if len(dst) == cap(dst) {
			if b.ended {
				return dst, nil
			}
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := b.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err == nil && len(dst) > maxBody {
			err = errTooLarge
		}
		if err != nil {
			return dst, err
		}
	}
}

func trimEOL(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

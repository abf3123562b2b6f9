package pool

import (
	"bufio"
	"bytes"
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"
)

// maxHead bounds the head of an upstream's answer.
const maxHead = 32 << 10

var (
	errHeadTooLarge = errors.New("the head of the answer is larger than 32 KiB")
	errSwitching    = errors.New("the upstream switched protocols")
	errHead         = errors.New("malformed head of the answer") // fasthttp's own text quotes it
	headEnd         = []byte("\r\n\r\n")
	bareEnd         = []byte("\n\n")
)

// appendHead appends the head of the request.
func (u *Upstream) appendHead(dst []byte, r *Request) []byte {
	dst = append(dst, r.Method...)
	dst = append(dst, ' ')
	dst = append(dst, u.prefix...)
	dst = append(dst, '/')
	dst = append(dst, r.Endpoint...)
	dst = append(dst, " HTTP/1.1\r\n"...)
	dst = append(dst, u.fixed...)
	if n := len(u.auth); n > 0 {
		dst = append(dst, u.auth[int(u.turn.Add(1)-1)%n]...)
	}
	dst = append(dst, r.Header...)
	switch {
	case r.Upload != nil && r.UploadSize < 0:
		dst = append(dst, "transfer-encoding: chunked\r\n"...)
	case r.Upload != nil:
		dst = appendLength(dst, r.UploadSize)
	case r.Body != nil:
		dst = appendLength(dst, int64(len(r.Body)))
	}
	return append(dst, "\r\n"...)
}

func appendLength(dst []byte, n int64) []byte {
	dst = append(dst, "content-length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, "\r\n"...)
}

// headBuffer is what a head is read into. A stream that is silent holds none.
type headBuffer [4 << 10]byte

// returnHead gives the buffer back, once what came behind the head is used.
func (s *Stream) returnHead() {
	if s.head != nil {
		s.up.freeHeads.Put(s.head)
	}
	s.head, s.buf = nil, nil
}

// headReader parses heads; it is used between two reads only, and so shared.
type headReader struct {
	src bytes.Reader
	buf *bufio.Reader
}

func newHeadReader() *headReader {
	h := &headReader{}
	h.buf = bufio.NewReaderSize(&h.src, maxHead+len(headEnd))
	return h
}

// parse reads a whole head, its last empty line included, into hdr.
func (h *headReader) parse(head []byte, hdr *fasthttp.ResponseHeader) error {
	h.src.Reset(head)
	h.buf.Reset(&h.src)
	hdr.SetNoDefaultContentType(true)
	if err := hdr.Read(h.buf); err != nil || h.buf.Buffered() > 0 { // it may end in a bare LF before
		return errHead
	}
	return nil
}

// bodyKind is how the end of a body is told (RFC 9112, 6.3).
type bodyKind uint8

const (
	bodyNone    bodyKind = iota
	bodyLength           // content-length bytes
	bodyChunked          // the chunked coding's last chunk
	bodyClose            // the end of the connection, which a cut looks like too
)

// framing says how the body behind hdr ends.
func framing(hdr *fasthttp.ResponseHeader, method string) (kind bodyKind, length uint64) {
	status := hdr.StatusCode()
	if method == fasthttp.MethodHead || status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified {
		return bodyNone, 0
	}
	switch n := hdr.ContentLength(); {
	case n == -1:
		return bodyChunked, 0
	case n > 0:
		return bodyLength, uint64(n)
	case n == 0:
		return bodyNone, 0
	default:
		return bodyClose, 0
	}
}

// hasLine reports whether the head has a field of that name, in lower case.
func hasLine(head []byte, name string) bool {
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return true
		}
	}
	return false
}

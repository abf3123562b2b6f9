package edge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"strconv"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/pool"
)

// This file answers what fasthttp can't: uploads that are passed on as they
// come (its own request streams hold a read buffer as long as the answer
// lasts), and streams for HTTP/1.0 clients, who know no chunks. Both take over
// the connection and close it in the end.

// uploadHeader carries a held upload's length from the header to the handler.
const uploadHeader = "X-Eisbach-Upload"

// maxRefused is up to which size the body of a request that is refused by its
// head is read all the same, so that the connection can go on, in bytes.
const maxRefused = 64 << 10

// holdBody makes fasthttp leave a body on the connection: that of a
// pass-through request, and a large one of a request that is refused anyway.
func (s *Server) holdBody(t *Table, h *fasthttp.RequestHeader) {
	h.Del(uploadHeader)
	length := h.ContentLength()
	if !h.IsPost() || length == 0 || length < -1 || length > t.MaxBody {
		return
	}
	path := h.RequestURI()
	if i := bytes.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	to, r := t.find(path)
	large := length < 0 || length > maxRefused
	if r == nil && !to.route.Open && (large || to.raw) {
		_, r = t.identify(h, to)
	}
	if r != nil && large || r == nil && to.raw {
		h.Set(uploadHeader, strconv.Itoa(length))
		h.SetContentLength(0)
	}
}

// abandonUpload closes the connection behind an answer to a request whose held
// body was not read: it would be taken for the next request.
func (q *request) abandonUpload(ctx *fasthttp.RequestCtx) {
	if len(ctx.Request.Header.Peek(uploadHeader)) == 0 {
		return
	}
	ctx.SetConnectionClose()
	if q.conn != nil {
		q.conn.linger = true
	}
}

// pass sends a request on whose body the edge does not read, and its answer
// back, both as they come.
func (q *request) pass(ctx *fasthttp.RequestCtx) {
	q.takeOver(ctx, func(c net.Conn) {
		body, err := q.passUp(ctx, c)
		if q.conn != nil {
			q.conn.linger = true // the body may not have been read to its end
		}
		if err != nil {
			q.fail(ctx, q.passOutcome(body, err), err)
			out := appendHead(nil, ctx)
			c.Write(append(out, ctx.Response.Body()...)) // a client that left is recorded as it is
			return
		}
		q.outcome = q.passDown(ctx, c)
	})
}

// streamUnframed streams to an HTTP/1.0 client: the end of the connection is
// the end of the answer (RFC 9112, 6.3).
func (q *request) streamUnframed(ctx *fasthttp.RequestCtx) {
	for _, field := range streamHeaders {
		ctx.Response.Header.Set(field[0], field[1])
	}
	q.takeOver(ctx, func(c net.Conn) {
		_, err := c.Write(appendHead(nil, ctx))
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{&q.run}, make([]byte, 4<<10))
		}
		if err != nil {
			q.run.Abandon(relay.ClientLeft)
		}
		q.outcome = q.run.Result().Outcome
	})
}

// takeOver runs f with the connection, which ends with it.
func (q *request) takeOver(ctx *fasthttp.RequestCtx, f func(net.Conn)) {
	q.streamed = true
	q.srv.tasks.Add(1)
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		defer q.srv.tasks.Done()
		defer q.end()
		defer func() {
			if v := recover(); v != nil {
				q.srv.panicked(v)
				q.outcome = relay.UpstreamError
				if q.status == 0 { // nothing was answered
					q.refuse(ctx, internal())
					c.Write(append(appendHead(nil, ctx), ctx.Response.Body()...))
				}
			}
		}()
		f(c)
	})
}

// passUp sends the request and waits for the head of a good answer.
func (q *request) passUp(ctx *fasthttp.RequestCtx, c net.Conn) (*upload, error) {
	in := &ctx.Request.Header
	if q.uploading = len(in.Peek(uploadHeader)) > 0; q.uploading {
		c.SetReadDeadline(q.arrived.Add(q.route.Total))
	}
	q.open(ctx)
	h := appendHeader(q.header[:0], in, "accept", fasthttp.HeaderAccept)
	h = appendHeader(h, in, "traceparent", "Traceparent")
	q.header = appendHeader(h, in, "content-type", fasthttp.HeaderContentType)
	q.call.Method, q.call.Header, q.call.Body, q.call.Deadline = string(ctx.Method()), q.header, nil, q.total
	var body *upload
	if length, err := strconv.Atoi(string(in.Peek(uploadHeader))); err == nil {
		body = &upload{r: c, left: int64(q.table.MaxBody), over: fasthttp.ErrBodyTooLarge}
		if length >= 0 {
			body.left, body.over = int64(length), io.EOF
		} else {
			body.r = httputil.NewChunkedReader(c)
		}
		q.call.Upload, q.call.UploadSize = body, int64(length)
	} else if ctx.IsPost() {
		q.call.Body = ctx.PostBody()
	}
	return body, q.up.Accepted(q.total)
}

// upload is a client's body of at most left bytes.
type upload struct {
	r    io.Reader
	left int64
	over error // what comes after left bytes
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if u.left == 0 && u.over == io.EOF {
		return 0, io.EOF
	}
	if int64(len(p)) > u.left+1 {
		p = p[:u.left+1] // one more than may come, to see that it does
	}
	if u.over == io.EOF && int64(len(p)) > u.left {
		p = p[:u.left]
	}
	n, err := u.r.Read(p)
	if err == io.EOF && u.over == io.EOF && int64(n) < u.left {
		err = io.ErrUnexpectedEOF
	}
	if u.left -= int64(n); u.left < 0 {
		return 0, u.over
	}
	return n, err
}

func (q *request) passOutcome(body *upload, err error) relay.Outcome {
	var upload *pool.UploadError
	switch cause := q.up.Cancelled(); {
	case cause != nil: // which may have come just after the error
		return q.Classify(cause)
	case !errors.As(err, &upload):
	case clientBroke(upload.Err):
		return relay.ClientLeft
	default:
		return relay.Refused
	}
	return q.Classify(err)
}

// passed are the fields of an upstream's answer that describe its body.
var passed = [...]string{fasthttp.HeaderContentType, "Content-Disposition"}

// passDown sends the upstream's body on. Where that breaks the client sees it:
// the body lacks its last chunk, or some of its length, or the connection is
// reset where its end would be the body's.
func (q *request) passDown(ctx *fasthttp.RequestCtx, c net.Conn) relay.Outcome {
	q.status = q.up.Status()
	ctx.SetStatusCode(q.status)
	for _, name := range passed {
		if value := q.up.Header(name); len(value) > 0 {
			ctx.Response.Header.SetBytesV(name, value)
		}
	}
	unframed := q.up.Length() < 0
	chunked := unframed && ctx.Request.Header.IsHTTP11()
	out := bufio.NewWriter(c)
	body := io.WriteCloser(plainBody{out})
	if chunked {
		body = httputil.NewChunkedWriter(out)
	}
	out.Write(q.appendFraming(appendFields(nil, ctx), ctx.IsHead(), chunked))
	if ctx.IsHead() {
		out.Flush()
		return relay.Success
	}
	buf := make([]byte, 32<<10)
	for {
		if out.Flush() != nil { // every read leaves at once
			return relay.ClientLeft
		}
		n, err := q.up.Body(buf, q.total)
		switch {
		case err == io.EOF:
			body.Close()
			if chunked {
				out.WriteString("\r\n") // no trailers
			}
			out.Flush()
			return relay.Success
		case err != nil:
			if unframed && !chunked {
				q.reset()
			}
			return q.Classify(err)
		}
		body.Write(buf[:n]) // an error is kept for Flush
	}
}

// appendFraming appends the fields that say how the body ends, and with them
// the end of the head.
func (q *request) appendFraming(dst []byte, head, chunked bool) []byte {
	switch length := q.up.Length(); {
	case head:
		if announced := q.up.Header(fasthttp.HeaderContentLength); len(announced) > 0 {
			dst = append(append(append(dst, "content-length: "...), announced...), "\r\n"...)
		}
	case q.status == fasthttp.StatusNoContent: // it has no length either (RFC 9110, 8.6)
	case length >= 0:
		dst = append(dst, "content-length: "...)
		dst = append(strconv.AppendInt(dst, length, 10), "\r\n"...)
	case chunked:
		dst = append(dst, "transfer-encoding: chunked\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// reset makes the end of the connection an error to the client.
func (q *request) reset() {
	if q.conn == nil {
		return
	}
	q.conn.linger = false
	if tcp, ok := q.conn.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

// plainBody is a body without framing of its own.
type plainBody struct{ io.Writer }

// Close implements io.Closer.
func (plainBody) Close() error { return nil }

// appendHead appends the head of an answer that ends with its connection.
func appendHead(dst []byte, ctx *fasthttp.RequestCtx) []byte {
	return append(appendFields(dst, ctx), "\r\n"...)
}

// appendFields appends the status line and the fields that the answer has so
// far.
func appendFields(dst []byte, ctx *fasthttp.RequestCtx) []byte {
	status := ctx.Response.StatusCode()
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, fasthttp.StatusMessage(status)...)
	dst = append(dst, "\r\nconnection: close\r\n"...)
	for key, value := range ctx.Response.Header.All() {
		switch string(key) {
		case fasthttp.HeaderConnection, fasthttp.HeaderContentLength, fasthttp.HeaderTransferEncoding:
		default:
			dst = append(dst, key...)
			dst = append(dst, ": "...)
			dst = append(dst, value...)
			dst = append(dst, "\r\n"...)
		}
	}
	return dst
}

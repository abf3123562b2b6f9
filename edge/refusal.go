package edge

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/ask"
	"eisbach/sse"
	"eisbach/sse/chunk"
)

// refusal is a failure in the contract's words: what a client is told, as an
// answer with a status, or as an event in a stream that has begun.
type refusal struct {
	status  int
	code    string
	param   string // the member of the request that is at fault, if one is
	message string
	retry   retryHint
	wait    time.Duration // with retrySoon, what the upstream asked for; 0: a second
}

// retryHint says whether asking again can help.
type retryHint uint8

const (
	retryUnsaid retryHint = iota
	retryNever            // x-should-retry: false
	retrySoon             // retry-after and retry-after-ms
)

// kinds are the types of the contract, by status.
func (r *refusal) kind() string {
	switch {
	case r.status == fasthttp.StatusTooManyRequests && r.code == "budget_exceeded":
		return "insufficient_quota"
	case r.status == fasthttp.StatusTooManyRequests:
		return "rate_limit_error"
	case r.status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

// anthropicKind is the type that Anthropic's SDKs know (its API reference, "Errors").
func (r *refusal) anthropicKind() string {
	switch r.status {
	case fasthttp.StatusUnauthorized:
		return "authentication_error"
	case fasthttp.StatusForbidden:
		return "permission_error"
	case fasthttp.StatusNotFound:
		return "not_found_error"
	case fasthttp.StatusRequestEntityTooLarge:
		return "request_too_large"
	case fasthttp.StatusTooManyRequests:
		return "rate_limit_error"
	case fasthttp.StatusServiceUnavailable:
		return "overloaded_error"
	case fasthttp.StatusGatewayTimeout:
		return "timeout_error"
	}
	if r.status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// appendBody appends the error object in the shape of the endpoint. This is the
// one place where failures are rendered.
func (r *refusal) appendBody(dst []byte, shape chunk.Shape, requestID []byte) []byte {
	if shape == chunk.Messages {
		dst = append(dst, `{"type":"error","error":{"type":"`...)
		dst = append(dst, r.anthropicKind()...)
		dst = append(dst, `","message":`...)
		dst = ask.AppendString(dst, []byte(r.message))
		dst = append(dst, `},"request_id":`...)
		dst = ask.AppendString(dst, requestID)
		return append(dst, '}')
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = ask.AppendString(dst, []byte(r.message))
	dst = append(dst, `,"type":"`...)
	dst = append(dst, r.kind()...)
	dst = append(dst, `","param":`...)
	if r.param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = ask.AppendString(dst, []byte(r.param))
	}
	dst = append(dst, `,"code":`...)
	dst = ask.AppendString(dst, []byte(r.code))
	return append(dst, "}}"...)
}

// appendEvent appends the failure as the event that ends a stream. Its name is
// for SDKs that look only for that, the wrapper for those that need it.
func (r *refusal) appendEvent(dst []byte, shape chunk.Shape, requestID []byte) []byte {
	var data []byte
	if shape == chunk.Responses { // the typed form: openai's "error" event of the Responses API
		data = append(data, `{"type":"error","sequence_number":0,"code":`...)
		data = ask.AppendString(data, []byte(r.code))
		data = append(data, `,"message":`...)
		data = ask.AppendString(data, []byte(r.message))
		data = append(data, `,"param":null}`...)
	} else {
		data = r.appendBody(data, shape, requestID)
	}
	return sse.Append(dst, []byte("error"), data)
}

// setHeaders adds what goes beside the body.
func (r *refusal) setHeaders(h *fasthttp.ResponseHeader) {
	switch r.retry {
	case retryNever:
		h.Set("X-Should-Retry", "false")
	case retrySoon:
		wait := r.wait
		if wait <= 0 {
			wait = time.Second
		}
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	if r.status == fasthttp.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

func invalid(code, param, message string) *refusal {
	return &refusal{status: fasthttp.StatusBadRequest, code: code, param: param, message: message}
}

func notFound(message string) *refusal {
	return &refusal{status: fasthttp.StatusNotFound, code: "not_found", message: message}
}

func tooLarge(limit int) *refusal {
	return &refusal{status: fasthttp.StatusRequestEntityTooLarge, code: "request_too_large",
		message: "The request's body is larger than max_body, which is " + strconv.Itoa(limit) + " bytes."}
}

func draining() *refusal {
	return &refusal{status: fasthttp.StatusServiceUnavailable, code: "draining", retry: retrySoon,
		message: "This server is shutting down; ask again."}
}

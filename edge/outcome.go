package edge

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/pool"
	"eisbach/sse"
	"eisbach/sse/chunk"
)

// Classify says what the final error of an upstream's stream means: it
// implements relay.Door.
func (q *request) Classify(err error) relay.Outcome {
	var failure *pool.Failure
	switch {
	case errors.Is(err, relay.ErrClientLeft):
		return relay.ClientLeft
	case errors.Is(err, relay.ErrDrained):
		return relay.Drained
	case err == os.ErrDeadlineExceeded:
		return relay.TotalTimeout // of a whole answer: a stream knows its own
	case !errors.As(err, &failure):
		return relay.UpstreamError
	case failure.Reason == pool.ConnectTimeout:
		return relay.ConnectTimeout
	case failure.Reason == pool.Disconnected:
		return relay.UpstreamDisconnected
	default:
		return relay.UpstreamError
	}
}

// AppendError appends the event that ends a stream which has begun: it
// implements relay.Door.
func (q *request) AppendError(dst []byte, o relay.Outcome, err error) []byte {
	return q.explain(o, err).appendEvent(dst, q.shape, q.id[:])
}

// explain puts the end of a request into the contract's words.
func (q *request) explain(o relay.Outcome, err error) *refusal {
	switch o {
	case relay.ConnectTimeout:
		return timeout("connect_timeout", "The model's provider did not accept a connection in time.")
	case relay.FirstTokenTimeout:
		return timeout("first_token_timeout", "The model did not begin to answer in time.")
	case relay.IdleTimeout:
		return timeout("idle_timeout", "The model stopped in the middle of its answer.")
	case relay.TotalTimeout:
		return timeout("total_timeout", "The answer took longer than this route allows.")
	case relay.Drained:
		return draining()
	case relay.UpstreamDisconnected:
		return badGateway("upstream_disconnected", "The model's provider broke off before its answer was complete.")
	}
	var failure *pool.Failure
	var said *relay.EventError
	var upload *pool.UploadError
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return tooLarge(q.table.MaxBody)
	case errors.As(err, &upload):
		return invalid("invalid_value", "", "The request's body did not arrive whole.")
	case errors.As(err, &said):
		q.setUpstreamID([]byte(said.RequestID))
		return q.said(0, said.Reason, said.Message, said.Code)
	case errors.As(err, &failure) && failure.Reason == pool.Unexpected:
		q.bodies.Reset(q.up.Provider())
		view := q.bodies.ErrorBody(failure.Body)
		q.setUpstreamID(view.RequestID)
		status := failure.Status
		if status < 300 {
			status = 0 // an error all the same, by its body
		}
		return q.said(status, view.Reason, string(view.Message), string(view.Code))
	case errors.As(err, &failure) && failure.Reason == pool.NoConnection:
		return badGateway("upstream_error", "The model's provider can't be reached.")
	case errors.Is(err, sse.ErrTooLong):
		return badGateway("upstream_error", "The model's provider sent an event larger than max_event.")
	default:
		return badGateway("upstream_error", "The model's provider did not answer properly.")
	}
}

func timeout(code, message string) *refusal {
	return &refusal{status: fasthttp.StatusGatewayTimeout, code: code, message: message}
}

func badGateway(code, message string) *refusal {
	return &refusal{status: fasthttp.StatusBadGateway, code: code, message: message}
}

// said translates an error that the upstream answered with, by its status (0:
// it came with a 200) and what its body says. What it says of our credentials
// is not for clients, and of anything else only its message.
func (q *request) said(status int, reason chunk.Reason, message, code string) *refusal {
	message, code = q.redact(message), q.redact(code)
	if status == 0 {
		status = statusOf(reason, code)
	}
	switch {
	case reason == chunk.NoMoney || status == fasthttp.StatusUnauthorized || status == fasthttp.StatusPaymentRequired || status == fasthttp.StatusForbidden:
		r := badGateway("upstream_auth", "The model's provider refused this server's credentials.")
		r.retry = retryNever
		return r
	case reason == chunk.DayLimit:
		return &refusal{status: fasthttp.StatusServiceUnavailable, code: "upstream_overloaded", retry: retryNever,
			message: or(message, "The model's provider serves no more today.")}
	}
	switch status {
	case fasthttp.StatusTooManyRequests, fasthttp.StatusServiceUnavailable, 529:
		return &refusal{status: fasthttp.StatusServiceUnavailable, code: "upstream_overloaded", retry: retrySoon,
			wait: q.upstreamWait(), message: or(message, "The model's provider is overloaded.")}
	case fasthttp.StatusBadRequest, fasthttp.StatusRequestEntityTooLarge, fasthttp.StatusUnprocessableEntity:
		otherwise := "invalid_value"
		if reason == chunk.TooLong {
			otherwise = "context_length_exceeded"
		}
		return &refusal{status: status, code: or(code, otherwise), message: or(message, "The model's provider refused the request.")}
	case fasthttp.StatusNotFound:
		return &refusal{status: status, code: or(code, "not_found"),
			message: or(message, "The model's provider does not know what was asked for.")}
	case fasthttp.StatusGone:
		return &refusal{status: fasthttp.StatusNotFound, code: "model_not_found",
			message: or(message, "This model is no longer served.")}
	default:
		return badGateway("upstream_error", or(message, "The model's provider failed."))
	}
}

// upstreamWait is how long the upstream asked to wait (RFC 9110, 10.2.3, and
// OpenAI's retry-after-ms); 0: it didn't say.
func (q *request) upstreamWait() time.Duration {
	if ms, err := strconv.ParseInt(string(q.up.Header("Retry-After-Ms")), 10, 32); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	value := string(q.up.Header("Retry-After"))
	if s, err := strconv.ParseInt(value, 10, 32); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := fasthttp.ParseHTTPDate([]byte(value)); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// statusOf is the status that an error inside of a 200 answer stands for.
func statusOf(reason chunk.Reason, code string) int {
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	switch reason {
	case chunk.RateLimit, chunk.Overload:
		return fasthttp.StatusTooManyRequests
	case chunk.Auth:
		return fasthttp.StatusUnauthorized
	case chunk.Invalid, chunk.TooLong:
		return fasthttp.StatusBadRequest
	case chunk.NotFound:
		return fasthttp.StatusNotFound
	}
	return fasthttp.StatusInternalServerError
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// reveals reports whether b holds one of our own credentials. It goes through b
// by hand: bytes.Contains would have to be given a copy of each.
func (q *request) reveals(b []byte) bool {
	for _, secret := range q.route.Secrets {
		for rest := b; len(rest) >= len(secret); rest = rest[1:] {
			if string(rest[:len(secret)]) == secret {
				return true
			}
		}
	}
	return false
}

// maxMessage bounds an upstream's message, in bytes.
const maxMessage = 1000

// redact takes our own credentials out of an upstream's message.
func (q *request) redact(message string) string {
	if q.route != nil {
		for _, secret := range q.route.Secrets { // before it is cut: half a key is too much
			message = strings.ReplaceAll(message, secret, "•••")
		}
	}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return message
}

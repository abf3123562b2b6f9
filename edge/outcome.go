package edge

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"github.com/valyala/fasthttp"

	"eisbach/edge/relay"
	"eisbach/pool"
	"eisbach/sse"
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
		return q.said(errorStatus(said.Type, said.Code), said.Message, said.Code)
	case errors.As(err, &failure) && failure.Reason == pool.Unexpected:
		view := q.bodies.ErrorBody(failure.Body)
		return q.said(failure.Status, string(view.Message), string(view.Code))
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

// errorStatus is the status that an error inside of a 200 answer stands for.
func errorStatus(kind, code string) int {
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	switch {
	case kind == "rate_limit_error" || kind == "overloaded_error" || code == "rate_limit_exceeded":
		return fasthttp.StatusTooManyRequests
	case kind == "authentication_error" || kind == "permission_error" || code == "invalid_api_key":
		return fasthttp.StatusUnauthorized
	default:
		return fasthttp.StatusInternalServerError
	}
}

// said translates an error that the upstream answered with. What it says of our
// credentials is not for clients, and of anything else only its message.
func (q *request) said(status int, message, code string) *refusal {
	message = q.redact(message)
	switch status {
	case fasthttp.StatusTooManyRequests, fasthttp.StatusServiceUnavailable, 529:
		return &refusal{status: fasthttp.StatusServiceUnavailable, code: "upstream_overloaded", retry: retrySoon,
			message: or(message, "The model's provider is overloaded.")}
	case fasthttp.StatusUnauthorized, fasthttp.StatusPaymentRequired, fasthttp.StatusForbidden:
		r := badGateway("upstream_auth", "The model's provider refused this server's credentials.")
		r.retry = retryNever
		return r
	case fasthttp.StatusBadRequest, fasthttp.StatusRequestEntityTooLarge, fasthttp.StatusUnprocessableEntity:
		return &refusal{status: status, code: or(code, "invalid_value"),
			message: or(message, "The model's provider refused the request.")}
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

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// maxMessage bounds an upstream's message, in bytes.
const maxMessage = 1000

// redact takes our own credentials out of an upstream's message.
func (q *request) redact(message string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	if q.route == nil {
		return message
	}
	b := []byte(message)
	for _, secret := range q.route.Secrets {
		b = bytes.ReplaceAll(b, []byte(secret), []byte("•••"))
	}
	return string(b)
}

package pool

import "fmt"

// Reason says why no answer could be had, or why it broke.
type Reason uint8

// Reasons of a Failure.
const (
	NoConnection   Reason = iota // no upstream could be reached: refused, unknown host, bad certificate
	ConnectTimeout               // dialling or the TLS handshake took longer than the route's connect timeout
	Disconnected                 // the upstream ended or broke the connection before the answer was complete
	Malformed                    // what the upstream sent is not HTTP/1.1 that we accept
	Unexpected                   // an answer, but not the one asked for: see Status and Body
)

// Failure is the error of a Stream that the upstream is the cause of.
type Failure struct {
	Reason Reason
	Status int    // of the upstream's answer, with Unexpected
	Body   []byte // the beginning of that answer, with Unexpected; lent until the Stream's Close
	Err    error  // the cause, where there is one; its text may name hosts: not for clients
}

// Error gives the cause for the operator; it may name hosts.
func (f *Failure) Error() string {
	text := f.reason()
	if f.Err != nil {
		return text + ": " + f.Err.Error()
	}
	return text
}

func (f *Failure) reason() string {
	switch f.Reason {
	case NoConnection:
		return "no connection to the upstream"
	case ConnectTimeout:
		return "the upstream did not accept a connection within the connect timeout"
	case Disconnected:
		return "the upstream closed the connection before its answer was complete"
	case Malformed:
		return "the upstream's answer is not valid HTTP"
	default:
		return fmt.Sprintf("the upstream answered with status %d", f.Status)
	}
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

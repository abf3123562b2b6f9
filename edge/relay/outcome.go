package relay

import (
	"errors"

	"eisbach/sse/chunk"
)

// Outcome says how a request ended.
type Outcome uint8

// Outcomes of requests. ConnectTimeout and Refused do not come from a Run by
// itself: a Door names the first, and the second is for requests that had none.
const (
	Success              Outcome = iota
	ClientLeft                   // the client left, or did not read to the end
	UpstreamError                // the upstream said so, or what it sent can't be used
	UpstreamDisconnected         // the upstream ended before it had said all
	ConnectTimeout
	FirstTokenTimeout
	IdleTimeout
	TotalTimeout
	Drained // cut because the server shuts down
	Refused // no upstream was asked
)

var outcomeNames = [...]string{
	Success:              "success",
	ClientLeft:           "client_left",
	UpstreamError:        "upstream_error",
	UpstreamDisconnected: "upstream_disconnected",
	ConnectTimeout:       "connect_timeout",
	FirstTokenTimeout:    "first_token_timeout",
	IdleTimeout:          "idle_timeout",
	TotalTimeout:         "total_timeout",
	Drained:              "drained",
	Refused:              "refused",
}

// String gives the word that records and metrics use.
func (o Outcome) String() string { return outcomeNames[o] }

// EventError is an error event that the upstream sent inside of its stream.
type EventError struct {
	Message, Type, Code string // as the upstream wrote them; empty where it did not
	Reason              chunk.Reason
	RequestID           string // the upstream's name of the request, where its event has it
}

// Error gives all that the upstream said; it may name its hosts or our keys.
func (e *EventError) Error() string {
	return "the upstream sent an error: " + e.Message + " (type " + e.Type + ", code " + e.Code + ")"
}

func eventError(v *chunk.View) error {
	return &EventError{Message: string(v.Message), Type: string(v.Type), Code: string(v.Code), Reason: v.Reason, RequestID: string(v.RequestID)}
}

// Ends that no Source names. They tell an operator what the Outcome does not.
var (
	errCutShort  = errors.New("the upstream ended its stream before its answer was complete")
	errEmpty     = errors.New("the upstream's stream is empty")
	errBrokenOff = errors.New("the upstream gave up in the middle of its answer")
	errTimeout   = errors.New("the time that the upstream may take is over")
)

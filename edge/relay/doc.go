// Package relay pumps one stream of events to a client and says how it ended.
package relay

import (
	"errors"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// Source is the upstream's side of a stream. Before the first content-bearing
// event it may still be dialling, waiting or trying again; it returns events
// from the first that a client may see.
type Source interface {
	// Next returns the next event and its view, both lent until the next call.
	// It waits until the given time at the latest and then returns an error
	// that is os.ErrDeadlineExceeded, after which it can be called again; the
	// zero time means not to wait at all. io.EOF says that the upstream ended
	// its body properly. Any other error is final.
	Next(until time.Time) (sse.Event, *chunk.View, error)
}

// Causes that a Source returns once its stream was cancelled from outside.
var (
	ErrClientLeft = errors.New("the client left")
	ErrDrained    = errors.New("the server is shutting down")
)

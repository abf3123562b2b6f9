// Package sse splits bytes into server-sent events and appends events, by the
// rules of the WHATWG HTML standard, section 9.2 ("Server-sent events").
package sse

import "errors"

// ErrTooLong is returned when one event is larger than the limit that its
// Reader was given.
var ErrTooLong = errors.New("event is larger than max_event")

// Event is one dispatched event. Its slices are lent by the Reader that
// returned it, until that Reader's next call of any method.
type Event struct {
	Raw   []byte // the event as the upstream wrote it, its closing blank line included
	Name  []byte // value of the last event field, empty where there is none
	Data  []byte // values of the data fields, joined by LF
	Legal bool   // Raw can be forwarded as it is: see Reader
}

package pool

import (
	"bytes"
	"time"

	"eisbach/sse/chunk"
	"eisbach/sse/whole"
)

// This file gives a client what it asked for where the upstream answered
// something else: events to a request for a whole answer (HolySheep does), or a
// whole answer to one for events.

// looksLikeEvents reports whether a body is a stream of events, whatever its
// content type says.
func looksLikeEvents(body []byte) bool {
	body = bytes.TrimLeft(body, "\xEF\xBB\xBF \r\n")
	for _, field := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(body, []byte(field)) {
			return true
		}
	}
	return false
}

// split reads an answer that is no stream, and makes the events of it that it
// would have been. It can be called again after os.ErrDeadlineExceeded.
func (s *Stream) split(until time.Time) error {
	for s.phase == phaseBody {
		err := s.fillWhole(until)
		switch {
		case err != nil:
			return err
		case looksLikeEvents(s.whole):
			s.giveEvents(s.whole)
			return nil
		case len(s.whole) > maxSplit:
			return s.fail(&Failure{Reason: Unexpected, Status: s.hdr.StatusCode(), Err: errWholeTooLarge})
		}
	}
	events, err := whole.Split(nil, s.req.Shape, s.whole, true)
	if err != nil {
		return s.Reject(errNoEvents)
	}
	s.giveEvents(events)
	return nil
}

// maxSplit bounds an answer that has to be held to be made a stream, in bytes.
const maxSplit = 16 << 20

func (s *Stream) giveEvents(b []byte) {
	s.events.Advance(copy(s.events.Free(len(b)), b))
	s.streaming = true
}

// join makes the whole answer of the events that came.
func (s *Stream) join() ([]byte, error) {
	var a whole.Assembler
	a.Reset(s.req.Shape)
	s.events.Reset(len(s.whole) + 1)
	s.events.Advance(copy(s.events.Free(len(s.whole)), s.whole))
	for last := false; !last; {
		event, ok, err := s.events.Next()
		if err != nil {
			return nil, s.fail(&Failure{Reason: Disconnected, Err: err})
		}
		if !ok {
			if event, ok = s.events.Last(); !ok {
				break
			}
			last = true
		}
		if s.view.View(s.req.Shape, event.Name, event.Data).Kind == chunk.Error {
			s.whole = append(s.whole[:0], event.Data...)
			return nil, s.Reject(nil)
		}
		if err := a.Add(event.Name, event.Data); err != nil {
			return nil, s.Reject(err)
		}
	}
	answer, err := a.Append(nil)
	if err != nil {
		return nil, s.fail(&Failure{Reason: Disconnected, Err: err})
	}
	s.whole = answer
	return answer, nil
}

package relay

import (
	"bytes"
	"io"
	"time"

	"eisbach/sse"
	"eisbach/sse/chunk"
)

// doneMark ends a stream in the shapes of chat/completions and completions; its
// event is written anew, because openai-node fails on a space behind the mark.
const (
	doneMark  = "[DONE]"
	doneEvent = "data: " + doneMark + "\n\n"
)

// take decides what one answer of the Source means. Everything before it is out.
func (r *Run) take(e sse.Event, v *chunk.View, err error) {
	if err != nil {
		r.sourceEnded(err)
		return
	}
	r.note(e, v)
	switch v.Kind {
	case chunk.Content:
		r.content(e, v)
	case chunk.Empty:
		if r.harmless(e) {
			r.pass(e)
		}
	case chunk.UsageOnly:
		if r.c.IncludeUsage {
			r.pass(e)
		}
	case chunk.Done:
		r.done(e)
	case chunk.Error:
		r.fail(UpstreamError, eventError(v))
	}
}

// note keeps what any event says beside its content.
func (r *Run) note(e sse.Event, v *chunk.View) {
	r.res.Usage.Merge(v.Usage)
	r.broken = r.broken || v.Broken
	if v.Finish {
		r.finished++
		r.res.Finished = r.finished >= max(r.c.Choices, 1)
	}
	if len(e.Data) > 0 {
		if r.res.Events > 0 {
			r.res.Gap = max(r.res.Gap, r.quiet)
		}
		r.quiet = 0
	}
}

func (r *Run) content(e sse.Event, v *chunk.View) {
	if r.res.Events == 0 {
		r.res.FirstContent = r.now
	}
	r.res.LastContent = r.now
	r.res.Events++
	r.res.TextBytes += v.TextBytes
	r.pass(e)
	r.release()
}

// harmless reports whether clients can read an event that says nothing. Empty
// data breaks openai-node, what is not a chunk breaks the AI SDK, and data that
// is not whole JSON is an event that the upstream's end has cut.
func (r *Run) harmless(e sse.Event) bool {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 || data[0] != '{' || !chunk.Complete(data) {
		return false
	}
	if !r.marksEnd() {
		return true
	}
	members := bytes.TrimSpace(data[1 : len(data)-1])
	return len(members) > 0 && string(e.Name) != "ping"
}

// marksEnd reports whether the shape's streams end with the done mark.
func (r *Run) marksEnd() bool {
	return r.c.Shape == chunk.Chat || r.c.Shape == chunk.Completion
}

// maxHeld bounds what is held back, in bytes; it goes out when there is more.
const maxHeld = 1 << 20

// pass gives an event to the client: as the upstream wrote it, wherever every
// client can read that.
func (r *Run) pass(e sse.Event) {
	switch {
	case r.holding:
		r.own = appendEvent(r.own, e)
		if len(r.own) > maxHeld {
			r.release()
		}
	case e.Legal:
		r.out = e.Raw
	default:
		r.own = appendEvent(r.own[:0], e)
		r.out = r.own
	}
}

func appendEvent(dst []byte, e sse.Event) []byte {
	if e.Legal {
		return append(dst, e.Raw...)
	}
	return sse.Append(dst, e.Name, e.Data)
}

// release lets go of what is held back.
func (r *Run) release() {
	if r.holding {
		r.holding, r.out = false, r.own
	}
}

// done is called when the upstream says that all is said.
func (r *Run) done(e sse.Event) {
	own := r.c.Shape == chunk.Responses || r.c.Shape == chunk.Messages
	if own && string(bytes.TrimSpace(e.Data)) == doneMark {
		return // their streams end with an event of their own
	}
	r.res.Done = true
	switch {
	case own:
		r.pass(e)
		r.release()
		r.finish()
	case r.marksEnd():
		r.lookBehind()
		r.complete()
	default:
		r.trail(doneEvent)
		r.finish()
	}
}

// lookBehind looks for usage behind the done mark, among the events that have
// come with it: nobody waits for more.
func (r *Run) lookBehind() {
	const most = 16
	for range most {
		_, v, err := r.src.Next(time.Time{})
		if err != nil {
			return
		}
		r.res.Usage.Merge(v.Usage)
	}
}

// complete ends a stream in the shapes of chat/completions and completions.
func (r *Run) complete() {
	switch {
	case r.res.Events == 0 && r.finished == 0:
		r.fail(UpstreamError, errEmpty)
	case r.broken && r.holding: // nothing was shown: the failure can still be told as one
		r.fail(UpstreamError, errBrokenOff)
	default:
		r.trail(doneEvent)
		r.finish()
	}
}

// finish ends a stream whose end is, or will be, with the client.
func (r *Run) finish() {
	r.ended, r.end = true, io.EOF
	r.res.Outcome, r.res.Err = Success, nil
	if r.broken {
		r.res.Outcome, r.res.Err = UpstreamError, errBrokenOff
	}
}

// trail puts bytes behind what is held back, or behind all that is out.
func (r *Run) trail(event string) {
	if !r.holding {
		r.own = r.own[:0]
	}
	r.own = append(r.own, event...)
	r.holding, r.out = false, r.own
}

// sourceEnded is called when the Source has no more events.
func (r *Run) sourceEnded(err error) {
	switch {
	case err != io.EOF:
		r.stop(r.c.Door.Classify(err), err)
	case r.c.Shape == chunk.Embeddings || r.c.Shape == chunk.Other:
		r.release()
		r.finish()
	default:
		r.stop(UpstreamDisconnected, errCutShort)
	}
}

// stop ends a stream whose upstream has not said that all is said. Where it said
// how each choice ended, the answer is complete all the same.
func (r *Run) stop(o Outcome, err error) {
	if o != ClientLeft && r.marksEnd() && r.res.Finished {
		r.complete()
		return
	}
	r.fail(o, err)
}

// fail ends the stream with a failure, which the client is told in place of what
// is held back.
func (r *Run) fail(o Outcome, err error) {
	r.ended, r.end = true, err
	r.res.Outcome, r.res.Err = o, err
	if o == ClientLeft || !r.committed {
		return
	}
	r.own = r.c.Door.AppendError(r.own[:0], o, err)
	r.out, r.end = r.own, io.EOF
}

package sim

import (
	"bytes"
	"compress/gzip"
	"time"
)

const (
	trickleEvery = 10 * time.Millisecond
	splitGap     = time.Millisecond
	missing      = 100 // bytes that a short body lacks
)

func crashed() *problem {
	return &problem{500, "server_error", "internal_error", "The model crashed."}
}

// refuseByFault plays the faults that come in place of an answer and reports
// whether it did.
func (a *answer) refuseByFault() (bool, error) {
	switch a.p.Fail {
	case TooManyRequests, InternalError, Unavailable, DropBefore, HTML:
	default:
		return false, nil
	}
	if err := a.await(0); err != nil {
		return true, err
	}
	switch a.p.Fail {
	case TooManyRequests:
		return true, a.refuse(&problem{429, "rate_limit_error", "insufficient_quota", "Rate limit exceeded."}, "retry-after: 1")
	case InternalError:
		return true, a.page(500, "text/plain", "Internal Server Error")
	case Unavailable:
		return true, a.page(503, "text/plain", "Service Temporarily Unavailable")
	case HTML:
		return true, a.page(200, "text/html", "<!doctype html><title>Welcome</title><p>This is not an API.")
	}
	a.call.Close()
	return true, nil
}

func (a *answer) page(status int, contentType, text string) error {
	return a.head(status, contentType, int64(len(text)), []byte(text))
}

func (a *answer) streamHead() error {
	switch a.p.Fail {
	case Short:
		a.spoilt = a.spoilt[:0] // the head waits for the length
		return nil
	case Gzip:
		a.zip.Reset()
		a.gz = gzip.NewWriter(&a.zip)
		return a.head(200, "text/event-stream", -1, nil, "content-encoding: gzip")
	}
	return a.head(200, "text/event-stream", -1, nil)
}

// breakOff ends a stream half way.
func (a *answer) breakOff() error {
	switch a.p.Fail {
	case Stall:
		<-a.call.Gone()
		return ErrLeft
	case ResetMid:
		a.call.Reset()
		return nil
	case ErrorMid:
		return a.finish(a.shape.failure(a.events[:0], crashed()), nil)
	}
	a.call.Close()
	return nil
}

// sendSpoilt is send for the faults that change what is written.
func (a *answer) sendSpoilt(events []byte) error {
	if len(events) == 0 {
		return nil
	}
	switch a.p.Fail {
	case Short:
		a.spoilt = append(a.spoilt, events...)
		return nil
	case KeepAlive:
		a.spoilt = append(append(a.spoilt[:0], ": keepalive\n\n"...), events...)
	case CRLF:
		a.spoilt = bytes.ReplaceAll(events, []byte("\n"), []byte("\r\n"))
	case Gzip:
		a.zip.Reset()
		a.gz.Write(events)
		a.gz.Flush()
		return a.call.Chunk(a.zip.Bytes())
	case Split:
		a.spoilt = appendChunk(a.spoilt[:0], events)
		return a.split(a.spoilt)
	}
	return a.call.Chunk(a.spoilt)
}

// endSpoilt ends a stream that sendSpoilt has written.
func (a *answer) endSpoilt() error {
	switch a.p.Fail {
	case Short:
		err := a.head(200, "text/event-stream", int64(len(a.spoilt)+missing), a.spoilt)
		a.call.Close()
		return err
	case Gzip:
		a.zip.Reset()
		a.gz.Close()
		if err := a.call.Chunk(a.zip.Bytes()); err != nil {
			return err
		}
	}
	if err := a.call.Pause(a.p.DelayLast); err != nil {
		return err
	}
	return a.call.End()
}

// wholeBody writes a.events as the body of a whole answer.
func (a *answer) wholeBody() error {
	const contentType = "application/json"
	body := a.events
	length := int64(len(body))
	switch a.p.Fail {
	case Gzip:
		a.zip.Reset()
		gz := gzip.NewWriter(&a.zip)
		gz.Write(body)
		gz.Close()
		return a.head(200, contentType, int64(a.zip.Len()), a.zip.Bytes(), "content-encoding: gzip")
	case Short:
		err := a.head(200, contentType, length+missing, body)
		a.call.Close()
		return err
	case Split:
		half := len(body) / 2
		if err := a.head(200, contentType, length, body[:half]); err != nil {
			return err
		}
		if err := a.call.Pause(splitGap); err != nil {
			return err
		}
		a.call.done.Store(true)
		_, err := a.call.write(body[half:])
		return err
	case DropMid, ResetMid, Stall:
		if err := a.head(200, contentType, length, body[:length/2]); err != nil {
			return err
		}
		return a.breakOff()
	}
	return a.head(200, contentType, length, body)
}

// split writes p in two halves.
func (a *answer) split(p []byte) error {
	half := len(p) / 2
	if _, err := a.call.write(p[:half]); err != nil {
		return err
	}
	if err := a.call.Pause(splitGap); err != nil {
		return err
	}
	_, err := a.call.write(p[half:])
	return err
}

// trickle writes the first n bytes of p one by one and then the rest.
func (a *answer) trickle(p []byte, n int) error {
	for i := range n {
		if _, err := a.call.write(p[i : i+1]); err != nil {
			return err
		}
		if err := a.call.Pause(trickleEvery); err != nil {
			return err
		}
	}
	if n == len(p) {
		return nil
	}
	_, err := a.call.write(p[n:])
	return err
}

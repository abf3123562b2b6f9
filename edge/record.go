package edge

import (
	"io"
	"strconv"
	"sync"
	"time"

	"eisbach/edge/ask"
)

// record is one ended request, as it is written down.
type record struct {
	id, model, upstreamID    []byte // upstreamID is the upstream's own name of the request; empty: unknown
	route, upstream, user    string
	status, attempts         int
	outcome                  string
	prompt, completion       int64
	estimated                bool
	queue, ttft, total, edge time.Duration // ttft below 0: none
}

// append appends the record as a line in the form of log/slog's JSON handler,
// which would allocate for its numbers.
func (r *record) append(dst []byte, now time.Time) []byte {
	dst = append(dst, `{"time":"`...)
	dst = now.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","level":"INFO","msg":"request","request_id":`...)
	dst = ask.AppendString(dst, r.id)
	dst = appendField(dst, "route", r.route)
	dst = appendField(dst, "model", r.model)
	dst = appendField(dst, "upstream", r.upstream)
	if len(r.upstreamID) > 0 {
		dst = appendField(dst, "upstream_request_id", r.upstreamID)
	}
	dst = appendField(dst, "user", r.user)
	dst = appendInt(dst, "status", int64(r.status))
	dst = append(dst, `,"outcome":"`...)
	dst = append(dst, r.outcome...)
	dst = append(dst, '"')
	dst = appendInt(dst, "prompt_tokens", r.prompt)
	dst = appendInt(dst, "completion_tokens", r.completion)
	if r.estimated {
		dst = append(dst, `,"usage":"estimated"`...)
	} else {
		dst = append(dst, `,"usage":"actual"`...)
	}
	dst = appendInt(dst, "cost", 0)
	dst = appendInt(dst, "attempts", int64(r.attempts))
	dst = appendMillis(dst, "queue_ms", r.queue)
	if r.ttft >= 0 {
		dst = appendMillis(dst, "ttft_ms", r.ttft)
	} else {
		dst = append(appendKey(dst, "ttft_ms"), "null"...)
	}
	dst = appendMillis(dst, "total_ms", r.total)
	dst = appendMillis(dst, "edge_ms", r.edge)
	return append(dst, '}', '\n')
}

func appendKey(dst []byte, key string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, key...)
	return append(dst, `":`...)
}

func appendField[T string | []byte](dst []byte, key string, value T) []byte {
	return ask.AppendString(appendKey(dst, key), []byte(value))
}

func appendInt(dst []byte, key string, value int64) []byte {
	return strconv.AppendInt(appendKey(dst, key), value, 10)
}

func appendMillis(dst []byte, key string, d time.Duration) []byte {
	return strconv.AppendFloat(appendKey(dst, key), float64(d.Microseconds())/1000, 'f', -1, 64)
}

// maxUnwritten bounds what waits for a log that is slow, in bytes; requests
// never wait for it.
const maxUnwritten = 4 << 20

// journal writes records, in one goroutine of its own.
type journal struct {
	w       io.Writer
	mu      sync.Mutex
	buf     []byte // to be written
	spare   []byte // of the goroutine
	dropped int64
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

func newJournal(w io.Writer) *journal {
	j := &journal{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go j.run()
	return j
}

func (j *journal) add(r *record) {
	now := time.Now()
	j.mu.Lock()
	if len(j.buf) < maxUnwritten {
		j.buf = r.append(j.buf, now)
	} else {
		j.dropped++
	}
	j.mu.Unlock()
	j.signal()
}

func (j *journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journal) run() {
	defer close(j.done)
	for range j.wake {
		j.mu.Lock()
		out, closed := j.buf, j.closed
		j.buf = j.spare[:0]
		if j.dropped > 0 {
			out = append(out, `{"level":"WARN","msg":"records dropped: the log is too slow"`...)
			out = append(appendInt(out, "records", j.dropped), '}', '\n')
			j.dropped = 0
		}
		j.mu.Unlock()
		if len(out) > 0 {
			j.w.Write(out) // nothing could be done about a log that can't be written
		}
		j.spare = out[:0]
		if closed {
			return
		}
	}
}

// close writes what is left.
func (j *journal) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.signal()
	<-j.done
}

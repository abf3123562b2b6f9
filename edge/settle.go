package edge

import (
	"time"

	"eisbach/edge/relay"
	"eisbach/pool"
	"eisbach/sse/chunk"
)

// bytesPerToken is what a token is taken for where the provider doesn't say.
const bytesPerToken = 4

// spent is what the request is charged: what the provider said; or, once it has
// answered, the estimates of the prompt and of what was delivered; or, where the
// client left after its request was sent, the prompt's.
func (q *request) spent(r *relay.Result, t *pool.Trace) (prompt, completion int64, actual bool) {
	usage := r.Usage
	if !q.streamed {
		usage = q.view.Usage
	}
	if usage.Known {
		// Reasoning that is counted outside of the completion shows in the total.
		return usage.Prompt, max(usage.Completion, usage.Total-usage.Prompt), true
	}
	events, text := int64(r.Events), int64(r.TextBytes)
	if !q.streamed {
		events, text = 0, int64(q.view.TextBytes)
	}
	answered := events > 0 || q.outcome == relay.Success && q.opened || !q.ask.Stream && t.Body && q.view.Kind != chunk.Error
	if answered || q.outcome == relay.ClientLeft && !t.Sent.IsZero() {
		prompt = tokens(int64(q.size))
		completion = max(events, tokens(text))
	}
	return prompt, completion, false
}

func tokens(bytes int64) int64 { return (bytes + bytesPerToken - 1) / bytesPerToken }

// record gives the facts of the ended request.
func (q *request) record() *record {
	now := time.Now()
	r := &q.facts
	*r = record{id: q.id[:], model: q.model, status: q.status, ttft: -1, estimated: true, total: now.Sub(q.arrived), outcome: q.outcome.String()}
	if q.route != nil {
		r.route = q.route.Name
	}
	r.user = q.caller.User
	var trace pool.Trace
	var result relay.Result
	if q.opened {
		trace = q.up.Trace()
		if q.streamed && !q.raw {
			result = q.run.Result()
		}
		if !result.FirstContent.IsZero() {
			r.ttft = result.FirstContent.Sub(q.arrived)
		}
		var actual bool
		r.prompt, r.completion, actual = q.spent(&result, &trace)
		r.estimated = !actual
	}
	r.upstreamID = q.upstreamID
	r.upstream, r.attempts, r.queue = trace.Upstream, trace.Attempts, trace.Queue
	r.edge = r.total - trace.Queue - trace.Connect - trace.Waited
	if q.conn != nil {
		r.edge -= time.Duration(q.conn.written.Load()) - q.wrote
	}
	r.edge = max(r.edge, 0)
	return r
}

// whole reads an answer's usage; false where it is not complete JSON.
func (q *request) whole(body []byte) (*chunk.View, bool) {
	q.bodies.Reset(q.up.Provider())
	return q.bodies.Whole(q.shape, body)
}

package edge

import (
	"maps"
	"net/url"
	"slices"

	"github.com/valyala/fasthttp"

	"eisbach/edge/ask"
	"eisbach/edge/relay"
)

// listModels answers with the models that the route allows, or, where it allows
// any, with the upstream's own list.
func (q *request) listModels(ctx *fasthttp.RequestCtx) {
	if q.route.Models == nil {
		q.open(ctx)
		q.call.Method, q.call.Body = fasthttp.MethodGet, nil
		if q.target.model != "" {
			q.call.Endpoint += "/" + url.PathEscape(q.target.model)
		}
		q.answer(ctx)
		return
	}
	q.outcome = relay.Success
	out := q.out[:0]
	if id := q.target.model; id != "" {
		if _, ok := q.route.Models[id]; !ok {
			q.outcome = relay.Refused
			q.refuse(ctx, &refusal{status: fasthttp.StatusNotFound, code: "model_not_found", param: "model",
				message: "This route does not have this model."})
			return
		}
		out = q.appendModel(out, id)
	} else {
		out = append(out, `{"object":"list","data":[`...)
		for i, name := range slices.Sorted(maps.Keys(q.route.Models)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = q.appendModel(out, name)
		}
		out = append(out, "]}"...)
	}
	q.out = out
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.SetBody(out)
}

// appendModel appends a model object of OpenAI's API. It has no creation time
// that we would know.
func (q *request) appendModel(dst []byte, name string) []byte {
	dst = append(dst, `{"id":`...)
	dst = ask.AppendString(dst, []byte(name))
	dst = append(dst, `,"object":"model","created":0,"owned_by":`...)
	dst = ask.AppendString(dst, []byte(q.route.Name))
	return append(dst, '}')
}

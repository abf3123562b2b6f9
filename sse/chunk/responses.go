package chunk

import "bytes"

// responsesEvent reads a typed event of OpenAI's Responses API.
func (r *Reader) responsesEvent(kind []byte, doc value) {
	switch string(kind) {
	case "response.completed", "response.incomplete":
		r.view.Kind, r.view.Finish = Done, true
		r.usage(Responses, doc.get("response").get("usage"))
	case "response.failed":
		r.view.Kind = Error
		r.usage(Responses, doc.get("response").get("usage"))
		failed := doc.get("response").get("error")
		r.describe(failed)
		r.view.Reason = r.provider.reason(&r.view, failed)
	case "response.output_item.added":
		if item := doc.get("item"); isCall(item) {
			r.call(item)
		}
	default:
		// Text, reasoning, refusals, arguments and those to come; the events
		// that end in .done repeat what was said.
		if bytes.HasPrefix(kind, []byte("response.")) && bytes.HasSuffix(kind, []byte(".delta")) {
			r.produced(doc.get("delta").textBytes())
		}
	}
}

// isCall is true for function_call, custom_tool_call, web_search_call, …
func isCall(item value) bool { return hasTypeSuffix(item, "_call") }

// responsesWhole reads a response object.
func (r *Reader) responsesWhole(doc value) {
	if status := string(doc.get("status").text()); status == "completed" || status == "incomplete" {
		r.view.Finish = true
	}
	for item := doc.get("output").elements(); item.next(); {
		if isCall(item.value) {
			r.call(item.value)
			continue
		}
		r.produced(textIn(item.value.get("content")))
		r.produced(textIn(item.value.get("summary")))
	}
}

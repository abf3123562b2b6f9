package whole

// response makes the typed events of OpenAI's Responses API, by its reference,
// "Streaming events": what openai-node's ResponseStream demands, in its order.
func (e *events) response(doc value) error {
	last := "response.completed"
	switch string(doc.get("status").text()) {
	case "completed", "":
	case "incomplete":
		last = "response.incomplete"
	default:
		return ErrShape
	}
	output := doc.get("output")
	if !output.is('[') {
		return ErrShape
	}
	begun := doc.appendChanged(nil, change{"status", `"in_progress"`}, change{"output", "[]"}, change{"usage", "null"},
		change{"completed_at", "null"}, change{"incomplete_details", "null"}, change{"output_text", `""`})
	e.typed("response.created", field{"response", begun})
	for i, item := range output.elements() {
		if !item.is('{') {
			return ErrShape
		}
		e.item(i, item)
		if e.err != nil {
			return e.err
		}
	}
	e.typed(last, field{"response", doc})
	return nil
}

// place is where in the output an event belongs.
type place struct {
	e    *events
	item field
	at   field
	part field // empty for an item
}

func (e *events) item(index int, item value) {
	at := field{"output_index", number(index)}
	begun := item.appendChanged(nil, change{"status", `"in_progress"`}, change{"content", "[]"}, change{"summary", "[]"})
	id := item.get("id")
	p := place{e: e, item: field{"item_id", id}, at: at}
	switch kind := string(item.get("type").text()); {
	case kind == "message" || kind == "reasoning":
		if len(id) == 0 {
			p.item.value = []byte(`""`)
		}
		e.typed("response.output_item.added", at, field{"item", begun})
		p.parts("summary_index", "response.reasoning_summary_part", item.get("summary"))
		p.parts("content_index", "response.content_part", item.get("content"))
	case kind == "function_call" && len(id.text()) > 0:
		p.input(item, "arguments", "response.function_call_arguments")
	case kind == "custom_tool_call" && len(id.text()) > 0:
		p.input(item, "input", "response.custom_tool_call_input")
	default: // without an id there is no way to speak of an item's pieces
		e.typed("response.output_item.added", at, field{"item", item})
	}
	e.typed("response.output_item.done", at, field{"item", item})
}

// input tells of a call's arguments.
func (p place) input(item value, key, event string) {
	begun := item.appendChanged(nil, change{"status", `"in_progress"`}, change{key, `""`})
	p.e.typed("response.output_item.added", p.at, field{"item", begun})
	arguments := item.get(key)
	if !arguments.is('"') {
		return
	}
	p.e.typed(event+".delta", p.item, p.at, field{"delta", arguments})
	if name := item.get("name"); len(name) > 0 && key == "arguments" {
		p.e.typed(event+".done", p.item, p.at, field{"name", name}, field{key, arguments})
		return
	}
	p.e.typed(event+".done", p.item, p.at, field{key, arguments})
}

// parts tells of the parts of a message's content or of a reasoning's summary.
func (p place) parts(index, event string, all value) {
	for i, part := range all.elements() {
		if p.e.err != nil {
			return
		}
		p.part = field{index, number(i)}
		begun := part.appendChanged(nil, change{"text", `""`}, change{"refusal", `""`}, change{"annotations", "[]"}, change{"logprobs", "[]"})
		if !part.is('{') {
			begun = part
		}
		p.e.typed(event+".added", p.item, p.at, p.part, field{"part", begun})
		switch string(part.get("type").text()) {
		case "output_text":
			p.outputText(part)
		case "refusal":
			p.text("response.refusal", "refusal", part)
		case "reasoning_text":
			p.text("response.reasoning_text", "text", part)
		case "summary_text":
			p.text("response.reasoning_summary_text", "text", part)
		}
		p.e.typed(event+".done", p.item, p.at, p.part, field{"part", part})
	}
}

func (p place) outputText(part value) {
	logprobs := field{"logprobs", []byte("[]")}
	if v := part.get("logprobs"); v.is('[') {
		logprobs.value = v
	}
	p.text("response.output_text", "text", part, logprobs)
	for i, annotation := range part.get("annotations").elements() {
		p.e.typed("response.output_text.annotation.added", p.item, p.at, p.part,
			field{"annotation_index", number(i)}, field{"annotation", annotation})
	}
}

func (p place) text(event, key string, part value, more ...field) {
	said := part.get(key)
	if !said.is('"') {
		return
	}
	where := []field{p.item, p.at, p.part}
	p.e.typed(event+".delta", append(append(where, field{"delta", said}), more...)...)
	p.e.typed(event+".done", append(append(where, field{key, said}), more...)...)
}

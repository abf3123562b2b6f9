package chunk

// choicesEvent reads a chunk of chat completions or completions: OpenAI's API
// reference, "chat.completion.chunk".
func (r *Reader) choicesEvent(doc value) {
	var choices, usage value
	for m := doc.members(); m.next(); {
		switch string(m.key) {
		case "choices":
			choices = m.value
		case "usage":
			usage = m.value
		}
	}
	r.usage(Chat, usage)
	r.choices(choices)
	if (choices.absent() || choices.isEmpty()) && usage.is('{') {
		r.view.Kind = UsageOnly
	}
}

// choices looks at all of them: an event may carry one for each of n.
func (r *Reader) choices(v value) {
	for choice := v.elements(); choice.next(); {
		for m := choice.value.members(); m.next(); {
			switch string(m.key) {
			case "delta", "message":
				r.delta(m.value)
			case "text":
				r.produced(m.value.textBytes())
			case "finish_reason":
				r.finish(m.value)
			}
		}
	}
}

// finish takes a finish or stop reason. An empty one, as some providers send
// with each chunk, is none.
func (r *Reader) finish(reason value) {
	text := reason.text()
	if len(text) == 0 {
		return
	}
	r.view.Finish = true
	if string(text) == "insufficient_system_resource" { // DeepSeek's API reference
		r.view.Broken = true
	}
}

// delta reads the piece of a message, or a whole one.
func (r *Reader) delta(v value) {
	reasoning := 0
	for m := v.members(); m.next(); {
		switch string(m.key) {
		case "content", "refusal":
			r.produced(textIn(m.value))
		case "reasoning", "reasoning_content":
			// vLLM says the same under both names.
			reasoning = max(reasoning, textIn(m.value))
		case "tool_calls":
			for call := m.value.elements(); call.next(); {
				r.call(call.value.get("function"))
			}
		case "function_call":
			if !m.value.absent() {
				r.call(m.value)
			}
		case "audio":
			if m.value.is('{') && !m.value.isEmpty() {
				r.view.Kind = Content
				r.produced(m.value.get("transcript").textBytes())
			}
		}
	}
	r.produced(reasoning)
}

// call notes a piece of a tool call, which counts even where it has no text.
func (r *Reader) call(function value) {
	r.view.Kind = Content
	for m := function.members(); m.next(); {
		switch string(m.key) {
		case "name", "arguments":
			r.produced(m.value.textBytes())
		}
	}
}

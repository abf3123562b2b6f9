package chunk

// chunk reads a chunk of chat completions or completions: OpenAI's API
// reference, "chat.completion.chunk". What SDKs would stumble over is found on
// the way; what to do about it is looked for only then.
func (r *Reader) chunk(doc value) {
	var choices, usage value
	for m := doc.members(); m.next(); {
		switch string(m.key) {
		case "choices":
			choices = m.value
		case "usage":
			usage = m.value
		case "created":
			if !fitCreated(m.value) {
				r.view.Fix |= FixCreated
			}
		case "error":
			r.view.Fix |= FixError
			if saysFailure(m.value) {
				r.failure(doc)
				return
			}
		case "type", "object":
			if string(m.value.text()) == "error" {
				r.failure(doc)
				return
			}
		}
	}
	if !choices.is('[') && !doc.isEmpty() {
		r.view.Fix |= FixChoices
	}
	if r.view.Fix != 0 {
		r.repairTop(doc, choices)
	}
	r.usage(Chat, usage)
	r.choices(choices, true)
	if (!choices.is('[') || choices.isEmpty()) && usage.is('{') {
		r.view.Kind = UsageOnly
	}
}

// choices looks at all of them: an event may carry one for each of n. Those of a
// stream are repaired.
func (r *Reader) choices(v value, stream bool) {
	for choice := v.elements(); choice.next(); {
		var streamed, reason value
		if stream {
			streamed = choice.value
			r.calls.leave()
		}
		for m := choice.value.members(); m.next(); {
			switch string(m.key) {
			case "delta":
				r.delta(m.value, streamed)
			case "message":
				r.delta(m.value, nil)
			case "text":
				r.produced(m.value.textBytes())
			case "finish_reason":
				reason = m.value
				r.finish(m.value)
			}
		}
		if stream {
			r.repairFinish(choice.value, reason)
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

// delta reads the piece of a message, or a whole one. choice is what it is a
// piece of; nil for a whole one, which is left as it is.
func (r *Reader) delta(v, choice value) {
	reasoning, unfit := 0, false
	for m := v.members(); m.next(); {
		switch string(m.key) {
		case "role":
			unfit = unfit || !fitRole(m.value)
		case "content", "refusal":
			r.produced(textIn(m.value))
		case "reasoning", "reasoning_content":
			// vLLM says the same under both names.
			reasoning = max(reasoning, textIn(m.value))
		case "tool_calls":
			for call := m.value.elements(); call.next(); {
				r.toolCall(call.value, choice)
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
	if unfit && choice != nil {
		r.repairRole(v)
	}
}

// toolCall reads an element of tool_calls.
func (r *Reader) toolCall(v, choice value) {
	var p piece
	var function value
	for m := v.members(); m.next(); {
		switch string(m.key) {
		case "index":
			p.index = m.value
		case "id":
			p.id = m.value
		case "function":
			function = m.value
		}
	}
	p.named = r.call(function)
	if choice == nil || !v.is('{') {
		return
	}
	number := r.calls.index(choice, p)
	if p.index.absent() {
		r.repairIndex(v, p.index, number)
	}
}

// call notes a piece of a tool call, which counts even where it has no text. It
// is true for one with a name.
func (r *Reader) call(function value) (named bool) {
	r.view.Kind = Content
	for m := function.members(); m.next(); {
		switch string(m.key) {
		case "name":
			named = len(m.value.text()) > 0
			r.produced(m.value.textBytes())
		case "arguments":
			r.produced(m.value.textBytes())
		}
	}
	return named
}

package whole

import "eisbach/sse/chunk"

// choices makes a chat's or a completion's stream, by OpenAI's API reference,
// "The chat completion chunk object": for each choice a chunk that says
// everything and a chunk that says how it ended.
func (e *events) choices(shape chunk.Shape, doc value, includeUsage bool) error {
	all := doc.get("choices")
	if !all.is('[') || all.empty() {
		return ErrShape
	}
	head, extra := heads(shape, doc)
	var seen [maxItems]bool
	for i, choice := range all.elements() {
		index, err := choice.get("index").index(i)
		switch {
		case err != nil:
			return err
		case i >= maxItems:
			return ErrTooLarge
		case !says(shape, choice) || seen[index]:
			return ErrShape
		}
		seen[index] = true
		e.choice(shape, head, extra, index, choice)
		extra = nil
	}
	if usage := doc.get("usage"); includeUsage && usage.is('{') {
		data := appendMember(append(e.data[:0], head...), "choices", []byte("[]"))
		e.put("", append(appendMember(data, "usage", usage), '}'))
	}
	e.put("", []byte("[DONE]"))
	return e.err
}

// says is true for a choice that has what its shape must have.
func says(shape chunk.Shape, choice value) bool {
	if shape == chunk.Completion {
		return choice.get("text").is('"')
	}
	return choice.get("message").is('{')
}

// heads returns how each chunk begins, and the other members of the answer,
// which only the first one has. A key "error" fails in openai-go and the Vercel
// AI SDK even if it is null.
func heads(shape chunk.Shape, doc value) (head, extra []byte) {
	name := `"chat.completion.chunk"`
	if shape == chunk.Completion {
		name = `"text_completion"`
	}
	head = appendMember(append(head, '{'), "object", []byte(name))
	extra = []byte("{")
	for key, v := range doc.members() {
		switch string(key) {
		case "object", "choices", "usage", "error":
		case "id", "created", "model", "system_fingerprint", "service_tier":
			head = appendMember(head, key, v)
		default:
			extra = appendMember(extra, key, v)
		}
	}
	return head, extra[1:]
}

func (e *events) choice(shape chunk.Shape, head, extra []byte, index int, choice value) {
	data := append(e.data[:0], head...)
	if len(extra) > 0 {
		data = append(append(data, ','), extra...)
	}
	data = append(data, `,"choices":[{"index":`...)
	data = append(data, number(index)...)
	if shape == chunk.Completion {
		data = appendMember(data, "text", choice.get("text"))
	} else {
		data = appendDelta(appendKey(data, "delta"), choice.get("message"))
	}
	if logprobs := choice.get("logprobs"); len(logprobs) > 0 {
		data = appendMember(data, "logprobs", logprobs)
	}
	e.put("", append(data, `,"finish_reason":null}]}`...))

	data = append(append(e.data[:0], head...), `,"choices":[{"index":`...)
	data = append(data, number(index)...)
	if shape == chunk.Completion {
		data = append(data, `,"text":""`...)
	} else {
		data = append(data, `,"delta":{}`...)
	}
	for key, v := range choice.members() {
		switch string(key) {
		case "index", "message", "text", "logprobs", "finish_reason":
		default:
			data = appendMember(data, key, v)
		}
	}
	reason := choice.get("finish_reason")
	if calls := choice.get("message").get("tool_calls"); len(reason.text()) == 0 {
		reason = finishReason(calls.is('[') && !calls.empty())
	}
	e.put("", append(appendMember(data, "finish_reason", reason), `}]}`...))
}

// finishReason stands in where an answer that has ended doesn't say how.
func finishReason(calls bool) value {
	if calls {
		return value(`"tool_calls"`)
	}
	return value(`"stop"`)
}

// appendDelta appends a message as a delta. The Vercel AI SDK takes no role but
// the assistant's.
func appendDelta(dst []byte, message value) []byte {
	dst = append(dst, `{"role":"assistant"`...)
	for key, v := range message.members() {
		switch {
		case string(key) == "role":
		case string(key) == "tool_calls" && v.is('['):
			dst = append(appendKey(dst, key), '[')
			for i, call := range v.elements() {
				dst = appendCall(appendComma(dst), i, call)
			}
			dst = append(dst, ']')
		default:
			dst = appendMember(dst, key, v)
		}
	}
	return append(dst, '}')
}

// appendCall appends a tool call with its index, and with the type that
// openai-node misses where there is none.
func appendCall(dst []byte, index int, call value) []byte {
	if !call.is('{') {
		return append(dst, call...)
	}
	dst = appendMember(append(dst, '{'), "index", number(index))
	if call.get("type").blank() {
		dst = append(dst, `,"type":"function"`...)
	}
	for key, v := range call.members() {
		if k := string(key); k != "index" && (k != "type" || !v.blank()) {
			dst = appendMember(dst, key, v)
		}
	}
	return append(dst, '}')
}

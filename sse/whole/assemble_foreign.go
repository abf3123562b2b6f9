package whole

import "bytes"

func isResponses(kind []byte) bool { return bytes.HasPrefix(kind, []byte("response.")) }

// addForeign takes a typed event of the Responses API in answer to a chat. What
// the last event repeats is taken from it only where no delta said it.
func (a *Assembler) addForeign(kind string, doc value) error {
	delta := doc.get("delta")
	switch kind {
	case "response.created", "response.in_progress", "response.queued":
		return a.addIdentity(doc.get("response"))
	case "response.output_text.delta":
		return a.say("content", delta)
	case "response.refusal.delta":
		return a.say("refusal", delta)
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		return a.say("reasoning_content", delta)
	case "response.output_item.added", "response.output_item.done":
		index, err := doc.get("output_index").index(0)
		if err != nil {
			return err
		}
		return a.addCall(index, doc.get("item"))
	case "response.function_call_arguments.delta":
		return a.addArguments(doc.get("output_index"), delta)
	case "response.completed", "response.incomplete":
		return a.endForeign(doc.get("response"))
	case "response.failed":
		return ErrFailed
	}
	return nil
}

func (a *Assembler) addIdentity(response value) error {
	for _, m := range [...]struct{ from, to string }{
		{"id", "id"}, {"created_at", "created"}, {"model", "model"}, {"service_tier", "service_tier"},
	} {
		if err := a.keep(m.to, response.get(m.from), a.store.first); err != nil {
			return err
		}
	}
	return nil
}

// message returns the message of the one choice that a response is.
func (a *Assembler) message() (*node, error) {
	choice, err := a.part(0)
	if err != nil {
		return nil, err
	}
	m, err := a.store.member(choice, []byte("message"))
	if err == nil {
		m.kind = object
	}
	return m, err
}

func (a *Assembler) say(key string, v value) error {
	if !v.is('"') {
		return nil
	}
	m, err := a.message()
	if err != nil {
		return err
	}
	m, err = a.store.member(m, []byte(key))
	if err != nil {
		return err
	}
	return a.store.join(m, v, 0)
}

// call returns the tool call that is an output item.
func (a *Assembler) call(index int) (*node, error) {
	m, err := a.message()
	if err != nil {
		return nil, err
	}
	calls, err := a.store.member(m, []byte("tool_calls"))
	if err != nil {
		return nil, err
	}
	calls.kind = list
	return a.store.element(calls, index)
}

// addCall takes an output item that is a function call, begun or done.
func (a *Assembler) addCall(index int, item value) error {
	if string(item.get("type").text()) != "function_call" {
		return nil
	}
	call, err := a.call(index)
	if err != nil {
		return err
	}
	id := item.get("call_id")
	if id.blank() {
		id = item.get("id")
	}
	made := appendMember([]byte("{"), "type", []byte(`"function"`))
	if len(id) > 0 {
		made = appendMember(made, "id", id)
	}
	made = append(appendKey(made, "function"), '{')
	if name := item.get("name"); len(name) > 0 {
		made = appendMember(made, "name", name)
	}
	arguments := item.get("arguments")
	if function := call.find("function"); arguments.is('"') && (function == nil || !function.find("arguments").says()) {
		made = appendMember(made, "arguments", arguments)
	}
	return a.store.join(call, append(made, "}}"...), messageDepth)
}

func (a *Assembler) addArguments(outputIndex, delta value) error {
	index, err := outputIndex.index(0)
	if err != nil || !delta.is('"') {
		return err
	}
	call, err := a.call(index)
	if err != nil {
		return err
	}
	made := appendMember([]byte(`{"function":{`), "arguments", delta)
	return a.store.join(call, append(made, "}}"...), messageDepth)
}

// endForeign takes the response as it is at the end.
func (a *Assembler) endForeign(response value) error {
	if err := a.addIdentity(response); err != nil {
		return err
	}
	if err := a.addOutput(response.get("output")); err != nil {
		return err
	}
	message, err := a.message()
	if err != nil {
		return err
	}
	if len(message.nodes) == 0 { // it said something that is not known here, or nothing
		return ErrShape
	}
	reason := finishReason(message.find("tool_calls").says())
	switch string(response.get("incomplete_details").get("reason").text()) {
	case "max_output_tokens":
		reason = value(`"length"`)
	case "content_filter":
		reason = value(`"content_filter"`)
	}
	m, err := a.store.member(a.parts.nodes[0], []byte("finish_reason"))
	if err == nil {
		err = a.store.last(m, reason)
	}
	if err != nil {
		return err
	}
	a.ended = true
	if usage := response.get("usage"); usage.is('{') {
		return a.keep("usage", chatUsage(usage), a.store.last)
	}
	return nil
}

// addOutput takes from the output what no delta has said.
func (a *Assembler) addOutput(output value) error {
	message, err := a.message()
	if err != nil {
		return err
	}
	content, refusal := message.find("content").says(), message.find("refusal").says()
	reasoning := message.find("reasoning_content").says()
	for i, item := range output.elements() {
		if err := a.addCall(i, item); err != nil {
			return err
		}
		for _, key := range [...]string{"summary", "content"} {
			for _, part := range item.get(key).elements() {
				said := part.get("text")
				switch kind := string(part.get("type").text()); {
				case kind == "output_text" && !content:
					err = a.say("content", said)
				case kind == "refusal" && !refusal:
					err = a.say("refusal", part.get("refusal"))
				case (kind == "reasoning_text" || kind == "summary_text") && !reasoning:
					err = a.say("reasoning_content", said)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// chatUsage gives the counts of a response the names that they have in a chat.
func chatUsage(usage value) value {
	dst := []byte("{")
	for key, v := range usage.members() {
		name := string(key)
		switch name {
		case "input_tokens":
			name = "prompt_tokens"
		case "output_tokens":
			name = "completion_tokens"
		case "input_tokens_details":
			name = "prompt_tokens_details"
		case "output_tokens_details":
			name = "completion_tokens_details"
		}
		dst = appendMember(dst, name, v)
	}
	return append(dst, '}')
}

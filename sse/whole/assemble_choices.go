package whole

import "eisbach/sse/chunk"

// messageDepth goes down to where pieces are: in
// message.tool_calls[].function.arguments.
const messageDepth = 4

// addChunk takes a chunk of a chat or a completion.
func (a *Assembler) addChunk(doc value) error {
	for key, v := range doc.members() {
		var err error
		switch string(key) {
		case "object", "error", "obfuscation":
		case "choices":
			err = a.addChoices(v)
		case "id", "created", "model", "system_fingerprint", "service_tier":
			err = a.keep(string(key), v, a.store.first)
		default:
			err = a.keep(string(key), v, a.store.last)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep applies a rule to a member of the answer.
func (a *Assembler) keep(key string, v value, rule func(*node, value) error) error {
	if len(v) == 0 {
		return nil
	}
	m, err := a.store.member(&a.root, []byte(key))
	if err != nil {
		return err
	}
	return rule(m, v)
}

func (a *Assembler) addChoices(v value) error {
	if !v.is('[') && !v.absent() {
		return ErrShape
	}
	for _, choice := range v.elements() {
		if !choice.is('{') {
			return ErrShape
		}
		index, err := choice.get("index").index(0)
		if err != nil {
			return err
		}
		n, err := a.part(index)
		if err != nil {
			return err
		}
		if err := a.addChoice(n, choice); err != nil {
			return err
		}
	}
	return nil
}

func (a *Assembler) addChoice(n *node, choice value) error {
	// Perplexity repeats the message so far beside each delta.
	hasDelta := len(choice.get("delta")) > 0
	for key, v := range choice.members() {
		k, depth := string(key), 1
		switch {
		case k == "index", k == "message" && hasDelta, k == "finish_reason" && len(v.text()) == 0:
			continue
		case k == "delta", k == "message":
			k, depth = "message", messageDepth
			if v.absent() {
				continue
			}
			if !v.is('{') {
				return ErrShape
			}
		}
		m, err := a.store.member(n, []byte(k))
		if err != nil {
			return err
		}
		switch k {
		case "message", "text", "logprobs":
			err = a.store.join(m, v, depth)
		default:
			err = a.store.last(m, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendChoices appends a chat completion or a completion object.
func (a *Assembler) appendChoices(dst []byte) ([]byte, error) {
	if len(a.parts.nodes) == 0 {
		return dst, ErrUnfinished
	}
	name := `{"object":"chat.completion"`
	if a.shape == chunk.Completion {
		name = `{"object":"text_completion"`
	}
	dst = append(dst, name...)
	for _, m := range a.root.nodes {
		dst = m.append(appendKey(dst, m.key))
	}
	dst = append(appendKey(dst, "choices"), '[')
	for _, choice := range a.parts.nodes {
		if !a.ended && choice.get("finish_reason") == nil {
			return dst, ErrUnfinished
		}
		dst = a.appendChoice(appendComma(dst), choice)
	}
	return append(dst, "]}"...), nil
}

func (a *Assembler) appendChoice(dst []byte, choice *node) []byte {
	dst = appendMember(append(dst, '{'), "index", number(choice.index))
	message := choice.find("message")
	switch {
	case a.shape == chunk.Chat:
		dst = appendChatMessage(appendKey(dst, "message"), message)
	case choice.find("text") == nil:
		dst = append(dst, `,"text":""`...)
	}
	for _, m := range choice.nodes {
		if m != message && string(m.key) != "finish_reason" {
			dst = m.append(appendKey(dst, m.key))
		}
	}
	reason := choice.get("finish_reason")
	if reason == nil {
		reason = finishReason(message != nil && message.find("tool_calls").says())
	}
	return append(appendMember(dst, "finish_reason", reason), '}')
}

// appendChatMessage appends a message, which has a role and a content whatever the
// stream said.
func appendChatMessage(dst []byte, message *node) []byte {
	dst = append(dst, `{"role":"assistant"`...)
	if message == nil {
		return append(dst, `,"content":null}`...)
	}
	if message.find("content") == nil {
		dst = append(dst, `,"content":null`...)
	}
	for _, m := range message.nodes {
		if string(m.key) != "role" {
			dst = m.append(appendKey(dst, m.key))
		}
	}
	return append(dst, '}')
}

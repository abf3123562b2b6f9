package chunk

// messagesEvent reads an event of Anthropic's Messages API. The prompt's
// tokens come with message_start, the output's with message_delta: see Merge.
func (r *Reader) messagesEvent(kind []byte, doc value) {
	switch string(kind) {
	case "message_start":
		r.usage(Messages, doc.get("message").get("usage"))
	case "content_block_start":
		r.block(doc.get("content_block"))
	case "content_block_delta":
		for m := doc.get("delta").members(); m.next(); {
			switch string(m.key) {
			case "text", "thinking", "partial_json":
				r.produced(m.value.textBytes())
			}
		}
	case "message_delta":
		r.usage(Messages, doc.get("usage"))
		r.finish(doc.get("delta").get("stop_reason"))
	case "message_stop":
		r.view.Kind = Done
	}
}

// messagesWhole reads a message object.
func (r *Reader) messagesWhole(doc value) {
	r.finish(doc.get("stop_reason"))
	for block := doc.get("content").elements(); block.next(); {
		r.block(block.value)
	}
}

// block reads one block of content: text, thinking, tool_use, server_tool_use, …
func (r *Reader) block(v value) {
	tool := hasTypeSuffix(v, "tool_use")
	if tool {
		r.view.Kind = Content
	}
	for m := v.members(); m.next(); {
		switch string(m.key) {
		case "text", "thinking":
			r.produced(m.value.textBytes())
		case "name":
			if tool {
				r.produced(m.value.textBytes())
			}
		case "input":
			if tool && !m.value.isEmpty() {
				r.produced(len(m.value))
			}
		}
	}
}

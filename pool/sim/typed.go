package sim

// The endpoints whose events have names: OpenAI's Responses and Anthropic's
// Messages. Both have one choice.

// responseShape writes the events of the Responses API. Reasoning passes in
// silence and is only counted.
type responseShape answer

// event opens an event of the given type; its data is open for more members.
func (s *responseShape) event(dst []byte, name string) []byte {
	dst = append(append(append(dst, "event: "...), name...), "\ndata: {\"type\":\""...)
	dst = appendInt(append(dst, name...), `","sequence_number":`, s.sequence)
	s.sequence++
	return dst
}

const itemPlace = `,"item_id":"msg_sim","output_index":0,"content_index":0`

func (s *responseShape) begin(dst []byte) []byte {
	for _, name := range [...]string{"response.created", "response.in_progress"} {
		dst = s.appendResponse(append(s.event(dst, name), `,"response":`...), "in_progress")
		dst = append(dst, endEvent...)
	}
	dst = s.event(dst, "response.output_item.added")
	dst = append(dst, `,"output_index":0,"item":{"id":"msg_sim","type":"message","status":"in_progress","role":"assistant","content":[]}`+endEvent...)
	dst = s.event(dst, "response.content_part.added")
	return append(dst, itemPlace+`,"part":{"type":"output_text","text":"","annotations":[]}`+endEvent...)
}

func (s *responseShape) token(dst []byte, step, choice int) []byte {
	a := (*answer)(s)
	if step < a.reasoning || choice > 0 {
		return dst
	}
	dst = append(s.event(dst, "response.output_text.delta"), itemPlace+`,"delta":"`...)
	return append(a.appendContent(dst, step-a.reasoning), "\"}\n\n"...)
}

func (s *responseShape) end(dst []byte) []byte {
	a := (*answer)(s)
	dst = append(s.event(dst, "response.output_text.done"), itemPlace+`,"text":"`...)
	dst = append(a.appendText(dst), "\"}\n\n"...)
	dst = append(s.event(dst, "response.content_part.done"), itemPlace+`,"part":`...)
	dst = append(s.appendPart(dst), endEvent...)
	dst = append(s.event(dst, "response.output_item.done"), `,"output_index":0,"item":`...)
	return append(s.appendItem(dst), endEvent...)
}

func (s *responseShape) last(dst []byte) []byte {
	dst = append(s.event(dst, "response."+s.status()), `,"response":`...)
	return append(s.appendResponse(dst, s.status()), endEvent...)
}

func (s *responseShape) failure(dst []byte, p *problem) []byte {
	dst = appendQuoted(s.event(dst, "error"), `,"code":`, []byte(p.code))
	return append(appendQuoted(dst, `,"message":`, []byte(p.message)), `,"param":null`+endEvent...)
}

func (s *responseShape) whole(dst []byte) []byte { return s.appendResponse(dst, s.status()) }

func (s *responseShape) status() string {
	if s.cut {
		return "incomplete"
	}
	return "completed"
}

func (s *responseShape) appendPart(dst []byte) []byte {
	dst = (*answer)(s).appendText(append(dst, `{"type":"output_text","text":"`...))
	return append(dst, `","annotations":[]}`...)
}

func (s *responseShape) appendItem(dst []byte) []byte {
	dst = append(append(dst, `{"id":"msg_sim","type":"message","status":"`...), s.status()...)
	return append(s.appendPart(append(dst, `","role":"assistant","content":[`...)), "]}"...)
}

func (s *responseShape) appendResponse(dst []byte, status string) []byte {
	a := (*answer)(s)
	dst = append(dst, `{"id":"resp_`...)
	dst = appendUUID(dst, a.call.N)
	dst = a.appendCreated(append(dst, `","object":"response","created_at":`...))
	dst = append(append(dst, `,"status":"`...), status...)
	dst = appendQuoted(dst, `","error":null,"store":false,"model":`, a.ask.model)
	if status == "in_progress" {
		return append(dst, `,"incomplete_details":null,"output":[],"usage":null}`...)
	}
	if s.cut {
		dst = append(dst, `,"incomplete_details":{"reason":"max_output_tokens"}`...)
	} else {
		dst = append(dst, `,"incomplete_details":null`...)
	}
	dst = append(s.appendItem(append(dst, `,"output":[`...)), ']')
	dst = appendInt(dst, `,"usage":{"input_tokens":`, a.ask.prompt)
	dst = appendInt(dst, `,"input_tokens_details":{"cached_tokens":0},"output_tokens":`, a.steps)
	dst = appendInt(dst, `,"output_tokens_details":{"reasoning_tokens":`, a.reasoning)
	return append(appendInt(dst, `},"total_tokens":`, a.ask.prompt+a.steps), "}}"...)
}

// messageShape writes the events of Anthropic's Messages API. Reasoning passes
// in silence and is only counted.
type messageShape answer

func (s *messageShape) begin(dst []byte) []byte {
	dst = append(dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	dst = append(s.appendHead(dst), `,"content":[],"stop_reason":null,"stop_sequence":null`...)
	dst = append(s.appendUsage(dst, 0), "}}\n\n"...)
	return append(dst, "event: content_block_start\n"+
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`+"\n\n"+
		"event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
}

func (s *messageShape) token(dst []byte, step, choice int) []byte {
	a := (*answer)(s)
	if step < a.reasoning || choice > 0 {
		return dst
	}
	dst = append(dst, "event: content_block_delta\n"+
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`...)
	return append(a.appendContent(dst, step-a.reasoning), "\"}}\n\n"...)
}

func (s *messageShape) end(dst []byte) []byte {
	dst = append(dst, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"+
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
	dst = append(append(dst, s.stopReason()...), `","stop_sequence":null}`...)
	return append(s.appendUsage(dst, s.steps), endEvent...)
}

func (s *messageShape) last(dst []byte) []byte {
	return append(dst, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

func (s *messageShape) failure(dst []byte, p *problem) []byte {
	dst = append(dst, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\""...)
	dst = append(dst, messagesError(p.status)...)
	return append(appendQuoted(dst, `","message":`, []byte(p.message)), "}}\n\n"...)
}

func (s *messageShape) whole(dst []byte) []byte {
	dst = append(s.appendHead(dst), `,"content":[{"type":"text","text":"`...)
	dst = (*answer)(s).appendText(dst)
	dst = append(append(dst, `"}],"stop_reason":"`...), s.stopReason()...)
	return append(s.appendUsage(append(dst, `","stop_sequence":null`...), s.steps), '}')
}

func (s *messageShape) stopReason() string {
	if s.cut {
		return "max_tokens"
	}
	return "end_turn"
}

func (s *messageShape) appendHead(dst []byte) []byte {
	dst = append(appendUUID(append(dst, `{"id":"msg_`...), s.call.N), `","type":"message","role":"assistant"`...)
	return appendQuoted(dst, `,"model":`, s.ask.model)
}

func (s *messageShape) appendUsage(dst []byte, output int) []byte {
	dst = appendInt(dst, `,"usage":{"input_tokens":`, s.ask.prompt)
	return append(appendInt(dst, `,"output_tokens":`, output), '}')
}

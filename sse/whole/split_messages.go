package whole

// message makes the events of Anthropic's Messages API, by its documentation,
// "Streaming messages".
func (e *events) message(doc value) error {
	content := doc.get("content")
	if !content.is('[') {
		return ErrShape
	}
	begun := doc.appendChanged(nil, change{"content", "[]"}, change{"stop_reason", "null"}, change{"stop_sequence", "null"})
	e.typed("message_start", field{"message", begun})
	for i, block := range content.elements() {
		if !block.is('{') {
			return ErrShape
		}
		e.block(field{"index", number(i)}, block)
		if e.err != nil {
			return e.err
		}
	}
	delta := []byte("{")
	for _, key := range [...]string{"stop_reason", "stop_sequence"} {
		v := doc.get(key)
		if len(v) == 0 {
			v = value("null")
		}
		delta = appendMember(delta, key, v)
	}
	fields := []field{{"delta", append(delta, '}')}}
	if usage := doc.get("usage"); usage.is('{') {
		fields = append(fields, field{"usage", usage})
	}
	e.typed("message_delta", fields...)
	e.typed("message_stop")
	return nil
}

// block tells of one block of content. What can't come in pieces comes with its
// start.
func (e *events) block(at field, block value) {
	begun := block.appendChanged(nil, change{"text", `""`}, change{"thinking", `""`}, change{"signature", `""`},
		change{"citations", "[]"}, change{"input", "{}"})
	e.typed("content_block_start", at, field{"content_block", begun})
	for key, v := range block.members() {
		switch k := string(key); {
		case (k == "text" || k == "thinking" || k == "signature") && v.is('"'):
			e.piece(at, k+"_delta", k, v)
		case k == "input" && v.is('{'):
			e.piece(at, "input_json_delta", "partial_json", appendQuoted(nil, v))
		case k == "citations":
			for _, citation := range v.elements() {
				e.piece(at, "citations_delta", "citation", citation)
			}
		}
	}
	e.typed("content_block_stop", at)
}

func (e *events) piece(at field, kind, key string, v []byte) {
	delta := appendMember([]byte("{"), "type", []byte(`"`+kind+`"`))
	e.typed("content_block_delta", at, field{"delta", append(appendMember(delta, key, v), '}')})
}

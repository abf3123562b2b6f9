package sim

// completionShape writes the completions of before chats.
type completionShape answer

func (s *completionShape) begin(dst []byte) []byte { return dst }

func (s *completionShape) token(dst []byte, step, choice int) []byte {
	a := (*answer)(s)
	if step < a.reasoning {
		return dst
	}
	dst = appendInt(dst, `data: {"choices":[{"finish_reason":null,"index":`, choice)
	dst = a.appendContent(append(dst, `,"logprobs":null,"text":"`...), step-a.reasoning)
	return append(append(append(dst, `"}`...), a.tail...), endEvent...)
}

func (s *completionShape) end(dst []byte) []byte {
	a := (*answer)(s)
	for choice := range a.ask.choices {
		dst = append(append(dst, `data: {"choices":[{"finish_reason":"`...), a.finishReason()...)
		dst = appendInt(dst, `","index":`, choice)
		dst = append(append(dst, `,"logprobs":null,"text":""}`...), a.tail...)
		dst = append(dst, endEvent...)
	}
	return a.appendUsageEvent(dst)
}

func (s *completionShape) last(dst []byte) []byte { return append(dst, doneEvent...) }

func (s *completionShape) failure(dst []byte, p *problem) []byte { return appendFailure(dst, p) }

func (s *completionShape) whole(dst []byte) []byte {
	a := (*answer)(s)
	dst = append(dst, `{"choices":[`...)
	for choice := range a.ask.choices {
		if choice > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"finish_reason":"`...), a.finishReason()...)
		dst = appendInt(dst, `","index":`, choice)
		dst = append(a.appendText(append(dst, `,"logprobs":null,"text":"`...)), `"}`...)
	}
	dst = append(append(dst, a.tail...), `,"usage":`...)
	return append(a.appendUsage(dst), '}')
}

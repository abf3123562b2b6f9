package sim

import "time"

// chatShape writes chat completions like SambaNova's stack: alphabetical keys,
// the role on every delta, usage with timings.
type chatShape answer

const (
	openDelta  = `data: {"choices":[{"delta":{`
	closeDelta = `},"finish_reason":null,"index":`
	endEvent   = "}\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

func (s *chatShape) begin(dst []byte) []byte { return dst }

func (s *chatShape) token(dst []byte, step, choice int) []byte {
	a := (*answer)(s)
	dst = append(dst, openDelta...)
	i := step - a.reasoning
	switch {
	case i < 0:
		dst = a.appendWord(append(dst, `"reasoning":"`...), step)
		dst = append(dst, `","role":"assistant"`...)
	case a.p.Tools:
		dst = s.appendToolDelta(append(dst, `"role":"assistant",`...), i, choice)
	default:
		dst = a.appendContent(append(dst, `"content":"`...), i)
		dst = append(dst, `","role":"assistant"`...)
	}
	dst = appendInt(dst, closeDelta, choice)
	dst = append(append(dst, `,"logprobs":null}`...), a.tail...)
	return append(dst, endEvent...)
}

func (s *chatShape) appendToolDelta(dst []byte, i, choice int) []byte {
	a := (*answer)(s)
	dst = append(dst, `"tool_calls":[{"function":{"arguments":"`...)
	dst = a.appendArguments(dst, i)
	if i > 0 {
		return append(dst, `"},"index":0}]`...)
	}
	dst = append(dst, '"')
	dst = a.appendToolName(dst)
	dst = appendInt(dst, `},"id":"call_`, choice)
	return append(dst, `","index":0,"type":"function"}]`...)
}

// appendArguments appends piece i of a tool call's arguments, an object with one
// string, escaped for the string that it stands in.
func (a *answer) appendArguments(dst []byte, i int) []byte {
	if i == 0 {
		dst = append(dst, `{\"query\":\"`...)
	}
	dst = a.appendWord(dst, i)
	if i == a.p.Tokens-1 {
		dst = append(dst, `\"}`...)
	}
	return dst
}

func (a *answer) appendToolName(dst []byte) []byte {
	if len(a.ask.tool) == 0 {
		return append(dst, `,"name":"look_up"`...)
	}
	return appendQuoted(dst, `,"name":`, a.ask.tool)
}

func (a *answer) finishReason() string {
	switch {
	case a.cut:
		return "length"
	case a.p.Tools:
		return "tool_calls"
	}
	return "stop"
}

func (s *chatShape) end(dst []byte) []byte {
	a := (*answer)(s)
	for choice := range a.ask.choices {
		dst = append(dst, openDelta+`"content":"","role":"assistant"},"finish_reason":"`...)
		dst = append(dst, a.finishReason()...)
		dst = appendInt(dst, `","index":`, choice)
		dst = append(append(dst, `,"logprobs":null}`...), a.tail...)
		dst = append(dst, endEvent...)
	}
	return a.appendUsageEvent(dst)
}

// appendUsageEvent appends the chunk without choices that was asked for.
func (a *answer) appendUsageEvent(dst []byte) []byte {
	if !a.ask.usage {
		return dst
	}
	dst = append(append(dst, `data: {"choices":[`...), a.tail...)
	dst = a.appendUsage(append(dst, `,"usage":`...))
	return append(dst, endEvent...)
}

func (s *chatShape) last(dst []byte) []byte { return append(dst, doneEvent...) }

func (s *chatShape) failure(dst []byte, p *problem) []byte { return appendFailure(dst, p) }

func appendFailure(dst []byte, p *problem) []byte {
	return append(appendProblem(append(dst, `data: {"error":`...), p), endEvent...)
}

func (s *chatShape) whole(dst []byte) []byte {
	a := (*answer)(s)
	dst = append(dst, `{"choices":[`...)
	for choice := range a.ask.choices {
		if choice > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"finish_reason":"`...), a.finishReason()...)
		dst = appendInt(dst, `","index":`, choice)
		dst = append(dst, `,"logprobs":null,"message":{"content":`...)
		dst = s.appendMessage(dst, choice)
		dst = append(dst, "}}"...)
	}
	dst = a.appendTailAs(dst, "chat.completion")
	return append(a.appendUsage(append(dst, `,"usage":`...)), '}')
}

// appendMessage appends a message's members from the value of content on.
func (s *chatShape) appendMessage(dst []byte, choice int) []byte {
	a := (*answer)(s)
	if a.p.Tools {
		dst = append(dst, "null"...)
	} else {
		dst = append(a.appendText(append(dst, '"')), '"')
	}
	if a.reasoning > 0 {
		dst = append(dst, `,"reasoning":"`...)
		for i := range a.reasoning {
			dst = a.appendWord(dst, i)
		}
		dst = append(dst, '"')
	}
	dst = append(dst, `,"role":"assistant"`...)
	if !a.p.Tools {
		return dst
	}
	dst = append(dst, `,"tool_calls":[{"function":{"arguments":"`...)
	for i := range a.steps - a.reasoning {
		dst = a.appendArguments(dst, i)
	}
	dst = a.appendToolName(append(dst, '"'))
	dst = appendInt(dst, `},"id":"call_`, choice)
	return append(dst, `","index":0,"type":"function"}]`...)
}

// appendTailAs appends the shared members under another object name.
func (a *answer) appendTailAs(dst []byte, object string) []byte {
	const chunk, rest = `"chat.completion.chunk"`, `,"system_fingerprint":"fastcoe"`
	dst = append(dst, a.tail[:len(a.tail)-len(chunk)-len(rest)]...)
	return append(append(append(append(dst, '"'), object...), '"'), rest...)
}

// appendUsage appends SambaNova's usage object; times are seconds.
func (a *answer) appendUsage(dst []byte) []byte {
	now := time.Now()
	total := now.Sub(a.start).Seconds()
	ttft := a.first.Sub(a.start).Seconds()
	tokens := a.steps * a.ask.choices
	perSecond := func(n int, seconds float64) float64 { return float64(n) / max(seconds, 1e-6) }
	epoch := func(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
	dst = appendInt(dst, `{"completion_tokens":`, tokens)
	dst = appendFloat(dst, `,"completion_tokens_after_first_per_sec":`, perSecond(max(tokens-1, 0), total-ttft))
	dst = appendInt(dst, `,"completion_tokens_details":{"reasoning_tokens":`, a.reasoning*a.ask.choices)
	dst = appendFloat(dst, `},"completion_tokens_per_sec":`, perSecond(tokens, total))
	dst = appendFloat(dst, `,"end_time":`, epoch(now))
	dst = appendInt(dst, `,"is_last_response":true,"prompt_tokens":`, a.ask.prompt)
	dst = appendFloat(dst, `,"prompt_tokens_details":{"cached_tokens":0},"start_time":`, epoch(a.start))
	dst = appendFloat(dst, `,"time_to_first_token":`, ttft)
	dst = appendFloat(dst, `,"total_latency":`, total)
	dst = appendInt(dst, `,"total_tokens":`, a.ask.prompt+tokens)
	dst = appendFloat(dst, `,"total_tokens_per_sec":`, perSecond(a.ask.prompt+tokens, total))
	return append(dst, '}')
}

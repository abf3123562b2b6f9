package ask

import (
	"fmt"
	"unicode/utf8"

	"eisbach/sse/chunk"
)

// member is a key that means something to the edge in its place.
type member uint8

const (
	none  member = iota
	known        // and allowed, but its value is not looked at
	model
	stream
	streamOptions
	includeUsage
	maxTokens
	maxCompletionTokens
	maxOutputTokens
	n
	bestOf
	messages
	system
	instructions
	input
	content
	memberCount
)

// String is the key.
func (m member) String() string {
	switch m {
	case model:
		return "model"
	case stream:
		return "stream"
	case streamOptions:
		return "stream_options"
	case includeUsage:
		return "stream_options.include_usage"
	case maxTokens:
		return "max_tokens"
	case maxCompletionTokens:
		return "max_completion_tokens"
	case maxOutputTokens:
		return "max_output_tokens"
	case n:
		return "n"
	case bestOf:
		return "best_of"
	case messages:
		return "messages"
	case system:
		return "system"
	case instructions:
		return "instructions"
	}
	return ""
}

// place is where in a request an object or array is.
type place uint8

const (
	elsewhere   place = iota
	root              // the request
	options           // stream_options
	messageList       // messages
	inputList         // input of responses: messages and other items
	message           // one of them
	partList          // content of a message, or the system prompt, as an array
	part              // one of its blocks
)

// child is the place of what a member of an object, or any element of an array, holds.
func (p place) child(m member) place {
	switch {
	case p == root && m == streamOptions:
		return options
	case p == root && m == messages:
		return messageList
	case p == root && m == input:
		return inputList
	case p == messageList, p == inputList:
		return message
	case p == root && m == system, p == message && m == content:
		return partList
	case p == partList:
		return part
	}
	return elsewhere
}

// find tells which member a key is. A key that is a member only once its letters
// are folded is a problem.
func find(p place, name []byte) (member, *Problem) {
	if p == elsewhere {
		return none, nil
	}
	if m := lookup(p, name); m != none {
		return m, nil
	}
	var buffer [longest]byte
	folded, changed := fold(buffer[:0], name)
	if !changed || lookup(p, folded) == none {
		return none, nil
	}
	return none, &Problem{Code: CodeNotAllowed, Param: printable(name),
		Message: fmt.Sprintf("The key %q is written %q.", printable(name), string(folded))}
}

// longest is how long a key can be that is a member but for its letters; U+017F
// takes two bytes and U+212A three, but they are folded first.
const longest = 32

// fold appends name with its letters folded as by encoding/json: apart from
// ASCII only U+017F and U+212A fold into it. It stops where no member can follow.
func fold(dst, name []byte) (folded []byte, changed bool) {
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRune(name[i:])
		switch {
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
			changed = true
		case r == 'ſ':
			r, changed = 's', true
		case r == '\u212a': // the Kelvin sign
			r, changed = 'k', true
		}
		if r >= utf8.RuneSelf || len(dst) == longest {
			return dst, false
		}
		dst = append(dst, byte(r))
		i += size
	}
	return dst, changed
}

// lookup tells which member an exact key is.
func lookup(p place, name []byte) member {
	switch p {
	case root:
		return lookupRoot(name)
	case options:
		if string(name) == "include_usage" {
			return includeUsage
		}
	case message:
		switch string(name) {
		case "content":
			return content
		case "role", "type":
			return known
		}
	case part:
		switch string(name) {
		case "type", "text":
			return known
		}
	}
	return none
}

// lookupRoot knows the request parameters of the API references of OpenAI (chat
// completions, completions, responses, embeddings) and Anthropic (messages), and
// those that SambaNova and vLLM add.
func lookupRoot(name []byte) member {
	switch string(name) {
	case "model":
		return model
	case "stream":
		return stream
	case "stream_options":
		return streamOptions
	case "max_tokens":
		return maxTokens
	case "max_completion_tokens":
		return maxCompletionTokens
	case "max_output_tokens":
		return maxOutputTokens
	case "n":
		return n
	case "best_of":
		return bestOf
	case "messages":
		return messages
	case "system":
		return system
	case "instructions":
		return instructions
	case "input":
		return input
	case "prompt",
		"temperature", "top_p", "top_k", "min_p", "stop", "stop_sequences", "stop_token_ids", "seed",
		"frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "logit_bias",
		"logprobs", "top_logprobs", "prompt_logprobs", "min_tokens", "ignore_eos", "use_beam_search",
		"tools", "tool_choice", "parallel_tool_calls", "max_tool_calls", "functions", "function_call",
		"response_format", "reasoning", "reasoning_effort", "thinking", "verbosity", "text",
		"chat_template", "chat_template_kwargs", "modalities", "audio", "prediction", "web_search_options",
		"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
		"prompt_cache_retention", "cache_control", "suffix", "echo", "include", "previous_response_id",
		"conversation", "background", "truncation", "context_management", "container", "mcp_servers",
		"output_config", "output_format", "encoding_format", "dimensions", "do_sample", "guided_json",
		"guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "priority":
		return known
	}
	return none
}

// limitMembers gives the members by which an endpoint is told how much it may
// produce: the one that AppendTo adds, and another one that is heeded too.
func limitMembers(shape chunk.Shape) (own, other member) {
	switch shape {
	case chunk.Chat:
		return maxTokens, maxCompletionTokens
	case chunk.Completion, chunk.Messages:
		return maxTokens, none
	case chunk.Responses:
		return maxOutputTokens, none
	}
	return none, none
}

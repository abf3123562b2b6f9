package sim

import (
	"bytes"
	"fmt"

	"github.com/valyala/fastjson"
)

// ask is what the provider needs to know of an inference request. Its slices
// point into the parser's memory and are valid until the next request.
type ask struct {
	root    *fastjson.Value
	model   []byte
	id      []byte // see Stats
	user    []byte // the last text a user said, nil without one
	tool    []byte // the name of the first tool
	prompt  int    // tokens
	limit   int    // tokens; -1: none
	choices int
	stream  bool
	usage   bool // stream_options.include_usage
}

// problem is a refusal.
type problem struct {
	status              int
	kind, code, message string // code "" is null
}

func invalid(code, format string, args ...any) *problem {
	return &problem{400, "invalid_request_error", code, fmt.Sprintf(format, args...)}
}

// parse reads a body; e is one of the inference endpoints.
func (a *ask) parse(p *fastjson.Parser, body []byte, e endpoint) *problem {
	root, err := p.ParseBytes(body)
	if err != nil || root.Type() != fastjson.TypeObject {
		return invalid("", "The body is not a JSON object.")
	}
	*a = ask{root: root, limit: -1, choices: 1}
	a.model = root.GetStringBytes("model")
	a.id = root.GetStringBytes("metadata", "request_id")
	if a.id == nil {
		a.id = root.GetStringBytes("user")
	}
	if len(a.model) == 0 {
		return invalid("", "The field model is missing.")
	}
	input := root.Get(e.input())
	if input == nil || input.Type() == fastjson.TypeNull {
		return invalid("", "The field %s is missing.", e.input())
	}
	bytes := textBytes(input) + textBytes(root.Get("system")) + textBytes(root.Get("instructions"))
	a.prompt = (bytes + 3) / 4
	a.user = lastUser(input)
	a.stream = root.GetBool("stream")
	a.usage = root.GetBool("stream_options", "include_usage")
	a.tool = root.GetStringBytes("tools", "0", "function", "name")
	return a.numbers()
}

func (a *ask) numbers() *problem {
	for _, name := range [...]string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		v := a.root.Get(name)
		if v == nil || v.Type() == fastjson.TypeNull {
			continue
		}
		n, err := v.Int()
		if err != nil {
			return invalid("invalid_type", "%s is not an integer.", name)
		}
		if n < 1 {
			return invalid("integer_below_min_value", "%s is below 1.", name)
		}
		if a.limit < 0 || n < a.limit {
			a.limit = n
		}
	}
	if v := a.root.Get("n"); v != nil && v.Type() != fastjson.TypeNull {
		n, err := v.Int()
		if err != nil || n < 1 || n > 8 {
			return invalid("invalid_value", "n is not an integer from 1 to 8.")
		}
		a.choices = n
	}
	return nil
}

// textBytes counts the text in a string, a message, a content part or a list of
// those.
func textBytes(v *fastjson.Value) int {
	if v == nil {
		return 0
	}
	switch v.Type() {
	case fastjson.TypeString:
		return len(v.GetStringBytes())
	case fastjson.TypeArray:
		n := 0
		for _, item := range v.GetArray() {
			n += textBytes(item)
		}
		return n
	case fastjson.TypeObject:
		return textBytes(v.Get("content")) + textBytes(v.Get("text"))
	}
	return 0
}

// lastUser returns the text of the last message of a user.
func lastUser(input *fastjson.Value) []byte {
	if input.Type() == fastjson.TypeString {
		return input.GetStringBytes()
	}
	items := input.GetArray()
	for i := len(items) - 1; i >= 0; i-- {
		switch {
		case items[i].Type() == fastjson.TypeString:
			return items[i].GetStringBytes()
		case string(items[i].GetStringBytes("role")) == "user":
			return firstText(items[i].Get("content"))
		}
	}
	return nil
}

func firstText(content *fastjson.Value) []byte {
	if content == nil || content.Type() == fastjson.TypeString {
		return content.GetStringBytes()
	}
	for _, part := range content.GetArray() {
		if text := part.GetStringBytes("text"); text != nil {
			return text
		}
	}
	return nil
}

// scripted reports whether the model's name holds settings.
func (a *ask) scripted() bool { return bytes.Contains(a.model, []byte("sim_")) }

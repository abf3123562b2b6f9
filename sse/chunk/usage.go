package chunk

import "github.com/valyala/fastjson"

const (
	maxUsage = 4 << 10 // a usage object is some hundred bytes
	maxCount = 1 << 40 // tokens; larger counts are no counts, and sums of this don't overflow
	maxRate  = 1e9
)

// Merge adds what a later event of the same stream says. Providers send
// cumulative counts, so they replace; a zero replaces nothing, since Anthropic's
// message_start knows the prompt and message_delta the output, each with zeros
// or nothing for the rest.
func (u *Usage) Merge(v Usage) {
	u.Known = u.Known || v.Known
	replace(&u.Prompt, v.Prompt)
	replace(&u.Completion, v.Completion)
	replace(&u.Total, v.Total)
	replace(&u.Cached, v.Cached)
	replace(&u.Reasoning, v.Reasoning)
	replace(&u.TotalLatency, v.TotalLatency)
	replace(&u.TimeToFirstToken, v.TimeToFirstToken)
	replace(&u.TokensPerSecond, v.TokensPerSecond)
}

func replace[T int64 | float64](old *T, latest T) {
	if latest != 0 {
		*old = latest
	}
}

// usage reads a usage object in the names of all providers. Anthropic counts
// what it read from and wrote to its cache beside input_tokens, OpenAI within.
func (r *Reader) usage(shape Shape, v value) {
	if !v.is('{') || len(v) > maxUsage {
		return
	}
	doc, err := r.parser.ParseBytes(v)
	if err != nil {
		return
	}
	c := counter{doc: doc}
	u := Usage{
		Prompt:     max(c.count("prompt_tokens"), c.count("input_tokens")),
		Completion: max(c.count("completion_tokens"), c.count("output_tokens")),
		Total:      c.count("total_tokens"),
		Cached: max(c.count("prompt_tokens_details", "cached_tokens"), c.count("input_tokens_details", "cached_tokens"),
			c.count("prompt_cache_hit_tokens"), c.count("cache_read_input_tokens")),
		Reasoning: max(c.count("completion_tokens_details", "reasoning_tokens"),
			c.count("output_tokens_details", "reasoning_tokens")),
	}
	if shape == Messages {
		u.Prompt += c.count("cache_read_input_tokens") + c.count("cache_creation_input_tokens")
	}
	u.Known = c.known
	u.TotalLatency = rate(doc, "total_latency")
	u.TimeToFirstToken = rate(doc, "time_to_first_token")
	u.TokensPerSecond = rate(doc, "completion_tokens_per_sec")
	r.view.Usage = u
}

// counter reads counts and remembers whether there was any.
type counter struct {
	doc   *fastjson.Value
	known bool
}

// count makes a non-negative whole number of whatever number is there.
func (c *counter) count(path ...string) int64 {
	v := c.doc.Get(path...)
	if v == nil || v.Type() != fastjson.TypeNumber {
		return 0
	}
	c.known = true
	if f := v.GetFloat64(); f >= 1 {
		return int64(min(f, maxCount))
	}
	return 0
}

func rate(doc *fastjson.Value, key string) float64 {
	if f := doc.GetFloat64(key); f > 0 && f < maxRate {
		return f
	}
	return 0
}

// Package chunk reads the few fields that the edge needs out of the JSON of a
// stream's event or of a whole answer.
package chunk

// Shape says which API's answers are read.
type Shape uint8

// The shapes of the endpoints that the edge understands. Other is any endpoint
// that passes through: each of its data events counts as content.
const (
	Chat Shape = iota
	Completion
	Responses
	Messages
	Embeddings
	Other
)

// Kind is what an event is to a client that waits for an answer.
type Kind uint8

// Kinds of events.
const (
	Empty     Kind = iota // a role, a ping, a null: nothing that a model produced
	Content               // content, reasoning, a refusal or a tool call
	UsageOnly             // no choices, only the usage: withheld where it was not asked for
	Done                  // [DONE], response.completed, message_stop: the upstream says all is said
	Error                 // an error object, in whatever shape
)

// View is what one event says. Its byte slices are lent until the next call of
// the Reader that returned it.
type View struct {
	Kind       Kind
	Finish     bool   // a choice ended: a finish_reason, a stop_reason
	Broken     bool   // the finish reason says that the provider broke off (DeepSeek: insufficient_system_resource)
	Fix        Fix    // what official SDKs would stumble over: see Reader.Repair
	Reason     Reason // of an Error: what its body says of the cause
	TextBytes  int    // decoded bytes of generated text: content, reasoning, refusal, tool call names and arguments
	Usage      Usage
	Message    []byte // of an Error, decoded; empty where it has none
	Type, Code []byte // of an Error, decoded; a number is given as its digits
	RequestID  []byte // of an Error, decoded: the upstream's name of the request, where its body has it
}

// Usage counts tokens, as the provider said. Known is false where it said nothing.
type Usage struct {
	Known            bool
	Prompt           int64
	Completion       int64 // as sent; reasoning outside it shows in Total
	Total            int64
	Cached           int64   // of Prompt, read from the provider's cache
	Reasoning        int64   // of Completion, where told apart
	TotalLatency     float64 // seconds, the provider's own (Infercom, SambaNova: total_latency); 0 where absent
	TimeToFirstToken float64 // seconds, likewise
	TokensPerSecond  float64 // completion_tokens_per_sec, likewise
}

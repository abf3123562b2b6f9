package chunk

import (
	"bytes"
	"strings"
)

// All that providers do in ways of their own, and that the edge has to know,
// stands in this file, each with the name of the provider that does it.

// Fix says what in a chunk official SDKs would stumble over, as a set of bits.
// Repair puts it right.
type Fix uint8

// Fixes of chat completions and completions; events of other shapes have none.
const (
	// FixError takes a key "error" out of a chunk that is no error: openai-go
	// and the Vercel AI SDK fail on its presence. Several front ends of vLLM
	// send "error":null.
	FixError Fix = 1 << iota
	// FixChoices makes choices an array, an empty one where it is null
	// (SambaNova and Infercom declare it nullable) or missing (usage trailers of
	// several gateways): the AI SDK takes nothing else.
	FixChoices
	// FixCreated makes created a whole number by cutting its fraction off
	// (SambaNova and Infercom send one) and its quotes (some gateways); openai-go
	// declares an int64. What is no number goes, since SDKs do without it.
	FixCreated
	// FixRole takes a role other than "assistant" and "" out of a delta, null
	// too: the AI SDK knows no other.
	FixRole
	// FixIndex gives a piece of a tool call the index that is missing or null
	// (Gemini sends none, SambaNova and Infercom declare it nullable): SDKs join
	// the pieces of a call by it. An index that is there stays.
	FixIndex
	// FixFinish makes "tool_calls" of the finish reason "stop" of a choice that
	// called tools, in streams that leave their index out: Gemini says "stop"
	// there, and SDKs then don't run the tools.
	FixFinish
)

func fitCreated(v value) bool {
	const most = 18 // digits that surely fit into an int64
	if v.is('-') {
		v = v[1:]
	}
	for _, c := range v {
		if c-'0' > 9 {
			return false
		}
	}
	return len(v) <= most
}

func fitRole(v value) bool {
	return v.is('"') && (len(v) == len(`""`) || string(v.text()) == "assistant")
}

// mendCreated truncates; it is false for what is no time at all.
func (r *Reader) mendCreated(v value) bool {
	number := v
	if text := value(v.text()); len(text) > 0 && scalarEnd(text, 0) == len(text) {
		number = text
	}
	if !number.isNumber() {
		return false
	}
	from, to := r.at(v), r.at(v)+len(v)
	if point := bytes.IndexByte(number, '.'); !bytes.ContainsAny(number, "eE") {
		if point < 0 {
			point = len(number)
		}
		if !fitCreated(number[:point]) {
			return false
		}
		r.edit(from, r.at(number), textNone, 0)
		r.edit(r.at(number)+point, to, textNone, 0)
		return true
	}
	seconds, ok := r.float(number)
	if !ok || seconds < 0 || seconds >= 1<<53 {
		return false
	}
	r.edit(from, to, textNumber, int64(seconds))
	return true
}

// Provider says whose answers are read: one word does not mean the same
// everywhere.
type Provider uint8

// Providers whose words are known.
const (
	Unknown Provider = iota
	OpenAI
	Infercom
	SambaNova
	HolySheep
	DeepSeek
	Gemini
	Anthropic
)

// ProviderOf tells the provider by the host of its URL, with or without a port.
func ProviderOf(host string) Provider {
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	switch host = strings.ToLower(host); host {
	case "api.openai.com":
		return OpenAI
	case "api.infercom.ai":
		return Infercom
	case "api.sambanova.ai":
		return SambaNova
	case "api.holysheep.ai":
		return HolySheep
	case "api.deepseek.com":
		return DeepSeek
	case "generativelanguage.googleapis.com":
		return Gemini
	case "api.anthropic.com":
		return Anthropic
	}
	if strings.HasSuffix(host, ".api.openai.com") { // eu.api.openai.com
		return OpenAI
	}
	return Unknown
}

// Reason is what an error's body says of its cause. A status of 401, 402, 403,
// 404 or 410 says more than an Invalid does: providers send the type
// invalid_request_error with them.
type Reason uint8

// Reasons of an Error.
const (
	Unsaid    Reason = iota // the body doesn't tell: the status does
	RateLimit               // too much in a short time: later it works
	DayLimit                // the day's quota is used up: no retry helps today
	Overload                // the provider has too much to do
	NoMoney                 // a balance or a spending limit is used up: no retry helps
	Auth                    // the key or the account is refused
	Invalid                 // the request is at fault
	TooLong                 // the request is larger than the model's context or the provider's bound
	NotFound                // there is no such model, or no more
	BadOutput               // the model wrote what the provider couldn't read: once more is safe
	Failed                  // the provider's own fault
	TimedOut                // the provider's own timeout
)

// reason reads the error object whose message, type and code v has already.
func (p Provider) reason(v *View, object value) Reason {
	number := object.get("code")
	if number.is('"') {
		number = number.text()
	}
	if string(number) == "402" { // Gemini: spend exhausted; DeepSeek: balance
		return NoMoney
	}
	if p == HolySheep { // documents no codes
		return reasonOfStatus(number)
	}
	if string(v.Code) == insufficientQuota || string(v.Type) == insufficientQuota && reasonOfCode(v.Code) == Unsaid {
		return p.reasonOfQuota(v)
	}
	for _, why := range [...]Reason{p.ownReason(v, object), reasonOfCode(v.Code), reasonOfType(v.Type), reasonOfType(v.Code)} {
		if why != Unsaid {
			return why
		}
	}
	return reasonOfStatus(number)
}

const insufficientQuota = "insufficient_quota"

// reasonOfQuota tells the meanings of insufficient_quota apart: "slow down" at
// Infercom and SambaNova, "no money" at OpenAI. Where the provider isn't known,
// only the words that OpenAI documents ("Error codes") are about money: a
// healthy upstream is not to be given up for one that is busy.
func (p Provider) reasonOfQuota(v *View) Reason {
	ofThatType := string(v.Type) == insufficientQuota
	switch {
	case p == Infercom, p == SambaNova:
		return RateLimit
	case p == OpenAI, ofThatType && bytes.Contains(v.Message, []byte("exceeded your current quota")):
		return NoMoney
	case reasonOfType(v.Type) == RateLimit:
		return RateLimit
	}
	return Unsaid
}

// ownReason knows what is said in one provider's way. But for quota_exceeded
// these ways can't be mistaken, and resellers pass them on: so the provider isn't
// asked for.
func (p Provider) ownReason(v *View, object value) Reason {
	switch {
	case len(object.get("error_model_output")) > 0: // SambaNova, Infercom; its message is for people
		return BadOutput
	case string(v.Message) == "Insufficient Balance": // DeepSeek; its code says invalid_request_error
		return NoMoney
	}
	if p == Gemini && (isQuotaExceeded(v.Code) || isQuotaExceeded(v.Type)) {
		return DayLimit
	}
	for detail := object.get("details").elements(); detail.next(); { // Gemini: google.rpc's ErrorInfo and QuotaFailure
		why := detail.value.get("reason").text()
		if string(why) == "API_KEY_INVALID" { // comes as INVALID_ARGUMENT
			return Auth
		}
		if p == Gemini && isQuotaExceeded(why) {
			return DayLimit
		}
		for quota := detail.value.get("violations").elements(); quota.next(); {
			if bytes.Contains(quota.value.get("quotaId").text(), []byte("PerDay")) {
				return DayLimit
			}
		}
	}
	return Unsaid
}

func isQuotaExceeded(code []byte) bool { return bytes.EqualFold(code, []byte("quota_exceeded")) }

// reasonOfCode knows the codes that name one cause.
func reasonOfCode(code []byte) Reason {
	switch string(code) {
	case "credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded", // OpenAI
		"organization_usage_limit_exceeded", "billing_hard_limit_reached", "billing_not_active", // OpenAI
		"enforced_spend_limit_reached": // Anthropic
		return NoMoney
	case "rate_limit_exceeded", "slow_down", // OpenAI
		"RESOURCE_EXHAUSTED": // Gemini
		return RateLimit
	case "queue_full", // SambaNova, Infercom
		"UNAVAILABLE": // Gemini
		return Overload
	case "invalid_api_key", // OpenAI, SambaNova, Infercom
		"invalid_authentication",                                      // SambaNova, Infercom
		"unsupported_country_region_territory", "account_deactivated", // OpenAI
		"UNAUTHENTICATED", "PERMISSION_DENIED": // Gemini
		return Auth
	case "context_length_exceeded": // OpenAI, SambaNova, Infercom
		return TooLong
	case "model_not_found", // OpenAI, SambaNova, Infercom
		"model_deprecated", "NOT_FOUND": // SambaNova and Infercom; Gemini
		return NotFound
	case "adapter_mapping_failed": // SambaNova, Infercom
		return BadOutput
	case "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE": // Gemini
		return Invalid
	case "INTERNAL": // Gemini
		return Failed
	case "DEADLINE_EXCEEDED": // Gemini
		return TimedOut
	}
	return Unsaid
}

// reasonOfType knows the types of OpenAI, of Anthropic, and of vLLM and SGLang.
func reasonOfType(kind []byte) Reason {
	switch string(kind) {
	case "rate_limit_error":
		return RateLimit
	case "overloaded_error", "service_unavailable_error":
		return Overload
	case "billing_error":
		return NoMoney
	case "authentication_error", "permission_error":
		return Auth
	case "invalid_request_error", "BadRequestError":
		return Invalid
	case "request_too_large":
		return TooLong
	case "not_found_error", "NotFoundError":
		return NotFound
	case "server_error", "api_error", "InternalServerError":
		return Failed
	case "timeout_error":
		return TimedOut
	}
	return Unsaid
}

// reasonOfStatus reads a code that is an HTTP status, as errors within streams
// have it.
func reasonOfStatus(digits value) Reason {
	switch string(digits) {
	case "400", "422":
		return Invalid
	case "401", "403":
		return Auth
	case "404", "410":
		return NotFound
	case "413":
		return TooLong
	case "429":
		return RateLimit
	case "500", "502":
		return Failed
	case "503", "529":
		return Overload
	case "408", "504":
		return TimedOut
	}
	return Unsaid
}

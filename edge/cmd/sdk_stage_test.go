package cmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"eisbach/pool/sim"
)

// stage plays the upstream for all clients. The name of the model says what is
// played: the situation, an @, and whom for.
type stage struct{ gates sync.Map } // by model

// ServeHTTP implements http.Handler: a client says that it has seen the first
// delta of a stream.
func (s *stage) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	s.seen(r.URL.Query().Get("model"))
}

func (s *stage) seen(model string) {
	g := s.gate(model)
	g.once.Do(func() { close(g.open) })
}

func (s *stage) gate(model string) *gate {
	g, _ := s.gates.LoadOrStore(model, &gate{open: make(chan struct{})})
	return g.(*gate)
}

func (s *stage) answer(c *sim.Call) {
	var asked question
	json.Unmarshal(c.Body, &asked)
	name, _, _ := strings.Cut(asked.Model, "@")
	for _, situation := range append(situations(), commentBlock()) {
		if situation.name != name {
			continue
		}
		p := &play{call: c, gate: s.gate(asked.Model)}
		if strings.HasSuffix(c.Path, "/messages") {
			situation.messages(p)
		} else {
			situation.chat(p)
		}
	}
}

// situation is one that a stream gets into.
type situation struct {
	name           string
	usage, tools   bool   // what the client asks for
	member         string // of a delta, that holds the reasoning
	chat, messages func(*play)
	want           sighting // Error.Message is a part of it; Finish is in the terms of chats
	wantMessages   *sighting
}

// play is the upstream's part in one stream.
type play struct {
	call  *sim.Call
	gate  *gate
	begun bool
}

// gate opens when a client has seen the first delta of a stream.
type gate struct {
	once   sync.Once
	open   chan struct{}
	missed atomic.Bool // it did not in time
}

// send writes events in one packet and one chunk.
func (p *play) send(events ...string) {
	if !p.begun {
		p.begun = true
		p.call.Head(200, "content-type: text/event-stream")
	}
	p.call.Chunk([]byte(strings.Join(events, "")))
}

// sendTorn writes an event with a cut inside of every character that can be cut.
func (p *play) sendTorn(event string) {
	from := 0
	for i := range len(event) {
		if !utf8.RuneStart(event[i]) {
			p.send(event[from:i])
			p.call.Pause(time.Millisecond)
			from = i
		}
	}
	p.send(event[from:])
}

// hold waits until the client has seen the first delta: what comes behind was
// not yet sent when that was there.
func (p *play) hold() {
	select {
	case <-p.gate.open:
	case <-time.After(10 * time.Second):
		p.gate.missed.Store(true)
	}
}

func (p *play) end(events ...string) {
	p.send(events...)
	p.call.End()
}

// breakOff closes the connection inside of an event.
func (p *play) breakOff(event string) {
	p.send(event[:len(event)/2])
	p.call.Close()
}

// What the upstream says in all situations, in two pieces.
const greeting, name = "Grüß Gott, ", "Eisbach \U0001F3C4!"

// delta is a chunk like those of SambaNova's stack.
func delta(members, finish string) string {
	return `data: {"choices":[{"delta":{` + members + `,"role":"assistant"},"finish_reason":` + finish + `,"index":0,"logprobs":null}],` +
		`"created":1790000000,"id":"c1","model":"m","object":"chat.completion.chunk","system_fingerprint":"f"}` + "\n\n"
}

func says(text string) string { return delta(`"content":"`+text+`"`, "null") }

func finishes(reason string) string { return delta(`"content":""`, `"`+reason+`"`) }

const (
	usageChunk = `data: {"choices":[],"created":1790000000,"id":"c1","model":"m","object":"chat.completion.chunk",` +
		`"usage":{"completion_tokens":7,"prompt_tokens":5,"total_tokens":12}}` + "\n\n"
	doneChunk = "data: [DONE]\n\n"
)

// typed is an event of the Messages API.
func typed(kind, members string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + members + "}\n\n"
}

func blockSays(index int, kind, member, text string) string {
	return typed("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":{"type":"%s","%s":"%s"}`, index, kind, member, text))
}

func blockStarts(index int, block string) string {
	return typed("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":{%s}`, index, block))
}

func blockStops(index int) string {
	return typed("content_block_stop", fmt.Sprintf(`,"index":%d`, index))
}

func messageFinishes(reason string) string {
	return typed("message_delta", `,"delta":{"stop_reason":"`+reason+`","stop_sequence":null},"usage":{"output_tokens":7}`)
}

var (
	messageStarts = typed("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],`+
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}`)
	messageGreets = messageStarts + blockStarts(0, `"type":"text","text":""`) + typed("ping", "") + blockSays(0, "text_delta", "text", greeting)
	messageNames  = blockSays(0, "text_delta", "text", name)
	messageEnds   = blockStops(0) + messageFinishes("end_turn")
	messageStops  = typed("message_stop", "")
)

func messageTool(index int, id, arguments string) string {
	cut := strings.IndexByte(arguments, ' ')
	return blockStarts(index, `"type":"tool_use","id":"`+id+`","name":"get_weather","input":{}`) +
		blockSays(index, "input_json_delta", "partial_json", quoted(arguments[:cut])) +
		blockSays(index, "input_json_delta", "partial_json", quoted(arguments[cut:])) + blockStops(index)
}

// quoted is how JSON stands inside of a string.
func quoted(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

func callPiece(members, arguments string) string {
	return delta(`"tool_calls":[{`+members+`"arguments":"`+quoted(arguments)+`"}}]`, "null")
}

// situations are the columns of the matrix.
func situations() []situation {
	whole := sighting{Text: greeting + name, Finish: []string{"stop"}}
	munich, rome := `{"city": "München"}`, `{"city": "Roma"}`
	called := sighting{Finish: []string{"tool_calls"}, Tools: []toolCall{{"call_a", "get_weather", munich}, {"call_b", "get_weather", rome}}}
	broken := func(message, code, kind string) sighting {
		return sighting{Text: greeting, Error: &streamFailure{Message: message, Code: code, Type: kind}}
	}
	plainly := func(p *play) {
		p.send(says(greeting))
		p.hold()
		p.end(says(name), finishes("stop"), usageChunk, doneChunk)
	}
	plainMessage := func(p *play) {
		p.send(messageGreets)
		p.hold()
		p.end(messageNames, messageEnds, messageStops)
	}
	reasoning := whole
	reasoning.Reasoning = "Hm, so be it."
	thinks := func(p *play) {
		p.send(messageStarts, blockStarts(0, `"type":"thinking","thinking":"","signature":""`), blockSays(0, "thinking_delta", "thinking", "Hm, "))
		p.hold()
		p.send(blockSays(0, "thinking_delta", "thinking", "so be it."), blockSays(0, "signature_delta", "signature", "c2ln"), blockStops(0))
		p.send(blockStarts(1, `"type":"text","text":""`), blockSays(1, "text_delta", "text", greeting), blockSays(1, "text_delta", "text", name))
		p.end(blockStops(1), messageFinishes("end_turn"), messageStops)
	}
	return []situation{
		{name: "plain", want: whole, chat: plainly, messages: plainMessage},
		{name: "usage", usage: true, want: whole, chat: plainly, messages: plainMessage},
		{name: "tool calls", tools: true, want: called,
			chat: func(p *play) {
				p.send(callPiece(`"index":0,"id":"call_a","type":"function","function":{"name":"get_weather",`, ""))
				p.send(callPiece(`"index":0,"function":{`, munich[:9]))
				p.hold()
				p.send(callPiece(`"index":0,"function":{`, munich[9:]))
				p.send(callPiece(`"index":1,"id":"call_b","type":"function","function":{"name":"get_weather",`, rome[:3]))
				p.end(callPiece(`"index":1,"function":{`, rome[3:]), finishes("tool_calls"), usageChunk, doneChunk)
			},
			messages: func(p *play) {
				p.send(messageStarts, messageTool(0, "call_a", munich))
				p.hold()
				p.end(messageTool(1, "call_b", rome), messageFinishes("tool_use"), messageStops)
			}},
		{name: "calls without index", tools: true, want: called,
			chat: func(p *play) { // as SambaNova and Gemini may write them
				p.send(callPiece(`"id":"call_a","index":null,"type":"function","function":{"name":"get_weather",`, munich[:9]))
				p.hold()
				p.send(callPiece(`"function":{`, munich[9:]))
				p.send(callPiece(`"id":"call_b","type":"function","function":{"name":"get_weather",`, rome))
				p.end(finishes("stop"), usageChunk, doneChunk)
			}},
		{name: "reasoning", member: "reasoning", want: reasoning, messages: thinks,
			chat: func(p *play) {
				p.send(delta(`"reasoning":"Hm, "`, "null"))
				p.send(delta(`"reasoning":"so be it."`, "null"))
				p.send(says(greeting))
				p.hold() // here only, as not every client shows the reasoning
				p.end(says(name), finishes("stop"), usageChunk, doneChunk)
			}},
		{name: "reasoning_content", member: "reasoning_content", want: reasoning,
			chat: func(p *play) {
				p.send(delta(`"reasoning_content":"Hm, "`, "null"))
				p.hold()
				p.send(delta(`"reasoning_content":"so be it."`, "null"))
				p.end(says(greeting), says(name), finishes("stop"), usageChunk, doneChunk)
			}},
		{name: silence, want: whole,
			chat: func(p *play) {
				p.call.Pause(3 * time.Second)
				p.send(": keep-alive\n\n", says(greeting))
				p.hold()
				p.send(": keep-alive\n\n")
				p.call.Pause(3 * time.Second)
				p.end(says(name), finishes("stop"), usageChunk, doneChunk)
			},
			messages: func(p *play) {
				p.call.Pause(3 * time.Second)
				p.send(messageGreets)
				p.hold()
				p.call.Pause(3 * time.Second)
				p.end(messageNames, messageEnds, messageStops)
			}},
		{name: "error", want: broken("The model crashed.", "upstream_error", "server_error"),
			chat: func(p *play) {
				p.send(says(greeting))
				p.hold()
				p.end(`data: {"error":{"code":null,"message":"The model crashed.","param":null,"type":"internal"}}` + "\n\n")
			},
			messages: func(p *play) {
				p.send(messageGreets)
				p.hold()
				p.end(typed("error", `,"error":{"type":"api_error","message":"The model crashed."}`))
			}},
		{name: "cut", want: broken("broke off", "upstream_disconnected", "server_error"),
			chat: func(p *play) {
				p.send(says(greeting))
				p.hold()
				p.breakOff(says(name))
			},
			messages: func(p *play) {
				p.send(messageGreets)
				p.hold()
				p.breakOff(messageNames)
			}},
		// The Messages API has an end of its own, without which a stream is cut.
		{name: "no [DONE]", want: whole,
			chat: func(p *play) {
				p.send(says(greeting))
				p.hold()
				p.end(says(name), finishes("stop"), usageChunk)
			},
			messages: func(p *play) {
				p.send(messageGreets)
				p.hold()
				p.end(messageNames)
			},
			wantMessages: &sighting{Text: greeting + name, Error: &streamFailure{Message: "broke off"}}},
		{name: "torn characters", want: whole,
			chat: func(p *play) {
				p.sendTorn(says(greeting))
				p.hold()
				p.sendTorn(says(name))
				p.end(finishes("stop"), usageChunk, doneChunk)
			},
			messages: func(p *play) {
				p.sendTorn(messageGreets)
				p.hold()
				p.sendTorn(messageNames)
				p.end(messageEnds, messageStops)
			}},
		{name: "oddities", want: whole, chat: oddly, messages: func(p *play) {
			crlf := strings.NewReplacer("\n", "\r\n", "data: ", "data:")
			p.send("\uFEFF", crlf.Replace(messageGreets))
			p.hold()
			p.end(": keep-alive\r\n\r\n", crlf.Replace(messageNames+messageEnds+messageStops))
		}},
	}
}

// oddly writes a chat as no client could read it.
func oddly(p *play) {
	crlf := strings.NewReplacer("\n", "\r\n", "data: ", "data:")
	odd := strings.NewReplacer(`"created":1790000000`, `"created":1790000000.25,"error":null,"usage":null`, `"role":"assistant"`, `"role":null`)
	p.send("\uFEFF: hello\r\n\r\n", crlf.Replace(odd.Replace(says(greeting))))
	p.hold()
	p.send("event: keep-alive\n\ndata:\n\n", odd.Replace(says(name)), finishes("stop"))
	p.end(strings.Replace(usageChunk, `"choices":[]`, `"choices":null`, 1), "data: [DONE] \n\n")
}

// silence lasts, and keeps no processor busy.
const silence = "silence"

// commentBlock is what no upstream does here: a gateway's heartbeat with a
// blank line of its own.
func commentBlock() situation {
	return situation{name: "comment block", want: sighting{Text: greeting + name, Finish: []string{"stop"}},
		chat: func(p *play) {
			p.send(says(greeting))
			p.send(": hb\n\n")
			p.end(says(name), finishes("stop"), doneChunk)
		}}
}

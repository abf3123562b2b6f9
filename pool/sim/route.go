package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"time"
)

// endpoint is one of the paths that a provider serves.
type endpoint int

const (
	unknown endpoint = iota
	chat
	completions
	responses
	messages
	embeddings
	transcriptions
	models
	oneModel
)

// route finds the endpoint at the end of a path, whatever base is in front; id
// is that of oneModel.
func route(method, path string) (e endpoint, id string) {
	if method == "GET" {
		if strings.HasSuffix(path, "/models") {
			return models, ""
		}
		if _, id, ok := strings.Cut(path, "/models/"); ok {
			return oneModel, id
		}
	}
	if method != "POST" {
		return unknown, ""
	}
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return chat, ""
	case strings.HasSuffix(path, "/completions"):
		return completions, ""
	case strings.HasSuffix(path, "/responses"):
		return responses, ""
	case strings.HasSuffix(path, "/messages"):
		return messages, ""
	case strings.HasSuffix(path, "/embeddings"):
		return embeddings, ""
	case strings.HasSuffix(path, "/audio/transcriptions"):
		return transcriptions, ""
	}
	return unknown, ""
}

// input is the member that holds the prompt.
func (e endpoint) input() string {
	switch e {
	case completions:
		return "prompt"
	case responses, embeddings:
		return "input"
	}
	return "messages"
}

// streamsBody reports whether the request's body is read as it comes.
func (c *Call) streamsBody() bool {
	e, _ := route(c.Method, c.Path)
	return e == transcriptions
}

// play answers as the built-in provider. It returns an error if the request's
// body cannot be read or the client leaves.
func (c *Call) play() error {
	e, id := route(c.Method, c.Path)
	a := &c.conn.answer
	a.begin(c, e)
	if e == transcriptions && c.Body == nil {
		return a.transcribe(&c.conn.body)
	}
	if p := c.authorize(); p != nil {
		return a.refuse(p)
	}
	switch e {
	case unknown:
		return a.page(404, "application/json", `{"error":"Not found"}`)
	case models:
		return a.other(c.conn.srv.appendModels)
	case oneModel:
		if !c.conn.srv.offers(id) {
			return a.refuse(noModel(id))
		}
		return a.other(func(dst []byte) []byte { return appendModel(dst, id) })
	case transcriptions:
		return a.transcribe(bytes.NewReader(c.Body))
	}
	return a.infer()
}

func (c *Call) authorize() *problem {
	ok, named := c.conn.req.authorized(c.conn.srv.o.Keys)
	switch {
	case ok:
		return nil
	case named:
		return &problem{401, "invalid_request_error", "invalid_api_key", "The API key is not valid."}
	}
	return &problem{401, "invalid_request_error", "", "The API key is missing."}
}

func noModel(id string) *problem {
	return &problem{404, "invalid_request_error", "model_not_found", "There is no model " + id + "."}
}

// infer answers an inference request.
func (a *answer) infer() error {
	c, s := a.call, a.call.conn.srv
	if p := a.ask.parse(&c.conn.parser, c.Body, a.endpoint); p != nil {
		return a.refuse(p)
	}
	if c.id = a.ask.id; c.id == nil {
		c.id = c.conn.req.get("x-request-id")
	}
	s.counts.noteID(c.id, 1, 0)
	if !a.ask.scripted() && !s.offers(string(a.ask.model)) {
		return a.refuse(noModel(string(a.ask.model)))
	}
	if p := a.settle(s.o.Params); p != nil {
		return a.refuse(p)
	}
	var within bool
	if a.limits, within = s.take(time.Now(), 1); !within {
		return a.refuse(&problem{429, "rate_limit_error", "insufficient_quota", "Rate limit exceeded."})
	}
	if over, err := a.refuseByFault(); over {
		return err
	}
	s.counts.noteID(c.id, 0, 1)
	s.counts.prompt.Add(int64(a.ask.prompt))
	stream := a.ask.stream
	switch a.p.Fail {
	case JSON:
		stream = false
	case SSE:
		stream = true
	}
	switch {
	case a.endpoint == embeddings:
		return a.wholly(0, (*answer).appendEmbeddings)
	case stream:
		s.counts.streams.Add(1)
		return a.stream()
	}
	return a.wholly(a.steps, func(a *answer, dst []byte) []byte { return a.shape.whole(dst) })
}

// other answers a request that is no inference: paced and spoilt by headers only.
func (a *answer) other(body func(dst []byte) []byte) error {
	if p := a.settle(Params{}); p != nil {
		return a.refuse(p)
	}
	if over, err := a.refuseByFault(); over {
		return err
	}
	return a.wholly(0, func(_ *answer, dst []byte) []byte { return body(dst) })
}

// transcribe reads an upload without holding it and answers with its size and
// SHA-256, so that a test can tell whether it came through unchanged.
func (a *answer) transcribe(upload io.Reader) error {
	hash := sha256.New()
	n, err := io.Copy(hash, upload)
	if err != nil {
		return err
	}
	if !a.call.asked.Load() {
		a.call.conn.arrived(n)
	}
	if p := a.call.authorize(); p != nil {
		return a.refuse(p)
	}
	a.call.id = a.call.conn.req.get("x-request-id")
	counts := &a.call.conn.srv.counts
	counts.noteID(a.call.id, 1, 0)
	return a.other(func(dst []byte) []byte {
		counts.noteID(a.call.id, 0, 1)
		dst = appendInt(dst, `{"sim_bytes":`, int(n))
		dst = append(dst, `,"sim_sha256":"`...)
		dst = hex.AppendEncode(dst, hash.Sum(nil))
		return append(dst, `","text":"This is a simulated transcription."}`...)
	})
}

// offers reports whether the provider has a model.
func (s *Server) offers(id string) bool {
	return len(s.o.Models) == 0 || slices.Contains(s.o.Models, id)
}

func (s *Server) appendModels(dst []byte) []byte {
	dst = append(dst, `{"data":[`...)
	if len(s.o.Models) == 0 {
		dst = appendModel(dst, "eisbach-sim")
	}
	for i, id := range s.o.Models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendModel(dst, id)
	}
	return append(dst, `],"object":"list"}`...)
}

func appendModel(dst []byte, id string) []byte {
	dst = append(dst, `{"context_length":131072,`...)
	dst = appendQuoted(dst, `"id":`, []byte(id))
	return append(dst, `,"max_completion_tokens":131072,"object":"model","owned_by":"sim",`+
		`"pricing":{"completion":0,"duration_per_hour":0,"prompt":0},"sn_metadata":{"is_external":false,"region":"EU"}}`...)
}

// refuse answers with an error in the shape of the endpoint.
func (a *answer) refuse(p *problem, fields ...string) error {
	body := a.events[:0]
	if a.endpoint == messages {
		body = appendQuoted(body, `{"error":{"message":`, []byte(p.message))
		body = appendQuoted(body, `,"type":`, []byte(messagesError(p.status)))
		body = append(body, `},"request_id":"`...)
		body = append(appendUUID(body, a.call.N), `","type":"error"}`...)
	} else {
		body = append(body, `{"error":`...)
		body = append(appendProblem(body, p), `,"request_id":"`...)
		body = append(appendUUID(body, a.call.N), `"}`...)
	}
	a.events = body
	return a.head(p.status, "application/json", int64(len(body)), body, fields...)
}

// appendProblem appends the error object of the OpenAI-style endpoints.
func appendProblem(dst []byte, p *problem) []byte {
	if p.code == "" {
		dst = append(dst, `{"code":null`...)
	} else {
		dst = appendQuoted(dst, `{"code":`, []byte(p.code))
	}
	dst = appendQuoted(dst, `,"message":`, []byte(p.message))
	return append(appendQuoted(dst, `,"param":null,"type":`, []byte(p.kind)), '}')
}

// messagesError is the error type that Anthropic's API has for a status.
func messagesError(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 404:
		return "not_found_error"
	case 429:
		return "rate_limit_error"
	case 400:
		return "invalid_request_error"
	}
	return "api_error"
}

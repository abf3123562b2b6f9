// Package client is what the Go programs of the matrix share: they put
// questions through their SDK and print what it showed, one JSON line each.
// ../../node/matrix.mjs does the same in JavaScript.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Question is one stream to be asked for.
type Question struct {
	Model string // names the situation, and its asker for the signal
	Usage bool   // ask for usage
	Tools bool   // offer the tool Tool
}

// Tool is the function that a question offers, with an object of any kind.
const Tool = "get_weather"

// Sighting is what an SDK showed of one stream.
type Sighting struct {
	Model     string
	SDK       string // its version
	Text      string
	Reasoning string
	Finish    []string
	Usage     []Usage
	Tools     []*Call
	Error     *Failure

	first func() // called with the first delta, then nil
}

// Usage is what was shown of tokens.
type Usage struct{ Prompt, Completion int64 }

// Call is one call of a tool, put together from its pieces.
type Call struct{ ID, Name, Arguments string }

// Failure is an error as far as the SDK showed it.
type Failure struct{ Message, Code, Type string }

// AddText takes a piece of text.
func (s *Sighting) AddText(piece string) { s.Text += piece; s.delta(piece) }

// AddReasoning takes a piece of reasoning.
func (s *Sighting) AddReasoning(piece string) { s.Reasoning += piece; s.delta(piece) }

// AddFinish takes a finish reason, "" for none.
func (s *Sighting) AddFinish(reason string) {
	if reason != "" {
		s.Finish = append(s.Finish, reason)
	}
}

// AddUsage takes a usage.
func (s *Sighting) AddUsage(prompt, completion int64) {
	s.Usage = append(s.Usage, Usage{prompt, completion})
}

// AddCall takes a piece of the tool call with that index.
func (s *Sighting) AddCall(index int, id, name, arguments string) {
	for len(s.Tools) <= index {
		s.Tools = append(s.Tools, new(Call))
	}
	call := s.Tools[index]
	call.ID += id
	call.Name += name
	call.Arguments += arguments
	s.delta("a call")
}

func (s *Sighting) delta(piece string) {
	if piece != "" && s.first != nil {
		s.first()
		s.first = nil
	}
}

// FailureIn finds the error object in an SDK's error that only quotes it.
func FailureIn(err error) *Failure {
	var body struct {
		Failure
		Error *Failure
	}
	_, quoted, _ := strings.Cut(err.Error(), "{")
	if json.NewDecoder(strings.NewReader("{"+quoted)).Decode(&body) != nil {
		return &Failure{Message: err.Error()}
	}
	if body.Error != nil {
		return body.Error
	}
	return &body.Failure
}

// Main puts the questions on standard input, all at once, with ask. module is
// the path of the SDK.
func Main(module string, ask func(ctx context.Context, base, key string, q Question, s *Sighting)) {
	if len(os.Args) != 4 {
		fmt.Fprintf(os.Stderr, "usage: %s BASEURL KEY SIGNALURL <QUESTIONS\n", os.Args[0])
		os.Exit(2)
	}
	var questions []Question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := json.NewEncoder(os.Stdout)
	var running sync.WaitGroup
	var printing sync.Mutex
	for _, q := range questions {
		running.Go(func() {
			s := &Sighting{Model: q.Model, SDK: version(module), first: func() { signal(os.Args[3], q.Model) }}
			ask(ctx, os.Args[1], os.Args[2], q, s)
			printing.Lock()
			defer printing.Unlock()
			out.Encode(s)
		})
	}
	running.Wait()
}

// signal tells the upstream that the first delta was seen.
func signal(to, model string) {
	answer, err := http.Post(to+"?model="+url.QueryEscape(model), "", nil)
	if err == nil {
		answer.Body.Close()
	}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}

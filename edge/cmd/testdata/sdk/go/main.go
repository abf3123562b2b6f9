// Program sdk uses OpenAI's Go SDK as an app would, against the base URL and
// with the key that it is given, and prints one JSON line per check.
//
// The upstream behind the base URL is Eisbach's simulator, which takes its
// script from the name of the model. ../node/check.mjs makes the same checks.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// sdk holds two clients that differ in their keys. They never try again, so
// that a check sees the first answer.
type sdk struct{ client, stranger openai.Client }

var checks = []struct {
	name string
	run  func(*sdk, context.Context) error
}{
	{"lists models", (*sdk).listsModels},
	{"gets a whole answer", (*sdk).getsWholeAnswer},
	{"gets a stream piece by piece", (*sdk).getsStreamPieceByPiece},
	{"gets usage when it asks", (*sdk).getsUsageWhenItAsks},
	{"gets no usage unasked", (*sdk).getsNoUsageUnasked},
	{"gets a tool call", (*sdk).getsToolCall},
	{"waits through heartbeats", (*sdk).waitsThroughHeartbeats},
	{"reads what the upstream writes oddly", (*sdk).readsWhatIsWrittenOddly},
	{"raises a refused key", (*sdk).raisesRefusedKey},
	{"raises an error in a stream", (*sdk).raisesErrorInStream},
	{"raises a cut stream", (*sdk).raisesCutStream},
	{"raises an overloaded upstream", (*sdk).raisesOverloadedUpstream},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sdk BASEURL KEY")
		os.Exit(2)
	}
	s := &sdk{client: newClient(os.Args[1], os.Args[2]), stranger: newClient(os.Args[1], "no-such-key")}
	out := json.NewEncoder(os.Stdout)
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := check.run(s, ctx)
		cancel()
		detail := ""
		if err != nil {
			detail = err.Error()
		}
		out.Encode(map[string]any{"name": check.name, "ok": err == nil, "detail": detail})
	}
}

func newClient(url, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func ask(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
}

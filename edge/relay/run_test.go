package relay

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"eisbach/sse/chunk"
)

var asked = Config{IncludeUsage: true}

func TestAGoodStreamPassesByteForByte(t *testing.T) {
	in := role + hi + you + stop + usage + done
	r := whole(t, asked, in, Success, write(in))
	if r.Events != 2 || r.TextBytes != len("Hi you") || !r.Done || !r.Finished || r.Usage.Prompt != 3 || r.Usage.Completion != 1 {
		t.Errorf("%+v", r)
	}
	whole(t, asked, in, Success, write(role), write(hi), write(you, stop), write(usage), write(done), end(io.EOF))
	whole(t, asked, in, Success, write(in[:100]), write(in[100:250]), write(in[250:]))
}

func TestUsageIsWithheldFromAClientThatDidNotAsk(t *testing.T) {
	r := whole(t, Config{}, role+hi+stop+done, Success, write(role, hi, stop, usage, done))
	if !r.Usage.Known || r.Usage.Prompt != 3 || r.Usage.Completion != 1 {
		t.Errorf("usage: %+v", r.Usage)
	}
}

func TestExactlyOneDoneMarkEndsAChatStream(t *testing.T) {
	f := func(in string) {
		t.Helper()
		whole(t, asked, hi+stop+done, Success, write(in), end(io.EOF))
		whole(t, Config{Shape: chunk.Completion}, hi+stop+done, Success, write(in), end(io.EOF))
	}
	f(hi + stop + done)
	f(hi + stop + "data: [DONE] \n\n")
	f(hi + stop + "data:[DONE]\n\n")
	f(hi + stop + "data: [DONE]\r\n\r\n")
	f(hi + stop + "data: [DONE]") // cut right behind it
	f(hi + stop + done + done)
	f(hi + stop + done + you)
	f(hi + stop) // the edge adds it
}

func TestAContentWithoutFinishReasonIsGoodIfTheUpstreamSaysDone(t *testing.T) {
	whole(t, asked, hi+done, Success, write(hi, done))
}

func TestUsageBehindTheDoneMarkIsReadIfItCameWithIt(t *testing.T) {
	r := whole(t, asked, hi+stop+done, Success, write(hi, stop, done, usage, done))
	if r.Usage.Total != 4 {
		t.Errorf("usage: %+v", r.Usage)
	}
	s := play(t, asked, time.Hour, buffer, write(hi, stop, done), later(time.Second, usage), end(io.EOF))
	if s.Usage.Known || s.took != 0 || s.Outcome != Success {
		t.Errorf("waited %v behind the done mark: %+v", s.took, s.Result)
	}
}

func TestWhatCameBeforeContentIsHeldBack(t *testing.T) {
	s := play(t, asked, time.Second, buffer, write(role), later(3*time.Second, hi, stop, done))
	if s.await != os.ErrDeadlineExceeded || s.body != role+hi+stop+done || s.Outcome != Success {
		t.Errorf("%+v", s)
	}
	if s := play(t, asked, time.Hour, buffer, write(role), end(errReset)); s.await != errReset || s.Outcome != UpstreamDisconnected {
		t.Errorf("a reset before content: %+v", s)
	}
	s = play(t, asked, 0, buffer, write(role), end(errReset))
	if s.await != os.ErrDeadlineExceeded || s.body != told("upstream_disconnected") || s.err != io.EOF {
		t.Errorf("a reset before content, after the 200: %+v", s)
	}
}

func TestWhatIsHeldBackIsBounded(t *testing.T) {
	large := "data: {\"id\":\"" + strings.Repeat("x", 300<<10) + "\",\"choices\":[]}\n\n"
	s := play(t, asked, time.Hour, buffer, write(large), write(large), write(large), write(large), write(hi, done))
	if s.await != nil || s.body != strings.Repeat(large, 4)+hi+done || s.Outcome != Success {
		t.Errorf("Await: %v, %d bytes, %v", s.await, len(s.body), s.Outcome)
	}
	s = play(t, asked, time.Hour, buffer, write(large), write(large), write(large), write(large), end(errReset))
	if s.await != nil || s.body != strings.Repeat(large, 4)+told("upstream_disconnected") {
		t.Errorf("Await: %v, %d bytes, %v", s.await, len(s.body), s.Outcome)
	}
}

func TestAFailureBeforeContentIsTheErrorOfAwait(t *testing.T) {
	f := func(c Config, want Outcome, steps ...step) {
		t.Helper()
		s := play(t, c, time.Hour, buffer, steps...)
		if s.await == nil || s.await == os.ErrDeadlineExceeded || s.Outcome != want || s.Err != s.await || s.Events != 0 {
			t.Errorf("Await: %v, outcome %v, want %v", s.await, s.Outcome, want)
		}
		s = play(t, c, 0, buffer, steps...)
		if s.await != os.ErrDeadlineExceeded || s.Outcome != want || strings.Contains(s.body, "[DONE]") || strings.Contains(s.body, "choices") {
			t.Errorf("after an early 200: %+v", s)
		}
	}
	f(asked, UpstreamDisconnected, end(io.EOF))
	f(asked, UpstreamDisconnected, write(role), end(io.EOF))
	f(asked, UpstreamDisconnected, write(role, usage), end(io.EOF))
	f(asked, UpstreamDisconnected, write(role), end(errReset))
	f(asked, UpstreamError, write(done))
	f(asked, UpstreamError, write(role, done))
	f(asked, UpstreamError, write(role, failed))
	f(asked, UpstreamError, end(errors.New("unexpected status")))
	f(asked, UpstreamError, write(strings.Replace(stop, "stop", "insufficient_system_resource", 1), done))
	f(asked, ClientLeft, write(role), end(ErrClientLeft))
	f(asked, Drained, end(ErrDrained))
	f(Config{FirstToken: since(time.Second)}, FirstTokenTimeout, write(role))
	f(Config{FirstToken: since(time.Second), Total: since(time.Minute)}, FirstTokenTimeout)
	f(Config{FirstToken: since(time.Minute), Total: since(time.Second)}, TotalTimeout)
	f(Config{Shape: chunk.Messages}, UpstreamDisconnected, write(messageStart), end(io.EOF))
	f(Config{Shape: chunk.Responses}, UpstreamDisconnected, write(created, done), end(io.EOF))
}

func TestAnErrorAsTheFirstEventIsGivenWithItsFields(t *testing.T) {
	s := play(t, asked, time.Hour, buffer, write(failed))
	var said *EventError
	if !errors.As(s.await, &said) || *said != (EventError{Message: "rate limited", Type: "rate_limit_error", Code: "429", Reason: chunk.RateLimit}) {
		t.Errorf("Await: %#v", s.await)
	}
	if want := "the upstream sent an error: rate limited (type rate_limit_error, code 429)"; s.await.Error() != want {
		t.Errorf("%q", s.await.Error())
	}
}

func TestAFailureAfterContentIsToldInBandWithoutDoneMark(t *testing.T) {
	f := func(c Config, what string, want Outcome, steps ...step) {
		t.Helper()
		whole(t, c, role+hi+told(what), want, append([]step{write(role, hi)}, steps...)...)
	}
	f(asked, "upstream_disconnected", UpstreamDisconnected, end(io.EOF))
	f(asked, "upstream_disconnected", UpstreamDisconnected, end(errReset))
	f(asked, "upstream_disconnected", UpstreamDisconnected, write(you[:40]), end(io.EOF))
	f(asked, "rate limited", UpstreamError, write(failed, you, done))
	f(asked, "drained", Drained, end(ErrDrained))
	f(asked, "upstream_error", UpstreamError, end(errors.New("event is too long")))
	f(Config{Idle: time.Second}, "idle_timeout", IdleTimeout)
	f(Config{Idle: time.Second}, "idle_timeout", IdleTimeout, later(1100*time.Millisecond, you))
	f(Config{Total: since(time.Second)}, "total_timeout", TotalTimeout)
	f(Config{Total: since(time.Second), Idle: time.Minute}, "total_timeout", TotalTimeout)
	f(Config{FirstToken: since(time.Second), Total: since(time.Minute)}, "total_timeout", TotalTimeout)
	whole(t, asked, hi+stop+told("rate limited"), UpstreamError, write(hi, stop, failed))
}

func TestALastEventWithoutItsBlankLineCountsIfItIsWhole(t *testing.T) {
	whole(t, asked, hi+you+stop+done, Success, write(hi, you, strings.TrimSpace(stop)), end(io.EOF))
	whole(t, asked, hi+stop+usage+done, Success, write(hi, stop, strings.TrimSpace(usage)), end(io.EOF))
	whole(t, asked, hi+stop+done, Success, write(hi, stop, usage[:60]), end(io.EOF))
	whole(t, asked, hi+told("upstream_disconnected"), UpstreamDisconnected, write(hi, stop[:len(stop)-5]), end(io.EOF))
}

func TestAfterAFinishReasonOnlyAnErrorEventSpoilsTheAnswer(t *testing.T) {
	f := func(c Config, steps ...step) {
		t.Helper()
		whole(t, c, hi+stop+done, Success, append([]step{write(hi, stop)}, steps...)...)
	}
	f(asked, end(io.EOF))
	f(asked, end(errReset))
	f(asked, end(ErrDrained))
	f(Config{Idle: time.Second})
	f(Config{Total: since(time.Second)})
	if s := play(t, asked, time.Hour, buffer, write(hi, stop), end(ErrClientLeft)); s.Outcome != ClientLeft || s.err != ErrClientLeft {
		t.Errorf("%+v", s)
	}
}

func TestEachOfSeveralChoicesHasToFinish(t *testing.T) {
	two := Config{Choices: 2}
	whole(t, two, hi+stop+told("upstream_disconnected"), UpstreamDisconnected, write(hi, stop), end(io.EOF))
	other := strings.Replace(stop, `"index":0`, `"index":1`, 1)
	whole(t, two, hi+stop+other+done, Success, write(hi, stop, other), end(io.EOF))
	whole(t, two, hi+stop+done, Success, write(hi, stop, done))
}

func TestAFinishWithoutContentIsAGoodAnswer(t *testing.T) {
	whole(t, asked, role+stop+done, Success, write(role, stop, done))
	whole(t, asked, role+stop+done, Success, write(role, stop), end(io.EOF))
}

func TestAProviderThatBreaksOffIsShownAndCountedAsAFailure(t *testing.T) {
	broken := strings.Replace(stop, "stop", "insufficient_system_resource", 1)
	whole(t, asked, hi+broken+done, UpstreamError, write(hi, broken, done))
	whole(t, asked, hi+broken+done, UpstreamError, write(hi, broken), end(io.EOF))
}

func TestEventsThatSDKsCannotReadAreDropped(t *testing.T) {
	noise := "data: null\n\ndata:\n\ndata: \n\nevent: ping\ndata: {}\n\nevent: keepalive\n\n: comment\n\ndata: {}\n\ndata: { }\n\n" +
		"data: ping\n\ndata: []\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
	r := whole(t, asked, hi+stop+usage+done, Success, write(noise, hi, noise, stop, noise, usage, noise, done, noise))
	if r.Events != 1 || r.Usage.Total != 4 {
		t.Errorf("%+v", r)
	}
}

func TestChunksWithoutChoicesPassUnchanged(t *testing.T) {
	filter := "data: {\"id\":\"\",\"object\":\"\",\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n"
	null := strings.Replace(usage, "[]", "null", 1)
	bare := "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\"}\n\n"
	in := filter + hi + stop + null + bare + done
	if r := whole(t, asked, in, Success, write(in)); r.Usage.Total != 4 {
		t.Errorf("%+v", r)
	}
}

func TestToolCallsPassVerbatimAndAreContent(t *testing.T) {
	in := "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":null,\"type\":null,\"function\":{\"name\":null,\"arguments\":\"{\\\"x\\\":1}\"}}]},\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"id\":\"call_b\",\"function\":{\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n"
	if r := whole(t, asked, role+in+stop+done, Success, write(role, in, stop, done)); r.Events != 3 {
		t.Errorf("%d events", r.Events)
	}
}

func TestEventsThatAreNotLegalAreWrittenAnew(t *testing.T) {
	several := "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":3,\ndata: \"completion_tokens\":1,\"total_tokens\":4}}\n\n"
	joined := "data: {\"choices\":[], \"usage\":{\"prompt_tokens\":3, \"completion_tokens\":1,\"total_tokens\":4}}\n\n"
	withID := "id: 1\n" + hi
	bareCR := strings.ReplaceAll(you, "\n", "\r")
	r := whole(t, asked, hi+you+hi+stop+joined+done, Success, write(withID, bareCR, hi, stop, several, done))
	if r.Usage.Total != 4 {
		t.Errorf("usage: %+v", r.Usage)
	}
}

func TestRunningTotalsOfUsageAreNotAdded(t *testing.T) {
	with := func(event, counts string) string {
		return strings.Replace(event, "}\n\n", `,"usage":`+counts+"}\n\n", 1)
	}
	one := with(hi, `{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}`)
	three := with(you, `{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}`)
	f := func(want string, outcome Outcome, steps ...step) {
		t.Helper()
		if u := whole(t, Config{}, want, outcome, steps...).Usage; !u.Known || u.Prompt != 10 || u.Completion != 3 {
			t.Errorf("usage: %+v", u)
		}
	}
	f(one+three+stop+done, Success, write(one, three, stop, done))
	f(one+three+told("upstream_disconnected"), UpstreamDisconnected, write(one, three), end(errReset))
	f(one+with(stop, `{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}`)+done, Success,
		write(one, with(stop, `{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}`),
			strings.Replace(usage, `"prompt_tokens":3,"completion_tokens":1`, `"prompt_tokens":10,"completion_tokens":3`, 1), done))
}

// Events of messages and responses.
const (
	messageStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n"
	ping         = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
	textDelta    = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
	messageDelta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n"
	messageStop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

	created     = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n"
	outputDelta = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
	completed   = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1,\"total_tokens\":4}}}\n\n"
)

func TestMessagesEndWithTheirOwnEvent(t *testing.T) {
	c := Config{Shape: chunk.Messages}
	in := messageStart + ping + textDelta + messageDelta + messageStop
	r := whole(t, c, in, Success, write(in), end(io.EOF))
	if r.Usage.Prompt != 3 || r.Usage.Completion != 1 || !r.Done {
		t.Errorf("%+v", r)
	}
	whole(t, c, in, Success, write(in, done, ping))
	in = messageStart + textDelta + messageDelta
	whole(t, c, in+told("upstream_disconnected"), UpstreamDisconnected, write(in), end(io.EOF))
	whole(t, c, in+told("upstream_disconnected"), UpstreamDisconnected, write(in, done), end(errReset))
}

func TestResponsesEndWithTheirOwnEvent(t *testing.T) {
	c := Config{Shape: chunk.Responses}
	in := created + outputDelta + completed
	if r := whole(t, c, in, Success, write(in, done), end(io.EOF)); r.Usage.Total != 4 || !r.Done {
		t.Errorf("%+v", r)
	}
	whole(t, c, created+completed, Success, write(created, completed))
	whole(t, c, created+outputDelta+told("upstream_disconnected"), UpstreamDisconnected, write(created, outputDelta, done), end(io.EOF))
}

func TestOtherStreamsEndWithTheirBody(t *testing.T) {
	c := Config{Shape: chunk.Other}
	whole(t, c, "data: some text\n\n"+hi, Success, write("data: some text\n\n", hi), end(io.EOF))
	whole(t, c, hi+done, Success, write(hi, done))
	whole(t, c, "", Success, end(io.EOF))
	whole(t, c, hi+told("upstream_disconnected"), UpstreamDisconnected, write(hi), end(errReset))
}

func TestAClientThatLeftIsNotToldAnythingAndDoesNotSeeAnEnd(t *testing.T) {
	s := play(t, asked, time.Hour, buffer, write(role, hi), end(ErrClientLeft))
	if s.err != ErrClientLeft || s.body != role+hi || s.Outcome != ClientLeft {
		t.Errorf("%+v", s)
	}
}

func TestAStreamIsTheClientsFaultUntilItHasReadTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Run
		p := make([]byte, buffer)
		f := func(want Outcome, reads int, steps ...step) {
			t.Helper()
			r.Start(&Config{Door: plainDoor{}}, newWire(t, chunk.Chat, steps...))
			for range reads {
				r.Read(p)
			}
			if got := r.Result().Outcome; reads == 0 && got != ClientLeft {
				t.Errorf("not read: %v", got)
			}
			r.Abandon(ClientLeft)
			if got := r.Result(); got.Outcome != want || (got.Err == nil) != (want == Success) {
				t.Errorf("after %d reads: %v (%v), want %v", reads, got.Outcome, got.Err, want)
			}
			if n, err := r.Read(p); n > 0 || err == nil {
				t.Errorf("Read after Abandon: %d, %v", n, err)
			}
		}
		f(ClientLeft, 0, write(hi, stop, done))
		f(ClientLeft, 1, write(hi, stop, done)) // the end was taken, and could not be written
		f(Success, 2, write(hi, stop, done))
		f(ClientLeft, 1, write(hi), end(errReset))
		f(UpstreamDisconnected, 2, write(hi), end(errReset))
		f(ClientLeft, 1, write(hi))
	})
}

func TestAReadGivesTheWholeEventsThatAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Run
		r.Start(&Config{Door: plainDoor{}}, newWire(t, chunk.Chat, write(hi, you), later(time.Second, hi, hi, hi), write(stop, done)))
		p := make([]byte, 2*len(hi)+1)
		f := func(want string) {
			t.Helper()
			if n, err := r.Read(p); err != nil || string(p[:n]) != want {
				t.Errorf("got %q, %v; want %q", p[:n], err, want)
			}
		}
		f(hi)
		f(you)
		f(hi + hi)
		f(hi)
		f(stop + done)
	})
}

func TestReadsOfEverySizeGiveTheSame(t *testing.T) {
	in := role + hi + you + stop + usage + done
	for size := 1; size < 4096; size += 1 + size/8 {
		if s := play(t, asked, time.Hour, size, write(in)); s.body != in || s.Outcome != Success {
			t.Errorf("reads of %d: %+v", size, s)
		}
	}
}

func TestARunCanBeUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Run
		for range 2 {
			r.Start(&Config{Door: plainDoor{}}, newWire(t, chunk.Chat, write(role, hi), end(errReset)))
			if body, _ := readAll(t, &r, buffer); body != role+hi+told("upstream_disconnected") {
				t.Errorf("%q", body)
			}
			r.Start(&Config{Door: plainDoor{}}, newWire(t, chunk.Chat, write(role, hi, stop, done)))
			body, _ := readAll(t, &r, buffer)
			if got := r.Result(); body != role+hi+stop+done || got.Outcome != Success || got.Err != nil || got.Events != 1 {
				t.Errorf("%q %+v", body, got)
			}
		}
	})
}

func TestOutcomesHaveTheWordsOfTheRecord(t *testing.T) {
	f := func(o Outcome, want string) {
		if o.String() != want {
			t.Errorf("%d is %q, want %q", o, o, want)
		}
	}
	f(Success, "success")
	f(ClientLeft, "client_left")
	f(UpstreamError, "upstream_error")
	f(UpstreamDisconnected, "upstream_disconnected")
	f(ConnectTimeout, "connect_timeout")
	f(FirstTokenTimeout, "first_token_timeout")
	f(IdleTimeout, "idle_timeout")
	f(TotalTimeout, "total_timeout")
	f(Drained, "drained")
	f(Refused, "refused")
}

func TestAPrimedClientGetsALongCommentFirst(t *testing.T) {
	in := role + hi + stop + done
	whole(t, Config{Prime: true}, ":"+strings.Repeat(" ", 510)+"\n"+in, Success, write(in))
}

package pool

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
)

// flusher is a compressor that can be told to hold nothing back.
type flusher interface {
	io.WriteCloser
	Flush() error
}

func compressor(encoding string, w io.Writer) flusher {
	if encoding == "br" {
		return brotli.NewWriter(w)
	}
	return gzip.NewWriter(w)
}

func TestACompressedStreamIsDecodedWithoutHoldingEventsBack(t *testing.T) {
	for _, encoding := range []string{"gzip", "br"} {
		next := make(chan struct{})
		p, u := start(t, func(c *peer) {
			for {
				if _, _, err := c.request(); err != nil {
					return
				}
				c.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: " + encoding + "\r\ntransfer-encoding: chunked\r\n\r\n")
				var out bytes.Buffer
				z := compressor(encoding, &out)
				for i := range 5 {
					<-next
					fmt.Fprintf(z, "data: %d\n\n", i)
					z.Flush()
					for half := range 2 { // cut anywhere
						b := out.Bytes()
						piece := b[:len(b)/2]
						if half == 1 {
							piece = b[len(b)/2:]
						}
						if len(piece) > 0 {
							c.say(chunked(string(piece)))
						}
					}
					out.Reset()
				}
				z.Close()
				c.say(chunked(out.String()) + "0\r\n\r\n")
			}
		})
		for range 2 {
			var s Stream
			s.Open(ask(u))
			for i := range 5 {
				if _, _, err := s.Next(time.Now().Add(10 * time.Millisecond)); err != os.ErrDeadlineExceeded {
					t.Fatalf("%s: error %v", encoding, err)
				}
				next <- struct{}{}
				e, _, err := s.Next(time.Now().Add(soon))
				if err != nil || string(e.Data) != fmt.Sprint(i) {
					t.Fatalf("%s: event %d is %q, %v", encoding, i, e.Data, err)
				}
			}
			if _, err := drain(&s); err != io.EOF {
				t.Fatalf("%s: ends with %v", encoding, err)
			}
			s.Close()
		}
		if n := p.conns.Load(); n != 1 {
			t.Errorf("%s: %d connections", encoding, n)
		}
	}
}

func TestACompressedAnswerThatIsCutIsNotComplete(t *testing.T) {
	for _, encoding := range []string{"gzip", "br"} {
		var out bytes.Buffer
		z := compressor(encoding, &out)
		io.WriteString(z, `{"id":"c1","choices":[]}`)
		z.Close()
		f := func(n int, wantErr bool) {
			t.Helper()
			body := out.Bytes()[:n]
			_, u := start(t, answering(fmt.Sprintf("HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n%s", encoding, n, body)))
			got, _, err := answerOf(t, ask(u))
			var failure *Failure
			if wantErr != (errors.As(err, &failure) && failure.Reason == Disconnected) || !wantErr && got != `{"id":"c1","choices":[]}` {
				t.Errorf("%s, %d of %d bytes: %q, %v", encoding, n, out.Len(), got, err)
			}
		}
		f(out.Len(), false)
		f(out.Len()-2, true)
		f(out.Len()/2, true)
		f(3, true)
	}
}

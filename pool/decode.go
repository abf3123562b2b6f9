package pool

import (
	"compress/gzip"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/andybalholm/brotli"
)

// decoder takes a content coding off a body that comes in pieces and with
// deadlines. A decompressor remembers a deadline's error for good, so it runs in
// a coroutine that hands back whatever it has, and asks for more input rather
// than wait for it. It is used only for upstreams that compress although they
// are told not to.
type decoder struct {
	in    []byte // compressed, not yet read
	space []byte // in's buffer
	ended bool   // no more will come
	out   []byte // decompressed, lent by the coroutine until it goes on
	yield func([]byte, error) bool
	next  func() ([]byte, error, bool)
	stop  func()
}

var errStopped = errors.New("the decoder was stopped")

func newDecoder(encoding string) *decoder {
	d := &decoder{space: make([]byte, 4<<10)}
	d.next, d.stop = iter.Pull2(func(yield func([]byte, error) bool) {
		d.yield = yield
		var r io.Reader = brotli.NewReader(d)
		var err error
		if encoding != "br" {
			r, err = gzip.NewReader(d)
		}
		out := make([]byte, 8<<10)
		for n := 0; err == nil; {
			n, err = r.Read(out)
			if n > 0 && !yield(out[:n], nil) {
				return
			}
		}
		yield(nil, err)
	})
	return d
}

// Read gives the decompressor its input: it implements io.Reader and runs in
// the coroutine.
func (d *decoder) Read(p []byte) (int, error) {
	for len(d.in) == 0 {
		if d.ended {
			return 0, io.EOF
		}
		if !d.yield(nil, nil) {
			return 0, errStopped
		}
	}
	n := copy(p, d.in)
	d.in = d.in[n:]
	return n, nil
}

// fillDecoded is fill for a compressed body.
func (s *Stream) fillDecoded(p []byte, until time.Time) (int, error) {
	d := s.decoder
	for len(d.out) == 0 {
		out, err, ok := d.next()
		switch {
		case !ok || err == io.EOF:
			// Its own end is not enough: the framing's tells whether it was cut.
			for !d.ended {
				if _, err := s.feed(until); err != nil {
					return 0, err
				}
			}
			s.phase = phaseEnd
			return 0, nil
		case err != nil:
			return 0, s.fail(&Failure{Reason: Disconnected, Err: err})
		case len(out) > 0:
			d.out = out
		default:
			if _, err := s.feed(until); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, d.out)
	d.out = d.out[n:]
	return n, nil
}

// feed reads compressed bytes.
func (s *Stream) feed(until time.Time) (int, error) {
	n, err := s.fillPlain(s.decoder.space, until)
	s.decoder.in = s.decoder.space[:n]
	if s.phase == phaseEnd {
		s.phase, s.decoder.ended = phaseBody, true
	}
	return n, err
}

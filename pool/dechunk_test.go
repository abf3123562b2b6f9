package pool

import (
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

// dechunkAll feeds in pieces of the given size and gives the data, what was
// left behind the body, and whether the body ended.
func dechunkAll(in string, size int) (data, rest string, done bool, err error) {
	var d dechunker
	for len(in) > 0 {
		piece := []byte(in[:min(size, len(in))])
		n, used, err := d.decode(piece)
		data += string(piece[:n])
		in = in[used:]
		if err != nil {
			return data, in, false, err
		}
		if d.done() {
			return data, in, true, nil
		}
		if used != len(piece) {
			return data, in, false, io.ErrShortBuffer
		}
	}
	return data, "", false, nil
}

func TestDechunkerGivesTheDataHoweverItIsCut(t *testing.T) {
	f := func(in, wantData, wantRest string, wantDone bool) {
		t.Helper()
		for size := 1; size <= len(in)+1; size++ {
			data, rest, done, err := dechunkAll(in, size)
			if err != nil || data != wantData || rest != wantRest || done != wantDone {
				t.Fatalf("%q in pieces of %d: data %q rest %q done %v err %v", in, size, data, rest, done, err)
			}
		}
	}
	f("5\r\nhello\r\n0\r\n\r\n", "hello", "", true)
	f("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nHTTP/1.1 200", "hello!", "HTTP/1.1 200", true)
	f("00A;name=\"value\"\r\n0123456789\r\n0;x\r\nTrailer: a\r\nOther: b\r\n\r\n", "0123456789", "", true)
	f("5 \t\r\nhello\r\n0\r\n\r\n", "hello", "", true)
	f("a\r\n0123456789", "0123456789", "", false) // given out without its CRLF
	f("0\r\n", "", "", false)
	f("", "", "", false)
}

func TestDechunkerRefusesWhatIsNotChunked(t *testing.T) {
	f := func(in string) {
		t.Helper()
		for _, size := range []int{1, 3, len(in)} {
			if data, _, done, err := dechunkAll(in, size); err == nil {
				t.Fatalf("%q in pieces of %d: data %q done %v, want an error", in, size, data, done)
			}
		}
	}
	f("\r\n")
	f("x\r\n")
	f("-1\r\n")
	f("0x5\r\nhello")
	f("5\nhello\r\n0\r\n\r\n")
	f("5\r\nhello!\r\n")
	f("5\r\nhello\n0\r\n\r\n")
	f("5;\nhello")
	f("5 5\r\nhello\r\n")
	f("0\r\nTrailer: a\n\r\n")
	f("1000000000000000\r\n")
	f("0000000000000005\r\nhello")
	f("5;" + strings.Repeat("x", maxChunkExtension+1))
	f("0\r\n" + strings.Repeat("x: y\r\n", maxChunkTrailers))
}

func TestDechunkerAllocatesNothing(t *testing.T) {
	in := []byte("5\r\nhello\r\n0\r\n\r\n")
	p := make([]byte, len(in))
	if n := testing.AllocsPerRun(100, func() {
		var d dechunker
		copy(p, in)
		d.decode(p)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// FuzzDechunker holds the dechunker against the one of net/http, whatever ours
// takes, that one takes for the same.
func FuzzDechunker(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), 3)
	f.Add([]byte("5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\nrest"), 1)
	f.Add([]byte("1\r\n"), 2)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size <= 0 {
			return
		}
		data, rest, done, err := dechunkAll(string(in), size)
		whole, wholeRest, wholeDone, wholeErr := dechunkAll(string(in), len(in)+1)
		if (err == nil) != (wholeErr == nil) || err == nil && (data != whole || rest != wholeRest || done != wholeDone) {
			t.Fatalf("in pieces of %d: %q %q %v %v, at once: %q %q %v %v", size, data, rest, done, err, whole, wholeRest, wholeDone, wholeErr)
		}
		if !done || bytes.Contains(in, []byte(" ;")) || bytes.Contains(in, []byte("\t;")) {
			return // RFC 9112 allows the white space, net/http does not
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in)))
		if err != nil || string(want) != data {
			t.Fatalf("%q: ours %q, net/http's %q %v", in, data, want, err)
		}
	})
}

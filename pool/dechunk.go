package pool

import "errors"

var errChunk = errors.New("malformed chunked encoding")

// Bounds of what a chunked body may carry beside its data.
const (
	maxChunkExtension = 1 << 10
	maxChunkTrailers  = 8 << 10
	maxSizeDigits     = 15
)

type chunkState uint8

const (
	chunkSizeFirst chunkState = iota // the first digit of a size
	chunkSize                        // further digits
	chunkSpace                       // white space behind a size, which some servers pad with
	chunkExt                         // an extension, skipped
	chunkSizeLF                      // the LF behind the size
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer     // the beginning of a trailer line, or the last CR
	chunkTrailerLine // inside a trailer line, skipped
	chunkTrailerLF
	chunkEndLF
	chunkDone
)

// dechunker takes the chunked transfer coding (RFC 9112, 7.1) off a body, in
// whatever pieces it comes. A chunk's data is given out without waiting for the
// CRLF behind it, which may come later than the token that it carries. Its zero
// value is at the beginning of a body.
type dechunker struct {
	state chunkState
	left  uint64 // bytes of the chunk that are still to come
	extra int    // digits of the size, or bytes of extension or trailers, so far
}

// decode moves the data in p to its beginning and returns how much of p is data
// now, and how much of p was used: less than all only once the body is done, or
// with an error.
func (d *dechunker) decode(p []byte) (n, used int, err error) {
	for used < len(p) {
		if d.state == chunkData {
			k := len(p) - used
			if uint64(k) > d.left {
				k = int(d.left)
			}
			if n != used {
				copy(p[n:], p[used:used+k])
			}
			n += k
			used += k
			if d.left -= uint64(k); d.left == 0 {
				d.state = chunkDataCR
			}
			continue
		}
		if d.state == chunkDone {
			break
		}
		if err := d.step(p[used]); err != nil {
			return n, used, err
		}
		used++
	}
	return n, used, nil
}

// step takes one byte of framing.
func (d *dechunker) step(c byte) error {
	switch d.state {
	case chunkSizeFirst, chunkSize:
		return d.size(c)
	case chunkSpace:
		switch c {
		case ';':
			d.state = chunkExt
		case '\r', ' ', '\t':
			return d.skip(c, chunkSizeLF, maxChunkExtension)
		default:
			return errChunk
		}
		return nil
	case chunkExt:
		return d.skip(c, chunkSizeLF, maxChunkExtension)
	case chunkSizeLF:
		if d.state = chunkData; d.left == 0 {
			d.state, d.extra = chunkTrailer, 0
		}
		return expect(c, '\n')
	case chunkDataCR:
		d.state = chunkDataLF
		return expect(c, '\r')
	case chunkDataLF:
		d.state = chunkSizeFirst
		return expect(c, '\n')
	case chunkTrailer:
		if c == '\r' {
			d.state = chunkEndLF
			return nil
		}
		d.state = chunkTrailerLine
		return d.skip(c, chunkTrailerLF, maxChunkTrailers)
	case chunkTrailerLine:
		return d.skip(c, chunkTrailerLF, maxChunkTrailers)
	case chunkTrailerLF:
		d.state = chunkTrailer
		return expect(c, '\n')
	default: // chunkEndLF
		d.state = chunkDone
		return expect(c, '\n')
	}
}

func (d *dechunker) size(c byte) error {
	digit := uint64(0)
	switch {
	case '0' <= c && c <= '9':
		digit = uint64(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		digit = uint64(c|0x20-'a') + 10
	case d.state == chunkSizeFirst:
		return errChunk
	case c == '\r':
		d.state = chunkSizeLF
		return nil
	case c == ';':
		d.state, d.extra = chunkExt, 0
		return nil
	case c == ' ' || c == '\t':
		d.state, d.extra = chunkSpace, 0
		return nil
	default:
		return errChunk
	}
	if d.state == chunkSizeFirst {
		d.state, d.left, d.extra = chunkSize, 0, 0
	}
	if d.extra++; d.extra > maxSizeDigits {
		return errChunk
	}
	d.left = d.left<<4 | digit
	return nil
}

// skip passes over a byte of a line up to its CR, of at most limit bytes.
func (d *dechunker) skip(c byte, next chunkState, limit int) error {
	if c == '\r' {
		d.state = next
		return nil
	}
	if d.extra++; d.extra > limit || c == '\n' {
		return errChunk
	}
	return nil
}

func expect(c, want byte) error {
	if c != want {
		return errChunk
	}
	return nil
}

func (d *dechunker) done() bool { return d.state == chunkDone }

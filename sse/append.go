package sse

import "bytes"

// Heartbeat is a comment that keeps a connection alive between events. It has
// no blank line: openai-go before 3.43 fails on one without an event.
const Heartbeat = ":\n"

// Append appends one event that every SDK reads: an event line where name is
// not empty, one data line, a blank line. Each CR or LF inside becomes a space,
// which means the same in JSON; spaces around [DONE] are left out. Data should
// not be empty.
func Append(dst, name, data []byte) []byte {
	if len(name) > 0 {
		dst = append(dst, "event: "...)
		dst = appendLine(dst, name)
	}
	dst = append(dst, "data: "...)
	if isDone(data) {
		return append(dst, done+"\n\n"...)
	}
	dst = appendLine(dst, data)
	return append(dst, '\n')
}

// AppendComment appends a comment line, for the place between two events. It
// has no blank line, for the reason that Heartbeat has none. Each CR or LF
// inside becomes a space.
func AppendComment(dst, text []byte) []byte {
	dst = append(dst, ':')
	return appendLine(dst, text)
}

func appendLine(dst, text []byte) []byte {
	from := len(dst)
	dst = append(dst, text...)
	for _, lineEnd := range [...]byte{'\n', '\r'} {
		rest := dst[from:]
		for i := bytes.IndexByte(rest, lineEnd); i >= 0; i = bytes.IndexByte(rest, lineEnd) {
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
	return append(dst, '\n')
}

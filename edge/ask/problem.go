package ask

import (
	"bytes"
	"fmt"
	"unicode"
)

// The codes of a Problem, as clients see them.
const (
	CodeInvalidJSON  = "invalid_json"          // not JSON, or deeper than 64 levels
	CodeDuplicateKey = "duplicate_key"         // a key twice in one object
	CodeInvalidValue = "invalid_value"         // a member that the edge depends on has a value that it can't have
	CodeNotAllowed   = "parameter_not_allowed" // a key that equals a known one but for its letter case
)

// Problem is why a body is refused. It implements error.
type Problem struct {
	Code    string // one of the codes above
	Param   string // the key that is at fault, printable and at most 64 bytes; empty where none is
	Message string // a sentence, printable
}

// Error gives the message.
func (p *Problem) Error() string { return p.Message }

func invalid(param, message string) *Problem {
	return &Problem{Code: CodeInvalidValue, Param: param, Message: message}
}

// wrong is the problem that something else is needed where the scan stands.
func (a *Ask) wrong(needed string) *Problem {
	message := fmt.Sprintf("The body is not valid JSON: it ends at byte %d, where %s is needed.", a.pos, needed)
	if a.pos < len(a.body) {
		message = fmt.Sprintf("The body is not valid JSON: at byte %d there is %s, where %s is needed.%s",
			a.pos, visible(a.body[a.pos]), needed, hint(a.body, a.pos))
	}
	return &Problem{Code: CodeInvalidJSON, Message: message}
}

// hint names the mistake that is commonly behind what stands at an error.
func hint(body []byte, at int) string {
	before := bytes.TrimRight(body[:at], " \t\r\n")
	switch body[at] {
	case '\'':
		return " Strings are written in double quotes."
	case '/', '#':
		return " JSON has no comments."
	case '}', ']':
		if bytes.HasSuffix(before, []byte(",")) {
			return " JSON has no comma before a closing bracket."
		}
	case 'N', 'I', 'T', 'F':
		return " JSON knows true, false and null, and neither NaN nor Infinity."
	case 0xef:
		if at == 0 {
			return " A byte order mark is not allowed."
		}
	case 0x1f:
		if at == 0 {
			return " A body must not be compressed."
		}
	}
	return ""
}

// visible shows one byte of a body.
func visible(c byte) string {
	if c > ' ' && c < 0x7f {
		return "'" + string(rune(c)) + "'"
	}
	return fmt.Sprintf("the byte 0x%02x", c)
}

// printable gives the beginning of a key from a body, in at most 64 bytes.
func printable(s []byte) string {
	const most = 64 - len("…")
	var out []byte
	for _, r := range string(s[:min(len(s), most+1)]) {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			r = '?'
		}
		if next := len(out) + len(string(r)); next > most {
			break
		}
		out = append(out, string(r)...)
	}
	if len(s) > most {
		out = append(out, "…"...)
	}
	return string(out)
}

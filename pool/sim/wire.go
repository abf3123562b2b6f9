package sim

import (
	"strconv"
	"unicode/utf8"
)

const lastChunk = "0\r\n\r\n"

func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	return append(append(append(dst, ' '), reason(status)...), "\r\n"...)
}

// reason is the phrase of the statuses that providers use.
func reason(status int) string {
	switch status {
	case 200:
		return "OK"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 408:
		return "Request Timeout"
	case 410:
		return "Gone"
	case 413:
		return "Content Too Large"
	case 422:
		return "Unprocessable Content"
	case 429:
		return "Too Many Requests"
	case 500:
		return "Internal Server Error"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	}
	return "" // RFC 9112 section 4 allows an empty phrase
}

func appendField(dst []byte, name string, value int64) []byte {
	dst = append(dst, name...)
	return append(strconv.AppendInt(dst, value, 10), "\r\n"...)
}

// appendLimits appends the rate-limit headers; resets are epoch seconds.
func appendLimits(dst []byte, l limits) []byte {
	dst = appendField(dst, "x-ratelimit-limit-requests: ", l.minute)
	dst = appendField(dst, "x-ratelimit-remaining-requests: ", l.minuteLeft)
	dst = appendField(dst, "x-ratelimit-reset-requests: ", l.minuteReset)
	dst = appendField(dst, "x-ratelimit-limit-requests-day: ", l.day)
	dst = appendField(dst, "x-ratelimit-remaining-requests-day: ", l.dayLeft)
	return appendField(dst, "x-ratelimit-reset-requests-day: ", l.dayReset)
}

// appendChunk frames p as one chunk (RFC 9112 section 7.1).
func appendChunk(dst, p []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(len(p)), 16)
	dst = append(dst, "\r\n"...)
	dst = append(dst, p...)
	return append(dst, "\r\n"...)
}

// appendEscaped appends s as the inside of a JSON string. Invalid UTF-8 becomes
// the replacement character.
func appendEscaped(dst, s []byte) []byte {
	for len(s) > 0 {
		r, size := utf8.DecodeRune(s)
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
		s = s[size:]
	}
	return dst
}

// appendQuoted appends a member with a string value: `name` must end in a colon.
func appendQuoted(dst []byte, name string, value []byte) []byte {
	dst = append(append(dst, name...), '"')
	return append(appendEscaped(dst, value), '"')
}

func appendInt(dst []byte, name string, value int) []byte {
	return strconv.AppendInt(append(dst, name...), int64(value), 10)
}

func appendFloat(dst []byte, name string, value float64) []byte {
	return strconv.AppendFloat(append(dst, name...), value, 'f', 6, 64)
}

// appendUUID appends an id that is unique in the server and reproducible.
func appendUUID(dst []byte, n int64) []byte {
	dst = append(dst, "00000000-0000-4000-8000-"...)
	const hex = "0123456789abcdef"
	for shift := 44; shift >= 0; shift -= 4 {
		dst = append(dst, hex[n>>shift&15])
	}
	return dst
}

package chunk

import (
	"bytes"
	"unicode/utf8"
)

// ErrorBody reads the body of an answer that is an error, in the shapes that
// providers use: an error object under "error", alone, or in an array (Google);
// a text under "error" or "detail"; plain text. The Message of HTML and of
// broken JSON is empty. Code is Google's status where it has no code of its
// own, and Anthropic's details.error_code. Reason is by the provider that Reset
// was told. The View is lent until the next call.
func (r *Reader) ErrorBody(body []byte) *View {
	r.reset()
	r.failure(bytes.Trim(body, blanks))
	return &r.view
}

// isFailure reports whether a complete document is an error: under a key
// "error", by its type (Anthropic, Responses), or by its object (vLLM).
func isFailure(doc []byte) bool {
	v := first(doc)
	for m := v.members(); m.next(); {
		switch string(m.key) {
		case "error":
			if saysFailure(m.value) {
				return true
			}
		case "type", "object":
			if string(m.value.text()) == "error" {
				return true
			}
		}
	}
	return false
}

// saysFailure tells the value of a key "error" that stands for a failure from
// null, false, 0, "" and [].
func saysFailure(v value) bool {
	switch {
	case v.isNumber():
		return bytes.ContainsAny(v, "123456789")
	case v.is('['), v.is('"'):
		return !v.isEmpty()
	}
	return v.is('{') || v.is('t')
}

// first is the document, or its first element where it is an array.
func first(doc value) value {
	if it := doc.elements(); it.next() {
		return it.value
	}
	return doc
}

// failure makes an Error of whatever it is.
func (r *Reader) failure(data []byte) {
	r.view.Kind, r.view.Fix = Error, 0
	if !complete(data) {
		r.view.Message = r.plain(data)
		return
	}
	doc := first(data)
	if doc.is('"') {
		r.view.Message = r.decoded(doc)
		return
	}
	inner := doc.get("error")
	if inner.is('"') {
		r.view.Message = r.decoded(inner)
	}
	r.describe(inner)
	r.describe(doc)
	r.detail(doc.get("detail"))
	if !inner.is('{') {
		inner = doc
	}
	r.view.Reason = r.provider.reason(&r.view, inner)
}

// describe fills what is still unknown from an error object.
func (r *Reader) describe(object value) {
	v := &r.view
	var message, kind, code, status, details, id value
	for m := object.members(); m.next(); {
		switch string(m.key) {
		case "message":
			message = m.value
		case "type":
			kind = m.value
		case "code":
			code = m.value
		case "status":
			status = m.value
		case "details":
			details = m.value
		case "request_id":
			id = m.value
		}
	}
	if !code.is('"') {
		switch own := details.get("error_code"); {
		case own.is('"'):
			code = own
		case status.is('"') && code.isNumber():
			code = status
		}
	}
	if len(v.Message) == 0 && message.is('"') {
		v.Message = r.decoded(message)
	}
	if len(v.Type) == 0 && kind.is('"') && string(kind.text()) != "error" {
		v.Type = r.decoded(kind)
	}
	if len(v.Code) == 0 {
		v.Code = r.decoded(code)
	}
	if len(v.RequestID) == 0 && id.is('"') {
		v.RequestID = r.decoded(id)
	}
}

// detail reads FastAPI's: a text, an object, or a list of what was invalid.
func (r *Reader) detail(v value) {
	v = first(v)
	r.describe(v)
	if v.is('{') {
		v = v.get("msg")
	}
	if len(r.view.Message) == 0 && v.is('"') {
		r.view.Message = r.decoded(v)
	}
}

// plain is a body that is text for people.
func (r *Reader) plain(body []byte) []byte {
	if len(body) == 0 || len(body) > maxText || bytes.IndexByte([]byte("<{["), body[0]) >= 0 || !utf8.Valid(body) {
		return nil
	}
	from := len(r.text)
	r.text = append(r.text, body...)
	return r.text[from:len(r.text):len(r.text)]
}

package whole

import "eisbach/sse"

// events is a stream in the making.
type events struct {
	dst      []byte
	from     int // where the stream begins in dst
	data     []byte
	numbered bool // typed events have a sequence_number
	sequence int
	err      error
}

// put appends an event whose data was made in e.data.
func (e *events) put(name string, data []byte) {
	if e.data = data; e.err != nil {
		return
	}
	e.dst = sse.Append(e.dst, []byte(name), data)
	if len(e.dst)-e.from > maxBytes {
		e.err = ErrTooLarge
	}
}

// field is a member of a typed event.
type field struct {
	key   string
	value []byte
}

// typed appends an event with its type in its name and in its data.
func (e *events) typed(name string, fields ...field) {
	data := append(e.data[:0], `{"type":"`...)
	data = append(data, name...)
	data = append(data, '"')
	if e.numbered {
		data = appendMember(data, "sequence_number", number(e.sequence))
		e.sequence++
	}
	for _, f := range fields {
		data = appendMember(data, f.key, f.value)
	}
	e.put(name, append(data, '}'))
}

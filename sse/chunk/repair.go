package chunk

import (
	"cmp"
	"slices"
	"strconv"
)

// keepEdits is how many edits of one chunk a Reader keeps room for.
const keepEdits = 64

// edit replaces the bytes from one offset in the data up to another by a text.
// Those of one chunk never overlap. The offsets are small for the sake of chunks
// that are made of nothing but mistakes; an event is far below their 4 GiB.
type edit struct {
	from, to uint32
	text     text
	number   int64 // for a text with one
}

// text is what an edit writes.
type text uint8

const (
	textNone        text = iota
	textNumber           // 7
	textIndex            // "index":7
	textIndexComma       // "index":7,
	textArray            // []
	textChoices          // "choices":[]
	textCommaChoice      // ,"choices":[]
	textToolCalls        // "tool_calls"
)

func (e *edit) appendText(dst []byte) []byte {
	switch e.text {
	case textNumber:
		return strconv.AppendInt(dst, e.number, 10)
	case textIndex:
		return strconv.AppendInt(append(dst, `"index":`...), e.number, 10)
	case textIndexComma:
		return append(strconv.AppendInt(append(dst, `"index":`...), e.number, 10), ',')
	case textArray:
		return append(dst, `[]`...)
	case textChoices:
		return append(dst, `"choices":[]`...)
	case textCommaChoice:
		return append(dst, `,"choices":[]`...)
	case textToolCalls:
		return append(dst, `"tool_calls"`...)
	}
	return dst
}

// Repair appends the data of the event that View has just read, with what its
// Fix names put right and all other bytes as they are, in their order. What it
// appends views with no Fix and the same Kind, Usage and TextBytes. It allocates
// nothing where dst has room; data and dst must not overlap.
func (r *Reader) Repair(dst, data []byte) []byte {
	slices.SortFunc(r.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	done := uint32(0)
	for i := range r.edits {
		e := &r.edits[i]
		dst = append(dst, data[done:e.from]...)
		dst = e.appendText(dst)
		done = e.to
	}
	return append(dst, data[done:]...)
}

// at is the offset of a part of the viewed data. Parts are cut out of it by
// their ends only, so a part's capacity is what is left of the data from there.
func (r *Reader) at(part []byte) int { return r.capacity - cap(part) }

func (r *Reader) edit(from, to int, t text, number int64) {
	if from < to || t != textNone {
		r.edits = append(r.edits, edit{from: uint32(from), to: uint32(to), text: t, number: number})
	}
}

// replace writes a text in the place of a value.
func (r *Reader) replace(v value, t text, number int64) {
	r.edit(r.at(v), r.at(v)+len(v), t, number)
}

// drop takes a member out of its object, with one of the commas beside it.
// before is the rest of the object from the bracket or comma before the member,
// kept says whether a member before it stays.
func (r *Reader) drop(before []byte, m *items, kept bool) {
	from, to := r.at(before), r.at(m.value)+len(m.value)
	if !kept {
		from++
		if m.rest[0] == ',' {
			to = r.at(m.rest) + 1
		}
	}
	r.edit(from, to, textNone, 0)
}

// repairTop walks once more over the members of a chunk that needs it.
func (r *Reader) repairTop(doc, choices value) {
	kept := false
	for m := doc.members(); ; {
		before := m.rest
		if !m.next() {
			break
		}
		if string(m.key) == "error" || string(m.key) == "created" && !fitCreated(m.value) && !r.mendCreated(m.value) {
			r.drop(before, &m, kept)
			continue
		}
		kept = true
	}
	end := r.at(doc) + len(doc) - 1
	switch {
	case choices.is('['):
	case len(choices) > 0:
		r.replace(choices, textArray, 0)
	case kept:
		r.edit(end, end, textCommaChoice, 0)
	default:
		r.edit(end, end, textChoices, 0)
	}
}

// repairRole takes the roles out of a delta that don't fit.
func (r *Reader) repairRole(delta value) {
	r.view.Fix |= FixRole
	kept := false
	for m := delta.members(); ; {
		before := m.rest
		if !m.next() {
			return
		}
		if string(m.key) == "role" && !fitRole(m.value) {
			r.drop(before, &m, kept)
			continue
		}
		kept = true
	}
}

// repairIndex gives a piece of a tool call its index.
func (r *Reader) repairIndex(call, index value, number int) {
	r.view.Fix |= FixIndex
	r.calls.unindexed = true
	inside := r.at(call) + 1
	switch {
	case len(index) > 0:
		r.replace(index, textNumber, int64(number))
	case call.isEmpty():
		r.edit(inside, inside, textIndex, int64(number))
	default:
		r.edit(inside, inside, textIndexComma, int64(number))
	}
}

// repairFinish looks at a finish reason once its choice was read.
func (r *Reader) repairFinish(choice, reason value) {
	if r.calls.unindexed && string(reason.text()) == "stop" && r.calls.called(choice) {
		r.view.Fix |= FixFinish
		r.replace(reason, textToolCalls, 0)
	}
}

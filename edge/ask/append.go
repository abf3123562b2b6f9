package ask

import (
	"strconv"

	"eisbach/sse/chunk"
)

// Edits are what AppendTo changes. The zero value changes nothing.
type Edits struct {
	Model        []byte // the model; empty: as it is
	Limit        int64  // the highest output limit, in tokens; 0: as it is
	IncludeUsage bool   // of a stream, ask for usage: chat completions and completions
	System       []byte // text in front of the client's own instructions; empty: none
}

// AppendTo appends the body that Parse has read, with the edits. All other bytes
// are as they were, in their order.
//
// Members that are missing become the first ones, and a null is replaced where it
// stands. Limit is added only where the client gave no limit; one that is lower
// stays. System becomes the first message of a chat, and for messages and
// responses the beginning of the system prompt or of the instructions.
// Completions and embeddings have no place for it, embeddings none for Limit.
func (a *Ask) AppendTo(dst []byte, e *Edits) []byte {
	var cuts cutList
	a.editModel(&cuts, e)
	a.editLimit(&cuts, e)
	a.editUsage(&cuts, e)
	a.editSystem(&cuts, e)
	at := uint32(0)
	for i := range cuts.n {
		c := &cuts.all[i]
		dst = append(dst, a.body[at:c.from]...)
		dst = a.appendCut(dst, c, e)
		at = c.to
	}
	return append(dst, a.body[at:]...)
}

// cut is a part of the body that something else takes the place of.
type cut struct {
	span
	put piece
}

// cutList has the cuts in the order of the body.
type cutList struct {
	all [8]cut
	n   int
}

// add adds a cut, after those that begin where it does.
func (l *cutList) add(at span, put piece) {
	i := l.n
	for i > 0 && l.all[i-1].from > at.from {
		l.all[i] = l.all[i-1]
		i--
	}
	l.all[i] = cut{at, put}
	l.n++
}

// piece is what is put in the place of a cut.
type piece uint8

const (
	modelValue piece = iota
	modelMember
	limitValue
	limitMember
	usageTrue
	usageMember
	optionsValue
	optionsMember
	systemMessage
	systemBlock
	systemText
	systemValue
	systemMember
)

// head is where a new first member of the request goes.
func (a *Ask) head() span {
	at := a.frames[0].start + 1
	return span{at, at}
}

// inside is where something goes that becomes the first in a string, an array or an object.
func (a *Ask) inside(m member) span {
	at := a.at[m].from + 1
	return span{at, at}
}

func (a *Ask) editModel(cuts *cutList, e *Edits) {
	switch {
	case len(e.Model) == 0:
	case a.at[model].to > 0:
		cuts.add(a.at[model], modelValue)
	default:
		cuts.add(a.head(), modelMember)
	}
}

func (a *Ask) editLimit(cuts *cutList, e *Edits) {
	own, other := limitMembers(a.shape)
	if e.Limit <= 0 || own == none {
		return
	}
	for _, m := range [...]member{own, other} {
		if a.integer(m) > e.Limit {
			cuts.add(a.at[m], limitValue)
		}
	}
	switch {
	case a.has(own) || a.has(other):
	case a.isNull(other):
		cuts.add(a.at[other], limitValue)
	case a.isNull(own):
		cuts.add(a.at[own], limitValue)
	default:
		cuts.add(a.head(), limitMember)
	}
}

func (a *Ask) editUsage(cuts *cutList, e *Edits) {
	if !e.IncludeUsage || !a.Stream || a.IncludeUsage || a.shape != chunk.Chat && a.shape != chunk.Completion {
		return
	}
	switch {
	case a.at[includeUsage].to > 0:
		cuts.add(a.at[includeUsage], usageTrue)
	case a.has(streamOptions):
		cuts.add(a.inside(streamOptions), usageMember)
	case a.isNull(streamOptions):
		cuts.add(a.at[streamOptions], optionsValue)
	default:
		cuts.add(a.head(), optionsMember)
	}
}

func (a *Ask) editSystem(cuts *cutList, e *Edits) {
	if len(e.System) == 0 {
		return
	}
	switch m := systemOf(a.shape); {
	case a.shape == chunk.Chat:
		cuts.add(a.inside(messages), systemMessage)
	case a.shape != chunk.Messages && a.shape != chunk.Responses:
	case a.isNull(m):
		cuts.add(a.at[m], systemValue)
	case !a.has(m):
		cuts.add(a.head(), systemMember)
	case a.raw(m)[0] == '[':
		cuts.add(a.inside(m), systemBlock)
	default:
		cuts.add(a.inside(m), systemText)
	}
}

// appendCut appends what takes the place of a cut, with the comma that it needs
// where it is a new first element of something: before it, if only other new ones
// are there.
func (a *Ask) appendCut(dst []byte, c *cut, e *Edits) []byte {
	if c.from < c.to || c.put == systemText {
		return a.appendPiece(dst, c.put, e)
	}
	around := a.body[c.from-1:]
	if !hollow(around) {
		return append(a.appendPiece(dst, c.put, e), ',')
	}
	if dst[len(dst)-1] != around[0] {
		dst = append(dst, ',')
	}
	return a.appendPiece(dst, c.put, e)
}

func (a *Ask) appendPiece(dst []byte, put piece, e *Edits) []byte {
	switch put {
	case modelMember:
		dst = appendKey(dst, model)
		fallthrough
	case modelValue:
		return AppendString(dst, e.Model)
	case limitMember:
		own, _ := limitMembers(a.shape)
		dst = appendKey(dst, own)
		fallthrough
	case limitValue:
		return strconv.AppendInt(dst, e.Limit, 10)
	case usageTrue:
		return append(dst, "true"...)
	case usageMember:
		return append(dst, `"include_usage":true`...)
	case optionsMember:
		dst = appendKey(dst, streamOptions)
		fallthrough
	case optionsValue:
		return append(dst, `{"include_usage":true}`...)
	case systemMessage:
		dst = append(dst, `{"role":"system","content":`...)
		return append(AppendString(dst, e.System), '}')
	case systemBlock:
		dst = append(dst, `{"type":"text","text":`...)
		return append(AppendString(dst, e.System), '}')
	case systemText:
		return append(appendEscaped(dst, e.System), `\n\n`...)
	case systemMember:
		dst = appendKey(dst, systemOf(a.shape))
	}
	return AppendString(dst, e.System)
}

// systemOf gives the member that holds the system prompt.
func systemOf(shape chunk.Shape) member {
	if shape == chunk.Responses {
		return instructions
	}
	return system
}

func appendKey(dst []byte, m member) []byte {
	dst = append(dst, '"')
	dst = append(dst, m.String()...)
	return append(dst, `":`...)
}

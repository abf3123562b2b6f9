package whole

import (
	"encoding/json"
	"slices"
)

// addMessages takes an event of Anthropic's Messages API.
func (a *Assembler) addMessages(kind string, doc value) error {
	started := a.root.kind != none
	switch kind {
	case "message_start":
		if started || !doc.get("message").is('{') {
			return ErrShape
		}
		return a.startMessage(doc.get("message"))
	case "content_block_start", "content_block_delta", "message_delta", "message_stop":
		if !started {
			return ErrShape
		}
	}
	switch kind {
	case "content_block_start":
		index, err := doc.get("index").index(len(a.parts.nodes))
		if err != nil {
			return err
		}
		return a.startBlock(index, doc.get("content_block"))
	case "content_block_delta":
		return a.addPiece(doc)
	case "message_delta":
		if err := a.addUsage(doc.get("usage")); err != nil {
			return err
		}
		for key, v := range doc.get("delta").members() {
			if err := a.keep(string(key), v, a.store.last); err != nil {
				return err
			}
		}
	case "message_stop":
		a.ended = true
	}
	return nil
}

func (a *Assembler) startMessage(message value) error {
	a.root.kind = object
	for key, v := range message.members() {
		var err error
		switch {
		case string(key) == "content":
			for i, block := range v.elements() {
				if err = a.startBlock(i, block); err != nil {
					return err
				}
			}
		case string(key) == "usage" && v.is('{'):
			err = a.addUsage(v)
		default:
			err = a.keep(string(key), v, a.store.last)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addUsage adds counts. They are cumulative, so the last one stands; but the
// prompt comes with message_start, and a zero in its place later says nothing.
func (a *Assembler) addUsage(v value) error {
	if !v.is('{') {
		return nil
	}
	usage, err := a.store.member(&a.root, []byte("usage"))
	if err != nil {
		return err
	}
	if usage.kind == raw {
		usage.bytes = usage.bytes[:0]
	}
	usage.kind = object
	for key, count := range v.members() {
		m, err := a.store.member(usage, key)
		if err == nil && (m.kind == none || !count.blank()) {
			err = a.store.replace(m, count)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Assembler) startBlock(index int, block value) error {
	if !block.is('{') || index < maxItems && a.hasPart(index) {
		return ErrShape
	}
	n, err := a.part(index)
	if err != nil {
		return err
	}
	return a.store.join(n, block, 1)
}

// addPiece takes a text_delta, thinking_delta, signature_delta,
// input_json_delta, citations_delta, or one yet unknown: what it holds goes on
// with the block's member of the same name.
func (a *Assembler) addPiece(doc value) error {
	index, err := doc.get("index").index(max(len(a.parts.nodes)-1, 0))
	if err != nil {
		return err
	}
	if !a.hasPart(index) {
		return ErrShape
	}
	block, err := a.part(index)
	if err != nil {
		return err
	}
	for key, v := range doc.get("delta").members() {
		switch string(key) {
		case "type":
			continue
		case "citation":
			err = a.addCitation(block, v)
		default:
			var m *node
			if m, err = a.store.member(block, key); err == nil {
				err = a.store.joinMember(m, v, 0)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Assembler) addCitation(block *node, citation value) error {
	m, err := a.store.member(block, []byte("citations"))
	if err != nil {
		return err
	}
	if m.kind == text {
		return ErrShape
	}
	return a.store.push(m, citation)
}

func (a *Assembler) appendMessage(dst []byte) ([]byte, error) {
	if !a.ended {
		return dst, ErrUnfinished
	}
	dst = a.root.append(dst)
	dst = append(appendKey(dst[:len(dst)-1], "content"), '[')
	for _, block := range a.parts.nodes {
		var err error
		if dst, err = appendBlock(appendComma(dst), block); err != nil {
			return dst, err
		}
	}
	return append(dst, "]}"...), nil
}

// appendBlock appends a block. The pieces of its input are JSON within strings.
func appendBlock(dst []byte, block *node) ([]byte, error) {
	pieces := block.find("partial_json")
	if !pieces.says() {
		return block.appendWithout(dst, "partial_json"), nil
	}
	var decoded string
	if err := json.Unmarshal(pieces.append(nil), &decoded); err != nil {
		return dst, ErrShape
	}
	input, ok := parse([]byte(decoded))
	if !ok || !input.is('{') {
		return dst, ErrShape
	}
	whole := *block
	whole.nodes = slices.DeleteFunc(slices.Clone(block.nodes), func(n *node) bool { return string(n.key) == "input" })
	dst = whole.appendWithout(dst, "partial_json")
	return append(appendMember(dst[:len(dst)-1], "input", input), '}'), nil
}

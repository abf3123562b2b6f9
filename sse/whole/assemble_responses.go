package whole

// addResponses takes a typed event. The last one carries the whole response;
// the items are kept for those providers that leave its output empty.
func (a *Assembler) addResponses(kind string, doc value) error {
	switch kind {
	case "response.completed", "response.incomplete":
		response := doc.get("response")
		if !response.is('{') {
			return ErrShape
		}
		a.ended = true
		return a.store.replace(&a.root, response)
	case "response.output_item.done":
		index, err := doc.get("output_index").index(0)
		if err != nil {
			return err
		}
		item := doc.get("item")
		if !item.is('{') {
			return ErrShape
		}
		n, err := a.part(index)
		if err != nil {
			return err
		}
		return a.store.replace(n, item)
	case "response.failed":
		return ErrFailed
	}
	return nil
}

func (a *Assembler) appendResponse(dst []byte) ([]byte, error) {
	if !a.ended {
		return dst, ErrUnfinished
	}
	response := value(a.root.bytes)
	output := response.get("output")
	if len(a.parts.nodes) == 0 || !output.absent() && !output.empty() {
		return append(dst, response...), nil
	}
	dst = response.appendChanged(dst, change{"output", ""})
	dst = appendKey(dst[:len(dst)-1], "output")
	return append(a.parts.append(dst), '}'), nil
}

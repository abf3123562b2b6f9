package config

import (
	"bytes"
	"cmp"
	"errors"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// position counts lines and bytes of a line from 1.
type position struct{ line, column int }

// table is a TOML table that remembers where everything was written.
type table struct {
	path    string // as in [route.default]; "" of the root
	entries []*entry
}

type entry struct {
	key   string
	at    position
	value *value
}

type value struct {
	path  string // the setting's full name; an element has that of its list
	at    position
	kind  unstable.Kind
	text  string   // a string's content, a number as it was written
	list  []*value // of an Array
	table *table   // of an InlineTable, and of those with a header
}

func (t *table) get(key string) *entry {
	for _, e := range t.entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

func (t *table) add(key string, at position, v *value) *value {
	v.path = joinPath(t.path, key)
	if v.table != nil {
		v.table.path = v.path
	}
	t.entries = append(t.entries, &entry{key: key, at: at, value: v})
	return v
}

// child is the table of that key, made where there is none yet. Where the key
// is something else already, which TOML refuses, what follows goes nowhere.
func (t *table) child(key string, at position) *table {
	e := t.get(key)
	if e == nil {
		return t.add(key, at, newTable(at)).table
	}
	v := e.value
	if v.kind == unstable.Array && len(v.list) > 0 {
		v = v.list[len(v.list)-1]
	}
	if v.table == nil {
		return &table{path: v.path}
	}
	return v.table
}

func newTable(at position) *value {
	return &value{at: at, kind: unstable.InlineTable, table: new(table)}
}

func joinPath(path, key string) string {
	bare := key != ""
	for _, c := range []byte(key) {
		bare = bare && (isNameByte(c) || 'A' <= c && c <= 'Z')
	}
	if !bare {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

type syntaxError struct {
	at      position
	message string
}

// document walks the parser's expressions, which know their offsets, into
// tables: the decoder of the package would lose the positions.
type document struct {
	data   []byte
	starts []int // the offset of each line
	parser unstable.Parser
}

// parseDocument reads TOML. On a mistake of syntax there is no table; on one
// of meaning, such as a key that is there twice, there is both, so that the
// rest can be looked at too.
func parseDocument(data []byte) (*table, *syntaxError) {
	d := document{data: data, starts: []int{0}}
	for i, c := range data {
		if c == '\n' {
			d.starts = append(d.starts, i+1)
		}
	}
	root := new(table)
	current := root
	d.parser.Reset(data)
	for d.parser.NextExpression() {
		switch e := d.parser.Expression(); e.Kind {
		case unstable.Table:
			current = d.descend(root, e.Key())
		case unstable.ArrayTable:
			current = d.element(root, e.Key())
		case unstable.KeyValue:
			d.keyValue(current, e)
		}
	}
	// The decoder knows all the rules of TOML, the parser only its grammar.
	refused := decodeError(data)
	if err := d.parser.Error(); err != nil {
		root, refused = nil, cmp.Or(refused, &syntaxError{position{1, 1}, err.Error()})
	}
	return root, refused
}

func decodeError(data []byte) *syntaxError {
	var ignored map[string]any
	err := toml.Unmarshal(data, &ignored)
	if err == nil {
		return nil
	}
	refused := &syntaxError{at: position{1, 1}, message: err.Error()}
	if decode := (*toml.DecodeError)(nil); errors.As(err, &decode) {
		refused.at.line, refused.at.column = decode.Position()
	}
	// strconv quotes the number that it could not read.
	refused.message, _, _ = strings.Cut(refused.message, ": strconv")
	return refused
}

func (d *document) at(offset int) position {
	line := sort.SearchInts(d.starts, offset+1)
	return position{line, offset - d.starts[line-1] + 1}
}

func (d *document) descend(t *table, key unstable.Iterator) *table {
	for key.Next() {
		part := key.Node()
		t = t.child(string(part.Data), d.at(int(part.Raw.Offset)))
	}
	return t
}

// element makes the next table of an array of tables.
func (d *document) element(t *table, key unstable.Iterator) *table {
	for key.Next() && !key.IsLast() {
		part := key.Node()
		t = t.child(string(part.Data), d.at(int(part.Raw.Offset)))
	}
	name, at := string(key.Node().Data), d.at(int(key.Node().Raw.Offset))
	e := t.get(name)
	if e == nil {
		t.add(name, at, &value{at: at, kind: unstable.Array})
		e = t.get(name)
	}
	v := newTable(at)
	v.path, v.table.path = e.value.path, e.value.path
	e.value.list = append(e.value.list, v)
	return v.table
}

func (d *document) keyValue(t *table, e *unstable.Node) {
	key := e.Key()
	for key.Next() && !key.IsLast() {
		part := key.Node()
		t = t.child(string(part.Data), d.at(int(part.Raw.Offset)))
	}
	last := key.Node()
	if t.get(string(last.Data)) != nil {
		return // the decoder refuses it
	}
	// Arrays know no offset of their own; what follows the "=" is the value.
	rest := d.data[last.Raw.Offset+last.Raw.Length:]
	written := bytes.TrimLeft(rest, " \t=")
	at := d.at(len(d.data) - len(written))
	v := t.add(string(last.Data), d.at(int(last.Raw.Offset)), &value{at: at})
	d.fill(v, e.Value())
}

func (d *document) fill(v *value, n *unstable.Node) {
	v.kind = n.Kind
	children := n.Children()
	switch n.Kind {
	case unstable.Array:
		for children.Next() {
			child := children.Node()
			element := &value{path: v.path, at: v.at}
			if child.Raw.Length > 0 {
				element.at = d.at(int(child.Raw.Offset))
			}
			d.fill(element, child)
			v.list = append(v.list, element)
		}
	case unstable.InlineTable:
		v.table = &table{path: v.path}
		for children.Next() {
			d.keyValue(v.table, children.Node())
		}
	default:
		v.text = string(n.Data)
	}
}

package ask

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// key is where a decoded key is: in the body, or where it had escapes, in
// Ask.texts, which inTexts in its end says.
type key struct{ from, to uint32 }

const inTexts = 1 << 31

// name gives a key's decoded bytes.
func (a *Ask) name(k key) []byte {
	if k.to&inTexts != 0 {
		return a.texts[k.from : k.to&^inTexts]
	}
	return a.body[k.from:k.to]
}

// few is up to how many keys it is quicker to compare than to hash.
const few = 16

// add adds a key to the innermost object. It is false if the object has it already.
//
// An object with more than a few keys has a hash table, with a seed that nobody
// can know, so that no choice of keys is slow. As only the innermost object gets
// keys, all tables lie one after the other in one buffer, and the last can grow.
func (a *Ask) add(f *frame, k key, name []byte) bool {
	own := a.keys[f.firstKey:]
	if len(own) < few {
		for _, other := range own {
			if bytes.Equal(a.name(other), name) {
				return false
			}
		}
		a.keys = append(a.keys, k)
		return true
	}
	if table := len(a.slots) - int(f.firstSlot); len(own) >= table/4*3 {
		a.index(f, max(4*few, 2*table))
	}
	slot := a.slot(f, name)
	if *slot != 0 {
		return false
	}
	a.keys = append(a.keys, k)
	*slot = uint32(len(own) + 1)
	return true
}

// index makes the hash table of the innermost object anew, with room for size
// keys, a power of two.
func (a *Ask) index(f *frame, size int) {
	if a.seed == (maphash.Seed{}) {
		a.seed = maphash.MakeSeed()
	}
	end := int(f.firstSlot) + size
	a.slots = slices.Grow(a.slots[:f.firstSlot], size)[:end]
	clear(a.slots[f.firstSlot:])
	for i, k := range a.keys[f.firstKey:] {
		*a.slot(f, a.name(k)) = uint32(i + 1)
	}
}

// slot gives the place of a name in the table of the innermost object: one more
// than its index among the object's keys, or 0 where it isn't among them.
func (a *Ask) slot(f *frame, name []byte) *uint32 {
	table, own := a.slots[f.firstSlot:], a.keys[f.firstKey:]
	mask := uint64(len(table) - 1)
	i := maphash.Bytes(a.seed, name) & mask
	for table[i] != 0 && !bytes.Equal(a.name(own[table[i]-1]), name) {
		i = (i + 1) & mask
	}
	return &table[i]
}

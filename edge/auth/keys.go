// Package auth says who is calling.
package auth

import (
	"crypto/sha256"
	"slices"
)

// Identity is a caller that has shown who it is. Its zero value is nobody.
type Identity struct {
	User   string // the subject of budgets and the record's user
	Routes []string
}

// May reports whether the caller may use the route.
func (i Identity) May(route string) bool { return slices.Contains(i.Routes, route) }

// Keys knows the client keys by their hashes. It is immutable once built.
type Keys struct {
	byHash map[[sha256.Size]byte]Identity
}

// NewKeys makes an empty set.
func NewKeys() *Keys { return &Keys{byHash: make(map[[sha256.Size]byte]Identity)} }

// Add enters a key by its SHA-256. It must not be called once Keys is in use.
func (k *Keys) Add(hash [sha256.Size]byte, id Identity) { k.byHash[hash] = id }

// Identify finds whose key it is. Looking up a hash tells nothing of the keys
// by its time: who can't invert SHA-256 can't choose the hash that is compared.
func (k *Keys) Identify(key []byte) (Identity, bool) {
	if len(key) == 0 {
		return Identity{}, false
	}
	id, ok := k.byHash[sha256.Sum256(key)]
	return id, ok
}

package auth

import (
	"crypto/sha256"
	"testing"
)

func TestAKeyIsKnownByItsHashAlone(t *testing.T) {
	k := NewKeys()
	k.Add(sha256.Sum256([]byte("old")), Identity{User: "ios", Routes: []string{"default"}})
	k.Add(sha256.Sum256([]byte("new")), Identity{User: "ios", Routes: []string{"default"}})
	hash := sha256.Sum256([]byte("old"))
	f := func(key, user string, ok bool) {
		t.Helper()
		if id, got := k.Identify([]byte(key)); got != ok || id.User != user {
			t.Errorf("%q: %q, %v", key, id.User, got)
		}
	}
	f("old", "ios", true)
	f("new", "ios", true) // two while it is rotated
	f("old ", "", false)
	f("OLD", "", false)
	f("", "", false)
	f(string(hash[:]), "", false)
}

func TestAnIdentityMayUseItsRoutesAndNoOther(t *testing.T) {
	id := Identity{Routes: []string{"default", "voice"}}
	if !id.May("voice") || id.May("voic") || id.May("") || (Identity{}).May("default") {
		t.Error(id)
	}
}

func TestIdentifyingAllocatesNothing(t *testing.T) {
	k, key := NewKeys(), []byte("CK-good")
	k.Add(sha256.Sum256(key), Identity{User: "ios"})
	if n := testing.AllocsPerRun(100, func() { k.Identify(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

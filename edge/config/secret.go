package config

import (
	"fmt"
	"io"
	"log/slog"
)

const mask = "•••"

// Secret is a text that can't be printed by accident: fmt with any verb,
// encoding/json and log/slog all show a mask. Its zero value is "".
//
// The text is behind a pointer, because fmt prints what it finds in fields
// that are not exported, and for a bad verb, without asking any method; of a
// pointer it shows the address. Secrets don't compare with ==: that would
// compare addresses, and tell the text by its time if it did not.
type Secret struct {
	_    [0]func()
	text *string
}

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal gives the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String gives the mask.
func (Secret) String() string { return mask }

// GoString gives the mask.
func (Secret) GoString() string { return mask }

// Format writes the mask, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText gives the mask.
func (Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// LogValue gives the mask.
func (Secret) LogValue() slog.Value { return slog.StringValue(mask) }

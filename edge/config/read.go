package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// field reads one setting into its place, or reports why it can't.
type field func(*value)

// fields are the keys that a table may have.
type fields map[string]field

func (b *builder) report(at position, format string, args ...any) {
	if at == b.refused {
		return
	}
	b.problems = append(b.problems, Problem{b.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

func (b *builder) warn(at position, format string, args ...any) {
	b.warnings = append(b.warnings, Problem{b.file, at.line, at.column, fmt.Sprintf(format, args...)})
}

// fail reports a value by the full name of its setting.
func (b *builder) fail(v *value, format string, args ...any) {
	b.report(v.at, "%s %s", v.path, fmt.Sprintf(format, args...))
}

func (b *builder) read(t *table, known fields) {
	for _, e := range t.entries {
		if set, ok := known[e.key]; ok {
			set(e.value)
			continue
		}
		where := ""
		if t.path != "" {
			where = " in " + t.path
		}
		b.report(e.at, "unknown key %q%s%s", e.key, where, didYouMean(e.key, slices.Collect(maps.Keys(known))))
	}
}

// is reports a value of another type than wanted.
func (b *builder) is(v *value, kind unstable.Kind) bool {
	if v.kind != kind {
		b.fail(v, "must be %s, not %s", typeName(kind), typeName(v.kind))
	}
	return v.kind == kind
}

func typeName(kind unstable.Kind) string {
	switch kind {
	case unstable.String:
		return "a string"
	case unstable.Integer:
		return "an integer"
	case unstable.Float:
		return "a float"
	case unstable.Bool:
		return "a boolean"
	case unstable.Array:
		return "a list"
	case unstable.InlineTable:
		return "a table"
	}
	return "a date"
}

func (b *builder) table(known fields) field {
	return func(v *value) {
		if b.is(v, unstable.InlineTable) {
			b.read(v.table, known)
		}
	}
}

// named collects tables whose names the file gives, as in [route.NAME].
func (b *builder) named(dst *[]*entry, reserved ...string) field {
	return func(v *value) {
		if !b.is(v, unstable.InlineTable) {
			return
		}
		for _, e := range v.table.entries {
			switch {
			case !isName(e.key):
				b.report(e.at, "a name in [%s.NAME] has 1 to 64 of a-z, 0-9, - and _", v.path)
			case slices.Contains(reserved, e.key):
				b.report(e.at, "%s is a path of its own: choose another name", e.value.path)
			}
			if b.is(e.value, unstable.InlineTable) {
				*dst = append(*dst, e)
			}
		}
	}
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		if !isNameByte(c) {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 64
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func (b *builder) text(dst *string) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		if v.text == "" {
			b.fail(v, "must not be empty: leave it out for none")
			return
		}
		*dst = v.text
	}
}

func (b *builder) choice(dst *string, allowed ...string) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		if !slices.Contains(allowed, v.text) {
			b.fail(v, "must be one of %s%s", quoted(allowed), didYouMean(v.text, allowed))
			return
		}
		*dst = v.text
	}
}

// switchable reads "auto", true or false.
func (b *builder) switchable(dst *string) field {
	return func(v *value) {
		switch {
		case v.kind == unstable.Bool:
			*dst = v.text
		case v.kind == unstable.String && v.text == "auto":
			*dst = v.text
		default:
			b.fail(v, `must be "auto", true or false`)
		}
	}
}

// texts gives the strings of a list without those that are no strings. A list
// of one may be written as the string alone. Nothing comes of an empty list.
func (b *builder) texts(v *value) []*value {
	if v.kind == unstable.String {
		return []*value{v}
	}
	if v.kind != unstable.Array {
		b.fail(v, "must be a list of strings, not %s", typeName(v.kind))
		return nil
	}
	var texts []*value
	for _, element := range v.list {
		if b.is(element, unstable.String) {
			texts = append(texts, element)
		}
	}
	return texts
}

// nonempty are texts of a list where none would have no meaning, or two.
func (b *builder) nonempty(v *value) []*value {
	if v.kind == unstable.Array && len(v.list) == 0 {
		b.fail(v, "must not be an empty list: leave it out for the default")
	}
	return b.texts(v)
}

func (b *builder) duration(dst *time.Duration) field {
	return func(v *value) {
		if d, ok := b.parseDuration(v); ok && d <= 0 {
			b.fail(v, `must be more than 0, like "30s"`)
		} else if ok {
			*dst = d
		}
	}
}

// durationOrOff is for what "0s" turns off.
func (b *builder) durationOrOff(dst *time.Duration) field {
	return func(v *value) {
		if d, ok := b.parseDuration(v); ok && d < 0 {
			b.fail(v, `must not be negative: "0s" turns it off`)
		} else if ok {
			*dst = d
		}
	}
}

// atLeast is for what would do harm if it came in short intervals.
func (b *builder) atLeast(dst *time.Duration, low time.Duration) field {
	return func(v *value) {
		if d, ok := b.parseDuration(v); ok && d < low {
			b.fail(v, "must be at least %q", low)
		} else if ok {
			*dst = d
		}
	}
}

func (b *builder) parseDuration(v *value) (time.Duration, bool) {
	number := v.kind == unstable.Integer || v.kind == unstable.Float
	if v.kind == unstable.String {
		_, err := strconv.ParseFloat(v.text, 64)
		number = err == nil // "0", too, that Go takes for a duration
	}
	if number {
		b.fail(v, `is a bare number; use a unit: "30s"`)
		return 0, false
	}
	if !b.is(v, unstable.String) {
		return 0, false
	}
	if v.text == "" {
		b.fail(v, `must not be empty: use a number with a unit, like "30s"`)
		return 0, false
	}
	d, err := time.ParseDuration(v.text)
	if err != nil {
		b.fail(v, `must be a duration like "500ms", "30s" or "1m30s"`)
	}
	return d, err == nil
}

// maxSize bounds what is held in memory at once.
const maxSize = 1 << 30

func (b *builder) size(dst *int64) field {
	return func(v *value) {
		if v.kind != unstable.String && v.kind != unstable.Integer {
			b.fail(v, `must be a size like "20MiB", not %s`, typeName(v.kind))
			return
		}
		n, ok := parseSize(v.text)
		if v.kind == unstable.Integer {
			n, ok = parseInteger(v.text)
		}
		switch {
		case !ok:
			b.fail(v, `must be a size like "20MiB", "512KiB" or "1MB", or a whole number of bytes`)
		case n <= 0 || n > maxSize:
			b.fail(v, `must be more than 0 and at most "1GiB"`)
		default:
			*dst = n
		}
	}
}

// parseSize gives the bytes of a whole number with a unit. What is too large
// for any use comes out as the largest number.
func parseSize(s string) (int64, bool) {
	unit := strings.TrimLeft(s, "0123456789")
	n, err := strconv.ParseInt(s[:len(s)-len(unit)], 10, 64)
	if err != nil {
		return 0, false
	}
	factor, ok := int64(1), true
	switch unit {
	case "", "B":
	case "KB", "kB":
		factor = 1e3
	case "MB":
		factor = 1e6
	case "GB":
		factor = 1e9
	case "KiB":
		factor = 1 << 10
	case "MiB":
		factor = 1 << 20
	case "GiB":
		factor = 1 << 30
	default:
		ok = false
	}
	if n > math.MaxInt64/factor {
		return math.MaxInt64, ok
	}
	return n * factor, ok
}

// parseInteger reads an integer as TOML writes it: Go's literals are a superset.
func parseInteger(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 0, 64)
	return n, err == nil
}

func count[T int | int64](b *builder, dst *T, low, high int64) field {
	return func(v *value) {
		if !b.is(v, unstable.Integer) {
			return
		}
		n, ok := parseInteger(v.text)
		if !ok || n < low || n > high {
			b.fail(v, "must be from %d to %d", low, high)
			return
		}
		*dst = T(n)
	}
}

// ratio reads a share of 1. A whole number is one, too.
func (b *builder) ratio(dst *float64, low, high float64) field {
	return func(v *value) {
		if v.kind != unstable.Float && v.kind != unstable.Integer {
			b.fail(v, "must be a number, not %s", typeName(v.kind))
			return
		}
		n, ok := parseFloat(v.text)
		if v.kind == unstable.Integer {
			var whole int64
			whole, ok = parseInteger(v.text)
			n = float64(whole)
		}
		if !ok || !(low <= n && n <= high) { // nan is neither
			b.fail(v, "must be from %g to %g", low, high)
			return
		}
		*dst = n
	}
}

// parseFloat reads a float as TOML writes it: Go takes underscores in
// hexadecimal ones alone.
func parseFloat(s string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return n, err == nil
}

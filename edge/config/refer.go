package config

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2/unstable"
)

// once appends an element that must not be in the list before.
func (b *builder) once(list []string, v *value) []string {
	if slices.Contains(list, v.text) {
		b.fail(v, "has this twice")
		return list
	}
	return append(list, v.text)
}

func (b *builder) upstreams(dst *[]*Upstream, c *Config) field {
	return func(v *value) {
		for _, name := range b.references(v, "upstream", slices.Collect(maps.Keys(c.Upstreams))) {
			*dst = append(*dst, c.Upstreams[name])
		}
	}
}

func (b *builder) routes(dst *[]string, c *Config) field {
	return func(v *value) {
		*dst = b.references(v, "route", slices.Collect(maps.Keys(c.Routes)))
	}
}

// references reads names of tables that must exist.
func (b *builder) references(v *value, table string, known []string) []string {
	var names []string
	for _, element := range b.nonempty(v) {
		switch {
		case slices.Contains(known, element.text):
			names = b.once(names, element)
		case !isName(element.text):
			b.fail(element, "must name a [%s.NAME]", table)
		default:
			b.fail(element, "names %q, but there is no [%s.%s]%s", element.text, table, element.text, didYouMean(element.text, known))
		}
	}
	return names
}

func (b *builder) models(dst *map[string]string) field {
	return func(v *value) {
		if !b.is(v, unstable.InlineTable) {
			return
		}
		if len(v.table.entries) == 0 {
			b.fail(v, "must not be empty: leave it out to allow any model")
		}
		models := make(map[string]string, len(v.table.entries))
		for _, e := range v.table.entries {
			switch {
			case e.value.kind == unstable.InlineTable:
				b.fail(e.value, `must be a string: a name with a dot in it goes between quotes, like "gpt-4.1"`)
			case !b.is(e.value, unstable.String):
			case !isModel(e.key):
				b.report(e.at, "%s must have names that are not empty and have no spaces", v.path)
			case !isModel(e.value.text):
				b.fail(e.value, "must be the upstream's name of a model, without spaces")
			}
			models[e.key] = e.value.text
		}
		*dst = models
	}
}

func (b *builder) model(dst *string) field {
	return func(v *value) {
		if !b.is(v, unstable.String) {
			return
		}
		if !isModel(v.text) {
			b.fail(v, "must be the upstream's name of a model, without spaces")
			return
		}
		*dst = v.text
	}
}

// isModel keeps out what no provider's name of a model has.
func isModel(s string) bool {
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, odd)
}

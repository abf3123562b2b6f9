package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretCannotBePrinted(t *testing.T) {
	const text = "sk-12345"
	secret := NewSecret(text)
	type holder struct {
		Open   Secret
		List   []Secret
		ByName map[string]Secret
		hidden Secret
	}
	held := holder{secret, []Secret{secret}, map[string]Secret{"a": secret}, secret}
	parsed := parseText(t, oneUpstream+"keys = ['"+text+"']\n").Upstreams["one"]
	hexadecimal := fmt.Sprintf("%x", text)
	f := func(how, got string) {
		t.Helper()
		if got == "" || strings.Contains(got, text) || strings.Contains(strings.ToLower(got), hexadecimal) {
			t.Errorf("%s gives %q", how, got)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%c", "%p", "%z", "%20v"} {
		for _, v := range []any{secret, &secret, held, &held, Upstream{Keys: held.List}, parsed, *parsed} {
			f(verb, fmt.Sprintf(verb, v))
		}
	}
	f("Sprint", fmt.Sprint(secret))
	f("String", secret.String())
	f("GoString", secret.GoString())
	f("errors", fmt.Errorf("refused: %w, %v", nil, held).Error())

	encoded, err := json.Marshal(held)
	if err != nil || !strings.Contains(string(encoded), mask) {
		t.Errorf("json gives %s, %v", encoded, err)
	}
	f("json", string(encoded))

	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info(secret.String(), "key", secret, "held", held, slog.Any("list", held.List))
	}
	f("slog", log.String())

	if got := secret.Reveal(); got != text {
		t.Errorf("reveals %q", got)
	}
	if got := (Secret{}).Reveal(); got != "" {
		t.Errorf("the zero value reveals %q", got)
	}
}

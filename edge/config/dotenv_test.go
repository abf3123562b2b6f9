package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRealEnvironmentWinsOverDotenv(t *testing.T) {
	t.Setenv("CONFIG_TEST_REAL", "real")
	t.Setenv("CONFIG_TEST_EMPTY", "")
	file := filepath.Join(t.TempDir(), ".env")
	text := "# keys\nCONFIG_TEST_REAL=file\nCONFIG_TEST_EMPTY=file\nexport CONFIG_TEST_FILE=\"from the file\" # why\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup, err := Dotenv(file)
	if err != nil {
		t.Fatal(err)
	}
	f := func(name, want string, wantOK bool) {
		t.Helper()
		if got, ok := lookup(name); got != want || ok != wantOK {
			t.Errorf("%s is %q, %v", name, got, ok)
		}
	}
	f("CONFIG_TEST_REAL", "real", true)
	f("CONFIG_TEST_EMPTY", "", true)
	f("CONFIG_TEST_FILE", "from the file", true)
	f("CONFIG_TEST_NOWHERE", "", false)
	if _, ok := os.LookupEnv("CONFIG_TEST_FILE"); ok {
		t.Error("the process's own environment was changed")
	}

	c, err := Parse("t.toml", []byte(oneUpstream+"keys = ['$CONFIG_TEST_REAL']\n"), "", lookup)
	if err != nil || c.Upstreams["one"].Keys[0].Reveal() != "real" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestMissingDotenvLeavesTheEnvironment(t *testing.T) {
	t.Setenv("CONFIG_TEST_REAL", "real")
	lookup, err := Dotenv(filepath.Join(t.TempDir(), ".env"))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := lookup("CONFIG_TEST_REAL"); got != "real" || !ok {
		t.Errorf("got %q, %v", got, ok)
	}
}

func TestDotenvIsReadAnewAtEachLookup(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".env")
	lookup, err := Dotenv(file)
	if err != nil {
		t.Fatal(err)
	}
	f := func(text, want string, wantOK bool) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := lookup("CONFIG_TEST_FILE"); got != want || ok != wantOK {
			t.Errorf("%q: got %q, %v", text, got, ok)
		}
	}
	f("CONFIG_TEST_FILE=one\n", "one", true)
	f("CONFIG_TEST_FILE=two\n", "two", true)
	f("CONFIG_TEST_FILE=two\nBROKEN\n", "", false)
	f("CONFIG_TEST_FILE=three\n", "three", true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, ok := lookup("CONFIG_TEST_FILE"); ok {
		t.Errorf("without the file: got %q", got)
	}
}

func TestMalformedDotenvIsNamedByItsLineAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".env")
	f := func(text, wantLine string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Dotenv(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+":"+wantLine+":1: ") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q gives %v", text, err)
		}
	}
	f("SECRET", "1")
	f("A=1\n\n# b\nSECRET\n", "4")
	f("A=1\nSECRET-KEY=1\nB=2\n", "2")
	f("A=1\nB=\"SECRET\nC=2\n", "2")
	f("A=\"1\n2\n3\"\nB=2\n=SECRET\nC=3", "5")
	if _, err := Dotenv(filepath.Dir(file)); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a folder gives %v", err)
	}
}

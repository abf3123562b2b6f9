package cmd

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// plan is what each room may import of ours, and of the modules that only some
// may. Editing it is a decision about the design.
var plan = map[string]struct{ ours, others []string }{
	"eisbach":             {ours: []string{"edge/cmd"}},
	"eisbach/edge/cmd":    {ours: []string{"edge", "edge/auth", "edge/config", "pool", "pool/sim", "pool/watch"}, others: []string{"github.com/urfave/cli/v2", "github.com/valyala/fasthttp"}},
	"eisbach/edge/config": {others: []string{"github.com/pelletier/go-toml/v2", "github.com/joho/godotenv"}},
	"eisbach/edge":        {ours: []string{"edge/ask", "edge/auth", "edge/relay", "pool", "pool/watch", "sse", "sse/chunk"}, others: []string{"github.com/valyala/fasthttp"}},
	"eisbach/edge/ask":    {ours: []string{"sse/chunk"}, others: []string{"github.com/valyala/fastjson"}},
	"eisbach/edge/auth":   {},
	"eisbach/edge/relay":  {ours: []string{"sse", "sse/chunk"}},
	"eisbach/pool":        {ours: []string{"pool/watch", "sse", "sse/chunk", "sse/whole"}, others: []string{"github.com/valyala/fasthttp", "github.com/andybalholm/brotli"}},
	"eisbach/pool/sim":    {others: []string{"github.com/valyala/fastjson"}},
	"eisbach/pool/watch":  {others: []string{"golang.org/x/sys"}},
	"eisbach/sse":         {},
	"eisbach/sse/whole":   {ours: []string{"sse", "sse/chunk"}},
	"eisbach/sse/chunk":   {others: []string{"github.com/valyala/fastjson"}},
}

func TestRoomsImportOnlyWhatThePlanAllows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "eisbach/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var room struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&room); err != nil {
			t.Fatal(err)
		}
		seen++
		allowed, ok := plan[room.ImportPath]
		if !ok {
			t.Errorf("%s is not in the plan", room.ImportPath)
			continue
		}
		for _, path := range room.Imports {
			if ours, ok := strings.CutPrefix(path, "eisbach/"); ok {
				if !slices.Contains(allowed.ours, ours) {
					t.Errorf("%s must not import %s", room.ImportPath, path)
				}
				continue
			}
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			if !slices.ContainsFunc(allowed.others, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
				t.Errorf("%s must not import %s", room.ImportPath, path)
			}
		}
	}
	if seen != len(plan) {
		t.Errorf("%d rooms stand, and the plan has %d", seen, len(plan))
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const evilText = "=1\x1b]0;pwned\x07\x1b[2J\x1b[32m\u202e\u009b2J\r"

// hostile puts evilText behind each string of a status that no code compares.
func hostile(t *testing.T, object any) {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	free := map[string]bool{"message": true, "gpuModel": true, "version": true, "kernelRelease": true, "summary": true,
		"reason": true, "pciAddress": true, "firmware": true, "name": true, "causes": true, "detail": true,
		"step": true, "mesh": true, "partition": true, "requested": true, "effective": true}
	var walk func(key string, v any) any
	walk = func(key string, v any) any {
		switch x := v.(type) {
		case map[string]any:
			for k := range x {
				x[k] = walk(k, x[k])
			}
		case []any:
			for i := range x {
				x[i] = walk(key, x[i])
			}
		case string:
			if free[key] {
				return x + evilText
			}
		}
		return v
	}
	tree["status"] = walk("", tree["status"])
	if raw, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, object); err != nil {
		t.Fatal(err)
	}
}

// TestNoCommandPassesOnWhatATerminalObeys: what a node or a run pod writes into a status moves no cursor and sets no
// title.
func TestNoCommandPassesOnWhatATerminalObeys(t *testing.T) {
	c := newCLI(t, nil, earlier(t, "1-0", 80))
	group, others := saved(t)
	for _, o := range others {
		if err := c.options.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		hostile(t, o)
		if err := c.options.client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	g, run := group.Objects()
	for _, o := range []client.Object{g, run} {
		if err := c.options.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		hostile(t, o)
		if err := c.options.client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for _, args := range [][]string{{"status", "mi300x"}, {"status", "-A"},
		{"status", "mi300x", "-o", "json"}, {"topology", "sim-node-2"}, {"topology", "mi300x"},
		{"results", "mi300x"}, {"results", "mi300x", "--node", "sim-node-2"}, {"results", "mi300x", "-o", "json"},
		{"results", "mi300x", "-o", "csv"}, {"explain", "mi300x"}, {"compare", "mi300x"},
		{"compare", "--list", "mi300x"}, {"wait", "mi300x"}} {
		out, _, _ := c.run(append(args, "--color=never")...)
		if i := strings.IndexFunc(out, func(r rune) bool {
			return r != '\n' && r != '\t' && unicode.Is(unicode.C, r)
		}); i >= 0 {
			t.Errorf("%v: %q in ...%q", args, out[i], out[max(0, i-60):min(len(out), i+40)])
		}
		if strings.Contains(out, `\u001b]0;pwned`) {
			seen++
		}
	}
	if seen < 6 {
		t.Errorf("only %d commands show the text at all: the test tests nothing", seen)
	}
}

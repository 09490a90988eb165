package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestQuickstartCommands(t *testing.T) {
	const head = "text\n" + quickstartMark + "\n\n"
	for name, c := range map[string]struct {
		markdown string
		want     []string
		problem  string
	}{
		"commands":        {head + "```sh\na b\n\n# comment\nc   # why\n```\nmore\n", []string{"a b", "c   # why"}, ""},
		"continued":       {head + "```\na \\\n  b\nc\n```\n", []string{"a   b", "c"}, ""},
		"no mark":         {"```\na\n```\n", nil, "there is no line"},
		"no block":        {head + "a\n", nil, "expected a fenced block"},
		"open":            {head + "```\na\n", nil, "does not end"},
		"nothing in it":   {head + "```\n# only this\n```\n", nil, "no command"},
		"ends in a slash": {head + "```\na \\\n```\n", nil, "backslash"},
	} {
		got, err := quickstart(c.markdown)
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: error %v, expected one with %q", name, err, c.problem)
		case !slices.Equal(got, c.want):
			t.Errorf("%s: %q, expected %q", name, got, c.want)
		}
	}
}

func FuzzQuickstart(f *testing.F) {
	f.Add("x\n" + quickstartMark + "\n```sh\na \\\nb\n```\n")
	f.Fuzz(func(t *testing.T, markdown string) {
		commands, err := quickstart(markdown)
		if err != nil {
			return
		}
		for _, c := range commands {
			if strings.TrimSpace(c) == "" || strings.Contains(c, "\n") || strings.HasPrefix(c, "#") {
				t.Errorf("%q gives the command %q", markdown, c)
			}
		}
	})
}

// The README's own block: what the end-to-end test runs must be there also where that test cannot run.
func TestReadmeHasQuickstart(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := quickstart(string(readme))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(commands[0], "helm install ") {
		t.Errorf("the quickstart begins with %q, expected helm install", commands[0])
	}
	// Only the operator's own command ends with a run that failed, and says why; kubectl wait sits out its time.
	block := strings.Join(commands, "\n")
	if !strings.Contains(block, "kubectl commgroup wait ") || strings.Contains(block, "kubectl wait ") {
		t.Errorf("the quickstart waits otherwise than by kubectl commgroup wait:\n%s", block)
	}
	// What the block uses, the text before it says how to come by.
	before, _, _ := strings.Cut(string(readme), quickstartMark)
	for _, use := range regexp.MustCompile(`\$([A-Z_]+)`).FindAllStringSubmatch(block, -1) {
		if !strings.Contains(before, use[1]+"=") {
			t.Errorf("the quickstart uses %s, and nothing before it sets that", use[0])
		}
	}
	for _, need := range []string{"make build images", "amd.com/gpu", "feature.node.kubernetes.io/amd-gpu",
		"pod-security.kubernetes.io/enforce=privileged"} {
		if !strings.Contains(before, need) {
			t.Errorf("README says nothing of %s before the quickstart, which does not work without it", need)
		}
	}
}

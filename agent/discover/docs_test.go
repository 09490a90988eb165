package discover

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

var shownOutput = regexp.MustCompile("(?s)<!-- output: (\\w+) (\\w+) -->\n```\\w*\n(.*?)\n```")

// TestDocumentedOutput: what README.md and docs/discovery.md show is what the same simulated nodes print now. A line of
// three dots stands for what is left out.
func TestDocumentedOutput(t *testing.T) {
	outputs := map[string]string{}
	for name, node := range map[string]struct {
		model string
		links []nodetree.Link
	}{
		"pair":   {"MI300X", []nodetree.Link{{A: 3, B: 6, Kind: nodetree.LinkPCIe}}},
		"mi250x": {"MI250X", nil},
	} {
		tree := inMemory(t, node.model, func(n *nodetree.Node) { n.Name, n.Links = "n1", node.links })
		f := scan(t, tree, Options{})
		var table strings.Builder
		if err := f.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		facts, err := yaml.Marshal(f.NodeFacts(10 * time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		outputs[name+" table"], outputs[name+" facts"] = table.String(), string(facts)
	}
	for page, want := range map[string]int{"../../README.md": 1, "../../docs/discovery.md": 3} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := shownOutput.FindAllStringSubmatch(string(text), -1)
		if len(blocks) != want {
			t.Errorf("%s shows %d outputs, want %d", page, len(blocks), want)
		}
		for _, block := range blocks {
			output, ok := outputs[block[1]+" "+block[2]]
			if !ok {
				t.Errorf("%s shows an output %s %s, which this test does not make", page, block[1], block[2])
				continue
			}
			inOrder(t, page, block[3], output)
		}
	}
}

// inOrder looks for each shown line after the one before; without dots between, right after it.
func inOrder(t *testing.T, page, shown, output string) {
	t.Helper()
	lines, at, adjacent := strings.Split(output, "\n"), 0, false
	for _, line := range strings.Split(shown, "\n") {
		if line == "..." {
			adjacent = false
			continue
		}
		found := at
		for found < len(lines) && lines[found] != line {
			found++
		}
		if found == len(lines) || (adjacent && found != at) {
			t.Errorf("%s shows %q, which is not in the output here:\n%s", page, line, output)
			return
		}
		at, adjacent = found+1, true
	}
}

package discover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestLostGPU: no model's node that lost a GPU is proven healthy, and the usual smaller configurations are.
func TestLostGPU(t *testing.T) {
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			whole := len(scan(t, inMemory(t, model, nil), Options{}).GPUs)
			severity := "Warning"
			switch model {
			case "MI100", "MI210", "MI250", "MI250X":
				severity = "Error" // hives of 4 and 3, or half a package
			}
			for _, lost := range []int{0, whole - 1} {
				tree := inMemory(t, model, func(n *nodetree.Node) { n.GPUs[lost].Missing = true })
				f := scan(t, tree, Options{})
				want := severity + " GPUMissing"
				if lines := problemLines(f); len(lines) == 0 || lines[0] != want {
					t.Fatalf("problems %v, want %s", f.Problems, want)
				}
				message := f.Problems[0].Message
				if !strings.Contains(message, fmt.Sprintf("%d of the %d GPUs (%s)", whole-1, whole, model)) ||
					!strings.Contains(message, "--expected-gpus") {
					t.Errorf("message %q", message)
				}
				if f.Proven() || strings.Contains(f.Verdict(), "healthy: ") &&
					!strings.Contains(f.Verdict(), "not proven") {
					t.Errorf("verdict %q", f.Verdict())
				}
				checkNodeFacts(t, f)
				// Whoever says that it is built so is believed.
				for _, line := range problemLines(scan(t, tree, Options{ExpectedGPUs: whole - 1})) {
					if strings.Contains(line, "GPUMissing") {
						t.Errorf("%d GPUs are as asked for: %s", whole-1, line)
					}
				}
			}
		})
	}
}

// TestUsualNumbers: how many GPUs are missing of each number that can be here.
func TestUsualNumbers(t *testing.T) {
	for model, c := range map[string]struct {
		most int
		want map[int]string
	}{
		"MI350P": {8, map[int]string{3: "Warning 3 of the 4", 5: "Warning 5 of the 8", 6: "Warning 6 of the 8",
			7: "Warning 7 of the 8"}},
		"MI300X VF": {8, map[int]string{3: "Warning 3 of the 4", 5: "Warning 5 of the 8", 6: "Warning 6 of the 8",
			7: "Warning 7 of the 8"}},
		"MI210": {8, map[int]string{3: "Error 3 of the 4", 5: "Warning 5 of the 8", 6: "Warning 6 of the 8",
			7: "Error 7 of the 8"}},
		"MI250X": {8, map[int]string{1: "Error 1 of the 2", 3: "Error 3 of the 4", 5: "Error 5 of the 6",
			6: "Warning 6 of the 8", 7: "Error 7 of the 8"}},
		"MI250": {16, map[int]string{1: "Error 1 of the 2", 3: "Error 3 of the 4", 5: "Error 5 of the 6",
			6: "Warning 6 of the 8", 7: "Error 7 of the 8", 9: "Error 9 of the 10", 10: "Warning 10 of the 16",
			11: "Error 11 of the 12", 12: "Warning 12 of the 16", 13: "Error 13 of the 14",
			14: "Warning 14 of the 16", 15: "Error 15 of the 16"}},
	} {
		for here := 1; here <= c.most; here++ {
			f := scan(t, inMemory(t, model, func(n *nodetree.Node) {
				for i := here; i < len(n.GPUs); i++ {
					n.GPUs[i].Missing = true
				}
			}), Options{})
			got := ""
			for _, p := range f.Problems {
				if p.Code == "GPUMissing" {
					got = p.Severity + " " + strings.Join(strings.Fields(p.Message)[:4], " ")
				}
			}
			if got != c.want[here] {
				t.Errorf("%d x %s: %q, want %q", here, model, got, c.want[here])
			}
		}
	}
	// Ten cards and more are somebody's own build (ROCm/ROCmValidationSuite#254 has ten).
	m, _ := LookupModel(0x6860)
	ten := &Facts{Model: "MI25"}
	for range 10 {
		ten.GPUs = append(ten.GPUs, GPU{model: m})
	}
	if e := expectGPUs(ten, 0); e.gpus > 10 {
		t.Errorf("ten MI25: %+v", e)
	}
}

// TestHiveOfThree: three cards on a bridge lack one, unless that one is here and its bridge is not.
func TestHiveOfThree(t *testing.T) {
	for name, c := range map[string]struct {
		hives []int
		want  []string
	}{
		"4 and 3":             {[]int{1, 1, 1, 1, 2, 2, 2}, []string{"Error GPUMissing"}},
		"3 and 3":             {[]int{1, 1, 1, 2, 2, 2}, []string{"Error GPUMissing"}},
		"4, 3 and one apart":  {[]int{1, 1, 1, 1, 2, 2, 2, -1}, []string{"Warning XGMIBridgeAbsent 0000:e3:00.0"}},
		"3 and one apart":     {[]int{1, 1, 1, -1}, []string{"Warning XGMIBridgeAbsent 0000:63:00.0"}},
		"4, 3 and one of one": {[]int{1, 1, 1, 1, 2, 2, 2, 3}, []string{}},
		"2 and 2":             {[]int{1, 1, 2, 2}, []string{}},
		"4 and 2":             {[]int{1, 1, 1, 1, 2, 2}, []string{"Warning GPUMissing"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, inMemory(t, "MI210", func(n *nodetree.Node) {
				n.GPUs = n.GPUs[:len(c.hives)]
				for i, hive := range c.hives {
					n.GPUs[i].Hive = hive
				}
			}), Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
			}
		})
	}
}

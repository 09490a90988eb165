package discover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// checkNodeFacts holds what a CommTask gets against the API's bounds.
func checkNodeFacts(t *testing.T, f *Facts) *v1alpha1.NodeFacts {
	t.Helper()
	n := f.NodeFacts(2 * time.Minute)
	if size := jsonSize(n); size > FactsBudgetBytes {
		t.Errorf("facts take %d bytes, budget is %d", size, FactsBudgetBytes)
	}
	if n.ValidForSeconds != 120 || int(n.GPUCount) != len(f.GPUs) {
		t.Errorf("valid %d s, %d GPUs counted", n.ValidForSeconds, n.GPUCount)
	}
	for _, p := range n.Problems {
		if p.Message == "" || p.Code == "" {
			t.Errorf("problem without words: %+v", p)
		}
	}
	checkSchema(t, n)
	errors := func(problems []v1alpha1.Problem) (n int) {
		for _, p := range problems {
			if p.Severity == v1alpha1.SeverityError {
				n++
			}
		}
		return n
	}
	if (errors(n.Problems) > 0) != (errors(f.Problems) > 0) {
		t.Errorf("errors were lost on the way into the CommTask: %v", n.Problems)
	}
	return n
}

func TestNodeFactsLinks(t *testing.T) {
	f := scan(t, memTree(t, "mi210-8x-two-hives/tree.txtar"), Options{})
	n := checkNodeFacts(t, f)
	if got, want := n.GPUs[0].Links, "-bbbaaaa"; got != want {
		t.Errorf("weights of GPU 0 are %q, want %q", got, want)
	}
	if n.XGMI.UncorrectableErrors != nil || n.GPUs[0].NUMANode != nil {
		t.Errorf("what the dump does not have became a number: %+v", n)
	}
}

func TestNodeFactsBudget(t *testing.T) {
	for _, count := range []int{0, 1, 11, 12, 13, 64} {
		f := &Facts{Origin: v1alpha1.OriginUnknown, ObservedTime: time.Unix(1e9, 0),
			Driver: DriverFacts{Kind: DriverUnknown}, ROCm: ROCmFacts{State: ROCmNotFound},
			Model: "MI250", GPUs: make([]GPU, 16), Mesh: Mesh{State: MeshUnknown, Pairs: make([][]*Link, 16)}}
		for i := range f.GPUs {
			vram := uint64(64 << 30)
			f.GPUs[i] = GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", i), Model: "MI250", VRAMBytes: &vram}
			f.Mesh.Pairs[i] = make([]*Link, 16)
		}
		for i := range count {
			f.Problems = append(f.Problems, v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: "Some",
				Path: strings.Repeat("s", 300), Message: fmt.Sprintf("%d %s", i, strings.Repeat("é", 1000))})
		}
		n := checkNodeFacts(t, f)
		switch {
		case count == 0 && len(n.Problems) != 0, count == 1 && len(n.Problems) != 1:
			t.Errorf("%d problems became %d", count, len(n.Problems))
		case count > 3 && n.Problems[len(n.Problems)-1].Code != v1alpha1.ProblemMoreProblems:
			t.Errorf("of %d problems %d are left, and nothing says so", count, len(n.Problems))
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "..."}, {"éèêë", 4, "éèêë"}, {"éèêëé", 4, "é..."}} {
		if got := cut(c.text, c.limit); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

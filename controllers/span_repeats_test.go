package controllers

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestRepeatsAreSaidToBeOfTheNodes: where repeats are asked for, a good group says that over nodes nothing was repeated.
func TestRepeatsAreSaidToBeOfTheNodes(t *testing.T) {
	for repeats, want := range map[int32]bool{0: false, 1: false, 3: true} {
		w := newGroupWorld(t, 4, faults{}, func(g *v1alpha1.CommGroup) { g.Spec.Benchmark.Repeats = repeats })
		w.play()
		s := w.span()
		if s.Verdict != v1alpha1.VerdictPass || strings.Contains(s.Message, "measured once") != want {
			t.Errorf("repeats %d: %s: %s", repeats, s.Verdict, s.Message)
		}
		if n := strings.Count(w.tests(), "group-"); n != 1 {
			t.Errorf("repeats %d: %d tests of the group", repeats, n)
		}
	}
}

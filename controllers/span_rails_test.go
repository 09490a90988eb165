package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/localize"
)

// TestCulpritsSayWhatWasSeen: the message of a culprit says what the step does, and where it is slow what was measured,
// expected and how many percent that is; of a single rail, also of a pair, it says which, and whom its GPUs belong to.
func TestCulpritsSayWhatWasSeen(t *testing.T) {
	const percent = "Measured 10.0 GB/s, expected at least 32.0 GB/s, which is 80 % of the 40.0 GB/s"
	for _, tc := range []struct {
		name    string
		faults  faults
		culprit string
		says    []string
	}{
		{"a node that hangs", faults{hangNodes: []int{5}}, "Node 5",
			[]string{"does not end within 60 s in each communicator with n00005"}},
		{"a node with wrong data", faults{wrongNodes: []int{5}}, "Node 5",
			[]string{"gives wrong data in each communicator with n00005"}},
		{"a slow node", faults{slowNodes: []int{5}}, "Node 5",
			[]string{"is far slower in each communicator with n00005", percent, "25 %"}},
		{"a pair that hangs", faults{hangPairs: [][2]int{{2, 9}}}, "Pair 2<->9",
			[]string{"does not end within 60 s over n00002 and n00009 together", "the path between the two"}},
		{"a slow pair", faults{slowPairs: [][2]int{{7, 8}}}, "Pair 7<->8",
			[]string{"is far slower over n00007 and n00008 together", percent, "25 %"}},
		{"a rail that hangs", faults{hangRails: [][2]int{{6, 4}}}, "GPU 6/0000:85:00.0",
			[]string{"does not end within 60 s on rail 4 alone of n00006"}},
		{"a slow rail", faults{slowRails: [][2]int{{13, 2}}}, "GPU 13/0000:45:00.0",
			[]string{"is far slower on rail 2 alone of n00013", percent, "that good rails of the two reach: 25 %"}},
		{"a rail of a pair that hangs", faults{hangPairRails: [][3]int{{2, 9, 3}}}, "Pair 2<->9",
			[]string{"does not end within 60 s", "Of its 8 rails these alone are bad: 3 (GPU 3, 0000:65:00.0 on " +
				"n00002; GPU 3, 0000:65:00.0 on n00009)"}},
		{"a slow rail of a pair", faults{slowPairRails: [][3]int{{7, 8, 3}}}, "Pair 7<->8",
			[]string{percent, "25 %", "Of its 8 rails these alone are bad: 3 (GPU 3, 0000:65:00.0 on n00007; " +
				"GPU 3, 0000:65:00.0 on n00008)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 16, tc.faults, nil)
			w.play()
			s := w.span()
			if got := w.culprits(); !slices.Equal(got, []string{tc.culprit}) {
				t.Fatalf("culprits %v, want %s: %s\n%s", got, tc.culprit, s.Message, w.tests())
			}
			for _, want := range append(tc.says, fmt.Sprintf("%s ", s.Localization.Step)) {
				if !strings.Contains(s.Culprits[0].Message, want) {
					t.Errorf("no %q in: %s", want, s.Culprits[0].Message)
				}
			}
			if c := &s.Culprits[0]; c.Kind == "Pair" && c.Node != "" {
				t.Errorf("a pair is told as node %s", c.Node)
			}
			if strings.Contains(s.Culprits[0].Message, "...") {
				t.Errorf("cut: %s", s.Culprits[0].Message)
			}
			for i := range s.Tests { // two nodes that are slow together are a pair to whoever reads the tests
				x := &s.Tests[i]
				if set, _ := localize.ParseSet(x.Set); x.Kind == v1alpha1.TestSearch &&
					x.Reason == v1alpha1.ReasonSlowGroup && len(set) == 2 {
					t.Errorf("test %s of %s says %s", x.ID, x.Set, x.Reason)
				}
			}
			t.Log(s.Culprits[0].Message)
		})
	}
}

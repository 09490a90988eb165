package controllers

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestNoFigureIsNoGoodTest: an agent whose report was refused keeps the verdict and leaves the figures out. Of a test
// that is about speed that tells nothing.
func TestNoFigureIsNoGoodTest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		silent func(task string, node int) bool
	}{
		{"no test over fewer nodes", func(task string, _ int) bool {
			return strings.HasPrefix(task, "localize") || strings.HasPrefix(task, "screen")
		}},
		{"one pair of each round",
			func(task string, node int) bool { return strings.HasPrefix(task, "screen") && node == 8 }},
		{"no test of the search", func(task string, _ int) bool { return strings.HasPrefix(task, "localize") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const bad = 5
			w := newGroupWorld(t, 16, faults{slowNodes: []int{bad}, report: func(node int, ct *v1alpha1.CommTask) {
				task := ct.Status.Session.Task
				for i := range task.Communicators {
					if c := &task.Communicators[i]; tc.silent(task.ID, node) {
						c.OmittedSeries, c.Results = c.OmittedSeries+int32(len(c.Results)), nil
					}
				}
			}}, nil)
			w.play()
			s := w.span()
			if s.Verdict == v1alpha1.VerdictPass || s.Verdict == "" || len(s.Message) == 0 {
				t.Errorf("a group with a slow node: %s %s: %s\n%s", s.Verdict, s.Reason, s.Message, w.tests())
			}
			for _, c := range s.Culprits {
				if c.Node != w.nodes[bad].Name && !strings.Contains(c.Name, w.nodes[bad].Name) {
					t.Errorf("%s is named: %s", c.Name, c.Message)
				}
			}
			for i := range s.Tests {
				if x := &s.Tests[i]; strings.HasPrefix(x.ID, "localize") && x.Verdict == v1alpha1.VerdictPass &&
					x.BusBandwidthMBps == nil {
					t.Errorf("test %s of %s is good without a figure", x.ID, x.Set)
				}
			}
			t.Log(s.Verdict, s.Reason, s.Message)
		})
	}
}

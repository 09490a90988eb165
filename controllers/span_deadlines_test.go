package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// longTests are specs in which a test, a search and the wait for members take longer than each other.
var longTests = map[string]func(*state.Group){
	"defaults":                         func(*state.Group) {},
	"localization Off":                 func(g *state.Group) { g.Spec.Localization.Mode = v1alpha1.LocalizationOff },
	"localization.deadlineSeconds 300": func(g *state.Group) { g.Spec.Localization.DeadlineSeconds = 300 },
	"run.nodeDeadlineSeconds 7200":     func(g *state.Group) { g.Spec.Run.NodeDeadlineSeconds = 7200 },
}

func longTest(change func(*state.Group)) func(*state.Group) {
	return func(g *state.Group) {
		testkit.Mesh("pp", 4, "dp", 2, "tp", 8)(g)
		g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather,
			v1alpha1.ReduceScatter, v1alpha1.Broadcast}
		g.Spec.Benchmark.MaxSizeBytes, g.Spec.Benchmark.SizeFactor = 1<<30, 2
		change(g)
	}
}

// onlyAccused fails where a culprit is none of these nodes.
func (w *groupWorld) onlyAccused(nodes ...int) {
	w.t.Helper()
	for _, c := range w.span().Culprits {
		if !slices.Contains(nodes, w.index[c.Node]) {
			w.t.Errorf("a good node is named: %s %s: %s", c.Node, c.Reason, c.Message)
		}
	}
	if w.t.Failed() {
		w.t.Log(w.span().Verdict, w.span().Reason, w.span().Message, w.tests())
	}
}

// TestAgentsThatFinishedFirstWait: an agent gives its GPUs back after its idle deadline, also while the test that it
// has finished goes on elsewhere; so that must not come before the test's own deadline, and who waits that long for
// others is not lost.
func TestAgentsThatFinishedFirstWait(t *testing.T) {
	for name, change := range longTests {
		t.Run("slow communicator/"+name, func(t *testing.T) {
			w := newGroupWorld(t, 8, faults{}, longTest(change))
			w.faults.takes = func(test string, nodes []int) time.Duration {
				if w.test(test).Kind == v1alpha1.TestMesh && len(nodes) == 2 && nodes[0] == 6 {
					// A minute before its own deadline.
					return decision.Seconds(w.commTask(w.nodes[6].Name).Spec.Session.Task.DeadlineSeconds) - time.Minute
				}
				return 20 * time.Second
			}
			w.play()
			w.onlyAccused()
			if s := w.span(); s.Verdict != v1alpha1.VerdictPass {
				t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
			}
		})
		t.Run("silent agent/"+name, func(t *testing.T) {
			w := newGroupWorld(t, 8, faults{silentNodes: []int{3}}, longTest(change))
			w.play()
			w.onlyAccused(3)
			if got := w.culprits(); !slices.Equal(got, []string{"Node 3"}) {
				t.Errorf("culprits %v", got)
			}
		})
	}
}

// TestAMissingIDEndsNobodyElsesMeasurement: in a test of several communicators the agent of one root is mute. The
// others measure for longer than unique ids have time, and far within their own deadline: only the mute one is lost,
// and it is told what of it was waited for.
func TestAMissingIDEndsNobodyElsesMeasurement(t *testing.T) {
	for _, tc := range []struct {
		test, communicator string
		mute               int
	}{
		{"mesh-pp-1", "pp/0", 0},
		{"mesh-dp-1", "dp/24", 6},
		{"screen-1", "group", 6},
	} {
		t.Run(tc.test, func(t *testing.T) {
			slowest := 0
			if tc.mute == 0 {
				slowest = 1
			}
			w := newGroupWorld(t, 8, faults{takes: func(test string, nodes []int) time.Duration {
				if test == tc.test && nodes[0] == slowest {
					return 172 * time.Second // more than 150 s and what late reports have
				}
				return 20 * time.Second
			}}, testkit.Mesh("pp", 4, "dp", 2, "tp", 8))
			w.meddle = func() {
				w.faults.muteNodes = nil
				if s := w.span(); s != nil && len(s.Tests) > 0 && s.Tests[len(s.Tests)-1].ID == tc.test {
					w.faults.muteNodes = []int{tc.mute}
				}
			}
			w.play()
			w.onlyAccused(tc.mute)
			want := "made no unique id of communicator " + tc.communicator + " of task " + tc.test + " within 150 s"
			if s := w.span(); s.Reason != v1alpha1.ReasonMemberLost ||
				!strings.Contains(s.Message, w.nodes[tc.mute].Name+" "+want) {
				t.Errorf("%s: %q is not in %q", s.Reason, want, s.Message)
			}
		})
	}
}

// TestALateIDIsTaken: a root makes its unique id after ids had time, while others of the test still measure: its
// communicator is formed.
func TestALateIDIsTaken(t *testing.T) {
	const late = 6
	w := newGroupWorld(t, 8, faults{takes: func(test string, nodes []int) time.Duration {
		if test == "mesh-dp-1" && nodes[0] == 0 {
			return 250 * time.Second
		}
		return 20 * time.Second
	}}, longTest(func(*state.Group) {}))
	w.meddle = func() {
		w.faults.muteNodes = nil
		s := w.span()
		if s == nil || len(s.Tests) == 0 {
			return
		}
		if test := &s.Tests[len(s.Tests)-1]; test.ID == "mesh-dp-1" &&
			w.now.Before(test.StartTime.Add(200*time.Second)) {
			w.faults.muteNodes = []int{late}
		}
	}
	w.play()
	w.onlyAccused()
	if s := w.span(); s.Verdict != v1alpha1.VerdictPass {
		t.Errorf("%s %s: %s", s.Verdict, s.Reason, s.Message)
	}
}

// TestAddressFamilyStaysAsAgreed: all members have both families, but for one, which has IPv6 only and is lost at any
// moment of a search. Its tests and the group after it are of the family that failed, and nobody innocent is named.
func TestAddressFamilyStaysAsAgreed(t *testing.T) {
	const nodes, bad, odd = 16, 5, 15
	for step := range 12 {
		f := faults{hangNodes: []int{bad}, quirk: func(node int, s *v1alpha1.SessionStatus) {
			six := fmt.Sprintf("fd00::%d", node+1)
			if node == odd {
				s.Network.Addresses = nil
			}
			s.Network.Addresses = append(s.Network.Addresses, six)
		}}
		w := newGroupWorld(t, nodes, f, nil)
		n := 0
		w.meddle = func() {
			if s := w.span(); s == nil || s.Stage != v1alpha1.StageLocalizing {
				return
			}
			if pod := w.groupPod(w.nodes[odd].Name); n == step && pod != nil {
				delete(w.pods, pod.Name)
			}
			n++
		}
		w.play()
		w.onlyAccused(bad, odd)
		if !slices.Contains(w.culprits(), "Node 5") {
			t.Errorf("step %d: the culprit is not named: %v", step, w.culprits())
		}
		for key, family := range w.family {
			if family != v1alpha1.AddressFamilyIPv6 {
				t.Errorf("step %d: node and task %s over %s; status.span.network is %q",
					step, key, family, w.span().Network)
			}
		}
	}
}

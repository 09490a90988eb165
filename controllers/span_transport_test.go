package controllers

import (
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestMeshHoldsTheTransport: what is required of the group holds for each dimension between nodes, by the worst
// communicator of each node. What is not known is no RDMA, whatever the word for it.
func TestMeshHoldsTheTransport(t *testing.T) {
	for _, tc := range []struct {
		name string
		// said by the nodes of the first communicator between nodes, or where rest by those of all others.
		said      string
		nodes     []int
		rest      bool
		required  v1alpha1.TransportRequirement
		verdict   v1alpha1.Verdict
		culprits  []string
		transport string
	}{
		{"all fall back", "TCP", []int{0, 1, 2, 3, 4, 5, 6, 7}, false, v1alpha1.TransportRDMA, v1alpha1.VerdictFail,
			nil, judge.TransportMixed},
		{"one falls back", "TCP", []int{6}, false, v1alpha1.TransportRDMA, v1alpha1.VerdictFail, []string{"Node 6"},
			judge.TransportMixed},
		{"one falls back in most", "TCP", []int{6}, true, v1alpha1.TransportRDMA, v1alpha1.VerdictFail,
			[]string{"Node 6"}, judge.TransportMixed},
		{"one is mixed", "Mixed", []int{6}, false, v1alpha1.TransportRDMA, v1alpha1.VerdictFail, []string{"Node 6"},
			judge.TransportMixed},
		{"none asked for", "TCP", []int{6}, false, v1alpha1.TransportAny, v1alpha1.VerdictPass, nil,
			judge.TransportMixed},
		{"one is unknown", "Unknown", []int{6}, false, v1alpha1.TransportRDMA, v1alpha1.VerdictInconclusive, nil,
			judge.TransportUnknown},
		{"one is unknown in most", "Unknown", []int{6}, true, v1alpha1.TransportRDMA, v1alpha1.VerdictInconclusive, nil,
			judge.TransportUnknown},
		{"all are unknown in most", "Unknown", []int{0, 1, 2, 3, 4, 5, 6, 7}, true, v1alpha1.TransportRDMA,
			v1alpha1.VerdictInconclusive, nil, judge.TransportUnknown},
		{"one says nothing", "", []int{6}, false, v1alpha1.TransportRDMA, v1alpha1.VerdictInconclusive, nil,
			judge.TransportUnknown},
		{"one says a word never heard of", "Quantum", []int{6}, true, v1alpha1.TransportRDMA,
			v1alpha1.VerdictInconclusive, nil, judge.TransportUnknown},
		{"unknown where none is asked for", "Unknown", []int{6}, true, v1alpha1.TransportAny, v1alpha1.VerdictPass, nil,
			judge.TransportUnknown},
		{"all as asked for", "RDMA", nil, false, v1alpha1.TransportRDMA, v1alpha1.VerdictPass, nil,
			judge.TransportRDMA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 8, faults{}, func(g *state.Group) {
				testkit.Mesh("dp", 8, "tp", 8)(g)
				g.Spec.Network.RequireTransport = tc.required
			})
			w.faults.report = func(node int, ct *v1alpha1.CommTask) {
				task := ct.Status.Session.Task
				for i := range task.Communicators {
					if w.test(task.ID).Dimension == "dp" && slices.Contains(tc.nodes, node) && tc.rest == (i > 0) {
						task.Communicators[i].Transport = tc.said
					}
				}
			}
			w.play()
			w.log(t)
			s := w.span()
			if s.Verdict != tc.verdict || !slices.Equal(w.culprits(), tc.culprits) || s.Transport != tc.transport {
				t.Errorf("%s (%s), transport %s, culprits %v: %s",
					s.Verdict, s.Reason, s.Transport, w.culprits(), s.Message)
			}
			// What was measured keeps the transport that it was measured over.
			for i := range s.Results {
				want := map[string]string{judge.DimensionGroup: judge.TransportRDMA, "tp": "",
					"dp": stage.TransportFor(v1alpha1.TransportAny, dimensionSaid(tc.nodes, tc.said)).Transport}
				if got := s.Results[i].Transport; got != want[s.Results[i].Dimension] {
					t.Errorf("%s has transport %q, want %q", s.Results[i].Dimension, got, want[s.Results[i].Dimension])
				}
			}
			if tc.verdict == v1alpha1.VerdictPass && tc.transport != judge.TransportRDMA &&
				!strings.Contains(s.Message, "transport RDMA (with the mesh "+tc.transport+")") {
				t.Errorf("%q tells the group's transport as that of all", s.Message)
			}
		})
	}
}

// dimensionSaid is what eight nodes say of a dimension where these say a word of their own.
func dimensionSaid(nodes []int, word string) []stage.MemberTransport {
	out := make([]stage.MemberTransport, 8)
	for i := range out {
		if out[i].Transport = judge.TransportRDMA; slices.Contains(nodes, i) {
			out[i].Transport = word
		}
	}
	return out
}

// TestMarksGoByTheTransportOfWhatIsMeasured: a dimension of the mesh that takes another way changes nothing of how the
// group is judged, nor the other way round.
func TestMarksGoByTheTransportOfWhatIsMeasured(t *testing.T) {
	w := newGroupWorld(t, 8, faults{}, func(g *state.Group) {
		testkit.Mesh("dp", 8, "tp", 8)(g)
		groupThreshold(30_000)(g)
		g.Spec.Benchmark.Thresholds[0].Transport = judge.TransportRDMA
	})
	w.faults.report = func(_ int, ct *v1alpha1.CommTask) {
		for i := range ct.Status.Session.Task.Communicators {
			if c := &ct.Status.Session.Task.Communicators[i]; w.test(ct.Status.Session.Task.ID).Dimension == "dp" {
				c.Transport = judge.TransportTCP
			}
		}
	}
	w.play()
	s := w.span()
	if s.Verdict != v1alpha1.VerdictPass || s.Transport != judge.TransportMixed ||
		strings.Contains(s.Message, "No threshold") || strings.Contains(s.Message, judge.SpeedNotJudged) {
		t.Errorf("%s (%s), transport %s: %s", s.Verdict, s.Reason, s.Transport, s.Message)
	}
	if !slices.ContainsFunc(w.group.Status.Checks, func(c v1alpha1.PerformanceCheck) bool {
		return c.State == v1alpha1.CheckMet && strings.HasPrefix(c.Measurement, "group: ")
	}) {
		t.Errorf("the group's threshold is not met in the status: %+v", w.group.Status.Checks)
	}
}

// TestTheCauseOfAFallbackIsTold: what the node's own log names as the cause stands in what a user reads first, and so
// it does for its culprit; nothing is guessed beside it, and nothing is said of a search.
func TestTheCauseOfAFallbackIsTold(t *testing.T) {
	for name, required := range map[string]func(*state.Group){
		"group": func(g *state.Group) { g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA },
		"mesh": func(g *state.Group) {
			testkit.Mesh("dp", 8, "tp", 8)(g)
			g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA
		},
	} {
		const cause = "TCP over eth0: the image has no libibverbs: install rdma-core in the runtime image"
		for _, said := range []string{cause, ""} {
			t.Run(name+" "+said, func(t *testing.T) {
				w := newGroupWorld(t, 8, faults{}, required)
				w.faults.report = func(node int, ct *v1alpha1.CommTask) {
					task := ct.Status.Session.Task
					if node != 6 || name == "mesh" && w.test(task.ID).Dimension != "dp" {
						return
					}
					for i := range task.Communicators {
						task.Communicators[i].Transport, task.Communicators[i].Message = judge.TransportTCP, said
						if said != "" { // as an agent writes it
							task.Communicators[i].Message = "node n00006: between nodes: " + said
						}
					}
				}
				w.play()
				s := w.span()
				if s.Reason != v1alpha1.ReasonTransportFallback || !slices.Equal(w.culprits(), []string{"Node 6"}) {
					t.Fatalf("%s (%s), culprits %v: %s", s.Verdict, s.Reason, w.culprits(), s.Message)
				}
				for _, text := range []string{s.Message, s.Culprits[0].Message} {
					if !strings.Contains(text, said) || strings.Contains(text, "ibv_devinfo") != (said == "") ||
						strings.Contains(text, "searched for") {
						t.Error(text)
					}
				}
			})
		}
	}
}

// TestAFailedGroupTellsItsTransport: a group that hangs over TCP, where RDMA is required, says both.
func TestAFailedGroupTellsItsTransport(t *testing.T) {
	for _, required := range []v1alpha1.TransportRequirement{v1alpha1.TransportRDMA, v1alpha1.TransportAny} {
		w := newGroupWorld(t, 4, faults{hangNodes: []int{1}, tcpNodes: []int{0, 1, 2, 3}}, func(g *state.Group) {
			g.Spec.Network.RequireTransport = required
		})
		w.play()
		s := w.span()
		if told := strings.Contains(s.Message, "went over TCP"); told != (required == v1alpha1.TransportRDMA) ||
			s.Verdict != v1alpha1.VerdictFail {
			t.Errorf("%s: %s (%s) %s", required, s.Verdict, s.Reason, s.Message)
		}
	}
}

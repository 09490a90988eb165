package controllers

import (
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestCulpritsAreNamed runs whole groups with faults that show only over several nodes.
func TestCulpritsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		nodes    int
		faults   faults
		change   func(*state.Group)
		verdict  v1alpha1.Verdict
		reason   string
		culprits []string
		// rounds at most.
		rounds int32
		// confirmed: the group without the culprits was good.
		confirmed bool
	}{
		{name: "good", nodes: 16, verdict: v1alpha1.VerdictPass, reason: v1alpha1.ReasonAllPassed},
		{name: "two nodes", nodes: 2, verdict: v1alpha1.VerdictPass, reason: v1alpha1.ReasonAllPassed},
		{name: "one hangs across", nodes: 16, faults: faults{hangNodes: []int{11}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"Node 11"}, rounds: 5, confirmed: true},
		{name: "the first hangs", nodes: 16, faults: faults{hangNodes: []int{0}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"Node 0"}, rounds: 5, confirmed: true},
		{name: "two hang", nodes: 16, faults: faults{hangNodes: []int{3, 12}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"Node 12", "Node 3"},
			rounds: 8, confirmed: true},
		{name: "a pair hangs", nodes: 16, faults: faults{hangPairs: [][2]int{{2, 9}}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"Pair 2<->9"}, rounds: 12, confirmed: true},
		{name: "a rail hangs", nodes: 16, faults: faults{hangRails: [][2]int{{6, 4}}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"GPU 6/0000:85:00.0"},
			rounds: 6, confirmed: true},
		{name: "one is slow", nodes: 16, faults: faults{slowNodes: []int{5}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonSlowNode, culprits: []string{"Node 5"}, rounds: 4, confirmed: true},
		{name: "two are slow", nodes: 16, faults: faults{slowNodes: []int{4, 5}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonSlowNode, culprits: []string{"Node 4", "Node 5"}, rounds: 5, confirmed: true},
		{name: "neighbours are slow together", nodes: 16, faults: faults{slowPairs: [][2]int{{7, 8}}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowPair, culprits: []string{"Pair 7<->8"},
			rounds: 6, confirmed: true},
		{name: "a rail is slow", nodes: 16, faults: faults{slowRails: [][2]int{{13, 2}}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonSlowRail, culprits: []string{"GPU 13/0000:45:00.0"}, rounds: 5, confirmed: true},
		{name: "one of four is slow", nodes: 4, faults: faults{slowNodes: []int{1}}, verdict: v1alpha1.VerdictFail,
			reason: v1alpha1.ReasonSlowNode, culprits: []string{"Node 1"}, rounds: 4, confirmed: true},
		{name: "a pair far apart is slow against a threshold", nodes: 16, faults: faults{slowPairs: [][2]int{{1, 14}}},
			change: groupThreshold(30_000), verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowGroup,
			culprits: []string{"Pair 1<->14"}, rounds: 12, confirmed: true},
		{name: "all are slow alike against a threshold", nodes: 16, faults: faults{slowAll: true},
			change: groupThreshold(30_000), verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowGroup},
		{name: "a rank dies and its node sees it", nodes: 16, faults: faults{dieNodes: []int{9}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonRankDied, culprits: []string{"Rank 9/rank 3"},
			confirmed: true},
		{name: "wrong data that nobody can place", nodes: 16, faults: faults{wrongNodes: []int{9}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonWrongData, culprits: []string{"Node 9"},
			rounds: 5, confirmed: true},
		{name: "hangs and its agent no longer answers", nodes: 16, faults: faults{silentNodes: []int{9}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonHangAcrossNodes, culprits: []string{"Node 9"},
			confirmed: true},
		{name: "localization off", nodes: 16, faults: faults{hangNodes: []int{11}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonHangAcrossNodes,
			change: func(g *state.Group) { g.Spec.Localization.Mode = v1alpha1.LocalizationOff }},
		{name: "one crawls, so that only the whole group misses its deadline", nodes: 16,
			faults: faults{crawlNodes: []int{11}}, verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowNode,
			culprits: []string{"Node 11"}, rounds: 5, confirmed: true},
		{name: "one crawls, and connections end with the first who gives up", nodes: 16,
			faults: faults{crawlNodes: []int{11}, report: func(_ int, ct *v1alpha1.CommTask) {
				for i := range ct.Status.Session.Task.Communicators {
					if c := &ct.Status.Session.Task.Communicators[i]; c.Verdict == v1alpha1.VerdictFail {
						c.Reason = v1alpha1.ReasonCollectiveFailed
					}
				}
			}}, verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowNode, culprits: []string{"Node 11"},
			rounds: 5, confirmed: true},
		{name: "one crawls among many", nodes: 232, faults: faults{crawlNodes: []int{100}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSlowNode, culprits: []string{"Node 100"},
			rounds: 6, confirmed: true},
		{name: "bounded rounds", nodes: 64, faults: faults{hangNodes: []int{11}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonHangAcrossNodes, rounds: 2,
			change: func(g *state.Group) { g.Spec.Localization.MaxRounds = 1 }},
		{name: "one never ready", nodes: 16, faults: faults{neverReady: []int{2}}, verdict: v1alpha1.VerdictSkipped,
			reason: v1alpha1.ReasonRunPodUnschedulable},
		{name: "more never ready than minMembers allows", nodes: 4, faults: faults{neverReady: []int{2}},
			verdict: v1alpha1.VerdictSkipped, reason: v1alpha1.ReasonRunPodUnschedulable,
			change: func(g *state.Group) { g.Spec.Members.MinMembers = 4 }},
		{name: "TCP where RDMA is asked for", nodes: 16, faults: faults{tcpNodes: []int{7}},
			verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonTransportFallback, culprits: []string{"Node 7"},
			change: func(g *state.Group) { g.Spec.Network.RequireTransport = v1alpha1.TransportRDMA }},
		{name: "TCP where anything goes", nodes: 16, faults: faults{tcpNodes: []int{7}}, verdict: v1alpha1.VerdictPass,
			reason: v1alpha1.ReasonAllPassed},
		{name: "mixed libraries", nodes: 16, verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonMixedLibraryVersions,
			culprits: []string{"Node 3"}, faults: faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
				if node == 3 {
					s.Library.BuildHash = "other"
				}
			}}},
		{name: "mixed settings", nodes: 16, verdict: v1alpha1.VerdictFail, reason: v1alpha1.ReasonMixedSettings,
			culprits: []string{"Node 3"}, faults: faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
				if node == 3 {
					s.SettingsHash = "other"
				}
			}}},
		{name: "mixed families", nodes: 16, verdict: v1alpha1.VerdictError, reason: v1alpha1.ReasonMixedAddressFamilies,
			faults: faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
				if node == 3 {
					s.Network.Addresses = []string{"fd00::1"}
				}
			}}},
		{name: "one cannot take part", nodes: 16, verdict: v1alpha1.VerdictError,
			reason: v1alpha1.ReasonPreconditionFailed, culprits: []string{"Node 3"},
			faults: faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
				if node == 3 {
					s.State, s.Reason, s.Message = v1alpha1.SessionFailed, v1alpha1.ReasonPreconditionFailed,
						"MemlockLimit: too low"
				}
			}}},
		{name: "mesh", nodes: 16, verdict: v1alpha1.VerdictPass, reason: v1alpha1.ReasonAllPassed,
			change: testkit.Mesh("dp", 16, "tp", 8)},
		{name: "mesh over node borders", nodes: 6, verdict: v1alpha1.VerdictPass, reason: v1alpha1.ReasonAllPassed,
			change: testkit.Mesh("dp", 4, "tp", 12)},
		{name: "mesh that does not fit", nodes: 16, verdict: v1alpha1.VerdictInconclusive,
			reason: v1alpha1.ReasonMeshMismatch, change: testkit.Mesh("dp", 15, "tp", 8)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, tc.faults, tc.change)
			w.play()
			s := w.span()
			t.Log(w.tests())
			t.Log(s.Verdict, s.Reason, s.Message)
			if s.Stage != v1alpha1.StageEnded || s.Verdict != tc.verdict || s.Reason != tc.reason {
				t.Errorf("stage %s, verdict %s (%s), want %s (%s)", s.Stage, s.Verdict, s.Reason, tc.verdict, tc.reason)
			}
			if run := w.group.Status.Run; run.Verdict != tc.verdict {
				t.Errorf("the run's verdict is %s, want %s", run.Verdict, tc.verdict)
			}
			if got := w.culprits(); tc.culprits != nil && !slices.Equal(got, tc.culprits) {
				t.Errorf("culprits %v, want %v", got, tc.culprits)
			}
			if tc.verdict == v1alpha1.VerdictPass && len(s.Culprits) > 0 {
				t.Errorf("culprits %v of a good group", w.culprits())
			}
			if l := s.Localization; tc.rounds > 0 && (l == nil || l.Rounds > tc.rounds || l.Rounds > l.MaxRounds ||
				l.State == v1alpha1.LocalizationRunning || l.Seconds == nil) {
				t.Errorf("search %+v, want at most %d rounds", l, tc.rounds)
			}
			confirmed := false
			for i := range s.Tests {
				if s.Tests[i].Kind == v1alpha1.TestGroup {
					confirmed = s.Tests[i].Verdict == v1alpha1.VerdictPass
				}
			}
			if tc.confirmed && (!confirmed || strings.Contains(s.Message, "as slow as with it")) {
				t.Errorf("the last test is not a good group, or is not told as one: %s; %s", w.tests(), s.Message)
			}
			for i := range s.Tests {
				if s.Tests[i].Verdict == "" {
					t.Errorf("test %s is open", s.Tests[i].ID)
				}
			}
			ready := condition(w.group, v1alpha1.ConditionReady)
			if (ready == "True") != (tc.verdict == v1alpha1.VerdictPass) {
				t.Errorf("Ready is %s after %s", ready, tc.verdict)
			}
		})
	}
}

func condition(group *state.Group, kind string) string {
	for _, c := range group.Status.Conditions {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return ""
}

func groupThreshold(mbps int64) func(*state.Group) {
	return func(g *state.Group) {
		g.Spec.Benchmark.Thresholds = []v1alpha1.Threshold{{Span: v1alpha1.SpanGroup, Collective: v1alpha1.AllReduce,
			Datatype: v1alpha1.BFloat16, SizeBytes: 1 << 20, MinBusBandwidthMBps: &mbps}}
	}
}

// TestGroupOfOneIsRefused: a communicator over a group takes several nodes.
func TestGroupOfOneIsRefused(t *testing.T) {
	w := newGroupWorld(t, 1, faults{}, nil)
	w.settle()
	for _, c := range w.group.Status.Conditions {
		if c.Type == v1alpha1.ConditionAccepted &&
			(c.Status != "False" || c.Reason != v1alpha1.ReasonTooFewMembers || !strings.Contains(c.Message, "span")) {
			t.Errorf("Accepted %s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	if w.group.Status.Run != nil {
		t.Error("a run started")
	}
}

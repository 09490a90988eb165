package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// groupsFormed counts the tests of the group itself.
func (w *groupWorld) groupsFormed() int {
	n := 0
	for i := range w.span().Tests {
		if w.span().Tests[i].Kind == v1alpha1.TestGroup {
			n++
		}
	}
	return n
}

// whenWaiting calls do once, while the stage waits for its members and some of them have pods.
func (w *groupWorld) whenWaiting(do func()) {
	done := false
	w.meddle = func() {
		if s := w.span(); !done && s != nil && s.Stage == v1alpha1.StageWaitingForMembers && w.alive() > 0 {
			done = true
			do()
		}
	}
}

// TestMinMembersHoldsInTheStage: with as many members left as it takes, the group is formed without the lost one, and
// with one fewer no communicator is, which the message says.
func TestMinMembersHoldsInTheStage(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes int
		min   int32
		lose  v1alpha1.TestKind
		// before are the groups formed before the loss.
		before int
		goes   bool
	}{
		{"lost while waiting, enough left", 8, 7, "waiting", 0, true},
		{"lost while waiting, too few left", 8, 8, "waiting", 0, false},
		{"never ready, enough left", 8, 7, "late", 0, true},
		{"never ready, too few left", 8, 8, "late", 0, false},
		{"lost in the group, enough left", 8, 7, v1alpha1.TestGroup, 1, true},
		{"lost in the group, too few left", 8, 8, v1alpha1.TestGroup, 1, false},
		{"lost among the pairs, enough left", 8, 7, v1alpha1.TestPairs, 1, true},
		{"lost among the pairs, too few left", 8, 8, v1alpha1.TestPairs, 1, false},
		{"two of three are a group", 3, 1, v1alpha1.TestGroup, 1, true},
		{"one is no group", 2, 1, v1alpha1.TestGroup, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := faults{}
			if tc.lose == "late" {
				f.neverReady = []int{1}
			}
			w := newGroupWorld(t, tc.nodes, f, func(g *state.Group) { g.Spec.Members.MinMembers = tc.min })
			switch tc.lose {
			case "late":
			case "waiting":
				w.whenWaiting(func() { endPod(w.groupPod(w.nodes[1].Name), 137, w.now) })
			default:
				w.at(tc.lose, func() { w.losePod(1) })
			}
			w.play()
			s := w.span()
			want, over := tc.before, 0
			if tc.goes {
				want, over = want+1, tc.nodes-1
			}
			if tc.lose == v1alpha1.TestPairs && !tc.goes {
				over = tc.nodes // what the group before the loss reached stays
			}
			if got := w.groupsFormed(); got != want || s.LeftSet != "1" ||
				condition(w.group, v1alpha1.ConditionReady) == "True" {
				t.Errorf("%d groups formed, want %d; left %q: %s\n%s", got, want, s.LeftSet, s.Message, w.tests())
			}
			least := max(2, int(tc.min))
			if few := fmt.Sprintf("%d of %d members are left for a communicator, and it takes %d",
				tc.nodes-1, tc.nodes, least); strings.Contains(s.Message, few) == tc.goes {
				t.Errorf("%q, want %q there: %v", s.Message, few, !tc.goes)
			}
			if over == 0 != (len(s.Results) == 0) || over > 0 && int(s.Results[0].Nodes) != over {
				t.Errorf("results %+v, want those of %d nodes", s.Results, over)
			}
		})
	}
}

// TestTooFewPassedAlone: no pod of the stage is made where fewer nodes passed alone than it takes.
func TestTooFewPassedAlone(t *testing.T) {
	for _, minMembers := range []int32{3, 4} {
		w := newGroupWorld(t, 4, faults{}, func(g *state.Group) { g.Spec.Members.MinMembers = minMembers })
		pods := false
		w.meddle = func() {
			if ct := w.commTask(w.nodes[1].Name); ct.Spec.Run != nil && ct.Status.Run == nil {
				ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictFail, 300_000, w.now)
				ct.Status.Run.Reason = v1alpha1.ReasonWrongData
				if pod := w.podOn(w.nodes[1].Name); pod != nil {
					endPod(pod, 0, w.now)
				}
			}
			pods = pods || w.groupPod(w.nodes[0].Name) != nil
		}
		w.play()
		s := w.span()
		if few := minMembers == 4; pods == few ||
			few != (s.Reason == v1alpha1.ReasonTooFewMembers && s.Verdict == v1alpha1.VerdictSkipped) {
			t.Errorf("minMembers %d, 3 passed: pods of the stage %v; %s (%s): %s",
				minMembers, pods, s.Verdict, s.Reason, s.Message)
		}
		if few := "3 of 4 nodes passed alone and it takes 4. Not passed: n00001 (WrongData). Mend those, or what " +
			"the spec holds them against; a new run follows once they or the spec change, or "; minMembers == 4 &&
			!strings.Contains(s.Message, few) {
			t.Errorf("%q lacks %q", s.Message, few)
		}
	}
}

// TestANodeMadeAnewIsAnotherNode: one that was deleted and made again under its name is lost to the stage at once,
// though the pod and the agent of the old one still answer; the next run is of the new one.
func TestANodeMadeAnewIsAnotherNode(t *testing.T) {
	for _, kind := range []v1alpha1.TestKind{"waiting", v1alpha1.TestGroup, v1alpha1.TestPairs, v1alpha1.TestSearch,
		v1alpha1.TestMesh} {
		t.Run(string(kind), func(t *testing.T) {
			f := faults{}
			if kind == v1alpha1.TestSearch {
				f.hangNodes = []int{0}
			}
			w := newGroupWorld(t, 4, f, testkit.Mesh("dp", 4, "tp", 8))
			first, left, reason := "", "", ""
			remake := func() {
				first = w.group.Status.Run.ID
				w.nodes = slices.Clone(w.nodes)
				w.nodes[2].UID = "another"
				w.faults.hangNodes = nil
				w.step()
				if s := w.span(); s.RunID == first {
					left, reason = s.LeftSet, s.Reason
				}
			}
			if kind == "waiting" {
				w.whenWaiting(remake)
			} else {
				w.at(kind, remake)
			}
			w.play()
			if want := map[bool]string{true: v1alpha1.ReasonHangAcrossNodes,
				false: v1alpha1.ReasonMemberLost}[kind == v1alpha1.TestSearch]; left != "2" || reason != want {
				t.Errorf("one step after it was made anew, left is %q (%s), want 2 (%s)", left, reason, want)
			}
			if run := w.group.Status.Run; run.ID == first || run.Verdict != v1alpha1.VerdictPass ||
				w.span().Members != 4 {
				t.Errorf("%+v", run)
			}
		})
	}
}

// TestARecreatedNodeTakesNoPart: the result of the node before it does not count.
func TestARecreatedNodeTakesNoPart(t *testing.T) {
	w := newGroupWorld(t, 4, faults{}, nil)
	done := false
	w.meddle = func() {
		s := w.span()
		if done || s == nil || s.Stage != v1alpha1.StageNodes || !w.playNodes() {
			return
		}
		// Each has passed; the stage begins, and before members are fixed one is re-created.
		for range 20 {
			if w.step(); w.span().Stage == v1alpha1.StageWaitingForMembers {
				break
			}
		}
		done = true
		run := w.group.Status.Run.ID
		w.nodes = slices.Clone(w.nodes)
		w.nodes[2].UID = "another"
		w.step()
		if s := w.commTask(w.nodes[2].Name).Spec.Session; s != nil && s.RunID == run {
			t.Errorf("the new node has index %d of the old one", s.Index)
		}
	}
	w.play()
	if !done {
		t.Fatal("the stage never waited for members without sessions")
	}
}

// TestLossesAreToldApart: of each way to lose a member the message says what happened, the verdict follows from it, and
// nobody is to blame for what was done to him.
func TestLossesAreToldApart(t *testing.T) {
	disrupted := func(kind corev1.PodConditionType, reason string) func(*groupWorld) {
		return func(w *groupWorld) {
			pod := w.groupPod(w.nodes[3].Name)
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "for team/job"})
		}
	}
	for _, tc := range []struct {
		name    string
		when    v1alpha1.TestKind
		do      func(*groupWorld)
		verdict v1alpha1.Verdict
		reason  string
		want    string
		blamed  bool
	}{
		{"preempted", v1alpha1.TestGroup, disrupted(corev1.DisruptionTarget, corev1.PodReasonPreemptionByScheduler),
			v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted, "higher priority", false},
		{"drained", v1alpha1.TestGroup, disrupted(corev1.DisruptionTarget, "EvictionByEvictionAPI"),
			v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted, "drain", false},
		{"ended by Kueue", v1alpha1.TestGroup, disrupted(podstate.KueueTermination, "Preempted"),
			v1alpha1.VerdictSkipped, v1alpha1.ReasonPreempted, "Kueue ended it", false},
		{"the agent's idle deadline", v1alpha1.TestGroup, func(w *groupWorld) {
			s := w.commTask(w.nodes[3].Name).Status.Session
			s.State, s.Message = v1alpha1.SessionEnded, "no task within the idle deadline of 600 s"
		}, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost,
			"ended its session by itself: no task within the idle deadline", true},
		{"the pod is being deleted", v1alpha1.TestGroup, func(w *groupWorld) {
			w.groupPod(w.nodes[3].Name).DeletionTimestamp = decision.Stamp(w.now)
		}, v1alpha1.VerdictError, v1alpha1.ReasonMemberLost, "is being deleted", true},
		{"the pod was deleted", v1alpha1.TestGroup, func(w *groupWorld) { w.losePod(3) }, v1alpha1.VerdictError,
			v1alpha1.ReasonMemberLost, "was deleted during run", true},
		{"never let out of the queue", "waiting", func(w *groupWorld) {
			w.faults.neverReady = []int{3}
			pod := w.groupPod(w.nodes[3].Name)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podstate.KueueGatePrefix + "admission"}}
		}, v1alpha1.VerdictSkipped, v1alpha1.ReasonWaitingForQueue, "Kueue has not admitted", false},
		{"never started", "waiting", func(w *groupWorld) {
			w.faults.neverReady = []int{3}
			w.groupPod(w.nodes[3].Name).Spec.NodeName = w.nodes[3].Name
		}, v1alpha1.VerdictError, v1alpha1.ReasonRunPodNotStarted, "has not started within", true},
		{"refused by the namespace", "waiting", func(w *groupWorld) {
			w.refused = w.nodes[3].Name
			w.losePod(3)
		}, v1alpha1.VerdictError, v1alpha1.ReasonRunPodNotStarted, "has no group pod", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newGroupWorld(t, 8, faults{}, nil)
			do := func() {
				tc.do(w)
				w.step()
			}
			if tc.when == "waiting" {
				w.whenWaiting(do)
			} else {
				w.at(tc.when, do)
			}
			w.play()
			s := w.span()
			if s.Verdict != tc.verdict || s.Reason != tc.reason || !strings.Contains(s.Message, tc.want) ||
				s.LeftSet != "3" || w.groupsFormed() == 0 {
				t.Errorf("%s (%s), left %q, want %s (%s) with %q: %s\n%s",
					s.Verdict, s.Reason, s.LeftSet, tc.verdict, tc.reason, tc.want, s.Message, w.tests())
			}
			if blamed := len(s.Culprits) > 0; blamed != tc.blamed {
				t.Errorf("culprits %+v", s.Culprits)
			}
		})
	}
}

// TestTheGroupIsNotFormedForEver: where each communicator loses a member, the stage ends after some.
func TestTheGroupIsNotFormedForEver(t *testing.T) {
	w := newGroupWorld(t, stage.MaxGroupTests+6, faults{}, nil)
	lost := map[string]bool{}
	w.meddle = func() {
		s := w.span()
		if s == nil || len(s.Tests) == 0 {
			return
		}
		if id := s.Tests[len(s.Tests)-1].ID; w.test(id).Kind == v1alpha1.TestGroup && !lost[id] &&
			len(w.tasks[id]) > 0 {
			lost[id] = true
			w.losePod(len(lost))
		}
	}
	w.play()
	s := w.span()
	if w.groupsFormed() != stage.MaxGroupTests ||
		!strings.Contains(s.Message, fmt.Sprintf("formed %d times", stage.MaxGroupTests)) ||
		s.Verdict != v1alpha1.VerdictError {
		t.Errorf("%d groups formed; %s: %s", w.groupsFormed(), s.Verdict, s.Message)
	}
}

// TestTheAgreedFamilyIsHandedOver: one member without IPv4 makes all of them meet by IPv6, and each is told so with its
// first task.
func TestTheAgreedFamilyIsHandedOver(t *testing.T) {
	for _, only6 := range []bool{true, false} {
		w := newGroupWorld(t, 4, faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
			six := fmt.Sprintf("fd00::%d", node+1)
			if s.Network.Addresses = append(s.Network.Addresses, six); only6 && node == 2 {
				s.Network.Addresses = []string{six}
			}
		}}, nil)
		want := v1alpha1.AddressFamilyIPv4
		if only6 {
			want = v1alpha1.AddressFamilyIPv6
		}
		w.meddle = func() {
			for i := range w.nodes {
				if s := w.commTask(w.nodes[i].Name).Spec.Session; s != nil && s.Task != nil && s.AddressFamily != want {
					t.Fatalf("task %s of %s goes by %s, want %s", s.Task.ID, w.nodes[i].Name, s.AddressFamily, want)
				}
			}
		}
		w.play()
		if s := w.span(); s.Verdict != v1alpha1.VerdictPass || !strings.HasPrefix(s.Network, string(want)) {
			t.Errorf("%s, network %q: %s", s.Verdict, s.Network, s.Message)
		}
	}
}

// TestClocksApartAreTold: by minutes or a day, behind or ahead: nothing but the words depends on it.
func TestClocksApartAreTold(t *testing.T) {
	for _, off := range []time.Duration{-24 * time.Hour, -3 * time.Minute, 3 * time.Minute, 24 * time.Hour} {
		w := newGroupWorld(t, 4, faults{quirk: func(node int, s *v1alpha1.SessionStatus) {
			if node == 2 {
				s.Network.Clock.Time = s.Network.Clock.Add(off)
			}
		}}, nil)
		w.play()
		told := slices.ContainsFunc(w.events, func(e decision.Event) bool {
			return e.Reason == v1alpha1.ReasonClockSkew && strings.Contains(e.Note, w.nodes[2].Name) &&
				!strings.Contains(e.Note, w.nodes[1].Name)
		})
		if !told || w.span().Verdict != v1alpha1.VerdictPass {
			t.Errorf("%s off: told %v, verdict %s", off, told, w.span().Verdict)
		}
	}
}

// TestAMarkThatCannotBeJudgedIsNoPass: a threshold of the group for a transport that is not known.
func TestAMarkThatCannotBeJudgedIsNoPass(t *testing.T) {
	for said, want := range map[string]v1alpha1.Verdict{"RDMA": v1alpha1.VerdictPass,
		"Unknown": v1alpha1.VerdictInconclusive} {
		w := newGroupWorld(t, 8, faults{}, func(g *state.Group) {
			groupThreshold(30_000)(g)
			g.Spec.Benchmark.Thresholds[0].Transport = judge.TransportRDMA
		})
		w.faults.report = func(_ int, ct *v1alpha1.CommTask) {
			ct.Status.Session.Task.Communicators[0].Transport = said
		}
		w.play()
		if s := w.span(); s.Verdict != want {
			t.Errorf("transport %s: %s (%s), want %s: %s", said, s.Verdict, s.Reason, want, s.Message)
		}
	}
}

// TestADimensionMeetsItsThreshold: a mark for the ranks of a dimension fails it by name, with what was measured,
// expected and the percent, and nobody is named for it.
func TestADimensionMeetsItsThreshold(t *testing.T) {
	for mark, want := range map[int64]v1alpha1.Verdict{goodMBps: v1alpha1.VerdictPass,
		goodMBps + 1: v1alpha1.VerdictFail} {
		w := newGroupWorld(t, 8, faults{}, func(g *state.Group) {
			testkit.Mesh("dp", 8, "tp", 8)(g)
			groupThreshold(mark)(g)
			nodes := int32(8)
			ranks := nodes
			g.Spec.Benchmark.Thresholds[0].Ranks, g.Spec.Benchmark.Thresholds[0].Nodes = &ranks, &nodes
		})
		w.play()
		s := w.span()
		at := slices.IndexFunc(s.Tests, func(x v1alpha1.SpanTest) bool { return x.Dimension == "dp" })
		if at < 0 || s.Verdict != want || s.Tests[at].Verdict != want || len(s.Culprits) > 0 {
			t.Fatalf("mark %d: %s (%s), culprits %+v: %s\n%s",
				mark, s.Verdict, s.Reason, s.Culprits, s.Message, w.tests())
		}
		if want == v1alpha1.VerdictFail &&
			(s.Reason != v1alpha1.ReasonBelowThreshold || s.Tests[at].Reason != v1alpha1.ReasonBelowThreshold ||
				!strings.Contains(s.Message, "dp") || !strings.Contains(s.Message, "99 %")) {
			t.Errorf("%s (%s), test %+v: %s", s.Verdict, s.Reason, s.Tests[at], s.Message)
		}
	}
}

package controllers

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// gateWorld is ten members that passed a finished run in a group that may mark nodes; n0 is the one under test. Two of ten
// may be gated at once.
func gateWorld() *gateInput { return gateWorldOf(10) }

func gateWorldOf(members int) *gateInput {
	group := testkit.Group()
	group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: everyAction, MaxPercent: ptr.To(int32(20))}
	in := &gateInput{now: testkit.Now, group: group, nodes: testkit.Nodes(members), membersKnown: true, commNodes: map[string]*v1alpha1.CommNode{},
		run:        &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Generation: 1, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass},
		privileged: []string{"other", "team"}}
	for i := range in.nodes {
		node := &in.nodes[i]
		node.Name = fmt.Sprint("n", i)
		node.UID = types.UID("uid-" + node.Name)
		facts := testkit.Facts(testkit.Now)
		cn := &v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeName: node.Name, NodeUID: string(node.UID),
			Run: &v1alpha1.RunAssignment{ID: "1-1", Generation: 1, Number: 1, Platform: nodefacts.PlatformOf(facts)}},
			Status: v1alpha1.CommNodeStatus{Facts: facts, Run: &v1alpha1.NodeRunStatus{ID: "1-1", Generation: 1, Phase: v1alpha1.NodeRunFinished, BootID: "boot-1"}}}
		in.commNodes[node.Name] = cn
		in.members = append(in.members, decision.Member{Name: node.Name, UID: string(node.UID), Node: node})
		in.outcomes = append(in.outcomes, judge.Outcome{Node: node.Name, Phase: judge.Done, Report: cn.Status.Run})
		in.result(i, v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed)
	}
	return in
}

// result is what the agent of node i reported.
func (in *gateInput) result(i int, verdict v1alpha1.Verdict, reason string) {
	o := &in.outcomes[i]
	cn := in.commNodes[o.Node]
	cn.Status.Run.Verdict = verdict
	o.Report, o.Verdict, o.Reason, o.Message = cn.Status.Run, verdict, reason, "as reported"
	if o.Culprits = nil; verdict == v1alpha1.VerdictFail || verdict == v1alpha1.VerdictError {
		o.Culprits = []v1alpha1.Culprit{judge.NodeCulprit(o.Node, reason, o.Message)}
	}
}

// closed is a part of the run that the controller ended.
func (in *gateInput) closed(i int, verdict v1alpha1.Verdict) {
	in.result(i, verdict, v1alpha1.ReasonRunPodFailed)
	in.outcomes[i].Report = nil
}

// holds writes the group's statement on node i, as an earlier run left it.
func (in *gateInput) holds(t *testing.T, i int, verdict v1alpha1.Verdict) {
	t.Helper()
	g := newGating(in, markKey(string(in.group.UID)))
	j := judged{node: &in.nodes[i], outcome: &judge.Outcome{Node: in.nodes[i].Name, Reason: v1alpha1.ReasonSlowLink, Message: "earlier"}}
	s := g.statement(&j, verdict)
	s.Run = "1-0"
	in.nodes[i] = *marked(t, &in.nodes[i], map[string]string{g.key: s.String()}, testkit.Now)
}

// did is what gate does to node i: fail, pass, lift or "" for nothing; with ! where people are told.
func did(r *gateResult, in *gateInput, i int) string {
	for _, m := range r.marks {
		if m.Node.Name != in.nodes[i].Name {
			continue
		}
		what := "lift"
		if m.statement != nil {
			what = strings.ToLower(string(m.statement.Verdict))
		}
		if m.change != markQuiet {
			what += "!"
		}
		return what
	}
	return ""
}

// gatingCases has for every evidence how it comes about, and what then happens to a node without a statement, with Pass, and
// with Fail.
var gatingCases = map[evidence][]struct {
	name             string
	change           func(in *gateInput)
	none, pass, fail string
}{
	seenOff: {
		{"mode Off", func(in *gateInput) { in.group.Spec.Gating.Mode = v1alpha1.GatingOff }, "", "lift", "lift!"},
		{"mode absent", func(in *gateInput) { in.group.Spec.Gating.Mode = "" }, "", "lift", "lift!"},
		{"mode DryRun", func(in *gateInput) { in.group.Spec.Gating.Mode = v1alpha1.GatingDryRun }, "", "lift", "lift!"},
		{"namespace not allowed", func(in *gateInput) { in.privileged = []string{"other"} }, "", "lift", "lift!"},
		{"failed and mode Off", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.group.Spec.Gating.Mode = v1alpha1.GatingOff
		}, "", "lift", "lift!"},
		{"simulated node", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.commNodes["n0"].Status.Facts.Origin = v1alpha1.OriginSimulated
		}, "", "lift", "lift!"},
		{"simulated library", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.commNodes["n0"].Status.Run.Library = &v1alpha1.LibraryFacts{Flavor: "simulated"}
		}, "", "lift", "lift!"},
	},
	seenLeft: {
		{"no member", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.members = in.members[1:]
		}, "", "lift", "lift!"},
	},
	seenReplaced: {
		{"another Node of the name", func(in *gateInput) {
			in.nodes[0].UID, in.members[0].UID = "uid-new", "uid-new"
			in.commNodes["n0"].Spec.NodeUID = "uid-new"
			in.outcomes = in.outcomes[1:]
		}, "", "lift", "lift!"},
		{"what the earlier Node of the name showed", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.nodes[0].UID, in.members[0].UID = "uid-new", "uid-new" // and its CommNode is still the old one's
		}, "", "lift", "lift!"},
	},
	seenExempt: {
		{"annotation", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.exempt(0)
		}, "", "lift", "lift!"},
	},
	seenFailed: {
		{"the agent failed it", func(in *gateInput) { in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink) }, "fail!", "fail!", ""},
		{"for another reason than before", func(in *gateInput) { in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonWrongData) }, "fail!", "fail!", "fail"},
		{"the run goes on", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.run.Phase, in.run.Verdict = v1alpha1.RunPhaseRunning, ""
		}, "fail!", "fail!", ""},
		{"slow against the others, run over", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode)
			in.commNodes["n0"].Status.Run.Verdict = v1alpha1.VerdictPass
		}, "fail!", "fail!", "fail"},
		{"culprit of the group's stage", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "NIC", Name: "mlx5_3", Reason: v1alpha1.ReasonSlowRail, Message: "slow"})
		}, "fail!", "fail!", "fail"},
		{"failed on other GPUs", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.gpus(0, 8, true)
			in.commNodes["n0"].Spec.Run.Platform = nodefacts.PlatformOf(in.commNodes["n0"].Status.Facts)
		}, "fail!", "fail!", "fail"},
	},
	seenPassed: {
		{"alone", func(*gateInput) {}, "pass", "", "pass!"},
		{"on another boot", func(in *gateInput) {
			in.commNodes["n0"].Status.Facts.BootID, in.commNodes["n0"].Status.Run.BootID = "boot-2", "boot-2"
		}, "pass", "pass", "pass!"},
		{"by the kubelet on the boot that was measured", func(in *gateInput) { in.silentMonitor("boot-1") }, "pass", "", "pass!"},
		{"by the monitor on the boot that was measured, which the kubelet calls otherwise", func(in *gateInput) {
			in.nodes[0].Status.NodeInfo.BootID = "vm-7"
		}, "pass", "", "pass!"},
		{"the group's stage passed", func(in *gateInput) { in.spanOf(v1alpha1.VerdictPass) }, "pass", "", "pass!"},
		{"the group went on without many others", func(in *gateInput) { in.manyLeft("1-16") }, "pass", "", "pass!"},
		{"the group's stage named another node", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
		}, "pass", "", "pass!"},
	},
	seenGPUsReplaced: {
		{"other GPUs, not yet measured", func(in *gateInput) { in.outcomes[0].Stale = true; in.gpus(0, 8, true) }, "", "lift", "lift!"},
		{"while the new run goes on", func(in *gateInput) { in.outcomes[0].Verdict = ""; in.gpus(0, 8, true) }, "", "lift", "lift!"},
	},
	seenStale: {
		{"rebooted", func(in *gateInput) { in.outcomes[0].Stale = true }, "", "lift", ""},
		{"rebooted by the kubelet, and its monitor is silent", func(in *gateInput) { in.silentMonitor("boot-2") }, "", "lift", ""},
		{"the same, its next run could not measure", func(in *gateInput) {
			in.closed(0, v1alpha1.VerdictError)
			in.silentMonitor("boot-2")
		}, "", "lift", ""},
		{"the same, and its CommNode is gone", func(in *gateInput) {
			in.silentMonitor("boot-2")
			delete(in.commNodes, "n0")
		}, "", "lift", ""},
		{"a GPU fell off the bus", func(in *gateInput) { in.outcomes[0].Stale = true; in.gpus(0, 7, false) }, "", "lift", ""},
		{"other GPUs, but the report has run out", func(in *gateInput) {
			in.outcomes[0].Stale = true
			in.gpus(0, 8, true)
			in.now = in.now.Add(time.Hour)
		}, "", "lift", ""},
	},
	seenError: {
		{"the pod failed", func(in *gateInput) { in.closed(0, v1alpha1.VerdictError) }, "", "", ""},
		{"the agent could not measure", func(in *gateInput) { in.result(0, v1alpha1.VerdictError, v1alpha1.ReasonInitFailed) }, "", "", ""},
	},
	seenInconclusive: {{"nothing to judge by", func(in *gateInput) { in.result(0, v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive) }, "", "", ""}},
	seenSkipped:      {{"GPUs in use", func(in *gateInput) { in.closed(0, v1alpha1.VerdictSkipped) }, "", "", ""}},
	seenNothing: {
		{"never ran", func(in *gateInput) { in.run, in.outcomes = nil, nil }, "", "", ""},
		{"its turn has not come", func(in *gateInput) {
			in.run.Phase, in.outcomes[0].Verdict, in.outcomes[0].Report = v1alpha1.RunPhaseRunning, "", nil
		}, "", "", ""},
		{"passed, and the run goes on", func(in *gateInput) { in.run.Phase = v1alpha1.RunPhaseRunning }, "", "", ""},
		{"slow against the others, and the run goes on", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode)
			in.commNodes["n0"].Status.Run.Verdict, in.run.Phase = v1alpha1.VerdictPass, v1alpha1.RunPhaseRunning
		}, "", "", ""},
		{"passed a run that was aborted", func(in *gateInput) { in.run.Phase = v1alpha1.RunPhaseAborted }, "", "", ""},
		{"the spec asks for other measurements now", func(in *gateInput) { in.group.Generation++ }, "", "", ""},
		{"nobody knows whether hardware passed", func(in *gateInput) { in.commNodes["n0"].Status.Facts.Origin = v1alpha1.OriginUnknown }, "", "", ""},
		{"nobody knows whether hardware failed", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.commNodes["n0"].Status.Facts = nil
		}, "", "", ""},
		{"the members could not be selected", func(in *gateInput) { in.membersKnown, in.members = false, nil }, "", "", ""},
		{"the culprit is elsewhere", func(in *gateInput) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonCollectiveFailed)
			in.outcomes[0].Culprits[0].Node = "n5"
		}, "", "", ""},
		{"the group's stage goes on", func(in *gateInput) {
			in.spanOf("")
			in.span.Stage = v1alpha1.StageGroup
		}, "", "", ""},
		{"the group's stage is of an older run", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0"})
			in.span.RunID = "1-0"
		}, "", "", ""},
		{"the group's stage could not be measured", func(in *gateInput) { in.spanOf(v1alpha1.VerdictError) }, "", "", ""},
		{"the group failed and no culprit was found", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail)
			in.span.Localization.State = v1alpha1.LocalizationNotFound
		}, "", "", ""},
		{"the group went on without it", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictPass)
			in.span.Left, in.span.LeftSet = []string{"n0"}, "0"
		}, "", "", ""},
		{"the group went on without more than can be named", func(in *gateInput) { in.manyLeft("0-16") }, "", "", ""},
		{"and their set is too long to hold", func(in *gateInput) { in.manyLeft("") }, "", "", ""},
		{"the group's stage lost it, and failed for another node's sake", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0", Reason: v1alpha1.ReasonMemberLost},
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
			in.span.Left, in.span.LeftSet = []string{"n0", "n5"}, "0,5"
		}, "", "", ""},
		{"it was preempted in the group's stage", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0", Reason: v1alpha1.ReasonPreempted})
			in.span.Left, in.span.LeftSet = []string{"n0"}, "0"
		}, "", "", ""},
		{"a dimension of the mesh failed, and was traced to another node", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
			in.span.Tests = []v1alpha1.SpanTest{{ID: "group-1", Verdict: v1alpha1.VerdictPass}, {ID: stage.KindMesh + "-dp", Verdict: v1alpha1.VerdictFail}}
		}, "", "", ""},
		{"bad only together with another", func(in *gateInput) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Pair", Name: "n0<->n4", Reason: v1alpha1.ReasonSlowPair})
		}, "", "", ""},
	},
}

// silentMonitor: the facts of n0 have run out, and its kubelet tells the boot.
func (in *gateInput) silentMonitor(boot string) {
	in.now = in.now.Add(24 * time.Hour)
	in.nodes[0].Status.NodeInfo.BootID = boot
}

func (in *gateInput) exempt(i int) {
	if in.nodes[i].Annotations == nil {
		in.nodes[i].Annotations = map[string]string{}
	}
	in.nodes[i].Annotations[v1alpha1.AnnotationGatingExempt] = "true"
}

// gpus gives the node n GPUs, at other addresses than before where others is set.
func (in *gateInput) gpus(i, n int, others bool) {
	f := in.commNodes[in.nodes[i].Name].Status.Facts
	f.GPUs, f.GPUCount = testkit.GPUs(n), int32(n)
	if others {
		f.GPUs[0].PCIAddress = "0001:01:00.0"
	}
}

func (in *gateInput) spanOf(verdict v1alpha1.Verdict, culprits ...v1alpha1.Culprit) {
	in.group.Spec.Span = v1alpha1.SpanGroup
	in.span = &v1alpha1.SpanStatus{RunID: in.run.ID, Stage: v1alpha1.StageEnded, Verdict: verdict, Culprits: culprits}
	if verdict == v1alpha1.VerdictFail {
		in.span.Localization = &v1alpha1.LocalizationStatus{State: v1alpha1.LocalizationFound}
	}
}

// manyLeft is a group's stage that passed without so many members that not all names are in the status.
func (in *gateInput) manyLeft(set string) {
	in.spanOf(v1alpha1.VerdictPass)
	for i := range maxNamedNodes {
		in.span.Left = append(in.span.Left, fmt.Sprint("gone", i))
	}
	in.span.LeftSet = set
	in.commNodes["n0"].Spec.Session = &v1alpha1.SessionAssignment{RunID: in.run.ID, Index: 0, State: v1alpha1.SessionClosed}
}

// TestEveryPairOfStatementAndEvidence plays each way in which an evidence comes about on a node with each statement.
func TestEveryPairOfStatementAndEvidence(t *testing.T) {
	for e := range evidenceCount {
		if len(gatingCases[e]) == 0 {
			t.Errorf("no case brings evidence %d about", e)
		}
		for _, c := range gatingCases[e] {
			for state, want := range []string{heldNone: c.none, heldPass: c.pass, heldFail: c.fail} {
				t.Run(fmt.Sprintf("%s/%d", c.name, state), func(t *testing.T) {
					in := gateWorld()
					if state != int(heldNone) {
						in.holds(t, 0, map[int]v1alpha1.Verdict{int(heldPass): v1alpha1.VerdictPass, int(heldFail): v1alpha1.VerdictFail}[state])
					}
					c.change(in)
					r := gate(in)
					if got := did(&r, in, 0); got != want {
						t.Errorf("gate does %q, want %q (%+v)", got, want, r.status)
					}
				})
			}
		}
	}
}

// TestTheTableIsWhole: no pair is undecided, and docs/gating.md shows people the same table.
func TestTheTableIsWhole(t *testing.T) {
	page, err := os.ReadFile("../docs/gating.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[gatingStep]string{stepKeep: "left as it is", stepMark: "marked", stepPass: "says Pass", stepLift: "lifted"}
	var rows [][]string
	for line := range strings.SplitSeq(string(page), "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 6 && !strings.HasPrefix(line, "|---") {
			rows = append(rows, cells[1:5])
		}
	}
	if len(rows) != int(evidenceCount)+1 {
		t.Fatalf("docs/gating.md has %d rows of four cells, expected a head and %d evidences", len(rows), evidenceCount)
	}
	for e := range evidenceCount {
		for state := range heldCount {
			step := gatingTable[e][state]
			if step == stepUndecided {
				t.Errorf("evidence %d on a node with statement %d is undecided", e, state)
			}
			if got := strings.TrimSpace(rows[e+1][state+1]); got != words[step] {
				t.Errorf("docs/gating.md, row %q, column %d: %q, the code does %q", strings.TrimSpace(rows[e+1][0]), state, got, words[step])
			}
		}
	}
}

func TestBreaker(t *testing.T) {
	failing := func(in *gateInput, nodes ...int) {
		for _, i := range nodes {
			in.result(i, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
		}
	}
	gatedBy := func(r *gateResult) (names []string) {
		for _, m := range r.marks {
			if m.change == markGated {
				names = append(names, m.Node.Name)
			}
		}
		return names
	}
	in := gateWorld()
	failing(in, 3, 7)
	r := gate(in)
	if got := gatedBy(&r); !slices.Equal(got, []string{"n3", "n7"}) || r.status.Breaker != "Closed" || len(r.events) > 0 || r.status.Message != "" {
		t.Fatalf("two of ten at 20 %%: gated %v, %+v", got, r.status)
	}
	in = gateWorld()
	in.holds(t, 3, v1alpha1.VerdictFail)
	failing(in, 3, 7, 8)
	r = gate(in)
	if got := gatedBy(&r); len(got) > 0 || r.status.Breaker != "Open" || did(&r, in, 3) != "" || r.status.Gated != 1 {
		t.Fatalf("three of ten at 20 %%: gated %v, %+v", got, r.status)
	}
	for _, word := range []string{"3 of 10 members", "n3, n7, n8", "SlowLink on 3", "share", "allows 2"} {
		if !strings.Contains(r.status.Message, word) {
			t.Errorf("the message lacks %q: %s", word, r.status.Message)
		}
	}
	if len(r.events) != 1 || r.events[0].Reason != v1alpha1.ReasonBreakerOpen || !r.events[0].Warning {
		t.Fatalf("events %+v", r.events)
	}
	in.group.Status.Gating = r.status
	if again := gate(in); len(again.events) > 0 {
		t.Fatalf("told again: %+v", again.events)
	}
	in.result(7, v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed)
	r = gate(in)
	if got := gatedBy(&r); !slices.Equal(got, []string{"n8"}) || r.status.Breaker != "Closed" || len(r.events) != 1 || r.events[0].Reason != v1alpha1.ReasonBreakerClosed {
		t.Fatalf("two of ten again: gated %v, %+v, %+v", got, r.status, r.events)
	}

	t.Run("marks whose nodes are not measured now count too", func(t *testing.T) {
		in := gateWorld()
		in.holds(t, 1, v1alpha1.VerdictFail)
		in.holds(t, 2, v1alpha1.VerdictFail)
		in.closed(1, v1alpha1.VerdictError)
		in.outcomes[2].Stale = true
		failing(in, 5)
		if r := gate(in); r.status.Breaker != "Open" || len(gatedBy(&r)) > 0 || r.status.Gated != 2 {
			t.Fatalf("gated %v, %+v", gatedBy(&r), r.status)
		}
	})
	t.Run("one may always be gated", func(t *testing.T) {
		for _, percent := range []int32{0, 5} {
			in := gateWorld()
			in.group.Spec.Gating.MaxPercent = ptr.To(percent)
			failing(in, 5)
			if r := gate(in); !slices.Equal(gatedBy(&r), []string{"n5"}) {
				t.Fatalf("maxPercent %d: %+v", percent, r.status)
			}
		}
	})
	t.Run("an exempt node takes no place", func(t *testing.T) {
		in := gateWorld()
		failing(in, 1, 2, 3)
		in.exempt(2)
		if r := gate(in); !slices.Equal(gatedBy(&r), []string{"n1", "n3"}) || !strings.Contains(r.status.Message, "exempt by annotation: n2") {
			t.Fatalf("gated %v, %+v", gatedBy(&r), r.status)
		}
	})
}

func TestGatingTellsWhyItDoesNotMark(t *testing.T) {
	in := gateWorld()
	in.result(4, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.privileged = nil
	if r := gate(in); !slices.Equal(r.wouldGate, []string{"n4"}) || !strings.Contains(r.status.Message, "namespace team is not among the manager's --privileged-namespaces") {
		t.Errorf("namespace: %v, %+v", r.wouldGate, r.status)
	}
	in = gateWorld()
	in.result(4, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.result(5, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.commNodes["n4"].Status.Facts.Origin = v1alpha1.OriginSimulated
	if r := gate(in); !slices.Equal(r.wouldGate, []string{"n4"}) || did(&r, in, 4) != "" || did(&r, in, 5) != "fail!" || !strings.Contains(r.status.Message, "gating.simulated is Forbid: n4") {
		t.Errorf("simulated: %v, %+v", r.wouldGate, r.status)
	}
	in.group.Spec.Gating.Simulated = v1alpha1.SimulatedAllow
	if r := gate(in); len(r.wouldGate) > 0 || did(&r, in, 4) != "fail!" || r.status.Message != "" {
		t.Errorf("simulated, allowed: %v, %+v", r.wouldGate, r.status)
	}
	in = gateWorld()
	in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Pair", Name: "n0<->n4", Reason: v1alpha1.ReasonSlowPair})
	if r := gate(in); !strings.Contains(r.status.Message, "n0<->n4") || did(&r, in, 0) != "" || did(&r, in, 4) != "" || did(&r, in, 1) != "pass" {
		t.Errorf("pair: %+v", r.status)
	}
	in = gateWorld()
	in.group.Spec.Gating.Mode = v1alpha1.GatingOff
	if r := gate(in); r.status != nil || len(r.marks)+len(r.wouldGate) > 0 {
		t.Errorf("off: %+v", r)
	}
}

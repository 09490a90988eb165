package gating

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// gateWorld is ten members that passed a finished run in a group that may mark nodes; n0 is the one under test. Two of
// ten may be gated at once.
func gateWorld() *Input { return gateWorldOf(10) }

func gateWorldOf(members int) *Input {
	group := testkit.Group()
	group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: testkit.EveryAction,
		MaxPercent: ptr.To(int32(20))}
	in := &Input{Now: testkit.Now, Group: group, Nodes: testkit.Nodes(members), MembersKnown: true,
		CommTasks: map[string]*v1alpha1.CommTask{}, CommNodes: map[string]*v1alpha1.CommNode{},
		Run: &v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Generation: 1, Phase: v1alpha1.RunPhaseFinished,
			Verdict: v1alpha1.VerdictPass}, Privileged: []string{"other", "team"}}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		node.Name = fmt.Sprint("n", i)
		node.UID = types.UID("uid-" + node.Name)
		facts := testkit.Facts(testkit.Now)
		ct := &v1alpha1.CommTask{Spec: v1alpha1.CommTaskSpec{NodeName: node.Name, NodeUID: string(node.UID),
			Run: &v1alpha1.RunAssignment{ID: "1-1", Generation: 1, Number: 1, Platform: nodefacts.PlatformOf(facts)}},
			Status: v1alpha1.CommTaskStatus{Run: &v1alpha1.NodeRunStatus{ID: "1-1", Generation: 1,
				Phase: v1alpha1.NodeRunFinished, BootID: "boot-1"}}}
		in.CommTasks[node.Name] = ct
		in.CommNodes[node.Name] = &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name},
			Status: v1alpha1.CommNodeStatus{Facts: facts}}
		in.Members = append(in.Members, decision.Member{Name: node.Name, UID: string(node.UID), Node: node})
		in.Outcomes = append(in.Outcomes, judge.Outcome{Node: node.Name, Phase: judge.Done, Report: ct.Status.Run})
		in.result(i, v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed)
	}
	return in
}

// result is what the agent of node i reported.
func (in *Input) result(i int, verdict v1alpha1.Verdict, reason string) {
	o := &in.Outcomes[i]
	ct := in.CommTasks[o.Node]
	ct.Status.Run.Verdict = verdict
	o.Report, o.Verdict, o.Reason, o.Message = ct.Status.Run, verdict, reason, "as reported"
	if o.Culprits = nil; verdict == v1alpha1.VerdictFail || verdict == v1alpha1.VerdictError {
		o.Culprits = []v1alpha1.Culprit{judge.NodeCulprit(o.Node, reason, o.Message)}
	}
}

// closed is a part of the run that the controller ended.
func (in *Input) closed(i int, verdict v1alpha1.Verdict) {
	in.result(i, verdict, v1alpha1.ReasonRunPodFailed)
	in.Outcomes[i].Report = nil
}

// holds writes the group's statement on node i, as an earlier run left it.
func (in *Input) holds(t *testing.T, i int, verdict v1alpha1.Verdict) {
	t.Helper()
	in.holdsFor(t, i, verdict, v1alpha1.ReasonSlowLink)
}

func (in *Input) holdsFor(t *testing.T, i int, verdict v1alpha1.Verdict, reason string) {
	t.Helper()
	g := newLook(in, Key(string(in.Group.UID)))
	j := judged{node: &in.Nodes[i], outcome: &judge.Outcome{Node: in.Nodes[i].Name, Reason: reason, Message: "earlier"}}
	s := g.statement(&j, verdict)
	s.Run = "1-0"
	in.Nodes[i] = *marked(t, &in.Nodes[i], map[string]string{g.key: s.String()}, testkit.Now)
}

// did is what gate does to node i: fail, pass, lift or "" for nothing; with ! where users are told.
func did(r *Result, in *Input, i int) string {
	for _, m := range r.Marks {
		if m.Node.Name != in.Nodes[i].Name {
			continue
		}
		what := "lift"
		if m.Statement != nil {
			what = strings.ToLower(string(m.Statement.Verdict))
		}
		if m.Change != Quiet {
			what += "!"
		}
		return what
	}
	return ""
}

// gatingCases has for every evidence how it comes about, and what then happens to a node without a statement, with
// Pass, and with Fail.
var gatingCases = map[evidence][]struct {
	name             string
	change           func(in *Input)
	none, pass, fail string
}{
	seenOff: {
		{"mode Off", func(in *Input) { in.Group.Spec.Gating.Mode = v1alpha1.GatingOff }, "", "lift", "lift!"},
		{"mode absent", func(in *Input) { in.Group.Spec.Gating.Mode = "" }, "", "lift", "lift!"},
		{"mode DryRun", func(in *Input) { in.Group.Spec.Gating.Mode = v1alpha1.GatingDryRun }, "", "lift", "lift!"},
		{"namespace not allowed", func(in *Input) { in.Privileged = []string{"other"} }, "", "lift", "lift!"},
		{"failed and mode Off", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.Group.Spec.Gating.Mode = v1alpha1.GatingOff
		}, "", "lift", "lift!"},
		{"simulated node", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.CommNodes["n0"].Status.Facts.Origin = v1alpha1.OriginSimulated
		}, "", "lift", "lift!"},
		{"simulated library", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.CommTasks["n0"].Status.Run.Library = &v1alpha1.LibraryFacts{Flavor: "simulated"}
		}, "", "lift", "lift!"},
	},
	seenLeft: {
		{"no member", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.Members = in.Members[1:]
		}, "", "lift", "lift!"},
	},
	seenReplaced: {
		{"another Node of the name", func(in *Input) {
			in.Nodes[0].UID, in.Members[0].UID = "uid-new", "uid-new"
			in.CommTasks["n0"].Spec.NodeUID = "uid-new"
			in.Outcomes = in.Outcomes[1:]
		}, "", "lift", "lift!"},
		{"what the earlier Node of the name showed", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.Nodes[0].UID, in.Members[0].UID = "uid-new", "uid-new" // and its CommTask is still the old one's
		}, "", "lift", "lift!"},
	},
	seenExempt: {
		{"annotation", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.exempt(0)
		}, "", "lift", "lift!"},
	},
	seenFailed: {
		{"the agent failed it", func(in *Input) { in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink) },
			"fail!", "fail!", ""},
		{"for another reason than before",
			func(in *Input) { in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonWrongData) }, "fail!", "fail!", "fail"},
		{"the run goes on", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.Run.Phase, in.Run.Verdict = v1alpha1.RunPhaseRunning, ""
		}, "fail!", "fail!", ""},
		{"slow against the others, run over", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode)
			in.CommTasks["n0"].Status.Run.Verdict = v1alpha1.VerdictPass
		}, "fail!", "fail!", "fail"},
		{"culprit of the group's stage", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "NIC", Name: "mlx5_3",
				Reason: v1alpha1.ReasonSlowRail, Message: "slow"})
		}, "fail!", "fail!", "fail"},
		{"failed on other GPUs", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.gpus(0, 8, true)
			in.CommTasks["n0"].Spec.Run.Platform = nodefacts.PlatformOf(in.CommNodes["n0"].Status.Facts)
		}, "fail!", "fail!", "fail"},
	},
	seenPassed: {
		{"alone", func(*Input) {}, "pass", "", "pass!"},
		{"on another boot", func(in *Input) {
			in.CommNodes["n0"].Status.Facts.BootID, in.CommTasks["n0"].Status.Run.BootID = "boot-2", "boot-2"
		}, "pass", "pass", "pass!"},
		{"by the kubelet on the boot that was measured", func(in *Input) { in.silentMonitor("boot-1") },
			"pass", "", "pass!"},
		{"by the monitor on the boot that was measured, which the kubelet calls otherwise", func(in *Input) {
			in.Nodes[0].Status.NodeInfo.BootID = "vm-7"
		}, "pass", "", "pass!"},
		{"the group's stage passed", func(in *Input) { in.spanOf(v1alpha1.VerdictPass) }, "pass", "", "pass!"},
		{"the group went on without many others", func(in *Input) { in.manyLeft("1-16") }, "pass", "", "pass!"},
		{"the group's stage named another node", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
		}, "pass", "", "pass!"},
		{"the same, and the mesh passed without it", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
			in.meshed(v1alpha1.VerdictPass)
		}, "pass", "", "pass!"},
		{"compared with nobody, and it did not fail by that",
			func(in *Input) { in.Outcomes[0].Uncompared, in.NoBaseline = true, true }, "pass", "", "pass!"},
	},
	seenGPUsReplaced: {
		{"other GPUs, not yet measured", func(in *Input) { in.Outcomes[0].Stale = true; in.gpus(0, 8, true) },
			"", "lift", "lift!"},
		{"while the new run goes on", func(in *Input) { in.Outcomes[0].Verdict = ""; in.gpus(0, 8, true) },
			"", "lift", "lift!"},
	},
	seenStale: {
		{"rebooted", func(in *Input) { in.Outcomes[0].Stale = true }, "", "lift", ""},
		{"rebooted by the kubelet, and its monitor is silent", func(in *Input) { in.silentMonitor("boot-2") },
			"", "lift", ""},
		{"the same, its next run could not measure", func(in *Input) {
			in.closed(0, v1alpha1.VerdictError)
			in.silentMonitor("boot-2")
		}, "", "lift", ""},
		{"the same, and its CommTask is gone", func(in *Input) {
			in.silentMonitor("boot-2")
			delete(in.CommTasks, "n0")
		}, "", "lift", ""},
		{"a GPU fell off the bus", func(in *Input) { in.Outcomes[0].Stale = true; in.gpus(0, 7, false) },
			"", "lift", ""},
		{"other GPUs, but the report has run out", func(in *Input) {
			in.Outcomes[0].Stale = true
			in.gpus(0, 8, true)
			in.Now = in.Now.Add(time.Hour)
		}, "", "lift", ""},
	},
	seenError: {
		{"the pod failed", func(in *Input) { in.closed(0, v1alpha1.VerdictError) }, "", "", ""},
		{"the agent could not measure",
			func(in *Input) { in.result(0, v1alpha1.VerdictError, v1alpha1.ReasonInitFailed) }, "", "", ""},
	},
	seenInconclusive: {{"nothing to judge by", func(in *Input) {
		in.result(0, v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive)
	}, "", "", ""}},
	seenSkipped: {{"GPUs in use", func(in *Input) { in.closed(0, v1alpha1.VerdictSkipped) }, "", "", ""}},
	seenNothing: {
		{"never ran", func(in *Input) { in.Run, in.Outcomes = nil, nil }, "", "", ""},
		{"its turn has not come", func(in *Input) {
			in.Run.Phase, in.Outcomes[0].Verdict, in.Outcomes[0].Report = v1alpha1.RunPhaseRunning, "", nil
		}, "", "", ""},
		{"passed, and the run goes on", func(in *Input) { in.Run.Phase = v1alpha1.RunPhaseRunning }, "", "", ""},
		{"slow against the others, and the run goes on", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowNode)
			in.CommTasks["n0"].Status.Run.Verdict, in.Run.Phase = v1alpha1.VerdictPass, v1alpha1.RunPhaseRunning
		}, "", "", ""},
		{"passed a run that was aborted", func(in *Input) { in.Run.Phase = v1alpha1.RunPhaseAborted }, "", "", ""},
		{"the spec asks for other measurements now", func(in *Input) { in.Group.Generation++ }, "", "", ""},
		{"nobody knows whether hardware passed",
			func(in *Input) { in.CommNodes["n0"].Status.Facts.Origin = v1alpha1.OriginUnknown }, "", "", ""},
		{"nobody knows whether hardware failed", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
			in.CommNodes["n0"].Status.Facts = nil
		}, "", "", ""},
		{"the members could not be selected", func(in *Input) { in.MembersKnown, in.Members = false, nil }, "", "", ""},
		{"the culprit is elsewhere", func(in *Input) {
			in.result(0, v1alpha1.VerdictFail, v1alpha1.ReasonCollectiveFailed)
			in.Outcomes[0].Culprits[0].Node = "n5"
		}, "", "", ""},
		{"the group's stage goes on", func(in *Input) {
			in.spanOf("")
			in.Span.Stage = v1alpha1.StageGroup
		}, "", "", ""},
		{"the group's stage is of an older run", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0"})
			in.Span.RunID = "1-0"
		}, "", "", ""},
		{"the group's stage could not be measured", func(in *Input) { in.spanOf(v1alpha1.VerdictError) }, "", "", ""},
		{"the group failed and no culprit was found", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail)
			in.Span.Localization.State = v1alpha1.LocalizationNotFound
		}, "", "", ""},
		{"the group went on without it", func(in *Input) {
			in.spanOf(v1alpha1.VerdictPass)
			in.Span.Left, in.Span.LeftSet = []string{"n0"}, "0"
		}, "", "", ""},
		{"the group went on without more than can be named", func(in *Input) { in.manyLeft("0-16") }, "", "", ""},
		{"and their set is too long to hold", func(in *Input) { in.manyLeft("") }, "", "", ""},
		{"the group's stage lost it, and failed for another node's sake", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0", Reason: v1alpha1.ReasonMemberLost},
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
			in.Span.Left, in.Span.LeftSet = []string{"n0", "n5"}, "0,5"
		}, "", "", ""},
		{"it was preempted in the group's stage", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n0", Kind: "Node", Name: "n0", Reason: v1alpha1.ReasonPreempted})
			in.Span.Left, in.Span.LeftSet = []string{"n0"}, "0"
		}, "", "", ""},
		{"a dimension of the mesh failed, and was traced to another node", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonSlowNode})
			in.meshed(v1alpha1.VerdictFail)
		}, "", "", ""},
		{"the mesh was not measured without the culprit", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonRankHung})
			in.Group.Spec.Mesh = []v1alpha1.MeshDimension{{Name: "dp", Size: 10}, {Name: "tp", Size: 8}}
		}, "", "", ""},
		{"without the culprit the group was not formed, or its speed not judged", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail,
				v1alpha1.Culprit{Node: "n5", Kind: "Node", Name: "n5", Reason: v1alpha1.ReasonRankHung})
			in.Span.SpeedJudged = false
		}, "", "", ""},
		{"the group was formed before it had a result", func(in *Input) {
			in.spanOf(v1alpha1.VerdictPass)
			in.CommTasks["n0"].Spec.Session = nil
		}, "", "", ""},
		{"bad only together with another", func(in *Input) {
			in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Pair", Pair: []string{"n0", "n4"},
				Name: "n0<->n4", Reason: v1alpha1.ReasonSlowPair})
		}, "", "", ""},
	},
}

// silentMonitor: the facts of n0 have run out, and its kubelet tells the boot.
func (in *Input) silentMonitor(boot string) {
	in.Now = in.Now.Add(24 * time.Hour)
	in.Nodes[0].Status.NodeInfo.BootID = boot
}

func (in *Input) exempt(i int) {
	if in.Nodes[i].Annotations == nil {
		in.Nodes[i].Annotations = map[string]string{}
	}
	in.Nodes[i].Annotations[v1alpha1.AnnotationGatingExempt] = "true"
}

// gpus gives the node n GPUs, at other addresses than before where others is set.
func (in *Input) gpus(i, n int, others bool) {
	f := in.CommNodes[in.Nodes[i].Name].Status.Facts
	f.GPUs, f.GPUCount = testkit.GPUs(n), int32(n)
	if others {
		f.GPUs[0].PCIAddress = "0001:01:00.0"
	}
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
						in.holds(t, 0, map[int]v1alpha1.Verdict{int(heldPass): v1alpha1.VerdictPass,
							int(heldFail): v1alpha1.VerdictFail}[state])
					}
					c.change(in)
					r := Decide(in)
					if got := did(&r, in, 0); got != want {
						t.Errorf("gate does %q, want %q (%+v)", got, want, r.Status)
					}
				})
			}
		}
	}
}

// TestTheTableIsWhole: no pair is undecided, and docs/gating.md shows users the same table.
func TestTheTableIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../docs/gating.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[nextStep]string{stepKeep: "left as it is", stepMark: "marked", stepPass: "says Pass",
		stepLift: "lifted"}
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
			step := table[e][state]
			if step == stepUndecided {
				t.Errorf("evidence %d on a node with statement %d is undecided", e, state)
			}
			if got := strings.TrimSpace(rows[e+1][state+1]); got != words[step] {
				t.Errorf("docs/gating.md, row %q, column %d: %q, the code does %q",
					strings.TrimSpace(rows[e+1][0]), state, got, words[step])
			}
		}
	}
}

func TestBreaker(t *testing.T) {
	failing := func(in *Input, nodes ...int) {
		for _, i := range nodes {
			in.result(i, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
		}
	}
	gatedBy := func(r *Result) (names []string) {
		for _, m := range r.Marks {
			if m.Change == Gated {
				names = append(names, m.Node.Name)
			}
		}
		return names
	}
	in := gateWorld()
	failing(in, 3, 7)
	r := Decide(in)
	if got := gatedBy(&r); !slices.Equal(got, []string{"n3", "n7"}) || r.Status.Breaker != "Closed" ||
		len(r.Events) > 0 || r.Status.Message != "" {
		t.Fatalf("two of ten at 20 %%: gated %v, %+v", got, r.Status)
	}
	in = gateWorld()
	in.holds(t, 3, v1alpha1.VerdictFail)
	failing(in, 3, 7, 8)
	r = Decide(in)
	if got := gatedBy(&r); len(got) > 0 || r.Status.Breaker != "Open" || did(&r, in, 3) != "" || r.Status.Gated != 1 {
		t.Fatalf("three of ten at 20 %%: gated %v, %+v", got, r.Status)
	}
	for _, word := range []string{"3 of 10 members", "n3, n7, n8", "SlowLink on 3", "share", "allows 2"} {
		if !strings.Contains(r.Status.Message, word) {
			t.Errorf("the message lacks %q: %s", word, r.Status.Message)
		}
	}
	if len(r.Events) != 1 || r.Events[0].Reason != v1alpha1.ReasonBreakerOpen || !r.Events[0].Warning {
		t.Fatalf("events %+v", r.Events)
	}
	in.Group.Status.Gating = r.Status
	if again := Decide(in); len(again.Events) > 0 {
		t.Fatalf("told again: %+v", again.Events)
	}
	in.result(7, v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed)
	r = Decide(in)
	if got := gatedBy(&r); !slices.Equal(got, []string{"n8"}) || r.Status.Breaker != "Closed" || len(r.Events) != 1 ||
		r.Events[0].Reason != v1alpha1.ReasonBreakerClosed {
		t.Fatalf("two of ten again: gated %v, %+v, %+v", got, r.Status, r.Events)
	}

	t.Run("marks whose nodes are not measured now count too", func(t *testing.T) {
		in := gateWorld()
		in.holds(t, 1, v1alpha1.VerdictFail)
		in.holds(t, 2, v1alpha1.VerdictFail)
		in.closed(1, v1alpha1.VerdictError)
		in.Outcomes[2].Stale = true
		failing(in, 5)
		if r := Decide(in); r.Status.Breaker != "Open" || len(gatedBy(&r)) > 0 || r.Status.Gated != 2 {
			t.Fatalf("gated %v, %+v", gatedBy(&r), r.Status)
		}
	})
	t.Run("one may always be gated", func(t *testing.T) {
		for _, percent := range []int32{0, 5} {
			in := gateWorld()
			in.Group.Spec.Gating.MaxPercent = ptr.To(percent)
			failing(in, 5)
			if r := Decide(in); !slices.Equal(gatedBy(&r), []string{"n5"}) {
				t.Fatalf("maxPercent %d: %+v", percent, r.Status)
			}
		}
	})
	t.Run("an exempt node takes no place", func(t *testing.T) {
		in := gateWorld()
		failing(in, 1, 2, 3)
		in.exempt(2)
		if r := Decide(in); !slices.Equal(gatedBy(&r), []string{"n1", "n3"}) ||
			!strings.Contains(r.Status.Message, "exempt by annotation: n2") {
			t.Fatalf("gated %v, %+v", gatedBy(&r), r.Status)
		}
	})
}

func TestGatingTellsWhyItDoesNotMark(t *testing.T) {
	in := gateWorld()
	in.result(4, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.Privileged = nil
	if r := Decide(in); !slices.Equal(r.WouldGate, []string{"n4"}) ||
		!strings.Contains(r.Status.Message, "namespace team is not among the manager's --privileged-namespaces") {
		t.Errorf("namespace: %v, %+v", r.WouldGate, r.Status)
	}
	in = gateWorld()
	in.result(4, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.result(5, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	in.CommNodes["n4"].Status.Facts.Origin = v1alpha1.OriginSimulated
	if r := Decide(in); !slices.Equal(r.WouldGate, []string{"n4"}) || did(&r, in, 4) != "" ||
		did(&r, in, 5) != "fail!" || !strings.Contains(r.Status.Message, "gating.simulated is Forbid: n4") {
		t.Errorf("simulated: %v, %+v", r.WouldGate, r.Status)
	}
	in.Group.Spec.Gating.Simulated = v1alpha1.SimulatedAllow
	if r := Decide(in); len(r.WouldGate) > 0 || did(&r, in, 4) != "fail!" || r.Status.Message != "" {
		t.Errorf("simulated, allowed: %v, %+v", r.WouldGate, r.Status)
	}
	in = gateWorld()
	in.spanOf(v1alpha1.VerdictFail, v1alpha1.Culprit{Node: "n0", Kind: "Pair", Pair: []string{"n0", "n4"},
		Name: "n0<->n4", Reason: v1alpha1.ReasonSlowPair})
	if r := Decide(in); !strings.Contains(r.Status.Message, "n0<->n4") || did(&r, in, 0) != "" ||
		did(&r, in, 4) != "" || did(&r, in, 1) != "pass" {
		t.Errorf("pair: %+v", r.Status)
	}
	in = gateWorld()
	in.Group.Spec.Gating.Mode = v1alpha1.GatingOff
	if r := Decide(in); r.Status != nil || len(r.Marks)+len(r.WouldGate) > 0 {
		t.Errorf("off: %+v", r)
	}
}

package gating

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/runs"
)

// fail makes the agents of the nodes report a bad link.
func (in *Input) fail(nodes ...int) {
	for _, i := range nodes {
		in.Outcomes[i].Phase = judge.Done
		in.result(i, v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink)
	}
}

// pass makes the agents of the nodes report a pass.
func (in *Input) pass(nodes ...int) {
	for _, i := range nodes {
		in.Outcomes[i].Phase = judge.Done
		in.result(i, v1alpha1.VerdictPass, v1alpha1.ReasonAllPassed)
	}
}

// begin starts the next run of all members: no result of the one before counts any more.
func (in *Input) begin() {
	number := in.Run.Number + 1
	in.Run = &v1alpha1.GroupRunStatus{ID: fmt.Sprint("1-", number), Number: number, Generation: in.Group.Generation,
		Phase: v1alpha1.RunPhaseRunning}
	for i := range in.Outcomes {
		node := in.Outcomes[i].Node
		in.Outcomes[i] = judge.Outcome{Node: node, Phase: judge.Waiting}
		in.CommTasks[node].Spec.Run.ID = in.Run.ID
	}
}

// end finishes the run.
func (in *Input) end() { in.Run.Phase = v1alpha1.RunPhaseFinished }

// reconcile gates, writes what gate says to the nodes, and keeps the status. It returns who is newly gated.
func (in *Input) reconcile(t *testing.T) (r Result, gated []string) {
	t.Helper()
	r = Decide(in)
	key := Key(string(in.Group.UID))
	for _, m := range r.Marks {
		if m.Change == Gated {
			gated = append(gated, m.Node.Name)
		}
		value := ""
		if m.Statement != nil {
			value = m.Statement.String()
		}
		for i := range in.Nodes {
			if in.Nodes[i].Name == m.Node.Name {
				in.Nodes[i] = *marked(t, m.Node, map[string]string{key: value}, in.Now)
			}
		}
	}
	in.Group.Status.Gating, in.Group.Status.WouldGate = r.Status, r.WouldGate
	return r, gated
}

// TestOnlyResultsCloseTheBreaker: six of ten failed at once. Whatever takes results away (a run that begins, a reboot,
// another spec) shows nothing of the cause that they share, so that nobody is marked and no event says that it is over.
func TestOnlyResultsCloseTheBreaker(t *testing.T) {
	failed := []int{0, 1, 2, 3, 4, 5}
	rest := []int{6, 7, 8, 9}
	for name, c := range map[string]struct {
		change func(in *Input)
		says   string // in the message while it stays open; empty where it closes
		gated  []string
	}{
		"a run begins": {func(in *Input) { in.begin() }, "so far 0 of 10 members failed", nil},
		"a run begins, and some passed": {func(in *Input) { in.begin(); in.pass(rest...) },
			"before the present run", nil},
		"a run begins, and one failed again": {func(in *Input) { in.begin(); in.pass(rest...); in.fail(0) },
			"so far 1 of 10 members failed", nil},
		"the run was aborted": {func(in *Input) {
			in.begin()
			in.pass(rest...)
			in.Run.Phase = v1alpha1.RunPhaseAborted
		}, "had failed", nil},
		"there is no run":                      {func(in *Input) { in.Run, in.Outcomes = nil, nil }, "had failed", nil},
		"the spec asks for other measurements": {func(in *Input) { in.Group.Generation++ }, "had failed", nil},
		"the members cannot be selected": {func(in *Input) { in.MembersKnown, in.Members = false, nil },
			"cannot be selected", nil},
		"all of them were rebooted": {func(in *Input) { in.stale(failed...) },
			"6 were rebooted, changed or could not be measured", nil},
		"the next run could not " +
			"measure them": {func(in *Input) { in.begin(); in.pass(rest...); in.errors(failed...); in.end() },
			"6 were rebooted, changed or could not be measured", nil},
		"the next run measured nobody": {func(in *Input) { in.begin(); in.end() },
			"not enough have passed", nil},
		"the next run shows the same": {func(in *Input) {
			in.begin()
			in.pass(rest...)
			in.fail(failed...)
			in.end()
		}, "6 of 10 members failed at once", nil},
		"the next run passed": {
			func(in *Input) { in.begin(); in.pass(failed...); in.pass(rest...); in.end() }, "", nil},
		"two still fail": {
			func(in *Input) { in.begin(); in.pass(rest...); in.pass(2, 3, 4, 5); in.fail(0, 1); in.end() }, "",
			[]string{"n0", "n1"}},
		"two still fail, one could not be tried": {func(in *Input) {
			in.begin()
			in.pass(rest...)
			in.pass(3, 4, 5)
			in.fail(0, 1)
			in.errors(2)
			in.end()
		}, "1 were rebooted", nil},
		"four were busy and all others passed": {func(in *Input) {
			in.begin()
			in.pass(failed...)
			in.closedAll(v1alpha1.VerdictSkipped, rest...)
			in.end()
		}, "", nil},
		"the bound was raised over what has been": {func(in *Input) {
			in.Group.Spec.Gating.MaxPercent = ptr.To(int32(60))
		}, "", []string{"n0", "n1", "n2", "n3", "n4", "n5"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := gateWorld()
			in.fail(failed...)
			if r, gated := in.reconcile(t); r.Status.Breaker != breakerOpen || len(gated) > 0 || len(r.Events) != 1 {
				t.Fatalf("six of ten failed: %+v, gated %v", r.Status, gated)
			}
			c.change(in)
			r, gated := in.reconcile(t)
			if !slices.Equal(gated, c.gated) {
				t.Errorf("gated %v, want %v", gated, c.gated)
			}
			if c.says == "" {
				if r.Status.Breaker != breakerClosed || len(r.Events) != 1 ||
					r.Events[0].Reason != v1alpha1.ReasonBreakerClosed ||
					!strings.Contains(r.Events[0].Note, "run "+in.Run.ID) {
					t.Errorf("it stays open: %+v, %+v", r.Status, r.Events)
				}
				return
			}
			if r.Status.Breaker != breakerOpen || len(r.Events) > 0 || !strings.Contains(r.Status.Message, c.says) ||
				!strings.Contains(r.Status.Message, "No further node is marked") {
				t.Errorf("want it open and %q: %+v, %+v", c.says, r.Status, r.Events)
			}
		})
	}
}

func (in *Input) stale(nodes ...int) {
	for _, i := range nodes {
		in.Outcomes[i].Stale, in.Outcomes[i].Verdict = true, ""
	}
}

func (in *Input) errors(nodes ...int) { in.closedAll(v1alpha1.VerdictError, nodes...) }

func (in *Input) closedAll(verdict v1alpha1.Verdict, nodes ...int) {
	for _, i := range nodes {
		in.Outcomes[i].Phase = judge.Done
		in.closed(i, verdict)
	}
}

// TestRunsAfterAnOpenBreakerMarkNobody: night after night the same driver fails the same nodes, in any order of
// reports.
func TestRunsAfterAnOpenBreakerMarkNobody(t *testing.T) {
	in := gateWorld()
	in.fail(0, 1, 2, 3, 4, 5)
	in.reconcile(t)
	for night := range 3 {
		in.begin()
		for i := range 10 {
			node := (i*3 + night) % 10
			if node < 6 {
				in.fail(node)
			} else {
				in.pass(node)
			}
			if r, gated := in.reconcile(t); r.Status.Breaker != breakerOpen || len(gated)+len(r.Events) > 0 {
				t.Fatalf("night %d after %d reports: gated %v, %+v, %+v", night, i+1, gated, r.Status, r.Events)
			}
		}
		in.end()
		if r, gated := in.reconcile(t); r.Status.Breaker != breakerOpen || len(gated)+len(r.Events) > 0 {
			t.Fatalf("night %d: gated %v, %+v, %+v", night, gated, r.Status, r.Events)
		}
	}
}

// TestTheShareIsOfWhatWasMeasured: the first run of a hundred fails everywhere. It must not go on marking until 20 % of
// the pool is gone; a few failures among many that passed are no reason to stop.
func TestTheShareIsOfWhatWasMeasured(t *testing.T) {
	play := func(bad func(i int) bool) (gated []string, opened bool) {
		in := gateWorldOf(100)
		in.begin()
		for i := range 100 {
			if bad(i) {
				in.fail(i)
			} else {
				in.pass(i)
			}
			r, names := in.reconcile(t)
			gated = append(gated, names...)
			opened = opened || r.Status.Breaker == breakerOpen
		}
		return gated, opened
	}
	if gated, opened := play(func(int) bool { return true }); len(gated) != 4 || !opened {
		t.Errorf("all fail: opened %t, gated %v; want the four of the first twenty that maxPercent allows",
			opened, gated)
	}
	if gated, opened := play(func(i int) bool { return i%6 == 0 }); len(gated) != 17 || opened {
		t.Errorf("every sixth fails: opened %t, %d gated: %v", opened, len(gated), gated)
	}
}

// TestUnknownMembersOpenNothing: a selector that cannot be read leaves marks and breaker as they are.
func TestUnknownMembersOpenNothing(t *testing.T) {
	in := gateWorld()
	in.Group.Spec.Gating.MaxPercent = ptr.To(int32(50))
	in.fail(0, 1, 2)
	in.reconcile(t)
	in.MembersKnown, in.Members, in.Outcomes = false, nil, nil
	if r, _ := in.reconcile(t); r.Status.Breaker != breakerClosed || r.Status.Gated != 3 ||
		len(r.Events)+len(r.Marks) > 0 {
		t.Errorf("%+v, %+v, %d marks", r.Status, r.Events, len(r.Marks))
	}
}

// TestADryRunNamesWhomEnforceWouldMark: no more, and how many where not all can be named.
func TestADryRunNamesWhomEnforceWouldMark(t *testing.T) {
	for name, how := range map[string]func(in *Input){
		"mode DryRun":           func(in *Input) { in.Group.Spec.Gating.Mode = v1alpha1.GatingDryRun },
		"namespace not allowed": func(in *Input) { in.Privileged = nil },
	} {
		t.Run(name, func(t *testing.T) {
			in := gateWorld()
			how(in)
			in.fail(1, 2)
			if r, _ := in.reconcile(t); !slices.Equal(r.WouldGate, []string{"n1", "n2"}) ||
				r.Status.Breaker != breakerClosed || len(r.Marks) > 0 {
				t.Fatalf("two of ten: %+v, would gate %v", r.Status, r.WouldGate)
			}
			in.begin()
			in.MembersKnown, in.Members = false, nil
			if r, _ := in.reconcile(t); !slices.Equal(r.WouldGate, []string{"n1", "n2"}) {
				t.Fatalf("the next run begins, and the members could not be selected: would gate %v", r.WouldGate)
			}
			in.MembersKnown, in.Members = true, gateWorld().Members
			in.fail(1, 2, 3)
			if r, _ := in.reconcile(t); !slices.Equal(r.WouldGate, []string{"n1", "n2"}) ||
				len(r.Marks) > 0 || r.Status.Breaker != breakerOpen ||
				!strings.Contains(r.Status.Message, "Enforce would mark no further node") {
				t.Fatalf("three of ten: %+v, would gate %v", r.Status, r.WouldGate)
			}
			in = gateWorldOf(200)
			how(in)
			for i := range 25 {
				in.fail(i)
			}
			if r, _ := in.reconcile(t); len(r.WouldGate) != maxNamedNodes || !strings.Contains(r.Status.Message,
				"Enforce would gate 25 nodes, of which status.wouldGate names 16.") {
				t.Fatalf("25 of 200: %+v, would gate %v", r.Status, r.WouldGate)
			}
		})
	}
}

// TestADryRunJudgesAsEnforce plays the same random histories in both modes: at each time the dry run names whom Enforce
// has marked, its breaker is as Enforce's, and it writes nothing.
func TestADryRunJudgesAsEnforce(t *testing.T) {
	named, opened, lifted := 0, 0, 0
	for seed := range uint64(60) {
		enforce, dry := gateWorld(), gateWorld()
		dry.Group.Spec.Gating.Mode = v1alpha1.GatingDryRun
		history := func(in *Input) func() {
			rng := rand.New(rand.NewPCG(seed, 13))
			return func() {
				i := rng.IntN(len(in.Nodes))
				o, ct, cn := &in.Outcomes[i], in.CommTasks[in.Nodes[i].Name], in.CommNodes[in.Nodes[i].Name]
				switch event := rng.IntN(14); event {
				case 0, 1, 2, 3, 4:
					if o.Stale, ct.Spec.NodeUID, ct.Spec.Run.Platform = false, string(in.Nodes[i].UID),
						nodefacts.PlatformOf(cn.Status.Facts); event < 3 {
						in.fail(i)
					} else {
						in.pass(i)
					}
				case 5:
					in.closed(i, v1alpha1.VerdictError)
				case 6:
					o.Stale, o.Verdict = true, ""
				case 7:
					cn.Status.Facts.Origin = []v1alpha1.Origin{v1alpha1.OriginHardware,
						v1alpha1.OriginSimulated}[rng.IntN(2)]
				case 8:
					in.begin()
				case 9:
					in.end()
				case 10:
					in.exempt(i)
				case 11:
					delete(in.Nodes[i].Annotations, v1alpha1.AnnotationGatingExempt)
				case 12:
					in.Nodes[i].UID, o.Verdict = types.UID(fmt.Sprint("uid-", rng.Uint32())), ""
				case 13:
					in.gpus(i, 8, rng.IntN(2) == 0)
					o.Stale, o.Verdict = true, ""
				}
			}
		}
		enforced, dried := history(enforce), history(dry)
		var before []string
		for step := range 100 {
			enforced()
			dried()
			a, _ := enforce.reconcile(t)
			b, _ := dry.reconcile(t)
			var marked []string
			for i := range enforce.Nodes {
				if Statements(enforce.Nodes[i].Annotations)[Key(string(enforce.Group.UID))].Verdict ==
					v1alpha1.VerdictFail {
					marked = append(marked, enforce.Nodes[i].Name)
				}
			}
			if !slices.Equal(marked, b.WouldGate) || a.Status.Breaker != b.Status.Breaker || len(b.Marks) > 0 ||
				b.Status.Gated != 0 {
				t.Fatalf("seed %d step %d: Enforce has marked %v, breaker %s; the dry run names %v, breaker %s, "+
					"and writes %+v", seed, step, marked, a.Status.Breaker, b.WouldGate, b.Status.Breaker, b.Marks)
			}
			named += len(marked)
			if a.Status.Breaker == breakerOpen && len(marked) > 0 {
				opened++
			}
			if len(marked) < len(before) {
				lifted++
			}
			before = marked
		}
	}
	if named < 1000 || opened < 100 || lifted < 100 {
		t.Errorf("the histories are too tame: %d named, %d open, %d lifted", named, opened, lifted)
	}
}

// TestBreakerMessagesFit: each begins with what was seen, and its next step is not cut off.
func TestBreakerMessagesFit(t *testing.T) {
	in := gateWorldOf(100)
	in.Group.Name, in.Group.Namespace = strings.Repeat("g", 30), strings.Repeat("n", 20)
	in.Privileged = []string{in.Group.Namespace}
	for i := range in.Nodes {
		long := strings.Repeat("a", 55) + fmt.Sprintf("-%03d", i)
		in.Nodes[i].Name, in.Members[i].Name, in.Outcomes[i].Node = long, long, long
		in.CommTasks[long], in.CommNodes[long] = in.CommTasks[fmt.Sprint("n", i)], in.CommNodes[fmt.Sprint("n", i)]
	}
	in.begin()
	in.fail(0, 1, 2, 3, 4)
	r, _ := in.reconcile(t)
	if m := r.Status.Message; len(m) > MessageBytes || !strings.HasPrefix(m,
		"5 of 100 members failed (0 passed so far) at once and gating.maxPercent (20) allows 4: ") ||
		!strings.HasSuffix(m, "then "+runs.Ask(in.Group)+".") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
}

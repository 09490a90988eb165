package gating

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestGatingInvariants plays random histories of two groups on the same ten nodes: verdicts, reboots, replaced nodes
// and GPUs, exemptions, runs that begin and end, members that come and go, changes of mode, actions and bound, and
// users's hands on marks. After each step of a group:
//   - no more of its members carry its new mark than the bound allows, and with the breaker open none is added;
//   - an open breaker closes by results of a run that is over alone;
//   - a mark is added only to a node that failed, and lifted only by what may lift it;
//   - it touches no statement of the other group, and nothing on the node but gating's marks;
//   - the marks of each node that it wrote follow from the statements, and a second look writes nothing.
func TestGatingInvariants(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 11))
		groups := []*Input{gateWorld(), gateWorld()}
		groups[1].Group.Name, groups[1].Group.UID = "h", "uid-h"
		nodes := groups[0].Nodes
		for i := range nodes {
			nodes[i].Spec.Taints = []corev1.Taint{{Key: "example.com/theirs", Value: fmt.Sprint(i),
				Effect: corev1.TaintEffectNoExecute}}
		}
		groups[1].Nodes = nodes // both see the same
		for step := range 150 {
			in := groups[rng.IntN(2)]
			in.Now = testkit.Now.Add(time.Duration(step) * time.Second)
			randomGatingEvent(rng, in)
			stepGatingAndCheck(t, fmt.Sprintf("seed %d step %d", seed, step), in, seen)
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%v", seen)
	for _, what := range []string{"gated", "ungated", "passed", "open", "closed again", "repaired", "held by both"} {
		if seen[what] < 50 {
			t.Errorf("the histories are too tame: %v", seen)
		}
	}
}

func randomGatingEvent(rng *rand.Rand, in *Input) {
	i := rng.IntN(len(in.Nodes))
	node := &in.Nodes[i]
	o := &in.Outcomes[i]
	switch rng.IntN(18) {
	case 0, 1, 2, 3:
		verdicts := []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictPass, v1alpha1.VerdictFail,
			v1alpha1.VerdictFail, v1alpha1.VerdictError, v1alpha1.VerdictInconclusive, v1alpha1.VerdictSkipped}
		in.result(i, verdicts[rng.IntN(len(verdicts))],
			[]string{v1alpha1.ReasonSlowLink, v1alpha1.ReasonWrongData}[rng.IntN(2)])
		o.Stale = false
		in.CommTasks[node.Name].Spec.NodeUID = string(node.UID)
		in.CommTasks[node.Name].Spec.Run.Platform = nodefacts.PlatformOf(in.CommNodes[node.Name].Status.Facts)
	case 4:
		o.Stale, o.Verdict = true, ""
	case 5:
		node.UID = types.UID(fmt.Sprint("uid-", rng.Uint32()))
		o.Verdict = ""
	case 6:
		in.gpus(i, 7+rng.IntN(2), rng.IntN(2) == 0)
		o.Stale, o.Verdict = true, ""
	case 7:
		if exempt(node.Annotations) {
			delete(node.Annotations, v1alpha1.AnnotationGatingExempt)
		} else if rng.IntN(3) == 0 {
			in.exempt(i)
		}
	case 8:
		if k := slices.IndexFunc(in.Members, func(m decision.Member) bool { return m.Name == node.Name }); k >= 0 &&
			rng.IntN(2) == 0 {
			in.Members = slices.Delete(slices.Clone(in.Members), k, k+1)
		} else if k < 0 {
			in.Members = append(in.Members, decision.Member{Name: node.Name, Node: node})
		}
	case 9:
		in.Run.Phase = []v1alpha1.RunPhase{v1alpha1.RunPhaseRunning, v1alpha1.RunPhaseFinished,
			v1alpha1.RunPhaseFinished}[rng.IntN(3)]
	case 10:
		in.Group.Spec.Gating.Mode = []v1alpha1.GatingMode{v1alpha1.GatingOff, v1alpha1.GatingDryRun,
			v1alpha1.GatingEnforce, v1alpha1.GatingEnforce, v1alpha1.GatingEnforce}[rng.IntN(5)]
	case 11:
		in.Group.Spec.Gating.Actions = testkit.EveryAction[rng.IntN(3):]
	case 12:
		in.Group.Spec.Gating.MaxPercent = ptr.To(10 * rng.Int32N(8))
	case 13:
		node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
			return isMark(&t)
		})
		delete(node.Labels, v1alpha1.LabelCommValidated)
	case 14:
		for _, key := range slices.Sorted(maps.Keys(node.Annotations)) {
			if strings.HasPrefix(key, v1alpha1.AnnotationGatingPrefix) && rng.IntN(2) == 0 {
				node.Annotations[key] = "{"
			}
		}
	case 15:
		in.Privileged = [][]string{{"team"}, {"team"}, {"team"}, nil}[rng.IntN(4)]
	case 16:
		in.begin()
	case 17: // the run ends with a result of each node that is still the one it was
		bad := rng.IntN(4)
		for i := range in.Outcomes {
			if in.Outcomes[i].Stale || in.CommTasks[in.Nodes[i].Name].Spec.NodeUID != string(in.Nodes[i].UID) {
				continue
			}
			if rng.IntN(10) < bad {
				in.fail(i)
			} else {
				in.pass(i)
			}
		}
		in.end()
	}
}

func stepGatingAndCheck(t *testing.T, where string, in *Input, seen map[string]int) {
	t.Helper()
	key := Key(string(in.Group.UID))
	holdsFail := func(n *corev1.Node) bool { return Statements(n.Annotations)[key].Verdict == v1alpha1.VerdictFail }
	r := Decide(in)
	added := 0
	for _, m := range r.Marks {
		i := slices.IndexFunc(in.Nodes, func(n corev1.Node) bool { return n.Name == m.Node.Name })
		before := in.Nodes[i].DeepCopy()
		value := ""
		if m.Statement != nil {
			value = m.Statement.String()
		}
		after := marked(t, before, map[string]string{key: value}, in.Now)
		o := &in.Outcomes[i]
		bare := func(n *corev1.Node) string {
			n = n.DeepCopy()
			delete(n.Annotations, key)
			delete(n.Labels, v1alpha1.LabelCommValidated)
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return isMark(&t) })
			n.Status = corev1.NodeStatus{}
			return fmt.Sprintf("%v %v %v", n.Annotations, n.Labels, n.Spec)
		}
		switch was, is := holdsFail(before), holdsFail(after); {
		case !was && is && before.Annotations[key] != "{":
			added++
			seen["gated"]++
			if o.Verdict != v1alpha1.VerdictFail || o.Stale || exempt(before.Annotations) ||
				in.Group.Spec.Gating.Mode != v1alpha1.GatingEnforce || len(in.Privileged) == 0 {
				t.Errorf("%s: node %s is gated with %+v", where, m.Node.Name, o)
			}
		case was && !is:
			seen["ungated"]++
			passed := o.Verdict == v1alpha1.VerdictPass && !o.Stale && in.Run.Phase == v1alpha1.RunPhaseFinished
			s := Statements(before.Annotations)[key]
			may := passed || exempt(before.Annotations) || s.NodeUID != string(before.UID) ||
				in.Group.Spec.Gating.Mode != v1alpha1.GatingEnforce || len(in.Privileged) == 0 ||
				!slices.ContainsFunc(in.Members, func(m decision.Member) bool { return m.Name == before.Name }) ||
				gpusReplaced(s.GPUs, in.CommNodes[before.Name], in.Now)
			if !may {
				t.Errorf("%s: node %s is no longer gated (%s) with %+v", where, m.Node.Name, m.Why, o)
			}
		case m.Change == Quiet && value == before.Annotations[key]:
			seen["repaired"]++
		case m.Statement != nil && m.Statement.Verdict == v1alpha1.VerdictPass:
			seen["passed"]++
		}
		if bare(before) != bare(after) {
			t.Errorf("%s: node %s changes from\n%s to\n%s", where, m.Node.Name, bare(before), bare(after))
		}
		if got, want := marksOn(after), marksFor(Statements(after.Annotations)); got != want {
			t.Errorf("%s: node %s has %+v, its statements ask for %+v", where, m.Node.Name, got, want)
		}
		if fails := Statements(after.Annotations); len(fails) == 2 &&
			marksOn(after).validated.status == corev1.ConditionFalse {
			seen["held by both"]++
		}
		in.Nodes[i] = *after
	}
	if s := r.Status; s != nil {
		switch {
		case s.Breaker == "Open":
			seen["open"]++
		case in.Group.Status.Gating != nil && in.Group.Status.Gating.Breaker == "Open":
			seen["closed again"]++
			if !slices.ContainsFunc(in.Outcomes, func(o judge.Outcome) bool {
				return o.Verdict == v1alpha1.VerdictPass || o.Verdict == v1alpha1.VerdictFail
			}) ||
				in.Run.Phase != v1alpha1.RunPhaseFinished {
				t.Errorf("%s: the breaker closes without a result of a run that is over: %+v", where, in.Run)
			}
		}
		limit := max(1, len(in.Members)*int(*in.Group.Spec.Gating.MaxPercent)/100)
		total := 0
		for i := range in.Nodes {
			if holdsFail(&in.Nodes[i]) {
				total++
			}
		}
		if added > 0 && (s.Breaker == "Open" || total > limit) {
			t.Errorf("%s: %d added makes %d, at most %d of %d, breaker %s",
				where, added, total, limit, len(in.Members), s.Breaker)
		}
	}
	in.Group.Status.Gating = r.Status
	if again := Decide(in); len(again.Marks) > 0 {
		// A statement of a Node that was replaced goes first; what the new one showed follows.
		for _, m := range again.Marks {
			if i := slices.IndexFunc(r.Marks, func(x Mark) bool { return x.Node.Name == m.Node.Name }); i < 0 ||
				r.Marks[i].Statement != nil {
				t.Errorf("%s: a second look writes to %s: %+v", where, m.Node.Name, m.Statement)
			}
		}
	}
}

package controllers

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestRunInvariants plays random histories: agents that report or do not, pods that start, hang, fail or are deleted,
// nodes that leave and come back, reboots and other changes of nodes, spec changes, requests, suspension. At every step
// at most maxParallelNodes nodes hold GPUs, Pass means that every member's agent reported a pass, a group is never
// Ready with a result of another boot, and a run of the changed nodes leaves alone whoever has a result that holds; and
// once the world is left alone, every run ends.
func TestRunInvariants(t *testing.T) {
	var seen tally
	least := testenv.Draws(8, 50)
	defer func() {
		// Histories that never come there would show nothing.
		if t.Logf("%+v", seen); seen.partialRuns < least || seen.measuredAgain < least || seen.ready < least ||
			seen.readyAgain == 0 {
			t.Errorf("the histories are too tame: %+v", seen)
		}
	}()
	for seed := range testenv.Draws[uint64](25, 150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			group := testkit.Group()
			group.Spec.Run.MaxParallelNodes = 1 + rng.Int32N(4)
			group.Spec.Run.StartDeadlineSeconds = 60
			group.Spec.Run.NodeDeadlineSeconds = 120
			if rng.IntN(3) == 0 {
				group.Spec.Run.Schedule = "*/10 * * * *"
			}
			w := newWorld(group, testkit.Nodes(2+rng.IntN(7)))
			away := []corev1.Node{}
			calm := rng.IntN(2) == 0 // as clusters mostly are: agents do their work, and now and then something happens
			for range 120 {
				switch {
				case !calm || rng.IntN(8) == 0:
					randomEvent(rng, w, &away)
				case rng.IntN(12) == 0 && len(w.nodes) > 0:
					w.changes[w.nodes[rng.IntN(len(w.nodes))].Name]++
				default:
					goodWork(rng, w)
				}
				if rng.IntN(3) > 0 {
					stepAndCheck(t, w, &seen)
				}
				checkInvariants(t, w)
			}
			// Left alone, without agents, everything ends by its deadlines. Deletions end too, as a kubelet would have
			// it.
			w.group.Spec.Run.Schedule = ""
			for range 60 {
				w.now = w.now.Add(30 * time.Second)
				finishDeletions(w)
				stepAndCheck(t, w, &seen)
				checkInvariants(t, w)
			}
			if run := w.group.Status.Run; run != nil && run.Phase == v1alpha1.RunPhaseRunning {
				t.Fatalf("run %s still goes on after half an hour: %+v", run.ID, w.group.Status.Members)
			}
			for name, pod := range w.pods {
				t.Errorf("pod %s (%s) is left over", name, pod.Status.Phase)
			}
		})
	}
}

// goodWork is what monitors and agents do when nothing is wrong: some of it, at some of the nodes.
func goodWork(rng *rand.Rand, w *world) {
	finishDeletions(w)
	for i := range w.nodes {
		node := w.nodes[i].Name
		ct, pod := w.commTask(node), w.podOn(node)
		if ct == nil || rng.IntN(4) == 0 {
			continue
		}
		w.setFacts(ct.Spec.NodeName, w.factsOf(node))
		switch {
		case pod == nil || !podstate.Alive(pod):
		case pod.Spec.NodeName == "":
			startPod(pod, node, w.now)
		case runs.Assigned(ct, pod.Labels[v1alpha1.LabelRunID]):
			ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
			ct.Status.Run.BootID = w.factsOf(node).BootID
			endPod(pod, 0, w.now)
		}
	}
}

func finishDeletions(w *world) {
	for name, pod := range w.pods {
		if !pod.DeletionTimestamp.IsZero() {
			delete(w.pods, name)
		}
	}
}

func randomEvent(rng *rand.Rand, w *world, away *[]corev1.Node) {
	pick := func() (string, bool) {
		if len(w.nodes) == 0 {
			return "", false
		}
		return w.nodes[rng.IntN(len(w.nodes))].Name, true
	}
	node, ok := pick()
	if !ok {
		w.nodes, *away = append(w.nodes, *away...), nil
		return
	}
	ct, pod := w.commTask(node), w.podOn(node)
	switch rng.IntN(18) {
	case 0:
		w.now = w.now.Add(time.Duration(rng.IntN(90)) * time.Second)
	case 1, 2, 3:
		if ct != nil {
			w.setFacts(ct.Spec.NodeName, w.factsOf(node))
		}
	case 16:
		w.changes[node]++ // a reboot or another driver, of which the monitor has not told yet
	case 17:
		w.changes[node]++
		if ct != nil {
			w.setFacts(ct.Spec.NodeName, w.factsOf(node))
		}
	case 4, 5, 6:
		if pod != nil && podstate.Alive(pod) && pod.Spec.NodeName == "" {
			startPod(pod, node, w.now)
		}
	case 7, 8:
		if ct != nil && ct.Spec.Run != nil && pod != nil {
			verdicts := []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictPass, v1alpha1.VerdictPass,
				v1alpha1.VerdictFail, v1alpha1.VerdictError}
			r := testkit.Report(w.plan(), ct.Spec.Run, verdicts[rng.IntN(len(verdicts))], 300000, w.now)
			r.BootID = w.factsOf(node).BootID
			switch rng.IntN(8) {
			case 0:
				r.ID = "0-0" // of another run
			case 1:
				r.Generation++
			case 2:
				r.Results = nil
			case 3:
				r.Phase = v1alpha1.NodeRunRunning
			}
			ct.Status.Run = r
		}
	case 9:
		if pod != nil && pod.Spec.NodeName != "" {
			endPod(pod, int32(rng.IntN(2)), w.now)
		}
	case 10:
		if pod != nil {
			delete(w.pods, pod.Name)
		}
	case 11:
		finishDeletions(w)
	case 12:
		for i := range w.nodes {
			if w.nodes[i].Name == node {
				gone := w.nodes[i]
				gone.UID = types.UID(fmt.Sprintf("uid-%s-%d", node, rng.Uint32()))
				*away = append(*away, gone)
				w.nodes = append(append([]corev1.Node{}, w.nodes[:i]...), w.nodes[i+1:]...)
				break
			}
		}
	case 13:
		w.nodes, *away = append(append([]corev1.Node{}, w.nodes...), *away...), nil
	case 14:
		if rng.IntN(4) == 0 {
			w.group.Generation++
			if w.group.Spec.Run.State = v1alpha1.RunActive; rng.IntN(4) == 0 {
				w.group.Spec.Run.State = v1alpha1.RunSuspended
			}
		}
	case 15:
		w.request(fmt.Sprint(rng.IntN(3)))
	}
}

// factsOf is what the node's monitor would tell now. Each change makes another boot, and every third another driver,
// too.
func (w *world) factsOf(node string) *v1alpha1.NodeFacts {
	f := testkit.Facts(w.now)
	f.BootID = fmt.Sprint("boot-", w.changes[node])
	f.Driver.Version = fmt.Sprint("6.14.", w.changes[node]/3)
	return f
}

// holds says whether the node has a result, of whatever run, that nothing speaks against.
func (w *world) holds(ct *v1alpha1.CommTask) bool {
	if ct == nil || ct.Spec.Run == nil || ct.Status.Run == nil || w.factsOn(ct.Spec.NodeName) == nil {
		return false
	}
	a, r := ct.Spec.Run, ct.Status.Run
	return a.Closed == nil && a.Stale == nil && r.ID == a.ID && r.Generation == a.Generation &&
		r.Phase == v1alpha1.NodeRunFinished && r.BootID == w.factsOn(ct.Spec.NodeName).BootID &&
		(a.Platform == nil || a.Platform.Driver == w.factsOn(ct.Spec.NodeName).Driver.Version)
}

// tally counts what the histories came to: runs of changed nodes, their assignments, and steps that ended Ready.
type tally struct{ partialRuns, measuredAgain, ready, readyAgain int }

// stepAndCheck checks what can only be seen with the objects as they were before the step.
func stepAndCheck(t *testing.T, w *world, seen *tally) {
	t.Helper()
	before := map[string]*v1alpha1.CommTask{}
	for i := range w.nodes {
		if ct := w.commTask(w.nodes[i].Name); ct != nil {
			before[w.nodes[i].Name] = ct.DeepCopy()
		}
	}
	last := w.group.Status.Run
	d := w.step()
	run := d.Status.Run
	if runs.Partial(run) && last.ID != run.ID {
		seen.partialRuns++
	}
	for _, c := range d.CommTasks {
		a := c.Desired.Spec.Run
		if c.Current == nil || a == nil || run == nil || run.Trigger != state.TriggerNodesChanged || a.ID != run.ID ||
			runs.Assigned(c.Current, run.ID) {
			continue
		}
		seen.measuredAgain++
		if runs.Counts(c.Current.Spec.Run, run) && w.holds(c.Current) {
			t.Fatalf("run %s of the changed nodes is assigned to %s, whose result holds: %+v",
				run.ID, c.Current.Spec.NodeName, c.Current.Spec.Run)
		}
	}
	if ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady); ready == nil ||
		ready.Status != metav1.ConditionTrue {
		return
	}
	seen.ready++
	if runs.Partial(run) {
		seen.readyAgain++
	}
	for name, ct := range before {
		measured, told := -1, -1
		if ct.Status.Run != nil && w.factsOn(ct.Spec.NodeName) != nil {
			measured, told = bootNumber(ct.Status.Run.BootID), bootNumber(w.factsOn(ct.Spec.NodeName).BootID)
		}
		// A report may know of a boot that the monitor has not told of yet; the other way round it is stale.
		if measured < 0 || measured < told {
			t.Fatalf("Ready in run %s (%s), while node %s was measured on boot %d and is on %d",
				run.ID, run.Trigger, name, measured, told)
		}
	}
}

func bootNumber(id string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(id, "boot-"))
	if err != nil {
		return -1
	}
	return number
}

func checkInvariants(t *testing.T, w *world) {
	t.Helper()
	alive := map[string]bool{}
	for _, pod := range w.pods {
		if podstate.Alive(pod) && !podstate.Stuck(pod, w.now) {
			alive[pod.Labels[v1alpha1.LabelNode]] = true
		}
	}
	if len(alive) > int(w.group.Spec.Run.MaxParallelNodes) {
		t.Fatalf("%d nodes hold GPUs, at most %d may", len(alive), w.group.Spec.Run.MaxParallelNodes)
	}
	run := w.decided.Status.Run
	if run == nil || run.Verdict != v1alpha1.VerdictPass || w.decided.Status.Members.Selected == 0 {
		return
	}
	if got := w.decided.Status.Members; got.Passed != got.Selected {
		t.Fatalf("run %s is Pass with %d of %d members passed", run.ID, got.Passed, got.Selected)
	}
}

package controllers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestRunInvariants plays random histories: agents that report or do not, pods that start, hang, fail or are deleted,
// nodes that leave and come back, spec changes, requests, suspension. At every step at most maxParallelNodes nodes hold
// GPUs and Pass means that every member's agent reported a pass of this run; and once the world is left alone, every
// run ends.
func TestRunInvariants(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			group := testGroup()
			group.Spec.Run.MaxParallelNodes = 1 + rng.Int32N(4)
			group.Spec.Run.StartDeadlineSeconds = 60
			group.Spec.Run.NodeDeadlineSeconds = 120
			if rng.IntN(3) == 0 {
				group.Spec.Run.Schedule = "*/10 * * * *"
			}
			w := newWorld(group, testNodes(2+rng.IntN(7)))
			away := []corev1.Node{}
			for range 120 {
				randomEvent(rng, w, &away)
				if rng.IntN(3) > 0 {
					w.step()
				}
				checkInvariants(t, w)
			}
			// Left alone, without agents, everything ends by its deadlines. Deletions end too, as a kubelet would have it.
			w.group.Spec.Run.Schedule = ""
			for range 60 {
				w.now = w.now.Add(30 * time.Second)
				finishDeletions(w)
				w.step()
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
	cn, pod := w.commNode(node), w.podOn(node)
	switch rng.IntN(16) {
	case 0:
		w.now = w.now.Add(time.Duration(rng.IntN(90)) * time.Second)
	case 1, 2, 3:
		if cn != nil {
			cn.Status.Facts = testFacts(w.now)
		}
	case 4, 5, 6:
		if pod != nil && podAlive(pod) && pod.Spec.NodeName == "" {
			startPod(pod, node, w.now)
		}
	case 7, 8:
		if cn != nil && cn.Spec.Run != nil && pod != nil {
			verdicts := []v1alpha1.Verdict{v1alpha1.VerdictPass, v1alpha1.VerdictPass, v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictError}
			r := testReport(cn.Spec.Run, verdicts[rng.IntN(len(verdicts))], 300000, w.now)
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
			cn.Status.Run = r
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
		w.group.Annotations = map[string]string{v1alpha1.AnnotationRunRequested: fmt.Sprint(rng.IntN(3))}
	}
}

func checkInvariants(t *testing.T, w *world) {
	t.Helper()
	alive := map[string]bool{}
	for _, pod := range w.pods {
		if podAlive(pod) && !podStuck(pod, w.now) {
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

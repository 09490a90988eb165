package envtest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func onBoot(id string) func(*v1alpha1.NodeFacts) {
	return func(f *v1alpha1.NodeFacts) { f.BootID = id }
}

// assigned are the nodes that have an assignment of the present run.
func (w *world) assigned() []string {
	w.Helper()
	var names []string
	for _, node := range w.nodes {
		if run := w.commTask(node).Spec.Run; run != nil && run.ID == w.group.Status.Run.ID {
			names = append(names, node)
		}
	}
	return names
}

// TestRebootOfOneNode: only the rebooted node runs again, also when the manager is another one in the middle of it.
func TestRebootOfOneNode(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.settle()
	for _, node := range w.nodes {
		w.reportFacts(node, onBoot("boot-1"))
	}
	w.settle()
	for i, node := range w.nodes {
		w.finish(node, 300_000+int64(i), func(r *v1alpha1.NodeRunStatus) { r.BootID = "boot-1" })
	}
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	if a := w.commTask(w.nodes[1]).Spec.Run; a.Number != 1 || a.Platform == nil || a.Platform.BootID != "boot-1" ||
		a.Platform.Driver != "6.14.5" {
		t.Fatalf("assignment %+v", a)
	}
	w.sentEvents()

	// The node is back before its device plugin is.
	rebooted := &corev1.Node{}
	w.must(admin.Get(w.ctx, client.ObjectKey{Name: w.nodes[1]}, rebooted))
	rebooted.Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(0,
		resource.DecimalSI)}
	rebooted.Status.Capacity = rebooted.Status.Allocatable
	w.must(admin.Status().Update(w.ctx, rebooted))
	w.reportFacts(w.nodes[1], onBoot("boot-2"))
	w.settle()
	w.wantCondition(v1alpha1.ConditionValidated, unknown, v1alpha1.ReasonResultsStale, "1 of 3", w.nodes[1], "boot-2",
		"0 allocatable amd.com/gpu")
	w.wantCondition(v1alpha1.ConditionCompatible, no, v1alpha1.ReasonGPUCountMismatch, w.nodes[1],
		"the device plugin offers 0 of amd.com/gpu (capacity 0)")
	if stale := w.commTask(w.nodes[1]).Spec.Run.Stale; stale == nil || stale.Reason != v1alpha1.StaleNodeRebooted {
		t.Fatalf("stale %+v", stale)
	}
	if s := w.group.Status; s.Run.ID != "1-1" || s.Members.Stale != 1 {
		t.Fatalf("run %+v, members %+v", s.Run, s.Members)
	}
	rebooted.Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(8,
		resource.DecimalSI)}
	rebooted.Status.Capacity = rebooted.Status.Allocatable
	w.must(admin.Status().Update(w.ctx, rebooted))
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" || run.Trigger != "NodesChanged" || run.Since != 1 {
		t.Fatalf("run %+v", run)
	}
	if got := w.assigned(); !slices.Equal(got, []string{w.nodes[1]}) || len(w.pods()) != 1 {
		t.Fatalf("run 1-2 is assigned to %v with %d pods", got, len(w.pods()))
	}
	w.wantCondition(v1alpha1.ConditionReady, unknown, v1alpha1.ReasonResultsStale, w.nodes[1])
	// With a result that no longer counts, what the ConfigMap holds is not proven until the run is over.
	w.wantCondition(v1alpha1.ConditionSettingsPublished, no, v1alpha1.ReasonNotProven,
		"still holds the settings of run 1-1")

	w.restart()
	w.finish(w.nodes[1], 300_000, func(r *v1alpha1.NodeRunStatus) { r.BootID = "boot-2" })
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	w.wantCondition(v1alpha1.ConditionValidated, yes, v1alpha1.ReasonAllPassed, "All 3 members")
	if s := w.joined.Status; s.Members.Summary != "3/3" || s.Results[0].Nodes != 3 ||
		s.Run.Verdict != v1alpha1.VerdictPass || s.Members.Stale != 0 {
		t.Errorf("run %+v, members %+v, results of %d nodes", s.Run, s.Members, s.Results[0].Nodes)
	}
	if a := w.commTask(w.nodes[0]); a.Spec.Run.ID != "1-1" || a.Status.Run.ID != "1-1" {
		t.Errorf("node %s was measured again: %+v", w.nodes[0], a.Spec.Run)
	}
	sent := w.sentEvents()
	stale := slices.DeleteFunc(slices.Clone(sent), func(e string) bool {
		return !strings.HasPrefix(e, "Warning ResultsStale")
	})
	if len(stale) != 1 || !strings.Contains(stale[0], w.nodes[1]) {
		t.Errorf("events %q", sent)
	}
	w.settle()
	if run := w.group.Status.Run; run.ID != "1-2" {
		t.Errorf("run %+v without a change", run)
	}
}

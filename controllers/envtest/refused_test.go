package envtest

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// refusedEvents takes what was sent so far, and counts those of the reason.
func (w *world) refusedEvents(reason string) (n int) {
	for {
		select {
		case e := <-w.events.Events:
			if strings.Contains(e, reason) {
				n++
			}
		default:
			return n
		}
	}
}

// reconcileRefused reconciles where a write is refused.
func (w *world) reconcileRefused() {
	w.Helper()
	result, err := w.r.Reconcile(w.ctx, w.request())
	testkit.WantRefusedResult(w.T, result.RequeueAfter, err)
}

// TestCommTasksOfAnEarlierGroupAreReplaced: what `kubectl delete --cascade=orphan` left behind stands in no later
// group's way.
func TestCommTasksOfAnEarlierGroupAreReplaced(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.settle()
	for _, node := range w.nodes {
		w.must(writeRun(t, admin, w, node))
		ct := w.commTask(node)
		ct.OwnerReferences = nil
		w.must(admin.Update(w.ctx, ct))
	}
	fresh := &v1alpha1.CommGroup{Spec: w.group.Spec}
	fresh.Namespace, fresh.Name = w.group.Namespace, w.group.Name
	w.must(admin.Delete(w.ctx, w.group))
	_, err := w.r.Reconcile(w.ctx, w.request())
	w.must(err)
	w.must(admin.Create(w.ctx, fresh))
	w.group = fresh
	w.settle()
	for _, node := range w.nodes {
		ct := w.commTask(node)
		if ct.Spec.Group.UID != string(fresh.UID) || len(ct.OwnerReferences) != 1 ||
			ct.OwnerReferences[0].UID != fresh.UID || ct.Status.Run != nil {
			t.Errorf("CommTask of %s: group %v, owners %v, run %v",
				node, ct.Spec.Group, ct.OwnerReferences, ct.Status.Run)
		}
	}
	w.wantCondition(v1alpha1.ConditionAgentsReporting, unknown, v1alpha1.ReasonWaitingForAgents)
}

// TestTakenCommTaskIsTold: a CommTask of another group under the group's name is left alone, and told.
func TestTakenCommTaskIsTold(t *testing.T) {
	w := newWorld(t, 1, nil)
	ct := &v1alpha1.CommTask{}
	ct.Namespace, ct.Name = w.ns, v1alpha1.CommTaskName(w.group.Name, w.nodes[0])
	ct.Spec = v1alpha1.CommTaskSpec{NodeName: w.nodes[0], NodeUID: "other",
		Group: v1alpha1.GroupReference{Name: "other", UID: "other"},
		Ranks: v1alpha1.RankRange{Summary: "0-7/8", Count: 8, WorldSize: 8}}
	w.must(admin.Create(w.ctx, ct))
	for range 3 {
		w.reconcileRefused()
	}
	w.refresh()
	w.wantCondition(v1alpha1.ConditionAgentsReporting, no, v1alpha1.ReasonCommTasksRefused, ct.Name,
		`CommGroup "other"`, "delete it")
	if n := w.refusedEvents(v1alpha1.ReasonCommTasksRefused); n != 1 {
		t.Errorf("%d events, want one", n)
	}
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(ct), ct))
	if ct.Spec.Group.Name != "other" {
		t.Error("the other group's CommTask was taken")
	}
}

package envtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

// gatingWorld is a world whose group marks nodes by condition, label and taint.
func gatingWorld(t *testing.T, nodes int, change func(*v1alpha1.CommGroup)) *world {
	t.Helper()
	w := newWorld(t, nodes, func(g *v1alpha1.CommGroup) {
		g.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, MaxPercent: ptr.To(int32(50)),
			Actions: []v1alpha1.GatingAction{v1alpha1.GatingTaint, v1alpha1.GatingLabel, v1alpha1.GatingCondition}}
		if change != nil {
			change(g)
		}
	})
	w.r.Config.PrivilegedNamespaces = []string{w.ns}
	return w
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{}
	w.must(admin.Get(w.ctx, client.ObjectKey{Name: name}, node))
	return node
}

// failed is what an agent reports of a slow link.
func failed(r *v1alpha1.NodeRunStatus) {
	r.Verdict, r.Reason, r.Message = v1alpha1.VerdictFail, v1alpha1.ReasonSlowLink, "a link is slow"
}

// measure lets the present run end on the nodes; those named fail.
func (w *world) measure(failing ...string) {
	w.Helper()
	w.settle()
	w.reportAllFacts()
	w.settle()
	for _, node := range w.nodes {
		if slices.Contains(failing, node) {
			w.finish(node, 300_000, failed)
		} else {
			w.finish(node, 300_000, nil)
		}
	}
}

// again asks for another run.
func (w *world) again(value string) {
	w.Helper()
	w.ask(value)
}

// wantMarks checks all of a node's marks: "failed", "passed" or "" for none.
func (w *world) wantMarks(name, want string) *corev1.Node {
	w.Helper()
	node := w.node(name)
	condition, problem, taints := "", "", 0
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeConditionCommProblem {
			problem = map[corev1.ConditionStatus]string{corev1.ConditionTrue: "failed",
				corev1.ConditionFalse: "passed"}[c.Status] + c.Message
		}
		if c.Type == v1alpha1.NodeConditionCommValidated {
			condition = map[corev1.ConditionStatus]string{corev1.ConditionFalse: "failed",
				corev1.ConditionTrue: "passed"}[c.Status] + c.Message
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintCommFailed {
			taints++
			if taint.Effect != corev1.TaintEffectNoSchedule {
				w.Errorf("node %s has the taint %+v", name, taint)
			}
		}
	}
	if problem != condition || !strings.HasPrefix(condition, want) || (condition == "") != (want == "") ||
		node.Labels[v1alpha1.LabelCommValidated] != want || (taints == 1) != (want == "failed") {
		w.Fatalf("node %s has condition %q, label %q, %d taints; want %q",
			name, condition, node.Labels[v1alpha1.LabelCommValidated], taints, want)
	}
	return node
}

// job is someone's pod that runs on the node.
func (w *world) job(node string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "job-", Namespace: w.ns},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	w.must(admin.Create(w.ctx, pod))
	pod.Status.Phase = corev1.PodRunning
	w.must(admin.Status().Update(w.ctx, pod))
	w.Cleanup(func() { _ = admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	return pod
}

func TestGatingMarksANodeUntilItPasses(t *testing.T) {
	w := gatingWorld(t, 3, nil)
	bad, good := w.nodes[0], w.nodes[1]
	node := w.node(bad)
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}}
	w.must(admin.Update(w.ctx, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady"}}
	w.must(admin.Status().Update(w.ctx, node))
	job := w.job(bad)
	w.sentEvents()

	w.measure(bad)
	marked := w.wantMarks(bad, "failed")
	w.wantMarks(good, "passed")
	if len(marked.Spec.Taints) != 2 || len(marked.Status.Conditions) != 3 || marked.Labels["team"] != w.ns {
		t.Errorf("the marks took something away: %+v, %+v, %v",
			marked.Spec.Taints, marked.Status.Conditions, marked.Labels)
	}
	if g := w.group.Status.Gating; g == nil || g.Gated != 1 || !slices.Equal(g.Nodes, []string{bad}) ||
		g.Breaker != "Closed" || g.Message != "" {
		t.Errorf("status.gating is %+v", g)
	}
	gated := 0
	for _, e := range w.sentEvents() {
		if strings.Contains(e, v1alpha1.ReasonNodeGated) {
			gated++
		}
	}
	if gated != 2 {
		t.Errorf("%d events of the node that is gated, expected one on the node and one on the group", gated)
	}
	after := &corev1.Pod{}
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(job), after))
	if after.ResourceVersion != job.ResourceVersion || after.Status.Phase != corev1.PodRunning ||
		!after.DeletionTimestamp.IsZero() {
		t.Errorf("the job that runs on the node was touched: %+v", after.ObjectMeta)
	}

	w.settle()
	if now := w.node(bad); now.ResourceVersion != marked.ResourceVersion {
		t.Error("a steady group writes to the node")
	}

	// The same cause once more is no news; a user's hand is put right.
	w.again("1")
	w.measure(bad)
	if now := w.wantMarks(bad, "failed"); now.ResourceVersion != marked.ResourceVersion {
		t.Error("a second failure for the same cause writes to the node")
	}
	node = w.node(bad)
	node.Spec.Taints = node.Spec.Taints[:1]
	w.must(admin.Update(w.ctx, node))
	w.settle()
	w.wantMarks(bad, "failed")

	w.again("2")
	w.settle()
	w.reportAllFacts()
	w.settle()
	for _, key := range []string{v1alpha1.TaintCommFailed, v1alpha1.TaintReadiness} {
		if !slices.ContainsFunc(w.podOn(bad).Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == key }) {
			t.Errorf("the run pod does not tolerate %s: a node that failed could never pass", key)
		}
	}
	w.sentEvents()
	for _, n := range w.nodes {
		w.finish(n, 300_000, nil)
	}
	now := w.wantMarks(bad, "passed")
	if len(now.Spec.Taints) != 1 || w.group.Status.Gating.Gated != 0 {
		t.Errorf("taints %+v, gating %+v", now.Spec.Taints, w.group.Status.Gating)
	}
	if !slices.ContainsFunc(w.sentEvents(), func(e string) bool {
		return strings.Contains(e, v1alpha1.ReasonNodeUngated)
	}) {
		t.Error("no event tells that the node is no longer gated")
	}
}

func TestGatingIsLiftedByHandModeAndMembership(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	bad := w.nodes[0]
	w.measure(bad)
	w.wantMarks(bad, "failed")

	node := w.node(bad)
	node.Annotations[v1alpha1.AnnotationGatingExempt] = "true"
	w.must(admin.Update(w.ctx, node))
	w.settle()
	w.wantMarks(bad, "")
	if g := w.group.Status.Gating; g.Gated != 0 || !strings.Contains(g.Message, "exempt by annotation: "+bad) {
		t.Errorf("status.gating is %+v", g)
	}
	node = w.node(bad)
	delete(node.Annotations, v1alpha1.AnnotationGatingExempt)
	w.must(admin.Update(w.ctx, node))
	w.settle()
	w.wantMarks(bad, "failed")

	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingLabel} })
	w.settle()
	if n := w.node(bad); slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintCommFailed
	}) || len(n.Status.Conditions) != 0 || n.Labels[v1alpha1.LabelCommValidated] != "failed" {
		t.Errorf("with the action Label alone: %+v, %+v, %v", n.Spec.Taints, n.Status.Conditions, n.Labels)
	}
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Gating.Mode = v1alpha1.GatingDryRun })
	w.settle()
	w.wantMarks(bad, "")
	w.wantMarks(w.nodes[1], "")
	if !slices.Equal(w.group.Status.WouldGate, []string{bad}) || w.group.Status.Gating.Gated != 0 {
		t.Errorf("dry run: %v, %+v", w.group.Status.WouldGate, w.group.Status.Gating)
	}
	w.update(func(g *v1alpha1.CommGroup) {
		g.Spec.Gating.Mode = v1alpha1.GatingEnforce
		g.Spec.Gating.Actions = []v1alpha1.GatingAction{v1alpha1.GatingTaint, v1alpha1.GatingLabel,
			v1alpha1.GatingCondition}
	})
	w.settle()
	w.wantMarks(bad, "failed") // by what the last run showed: gating is no reason for another
	w.r.Config.PrivilegedNamespaces = nil
	w.settle()
	w.wantMarks(bad, "")
	if m := w.group.Status.Gating.Message; !strings.Contains(m, "--privileged-namespaces") {
		t.Errorf("the message is %q", m)
	}
	w.r.Config.PrivilegedNamespaces = []string{w.ns}
	w.settle()
	w.wantMarks(bad, "failed")
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Members.Exclude = []string{bad} })
	w.settle()
	w.wantMarks(bad, "")
}

func TestGatingForgetsAReplacedNode(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	bad := w.nodes[0]
	w.measure(bad)
	old := w.wantMarks(bad, "failed")
	w.must(admin.Delete(w.ctx, old.DeepCopy()))
	// Someone restores the Node with all that it carried: it is another one, all the same.
	restored := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bad, Labels: maps.Clone(old.Labels),
		Annotations: maps.Clone(old.Annotations)}, Spec: old.Spec}
	w.must(admin.Create(w.ctx, restored))
	restored.Status = old.Status
	w.must(admin.Status().Update(w.ctx, restored))
	w.settle()
	w.wantMarks(bad, "")
}

func TestGatingStopsWhenManyFail(t *testing.T) {
	w := gatingWorld(t, 5, func(g *v1alpha1.CommGroup) { g.Spec.Gating.MaxPercent = ptr.To(int32(20)) })
	w.measure(w.nodes[1], w.nodes[3])
	w.wantMarks(w.nodes[1], "failed") // one of five is within the bound, and was marked at once
	w.wantMarks(w.nodes[3], "")
	w.wantMarks(w.nodes[0], "passed")
	g := w.group.Status.Gating
	if g.Breaker != "Open" || g.Gated != 1 || !strings.Contains(g.Message, "2 of 5 members") {
		t.Errorf("status.gating is %+v", g)
	}
	if !slices.ContainsFunc(w.sentEvents(), func(e string) bool {
		return strings.Contains(e, v1alpha1.ReasonBreakerOpen)
	}) {
		t.Error("no event tells of the breaker")
	}
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Gating.MaxPercent = ptr.To(int32(40)) })
	w.settle()
	w.wantMarks(w.nodes[3], "failed")
	if g := w.group.Status.Gating; g.Breaker != "Closed" || g.Gated != 2 {
		t.Errorf("status.gating is %+v", g)
	}
}

// TestTwoGroupsGateOneNode: each lifts only what it set itself; the second one's end lifts the last mark.
func TestTwoGroupsGateOneNode(t *testing.T) {
	a := gatingWorld(t, 2, nil)
	bad := a.nodes[0]
	a.measure(bad)
	b := gatingWorld(t, 0, func(g *v1alpha1.CommGroup) {
		g.Spec.Members = v1alpha1.MembersSpec{NodeNames: slices.Clone(a.nodes)}
	})
	b.nodes = slices.Clone(a.nodes)
	t.Cleanup(func() { b.nodes = nil })
	b.measure(bad)
	condition := a.wantMarks(bad, "failed").Status.Conditions[0]
	for _, group := range []string{a.ns + "/g", b.ns + "/g"} {
		if !strings.Contains(condition.Message, group) {
			t.Errorf("the condition does not name %s: %s", group, condition.Message)
		}
	}
	a.again("1")
	a.measure()
	if c := a.wantMarks(bad, "failed").Status.Conditions[0]; strings.Contains(c.Message, a.ns+"/g") {
		t.Errorf("the condition still names the group that the node passed in: %s", c.Message)
	}
	if a.group.Status.Gating.Gated != 0 || b.group.Status.Gating.Gated != 1 {
		t.Errorf("gated: %+v and %+v", a.group.Status.Gating, b.group.Status.Gating)
	}
	b.must(admin.Delete(b.ctx, b.group))
	for range 4 {
		_, err := b.r.Reconcile(b.ctx, b.request())
		b.must(err)
		b.endPods()
	}
	if err := admin.Get(b.ctx, b.request().NamespacedName, b.group); !apierrors.IsNotFound(err) {
		t.Fatalf("the group is still there: %v", err)
	}
	a.wantMarks(bad, "passed")
}

// TestSweep: a group that was deleted while no manager was there leaves marks, which the sweeper removes; those of
// others stay.
func TestSweep(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	bad := w.nodes[0]
	w.measure(bad)
	sweeper := &controllers.MarkSweeper{Client: asManager, APIReader: asManager, Now: w.clock.Now}
	w.must(sweeper.Sweep(w.ctx))
	w.wantMarks(bad, "failed")
	w.endPods()
	w.must(admin.Delete(w.ctx, w.group))
	w.must(sweeper.Sweep(w.ctx))
	w.wantMarks(bad, "")
	w.wantMarks(w.nodes[1], "")
}

// TestGatingWithoutTheRight: an install without config/gating may not patch Nodes. The status says so, and all else
// works.
func TestGatingWithoutTheRight(t *testing.T) {
	const user = "system:serviceaccount:commgroup-system:plain"
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	cluster := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "plain-manager"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-manager"}}
	inNamespace := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "plain-manager",
		Namespace: operatorNamespace}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "commgroup-manager"}}
	w := gatingWorld(t, 2, nil)
	for _, o := range []client.Object{cluster, inNamespace} {
		w.must(admin.Create(w.ctx, o))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })
	}
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user,
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	plain, err := client.New(cfg, client.Options{Scheme: scheme})
	w.must(err)
	w.r.Client, w.r.APIReader = plain, plain
	w.measure(w.nodes[0])
	w.wantMarks(w.nodes[0], "")
	if g := w.group.Status.Gating; g.Gated != 0 || !strings.Contains(g.Message, "commgroup-manager-gating") ||
		!strings.Contains(g.Message, "forbidden") {
		t.Errorf("status.gating is %+v", g)
	}
	if result := w.settle(); result.RequeueAfter > time.Minute {
		t.Errorf("tried again only after %v", result.RequeueAfter)
	}
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonSlowLink)
	w.restart() // the right is there again
	w.r.Config.PrivilegedNamespaces = []string{w.ns}
	w.settle()
	w.wantMarks(w.nodes[0], "failed")
}

// TestManagerMarksNodesAndNothingElse: the policy of config/gating narrows the right to patch Nodes.
func TestManagerMarksNodesAndNothingElse(t *testing.T) {
	w := newWorld(t, 1, nil)
	node := w.node(w.nodes[0])
	node.Annotations = map[string]string{v1alpha1.AnnotationGatingExempt: "true", "example.com/a": "b"}
	node.Spec.Taints = nil // the API server gives a new Node one
	w.must(admin.Update(w.ctx, node))
	for name, c := range map[string]struct {
		patch   string
		status  bool
		allowed bool
	}{
		"a statement":        {patch: `{"metadata":{"annotations":{"gating.rcclx.io/3f0e":"{}"}}}`, allowed: true},
		"another annotation": {patch: `{"metadata":{"annotations":{"example.com/a":"c"}}}`},
		"no annotations":     {patch: `{"metadata":{"annotations":null}}`},
		"the exemption":      {patch: `{"metadata":{"annotations":{"gating.rcclx.io/exempt":null}}}`},
		"the label": {patch: `{"metadata":{"labels":{"rcclx.io/comm-validated":"failed"}}}`,
			allowed: true},
		"another label": {patch: `{"metadata":{"labels":{"team":"other"}}}`},
		"a label away":  {patch: `{"metadata":{"labels":{"team":null}}}`},
		"the taint": {patch: `{"spec":{"taints":[{"key":"rcclx.io/comm-failed","effect":"NoSchedule"}]}}`,
			allowed: true},
		"the taint as NoExecute": {patch: `{"spec":{"taints":[{"key":"rcclx.io/comm-failed","effect":"NoExecute"}]}}`},
		"another taint":          {patch: `{"spec":{"taints":[{"key":"example.com/x","effect":"NoSchedule"}]}}`},
		"cordon":                 {patch: `{"spec":{"unschedulable":true}}`},
		"a finalizer":            {patch: `{"metadata":{"finalizers":["example.com/f"]}}`},
		"the condition": {patch: `{"status":{"conditions":[{"type":"CommValidated","status":"False"}]}}`,
			status: true, allowed: true},
		"the opposite condition": {patch: `{"status":{"conditions":[{"type":"CommProblem","status":"True"}]}}`,
			status: true, allowed: true},
		"another condition": {patch: `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, status: true},
		"resources":         {patch: `{"status":{"capacity":{"amd.com/gpu":"64"}}}`, status: true},
	} {
		t.Run(name, func(t *testing.T) {
			target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(c.patch))
			var err error
			if c.status {
				err = asManager.Status().Patch(t.Context(), target, patch, client.DryRunAll)
			} else {
				err = asManager.Patch(t.Context(), target, patch, client.DryRunAll)
			}
			if c.allowed != (err == nil) || err != nil && (!apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), "the manager of CommGroups may change")) {
				t.Errorf("%s: %v", c.patch, err)
			}
		})
	}
	if err := asManager.Delete(t.Context(), node.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("the manager deletes a Node: %v", err)
	}
}

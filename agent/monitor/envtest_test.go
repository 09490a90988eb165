package monitor

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestAgainstAPIServer writes facts to a real API server: the monitor creates the CommNode, the schema takes facts at
// the limits, and the status has no other owner. As a pod it needs no right on Nodes.
func TestAgainstAPIServer(t *testing.T) {
	_, config := testenv.Start(t)
	c := testenv.Admin(t, config)
	ctx, name := t.Context(), client.ObjectKey{Name: "node-a"}
	k := &KubeReporter{Client: c, Node: "node-a"}
	facts := twoGPUs(time.Unix(1e9, 0))
	if err := k.Report(ctx, facts.NodeFacts(2*time.Minute)); !apierrors.IsNotFound(err) {
		t.Fatalf("without the Node: %v, want NotFound", err)
	}
	if has, err := k.Has(ctx); has || err != nil {
		t.Errorf("no CommNode has a report: %v, %v", has, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	if err := c.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	full := twoGPUs(time.Unix(1e9, 0))
	full.GPUs, full.Mesh.Pairs = make([]discover.GPU, 16), make([][]*discover.Link, 16)
	for i := range full.GPUs {
		full.GPUs[i] = discover.GPU{PCIAddress: "10000:" + string(rune('a'+i)) + "0:00.0",
			Model: strings.Repeat("m", 100)}
		full.Mesh.Pairs[i] = make([]*discover.Link, 16)
	}
	for range 40 {
		full.Problems = append(full.Problems, v1alpha1.Problem{Severity: v1alpha1.SeverityWarning,
			Code: strings.Repeat("C", 99), Path: strings.Repeat("s", 300), Message: strings.Repeat("é", 900)})
	}
	failed := failedFacts("node-a", v1alpha1.OriginUnknown, time.Unix(1e9, 0), 2*time.Minute, context.DeadlineExceeded)
	for what, f := range map[string]*v1alpha1.NodeFacts{"usual": facts.NodeFacts(2 * time.Minute),
		"full": full.NodeFacts(2 * time.Minute), "failed": failed} {
		if err := k.Report(ctx, f); err != nil {
			t.Errorf("%s facts: %v", what, err)
		}
	}
	if has, err := k.Has(ctx); !has || err != nil {
		t.Errorf("has a report: %v, %v", has, err)
	}
	var cn v1alpha1.CommNode
	if err := c.Get(ctx, name, &cn); err != nil {
		t.Fatal(err)
	}
	if cn.Spec.NodeUID != string(node.UID) {
		t.Errorf("CommNode of Node %s, want %s", cn.Spec.NodeUID, node.UID)
	}
	owned := false
	for _, m := range cn.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor && m.Operation == metav1.ManagedFieldsOperationApply {
			fields := m.FieldsV1.GetRawString()
			if m.Subresource != "status" || fields != `{"f:status":{"f:facts":{}}}` {
				t.Errorf("the monitor owns %s of %q", fields, m.Subresource)
			}
			owned = true
		}
	}
	if !owned {
		t.Errorf("no field is owned by %s: %+v", v1alpha1.FieldManagerMonitor, cn.ManagedFields)
	}
	if err := c.Delete(ctx, &cn); err != nil {
		t.Fatal(err)
	}
	pod := &KubeReporter{Client: podsClient(t, c, config), Node: "node-a"}
	if err := pod.Report(ctx, facts.NodeFacts(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if last, err := pod.Last(ctx); err != nil || last == nil || last.GPUCount != 2 {
		t.Errorf("what the pod reported: %+v, %v", last, err)
	}
	elsewhere := &KubeReporter{Client: pod.Client, Node: "node-b"}
	if err := elsewhere.Report(ctx, facts.NodeFacts(2*time.Minute)); err == nil ||
		!strings.Contains(err.Error(), "token is of node node-a") {
		t.Errorf("for another node: %v", err)
	}
}

// podsClient is what a monitor's pod on node-a has: a token bound to it, and a role on CommNodes alone.
func podsClient(t *testing.T, admin client.Client, config *rest.Config) client.Client {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	account, pod := &corev1.ServiceAccount{ObjectMeta: meta("monitor")}, &corev1.Pod{ObjectMeta: meta("monitor")}
	pod.Spec = corev1.PodSpec{NodeName: "node-a", ServiceAccountName: account.Name,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "monitor"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"commnodes"},
			Verbs: []string{"get", "create"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"commnodes/status"},
			Verbs: []string{"get", "patch"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account.Name}}}
	for _, o := range []client.Object{account, pod, role, binding} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID}}}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = request.Status.Token
	return testenv.Admin(t, config)
}

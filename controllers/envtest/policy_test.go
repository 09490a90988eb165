package envtest

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/monitor"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

const monitorAccount = "commgroup-monitor" // in the operator's namespace

// podClient speaks with the token of a pod of the account on the node, as the kubelet would have projected it.
func podClient(t *testing.T, namespace, account, node string) client.Client {
	t.Helper()
	ctx := t.Context()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: namespace}}
	if err := admin.Create(ctx, sa.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-", Namespace: namespace},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account,
				Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if err := admin.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
			Name: pod.Name, UID: pod.UID}
	}
	if err := admin.SubResource("token").Create(ctx, sa, request); err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(restConfig)
	cfg.BearerToken = request.Status.Token
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// writeFacts writes what a monitor writes.
func writeFacts(t *testing.T, c client.Client, w *world, node string) error {
	t.Helper()
	cn := w.commNode(node)
	base := cn.DeepCopy()
	cn.Status.Facts = &v1alpha1.NodeFacts{ObservedTime: metav1.NewTime(w.clock.Now()), ValidForSeconds: 60,
		Origin: v1alpha1.OriginHardware, Driver: v1alpha1.DriverFacts{Kind: "InTree"},
		ROCm: v1alpha1.ROCmFacts{State: "NotFound"}, XGMI: v1alpha1.XGMIFacts{Mesh: "Unknown"}}
	return c.Status().Patch(t.Context(), cn, client.MergeFrom(base))
}

// writeRun writes what a run pod writes.
func writeRun(t *testing.T, c client.Client, w *world, node string) error {
	t.Helper()
	ct := w.commTask(node)
	base := ct.DeepCopy()
	ct.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1", Generation: 1, Phase: v1alpha1.NodeRunRunning,
		StartTime: metav1.NewTime(w.clock.Now())}
	return c.Status().Patch(t.Context(), ct, client.MergeFrom(base))
}

// TestAgentsWriteTheirOwnNodeOnly proves with real tokens that a monitor or run pod of one node cannot speak for
// another.
func TestAgentsWriteTheirOwnNodeOnly(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running() // with run pods come the account and its role binding
	for name, tc := range map[string]struct {
		namespace, account string
		write              func(*testing.T, client.Client, *world, string) error
	}{
		"monitor": {operatorNamespace, monitorAccount, writeFacts},
		"run":     {w.ns, runpod.ServiceAccount, writeRun},
	} {
		t.Run(name, func(t *testing.T) {
			agent := podClient(t, tc.namespace, tc.account, w.nodes[0])
			if err := tc.write(t, agent, w, w.nodes[0]); err != nil {
				t.Fatalf("own node: %v", err)
			}
			err := tc.write(t, agent, w, w.nodes[1])
			if err == nil || !apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), "may not write of node "+w.nodes[1]) {
				t.Fatalf("another node's status: %v", err)
			}
			unbound := podClient(t, tc.namespace, tc.account, "")
			if err := tc.write(t, unbound, w, w.nodes[0]); err == nil ||
				!strings.Contains(err.Error(), "names no node") {
				t.Fatalf("a token of no pod: %v", err)
			}
			ct, cn := w.commTask(w.nodes[0]), w.commNode(w.nodes[0])
			ct.Spec.Ranks.First = 5
			cn.Labels = map[string]string{"x": "y"}
			for _, object := range []client.Object{ct, cn} {
				refused(t, agent.Update(t.Context(), object), "cannot update resource")
			}
			if err := agent.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
				t.Fatalf("an agent lists secrets: %v", err)
			}
		})
	}
}

// TestMonitorCreatesItsOwnCommNodeOnly: as the agent creates it, and in no other way.
func TestMonitorCreatesItsOwnCommNodeOnly(t *testing.T) {
	w := newWorld(t, 2, nil)
	node, other := w.node(w.nodes[0]), w.node(w.nodes[1])
	token := podClient(t, operatorNamespace, monitorAccount, node.Name)
	create := func(c client.Client, of *corev1.Node, change func(*v1alpha1.CommNode, *metav1.OwnerReference)) error {
		cn := newCommNode(of)
		change(cn, &cn.OwnerReferences[0])
		return c.Create(t.Context(), cn, client.DryRunAll)
	}
	asItIs := func(*v1alpha1.CommNode, *metav1.OwnerReference) {}
	if err := create(token, node, asItIs); err != nil {
		t.Fatalf("its own: %v", err)
	}
	refused(t, create(token, other, asItIs), "may not write of node "+other.Name)
	refused(t, create(podClient(t, operatorNamespace, monitorAccount, ""), node, asItIs), "names no node")
	const owned = "a CommNode belongs to the Node of its name"
	for name, tc := range map[string]struct {
		change func(*v1alpha1.CommNode, *metav1.OwnerReference)
		words  string
	}{
		"another node's name": {func(cn *v1alpha1.CommNode, _ *metav1.OwnerReference) { cn.Name = other.Name },
			"may not write of node " + other.Name},
		"a name of no node": {func(cn *v1alpha1.CommNode, _ *metav1.OwnerReference) {
			cn.Name, cn.GenerateName = "", node.Name
		}, "may not write of node " + node.Name},
		"another nodeUID": {func(cn *v1alpha1.CommNode, _ *metav1.OwnerReference) {
			cn.Spec.NodeUID = string(other.UID)
		}, owned},
		"an owner's other UID":  {func(_ *v1alpha1.CommNode, o *metav1.OwnerReference) { o.UID = other.UID }, owned},
		"an owner's other name": {func(_ *v1alpha1.CommNode, o *metav1.OwnerReference) { o.Name = other.Name }, owned},
		"an owner's other kind": {func(_ *v1alpha1.CommNode, o *metav1.OwnerReference) {
			o.Kind = "PersistentVolume"
		}, owned},
		"an owner's other group": {func(_ *v1alpha1.CommNode, o *metav1.OwnerReference) {
			o.APIVersion = "example.com/v1"
		}, owned},
		// admission may say so first
		"an owner that it holds": {func(_ *v1alpha1.CommNode, o *metav1.OwnerReference) {
			o.BlockOwnerDeletion = ptr.To(true)
		}, ""},
		"another Node's, of the same name once": {func(cn *v1alpha1.CommNode, o *metav1.OwnerReference) {
			cn.Spec.NodeUID, o.UID = "00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000000"
		}, "not the UID of the node that this agent's token names"},
		"a second owner": {func(cn *v1alpha1.CommNode, o *metav1.OwnerReference) {
			second := *o
			second.Name, second.UID = other.Name, other.UID
			cn.OwnerReferences = append(cn.OwnerReferences, second)
		}, owned},
		"no owner": {func(cn *v1alpha1.CommNode, _ *metav1.OwnerReference) { cn.OwnerReferences = nil }, owned},
		"a finalizer": {func(cn *v1alpha1.CommNode, _ *metav1.OwnerReference) {
			cn.Finalizers = []string{"example.com/stay"}
		}, "has no finalizer"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, create(token, node, tc.change), tc.words) })
	}
	// The agent itself, with this token and no right to read Nodes.
	agent := &monitor.KubeReporter{Client: token, Node: node.Name}
	if err := agent.Report(t.Context(), w.facts(nil)); err != nil {
		t.Fatalf("the monitor's report: %v", err)
	}
	if last, err := agent.Last(t.Context()); err != nil || last == nil || last.GPUCount != 8 {
		t.Errorf("its last report: %v, %+v", err, last)
	}
	w.settle()
	w.wantCondition(v1alpha1.ConditionAgentsReporting, unknown, v1alpha1.ReasonWaitingForAgents, "1")
	if err := (&monitor.KubeReporter{Client: token, Node: other.Name}).Report(t.Context(), w.facts(nil)); err == nil {
		t.Error("it reported of another node")
	}
}

func TestRunAccountStaysInItsNamespace(t *testing.T) {
	here, there := newWorld(t, 1, nil), newWorld(t, 1, nil)
	here.running()
	there.running()
	agent := podClient(t, here.ns, runpod.ServiceAccount, there.nodes[0])
	if err := writeRun(t, agent, there, there.nodes[0]); !apierrors.IsForbidden(err) {
		t.Fatalf("a run pod of another namespace: %v", err)
	}
}

// TestManagerCannotGiveMore: of all roles, the manager may bind only the run pods' one.
func TestManagerCannotGiveMore(t *testing.T) {
	w := newWorld(t, 1, nil)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "more", Namespace: w.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "x", Namespace: w.ns}},
	}
	if err := asManager.Create(t.Context(), binding); !apierrors.IsForbidden(err) {
		t.Fatalf("the manager bound cluster-admin: %v", err)
	}
	w.settle()
	ct := w.commTask(w.nodes[0])
	ct.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1", Generation: 1, Phase: v1alpha1.NodeRunRunning,
		StartTime: metav1.NewTime(w.clock.Now())}
	if err := asManager.Status().Update(t.Context(), ct); !apierrors.IsForbidden(err) {
		t.Fatalf("the manager wrote an agent's status: %v", err)
	}
}

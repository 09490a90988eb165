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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

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
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if err := admin.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
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

func writeFacts(t *testing.T, c client.Client, w *world, node string) error {
	t.Helper()
	ct := w.commTask(node)
	base := ct.DeepCopy()
	ct.Status.Facts = &v1alpha1.NodeFacts{ObservedTime: metav1.NewTime(w.clock.Now()), ValidForSeconds: 60, Origin: v1alpha1.OriginHardware,
		Driver: v1alpha1.DriverFacts{Kind: "InTree"}, ROCm: v1alpha1.ROCmFacts{State: "NotFound"}, XGMI: v1alpha1.XGMIFacts{Mesh: "Unknown"}}
	return c.Status().Patch(t.Context(), ct, client.MergeFrom(base))
}

// writeRun writes what a run pod writes.
func writeRun(t *testing.T, c client.Client, w *world, node string) error {
	t.Helper()
	ct := w.commTask(node)
	base := ct.DeepCopy()
	ct.Status.Run = &v1alpha1.NodeRunStatus{ID: "1-1", Generation: 1, Phase: v1alpha1.NodeRunRunning, StartTime: metav1.NewTime(w.clock.Now())}
	return c.Status().Patch(t.Context(), ct, client.MergeFrom(base))
}

// TestAgentsWriteTheirOwnNodeOnly proves with real tokens that a monitor or run pod of one node cannot speak for another.
func TestAgentsWriteTheirOwnNodeOnly(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.settle()
	w.reportAllFacts()
	w.settle() // run pods, and with them the account and its role binding
	for name, tc := range map[string]struct {
		namespace, account string
		write              func(*testing.T, client.Client, *world, string) error
	}{
		"monitor": {operatorNamespace, controllers.MonitorServiceAccount, writeFacts},
		"run":     {w.ns, controllers.RunServiceAccount, writeRun},
	} {
		t.Run(name, func(t *testing.T) {
			agent := podClient(t, tc.namespace, tc.account, w.nodes[0])
			if err := tc.write(t, agent, w, w.nodes[0]); err != nil {
				t.Fatalf("own node: %v", err)
			}
			err := tc.write(t, agent, w, w.nodes[1])
			if err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may not write the status of node "+w.nodes[1]) {
				t.Fatalf("another node's status: %v", err)
			}
			unbound := podClient(t, tc.namespace, tc.account, "")
			if err := tc.write(t, unbound, w, w.nodes[0]); err == nil || !strings.Contains(err.Error(), "names no node") {
				t.Fatalf("a token of no pod: %v", err)
			}
			ct := w.commTask(w.nodes[0])
			ct.Spec.Ranks.First = 5
			if err := agent.Update(t.Context(), ct); !apierrors.IsForbidden(err) {
				t.Fatalf("an agent writes the spec: %v", err)
			}
			if err := agent.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
				t.Fatalf("an agent lists secrets: %v", err)
			}
		})
	}
}

func TestRunAccountStaysInItsNamespace(t *testing.T) {
	here, there := newWorld(t, 1, nil), newWorld(t, 1, nil)
	for _, w := range []*world{here, there} {
		w.settle()
		w.reportAllFacts()
		w.settle()
	}
	agent := podClient(t, here.ns, controllers.RunServiceAccount, there.nodes[0])
	if err := writeFacts(t, agent, there, there.nodes[0]); !apierrors.IsForbidden(err) {
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
	ct.Status.Facts = nil
	if err := asManager.Status().Update(t.Context(), ct); !apierrors.IsForbidden(err) {
		t.Fatalf("the manager wrote an agent's status: %v", err)
	}
}

package envtest

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers"
)

// namespacedManager is a manager's account that has its rights in the world's namespace by a RoleBinding there, as in
// namespaced mode; without it nothing of the namespace can be read.
func (w *world) namespacedManager() (client.Client, *rbacv1.RoleBinding) {
	w.Helper()
	user := "system:serviceaccount:commgroup-system:" + w.ns
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	role := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	name := metav1.ObjectMeta{Name: w.ns}
	everywhere := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"commnodes"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{w.ns},
			Verbs: []string{"get"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"},
			Verbs: []string{"create"}},
	}}
	inNamespace := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.ns, Namespace: w.ns}, Subjects: subject,
		RoleRef: role("ClusterRole", "commgroup-manager")}
	for _, o := range []client.Object{everywhere, inNamespace,
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subject, RoleRef: role("ClusterRole", w.ns)}} {
		w.must(admin.Create(w.ctx, o))
	}
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user,
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	w.must(err)
	w.eventually("rights of the account", func() bool { return !w.access(c).Refused(w.ns) })
	return c, inNamespace
}

func (w *world) access(c client.Client) *controllers.Access {
	w.Helper()
	a, err := controllers.NewAccess(w.ctx, c, logr.Discard(), []string{w.ns})
	w.must(err)
	return a
}

// endNamespace is the namespace controller, which envtest lacks.
func (w *world) endNamespace() {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.must(admin.Delete(w.ctx, ns))
	w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(ns), ns))
	ns.Spec.Finalizers = nil
	w.must(admin.SubResource("finalize").Update(w.ctx, ns))
	if err := admin.Get(w.ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
		w.Fatalf("the namespace is still there: %v", err)
	}
}

// TestMarksOfAGoneNamespace: a namespace takes the manager's rights in it along. A group's marks go then, and at no
// refusal before.
func TestMarksOfAGoneNamespace(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	bad := w.nodes[0]
	w.measure(bad)
	c, binding := w.namespacedManager()
	// The administrator reads as the cache does, without a refusal.
	w.r.APIReader, w.r.Config.Namespaces = c, []string{w.ns}
	want := func(marks, when string) {
		t.Helper()
		result, err := w.r.Reconcile(w.ctx, w.request())
		if err != nil || result.RequeueAfter <= 0 {
			t.Errorf("%s: error %v, again after %s; expected none, and to look again", when, err, result.RequeueAfter)
		}
		w.wantMarks(bad, marks)
	}
	w.must(admin.Delete(w.ctx, binding))
	w.eventually("end of the rights", func() bool { return w.access(c).Refused(w.ns) })
	access := w.access(c)
	w.r.Access = access
	want("failed", "no rights")
	w.endPods()
	w.must(admin.Delete(w.ctx, w.group))
	want("failed", "no rights, and the group is gone, as only others know")
	w.r.Access = nil // between two looks at the rights
	want("failed", "the refusal is news")
	w.r.Access = access
	w.endNamespace()
	want("", "the namespace is gone")
}

// TestMarksInARefusedNamespace: the sweeper leaves marks of groups that it may not read, until their namespace is gone.
func TestMarksInARefusedNamespace(t *testing.T) {
	w := gatingWorld(t, 2, nil)
	bad := w.nodes[0]
	w.measure(bad)
	c, binding := w.namespacedManager()
	other := newWorld(t, 1, nil)
	w.must(admin.Delete(w.ctx, binding))
	w.eventually("end of the rights", func() bool { return w.access(c).Refused(w.ns) })
	sweeper := &controllers.MarkSweeper{Client: asManager, APIReader: c, Now: w.clock.Now, Namespaces: []string{w.ns},
		Access: w.access(c), Report: func(err error) { t.Error(err) }}
	orphan := other.node(other.nodes[0])
	base := orphan.DeepCopy()
	orphan.Annotations = map[string]string{v1alpha1.AnnotationGatingPrefix +
		"gone": `{"verdict":"Pass","group":"elsewhere/g"}`}
	w.must(admin.Patch(w.ctx, orphan, client.MergeFrom(base)))
	w.must(sweeper.Sweep(w.ctx))
	w.wantMarks(bad, "failed")
	if len(other.node(orphan.Name).Annotations) > 0 {
		t.Error("the mark of a group that is gone stays since another namespace cannot be read")
	}
	w.endPods()
	w.must(admin.Delete(w.ctx, w.group))
	w.endNamespace()
	w.must(sweeper.Sweep(w.ctx))
	w.wantMarks(bad, "")
}

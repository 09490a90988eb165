package envtest

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// authorOf may write CommGroups in the namespace, and make no pods.
func authorOf(t *testing.T, namespace string) client.Client {
	t.Helper()
	const user = "author"
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "author", Namespace: namespace},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-editor"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAuthorsOverrides: what the API server itself refuses of someone who may write CommGroups and nothing else.
func TestAuthorsOverrides(t *testing.T) {
	w := newWorld(t, 0, func(g *v1alpha1.CommGroup) { g.Spec.Run.State = v1alpha1.RunSuspended })
	author := authorOf(t, w.ns)
	create := func(spec string) error {
		u := groupFromYAML(t, selectAll+spec)
		u.SetNamespace(w.ns)
		return author.Create(t.Context(), u, client.DryRunAll)
	}
	for name, tc := range map[string]struct{ spec, words string }{
		"other networks": {"runtime: {pod: {annotations: {k8s.v1.cni.cncf.io/networks: kube-system/all}}}\n",
			"must not carry keys"},
		"AppArmor": {"runtime: {pod: {annotations: {container.apparmor.security.beta.kubernetes.io/ranks: " +
			"unconfined}}}\n", "must not carry keys"},
		"seccomp": {"runtime: {pod: {annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}}\n",
			"must not carry keys"},
		"the runtime's": {"runtime: {pod: {annotations: {io.kubernetes.cri-o.Devices: /dev/mem}}}\n",
			"must not carry keys"},
		"a cloud's identity": {"runtime: {pod: {annotations: {iam.amazonaws.com/role: admin}}}\n",
			"must not carry keys"},
		"a label for that": {"runtime: {pod: {labels: {azure.workload.identity/use: 'true'}}}\n",
			"must not carry keys"},
		"the operator's label": {"runtime: {pod: {labels: {rcclx.io/stage: group}}}\n", "must not carry keys"},
		"the cluster's class": {"runtime: {pod: {priorityClassName: system-node-critical}}\n",
			"must not be a class of the cluster's own pods"},
		"root by number":  {"runtime: {pod: {runAsUser: 0}}\n", "runAsUser"},
		"the group root":  {"runtime: {pod: {supplementalGroups: [0]}}\n", "supplementalGroups"},
		"code to preload": {"runtime: {env: [{name: LD_PRELOAD, value: /x.so}]}\n", "must not carry LD_PRELOAD"},
		"a plugin": {"runtime: {env: [{name: NCCL_TUNER_PLUGIN, value: /x.so}]}\n",
			"build plugins into the runtime image"},
		"any other plugin": {"runtime: {env: [{name: RCCL_NEW_PLUGIN, value: /x.so}]}\n",
			"build plugins into the runtime image"},
		"a file of settings": {"runtime: {env: [{name: NCCL_CONF_FILE, value: /x}]}\n",
			"build plugins into the runtime image"},
		"another's variable": {"runtime: {env: [{name: KUBECONFIG, value: /x}]}\n", "takes only variables named"},
		"a Secret's variable": {"runtime: {env: [{name: NCCL_X, valueFrom: {secretKeyRef: {name: s, key: k}}}]}\n",
			"unknown field"},
		"a privileged pod":   {"runtime: {pod: {securityContext: {privileged: true}}}\n", "unknown field"},
		"a volume":           {"runtime: {pod: {volumes: [{name: h, hostPath: {path: /}}]}}\n", "unknown field"},
		"an account":         {"runtime: {pod: {serviceAccountName: default}}\n", "unknown field"},
		"a claim of devices": {"runtime: {pod: {resourceClaims: [{name: x}]}}\n", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			u := groupFromYAML(t, selectAll+tc.spec)
			u.SetNamespace(w.ns)
			err := client.WithFieldValidation(author, metav1.FieldValidationStrict).Create(t.Context(),
				u, client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%s: %v", tc.spec, err)
			}
		})
	}
	for name, spec := range map[string]string{
		"labels and queue": "runtime: {pod: {labels: {kueue.x-k8s.io/queue-name: q, team: a}, annotations: " +
			"{example.com/x: z, sidecar.istio.io/inject: 'false'}}}\n",
		"class and user": "runtime: {pod: {priorityClassName: low, runAsUser: 1000, supplementalGroups: [109]}}\n",
		"settings":       "runtime: {env: [{name: NCCL_DEBUG, value: INFO}]}\n",
	} {
		if err := create(spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := author.Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: w.ns}}); !apierrors.IsForbidden(err) {
		t.Errorf("the author makes a pod: %v", err)
	}
	ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{Name: "forged", Namespace: w.ns},
		Spec: v1alpha1.CommTaskSpec{NodeName: "n"}}
	if err := author.Create(t.Context(), ct); !apierrors.IsForbidden(err) {
		t.Errorf("the author makes a CommTask: %v", err)
	}
	cn := &v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: "forged"}, Spec: v1alpha1.CommNodeSpec{NodeUID: "u"}}
	if err := author.Create(t.Context(), cn); !apierrors.IsForbidden(err) {
		t.Errorf("the author makes a CommNode: %v", err)
	}
}

// TestOverridesOfOlderGroups: what is stored is judged again, whatever the API server took once.
func TestOverridesOfOlderGroups(t *testing.T) {
	w := newWorld(t, 1, func(g *v1alpha1.CommGroup) {
		g.Spec.Runtime.Pod.Annotations = map[string]string{"vault.hashicorp.example/x": "y",
			"sidecar.istio.io/userVolume": "{}"}
	})
	w.settle()
	w.wantCondition(v1alpha1.ConditionAccepted, no, v1alpha1.ReasonPodOverridesNotAllowed,
		"sidecar.istio.io/userVolume")
	w.reportAllFacts()
	w.settle()
	if len(w.pods()) != 0 {
		t.Error("run pods all the same")
	}
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Runtime.Pod.Annotations = nil })
	w.settle()
	w.wantCondition(v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted)
}

// TestRefusedByPodSecurity: a level that takes no run pods is told in words.
func TestRefusedByPodSecurity(t *testing.T) {
	w := newWorld(t, 1, nil)
	ns := &corev1.Namespace{}
	w.must(admin.Get(t.Context(), client.ObjectKey{Name: w.ns}, ns))
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	w.must(admin.Update(t.Context(), ns))
	w.running()
	w.wantCondition(v1alpha1.ConditionValidated, no, v1alpha1.ReasonRunPodNotStarted, "violates PodSecurity",
		"runAsNonRoot", "runtime.pod")
	w.wantNoCulprit()
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Runtime.Pod.RunAsUser = ptr.To(int64(1000)) })
	w.settle()
	if len(w.pods()) != 1 {
		t.Errorf("%d run pods with a user named", len(w.pods()))
	}
}

// TestRightsAreAsWritten asks the API server itself what each account may do that it must not.
func TestRightsAreAsWritten(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.running()
	accounts := map[string]string{
		"manager": managerUser,
		"monitor": "system:serviceaccount:" + operatorNamespace + ":commgroup-monitor",
		"run":     "system:serviceaccount:" + w.ns + ":commgroup-run",
	}
	for name, user := range accounts {
		for _, a := range []authorizationv1.ResourceAttributes{
			{Verb: "*", Resource: "*", Group: "*"}, {Verb: "get", Resource: "secrets"},
			{Verb: "list", Resource: "secrets"},
			{Verb: "create", Resource: "pods", Subresource: "exec"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
			{Verb: "escalate", Resource: "clusterroles", Group: rbacv1.GroupName},
			{Verb: "impersonate", Resource: "users"},
			{Verb: "bind", Resource: "clusterroles", Group: rbacv1.GroupName, Name: "cluster-admin"},
			{Verb: "create", Resource: "clusterrolebindings", Group: rbacv1.GroupName},
			{Verb: "create", Resource: "pods", Subresource: "ephemeralcontainers"},
			{Verb: "patch", Resource: "pods", Subresource: "ephemeralcontainers"},
			{Verb: "delete", Resource: "nodes"}, {Verb: "get", Resource: "nodes", Subresource: "proxy"},
			{Verb: "patch", Resource: "daemonsets", Group: "apps", Namespace: "kube-system"},
			{Verb: "create", Resource: "daemonsets", Group: "apps", Namespace: operatorNamespace},
			{Verb: "patch", Resource: "daemonsets", Group: "apps", Namespace: operatorNamespace},
			{Verb: "update", Resource: "commnodes", Group: v1alpha1.GroupVersion.Group},
			{Verb: "patch", Resource: "commnodes", Group: v1alpha1.GroupVersion.Group},
			{Verb: "delete", Resource: "commnodes", Group: v1alpha1.GroupVersion.Group},
			{Verb: "update", Resource: "validatingadmissionpolicies", Group: "admissionregistration.k8s.io"},
			{Verb: "patch", Resource: "namespaces"},
			{Verb: "patch", Resource: "customresourcedefinitions", Group: "apiextensions.k8s.io"},
			{Verb: "create", Resource: "roles", Group: rbacv1.GroupName},
		} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
				ResourceAttributes: &a, Groups: []string{"system:serviceaccounts", "system:authenticated"}}}
			w.must(admin.Create(t.Context(), review))
			if review.Status.Allowed {
				t.Errorf("the %s's account may %s %s", name, a.Verb, fmt.Sprint(a))
			}
		}
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		a := authorizationv1.ResourceAttributes{Verb: verb, Group: v1alpha1.GroupVersion.Group,
			Resource: "commruns", Namespace: w.ns}
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: accounts["run"], ResourceAttributes: &a}}
		w.must(admin.Create(t.Context(), review))
		if review.Status.Allowed != (verb == "get") {
			t.Errorf("the run's account may %s CommRuns of its namespace: %v", verb, review.Status.Allowed)
		}
	}
}

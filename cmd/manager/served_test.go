package main

import (
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestOneNamespaceStopsNoOther: with the rights that the chart gives for two served namespaces, of a real API server, a
// manager that lacks those in one namespace serves the other, waits where it lacks both, and ends, to serve them, once
// they are back.
func TestOneNamespaceStopsNoOther(t *testing.T) {
	env, config := testenv.Start(t)
	admin := testenv.Admin(t, config)
	asManager(t, env)
	for _, name := range []string{"commgroup-system", "ml", "research"} {
		createNamespace(t, admin, name)
	}
	roles := func(object client.Object) bool {
		switch object.(type) {
		case *rbacv1.Role, *rbacv1.RoleBinding, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			return true
		}
		return false
	}
	if made := createAll(t, admin, filepath.Join("test", "chart", "testdata", "golden", "namespaced.yaml"),
		roles); made < 6 {
		t.Fatalf("the chart's render for two namespaces has %d roles and bindings, expected more", made)
	}
	const arguments = "--namespaces=ml,research"
	take := func(namespace string) *rbacv1.RoleBinding {
		var binding rbacv1.RoleBinding
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "commgroup-manager-groups"},
			&binding); err != nil {
			t.Fatal(err)
		}
		if err := admin.Delete(t.Context(), &binding); err != nil {
			t.Fatal(err)
		}
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: binding.Name},
			RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	}
	served := func(namespace, name string) {
		t.Helper()
		group := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: v1alpha1.CommGroupSpec{Members: v1alpha1.MembersSpec{NodeNames: []string{"none"}}}}
		if err := admin.Create(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.After(time.Minute); len(group.Status.Conditions) == 0; {
			select {
			case <-deadline:
				t.Fatalf("CommGroup %s/%s got no status within a minute", namespace, name)
			case <-tick.C:
			}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
				t.Fatal(err)
			}
		}
	}

	research := take("research")
	end, ended := ready(t, "no rights in research", arguments)
	served("ml", "one")
	end()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}

	ml := take("ml")
	end, ended = ready(t, "no rights in both", arguments)
	defer end()
	for _, binding := range []*rbacv1.RoleBinding{ml, research} {
		if err := admin.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("with the rights back the manager ended with %v, expected no error", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("with the rights back the manager goes on without those namespaces")
	}

	end, ended = ready(t, "all rights", arguments)
	served("research", "two")
	// Rights that go while it runs stop nobody either.
	take("research")
	served("ml", "three")
	end()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
}

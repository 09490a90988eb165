//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// earlierChart is the commit whose chart an upgrade begins with: the last before the chart was written by hand. It had one image.
const earlierChart = "79fe0b6"

// idleGroup has monitors and makes no runs.
func idleGroup(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: %s, namespace: %s}
spec:
  members: {nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}}
  run: {state: Suspended}
  health: {intervalSeconds: 5}
`, name, namespace)
}

func (e *env) makeNamespace(t *testing.T, name string) {
	t.Helper()
	e.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shortDeadline)
		defer cancel()
		if _, err := e.try(ctx, "", "kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=90s"); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}

// chartOf unpacks the chart of a commit; empty where this checkout does not have the commit.
func (e *env) chartOf(t *testing.T, commit string) string {
	t.Helper()
	if exec.CommandContext(t.Context(), "git", "-C", e.Repo, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		return ""
	}
	folder := t.TempDir()
	archive := filepath.Join(folder, "chart.tar")
	e.run(t, "git", "-C", e.Repo, "archive", "--output", archive, commit, chartPath)
	e.run(t, "tar", "-xf", archive, "-C", folder)
	return filepath.Join(folder, chartPath)
}

// wantCondition waits for a condition of a group to be true.
func (e *env) wantCondition(t *testing.T, key client.ObjectKey, condition string) {
	t.Helper()
	eventually(t, 5*time.Minute, fmt.Sprintf("condition %s of CommGroup %s", condition, key), func(ctx context.Context) error {
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, key, &group); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(group.Status.Conditions, condition) {
			return fmt.Errorf("conditions are %+v", group.Status.Conditions)
		}
		return nil
	})
}

// testChartUpgrade installs an earlier chart, upgrades it, goes back and forth, and uninstalls it while a group exists.
func testChartUpgrade(t *testing.T, e *env) {
	const namespace = "chart-upgrade"
	e.makeNamespace(t, namespace)
	t.Cleanup(func() { e.removeOperator(t) })
	key := client.ObjectKey{Namespace: namespace, Name: "kept"}
	values := []string{"--namespace", operatorNamespace, "--wait", "--timeout", "2m", "--set", "defaultRuntimeImage=" + runtimeImage}
	upgrade := append([]string{"upgrade", "--install", "--create-namespace", releaseName, chartPath}, values...)

	earlier := e.chartOf(t, earlierChart)
	if earlier == "" {
		t.Logf("this checkout lacks commit %s: the upgrade begins with today's chart", earlierChart)
		e.helm(t, upgrade...)
	} else {
		// Not waited for: today's manager, which is the only image here, refuses the CRDs of that time.
		e.helm(t, "install", releaseName, earlier, "--namespace", operatorNamespace, "--create-namespace", "--set", "image.repository=commgroup-manager")
	}
	e.apply(t, idleGroup(namespace, key.Name))
	// As a manager of that time left it.
	e.kubectl(t, "patch", "commgroup", key.Name, "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`)
	uid := e.kubectl(t, "get", "commgroup", key.Name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")

	e.helm(t, upgrade...)
	for _, plural := range []string{"commgroups", "commnodes"} {
		installed := e.kubectl(t, "get", "crd", plural+".rcclx.io", "-o", "jsonpath={.metadata.annotations.rcclx\\.io/schema-revision}")
		data, err := os.ReadFile(filepath.Join(e.Repo, "config", "crd", "bases", "rcclx.io_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if installed == "" || !strings.Contains(string(data), `rcclx.io/schema-revision: "`+installed+`"`) {
			t.Errorf("helm upgrade left CRD %s at schema revision %q", plural, installed)
		}
	}
	e.wantCondition(t, key, v1alpha1.ConditionAgentsReporting)
	var group v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), key, &group); err != nil || string(group.UID) != uid || len(group.Finalizers) != 0 {
		t.Errorf("after the upgrade: %v, UID %s (expected %s), finalizers %v (expected none)", err, group.UID, uid, group.Finalizers)
	}

	// A second release would share the names of cluster-wide objects.
	ctx, cancel := context.WithTimeout(t.Context(), shortDeadline)
	defer cancel()
	_, err := e.try(ctx, "", "helm", "install", "second", chartPath, "--namespace", namespace)
	if err == nil || !strings.Contains(err.Error(), "release "+releaseName+" in namespace "+operatorNamespace+" already serves this cluster") {
		t.Errorf("a second release: %v", err)
	}

	// One step on and back to revision 2, which is today's chart whatever the first one was.
	const back = "2"
	e.helm(t, append(upgrade, "--set", "manager.replicas=1")...)
	e.helm(t, "rollback", releaseName, back, "--namespace", operatorNamespace, "--wait", "--timeout", "2m")
	if replicas := e.kubectl(t, "get", "deployment", "commgroup-manager", "-n", operatorNamespace, "-o", "jsonpath={.spec.replicas}"); replicas != "2" {
		t.Errorf("helm rollback left %s managers, expected 2", replicas)
	}
	e.wantCondition(t, key, v1alpha1.ConditionAgentsReporting)

	e.uninstall(t, key)
}

// uninstall ends the release while the group exists, which then can be deleted without any manager.
func (e *env) uninstall(t *testing.T, key client.ObjectKey) {
	t.Helper()
	e.helm(t, "uninstall", releaseName, "--namespace", operatorNamespace, "--wait", "--timeout", "1m")
	eventually(t, shortDeadline, "managers and monitors to be gone after helm uninstall", func(ctx context.Context) error {
		var monitors appsv1.DaemonSetList
		var pods corev1.PodList
		if err := errors.Join(e.Client.List(ctx, &monitors, client.InNamespace(operatorNamespace)), e.Client.List(ctx, &pods, client.InNamespace(operatorNamespace))); err != nil {
			return err
		}
		if n, m := len(monitors.Items), len(pods.Items); n+m > 0 {
			return fmt.Errorf("there are %d DaemonSets and %d pods", n, m)
		}
		return nil
	})
	var group v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), key, &group); err != nil {
		t.Errorf("crds.keep: the CommGroup did not stay: %v", err)
	}
	e.kubectl(t, "delete", "commgroup", key.Name, "-n", key.Namespace, "--timeout=20s")
	// One more, and the namespace as a whole.
	e.apply(t, idleGroup(key.Namespace, "another"))
	e.kubectl(t, "delete", "namespace", key.Namespace, "--timeout=90s")
}

// testChartNamespaced serves one namespace and leaves another alone. The sample comes with the install.
func testChartNamespaced(t *testing.T, e *env) {
	const served, other = "chart-served", "chart-other"
	e.makeNamespace(t, served)
	e.makeNamespace(t, other)
	e.installOperator(t, "namespaces={"+served+"}", "sample.enabled=true", "sample.name=first", "sample.namespace="+served, "sample.spec.run.state=Suspended")
	e.apply(t, idleGroup(other, "alone"))
	e.wantCondition(t, client.ObjectKey{Namespace: served, Name: "first"}, v1alpha1.ConditionAgentsReporting)
	// Made before the sample was accepted: a manager that served it would have said so by now.
	e.apply(t, idleGroup(served, "second"))
	e.wantCondition(t, client.ObjectKey{Namespace: served, Name: "second"}, v1alpha1.ConditionAccepted)
	var alone v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "alone"}, &alone); err != nil {
		t.Fatal(err)
	}
	if len(alone.Status.Conditions) != 0 {
		t.Errorf("a CommGroup outside of the served namespaces has conditions: %+v", alone.Status.Conditions)
	}
	may := func(verb, resource, namespace string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), shortDeadline)
		defer cancel()
		out, err := e.try(ctx, "", "kubectl", "auth", "can-i", verb, resource, "-n", namespace, "--as", "system:serviceaccount:"+operatorNamespace+":commgroup-manager")
		if answer := strings.TrimSpace(out); answer != "yes" && answer != "no" {
			t.Fatalf("kubectl auth can-i %s %s: %q, %v", verb, resource, answer, err)
		}
		return strings.TrimSpace(out) == "yes"
	}
	for _, resource := range []string{"pods", "configmaps", "serviceaccounts", "rolebindings.rbac.authorization.k8s.io", "commnodes.rcclx.io"} {
		if !may("create", resource, served) {
			t.Errorf("the manager may not create %s in the served namespace", resource)
		}
		if may("create", resource, other) {
			t.Errorf("the manager may create %s in a namespace that it does not serve", resource)
		}
	}
}

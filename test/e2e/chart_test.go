//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// previousTag is the tag of the images of the commit before.
const previousTag = "previous"

// idleGroup makes no runs.
func idleGroup(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: %s, namespace: %s}
spec:
  members: {nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}}
  run: {state: Suspended}
`, name, namespace)
}

func (e *env) makeNamespace(t *testing.T, name string) {
	t.Helper()
	e.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shortDeadline)
		defer cancel()
		if _, err := e.try(ctx, "", "kubectl", "delete", "namespace", name, "--ignore-not-found",
			"--timeout=90s"); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}

// previous unpacks the commit before this one, or that which E2E_PREVIOUS names, and gives its folder and its name.
// Without the commit there is no upgrade to test, and the test says so.
func (e *env) previous(t *testing.T) (folder, commit string) {
	t.Helper()
	revision := cmp.Or(os.Getenv("E2E_PREVIOUS"), "HEAD~1")
	out, err := exec.CommandContext(t.Context(), "git", "-C", e.Repo, "rev-parse", "--verify",
		"--quiet", revision+"^{commit}").Output()
	if err != nil {
		t.Skipf("NOT TESTED: upgrade from the release before and rollback to it. This checkout lacks commit %s: "+
			"fetch its history (git fetch --unshallow), or name another with E2E_PREVIOUS", revision)
	}
	commit, folder = strings.TrimSpace(string(out)), t.TempDir()
	archive := filepath.Join(folder, "commit.tar")
	e.run(t, "git", "-C", e.Repo, "archive", "--output", archive, commit)
	e.run(t, "tar", "-xf", archive, "-C", folder)
	if _, err := os.Stat(filepath.Join(folder, "config", "crd", "bases", "rcclx.io_commtasks.yaml")); err != nil {
		t.Skipf("NOT TESTED: upgrade from the release before and rollback to it. Commit %s is before CommTasks, "+
			"from where docs/upgrade.md has steps of its own: name another with E2E_PREVIOUS", commit)
	}
	return folder, commit
}

// loadPrevious builds the images of a commit from its own sources and puts them onto the nodes.
func (e *env) loadPrevious(t *testing.T, folder, commit string) {
	t.Helper()
	images := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, filepath.Join(folder, "hack", "images", "build.sh"), images)
	build.Env = append(os.Environ(), "TAG="+previousTag, "VERSION="+commit[:12])
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("images of commit %s: %v\n%s\nIf that commit does not build, name another with E2E_PREVIOUS",
			commit, err, out)
	}
	e.run(t, "bin/realcluster", "load", "--state-dir", e.StateDir, filepath.Join(images, "commgroup-manager.tar"),
		filepath.Join(images, "commgroup-agent.tar"))
}

// wantCondition waits for a condition of a group to be true.
func (e *env) wantCondition(t *testing.T, key client.ObjectKey, condition string) {
	t.Helper()
	eventually(t, 5*time.Minute, fmt.Sprintf("condition %s of CommGroup %s", condition, key),
		func(ctx context.Context) error {
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

// testChartUpgrade takes a release of the commit before, with its own images, to today's and back by Helm, with a group
// that has its verdict.
func testChartUpgrade(t *testing.T, e *env) {
	const namespace = "chart-upgrade"
	folder, commit := e.previous(t)
	e.loadPrevious(t, folder, commit)
	e.makeNamespace(t, namespace)
	t.Cleanup(func() { e.removeOperator(t) })
	key := client.ObjectKey{Namespace: namespace, Name: "kept"}
	values := []string{"--namespace", operatorNamespace, "--wait", "--timeout", "2m",
		"--set", "defaultRuntimeImage=" + runtimeImage}

	e.helm(t, append([]string{"install", releaseName, filepath.Join(folder, chartPath), "--create-namespace",
		"--set", "manager.image.tag=" + previousTag + ",agent.image.tag=" + previousTag}, values...)...)
	e.apply(t, measuredGroup(namespace, key.Name))
	e.wantCondition(t, key, v1alpha1.ConditionReady)
	var before v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), key, &before); err != nil {
		t.Fatal(err)
	}
	e.wantServed(t, &before, "first", previousTag, filepath.Join(folder, "config", "crd", "bases"))

	e.helm(t, append([]string{"upgrade", releaseName, chartPath}, values...)...)
	e.wantServed(t, &before, "second", "dev", filepath.Join(e.Repo, "config", "crd", "bases"))

	e.helm(t, "rollback", releaseName, "1", "--namespace", operatorNamespace, "--wait", "--timeout", "2m")
	e.wantServed(t, &before, "third", previousTag, filepath.Join(folder, "config", "crd", "bases"))

	e.helm(t, append([]string{"upgrade", releaseName, chartPath}, values...)...)
	e.wantServed(t, &before, "fourth", "dev", filepath.Join(e.Repo, "config", "crd", "bases"))
}

// measuredGroup has a run that takes seconds.
func measuredGroup(namespace, name string) string {
	return strings.Replace(strings.Replace(small, "name: small, namespace: default",
		"name: "+name+", namespace: "+namespace, 1), "  runtime: {imagePullSecrets: [{name: mirror}]}\n", "", 1)
}

// wantServed checks that managers and monitors have the tag and the CRDs their release's schema, that a group made now
// is served, and that the one from before is as it was: no run was made for the change of version alone.
func (e *env) wantServed(t *testing.T, before *v1alpha1.CommGroup, probe, tag, schemas string) {
	t.Helper()
	for _, plural := range []string{"commgroups", "commtasks", "commruns", "commnodes"} {
		installed := e.kubectl(t, "get", "crd", plural+".rcclx.io",
			"-o", "jsonpath={.metadata.annotations.rcclx\\.io/schema-revision}")
		data, err := os.ReadFile(filepath.Join(schemas, "rcclx.io_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if installed == "" || !strings.Contains(string(data), `rcclx.io/schema-revision: "`+installed+`"`) {
			t.Errorf("CRD %s has schema revision %q, which is not that of the release with tag %s",
				plural, installed, tag)
		}
	}
	e.apply(t, idleGroup(before.Namespace, probe))
	e.wantCondition(t, client.ObjectKey{Namespace: before.Namespace, Name: probe}, v1alpha1.ConditionAgentsReporting)
	eventually(t, 5*time.Minute, "managers and all monitors to have the tag "+tag, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.InNamespace(operatorNamespace)); err != nil {
			return err
		}
		managers, monitors := 0, 0
		for i := range pods.Items {
			p := &pods.Items[i]
			for _, c := range p.Spec.Containers {
				if !strings.HasSuffix(c.Image, ":"+tag) {
					return fmt.Errorf("pod %s has the image %s", p.Name, c.Image)
				}
			}
			ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			switch {
			case !ready:
				return fmt.Errorf("pod %s is not ready", p.Name)
			case p.Labels["app.kubernetes.io/name"] == "commgroup-manager":
				managers++
			default:
				monitors++
			}
		}
		if managers != 2 || monitors != nodeCount {
			return fmt.Errorf("%d managers and %d monitors are ready, expected 2 and %d", managers, monitors, nodeCount)
		}
		return nil
	})
	e.wantCondition(t, client.ObjectKeyFromObject(before), v1alpha1.ConditionReady)
	var now v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(before), &now); err != nil {
		t.Fatal(err)
	}
	if now.UID != before.UID || now.Status.Run == nil || now.Status.Run.ID != before.Status.Run.ID ||
		now.Status.Run.Verdict != before.Status.Run.Verdict {
		t.Errorf("with tag %s the group has UID %s and run %+v, expected as before: %s and %+v",
			tag, now.UID, now.Status.Run, before.UID, before.Status.Run)
	}
}

// testChartLifecycle refuses a second release, makes the sample when an upgrade switches it on, and uninstalls while a
// group exists.
func testChartLifecycle(t *testing.T, e *env) {
	const namespace = "chart-lifecycle"
	e.makeNamespace(t, namespace)
	e.installOperator(t)
	key := client.ObjectKey{Namespace: namespace, Name: "kept"}
	e.apply(t, idleGroup(namespace, key.Name))
	e.wantCondition(t, key, v1alpha1.ConditionAgentsReporting)
	// As a manager of an old version left it; a change of the spec makes the manager look.
	e.kubectl(t, "patch", "commgroup", key.Name, "-n", namespace, "--type=merge",
		"-p", `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]},"spec":{"publish":{"mode":"Off"}}}`)
	eventually(t, shortDeadline, "the finalizer of an old version to go", func(ctx context.Context) error {
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, key, &group); err != nil {
			return err
		}
		if len(group.Finalizers) > 0 {
			return fmt.Errorf("it has the finalizers %v", group.Finalizers)
		}
		return nil
	})

	// A second release would share the names of cluster-wide objects.
	ctx, cancel := context.WithTimeout(t.Context(), shortDeadline)
	defer cancel()
	_, err := e.try(ctx, "", "helm", "install", "second", chartPath, "--namespace", namespace)
	if err == nil || !strings.Contains(err.Error(),
		"release "+releaseName+" in namespace "+operatorNamespace+" already serves this cluster") {
		t.Errorf("a second release: %v", err)
	}

	// The sample by an upgrade; a second upgrade leaves it as its owner made it.
	sample := client.ObjectKey{Namespace: namespace, Name: "first"}
	upgrade := []string{"upgrade", releaseName, chartPath, "--namespace", operatorNamespace,
		"--wait", "--timeout", "2m", "--set", "defaultRuntimeImage=" + runtimeImage +
			",sample.enabled=true,sample.name=first,sample.namespace=" + namespace + ",sample.spec.run.state=Suspended"}
	e.helm(t, upgrade...)
	e.wantCondition(t, sample, v1alpha1.ConditionAgentsReporting)
	var made, kept v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), sample, &made); err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "patch", "commgroup", sample.Name, "-n", namespace, "--type=merge",
		"-p", `{"spec":{"publish":{"mode":"Off"}}}`)
	e.helm(t, upgrade...)
	if err := e.Client.Get(t.Context(), sample, &kept); err != nil || kept.UID != made.UID ||
		kept.Spec.Publish.Mode != v1alpha1.PublishOff {
		t.Errorf("a later helm upgrade changed the sample: %v, UID %s (expected %s), publish %+v",
			err, kept.UID, made.UID, kept.Spec.Publish)
	}

	e.uninstall(t, key)
}

// uninstall ends the release while the group exists, which then can be deleted without any manager.
func (e *env) uninstall(t *testing.T, key client.ObjectKey) {
	t.Helper()
	e.helm(t, "uninstall", releaseName, "--namespace", operatorNamespace, "--wait", "--timeout", "1m")
	eventually(t, shortDeadline, "managers and monitors to be gone after helm uninstall",
		func(ctx context.Context) error {
			var monitors appsv1.DaemonSetList
			var pods corev1.PodList
			if err := errors.Join(e.Client.List(ctx, &monitors, client.InNamespace(operatorNamespace)),
				e.Client.List(ctx, &pods, client.InNamespace(operatorNamespace))); err != nil {
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
	e.installOperator(t, "namespaces={"+served+"}", "sample.enabled=true", "sample.name=first",
		"sample.namespace="+served, "sample.spec.run.state=Suspended")
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
		out, err := e.try(ctx, "", "kubectl", "auth", "can-i", verb, resource, "-n", namespace,
			"--as", "system:serviceaccount:"+operatorNamespace+":commgroup-manager")
		if answer := strings.TrimSpace(out); answer != "yes" && answer != "no" {
			t.Fatalf("kubectl auth can-i %s %s: %q, %v", verb, resource, answer, err)
		}
		return strings.TrimSpace(out) == "yes"
	}
	for _, resource := range []string{"pods", "configmaps", "serviceaccounts/commgroup-run",
		"rolebindings.rbac.authorization.k8s.io/commgroup-run", "commtasks.rcclx.io"} {
		if !may("create", resource, served) {
			t.Errorf("the manager may not create %s in the served namespace", resource)
		}
		if may("create", resource, other) {
			t.Errorf("the manager may create %s in a namespace that it does not serve", resource)
		}
	}
}

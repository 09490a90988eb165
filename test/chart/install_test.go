package chart

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// cluster is a real API server for Helm; nothing runs there.
type cluster struct {
	client     client.Client
	kubeconfig string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	environment, config := testenv.Start(t, testenv.WithoutCRDs)
	c := &cluster{kubeconfig: testenv.Kubeconfig(t, environment, "admin", "system:masters"),
		client: testenv.Admin(t, config)}
	for _, name := range []string{namespace, "ml"} {
		if err := c.client.Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*helmDeadline)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, path, append(args, "--namespace", namespace, "--kubeconfig", c.kubeconfig)...)
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cluster) mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.helm(t, args...)
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, out)
	}
	return out
}

func (c *cluster) group(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	g := &unstructured.Unstructured{}
	g.SetAPIVersion("rcclx.io/v1alpha1")
	g.SetKind("CommGroup")
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: name}, g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestCommGroupsOutliveTheChart: no install, upgrade or uninstall deletes or changes a CommGroup that is there, were it
// the sample of an earlier install; and what the cluster lacks is said before anything is changed.
func TestCommGroupsOutliveTheChart(t *testing.T) {
	c := startCluster(t)
	sample := []string{"--set", "defaultRuntimeImage=r,sample.enabled=true,sample.namespace=ml,sample.name=first"}

	for _, refused := range []struct{ values, want string }{
		{"namespaces={ml,nowhere}",
			"namespaces names nowhere, and the cluster has no such namespace: kubectl create namespace nowhere"},
		{"networkPolicy.enabled=true,networkPolicy.runNamespaces={nowhere}",
			"networkPolicy.runNamespaces names nowhere"},
		{"openshift.enabled=true,openshift.runNamespaces={nowhere}", "openshift.runNamespaces names nowhere"},
		{"defaultRuntimeImage=r,sample.enabled=true,sample.namespace=nowhere", "sample.namespace names nowhere"},
		{"dashboards.enabled=true,dashboards.namespace=nowhere", "dashboards.namespace names nowhere"},
	} {
		if out, err := c.helm(t, "install", release, chartPath(), "--set", refused.values); err == nil ||
			!strings.Contains(out, refused.want) {
			t.Errorf("%s: %v, expected it to be refused with %q\n%s", refused.values, err, refused.want, out)
		}
	}

	c.mustHelm(t, "install", release, chartPath())
	if out := c.mustHelm(t, append([]string{"upgrade", release, chartPath()}, sample...)...); !strings.Contains(out,
		"first is on its way") {
		t.Errorf("the notes do not name the sample:\n%s", out)
	}
	made := c.group(t, "first")
	if err := unstructured.SetNestedField(made.Object, int64(4), "spec", "ranksPerNode"); err != nil {
		t.Fatal(err)
	}
	if err := c.client.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	kept := func(after string) {
		t.Helper()
		now := c.group(t, "first")
		if ranks, _, _ := unstructured.NestedInt64(now.Object, "spec", "ranksPerNode"); now.GetUID() != made.GetUID() ||
			ranks != 4 {
			t.Errorf("after %s the group has UID %s and %d ranks a node, expected %s and 4",
				after, now.GetUID(), ranks, made.GetUID())
		}
	}
	if out := c.mustHelm(t, append([]string{"upgrade", release, chartPath()}, sample...)...); !strings.Contains(out,
		"first was there before") {
		t.Errorf("the notes do not say that the group was there:\n%s", out)
	}
	kept("a second upgrade with the sample")
	c.mustHelm(t, "uninstall", release)
	kept("uninstall")
	c.mustHelm(t, append([]string{"install", release, chartPath()}, sample...)...)
	kept("an install with a sample of its name")

	// Without the annotation Helm deletes CRDs that the chart has no more.
	c.mustHelm(t, "upgrade", release, chartPath(), "--set", "crds.keep=false")
	if out, err := c.helm(t, "upgrade", release, chartPath(), "--set", "crds.enabled=false"); err == nil ||
		!strings.Contains(out, "first `helm upgrade` with crds.enabled=true and crds.keep=true") {
		t.Errorf("an upgrade that deletes the CRDs: %v\n%s", err, out)
	}
	kept("an upgrade that was refused")
	c.mustHelm(t, "upgrade", release, chartPath(), "--set", "crds.keep=true")
	c.mustHelm(t, "upgrade", release, chartPath(), "--set", "crds.enabled=false")
	kept("an upgrade without CRDs")
}

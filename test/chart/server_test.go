package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// notServed are kinds of other projects, which the API server of the tests does not know.
var notServed = []string{"ServiceMonitor", "PodMonitor", "PrometheusRule"}

// TestServerTakesIt: a real API server takes every object of the main ways to install, with no field that it does not
// know.
func TestServerTakesIt(t *testing.T) {
	_, config := testenv.Start(t)
	c := testenv.Admin(t, config)
	for _, name := range []string{namespace, "ml", "research", "monitoring"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	dryRun := func(t *testing.T, documents []document) {
		t.Helper()
		taken := 0
		for _, d := range documents {
			if slices.Contains(notServed, d.object.GetKind()) {
				t.Logf("%s is of another project: its API is not served here; TestPrometheusKinds looks at it",
					d.name())
				continue
			}
			err := c.Patch(t.Context(), d.object, client.RawPatch("application/apply-patch+yaml", []byte(d.text)),
				client.DryRunAll, client.FieldOwner("helm"), client.ForceOwnership,
				client.FieldValidation(metav1.FieldValidationStrict))
			if err != nil {
				t.Errorf("%s (%s): %v", d.name(), d.source, err)
			}
			taken++
		}
		if taken == 0 {
			t.Error("nothing was rendered")
		}
	}
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			dryRun(t, documents(t, rendered))
		})
	}
	t.Run("config/default", func(t *testing.T) {
		folder, err := testenv.Binaries("kubectl")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "kubectl"), "kustomize",
			filepath.Join(testenv.Root(), "config", "default")).Output()
		if err != nil {
			t.Fatal(err)
		}
		dryRun(t, documents(t, string(out)))
	})
}

// TestConfigIsTheChart: kubectl apply -k config/default makes the objects that helm install makes, and no other but the
// namespace.
func TestConfigIsTheChart(t *testing.T) {
	folder, err := testenv.Binaries("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "kubectl"), "kustomize",
		filepath.Join(testenv.Root(), "config", "default")).Output()
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) map[string]string {
		objects := map[string]string{}
		for _, d := range documents(t, text) {
			labels := d.object.GetLabels()
			delete(labels, "app.kubernetes.io/managed-by")
			delete(labels, "helm.sh/chart")
			if len(labels) == 0 {
				labels = nil
			}
			d.object.SetLabels(labels)
			annotations := d.object.GetAnnotations()
			delete(annotations, "helm.sh/resource-policy")
			d.object.SetAnnotations(annotations)
			data, err := d.object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			objects[d.name()] = string(data)
		}
		return objects
	}
	byChart, byConfig := plain(rendered), plain(string(out))
	delete(byConfig, "Namespace /"+namespace)
	delete(byConfig, "Namespace "+namespace)
	for name, object := range byChart {
		if byConfig[name] != object {
			t.Errorf("%s: the chart has\n%s\nand config/default\n%s\n"+
				"Run make generate; a new template is named in hack/generate.sh",
				name, object, byConfig[name])
		}
		delete(byConfig, name)
	}
	for name := range byConfig {
		t.Errorf("config/default has %s, and the chart does not", name)
	}
}

// TestNoOtherFiles: the chart holds no file that Helm would not pack or that nothing renders.
func TestNoOtherFiles(t *testing.T) {
	rendered, err := render(t, valueSets(t)["everything"])
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]bool{}
	for _, d := range documents(t, rendered) {
		sources[d.source] = true
	}
	entries, err := os.ReadDir(filepath.Join(chartPath(), "templates"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !sources[name] && name != "NOTES.txt" && name != "validation.yaml" && !strings.HasPrefix(name, "_") {
			t.Errorf("templates/%s renders nothing in an install where all is on", name)
		}
	}
}

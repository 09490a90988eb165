//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// imageRegistry is what an image's name without a registry means: the nodes were given the product's images by such
// names.
const imageRegistry = "docker.io/library"

// testQuickstart runs the README's quickstart word for word, as a user's shell would, and then takes all of it away
// again.
func testQuickstart(t *testing.T, e *env) {
	readme, err := os.ReadFile(filepath.Join(e.Repo, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands, err := quickstart(string(readme))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.removeOperator(t) })
	var last string
	for _, c := range commands {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), runDeadline)
		// What the quickstart asks of its reader: the images that the nodes were given, and where they are.
		last, err = e.try(ctx, "", "sh", "-c", "export ROCM_IMAGE="+runtimeImage+" REGISTRY="+imageRegistry+"; "+c)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%6.1f s  %s\n%s", time.Since(began).Seconds(), c, last)
	}
	if !strings.Contains(last, "SIMULATED") || !strings.Contains(last, "Ready") {
		t.Errorf("the quickstart's last command was to show the verdict and to say that it is simulated; "+
			"it printed:\n%s", last)
	}
	key := client.ObjectKey{Namespace: "default", Name: "mi300x"}
	e.checkReady(t, key, v1alpha1.SpanNode)
	e.checkDelete(t, key)
}

// checkReady reads what the quickstart or another step brought about.
func (e *env) checkReady(t *testing.T, key client.ObjectKey, span v1alpha1.Span) *v1alpha1.CommGroup {
	t.Helper()
	var group v1alpha1.CommGroup
	if err := e.Client.Get(t.Context(), key, &group); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%s has conditions %+v, expected Ready=True", key, group.Status.Conditions)
	}
	if !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionSimulated) {
		t.Errorf("%s does not say that the hardware is simulated", key)
	}
	if group.Spec.Span != span {
		t.Errorf("%s has span %s, expected %s", key, group.Spec.Span, span)
	}
	var nodes v1alpha1.CommTaskList
	if err := e.Client.List(t.Context(), &nodes, client.InNamespace(key.Namespace)); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i := range nodes.Items {
		if r := nodes.Items[i].Status.Run; r != nil && r.Verdict == v1alpha1.VerdictPass {
			passed++
		}
	}
	if len(nodes.Items) != nodeCount || passed != nodeCount {
		t.Errorf("%s has %d CommTasks of which %d passed, expected %d", key, len(nodes.Items), passed, nodeCount)
	}
	return &group
}

// checkDelete deletes a group and waits until nothing of it is left: no CommTask, run pod or published settings.
func (e *env) checkDelete(t *testing.T, key client.ObjectKey) {
	t.Helper()
	e.kubectl(t, "delete", "commgroup", key.Name, "--namespace", key.Namespace, "--timeout=90s")
	ours := client.HasLabels{v1alpha1.LabelGroupUID}
	eventually(t, shortDeadline, "everything of "+key.String()+" to be gone", func(ctx context.Context) error {
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, key, &group); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the group is still there (%w)", err)
		}
		var left []string
		for kind, list := range map[string]client.ObjectList{
			"CommTask": &v1alpha1.CommTaskList{}, "Pod": &corev1.PodList{}, "ConfigMap": &corev1.ConfigMapList{},
		} {
			options := []client.ListOption{ours}
			if kind == "CommTask" {
				options = nil // all there are
			}
			if err := e.Client.List(ctx, list, options...); err != nil {
				return err
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return err
			}
			for _, o := range items {
				if object, ok := o.(metav1.Object); ok {
					left = append(left, kind+" "+object.GetNamespace()+"/"+object.GetName())
				}
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, ", ") + " are still there")
		}
		return nil
	})
}

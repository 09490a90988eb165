//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const mirror = "registry.invalid/mirror"

// small is a run that takes seconds.
const small = `
apiVersion: rcclx.io/v1alpha1
kind: CommGroup
metadata: {name: small, namespace: default}
spec:
  ranksPerNode: 2
  members: {nodeSelector: {matchLabels: {feature.node.kubernetes.io/amd-gpu: "true"}}}
  runtime: {imagePullSecrets: [{name: mirror}]}
  dda: {mode: Disabled}
  lowPrecision: {mode: Disabled}
  benchmark: {variants: [Baseline], collectives: [AllReduce], minSizeBytes: 1048576, maxSizeBytes: 1048576, warmupIterations: 1, iterations: 3}
`

// testImages installs as a site without internet does: its own registry's name before each image, and the nodes reach
// no registry at all. A pod that needed any other image would not start.
func testImages(t *testing.T, e *env) {
	e.loadMirror(t)
	const values = "global.imageRegistry=" + mirror +
		",manager.image.tag=v9,agent.image.tag=v9,global.imagePullSecrets[0].name=mirror"
	e.installOperator(t, values)
	e.apply(t, small)
	seen := map[string]bool{}
	eventually(t, runDeadline, "CommGroup small to be Ready", func(ctx context.Context) error {
		if err := e.noteImages(ctx, seen); err != nil {
			return err
		}
		var group v1alpha1.CommGroup
		if err := e.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "small"}, &group); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady); c == nil ||
			c.Status != "True" {
			return fmt.Errorf("condition Ready is %+v", c)
		}
		return nil
	})
	var ran []string
	for image := range seen {
		ran = append(ran, image)
	}
	slices.Sort(ran)
	listed := strings.Fields(e.run(t, "hack/images/list.sh", "--set", values,
		"--set", "defaultRuntimeImage="+runtimeImage))
	if !slices.Equal(ran, listed) {
		t.Errorf("pods had the images %v, and the list for a mirror names %v", ran, listed)
	}
}

// loadMirror builds the images under the mirror's name and puts them onto the nodes.
func (e *env) loadMirror(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, filepath.Join(e.Repo, "hack/images/build.sh"), dir)
	build.Env = append(os.Environ(), "REGISTRY="+mirror, "TAG=v9")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("hack/images/build.sh: %v\n%s", err, out)
	}
	e.run(t, "bin/realcluster", "load", "--state-dir", e.StateDir, filepath.Join(dir, "commgroup-manager.tar"),
		filepath.Join(dir, "commgroup-agent.tar"))
}

// noteImages notes the images of the operator's pods and of the groups', init containers included.
func (e *env) noteImages(ctx context.Context, seen map[string]bool) error {
	for _, namespace := range []string{operatorNamespace, "default"} {
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			for _, c := range slices.Concat(pods.Items[i].Spec.InitContainers, pods.Items[i].Spec.Containers) {
				seen[c.Image] = true
			}
		}
	}
	return nil
}

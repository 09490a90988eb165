//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	operatorNamespace = "commgroup-system"
	releaseName       = "commgroup"
	chartPath         = "charts/commgroup-operator"
	// runtimeImage stands for a user's ROCm image; agentImage and managerImage are the product's.
	runtimeImage = "rocm-sim:dev"
	nodeCount    = 3
	// shortDeadline is for a command or a change that takes seconds on a quiet machine; runDeadline for a run with its
	// pods. A machine with two processors and much else to do needs a multiple.
	shortDeadline = 2 * time.Minute
	runDeadline   = 15 * time.Minute
	pollInterval  = 500 * time.Millisecond
)

// env is the cluster that the steps share.
type env struct {
	Repo, Kubeconfig, StateDir string
	Config                     *rest.Config
	// Client knows the core kinds and ours; Kube gives logs and the like.
	Client client.WithWatch
	Kube   kubernetes.Interface
}

// newEnv connects to the cluster that hack/e2e.sh started.
func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{Kubeconfig: os.Getenv("KUBECONFIG"), StateDir: os.Getenv("E2E_STATE_DIR")}
	if e.Kubeconfig == "" || e.StateDir == "" {
		t.Fatal("KUBECONFIG or E2E_STATE_DIR is not set: run this by `make test-e2e`, which starts the cluster")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	e.Repo = repo
	for _, tool := range []string{"kubectl", "helm", "kubectl-commgroup"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: `make test-e2e` puts bin/ and the folder of kubectl into PATH", err)
		}
	}
	if e.Config, err = clientcmd.BuildConfigFromFlags("", e.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	if e.Client, err = client.NewWithWatch(e.Config, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	if e.Kube, err = kubernetes.NewForConfig(e.Config); err != nil {
		t.Fatal(err)
	}
	return e
}

// try runs a command in the repository and gives what it printed on standard output.
func (e *env) try(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = e.Repo, strings.NewReader(stdin), 5*time.Second
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: its deadline passed", err)
		}
		return out.String(), fmt.Errorf("%s %s: %w\n%s\n%s",
			name, strings.Join(args, " "), err, strings.TrimSpace(out.String()), strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// run runs a command, within shortDeadline, that has to succeed.
func (e *env) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shortDeadline)
	defer cancel()
	out, err := e.try(ctx, "", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl and helm run those tools against the cluster.
func (e *env) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return e.run(t, "kubectl", args...)
}

func (e *env) helm(t *testing.T, args ...string) {
	t.Helper()
	e.run(t, "helm", args...)
}

// apply applies manifests by the server.
func (e *env) apply(t *testing.T, manifests string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shortDeadline)
	defer cancel()
	if _, err := e.try(ctx, manifests, "kubectl", "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// eventually asks until the answer is nil; when the deadline passes, the last answer is the test's failure.
func eventually(t *testing.T, deadline time.Duration, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	last := errors.New("nothing was answered")
	for {
		if err := ask(ctx); err == nil {
			return
		} else if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", deadline, what, last)
		case <-time.After(pollInterval):
		}
	}
}

// installOperator installs the chart as the quickstart does, with more values, and waits until the managers are
// available. What it installed is removed when the step ends, the CRDs and so all groups as well.
func (e *env) installOperator(t *testing.T, values ...string) {
	t.Helper()
	args := []string{"install", releaseName, chartPath, "--namespace", operatorNamespace, "--create-namespace",
		"--wait", "--timeout", "2m", "--set", "defaultRuntimeImage=" + runtimeImage + ",monitor.intervalSeconds=5"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	t.Cleanup(func() { e.removeOperator(t) })
	e.helm(t, args...)
}

// removeOperator takes all away that a step may have left: the steps share the cluster, not what is on it.
func (e *env) removeOperator(t *testing.T) {
	t.Helper()
	if t.Failed() {
		e.dump(t)
	}
	// t.Context has ended in a cleanup.
	ctx, cancel := context.WithTimeout(context.Background(), 2*shortDeadline)
	defer cancel()
	for _, args := range [][]string{
		{"kubectl", "delete", "commgroups", "--all", "--all-namespaces", "--ignore-not-found", "--timeout=90s"},
		{"helm", "uninstall", releaseName, "--namespace", operatorNamespace, "--ignore-not-found", "--wait",
			"--timeout", "1m"},
		{"kubectl", "delete", "crd", "commgroups.rcclx.io", "commtasks.rcclx.io", "commruns.rcclx.io",
			"commnodes.rcclx.io", "--ignore-not-found", "--timeout=60s"},
		{"kubectl", "delete", "namespace", operatorNamespace, "--ignore-not-found", "--timeout=90s"},
	} {
		if _, err := e.try(ctx, "", args[0], args[1:]...); err != nil &&
			!strings.Contains(err.Error(), "the server doesn't have a resource type") {
			t.Errorf("clean up: %v", err)
		}
	}
}

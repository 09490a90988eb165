// Package chart tests the Helm chart with the real Helm, which is built from its Go module.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/internal/testenv"
)

const (
	release       = "commgroup"
	namespace     = "commgroup-system"
	prometheusAPI = "monitoring.coreos.com/v1"
	buildDeadline = 15 * time.Minute
	helmDeadline  = time.Minute
)

// helmPath is the real Helm, built where it is not there or another version than hack/helm names.
var helmPath = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildDeadline)
	defer cancel()
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(testenv.Root(), "hack", "tool.sh"), "helm")
	cmd.Stderr = &problems
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build Helm from hack/helm: %w\n%s", err, problems.String())
	}
	return strings.TrimSpace(string(path)), nil
})

// helm runs Helm apart from any cluster and from the caller's own settings.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), helmDeadline)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + os.DevNull}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New(strings.TrimSpace(problems.String())))
	}
	return out.String(), nil
}

func chartPath() string { return filepath.Join(testenv.Root(), "charts", "commgroup-operator") }

// render is helm template with values and more arguments.
func render(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return helm(t, append([]string{"template", release, chartPath(), "--namespace", namespace,
		"--api-versions", prometheusAPI, "--values", file}, args...)...)
}

// document is one rendered object.
type document struct {
	source, text string
	object       *unstructured.Unstructured
}

func (d *document) name() string {
	return strings.Trim(d.object.GetKind()+" "+d.object.GetNamespace()+"/"+d.object.GetName(), "/")
}

// documents splits what Helm printed.
func documents(t *testing.T, rendered string) []document {
	t.Helper()
	var out []document
	for text := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		d := document{text: strings.TrimSpace(text), object: &unstructured.Unstructured{}}
		first, _, _ := strings.Cut(d.text, "\n")
		d.source = strings.TrimPrefix(first, "# Source: commgroup-operator/templates/")
		if err := yaml.UnmarshalStrict([]byte(d.text), &d.object.Object); err != nil {
			t.Fatalf("%s: %v\n%s", d.source, err, d.text)
		}
		if len(d.object.Object) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// valueSets are the main ways to install, by name.
func valueSets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "values", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no value sets in testdata/values: %v", err)
	}
	sets := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = string(data)
	}
	return sets
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestOutputsAreObjects: what status and results write for programs are the CommGroup and the CommRun, as the API has
// them.
func TestOutputsAreObjects(t *testing.T) {
	c := newCLI(t, nil)
	for _, output := range []string{"json", "yaml"} {
		out, errs, code := c.run("status", "mi300x", "-o", output)
		var got, want v1alpha1.CommGroup
		if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil || code != exitNotReady {
			t.Fatalf("status -o %s: exit code %d, %s, %v", output, code, errs, err)
		}
		c.get(&want, "mi300x")
		if want.TypeMeta = groupKind; !cmp.Equal(want, got) {
			t.Errorf("status -o %s differs from the CommGroup (-want +got)\n%s", output, cmp.Diff(want, got))
		}
	}
	out, errs, code := c.run("results", "mi300x", "-o", "json")
	var got, want v1alpha1.CommRun
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("results -o json: exit code %d, %s, %v", code, errs, err)
	}
	c.get(&want, "mi300x-1")
	want.APIVersion, want.Kind = v1alpha1.GroupVersion.String(), "CommRun"
	if !cmp.Equal(want, got) || len(got.Status.Libraries) == 0 || got.Status.Members == nil {
		t.Errorf("results -o json differs from the CommRun (-want +got)\n%s", cmp.Diff(want, got))
	}
	whole := out
	if out, _, _ = c.run("results", "mi300x", "--run", "1-1", "-o", "json"); out != whole {
		t.Error("results --run 1-1 -o json is another CommRun than that of the last run")
	}
	out, _, _ = c.run("results", "mi300x", "-o", "json", "--variant", "DDA", "--collective", "AllReduce")
	var part v1alpha1.CommRun
	err := json.Unmarshal([]byte(out), &part)
	if r := part.Status.Results; err != nil || len(r) != 1 || r[0].Variant != v1alpha1.VariantDDA {
		t.Errorf("of one variant: %v, %+v", err, r)
	}
}

// TestResultsWhileARunRepeats: until a repeat ends, the results are those of the run before it.
func TestResultsWhileARunRepeats(t *testing.T) {
	group, _ := saved(t)
	_, repeat := group.Objects()
	repeat.Name = "mi300x-2"
	repeat.Status = v1alpha1.CommRunStatus{GroupRunStatus: v1alpha1.GroupRunStatus{
		ID: "1-2", Number: 2, Trigger: state.TriggerScheduled, Phase: v1alpha1.RunPhaseRunning,
		SpecHash: group.Status.Run.SpecHash, MembersHash: group.Status.Run.MembersHash,
	}}
	c := newCLI(t, nil, repeat)
	out, errs, code := c.run("results", "mi300x", "-o", "json")
	var got v1alpha1.CommRun
	err := json.Unmarshal([]byte(out), &got)
	if err != nil || code != exitOK || got.Name != "mi300x-1" || len(got.Status.Results) == 0 {
		t.Errorf("exit code %d, %s, %v: results of %s, want those of mi300x-1", code, errs, err, got.Name)
	}
	out, errs, code = c.run("results", "mi300x", "--collective", "AllReduce")
	if code != exitOK || !strings.Contains(out, "BASELINE") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	if out, _, _ = c.run("compare", "--list", "mi300x"); strings.Contains(out, "1-2") || !strings.Contains(out, "1-1") {
		t.Errorf("runs that can be compared, while 1-2 goes on:\n%s", out)
	}
}

// get reads an object of the cluster.
func (c *cli) get(o client.Object, name string) {
	c.t.Helper()
	if err := c.options.client.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o); err != nil {
		c.t.Fatal(err)
	}
}

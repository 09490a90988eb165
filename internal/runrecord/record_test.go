package runrecord

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func commRun() *v1alpha1.CommRun {
	return &v1alpha1.CommRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pool-5"},
		Spec:       v1alpha1.CommRunSpec{GroupName: "pool"},
		Status: v1alpha1.CommRunStatus{
			GroupRunStatus: v1alpha1.GroupRunStatus{ID: "2-5", Number: 5, Phase: v1alpha1.RunPhaseFinished,
				Verdict: v1alpha1.VerdictPass},
			RunResults: v1alpha1.RunResults{Results: []v1alpha1.GroupResultSeries{{
				Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				SizeBytes:          []int64{1024, 4096},
				LatencyNanoseconds: []int64{1, 2}, BusBandwidthMBps: []int64{4, 5}, MinBusBandwidthMBps: []int64{3, 4},
				NoisePercent: []int32{1, -1},
			}}},
		},
	}
}

func TestRead(t *testing.T) {
	want := commRun()
	plain, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(bytes.NewReader(plain)); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
}

func TestReadRefuses(t *testing.T) {
	const run = `"apiVersion":"rcclx.io/v1alpha1","kind":"CommRun"`
	for name, tc := range map[string]struct{ text, want string }{
		"empty":          {"", "not a CommRun"},
		"another object": {`{"kind":"Pod"}`, `expected kind CommRun, got "Pod"`},
		"newer":          {`{"apiVersion":"rcclx.io/v2","kind":"CommRun"}`, "expected a CommRun of rcclx.io/v1alpha1"},
		"no run":         {`{` + run + `}`, "no status.id"},
		"damaged": {`{` + run + `,"status":{"id":"1-1","results":[{"sizeBytes":[1],"busBandwidthMBps":[1,2]}]}}`,
			"more figures than sizes"},
		"endless": {strings.Repeat(" ", maxJSONBytes+1), "no CommRun is so large"},
	} {
		if _, err := Read(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	plain, err := json.Marshal(commRun())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"apiVersion":"rcclx.io/v1alpha1","kind":"CommRun","status":{"id":"1-1","results":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Status.ID == "" || r.Kind != Kind {
			t.Fatalf("taken: %+v", r)
		}
		for i := range r.Status.Results {
			if s := &r.Status.Results[i]; len(s.NoisePercent) > len(s.SizeBytes) ||
				len(s.BusBandwidthMBps) > len(s.SizeBytes) {
				t.Fatalf("taken: %+v", s)
			}
		}
	})
}

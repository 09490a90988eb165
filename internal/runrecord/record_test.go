package runrecord

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func group() *v1alpha1.CommGroup {
	return &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pool", Generation: 2},
		Spec:       v1alpha1.CommGroupSpec{RanksPerNode: 8, Span: v1alpha1.SpanNode, DDA: v1alpha1.DDASpec{Mode: v1alpha1.FeaturePreferred}},
		Status: v1alpha1.CommGroupStatus{
			Origin:  v1alpha1.OriginSimulated,
			Run:     &v1alpha1.GroupRunStatus{StartTime: metav1.NewTime(time.Unix(1e9, 0)), ID: "2-5", Number: 5, Since: 4, Generation: 2, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass},
			History: []v1alpha1.RunSummary{{ID: "2-5", GPUMinutes: 7}, {ID: "2-4"}},
			Results: []v1alpha1.GroupResultSeries{{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				SizeBytes: []int64{1024, 4096, 16384}, LatencyNanoseconds: []int64{1, 2, 3}, BusBandwidthMBps: []int64{4, 5, 6}}},
			Span: &v1alpha1.SpanStatus{RunID: "2-4", Results: []v1alpha1.SpanResultSeries{{Dimension: "group"}}},
		},
	}
}

func node(runID string, noise ...int32) v1alpha1.CommTask {
	return v1alpha1.CommTask{
		Spec: v1alpha1.CommTaskSpec{Run: &v1alpha1.RunAssignment{ID: runID}},
		Status: v1alpha1.CommTaskStatus{Run: &v1alpha1.NodeRunStatus{ID: runID, Phase: v1alpha1.NodeRunFinished, Library: &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3"},
			Results: []v1alpha1.ResultSeries{{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
				Placement: v1alpha1.OutOfPlace, SizeBytes: []int64{1024, 4096}, NoisePercent: noise}}}},
	}
}

func TestOf(t *testing.T) {
	stale, older, running := node("2-5", 90, 90), node("2-3", 90, 90), node("2-5", 90, 90)
	stale.Spec.Run.Stale = &v1alpha1.RunStaleness{}
	running.Status.Run.Phase = v1alpha1.NodeRunRunning
	// 2-4 counts: 2-5 is a run of some nodes since 2-4.
	r := Of(group(), []v1alpha1.CommTask{node("2-5", 1, 4), node("2-4", 3, 6), node("2-5", 2), stale, older, running})
	if want := []int32{2, 6, -1}; !slices.Equal(r.Status.Results[0].NoisePercent, want) {
		t.Errorf("noise %v, want %v", r.Status.Results[0].NoisePercent, want)
	}
	if len(r.Status.Libraries) != 1 || r.Status.Libraries[0].Nodes != 3 {
		t.Errorf("libraries %+v, want one on the 3 nodes whose results count", r.Status.Libraries)
	}
	if r.Status.Span != nil {
		t.Error("results over several nodes are of an older run")
	}
	if r.Status.Summary == nil || r.Status.Summary.GPUMinutes != 7 {
		t.Errorf("summary %+v, want that of the run", r.Status.Summary)
	}
	if r.Spec.Template == nil || r.Spec.Template.RanksPerNode != 8 {
		t.Errorf("template %+v", r.Spec.Template)
	}

	changed := group()
	changed.Generation = 3
	if r := Of(changed, nil); r.Spec.Template != nil || r.Status.Results[0].NoisePercent != nil {
		t.Errorf("of a changed spec: template %+v, noise %v; want neither", r.Spec.Template, r.Status.Results[0].NoisePercent)
	}
	if r := Of(&v1alpha1.CommGroup{}, nil); r != nil {
		t.Error("a record without a run")
	}
}

func TestRead(t *testing.T) {
	want := Of(group(), []v1alpha1.CommTask{node("2-5", 1, 4)})
	plain, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(bytes.NewReader(plain)); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
	if want.Name != "pool-5" || want.Namespace != "team" || want.Spec.ID != "2-5" {
		t.Errorf("name %s/%s, id %s", want.Namespace, want.Name, want.Spec.ID)
	}
}

func TestReadRefuses(t *testing.T) {
	const run = `"apiVersion":"rcclx.io/v1alpha1","kind":"CommRun"`
	for name, tc := range map[string]struct{ text, want string }{
		"empty":          {"", "not a CommRun"},
		"another object": {`{"kind":"Pod"}`, `expected kind CommRun, got "Pod"`},
		"newer":          {`{"apiVersion":"rcclx.io/v2","kind":"CommRun"}`, "expected a CommRun of rcclx.io/v1alpha1"},
		"no run":         {`{` + run + `}`, "no spec.id"},
		"damaged":        {`{` + run + `,"spec":{"id":"1-1"},"status":{"results":[{"sizeBytes":[1],"busBandwidthMBps":[1,2]}]}}`, "more figures than sizes"},
		"endless":        {strings.Repeat(" ", maxJSONBytes+1), "no CommRun is so large"},
	} {
		if _, err := Read(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	plain, err := json.Marshal(Of(group(), []v1alpha1.CommTask{node("2-5", 1, 4)}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"apiVersion":"rcclx.io/v1alpha1","kind":"CommRun","spec":{"id":"1-1"},"status":{"results":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Spec.ID == "" || r.Kind != Kind {
			t.Fatalf("taken: %+v", r)
		}
		for i := range r.Status.Results {
			if s := &r.Status.Results[i]; len(s.NoisePercent) > len(s.SizeBytes) || len(s.BusBandwidthMBps) > len(s.SizeBytes) {
				t.Fatalf("taken: %+v", s)
			}
		}
	})
}

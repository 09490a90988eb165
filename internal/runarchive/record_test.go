package runarchive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func group() *v1alpha1.CommGroup {
	return &v1alpha1.CommGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pool", Generation: 2},
		Spec:       v1alpha1.CommGroupSpec{RanksPerNode: 8, Span: v1alpha1.SpanNode, DDA: v1alpha1.DDASpec{Mode: v1alpha1.FeaturePreferred}},
		Status: v1alpha1.CommGroupStatus{
			Origin:  v1alpha1.OriginSimulated,
			Run:     &v1alpha1.GroupRunStatus{ID: "2-5", Number: 5, Since: 4, Generation: 2, Phase: v1alpha1.RunPhaseFinished, Verdict: v1alpha1.VerdictPass},
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

func TestFromStatus(t *testing.T) {
	stale, older, running := node("2-5", 90, 90), node("2-3", 90, 90), node("2-5", 90, 90)
	stale.Spec.Run.Stale = &v1alpha1.RunStaleness{}
	running.Status.Run.Phase = v1alpha1.NodeRunRunning
	// 2-4 counts: 2-5 is a run of some nodes since 2-4.
	r := FromStatus(group(), []v1alpha1.CommTask{node("2-5", 1, 4), node("2-4", 3, 6), node("2-5", 2), stale, older, running})
	if want := []int32{2, 6, -1}; !slices.Equal(r.Results[0].NoisePercent, want) {
		t.Errorf("noise %v, want %v", r.Results[0].NoisePercent, want)
	}
	if len(r.Libraries) != 1 || r.Libraries[0].Nodes != 3 {
		t.Errorf("libraries %+v, want one on the 3 nodes whose results count", r.Libraries)
	}
	if r.Span != nil {
		t.Error("results over several nodes are of an older run")
	}
	if r.Summary == nil || r.Summary.GPUMinutes != 7 {
		t.Errorf("summary %+v, want that of the run", r.Summary)
	}
	if r.Requested == nil || r.Requested.RanksPerNode != 8 {
		t.Errorf("requested %+v", r.Requested)
	}

	changed := group()
	changed.Generation = 3
	if r := FromStatus(changed, nil); r.Requested != nil || r.Results[0].NoisePercent != nil {
		t.Errorf("of a changed spec: requested %+v, noise %v; want neither", r.Requested, r.Results[0].NoisePercent)
	}
	if r := FromStatus(&v1alpha1.CommGroup{}, nil); r != nil {
		t.Error("a record without a run")
	}
}

func TestEncodeDecode(t *testing.T) {
	want := FromStatus(group(), []v1alpha1.CommTask{node("2-5", 1, 4)})
	packed, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(want)
	if err != nil || !bytes.Equal(packed, again) {
		t.Error("one record gives different bytes: the ConfigMap would be written again and again")
	}
	got, err := FromConfigMap(&corev1.ConfigMap{BinaryData: map[string][]byte{Key: packed}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	plain, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = Read(bytes.NewReader(plain)); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("as plain JSON: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":          {"", "not a record"},
		"another object": {`{"kind":"Pod"}`, "no version"},
		"newer":          {`{"version":2,"run":{"id":"1-1"}}`, "newer kubectl commgroup"},
		"no run":         {`{"version":1}`, "names no run"},
		"damaged":        {`{"version":1,"run":{"id":"1-1"},"results":[{"sizeBytes":[1],"busBandwidthMBps":[1,2]}]}`, "more figures than sizes"},
		"endless":        {strings.Repeat(" ", maxJSONBytes+1), "no record of a run is so large"},
	} {
		if _, err := Read(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := FromConfigMap(&corev1.ConfigMap{}); err == nil || !strings.Contains(err.Error(), Key) {
		t.Errorf("a ConfigMap without a record: %v", err)
	}
}

// TestTheLargestRecordFits: all series, sizes and digits that a status can have, without much for gzip to find.
func TestTheLargestRecordFits(t *testing.T) {
	g := group()
	g.Status.Results = nil
	n := node("2-5")
	n.Status.Run.Results = nil
	x := uint64(1)
	random := func() int64 { x = x*6364136223846793005 + 1442695040888963407; return int64(x >> 24) }
	for i := range 72 {
		s := v1alpha1.GroupResultSeries{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.Collective(fmt.Sprint("C", i)), SlowestNode: strings.Repeat("n", 253)}
		one := v1alpha1.ResultSeries{Variant: s.Variant, Collective: s.Collective}
		for j := range 40 {
			size := int64(1) << j
			s.SizeBytes, one.SizeBytes = append(s.SizeBytes, size), append(one.SizeBytes, size)
			s.LatencyNanoseconds, s.BusBandwidthMBps = append(s.LatencyNanoseconds, random()), append(s.BusBandwidthMBps, random())
			s.MinBusBandwidthMBps, one.NoisePercent = append(s.MinBusBandwidthMBps, random()), append(one.NoisePercent, int32(random()%101))
		}
		g.Status.Results = append(g.Status.Results, s)
		n.Status.Run.Results = append(n.Status.Run.Results, one)
	}
	packed, err := Encode(FromStatus(g, []v1alpha1.CommTask{n}))
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) < 10_000 {
		t.Errorf("only %d bytes: the test makes no large record", len(packed))
	}
}

func FuzzRead(f *testing.F) {
	plain, err := json.Marshal(FromStatus(group(), []v1alpha1.CommTask{node("2-5", 1, 4)}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"version":1,"run":{"id":"1-1"},"results":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if r.Run == nil || r.Run.ID == "" || r.Version != Version {
			t.Fatalf("taken: %+v", r)
		}
		for i := range r.Results {
			if s := &r.Results[i]; len(s.NoisePercent) > len(s.SizeBytes) || len(s.BusBandwidthMBps) > len(s.SizeBytes) {
				t.Fatalf("taken: %+v", s)
			}
		}
	})
}

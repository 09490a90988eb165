package compare

import (
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// run is a record with one series of one latency a size, and noise.
func run(noise int32, latencies ...int64) *v1alpha1.CommRun {
	s := v1alpha1.GroupResultSeries{Variant: v1alpha1.VariantBaseline, Collective: v1alpha1.AllReduce,
		Datatype: v1alpha1.BFloat16, Nodes: 4}
	for i, l := range latencies {
		s.SizeBytes = append(s.SizeBytes, 1024<<(2*i))
		s.LatencyNanoseconds = append(s.LatencyNanoseconds, l)
		s.BusBandwidthMBps = append(s.BusBandwidthMBps, 1_000_000_000/l)
		s.NoisePercent = append(s.NoisePercent, noise)
	}
	return &v1alpha1.CommRun{
		Spec: v1alpha1.CommRunSpec{GroupName: "pool"},
		Status: v1alpha1.CommRunStatus{
			GroupRunStatus: v1alpha1.GroupRunStatus{ID: "1-1", Number: 1, Verdict: v1alpha1.VerdictPass},
			RunResults: v1alpha1.RunResults{
				Results: []v1alpha1.GroupResultSeries{s},
				Inventory: []v1alpha1.InventoryItem{{Property: "GPUModel", Value: "MI300X", Nodes: 4},
					{Property: "ROCmVersion", Value: "6.4.1", Nodes: 4}},
			},
			Template: &v1alpha1.RunTemplate{RanksPerNode: 8},
			Origin:   v1alpha1.OriginHardware,
		},
	}
}

func TestOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b *v1alpha1.CommRun
		want Outcome
	}{
		"the same":               {run(1, 1000), run(1, 1000), Even},
		"within the least noise": {run(0, 1000), run(0, 1030), Even},
		"slower":                 {run(0, 1000), run(0, 1040), Slower},
		"faster":                 {run(0, 1000), run(0, 950), Faster},
		"within both's noise":    {run(4, 1000), run(4, 1080), Even},
		"past both's noise":      {run(4, 1000), run(4, 1100), Slower},
		"noise not told":         {run(-1, 1000), run(1, 1050), Even},
		"noise not told, more":   {run(-1, 1000), run(1, 1060), Slower},
		"too noisy":              {run(13, 1000), run(13, 2000), Noisy},
		"no longer measured":     {run(1, 1000), run(1), OnlyA},
		"new":                    {run(1), run(1, 1000), OnlyB},
	} {
		c := Runs(tc.a, tc.b, Filter{})
		if len(c.Series) != 1 || len(c.Series[0].Rows) != 1 || c.Series[0].Rows[0].Outcome != tc.want {
			t.Errorf("%s: %+v, want %s", name, c.Series, tc.want)
		}
	}
	// Without latencies the bandwidths tell; without either nothing does, and nothing is even.
	a, b := run(0, 1000), run(0, 2000)
	a.Status.Results[0].LatencyNanoseconds, b.Status.Results[0].LatencyNanoseconds = nil, nil
	if r := Runs(a, b, Filter{}).Series[0].Rows[0]; r.Outcome != Slower || *r.ChangePercent != -50 {
		t.Errorf("by bandwidth: %+v", r)
	}
	a.Status.Results[0].BusBandwidthMBps[0] = 0
	if r := Runs(a, b, Filter{}).Series[0].Rows[0]; r.Outcome != Noisy || r.ChangePercent != nil {
		t.Errorf("from zero: %+v, want nothing told", r)
	}
}

func TestRegressions(t *testing.T) {
	failed := run(0, 1000)
	failed.Status.Verdict = v1alpha1.VerdictFail
	wrong := run(0, 1000)
	wrong.Status.Results[0].WrongElements = 3
	other := run(0, 1000)
	other.Status.Results[0].Collective = v1alpha1.AllGather
	for name, tc := range map[string]struct {
		b    *v1alpha1.CommRun
		want string
	}{
		"as good":           {run(0, 1000), ""},
		"a little slower":   {run(0, 1080), ""},
		"slower":            {run(0, 1200), "AllReduce BFloat16 Baseline 1024 B: -16.7 %"},
		"faster":            {run(0, 500), ""},
		"not measured":      {run(0), "not measured in run B"},
		"too noisy to tell": {run(30, 2000), "too much to tell"},
		"failed":            {failed, "verdict Fail, Pass before"},
		"wrong elements":    {wrong, "3 elements wrong, 0 before"},
		"nothing in common": {other, "no measurement that both runs have"},
	} {
		got := strings.Join(Runs(run(0, 1000), tc.b, Filter{}).Regressions(10), "; ")
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestDifferences(t *testing.T) {
	b := run(0, 1000)
	b.Status.Origin = v1alpha1.OriginSimulated
	b.Status.Inventory[0].Value, b.Status.Inventory[1].Value = "MI355X", "7.0.2"
	b.Status.Template.RanksPerNode = 4
	b.Status.Template.Runtime.Env = []v1alpha1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}}
	b.Status.Settings = []v1alpha1.SettingStatus{{Name: "dda.AllReduce", Effective: v1alpha1.EffectiveInEffect,
		Reason: "Active", Verified: v1alpha1.VerifiedConfirmed}}
	c := Runs(run(0, 1000), b, Filter{})
	for _, want := range []Difference{{"origin of the figures", "Hardware", "Simulated"},
		{"GPUModel", "MI300X", "MI355X"}, {"ranks a node", "8", "4"}} {
		if !slices.Contains(c.Kinds, want) {
			t.Errorf("kinds %v lack %v", c.Kinds, want)
		}
	}
	for _, want := range []Difference{{"ROCmVersion", "6.4.1", "7.0.2"}, {"env NCCL_DEBUG", "not set", `"INFO"`},
		{"setting dda.AllReduce", "not told", "InEffect (Active), confirmed"}} {
		if !slices.Contains(c.Changes, want) {
			t.Errorf("changes %v lack %v", c.Changes, want)
		}
	}
	if same := Runs(run(0, 1000), run(0, 1000), Filter{}); len(same.Kinds)+len(same.Changes) != 0 {
		t.Errorf("of one run: %v %v", same.Kinds, same.Changes)
	}
}

// TestSpanOfOneShapeOnly: communicators of other ranks or nodes are not compared.
func TestSpanOfOneShapeOnly(t *testing.T) {
	span := func(nodes int32) *v1alpha1.CommRun {
		r := run(0, 1000)
		r.Status.Span = &v1alpha1.SpanStatus{Results: []v1alpha1.SpanResultSeries{{Dimension: "group",
			Ranks: 8 * nodes, Nodes: nodes, Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16,
			SizeBytes: []int64{1024}, LatencyNanoseconds: []int64{1000}, BusBandwidthMBps: []int64{1000}}}}
		return r
	}
	c := Runs(span(4), span(8), Filter{})
	counts := c.Counts()
	if counts[Even] != 1 || counts[OnlyA] != 1 || counts[OnlyB] != 1 {
		t.Errorf("outcomes %v, want the node's own even, and the groups' on one side each", counts)
	}
	if c := Runs(span(4), span(4), Filter{Collectives: []string{"allgather"}}); len(c.Series) != 0 {
		t.Errorf("filtered: %v", c.Series)
	}
	if got := Runs(span(4), span(4), Filter{Variants: []string{"DDA"}}).Verdict(); !strings.Contains(got,
		"no measurement in common") {
		t.Error(got)
	}
}

package executor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// described is a step in one line.
func described(s rank.Step) string {
	var data, sizes []string
	for _, d := range s.Data {
		data = append(data, string(d))
	}
	for _, n := range s.SizesBytes {
		sizes = append(sizes, fmt.Sprint(n))
	}
	text := fmt.Sprintf("%s %s %s: %s", s.Collective, s.Datatype, strings.Join(sizes, ","), strings.Join(data, "+"))
	if s.Placement == rcclx.InPlace {
		text += " in place"
	}
	if s.Kind == rank.StepPairProbe {
		text = "pairs"
	}
	return text
}

func TestPlanSteps(t *testing.T) {
	const m16, m64 = 16 << 20, 64 << 20
	for name, tc := range map[string]struct {
		change func(*api.RunPlan)
		want   map[rcclx.Variant][]string
	}{
		"FP8 is checked on models' data from its least size": {nil, map[rcclx.Variant][]string{
			rcclx.Baseline: {"AllReduce BFloat16 1024,16777216: Exact",
				"AllReduce BFloat16 67108864: Exact+Gradients", "pairs"},
			rcclx.DDA: {"AllReduce BFloat16 1024,16777216,67108864: Exact"},
			rcclx.LowPrecision: {"AllReduce BFloat16 1024: Rounding",
				"AllReduce BFloat16 16777216,67108864: Rounding+Gradients+Activations",
				"AllReduce BFloat16 16777218,16778240: Rounding"},
		}},
		"without FP8 nothing changes": {func(p *api.RunPlan) { p.Variants = p.Variants[:2] },
			map[rcclx.Variant][]string{
				rcclx.Baseline: {"AllReduce BFloat16 1024,16777216,67108864: Exact", "pairs"},
				rcclx.DDA:      {"AllReduce BFloat16 1024,16777216,67108864: Exact"},
			}},
		"below FP8's least size there is no hazard": {func(p *api.RunPlan) {
			p.Variants, p.SizesBytes = p.Variants[2:], []int64{1024}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline:     {"AllReduce BFloat16 1024: Exact", "pairs"},
			rcclx.LowPrecision: {"AllReduce BFloat16 1024: Rounding"},
		}},
		"FP8 of another collective": {func(p *api.RunPlan) {
			p.Variants, p.LowPrecision.Collectives = p.Variants[2:], []string{"AllGather"}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline:     {"AllReduce BFloat16 1024,16777216,67108864: Exact", "pairs"},
			rcclx.LowPrecision: {"AllReduce BFloat16 1024,16777216,67108864: Exact"},
		}},
		"in place where it exists, checked on models' data once": {func(p *api.RunPlan) {
			p.Variants, p.SizesBytes = p.Variants[2:], []int64{m16}
			p.Collectives = []api.Collective{api.AllGather, api.AllToAll, api.Broadcast}
			p.Placements = []api.Placement{api.OutOfPlace, api.InPlace}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline: {"AllGather BFloat16 16777216: Exact+Gradients",
				"AllGather BFloat16 16777216: Exact in place", "AllToAll BFloat16 16777216: Exact+Gradients",
				"Broadcast BFloat16 16777216: Exact", "Broadcast BFloat16 16777216: Exact in place", "pairs"},
			rcclx.LowPrecision: {"AllGather BFloat16 16777216: Rounding+Gradients+Activations",
				"AllGather BFloat16 16777216: Rounding in place",
				"AllToAll BFloat16 16777216: Rounding+Gradients+Activations", "Broadcast BFloat16 16777216: Exact",
				"Broadcast BFloat16 16777216: Exact in place"},
		}},
		"only in place": {func(p *api.RunPlan) {
			p.Variants, p.SizesBytes = p.Variants[2:], []int64{m64}
			p.Collectives, p.Placements = []api.Collective{api.ReduceScatter, api.SendRecv},
				[]api.Placement{api.InPlace}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline: {"ReduceScatter BFloat16 67108864: Exact+Gradients in place", "pairs"},
			rcclx.LowPrecision: {"ReduceScatter BFloat16 67108864: Rounding+Gradients+Activations in place",
				"ReduceScatter BFloat16 16777232,16778240: Rounding in place"},
		}},
		"sizes that leave a rank without an element": {func(p *api.RunPlan) {
			p.Variants, p.SizesBytes = nil, []int64{8, 64}
			p.Collectives, p.Datatypes = []api.Collective{api.AllGather, api.Reduce},
				[]api.Datatype{api.Float64, api.Int8}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline: {"AllGather Float64 64: Exact", "AllGather Int8 8,64: Exact", "Reduce Float64 8,64: Exact",
				"Reduce Int8 8,64: Exact", "pairs"},
		}},
		"a size asked for that is a hazard is not tried twice": {func(p *api.RunPlan) {
			p.Variants, p.SizesBytes = p.Variants[2:], []int64{16777218}
		}, map[rcclx.Variant][]string{
			rcclx.Baseline: {"AllReduce BFloat16 16777218: Exact+Gradients", "pairs"},
			rcclx.LowPrecision: {"AllReduce BFloat16 16777218: Rounding+Gradients+Activations",
				"AllReduce BFloat16 16778240: Rounding"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := defaultPlan()
			plan.Collectives, plan.SizesBytes = plan.Collectives[:1], []int64{1024, m16, m64}
			if tc.change != nil {
				tc.change(&plan)
			}
			got := map[rcclx.Variant][]string{}
			for _, v := range Plan(plan, 8) {
				for _, s := range v.Steps {
					got[v.Variant] = append(got[v.Variant], described(s))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestScopeKnowsFourCollectives: DDA and FP8 are not asked about for collectives that can have neither.
func TestScopeKnowsFourCollectives(t *testing.T) {
	plan := defaultPlan()
	plan.Collectives = []api.Collective{api.Broadcast, api.AllReduce}
	if got := ScopeOf(plan, 8).Collectives; !slices.Equal(got, []rcclx.Collective{rcclx.AllReduce}) {
		t.Errorf("scope %v", got)
	}
	plan.Collectives = plan.Collectives[:1]
	if got := JudgeSettings(rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLXDev}, plan, Table{Ranks: 8}); len(got) != 0 {
		t.Errorf("settings of collectives that were not asked for: %+v", got)
	}
	// The GPU counts: AMD's DDA is for two of them.
	amd := plan
	amd.Collectives, amd.DDA.AllReduceTreeMaxBytes = []api.Collective{api.AllReduce}, ptr.To(int64(1<<30))
	for name, want := range map[string]api.EffectiveState{"AMD Instinct MI300X": api.EffectiveInEffect,
		"AMD Instinct MI250X": api.EffectiveNotInEffect} {
		lib := rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLDDA, DeviceName: name}
		if got := JudgeSettings(lib, amd, Table{Ranks: 8}); len(got) == 0 || got[0].Name != "dda.AllReduce" ||
			got[0].Effective != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	plan.DDA.Mode = api.FeatureRequired
	if unmet := Unmet(plan, nil, nil); len(unmet) != 1 ||
		!strings.Contains(unmet[0], "no collective that was measured") {
		t.Errorf("unmet: %v", unmet)
	}
}

func TestRepeatStep(t *testing.T) {
	for want, at := range map[string]*rank.Position{
		"AllGather Float32 4096: ": {Kind: rank.StepMeasure, Collective: rcclx.AllGather,
			Datatype: rcclx.Float32, SizeBytes: 4096},
		"ReduceScatter Float32 4096:  in place": {Kind: rank.StepMeasure, Collective: rcclx.ReduceScatter,
			Datatype: rcclx.Float32, Placement: rcclx.InPlace, SizeBytes: 4096},
		"AllReduce BFloat16 1024: ": nil,
		"pairs":                     {Kind: rank.StepPairProbe, SizeBytes: 1 << 20, Peer: 3},
	} {
		if got := described(repeatStep(at, defaultPlan())); got != want {
			t.Errorf("%s: %q, expected %q", at, got, want)
		}
	}
}

// TestSearchIsNotTimed: the small communicators of a search are made without blocking, those that are measured are not.
func TestSearchIsNotTimed(t *testing.T) {
	teams := &modelTeams{bad: func(_ rcclx.Variant, gpus []int) string {
		if slices.Contains(gpus, 5) {
			return "hang"
		}
		return ""
	}}
	if _, _, err := runModel(t, defaultPlan(), teams, nil); err != nil {
		t.Fatal(err)
	}
	searched := 0
	for _, team := range teams.teams {
		search := strings.HasPrefix(team.Name, "search")
		for _, s := range team.Specs {
			if s.NonBlocking != search {
				t.Errorf("%s: NonBlocking %v", team.Name, s.NonBlocking)
			}
		}
		if search {
			searched++
		}
	}
	if searched == 0 {
		t.Error("there was no search")
	}
}

package rcclx

import (
	"math"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

var bothOn = Settings{DDA: DDASettings{Mode: ModePreferred}, LowPrecision: LowPrecisionSettings{Mode: ModePreferred}}

func call(c Collective, d Datatype, size int64) Call {
	return Call{Collective: c, Datatype: d, Op: "Sum", SizeBytes: size, Ranks: 8, Nodes: 1}
}

func TestExpectedPath(t *testing.T) {
	with := func(c Call, change func(*Call)) Call { change(&c); return c }
	thresholds := func(flat, tree int64) Settings {
		return Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceFlatMaxBytes: &flat, AllReduceTreeMaxBytes: &tree}}
	}
	tests := []struct {
		name    string
		flavor  Flavor
		variant Variant
		s       Settings
		call    Call
		want    Path
		reason  string
	}{
		{"flat", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathDDAFlat, "204800"},
		{"flat limit", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, Float16, 204800), PathDDAFlat, "204800"},
		{"tree", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, Float32, 204800+128), PathDDATree, "30408704"},
		{"tree limit", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 30408704), PathDDATree, "30408704"},
		{"over tree", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 33554432), PathStandard, "tree"},
		{"DDA variant has FP8 off", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 16<<20), PathDDATree, ""},
		{"baseline", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "RCCL_DDA_NRANKS=0"},
		{"baseline large", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 64<<20), PathStandard, ""},
		{"other collectives are not built", FlavorRCCLXDev, DDA, bothOn, call(ReduceScatter, BFloat16, 65536), PathStandard, "AllReduce only"},
		{"four ranks", FlavorRCCLXDev, DDA, bothOn, with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Ranks = 4 }), PathStandard, "exactly 8 ranks"},
		{"two nodes", FlavorRCCLXDev, DDA, bothOn, with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Nodes = 2 }), PathStandard, "one node"},
		{"max", FlavorRCCLXDev, DDA, bothOn, with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Op = "Max" }), PathStandard, "Sum"},
		{"unaligned", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 65538), PathStandard, "multiple of 16"},
		{"parts unaligned", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 204800+16), PathStandard, "multiples of 16"},
		{"own thresholds", FlavorRCCLXDev, DDA, thresholds(1024, 64<<20), call(AllReduce, BFloat16, 64<<20), PathDDATree, ""},
		{"own flat", FlavorRCCLXDev, DDA, thresholds(1024, 64<<20), call(AllReduce, BFloat16, 2048), PathDDATree, "1024"},

		{"fp8", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20), PathLowPrecision, "16777216"},
		{"fp8 fp32", FlavorRCCLXDev, LowPrecision, bothOn, call(AllToAll, Float32, 64<<20), PathLowPrecision, ""},
		{"fp8 below", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 8<<20), PathStandard, "least size"},
		{"fp8 fp16", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, Float16, 64<<20), PathStandard, "not Float16"},
		{"fp8 tail hazard", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20+32), PathLowPrecision, "check the data"},
		{"fp8 allgather below goes peer to peer", FlavorRCCLXDev, LowPrecision, bothOn, call(AllGather, BFloat16, 1<<20), PathP2PAllGather, "peer to peer"},
		{"fp8 allgather fp16", FlavorRCCLXDev, LowPrecision, bothOn, call(AllGather, Float16, 64<<20), PathP2PAllGather, ""},
		{"fp8 not asked for this one", FlavorRCCLXDev, LowPrecision, Settings{LowPrecision: LowPrecisionSettings{Mode: ModePreferred, Collectives: []Collective{AllGather}}},
			call(AllReduce, BFloat16, 64<<20), PathStandard, ""},

		{"stable has no DDA", FlavorRCCLXStable, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "never takes a DDA path"},
		{"stable fp8", FlavorRCCLXStable, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20), PathLowPrecision, ""},
		{"AMD without a limit", FlavorRCCLDDA, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathUnknown, "compare with Baseline"},
		{"AMD with a limit", FlavorRCCLDDA, DDA, thresholds(0, 1<<20), call(AllGather, BFloat16, 65536), PathDDA, "1048576"},
		{"AMD over its limit", FlavorRCCLDDA, DDA, thresholds(0, 1<<20), call(AllGather, BFloat16, 2<<20), PathStandard, "RCCL_DDA_THRESHOLD"},
		{"AMD baseline", FlavorRCCLDDA, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "RCCL_DDA_ENABLE=0"},
		{"AMD has no FP8", FlavorRCCLDDA, LowPrecision, bothOn, call(AllReduce, BFloat16, 64<<20), PathStandard, ""},
		{"rccl", FlavorRCCL, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "no DDA"},
		{"nccl", FlavorNCCL, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "no DDA"},
		{"unknown", FlavorUnknown, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathUnknown, "not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, reason := ExpectedPath(tt.flavor, tt.variant, tt.s, tt.call)
			if got != tt.want || !strings.Contains(reason, tt.reason) || reason == "" {
				t.Errorf("ExpectedPath = %s, %q; want %s with %q in the reason", got, reason, tt.want, tt.reason)
			}
		})
	}
}

// jobPath is the way of a call for a job with both settings on.
func jobPath(f Flavor, c Call) (Path, string) {
	return pathUnder(f, environmentMap(JobEnvironment(f, bothOn)), c)
}

// A job has DDA and FP8 together: FP8 is tried first.
func TestJobPathTriesFP8BeforeDDA(t *testing.T) {
	for size, want := range map[int64]Path{65536: PathDDAFlat, 8 << 20: PathDDATree, 16 << 20: PathLowPrecision, 512 << 20: PathLowPrecision} {
		if got, reason := jobPath(FlavorRCCLXDev, call(AllReduce, BFloat16, size)); got != want {
			t.Errorf("path at %d bytes = %s (%s), want %s", size, got, reason, want)
		}
	}
}

func TestParseStrtoll(t *testing.T) {
	tests := map[string]int64{
		"8": 8, "\t8": 8, "-1": -1, "+7": 7, "0x10": 16, "0X1f": 31, "010": 8, "08": 0, "yes": 0, "": 0, "12abc": 12,
		"0x": 0, "99999999999999999999": math.MaxInt64, "-99999999999999999999": math.MinInt64,
	}
	for text, want := range tests {
		if got := parseStrtoll(text); got != want {
			t.Errorf("parseStrtoll(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestExplainRangesJoinUp(t *testing.T) {
	for _, f := range []Flavor{FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorNCCL} {
		for _, c := range Collectives() {
			for _, d := range []Datatype{Float32, Float16, BFloat16} {
				ranges, err := Explain(f, bothOn, Call{Collective: c, Datatype: d, Op: "Sum", Ranks: 8, Nodes: 1})
				if err != nil {
					t.Fatal(err)
				}
				next := d.Bytes()
				for i, r := range ranges {
					if r.MinBytes != next || r.Reason == "" || (r.MaxBytes == nil) != (i == len(ranges)-1) {
						t.Errorf("%s %s %s: range %d of %v does not begin at %d, has no reason, or has no end", f, c, d, i, ranges, next)
					}
					if r.MaxBytes != nil {
						next = *r.MaxBytes + 1
						// The range must hold for an aligned size near its end.
						got, _ := jobPath(f, call(c, d, *r.MaxBytes/128*128))
						if got != r.Path {
							t.Errorf("%s %s %s at %d bytes: range says %s, gates say %s", f, c, d, *r.MaxBytes, r.Path, got)
						}
					}
				}
			}
		}
	}
	if _, err := Explain(FlavorRCCLXDev, bothOn, Call{Collective: "Gather", Datatype: Float32, Ranks: 8, Nodes: 1}); err == nil {
		t.Error("an unknown collective was explained")
	}
	if _, err := Explain(FlavorRCCLXDev, bothOn, Call{Collective: AllReduce, Datatype: Float32}); err == nil {
		t.Error("zero ranks were explained")
	}
}

func TestEffectives(t *testing.T) {
	scope := Scope{Ranks: 8, Nodes: 1, Datatypes: []Datatype{BFloat16}, SizesBytes: []int64{65536, 1 << 20, 16 << 20, 64 << 20}}
	find := func(t *testing.T, all []Effective, name string) Effective {
		t.Helper()
		for _, e := range all {
			if e.Name == name {
				return e
			}
		}
		t.Fatalf("no effective setting %s in %v", name, all)
		return Effective{}
	}
	ddaOnly := Settings{DDA: DDASettings{Mode: ModeRequired}}
	withEnv := func(s Settings, name, value string) Settings { s.Env = []EnvVar{{name, value}}; return s }
	multi := scope
	multi.Nodes = 2
	four := scope
	four.Ranks = 4
	tests := []struct {
		name          string
		flavor        Flavor
		s             Settings
		scope         Scope
		setting       string
		state, reason string
		min, max      *int64
		message       string
	}{
		{"dda partial", FlavorRCCLXDev, ddaOnly, scope, "dda.AllReduce", StatePartial, ReasonAboveThreshold, nil, ptr[int64](30408704), "3 of 4"},
		{"dda under fp8", FlavorRCCLXDev, bothOn, scope, "dda.AllReduce", StatePartial, ReasonAboveThreshold, nil, ptr[int64](16<<20 - 1), "FP8 takes"},
		{"dda all", FlavorRCCLXDev, ddaOnly, Scope{Ranks: 8, Nodes: 1, SizesBytes: []int64{65536}}, "dda.AllReduce", StateInEffect, ReasonActive, nil, ptr[int64](30408704), ""},
		{"dda not built", FlavorRCCLXDev, bothOn, scope, "dda.AllGather", StateNotInEffect, ReasonNotBuilt, nil, nil, "AllReduce only"},
		{"dda multi-node", FlavorRCCLXDev, ddaOnly, multi, "dda.AllReduce", StateNotInEffect, ReasonMultiNode, nil, nil, ""},
		{"dda four ranks", FlavorRCCLXDev, ddaOnly, four, "dda.AllReduce", StateNotInEffect, ReasonRankCount, nil, nil, ""},
		{"dda disabled", FlavorRCCLXDev, Settings{}, scope, "dda.AllReduce", StateNotInEffect, ReasonDisabled, nil, nil, ""},
		{"dda stable", FlavorRCCLXStable, ddaOnly, scope, "dda.AllReduce", StateNotInEffect, ReasonNotBuilt, nil, nil, ""},
		{"dda rccl", FlavorRCCL, ddaOnly, scope, "dda.AllReduce", StateNotInEffect, ReasonFlavorUnsupported, nil, nil, ""},
		{"dda AMD", FlavorRCCLDDA, ddaOnly, scope, "dda.AllReduce", StateUnknown, ReasonUnknown, nil, nil, "allReduceTreeMaxBytes"},
		{"dda unknown", FlavorUnknown, ddaOnly, scope, "dda.AllReduce", StateUnknown, ReasonUnknown, nil, nil, ""},
		{"fp8 partial", FlavorRCCLXDev, bothOn, scope, "lowPrecision.AllToAll", StatePartial, ReasonBelowThreshold, ptr[int64](16 << 20), nil, "2 of 4"},
		{"fp8 fp16", FlavorRCCLXDev, bothOn, Scope{Ranks: 8, Nodes: 1, Datatypes: []Datatype{Float16}}, "lowPrecision.AllReduce", StateNotInEffect, ReasonDatatypeUnsupported, nil, nil, ""},
		{"fp8 one on stable", FlavorRCCLXStable, Settings{LowPrecision: LowPrecisionSettings{Mode: ModeRequired, Collectives: []Collective{AllReduce}}}, scope,
			"lowPrecision.AllReduce", StateNotInEffect, ReasonFlavorUnsupported, nil, nil, "leave lowPrecision.collectives empty"},
		{"fp8 rccl", FlavorRCCL, bothOn, scope, "lowPrecision.AllReduce", StateNotInEffect, ReasonFlavorUnsupported, nil, nil, ""},
		{"blog variable", FlavorRCCLXDev, withEnv(ddaOnly, "RCCL_DDA_ENABLE", "1"), scope, "env.RCCL_DDA_ENABLE", StateNotInEffect, ReasonUnknownVariable, nil, nil, "spec.dda.mode"},
		{"variable of a setting", FlavorRCCLXDev, withEnv(ddaOnly, "RCCL_DDA_NRANKS", "0"), scope, "env.RCCL_DDA_NRANKS", StateNotInEffect, ReasonNotApplied, nil, nil, "RCCL_DDA_NRANKS=8"},
		{"variable of DDA that is off", FlavorRCCLXDev, withEnv(Settings{}, "RCCL_DDA_MAX_BLOCKS", "16"), scope, "env.RCCL_DDA_MAX_BLOCKS", StateNotInEffect, ReasonNotApplied, nil, nil, "switched off"},
		{"rccl variable on nccl", FlavorNCCL, withEnv(Settings{}, "RCCL_ENABLE_INTRANET", "1"), scope, "env.RCCL_ENABLE_INTRANET", StateNotInEffect, ReasonUnknownVariable, nil, nil, "never reads"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := find(t, Effectives(tt.flavor, tt.s, tt.scope), tt.setting)
			if e.State != tt.state || e.Reason != tt.reason || !equal(e.MinBytes, tt.min) || !equal(e.MaxBytes, tt.max) ||
				!strings.Contains(e.Message, tt.message) || e.Message == "" {
				t.Errorf("got %+v (min %v, max %v), want %s %s", e, deref(e.MinBytes), deref(e.MaxBytes), tt.state, tt.reason)
			}
		})
	}
	for _, e := range Effectives(FlavorRCCLXDev, withEnv(bothOn, "NCCL_DEBUG", "INFO"), scope) {
		if strings.HasPrefix(e.Name, "env.") {
			t.Errorf("a variable that every library reads was reported: %+v", e)
		}
	}
}

func equal(a, b *int64) bool { return deref(a) == deref(b) }

func deref(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

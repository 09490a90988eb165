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
		return Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceFlatMaxBytes: &flat,
			AllReduceTreeMaxBytes: &tree}}
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
		{"over tree", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 33554432), PathRingTree, "tree"},
		{"DDA variant has FP8 off", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 16<<20), PathDDATree, ""},
		{"baseline", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathRingTree,
			"RCCL_DDA_NRANKS=0"},
		{"baseline large", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 64<<20), PathRingTree, ""},
		{"other collectives are not built", FlavorRCCLXDev, DDA, bothOn, call(ReduceScatter, BFloat16, 65536),
			PathRingTree, "AllReduce only"},
		{"four ranks", FlavorRCCLXDev, DDA, bothOn,
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Ranks = 4 }), PathRingTree, "exactly 8 ranks"},
		{"two nodes", FlavorRCCLXDev, DDA, bothOn,
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Nodes = 2 }), PathRingTree, "one node"},
		{"max", FlavorRCCLXDev, DDA, bothOn, with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.Op = "Max" }),
			PathRingTree, "Sum"},
		{"unaligned", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 65538), PathRingTree, "multiple of 16"},
		{"parts unaligned", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, BFloat16, 204800+16), PathRingTree,
			"multiples of 16"},
		{"own thresholds", FlavorRCCLXDev, DDA, thresholds(1024, 64<<20), call(AllReduce, BFloat16, 64<<20),
			PathDDATree, ""},
		{"own flat", FlavorRCCLXDev, DDA, thresholds(1024, 64<<20), call(AllReduce, BFloat16, 2048),
			PathDDATree, "1024"},

		{"fp8", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20), PathLowPrecision, "16777216"},
		{"fp8 fp32", FlavorRCCLXDev, LowPrecision, bothOn, call(AllToAll, Float32, 64<<20), PathLowPrecision, ""},
		{"fp8 below", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 8<<20),
			PathRingTree, "least size"},
		{"fp8 fp16", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, Float16, 64<<20),
			PathRingTree, "not Float16"},
		{"fp8 tail hazard", FlavorRCCLXDev, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20+32),
			PathLowPrecision, "check the data"},
		{"fp8 allgather below goes peer to peer", FlavorRCCLXDev, LowPrecision, bothOn,
			call(AllGather, BFloat16, 1<<20), PathP2PAllGather, "peer to peer"},
		{"fp8 allgather fp16", FlavorRCCLXDev, LowPrecision, bothOn, call(AllGather, Float16, 64<<20),
			PathP2PAllGather, ""},
		{"fp8 not asked for this one", FlavorRCCLXDev, LowPrecision,
			Settings{LowPrecision: LowPrecisionSettings{Mode: ModePreferred, Collectives: []Collective{AllGather}}},
			call(AllReduce, BFloat16, 64<<20), PathRingTree, ""},

		{"stable has no DDA", FlavorRCCLXStable, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathRingTree,
			"never takes a DDA path"},
		{"stable fp8", FlavorRCCLXStable, LowPrecision, bothOn, call(AllReduce, BFloat16, 16<<20),
			PathLowPrecision, ""},
		{"AMD without a limit", FlavorRCCLDDA, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathUnknown,
			"compare with Baseline"},
		{"AMD with a limit", FlavorRCCLDDA, DDA, thresholds(0, 1<<20), call(AllGather, BFloat16, 65536),
			PathDDA, "1048576"},
		{"AMD with a limit on MI300X", FlavorRCCLDDA, DDA, thresholds(0, 1<<20),
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx942:sramecc+:xnack-" }),
			PathDDA, "1048576"},
		{"AMD with a limit on an unknown GPU", FlavorRCCLDDA, DDA, thresholds(0, 1<<20),
			call(AllReduce, BFloat16, 65536), PathDDA, "where the GPU is a gfx942 or gfx950"},
		{"AMD with a limit on MI250X", FlavorRCCLDDA, DDA, thresholds(0, 64<<20),
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx90a" }), PathRingTree,
			"for gfx942 and gfx950, not gfx90a"},
		{"AMD without a limit on MI250X", FlavorRCCLDDA, DDA, bothOn,
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx90a" }), PathRingTree,
			"for gfx942 and gfx950, not gfx90a"},
		{"AMD baseline on MI250X", FlavorRCCLDDA, Baseline, bothOn,
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx90a" }), PathRingTree,
			"would not take the call if it were on: DDA is for gfx942"},
		{"AMD on gfx1250", FlavorRCCLDDA, DDA, thresholds(0, 1<<20),
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx1250" }), PathUnknown, "another one"},
		{"RCCLX does not look at the GPU", FlavorRCCLXDev, DDA, bothOn,
			with(call(AllReduce, BFloat16, 65536), func(c *Call) { c.GFX = "gfx90a" }), PathDDAFlat, "204800"},
		{"FP8 does not look at the GPU", FlavorRCCLXDev, LowPrecision, bothOn,
			with(call(AllReduce, BFloat16, 16<<20), func(c *Call) { c.GFX = "gfx90a" }), PathLowPrecision, "16777216"},
		{"AMD over its limit", FlavorRCCLDDA, DDA, thresholds(0, 1<<20), call(AllGather, BFloat16, 2<<20),
			PathStandard, "RCCL_DDA_THRESHOLD"},
		{"AMD baseline", FlavorRCCLDDA, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathRingTree,
			"RCCL_DDA_ENABLE=0"},
		{"AMD has no FP8", FlavorRCCLDDA, LowPrecision, bothOn, call(AllReduce, BFloat16, 64<<20), PathRingTree, ""},
		{"rccl", FlavorRCCL, DDA, bothOn, call(AllReduce, BFloat16, 65536), PathStandard, "no DDA"},
		{"nccl", FlavorNCCL, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathRingTree, "no DDA"},
		{"tree limit under the flat one", FlavorRCCLXDev, DDA, thresholds(204800, 100<<10),
			call(AllReduce, BFloat16, 150<<10), PathRingTree, "102400 bytes (100 KiB)"},
		{"a limit of 4 GiB wraps to zero in the library", FlavorRCCLXDev, DDA, thresholds(1024, 4<<30),
			call(AllReduce, BFloat16, 1<<20), PathRingTree, "limit of 0 bytes"},
		{"sizes are rounded down to elements before FP8 looks", FlavorRCCLXDev, LowPrecision, bothOn,
			with(call(ReduceScatter, BFloat16, 16<<20), func(c *Call) { c.Ranks = 3 }), PathRingTree, "least size"},
		{"int8", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, Int8, 65536), PathRingTree, "not Int8"},
		{"fp64", FlavorRCCLXDev, DDA, bothOn, call(AllReduce, Float64, 65536), PathRingTree, "not Float64"},
		{"fp8 elements are no FP8 transport", FlavorRCCLXDev, LowPrecision, bothOn,
			call(AllReduce, Float8E4M3, 64<<20), PathRingTree, "not Float8E4M3"},
		{"broadcast", FlavorRCCLXDev, LowPrecision, bothOn, call(Broadcast, BFloat16, 64<<20), PathRingTree,
			"FP8 has no Broadcast"},
		{"reduce", FlavorRCCLDDA, DDA, bothOn, call(Reduce, BFloat16, 65536), PathRingTree, "DDA has no Reduce"},
		{"all to all", FlavorRCCLXDev, Baseline, bothOn, call(AllToAll, BFloat16, 65536), PathSendRecv,
			"group of sends"},
		{"all to all with a pivot", FlavorRCCLXDev, Baseline,
			Settings{Env: []EnvVar{{"RCCL_ALL_TO_ALL_PIVOT_ENABLE", "1"}}}, call(AllToAll, BFloat16, 65536),
			PathStandard, "pivot"},
		{"uneven all to all", FlavorRCCL, Baseline, bothOn, call(AllToAllv, Int32, 65536), PathSendRecv, ""},
		{"send and receive", FlavorNCCL, Baseline, bothOn, call(SendRecv, Int8, 65536), PathSendRecv, ""},
		{"rccl without MSCCL", FlavorRCCL, Baseline, Settings{Env: []EnvVar{{"RCCL_MSCCL_ENABLE", "0"}}},
			call(AllReduce, BFloat16, 65536), PathRingTree, ""},
		{"baseline says what DDA would do", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 65536),
			PathRingTree, "would take the call if it were on: set dda.mode"},
		{"baseline says what DDA would not do", FlavorRCCLXDev, Baseline, bothOn, call(AllReduce, BFloat16, 64<<20),
			PathRingTree, "would not take the call if it were on: over the tree"},
		{"AMD baseline knows no limit", FlavorRCCLDDA, Baseline, bothOn, call(AllReduce, BFloat16, 65536), PathRingTree,
			"may take the call"},
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
	for size, want := range map[int64]Path{65536: PathDDAFlat, 8 << 20: PathDDATree, 16 << 20: PathLowPrecision,
		512 << 20: PathLowPrecision} {
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

// Every range begins where the one before ends, and the gates agree with it on all even sizes that are near its ends.
func TestExplainRangesJoinUp(t *testing.T) {
	ddaOnly := Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceFlatMaxBytes: ptr[int64](5000),
		AllReduceTreeMaxBytes: ptr[int64](40 << 20)}}
	for _, f := range []Flavor{FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorNCCL} {
		for _, s := range []Settings{{}, bothOn, ddaOnly,
			{Env: []EnvVar{{"RCCL_DIRECT_ALLGATHER_THRESHOLD", "100000"}}}} {
			for _, c := range AllCollectives() {
				for _, d := range Datatypes() {
					for _, nodes := range []int{1, 2, 4, 5} {
						gpus := []string{"", "gfx942", "gfx950:sramecc+:xnack-", "gfx90a"}
						if f != FlavorRCCLDDA && c != AllGather && c != ReduceScatter || d != BFloat16 && d != Int8 {
							gpus = gpus[:1] // nothing but the direct paths and AMD's DDA looks at the GPU
						}
						for _, gfx := range gpus {
							requireRanges(t, f, s,
								Call{Collective: c, Datatype: d, Op: "Sum", Ranks: 8 * nodes, Nodes: nodes, GFX: gfx})
						}
					}
				}
			}
		}
	}
}

func requireRanges(t *testing.T, f Flavor, s Settings, c Call) {
	t.Helper()
	ranges, err := Explain(f, s, c)
	if err != nil {
		t.Fatal(err)
	}
	env := environmentMap(JobEnvironment(f, s))
	next := c.Datatype.Bytes()
	if parted(c.Collective) {
		next *= int64(c.Ranks)
	}
	step := c.Datatype.Bytes() * 128 * int64(c.Ranks)
	for i, r := range ranges {
		if r.MinBytes != next || r.Reason == "" || (r.MaxBytes == nil) != (i == len(ranges)-1) {
			t.Errorf("%s %+v: range %d of %+v does not begin at %d, has no reason, or has no end",
				f, c, i, ranges, next)
		}
		samples := []int64{(r.MinBytes + step - 1) / step * step}
		if r.MaxBytes != nil {
			next = *r.MaxBytes + 1
			if samples = append(samples, *r.MaxBytes/step*step); *r.MaxBytes/step*step < r.MinBytes {
				samples = []int64{r.MinBytes, *r.MaxBytes} // too narrow for an even size
			}
		}
		for _, size := range samples {
			call := c
			call.SizeBytes = size
			if got, _ := pathUnder(f, env, call); got != r.Path {
				t.Errorf("%s %+v at %d bytes: range %d of %+v says %s, gates say %s",
					f, c, size, i, ranges, r.Path, got)
			}
		}
	}
}

func TestExplainRejects(t *testing.T) {
	if _, err := Explain(FlavorRCCLXDev, bothOn,
		Call{Collective: "Gather", Datatype: Float32, Ranks: 8, Nodes: 1}); err == nil {
		t.Error("an unknown collective was explained")
	}
	if _, err := Explain(FlavorRCCLXDev, bothOn, Call{Collective: AllReduce, Datatype: Float32}); err == nil {
		t.Error("zero ranks were explained")
	}
	if _, err := Explain(FlavorRCCLXDev, bothOn,
		Call{Collective: AllReduce, Datatype: Float32, Ranks: 4, Nodes: 8}); err == nil {
		t.Error("fewer ranks than nodes were explained")
	}
}

// The question of issue 3: what does AllReduce of bfloat16 over eight ranks do, and why not something else?
func TestExplainSaysWhyNot(t *testing.T) {
	ranges, err := Explain(FlavorRCCLXDev, Settings{DDA: DDASettings{Mode: ModePreferred}},
		Call{Collective: AllReduce, Datatype: BFloat16, Op: "Sum", Ranks: 8, Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		min  int64
		path Path
		fp8  string
	}{
		{2, PathRingTree,
			"would not take the call if it were on: under FP8's fixed least size of 16777216 bytes (16 MiB)"},
		{16, PathDDAFlat, "would not take"},
		{204801, PathDDATree, "would not take"},
		{16 << 20, PathDDATree, "would take the call if it were on: set lowPrecision.mode to Preferred"},
		{30408705, PathRingTree, "would take the call if it were on: set lowPrecision.mode to Preferred"},
	}
	if len(ranges) != len(want) {
		t.Fatalf("%d ranges, want %d: %+v", len(ranges), len(want), ranges)
	}
	for i, w := range want {
		r := ranges[i]
		if r.MinBytes != w.min || r.Path != w.path || len(r.NotTaken) == 0 ||
			r.NotTaken[0].Path != PathLowPrecision || !strings.Contains(r.NotTaken[0].Message, w.fp8) ||
			r.NotTaken[0].IfOn != strings.HasPrefix(w.fp8, "would take") {
			t.Errorf("range %d is %+v, want %+v", i, r, w)
		}
	}
	if last := ranges[4].NotTaken; len(last) != 2 || last[1].Path != PathDDA || last[1].Reason != ReasonAboveThreshold {
		t.Errorf("the last range does not say why not DDA: %+v", last)
	}
}

// What the code does not gate but its kernels need is a note, where the GPU is known to be another one.
func TestExplainNotesTheGPU(t *testing.T) {
	for _, tt := range []struct {
		gfx  string
		path Path
		says string
	}{
		{"gfx90a", PathLowPrecision, "FP8's kernels are machine code for gfx942 and gfx950, and the library does not " +
			"check that the GPU, gfx90a"},
		{"gfx90a", PathDDAFlat, "DDA does not check that the GPU, gfx90a"},
		{"gfx90a", PathDDATree, "DDA does not check that the GPU, gfx90a"},
		{"gfx942", PathLowPrecision, ""}, {"gfx950:sramecc+", PathLowPrecision, ""}, {"", PathLowPrecision, ""},
		{"", PathDDAFlat, ""},
	} {
		ranges, err := Explain(FlavorRCCLXDev, bothOn,
			Call{Collective: AllReduce, Datatype: BFloat16, Op: "Sum", Ranks: 8, Nodes: 1, GFX: tt.gfx})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range ranges {
			notes := strings.Join(r.Notes, "; ")
			if r.Path != tt.path {
				continue
			}
			found = true
			if got := strings.Contains(notes, "the GPU, "); got != (tt.says != "") ||
				!strings.Contains(notes, tt.says) {
				t.Errorf("%s on %q: %s, want %q", tt.path, tt.gfx, notes, tt.says)
			}
		}
		if !found {
			t.Errorf("no range is %s on %q: %+v", tt.path, tt.gfx, ranges)
		}
	}
}

func TestEffectives(t *testing.T) {
	scope := Scope{Ranks: 8, Nodes: 1, Datatypes: []Datatype{BFloat16},
		SizesBytes: []int64{65536, 1 << 20, 16 << 20, 64 << 20}}
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
		{"dda partial", FlavorRCCLXDev, ddaOnly, scope, "dda.AllReduce", StatePartial, ReasonAboveThreshold, nil,
			ptr[int64](30408704), "3 of 4"},
		{"dda under fp8", FlavorRCCLXDev, bothOn, scope, "dda.AllReduce", StatePartial, ReasonTakenByFP8, nil,
			ptr[int64](16<<20 - 1), "FP8 takes"},
		{"dda all", FlavorRCCLXDev, ddaOnly, Scope{Ranks: 8, Nodes: 1, SizesBytes: []int64{65536}}, "dda.AllReduce",
			StateInEffect, ReasonActive, nil, ptr[int64](30408704), ""},
		{"dda not built", FlavorRCCLXDev, bothOn, scope, "dda.AllGather", StateNotInEffect, ReasonNotBuilt, nil, nil,
			"AllReduce only"},
		{"dda multi-node", FlavorRCCLXDev, ddaOnly, multi, "dda.AllReduce", StateNotInEffect,
			ReasonMultiNode, nil, nil, ""},
		{"dda four ranks", FlavorRCCLXDev, ddaOnly, four, "dda.AllReduce", StateNotInEffect,
			ReasonRankCount, nil, nil, ""},
		{"dda disabled", FlavorRCCLXDev, Settings{}, scope, "dda.AllReduce", StateNotInEffect,
			ReasonDisabled, nil, nil, ""},
		{"dda stable", FlavorRCCLXStable, ddaOnly, scope, "dda.AllReduce", StateNotInEffect,
			ReasonNotBuilt, nil, nil, ""},
		{"dda rccl", FlavorRCCL, ddaOnly, scope, "dda.AllReduce", StateNotInEffect,
			ReasonFlavorUnsupported, nil, nil, ""},
		{"dda AMD", FlavorRCCLDDA, ddaOnly, scope, "dda.AllReduce", StateUnknown, ReasonUnknown, nil, nil,
			"allReduceTreeMaxBytes"},
		{"dda AMD on another GPU", FlavorRCCLDDA,
			Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceTreeMaxBytes: ptr[int64](64 << 20)}},
			Scope{Ranks: 8, Nodes: 1, GFX: "gfx90a"}, "dda.AllReduce", StateNotInEffect, ReasonNotBuilt, nil,
			nil, "not gfx90a"},
		{"dda unknown", FlavorUnknown, ddaOnly, scope, "dda.AllReduce", StateUnknown, ReasonUnknown, nil, nil, ""},
		{"fp8 partial", FlavorRCCLXDev, bothOn, scope, "lowPrecision.AllToAll", StatePartial, ReasonBelowThreshold,
			ptr[int64](16 << 20), nil, "2 of 4"},
		{"fp8 fp16", FlavorRCCLXDev, bothOn, Scope{Ranks: 8, Nodes: 1, Datatypes: []Datatype{Float16}},
			"lowPrecision.AllReduce", StateNotInEffect, ReasonDatatypeUnsupported, nil, nil, ""},
		{"fp8 one on stable", FlavorRCCLXStable,
			Settings{LowPrecision: LowPrecisionSettings{Mode: ModeRequired, Collectives: []Collective{AllReduce}}},
			scope, "lowPrecision.AllReduce", StateNotInEffect, ReasonFlavorUnsupported, nil, nil,
			"leave lowPrecision.collectives empty"},
		{"fp8 rccl", FlavorRCCL, bothOn, scope, "lowPrecision.AllReduce", StateNotInEffect,
			ReasonFlavorUnsupported, nil, nil, ""},
		{"blog variable", FlavorRCCLXDev, withEnv(ddaOnly, "RCCL_DDA_ENABLE", "1"), scope, "env.RCCL_DDA_ENABLE",
			StateNotInEffect, ReasonUnknownVariable, nil, nil, "spec.dda.mode"},
		{"variable of a setting", FlavorRCCLXDev, withEnv(ddaOnly, "RCCL_DDA_NRANKS", "0"), scope,
			"env.RCCL_DDA_NRANKS", StateNotInEffect, ReasonNotApplied, nil, nil, "RCCL_DDA_NRANKS=8"},
		{"variable of DDA that is off", FlavorRCCLXDev, withEnv(Settings{}, "RCCL_DDA_MAX_BLOCKS", "16"), scope,
			"env.RCCL_DDA_MAX_BLOCKS", StateNotInEffect, ReasonNotApplied, nil, nil, "switched off"},
		{"rccl variable on nccl", FlavorNCCL, withEnv(Settings{}, "RCCL_ENABLE_INTRANET", "1"), scope,
			"env.RCCL_ENABLE_INTRANET", StateNotInEffect, ReasonUnknownVariable, nil, nil, "never reads"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := find(t, Effectives(tt.flavor, tt.s, tt.scope), tt.setting)
			if e.State != tt.state || e.Reason != tt.reason || !equal(e.MinBytes, tt.min) ||
				!equal(e.MaxBytes, tt.max) || !strings.Contains(e.Message, tt.message) || e.Message == "" {
				t.Errorf("got %+v (min %v, max %v), want %s %s",
					e, deref(e.MinBytes), deref(e.MaxBytes), tt.state, tt.reason)
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

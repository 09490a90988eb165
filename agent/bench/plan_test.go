package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/rcclx"
)

func withDevices(n int) Config {
	c := small()
	for i := range n {
		c.Devices = append(c.Devices, i)
	}
	return c
}

func TestPlanData(t *testing.T) {
	c := withDevices(8)
	c.Datatypes = []rcclx.Datatype{rcclx.BFloat16, rcclx.Int32}
	c.SizesBytes = []int64{4096, 16 << 20, 32 << 20}
	c.Variants = []rcclx.Variant{rcclx.Baseline, rcclx.LowPrecision}
	p, err := makePlan(c, nil)
	if err != nil || p.total != 14 {
		t.Fatalf("%v, %d results", err, p.total)
	}
	got := []string{}
	for _, v := range p.variants {
		for _, s := range v.steps {
			got = append(got, fmt.Sprintf("%s %s %v %v", v.variant, s.Datatype, s.SizesBytes, s.Data))
		}
	}
	want := []string{
		"Baseline BFloat16 [4096 16777216 33554432] [Exact]",
		"Baseline Int32 [4096 16777216 33554432] [Exact]",
		"LowPrecision BFloat16 [4096] [Rounding]",
		"LowPrecision BFloat16 [16777216 33554432] [Rounding Gradients Activations]",
		"LowPrecision Int32 [4096 16777216 33554432] [Exact]",
		"LowPrecision BFloat16 [16777218 16778240] [Rounding]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// Those that are asked for, or round down to it, are measured as any other, and only once.
	c.SizesBytes = []int64{16777219, 16778240}
	if p, err = makePlan(c, nil); err != nil || p.total != 8 {
		t.Errorf("%v, %d results of %+v", err, p.total, p.variants)
	}
	for name, change := range map[string]func(*Config){
		"no size that FP8 takes": func(c *Config) { c.SizesBytes = []int64{4096} },
		"FP8 is not for AllReduce": func(c *Config) {
			c.LowPrecision.Collectives = []rcclx.Collective{rcclx.AllGather}
		},
	} {
		other := c
		change(&other)
		if p, err := makePlan(other, nil); err != nil || p.total != 4*len(other.SizesBytes) {
			t.Errorf("%s: %v, %d results", name, err, p.total)
		}
	}
	c.Data = []rcclx.Data{rcclx.DataGradients}
	if p, err = makePlan(c, nil); err != nil || !slices.Equal(p.variants[1].steps[0].Data, c.Data) {
		t.Errorf("%v, %+v", err, p.variants)
	}
}

func TestPlanRoundsSizes(t *testing.T) {
	c := withDevices(8)
	c.Collectives = []rcclx.Collective{rcclx.AllGather}
	c.SizesBytes = []int64{15, 16, 17, 33, 47, 48}
	p, err := makePlan(c, nil)
	if err != nil || !slices.Equal(p.variants[0].steps[0].SizesBytes, []int64{16, 32, 48}) || p.total != 3 {
		t.Fatalf("%v, %+v", err, p)
	}
	want := []string{"sizes that leave a rank or a peer without an element are left out: 1 of AllGather BFloat16",
		"sizes are rounded down to whole elements for each rank: AllGather BFloat16"}
	if got := p.warnings(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"only in place, of what has none": func(c *Config) {
			c.Collectives, c.Placements = []rcclx.Collective{rcclx.AllToAll}, []rcclx.Placement{rcclx.InPlace}
		},
		"only sizes without an element": func(c *Config) {
			c.Collectives, c.SizesBytes = []rcclx.Collective{rcclx.AllGather}, []int64{8}
		},
	} {
		c := withDevices(8)
		change(&c)
		var use *UsageError
		if _, err := makePlan(c, nil); !errors.As(err, &use) || !strings.Contains(err.Error(), "nothing to measure: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no sizes":              func(c *Config) { c.SizesBytes = nil },
		"no variants":           func(c *Config) { c.Variants = nil },
		"negative ranks":        func(c *Config) { c.Ranks = -1 },
		"fewer devices":         func(c *Config) { c.Ranks, c.Devices = 3, []int{0, 1} },
		"a device twice":        func(c *Config) { c.Devices = []int{0, 1, 0} },
		"a negative device":     func(c *Config) { c.Devices = []int{-1} },
		"no iterations":         func(c *Config) { c.Iterations = 0 },
		"too many iterations":   func(c *Config) { c.Iterations = maxIterations + 1 },
		"negative warm-up":      func(c *Config) { c.WarmupIterations = -1 },
		"no step deadline":      func(c *Config) { c.StepDeadline = 0 },
		"no init deadline":      func(c *Config) { c.InitDeadline = 0 },
		"negative deadline":     func(c *Config) { c.Deadline = -1 },
		"no GPU and no --ranks": func(*Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := small()
			change(&c)
			var use *UsageError
			b := &Bench{Config: c, Host: preflight.PodHost{Root: t.TempDir()},
				Clock: testclock.NewFakeClock(time.Unix(0, 0)), Teams: noTeams{t}}
			if _, err := b.Run(t.Context()); !errors.As(err, &use) {
				t.Errorf("error %v, expected one of usage", err)
			}
		})
	}
}

// noTeams fails where a process would be started.
type noTeams struct{ t *testing.T }

func (n noTeams) Run(_ context.Context, team supervise.Team) supervise.Outcome {
	n.t.Errorf("team %s was started", team.Name)
	return supervise.Outcome{}
}

// TestChoose: all GPUs that a rank sees, and an error where the node does not tell how many that are.
func TestChoose(t *testing.T) {
	one := preflight.NodeFacts{Discovered: &discover.Facts{Devices: make([]discover.Device, 1)}}
	both := one
	both.NVIDIAGPUs = []string{"a", "b"}
	for name, tc := range map[string]struct {
		facts preflight.NodeFacts
		env   []rcclx.EnvVar
		want  int
		text  string
	}{
		"none":   {preflight.NodeFacts{}, nil, 0, "found no GPU"},
		"AMD":    {one, nil, 1, ""},
		"NVIDIA": {preflight.NodeFacts{NVIDIAGPUs: []string{"a", "b"}}, nil, 2, ""},
		"masked": {preflight.NodeFacts{NVIDIAGPUs: []string{"a", "b"}},
			[]rcclx.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "1"}}, 1, ""},
		"two vendors": {both, nil, 0, "gpus shows 2 GPUs, and no library was loaded yet"},
	} {
		x := &bench{facts: tc.facts, env: tc.env}
		err := x.choose()
		if len(x.Devices) != tc.want || (err != nil) != (tc.text != "") ||
			err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: devices %v, %v; expected %d of them, %q", name, x.Devices, err, tc.want, tc.text)
		}
	}
}

func TestMemory(t *testing.T) {
	c := withDevices(8)
	c.SizesBytes = []int64{1 << 10, 16 << 30}
	p, err := makePlan(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if need := p.memoryBytes(rcclx.FlavorRCCL, 8, noLimit); need != 32<<30+rcclx.SendShiftBytes {
		t.Errorf("needs %d bytes, expected %d", need, int64(32<<30+rcclx.SendShiftBytes))
	}
	if got := p.largestBytes(rcclx.FlavorRCCL, 8, 17<<30); got != 8<<30 || sizeText(got) != "8G" {
		t.Errorf("the largest size is %d (%s), expected 8 GiB", got, sizeText(got))
	}
	// The send buffer has a little more than its message: two buffers of 32 MiB are more than 64 MiB.
	if got := p.largestBytes(rcclx.FlavorRCCL, 8, 64<<20); got != 16<<20 {
		t.Errorf("the largest size in 64 MiB is %d, expected 16 MiB", got)
	}
	if got := p.largestBytes(rcclx.FlavorRCCL, 8, 1); got != 0 && p.memoryBytes(rcclx.FlavorRCCL, 8, got) > 1 {
		t.Errorf("%d bytes do not fit", got)
	}
	// FP8's pool comes on top.
	c.SizesBytes, c.Variants = []int64{1 << 20}, []rcclx.Variant{rcclx.LowPrecision}
	if p, err = makePlan(c, nil); err != nil || p.memoryBytes(rcclx.FlavorRCCLXDev, 8, noLimit) != 2<<20+
		rcclx.SendShiftBytes+rcclx.LowPrecisionPoolBytes(8, 0) {
		t.Errorf("%v, needs %d", err, p.memoryBytes(rcclx.FlavorRCCLXDev, 8, noLimit))
	}
	for bytes, want := range map[int64]string{1: "1", 1536: "1536", 2048: "2K", 3 << 20: "3M", 1 << 62: "4294967296G"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d is %q, expected %q", bytes, got, want)
		}
	}
}

func TestOwnVariables(t *testing.T) {
	got := ownVariables([]string{"PATH=/bin", "NCCL_DEBUG=INFO", "NCCL_VERSION=2.28",
		"HSA_X=1", "CUDA_HOME=/c", "CUDA_VISIBLE_DEVICES=0", "RCCL_A=b=c", "NCCL_EMPTY"},
		[]rcclx.EnvVar{{Name: "NCCL_DEBUG", Value: "WARN"}, {Name: "FOO", Value: "1"}})
	want := []rcclx.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", Value: "0"}, {Name: "FOO", Value: "1"},
		{Name: "HSA_X", Value: "1"}, {Name: "NCCL_DEBUG", Value: "WARN"}, {Name: "RCCL_A", Value: "b=c"}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func measurement(median int64, checks ...rcclx.CheckResult) rank.Measurement {
	return rank.Measurement{Collective: rcclx.AllReduce, Datatype: rcclx.Float32, Placement: rcclx.OutOfPlace,
		SizeBytes: 1 << 20, CountElements: 1 << 18, Checks: checks, LaunchNanoseconds: median / 10,
		Latency: rcclx.LatencyStats{MedianNanoseconds: median, MinNanoseconds: median - 1, MaxNanoseconds: median + 5,
			P95Nanoseconds: median + 4, CoefficientOfVariationPPM: median, Repeats: 5, IterationsPerRepeat: 4}}
}

func TestCombine(t *testing.T) {
	at := int64(9)
	c := newCollector(rcclx.Baseline, 3)
	exact := rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 100}
	bad := rcclx.CheckResult{Data: rcclx.DataExact, CheckedElements: 100, WrongElements: 2, FirstWrongElement: &at,
		NaNElements: 1, OverflowElements: 1, UnwrittenElements: 1, MaxRelativeErrorPPM: 70, MeanRelativeErrorPPM: 7}
	if _, done := c.add(0, measurement(10000, exact)); done {
		t.Error("complete with one of three ranks")
	}
	if _, done := c.add(2, measurement(13001, bad)); done {
		t.Error("complete with two of three ranks")
	}
	if text := c.incomplete(); len(c.results()) != 0 || len(text) != 1 || !strings.Contains(text[0], "2 of 3 ranks") ||
		!strings.Contains(text[0], "rank 2 has 2 wrong elements (1 never written)") {
		t.Errorf("%d results, %q", len(c.results()), text)
	}
	r, done := c.add(1, measurement(12000, exact))
	if !done {
		t.Fatal("not complete")
	}
	want := results.Result{Variant: rcclx.Baseline, Collective: rcclx.AllReduce, Datatype: rcclx.Float32,
		Op: "Sum", Placement: rcclx.OutOfPlace, SizeBytes: 1 << 20, CountElements: 1 << 18,
		Latency: rcclx.LatencyStats{MedianNanoseconds: 13001, MinNanoseconds: 13000, MaxNanoseconds: 13006,
			P95Nanoseconds: 13005, CoefficientOfVariationPPM: 13001, Repeats: 5, IterationsPerRepeat: 4},
		MeanLatencyNanoseconds: 11667, LaunchNanoseconds: 1300, AlgBandwidthMBps: 80653.488,
		BusBandwidthMBps: 107537.984, MeanAlgBandwidthMBps: 89875.375, MeanBusBandwidthMBps: 119833.833,
		Checks: []rcclx.CheckResult{{Data: rcclx.DataExact, CheckedElements: 300, WrongElements: 2,
			FirstWrongElement: &at, NaNElements: 1, OverflowElements: 1, UnwrittenElements: 1, MaxRelativeErrorPPM: 70,
			MeanRelativeErrorPPM: 7}}}
	if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if all := c.results(); len(all) != 1 || fmt.Sprint(all[0]) != fmt.Sprint(r) {
		t.Errorf("%+v", all)
	}
	// The slowest rank may be the one that has no 95th percentile.
	m := measurement(9000, exact)
	m.Latency.P95Nanoseconds = 0
	if r, done := c.add(1, m); !done || r.Latency.P95Nanoseconds != 0 || r.Latency.MaxNanoseconds != 13006 {
		t.Errorf("without a 95th percentile of rank 1: %+v", r.Latency)
	}
	if text := lostValues(c.results()); len(text) != 1 || !strings.Contains(text[0],
		"1 were never written by the library, which reported no error, and 1 became NaN and 1 overflowed") {
		t.Errorf("%q", text)
	}
}

// What was moved counts, not what was asked for.
func TestCombineMoved(t *testing.T) {
	c := newCollector(rcclx.Baseline, 1)
	m := measurement(1000)
	m.SizeBytes += 3
	if r, _ := c.add(0, m); r.SizeBytes != 1<<20 || r.AlgBandwidthMBps != 1048576 {
		t.Errorf("%d B at %g MB/s", r.SizeBytes, r.AlgBandwidthMBps)
	}
}

// Wrong elements where FP8 is known to lose them are a warning; what begins before is a fault.
func TestCombineHazard(t *testing.T) {
	const count = 8<<20 + 1
	for _, tc := range []struct {
		name       string
		variant    rcclx.Variant
		first      int64
		known, bad int64
	}{
		{"the tail", rcclx.LowPrecision, 8 << 20, 2, 0},
		{"before the tail", rcclx.LowPrecision, 8<<20 - 1, 1, 1},
		{"not with FP8", rcclx.Baseline, 8 << 20, 0, 2},
	} {
		c := newCollector(tc.variant, 8)
		var r results.Result
		for i := range 8 {
			m := measurement(1000, rcclx.CheckResult{Data: rcclx.DataRounding, CheckedElements: count})
			m.Datatype, m.SizeBytes, m.CountElements, m.Hazard = rcclx.BFloat16, 2*count, count, "h"
			switch i {
			case 1:
				m.Checks[0].WrongElements, m.Checks[0].FirstWrongElement = 1, new(int64(8<<20))
			case 2:
				m.Checks[0].WrongElements, m.Checks[0].FirstWrongElement = 1, new(tc.first)
			}
			r, _ = c.add(i, m)
		}
		if r.HazardElements != tc.known || r.Unexplained() != tc.bad ||
			(results.Report{Results: []results.Result{r}}).Good() != (tc.bad == 0) ||
			len(hazardous(c.results())) != int(min(tc.known, 1)) {
			t.Errorf("%s: %d known, %d not, %q", tc.name, r.HazardElements, r.Unexplained(), hazardous(c.results()))
		}
	}
}

func TestMissing(t *testing.T) {
	c := withDevices(2)
	c.PairProbe = true
	p, err := makePlan(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := p.variants[0]
	col := newCollector(v.variant, 2)
	if got := v.missing(col, 2, 0); len(got) != 2 || !strings.Contains(got[0], "2 of 2 ranks did not measure it") ||
		!strings.Contains(got[1], "1 of 1 pairs") {
		t.Errorf("%q", got)
	}
	m := measurement(1000)
	m.Datatype, m.SizeBytes = rcclx.BFloat16, 65536
	col.add(0, m)
	col.add(1, m)
	if got := v.missing(col, 2, 1); len(got) != 1 || !strings.Contains(got[0], "was not checked with all of [Exact]") {
		t.Errorf("%q", got)
	}
}

// libraryTeams answers the probe as a real library would, and starts nothing else.
type libraryTeams struct {
	lib   rcclx.LibraryInfo
	teams *[]supervise.Team
}

func (l libraryTeams) Run(_ context.Context, team supervise.Team) supervise.Outcome {
	*l.teams = append(*l.teams, team)
	out := supervise.Outcome{Team: team.Name}
	for i, s := range team.Specs {
		lib := l.lib
		lib.PCIAddress = fmt.Sprintf("0000:%02x:00.0", i+1)
		out.Ranks = append(out.Ranks, supervise.RankOutcome{Rank: s.Rank, Device: s.Device, ProcessID: 100 + i,
			PCIAddress: lib.PCIAddress, Library: &lib})
	}
	return out
}

func TestLibraryDecides(t *testing.T) {
	lib := rcclx.LibraryInfo{Flavor: rcclx.FlavorNCCL, VersionCode: 22200, Path: "libnccl.so.2",
		BuildHash: "0123456789abcdef", TotalMemoryBytes: 80 << 30, FreeMemoryBytes: 79 << 30}
	run := func(change func(*Config)) (results.Report, []supervise.Team, error) {
		c := withDevices(2)
		change(&c)
		var teams []supervise.Team
		b := &Bench{Config: c, Host: preflight.PodHost{Root: t.TempDir()},
			LockDir: t.TempDir(), Clock: testclock.NewFakeClock(time.Unix(0, 0)),
			Teams: libraryTeams{lib, &teams}, Environ: []string{"NCCL_DEBUG=WARN", "SECRET=x"}}
		r, err := b.Run(t.Context())
		return r, teams, err
	}
	var use *UsageError
	if _, _, err := run(func(c *Config) { c.Datatypes = []rcclx.Datatype{rcclx.Float8E4M3} }); !errors.As(err, &use) ||
		!strings.Contains(err.Error(), "Float8E4M3 elements from version 2.24") {
		t.Errorf("FP8 elements: %v", err)
	}
	if _, _, err := run(func(c *Config) { c.Variants = []rcclx.Variant{rcclx.DDA} }); !errors.As(err, &use) ||
		!strings.Contains(err.Error(), "no variant to measure: ") {
		t.Errorf("DDA alone: %v", err)
	}
	r, teams, err := run(func(c *Config) {
		c.Variants = []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision}
	})
	if err != nil || len(teams) != 2 || teams[1].Name != "Baseline" ||
		!strings.Contains(strings.Join(r.Warnings, "\n"), "DDA is left out: ") {
		t.Fatalf("%v, %d teams, %q", err, len(teams), r.Warnings)
	}
	if env := teams[1].Env; !slices.Contains(env, "NCCL_DEBUG=WARN") || !slices.Contains(env, "NCCL_NVLS_ENABLE=0") ||
		slices.Contains(env, "SECRET=x") {
		t.Errorf("environment %q", env)
	}
	// Ranks that say they are done without having measured are no success.
	if r.Failure == nil || r.Failure.Kind != "Incomplete" {
		t.Errorf("failure %+v", r.Failure)
	}
}

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		variant rcclx.Variant
		failure supervise.Failure
		want    string
	}{
		{rcclx.Baseline, supervise.Failure{Kind: supervise.FailHung, Rank: 3}, "error counters of the GPU of rank 3"},
		{rcclx.Baseline, supervise.Failure{Kind: supervise.FailHung, Rank: -1, Behind: []int{1, 2}},
			"the GPUs of ranks 1 2, which are behind the others, and"},
		{rcclx.Baseline, supervise.Failure{Kind: supervise.FailHung, Rank: -1, Behind: []int{3}, ByRAS: true},
			"error counters of the GPU of rank 3, which is behind the others by RAS's word, and"},
		{rcclx.Baseline, supervise.Failure{Kind: supervise.FailHung, Rank: 3, Behind: []int{3}, ByRAS: true},
			"error counters of the GPU of rank 3 by RAS's word, and"},
		{rcclx.Baseline, supervise.Failure{Kind: supervise.FailHung, Rank: -1},
			"all GPUs of the communicator, since all ranks stand alike"},
		{rcclx.DDA, supervise.Failure{Kind: supervise.FailDied, Rank: -1},
			"with --variants Baseline: where that works, DDA is at fault"},
		{rcclx.DDA, supervise.Failure{Kind: supervise.FailDied, Killed: true}, ""},
		{rcclx.DDA, supervise.Failure{Kind: supervise.FailRunDeadline, Rank: -1}, ""},
		{"", supervise.Failure{Kind: supervise.FailStart}, ""},
	} {
		if got := next(tc.variant, &tc.failure); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %q, expected %q", tc.variant, tc.failure.Kind, got, tc.want)
		}
	}
}

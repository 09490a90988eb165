package rcclx

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func lines(env []EnvVar) []string {
	var all []string
	for _, e := range env {
		all = append(all, e.Name+"="+e.Value)
	}
	return all
}

func TestEnvironment(t *testing.T) {
	one := Settings{LowPrecision: LowPrecisionSettings{Mode: ModePreferred, Collectives: []Collective{AllGather}}}
	tree := Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceFlatMaxBytes: ptr[int64](1000),
		AllReduceTreeMaxBytes: ptr[int64](64 << 20)}}
	const reclaim = "HSA_NO_SCRATCH_RECLAIM=1"
	off := []string{"RCCL_LOW_PRECISION_ENABLE=0",
		"RCCL_LOW_PRECISION_ENABLE_ALLGATHER=0", "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=0",
		"RCCL_LOW_PRECISION_ENABLE_ALLTOALL=0", "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER=0"}
	tests := []struct {
		name string
		f    Flavor
		v    Variant
		s    Settings
		want []string
	}{
		{"dev baseline", FlavorRCCLXDev, Baseline, bothOn, append([]string{reclaim, "RCCL_DDA_NRANKS=0"}, off...)},
		{"dev dda", FlavorRCCLXDev, DDA, bothOn,
			append([]string{reclaim, "RCCL_DDA_NRANKS=8", "RCCL_ENABLE_DDA_ALL_REDUCE=1"}, off...)},
		{"dev dda thresholds", FlavorRCCLXDev, DDA, tree,
			append([]string{reclaim, "RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES=1000",
				"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES=67108864", "RCCL_DDA_NRANKS=8", "RCCL_DDA_SENDBUF_BYTES=67108864",
				"RCCL_ENABLE_DDA_ALL_REDUCE=1"}, off...)},
		{"dev fp8", FlavorRCCLXDev, LowPrecision, bothOn,
			[]string{reclaim, "RCCL_DDA_NRANKS=0", "RCCL_LOW_PRECISION_ENABLE=1"}},
		{"dev fp8 for one", FlavorRCCLXDev, LowPrecision, one,
			[]string{reclaim, "RCCL_DDA_NRANKS=0", "RCCL_LOW_PRECISION_ENABLE=0",
				"RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1", "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=0",
				"RCCL_LOW_PRECISION_ENABLE_ALLTOALL=0", "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER=0"}},
		{"stable fp8", FlavorRCCLXStable, LowPrecision, bothOn,
			[]string{reclaim, "RCCL_DDA_NRANKS=0", "RCCL_LOW_PRECISION_ENABLE=1"}},
		{"stable fp8 for one", FlavorRCCLXStable, LowPrecision, one,
			[]string{reclaim, "RCCL_DDA_NRANKS=0", "RCCL_LOW_PRECISION_ENABLE=0"}},
		{"stable dda thresholds", FlavorRCCLXStable, DDA, tree,
			[]string{reclaim, "RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES=1000", "RCCL_DDA_ALL_REDUCE_SENDBUF_BYTES=67108864",
				"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES=67108864", "RCCL_DDA_NRANKS=8", "RCCL_ENABLE_DDA_ALL_REDUCE=1",
				"RCCL_LOW_PRECISION_ENABLE=0"}},
		{"amd baseline", FlavorRCCLDDA, Baseline, bothOn, []string{reclaim, "RCCL_DDA_ENABLE=0"}},
		{"amd dda", FlavorRCCLDDA, DDA, tree, []string{reclaim, "RCCL_DDA_ENABLE=1", "RCCL_DDA_THRESHOLD=67108864"}},
		{"rccl", FlavorRCCL, DDA, bothOn, []string{reclaim}},
		{"nccl", FlavorNCCL, Baseline, bothOn, []string{"NCCL_NVLS_ENABLE=0"}},
		{"own variable", FlavorNCCL, Baseline, Settings{Env: []EnvVar{{"NCCL_DEBUG", "WARN"}}},
			[]string{"NCCL_DEBUG=WARN", "NCCL_NVLS_ENABLE=0"}},
		{"multicast is never enabled", FlavorNCCL, Baseline, Settings{Env: []EnvVar{{"NCCL_NVLS_ENABLE", "1"}}},
			[]string{"NCCL_NVLS_ENABLE=0"}},
		{"own variable cannot break baseline", FlavorRCCLXStable,
			Baseline, Settings{Env: []EnvVar{{"RCCL_DDA_NRANKS", "8"}}},
			[]string{reclaim, "RCCL_DDA_NRANKS=0", "RCCL_LOW_PRECISION_ENABLE=0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := lines(Environment(tt.f, tt.v, tt.s))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Environment (-want +got):\n%s", diff)
			}
			if !slices.IsSorted(got) {
				t.Errorf("not sorted: %v", got)
			}
		})
	}
}

func TestJobEnvironment(t *testing.T) {
	got := strings.Join(lines(JobEnvironment(FlavorRCCLXDev, bothOn)), " ")
	if want := "HSA_NO_SCRATCH_RECLAIM=1 RCCL_DDA_NRANKS=8 RCCL_ENABLE_DDA_ALL_REDUCE=1 " +
		"RCCL_LOW_PRECISION_ENABLE=1"; got != want {
		t.Errorf("both on: %s, want %s", got, want)
	}
	off := strings.Join(lines(JobEnvironment(FlavorRCCLXDev, Settings{})), " ")
	if !strings.Contains(off, "RCCL_DDA_NRANKS=0 RCCL_LOW_PRECISION_ENABLE=0") {
		t.Errorf("both off: %s", off)
	}
	// A user's jobs may use NVLink multicast, though no measurement does.
	own := Settings{Env: []EnvVar{{"NCCL_NVLS_ENABLE", "1"}}}
	if got := JobEnvironment(FlavorNCCL, Settings{}); len(got) != 0 {
		t.Errorf("a job on nccl gets %v", got)
	}
	if got := lines(JobEnvironment(FlavorNCCL, own)); !slices.Equal(got, []string{"NCCL_NVLS_ENABLE=1"}) {
		t.Errorf("a job with a variable of its own gets %v", got)
	}
	if remarks := strings.Join(Remarks(FlavorNCCL), "\n"); !strings.Contains(remarks,
		"NCCL_NVLS_ENABLE=0 is set for every rank process") || !strings.Contains(remarks, "Jobs are free to use it") {
		t.Errorf("remarks: %s", remarks)
	}
	multicast := func(env []EnvVar) string {
		_, why := pathUnder(FlavorNCCL, environmentMap(env), call(AllReduce, BFloat16, 1<<20))
		return why
	}
	if job, rank := multicast(JobEnvironment(FlavorNCCL, Settings{})),
		multicast(Environment(FlavorNCCL, Baseline, own)); !strings.Contains(job, "NVLink multicast where") ||
		!strings.Contains(rank, "not NVLink multicast") {
		t.Errorf("a job: %s; a rank: %s", job, rank)
	}
}

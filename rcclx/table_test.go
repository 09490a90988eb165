package rcclx

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/audience"
)

// Every row can be followed to its source, and says how its value follows from its setting.
func TestTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range table {
		if seen[v.name] {
			t.Errorf("%s has two rows", v.name)
		}
		seen[v.name] = true
		if v.source == "" {
			t.Errorf("%s has no source", v.name)
		}
		if (v.value == nil) != (v.setting == "") || (v.value == nil) != (v.rule == "") {
			t.Errorf("%s has a part of setting, rule and value only", v.name)
		}
		if v.hint == (audience.Advice{}) && v.setting != settingAlways {
			t.Errorf("%s does not say what to do where it is not read", v.name)
		}
		for _, f := range v.mayRead {
			if v.read(f) {
				t.Errorf("%s both reads and may read %s", f, v.name)
			}
		}
	}
	for _, name := range []string{"RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES 204800",
		"RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES 30408704", "RCCL_DDA_SENDBUF_BYTES 33554432",
		"RCCL_DDA_ALL_REDUCE_SENDBUF_BYTES 30408704", "RCCL_DDA_NRANKS 8", "RCCL_DIRECT_ALLGATHER_THRESHOLD 75497472"} {
		variable, unset, _ := strings.Cut(name, " ")
		if row, ok := rowOf(variable); !ok || row.unset != unset {
			t.Errorf("%s is %q where it is not set, want %s", variable, row.unset, unset)
		}
	}
}

// All that an environment sets is in the table's rows for the flavor, with the same values.
func TestSettingVariablesAreTheEnvironment(t *testing.T) {
	thresholds := bothOn
	thresholds.DDA.AllReduceFlatMaxBytes, thresholds.DDA.AllReduceTreeMaxBytes = ptr[int64](1000), ptr[int64](64<<20)
	one := Settings{LowPrecision: LowPrecisionSettings{Mode: ModePreferred, Collectives: []Collective{AllGather}}}
	for _, f := range []Flavor{FlavorRCCL, FlavorRCCLDDA, FlavorRCCLXDev, FlavorRCCLXStable, FlavorNCCL,
		FlavorSimulated} {
		for _, s := range []Settings{{}, bothOn, thresholds, one} {
			env := environmentMap(JobEnvironment(f, s))
			rows := SettingVariables(f, s)
			for _, row := range rows {
				value, set := env[row.Name]
				if set != (row.Value != nil) || set && *row.Value != value || row.Source == "" || row.Rule == "" {
					t.Errorf("%s: row %+v, environment %q (set %v)", f, row, value, set)
				}
				delete(env, row.Name)
			}
			if len(env) > 0 || len(rows) == 0 {
				t.Errorf("%s: %v are set without a row, of %d rows", f, env, len(rows))
			}
		}
	}
}

func TestSourceOfStable(t *testing.T) {
	want := map[string]string{
		"HSA_NO_SCRATCH_RECLAIM": "torchcomms comms/rcclx/snapshots/stable/comms/rcclx/develop/src/init.cc",
		"RCCL_DDA_NRANKS": "torchcomms " +
			"comms/rcclx/snapshots/stable/comms/rcclx/develop/meta/algorithms/AlgoInit.h",
		"RCCL_DDA_ALL_REDUCE_SENDBUF_BYTES": "torchcomms " +
			"comms/rcclx/snapshots/stable/comms/rcclx/develop/meta/algorithms/AlgoInit.h",
		"RCCL_LOW_PRECISION_ENABLE": "torchcomms " +
			"comms/rcclx/snapshots/stable/comms/rcclx/develop/meta/lpcoll/low_precision_common.h",
	}
	found := 0
	for _, row := range SettingVariables(FlavorRCCLXStable, bothOn) {
		if source, ok := want[row.Name]; ok {
			found++
			if row.Source != source {
				t.Errorf("%s: %s, want %s", row.Name, row.Source, source)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d variables found", found, len(want))
	}
}

func TestReads(t *testing.T) {
	for _, tt := range []struct {
		f            Flavor
		name         string
		reads, known bool
	}{
		{FlavorRCCLXDev, "RCCL_DDA_ENABLE", false, true}, {FlavorRCCLXStable, "RCCL_DDA_ENABLE", false, true},
		{FlavorRCCL, "RCCL_DDA_ENABLE", false, true},
		{FlavorRCCLDDA, "RCCL_DDA_ENABLE", true, true}, {FlavorNCCL, "RCCL_DDA_ENABLE", false, true},
		{FlavorUnknown, "RCCL_DDA_ENABLE", false, false},
		{FlavorRCCLXDev, "RCCL_DDA_SENDBUF_BYTES", true, true},
		{FlavorRCCLXStable, "RCCL_DDA_SENDBUF_BYTES", false, true},
		{FlavorRCCLXDev, "RCCL_DIRECT_ALLGATHER_DISABLE", true, true},
		{FlavorRCCLXStable, "RCCL_DIRECT_ALLGATHER_DISABLE", false, true},
		{FlavorRCCL, "RCCL_DIRECT_ALLGATHER_DISABLE", false, false}, {FlavorRCCLXDev, "NCCL_CTRAN_ENABLE", false, true},
		{FlavorRCCLXDev, "NCCL_DEBUG", false, false},
		// Some releases of RCCL have MSCCL; those with DDA are later, and have none.
		{FlavorRCCL, "RCCL_MSCCL_ENABLE", false, false}, {FlavorRCCL, "RCCL_MSCCL_FORCE_ENABLE", false, false},
		{FlavorRCCL, "RCCL_MSCCLPP_ENABLE", false, false},
		{FlavorRCCL, "RCCL_MSCCLPP_THRESHOLD", false, false}, {FlavorRCCLDDA, "RCCL_MSCCL_ENABLE", false, true},
		{FlavorRCCLXDev, "RCCL_MSCCL_ENABLE", false, true},
		{FlavorNCCL, "NCCL_NVLS_ENABLE", true, true}, {FlavorRCCL, "NCCL_NVLS_ENABLE", false, false},
		{FlavorRCCL, "HSA_NO_SCRATCH_RECLAIM", true, true},
		// NCCL and RCCL have diagnostics from 2.31 on, RCCL traces proxies from 2.30.4 on; RCCLX is of 2.28 and 2.27.
		{FlavorNCCL, "NCCL_RUN_DIAGNOSTICS", false, false}, {FlavorRCCLDDA, "NCCL_RUN_RAS_DIAGNOSTICS", false, false},
		{FlavorRCCL, "NCCL_RUN_RAS_DIAGNOSTICS", false, true}, {FlavorRCCLXDev, "NCCL_RUN_DIAGNOSTICS", false, true},
		{FlavorRCCLDDA, "RCCL_PROXYTRACE", false, false}, {FlavorRCCL, "RCCL_PROXYTRACE", false, true},
		{FlavorRCCLXStable, "RCCL_PROXYTRACE", false, true},
		{FlavorRCCL, "RCCL_CE_ALLREDUCE", false, false}, {FlavorRCCLDDA, "RCCL_CE_AR_MAX_MSG_BYTES", false, false},
		{FlavorRCCLXDev, "RCCL_CE_BATCH_ASYNC_ENABLE", false, true}, {FlavorNCCL, "RCCL_CE_ALLREDUCE", false, true},
	} {
		if reads, known := Reads(tt.f, tt.name); reads != tt.reads || known != tt.known {
			t.Errorf("Reads(%s, %s) = %v, %v; want %v, %v", tt.f, tt.name, reads, known, tt.reads, tt.known)
		}
	}
}

// The variable that guides name is reported both without being asked and where a user sets it.
func TestGuidesVariable(t *testing.T) {
	for _, f := range []Flavor{FlavorRCCLXDev, FlavorRCCLXStable, FlavorRCCL, FlavorNCCL} {
		if remarks := strings.Join(Remarks(f), "\n"); !strings.Contains(remarks, "never reads RCCL_DDA_ENABLE") {
			t.Errorf("%s: %s", f, remarks)
		}
		own := Settings{Env: []EnvVar{{"RCCL_DDA_ENABLE", "1"}}}
		found := false
		for _, e := range Effectives(f, own, Scope{Ranks: 8, Nodes: 1}) {
			found = found || e.Name == "env.RCCL_DDA_ENABLE" && e.State == StateNotInEffect &&
				e.Reason == ReasonUnknownVariable
		}
		if !found {
			t.Errorf("%s: RCCL_DDA_ENABLE=1 is not reported", f)
		}
	}
	if remarks := strings.Join(Remarks(FlavorRCCLDDA), "\n"); strings.Contains(remarks, "never reads") {
		t.Errorf("rccl-dda: %s", remarks)
	}
}

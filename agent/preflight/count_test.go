package preflight

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/rcclx"
)

// mixedFacts are those of a node with so many GPUs of both vendors.
func mixedFacts(amdGPUs, nvidiaGPUs int) NodeFacts {
	generation := uint64(2)
	f := NodeFacts{Discovered: &discover.Facts{Generation: &generation,
		Driver: discover.DriverFacts{Kind: discover.DriverInTree}}, NVIDIADriver: true, NVIDIAGPUs: []string{}}
	for i := range amdGPUs {
		f.Discovered.Devices = append(f.Discovered.Devices, discover.Device{Node: i, PCIAddress: "0000:c5:00.0"})
	}
	for range nvidiaGPUs {
		f.NVIDIAGPUs = append(f.NVIDIAGPUs, "0000:19:00.0")
	}
	return f
}

// TestTwoVendors: a GPU of AMD in the processor beside NVIDIA's. What depends on the library is decided when it is
// known.
func TestTwoVendors(t *testing.T) {
	for name, tc := range map[string]struct {
		amd, nvidia, ranks        int
		unloaded, forNCCL, forHIP State // of GPUCount
	}{
		"8 of NVIDIA, 1 of AMD":     {1, 8, 8, Unknown, Met, Failed},
		"enough of both":            {1, 8, 1, Met, Met, Met},
		"too few of both":           {1, 8, 9, Failed, Failed, Failed},
		"AMD's driver without GPUs": {0, 8, 8, Met, Met, Failed},
		"8 of AMD, 1 of NVIDIA":     {8, 1, 8, Unknown, Failed, Met},
		"NVIDIA's driver alone":     {8, 0, 8, Met, Failed, Met},
	} {
		t.Run(name, func(t *testing.T) {
			f := mixedFacts(tc.amd, tc.nvidia)
			need := Need{Ranks: tc.ranks}
			before := CheckNode(f, need)
			got := one(t, before, GPUCount)
			if both := tc.amd > 0 && tc.nvidia > 0; got.State != tc.unloaded || got.Pending != both {
				t.Errorf("before the library is known: %+v, expected %s, pending: %v", got, tc.unloaded, both)
			}
			if got.State == Unknown &&
				(!strings.Contains(got.Message, "KFD shows") || !strings.Contains(got.Message, "gpus shows")) {
				t.Errorf("%q does not tell both counts", got.Message)
			}
			for flavor, want := range map[rcclx.Flavor]State{rcclx.FlavorNCCL: tc.forNCCL,
				rcclx.FlavorRCCLXDev: tc.forHIP} {
				need.Flavor = flavor
				if got := one(t, CheckNode(f, need), GPUCount); got.State != want {
					t.Errorf("%s: %+v, expected %s", flavor, got, want)
				}
				all := Join(before, CheckRanks(f, goodRanks(f, tc.ranks), need))
				if got := one(t, all, GPUCount); tc.unloaded == Unknown && got.State != want {
					t.Errorf("%s, when it was loaded: %+v, expected %s", flavor, got, want)
				}
			}
		})
	}
}

// TestTwoVendorsMasks: what hides GPUs from one vendor's runtime alone is no error while it may be the other's, and
// AMD's kernel settings are asked for only when the library is AMD's.
func TestTwoVendorsMasks(t *testing.T) {
	f := mixedFacts(1, 8)
	need := Need{Ranks: 8, Environ: []string{"ROCR_VISIBLE_DEVICES=0"}}
	before := CheckNode(f, need)
	if got := one(t, before, HiddenGPUs); got.State != Unknown || !got.Pending ||
		!strings.Contains(got.Message, "ROCR_VISIBLE_DEVICES=0 leaves a rank 1") {
		t.Errorf("%+v", got)
	}
	for flavor, want := range map[rcclx.Flavor]State{rcclx.FlavorNCCL: Met, rcclx.FlavorRCCL: Failed} {
		need.Flavor = flavor
		all := Join(before, CheckRanks(f, goodRanks(f, 8), need))
		if got := one(t, all, HiddenGPUs); got.State != want {
			t.Errorf("%s: %+v, expected %s", flavor, got, want)
		}
		settings := 0
		for _, x := range all {
			if x.Name == IOMMU || x.Name == NUMABalancing {
				settings++
			}
		}
		if want := map[bool]int{true: 2}[flavor.HIP()]; settings != want {
			t.Errorf("%s: %d findings of IOMMU and NUMABalancing, expected %d", flavor, settings, want)
		}
	}
}

func TestVisibleGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		facts   NodeFacts
		need    Need
		want    int
		unknown string
	}{
		"none":        {NodeFacts{}, Need{}, 0, ""},
		"AMD":         {mixedFacts(8, 0), Need{}, 8, ""},
		"AMD, masked": {mixedFacts(8, 0), Need{Environ: []string{"HIP_VISIBLE_DEVICES=0,3"}}, 2, ""},
		"AMD, blanks": {mixedFacts(8, 0), Need{Environ: []string{"CUDA_VISIBLE_DEVICES=0, 3"}}, 1, ""},
		"AMD, two masks": {mixedFacts(8, 0),
			Need{Environ: []string{"HIP_VISIBLE_DEVICES=0,1,2", "ROCR_VISIBLE_DEVICES=4,5"}}, 2, ""},
		"AMD, none left": {mixedFacts(8, 0),
			Need{Environ: []string{"HIP_VISIBLE_DEVICES=4,5", "ROCR_VISIBLE_DEVICES=4,5"}}, 0, ""},
		"AMD, OpenCL's": {mixedFacts(8, 0), Need{Environ: []string{"GPU_DEVICE_ORDINAL=0"}}, 0,
			"GPU_DEVICE_ORDINAL=0"},
		"empty mask":     {mixedFacts(8, 0), Need{Environ: []string{"HIP_VISIBLE_DEVICES="}}, 8, ""},
		"NVIDIA":         {mixedFacts(0, 4), Need{}, 4, ""},
		"NVIDIA, blanks": {mixedFacts(0, 4), Need{Environ: []string{"CUDA_VISIBLE_DEVICES=0, 3"}}, 2, ""},
		"NVIDIA, longer": {mixedFacts(0, 2), Need{Environ: []string{"CUDA_VISIBLE_DEVICES=0,1,2,3"}}, 2, ""},
		"NVIDIA, all": {mixedFacts(0, 2), Need{Environ: []string{"CUDA_VISIBLE_DEVICES=all"}}, 0,
			"CUDA_VISIBLE_DEVICES=all"},
		"both": {mixedFacts(1, 8), Need{}, 0,
			"KFD shows 1 GPUs and /proc/driver/nvidia/gpus shows 8 GPUs"},
		"both, as many":     {mixedFacts(1, 1), Need{}, 1, ""},
		"both, known":       {mixedFacts(1, 8), Need{Flavor: rcclx.FlavorNCCL}, 8, ""},
		"both, NVIDIA mask": {mixedFacts(1, 8), Need{Environ: []string{"CUDA_VISIBLE_DEVICES=0"}}, 1, ""},
	} {
		if got, unknown := tc.facts.VisibleGPUs(tc.need); got != tc.want || (unknown != "") != (tc.unknown != "") ||
			!strings.Contains(unknown, tc.unknown) {
			t.Errorf("%s: %d GPUs (%q), expected %d (%q)", name, got, unknown, tc.want, tc.unknown)
		}
	}
}

// TestJoin: what was pending gives way to what was found since, all else stays.
func TestJoin(t *testing.T) {
	got := Join([]Finding{{Name: GPUCount, State: Unknown, Pending: true}, {Name: HiddenGPUs, Pending: true},
		{Name: GPUBusy, State: Unknown}}, []Finding{{Name: GPUCount, State: Met}, {Name: GPUBusy, State: Met}})
	var names []string
	for _, f := range got {
		names = append(names, f.Name+" "+string(f.State))
	}
	if text := strings.Join(names, ", "); text != "HiddenGPUs , GPUBusy Unknown, GPUCount Met, GPUBusy Met" {
		t.Errorf("%s", text)
	}
}

package preflight

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

// TestMasks reads each list with the rules of each runtime; -1 is "not understood".
func TestMasks(t *testing.T) {
	parsers := []func(string) (int, bool){visibleCUDA, visibleHIP, visibleROCr}
	for list, want := range map[string][3]int{ // CUDA, HIP, ROCr
		"0":       {1, 1, 1},
		"0,1,2,3": {4, 4, 4},
		"3,1":     {2, 2, 2},
		"":        {0, 0, 0},
		// Blanks and other ways to write a number.
		"0, 1, 2, 3": {4, 1, 4},
		" 0,1":       {2, 0, 2},
		"00,1":       {2, 0, 2},
		"0x1,0":      {-1, 0, 2},
		// What ends the list.
		"0,2,-1,1": {2, 2, 2},
		"-1":       {0, 0, 0},
		"0,1,":     {2, 2, 2},
		"0,,1":     {-1, 1, -1},
		// An ordinal twice: CUDA's rules say nothing, HIP counts it once, ROCr ends there.
		"0,0,1": {-1, 2, 1},
		// Names.
		"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1": {2, 2, 0}, // too long for ROCr's
		"GPU-1122334455667788, gpu-2":                    {-1, 1, 2},
		"MIG-5f2e, MIG-77aa":                             {2, 0, 0},
		"MIG-GPU-8932f937/1/0":                           {1, 0, 0},
		"GPU-,0":                                         {-1, 2, 0},
		// Words.
		"none": {-1, 0, 0}, "all": {-1, 0, 0}, "0-3": {-1, 0, 0}, "NoDevFiles": {-1, 0, 0}, "0,gpu": {-1, 1, 1}, "99999999999999999999": {-1, 0, 0},
	} {
		for i, runtime := range []string{"CUDA", "HIP", "ROCr"} {
			got, understood := parsers[i](list)
			if !understood {
				got = -1
			}
			if got != want[i] {
				t.Errorf("%s reads %q: %d, expected %d", runtime, list, got, want[i])
			}
		}
	}
}

func FuzzMasks(f *testing.F) {
	for _, s := range []string{"0,1,2", "GPU-12,-1", "", "0,0", "99999999999999999999", "MIG-1, 2", " ,", "0x7,\t1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		for i, parse := range []func(string) (int, bool){visibleCUDA, visibleHIP, visibleROCr} {
			if n, understood := parse(list); n < 0 || n > strings.Count(list, ",")+1 || !understood && n != 0 {
				t.Errorf("parser %d: %q shows %d GPUs (understood: %v)", i, list, n, understood)
			}
		}
	})
}

// TestHiddenFromCUDA: what CUDA understands, or nobody, does not fail a run on four GPUs.
func TestHiddenFromCUDA(t *testing.T) {
	f := gather(t, nvidiaHost())
	for list, want := range map[string]State{
		"0,1,2,3": Warning, "0, 1, 2, 3": Warning, "GPU-a,GPU-b,GPU-c,GPU-d": Warning, "MIG-a,MIG-b,MIG-c,MIG-d": Warning,
		"all": Unknown, "0-3": Unknown, "0,0,0,0": Unknown, "1": Failed, "0,1,-1,2": Failed, "": Failed, "GPU-a": Failed,
	} {
		for _, flavor := range []rcclx.Flavor{"", rcclx.FlavorNCCL} {
			got := one(t, CheckNode(f, Need{Ranks: 4, Flavor: flavor, Environ: []string{"CUDA_VISIBLE_DEVICES=" + list, "ROCR_VISIBLE_DEVICES=0"}}), HiddenGPUs)
			if got.State != want || want != Met && !strings.Contains(got.Message, "CUDA_VISIBLE_DEVICES="+list) {
				t.Errorf("%q (library %q): %+v, expected %s", list, flavor, got, want)
			}
		}
	}
}

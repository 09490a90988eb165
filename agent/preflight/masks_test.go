package preflight

import (
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

// TestMasks reads each list with the rules of each runtime; -1 is "not understood".
func TestMasks(t *testing.T) {
	parsers := []reader{visibleCUDA, visibleHIP, visibleROCr}
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
		// too long for ROCr's source, and in its newer documents
		"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1": {2, 2, -1},
		"GPU-1122334455667788, gpu-2":                    {-1, 1, 2},
		"MIG-5f2e, MIG-77aa":                             {2, 0, 0},
		"MIG-GPU-8932f937/1/0":                           {1, 0, 0},
		"GPU-,0":                                         {-1, 2, 0},
		// Words.
		"none": {-1, 0, 0}, "all": {-1, 0, 0}, "0-3": {-1, 0, 0}, "NoDevFiles": {-1, 0, 0}, "0,gpu": {-1, 1, 1},
		"99999999999999999999": {-1, 0, 0},
	} {
		for i, runtime := range []string{"CUDA", "HIP", "ROCr"} {
			got, understood := parsers[i](list, anyGPUs)
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
		for i, parse := range []reader{visibleCUDA, visibleHIP, visibleROCr} {
			all, _ := parse(list, anyGPUs)
			for _, gpus := range []int{0, 2, anyGPUs} {
				n, understood := parse(list, gpus)
				most := strings.Count(list, ",") + 1
				if i > 0 { // one GPU may have several MIG instances
					most = min(most, gpus)
				}
				if n < 0 || n > most || !understood && n != 0 {
					t.Errorf("parser %d: %q shows %d of %d GPUs (understood: %v)", i, list, n, gpus, understood)
				}
				if n > all && all > 0 {
					t.Errorf("parser %d: %q shows %d of %d GPUs, and %d of any number", i, list, n, gpus, all)
				}
			}
		}
	})
}

// TestHiddenFromCUDA: what CUDA understands, or nobody, does not fail a run on four GPUs.
func TestHiddenFromCUDA(t *testing.T) {
	f := gather(t, nvidiaHost())
	for list, want := range map[string]State{
		"0,1,2,3": Warning, "0, 1, 2, 3": Warning, "GPU-a,GPU-b,GPU-c,GPU-d": Warning,
		"MIG-a,MIG-b,MIG-c,MIG-d": Warning,
		"all":                     Unknown, "0-3": Unknown, "0,0,0,0": Unknown, "1": Failed, "0,1,-1,2": Failed,
		"": Failed, "GPU-a": Failed,
	} {
		for _, flavor := range []rcclx.Flavor{"", rcclx.FlavorNCCL} {
			got := one(t, CheckNode(f, Need{Ranks: 4, Flavor: flavor,
				Environ: []string{"CUDA_VISIBLE_DEVICES=" + list, "ROCR_VISIBLE_DEVICES=0"}}), HiddenGPUs)
			if got.State != want || want != Met && !strings.Contains(got.Message, "CUDA_VISIBLE_DEVICES="+list) {
				t.Errorf("%q (library %q): %+v, expected %s", list, flavor, got, want)
			}
		}
	}
}

// TestMaskChain: ROCr filters first, and HIP numbers what is left.
func TestMaskChain(t *testing.T) {
	const none = -1
	for name, c := range map[string]struct {
		gpus    int
		environ []string
		want    int // none: no variable says
		unclear string
	}{
		"none":                        {8, nil, none, ""},
		"one":                         {8, []string{"ROCR_VISIBLE_DEVICES=4,5"}, 2, ""},
		"the same list twice, from 0": {8, []string{"ROCR_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1"}, 2, ""},
		"the same list twice, upper half": {8,
			[]string{"ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=4,5,6,7"}, 0, ""},
		"the same list twice, in part": {8, []string{"ROCR_VISIBLE_DEVICES=1,2,3", "HIP_VISIBLE_DEVICES=1,2,3"}, 2, ""},
		"a list across":                {8, []string{"ROCR_VISIBLE_DEVICES=3,4", "HIP_VISIBLE_DEVICES=0,3"}, 1, ""},
		"CUDA's for HIP":               {8, []string{"ROCR_VISIBLE_DEVICES=4,5", "CUDA_VISIBLE_DEVICES=4,5"}, 0, ""},
		"HIP's before CUDA's": {8,
			[]string{"ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=4"}, 1, ""},
		"an empty one of HIP": {8,
			[]string{"ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=1"}, 1, ""},
		"an empty one of ROCr":         {8, []string{"ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=0"}, 0, ""},
		"one that no GPU has":          {4, []string{"HIP_VISIBLE_DEVICES=4,5"}, 0, ""},
		"ROCr's ends there":            {4, []string{"ROCR_VISIBLE_DEVICES=3,4,2"}, 1, ""},
		"ROCr reads no more than GPUs": {2, []string{"ROCR_VISIBLE_DEVICES=1,0,x"}, 2, ""},
		"how many is not known": {anyGPUs,
			[]string{"ROCR_VISIBLE_DEVICES=12,13", "HIP_VISIBLE_DEVICES=1"}, 1, ""},
		"UUIDs, then ordinals": {8,
			[]string{"ROCR_VISIBLE_DEVICES=GPU-1122334455667788,GPU-2", "HIP_VISIBLE_DEVICES=1,2"}, 1, ""},
		"ROCr's not understood": {8, []string{"ROCR_VISIBLE_DEVICES=0,,1", "HIP_VISIBLE_DEVICES=0,1"}, 2,
			"ROCR_VISIBLE_DEVICES=0,,1"},
		"OpenCL's, the same GPUs": {8, []string{"ROCR_VISIBLE_DEVICES=0,1", "GPU_DEVICE_ORDINAL=0,1"}, 2, ""},
		"OpenCL's, none of them": {8, []string{"ROCR_VISIBLE_DEVICES=4,5", "GPU_DEVICE_ORDINAL=4,5"}, 2,
			"GPU_DEVICE_ORDINAL=4,5"},
		"OpenCL's alone": {8, []string{"GPU_DEVICE_ORDINAL=3"}, none, "GPU_DEVICE_ORDINAL=3"},
	} {
		chain := chainOf(amd, c.gpus, Need{Environ: c.environ})
		got, known := chain.left()
		if !known {
			got = none
		}
		unclear := ""
		if m := chain.unclear(); m != nil {
			unclear = m.String()
		}
		if got != c.want || unclear != c.unclear {
			t.Errorf("%s: %d GPUs (unclear %q), expected %d (%q)", name, got, unclear, c.want, c.unclear)
		}
	}
}

// TestMaskAdvice names the variables, their values, and what would be right.
func TestMaskAdvice(t *testing.T) {
	for text, environ := range map[string][]string{
		"ROCR_VISIBLE_DEVICES=4,5,6,7 leaves a rank 4 GPUs, renumbered from 0, " +
			"and HIP_VISIBLE_DEVICES=4,5,6,7 leaves 0 of these; " +
			"unset ROCR_VISIBLE_DEVICES=4,5,6,7 or HIP_VISIBLE_DEVICES=4,5,6,7, or write HIP_VISIBLE_DEVICES=0,1,2,3": {
			"ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=4,5,6,7"},
		"ROCR_VISIBLE_DEVICES=4,5 leaves a rank 2 GPUs, renumbered from 0, " +
			"and CUDA_VISIBLE_DEVICES=4,5,6 leaves 0 of these; " +
			"unset ROCR_VISIBLE_DEVICES=4,5 or CUDA_VISIBLE_DEVICES=4,5,6, or write CUDA_VISIBLE_DEVICES=0,1": {
			"ROCR_VISIBLE_DEVICES=4,5", "CUDA_VISIBLE_DEVICES=4,5,6"},
		"ROCR_VISIBLE_DEVICES=4,5 leaves a rank 2 GPUs, renumbered from 0, and HIP_VISIBLE_DEVICES=1 " +
			"leaves 1 of these": {
			"ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=1"},
		"ROCR_VISIBLE_DEVICES= leaves a rank 0 GPUs, renumbered from 0, and HIP_VISIBLE_DEVICES=0 leaves 0 of these": {
			"ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=0"},
		"HIP_VISIBLE_DEVICES=9 leaves a rank 0 GPUs": {"HIP_VISIBLE_DEVICES=9"},
	} {
		c := chainOf(amd, 8, Need{Environ: environ})
		if got := c.String() + c.remedy(); got != text {
			t.Errorf("%v:\n%s\nexpected\n%s", environ, got, text)
		}
	}
}

// TestHiddenBy tells bench, which starts no rank where none has a GPU.
func TestHiddenBy(t *testing.T) {
	need := Need{Environ: []string{"ROCR_VISIBLE_DEVICES=4", "HIP_VISIBLE_DEVICES=4"}}
	if got := mixedFacts(8, 0).HiddenBy(need); !strings.Contains(got, "HIP_VISIBLE_DEVICES=4 leaves 0") {
		t.Errorf("%q", got)
	}
	if got := mixedFacts(8, 0).HiddenBy(Need{}); got != "" {
		t.Errorf("%q", got)
	}
}

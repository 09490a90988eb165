package preflight

import (
	"fmt"
	"strconv"
	"strings"
)

// The variables that hide GPUs from a process.
const (
	maskROCr = "ROCR_VISIBLE_DEVICES"
	maskHIP  = "HIP_VISIBLE_DEVICES"
	maskCUDA = "CUDA_VISIBLE_DEVICES"
)

// mask is one variable as a runtime reads it.
type mask struct {
	name, value string
	// atMost is how many GPUs it leaves, if each that it names is there.
	atMost int
	// understood is false where no rule that we know says what the runtime makes of it.
	understood bool
}

func (m mask) String() string { return fmt.Sprintf("%s=%s", m.name, m.value) }

// masksOf are the variables that hide GPUs from ranks on one vendor's runtime: CUDA reads one; ROCm's lower layer reads its
// own, and HIP on top of it its own or else CUDA's.
func masksOf(v vendor, need Need) []mask {
	var out []mask
	add := func(name string, emptyHides bool, parse func(string) (int, bool)) {
		value, set := need.variable(name)
		if !set || value == "" && !emptyHides {
			return
		}
		n, understood := parse(value)
		out = append(out, mask{name, value, n, understood})
	}
	if v == nvidia {
		add(maskCUDA, true, visibleCUDA)
		return out
	}
	add(maskROCr, true, visibleROCr)
	if hip, _ := need.variable(maskHIP); hip != "" {
		add(maskHIP, false, visibleHIP)
	} else {
		add(maskCUDA, false, visibleHIP)
	}
	return out
}

// visibleCUDA reads CUDA_VISIBLE_DEVICES by its documented rules (CUDA programming guide, "CUDA environment variables"):
// indices, or names that begin with GPU- or MIG-, one GPU each; the list ends at the first negative index, and an empty one
// hides all. Blanks around an index do no harm. What the rules leave open, an index twice or words, is not understood.
func visibleCUDA(list string) (count int, understood bool) {
	if list == "" {
		return 0, true
	}
	entries := strings.Split(list, ",")
	if last := len(entries) - 1; last > 0 && strings.TrimSpace(entries[last]) == "" {
		entries = entries[:last] // a comma at the end
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		named := len(entry) > 4 && (strings.HasPrefix(entry, "GPU-") || strings.HasPrefix(entry, "MIG-"))
		if !named {
			n, err := strconv.ParseInt(entry, 10, 16)
			if err != nil {
				return 0, false
			}
			if n < 0 {
				break
			}
			entry = strconv.FormatInt(n, 10)
		}
		if seen[entry] {
			return 0, false
		}
		seen[entry] = true
	}
	return len(seen), true
}

// visibleHIP reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES for HIP: the entries up to the first that is no ordinal as
// HIP would write it, so that a blank ends the list; an ordinal twice counts once (ROCm clr rocclr/device/rocm/
// rocdevice.cpp). Newer ones know GPU-UUID, of one GPU each.
func visibleHIP(list string) (count int, understood bool) {
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(entry, 10, 16)
		isOrdinal := err == nil && strconv.FormatUint(n, 10) == entry
		if !isOrdinal && !strings.HasPrefix(entry, "GPU-") {
			break
		}
		seen[entry] = true
	}
	return len(seen), true
}

// visibleROCr reads ROCR_VISIBLE_DEVICES (ROCR-Runtime core/runtime/amd_filter_device.cpp): numbers as C writes them or
// GPU-UUID, in any case and with blanks around; the list ends at the first other entry, and at one seen before. An empty
// list hides all; an empty entry is an exception in the runtime.
func visibleROCr(list string) (count int, understood bool) {
	if list == "" {
		return 0, true
	}
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, ","), ",") {
		entry = strings.ToUpper(strings.TrimSpace(entry))
		if entry == "" {
			return 0, false
		}
		if entry[0] != 'G' {
			n, err := strconv.ParseInt(entry, 0, 32)
			if err != nil || n < 0 {
				break
			}
			entry = strconv.FormatInt(n, 10)
		} else if len(entry) < 5 || len(entry) > 20 {
			break
		}
		if seen[entry] {
			break
		}
		seen[entry] = true
	}
	return len(seen), true
}

// checkHiddenGPUs looks at the masks in the ranks' own environment. One that leaves every rank its GPU is only a trap. Where
// the runtime is not known yet, it is Failed or Met only where it is so for each that it may be.
func checkHiddenGPUs(f NodeFacts, need Need) Finding {
	return agreed(HiddenGPUs, f.vendors(need), func(v vendor) Finding { return hiddenFrom(v, need) })
}

func hiddenFrom(v vendor, need Need) Finding {
	var least, unclear *mask
	for _, m := range masksOf(v, need) {
		switch {
		case !m.understood:
			unclear = &m
		case least == nil || m.atMost < least.atMost:
			least = &m
		}
	}
	switch {
	case least != nil && least.atMost < need.Ranks: // a second mask could only hide more
		return found(HiddenGPUs, Failed, -1, "%s leaves a rank %d GPUs, %d ranks need to see that many", least, least.atMost, need.Ranks)
	case unclear != nil:
		return found(HiddenGPUs, Unknown, -1, "how many GPUs %s leaves to a rank is not known, %d ranks need to see that many; a rank that finds none at its ordinal will say so", unclear, need.Ranks)
	case least == nil:
		return met(HiddenGPUs, "no variable of the ranks' environment hides a GPU")
	}
	return found(HiddenGPUs, Warning, -1, "%s leaves a rank %d GPUs, enough for %d ranks; a job with another mask uses other GPUs, and with DDA aborts where it sees fewer", least, least.atMost, need.Ranks)
}

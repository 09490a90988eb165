package preflight

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The variables that hide GPUs from a process.
const (
	maskROCr = "ROCR_VISIBLE_DEVICES"
	maskHIP  = "HIP_VISIBLE_DEVICES"
	maskCUDA = "CUDA_VISIBLE_DEVICES"
	// maskOpenCL is for HIP as well by AMD's documents (HIP, GPU isolation), and for OpenCL alone by its source
	// (rocdevice.cpp, Device::init).
	maskOpenCL = "GPU_DEVICE_ORDINAL"
)

// anyGPUs stands for a number of GPUs that is not known: no ordinal is too large then.
const anyGPUs = math.MaxInt16

// mask is one variable as a runtime reads it.
type mask struct {
	name, value string
	// atMost is how many GPUs it leaves, if each that it names is there.
	atMost int
	// understood is false where no rule that we know says what the runtime makes of it.
	understood bool
}

func (m mask) String() string {
	const most = 64
	value := m.value
	if len(value) > most {
		value = value[:most] + "..."
	}
	return m.name + "=" + value
}

// reader says how many of gpus a list leaves.
type reader func(list string, gpus int) (count int, understood bool)

// maskChain are the variables that hide GPUs from a rank, in the order in which the runtimes apply them: each one names
// the GPUs that the one before it left, renumbered from 0.
type maskChain struct {
	masks []mask
	// disputed is GPU_DEVICE_ORDINAL, where it would leave fewer still; nil elsewhere.
	disputed *mask
}

// chainOf applies the variables of a rank's environment to gpus of one vendor: CUDA reads one; ROCm's lower layer reads
// its own, and HIP on top of it its own or else CUDA's.
func chainOf(v vendor, gpus int, need Need) maskChain {
	var c maskChain
	left := gpus
	next := func(name string, emptyHides bool, read reader) *mask {
		value, set := need.variable(name)
		if !set || value == "" && !emptyHides {
			return nil
		}
		m := mask{name: name, value: value}
		m.atMost, m.understood = read(value, left)
		return &m
	}
	apply := func(m *mask) {
		if m == nil {
			return
		}
		c.masks = append(c.masks, *m)
		if m.understood {
			left = m.atMost
		}
	}
	if v == nvidia {
		apply(next(maskCUDA, true, visibleCUDA))
		return c
	}
	apply(next(maskROCr, true, visibleROCr))
	if hip := next(maskHIP, false, visibleHIP); hip != nil {
		apply(hip)
	} else {
		apply(next(maskCUDA, false, visibleHIP))
	}
	if m := next(maskOpenCL, false, visibleHIP); m != nil && m.atMost < left {
		c.disputed = m
	}
	return c
}

// left is the most that a rank sees: a list that is not understood could only hide more. known is false where no
// variable says.
func (c maskChain) left() (count int, known bool) {
	for _, m := range c.masks {
		if m.understood {
			count, known = m.atMost, true
		}
	}
	return count, known
}

// unclear is the first variable that is not understood, or in dispute; nil where there is none.
func (c maskChain) unclear() *mask {
	for i := range c.masks {
		if !c.masks[i].understood {
			return &c.masks[i]
		}
	}
	return c.disputed
}

// String says what each variable leaves.
func (c maskChain) String() string {
	text := ""
	for _, m := range c.masks {
		switch {
		case !m.understood:
		case text == "":
			text = fmt.Sprintf("%s leaves a rank %d GPUs", m, m.atMost)
		default:
			text += fmt.Sprintf(", renumbered from 0, and %s leaves %d of these", m, m.atMost)
		}
	}
	return text
}

// remedy is what the last variable would have to be to name all that the one before it left; "" where it hides none
// that it was meant to name.
func (c maskChain) remedy() string {
	if len(c.masks) < 2 || !c.masks[0].understood {
		return ""
	}
	first, last := c.masks[0], c.masks[1]
	wanted := min(strings.Count(last.value, ",")+1, first.atMost)
	if last.atMost >= wanted {
		return ""
	}
	return fmt.Sprintf("; unset %s or %s, or write %s=%s", first, last, last.name, ordinals(wanted))
}

// ordinals is "0,1,2".
func ordinals(n int) string {
	texts := make([]string, min(n, 64))
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return strings.Join(texts, ",")
}

// visibleCUDA reads CUDA_VISIBLE_DEVICES by its documented rules (CUDA programming guide, "CUDA environment
// variables"): indices, or names that begin with GPU- or MIG-, one GPU each; the list ends at the first index that is
// negative or that no GPU has, and an empty one hides all. Blanks around an index do no harm. What the rules leave
// open, an index twice or words, is not understood.
func visibleCUDA(list string, gpus int) (count int, understood bool) {
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
			if n < 0 || int(n) >= gpus {
				break
			}
			entry = strconv.FormatInt(n, 10)
		}
		if seen[entry] {
			return 0, false
		}
		seen[entry] = true
	}
	return len(seen), true // one GPU may have several MIG instances
}

// visibleHIP reads HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES for HIP: the entries up to the first that is no ordinal
// of a GPU as HIP would write it, so that a blank ends the list; an ordinal twice counts once (ROCm clr
// rocclr/device/rocm/ rocdevice.cpp). Newer ones know GPU-UUID, of one GPU each.
func visibleHIP(list string, gpus int) (count int, understood bool) {
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(entry, 10, 16)
		isOrdinal := err == nil && strconv.FormatUint(n, 10) == entry && int(n) < gpus
		if !isOrdinal && !strings.HasPrefix(entry, "GPU-") {
			break
		}
		seen[entry] = true
	}
	return min(len(seen), gpus), true
}

// visibleROCr reads ROCR_VISIBLE_DEVICES (ROCR-Runtime core/runtime/amd_filter_device.cpp): numbers as C writes them or
// GPU-UUID, in any case and with blanks around; the list ends at the first other entry, at a number that no GPU has,
// and at one seen before, and no more entries are read than there are GPUs. An empty list hides all; an empty entry is
// an exception in the runtime. A UUID of 36 characters, as newer documents have it, is too long for the source that we
// know.
func visibleROCr(list string, gpus int) (count int, understood bool) {
	if list == "" {
		return 0, true
	}
	seen := map[string]bool{}
	for i, entry := range strings.Split(strings.TrimSuffix(list, ","), ",") {
		if i == gpus {
			break
		}
		entry = strings.ToUpper(strings.TrimSpace(entry))
		if entry == "" {
			return 0, false
		}
		if entry[0] != 'G' {
			n, err := strconv.ParseInt(entry, 0, 32)
			if err != nil || n < 0 || int(n) >= gpus {
				break
			}
			entry = strconv.FormatInt(n, 10)
		} else if len(entry) > 20 && strings.HasPrefix(entry, "GPU-") {
			return 0, false
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

// masked are the variables of a rank applied to the GPUs that the kernel shows of one vendor; all numbers are valid
// where it shows none, since how many there are is a precondition of its own.
func (f NodeFacts) masked(v vendor, need Need) maskChain {
	gpus := anyGPUs
	if s := f.gpusOf(v); s.gpus > 0 {
		gpus = s.gpus + s.unread
	}
	return chainOf(v, gpus, need)
}

// HiddenBy says which variables hide every GPU from a rank; "" where none does.
func (f NodeFacts) HiddenBy(need Need) string {
	for _, v := range f.vendors(need) {
		c := f.masked(v, need)
		if n, known := c.left(); known && n == 0 {
			return c.String() + c.remedy()
		}
	}
	return ""
}

// checkHiddenGPUs looks at the masks in the ranks' own environment. One that leaves every rank its GPU is only a trap.
// Where the runtime is not known yet, it is Failed or Met only where it is so for each that it may be.
func checkHiddenGPUs(f NodeFacts, need Need) Finding {
	return agreed(HiddenGPUs, f.vendors(need), func(v vendor) Finding { return hiddenFrom(f.masked(v, need), need) })
}

func hiddenFrom(c maskChain, need Need) Finding {
	left, known := c.left()
	unclear := c.unclear()
	switch {
	case known && left < need.Ranks: // another mask could only hide more
		return found(HiddenGPUs, Failed, -1, "%s, %d ranks need to see that many%s", c, need.Ranks, c.remedy())
	case unclear != nil && unclear == c.disputed && unclear.atMost < need.Ranks:
		return found(HiddenGPUs, Unknown, -1, "%s leaves a rank %d GPUs by AMD's documents, and is for OpenCL alone "+
			"by its source; %d ranks need to see that many", unclear, unclear.atMost, need.Ranks)
	case unclear != nil && unclear != c.disputed:
		return found(HiddenGPUs, Unknown, -1, "how many GPUs %s leaves to a rank is not known, %d ranks need to see "+
			"that many; a rank that finds none at its ordinal will say so", unclear, need.Ranks)
	case !known:
		return met(HiddenGPUs, "no variable of the ranks' environment hides a GPU")
	}
	return found(HiddenGPUs, Warning, -1,
		"%s, enough for %d ranks; a job with another mask uses other GPUs, and with DDA aborts where it sees fewer",
		c, need.Ranks)
}

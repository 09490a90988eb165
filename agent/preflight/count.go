package preflight

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
)

// vendor of GPUs and their runtime.
type vendor string

const (
	amd    vendor = "AMD"
	nvidia vendor = "NVIDIA"
)

// vendors are those whose GPUs the run may be about: the library's where it is known; else whose GPUs the node shows,
// else whose driver, else both. A processor with graphics of its own puts a GPU of AMD beside NVIDIA's.
func (f NodeFacts) vendors(need Need) []vendor {
	if need.known() {
		if need.Flavor.HIP() {
			return []vendor{amd}
		}
		return []vendor{nvidia}
	}
	d := f.Discovered
	amdGPUs := d != nil && len(d.Devices)+len(d.HiddenNodes)+len(d.UnreadableNodes)+len(d.PCIGPUs) > 0
	// KFD is part of AMD's driver.
	amdDriver := d != nil && (d.Generation != nil || d.Driver.Kind == discover.DriverDKMS ||
		d.Driver.Kind == discover.DriverInTree || d.Driver.Kind == discover.DriverBuiltIn)
	nvidiaGPUs := len(f.NVIDIAGPUs) > 0
	switch {
	case amdGPUs != nvidiaGPUs:
		return vendorsOf(amdGPUs, nvidiaGPUs)
	case amdGPUs || amdDriver == f.NVIDIADriver:
		return vendorsOf(true, true)
	}
	return vendorsOf(amdDriver, f.NVIDIADriver)
}

func vendorsOf(isAMD, isNVIDIA bool) []vendor {
	var out []vendor
	if isAMD {
		out = append(out, amd)
	}
	if isNVIDIA {
		out = append(out, nvidia)
	}
	return out
}

// isAMD says whether AMD's preconditions apply.
func (f NodeFacts) isAMD(need Need) bool {
	v := f.vendors(need)
	return len(v) == 1 && v[0] == amd
}

// needsLibrary says that what the node shows does not tell whose library will run on it.
func (f NodeFacts) needsLibrary() bool { return len(f.vendors(Need{})) > 1 }

// agreed is what holds for each vendor that the run may be about: one finding where the states are the same, else
// Unknown until the library is known.
func agreed(name string, vendors []vendor, check func(vendor) Finding) Finding {
	first := check(vendors[0])
	if len(vendors) == 1 {
		return first
	}
	second := check(vendors[1])
	a, b := first.Message, second.Message
	switch {
	case first.State != second.State:
		return found(name, Unknown, -1,
			"no library was loaded yet that would tell which GPUs it is for; %s's: %s; %s's: %s",
			vendors[0], a, vendors[1], b)
	case a == b:
		return first
	}
	return found(name, first.State, -1, "%s; %s", a, b)
}

// gpuAddresses are the PCI addresses of the GPUs in the kernel's order, one for each partition; nil where not known.
func (f NodeFacts) gpuAddresses(need Need) []string {
	v := f.vendors(need)
	switch {
	case len(v) > 1:
		return nil
	case v[0] == nvidia:
		return f.NVIDIAGPUs
	case f.Discovered == nil:
		return nil
	}
	out := make([]string, 0, len(f.Discovered.Devices))
	for i := range f.Discovered.Devices {
		out = append(out, f.Discovered.Devices[i].PCIAddress)
	}
	return out
}

// shown is what the kernel shows of one vendor's GPUs.
type shown struct {
	// gpus that are usable, and unread ones that may be.
	gpus, unread int
	// isKnown is false where there was no list to count; text says why, or what was seen.
	isKnown bool
	text    string
}

// gpusOf counts what the kernel shows this container. KFD answers EPERM for the GPUs outside its device cgroup.
func (f NodeFacts) gpusOf(v vendor) shown {
	if v == nvidia {
		if f.NVIDIAGPUs == nil {
			return shown{text: "/proc/driver/nvidia/gpus is not there to count GPUs"}
		}
		return shown{gpus: len(f.NVIDIAGPUs), isKnown: true,
			text: fmt.Sprintf("/proc/driver/nvidia/gpus shows %d GPUs", len(f.NVIDIAGPUs))}
	}
	d := f.Discovered
	// A topology that was read and has no GPU counts as well.
	if d == nil || len(d.Devices)+len(d.HiddenNodes)+len(d.UnreadableNodes) == 0 &&
		(d.Generation == nil || f.isUnread(kfdNodesDir)) {
		return shown{text: fmt.Sprintf("KFD's topology shows no GPU (%s)", f.unread("sys/class/kfd/kfd/topology"))}
	}
	s := shown{gpus: len(d.Devices), unread: len(d.UnreadableNodes), isKnown: true,
		text: fmt.Sprintf("KFD shows %d GPUs", len(d.Devices))}
	if n := len(d.HiddenNodes); n > 0 {
		s.text += fmt.Sprintf(" and hides %d from this container", n)
	}
	if s.unread > 0 {
		s.text += fmt.Sprintf(", %d could not be read", s.unread)
	}
	return s
}

// ShowsNoGPU says that nothing that could be read shows a GPU of either vendor, usable or not.
func (f NodeFacts) ShowsNoGPU() bool {
	d := f.Discovered
	return len(f.NVIDIAGPUs) == 0 &&
		(d == nil || len(d.Devices)+len(d.HiddenNodes)+len(d.UnreadableNodes)+len(d.PCIGPUs) == 0)
}

func checkGPUCount(f NodeFacts, need Need) Finding {
	return agreed(GPUCount, f.vendors(need), func(v vendor) Finding {
		state := Failed
		s := f.gpusOf(v)
		switch {
		case !s.isKnown:
			return found(GPUCount, Unknown, -1, "%s", s.text)
		case s.gpus >= need.Ranks:
			state = Met
		case s.gpus+s.unread >= need.Ranks:
			state = Unknown
		}
		return found(GPUCount, state, -1, "%s, %d ranks need one each", s.text, need.Ranks)
	})
}

// VisibleGPUs is how many GPUs a rank with the environment of need will see, by what the kernel shows and its variables
// hide. It is 0 where that is not known: unknown then says why, and is empty where there is none.
func (f NodeFacts) VisibleGPUs(need Need) (count int, unknown string) {
	var seen []string
	for _, v := range f.vendors(need) {
		s := f.gpusOf(v)
		if s.gpus == 0 {
			continue
		}
		n, c := s.gpus, f.masked(v, need)
		if left, known := c.left(); known {
			n = min(n, left)
		}
		if m := c.unclear(); m != nil && n > 0 {
			return 0, fmt.Sprintf("how many GPUs %s leaves to a rank is not known", m)
		}
		if seen = append(seen, s.text); len(seen) > 1 && n != count {
			return 0, fmt.Sprintf("%s, and no library was loaded yet that would tell which it is for",
				strings.Join(seen, " and "))
		}
		count = n
	}
	return count, ""
}

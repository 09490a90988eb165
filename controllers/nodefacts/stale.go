package nodefacts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
)

// PlatformOf is what of a node a result depends on. What is not known stays empty.
func PlatformOf(f *v1alpha1.NodeFacts) *v1alpha1.PlatformFacts {
	p := &v1alpha1.PlatformFacts{BootID: f.BootID, Driver: clip.Head(driverPlatform(&f.Driver), 128),
		ROCm: clip.Head(rocmPlatform(&f.ROCm), 128)}
	if f.Partition != Unknown {
		p.Partition = f.Partition // of which one half may be unknown
	}
	if f.GPUModel != Unknown {
		p.Model = f.GPUModel
	}
	p.Mesh, p.Devices = f.XGMI.Mesh, f.DeviceCount
	p.Firmware = clip.Head(PlatformFirmware(f.Firmware), 64)
	if len(f.GPUs) > 0 && gpusCertain(f) {
		var space [512]byte // so that a group of thousands costs no garbage
		addresses := space[:0]
		for i := range f.GPUs {
			addresses = append(append(addresses, f.GPUs[i].PCIAddress...), 0)
		}
		sum := sha256.Sum256(addresses)
		text := append(strconv.AppendInt(space[:0], int64(f.GPUCount), 10), '/')
		p.GPUs = string(hex.AppendEncode(text, sum[:4]))
	}
	return p
}

// kfdTree begins the files that tell which GPUs there are.
const kfdTree = "sys/class/kfd"

// gpusCertain says whether a GPU that the facts do not show is known not to be there. What could not be read outside of
// KFD's tree (a NIC's file, the kernel's command line, a GPU's own PCI files) hides none.
func gpusCertain(f *v1alpha1.NodeFacts) bool {
	onlyErrors := true // so far
	for i := range f.Problems {
		p := &f.Problems[i]
		isError := p.Severity == v1alpha1.SeverityError
		switch p.Code {
		case v1alpha1.ProblemGPUHidden, v1alpha1.ProblemTopologyUnstable:
			return false
		case v1alpha1.ProblemSysfsUnreadable: // an Error may also be of the scan, of sys or of KFD as a whole
			if isError || strings.HasPrefix(p.Path, kfdTree) {
				return false
			}
		case v1alpha1.ProblemReadTimeout: // an Error for most files: any hung one is a fault
			if strings.HasPrefix(p.Path, kfdTree) {
				return false
			}
		case v1alpha1.ProblemMoreProblems:
			// Errors come first, then TopologyUnstable before other Warnings: those left out can be one of the above
			// only where they begin there. A note without any other problem tells of other things left out
			// (agent/discover fit.go).
			if isError || onlyErrors && i > 0 {
				return false
			}
		}
		onlyErrors = onlyErrors && isError
	}
	return true
}

// driverPlatform is the driver as the inventory shows it, and its source where the version does not say it: a driver
// that was built again may keep its version.
func driverPlatform(d *v1alpha1.DriverFacts) string {
	if d.Kind != "NotLoaded" && d.Version == "" && d.SrcVersion == "" {
		return "" // built in, or unreadable: nothing tells one from another
	}
	switch {
	case d.Kind == "NotLoaded", d.Kind != "Unknown" && d.Version == "":
		return DriverValue(d) // with its source
	}
	return labelled(", ", "", d.Version, "source", d.SrcVersion)
}

func rocmPlatform(r *v1alpha1.ROCmFacts) string {
	version := ROCmValue(r)
	if version == Unknown {
		version = ""
	}
	return labelled(", ", "", version, "RCCL", r.RCCLVersion)
}

// labelled joins pairs of label and value; a pair without a value is left out.
func labelled(separator string, pairs ...string) string {
	var space [160]byte
	out := space[:0]
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if len(out) > 0 {
			out = append(out, separator...)
		}
		if pairs[i] != "" {
			out = append(append(out, pairs[i]...), ' ')
		}
		out = append(out, pairs[i+1]...)
	}
	return string(out)
}

// contradicts compares two texts of labelled, each part that both have.
func contradicts(was, is string) bool {
	if was == is || was == "" || is == "" {
		return false
	}
	before := labelledParts(was)
	for label, value := range labelledParts(is) {
		if old, there := before[label]; there && old != value {
			return true
		}
	}
	return false
}

func labelledParts(s string) map[string]string {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ", ") {
		label, value, _ := strings.Cut(part, " ")
		switch label {
		case "RCCL", "MEC", "SDMA", "source":
			out[label] = value
		default:
			out[""] = part
		}
	}
	return out
}

// Stale says whether a node is no longer what it was when it was measured; nil where nothing contradicts. Only what is
// known of both times is compared: unknown now is no change. The reason is that of the first difference, since a reboot
// explains the others. The finding has no time.
func Stale(assigned *v1alpha1.PlatformFacts, report *v1alpha1.NodeRunStatus,
	facts *v1alpha1.NodeFacts) *v1alpha1.RunStaleness {
	if facts == nil {
		return nil
	}
	was := v1alpha1.PlatformFacts{}
	if assigned != nil {
		was = *assigned
	}
	is := PlatformOf(facts)
	var reason string
	var changes []string
	changed := func(why, what, before, after string) {
		reason = cmp.Or(reason, why)
		changes = append(changes, fmt.Sprintf("%s was %s and is %s", what, before, after))
	}
	// A run that began after a reboot has the new boot id in its report. In a container with a kernel of its own the
	// report's id is never the node's: then the assignment's has to differ, too.
	reported := ""
	if report != nil {
		reported = report.BootID
	}
	if before := cmp.Or(was.BootID, reported); before != "" && is.BootID != "" && before != is.BootID &&
		reported != is.BootID {
		changed(v1alpha1.StaleNodeRebooted, "the boot id", before, is.BootID)
	}
	for _, c := range []struct {
		why, what, was, is string
		contradict         func(was, is string) bool
	}{
		{v1alpha1.StaleDriverChanged, "the amdgpu driver", was.Driver, is.Driver, contradicts},
		{v1alpha1.StaleROCmChanged, "the host's ROCm", was.ROCm, is.ROCm, contradicts},
		{v1alpha1.StaleRepartitioned, "the partition mode", was.Partition, is.Partition, ModesContradict},
		{v1alpha1.StaleFirmwareChanged, "the GPUs' firmware", was.Firmware, is.Firmware, contradicts},
		{v1alpha1.StaleGPUsChanged, "GPUs (count/hash of their PCI addresses)", was.GPUs, is.GPUs, contradicts},
	} {
		if c.contradict(c.was, c.is) {
			changed(c.why, c.what, c.was, c.is)
		}
	}
	if reason == "" {
		return nil
	}
	return &v1alpha1.RunStaleness{Reason: reason,
		Message: clip.Head("After the measurement: "+strings.Join(changes, "; ")+".", 512)}
}

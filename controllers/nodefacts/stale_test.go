package nodefacts

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestStale: each difference that is known on both sides has its reason, and nothing that is merely unknown has one.
func TestStale(t *testing.T) {
	report := func(boot string) *v1alpha1.NodeRunStatus { return &v1alpha1.NodeRunStatus{BootID: boot} }
	for name, tc := range map[string]struct {
		before, after func(*v1alpha1.NodeFacts)
		report        *v1alpha1.NodeRunStatus
		reason        string
		words         string
	}{
		"nothing": {reason: ""},
		"reboot": {after: func(f *v1alpha1.NodeFacts) { f.BootID = "boot-2" }, reason: v1alpha1.StaleNodeRebooted,
			words: "the boot id was boot-1 and is boot-2"},
		"reboot, reported": {after: func(f *v1alpha1.NodeFacts) { f.BootID = "boot-2" },
			report: report("boot-1"), reason: v1alpha1.StaleNodeRebooted, words: "boot-2"},
		"reboot before the run": {after: func(f *v1alpha1.NodeFacts) { f.BootID = "boot-2" }, report: report("boot-2")},
		"reboot unseen so far":  {report: report("boot-2")},
		"container's own boot":  {report: report("guest")},
		"own boot and a reboot": {after: func(f *v1alpha1.NodeFacts) { f.BootID = "boot-2" },
			report: report("guest"), reason: v1alpha1.StaleNodeRebooted},
		"only the report knows": {before: func(f *v1alpha1.NodeFacts) { f.BootID = "" }, report: report("boot-0"),
			reason: v1alpha1.StaleNodeRebooted, words: "boot-0"},
		"boot unknown before": {before: func(f *v1alpha1.NodeFacts) { f.BootID = "" }},
		"boot unknown now":    {after: func(f *v1alpha1.NodeFacts) { f.BootID = "" }, report: report("boot-1")},
		"driver": {after: func(f *v1alpha1.NodeFacts) { f.Driver.Version = "6.16.6" },
			reason: v1alpha1.StaleDriverChanged, words: "was 6.14.5 and is 6.16.6"},
		"driver kind": {after: func(f *v1alpha1.NodeFacts) {
			f.Driver = v1alpha1.DriverFacts{Kind: "InTree", SrcVersion: "ABC"}
		}, reason: v1alpha1.StaleDriverChanged, words: "InTree ABC"},
		"driver gone": {after: func(f *v1alpha1.NodeFacts) {
			f.Driver = v1alpha1.DriverFacts{Kind: "NotLoaded"}
		}, reason: v1alpha1.StaleDriverChanged},
		"driver built again": {before: built("6.14.5", "A"), after: built("6.14.5", "B"),
			reason: v1alpha1.StaleDriverChanged, words: "was 6.14.5, source A and is 6.14.5, source B"},
		"driver's source unknown": {before: built("6.14.5", "A"), after: built("6.14.5", "")},
		"driver's version unreadable": {before: built("6.14.5", "A"),
			after: func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "Unknown", SrcVersion: "A"} }},
		"driver's version unreadable, another source": {before: built("6.14.5", "A"),
			after:  func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "Unknown", SrcVersion: "B"} },
			reason: v1alpha1.StaleDriverChanged, words: "source B"},
		"another version, source unknown": {before: built("6.14.5", "A"), after: built("6.16.6", ""),
			reason: v1alpha1.StaleDriverChanged},
		"driver unloaded, source known": {before: built("6.14.5", "A"),
			after:  func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "NotLoaded"} },
			reason: v1alpha1.StaleDriverChanged, words: "is not loaded"},
		"driver in tree built again": {
			before: func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "InTree", SrcVersion: "A"} },
			after:  func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "InTree", SrcVersion: "B"} },
			reason: v1alpha1.StaleDriverChanged, words: "was InTree A and is InTree B"},
		"driver unknown": {after: func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "Unknown"} }},
		"driver without a version": {
			before: func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "InTree"} },
			after:  func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "InTree", SrcVersion: "ABC"} }},
		"rocm": {after: func(f *v1alpha1.NodeFacts) { f.ROCm.Version = "7.1.0" }, reason: v1alpha1.StaleROCmChanged},
		"rocm removed": {after: func(f *v1alpha1.NodeFacts) { f.ROCm = v1alpha1.ROCmFacts{State: "NotFound"} },
			reason: v1alpha1.StaleROCmChanged, words: "not installed"},
		"rocm unreadable": {after: func(f *v1alpha1.NodeFacts) { f.ROCm = v1alpha1.ROCmFacts{State: "Unreadable"} }},
		"rccl": {before: rccl("2.26.6"), after: rccl("2.27.7"), reason: v1alpha1.StaleROCmChanged,
			words: "7.0.2, RCCL 2.26.6"},
		"rccl unknown": {before: rccl("2.26.6")},
		"rccl alone": {before: rccl("2.26.6"), after: func(f *v1alpha1.NodeFacts) {
			rccl("2.27.7")(f)
			f.ROCm.State = "Ambiguous"
		}, reason: v1alpha1.StaleROCmChanged},
		"repartitioned": {after: func(f *v1alpha1.NodeFacts) { f.Partition = "CPX/NPS4" },
			reason: v1alpha1.StaleRepartitioned},
		"partition unknown":  {after: func(f *v1alpha1.NodeFacts) { f.Partition = Unknown }},
		"one half unknown":   {after: func(f *v1alpha1.NodeFacts) { f.Partition = "SPX/unknown" }},
		"other half unknown": {before: func(f *v1alpha1.NodeFacts) { f.Partition = "unknown/NPS1" }},
		"known half differs": {after: func(f *v1alpha1.NodeFacts) { f.Partition = "CPX/unknown" },
			reason: v1alpha1.StaleRepartitioned, words: "was SPX/NPS1 and is CPX/unknown"},
		"partly repartitioned": {after: func(f *v1alpha1.NodeFacts) { f.Partition = "mixed" },
			reason: v1alpha1.StaleRepartitioned},
		"firmware": {after: func(f *v1alpha1.NodeFacts) { f.Firmware.MEC = "180" },
			reason: v1alpha1.StaleFirmwareChanged, words: "MEC 177, SDMA 24 and is MEC 180"},
		"firmware in part": {after: func(f *v1alpha1.NodeFacts) { f.Firmware.MEC = "" }},
		"firmware unknown": {after: func(f *v1alpha1.NodeFacts) { f.Firmware = nil }},
		"other firmware": {before: func(f *v1alpha1.NodeFacts) { f.Firmware.MEC = "" },
			after: func(f *v1alpha1.NodeFacts) { f.Firmware.SDMA = "25" }, reason: v1alpha1.StaleFirmwareChanged},
		"GPU lost": {after: func(f *v1alpha1.NodeFacts) { f.GPUs, f.GPUCount = testkit.GPUs(7), 7 },
			reason: v1alpha1.StaleGPUsChanged, words: "was 8/"},
		"GPU replaced": {after: func(f *v1alpha1.NodeFacts) { f.GPUs[7].PCIAddress = "0001:05:00.0" },
			reason: v1alpha1.StaleGPUsChanged},
		"GPU out of sight": {after: func(f *v1alpha1.NodeFacts) {
			f.GPUs, f.GPUCount = testkit.GPUs(7), 7
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemReadTimeout,
				Path: "sys/class/kfd/kfd/topology/nodes/9/properties"}}
		}},
		"GPU lost, other files unreadable": {after: func(f *v1alpha1.NodeFacts) {
			f.GPUs, f.GPUCount = testkit.GPUs(7), 7
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning,
				Code: v1alpha1.ProblemSysfsUnreadable, Path: "sys/class/infiniband/mlx5_0/ports/1/state"},
				{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemSysfsUnreadable, Path: "proc/cmdline"}}
		}, reason: v1alpha1.StaleGPUsChanged},
		"no GPU read": {after: func(f *v1alpha1.NodeFacts) { f.GPUs, f.GPUCount = nil, 0 }},
		"other things": {after: func(f *v1alpha1.NodeFacts) {
			f.KernelRelease, f.RenderNodeCount, f.XGMI.Links = "6.9.0", ptr.To(int32(7)), 55
		}},
		"reboot with another driver": {after: func(f *v1alpha1.NodeFacts) {
			f.BootID, f.Driver.Version = "boot-2", "6.16.6"
		}, reason: v1alpha1.StaleNodeRebooted, words: "is boot-2; the amdgpu driver was 6.14.5"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := testkit.Facts(testkit.Now), testkit.Facts(testkit.Now)
			for _, side := range []struct {
				change func(*v1alpha1.NodeFacts)
				facts  *v1alpha1.NodeFacts
			}{{tc.before, before}, {tc.after, after}} {
				if side.change != nil {
					side.change(side.facts)
				}
			}
			got := Stale(PlatformOf(before), tc.report, after)
			if (got == nil) != (tc.reason == "") ||
				got != nil && (got.Reason != tc.reason || !strings.Contains(got.Message, tc.words)) {
				t.Errorf("%+v, expected %q with %q", got, tc.reason, tc.words)
			}
		})
	}
	if got := Stale(nil, nil, testkit.Facts(testkit.Now)); got != nil {
		t.Errorf("nothing is known of the assignment: %+v", got)
	}
	if got := Stale(PlatformOf(testkit.Facts(testkit.Now)), nil, nil); got != nil {
		t.Errorf("nothing is known of the node: %+v", got)
	}
}

// TestGPUsCertain: only what may hide a GPU of KFD makes a GPU that is not shown uncertain.
func TestGPUsCertain(t *testing.T) {
	const kfd = "sys/class/kfd/kfd/topology/nodes/9/properties"
	isError, warning := v1alpha1.SeverityError, v1alpha1.SeverityWarning
	for name, tc := range map[string]struct {
		problems []v1alpha1.Problem
		certain  bool
	}{
		"none":     {nil, true},
		"hidden":   {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemGPUHidden}}, false},
		"unstable": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemTopologyUnstable}}, false},
		"KFD file": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemSysfsUnreadable,
			Path: kfd}}, false},
		"KFD file, as a warning": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemSysfsUnreadable,
			Path: kfd}}, false},
		"KFD file hangs": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemReadTimeout,
			Path: kfd}}, false},
		"no sys": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemSysfsUnreadable,
			Path: "sys"}}, false},
		"scan failed": {[]v1alpha1.Problem{{Severity: isError,
			Code: v1alpha1.ProblemSysfsUnreadable}}, false},
		"NIC file": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemSysfsUnreadable,
			Path: "sys/class/infiniband/mlx5_0/ports/1/state"}}, true},
		"NIC file hangs": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemReadTimeout,
			Path: "sys/class/net/eth0/device/uevent"}}, true},
		"command line": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemSysfsUnreadable,
			Path: "proc/cmdline"}}, true},
		"command line hangs": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemReadTimeout,
			Path: "proc/cmdline"}}, true},
		"PCI file hangs": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemReadTimeout,
			Path: "sys/bus/pci/devices/0000:05:00.0/unique_id"}}, true},
		"partition file": {[]v1alpha1.Problem{{Severity: warning,
			Code: v1alpha1.ProblemPartitionUnreadable, Path: "sys/x_partition"}}, true},
		"details left out": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemMoreProblems}},
			true},
		"warnings left out": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemLinkMissing},
			{Severity: warning, Code: v1alpha1.ProblemNICDown},
			{Severity: warning, Code: v1alpha1.ProblemMoreProblems}}, true},
		"errors left out": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemLinkMissing},
			{Severity: isError, Code: v1alpha1.ProblemMoreProblems}}, false},
		"first warning left out": {[]v1alpha1.Problem{{Severity: isError, Code: v1alpha1.ProblemLinkMissing},
			{Severity: warning, Code: v1alpha1.ProblemMoreProblems}}, false},
		"the second one is what counts": {[]v1alpha1.Problem{{Severity: warning, Code: v1alpha1.ProblemNICDown},
			{Severity: warning, Code: v1alpha1.ProblemReadTimeout, Path: kfd}}, false},
	} {
		if got := gpusCertain(&v1alpha1.NodeFacts{Problems: tc.problems}); got != tc.certain {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func built(version, source string) func(*v1alpha1.NodeFacts) {
	return func(f *v1alpha1.NodeFacts) {
		f.Driver = v1alpha1.DriverFacts{Kind: "DKMS", Version: version, SrcVersion: source}
	}
}

func rccl(version string) func(*v1alpha1.NodeFacts) {
	return func(f *v1alpha1.NodeFacts) { f.ROCm.RCCLVersion = version }
}

// TestPlatformFits: what is written to the API keeps its limits, however long the facts are, and says the same again.
func TestPlatformFits(t *testing.T) {
	f := testkit.Facts(testkit.Now)
	long := strings.Repeat("x", 64)
	f.Driver = v1alpha1.DriverFacts{Kind: "DKMS", Version: long, SrcVersion: long}
	f.ROCm = v1alpha1.ROCmFacts{State: "Found", Version: long, RCCLVersion: long}
	f.Firmware = &v1alpha1.FirmwareFacts{MEC: long[:16], SDMA: long[:16]}
	f.GPUs, f.GPUCount = testkit.GPUs(8), 1<<30
	p := PlatformOf(f)
	if len(p.Driver) > 128 || len(p.ROCm) > 128 || len(p.Firmware) > 64 || len(p.GPUs) > 32 {
		t.Errorf("%+v", p)
	}
	if got := Stale(p, nil, f); got != nil {
		t.Errorf("the same facts are stale: %+v", got)
	}
	if got := PlatformOf(testkit.Facts(testkit.Now)); got.GPUs != "8/"+got.GPUs[2:] || len(got.GPUs) != 10 ||
		got.ROCm != "7.0.2" || got.Firmware != "MEC 177, SDMA 24" || got.Driver != "6.14.5" {
		t.Errorf("%+v", got)
	}
}

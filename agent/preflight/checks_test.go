package preflight

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

// scene is a node, its ranks and what the run needs, before a case changes something.
type scene struct {
	host  memHost
	facts *NodeFacts // gathered after host was changed
	ranks []RankFacts
	need  Need
}

const (
	cmdlinePath = "proc/cmdline"
	numaPath    = "proc/sys/kernel/numa_balancing"
	rocmPath    = "opt/rocm/.info/version"
	driverPath  = "sys/module/amdgpu/version"
	kfdProc     = "sys/class/kfd/kfd/proc/"
)

// eachGPU gives every GPU another target.
func eachGPU(s *scene, target string) {
	for i := range s.facts.Discovered.GPUs {
		s.facts.Discovered.GPUs[i].GFXTarget = target
	}
}

func env(need *Need, kv ...string) { need.Environ = append(kv, need.Environ...) }

// noScratch takes the variable away that makes the firmware irrelevant.
func noScratch(s *scene) {
	s.need.Environ = []string{"NCCL_HOSTID=node"}
}

// cases of every precondition, in each state that it can have. host runs before the facts are gathered, ranks after.
var cases = []struct {
	name  string
	state State
	rank  int
	text  string
	host  func(*scene)
	ranks func(*scene)
}{
	{NUMABalancing, Met, -1, "is 0", nil, nil},
	{NUMABalancing, Warning, -1, "numa_balancing is 1, expected 0",
		func(s *scene) { s.host.fs[numaPath] = "1\n" }, nil},
	{NUMABalancing, Unknown, -1, "Forbidden", func(s *scene) { s.host.fs[numaPath] = "!EPERM" }, nil},
	{NUMABalancing, Unknown, -1, "is not there", func(s *scene) { delete(s.host.fs, numaPath) }, nil},
	{NUMABalancing, Unknown, -1, "Malformed", func(s *scene) { s.host.fs[numaPath] = "yes\n" }, nil},
	{NUMABalancing, Unknown, -1, "no root", func(s *scene) { s.host.fs = nil }, nil},

	{IOMMU, Met, -1, "has iommu=pt", nil, nil},
	{IOMMU, Met, -1, "virtual machine",
		func(s *scene) { s.host.fs[cmdlinePath] = "ro quiet\n"; s.host.virtual = true }, nil},
	{IOMMU, Met, -1, "Cray's kernel", func(s *scene) {
		s.host.fs[cmdlinePath], s.host.fs["proc/sys/kernel/osrelease"] = "ro quiet\n", "5.14.21-cray_shasta_c\n"
	}, nil},
	{IOMMU, Met, -1, "no IOMMU is in use (amd_iommu=off on",
		func(s *scene) { s.host.fs[cmdlinePath] = "ro amd_iommu=off\n" }, nil},
	{IOMMU, Met, -1, "passthrough mode (iommu.passthrough=1 on",
		func(s *scene) { s.host.fs[cmdlinePath] = "ro iommu.passthrough=1\n" }, nil},
	{IOMMU, Met, -1, "has iommu=pt,force", func(s *scene) { s.host.fs[cmdlinePath] = "ro iommu=pt,force\n" }, nil},
	{IOMMU, Met, -1, "no IOMMU is in use (/sys/kernel/iommu_groups)", func(s *scene) {
		s.host.fs[cmdlinePath], s.host.fs["sys/kernel/iommu_groups/."] = "ro quiet\n", ""
	}, nil},
	{IOMMU, Met, -1, "passthrough mode (/sys/kernel/iommu_groups); the library may still warn", func(s *scene) {
		s.host.fs[cmdlinePath], s.host.fs["sys/kernel/iommu_groups/7/type"] = "ro quiet\n", "identity\n"
	}, nil},
	{IOMMU, Warning, -1, "/sys/kernel/iommu_groups: type DMA or DMA-FQ for 8 of 8 GPUs",
		func(s *scene) { s.host.fs["sys/kernel/iommu_groups/7/type"] = "DMA-FQ\n" }, nil},
	{IOMMU, Warning, -1, "iommu.passthrough=0 on",
		func(s *scene) { s.host.fs[cmdlinePath] = "ro iommu=pt iommu.passthrough=0\n" }, nil},
	{IOMMU, Unknown, -1,
		"not known: /sys/kernel/iommu_groups does not tell, and the kernel's command line has no word iommu=pt",
		func(s *scene) { s.host.fs[cmdlinePath] = "ro iommu=ptx\n" }, nil},
	{IOMMU, Unknown, -1, "could not be read", func(s *scene) { s.host.fs[cmdlinePath] = "!EPERM" }, nil},
	{IOMMU, Unknown, -1, "could not be read", func(s *scene) { s.host.fs[cmdlinePath] = "\n" }, nil},

	{ROCmVersion, Met, -1, "have ROCm 7.0.2 (/opt/rocm/.info/version), for gfx942 with amdgpu 6.14.14", func(s *scene) {
		s.host.fs[rocmPath], s.host.fs[driverPath] = "7.0.2-56\n", "6.14.14\n"
	}, nil},
	{ROCmVersion, Warning, -1, "librccl (opt/rocm/lib/librccl.so.1) is of ROCm 6.4.1, an older release than ROCm 7.0.2",
		func(s *scene) {
			s.host.fs[rocmPath], s.host.fs[driverPath], s.host.fs["opt/rocm/lib/librccl.so.1"] = "7.0.2-56\n",
				"6.14.14\n", "librccl.so.1.0.60401"
		}, nil},
	{ROCmVersion, Met, -1, "have ROCm 6.4.0 (/opt/mine/.info/version)", func(s *scene) {
		s.host.environ = []string{"ROCM_PATH=/opt/mine", "ROCM_PATH=/opt/other"} // as getenv does, the first counts
		s.host.fs[rocmPath], s.host.fs["opt/mine/.info/version"], s.host.fs["opt/other/.info/version"] = "5.0.0",
			"6.4.0", "5.1.0"
	}, nil},
	{ROCmVersion, Met, -1, "a driver without a version", func(s *scene) { delete(s.host.fs, driverPath) }, nil},
	{ROCmVersion, Failed, -1, "have ROCm 6.3.4 (/opt/rocm/.info/version), expected at least 6.4 for gfx942",
		func(s *scene) { s.host.fs[rocmPath] = "6.3.4-76\n" }, nil},
	{ROCmVersion, Failed, -1, "expected at least 6.4 for gfx942",
		func(s *scene) { s.host.fs[rocmPath], s.host.fs[driverPath] = "5", "6.14.14\n" }, nil},
	{ROCmVersion, Failed, -1, "have ROCm 6.4.4 (/opt/rocm/.info/version), expected at least 7.0 for gfx950",
		func(s *scene) { s.host.fs[rocmPath] = "6.4.4" }, func(s *scene) { eachGPU(s, "gfx950") }},
	{ROCmVersion, Failed, -1, "expected at least 7.0 for gfx950", func(s *scene) { s.host.fs[rocmPath] = "6.4.4" },
		func(s *scene) { s.facts.Discovered.GPUs[3].GFXTarget = "gfx950" }}, // one GPU of eight
	{ROCmVersion, Warning, -1, "have ROCm 7.2.0 (/opt/rocm/.info/version), and amdgpu 6.8.5 (driver of ROCm 6.2) is " +
		"supported with ROCm 6.0 to 7.0", func(s *scene) {
		s.host.fs[rocmPath], s.host.fs[driverPath] = "7.2.0", "6.8.5\n"
	}, nil},
	{ROCmVersion, Unknown, -1, "not known (no file, library or package tells it)",
		func(s *scene) { s.host.fs = s.host.fs.without("opt") }, nil},
	{ROCmVersion, Unknown, -1, "not known (/opt/rocm/.info/version: Forbidden", func(s *scene) {
		s.host.fs = s.host.fs.without("opt")
		s.host.fs[rocmPath] = "!EPERM"
	}, nil},
	{ROCmVersion, Unknown, -1, "not known (several: 6.4.1 in /opt/rocm-6.4.1/.info/version, 7.0.2 in /opt/rocm-7.0.2/",
		func(s *scene) {
			s.host.fs = s.host.fs.without("opt")
			s.host.fs["opt/rocm-6.4.1/.info/version"], s.host.fs["opt/rocm-7.0.2/.info/version"] = "6.4.1", "7.0.2"
		}, nil},
	{ROCmVersion, Unknown, -1, "whether that does for gfx942 is not known",
		func(s *scene) { s.host.fs[rocmPath] = "6" }, nil},
	{ROCmVersion, Unknown, -1, "whether that does for gfx1250 is not known", nil,
		func(s *scene) { eachGPU(s, "gfx1250") }},
	{ROCmVersion, Met, -1, "for gfx90a with", func(s *scene) { s.host.fs[rocmPath] = "6.2.4" },
		func(s *scene) { eachGPU(s, "gfx90a") }},
	{ROCmVersion, Unknown, -1, "of no GPU is it known", nil, func(s *scene) { eachGPU(s, "") }},
	{ROCmVersion, Unknown, -1, "no root", func(s *scene) { s.host.fs = nil }, nil},

	{LockedMemory, Met, -1, "no limit", nil, nil},
	{LockedMemory, Met, -1, "67108864 bytes", func(s *scene) { s.host.memlock = 64 << 20 }, nil},
	{LockedMemory, Warning, -1, "8388608 bytes, RDMA needs at least 67108864",
		func(s *scene) { s.host.memlock = 8 << 20 }, nil},
	{LockedMemory, Unknown, -1, "not read", nil, func(s *scene) { s.facts.LockedMemoryLimitBytes = nil }},

	{SharedMemory, Met, -1, "expected 67108864 for 8 ranks", func(s *scene) { s.host.shm = 64 << 20 }, nil},
	{SharedMemory, Warning, -1, "67108863 bytes free, expected 67108864 for 8 ranks: where two GPUs have no P2P, " +
		"the library may fail to form a communicator or die of SIGBUS",
		func(s *scene) { s.host.shm = 64<<20 - 1 }, nil}, // Docker's default with one file left over
	{SharedMemory, Warning, -1, "524288 bytes free", func(s *scene) { s.host.shm = 8 * 64 << 10 }, nil},
	{SharedMemory, Failed, -1, "full: 524287 bytes are free", func(s *scene) { s.host.shm = 8*64<<10 - 1 }, nil},
	{SharedMemory, Failed, -1, "full: 0 bytes are free", func(s *scene) { s.host.shm = 0 }, nil},
	{SharedMemory, Unknown, -1, "no such", func(s *scene) { s.host.shmErr = errNoShm }, nil},

	{GPUCount, Met, -1, "KFD shows 8 GPUs, 8 ranks", nil, nil},
	{GPUCount, Failed, -1, "KFD shows 8 GPUs, 9 ranks", func(s *scene) { s.need.Ranks = 9 }, nil},
	{GPUCount, Failed, -1, "hides 8 from this container", func(s *scene) { hideGPUs(s.host.fs, "!EPERM") }, nil},
	{GPUCount, Unknown, -1, "8 could not be read", func(s *scene) { hideGPUs(s.host.fs, "!EIO") }, nil},
	{GPUCount, Unknown, -1, "shows no GPU", func(s *scene) { s.host.fs = memFS{} }, nil},

	{HiddenGPUs, Met, -1, "no variable", nil, nil},
	{HiddenGPUs, Met, -1, "no variable", func(s *scene) { env(&s.need, "HIP_VISIBLE_DEVICES=") }, nil},
	// HIP then does not read CUDA's
	{HiddenGPUs, Warning, -1, "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 leaves", func(s *scene) {
		env(&s.need, "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES=0")
	}, nil},
	{HiddenGPUs, Warning, -1, "leaves a rank 8 GPUs",
		func(s *scene) { env(&s.need, "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7") }, nil},
	{HiddenGPUs, Failed, -1, "ROCR_VISIBLE_DEVICES=3 leaves a rank 1 GPUs",
		func(s *scene) { env(&s.need, "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", "ROCR_VISIBLE_DEVICES=3") }, nil},
	{HiddenGPUs, Failed, -1, "ROCR_VISIBLE_DEVICES= leaves a rank 0 GPUs",
		func(s *scene) { env(&s.need, "ROCR_VISIBLE_DEVICES=") }, nil},
	{HiddenGPUs, Unknown, -1, "how many GPUs ROCR_VISIBLE_DEVICES=0,,1",
		func(s *scene) { env(&s.need, "ROCR_VISIBLE_DEVICES=0,,1") }, nil},
	{HiddenGPUs, Failed, -1, "CUDA_VISIBLE_DEVICES=-1 leaves a rank 0 GPUs",
		func(s *scene) { env(&s.need, "CUDA_VISIBLE_DEVICES=-1") }, nil},

	{HiddenGPUs, Failed, -1, "ROCR_VISIBLE_DEVICES=4,5,6,7 leaves a rank 4 GPUs, renumbered from 0, " +
		"and HIP_VISIBLE_DEVICES=4,5,6,7 leaves 0 of these, 4 ranks", func(s *scene) {
		s.need.Ranks = 4
		env(&s.need, "ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=4,5,6,7")
	}, nil},
	{HiddenGPUs, Unknown, -1, "GPU_DEVICE_ORDINAL=4,5,6,7 leaves a rank 0 GPUs by AMD's documents", func(s *scene) {
		s.need.Ranks = 4
		env(&s.need, "ROCR_VISIBLE_DEVICES=4,5,6,7", "GPU_DEVICE_ORDINAL=4,5,6,7")
	}, nil},
	{HiddenGPUs, Failed, -1, "HIP_VISIBLE_DEVICES=8 leaves a rank 0 GPUs, 1 ranks", func(s *scene) {
		s.need.Ranks = 1
		env(&s.need, "HIP_VISIBLE_DEVICES=8")
	}, nil},

	{AddressFamily, Met, -1, "IPv4 address 10.0.0.5 of eth0", nil, nil},
	{AddressFamily, Met, -1, "IPv6 address fd00::5 of eth0",
		func(s *scene) { env(&s.need, "NCCL_SOCKET_FAMILY=AF_INET6") }, nil},
	{AddressFamily, Met, -1, "127.0.0.1 of lo", func(s *scene) { env(&s.need, "NCCL_SOCKET_IFNAME=lo") }, nil},
	{AddressFamily, Warning, -1, "the only one", func(s *scene) { s.host.interfaces = []Interface{lo} }, nil},
	{AddressFamily, Warning, -1, "which the library ignores",
		func(s *scene) { env(&s.need, "NCCL_SOCKET_FAMILY=IPv6") }, nil},
	{AddressFamily, Failed, -1, "other nodes do not reach",
		func(s *scene) { s.host.interfaces = []Interface{lo}; s.need.Nodes = 2 }, nil},
	{AddressFamily, Met, -1, "127.0.0.1 of lo", func(s *scene) { // simulated nodes
		env(&s.need, "NCCL_SOCKET_IFNAME==lo")
		s.need.Nodes, s.need.PodIP = 2, "127.70.3.9"
	}, nil},
	{AddressFamily, Failed, -1, "other nodes do not reach", func(s *scene) {
		env(&s.need, "NCCL_SOCKET_IFNAME==lo")
		s.need.Nodes, s.need.PodIP = 2, "10.0.0.9"
	}, nil},
	{AddressFamily, Failed, -1, `NCCL_SOCKET_IFNAME="ib0"`,
		func(s *scene) { env(&s.need, "NCCL_SOCKET_IFNAME=ib0") }, nil},
	{AddressFamily, Failed, -1, "eth0 10.0.0.5 (not running)", func(s *scene) {
		s.host.interfaces = []Interface{{Name: "eth0", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}
	}, nil},
	// a library that may not look at that
	{AddressFamily, Warning, -1, "only the IPv4 address 10.0.0.5 of eth0 would do", func(s *scene) {
		s.need.Flavor = rcclx.FlavorRCCL
		s.host.interfaces = []Interface{{Name: "eth0", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}
	}, nil},
	{AddressFamily, Unknown, -1, "no netlink", nil, func(s *scene) { s.facts.InterfacesError = "no netlink" }},

	{ScratchReclaim, Met, -1, "HSA_NO_SCRATCH_RECLAIM is 1", nil, nil},
	{ScratchReclaim, Met, -1, "new enough", noScratch, func(s *scene) { firmware(s, 177) }},
	{ScratchReclaim, Met, -1, "gfx90a needs it not", noScratch,
		func(s *scene) { s.facts.Discovered.Devices[0].GFXTarget = "gfx90a" }},
	{ScratchReclaim, Warning, -1, "slows RCCL down", noScratch, func(s *scene) {
		s.facts.Discovered.Devices[0].GFXTarget = "gfx90a"
		for i := range s.ranks {
			s.ranks[i].Library.RuntimeVersionCode = 71300000
		}
	}},
	{ScratchReclaim, Failed, -1, "MEC firmware 176", noScratch, func(s *scene) { firmware(s, 176) }},
	{ScratchReclaim, Failed, -1, "HIP runtime 60443483", noScratch,
		func(s *scene) { firmware(s, 177); s.ranks[5].Library.RuntimeVersionCode-- }},
	{ScratchReclaim, Failed, -1, "MEC firmware 23", noScratch,
		func(s *scene) { firmware(s, 23); s.facts.Discovered.Devices[0].GFXTarget = "gfx950" }},
	{ScratchReclaim, Warning, -1, "RCCLX refuses then",
		func(s *scene) { noScratch(s); s.need.Flavor = rcclx.FlavorRCCL }, func(s *scene) { firmware(s, 176) }},
	{ScratchReclaim, Unknown, -1, "is not known", noScratch,
		func(s *scene) { s.facts.Discovered.Devices[0].FWVersion = nil }},
	{ScratchReclaim, Unknown, -1, "is not known", noScratch, func(s *scene) { firmware(s, 0) }},
	{ScratchReclaim, Unknown, -1, "is not known", noScratch,
		func(s *scene) { s.facts.Discovered.Devices[0].GFXTarget = "" }},
	{ScratchReclaim, Unknown, -1, "could not be read", func(s *scene) { noScratch(s); s.host.fs = memFS{} }, nil},

	{SharedGPU, Met, -1, "8 ranks are on 8 GPUs", nil, nil},
	{SharedGPU, Failed, 5, "ranks 2 and 5 both got GPU 0000:5b:00.0", nil,
		func(s *scene) { s.ranks[5].Library.PCIAddress = s.ranks[2].Library.PCIAddress }},
	{SharedGPU, Unknown, 3, "did not say which", nil, func(s *scene) { s.ranks[3].Library.PCIAddress = "" }},
	// nothing was discovered
	{SharedGPU, Unknown, 5, "ranks 2 and 5 both got GPU 0000:5b:00.0, and how many devices", nil, func(s *scene) {
		s.ranks[5].Library.PCIAddress, s.facts.Discovered = s.ranks[2].Library.PCIAddress, nil
	}},
	// no device there
	{SharedGPU, Unknown, 5, "ranks 2 and 5 both got GPU 0000:ff:00.0, and how many devices", nil, func(s *scene) {
		s.ranks[2].Library.PCIAddress, s.ranks[5].Library.PCIAddress = "0000:ff:00.0", "0000:ff:00.0"
	}},
	{SharedGPU, Unknown, 5, "and how many devices", nil, func(s *scene) { // a device somewhere
		s.ranks[5].Library.PCIAddress, s.facts.Discovered.UnreadableNodes = s.ranks[2].Library.PCIAddress, []int{12}
	}},
	{SharedGPU, Met, -1, "on 8 GPUs", nil, func(s *scene) { s.facts.Discovered = nil }},
	{SharedGPU, Unknown, 3, "did not say which", nil, func(s *scene) { s.ranks[3].Library = nil }},

	{OneProcessPerGPU, Met, -1, "process of its own", nil, nil},
	{OneProcessPerGPU, Failed, 4, "ranks 1 and 4 are both in process 101, expected one for each: DDA aborts", nil,
		func(s *scene) { s.ranks[4].ProcessID = 101 }},
	{OneProcessPerGPU, Warning, 4, "would abort", nil,
		func(s *scene) { s.ranks[4].ProcessID, s.need.Variants = 101, s.need.Variants[:1] }},
	{OneProcessPerGPU, Unknown, 2, "not known", nil, func(s *scene) { s.ranks[2].ProcessID = 0 }},

	{GPUOrder, Met, -1, "follow the kernel's order", nil, nil},
	{GPUOrder, Warning, 1,
		"ordinal 0 is GPU 0000:2b:00.0 and ordinal 1 is GPU 0000:05:00.0, the kernel lists them the other way round",
		nil, func(s *scene) { swap(s.ranks, 0, 1) }},
	{GPUOrder, Failed, 0, "rank 0 is on ordinal 1, expected 0", nil,
		func(s *scene) { s.ranks[0].Device, s.ranks[1].Device = 1, 0 }},
	// fewer ranks, on the last GPUs, and addresses as CUDA writes them
	{GPUOrder, Met, -1, "follow", nil, func(s *scene) {
		s.ranks = s.ranks[:2]
		s.ranks[0].Library.PCIAddress, s.ranks[1].Library.PCIAddress = "00000000:A5:00.0", "0000:E7:00.0"
		s.need.Ranks = 2
	}},
	{GPUOrder, Met, -1, "follow", nil, func(s *scene) { // without DDA any ordinal will do
		s.ranks[0].Device, s.ranks[1].Device, s.need.Variants = 1, 0, s.need.Variants[:1]
		swap(s.ranks, 0, 1)
	}},
	{GPUOrder, Unknown, 7, "not among those", nil, func(s *scene) { s.ranks[7].Library.PCIAddress = "0000:ff:00.0" }},
	{GPUOrder, Unknown, -1, "order of GPUs is not known", func(s *scene) { s.host.fs = memFS{} }, nil},

	{SameLibrary, Met, -1, "2.28.3, build 0123456789abcdef", nil, nil},
	{SameLibrary, Failed, 6, "rank 6 loaded /other", nil,
		func(s *scene) { s.ranks[6].Library.Path, s.ranks[6].Library.BuildHash = "/other", "ff" }},
	{SameLibrary, Failed, 6, "2.27.7", nil, func(s *scene) { s.ranks[6].Library.VersionCode = 22707 }},
	{SameLibrary, Failed, 1, "GPU runtime 70000000", nil,
		func(s *scene) { s.ranks[1].Library.RuntimeVersionCode = 70000000 }},
	{SameLibrary, Unknown, 4, "of rank 4's library the build", nil,
		func(s *scene) { s.ranks[4].Library.BuildHash = "" }},
	{SameLibrary, Unknown, 0, "the GPU runtime (0) is not known", nil,
		func(s *scene) { s.ranks[0].Library.RuntimeVersionCode = 0 }},
	{SameLibrary, Failed, 5, "rank 5 loaded", nil,
		func(s *scene) { s.ranks[4].Library.BuildHash = ""; s.ranks[5].Library.BuildHash = "ff" }},
	{SameLibrary, Unknown, 1, "did not say what it loaded", nil, func(s *scene) { s.ranks[1].Library = nil }},
	{SameLibrary, Unknown, 0, "is not known", nil,
		func(s *scene) { each(s, func(l *rcclx.LibraryInfo) { l.BuildHash = "" }) }},

	{SameSettings, Met, -1, "fedcba9876543210", nil, nil},
	{SameSettings, Failed, 3, "rank 3 (00) differ from those of rank 0 (fedcba9876543210)", nil,
		func(s *scene) { s.ranks[3].Library.SettingsHash = "00" }},
	{SameSettings, Unknown, 0, "did not say which settings", nil,
		func(s *scene) { each(s, func(l *rcclx.LibraryInfo) { l.SettingsHash = "" }) }},

	{GPUMemory, Met, -1, "at least 205084688384 bytes free (rank 0), the run needs 4294967296", nil, nil},
	{GPUMemory, Warning, 2, "which may be about", nil,
		func(s *scene) { s.ranks[2].Library.FreeMemoryBytes = 6<<30 - 1 }},
	{GPUMemory, Met, -1, "", nil, func(s *scene) { s.ranks[2].Library.FreeMemoryBytes = 6 << 30 }},
	// What RCCL 2.27.7 took at eight ranks, less than which is not enough.
	{GPUMemory, Warning, 2, "", nil, func(s *scene) { s.ranks[2].Library.FreeMemoryBytes = 4<<30 + 1_530_000_000 }},
	{GPUMemory, Failed, 2, "rank 2 (GPU 0000:5b:00.0) has 4294967295 of", nil,
		func(s *scene) { s.ranks[2].Library.FreeMemoryBytes = 4<<30 - 1 }},
	{GPUMemory, Failed, 0, "has 0 of", nil, func(s *scene) { s.ranks[0].Library.FreeMemoryBytes = 0 }},
	{GPUMemory, Unknown, 7, "did not say how much", nil, func(s *scene) { s.ranks[7].Library.TotalMemoryBytes = 0 }},

	{GPUBusy, Met, -1, "no other process", func(s *scene) { s.host.fs[kfdProc+"4711/pasid"] = "32769\n" }, nil},
	{GPUBusy, Unknown, -1, "no list of processes",
		func(s *scene) { s.host.fs = s.host.fs.without("sys/class/kfd/kfd/proc") }, nil},
	{GPUBusy, Met, -1, "the firmware says that they are idle", func(s *scene) {
		s.host.fs = s.host.fs.without("sys/class/kfd/kfd/proc")
		for rank := range 8 {
			s.host.fs[busyFile(s, rank)] = "1\n"
		}
	}, nil},
	{GPUBusy, Warning, 5, "was 97 % busy before the run, expected under 5 %",
		func(s *scene) { s.host.fs[busyFile(s, 5)] = "97\n" }, nil},
	{GPUBusy, Met, -1, "no other process", func(s *scene) { s.host.fs[busyFile(s, 5)] = "4\n" }, nil},
	// not a percentage
	{GPUBusy, Met, -1, "no other process", func(s *scene) { s.host.fs[busyFile(s, 5)] = "65535\n" }, nil},
	{GPUBusy, Warning, 6,
		"process 4711 (pid of the host) can compute on GPU 0000:d5:00.0 (rank 6), which has 2 of its queues",
		func(s *scene) {
			for _, queue := range []string{"0", "1"} {
				s.host.fs[kfdProc+"4711/queues/"+queue+"/gpuid"] = gpuID(s, 6) + "\n"
			}
		}, nil},
	{GPUBusy, Failed, 6, "process 4711 (pid of the host) computes on GPU 0000:d5:00.0 (rank 6), which is 60 % busy " +
		"and has 1 of its queues", func(s *scene) {
		s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 6)] = "4096\n"
		s.host.fs[kfdProc+"4711/queues/0/gpuid"], s.host.fs[busyFile(s, 6)] = gpuID(s, 6)+"\n", "60\n"
	}, nil},
	{GPUBusy, Met, -1, "no other process",
		func(s *scene) { s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 2)] = "4096\n" }, nil},
	{GPUBusy, Warning, 2, "process 4711 (pid of the host)",
		func(s *scene) { s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 2)] = "17179869184\n" }, nil},
	{GPUBusy, Failed, 3, "computes on GPU 0000:65:00.0 (rank 3), with 38 compute units in use", func(s *scene) {
		s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 2)] = "17179869184\n"
		s.host.fs[kfdProc+"4712/stats_"+gpuID(s, 3)+"/cu_occupancy"] = "38\n"
	}, nil},
	{GPUBusy, Warning, 4, "are taken before the run", nil,
		func(s *scene) { s.ranks[4].Library.FreeMemoryBytes = 150 << 30 }},
	{GPUBusy, Unknown, -1, "process 4711 (pid of the host)",
		func(s *scene) { s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 2)] = "!EPERM" }, nil},
	{GPUBusy, Unknown, -1, "process 4711 (pid of the host)",
		func(s *scene) { s.host.fs[kfdProc+"4711/vram_"+gpuID(s, 2)] = "much\n" }, nil},
	{GPUBusy, Met, -1, "no other process", func(s *scene) { // MI100 and older do not count busy compute units
		s.host.fs[kfdProc+"4711/stats_"+gpuID(s, 2)+"/cu_occupancy"] = "!EINVAL"
	}, nil},
	{GPUBusy, Unknown, 6, "did not say how much", nil, func(s *scene) { s.ranks[6].Library.TotalMemoryBytes = 0 }},
}

func TestPreconditions(t *testing.T) {
	tree := nodeTree(t, "MI300X")
	states := map[string][]State{}
	for _, c := range cases {
		t.Run(c.name+" "+string(c.state)+" "+c.text, func(t *testing.T) {
			s := &scene{host: goodHost(tree.with(nil)), need: goodNeed()}
			if c.host != nil {
				c.host(s)
			}
			facts := gather(t, s.host)
			s.facts = &facts
			s.ranks = goodRanks(facts, 8)
			if c.ranks != nil {
				c.ranks(s)
			}
			got := one(t, Join(CheckNode(facts, s.need), CheckRanks(*s.facts, s.ranks, s.need)), c.name)
			if got.State != c.state || got.Rank != c.rank || !strings.Contains(got.Message, c.text) {
				t.Errorf("got %+v, expected %s at rank %d with %q", got, c.state, c.rank, c.text)
			}
			p := table[c.name]
			for _, who := range []audience.Audience{audience.Pod, audience.Shell} {
				want := map[State]string{Met: got.Message, Unknown: ": make sure that " + p.Holds}[c.state]
				if want == "" {
					want = ": " + p.Next.For(who)
				}
				if advised := got.Advised(who); !strings.HasSuffix(advised, want) {
					t.Errorf("%s: %q for %q; expected %q at its end", c.state, advised, who, want)
				}
			}
		})
		states[c.name] = append(states[c.name], c.state)
	}
	// What the library does decides the states: nothing is called failed that it bears.
	warns := []State{Met, Warning, Unknown}
	fails := []State{Met, Failed, Unknown}
	all := []State{Met, Warning, Failed, Unknown}
	for name, want := range map[string][]State{NUMABalancing: warns, IOMMU: warns, ROCmVersion: all,
		LockedMemory: warns, SharedMemory: all, GPUCount: fails, HiddenGPUs: all, AddressFamily: all,
		ScratchReclaim: all, SharedGPU: fails, OneProcessPerGPU: all, GPUOrder: all,
		SameLibrary: fails, SameSettings: fails, GPUMemory: all, GPUBusy: all} {
		for _, s := range all {
			if slices.Contains(states[name], s) != slices.Contains(want, s) {
				t.Errorf("%s: cases for %v, expected %v", name, states[name], want)
			}
		}
		delete(states, name)
	}
	if len(states) > 0 {
		t.Errorf("states of %v are not looked at", states)
	}
}

func TestFirstFailed(t *testing.T) {
	if f := FirstFailed([]Finding{{Name: "A", State: Warning}, {Name: "B", State: Unknown},
		{Name: "C", State: Met}}); f != nil {
		t.Errorf("%+v failed", f)
	}
	if f := FirstFailed([]Finding{{Name: "A", State: Warning}, {Name: "B", State: Failed, Message: "m"},
		{Name: "C", State: Failed}}); f == nil || f.String() != "B: m" {
		t.Errorf("first failed is %+v, expected B", f)
	}
}

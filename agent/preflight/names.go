package preflight

import (
	"maps"
	"slices"

	"rcclx.io/commgroup-operator/internal/audience"
)

// The names of the preconditions. Each is one reason of its own; the table says what must hold, by which source, and
// what to do.
const (
	ScratchReclaim   = "ScratchReclaim"
	NUMABalancing    = "NUMABalancing"
	IOMMU            = "IOMMU"
	LockedMemory     = "LockedMemory"
	SharedMemory     = "SharedMemory"
	GPUCount         = "GPUCount"
	GPUOrder         = "GPUOrder"
	SharedGPU        = "SharedGPU"
	HiddenGPUs       = "HiddenGPUs"
	OneProcessPerGPU = "OneProcessPerGPU"
	GPUMemory        = "GPUMemory"
	GPUBusy          = "GPUBusy"
	SameLibrary      = "SameLibrary"
	SameSettings     = "SameSettings"
	AddressFamily    = "AddressFamily"
	ROCmVersion      = "ROCmVersion"
)

// Precondition is what is known of one name.
type Precondition struct {
	// Holds says what must hold; Otherwise what happens where it does not.
	Holds, Otherwise string
	// Source of both.
	Source string
	// Next says what to do where it does not hold.
	Next audience.Advice
	// AMDOnly preconditions are not looked at for NVIDIA's library.
	AMDOnly bool
}

var table = map[string]Precondition{
	ScratchReclaim: {
		Holds: "HSA_NO_SCRATCH_RECLAIM is 1, or the HIP runtime is at least 6.4.43484 and the MEC firmware at least " +
			"177 (gfx942) or 24 (gfx950), or, on gfx90a, the HIP runtime is older than 7.13",
		Otherwise: "the library refuses to form a communicator (ncclSystemError); on gfx90a it is slow",
		Source: "torchcomms comms/rcclx/develop/projects/rccl src/init.cc checkHsaEnvSetting, src/rccl_wrap.cc " +
			"validHsaScratchEnvSetting; rocm-systems projects/rccl/CHANGELOG.md, known issues of 2.30.4",
		Next:    audience.Same("set HSA_NO_SCRATCH_RECLAIM=1 for every rank, or update ROCm and the GPUs' firmware"),
		AMDOnly: true,
	},
	NUMABalancing: {
		Holds:     "kernel.numa_balancing is 0",
		Otherwise: "the library warns and up to half of the bandwidth is lost",
		Source:    "torchcomms comms/rcclx/develop/projects/rccl src/init.cc ncclInit; ROCm/rccl#1562",
		Next: audience.Same("set it to 0 on the host: sysctl kernel.numa_balancing=0, or numa_balancing=disable on " +
			"the kernel's command line"),
		AMDOnly: true,
	},
	IOMMU: {
		Holds:     "on bare metal, the IOMMU is in passthrough mode (iommu=pt) or off",
		Otherwise: "peer access between GPUs is slow or hangs",
		Source: "torchcomms comms/rcclx/develop/projects/rccl src/init.cc ncclInit; ROCm/rccl#1129; " +
			"drivers/iommu/iommu.c (/sys/kernel/iommu_groups/*/type)",
		Next:    audience.Same("add iommu=pt to the kernel's command line and reboot the node"),
		AMDOnly: true,
	},
	ROCmVersion: {
		Holds: "the ranks' ROCm is the release that the GPUs need or newer, and one that AMD supports with " +
			"the node's driver",
		Otherwise: "the library finds no code for the GPUs, or fails or misbehaves in the middle of a run",
		Source:    "rcclx/compat, with the source of each rule in docs/compatibility.md",
		Next: audience.Advice{
			Pod: "choose a runtime image (spec.runtime.image) whose ROCm is in docs/compatibility.md for these GPUs " +
				"and this driver",
			Shell: "install a ROCm that is in docs/compatibility.md for these GPUs and this driver, or name another " +
				"installation's libraries with --library and --runtime",
		},
		AMDOnly: true,
	},
	LockedMemory: {
		Holds:     "the limit on locked memory is none, or at least 64 MiB, or CAP_IPC_LOCK is effective",
		Otherwise: "memory registration for RDMA fails and the library falls back to TCP without a word",
		Source: "NVIDIA/nvidia-container-toolkit#2037 (ibv_reg_mr gives ENOMEM at a limit of 8 MiB); " +
			"64 MiB is this package's choice",
		Next: audience.Advice{
			Pod: "raise the memlock limit in the container runtime (LimitMEMLOCK=infinity, --ulimit memlock=-1); " +
				"the capability IPC_LOCK helps a process only that is root",
			Shell: "raise the limit with ulimit -l unlimited, or in /etc/security/limits.conf (memlock); " +
				"in a container with --ulimit memlock=-1",
		},
	},
	SharedMemory: {
		Holds:     "/dev/shm has 8 MiB free for each rank of the node",
		Otherwise: "where two GPUs have no P2P, the library may fail to form a communicator, or a rank dies of SIGBUS",
		Source: "rccl src/misc/shmutils.cc ncclShmOpen, src/transport/shm.cc, src/proxy.cc proxyProgressInit; " +
			"NVIDIA/nccl#342, NVIDIA/nccl#525, NVIDIA/nccl-tests#143; 8 MiB and 64 KiB are this package's choice",
		Next: audience.Advice{
			Pod: "raise runtime.pod.shmSizeMiB, or --shm-size of a container, and remove what other programs " +
				"left in /dev/shm",
			Shell: "remove what other programs left in /dev/shm, or make it larger with mount -o remount,size=...; " +
				"in a container with --shm-size",
		},
	},
	GPUCount: {
		Holds:     "the kernel shows this container at least one GPU for each rank",
		Otherwise: "a rank has no GPU",
		Source:    "KFD's topology (drivers/gpu/drm/amd/amdkfd/kfd_topology.c); /proc/driver/nvidia/gpus",
		Next: audience.Advice{
			Pod: "check how many GPUs the pod requests and the device plugin gives, and look for a GPU that fell off " +
				"the bus in the kernel log",
			Shell: "give fewer --ranks, and look for a GPU that fell off the bus in the kernel log",
		},
	},
	GPUOrder: {
		Holds:     "GPU ordinals follow the kernel's order, and with RCCLX's DDA rank r is on ordinal r",
		Otherwise: "what names a GPU by its ordinal means another one; with DDA the library aborts the process",
		Source: "torchcomms comms/common/algorithms/AlgoFactory.cu (peer access by ordinal, own ordinal " +
			"skipped by rank)",
		Next: audience.Same("take HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and " +
			"CUDA_DEVICE_ORDER out of the ranks' environment, and put rank r on ordinal r"),
	},
	SharedGPU: {
		Holds:     "no two ranks are on the same GPU or partition",
		Otherwise: "the library refuses (Duplicate GPU detected)",
		Source:    "rccl src/init.cc initTransportsRank",
		Next: audience.Advice{
			Pod:   "check the device plugin's allocation, and that no *_VISIBLE_DEVICES names a GPU twice",
			Shell: "check that no *_VISIBLE_DEVICES names a GPU twice",
		},
	},
	HiddenGPUs: {
		Holds: "every rank sees the GPUs of all ranks",
		Otherwise: "a rank finds no GPU at its ordinal, and RCCLX's DDA aborts the process, since it opens the GPUs " +
			"of all ranks by ordinal",
		Source: "torchcomms comms/common/algorithms/AlgoFactory.cu; ROCm clr rocclr/device/rocm/rocdevice.cpp " +
			"(HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL); ROCR-Runtime " +
			"core/runtime/amd_filter_device.cpp (ROCR_VISIBLE_DEVICES); CUDA programming guide, CUDA environment " +
			"variables (CUDA_VISIBLE_DEVICES)",
		Next: audience.Same("take ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and " +
			"GPU_DEVICE_ORDINAL out of the ranks' environment: GPUs are chosen by ordinal"),
	},
	OneProcessPerGPU: {
		Holds:     "each rank is a process of its own",
		Otherwise: "RCCLX's DDA aborts the process: HIP does not open an IPC handle in the process that made it",
		Source:    "torchcomms comms/common/IpcMemHandler.cc, comms/utils/checks.h; ROCm clr hipamd/src/hip_memory.cpp",
		Next:      audience.Same("start one process for each rank, as agent run and agent bench do"),
	},
	GPUMemory: {
		Holds:     "each GPU has the memory free that the run's largest call and the library's pools take",
		Otherwise: "allocation fails in the middle of the run",
		Source: "torchcomms comms/rcclx/develop/meta/lpcoll/low_precision_buffer_pool.cc (2.25 GiB and up for FP8), " +
			"meta/algorithms/AlgoInit.h (32 MiB for DDA)",
		Next: audience.Advice{
			Pod:   "end what else uses the GPU, or measure smaller sizes (benchmark.maxSizeBytes)",
			Shell: "end what else uses the GPU, or give smaller --sizes",
		},
	},
	GPUBusy: {
		Holds:     "no other process uses the run's GPUs",
		Otherwise: "what is measured is not what the GPUs can do",
		Source: "drivers/gpu/drm/amd/amdkfd/kfd_process.c (proc/PID/vram_GPU, stats_GPU/cu_occupancy, " +
			"queues/QUEUE/gpuid); drivers/gpu/drm/amd/pm/amdgpu_pm.c (gpu_busy_percent); hipMemGetInfo, cudaMemGetInfo",
		Next: audience.Same("wait for the other work to end or end it, then run again"),
	},
	SameLibrary: {
		Holds: "every rank of the node loaded the same library file, version and GPU runtime",
		Otherwise: "the library refuses versions that differ, and builds of one version that differ may choose " +
			"different algorithms and hang",
		Source: "torchcomms comms/rcclx/develop/projects/rccl src/init.cc (Mismatched NCCL version detected)",
		Next: audience.Advice{
			Pod:   "use one image, and one LD_LIBRARY_PATH or library path, for all ranks",
			Shell: "give --library with the path of one file",
		},
	},
	SameSettings: {
		Holds: "the library of every rank of the node sees the same settings, from its environment and its " +
			"configuration files",
		Otherwise: "ranks choose different algorithms for one call, and hang or give wrong data",
		Source:    "rccl src/misc/param.cc (environment, then NCCL_CONF_FILE or ~/.rccl.conf, then /etc/rccl.conf)",
		Next: audience.Same("set the same NCCL_*, RCCL_* and HSA_* variables for all ranks, and give all the same " +
			"/etc/rccl.conf and ~/.rccl.conf"),
	},
	AddressFamily: {
		Holds:     "the library finds an interface for its bootstrap, the same address family on all ranks of the node",
		Otherwise: "no communicator can be formed",
		Source:    "rccl src/misc/socket.cc ncclFindInterfaces",
		Next:      audience.Same("correct NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, or leave both unset"),
	},
}

// Names of all preconditions, sorted.
func Names() []string { return slices.Sorted(maps.Keys(table)) }

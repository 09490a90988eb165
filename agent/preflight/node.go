package preflight

import (
	"fmt"
	"strings"
)

const (
	// sharedMemoryBytes a rank, under which /dev/shm may not do: a segment of one connection that goes over the host's memory
	// has 9637888 bytes, and Docker's default of 64 MiB was too little for four ranks with such connections, while eight that
	// reach each other by P2P need none (NVIDIA/nccl#525). So less is a risk and no error.
	sharedMemoryBytes = 8 << 20
	// fullSharedMemoryBytes a rank, under which /dev/shm is as good as full: 16 pages, less than the control blocks of a few
	// connections. What can be left over on a healthy node of Docker's default is far more.
	fullSharedMemoryBytes = 64 << 10
	// lockedMemoryBytes under which memory registration for RDMA is known to fail silently.
	lockedMemoryBytes = 64 << 20
)

// The variables that hide GPUs from a process.
const (
	maskROCr = "ROCR_VISIBLE_DEVICES"
	maskHIP  = "HIP_VISIBLE_DEVICES"
	maskCUDA = "CUDA_VISIBLE_DEVICES"
)

// CheckNode holds what can be seen before any process loads the library against what the run needs: one finding for each
// precondition that applies.
func CheckNode(f NodeFacts, need Need) []Finding {
	var out []Finding
	if f.amd(need) {
		out = append(out, checkNUMABalancing(f), checkIOMMU(f))
	}
	return append(out, checkLockedMemory(f), checkSharedMemory(f, need), checkGPUCount(f, need), checkHiddenGPUs(f, need),
		checkAddressFamily(f, need))
}

func checkNUMABalancing(f NodeFacts) Finding {
	if f.Discovered == nil || f.Discovered.Host.NUMABalancing == nil {
		return found(NUMABalancing, Unknown, -1, "kernel.numa_balancing could not be read (%s)", f.unread("proc/sys/kernel/numa_balancing"))
	}
	if n := *f.Discovered.Host.NUMABalancing; n != 0 {
		return found(NUMABalancing, Warning, -1, "kernel.numa_balancing is %d, expected 0: the kernel moves pages under the library, which costs up to half of the bandwidth", n)
	}
	return met(NUMABalancing, "kernel.numa_balancing is 0")
}

// checkIOMMU follows the library: a virtual machine and a Cray kernel need no iommu=pt.
func checkIOMMU(f NodeFacts) Finding {
	d := f.Discovered
	switch {
	case d == nil || d.Host.IOMMUPassthrough == nil:
		return found(IOMMU, Unknown, -1, "the kernel's command line could not be read (%s)", f.unread("proc/cmdline"))
	case *d.Host.IOMMUPassthrough:
		return met(IOMMU, "the kernel's command line has iommu=pt")
	case f.Hypervisor != nil && *f.Hypervisor:
		return met(IOMMU, "the kernel's command line has no iommu=pt, and in a virtual machine needs none")
	case len(d.GPUs) > 0 && strings.HasSuffix(d.GPUs[0].Model, " VF"):
		return met(IOMMU, "the kernel's command line has no iommu=pt, and with virtual functions (%s) needs none", d.GPUs[0].Model)
	case strings.Contains(d.KernelRelease, "cray"):
		return met(IOMMU, "the kernel's command line has no iommu=pt, and Cray's kernel %s needs none", d.KernelRelease)
	}
	return found(IOMMU, Warning, -1, "the kernel's command line has no word iommu=pt: peer access between GPUs may be slow or hang")
}

func checkLockedMemory(f NodeFacts) Finding {
	switch limit := f.LockedMemoryLimitBytes; {
	case limit == nil:
		return found(LockedMemory, Unknown, -1, "%s", orUnread(f.LockedMemoryError))
	case *limit < 0:
		return met(LockedMemory, "there is no limit on locked memory")
	case *limit < lockedMemoryBytes:
		return found(LockedMemory, Warning, -1, "the limit on locked memory is %d bytes, RDMA needs at least %d: without, the library falls back to TCP",
			*limit, lockedMemoryBytes)
	default:
		return met(LockedMemory, "the limit on locked memory is %d bytes", *limit)
	}
}

func checkSharedMemory(f NodeFacts, need Need) Finding {
	free, least := f.SharedMemoryFreeBytes, int64(need.Ranks)*sharedMemoryBytes
	switch {
	case free == nil:
		return found(SharedMemory, Unknown, -1, "%s", orUnread(f.SharedMemoryError))
	case *free < int64(need.Ranks)*fullSharedMemoryBytes:
		return found(SharedMemory, Failed, -1, "/dev/shm is full: %d bytes are free, expected %d for %d ranks", *free, least, need.Ranks)
	case *free < least:
		return found(SharedMemory, Warning, -1, "/dev/shm has %d bytes free, expected %d for %d ranks: where two GPUs have no P2P, the library may fail to form a communicator or die of SIGBUS",
			*free, least, need.Ranks)
	}
	return met(SharedMemory, "/dev/shm has %d bytes free, expected %d for %d ranks", *free, least, need.Ranks)
}

func orUnread(text string) string {
	if text == "" {
		return "it was not read"
	}
	return text
}

// checkGPUCount counts what the kernel shows this container. KFD answers EPERM for the GPUs outside its device cgroup.
func checkGPUCount(f NodeFacts, need Need) Finding {
	d := f.Discovered
	// A topology that was read and has no GPU counts as well.
	counted := d != nil && (len(d.Devices)+len(d.HiddenNodes)+len(d.UnreadableNodes) > 0 || d.Generation != nil && !f.isUnread(kfdNodesDir))
	switch {
	case counted && (f.amd(need) || !need.known() && f.NVIDIAGPUs == nil):
		seen := fmt.Sprintf("KFD shows %d GPUs", len(d.Devices))
		if n := len(d.HiddenNodes); n > 0 {
			seen += fmt.Sprintf(" and hides %d from this container", n)
		}
		if n := len(d.UnreadableNodes); n > 0 {
			seen += fmt.Sprintf(", %d could not be read", n)
		}
		switch {
		case len(d.Devices) >= need.Ranks:
			return met(GPUCount, "%s, %d ranks need one each", seen, need.Ranks)
		case len(d.Devices)+len(d.UnreadableNodes) >= need.Ranks:
			return found(GPUCount, Unknown, -1, "%s, %d ranks need one each", seen, need.Ranks)
		}
		return found(GPUCount, Failed, -1, "%s, %d ranks need one each", seen, need.Ranks)
	case f.amd(need):
		return found(GPUCount, Unknown, -1, "KFD's topology shows no GPU (%s)", f.unread("sys/class/kfd/kfd/topology"))
	case f.NVIDIAGPUs == nil:
		return found(GPUCount, Unknown, -1, "neither KFD's topology nor /proc/driver/nvidia/gpus is there to count GPUs")
	case len(f.NVIDIAGPUs) < need.Ranks:
		return found(GPUCount, Failed, -1, "/proc/driver/nvidia/gpus shows %d GPUs, %d ranks need one each", len(f.NVIDIAGPUs), need.Ranks)
	}
	return met(GPUCount, "/proc/driver/nvidia/gpus shows %d GPUs, %d ranks need one each", len(f.NVIDIAGPUs), need.Ranks)
}

// masks are the variables that the ranks' runtime reads: CUDA one; ROCm its own, and on top of it HIP's or else CUDA's.
func (f NodeFacts) masks(need Need) []string {
	if !f.amd(need) && (need.known() || f.NVIDIADriver) {
		return []string{maskCUDA}
	}
	if v, _ := need.variable(maskHIP); v != "" {
		return []string{maskROCr, maskHIP}
	}
	return []string{maskROCr, maskCUDA}
}

// checkHiddenGPUs looks at the masks in the ranks' own environment. One that leaves every rank its GPU is only a trap.
func checkHiddenGPUs(f NodeFacts, need Need) Finding {
	least, seen := -1, ""
	for _, name := range f.masks(need) {
		mask, set := need.variable(name)
		if !set || mask == "" {
			continue
		}
		if n := visibleGPUs(mask); least < 0 || n < least {
			least, seen = n, fmt.Sprintf("%s=%s leaves a rank %d GPUs", name, mask, n)
		}
	}
	switch {
	case least < 0:
		return met(HiddenGPUs, "no variable of the ranks' environment hides a GPU")
	case least < need.Ranks:
		return found(HiddenGPUs, Failed, -1, "%s, %d ranks need to see that many", seen, need.Ranks)
	}
	return found(HiddenGPUs, Warning, -1, "%s, enough for %d ranks; a job with another mask uses other GPUs, and with DDA aborts where it sees fewer", seen, need.Ranks)
}

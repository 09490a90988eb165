package preflight

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
)

const (
	// sharedMemoryBytes a rank, under which /dev/shm may not do: a segment of one connection that goes over the host's
	// memory has 9637888 bytes, and Docker's default of 64 MiB was too little for four ranks with such connections,
	// while eight that reach each other by P2P need none (NVIDIA/nccl#525). So less is a risk and no error.
	sharedMemoryBytes = 8 << 20
	// fullSharedMemoryBytes a rank, under which /dev/shm is as good as full: 16 pages, less than the control blocks of
	// a few connections. What can be left over on a healthy node of Docker's default is far more.
	fullSharedMemoryBytes = 64 << 10
	// lockedMemoryBytes under which memory registration for RDMA is known to fail silently.
	lockedMemoryBytes = 64 << 20
)

// CheckNode holds what can be seen before any process loads the library against what the run needs: one finding for
// each precondition that applies. Where the node has GPUs of two vendors, those that depend on the library are pending.
func CheckNode(f NodeFacts, need Need) []Finding {
	out := checkGPUs(f, need)
	for i := range out {
		out[i].Pending = f.needsLibrary()
	}
	return append(out, checkLockedMemory(f), checkSharedMemory(f, need), checkAddressFamily(f, need))
}

// checkGPUs are the preconditions that depend on whose GPUs the run is about.
func checkGPUs(f NodeFacts, need Need) []Finding {
	out := []Finding{checkGPUCount(f, need), checkHiddenGPUs(f, need)}
	if f.isAMD(need) {
		out = append(out, checkNUMABalancing(f), checkIOMMU(f), checkROCmVersion(f))
	}
	return out
}

func checkNUMABalancing(f NodeFacts) Finding {
	if f.Discovered == nil || f.Discovered.Host.NUMABalancing == nil {
		return found(NUMABalancing, Unknown, -1, "kernel.numa_balancing could not be read (%s)",
			f.unread("proc/sys/kernel/numa_balancing"))
	}
	if n := *f.Discovered.Host.NUMABalancing; n != 0 {
		return found(NUMABalancing, Warning, -1, "kernel.numa_balancing is %d, expected 0: the kernel moves pages "+
			"under the library, which costs up to half of the bandwidth", n)
	}
	return met(NUMABalancing, "kernel.numa_balancing is 0")
}

// checkIOMMU follows the library where it needs no passthrough mode (a virtual machine, a Cray kernel), and what the
// kernel shows in the rest: the library itself looks for iommu=pt on the command line alone.
func checkIOMMU(f NodeFacts) Finding {
	d := f.Discovered
	const warns = "; the library may still warn that the command line has no iommu=pt"
	switch {
	case d == nil || d.Host.IOMMUSource == "":
		return found(IOMMU, Unknown, -1, "the kernel's command line could not be read (%s)", f.unread("proc/cmdline"))
	case d.Host.IOMMU == discover.IOMMUPassthrough && strings.Contains(d.Host.IOMMUWord, "iommu=pt"):
		return met(IOMMU, "the kernel's command line has %s", d.Host.IOMMUWord)
	case d.Host.IOMMU == discover.IOMMUPassthrough:
		return met(IOMMU, "the IOMMU is in passthrough mode (%s)%s", iommuSource(d), warns)
	case d.Host.IOMMU == discover.IOMMUOff:
		return met(IOMMU, "no IOMMU is in use (%s)%s", iommuSource(d), warns)
	case f.Hypervisor != nil && *f.Hypervisor:
		return met(IOMMU, "in a virtual machine the IOMMU need not be in passthrough mode")
	case len(d.GPUs) > 0 && strings.HasSuffix(d.GPUs[0].Model, " VF"):
		return met(IOMMU, "with virtual functions (%s) the IOMMU need not be in passthrough mode", d.GPUs[0].Model)
	case strings.Contains(d.KernelRelease, "cray"):
		return met(IOMMU, "with Cray's kernel %s the IOMMU need not be in passthrough mode", d.KernelRelease)
	case d.Host.IOMMU == "":
		return found(IOMMU, Unknown, -1, "whether the IOMMU translates the GPUs' addresses is not known: "+
			"/sys/kernel/iommu_groups does not tell, and the kernel's command line has no word iommu=pt")
	}
	return found(IOMMU, Warning, -1,
		"the IOMMU is not in passthrough mode (%s): peer access between GPUs may be slow or hang", iommuSource(d))
}

// iommuSource says what told of the IOMMU's mode.
func iommuSource(d *discover.Facts) string {
	switch h := d.Host; {
	case len(h.TranslatedGPUs) > 0:
		return fmt.Sprintf("/%s: type DMA or DMA-FQ for %d of %d GPUs",
			h.IOMMUSource, len(h.TranslatedGPUs), len(d.GPUs))
	case h.IOMMUSource != "proc/cmdline":
		return "/" + h.IOMMUSource
	default:
		return h.IOMMUWord + " on the kernel's command line"
	}
}

func checkLockedMemory(f NodeFacts) Finding {
	switch limit := f.LockedMemoryLimitBytes; {
	case limit == nil:
		return found(LockedMemory, Unknown, -1, "%s", orUnread(f.LockedMemoryError))
	case *limit < 0:
		return met(LockedMemory, "there is no limit on locked memory")
	case *limit < lockedMemoryBytes && f.LocksPastLimit:
		return met(LockedMemory,
			"the limit on locked memory is %d bytes, but CAP_IPC_LOCK is effective, so that it does not bind", *limit)
	case *limit < lockedMemoryBytes:
		return found(LockedMemory, Warning, -1,
			"the limit on locked memory is %d bytes, RDMA needs at least %d: without, the library falls back to TCP",
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
		return found(SharedMemory, Failed, -1, "/dev/shm is full: %d bytes are free, expected %d for %d ranks", *free,
			least, need.Ranks)
	case *free < least:
		return found(SharedMemory, Warning, -1, "/dev/shm has %d bytes free, expected %d for %d ranks: where two "+
			"GPUs have no P2P, the library may fail to form a communicator or die of SIGBUS", *free, least, need.Ranks)
	}
	return met(SharedMemory, "/dev/shm has %d bytes free, expected %d for %d ranks", *free, least, need.Ranks)
}

func orUnread(text string) string {
	if text == "" {
		return "it was not read"
	}
	return text
}

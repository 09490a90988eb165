package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/agent/rank"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// Host is what a run needs to know of the machine, beside its GPUs.
type Host interface {
	// BootID of the kernel, as /proc/sys/kernel/random/boot_id has it.
	BootID() (string, error)
	// SharedMemoryFreeBytes of /dev/shm.
	SharedMemoryFreeBytes() (int64, error)
	// LockedMemoryLimitBytes is the process's limit on locked memory; a negative value means no limit.
	LockedMemoryLimitBytes() (int64, error)
}

// PodHost reads the pod that the agent runs in. Root stands for the host's root where the hardware is simulated.
type PodHost struct{ Root string }

// BootID implements Host.
func (h PodHost) BootID() (string, error) {
	path := filepath.Join("/", h.Root, "proc/sys/kernel/random/boot_id")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// SharedMemoryFreeBytes implements Host.
func (PodHost) SharedMemoryFreeBytes() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil {
		return 0, fmt.Errorf("look at /dev/shm: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// LockedMemoryLimitBytes implements Host.
func (PodHost) LockedMemoryLimitBytes() (int64, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return 0, fmt.Errorf("read the limit on locked memory: %w", err)
	}
	if lim.Cur > 1<<62 { // RLIM_INFINITY
		return -1, nil
	}
	return int64(lim.Cur), nil
}

const (
	// sharedMemoryPerRankBytes is what the library keeps in /dev/shm for each rank at most: proxy and transport buffers.
	// Docker's default of 64 MiB is known to end in bus errors with more than eight ranks (NVIDIA/nccl#342).
	sharedMemoryPerRankBytes = 8 << 20
	// lockedMemoryBytes under which memory registration for RDMA is known to fail silently.
	lockedMemoryBytes = 64 << 20
)

// CheckHost holds what can be seen before any rank starts against what the run needs. The failure ends the run; the
// warnings are only logged.
func CheckHost(node string, ranks int, h Host) (*Failure, []string) {
	var warnings []string
	if limit, err := h.LockedMemoryLimitBytes(); err != nil {
		warnings = append(warnings, err.Error())
	} else if limit >= 0 && limit < lockedMemoryBytes {
		warnings = append(warnings, fmt.Sprintf("the limit on locked memory is %d bytes, RDMA needs at least %d: raise memlock in the container runtime", limit, lockedMemoryBytes))
	}
	need := int64(ranks) * sharedMemoryPerRankBytes
	free, err := h.SharedMemoryFreeBytes()
	switch {
	case err != nil:
		warnings = append(warnings, err.Error())
	case free < need:
		return precondition(rank.CodePreconditionFailed, -1, fmt.Sprintf(
			"node %s: /dev/shm has %d bytes free, %d ranks need %d: raise runtime.pod.shmSizeMiB", node, free, ranks, need)), warnings
	}
	return nil, warnings
}

func precondition(code string, r int, message string) *Failure {
	return &Failure{Kind: FailRankError, Rank: r, Code: code, Step: "preconditions", Message: message}
}

// CheckDevices holds what a probe of every GPU saw against what the plan needs: that no two ranks share a GPU, that all
// loaded the same library, and that the memory is there.
func CheckDevices(node string, p api.RunPlan, ranks []RankOutcome) *Failure {
	seen := map[string]int{}
	for _, r := range ranks {
		lib := r.Library
		if lib == nil {
			return precondition(rank.CodePreconditionFailed, r.Rank, fmt.Sprintf("node %s: %s did not say what it loaded", node, r.Name()))
		}
		if other, ok := seen[lib.PCIAddress]; ok && lib.PCIAddress != "" {
			return precondition(rank.CodePreconditionFailed, r.Rank, fmt.Sprintf(
				"node %s: ranks %d and %d both got GPU %s, expected %d different ones: check the device plugin's allocation and that no *_VISIBLE_DEVICES is set in the image",
				node, other, r.Rank, lib.PCIAddress, len(ranks)))
		}
		seen[lib.PCIAddress] = r.Rank
		if first := ranks[0].Library; lib.BuildHash != first.BuildHash || lib.VersionCode != first.VersionCode {
			return precondition(rank.CodePreconditionFailed, r.Rank, fmt.Sprintf(
				"node %s: %s loaded %s, rank 0 loaded %s, expected one library for all", node, r.Name(), lib.Path, first.Path))
		}
		if need := memoryNeedBytes(p, lib.Gates(), len(ranks)); lib.TotalMemoryBytes > 0 && lib.FreeMemoryBytes < need {
			return precondition(rank.CodeInsufficientMemory, r.Rank, fmt.Sprintf(
				"node %s: %s has %d of %d bytes free, the run needs at least %d: end what else uses the GPU, or lower benchmark.maxSizeBytes",
				node, r.Name(), lib.FreeMemoryBytes, lib.TotalMemoryBytes, need))
		}
	}
	return nil
}

// memoryNeedBytes is the most that a rank of any of the plan's variants allocates on its GPU.
func memoryNeedBytes(p api.RunPlan, gates rcclx.Flavor, ranks int) int64 {
	var need int64
	for _, v := range Plan(p, ranks) {
		var shapes []rcclx.Shape
		for _, step := range v.Steps {
			for _, size := range step.SizesBytes {
				if step.Kind == rank.StepPairProbe {
					shapes = append(shapes, rcclx.Shape{SendBytes: size, RecvBytes: size})
				} else if shape, err := rcclx.ShapeOf(step.Collective, step.Datatype, size, ranks); err == nil {
					shapes = append(shapes, shape) // a size that makes no call is the rank's to report
				}
			}
		}
		send, recv, library := rcclx.MemoryNeed(gates, v.Variant, SettingsOf(p), ranks, shapes)
		need = max(need, send+recv+library)
	}
	return need
}

package preflight

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryLocker is a Host that knows whether the process may lock memory past its limit.
type memoryLocker interface {
	// LocksPastLimit says whether the kernel's RDMA part ignores the limit on locked memory for this process.
	LocksPastLimit() (bool, error)
}

// LocksPastLimit implements memoryLocker: CAP_IPC_LOCK must be effective, which a capability that was added to a
// container is for root only, and it must be held in the first user namespace (drivers/infiniband/core/umem.c
// ib_umem_get asks capable()). A simulated node has no capabilities but those that its tree shows.
func (h PodHost) LocksPastLimit() (bool, error) {
	status, err := os.ReadFile(h.path("proc/self/status"))
	if err != nil && h.Root != "" && os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read this process's capabilities: %w", err)
	}
	effective, err := parseEffective(string(status))
	if err != nil || effective&(1<<unix.CAP_IPC_LOCK) == 0 || h.Root != "" {
		return err == nil && effective&(1<<unix.CAP_IPC_LOCK) != 0, err
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("read this process's user namespace: %w", err)
	}
	return firstUserNamespace(string(ids)), nil
}

// parseEffective reads CapEff of /proc/PID/status (fs/proc/array.c, task_cap), 64 bits in hexadecimal.
func parseEffective(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("read this process's capabilities: %.64q is not a line of /proc/self/status", line)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read this process's capabilities: /proc/self/status has no line CapEff")
}

// firstUserNamespace: there every id is itself (kernel/user_namespace.c, init_user_ns in kernel/user.c).
func firstUserNamespace(uidMap string) bool {
	fields := strings.Fields(uidMap)
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}

package preflight

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rcclx.io/commgroup-operator/agent/discover"
)

// Host is what a run needs to know of the machine or pod that it is in, beside what its ranks see of the GPUs.
type Host interface {
	// BootID of the kernel, as /proc/sys/kernel/random/boot_id has it.
	BootID() (string, error)
	// SharedMemoryFreeBytes of /dev/shm.
	SharedMemoryFreeBytes() (int64, error)
	// LockedMemoryLimitBytes is the process's limit on locked memory; a negative value means no limit.
	LockedMemoryLimitBytes() (int64, error)
	// Hypervisor says whether the CPU is a virtual machine's.
	Hypervisor() (bool, error)
	// Interfaces of the network, in the kernel's order.
	Interfaces() ([]Interface, error)
	// OpenRoot opens the file system that has the kernel's /sys and /proc.
	OpenRoot() (Root, error)
}

// Root is a host's file system, to be closed after use.
type Root interface {
	discover.FS
	io.Closer
}

// Interface is one network interface.
type Interface struct {
	Name      string       `json:"name"`
	Running   bool         `json:"running"`
	Loopback  bool         `json:"loopback,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// PodHost reads the pod or machine that the process runs in. Root stands for the host's root where the hardware is
// simulated.
type PodHost struct{ Root string }

// BootID implements Host.
func (h PodHost) BootID() (string, error) {
	data, err := os.ReadFile(h.path("proc/sys/kernel/random/boot_id"))
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
	return int64(st.Bavail) * st.Bsize, nil //nolint:gosec // a file system of 2^63 bytes is not made of memory
}

// LockedMemoryLimitBytes implements Host. A simulated node's limit is its own, not that of the machine that simulates
// it.
func (h PodHost) LockedMemoryLimitBytes() (int64, error) {
	if h.Root != "" {
		if data, err := os.ReadFile(h.path("proc/self/limits")); err == nil {
			return parseLockedMemory(string(data))
		}
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return 0, fmt.Errorf("read the limit on locked memory: %w", err)
	}
	if lim.Cur > 1<<62 { // RLIM_INFINITY
		return -1, nil
	}
	return int64(lim.Cur), nil
}

// parseLockedMemory reads the soft limit in the text of /proc/PID/limits (fs/proc/base.c, proc_pid_limits).
func parseLockedMemory(text string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) > 0 && fields[0] == "unlimited" {
			return -1, nil
		}
		if len(fields) > 0 {
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil && n >= 0 {
				return n, nil
			}
		}
		return 0, fmt.Errorf("read the limit on locked memory: %q is not a line of /proc/self/limits",
			strings.TrimSpace(line))
	}
	return 0, fmt.Errorf("read the limit on locked memory: /proc/self/limits has no line %q", "Max locked memory")
}

// cpuInfoBytes of /proc/cpuinfo hold at least the first CPU.
const cpuInfoBytes = 64 << 10

// Hypervisor implements Host.
func (h PodHost) Hypervisor() (bool, error) {
	f, err := os.Open(h.path("proc/cpuinfo"))
	if err != nil {
		return false, fmt.Errorf("read the CPU's flags: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, cpuInfoBytes))
	if err != nil {
		return false, fmt.Errorf("read the CPU's flags: %w", err)
	}
	return parseHypervisor(data)
}

// Interfaces implements Host.
func (PodHost) Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	out := make([]Interface, 0, len(all))
	for _, i := range all {
		x := Interface{Name: i.Name, Running: i.Flags&net.FlagRunning != 0, Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(ip.IP); ok {
					x.Addresses = append(x.Addresses, addr.Unmap())
				}
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// OpenRoot implements Host.
func (h PodHost) OpenRoot() (Root, error) { return discover.OpenRoot(h.path("")) }

// LockDir is where runs on this host meet: a folder that every user can write to, the same for all. Simulated nodes on
// one machine each have their own.
func (h PodHost) LockDir() string {
	if h.Root == "" {
		return DefaultLockDir()
	}
	dir := h.path("run/lock")
	_ = os.MkdirAll(dir, 0o755) //nolint:gosec // as any folder of a tree; where it fails, Lock says so
	return dir
}

func (h PodHost) path(name string) string { return filepath.Join("/", h.Root, name) }

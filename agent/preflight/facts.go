package preflight

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/discover"
)

// NodeFacts are what a node says of itself before any of the run's processes uses a GPU. What could not be read is nil,
// with the error beside it.
type NodeFacts struct {
	// Discovered from sysfs and procfs; nil where the root could not be opened or the scan was cut short.
	Discovered      *discover.Facts
	DiscoveredError string
	// SharedMemoryFreeBytes of /dev/shm.
	SharedMemoryFreeBytes *int64
	SharedMemoryError     string
	// LockedMemoryLimitBytes of this process; negative for none.
	LockedMemoryLimitBytes *int64
	LockedMemoryError      string
	// LocksPastLimit says that the process has CAP_IPC_LOCK, so that the limit does not bind it.
	LocksPastLimit bool
	// Hypervisor says whether the CPU is a virtual machine's; nil where not known.
	Hypervisor      *bool
	Interfaces      []Interface
	InterfacesError string
	// KFDProcesses are those that hold GPUs through KFD, with pids of the host's namespace; nil where the list was not
	// readable.
	KFDProcesses []KFDProcess
	// BusyPercent by a GPU's PCI address, as its firmware averages it (gpu_busy_percent); a GPU that is not in it could
	// not be read.
	BusyPercent map[string]uint64
	// NVIDIAGPUs are the PCI addresses below /proc/driver/nvidia/gpus; nil where there is no such folder.
	NVIDIAGPUs []string
	// NVIDIADriver says that NVIDIA's driver is loaded.
	NVIDIADriver bool
}

// KFDProcess is a process that has opened KFD (drivers/gpu/drm/amd/amdkfd/kfd_process.c).
type KFDProcess struct {
	// ProcessID in the host's pid namespace: a container can seldom tell whose it is.
	ProcessID int
	// MemoryBytes and BusyComputeUnits by KFD's gpu_id; a GPU that is not in them could not be read.
	MemoryBytes, BusyComputeUnits map[uint64]uint64
	// Queues of work that it holds on a GPU, by KFD's gpu_id: a process that only looks at a GPU has none.
	Queues map[uint64]int
	// Unread is why what it holds could not be read; empty where it could.
	Unread string
}

const (
	kfdNodesDir   = "sys/class/kfd/kfd/topology/nodes"
	kfdProcessDir = "sys/class/kfd/kfd/proc"
	nvidiaGPUDir  = "proc/driver/nvidia/gpus"
	// gatherDeadline bounds what is read beside the scan, which has deadlines of its own: a GPU in reset can block a
	// read.
	gatherDeadline = 5 * time.Second
	maxProcesses   = 256
	maxQueues      = 1024
)

// Gather reads the node's facts. It must come before the run starts any process on the GPUs, so that what it finds
// there is somebody else's. environ is the pod's, which may say where its ROCm is. It never fails: what could not be
// read is said in the facts. ROCm among them is the container's own: the root is the container's, but for the kernel's
// sys and proc.
func Gather(ctx context.Context, h Host, environ []string) NodeFacts {
	var f NodeFacts
	if n, err := h.SharedMemoryFreeBytes(); err != nil {
		f.SharedMemoryError = err.Error()
	} else {
		f.SharedMemoryFreeBytes = &n
	}
	if n, err := h.LockedMemoryLimitBytes(); err != nil {
		f.LockedMemoryError = err.Error()
	} else {
		f.LockedMemoryLimitBytes = &n
	}
	if l, ok := h.(memoryLocker); ok {
		free, err := l.LocksPastLimit()
		f.LocksPastLimit = free && err == nil // not known: the limit counts
	}
	if v, err := h.Hypervisor(); err == nil {
		f.Hypervisor = &v
	}
	var err error
	if f.Interfaces, err = h.Interfaces(); err != nil {
		f.InterfacesError = err.Error()
	}
	root, err := h.OpenRoot()
	if err != nil {
		f.DiscoveredError = err.Error()
		return f
	}
	defer func() { _ = root.Close() }()
	if f.Discovered, err = discover.Scan(ctx, root, discover.Options{ROCmPaths: rocmPaths(environ)}); err != nil {
		f.DiscoveredError = err.Error()
	}
	done := make(chan NodeFacts, 1) // a read that hangs leaves its goroutine behind, not the run
	go func() { done <- gatherUsers(root, f.Discovered) }()
	timer := time.NewTimer(gatherDeadline)
	defer timer.Stop()
	select {
	case u := <-done:
		f.KFDProcesses, f.BusyPercent, f.NVIDIAGPUs, f.NVIDIADriver = u.KFDProcesses, u.BusyPercent,
			u.NVIDIAGPUs, u.NVIDIADriver
	case <-timer.C:
	case <-ctx.Done():
	}
	return f
}

// gatherUsers reads who uses KFD, how busy its GPUs are, and what NVIDIA's driver shows.
func gatherUsers(fs discover.FS, d *discover.Facts) NodeFacts {
	f := NodeFacts{BusyPercent: busyPercent(fs, d)}
	if names, err := fs.ReadDir(kfdProcessDir); err == nil {
		f.KFDProcesses = []KFDProcess{}
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid > 0 && len(f.KFDProcesses) < maxProcesses {
				f.KFDProcesses = append(f.KFDProcesses, readKFDProcess(fs, pid))
			}
		}
		sort.Slice(f.KFDProcesses, func(i, j int) bool {
			return f.KFDProcesses[i].ProcessID < f.KFDProcesses[j].ProcessID
		})
	}
	if names, err := fs.ReadDir(nvidiaGPUDir); err == nil {
		f.NVIDIAGPUs = []string{}
		for _, name := range names {
			if strings.Count(name, ":") == 2 {
				f.NVIDIAGPUs = append(f.NVIDIAGPUs, kernelAddress(name))
			}
		}
		sort.Strings(f.NVIDIAGPUs)
	}
	f.NVIDIADriver = f.NVIDIAGPUs != nil
	// a container may lack the first
	for _, name := range []string{"proc/driver/nvidia/version", "sys/module/nvidia/version"} {
		_, err := fs.ReadFile(name)
		f.NVIDIADriver = f.NVIDIADriver || err == nil
	}
	return f
}

// busyPercent reads gpu_busy_percent of each GPU (drivers/gpu/drm/amd/pm/amdgpu_pm.c). One that cannot be read is left
// out: not every GPU and no virtual function has it.
func busyPercent(fs discover.FS, d *discover.Facts) map[string]uint64 {
	if d == nil {
		return nil
	}
	out := map[string]uint64{}
	for i := range d.GPUs {
		address := d.GPUs[i].PCIAddress
		data, err := fs.ReadFile("sys/bus/pci/devices/" + address + "/gpu_busy_percent")
		if err != nil {
			continue
		}
		if n, err := parseCount(data); err == nil && n <= 100 {
			out[address] = n
		}
	}
	return out
}

// readQueues counts the queues of a process by GPU (proc/PID/queues/QUEUE/gpuid).
func readQueues(fs discover.FS, dir string) map[uint64]int {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[uint64]int{}
	for _, name := range names[:min(len(names), maxQueues)] {
		data, err := fs.ReadFile(dir + "/" + name + "/gpuid")
		if err != nil {
			continue
		}
		if gpu, err := parseCount(data); err == nil {
			out[gpu]++
		}
	}
	return out
}

// readKFDProcess reads proc/PID/vram_GPU, proc/PID/stats_GPU/cu_occupancy and proc/PID/queues. A process that ends
// meanwhile loses its files, and then holds nothing.
func readKFDProcess(fs discover.FS, pid int) KFDProcess {
	p := KFDProcess{ProcessID: pid, MemoryBytes: map[uint64]uint64{}, BusyComputeUnits: map[uint64]uint64{}}
	p.Queues = readQueues(fs, kfdProcessDir+"/"+strconv.Itoa(pid)+"/queues")
	dir := kfdProcessDir + "/" + strconv.Itoa(pid)
	names, err := fs.ReadDir(dir)
	if err != nil && discover.Classify(err) != discover.ClassMissing {
		p.Unread = err.Error()
	}
	for _, name := range names {
		into, path := p.MemoryBytes, dir+"/"+name
		id, isMemory := strings.CutPrefix(name, "vram_")
		if !isMemory {
			var isStats bool
			if id, isStats = strings.CutPrefix(name, "stats_"); !isStats {
				continue
			}
			into, path = p.BusyComputeUnits, path+"/cu_occupancy"
		}
		gpu, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			continue
		}
		data, err := fs.ReadFile(path)
		if err == nil {
			into[gpu], err = parseCount(data)
		}
		if err != nil {
			delete(into, gpu)
			// The process may have ended; and not every GPU counts its busy compute units (EINVAL).
			if isMemory && discover.Classify(err) != discover.ClassMissing {
				p.Unread = err.Error()
			}
		}
	}
	return p
}

func (f NodeFacts) isUnread(path string) bool {
	return slices.ContainsFunc(f.Discovered.Unread, func(u discover.Unread) bool { return u.Path == path })
}

// unread says why a file could not be read, "" where nothing is known of it.
func (f NodeFacts) unread(path string) string {
	if f.Discovered == nil {
		return f.DiscoveredError
	}
	for _, u := range f.Discovered.Unread {
		if u.Path == path {
			return fmt.Sprintf("/%s: %s: %s", u.Path, u.Class, u.Message)
		}
	}
	return "/" + path + " is not there"
}

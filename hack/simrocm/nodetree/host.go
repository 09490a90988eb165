package nodetree

import (
	"fmt"
	"strconv"
	"strings"
)

// writer fills a tree with a node's files.
type writer struct {
	*Tree
	node    *Node
	product *product
}

func (w *writer) all() {
	w.file(simrocmConf, strings.TrimSuffix(w.node.conf(w.product), "\n"))
	w.host()
	w.rocm()
	w.kfd()
	for i := range w.node.GPUs {
		if !w.node.GPUs[i].Missing {
			w.pci(i)
		}
	}
	w.network()
}

// file writes text and a line break, as sysfs does.
func (w *writer) file(path, text string) { w.Set(path, text+"\n") }

func (w *writer) host() {
	n := w.node
	w.file("proc/cmdline", n.KernelCommand)
	w.file("proc/sys/kernel/osrelease", n.KernelRelease)
	w.file("proc/sys/kernel/numa_balancing", itoa(n.NUMABalancing))
	w.file("proc/sys/kernel/random/boot_id", n.BootID)
	locked := "unlimited"
	if n.LockedMemoryBytes > 0 {
		locked = fmt.Sprint(n.LockedMemoryBytes)
	}
	w.file("proc/self/limits", fmt.Sprintf("%-26s%-21s%-21s%-10s\n%-26s%-21s%-21s%-10s", "Limit", "Soft Limit", "Hard Limit", "Units",
		"Max locked memory", locked, locked, "bytes"))
	w.folder("sys/class/kfd/kfd/proc") // no process uses the GPUs
	w.folder("sys/module/amdgpu")
	if n.Driver != DriverBuiltIn {
		w.file("sys/module/amdgpu/initstate", "live")
		w.file("sys/module/amdgpu/srcversion", fmt.Sprintf("%023X", w.product.gfxVersion))
	}
	if n.Driver == DriverDKMS {
		w.file("sys/module/amdgpu/version", n.DriverVersion)
	}
}

// rcclOf is NCCL_VERSION_CODE of the RCCL in a ROCm release, and hipOf the patch number of its HIP (release notes).
var rcclOf = []struct {
	major, minor int
	code         int
	hipPatch     int
}{{6, 2, 22005, 41134}, {6, 3, 22105, 42131}, {6, 4, 22203, 43483}, {7, 0, 22606, 51831}, {7, 1, 22707, 52802}, {7, 2, 22707, 53150}}

// rocm writes a ROCm installation: its version file and header, and libraries that are links by name. The libraries
// themselves are not there, so nothing can load them.
func (w *writer) rocm() {
	if w.node.ROCm == "" {
		return
	}
	const root = "opt/rocm/"
	w.file(root+".info/version", w.node.ROCm)
	release, _, _ := strings.Cut(w.node.ROCm, "-")
	numbers := strings.Split(release, ".")
	if len(numbers) != 3 {
		return
	}
	var v [3]int
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 99 {
			return
		}
		v[i] = n
	}
	packed := fmt.Sprintf("%d%02d%02d", v[0], v[1], v[2])
	w.file(root+"include/rocm-core/rocm_version.h", fmt.Sprintf("#define ROCM_VERSION_MAJOR %d\n#define ROCM_VERSION_MINOR %d\n#define ROCM_VERSION_PATCH %d", v[0], v[1], v[2]))
	library := func(name, soname, full string) {
		w.links[root+"lib/"+name] = soname
		w.links[root+"lib/"+soname] = full
		w.add(root + "lib/" + name)
		w.add(root + "lib/" + soname)
	}
	library("librocm-core.so", "librocm-core.so.1", "librocm-core.so.1.0."+packed)
	for _, r := range rcclOf {
		if r.major != v[0] || r.minor != v[1] {
			continue
		}
		library("librccl.so", "librccl.so.1", "librccl.so.1.0."+packed)
		library("libamdhip64.so", fmt.Sprintf("libamdhip64.so.%d", v[0]), fmt.Sprintf("libamdhip64.so.%d.%d.%d", v[0], v[1], r.hipPatch))
		w.file(root+"include/rccl/rccl.h", fmt.Sprintf("#define NCCL_MAJOR %d\n#define NCCL_MINOR %d\n#define NCCL_PATCH %d\n#define NCCL_VERSION_CODE %d",
			r.code/10000, r.code/100%100, r.code%100, r.code))
		w.file(root+"include/hip/hip_version.h", fmt.Sprintf("#define HIP_VERSION_MAJOR %d\n#define HIP_VERSION_MINOR %d\n#define HIP_VERSION_PATCH %d", v[0], v[1], r.hipPatch))
	}
}

package nodetree

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// writer fills a tree with a node's files. What is to be said in them, Node and product know.
type writer struct {
	*Tree
	node    *Node
	product *product
}

func (w *writer) all() {
	w.file(simrocmConf, strings.TrimSuffix(w.node.conf(w.product), "\n"))
	w.host()
	w.numa()
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
	w.file("proc/self/limits", fmt.Sprintf("%-26s%-21s%-21s%-10s\n%-26s%-21s%-21s%-10s",
		"Limit", "Soft Limit", "Hard Limit", "Units", "Max locked memory", locked, locked, "bytes"))
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

// What a socket has; each is a NUMA node.
const (
	cpusPerSocket     = 96
	socketMemoryBytes = 1081914286080
	localDistance     = 10
)

// numa writes the NUMA nodes (drivers/base/node.c).
func (w *writer) numa() {
	const root = "sys/devices/system/node/"
	sockets := w.product.sockets
	all := span(0, sockets-1)
	for _, name := range []string{"online", "possible", "has_cpu", "has_memory", "has_normal_memory"} {
		w.file(root+name, all)
	}
	for node := range sockets {
		dir := fmt.Sprintf("%snode%d/", root, node)
		distances := make([]string, sockets)
		for other := range distances {
			distances[other] = itoa(weightCPUs)
		}
		distances[node] = itoa(localDistance)
		w.file(dir+"distance", strings.Join(distances, " "))
		w.file(dir+"cpulist", w.product.cpuList(node))
		w.file(dir+"cpumap", w.product.cpuMap(node))
		w.file(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        %d kB",
			node, socketMemoryBytes>>10, node, socketMemoryBytes>>11))
	}
}

// cpuList are the CPUs of a NUMA node; -1 stands for all.
func (p *product) cpuList(node int) string {
	if node < 0 || node >= p.sockets {
		return span(0, p.sockets*cpusPerSocket-1)
	}
	return span(node*cpusPerSocket, (node+1)*cpusPerSocket-1)
}

// cpuMap is cpuList as a bit map: 32 CPUs a word, the last ones first.
func (p *product) cpuMap(node int) string {
	const perWord = 32
	words := make([]string, 0, p.sockets*cpusPerSocket/perWord)
	for socket := p.sockets - 1; socket >= 0; socket-- {
		word := "00000000"
		if node < 0 || node >= p.sockets || node == socket {
			word = "ffffffff"
		}
		words = append(words, slices.Repeat([]string{word}, cpusPerSocket/perWord)...)
	}
	return strings.Join(words, ",")
}

func span(from, to int) string {
	if from == to {
		return itoa(from)
	}
	return itoa(from) + "-" + itoa(to)
}

// rcclOf is NCCL_VERSION_CODE of the RCCL in a ROCm release, and hipOf the patch number of its HIP (release notes).
var rcclOf = []struct {
	major, minor int
	code         int
	hipPatch     int
}{{6, 2, 22005, 41134}, {6, 3, 22105, 42131}, {6, 4, 22203, 43483}, {7, 0, 22606, 51831}, {7, 1, 22707, 52802},
	{7, 2, 22707, 53150}}

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
	w.file(root+"include/rocm-core/rocm_version.h",
		fmt.Sprintf("#define ROCM_VERSION_MAJOR %d\n#define ROCM_VERSION_MINOR %d\n#define ROCM_VERSION_PATCH %d",
			v[0], v[1], v[2]))
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
		library("libamdhip64.so", fmt.Sprintf("libamdhip64.so.%d", v[0]),
			fmt.Sprintf("libamdhip64.so.%d.%d.%d", v[0], v[1], r.hipPatch))
		w.file(root+"include/rccl/rccl.h", fmt.Sprintf("#define NCCL_MAJOR %d\n"+
			"#define NCCL_MINOR %d\n#define NCCL_PATCH %d\n#define NCCL_VERSION_CODE %d",
			r.code/10000, r.code/100%100, r.code%100, r.code))
		w.file(root+"include/hip/hip_version.h",
			fmt.Sprintf("#define HIP_VERSION_MAJOR %d\n#define HIP_VERSION_MINOR %d\n#define HIP_VERSION_PATCH %d",
				v[0], v[1], r.hipPatch))
	}
}

package nodetree

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, n Node) string {
	t.Helper()
	dir := t.TempDir()
	if err := Write(dir, n); err != nil {
		t.Fatal(err)
	}
	return dir
}

func healthy(t *testing.T, model string) Node {
	t.Helper()
	n, err := Defaults(model)
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-" + strings.ToLower(model)
	return n
}

func read(t *testing.T, dir, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// generate makes a tree in memory.
func generate(t *testing.T, n Node) *Tree {
	t.Helper()
	tree, err := Generate(n)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// keys reads "name value" lines.
func keys(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[name] = value
	}
	return values
}

// gpusOnBus are the addresses of the bus that are data-centre GPUs.
func gpusOnBus(t *testing.T, tree *Tree) []string {
	t.Helper()
	names, err := tree.ReadDir("sys/bus/pci/devices")
	if err != nil {
		t.Fatal(err)
	}
	var gpus []string
	for _, name := range names {
		if class := text(t, tree, "sys/bus/pci/devices/"+name+"/class"); class == "0x120000\n" ||
			class == "0x038000\n" {
			gpus = append(gpus, name)
		}
	}
	return gpus
}

func text(t *testing.T, tree *Tree, name string) string {
	t.Helper()
	data, err := tree.ReadFile(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(data)
}

func absent(t *testing.T, tree *Tree, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := tree.ReadFile(name); err == nil {
			t.Errorf("%s is there", name)
		}
		if _, err := tree.ReadDir(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

func TestVariations(t *testing.T) {
	const nodes = "sys/class/kfd/kfd/topology/nodes/"
	const gpu0 = "sys/bus/pci/devices/0000:05:00.0/"
	has := func(file string, lines ...string) func(*testing.T, *Tree) {
		return func(t *testing.T, tree *Tree) {
			got := text(t, tree, file)
			for _, line := range lines {
				if !strings.Contains("\n"+got, "\n"+line+"\n") {
					t.Errorf("%s lacks the line %q:\n%s", file, line, got)
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Node)
		checks []func(t *testing.T, tree *Tree)
	}{
		{"pair over PCIe", func(n *Node) { n.Links = []Link{{A: 3, B: 6, Kind: LinkPCIe}} }, []func(*testing.T, *Tree){
			countLinks(54, 2), has("simrocm.conf", "link.3-6 = pcie"),
			// Member 6 of GPU 3's hive list: no hops and no link.
			has("sys/bus/pci/devices/0000:65:00.0/xgmi_num_links", "01 01 01 00 01 01 00 01 ")}},
		{"missing pair", func(n *Node) { n.Links = []Link{{A: 3, B: 6, Kind: LinkNone}} },
			[]func(*testing.T, *Tree){countLinks(54, 0)}},
		{"one way", func(n *Node) { n.Links = []Link{{A: 3, B: 6, Kind: LinkNone, OneWay: true}} },
			[]func(*testing.T, *Tree){
				countLinks(55, 0), has("simrocm.conf", "link.3-6 = none"),
				has(nodes+"8/io_links/4/properties", "node_to 5")}},
		{"up on one side", func(n *Node) {
			n.Links = []Link{{A: 3, B: 6, Kind: LinkNone, OneWay: true, DriverOnly: true}}
		}, []func(*testing.T, *Tree){
			countLinks(56, 0), has("sys/bus/pci/devices/0000:65:00.0/xgmi_num_links", "01 01 01 00 01 01 00 01 "),
			has("sys/bus/pci/devices/0000:d5:00.0/xgmi_num_links", "01 01 01 01 01 01 00 01 ")}},
		{"two hops", func(n *Node) { n.Links = []Link{{A: 0, B: 1, Kind: LinkXGMI, Hops: 2}} },
			[]func(*testing.T, *Tree){
				has(nodes+"2/io_links/1/properties", "weight 30")}},
		{"half bandwidth pair", func(n *Node) { n.Links = []Link{{A: 1, B: 4, Kind: LinkXGMI, BandwidthMBps: 32000}} },
			[]func(*testing.T, *Tree){
				has("simrocm.conf", "link.1-4 = 24000"), has(nodes+"3/io_links/4/properties", "max_bandwidth 32000")}},
		{"hive split", func(n *Node) {
			for i := range n.GPUs {
				n.GPUs[i].Hive = 1 + i/4
			}
		}, []func(*testing.T, *Tree){countLinks(24, 32), has(gpu0+"xgmi_num_links", "00 01 01 01 ")}},
		{"no hive", func(n *Node) {
			for i := range n.GPUs {
				n.GPUs[i].Hive = -1
			}
		}, []func(*testing.T, *Tree){countLinks(0, 56), has(nodes+"2/properties", "hive_id 0"),
			func(t *testing.T, tree *Tree) {
				absent(t, tree, gpu0+"xgmi_hive_info", gpu0+"xgmi_num_hops")
			}}},
		{"missing GPU", func(n *Node) { n.GPUs[2].Missing = true },
			[]func(*testing.T, *Tree){func(t *testing.T, tree *Tree) {
				if gpus := gpusOnBus(t, tree); len(gpus) != 7 {
					t.Errorf("GPUs on the bus: %v, want 7", gpus)
				}
				if conf := text(t, tree, "simrocm.conf"); strings.Contains(conf, "gpu.7") ||
					strings.Contains(conf, "0000:5b:00.0") {
					t.Errorf("simrocm.conf still has the GPU:\n%s", conf)
				}
			}}},
		{"unbound GPU", func(n *Node) { n.GPUs[7].Unbound = true },
			[]func(*testing.T, *Tree){func(t *testing.T, tree *Tree) {
				if gpus := gpusOnBus(t, tree); len(gpus) != 8 {
					t.Errorf("GPUs on the bus: %v, want 8", gpus)
				}
				if _, err := tree.ReadLink("sys/bus/pci/devices/0000:e7:00.0/driver"); err == nil {
					t.Error("a driver is bound to it")
				}
				if driver, err := tree.ReadLink("sys/bus/pci/devices/0000:05:00.0/driver"); err != nil ||
					path.Base(driver) != "amdgpu" {
					t.Errorf("driver of GPU 0: %q, %v", driver, err)
				}
				absent(t, tree, nodes+"9", "sys/class/drm/renderD184",
					"sys/module/amdgpu/drivers/pci:amdgpu/0000:e7:00.0")
			}}},
		{"in-tree driver without ROCm", func(n *Node) { n.Driver, n.ROCm = DriverInTree, "" },
			[]func(*testing.T, *Tree){func(t *testing.T, tree *Tree) {
				absent(t, tree, "sys/module/amdgpu/version", "opt")
				text(t, tree, "sys/module/amdgpu/srcversion")
			}}},
		{"CPX", func(n *Node) { n.Partition, n.MemoryPartition = CPX, "NPS4" }, []func(*testing.T, *Tree){
			countNodes(66),
			has(nodes+"5/properties", "simd_count 152", "location_id 1283", "num_xcc 1", "drm_render_minor 131"),
			has("simrocm.conf", "gpu.63 = 0000:e7:00.7", "devices_per_gpu = 8"),
			has(gpu0+"current_memory_partition", "NPS4")}},
		{"QPX", func(n *Node) { n.Partition = QPX }, []func(*testing.T, *Tree){
			countNodes(34),
			has(nodes+"9/properties", "simd_count 304", "location_id 11011", "num_xcc 2", "drm_render_minor 139"),
			has(gpu0+"current_compute_partition", "QPX"), has("simrocm.conf", "devices_per_gpu = 4")}},
		{"partition missing", func(n *Node) { n.Partition, n.GPUs[7].MissingPartitions = CPX, 1 },
			[]func(*testing.T, *Tree){countNodes(65)}},
		{"gaps", func(n *Node) { n.GPUs[0].NodeGap, n.GPUs[3].NodeGap = 2, 1 }, []func(*testing.T, *Tree){
			countNodes(10), has(nodes+"4/properties", "location_id 1280"),
			has(nodes+"12/properties", "location_id 59136")}},
		{"fault", func(n *Node) { n.Fault = "hang:3" },
			[]func(*testing.T, *Tree){has("simrocm.conf", "fault = hang:3")}},
		{"counters", func(n *Node) {
			n.GPUs[0].Errors = map[string]ErrorCounts{"umc": {1, 2, 3}, "xgmi_wafl": {4, 5, 6}}
			n.GPUs[0].RetiredPages = 2
		}, []func(*testing.T, *Tree){
			has(gpu0+"ras/umc_err_count", "ue: 1", "ce: 2", "de: 3"), has(gpu0+"ras/gfx_err_count", "ue: 0", "ce: 0"),
			func(t *testing.T, tree *Tree) {
				if got := text(t, tree, gpu0+"ras/xgmi_wafl_err_count"); got != "ue: 4\nce: 5\n" {
					t.Errorf("xgmi_wafl_err_count is %q", got)
				}
				if got := text(t, tree, gpu0+"ras/gpu_vram_bad_pages"); got != "0x001a2b00 : 0x00001000 : R\n"+
					"0x001a2b40 : 0x00001000 : R\n" {
					t.Errorf("gpu_vram_bad_pages is %q", got)
				}
			}}},
		{"NICs", func(n *Node) { n.NICKind, n.NICs, n.DownNICs = NICBroadcom, 3, []int{1} }, []func(*testing.T, *Tree){
			has("sys/class/infiniband/bnxt_re0/ports/1/state", "4: ACTIVE"),
			has("sys/class/infiniband/bnxt_re1/ports/1/state", "1: DOWN"),
			has("sys/class/infiniband/bnxt_re2/device/device", "0x1760"),
			has("sys/class/net/enp9s0np0/device/uevent", "PCI_SLOT_NAME=0000:09:00.0"),
			func(t *testing.T, tree *Tree) {
				absent(t, tree, "sys/class/infiniband/bnxt_re3")
				if names, err := tree.ReadDir("sys/class/infiniband/bnxt_re0/device/net"); err != nil ||
					!slices.Equal(names, []string{"enp9s0np0"}) {
					t.Errorf("interfaces of bnxt_re0: %v, %v", names, err)
				}
			}}},
		{"no render node", func(n *Node) { n.GPUs[1].NoRenderNode = true },
			[]func(*testing.T, *Tree){func(t *testing.T, tree *Tree) {
				absent(t, tree, "sys/class/drm/renderD136")
				for _, there := range []string{"renderD128", "renderD137"} {
					if _, err := tree.ReadDir("sys/class/drm/" + there); err != nil {
						t.Error(there, err)
					}
				}
			}}},
		{"generation and firmware", func(n *Node) { n.Generation, n.GPUs[0].Firmware = 7, 170 },
			[]func(*testing.T, *Tree){
				has("sys/class/kfd/kfd/topology/generation_id", "7"), has(nodes+"2/properties", "fw_version 170"),
				has(nodes+"3/properties", "fw_version 166"),
				has(gpu0+"fw_version/mec_fw_version", "0x000000aa")}},
		{"device id", func(n *Node) { n.GPUs[0].DeviceID = 0x75ff }, []func(*testing.T, *Tree){
			has(gpu0+"device", "0x75ff"), has(nodes+"2/properties", "device_id 30207"),
			has(nodes+"3/properties", "device_id 29857")}},
		{"ROCm files", func(*Node) {}, []func(*testing.T, *Tree){
			has("opt/rocm/include/rocm-core/rocm_version.h", "#define ROCM_VERSION_MAJOR 7",
				"#define ROCM_VERSION_PATCH 2"),
			has("opt/rocm/include/rccl/rccl.h", "#define NCCL_VERSION_CODE 22606"),
			func(t *testing.T, tree *Tree) {
				for name, want := range map[string]string{"librccl.so.1": "librccl.so.1.0.70002",
					"libamdhip64.so.7": "libamdhip64.so.7.0.51831"} {
					if got, err := tree.ReadLink("opt/rocm/lib/" + name); got != want || err != nil {
						t.Errorf("%s leads to %q (%v), want %q", name, got, err, want)
					}
				}
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := healthy(t, "MI300X")
			c.change(&n)
			tree := generate(t, n)
			for _, check := range c.checks {
				check(t, tree)
			}
		})
	}
}

func countLinks(xgmi, pcie int) func(*testing.T, *Tree) {
	return func(t *testing.T, tree *Tree) {
		if got := linkTypes(tree, 2); got["io_links type 11"] != xgmi || got["p2p_links type 2"] != pcie {
			t.Errorf("links %v, want %d of xGMI and %d over PCIe", got, xgmi, pcie)
		}
	}
}

func countNodes(want int) func(*testing.T, *Tree) {
	return func(t *testing.T, tree *Tree) {
		if nodes, err := tree.ReadDir("sys/class/kfd/kfd/topology/nodes"); err != nil || len(nodes) != want {
			t.Errorf("%d KFD nodes (%v), want %d", len(nodes), err, want)
		}
	}
}

// TestWriteIsTheTree: on disk is what is in memory, links included.
func TestWriteIsTheTree(t *testing.T) {
	n := healthy(t, "MI250")
	tree, dir := generate(t, n), write(t, n)
	if err := Write(dir, n); err != nil { // a second time, over the first
		t.Fatal(err)
	}
	for _, name := range tree.Files() {
		if got := read(t, dir, name); got != tree.files[name] {
			t.Errorf("%s is %q on disk and %q in memory", name, got, tree.files[name])
		}
	}
	for name := range tree.links {
		if strings.HasPrefix(name, "opt/") {
			continue // the libraries themselves are not there
		}
		found, err := tree.Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		onDisk, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(whole, found); onDisk != want {
			t.Errorf("%s leads to %s, want %s", name, onDisk, want)
		}
	}
}

func TestBootIDsDiffer(t *testing.T) {
	a, b := healthy(t, "MI300X"), healthy(t, "MI300X")
	b.Name = "other"
	const file = "proc/sys/kernel/random/boot_id"
	first, second := text(t, generate(t, a), file), text(t, generate(t, b), file)
	if first == second {
		t.Errorf("two nodes have the boot id %q", first)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$`).
		MatchString(first) {
		t.Errorf("boot id %q is not of the kernel's form", first)
	}
	if again := text(t, generate(t, a), file); again != first {
		t.Errorf("boot id of the same node changed from %q to %q", first, again)
	}
}

func TestMissingGPUKeepsHives(t *testing.T) {
	n := healthy(t, "MI210")
	n.GPUs[1].Missing = true
	conf := text(t, generate(t, n), "simrocm.conf")
	// Ordinals 0-2 are the rest of the first hive, 3-6 the second: the library would put 3 into the first.
	for _, want := range []string{"link.0-3 = pcie\n", "link.3-4 = 36000\n"} {
		if !strings.Contains(conf, want) {
			t.Errorf("simrocm.conf lacks %q:\n%s", want, conf)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Node)
		want   string
	}{
		{"no name", func(n *Node) { n.Name = "" }, "needs a name"},
		{"unknown model", func(n *Node) { n.Model = "MI999" }, `model "MI999" is not known`},
		{"line break in the fault", func(n *Node) { n.Fault = "hang:1\nfault = none" }, "must not contain"},
		{"bad address", func(n *Node) { n.GPUs[0].PCIAddress = "05:00.0" }, "not of the form"},
		{"bad link", func(n *Node) { n.Links = []Link{{A: 0, B: 8, Kind: LinkPCIe}} }, "link 0-8"},
		{"no such partition", func(n *Node) { n.Partition = "HALF" }, "no partition mode"},
		{"partition of another model", func(n *Node) { n.Partition = TPX }, "no partition mode"},
		{"memory split further than compute", func(n *Node) { n.MemoryPartition = "NPS4" }, "no memory partition mode"},
		{"no such memory partition", func(n *Node) { n.Partition, n.MemoryPartition = CPX, "NPS8" },
			"no memory partition mode"},
		{"all partitions missing", func(n *Node) { n.Partition, n.GPUs[0].MissingPartitions = CPX, 8 },
			"cannot be missing"},
		{"RAS block", func(n *Node) { n.GPUs[0].Errors = map[string]ErrorCounts{"abc": {}} }, "no RAS block"},
		{"throttling cause", func(n *Node) { n.GPUs[0].ThrottleResidency = map[string]uint32{"abc": 1} },
			"throttling cause"},
		{"port", func(n *Node) { n.GPUs[0].DownPorts = []int{7} }, "xGMI port 7"},
		{"node gap", func(n *Node) { n.GPUs[0].NodeGap = -1 }, "negative"},
		{"too many NICs", func(n *Node) { n.NICs = 9 }, "9 NICs"},
		{"NIC that is not there", func(n *Node) { n.DownNICs = []int{8} }, "NIC 8"},
		{"NIC kind", func(n *Node) { n.NICKind = "abc" }, "NIC kind"},
		{"metrics", func(n *Node) { n.MetricsRevision = "2.0" }, "revision"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := healthy(t, "MI300X")
			c.change(&n)
			if err := Write(t.TempDir(), n); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// A mistaken --dir / must not remove a real sys, proc or opt.
func TestWriteLeavesRealRootsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "opt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, healthy(t, "MI300X")); err == nil || !strings.Contains(err.Error(), "not a simulated node") {
		t.Errorf("error %v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "opt")); err != nil {
		t.Error(err)
	}
}

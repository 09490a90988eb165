package nodetree

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
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

// linkTypes counts the GPU to GPU entries of KFD by type, in io_links and p2p_links.
func linkTypes(t *testing.T, dir string, cpus int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, kind := range []string{"io_links", "p2p_links"} {
		files, err := filepath.Glob(filepath.Join(dir, "sys/class/kfd/kfd/topology/nodes/*", kind, "*/properties"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			values := map[string]string{}
			for line := range strings.Lines(read(t, "/", f)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				values[name] = value
			}
			if isCPU(values["node_from"], cpus) || isCPU(values["node_to"], cpus) {
				continue
			}
			counts[kind+" type "+values["type"]]++
		}
	}
	return counts
}

func isCPU(node string, cpus int) bool { return len(node) == 1 && int(node[0]-'0') < cpus }

func TestLinksOfHealthyNodes(t *testing.T) {
	// Directed links, from the table of healthy systems in public dumps (56 for a full mesh of 8).
	for _, c := range []struct {
		model       string
		cpus        int
		xgmi, pcie  int
		description string
	}{
		{"MI100", 2, 24, 32, "two hives of 4"},
		{"MI210", 2, 24, 32, "two hives of 4"},
		{"MI250X", 1, 56, 0, "all pairs, some over several hops"},
		{"MI300A", 4, 12, 0, "mesh of 4"},
		{"MI300X", 2, 56, 0, "mesh of 8"},
		{"MI308X", 2, 56, 0, "mesh of 8"},
		{"MI325X", 2, 56, 0, "mesh of 8"},
		{"MI350X", 2, 56, 0, "mesh of 8"},
		{"MI355X", 2, 56, 0, "mesh of 8"},
	} {
		t.Run(c.model, func(t *testing.T) {
			got := linkTypes(t, write(t, healthy(t, c.model)), c.cpus)
			if got["io_links type 11"] != c.xgmi || got["p2p_links type 2"] != c.pcie {
				t.Errorf("links %v, want %d of xGMI and %d over PCIe (%s)", got, c.xgmi, c.pcie, c.description)
			}
		})
	}
}

func TestVariations(t *testing.T) {
	const topology = "sys/class/kfd/kfd/topology/"
	for _, c := range []struct {
		name   string
		change func(*Node)
		check  func(t *testing.T, dir string)
	}{
		{"pair over PCIe", func(n *Node) { n.Links = []Link{{A: 3, B: 6, Kind: LinkPCIe}} }, func(t *testing.T, dir string) {
			got := linkTypes(t, dir, 2)
			if got["io_links type 11"] != 54 || got["p2p_links type 2"] != 2 {
				t.Errorf("links %v, want 54 of xGMI and 2 over PCIe", got)
			}
			if conf := read(t, dir, "simrocm.conf"); !strings.Contains(conf, "link.3-6 = pcie\n") {
				t.Errorf("simrocm.conf does not name the pair:\n%s", conf)
			}
		}},
		{"missing pair", func(n *Node) { n.Links = []Link{{A: 3, B: 6, Kind: LinkNone}} }, func(t *testing.T, dir string) {
			if got := linkTypes(t, dir, 2); got["io_links type 11"] != 54 || got["p2p_links type 2"] != 0 {
				t.Errorf("links %v, want 54 of xGMI and none over PCIe", got)
			}
		}},
		{"half bandwidth pair", func(n *Node) { n.Links = []Link{{A: 1, B: 4, Kind: LinkXGMI, BandwidthMBps: 32000}} }, func(t *testing.T, dir string) {
			if conf := read(t, dir, "simrocm.conf"); !strings.Contains(conf, "link.1-4 = 24000\n") {
				t.Errorf("simrocm.conf does not slow the pair:\n%s", conf)
			}
			if text := read(t, dir, topology+"nodes/3/io_links/4/properties"); !strings.Contains(text, "max_bandwidth 32000\n") {
				t.Errorf("KFD does not show the slow link:\n%s", text)
			}
		}},
		{"missing GPU", func(n *Node) { n.GPUs[2].Missing = true }, func(t *testing.T, dir string) {
			entries, err := os.ReadDir(filepath.Join(dir, "sys/bus/pci/devices"))
			if err != nil || len(entries) != 7 {
				t.Errorf("%d PCI devices (%v), want 7", len(entries), err)
			}
			if conf := read(t, dir, "simrocm.conf"); strings.Contains(conf, "gpu.7") || strings.Contains(conf, "0000:5b:00.0") {
				t.Errorf("simrocm.conf still has the GPU:\n%s", conf)
			}
		}},
		{"unbound GPU", func(n *Node) { n.GPUs[7].Unbound = true }, func(t *testing.T, dir string) {
			if _, err := os.Stat(filepath.Join(dir, "sys/bus/pci/devices/0000:e7:00.0/vendor")); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, topology, "nodes/9")); err == nil {
				t.Error("KFD has a GPU that the driver did not take")
			}
		}},
		{"in-tree driver without ROCm", func(n *Node) { n.Driver, n.ROCm = DriverInTree, "" }, func(t *testing.T, dir string) {
			for _, f := range []string{"sys/module/amdgpu/version", "opt/rocm/.info/version"} {
				if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
					t.Errorf("%s is there", f)
				}
			}
			read(t, dir, "sys/module/amdgpu/srcversion")
		}},
		{"CPX", func(n *Node) { n.Partition = CPX }, func(t *testing.T, dir string) {
			nodes, err := os.ReadDir(filepath.Join(dir, topology, "nodes"))
			if err != nil || len(nodes) != 66 {
				t.Errorf("%d KFD nodes (%v), want 64 partitions and 2 CPUs", len(nodes), err)
			}
			if text := read(t, dir, topology+"nodes/5/properties"); !strings.Contains(text, "simd_count 152\n") ||
				!strings.Contains(text, "location_id 1283\n") || !strings.Contains(text, "num_xcc 1\n") {
				t.Errorf("partition 3 of GPU 0:\n%s", text)
			}
			if conf := read(t, dir, "simrocm.conf"); !strings.Contains(conf, "gpu.63 = 0000:e7:00.7\n") {
				t.Errorf("simrocm.conf has no 64th device:\n%s", conf)
			}
		}},
		{"fault", func(n *Node) { n.Fault = "hang:3" }, func(t *testing.T, dir string) {
			if conf := read(t, dir, "simrocm.conf"); !strings.Contains(conf, "fault = hang:3\n") {
				t.Errorf("simrocm.conf:\n%s", conf)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := healthy(t, "MI300X")
			c.change(&n)
			c.check(t, write(t, n))
		})
	}
}

func TestBootIDsDiffer(t *testing.T) {
	a, b := healthy(t, "MI300X"), healthy(t, "MI300X")
	b.Name = "other"
	const file = "proc/sys/kernel/random/boot_id"
	first, second := read(t, write(t, a), file), read(t, write(t, b), file)
	if first == second {
		t.Errorf("two nodes have the boot id %q", first)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$`).MatchString(first) {
		t.Errorf("boot id %q is not of the kernel's form", first)
	}
	if again := read(t, write(t, a), file); again != first {
		t.Errorf("boot id of the same node changed from %q to %q", first, again)
	}
}

func TestMissingGPUKeepsHives(t *testing.T) {
	n := healthy(t, "MI210")
	n.GPUs[1].Missing = true
	conf := read(t, write(t, n), "simrocm.conf")
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

// fixtures finds the shared fixtures beside the repository.
func fixtures(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	found := filepath.Join(dir, "../shared/fixtures/synthetic")
	if _, err := os.Stat(found); err != nil {
		t.Skip("no ../shared/fixtures beside the repository, so there are no reference trees to compare with")
	}
	return found
}

var numbers = regexp.MustCompile(`/(nodes|io_links|p2p_links|mem_banks)/\d+|hwmon\d+|card\d+|renderD\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|mlx5_\d|enp\w+np0`)

// shape gives each kind of file with the names of its "name value" lines, for those files that KFD writes.
func shape(files map[string]string) map[string][]string {
	kinds := map[string][]string{}
	for path, text := range files {
		kind := numbers.ReplaceAllStringFunc(path, func(s string) string {
			return strings.TrimRight(s, "0123456789abcdef:._np")
		})
		if strings.Contains(path, "/nodes/0/") || strings.Contains(path, "/nodes/1/") {
			kind = "cpu " + kind
		}
		var keys []string
		if strings.HasSuffix(path, "/properties") {
			for line := range strings.Lines(text) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				keys = append(keys, name)
			}
			slices.Sort(keys)
		}
		kinds[kind] = keys
	}
	return kinds
}

func TestFilesAreThoseOfReferenceTrees(t *testing.T) {
	for model, file := range map[string]string{"MI300X": "mi300x-8x-spx-64000.txtar", "MI350X": "mi350x-8x-spx.txtar"} {
		t.Run(model, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join(fixtures(t), file))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, f := range archive.Files {
				if !strings.HasSuffix(f.Name, "/.keep") {
					want[f.Name] = string(f.Data)
				}
			}
			dir := write(t, healthy(t, model))
			got := map[string]string{}
			err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					name, _ := filepath.Rel(dir, path)
					got[name] = read(t, dir, name)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			gotShape := shape(got)
			for kind, keys := range shape(want) {
				if have, ok := gotShape[kind]; !ok || !slices.Equal(have, keys) {
					t.Errorf("%s: the tree has names %v (there: %t), the reference %v", kind, have, ok, keys)
				}
			}
			for _, exact := range []string{"sys/class/kfd/kfd/topology/nodes/2/io_links/7/properties", "sys/class/kfd/kfd/topology/nodes/0/p2p_links/3/properties"} {
				if model == "MI300X" && got[exact] != want[exact] {
					t.Errorf("%s:\n%s\nreference:\n%s", exact, got[exact], want[exact])
				}
			}
		})
	}
}

package discover

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestFixtureFacts compares all facts of each fixture with what is on file. The dumps are not in the repository; what
// is expected of them is.
func TestFixtureFacts(t *testing.T) {
	known := map[string]bool{}
	for name := range fixtureCases {
		base := strings.NewReplacer("/tree.txtar", "", "/sys.tar.gz", "", "synthetic/", "", ".txtar", "").Replace(name)
		file := filepath.Join("testdata", "fixtures", base+".json")
		known[file] = true
		t.Run(base, func(t *testing.T) {
			got := goldenText(t,
				scan(t, memTree(t, name), Options{Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0).UTC())}))
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("facts differ from %s (-want +got); after a wanted change: go test ./agent/discover -run "+
					"TestFixtureFacts -update\n%s", file, diff)
			}
		})
	}
	files, err := filepath.Glob("testdata/fixtures/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !known[file] {
			t.Errorf("%s belongs to no fixture", file)
		}
	}
}

// oracle reads a fixture's files with nothing of the package's own parsers, so that a wrong -update of TestFixtureFacts
// cannot pass. It knows only files that are as the kernel writes them.
type oracle struct {
	memFS
	t *testing.T
}

func (o oracle) lines(name string) map[string]string {
	values := map[string]string{}
	for _, line := range strings.Split(o.memFS[name], "\n") {
		if fields := strings.Fields(line); len(fields) == 2 {
			values[strings.TrimSuffix(fields[0], ":")] = fields[1]
		}
	}
	return values
}

func (o oracle) text(name string) string { return strings.TrimSpace(o.memFS[name]) }

func (o oracle) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if text != "" && err != nil {
		o.t.Fatal(err)
	}
	return n
}

// below lists the names in a directory.
func (o oracle) below(dir string) []string {
	seen := map[string]bool{}
	for name := range o.memFS {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			seen[first] = true
		}
	}
	names := []string{}
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

const rawNodes = "sys/class/kfd/kfd/topology/nodes/"

// gfxNames by the decimal gfx_target_version, as ROCm's compiler names them.
var gfxNames = map[string]string{"90402": "gfx942", "90500": "gfx950", "90010": "gfx90a", "90008": "gfx908"}

// devices gives each GPU node of KFD as one line, by node.
func (o oracle) devices() (lines []string, gpuNodes map[string]bool) {
	gpuNodes = map[string]bool{}
	for _, node := range o.below(strings.TrimSuffix(rawNodes, "/")) {
		p := o.lines(rawNodes + node + "/properties")
		if p["simd_count"] == "0" || p["simd_count"] == "" {
			continue
		}
		gpuNodes[node] = true
		loc, perCU := o.number(p["location_id"]), o.number(p["simd_per_cu"])
		lines = append(lines, fmt.Sprintf("node %s at %04x:%02x:%02x.0 partition %d gpu_id %s minor %s xcc %s "+
			"CUs %d hive %s MEC %s SDMA %s %s", node, o.number(p["domain"]), loc>>8&0xff, loc>>3&0x1f, loc&7,
			o.text(rawNodes+node+"/gpu_id"), p["drm_render_minor"], p["num_xcc"], o.number(p["simd_count"])/perCU,
			p["hive_id"], p["fw_version"], p["sdma_fw_version"], gfxNames[p["gfx_target_version"]]))
	}
	sort.Strings(lines)
	return lines, gpuNodes
}

// links gives each link between two GPU nodes as one line.
func (o oracle) links(gpuNodes map[string]bool) []string {
	lines := []string{}
	for name := range o.memFS {
		parts := strings.Split(strings.TrimPrefix(name, rawNodes), "/")
		if len(parts) != 4 || !strings.HasSuffix(parts[1], "_links") || parts[3] != "properties" ||
			!gpuNodes[parts[0]] {
			continue
		}
		p := o.lines(name)
		if !gpuNodes[p["node_to"]] {
			continue
		}
		kind := map[string]string{"2": "PCIE", "11": "XGMI"}[p["type"]]
		lines = append(lines, fmt.Sprintf("%s to %s %s weight %s, %s to %s, indirect %t",
			parts[0], p["node_to"], kind, p["weight"], p["min_bandwidth"], p["max_bandwidth"], parts[1] == "p2p_links"))
	}
	sort.Strings(lines)
	return lines
}

// gpu gives what a GPU's own directory says as one line.
func (o oracle) gpu(address string) string {
	dir := "sys/bus/pci/devices/" + address + "/"
	var ras []string
	for _, name := range o.below(dir + "ras") {
		p := o.lines(dir + "ras/" + name)
		ras = append(ras,
			fmt.Sprintf("%s ue %s ce %s de %s", strings.TrimSuffix(name, "_err_count"), p["ue"], p["ce"], p["de"]))
	}
	speed := func(name string) string { return strings.TrimSuffix(o.text(dir+name), ".0 GT/s PCIe") }
	return fmt.Sprintf("%s id %s, %s/%s, NUMA %s, VRAM %s, slot %s, x%s of %s, %s of %s, RAS %v",
		address, o.text(dir+"device"), o.text(dir+"current_compute_partition"),
		o.text(dir+"current_memory_partition"), o.text(dir+"numa_node"), o.text(dir+"mem_info_vram_total"),
		o.text(dir+"xgmi_physical_id"), o.text(dir+"current_link_width"), o.text(dir+"max_link_width"),
		speed("current_link_speed"), speed("max_link_speed"), ras)
}

func (o oracle) nics() []string {
	lines := []string{}
	for _, name := range o.below("sys/class/infiniband") {
		dir := "sys/class/infiniband/" + name + "/"
		slot := ""
		for _, line := range strings.Split(o.memFS[dir+"device/uevent"], "\n") {
			if rest, ok := strings.CutPrefix(line, "PCI_SLOT_NAME="); ok {
				slot = rest
			}
		}
		_, state, _ := strings.Cut(o.text(dir+"ports/1/state"), ": ")
		rate, _, _ := strings.Cut(o.text(dir+"ports/1/rate"), " ")
		lines = append(lines, fmt.Sprintf("%s at %s NUMA %s %s %s %s Gb/s",
			name, slot, o.text(dir+"device/numa_node"), o.text(dir+"ports/1/link_layer"), state, rate))
	}
	return lines
}

func shown[T any](n *T) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// orZero is what KFD writes for a value that the facts hold for not stated.
func orZero(n *uint64) string {
	if n == nil {
		return "0"
	}
	return fmt.Sprint(*n)
}

// TestFixturesAgainstTheirFiles holds the facts of each fixture against its files.
func TestFixturesAgainstTheirFiles(t *testing.T) {
	for name := range fixtureCases {
		if strings.Contains(name, "truncated") || strings.Contains(name, "mi25-") {
			continue // files that end early, or that lack what newer kernels write: TestFixtureFacts has them
		}
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			tree := memTree(t, name)
			o, f := oracle{tree, t}, scan(t, tree, Options{})
			check := func(what string, want, got []string) {
				if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
					t.Errorf("%s (-files +facts):\n%s", what, diff)
				}
			}
			devices, gpuNodes := o.devices()
			var got []string
			for i := range f.Devices {
				d := &f.Devices[i]
				got = append(got,
					fmt.Sprintf("node %d at %s partition %d gpu_id %s minor %s xcc %s CUs %s hive %s MEC %s SDMA %s %s",
						d.Node, d.PCIAddress, d.Partition, shown(d.GPUID), shown(d.RenderMinor), shown(d.XCDs),
						shown(d.ComputeUnits), shown(d.HiveID), shown(d.FWVersion), shown(d.SDMAVersion), d.GFXTarget))
			}
			sort.Strings(got)
			check("devices", devices, got)
			got = nil
			for i := range f.Links {
				l := &f.Links[i]
				got = append(got, fmt.Sprintf("%d to %d %s weight %d, %s to %s, indirect %t",
					l.From, l.To, l.Type, l.Weight, orZero(l.MinBandwidthMBps), orZero(l.MaxBandwidthMBps), l.Indirect))
			}
			sort.Strings(got)
			check("links", o.links(gpuNodes), got)
			got = nil
			var want []string
			for i := range f.GPUs {
				if _, there := tree["sys/bus/pci/devices/"+f.GPUs[i].PCIAddress+"/vendor"]; there {
					want, got = append(want, o.gpu(f.GPUs[i].PCIAddress)), append(got, gpuLine(&f.GPUs[i]))
				}
			}
			check("GPUs", want, got)
			check("NICs", o.nics(), nicLines(f))
			want = nil
			for _, address := range o.below("sys/bus/pci/devices") {
				if class := o.text("sys/bus/pci/devices/" + address + "/class"); strings.HasPrefix(class, "0x1200") ||
					strings.HasPrefix(class, "0x0380") {
					want = append(want, address+" "+o.text("sys/bus/pci/devices/"+address+"/device"))
				}
			}
			got = nil
			for _, g := range f.PCIGPUs {
				got = append(got, g.PCIAddress+" "+g.DeviceID)
			}
			check("PCI bus", want, got)
			check("host", []string{o.text("proc/sys/kernel/osrelease"),
				o.text("sys/module/amdgpu/version"), o.text("sys/module/amdgpu/srcversion"),
				o.text(path.Dir(path.Clean(rawNodes)) + "/generation_id"), o.text("proc/sys/kernel/numa_balancing")},
				[]string{f.KernelRelease, f.Driver.Version, f.Driver.SrcVersion, shown(f.Generation),
					shown(f.Host.NUMABalancing)})
		})
	}
}

func gpuLine(g *GPU) string {
	var ras []string
	blocks := []string{}
	for block := range g.RAS {
		blocks = append(blocks, block)
	}
	sort.Strings(blocks)
	for _, block := range blocks {
		c := g.RAS[block]
		ras = append(ras, fmt.Sprintf("%s ue %d ce %d de %s", block, c.Uncorrectable, c.Correctable, shown(c.Deferred)))
	}
	numa := shown(g.NUMANode)
	if g.NUMAUnknown {
		numa = "-1"
	}
	speed := func(n *int64) string {
		if n == nil {
			return ""
		}
		if *n == 2500 {
			return "2.5 GT/s PCIe" // the oracle cuts whole numbers only
		}
		return fmt.Sprint(*n / 1000)
	}
	return fmt.Sprintf("%s id %s, %s/%s, NUMA %s, VRAM %s, slot %s, x%s of %s, %s of %s, RAS %v", g.PCIAddress,
		g.DeviceID, g.ComputePartition, g.MemoryPartition, numa, shown(g.VRAMBytes), shown(g.XGMIPhysicalID),
		shown(g.PCIe.Width), shown(g.PCIe.MaxWidth), speed(g.PCIe.SpeedMTps), speed(g.PCIe.MaxSpeedMTps), ras)
}

func nicLines(f *Facts) []string {
	lines := []string{}
	for i := range f.NICs {
		n := &f.NICs[i]
		lines = append(lines, fmt.Sprintf("%s at %s NUMA %s %s %s %d Gb/s",
			n.Name, n.PCIAddress, shown(n.NUMANode), n.LinkLayer, strings.ToUpper(n.State), *n.RateMbps/1000))
	}
	return lines
}

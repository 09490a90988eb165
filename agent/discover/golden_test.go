package discover

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

var update = flag.Bool("update", false,
	"write the golden files anew; TestModelCounts still holds them against an independent table")

// modelMode is a model in one partition mode; "" as the mode is SPX with the usual memory partition.
type modelMode struct{ model, mode string }

func (m modelMode) file() string {
	name := strings.ToLower(strings.ReplaceAll(m.model, " ", "-"))
	if m.mode != "" {
		name += "-" + strings.ToLower(strings.ReplaceAll(m.mode, "/", "-"))
	}
	return filepath.Join("testdata", "models", name+".json")
}

func (m modelMode) scan(t *testing.T) *Facts {
	t.Helper()
	tree := inMemory(t, m.model, func(n *nodetree.Node) {
		if m.mode != "" {
			compute, memory, _ := strings.Cut(m.mode, "/")
			n.Partition, n.MemoryPartition = nodetree.PartitionMode(compute), memory
		}
	})
	return scan(t, tree, Options{Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0).UTC())})
}

// goldenModes are every model as it comes, and the partition modes that differ in kind. TestModelCounts has all modes.
func goldenModes() []modelMode {
	var list []modelMode
	for _, model := range nodetree.Models() {
		list = append(list, modelMode{model: model})
	}
	return append(list, modelMode{"MI300A", "TPX/NPS1"}, modelMode{"MI300A", "CPX/NPS1"},
		modelMode{"MI300X", "DPX/NPS1"}, modelMode{"MI300X", "QPX/NPS4"}, modelMode{"MI300X", "CPX/NPS4"},
		modelMode{"MI308X", "CPX/NPS4"}, modelMode{"MI350X", "DPX/NPS2"}, modelMode{"MI350X", "CPX/NPS2"},
		modelMode{"MI300X VF", "CPX"})
}

// TestGolden compares all facts of each generated model with what is on file.
func TestGolden(t *testing.T) {
	known := map[string]bool{}
	for _, m := range goldenModes() {
		known[m.file()] = true
		t.Run(filepath.Base(m.file()), func(t *testing.T) {
			got := goldenText(t, m.scan(t))
			if *update {
				if err := os.MkdirAll(filepath.Dir(m.file()), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(m.file(), []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(m.file())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("facts differ from %s (-want +got); after a wanted change: go test ./agent/discover -run "+
					"TestGolden -update\n%s", m.file(), diff)
			}
		})
	}
	files, err := filepath.Glob("testdata/models/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !known[file] {
			t.Errorf("%s belongs to no model", file)
		}
	}
}

// goldenText writes facts as JSON with one line for each GPU, device and NIC, and links as a matrix: a letter for each
// kind, as linkKinds spells them out. It loses nothing of what Facts exports.
func goldenText(t *testing.T, f *Facts) string {
	t.Helper()
	rest := *f
	rest.GPUs, rest.Devices, rest.Links, rest.NICs, rest.PCIGPUs = nil, nil, nil, nil, nil
	var b strings.Builder
	line := func(v any) string {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(v); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	}
	list := func(name string, n int, of func(int) any) {
		fmt.Fprintf(&b, ",\n%q: [", name)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n  " + line(of(i)))
		}
		b.WriteString("\n]")
	}
	head, err := json.MarshalIndent(&rest, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "{\n\"facts\": %s", head)
	list("gpus", len(f.GPUs), func(i int) any {
		g := f.GPUs[i]
		g.RAS, g.Metrics = nil, nil
		return g
	})
	list("ras", len(f.GPUs), func(i int) any { return f.GPUs[i].RAS })
	list("metrics", len(f.GPUs), func(i int) any { return f.GPUs[i].Metrics })
	list("devices", len(f.Devices), func(i int) any { return f.Devices[i] })
	list("nics", len(f.NICs), func(i int) any { return f.NICs[i] })
	list("pciGPUs", len(f.PCIGPUs), func(i int) any { return f.PCIGPUs[i] })
	kinds, rows := linkMatrix(t, f)
	list("linkKinds", len(kinds), func(i int) any { return kinds[i] })
	list("links", len(rows), func(i int) any { return rows[i] })
	b.WriteString("\n}\n")
	if !json.Valid([]byte(b.String())) {
		t.Fatal("not JSON")
	}
	return b.String()
}

// linkMatrix gives a row for each device in the order of their KFD nodes, "-" for itself and "." for no link.
func linkMatrix(t *testing.T, f *Facts) (kinds, rows []string) {
	t.Helper()
	var nodes []int
	for i := range f.Devices {
		nodes = append(nodes, f.Devices[i].Node)
	}
	sort.Ints(nodes)
	at := map[int]int{}
	for i, node := range nodes {
		at[node] = i
	}
	cells := make([][]byte, len(nodes))
	for i := range cells {
		cells[i] = bytes.Repeat([]byte{'.'}, len(nodes))
		cells[i][i] = '-'
	}
	text := func(n *uint64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	for i := range f.Links {
		l := &f.Links[i]
		kind := fmt.Sprintf("%s weight %d, hops %s, %s to %s MB/s",
			l.Type, l.Weight, text(l.Hops), text(l.MinBandwidthMBps), text(l.MaxBandwidthMBps))
		if l.Indirect {
			kind += ", indirect"
		}
		letter := slices.Index(kinds, kind)
		if letter < 0 {
			letter = len(kinds)
			kinds = append(kinds, kind)
		}
		cell := &cells[at[l.From]][at[l.To]]
		if *cell != '.' || letter > 25 {
			t.Fatalf("two links from node %d to %d, or too many kinds", l.From, l.To)
		}
		*cell = byte('a' + letter)
	}
	for i := range kinds {
		kinds[i] = string(rune('a'+i)) + ": " + kinds[i]
	}
	for i, row := range cells {
		rows = append(rows, fmt.Sprintf("%d: %s", nodes[i], row))
	}
	return kinds, rows
}

// expectedCounts are what a healthy node shows, by public dumps and data sheets and not by this code.
type expectedCounts struct {
	gfx           string
	gpus, modules int
	hives         int
	links         int   // directed pairs of GPUs joined by xGMI
	units         int   // compute units of a whole GPU
	xcds          int   // that partition modes share out; 0 where there are none
	minor         int   // step of render minors between GPUs
	vramGiB       int64 // of a GPU, rounded
	// weights of the directed links between whole GPUs, over xGMI and over PCIe.
	weights map[string]int
}

func meshOf8(gfx string, units, xcds int, vram int64) expectedCounts {
	return expectedCounts{gfx: gfx, gpus: 8, modules: 8, hives: 1, links: 56, units: units, xcds: xcds, minor: 8,
		vramGiB: vram, weights: map[string]int{"XGMI 15": 56}}
}

var modelCounts = map[string]expectedCounts{
	// Two hives of four cards: 2 * 4*3 links, and 2*4*4 pairs across. A hive is one socket here, so all of these cross
	// it.
	"MI100": {gfx: "gfx908", gpus: 8, modules: 8, hives: 2, links: 24, units: 120, minor: 1, vramGiB: 32,
		weights: map[string]int{"XGMI 15": 24, "PCIE 72": 32}},
	"MI210": {gfx: "gfx90a", gpus: 8, modules: 8, hives: 2, links: 24, units: 104, minor: 1, vramGiB: 64,
		weights: map[string]int{"XGMI 15": 24, "PCIE 72": 32}},
	// Weights of all 240 pairs by a search over RCCL's model; those of MI250X over 3 neighbours each, and one pair
	// at 45.
	"MI250": {gfx: "gfx90a", gpus: 16, modules: 8, hives: 1, links: 240, units: 104, minor: 1, vramGiB: 64,
		weights: map[string]int{"XGMI 15": 56, "XGMI 30": 88, "XGMI 45": 64, "XGMI 60": 28, "XGMI 75": 4}},
	"MI250X": {gfx: "gfx90a", gpus: 8, modules: 4, hives: 1, links: 56, units: 110, minor: 1, vramGiB: 64,
		weights: map[string]int{"XGMI 15": 24, "XGMI 30": 30, "XGMI 45": 2}},
	"MI300A": {gfx: "gfx942", gpus: 4, modules: 4, hives: 1, links: 12, units: 228, xcds: 6, minor: 8, vramGiB: 128,
		weights: map[string]int{"XGMI 15": 12}},
	"MI300X":    meshOf8("gfx942", 304, 8, 192),
	"MI308X":    meshOf8("gfx942", 80, 4, 192),
	"MI325X":    meshOf8("gfx942", 304, 8, 256),
	"MI350X":    meshOf8("gfx950", 256, 8, 288),
	"MI355X":    meshOf8("gfx950", 256, 8, 288),
	"MI300X VF": meshOf8("gfx942", 304, 8, 192),
	"MI308X VF": meshOf8("gfx942", 80, 4, 192),
	"MI325X VF": meshOf8("gfx942", 304, 8, 256),
	"MI350X VF": meshOf8("gfx950", 256, 8, 288),
	"MI355X VF": meshOf8("gfx950", 256, 8, 288),
	// No xGMI by design: 2 * 4*3 pairs in a socket, 2*4*4 across.
	"MI350P": {gfx: "gfx950", gpus: 8, modules: 8, units: 128, minor: 1, vramGiB: 144,
		weights: map[string]int{"PCIE 40": 24, "PCIE 72": 32}},
	// Whether functions without xGMI are of different cards is not known.
	"MI350P VF": {gfx: "gfx950", gpus: 8, units: 128, minor: 1, vramGiB: 144,
		weights: map[string]int{"PCIE 40": 24, "PCIE 72": 32}},
	// Newer than the expectations: its packages are not known.
	"MI450X": {gfx: "gfx1250", gpus: 8, hives: 1, links: 56, units: 256, xcds: 8, minor: 8, vramGiB: 432,
		weights: map[string]int{"XGMI 15": 56}},
}

// partitionsByMode is how many partitions a mode makes of so many compute dies.
func partitionsByMode(mode string, xcds int) int {
	compute, _, _ := strings.Cut(mode, "/")
	return map[string]int{"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": xcds}[compute]
}

// TestModelCounts holds every model in every mode against numbers that do not come from this code.
func TestModelCounts(t *testing.T) {
	for _, model := range nodetree.Models() {
		want, ok := modelCounts[model]
		if !ok {
			t.Errorf("%s has no counts", model)
			continue
		}
		modes := append([]string{""}, nodetree.Partitions(model)...)
		for _, mode := range modes {
			t.Run(model+" "+mode, func(t *testing.T) {
				parts := 1
				if mode != "" {
					parts = partitionsByMode(mode, want.xcds)
				}
				checkCounts(t, modelMode{model, mode}.scan(t), want, mode, parts)
			})
		}
	}
}

func checkCounts(t *testing.T, f *Facts, want expectedCounts, mode string, parts int) {
	t.Helper()
	type counts struct {
		GFX, Partition                             string
		GPUs, Devices, PCI, Render, Modules, Hives int
		Links                                      int
		Weights                                    map[string]int
	}
	got := counts{f.GFXTarget, f.Partition, len(f.GPUs), len(f.Devices), len(f.PCIGPUs), *f.RenderNodes, 0,
		f.Mesh.Hives, f.Mesh.Links, map[string]int{}}
	if f.Modules != nil {
		got.Modules = *f.Modules
	}
	for i := range f.Links {
		got.Weights[fmt.Sprintf("%s %d", f.Links[i].Type, f.Links[i].Weight)]++
	}
	devices := want.gpus * parts
	expected := counts{want.gfx, f.Partition, want.gpus, devices, want.gpus, devices, want.modules, want.hives,
		want.links, want.weights}
	if mode != "" && !strings.HasPrefix(f.Partition, mode) {
		t.Errorf("partition %s, want %s", f.Partition, mode)
	}
	if parts > 1 { // 13 inside a GPU, 13+15+13 to each partition of another
		expected.Weights = map[string]int{"XGMI 13": devices * (parts - 1), "XGMI 41": devices * (devices - parts)}
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		if int(*d.ComputeUnits) != want.units/parts || d.Partition != i%parts ||
			int(*d.RenderMinor) != 128+kfdOrdinal(f, d.PCIAddress)*want.minor+d.Partition {
			t.Errorf("device %d of %s: %d compute units, want %d; partition %d, render minor %d",
				d.Node, d.PCIAddress, *d.ComputeUnits, want.units/parts, d.Partition, *d.RenderMinor)
		}
	}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if len(g.Nodes) != parts || (int64(*g.VRAMBytes)+1<<29)>>30 != want.vramGiB {
			t.Errorf("%s: nodes %v, want %d; %d bytes of memory", g.PCIAddress, g.Nodes, parts, *g.VRAMBytes)
		}
	}
	// A node's facts are small enough for its object, also with 64 devices.
	checkNodeFacts(t, f)
}

// kfdOrdinal is the place of a GPU in KFD's order, which is not that of the addresses on an MI250.
func kfdOrdinal(f *Facts, address string) int {
	first := map[string]int{}
	for i := range f.Devices {
		if node, seen := first[f.Devices[i].PCIAddress]; !seen || f.Devices[i].Node < node {
			first[f.Devices[i].PCIAddress] = f.Devices[i].Node
		}
	}
	ordinal := 0
	for other, node := range first {
		if other != address && node < first[address] {
			ordinal++
		}
	}
	return ordinal
}

package nodetree

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
)

var linkFile = regexp.MustCompile(`/nodes/\d+/(io_links|p2p_links)/\d+/properties$`)

// linkTypes counts the GPU to GPU entries of KFD by type, in io_links and p2p_links, and by weight.
func linkTypes(tree *Tree, cpus int) map[string]int {
	counts := map[string]int{}
	for _, name := range tree.Files() {
		m := linkFile.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		values := keys(tree.files[name])
		if isCPU(values["node_from"], cpus) || isCPU(values["node_to"], cpus) {
			continue
		}
		counts[m[1]+" type "+values["type"]]++
		counts["type "+values["type"]+" weight "+values["weight"]]++
	}
	return counts
}

func isCPU(node string, cpus int) bool { return len(node) == 1 && int(node[0]-'0') < cpus }

func TestLinksOfHealthyNodes(t *testing.T) {
	// Directed links, from the table of healthy systems in public dumps (56 for a full mesh of 8).
	for _, c := range []struct {
		model       string
		partition   PartitionMode
		cpus        int
		xgmi, pcie  int
		weights     map[string]int // of xGMI
		description string
	}{
		{"MI100", SPX, 2, 24, 32, map[string]int{"15": 24}, "two hives of 4"},
		{"MI210", SPX, 2, 24, 32, map[string]int{"15": 24}, "two hives of 4"},
		{"MI250", SPX, 4, 240, 0, map[string]int{"15": 56, "30": 88, "45": 64, "60": 28, "75": 4},
			"all pairs of 16 dies"},
		{"MI250X", SPX, 1, 56, 0, map[string]int{"15": 24, "30": 30, "45": 2}, "all pairs, some over several hops"},
		{"MI300A", SPX, 4, 12, 0, map[string]int{"15": 12}, "mesh of 4"},
		{"MI300A", TPX, 4, 12 * 11, 0, map[string]int{"13": 12 * 2, "41": 12 * 9}, "mesh of 4, three partitions each"},
		{"MI300X", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
		{"MI300X", DPX, 2, 16 * 15, 0, map[string]int{"13": 16, "41": 16 * 14}, "mesh of 8, two partitions each"},
		{"MI300X", QPX, 2, 32 * 31, 0, map[string]int{"13": 32 * 3, "41": 32 * 28}, "mesh of 8, four partitions each"},
		{"MI300X", CPX, 2, 64 * 63, 0, map[string]int{"13": 64 * 7, "41": 64 * 56}, "mesh of 8, eight partitions each"},
		{"MI308X", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
		{"MI308X", CPX, 2, 32 * 31, 0, map[string]int{"13": 32 * 3, "41": 32 * 28}, "mesh of 8, four partitions each"},
		{"MI325X", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
		{"MI350X", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
		{"MI355X", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
		{"MI350P", SPX, 2, 0, 56, nil, "cards without xGMI"},
		{"MI300X VF", SPX, 2, 56, 0, map[string]int{"15": 56}, "mesh of 8"},
	} {
		t.Run(c.model+"-"+string(c.partition), func(t *testing.T) {
			n := healthy(t, c.model)
			n.Partition = c.partition
			got := linkTypes(generate(t, n), c.cpus)
			if got["io_links type 11"] != c.xgmi || got["p2p_links type 2"] != c.pcie {
				t.Errorf("links %v, want %d of xGMI and %d over PCIe (%s)", got, c.xgmi, c.pcie, c.description)
			}
			for weight := 1; weight < 100; weight++ {
				if text := strconv.Itoa(weight); got["type 11 weight "+text] != c.weights[text] {
					t.Errorf("%d links of weight %d, want %d", got["type 11 weight "+text], weight, c.weights[text])
				}
			}
		})
	}
}

// TestDieGraphs: neighbours are mutual, and the first row of distances is what a real node printed.
func TestDieGraphs(t *testing.T) {
	for name, graph := range map[string][][]edge{"MI250": mi250Graph, "MI250X": mi250xGraph} {
		for a, edges := range graph {
			for _, e := range edges {
				if !slices.Contains(graph[e.to], edge{a, e.links}) {
					t.Errorf("%s: die %d has %d links to %d, which has none back", name, a, e.links, e.to)
				}
			}
		}
	}
	// rocm-smi --showtopoweight of eight dies, by 15.
	for a, want := range [][]int{{0, 1, 1, 2, 2, 2, 1, 2}, {1, 0, 2, 1, 2, 1, 2, 3}, {1, 2, 0, 1, 1, 2, 2, 2}} {
		if !slices.Equal(mi250xHops[a], want) {
			t.Errorf("die %d is %v hops from the others, want %v", a, mi250xHops[a], want)
		}
	}
}

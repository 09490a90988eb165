package discover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// gpuFile is a file of a generated GPU's own directory.
func gpuFile(t testing.TB, tree *nodetree.Tree, address, name string) string {
	t.Helper()
	dir, err := tree.Resolve(pciDir + "/" + address)
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/" + name
}

// column changes one entry of a list of the hive.
func column(at int, value string) func(string) string {
	return func(text string) string {
		fields := strings.Fields(text)
		fields[at] = value
		return strings.Join(fields, " ") + " \n"
	}
}

var mi300x = []string{"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0", "0000:7d:00.0", "0000:a5:00.0",
	"0000:d5:00.0", "0000:e7:00.0"}

// TestLinkSides: what both sides of a pair say is held against each other and against KFD.
func TestLinkSides(t *testing.T) {
	const pair = "0000:2b:00.0<->0000:5b:00.0"
	setBoth := func(t *testing.T, tree *nodetree.Tree, file, value string) {
		edit(t, tree, gpuFile(t, tree, mi300x[1], file), column(2, value))
		edit(t, tree, gpuFile(t, tree, mi300x[2], file), column(1, value))
	}
	for name, c := range map[string]struct {
		model  string
		node   func(*nodetree.Node)
		change func(*testing.T, *nodetree.Tree)
		want   []string
		text   string
		mesh   string
	}{
		"healthy": {"MI300X", nil, func(*testing.T, *nodetree.Tree) {}, []string{}, "", MeshFull},
		"links on one side": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, mi300x[1], "xgmi_num_links"), column(2, "00"))
		}, []string{"Error LinkAsymmetric " + pair}, "up on the side of 0000:5b:00.0 only", MeshFull},
		"hops on one side": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, mi300x[2], "xgmi_num_hops"), column(1, "40"))
		}, []string{"Error LinkAsymmetric " + pair}, "0000:2b:00.0 counts 1 xGMI hops to 0000:5b:00.0, which counts " +
			"0 back: up on the side of 0000:2b:00.0 only", MeshFull},
		"the kind of link is no hop": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, mi300x[2], "xgmi_num_hops"), column(1, "01"))
		}, []string{}, "", MeshFull},
		"one-sided, no order of the hive": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, mi300x[1], "xgmi_num_links"), column(2, "00"))
			for _, address := range mi300x { // on a host they are one directory
				tree.Remove(hiveDir(t, tree, address) + "/node3")
			}
		}, []string{}, "", MeshFull},
		"one-sided, an order that does not fit": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, mi300x[1], "xgmi_num_links"), column(2, "00"))
			edit(t, tree, gpuFile(t, tree, mi300x[4], "xgmi_num_hops"), column(4, "41"))
		}, []string{}, "", MeshFull},
		"KFD counts other hops": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			setBoth(t, tree, "xgmi_num_hops", "42")
		}, []string{"Warning LinkInconsistent " + pair},
			"KFD says 1 xGMI hops (weight 15) and xgmi_num_hops 2", MeshFull},
		"KFD states another sum": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			setBoth(t, tree, "xgmi_num_links", "02")
		}, []string{"Warning LinkInconsistent " + pair},
			"64000 MB/s for one xGMI link and 64000 for all, and xgmi_num_links has 2", MeshFull},
		"old driver, links of one direction": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			for i := range mi300x {
				for j := range i {
					edit(t, tree, gpuFile(t, tree, mi300x[i], "xgmi_num_links"), column(j, "00"))
				}
			}
		}, []string{"Warning LinkInconsistent 0000:05:00.0<->0000:2b:00.0"}, "28 of 28 pairs differ", MeshFull},
		"MI250X, links on one side": {"MI250X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, gpuFile(t, tree, "0000:c1:00.0", "xgmi_num_links"), column(1, "03"))
		}, []string{"Warning LinkAsymmetric 0000:c1:00.0<->0000:c6:00.0"},
			"counts 3 xGMI links to 0000:c6:00.0, which counts 4 back", MeshFull},
		"KFD, one direction only": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 2, B: 1, Kind: nodetree.LinkNone, OneWay: true}}
		}, nil, []string{"Error LinkAsymmetric " + pair}, "the side of 0000:5b:00.0 is down", MeshIncomplete},
		"KFD, weights differ": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkXGMI, Hops: 2, OneWay: true}}
		}, nil, []string{"Error LinkAsymmetric " + pair}, "weight 30 from 0000:2b:00.0 to 0000:5b:00.0 and 15 back",
			MeshIncomplete},
		"KFD, bandwidths differ": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkXGMI, BandwidthMBps: 16000, OneWay: true}}
		}, nil, []string{"Error LinkAsymmetric " + pair}, "16000 to 16000 MB/s", MeshFull},
		"KFD, one bandwidth not stated": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, linkTo(t, tree, 3, 4), func(text string) string {
				return strings.ReplaceAll(text, "bandwidth 64000", "bandwidth 0")
			})
		}, []string{}, "", MeshFull},
		"MI250X, one direction slower": {"MI250X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 0, B: 1, Kind: nodetree.LinkXGMI, BandwidthMBps: 50000, OneWay: true}}
		}, nil, []string{"Error LinkAsymmetric 0000:c1:00.0<->0000:c6:00.0"}, "50000 to 200000", MeshFull},
		"MI250X, three hops where two would do": {"MI250X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 0, B: 3, Kind: nodetree.LinkXGMI, Hops: 3}}
		}, nil, []string{}, "", MeshFull},
		"MI250X, a pair over PCIe": {"MI250X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 0, B: 3, Kind: nodetree.LinkPCIe}}
		}, nil, []string{"Error PCIeInsteadOfXGMI 0000:c1:00.0<->0000:ce:00.0"},
			"expected xGMI within a hive of 8", MeshIncomplete},
		"MI210, two hives": {"MI210", nil, nil, []string{}, "", MeshFull},
		"MI210, a card without a bridge": {"MI210", func(n *nodetree.Node) { n.GPUs[2].Hive = -1 }, nil,
			[]string{"Warning XGMIBridgeAbsent 0000:43:00.0"}, "1 of 8 GPUs are in no xGMI hive", MeshFull},
		"MI350P": {"MI350P", nil, nil, []string{}, "", MeshNotApplicable},
		"VFs without xGMI": {"MI300X VF", func(n *nodetree.Node) {
			for i := range n.GPUs {
				n.GPUs[i].Hive = -1
			}
		}, nil, []string{"Warning XGMINotInitialised"}, "its state is not known", MeshUnknown},
		"weight 0": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, linkTo(t, tree, 3, 4), reweigh("weight 0"))
			edit(t, tree, linkTo(t, tree, 4, 3), reweigh("weight 0"))
		}, []string{"Error LinkWeight " + pair}, "the firmware knows no way", MeshIncomplete},
		"two hops": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkXGMI, Hops: 4}}
		}, nil, []string{"Error LinkWeight " + pair}, "takes 4 hops (weight 60)", MeshIncomplete},
		"a weight that tells nothing": {"MI300X", nil, func(t *testing.T, tree *nodetree.Tree) {
			edit(t, tree, linkTo(t, tree, 3, 4), reweigh("weight 14"))
			edit(t, tree, linkTo(t, tree, 4, 3), reweigh("weight 14"))
		}, []string{"Warning LinkWeight " + pair}, "weight 14", MeshUnknown},
		"CPX, two partitions do not reach each other": {"MI300X", func(n *nodetree.Node) { n.Partition = nodetree.CPX },
			func(t *testing.T, tree *nodetree.Tree) {
				tree.Remove(strings.TrimSuffix(linkTo(t, tree, 12, 19), "/properties"))
				tree.Remove(strings.TrimSuffix(linkTo(t, tree, 19, 12), "/properties"))
			},
			[]string{"Error LinkMissing " + pair}, "63 of 64 pairs of their partitions", MeshFull},
		"CPX, inside a GPU": {"MI300X", func(n *nodetree.Node) { n.Partition = nodetree.CPX },
			func(t *testing.T, tree *nodetree.Tree) {
				tree.Remove(strings.TrimSuffix(linkTo(t, tree, 2, 3), "/properties"))
			},
			[]string{"Error LinkMissing 0000:05:00.0"}, "55 of 56 links between the partitions", MeshFull},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inMemory(t, c.model, c.node)
			if c.change != nil {
				c.change(t, tree)
			}
			f := scan(t, tree, Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" || f.Mesh.State != c.mesh {
				t.Fatalf("mesh %s, problems %v (-want +got):\n%s", f.Mesh.State, f.Problems, diff)
			}
			if c.text != "" && !strings.Contains(f.Problems[0].Message, c.text) {
				t.Errorf("message %q lacks %q", f.Problems[0].Message, c.text)
			}
			checkNodeFacts(t, f)
		})
	}
}

// hiveDir is the directory of a generated GPU's hive.
func hiveDir(t testing.TB, tree *nodetree.Tree, address string) string {
	t.Helper()
	dir, err := tree.Resolve(pciDir + "/" + address + "/xgmi_hive_info")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// linkTo is the io_links file from one KFD node to another.
func linkTo(t testing.TB, tree *nodetree.Tree, from, to int) string {
	t.Helper()
	for _, file := range tree.Files() {
		if strings.HasPrefix(file, nodePath(fmt.Sprint(from), "io_links")+"/") {
			text, _ := tree.ReadFile(file)
			if strings.Contains(string(text), fmt.Sprintf("node_to %d\n", to)) {
				return file
			}
		}
	}
	t.Fatalf("no link from node %d to node %d", from, to)
	return ""
}

// TestHiveLists: the driver's own list of a hive tells of a GPU that is gone, and names it.
func TestHiveLists(t *testing.T) {
	gone := mi300x[5]
	tree := inMemory(t, "MI300X", nil)
	whole := scan(t, tree, Options{})
	tree.Remove(nodePath(fmt.Sprint(whole.GPUs[5].Nodes[0])))
	dir, err := tree.Resolve(pciDir + "/" + gone)
	if err != nil {
		t.Fatal(err)
	}
	tree.Remove(pciDir + "/" + gone)
	tree.Remove(dir)
	f := scan(t, tree, Options{})
	if diff := cmp.Diff([]string{"Error GPUMissing"}, problemLines(f)); diff != "" ||
		!strings.Contains(f.Problems[0].Message, gone) {
		t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
	}
	// A hive of cards is as large as its own list; the other hive does not count.
	tree = inMemory(t, "MI210", nil)
	whole = scan(t, tree, Options{})
	tree.Remove(nodePath(fmt.Sprint(whole.GPUs[6].Nodes[0])))
	dir, _ = tree.Resolve(pciDir + "/" + whole.GPUs[6].PCIAddress)
	tree.Remove(pciDir + "/" + whole.GPUs[6].PCIAddress)
	tree.Remove(dir)
	f = scan(t, tree, Options{})
	if diff := cmp.Diff([]string{"Error GPUMissing"}, problemLines(f)); diff != "" ||
		!strings.Contains(f.Problems[0].Message, "7 of the 8") {
		t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
	}
}

func TestParseHiveList(t *testing.T) {
	for text, want := range map[string]string{"00 41 41 \n": "[0 65 65]", "04": "[4]", "ff 00": "[255 0]", "": "",
		" \n": "", "1g": "", "100": "", "-1": "", strings.Repeat("01 ", 64): "64", strings.Repeat("01 ", 65): ""} {
		got, err := parseHiveList([]byte(text))
		switch {
		case want == "":
			if Classify(err) != ClassMalformed {
				t.Errorf("%q: %v, %v; want it malformed", text, got, err)
			}
		case want == "64":
			if err != nil || len(got) != 64 {
				t.Errorf("%q: %d entries, %v", text, len(got), err)
			}
		case err != nil || fmt.Sprintf("%d", got) != want:
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

// FuzzHiveOrder: whatever the links of a hive say, an order has each GPU's address, or there is none.
func FuzzHiveOrder(f *testing.F) {
	f.Add("node1", "../../0000:05:00.0", "node2", "/sys/devices/pci0000:00/0000:2b:00.0")
	f.Add("node1", "../x", "node3", "")
	f.Add("node", "", "node18446744073709551616", "0000:05:00.0")
	f.Fuzz(func(t *testing.T, name1, target1, name2, target2 string) {
		dir := pciDir + "/0000:05:00.0/xgmi_hive_info/"
		tree := memFS{dir + "xgmi_hive_id": "1\n", dir + name1: target1, dir + name2: target2}
		var unread []*ReadError
		for _, address := range readHiveOrder(&reader{fs: tree, hung: &hungReads{},
			clock: Options{}.withDefaults().Clock}, "0000:05:00.0", &unread) {
			if !isPCIAddress(address) {
				t.Errorf("%q is no address", address)
			}
		}
	})
}

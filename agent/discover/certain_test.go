package discover

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestUnstableTopology: while KFD's topology changes at each look, nothing is said to be missing.
func TestUnstableTopology(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		node   func(*nodetree.Node)
		hidden func(string) bool
		asked  int
	}{
		"all there":        {model: "MI300X"},
		"not in KFD":       {model: "MI300X", node: func(n *nodetree.Node) { n.GPUs[3].Unbound = true }},
		"not on the bus":   {model: "MI300X", node: func(n *nodetree.Node) { n.GPUs[3].Missing = true }},
		"fewer than asked": {model: "MI300X", asked: 9},
		"none in KFD": {model: "MI300X", hidden: func(file string) bool {
			return strings.HasPrefix(file, nodesDir+"/") && !under(nodePath("0"))(file)
		}},
		"no link": {model: "MI300X",
			node: func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkNone}} }},
		"over PCIe": {model: "MI300X",
			node: func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkPCIe}} }},
		"several hops": {model: "MI300X",
			node: func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkXGMI, Hops: 2}} }},
		"hive split": {model: "MI300X", node: func(n *nodetree.Node) { n.GPUs[0].Hive = 2 }},
		"partition missing": {model: "MI300X",
			node: func(n *nodetree.Node) { n.Partition, n.GPUs[4].MissingPartitions = nodetree.CPX, 2 }},
		"no render node":  {model: "MI300X", node: func(n *nodetree.Node) { n.GPUs[4].NoRenderNode = true }},
		"half a package":  {model: "MI250", node: func(n *nodetree.Node) { n.GPUs[3].Missing = true }},
		"hive of three":   {model: "MI210", node: func(n *nodetree.Node) { n.GPUs[3].Missing = true }},
		"fewer functions": {model: "MI300X VF", node: func(n *nodetree.Node) { n.GPUs[3].Missing = true }},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inMemory(t, c.model, c.node)
			var reads atomic.Int64
			hook := func(file string) error {
				if c.hidden != nil && c.hidden(file) {
					return syscall.ENOENT
				}
				return nil
			}
			root := generationFS{treeFS{tree, hook, nil}, func() string { return fmt.Sprint(reads.Add(1)) }}
			f := scan(t, root, Options{ExpectedGPUs: c.asked})
			lines := slices.DeleteFunc(problemLines(f), func(line string) bool {
				return strings.Contains(line, " SysfsUnreadable ")
			})
			if diff := cmp.Diff([]string{"Warning TopologyUnstable " + topologyDir + "/generation_id"},
				lines); diff != "" {
				t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
			}
			if f.Mesh.State != MeshUnknown || f.Proven() {
				t.Errorf("mesh %s, proven %v", f.Mesh.State, f.Proven())
			}
		})
	}
}

// TestFaultBesideUnread: one link file that cannot be read hides no other fault. Nodes 2 to 9 are the GPUs.
func TestFaultBesideUnread(t *testing.T) {
	const pair = "0000:2b:00.0<->0000:5b:00.0" // nodes 3 and 4
	link := func(l nodetree.Link) func(*nodetree.Node) {
		l.A, l.B = 1, 2
		return func(n *nodetree.Node) { n.Links = []nodetree.Link{l} }
	}
	for name, c := range map[string]struct {
		node     func(*nodetree.Node)
		from, to int // the link that cannot be read; to is 0 for the directory
		want     []string
		text     string
		mesh     string
	}{
		"nothing else is wrong":     {nil, 7, 8, nil, "", MeshUnknown},
		"nothing else, a directory": {nil, 7, 0, nil, "", MeshUnknown},
		"over PCIe": {link(nodetree.Link{Kind: nodetree.LinkPCIe}), 7, 8,
			[]string{"Error PCIeInsteadOfXGMI " + pair}, "expected xGMI", MeshIncomplete},
		"no link": {link(nodetree.Link{Kind: nodetree.LinkNone}), 7, 8,
			[]string{"Error LinkMissing " + pair}, "no link between", MeshIncomplete},
		"one way": {link(nodetree.Link{Kind: nodetree.LinkNone, OneWay: true}), 7, 8,
			[]string{"Error LinkAsymmetric " + pair}, "not back", MeshIncomplete},
		"several hops": {link(nodetree.Link{Kind: nodetree.LinkXGMI, Hops: 2}), 7, 8,
			[]string{"Error LinkWeight " + pair}, "2 hops", MeshIncomplete},
		"slow": {link(nodetree.Link{Kind: nodetree.LinkXGMI, BandwidthMBps: 32000}), 7, 8,
			[]string{"Error LinkBandwidth " + pair}, "32000", MeshUnknown},
		"one side in driver's lists": {link(nodetree.Link{Kind: nodetree.LinkNone, OneWay: true, DriverOnly: true}), 7,
			8, []string{"Error LinkAsymmetric " + pair}, "", MeshUnknown},
		"hive split": {func(n *nodetree.Node) { n.GPUs[0].Hive = 2 }, 7, 8,
			[]string{"Error HiveSplit"}, "", MeshIncomplete},
		"no link, one way unread": {link(nodetree.Link{Kind: nodetree.LinkNone}), 3, 5,
			[]string{"Error LinkMissing " + pair}, "no link from 0000:5b:00.0 to 0000:2b:00.0", MeshIncomplete},
		"over PCIe, one way unread": {link(nodetree.Link{Kind: nodetree.LinkPCIe}), 4, 5,
			[]string{"Error PCIeInsteadOfXGMI " + pair}, "Only PCIe leads from 0000:2b:00.0 to 0000:5b:00.0",
			MeshIncomplete},
		"several hops, one unread": {link(nodetree.Link{Kind: nodetree.LinkXGMI, Hops: 2}), 4, 3,
			[]string{"Error LinkWeight " + pair}, "2 hops", MeshIncomplete},
		"no way back, maybe unread": {link(nodetree.Link{Kind: nodetree.LinkNone, OneWay: true}), 3, 5,
			nil, "", MeshUnknown},
		"a GPU's whole directory": {link(nodetree.Link{Kind: nodetree.LinkNone}), 9, 0,
			[]string{"Error LinkMissing " + pair}, "no link between", MeshIncomplete},
		"unread is what could be out": {nil, 3, 4, nil, "", MeshUnknown},
	} {
		for class, errno := range map[string]error{"EIO": syscall.EIO, "EPERM": syscall.EPERM} {
			t.Run(name+" "+class, func(t *testing.T) {
				tree := inMemory(t, "MI300X", c.node)
				unread := nodePath(fmt.Sprint(c.from), "io_links")
				if c.to > 0 {
					unread = linkTo(t, tree, c.from, c.to)
				}
				f := scan(t, treeFS{tree, fails(errno, func(file string) bool {
					return file == unread
				}), nil}, Options{})
				lines := problemLines(f)
				told := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
					return strings.Contains(line, " SysfsUnreadable "+unread)
				})
				if diff := cmp.Diff(c.want, told); len(told)+len(c.want) > 0 && diff != "" || len(told) == len(lines) {
					t.Fatalf("problems %v (-want +got):\n%s", f.Problems, diff)
				}
				text := ""
				for _, p := range f.Problems {
					text += p.Message + "\n"
				}
				if f.Mesh.State != c.mesh || !strings.Contains(text, c.text) || f.Proven() {
					t.Errorf("mesh %s, want %s; problems %v", f.Mesh.State, c.mesh, f.Problems)
				}
				checkNodeFacts(t, f)
			})
		}
	}
}

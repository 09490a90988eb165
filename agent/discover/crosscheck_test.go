package discover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// treeFS reads a generated tree as a scan does, after hook has seen the resolved name; an error of hook is the read's.
// It can also make a link.
type treeFS struct {
	*nodetree.Tree
	hook  func(name string) error
	links map[string]string
}

func (f treeFS) check(name string) error {
	if f.hook == nil {
		return nil
	}
	return f.hook(name)
}

func (f treeFS) ReadFile(name string) ([]byte, error) {
	if err := f.check(name); err != nil {
		return nil, err
	}
	return f.Tree.ReadFile(name)
}

func (f treeFS) ReadDir(name string) ([]string, error) {
	if err := f.check(name); err != nil {
		return nil, err
	}
	return f.Tree.ReadDir(name)
}

func (f treeFS) ReadLink(name string) (string, error) {
	if err := f.check(name); err != nil {
		return "", err
	}
	if target, ok := f.links[name]; ok {
		return target, nil
	}
	return f.Tree.ReadLink(name)
}

func fails(err error, match func(string) bool) func(string) error {
	return func(name string) error {
		if match(name) {
			return err
		}
		return nil
	}
}

// TestCrossCheck: KFD, the PCI bus and DRM are held against each other, and both sides are named.
func TestCrossCheck(t *testing.T) {
	gone := mi300x[3]
	for name, c := range map[string]struct {
		model  string
		node   func(*nodetree.Node)
		hook   func(string) error
		links  map[string]string
		want   []string
		texts  []string
		render int // -1: not known
	}{
		"healthy": {want: []string{}, render: 8},
		"CPX":     {node: func(n *nodetree.Node) { n.Partition = nodetree.CPX }, want: []string{}, render: 64},
		"no driver took it": {node: func(n *nodetree.Node) { n.GPUs[3].Unbound = true },
			want: []string{"Error GPUNotInKFD " + gone}, texts: []string{"PCI 8, KFD 7", "did not take it"}, render: 7},
		"a virtual machine has it": {node: func(n *nodetree.Node) { n.GPUs[3].Unbound = true },
			links: map[string]string{pciDir + "/" + gone + "/driver": "../../../../bus/pci/drivers/vfio-pci"},
			want:  []string{"Warning GPUNotInKFD " + gone},
			texts: []string{"bound to vfio-pci", "PCI 8, KFD 7"}, render: 7},
		"render node missing": {node: func(n *nodetree.Node) { n.GPUs[3].NoRenderNode = true },
			want:  []string{"Error RenderNodeMissing " + gone},
			texts: []string{"renderD152 of " + gone, "KFD 8, render nodes 7"}, render: 7},
		"render nodes missing": {node: func(n *nodetree.Node) {
			for i := range n.GPUs {
				n.GPUs[i].NoRenderNode = true
			}
		}, want: []string{"Error RenderNodeMissing " + strings.Join(mi300x[:4], " ")},
			texts: []string{"and 5 more are not", "KFD 8, render nodes 0"}, render: 0},
		"DRM's directory is not there": {hook: fails(syscall.ENOENT, under(drmDir)), want: []string{}, render: -1},
		"DRM's directory is forbidden": {hook: fails(syscall.EACCES, under(drmDir)),
			want: []string{"Warning SysfsUnreadable " + drmDir}, render: -1},
		"off the bus": {hook: fails(syscall.ENOENT, under(pciDir+"/"+gone)), want: []string{"Error GPULost " + gone},
			texts: []string{"not one file of it was left"}, render: 8},
		"firmware differs": {node: func(n *nodetree.Node) { n.GPUs[3].Firmware, n.GPUs[6].Firmware = 160, 161 },
			want:  []string{"Warning MixedFirmware " + gone + " " + mi300x[6]},
			texts: []string{"MEC 6 x 166, 1 x 160, 1 x 161"}, render: 8},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inMemory(t, "MI300X", c.node)
			f := scan(t, treeFS{tree, c.hook, c.links}, Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Fatalf("problems %v (-want +got):\n%s", f.Problems, diff)
			}
			for _, text := range c.texts {
				if !strings.Contains(f.Problems[0].Message, text) {
					t.Errorf("message %q lacks %q", f.Problems[0].Message, text)
				}
			}
			n := checkNodeFacts(t, f)
			if (f.RenderNodes == nil) != (c.render < 0) || (f.RenderNodes != nil && *f.RenderNodes != c.render) {
				t.Errorf("%v render nodes, want %d", f.RenderNodes, c.render)
			}
			if (n.RenderNodeCount == nil) != (c.render < 0) || n.PCIGPUCount == nil ||
				int(*n.PCIGPUCount) != len(f.PCIGPUs) {
				t.Errorf("CommTask: render nodes %v, on PCI %v", n.RenderNodeCount, n.PCIGPUCount)
			}
		})
	}
}

// TestNotOnTheBus: KFD has a GPU that the PCI bus does not list; an old kernel's KFD may only lack the domain.
func TestNotOnTheBus(t *testing.T) {
	tree := memTree(t, "synthetic/mi300x-8x-vf.txtar")
	f := scan(t, tree, Options{})
	address := f.GPUs[2].PCIAddress
	for file := range tree {
		if under(pciDir + "/" + address)(file) {
			delete(tree, file)
		}
	}
	f = scan(t, tree, Options{})
	if diff := cmp.Diff([]string{"Error GPULost " + address}, problemLines(f)); diff != "" ||
		!strings.Contains(f.Problems[0].Message, "KFD 8, PCI 7") {
		t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
	}
	for file, text := range tree {
		if strings.HasPrefix(file, nodesDir) && strings.HasSuffix(file, "/properties") {
			lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "domain ")
			})
			tree[file] = strings.Join(lines, "\n")
		}
	}
	for _, p := range scan(t, tree, Options{}).Problems {
		if p.Code == v1alpha1.ProblemGPULost {
			t.Errorf("an address without its domain was held against the bus: %v", p)
		}
	}
}

// TestDisappearing: a GPU that goes while it is read is said to be gone or unreadable; it is never counted as healthy,
// and the others stay what they are.
func TestDisappearing(t *testing.T) {
	tree := inMemory(t, "MI300X", nil)
	for _, err := range []error{syscall.ENOENT, syscall.ENODEV} {
		for name, c := range map[string]struct {
			hook func(string) bool
			want string
			gpus int
		}{
			"all files of the node": {under(nodePath("5")), "Error SysfsUnreadable " + nodePath("5/properties"), 7},
			"properties": {under(nodePath("5/properties")),
				"Error SysfsUnreadable " + nodePath("5/properties"), 7},
			"one link": {under(nodePath("5/io_links/3/properties")),
				"Error SysfsUnreadable " + nodePath("5/io_links/3/properties"), 8},
		} {
			t.Run(fmt.Sprintf("%s %v", name, err), func(t *testing.T) {
				f := scan(t, treeFS{tree, fails(err, func(file string) bool {
					return c.hook(file) && file != nodePath("5")
				}), nil}, Options{})
				lines := problemLines(f)
				if errors.Is(err, syscall.ENODEV) && name == "all files of the node" {
					c.want = "Error SysfsUnreadable " + nodePath("5/gpu_id")
				}
				if diff := cmp.Diff([]string{c.want}, lines); diff != "" ||
					!strings.Contains(f.Problems[0].Message, "listed and then gone") {
					t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
				}
				if len(f.GPUs) != c.gpus || f.Mesh.State != MeshUnknown || f.Healthy() {
					t.Errorf("%d GPUs, mesh %s, healthy %v", len(f.GPUs), f.Mesh.State, f.Healthy())
				}
			})
		}
	}
}

// TestDisappearsThenSettles: a scan that met a GPU on its way out starts over when KFD's generation says so.
func TestDisappearsThenSettles(t *testing.T) {
	tree := inMemory(t, "MI300X", nil)
	var mu sync.Mutex
	left := false
	hook := func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		if name == nodePath("5/properties") && !left {
			left = true
			tree.Remove(nodePath("5"))
			tree.Set(topologyDir+"/generation_id", "3\n")
		}
		return nil
	}
	f := scan(t, treeFS{tree, hook, nil}, Options{Parallel: 1})
	if f.Scans != 2 || !f.GenerationStable || len(f.GPUs) != 7 || *f.Generation != 3 {
		t.Errorf("%d scans, stable %v, %d GPUs", f.Scans, f.GenerationStable, len(f.GPUs))
	}
	if len(f.Problems) == 0 || f.Problems[0].Code != v1alpha1.ProblemGPUNotInKFD {
		t.Errorf("problems %v", f.Problems)
	}
}

// TestHalfWritten cuts files of KFD at every byte: what was lost is said, or nothing that counts was lost.
func TestHalfWritten(t *testing.T) {
	tree := inMemory(t, "MI300X", func(n *nodetree.Node) { n.GPUs = n.GPUs[:3] })
	options := Options{ExpectedGPUs: 3}
	want := scan(t, tree, options)
	if len(want.Problems) > 0 {
		t.Fatal(want.Problems)
	}
	asNode := func(f *Facts) *v1alpha1.NodeFacts {
		n := f.NodeFacts(time.Minute)
		n.ObservedTime.Time = time.Time{}
		return n
	}
	for _, file := range []string{nodePath("3/properties"), linkTo(t, tree, 3, 4)} {
		whole, err := tree.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		for cut := range len(whole) {
			tree.Set(file, string(whole[:cut]))
			f := scan(t, tree, options)
			if len(f.Problems) > 0 {
				told++
				continue
			}
			if diff := cmp.Diff(asNode(want), asNode(f)); diff != "" {
				t.Fatalf("%s cut to %q says nothing, and the facts differ:\n%s", file, whole[max(0, cut-40):cut], diff)
			}
		}
		if told < len(whole)/2 {
			t.Errorf("%s: only %d of %d cuts were told", file, told, len(whole))
		}
		tree.Set(file, string(whole))
	}
}

// TestPartOfTheGPUs: a container that sees some GPUs is not told that the others are missing.
func TestPartOfTheGPUs(t *testing.T) {
	tree := inMemory(t, "MI300X", nil)
	for _, seen := range []int{1, 2, 4} {
		hidden := func(file string) bool {
			for node := 2 + seen; node < 10; node++ {
				if under(nodePath(fmt.Sprint(node)))(file) && file != nodePath(fmt.Sprint(node)) {
					return true
				}
			}
			return false
		}
		f := scan(t, treeFS{tree, fails(syscall.EPERM, hidden), nil}, Options{ExpectedGPUs: 8})
		if len(f.GPUs) != seen || len(f.Problems) != 1 || f.Problems[0].Code != v1alpha1.ProblemGPUHidden ||
			f.Mesh.State != MeshUnknown {
			t.Errorf("%d of 8 GPUs seen: %d GPUs, mesh %s, problems %v", seen, len(f.GPUs), f.Mesh.State, f.Problems)
		}
		checkNodeFacts(t, f)
	}
}

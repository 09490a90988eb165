package discover

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// generate writes a simulated node.
func generate(t testing.TB, model string, change func(*nodetree.Node)) string {
	t.Helper()
	n, err := nodetree.Defaults(model)
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	if change != nil {
		change(&n)
	}
	dir := t.TempDir()
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGeneratedModels: every model that the node simulator knows is found as what it is, healthy and simulated. One
// that has no expectations yet says so and is no error.
func TestGeneratedModels(t *testing.T) {
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			f := scan(t, inMemory(t, model, nil), Options{})
			mesh, problems := MeshFull, []string{}
			switch model {
			case "MI350P", "MI350P VF":
				mesh = MeshNotApplicable
			case "MI450X":
				problems = []string{"Warning UnknownModel 0000:05:00.0"}
			}
			if f.Model != model || f.Mesh.State != mesh || f.Origin != v1alpha1.OriginSimulated {
				t.Errorf("model %s, mesh %+v, origin %s", f.Model, f.Mesh.State, f.Origin)
			}
			if diff := cmp.Diff(problems, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if f.BootID == "" || f.ROCm.State != ROCmFound || f.Driver.Kind != DriverDKMS || len(f.Unread) > 0 {
				t.Errorf("boot %q, ROCm %+v, driver %+v, unread %v", f.BootID, f.ROCm, f.Driver, f.Unread)
			}
			checkNodeFacts(t, f)
		})
	}
}

// TestGeneratedOnDisk: what is written to disk gives the same facts as the tree in memory.
func TestGeneratedOnDisk(t *testing.T) {
	options := Options{Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	want, got := scan(t, inMemory(t, "MI250", nil), options), scan(t, openRoot(t, generate(t, "MI250", nil)), options)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Facts{}, GPU{}, Mesh{}, NIC{}, linkRecord{}, ROCmFacts{},
		rival{}), cmpopts.IgnoreTypes(Model{})); diff != "" {
		t.Errorf("facts (-memory +disk):\n%s", diff)
	}
}

func TestGeneratedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		change func(*nodetree.Node)
		want   []string
		mesh   string
	}{
		"link over PCIe": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkPCIe}}
		}, []string{"Error PCIeInsteadOfXGMI 0000:2b:00.0<->0000:5b:00.0"}, MeshIncomplete},
		"link gone": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkNone}}
		}, []string{"Error LinkMissing 0000:2b:00.0<->0000:5b:00.0"}, MeshIncomplete},
		"GPU unbound": {"MI300X", func(n *nodetree.Node) { n.GPUs[3].Unbound = true },
			[]string{"Error GPUNotInKFD 0000:65:00.0"}, MeshIncomplete},
		"one partition of eight is left": {"MI300X", func(n *nodetree.Node) {
			n.Partition, n.GPUs[4].MissingPartitions = nodetree.CPX, 7
		}, []string{"Error PartitionMissing 0000:7d:00.0"}, MeshFull},
		"bound to another driver": {"MI300X", func(n *nodetree.Node) {
			n.GPUs[3].Unbound, n.GPUs[3].BoundTo = true, "vfio-pci"
		}, []string{"Warning GPUNotInKFD 0000:65:00.0"}, MeshIncomplete},
		"up on one side in the driver's lists": {"MI300X", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkNone, OneWay: true, DriverOnly: true}}
		}, []string{"Error LinkAsymmetric 0000:2b:00.0<->0000:5b:00.0"}, MeshFull},
		"a die of an MI250 is gone": {"MI250", func(n *nodetree.Node) { n.GPUs[3].Missing = true },
			[]string{"Error GPUMissing"}, MeshIncomplete},
		"functions without xGMI": {"MI300X VF", func(n *nodetree.Node) {
			for i := range n.GPUs {
				n.GPUs[i].Hive = -1
			}
		}, []string{"Warning XGMINotInitialised"}, MeshUnknown},
		"NUMA balancing": {"MI300X", func(n *nodetree.Node) { n.NUMABalancing = 1 },
			[]string{"Warning NUMABalancing proc/sys/kernel/numa_balancing"}, MeshFull},
		"in-tree driver": {"MI300X", func(n *nodetree.Node) { n.Driver = nodetree.DriverInTree }, []string{}, MeshFull},
		"no ROCm":        {"MI300X", func(n *nodetree.Node) { n.ROCm = "" }, []string{}, MeshFull},
		"two GPUs in CPX": {"MI300X", func(n *nodetree.Node) { n.Partition, n.GPUs = nodetree.CPX, n.GPUs[:2] },
			[]string{"Warning GPUMissing"}, MeshIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, inMemory(t, c.model, c.change), Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" || f.Mesh.State != c.mesh {
				t.Errorf("mesh %s, problems (-want +got):\n%s", f.Mesh.State, diff)
			}
			checkNodeFacts(t, f)
		})
	}
}

// TestLinkFaults changes single link files of a healthy node.
func TestLinkFaults(t *testing.T) {
	pair := "0000:05:00.0<->0000:2b:00.0"
	for name, c := range map[string]struct {
		change func(from, to, text string) (string, bool)
		want   []string
	}{
		"asymmetric": {func(from, to, text string) (string, bool) {
			if from == "2" && to == "3" {
				return "", false
			}
			return text, true
		}, []string{"Error LinkAsymmetric " + pair}},
		"two hops": {func(from, to, text string) (string, bool) {
			if (from == "2" && to == "3") || (from == "3" && to == "2") {
				return strings.Replace(text, "weight 15", "weight 30", 1), true
			}
			return text, true
		}, []string{"Error LinkWeight " + pair}},
		"odd weight": {func(from, to, text string) (string, bool) {
			if from == "2" && to == "3" {
				return strings.Replace(text, "weight 15", "weight 14", 1), true
			}
			return text, true
		}, []string{"Error LinkAsymmetric " + pair}},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, linkFS{memTree(t, healthyTree), c.change}, Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// linkFS rewrites or removes io_links files.
type linkFS struct {
	FS
	change func(from, to, text string) (string, bool)
}

func (l linkFS) ReadFile(name string) ([]byte, error) {
	data, err := l.FS.ReadFile(name)
	if err != nil || !strings.Contains(name, "/io_links/") {
		return data, err
	}
	var p linkProperties
	if err := parseProperties(data, p.field); err != nil {
		return nil, err
	}
	text, keep := l.change(strconv.FormatUint(*p.From, 10), strconv.FormatUint(*p.To, 10), string(data))
	if !keep {
		return []byte("type 2\nnode_from 2\nnode_to 0\nweight 20\n"), nil // a link to a CPU in its place
	}
	return []byte(text), nil
}

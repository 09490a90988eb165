package discover

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestGeneratedModels: every model that the node simulator knows is found as what it is, healthy and simulated.
func TestGeneratedModels(t *testing.T) {
	meshes := map[string]string{"MI350P": MeshNotApplicable}
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			f := scan(t, openRoot(t, generate(t, model, nil)), Options{})
			mesh := MeshFull
			if m, ok := meshes[model]; ok {
				mesh = m
			}
			if f.Model != model || f.Mesh.State != mesh || len(f.Problems) > 0 || f.Origin != v1alpha1.OriginSimulated {
				t.Errorf("model %s, mesh %+v, origin %s, problems %v", f.Model, f.Mesh.State, f.Origin, f.Problems)
			}
			if f.BootID == "" || f.ROCm.State != ROCmFound || f.Driver.Kind != DriverDKMS {
				t.Errorf("boot %q, ROCm %+v, driver %+v", f.BootID, f.ROCm, f.Driver)
			}
			checkNodeFacts(t, f)
		})
	}
}

func TestGeneratedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		change func(*nodetree.Node)
		want   []string
		mesh   string
	}{
		"link over PCIe": {"MI300X", func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkPCIe}} },
			[]string{"Error PCIeInsteadOfXGMI 0000:2b:00.0<->0000:5b:00.0"}, MeshIncomplete},
		"link gone": {"MI300X", func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkNone}} },
			[]string{"Error LinkMissing 0000:2b:00.0<->0000:5b:00.0"}, MeshIncomplete},
		"GPU unbound": {"MI300X", func(n *nodetree.Node) { n.GPUs[3].Unbound = true },
			[]string{"Error GPUNotInKFD 0000:65:00.0"}, MeshIncomplete},
		"NUMA balancing": {"MI300X", func(n *nodetree.Node) { n.NUMABalancing = 1 },
			[]string{"Warning NUMABalancing kernel.numa_balancing"}, MeshFull},
		"in-tree driver": {"MI300X", func(n *nodetree.Node) { n.Driver = nodetree.DriverInTree }, []string{}, MeshFull},
		"no ROCm":        {"MI300X", func(n *nodetree.Node) { n.ROCm = "" }, []string{}, MeshFull},
		"two GPUs in CPX": {"MI300X", func(n *nodetree.Node) { n.Partition, n.GPUs = nodetree.CPX, n.GPUs[:2] },
			[]string{"Warning GPUMissing MI300X"}, MeshIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, openRoot(t, generate(t, c.model, c.change)), Options{})
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

func BenchmarkScan8GPUs(b *testing.B) {
	s := NewScanner(openRoot(b, generate(b, "MI300X", nil)), Options{})
	b.ReportAllocs()
	for b.Loop() {
		f, err := s.Scan(b.Context())
		if err != nil || len(f.GPUs) != 8 {
			b.Fatal(err)
		}
	}
}

package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// inMemory generates a simulated node without writing it.
func inMemory(t testing.TB, model string, change func(*nodetree.Node)) *nodetree.Tree {
	t.Helper()
	n, err := nodetree.Defaults(model)
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	if change != nil {
		change(&n)
	}
	tree, err := nodetree.Generate(n)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// edit changes the text of a file that must be there.
func edit(t testing.TB, tree *nodetree.Tree, name string, change func(string) string) {
	t.Helper()
	text, err := tree.ReadFile(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	changed := change(string(text))
	if changed == string(text) {
		t.Fatalf("%s: nothing was changed in %q", name, text)
	}
	tree.Set(name, changed)
}

func reweigh(now string) func(string) string {
	return func(text string) string { return strings.Replace(text, "weight 15", now, 1) }
}

func TestLookupModel(t *testing.T) {
	for id, want := range map[uint64]struct {
		name, gfx string
		fabric    fabric
		xcds      int
		function  string
	}{
		0x738c: {"MI100", "gfx908", fabricBridge, 0, FunctionPhysical},
		0x738e: {"MI100", "gfx908", fabricBridge, 0, FunctionPhysical},
		0x740f: {"MI210", "gfx90a", fabricBridge, 0, FunctionPhysical},
		0x7410: {"MI210 VF", "gfx90a", fabricBridge, 0, FunctionVirtual},
		0x7408: {"MI250X", "gfx90a", fabricHops, 0, FunctionPhysical},
		0x740c: {"MI250", "gfx90a", fabricHops, 0, FunctionPhysical},
		0x74a0: {"MI300A", "gfx942", fabricMesh, 6, FunctionPhysical},
		0x74a1: {"MI300X", "gfx942", fabricMesh, 8, FunctionPhysical},
		0x74a2: {"MI308X", "gfx942", fabricMesh, 4, FunctionPhysical},
		0x74a5: {"MI325X", "gfx942", fabricMesh, 8, FunctionPhysical},
		0x74a8: {"MI308X HF", "gfx942", fabricMesh, 4, FunctionPhysical},
		0x74a9: {"MI300X HF", "gfx942", fabricMesh, 8, FunctionPhysical},
		0x74b5: {"MI300X VF", "gfx942", fabricMesh, 8, FunctionVirtual},
		0x74b6: {"MI308X VF", "gfx942", fabricMesh, 4, FunctionVirtual},
		0x74b9: {"MI325X VF", "gfx942", fabricMesh, 8, FunctionVirtual},
		0x74bc: {"MI308X HF VF", "gfx942", fabricMesh, 4, FunctionVirtual},
		0x74bd: {"MI300X HF VF", "gfx942", fabricMesh, 8, FunctionVirtual},
		0x75a0: {"MI350X", "gfx950", fabricMesh, 8, FunctionPhysical},
		0x75a3: {"MI355X", "gfx950", fabricMesh, 8, FunctionPhysical},
		0x75a8: {"MI350P", "gfx950", fabricNone, 0, FunctionPhysical},
		0x75b0: {"MI350X VF", "gfx950", fabricMesh, 8, FunctionVirtual},
		0x75b3: {"MI355X VF", "gfx950", fabricMesh, 8, FunctionVirtual},
		0x75b8: {"MI350P VF", "gfx950", fabricNone, 0, FunctionVirtual},
	} {
		m, known := LookupModel(id)
		if !known || m.Name != want.name || m.GFX != want.gfx || m.Fabric != want.fabric || m.XCDs != want.xcds ||
			m.function() != want.function {
			t.Errorf("0x%04x: %+v (known %v, %s), want %+v", id, m, known, m.function(), want)
		}
	}
	for id, want := range map[uint64]string{0x9999: "unknown (0x9999)", 0x174a1: "unknown (0x174a1)",
		0: "unknown (0x0000)", 1 << 40: "unknown (0x10000000000)"} {
		if m, known := LookupModel(id); known || m.Name != want || m.Fabric != fabricUnknown ||
			m.function() != FunctionUnknown {
			t.Errorf("0x%x: %+v (known %v), want %s", id, m, known, want)
		}
	}
	seen := map[uint16]bool{}
	for _, m := range models {
		if seen[m.DeviceID] {
			t.Errorf("0x%04x is in the table twice", m.DeviceID)
		}
		seen[m.DeviceID] = true
	}
}

// TestUnknownModel: a newer GPU is named by what it says of itself, judged by its own hive, and no error.
func TestUnknownModel(t *testing.T) {
	newer := func(n *nodetree.Node) {
		for i := range n.GPUs {
			n.GPUs[i].DeviceID = 0x7f01
		}
	}
	for name, c := range map[string]struct {
		product string
		change  func(*nodetree.Node)
		model   string
		mesh    string
		text    string
	}{
		"board has a name": {"AMD Instinct MI999X\n", nil, "AMD Instinct MI999X (0x7f01)", MeshFull, "56 have xGMI"},
		"no name":          {"", nil, "unknown (0x7f01)", MeshFull, "of the 56 directed pairs"},
		"odd name":         {"MI\x1b[2J9\x00\n", nil, "MI[2J9 (0x7f01)", MeshFull, "56 have xGMI"},
		"not the whole way": {"", func(n *nodetree.Node) {
			n.Links = []nodetree.Link{{A: 0, B: 1, Kind: nodetree.LinkPCIe}}
		}, "unknown (0x7f01)", MeshUnknown, "54 have xGMI"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inMemory(t, "MI300X", func(n *nodetree.Node) {
				newer(n)
				if c.change != nil {
					c.change(n)
				}
			})
			for _, address := range []string{"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0",
				"0000:7d:00.0", "0000:a5:00.0", "0000:d5:00.0", "0000:e7:00.0"} {
				dir, err := tree.Resolve(pciDir + "/" + address)
				if err != nil {
					t.Fatal(err)
				}
				tree.Remove(dir + "/product_name")
			}
			if c.product != "" { // one board whose EEPROM can be read names them all
				dir, err := tree.Resolve(pciDir + "/0000:65:00.0")
				if err != nil {
					t.Fatal(err)
				}
				tree.Set(dir+"/product_name", c.product)
			}
			f := scan(t, tree, Options{})
			if f.Model != c.model || f.Mesh.State != c.mesh || f.Function != FunctionUnknown || f.Modules != nil ||
				f.GFXTarget != "gfx942" {
				t.Errorf("model %q, mesh %s, function %s, modules %v, gfx %s",
					f.Model, f.Mesh.State, f.Function, f.Modules, f.GFXTarget)
			}
			if diff := cmp.Diff([]string{"Warning UnknownModel 0000:05:00.0"}, problemLines(f)); diff != "" ||
				!strings.Contains(f.Problems[0].Message, c.text) {
				t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
			}
			checkNodeFacts(t, f)
		})
	}
}

func TestFunction(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []uint64
		want string
	}{
		"none":     {nil, FunctionUnknown},
		"physical": {[]uint64{0x74a1, 0x74a5}, FunctionPhysical},
		"virtual":  {[]uint64{0x74b5, 0x74b5}, FunctionVirtual},
		"mixed":    {[]uint64{0x74b5, 0x74a1, 0x74b5}, FunctionMixed},
		"unknown":  {[]uint64{0x74b5, 0x74a1, 0x7f01}, FunctionUnknown},
	} {
		f := &Facts{}
		for _, id := range c.ids {
			m, _ := LookupModel(id)
			f.GPUs = append(f.GPUs, GPU{model: m})
		}
		if got := functionOf(f.GPUs); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// gfx942 beside gfx950 is two models, and FP8 means different things to them.
func TestMixedGenerations(t *testing.T) {
	f := scan(t, inMemory(t, "MI300X", func(n *nodetree.Node) { n.GPUs[5].DeviceID = 0x75a0 }), Options{})
	if len(f.Problems) == 0 || f.Problems[0].Code != v1alpha1.ProblemMixedModels ||
		f.Problems[0].GPU != "0000:a5:00.0" {
		t.Errorf("problems %v", f.Problems)
	}
}

// TestModules: the two dies of an MI250 package are found by their links, and never guessed.
func TestModules(t *testing.T) {
	hive := func(tree *nodetree.Tree, f *Facts) { // no order of the hive: KFD's bandwidths must do
		for i := range f.GPUs {
			dir, err := tree.Resolve(pciDir + "/" + f.GPUs[i].PCIAddress + "/xgmi_hive_info")
			if err == nil {
				tree.Remove(dir)
			}
		}
	}
	bandwidths := func(tree *nodetree.Tree, _ *Facts) { // none stated: the counts of links must do
		for _, file := range tree.Files() {
			if strings.Contains(file, "_links/") && strings.HasPrefix(file, nodesDir) {
				text, _ := tree.ReadFile(file)
				lines := strings.Split(string(text), "\n")
				for i := range lines {
					if name, _, _ := strings.Cut(lines[i], " "); strings.HasSuffix(name, "_bandwidth") {
						lines[i] = name + " 0"
					}
				}
				tree.Set(file, strings.Join(lines, "\n"))
			}
		}
	}
	for name, c := range map[string]struct {
		model  string
		node   func(*nodetree.Node)
		change []func(*nodetree.Tree, *Facts)
		want   int // 0: not known
	}{
		"MI250":                 {"MI250", nil, nil, 8},
		"MI250X":                {"MI250X", nil, nil, 4},
		"MI250X by KFD alone":   {"MI250X", nil, []func(*nodetree.Tree, *Facts){hive}, 4},
		"MI250X by sysfs alone": {"MI250X", nil, []func(*nodetree.Tree, *Facts){bandwidths}, 4},
		"MI250X by neither":     {"MI250X", nil, []func(*nodetree.Tree, *Facts){hive, bandwidths}, 0},
		"MI250X, a die is gone": {"MI250X", func(n *nodetree.Node) { n.GPUs[3].Missing = true }, nil, 0},
		"MI250X, a package is gone": {"MI250X",
			func(n *nodetree.Node) { n.GPUs[2].Missing, n.GPUs[3].Missing = true, true }, nil, 3},
		"MI300A":               {"MI300A", nil, nil, 4},
		"MI300X":               {"MI300X", nil, nil, 8},
		"MI300X CPX":           {"MI300X", func(n *nodetree.Node) { n.Partition = nodetree.CPX }, nil, 8},
		"MI210":                {"MI210", nil, nil, 8},
		"MI350P":               {"MI350P", nil, nil, 8},
		"MI300X VF":            {"MI300X VF", nil, nil, 8},
		"MI350P VF":            {"MI350P VF", nil, nil, 0},
		"newer than the table": {"MI300X", func(n *nodetree.Node) { n.GPUs[0].DeviceID = 0x7f01 }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inMemory(t, c.model, c.node)
			f := scan(t, tree, Options{})
			for _, change := range c.change {
				change(tree, f)
			}
			f = scan(t, tree, Options{})
			got := 0
			if f.Modules != nil {
				got = *f.Modules
			}
			if got != c.want {
				t.Fatalf("%d modules, want %d", got, c.want)
			}
			perModule := map[int]int{}
			for i := range f.GPUs {
				if m := f.GPUs[i].Module; m != nil {
					perModule[*m]++
					// The generator's dies 0-1, 2-3 and so on share a package, in the order of their addresses.
					if c.node == nil && *m != i/2 {
						t.Errorf("GPU %d is in module %d", i, *m)
					}
				}
			}
			twoDies := strings.HasPrefix(c.model, "MI250") && c.want > 0
			if twoDies != (len(perModule) > 0) || (twoDies && len(perModule) != c.want) {
				t.Errorf("modules %v", perModule)
			}
			for module, dies := range perModule {
				if dies != 2 {
					t.Errorf("module %d has %d dies", module, dies)
				}
			}
			n := checkNodeFacts(t, f)
			if (n.ModuleCount == nil) != (c.want == 0) || (n.ModuleCount != nil && int(*n.ModuleCount) != c.want) {
				t.Errorf("CommTask says %v modules", n.ModuleCount)
			}
		})
	}
}

// TestPartnerIsUnique: two dies with four links each to a third share no package that can be known.
func TestPartnerIsUnique(t *testing.T) {
	model, _ := LookupModel(0x740c)
	hive := uint64(7)
	f := &Facts{Mesh: Mesh{State: MeshFull, Pairs: make([][]*Link, 4)}, hiveOrder: hiveOrders{7: {"a", "b", "c", "d"}}}
	for i, links := range [][]uint8{{0, 4, 4, 1}, {4, 0, 1, 1}, {4, 1, 0, 4}, {1, 1, 4, 0}} {
		f.Mesh.Pairs[i] = make([]*Link, 4)
		f.GPUs = append(f.GPUs,
			GPU{PCIAddress: string(rune('a' + i)), DeviceID: "0x740c", model: model, HiveID: &hive, links: links})
	}
	if f.setModules(); f.Modules != nil || f.GPUs[0].Module != nil {
		t.Errorf("modules %v", f.Modules)
	}
	f.GPUs[0].links, f.GPUs[2].links = []uint8{0, 4, 1, 1}, []uint8{1, 1, 0, 4}
	if f.setModules(); f.Modules == nil || *f.Modules != 2 || *f.GPUs[3].Module != 1 {
		t.Errorf("modules %v", f.Modules)
	}
}

package discover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// readMatrices gives the rows of each matrix between GPUs by its title, as rocm-smi --showtopo and this agent's table
// write them. A file may have fewer rows than columns.
func readMatrices(t *testing.T, text string) map[string][][]string {
	t.Helper()
	all := map[string][][]string{}
	title, columns := "", 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "="):
			title, columns = strings.Trim(line, "= \n"), 0
		case len(fields) == 0 || !strings.HasSuffix(title, "between two GPUs"):
		case columns == 0:
			columns = len(fields)
		default:
			if len(fields) != columns+1 || fields[0] != gpuName(len(all[title])) {
				t.Fatalf("%s: row %q, want %s and %d cells", title, line, gpuName(len(all[title])), columns)
			}
			all[title] = append(all[title], fields[1:])
		}
	}
	return all
}

// TestShowTopo holds the agent's matrices of nodes with the topology of real ones against what rocm-smi printed there.
func TestShowTopo(t *testing.T) {
	const weights, hops, types = "Weight between two GPUs", "Hops between two GPUs", "Link Type between two GPUs"
	pcie := func(n *nodetree.Node) {
		n.GPUs = n.GPUs[:4]
		for i := range n.GPUs {
			n.GPUs[i].Hive = -1
		}
	}
	for file, c := range map[string]struct {
		model  string
		node   func(*nodetree.Node)
		pcie   string // weight of all ways over PCIe; "" as generated
		titles []string
		rows   int
	}{
		"mi300x-8.txt": {"MI300X", nil, "", []string{weights, hops, types}, 8},
		// 52 is what a host with several NUMA nodes in a socket has. rocm-smi's 3 hops are over PCIe, and ours are of
		// xGMI alone.
		"4gpu-pcie.txt": {"MI210", pcie, "52", []string{weights, hops, types}, 4},
	} {
		t.Run(file, func(t *testing.T) {
			compareMatrices(t, "rocm-smi-showtopo-"+file, c.model, c.node, c.pcie, c.titles, c.rows)
		})
	}
	t.Run("mi250", func(t *testing.T) {
		compareMatrices(t, "rocm-smi-showtopoweight-mi250-8gcd-partial.txt", "MI250X", nil, "", []string{weights}, 3)
	})
	t.Run("mi100", func(t *testing.T) {
		compareMatrices(t, "rocm-smi-showtopotype-mi100-two-interleaved-hives.txt", "MI100", func(n *nodetree.Node) {
			for i, hive := range []int{1, 2, 1, 1, 2, 2, 2, 1} {
				n.GPUs[i].Hive = hive
			}
		}, "", []string{types}, 8)
	})
}

func compareMatrices(t *testing.T, file, model string, node func(*nodetree.Node), pcie string,
	titles []string, rows int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures(t), "text", file))
	if err != nil {
		t.Fatal(err)
	}
	tree := inMemory(t, model, node)
	for _, name := range tree.Files() {
		if link, _ := tree.ReadFile(name); pcie != "" && strings.Contains(name, "/p2p_links/") &&
			strings.HasSuffix(name, "/properties") {
			tree.Set(name, regexp.MustCompile(`(?m)^weight \d+$`).ReplaceAllString(string(link), "weight "+pcie))
		}
	}
	var table bytes.Buffer
	if err := scan(t, tree, Options{}).WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	want, got := readMatrices(t, string(text)), readMatrices(t, table.String())
	var found []string
	for title, matrix := range want {
		found = append(found, title)
		if len(matrix) != rows || len(got[title]) < rows {
			t.Fatalf("%s: %d rows in the file and %d of ours, want %d", title, len(matrix), len(got[title]), rows)
		}
		if pcie != "" && strings.HasPrefix(title, "Hops") {
			for i, row := range matrix {
				for j := range row {
					if i != j {
						row[j] = "-"
					}
				}
			}
		}
		if diff := cmp.Diff(matrix, got[title][:rows]); diff != "" {
			t.Errorf("%s (-rocm-smi +agent):\n%s", title, diff)
		}
		// The weights tell the hops of xGMI, which rocm-smi's own matrix does not.
		if strings.HasPrefix(title, "Weight") && pcie == "" {
			for i, row := range matrix {
				for j, cell := range row {
					weight, err := strconv.Atoi(cell)
					if hops := got["Hops between two GPUs"][i][j]; err != nil || hops != fmt.Sprint(weight/15) {
						t.Errorf("from %d to %d: %s hops at weight %s", i, j, hops, cell)
					}
				}
			}
		}
	}
	sort.Strings(found)
	sort.Strings(titles)
	if !slices.Equal(found, titles) {
		t.Errorf("%s has %v, want %v", file, found, titles)
	}
}

var (
	rcclGPU  = regexp.MustCompile(`<pci busid="([0-9a-f:.]+)" class="0x(?:038000|120000)"`)
	rcclXGMI = regexp.MustCompile(`<xgmi target="([0-9a-f:.]+)"`)
)

// rcclLinks reads the GPUs of RCCL's topology file, and which of them have direct xGMI.
func rcclLinks(t *testing.T, file string) (addresses []string, direct map[[2]string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures(t), "rccl-topo-xml", file))
	if err != nil {
		t.Fatal(err)
	}
	direct = map[[2]string]bool{}
	for line := range strings.Lines(string(text)) {
		if m := rcclGPU.FindStringSubmatch(line); m != nil {
			addresses = append(addresses, m[1])
		}
		if m := rcclXGMI.FindStringSubmatch(line); m != nil {
			direct[[2]string{addresses[len(addresses)-1], m[1]}] = true
		}
	}
	return addresses, direct
}

// TestCardsOfRCCL: nodes of cards as RCCL saw them. KFD joins all GPUs of a hive by xGMI, those without a direct link
// by more hops (kfd_crat.c, kfd_create_vcrat_image_gpu).
func TestCardsOfRCCL(t *testing.T) {
	for file, c := range map[string]struct {
		model        string
		id           uint64
		gpus, direct int
		hives        int
		mesh         string
		links        int
		want         []string
	}{
		"topo_3p_pcie.xml": {"MI210", 0, 3, 0, 0, MeshNotApplicable, 0,
			[]string{"Warning GPUMissing", "Warning XGMIBridgeAbsent"}},
		"topo_4p3l_2h.xml":  {"MI100", 0, 8, 24, 2, MeshFull, 24, []string{}},
		"topo_8p6l.xml":     {"MI100", 0, 8, 48, 1, MeshFull, 56, []string{}},
		"topo_8p_pcie.xml":  {"MI100", 0x66a1, 8, 0, 0, MeshNotApplicable, 0, []string{"Warning XGMIBridgeAbsent"}},
		"topo_8p_942.xml":   {"MI300X", 0, 8, 56, 1, MeshFull, 56, []string{}},
		"topo_8p_942vm.xml": {"MI300X VF", 0, 8, 56, 1, MeshFull, 56, []string{}},
	} {
		t.Run(file, func(t *testing.T) {
			addresses, direct := rcclLinks(t, file)
			if len(addresses) != c.gpus || len(direct) != c.direct {
				t.Fatalf("%d GPUs with %d direct links, want %d and %d", len(addresses), len(direct), c.gpus, c.direct)
			}
			tree := inMemory(t, c.model, func(n *nodetree.Node) {
				n.GPUs, n.NICs = n.GPUs[:len(addresses)], 0 // a generated NIC may get the address of a real GPU
				for i := range addresses {
					g := &n.GPUs[i]
					g.PCIAddress, g.DeviceID, g.Hive = addresses[i], c.id, -1
					for j := range addresses { // the first GPU that it reaches names the hive
						if i == j && c.direct > 0 || direct[[2]string{addresses[i], addresses[j]}] {
							g.Hive = j + 1
							break
						}
					}
				}
				for i := range n.GPUs {
					if first := n.GPUs[i].Hive - 1; first >= 0 {
						n.GPUs[i].Hive = n.GPUs[first].Hive
					}
				}
				for i := range addresses {
					for j := range i {
						if n.GPUs[i].Hive > 0 && n.GPUs[i].Hive == n.GPUs[j].Hive &&
							!direct[[2]string{addresses[i], addresses[j]}] {
							n.Links = append(n.Links, nodetree.Link{A: i, B: j, Kind: nodetree.LinkXGMI, Hops: 2})
						}
					}
				}
			})
			f := scan(t, tree, Options{})
			got := map[[2]string]bool{}
			for i := range f.Mesh.Pairs {
				for j, link := range f.Mesh.Pairs[i] {
					if isXGMI(link) && *link.Hops == 1 {
						got[[2]string{f.GPUs[i].PCIAddress, f.GPUs[j].PCIAddress}] = true
					}
				}
			}
			if diff := cmp.Diff(direct, got); diff != "" {
				t.Errorf("direct links (-RCCL +agent):\n%s", diff)
			}
			if f.Mesh.State != c.mesh || f.Mesh.Hives != c.hives || f.Mesh.Links != c.links {
				t.Errorf("mesh %s, %d hives, %d links", f.Mesh.State, f.Mesh.Hives, f.Mesh.Links)
			}
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			checkNodeFacts(t, f)
		})
	}
}

// TestReportedErrors answers as the files of real nodes did: the GPU out of the container's sight is hidden, and the
// one in reset has no mode and no counts, which are not zero.
func TestReportedErrors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(fixtures(t), "text", "gpu-id-unreadable-errno.txt"))
	if err != nil {
		t.Fatal(err)
	}
	tree := inMemory(t, "MI300X", nil)
	const inReset = "0000:2b:00.0" // node 3
	answers := map[string]error{}
	errnos := map[string]error{"EPERM": syscall.EPERM, "EINVAL": syscall.EINVAL}
	for line := range strings.Lines(string(text)) {
		name, answer, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "/"), ": ")
		if !found {
			t.Fatalf("line %q", line)
		}
		file, inCard := strings.CutPrefix(name, "sys/class/drm/card1/device/")
		if inCard {
			name = pciDir + "/" + inReset + "/" + file // the same directory
		}
		if content, quoted := strings.CutPrefix(answer, `text "`); quoted {
			content, _, _ = strings.Cut(content, `"`)
			tree.Set(gpuFile(t, tree, inReset, file), content+"\n")
			continue
		}
		errno, _, _ := strings.Cut(answer, " ")
		if answers[name] = errnos[errno]; answers[name] == nil {
			t.Fatalf("line %q", line)
		}
	}
	if len(answers) != 5 {
		t.Fatalf("answers %v", answers)
	}
	f := scan(t, treeFS{tree, func(name string) error {
		if strings.HasSuffix(name, "/xgmi_error") {
			t.Errorf("%s was read, which clears it", name)
		}
		return answers[name]
	}, nil}, Options{})
	if len(f.GPUs) != 7 || !slices.Equal(f.HiddenNodes, []int{2}) || len(f.UnreadableNodes) != 0 {
		t.Errorf("%d GPUs, hidden %v, unreadable %v", len(f.GPUs), f.HiddenNodes, f.UnreadableNodes)
	}
	codes := map[string]bool{}
	for _, p := range f.Problems {
		codes[p.Code] = true
	}
	if diff := cmp.Diff(map[string]bool{"GPUHidden": true, "PartitionUnreadable": true, "ErrorCountUnreadable": true},
		codes); diff != "" {
		t.Errorf("problems %v (-want +got):\n%s", f.Problems, diff)
	}
	g := &f.GPUs[0]
	if _, counted := g.RAS["umc"]; counted || g.PCIAddress != inReset || f.Partition == Mixed {
		t.Errorf("GPU %s: partition %s of %s, RAS %v", g.PCIAddress, g.ComputePartition, f.Partition, g.RAS)
	}
	if f.Proven() || f.Mesh.State != MeshUnknown {
		t.Errorf("proven %v, mesh %s", f.Proven(), f.Mesh.State)
	}
}

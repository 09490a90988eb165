package nodetree

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// fixtures finds the shared fixtures beside the repository.
func fixtures(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	found := filepath.Join(dir, "../shared/fixtures/synthetic")
	if _, err := os.Stat(found); err != nil {
		t.Skip("no ../shared/fixtures beside the repository, so there are no reference trees to compare with")
	}
	return found
}

var numbers = regexp.MustCompile(
	`/(nodes|io_links|p2p_links|mem_banks)/\d+|hwmon\d+|card\d+|renderD\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|mlx5_\d|enp\w+np0`)

// shape gives each kind of file with the names of its "name value" lines, for those files that KFD writes.
func shape(files map[string]string) map[string][]string {
	kinds := map[string][]string{}
	for path, text := range files {
		kind := numbers.ReplaceAllStringFunc(path, func(s string) string {
			if strings.HasPrefix(s, "enp") {
				return "enp"
			}
			return strings.TrimRight(s, "0123456789abcdef:._np")
		})
		if strings.Contains(path, "/nodes/0/") || strings.Contains(path, "/nodes/1/") {
			kind = "cpu " + kind
		}
		var keys []string
		if strings.HasSuffix(path, "/properties") {
			for line := range strings.Lines(text) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				keys = append(keys, name)
			}
			slices.Sort(keys)
		}
		kinds[kind] = keys
	}
	return kinds
}

// followed adds the files below a directory, through links, but not back from a device to its peers and classes.
func followed(tree *Tree, dir string, files map[string]string) {
	names, _ := tree.ReadDir(dir)
	for _, name := range names {
		at := dir + "/" + name
		if data, err := tree.ReadFile(at); err == nil {
			files[at] = string(data)
			continue
		}
		if name == "subsystem" || name == "pci_bus" {
			continue
		}
		if base := path.Base(dir); strings.Contains(dir, "/device") &&
			(name == "device" || name == "net" || name == "infiniband" || name == "drm") || base == "xgmi_hive_info" {
			continue
		}
		followed(tree, at, files)
	}
}

func TestFilesAreThoseOfReferenceTrees(t *testing.T) {
	for model, file := range map[string]string{"MI300X": "mi300x-8x-spx-64000.txtar", "MI350X": "mi350x-8x-spx.txtar"} {
		t.Run(model, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join(fixtures(t), file))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, f := range archive.Files {
				if !strings.HasSuffix(f.Name, "/.keep") {
					want[f.Name] = string(f.Data)
				}
			}
			got := map[string]string{}
			tree := generate(t, healthy(t, model))
			// The reference trees have plain directories where sysfs has links.
			for _, dir := range []string{"sys/bus/pci/devices", "sys/class/net", "sys/class/infiniband",
				"sys/class/drm"} {
				followed(tree, dir, got)
			}
			for _, name := range tree.Files() {
				got[name] = tree.files[name]
			}
			gotShape := shape(got)
			for kind, keys := range shape(want) {
				if have, ok := gotShape[kind]; !ok || !slices.Equal(have, keys) {
					t.Errorf("%s: the tree has names %v (there: %t), the reference %v", kind, have, ok, keys)
				}
			}
			for _, exact := range []string{"sys/class/kfd/kfd/topology/nodes/2/io_links/7/properties",
				"sys/class/kfd/kfd/topology/nodes/0/p2p_links/3/properties"} {
				if model == "MI300X" && got[exact] != want[exact] {
					t.Errorf("%s:\n%s\nreference:\n%s", exact, got[exact], want[exact])
				}
			}
		})
	}
}

var (
	xmlGPU  = regexp.MustCompile(`<pci busid="([0-9a-f:.]+)"[^>]*device="0x74`)
	xmlXGMI = regexp.MustCompile(`<xgmi target="([0-9a-f:.]+)" count="(\d+)"`)
)

// TestDieGraphsAreThoseOfRCCL compares the direct links with RCCL's topology models, which are of real nodes. That of
// the MI250X states one link for each pair, also within a package.
func TestDieGraphsAreThoseOfRCCL(t *testing.T) {
	for _, c := range []struct {
		model, file string
		counts      bool
	}{{"MI250", "topo_16p1h.xml", true}, {"MI250X", "topo_8p_90a_1.xml", false}} {
		t.Run(c.model, func(t *testing.T) {
			want, addresses := map[string]string{}, []string{}
			for line := range strings.Lines(read(t, filepath.Join(fixtures(t), "../rccl-topo-xml"), c.file)) {
				if m := xmlGPU.FindStringSubmatch(line); m != nil {
					addresses = append(addresses, m[1])
				}
				if m := xmlXGMI.FindStringSubmatch(line); m != nil {
					want[addresses[len(addresses)-1]+" "+m[1]] = m[2]
				}
			}
			p, err := productOf(c.model)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(addresses, p.addresses) {
				t.Errorf("GPUs at %v, RCCL's model has %v", p.addresses, addresses)
			}
			got := map[string]string{}
			for a, edges := range p.graph {
				for _, e := range edges {
					count := "1"
					if c.counts {
						count = strconv.Itoa(e.links)
					}
					got[p.addresses[a]+" "+p.addresses[e.to]] = count
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("links %v\nRCCL's model has %v", got, want)
			}
		})
	}
}

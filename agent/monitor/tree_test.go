package monitor

import (
	"context"
	"encoding/binary"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// host is a node's file system that can change between two looks. deny answers for a name instead of the tree.
type host struct {
	discover.FS
	deny func(name string) error
}

func (h *host) ReadFile(name string) ([]byte, error) {
	if h.deny != nil {
		if err := h.deny(name); err != nil {
			return nil, err
		}
	}
	return h.FS.ReadFile(name)
}

func (h *host) ReadDir(name string) ([]string, error) {
	if h.deny != nil {
		if err := h.deny(name); err != nil {
			return nil, err
		}
	}
	return h.FS.ReadDir(name)
}

// denying answers an error for each name that has the text in it.
func denying(part string, err error) func(string) error {
	return func(name string) error {
		if strings.Contains(name, part) {
			return err
		}
		return nil
	}
}

// TestChangesOfATree: a whole monitor over the files of a node, from a healthy look to one after something happened.
func TestChangesOfATree(t *testing.T) {
	const kfd, second = "sys/class/kfd/kfd/topology", "0000:2b:00.0"
	gpuFile := func(t *testing.T, tree *nodetree.Tree, name string) string {
		t.Helper()
		dir, err := tree.Resolve("sys/bus/pci/devices/" + second)
		if err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	for name, c := range map[string]struct {
		node func(*nodetree.Node)             // what happened, as the generator knows it
		tree func(*testing.T, *nodetree.Tree) // what it does not
		deny func(name string) error          // or what cannot be read
		want []string                         // the problems of the report at the next look
	}{
		"nothing":  {},
		"rebooted": {node: func(n *nodetree.Node) { n.BootID = "00000000-0000-4000-8000-000000000002" }},
		"GPU fell off the bus": {node: func(n *nodetree.Node) { n.GPUs[1].Missing = true },
			want: []string{"Error GPULost " + second, "Warning GPUMissing"}},
		"GPU lost its driver": {node: func(n *nodetree.Node) { n.GPUs[1].Unbound = true },
			want: []string{"Error GPUNotInKFD " + second}},
		"GPUs hidden": {deny: denying(kfd+"/nodes/3/", syscall.EPERM), want: []string{"Error GPUHidden"}},
		"nodes unlisted": {deny: denying(kfd+"/nodes", syscall.EIO),
			want: []string{"Error SysfsUnreadable sys/class/kfd/kfd/topology/nodes"}},
		"link gone": {node: func(n *nodetree.Node) { n.Links = []nodetree.Link{{A: 0, B: 1, Kind: nodetree.LinkNone}} },
			want: []string{"Error LinkMissing 0000:05:00.0<->" + second}},
		"links unreadable": {deny: denying(kfd+"/nodes/3/io_links/", syscall.EIO),
			want: []string{"Error SysfsUnreadable sys/class/kfd/kfd/topology/nodes/3/io_links/0/properties"}},
		"errors": {node: func(n *nodetree.Node) {
			n.GPUs[1].Errors = map[string]nodetree.ErrorCounts{"umc": {Correctable: 4, Deferred: 1},
				"gfx": {Uncorrectable: 1}, "xgmi_wafl": {Correctable: 2}}
		}, want: []string{"Error UncorrectableErrors " + second, "Warning DeferredErrors " + second,
			"Warning CorrectableErrors " + second, "Warning XGMICorrectableErrors " + second}},
		"errors unreadable": {deny: denying("/ras/umc_err_count", syscall.EINVAL),
			want: []string{"Warning ErrorCountUnreadable sys/bus/pci/devices/0000:05:00.0/ras/umc_err_count"}},
		"counters of all GPUs unreadable": {deny: denying("/ras/", syscall.EINVAL),
			want: []string{"Warning ErrorCountUnreadable sys/bus/pci/devices/0000:05:00.0/ras/gfx_err_count"}},
		"pages retired": {node: func(n *nodetree.Node) { n.GPUs[1].RetiredPages = 3 },
			want: []string{"Warning RetiredPages " + second}},
		"port down": {node: func(n *nodetree.Node) { n.GPUs[1].DownPorts = []int{3} },
			want: []string{"Warning XGMIPortDown " + second}},
		"metrics gone": {node: func(n *nodetree.Node) { n.MetricsRevision = nodetree.NoMetrics }},
		"repartitioned": {node: func(n *nodetree.Node) { n.Partition = nodetree.DPX },
			want: []string{"Warning Repartitioned 0000:05:00.0 0000:2b:00.0 0000:5b:00.0 0000:65:00.0 0000:7d:00.0 " +
				"0000:a5:00.0 0000:d5:00.0 0000:e7:00.0"}},
		"firmware": {node: func(n *nodetree.Node) { n.GPUs[1].Firmware = 999 },
			want: []string{"Warning MixedFirmware " + second, "Warning DriverChanged"}},
		"driver": {node: func(n *nodetree.Node) { n.DriverVersion = "6.16.6" },
			want: []string{"Warning DriverChanged sys/module/amdgpu"}},
		"driver file unreadable": {deny: denying("sys/module/amdgpu/version", syscall.EIO),
			want: []string{"Warning SysfsUnreadable sys/module/amdgpu/version"}},
		"driver loaded again": {node: func(n *nodetree.Node) { n.Generation = 1 },
			want: []string{"Warning DriverChanged sys/module/amdgpu"}},
		"throttled": {tree: func(t *testing.T, tree *nodetree.Tree) {
			name := gpuFile(t, tree, "gpu_metrics")
			data, err := tree.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b := append([]byte{}, data...)
			// accumulation_counter and hbm_thm_residency_acc of 1.7
			for at, by := range map[int]uint32{40: 1000, 60: 250} {
				binary.LittleEndian.PutUint32(b[at:], binary.LittleEndian.Uint32(b[at:])+by)
			}
			tree.Set(name, string(b))
		}, want: []string{"Warning Throttled " + second}},
		"metrics of a newer driver": {tree: func(t *testing.T, tree *nodetree.Tree) {
			tree.Set(gpuFile(t, tree, "gpu_metrics"), "\x08\x00\x01\x0b\x00\x00\x00\x00")
		}, want: []string{"Warning MetricsUnsupported sys/bus/pci/devices/" + second + "/gpu_metrics"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			generate := func(change func(*nodetree.Node)) *nodetree.Tree {
				n, err := nodetree.Defaults("MI300X")
				if err != nil {
					t.Fatal(err)
				}
				n.Name, n.MetricsRevision = "node-a", "1.7"
				if change != nil {
					change(&n)
				}
				tree, err := nodetree.Generate(n)
				if err != nil {
					t.Fatal(err)
				}
				return tree
			}
			h := &host{FS: generate(nil)}
			fake := &node{}
			m, clock := newTestMonitor(fake, logr.Discard())
			m.cfg.Scanner, m.cfg.Valid = discover.NewScanner(h, discover.Options{}), time.Hour
			m.Step(context.Background())
			if len(fake.reports) != 1 || len(fake.reports[0].Problems) > 0 {
				t.Fatalf("a healthy node has %+v", fake.reports)
			}
			tree := generate(c.node)
			if c.tree != nil {
				c.tree(t, tree)
			}
			h.FS, h.deny = tree, c.deny
			clock.Step(30 * time.Second)
			m.Step(context.Background())
			last := fake.reports[len(fake.reports)-1]
			if diff := cmp.Diff(append([]string{}, c.want...), codes(last.Problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if name == "rebooted" && (len(fake.reports) != 2 || last.BootID != "00000000-0000-4000-8000-000000000002") {
				t.Errorf("%d reports, the last of boot %s", len(fake.reports), last.BootID)
			}
			written := len(fake.reports)
			clock.Step(30 * time.Second)
			m.Step(context.Background())
			if name != "throttled" && len(fake.reports) != written {
				t.Errorf("a look at the same files wrote again (-was +is):\n%s",
					cmp.Diff(last, fake.reports[len(fake.reports)-1]))
			}
		})
	}
}

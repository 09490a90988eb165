package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"rcclx.io/commgroup-operator/agent/discover"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/memfs"
	"rcclx.io/commgroup-operator/rcclx"
)

// memFS is a tree in memory.
type memFS map[string]string

func (m memFS) ReadFile(name string) ([]byte, error)  { return memfs.Tree(m).ReadFile(name) }
func (m memFS) ReadDir(name string) ([]string, error) { return memfs.Tree(m).ReadDir(name) }
func (m memFS) ReadLink(name string) (string, error)  { return memfs.Tree(m).ReadLink(name) }
func (m memFS) Close() error                          { return nil }

// memHost is a host in memory; a nil file system cannot be opened.
type memHost struct {
	fs           memFS
	shm, memlock int64
	shmErr       error
	virtual      bool
	interfaces   []Interface
	environ      []string
}

func (h memHost) BootID() (string, error)                { return "boot", nil }
func (h memHost) SharedMemoryFreeBytes() (int64, error)  { return h.shm, h.shmErr }
func (h memHost) LockedMemoryLimitBytes() (int64, error) { return h.memlock, nil }
func (h memHost) Hypervisor() (bool, error)              { return h.virtual, nil }
func (h memHost) Interfaces() ([]Interface, error)       { return h.interfaces, nil }
func (h memHost) OpenRoot() (Root, error) {
	if h.fs == nil {
		return nil, errors.New("no root")
	}
	return h.fs, nil
}

var eth0 = Interface{Name: "eth0", Running: true,
	Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}}
var lo = Interface{Name: "lo", Running: true, Loopback: true,
	Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}

func goodHost(fs memFS) memHost {
	return memHost{fs: fs, shm: 16 << 30, memlock: -1, interfaces: []Interface{lo, eth0}}
}

// nodeTree reads a generated node into memory, so that a test can change single files.
func nodeTree(t testing.TB, model string) memFS {
	t.Helper()
	n, err := nodetree.Defaults(model)
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	dir := t.TempDir()
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	return treeOf(t, dir)
}

func treeOf(t testing.TB, dir string) memFS {
	t.Helper()
	fs := memFS{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			fs[name+"/."] = "" // so that empty folders are there
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			fs[name] = string(data)
			return err
		case strings.HasPrefix(name, "sys/bus/pci/devices/"): // a link to a device, whose own files are the bus's, too
			files, err := os.ReadDir(path)
			for _, f := range files {
				if f.Type().IsRegular() && err == nil {
					var data []byte
					data, err = os.ReadFile(filepath.Join(path, f.Name()))
					fs[name+"/"+f.Name()] = string(data)
				}
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// fixtures is the folder beside the repository; the test is skipped where it is not there.
func fixtures(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "fixtures")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the sysfs fixtures are not beside the repository (../shared/fixtures)")
	}
	return dir
}

func fixtureTree(t testing.TB, name string) memFS {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join(fixtures(t), name))
	if err != nil {
		t.Fatal(err)
	}
	fs := memFS{}
	for _, f := range archive.Files {
		fs[f.Name] = string(f.Data)
	}
	return fs
}

func (m memFS) with(changes map[string]string) memFS {
	out := maps.Clone(m)
	for name, text := range changes {
		if text == "" {
			delete(out, name)
		} else {
			out[name] = text
		}
	}
	return out
}

func gather(t testing.TB, h Host) NodeFacts {
	t.Helper()
	var environ []string
	if m, ok := h.(memHost); ok {
		environ = m.environ
	}
	return Gather(t.Context(), h, environ)
}

// goodNeed is a run with all variants of RCCLX on eight GPUs.
func goodNeed() Need {
	return Need{Ranks: 8, Nodes: 1, Flavor: rcclx.FlavorRCCLXDev,
		Variants: []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision},
		Environ:  []string{"NCCL_HOSTID=node", "HSA_NO_SCRATCH_RECLAIM=1"}, MemoryBytes: 4 << 30}
}

// goodRanks sit on the node's GPUs in the kernel's order.
func goodRanks(f NodeFacts, n int) []RankFacts {
	out := make([]RankFacts, n)
	for i := range out {
		pci := ""
		switch {
		case f.Discovered != nil && i < len(f.Discovered.Devices):
			pci = f.Discovered.Devices[i].PCIAddress
		case i < len(f.NVIDIAGPUs):
			pci = f.NVIDIAGPUs[i]
		}
		out[i] = RankFacts{Rank: i, Device: i, ProcessID: 100 + i,
			Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCLXDev, VersionCode: 22803,
				Path: "/opt/rocm/lib/librccl.so.1", BuildHash: "0123456789abcdef", SettingsHash: "fedcba9876543210",
				RuntimeVersionCode: 60443484, PCIAddress: pci, TotalMemoryBytes: 192 << 30, FreeMemoryBytes: 191 << 30}}
	}
	return out
}

func one(t testing.TB, findings []Finding, name string) Finding {
	t.Helper()
	var out []Finding
	for _, f := range findings {
		if f.Name == name {
			out = append(out, f)
		}
	}
	if len(out) != 1 {
		t.Fatalf("%d findings of %s in %+v, expected one", len(out), name, findings)
	}
	return out[0]
}

var _ discover.FS = memFS{}

var errNoShm = errors.New("look at /dev/shm: no such file or directory")

// hideGPUs makes the files of KFD's GPU nodes answer an error.
func hideGPUs(fs memFS, answer string) {
	for name, text := range fs {
		if dir, ok := strings.CutSuffix(name, "/gpu_id"); ok && strings.TrimSpace(text) != "0" {
			fs[name], fs[dir+"/properties"] = answer, answer
		}
	}
}

// gpuID of the n-th GPU, as KFD's files have it.
func gpuID(s *scene, n int) string {
	f, err := discover.Scan(context.Background(), s.host.fs, discover.Options{})
	if err != nil {
		panic(err)
	}
	return fmt.Sprint(*f.Devices[n].GPUID)
}

// busyFile of the n-th GPU says how busy it is.
func busyFile(s *scene, n int) string {
	f, err := discover.Scan(context.Background(), s.host.fs, discover.Options{})
	if err != nil {
		panic(err)
	}
	return "sys/bus/pci/devices/" + f.Devices[n].PCIAddress + "/gpu_busy_percent"
}

func (m memFS) without(dir string) memFS {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
	return out
}

func firmware(s *scene, version uint64) { s.facts.Discovered.Devices[0].FWVersion = &version }

func swap(ranks []RankFacts, a, b int) {
	ranks[a].Library.PCIAddress, ranks[b].Library.PCIAddress = ranks[b].Library.PCIAddress, ranks[a].Library.PCIAddress
}

func each(s *scene, change func(*rcclx.LibraryInfo)) {
	for i := range s.ranks {
		change(s.ranks[i].Library)
	}
}

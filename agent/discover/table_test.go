package discover

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

var updateTables = flag.Bool("update-tables", false, "write the golden tables anew")

// drawn is what the tables of the tests have in common: a node of so many GPUs with so many devices each, whose links
// join says. What is wrong with it, each case adds.
type drawn struct {
	deviceID uint64
	gpus     int
	parts    int
	compute  string
	memory   string
	hive     func(gpu int) uint64
	join     func(a, b int) linkRecord
	vramGiB  uint64
	nics     int
	change   func(*Facts)
	problems []v1alpha1.Problem
	scanned  []Unread
}

func xgmi(hops, links, mbps uint64) linkRecord {
	r := linkRecord{kind: ioLinkXGMI, weight: 15 * hops}
	if hops == 1 && mbps > 0 {
		r.minMBps, r.maxMBps = ptr.To(mbps), ptr.To(mbps*links)
	}
	return r
}

func pcie(weight uint64) linkRecord {
	return linkRecord{kind: ioLinkPCIe, weight: weight, indirect: true}
}

func (d *drawn) facts() *Facts {
	model, _ := LookupModel(d.deviceID)
	f := &Facts{Origin: v1alpha1.OriginHardware, KernelRelease: "6.8.0-60-generic",
		Driver: DriverFacts{Kind: DriverDKMS, Version: "6.14.14"}, ROCm: ROCmFacts{State: ROCmFound,
			Version: "7.0.2", Source: "opt/rocm/.info/version", HIPVersion: "7.0.51831", RCCLVersion: "2.26.6",
			Sources: []ROCmSource{{Path: "opt/rocm/.info/version", Version: "7.0.2"},
				{Path: "opt/rocm/include/rocm-core/rocm_version.h", Version: "7.0.2"},
				{Path: "opt/rocm-6.4.1/.info/version", Version: "6.4.1"},
				{Path: "opt/rocm-7.1.0/.info/version", Error: "file is empty"}}},
		Host: HostSettings{NUMABalancing: ptr.To(int64(0)), IOMMU: IOMMUPassthrough}, PCIGPUs: []PCIGPU{},
		NICs: []NIC{}, RenderNodes: ptr.To(d.gpus * d.parts), Modules: ptr.To(d.gpus), Function: "Physical",
		pciReadable: true, kfdPresent: true, GenerationStable: true, Problems: d.problems, Unread: d.scanned}
	if model.VF {
		f.Function = "Virtual"
	}
	for i := range d.gpus {
		g := GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", 0x10*i+5), DeviceID: fmt.Sprintf("0x%04x", d.deviceID),
			Model: model.Name, model: model, GFXTarget: model.GFX, ComputePartition: d.compute,
			MemoryPartition: d.memory, HiveID: ptr.To(d.hive(i)), NUMANode: ptr.To(int32(i * 2 / d.gpus)),
			VRAMBytes: ptr.To(d.vramGiB << 30), PCIe: PCIe{SpeedMTps: ptr.To(int64(32000)),
				MaxSpeedMTps: ptr.To(int64(32000)), Width: ptr.To(int64(16)), MaxWidth: ptr.To(int64(16))},
			PCIPath: fmt.Sprintf("pci0000:%02x/0000:%02x:01.1/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:00.0",
				0x10*i, 0x10*i, 0x10*i+1, 0x10*i+2, 0x10*i+5),
			RAS:          map[string]ErrorCounts{"gfx": {}, RASBlockXGMI: {}, "umc": {Deferred: new(uint64)}},
			RetiredPages: new(int), Complete: true,
			Metrics: &Metrics{Revision: "1.6", HotspotCelsius: ptr.To(int64(44)), MemoryCelsius: ptr.To(int64(38)),
				SocketPowerWatts: ptr.To(int64(140)), XGMIPorts: []string{XGMIPortUp, XGMIPortUp, XGMIPortUp,
					XGMIPortUp, XGMIPortUp, XGMIPortUp, XGMIPortUp}}}
		if model.Fabric == fabricNone {
			g.Metrics.XGMIPorts = nil
		}
		for p := range d.parts {
			node := 2 + i*d.parts + p
			g.Nodes = append(g.Nodes, node)
			f.Devices = append(f.Devices, Device{Node: node, PCIAddress: g.PCIAddress, Partition: p,
				RenderMinor: ptr.To(uint64(128 + 8*i + p)), FWVersion: ptr.To(uint64(166)),
				SDMAVersion: ptr.To(uint64(22)), HiveID: g.HiveID, GFXTarget: g.GFXTarget, Complete: true})
		}
		f.GPUs = append(f.GPUs, g)
		f.PCIGPUs = append(f.PCIGPUs, PCIGPU{PCIAddress: g.PCIAddress, DeviceID: g.DeviceID, Model: g.Model})
	}
	for i := range d.nics {
		f.NICs = append(f.NICs, NIC{Name: fmt.Sprintf("mlx5_%d", i), Interface: fmt.Sprintf("enp%ds0np0", 16*i+9),
			PCIAddress: fmt.Sprintf("0000:%02x:00.0", 0x10*i+9), VendorID: "0x15b3",
			DeviceID: "0x1021", Product: "ConnectX-7", LinkLayer: LinkInfiniBand, State: PortActive,
			PhysState: "LinkUp", RateMbps: ptr.To(int64(400000)), NUMANode: ptr.To(int32(i * 2 / d.nics)),
			PCIPath: fmt.Sprintf("pci0000:%02x/0000:%02x:01.1/0000:%02x:00.0/0000:%02x:01.0/0000:%02x:00.0",
				0x10*i, 0x10*i, 0x10*i+1, 0x10*i+2, 0x10*i+9)})
	}
	for i := range d.gpus * d.parts {
		for j := range d.gpus * d.parts {
			if i == j {
				continue
			}
			r := linkRecord{kind: ioLinkXGMI, weight: 13}
			if a, b := i/d.parts, j/d.parts; a != b {
				if r = d.join(a, b); d.parts > 1 {
					r = linkRecord{kind: ioLinkXGMI, weight: weightAcrossPartitions}
				}
			}
			r.from, r.to = 2+i, 2+j
			f.linkRecords = append(f.linkRecords, r)
		}
	}
	if d.change != nil {
		d.change(f)
	}
	f.summarise()
	assignNICs(f)
	f.Mesh = buildMesh(f, 0)
	return f
}

func oneHive(int) uint64 { return 0xb380fd5c30f0aaca }

func direct(int, int) linkRecord { return xgmi(1, 1, 64000) }

var tables = map[string]drawn{
	"mi300x-spx": {deviceID: 0x74a1, gpus: 8, parts: 1, compute: "SPX", memory: "NPS1", hive: oneHive, join: direct,
		vramGiB: 192, nics: 8},
	"mi300x-cpx": {deviceID: 0x74a1, gpus: 8, parts: 8, compute: "CPX", memory: "NPS4", hive: oneHive, join: direct,
		vramGiB: 192, nics: 8},
	// Two dies on each module, four links inside, one or none to the others.
	"mi250x": {deviceID: 0x7408, gpus: 8, parts: 1, hive: oneHive, vramGiB: 64, nics: 4,
		join: func(a, b int) linkRecord {
			switch {
			case a/2 == b/2:
				return xgmi(1, 4, 50000)
			case a%2 == b%2:
				return xgmi(1, 1, 50000)
			}
			return xgmi(2, 0, 0)
		}, change: func(f *Facts) {
			f.Modules = ptr.To(4)
			for i := range f.GPUs {
				f.GPUs[i].Module = ptr.To(i / 2)
			}
		}},
	"mi250-16-dies": {deviceID: 0x740c, gpus: 16, parts: 1, hive: oneHive, vramGiB: 64,
		join: func(a, b int) linkRecord {
			if a/2 == b/2 {
				return xgmi(1, 4, 50000)
			}
			return xgmi(uint64(1+max(a/4-b/4, b/4-a/4)), 1, 50000)
		}, change: func(f *Facts) {
			f.Modules = ptr.To(8)
			for i := range f.GPUs {
				f.GPUs[i].Module = ptr.To(i / 2)
			}
		}},
	"mi210-two-hives": {deviceID: 0x740f, gpus: 8, parts: 1, vramGiB: 64,
		hive: func(i int) uint64 { return 0x1111 * uint64(1+i/4) }, join: func(a, b int) linkRecord {
			if a/4 == b/4 {
				return xgmi(1, 1, 50000)
			}
			return pcie(72)
		}},
	"mi350p": {deviceID: 0x75a8, gpus: 8, parts: 1, vramGiB: 144, nics: 2, hive: func(int) uint64 { return 0 },
		join: func(a, b int) linkRecord {
			r := pcie(72)
			if a/4 == b/4 {
				r = pcie(40)
			}
			r.minMBps, r.maxMBps = ptr.To(uint64(312)), ptr.To(uint64(64000))
			return r
		}, change: func(f *Facts) {
			for i := range f.NICs { // cards: no common switch
				f.NICs[i].PCIPath, f.NICs[i].LinkLayer = fmt.Sprintf("pci0000:%02x/0000:%02x:03.1/%s",
					0x40*i, 0x40*i, f.NICs[i].PCIAddress), LinkEthernet
			}
		}},
	"broken": {deviceID: 0x74a1, gpus: 8, parts: 1, compute: "SPX", memory: "NPS1", hive: oneHive, vramGiB: 192,
		nics: 8, join: func(a, b int) linkRecord {
			if min(a, b) == 3 && max(a, b) == 6 {
				return pcie(72)
			}
			return xgmi(1, 1, 64000)
		}, change: func(f *Facts) {
			f.NICs[5].State, f.NICs[5].PhysState, f.NICs[5].RateMbps = PortDown, "Polling", ptr.To(int64(10000))
			f.NICs[7].State, f.NICs[7].LinkLayer, f.NICs[7].VendorID, f.NICs[7].Product = PortUnknown,
				LinkUnknown, "0x1234", ""
			f.NICs = append(f.NICs, NIC{Name: "rxe0", Interface: "eno1", LinkLayer: LinkEthernet, State: PortActive,
				RateMbps: ptr.To(int64(2500)), virtual: true})
			g := &f.GPUs[2]
			g.RAS = map[string]ErrorCounts{"umc": {Uncorrectable: 1, Correctable: 40, Deferred: ptr.To(uint64(2))},
				"gfx": {Correctable: 3}, "sdma": {Correctable: 1}, "mmhub": {Correctable: 1}, "athub": {}}
			g.RetiredPages, g.unreservedPages = ptr.To(4), 1
			g.Metrics.XGMIPorts[4] = XGMIPortDown
			f.GPUs[3].RAS, f.GPUs[3].RetiredPages, f.GPUs[3].Metrics = nil, nil, nil
			f.GPUs[4].PCIe.Width, f.GPUs[4].PCIe.SpeedMTps = ptr.To(int64(8)), ptr.To(int64(2500))
			f.GPUs[5].NUMANode, f.GPUs[5].NUMAUnknown, f.GPUs[5].VRAMBytes = nil, true, nil
			f.GPUs[6].RAS, f.GPUs[6].Metrics, f.GPUs[6].RetiredPages, f.GPUs[6].PCIe = nil, nil, nil, PCIe{}
			f.Devices[7].FWVersion = ptr.To(uint64(150))
			f.PCIGPUs = append(f.PCIGPUs,
				PCIGPU{PCIAddress: "0000:e7:00.0", DeviceID: "0x74a1", Model: "MI300X", Driver: "vfio-pci"})
			f.RenderNodes = ptr.To(7)
			f.Host.NUMABalancing, f.Host.IOMMU = ptr.To(int64(1)), ""
		}, problems: []v1alpha1.Problem{
			{Severity: "Error", Code: "PCIeInsteadOfXGMI", GPU: "0000:35:00.0", PeerGPU: "0000:65:00.0",
				Message: "This pair reaches each other only over PCIe; expected xGMI within a hive of 8. " +
					"The link is down: look for XGMI in the kernel log; power-cycle the node."},
			{Severity: "Error", Code: "UncorrectableErrors", GPU: "0000:25:00.0",
				Message: "Uncorrectable errors since the driver was loaded, by block: umc 1; expected none. " +
					"Drain the node and reset the GPU; if they come back, replace it."},
			{Severity: "Warning", Code: "NUMABalancing", Path: "proc/sys/kernel/numa_balancing",
				Message: "It is 1 and RCCL wants 0: automatic balancing costs up to half of the bandwidth. " +
					"Set kernel.numa_balancing=0."},
		}, scanned: []Unread{
			{Path: pciDir + "/0000:35:00.0/ras/umc_err_count", Class: ClassBusy,
				Message: "kernel says: Query currently inaccessible"},
			{Path: pciDir + "/0000:35:00.0/gpu_metrics", Class: ClassTimeout, Message: "read has not returned for 4s"},
			{Path: pciDir + "/0000:25:00.0/ras/hdp_err_count", Class: ClassUnsupported, Message: "invalid argument"},
			{Path: pciDir + "/0000:25:00.0/ras/mca_err_count", Class: ClassMissing,
				Message: "no such file or directory"},
		}},
	"warning": {deviceID: 0x74b5, gpus: 2, parts: 1, compute: "SPX", hive: oneHive, join: direct, vramGiB: 192, nics: 1,
		change: func(f *Facts) {
			f.Origin, f.Driver, f.ROCm = v1alpha1.OriginSimulated,
				DriverFacts{Kind: DriverInTree, SrcVersion: "0123456789ABCDEF"}, ROCmFacts{State: ROCmNotFound}
			f.PCIGPUs, f.RenderNodes, f.HiddenNodes = nil, nil, []int{4, 5, 6, 7, 8, 9}
			for i := range f.GPUs {
				f.GPUs[i].RAS, f.GPUs[i].RetiredPages, f.GPUs[i].Metrics, f.GPUs[i].MemoryPartition = nil, nil, nil, ""
			}
		}, problems: []v1alpha1.Problem{{Severity: "Warning", Code: "NICFar", GPU: "0000:15:00.0",
			Message: "1 of 2 GPUs have no RDMA device on their NUMA node. Look for a NIC that is missing."}}},
	"no-gpu": {gpus: 0, parts: 1, nics: 1, change: func(f *Facts) {
		f.kfdPresent, f.kfdClass, f.Modules, f.Driver, f.RenderNodes = false, ClassMissing, nil,
			DriverFacts{Kind: DriverNotLoaded}, ptr.To(0)
	}, problems: []v1alpha1.Problem{{Severity: "Error", Code: "NoGPUs",
		Message: "The PCI bus has no AMD data-centre GPU, and amdgpu is not loaded. Take the node out of the group."}}},
	"no-tree": {gpus: 0, parts: 1, change: func(f *Facts) {
		*f = Facts{sysClass: ClassMissing, kfdClass: ClassMissing, Driver: DriverFacts{Kind: DriverUnknown},
			ROCm: ROCmFacts{State: ROCmUnreadable,
				Sources: []ROCmSource{{Path: "opt/rocm/.info/version", Error: "file is empty"}}}, Problems: f.Problems}
	}, problems: []v1alpha1.Problem{{Severity: "Error", Code: "SysfsUnreadable", Path: "sys",
		Message: "The tree has no readable sys directory (Missing): expected the host's /sys under the root. " +
			"Mount it there, or correct --root."}}},
}

// TestTables draws each node and compares with testdata/tables; -update-tables writes them.
func TestTables(t *testing.T) {
	for name, d := range tables {
		t.Run(name, func(t *testing.T) {
			got := drawTable(t, d.facts())
			file := filepath.Join("testdata", "tables", name+".txt")
			if *updateTables {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("table differs from %s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// drawTable draws and checks what holds for every table.
func drawTable(t testing.TB, f *Facts) string {
	t.Helper()
	var b strings.Builder
	if err := f.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	verdict := "Verdict: " + f.Verdict()
	if lines[0] != verdict || lines[len(lines)-1] != verdict {
		t.Errorf("the verdict is not the first line and the last:\n%s\n%s", lines[0], lines[len(lines)-1])
	}
	for _, line := range lines[1 : len(lines)-1] {
		if len(line) > 120 {
			t.Errorf("%d characters: %s", len(line), line)
		}
		if line != strings.TrimRight(line, " ") {
			t.Errorf("spaces at the end: %q", line)
		}
	}
	for _, bad := range []string{"%!", "<nil>", "0x0)"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q in\n%s", bad, text)
		}
	}
	return text
}

// TestTablesOfGeneratedNodes: whatever the node simulator makes fits the screen and has its verdict first and last.
func TestTablesOfGeneratedNodes(t *testing.T) {
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			f := scan(t, openRoot(t, generate(t, model, nil)), Options{})
			text := drawTable(t, f)
			for _, title := range []string{" Weight between two GPUs ", " Hops between two GPUs ",
				" Link Type between two GPUs ", " Numa Nodes "} {
				if strings.Count(text, title) != 1 {
					t.Errorf("title %q is not there once", title)
				}
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	full := Mesh{State: MeshFull, Links: 2, ExpectedLinks: ptr.To(2)}
	gpus := []GPU{{PCIAddress: "0000:05:00.0", Model: "MI300X"}, {PCIAddress: "0000:15:00.0", Model: "MI300X"}}
	mixed := []GPU{gpus[0], {PCIAddress: "0000:15:00.0", Model: "MI325X"}}
	problem := func(severity, code string, about v1alpha1.Problem) v1alpha1.Problem {
		about.Severity, about.Code, about.Message = severity, code, "Seen this. Do that."
		return about
	}
	node, second, nic := v1alpha1.Problem{}, v1alpha1.Problem{GPU: "0000:15:00.0"}, v1alpha1.Problem{NIC: "mlx5_1"}
	for want, f := range map[string]*Facts{
		"healthy: 2 x MI300X, xGMI mesh full (2 of 2 links)": {Mesh: full, GPUs: gpus,
			Devices: make([]Device, 2)},
		"SIMULATED: healthy: 2 x MI300X as 16 devices, xGMI mesh full (2 of 2 links)": {Mesh: full, GPUs: gpus,
			Devices: make([]Device, 16), Origin: v1alpha1.OriginSimulated},
		"no error found, but not proven healthy: 2 x MI300X, xGMI mesh " +
			"unknown (0 links)": {Mesh: Mesh{State: MeshUnknown}, GPUs: gpus, Devices: make([]Device, 2)},
		"healthy: 1 x MI300X, 1 x MI325X, xGMI mesh not applicable": {
			Mesh: Mesh{State: MeshNotApplicable}, GPUs: mixed, Devices: make([]Device, 2)},
		"NOT HEALTHY (1 error), no GPU: NoGPUs: Seen " +
			"this. Do that.": {Problems: []v1alpha1.Problem{problem("Error", "NoGPUs", node)}},
		"NOT HEALTHY (2 errors, 1 warning), 2 x MI300X: A 0000:15:00.0 (GPU1): Seen this. Do that.": {Mesh: full,
			GPUs: gpus, Devices: make([]Device, 2), Problems: []v1alpha1.Problem{problem("Error", "A", second),
				problem("Error", "B", node), problem("Warning", "C", node)}},
		"healthy: 2 x MI300X, xGMI mesh full (2 of 2 links), with 2 warnings: NICDown mlx5_1: " +
			"Seen this. Do that.": {Mesh: full, GPUs: gpus, Devices: make([]Device, 2),
			Problems: []v1alpha1.Problem{problem("Warning", "NICDown", nic), problem("Warning", "C", node)}},
		// Hidden GPUs are neither absent nor broken, so the verdict is no fault; beside a fault it is that fault.
		"not proven healthy (4 GPU devices hidden from this container): 2 x MI300X, xGMI mesh unknown (2 links): " +
			"GPUHidden: Seen this. Do that.": {
			Mesh: Mesh{State: MeshUnknown, Links: 2}, GPUs: gpus, Devices: make([]Device, 2),
			HiddenNodes: []int{4, 5, 6, 7},
			Problems:    []v1alpha1.Problem{problem("Error", "GPUHidden", node)}},
		"not proven healthy (1 GPU device hidden from this container): 2 x MI300X, xGMI mesh not applicable, " +
			"with 1 warning: NICDown mlx5_1: Seen this. Do that.": {
			Mesh: Mesh{State: MeshNotApplicable}, GPUs: gpus, Devices: make([]Device, 2), HiddenNodes: []int{4},
			Problems: []v1alpha1.Problem{problem("Error", "GPUHidden", node), problem("Warning", "NICDown", nic)}},
		"NOT HEALTHY (2 errors), 2 x MI300X: A 0000:15:00.0 (GPU1): Seen this. Do that.": {Mesh: full,
			GPUs: gpus, Devices: make([]Device, 2), HiddenNodes: []int{4},
			Problems: []v1alpha1.Problem{problem("Error", "A", second), problem("Error", "GPUHidden", node)}},
	} {
		if got := f.Verdict(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if hidden := len(f.HiddenNodes) > 0; hidden && f.Proven() ||
			hidden && f.Healthy() == strings.HasPrefix(want, "NOT") {
			t.Errorf("%s: healthy %v, proven %v", want, f.Healthy(), f.Proven())
		}
	}
}

// TestTableKeepsTheTerminal: no text of a tree gets a control character onto the screen.
func TestTableKeepsTheTerminal(t *testing.T) {
	d := tables["mi300x-spx"]
	d.change = func(f *Facts) {
		evil := "x\x1b[2J\r\u009b31m\u202e\ny"
		f.KernelRelease, f.GPUs[0].Model, f.NICs[0].Name, f.NICs[0].Interface, f.ROCm.Source = evil,
			evil, evil, evil, evil
		f.Problems = []v1alpha1.Problem{{Severity: "Error", Code: "A", Path: evil, Message: evil}}
		f.Unread = []Unread{{Path: evil, Class: ClassFailed, Message: evil}}
	}
	f := d.facts()
	var b strings.Builder
	if err := f.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexAny(b.String(), "\x1b\r\u009b\u202e"); i >= 0 {
		t.Errorf("control character at %d", i)
	}
}

func TestRanges(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "7": {7}, "2-9": {9, 8, 2, 3, 4, 5, 6, 7}, "0,1": {0, 1},
		"0,2,4-6": {0, 2, 4, 5, 6}, "3": {3, 3}} {
		if got := ranges(list); got != want {
			t.Errorf("%v is %q, want %q", list, got, want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestTableWriteError(t *testing.T) {
	d := tables["mi300x-spx"]
	if err := d.facts().WriteTable(brokenWriter{}); err == nil {
		t.Error("the writer's error was lost")
	}
}

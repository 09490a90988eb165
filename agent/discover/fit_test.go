package discover

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestNodeFactsWhole holds every field of a small node against what the tree has.
func TestNodeFactsWhole(t *testing.T) {
	tree := inMemory(t, "MI250X", func(n *nodetree.Node) {
		n.BootID, n.NICs, n.GPUs = "b-1", 1, n.GPUs[:4]
		n.GPUs[1].Firmware = 93
		n.GPUs[2].Errors = map[string]nodetree.ErrorCounts{"umc": {Correctable: 5, Uncorrectable: 2},
			"gfx": {Correctable: 1}}
		n.GPUs[3].RetiredPages = 3
	})
	f := scan(t, treeFS{tree, fails(errBusyText, func(name string) bool {
		return strings.HasSuffix(name, "0000:c1:00.0/ras/umc_err_count")
	}), nil}, Options{})
	got := f.NodeFacts(time.Minute)
	problems := []string{}
	for _, p := range got.Problems {
		problems = append(problems, p.Code)
	}
	got.Problems, got.ObservedTime = nil, metav1.Time{}
	gpu := func(address string, module int32, path, links string) v1alpha1.GPUFacts {
		return v1alpha1.GPUFacts{PCIAddress: address, Module: &module, Hive: ptr.To(int32(1)),
			NUMANode: ptr.To(f.numaOf(address)), VRAMMiB: ptr.To(int64(65536)),
			NIC: f.nicOf(address), NICPath: path, Links: links}
	}
	if len(f.NICs) != 1 {
		t.Fatalf("%d NICs", len(f.NICs))
	}
	nic := f.NICs[0]
	want := &v1alpha1.NodeFacts{
		ValidForSeconds: 60, Origin: v1alpha1.OriginSimulated, BootID: "b-1", KernelRelease: f.KernelRelease,
		Driver: v1alpha1.DriverFacts{Kind: "DKMS", Version: f.Driver.Version, SrcVersion: f.Driver.SrcVersion},
		ROCm: v1alpha1.ROCmFacts{State: "Found", Version: f.ROCm.Version, Source: f.ROCm.Source,
			HIPVersion: f.ROCm.HIPVersion, RCCLVersion: f.ROCm.RCCLVersion},
		GPUModel: "MI250X", GFXTarget: "gfx90a", GPUCount: 4, DeviceCount: 4, ModuleCount: ptr.To(int32(2)),
		PCIGPUCount:     ptr.To(int32(4)),
		RenderNodeCount: ptr.To(int32(4)), Function: "Physical",
		Firmware: &v1alpha1.FirmwareFacts{MEC: "mixed", SDMA: "9"}, Partition: "NotApplicable",
		GPUs: []v1alpha1.GPUFacts{
			gpu("0000:c1:00.0", 0, f.GPUs[0].NICPath, "-abc"), gpu("0000:c6:00.0", 0, f.GPUs[1].NICPath, "a-cb"),
			gpu("0000:c9:00.0", 1, f.GPUs[2].NICPath, "bc-a"), gpu("0000:ce:00.0", 1, f.GPUs[3].NICPath, "cba-"),
		},
		NICs: []v1alpha1.NICFacts{{Name: nic.Name, Interface: nic.Interface, LinkLayer: nic.LinkLayer, State: "Active",
			RateMbps: nic.RateMbps, NUMANode: nic.NUMANode}},
		XGMI: v1alpha1.XGMIFacts{Mesh: "Full", Hives: 1, Links: 12, ExpectedLinks: ptr.To(int32(12)),
			LinkBandwidthMBps: ptr.To(int64(50000)), UncorrectableErrors: ptr.To(int64(0)),
			CorrectableErrors: ptr.To(int64(0))},
		LinkClasses: []v1alpha1.LinkClass{
			{Letter: "a", Type: "XGMI", Hops: ptr.To(int32(1)), Weight: 15, MinMBps: ptr.To(int64(50000)),
				MaxMBps: ptr.To(int64(200000)), Pairs: 4},
			{Letter: "b", Type: "XGMI", Hops: ptr.To(int32(1)), Weight: 15, MinMBps: ptr.To(int64(50000)),
				MaxMBps: ptr.To(int64(50000)), Pairs: 4},
			{Letter: "c", Type: "XGMI", Hops: ptr.To(int32(2)), Weight: 30, Pairs: 4},
		},
		RAS: &v1alpha1.RASFacts{Uncorrectable: ptr.To(int64(2)), Correctable: ptr.To(int64(6)),
			RetiredPages: ptr.To(int64(3)), Unreadable: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	for _, code := range []string{v1alpha1.ProblemMixedFirmware, v1alpha1.ProblemErrorCountUnreadable} {
		if !strings.Contains(strings.Join(problems, " "), code) {
			t.Errorf("problems %v lack %s", problems, code)
		}
	}
}

func (f *Facts) numaOf(address string) int32 {
	for i := range f.GPUs {
		if f.GPUs[i].PCIAddress == address {
			return *f.GPUs[i].NUMANode
		}
	}
	return -1
}

func (f *Facts) nicOf(address string) string {
	for i := range f.GPUs {
		if f.GPUs[i].PCIAddress == address {
			return f.GPUs[i].NIC
		}
	}
	return ""
}

// TestNodeFactsPartitions: two hives are numbered, partitions counted, and a GPU of another mode says so.
func TestNodeFactsPartitions(t *testing.T) {
	n := scan(t, inMemory(t, "MI210", func(n *nodetree.Node) { n.GPUs[7].Hive = -1 }), Options{}).NodeFacts(time.Minute)
	hives := []int32{}
	for _, g := range n.GPUs {
		hives = append(hives, *g.Hive)
	}
	if diff := cmp.Diff([]int32{1, 1, 1, 1, 2, 2, 2, 0}, hives); diff != "" {
		t.Error(diff)
	}
	tree := inMemory(t, "MI300X", func(n *nodetree.Node) { n.Partition = nodetree.CPX })
	tree.Set(gpuFile(t, tree, mi300x[2], "current_memory_partition"), "NPS4\n")
	n = scan(t, tree, Options{}).NodeFacts(time.Minute)
	if n.DeviceCount != 64 || n.GPUs[0].Devices != 8 || n.Partition != "mixed" || n.GPUs[2].Partition != "CPX/NPS4" ||
		n.GPUs[3].Partition != "CPX/NPS1" {
		t.Errorf("%d devices, partition %s, GPUs %+v", n.DeviceCount, n.Partition, n.GPUs[:4])
	}
}

// TestNothingChangesNothing: two scans of one tree give the same facts, whatever moves while a node runs.
func TestNothingChangesNothing(t *testing.T) {
	tree := inMemory(t, "MI300X", nil)
	facts := func() string {
		n := scan(t, tree, Options{}).NodeFacts(time.Minute)
		n.ObservedTime = metav1.Time{}
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := facts()
	for range 20 {
		if got := facts(); got != want {
			t.Fatalf("facts of the same tree differ:\n%s\n%s", want, got)
		}
	}
	for _, file := range tree.Files() {
		if strings.Contains(file, "gpu_metrics") || strings.Contains(file, "/hwmon") ||
			strings.Contains(file, "mem_info_vram_used") {
			tree.Remove(file)
		}
	}
	if got := facts(); got != want {
		t.Errorf("live values are among the facts:\n%s\n%s", want, got)
	}
}

// randomFacts makes facts of any size and text within what a scan can give, and beyond.
func randomFacts(rnd *rand.Rand) *Facts {
	letters := []string{"a", "é", "<", "\"", "\\", "日", "\u2028", "&", " ", "0", "\x01", "\xff"}
	text := func(most int) string {
		var b strings.Builder
		kind := rnd.IntN(len(letters) + 3)
		for range rnd.IntN(most + 1) {
			if kind < len(letters) {
				b.WriteString(letters[kind])
			} else {
				b.WriteString(letters[rnd.IntN(len(letters))])
			}
		}
		return b.String()
	}
	number := func() *uint64 {
		if rnd.IntN(4) == 0 {
			return nil
		}
		return ptr.To(rnd.Uint64() >> rnd.IntN(64))
	}
	node := func() *int32 {
		if rnd.IntN(4) == 0 {
			return nil
		}
		return ptr.To(rnd.Int32())
	}
	f := &Facts{ObservedTime: time.Unix(rnd.Int64N(1<<33), 0), Origin: v1alpha1.OriginSimulated,
		KernelRelease: text(200), BootID: text(100), Model: text(100), GFXTarget: text(100), Partition: text(60),
		Function: FunctionPhysical, pciReadable: rnd.IntN(2) == 0, PCIGPUs: make([]PCIGPU, rnd.IntN(99)),
		Driver: DriverFacts{Kind: DriverDKMS, Version: text(128), SrcVersion: text(128)},
		ROCm: ROCmFacts{State: ROCmFound, Version: text(99),
			Source: text(400), HIPVersion: text(99), RCCLVersion: text(99)},
		Mesh: Mesh{State: MeshIncomplete, Hives: rnd.IntN(64), Links: rnd.IntN(4096), LinkBandwidthMBps: number()}}
	gpus := []int{0, 1, 8, 16, 17, 64}[rnd.IntN(6)]
	f.Mesh.Pairs = make([][]*Link, gpus)
	for i := range gpus {
		g := GPU{PCIAddress: fmt.Sprintf("%04x:%02x:00.0", rnd.IntN(1<<20), rnd.IntN(256)),
			Model: text(99), ComputePartition: text(40), HiveID: number(), NUMANode: node(),
			VRAMBytes: number(), NIC: text(60), NICPath: NearSwitch, Nodes: make([]int, rnd.IntN(9)),
			XGMIUncorrectableErrors: number(), rasUnread: rnd.IntN(9) == 0}
		if rnd.IntN(2) == 0 {
			g.RAS = map[string]ErrorCounts{"umc": {Uncorrectable: rnd.Uint64(), Correctable: rnd.Uint64(),
				Deferred: number()}}
		}
		if rnd.IntN(2) == 0 {
			g.Module = ptr.To(rnd.IntN(99))
		}
		f.GPUs = append(f.GPUs, g)
		f.Mesh.Pairs[i] = make([]*Link, gpus)
		for j := range gpus {
			if i != j && rnd.IntN(5) > 0 {
				f.Mesh.Pairs[i][j] = &Link{Type: LinkXGMI, Weight: rnd.Uint64() >> rnd.IntN(64), Hops: number(),
					MinBandwidthMBps: number(), MaxBandwidthMBps: number()}
			}
		}
		f.Devices = append(f.Devices, Device{FWVersion: number(), SDMAVersion: number()})
	}
	for range []int{0, 1, 8, 16, 128}[rnd.IntN(5)] {
		n := NIC{Name: text(60), Interface: text(60), LinkLayer: LinkEthernet, State: PortActive, NUMANode: node(),
			RateMbps: ptr.To(rnd.Int64())}
		if rnd.IntN(3) == 0 {
			n.State = PortDown
		}
		f.NICs = append(f.NICs, n)
	}
	for range []int{0, 1, 3, 12, 13, 64}[rnd.IntN(6)] {
		p := v1alpha1.Problem{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemLinkMissing,
			GPU: text(30), PeerGPU: text(30), NIC: text(60), Path: text(300), GPUs: []string{text(30), text(30)},
			Message: "x" + text(900)}
		if rnd.IntN(2) == 0 {
			p.Severity = v1alpha1.SeverityWarning
		}
		f.Problems = append(f.Problems, p)
	}
	SortProblems(f.Problems)
	return f
}

// TestAnyFactsFit: whatever was found, it fits, keeps to the API's bounds, keeps its worst problem, and says what went.
func TestAnyFactsFit(t *testing.T) {
	for seed := range uint64(1500) {
		f := randomFacts(rand.New(rand.NewPCG(seed, 1)))
		n := checkNodeFacts(t, f)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if n.Driver.Kind != "DKMS" || n.XGMI.Mesh != MeshIncomplete || int(n.DeviceCount) != len(f.Devices) {
			t.Fatalf("seed %d: %d devices, mesh %s, driver %s", seed, n.DeviceCount, n.XGMI.Mesh, n.Driver.Kind)
		}
		note := ""
		for _, p := range n.Problems {
			if p.Code == v1alpha1.ProblemMoreProblems {
				note = p.Message
			}
		}
		links := len(f.GPUs) <= 16 && len(f.GPUs) > 1 && len(n.LinkClasses) == 0 && f.Mesh.Pairs[0][1] != nil
		if (len(n.NICs) < len(f.NICs) || len(n.GPUs) < len(f.GPUs) || len(n.Problems) < len(f.Problems) || links) &&
			note == "" {
			t.Fatalf("seed %d: %d of %d NICs, %d of %d GPUs, %d of %d problems, and no note",
				seed, len(n.NICs), len(f.NICs), len(n.GPUs), len(f.GPUs), len(n.Problems), len(f.Problems))
		}
		if len(f.Problems) > 0 &&
			(n.Problems[0].Code != v1alpha1.ProblemLinkMissing || n.Problems[0].Severity != f.Problems[0].Severity) {
			t.Fatalf("seed %d: the worst problem is not the first: %+v", seed, n.Problems[0])
		}
		if n.RAS != nil && (ptr.Deref(n.RAS.Uncorrectable, 0) < 0 || ptr.Deref(n.RAS.Correctable, 0) < 0 ||
			ptr.Deref(n.RAS.Deferred, 0) < 0) {
			t.Fatalf("seed %d: RAS %+v", seed, n.RAS)
		}
	}
}

// TestWhatGoesFirst: the node that the budget was made for keeps its links and names, and says what it left out.
func TestWhatGoesFirst(t *testing.T) {
	f := scan(t, inMemory(t, "MI250", nil), Options{})
	for i := range 16 {
		f.NICs = append(f.NICs[:i:i], NIC{Name: fmt.Sprintf("mlx5_%d", i),
			Interface: fmt.Sprintf("enp%ds0f0np0", 190+i), LinkLayer: LinkEthernet, State: PortActive,
			RateMbps: ptr.To(int64(400000)), NUMANode: ptr.To(int32(i / 8))})
	}
	f.NICs[5].State = PortDown
	for i := range 12 {
		f.Problems = append(f.Problems, v1alpha1.Problem{Severity: v1alpha1.SeverityError,
			Code: v1alpha1.ProblemLinkMissing, GPU: "0000:c1:00.0", PeerGPU: "0000:c6:00.0",
			Message: fmt.Sprintf("%d %s", i, strings.Repeat("words ", 40))})
	}
	n := checkNodeFacts(t, f)
	note := n.Problems[len(n.Problems)-1]
	want := "Left out, since a CommTask is small: 9 more problems, interfaces and NUMA nodes of NICs, 15 Active " +
		"NICs, VRAM and NUMA nodes of GPUs. Run \"agent discover\" on the node to see them."
	if note.Code != v1alpha1.ProblemMoreProblems || note.Message != want || note.Severity != v1alpha1.SeverityError {
		t.Errorf("note %+v,\nwant %s", note, want)
	}
	if len(n.NICs) != 1 || n.NICs[0].Name != "mlx5_5" || n.GPUs[0].Links == "" || n.GPUs[15].NIC == "" ||
		*n.ModuleCount != 8 {
		t.Errorf("NICs %+v, GPU 0 %+v", n.NICs, n.GPUs[0])
	}
	f.Problems, f.NICs = nil, f.NICs[:8]
	if n := checkNodeFacts(t, f); len(n.Problems) != 0 || len(n.NICs) != 8 || n.NICs[0].Interface == "" {
		t.Errorf("a healthy node of 16 GPUs and 8 NICs lost something: %+v, NICs %+v", n.Problems, n.NICs)
	}
}

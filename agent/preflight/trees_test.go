package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// notMet lists findings that are not met as "Name State".
func notMet(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		if f.State != Met {
			out = append(out, f.Name+" "+string(f.State))
		}
	}
	slices.Sort(out)
	return out
}

// TestGeneratedNodes: on every node that the simulator makes, all that the tree can tell holds.
func TestGeneratedNodes(t *testing.T) {
	for _, model := range nodetree.Models() {
		t.Run(model, func(t *testing.T) {
			f := gather(t, goodHost(nodeTree(t, model)))
			need := goodNeed()
			need.Ranks, need.Flavor = len(f.Discovered.Devices), ""
			findings := CheckNode(f, need)
			if len(findings) != 8 {
				t.Errorf("%d findings before the library is known, expected 8: %+v", len(findings), findings)
			}
			var want []string
			if _, ruled := compat.ROCmFits(f.Discovered.GFXTarget, "10.0"); !ruled { // newer than the rules
				want = []string{"ROCmVersion Unknown"}
			}
			findings = append(findings, CheckRanks(f, goodRanks(f, need.Ranks), need)...)
			if bad := notMet(findings); !slices.Equal(bad, want) || len(findings) != 16 {
				t.Errorf("%d findings, not met: %v, expected %v", len(findings), bad, want)
			}
		})
	}
}

// TestPodHost reads a generated node as agent run does, with this machine's network and limits.
func TestPodHost(t *testing.T) {
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "sim-node-0"
	dir := t.TempDir()
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	host := PodHost{Root: dir}
	if id, err := host.BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
	need := goodNeed()
	need.Ranks = 1 // this machine's /dev/shm may be small
	f := gather(t, host)
	for _, x := range CheckNode(f, need) {
		if x.State == Failed || x.State == Unknown {
			t.Errorf("%+v", x)
		}
	}
	if f.KFDProcesses == nil || len(f.KFDProcesses) != 0 {
		t.Errorf("processes %+v, expected an empty list", f.KFDProcesses)
	}
	if _, err := (PodHost{Root: filepath.Join(dir, "none")}).OpenRoot(); err == nil {
		t.Error("a root that is not there was opened")
	}
}

// TestFixtures holds trees of real and synthetic machines against a run over eight GPUs.
func TestFixtures(t *testing.T) {
	for name, want := range map[string][]string{
		"synthetic/mi300x-8x-spx-64000.txtar":            nil,
		"synthetic/mi300x-8x-spx-old-driver-50000.txtar": {"ROCmVersion Failed"}, // ROCm 6.2.4
		"synthetic/mi355x-8x-spx-bw0.txtar":              nil,
		"synthetic/mi300x-8x-vf.txtar":                   nil,
		"synthetic/mi300x-8x-builtin-driver.txtar":       nil,
		"synthetic/mi300x-gpu-gone.txtar":                {"GPUCount Failed"},
		"synthetic/mi300x-gpu-not-bound.txtar":           {"GPUCount Failed"},
		"synthetic/odd-truncated-properties.txtar":       nil, // the node is listed all the same
		"synthetic/odd-cpu-only.txtar": {"GPUCount Failed", "IOMMU Unknown", "NUMABalancing Unknown",
			"ROCmVersion Unknown"},
		"synthetic/odd-empty-nodes.txtar": {"GPUCount Failed", "IOMMU Unknown", "NUMABalancing Unknown",
			"ROCmVersion Unknown"},
		"mi210-8x-two-hives/tree.txtar": {"IOMMU Unknown", "NUMABalancing Unknown", "ROCmVersion Unknown"},
		"mi25-1gpu-old-kernel/tree.txtar": {"GPUCount Failed", "IOMMU Unknown", "NUMABalancing Unknown",
			"ROCmVersion Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			need := goodNeed()
			need.Flavor = ""
			if got := notMet(CheckNode(gather(t, goodHost(fixtureTree(t, name))), need)); !slices.Equal(got, want) {
				t.Errorf("not met: %v, expected %v", got, want)
			}
		})
	}
}

// TestCommandLines of real machines.
func TestCommandLines(t *testing.T) {
	dir := filepath.Join(fixtures(t), "text")
	tree := nodeTree(t, "MI300X")
	for name, want := range map[string]State{"cmdline-amd-recommended.txt": Met, "cmdline-hang-then-fixed.txt": Met,
		"cmdline-missing-iommu.txt": Unknown, "cmdline-trap-iommu-ptx.txt": Unknown} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f := gather(t, goodHost(tree.with(map[string]string{cmdlinePath: string(text)})))
		if got := one(t, CheckNode(f, goodNeed()), IOMMU); got.State != want {
			t.Errorf("%s: %+v, expected %s", name, got, want)
		}
	}
}

// nvidiaHost has four GPUs, and no trace of AMD's driver.
func nvidiaHost() memHost {
	fs := memFS{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20\n",
		"proc/cmdline":              "ro quiet\n",
		"proc/sys/kernel/osrelease": "6.8.0-60-generic\n", numaPath: "1\n", "sys/module/nvidia/version": "570.133.20\n"}
	for _, pci := range []string{"0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0", "0000:5d:00.0"} {
		fs["proc/driver/nvidia/gpus/"+pci+"/information"] = "Model: NVIDIA H200\n"
		fs["sys/bus/pci/devices/"+pci+"/vendor"], fs["sys/bus/pci/devices/"+pci+"/class"] = "0x10de\n", "0x030200\n"
	}
	return goodHost(fs)
}

// TestNVIDIA: what is AMD's own is not in the list at all, before and after the library is known.
func TestNVIDIA(t *testing.T) {
	f := gather(t, nvidiaHost())
	need := Need{Ranks: 4, Nodes: 1, Variants: []rcclx.Variant{rcclx.Baseline}, Environ: []string{"NCCL_HOSTID=n"},
		MemoryBytes: 1 << 30}
	ranks := goodRanks(f, 4)
	for i := range ranks {
		ranks[i].Library.Flavor, ranks[i].Library.TotalMemoryBytes, ranks[i].Library.FreeMemoryBytes = rcclx.FlavorNCCL,
			80<<30, 79<<30
	}
	findings := CheckNode(f, need)
	findings = append(findings, CheckRanks(f, ranks, need)...)
	// Nothing tells here whether somebody computes with little memory.
	if bad := notMet(findings); !slices.Equal(bad, []string{"GPUBusy Unknown"}) {
		t.Errorf("not met: %v", bad)
	}
	for _, x := range findings {
		if table[x.Name].AMDOnly {
			t.Errorf("%+v on an NVIDIA node", x)
		}
	}
	if got := one(t, findings, GPUCount); !strings.Contains(got.Message, "shows 4 GPUs, 4 ranks") {
		t.Errorf("%+v", got)
	}
	if got := one(t, findings, GPUBusy); !strings.Contains(got.Message, "no list of processes") {
		t.Errorf("%+v", got)
	}

	for name, want := range map[string]State{"CUDA_VISIBLE_DEVICES=1": Failed, "ROCR_VISIBLE_DEVICES=1": Met,
		"HIP_VISIBLE_DEVICES=1": Met} {
		masked := need
		masked.Environ = []string{name}
		if got := one(t, CheckNode(f, masked), HiddenGPUs); got.State != want {
			t.Errorf("%s: %+v, expected %s", name, got, want)
		}
	}
	need.Ranks = 8
	if got := one(t, CheckNode(f, need), GPUCount); got.State != Failed {
		t.Errorf("%+v, expected that four GPUs are too few", got)
	}
	swap(ranks, 0, 3)
	if got := one(t, CheckRanks(f, ranks, need), GPUOrder); got.State != Warning ||
		!strings.Contains(got.Message, "ordinal 0 is GPU 0000:5d:00.0") || got.Rank != 1 {
		t.Errorf("%+v", got)
	}
	bare := goodHost(memFS{"proc/cmdline": "ro\n"}) // a sandbox that shows no driver
	if got := one(t, CheckNode(gather(t, bare), need), GPUCount); got.State != Unknown {
		t.Errorf("%+v, expected unknown", got)
	}
}

// partitionedTree is a node with eight MI300X in CPX mode.
func partitionedTree(t *testing.T) memFS {
	t.Helper()
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name, n.Partition = "sim-node-0", nodetree.CPX
	dir := t.TempDir()
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	return treeOf(t, dir)
}

// TestPartitions: ranks on the partitions of one GPU share its address.
func TestPartitions(t *testing.T) {
	f := gather(t, goodHost(partitionedTree(t)))
	need := goodNeed()
	need.Ranks = 64
	ranks := goodRanks(f, 64)
	findings := append(CheckNode(f, need), CheckRanks(f, ranks, need)...)
	if bad := notMet(findings); len(bad) > 0 {
		t.Errorf("not met: %v", bad)
	}
	ranks[63].Library.PCIAddress = ranks[0].Library.PCIAddress
	if got := one(t, CheckRanks(f, ranks, need), SharedGPU); got.State != Failed ||
		!strings.Contains(got.Message, "which has 8 partitions") {
		t.Errorf("nine ranks on eight partitions: %+v", got)
	}
	f.Discovered = nil
	if got := one(t, CheckRanks(f, ranks, need), SharedGPU); got.State != Unknown {
		t.Errorf("nothing discovered: %+v", got)
	}
}

// TestBusyPartition: another job on a partition of the ranks' GPU is no error, and names the ranks that it may slow.
func TestBusyPartition(t *testing.T) {
	tree := partitionedTree(t)
	plain := gather(t, goodHost(tree))
	for name, tc := range map[string]struct {
		busy  int // device that the other process is on
		file  string
		ranks []int // devices that ours are on
		state State
		rank  int
		text  string
	}{
		"computes beside one rank": {3, "stats_%s/cu_occupancy", []int{0, 8}, Warning, 0, "computes on partition 3 " +
			"of GPU 0000:05:00.0, on whose partitions rank 0 may be, with 38 compute units in use"},
		"computes beside three": {12, "stats_%s/cu_occupancy", []int{0, 8, 9, 15}, Warning, 1,
			"on whose partitions ranks 1, 2 and 3 may be"},
		"holds memory": {12, "vram_%s", []int{0, 8}, Warning, 1,
			"holds 17179869184 bytes of partition 4 of GPU"},
		"on another GPU":               {24, "stats_%s/cu_occupancy", []int{0, 8}, Met, -1, "no other process"},
		"on another GPU, holds memory": {24, "vram_%s", []int{0, 8}, Met, -1, "no other process"},
	} {
		t.Run(name, func(t *testing.T) {
			id := fmt.Sprint(*plain.Discovered.Devices[tc.busy].GPUID)
			value := "38\n"
			if strings.HasPrefix(tc.file, "vram") {
				value = "17179869184\n"
			}
			f := gather(t, goodHost(tree.with(map[string]string{kfdProc + "4711/" + fmt.Sprintf(tc.file, id): value})))
			ranks := goodRanks(f, len(tc.ranks))
			for i, d := range tc.ranks {
				ranks[i].Library.PCIAddress = f.Discovered.Devices[d].PCIAddress
			}
			got := one(t, CheckRanks(f, ranks, goodNeed()), GPUBusy)
			if got.State != tc.state || got.Rank != tc.rank || !strings.Contains(got.Message, tc.text) {
				t.Errorf("%+v, expected %s at rank %d with %q", got, tc.state, tc.rank, tc.text)
			}
		})
	}
	// A container that is shown one partition of the GPU only.
	f := gather(t, goodHost(tree.with(map[string]string{kfdProc + "4711/stats_" +
		fmt.Sprint(*plain.Discovered.Devices[0].GPUID) + "/cu_occupancy": "38\n"})))
	f.Discovered.Devices = f.Discovered.Devices[:1]
	if got := one(t, CheckRanks(f, goodRanks(f, 1), Need{Ranks: 1, Flavor: rcclx.FlavorRCCL}),
		GPUBusy); got.State != Warning {
		t.Errorf("one partition shown: %+v", got)
	}
}

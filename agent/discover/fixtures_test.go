package discover

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// brief is the facts of a fixture in the words of its test.
type brief struct {
	Model, GFX, Partition string
	GPUs, Devices, Hives  int
	Mesh, Links           string // Full, 56/56
	BandwidthMBps         uint64 // 0: none stated
	Driver, ROCm          string
	Counts                string // PCI, render nodes, modules and function
	Problems              []string
}

// countsOf is what the sources beside KFD count; "?" is not known.
func countsOf(f *Facts) string {
	number := func(n *int) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	var pci *int
	if f.pciReadable {
		n := len(f.PCIGPUs)
		pci = &n
	}
	return fmt.Sprintf("PCI %s, render nodes %s, modules %s, %s",
		number(pci), number(f.RenderNodes), number(f.Modules), f.Function)
}

func briefOf(f *Facts) brief {
	b := brief{Model: f.Model, GFX: f.GFXTarget, Partition: f.Partition, GPUs: len(f.GPUs), Devices: len(f.Devices),
		Hives: f.Mesh.Hives, Mesh: f.Mesh.State, Links: fmt.Sprint(f.Mesh.Links, "/?"),
		Driver: strings.TrimSpace(f.Driver.Kind + " " + f.Driver.Version),
		ROCm:   strings.TrimSpace(f.ROCm.State + " " + f.ROCm.Version), Counts: countsOf(f), Problems: problemLines(f)}
	if f.Mesh.ExpectedLinks != nil {
		b.Links = fmt.Sprint(f.Mesh.Links, "/", *f.Mesh.ExpectedLinks)
	}
	b.Links = strings.ReplaceAll(b.Links, " ", "")
	if f.Mesh.LinkBandwidthMBps != nil {
		b.BandwidthMBps = *f.Mesh.LinkBandwidthMBps
	}
	return b
}

// healthy is what the tests' common MI300X node shows; each case changes what its fixture changes.
func healthy(change func(*brief)) brief {
	b := brief{Model: "MI300X", GFX: "gfx942", Partition: "SPX/NPS1", GPUs: 8, Devices: 8, Hives: 1,
		Mesh: "Full", Links: "56/56", BandwidthMBps: 64000, Driver: "DKMS 6.14.14", ROCm: "Found 7.0.2",
		Counts: "PCI 8, render nodes ?, modules 8, Physical", Problems: []string{}}
	if change != nil {
		change(&b)
	}
	return b
}

// bare is a dump of KFD alone: no driver, no ROCm, no PCI.
func bare(change func(*brief)) brief {
	b := brief{Mesh: "Unknown", Links: "0/?", Model: "unknown", GFX: "unknown", Partition: "unknown", Driver: "Unknown",
		ROCm: "NotFound", Counts: "PCI ?, render nodes ?, modules ?, Unknown", Problems: []string{}}
	change(&b)
	return b
}

func rocmOnly(rocm string, problems ...string) brief {
	return bare(func(b *brief) {
		b.ROCm, b.Problems = rocm, append([]string{"Error SysfsUnreadable sys"}, problems...)
	})
}

var fixtureCases = map[string]brief{
	"synthetic/mi300x-8x-spx-64000.txtar": healthy(nil),
	"synthetic/odd-unique-id-zero.txtar":  healthy(nil),
	"synthetic/mi300x-8x-spx-old-driver-50000.txtar": healthy(func(b *brief) {
		b.BandwidthMBps, b.Driver, b.ROCm = 50000, "DKMS 6.8.5", "Found 6.2.4"
		b.Problems = []string{"Warning ROCmTooOld opt/rocm/.info/version"}
	}),
	"synthetic/mi350x-8x-spx.txtar": healthy(func(b *brief) {
		b.Model, b.GFX, b.Driver, b.ROCm = "MI350X", "gfx950", "DKMS 6.16.6", "Found 7.1.1"
	}),
	"synthetic/mi355x-8x-spx-bw0.txtar": healthy(func(b *brief) {
		b.Model, b.GFX, b.Driver, b.ROCm, b.BandwidthMBps = "MI355X", "gfx950", "DKMS 6.16.13", "Found 7.2.1", 0
	}),
	"synthetic/mi300x-8x-vf.txtar": healthy(func(b *brief) {
		b.Model, b.Partition, b.Driver, b.ROCm = "MI300X VF", "SPX/unknown", "DKMS 6.12.12", "Found 6.4.1"
		b.Counts = "PCI 8, render nodes ?, modules 8, Virtual"
	}),
	"synthetic/mi300x-8x-intree-no-rocm.txtar": healthy(func(b *brief) { b.Driver, b.ROCm = "InTree", "NotFound" }),
	"synthetic/mi300x-8x-builtin-driver.txtar": healthy(func(b *brief) { b.Driver = "BuiltIn" }),
	"synthetic/mi300x-gpu-not-bound.txtar": healthy(func(b *brief) {
		b.GPUs, b.Devices, b.Mesh, b.Links = 7, 7, "Incomplete", "42/56"
		b.Problems = []string{"Error GPUNotInKFD 0000:e7:00.0"}
		b.Counts = "PCI 8, render nodes ?, modules 7, Physical"
	}),
	"synthetic/mi300x-gpu-gone.txtar": healthy(func(b *brief) {
		b.GPUs, b.Devices, b.Mesh, b.Links = 7, 7, "Incomplete", "42/56"
		b.Problems = []string{"Error GPUMissing"}
		b.Counts = "PCI 7, render nodes ?, modules 7, Physical"
	}),
	"synthetic/mi300x-hive-split.txtar": healthy(func(b *brief) {
		b.Hives, b.Mesh, b.Links = 2, "Incomplete", "24/56"
		b.Problems = []string{"Error HiveSplit"}
	}),
	"synthetic/mi300x-pair-fell-to-pcie.txtar": healthy(func(b *brief) {
		b.Mesh, b.Links = "Incomplete", "54/56"
		b.Problems = []string{"Error PCIeInsteadOfXGMI 0000:65:00.0<->0000:d5:00.0"}
	}),
	"synthetic/mi300x-pair-half-bandwidth.txtar": healthy(func(b *brief) {
		b.Problems = []string{"Error LinkBandwidth 0000:2b:00.0<->0000:7d:00.0"}
	}),
	"synthetic/mi300x-mixed-models.txtar": healthy(func(b *brief) {
		b.Model, b.Problems = "mixed", []string{"Error MixedModels 0000:e7:00.0"}
	}),
	"synthetic/mi300x-pcie-degraded-numa-unknown.txtar": healthy(func(b *brief) {
		b.Problems = []string{"Warning NUMAUnknown 0000:2b:00.0 0000:7d:00.0", "Warning PCIeDegraded 0000:65:00.0",
			"Warning PCIeDegraded 0000:d5:00.0"}
	}),
	"synthetic/mi300x-xgmi-init-failed.txtar": healthy(func(b *brief) {
		b.Hives, b.Mesh, b.Links, b.BandwidthMBps = 0, "Incomplete", "0/56", 0
		b.Problems = []string{"Error XGMINotInitialised"}
	}),
	"synthetic/odd-truncated-properties.txtar": healthy(func(b *brief) {
		b.Mesh = "Unknown"
		b.Problems = []string{"Error SysfsUnreadable sys/class/kfd/kfd/topology/nodes/4/properties"}
	}),
	"synthetic/odd-empty-nodes.txtar":             bare(func(b *brief) { b.Problems = []string{"Error NoGPUs"} }),
	"synthetic/odd-cpu-only.txtar":                bare(func(b *brief) { b.Problems = []string{"Error NoGPUs"} }),
	"synthetic/rocm-legacy-6.4.1.txtar":           rocmOnly("Found 6.4.1"),
	"synthetic/rocm-legacy-short.txtar":           rocmOnly("Found 7.2.4"),
	"synthetic/rocm-legacy-dev-only.txtar":        rocmOnly("Found 5.4.2"),
	"synthetic/rocm-header-only.txtar":            rocmOnly("Found 6.4.1"),
	"synthetic/rocm-versioned-dirs-no-link.txtar": rocmOnly("Ambiguous", "Warning ROCmAmbiguous opt"),
	"synthetic/rocm-garbage.txtar": rocmOnly("Unreadable",
		"Warning ROCmUnreadable opt/rocm/.info/version"),
	"synthetic/rocm-empty.txtar": rocmOnly("Unreadable",
		"Warning ROCmUnreadable opt/rocm/.info/version"),
	"mi210-8x-two-hives/tree.txtar": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices, b.Hives = "MI210", "gfx90a", "NotApplicable", 8, 8, 2
		b.Mesh, b.Links, b.BandwidthMBps = "Full", "24/24", 50000
		b.Counts = "PCI ?, render nodes ?, modules 8, Physical"
	}),
	"mi25-1gpu-old-kernel/tree.txtar": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices = "MI25", "gfx900", "NotApplicable", 1, 2
		b.Mesh, b.Links, b.Problems = "NotApplicable", "0/0", []string{"Warning LinkInconsistent " + nodesDir + "/2"}
		b.Counts = "PCI ?, render nodes ?, modules 1, Physical"
	}),
	"mi100-node-properties/tree.txtar": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices = "MI100", "gfx908", "NotApplicable", 1, 1
		b.Mesh, b.Links = "NotApplicable", "0/0"
		b.Counts = "PCI ?, render nodes ?, modules 1, Physical"
	}),
	"mi300x-spx-node-properties/tree.txtar": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices, b.Hives = "MI300X", "gfx942", "SPX/unknown", 1, 1, 1
		b.Mesh, b.Links, b.Problems = "Incomplete", "0/56", []string{"Warning GPUMissing"}
		b.Counts = "PCI ?, render nodes ?, modules 1, Physical"
	}),
	"mi300x-2of8-cpx-trimmed/tree.txtar": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices, b.Hives = "MI300X", "gfx942", "CPX/unknown", 2, 15, 1
		b.Mesh, b.Links = "Incomplete", "2/56"
		b.Problems = []string{"Error PartitionMissing 0000:e5:00.0", "Warning GPUMissing"}
		b.Counts = "PCI ?, render nodes ?, modules 2, Physical"
	}),
	"mi300x-8x-cpx-nps-full/sys.tar.gz": bare(func(b *brief) {
		b.Model, b.GFX, b.Partition, b.GPUs, b.Devices, b.Hives = "MI300X", "gfx942", "CPX/unknown", 8, 63, 1
		b.Mesh, b.Links, b.Problems = "Full", "56/56", []string{"Error PartitionMissing 0000:e5:00.0"}
		b.Counts = "PCI ?, render nodes ?, modules 8, Physical"
	}),
}

func TestFixtures(t *testing.T) {
	for name, want := range fixtureCases {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			f := scan(t, memTree(t, name), Options{})
			if diff := cmp.Diff(want, briefOf(f)); diff != "" {
				t.Errorf("facts differ (-want +got):\n%s", diff)
			}
			checkNodeFacts(t, f)
			var table strings.Builder
			if err := f.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			if f.Healthy() != !strings.Contains(table.String(), "Verdict: NOT HEALTHY") {
				t.Errorf("verdict does not say what Healthy() = %v says:\n%s", f.Healthy(), table.String())
			}
		})
	}
}

// TestOnDisk: a tree on disk gives the same facts as in memory.
func TestOnDisk(t *testing.T) {
	tree, dir := memTree(t, healthyTree), t.TempDir()
	for name, text := range tree {
		write(t, dir, name, []byte(text))
	}
	options := Options{Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	got, want := scan(t, openRoot(t, dir), options), scan(t, tree, options)
	if diff := cmp.Diff(want.NodeFacts(time.Minute), got.NodeFacts(time.Minute)); diff != "" {
		t.Errorf("facts differ (-memory +disk):\n%s", diff)
	}
}

// TestEveryFixtureHasACase keeps a new fixture from going untested.
func TestEveryFixtureHasACase(t *testing.T) {
	root := fixtures(t)
	for _, pattern := range []string{"synthetic/*.txtar", "*/tree.txtar", "*/sys.tar.gz"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := fixtureCases[filepath.ToSlash(name)]; !ok {
				t.Errorf("fixture %s has no case", name)
			}
		}
	}
}

// TestGPUDetails looks at one GPU of a fixture in full.
func TestGPUDetails(t *testing.T) {
	f := scan(t, memTree(t, "synthetic/mi300x-8x-spx-64000.txtar"), Options{})
	g := f.GPUs[0]
	got := fmt.Sprintf("%s %s %v hive %d of %d, slot %d, NUMA %d, %d MiB, id %s, errors %d %d, %d MT/s x%d",
		g.PCIAddress, g.DeviceID, g.Nodes, *g.HiveID, *g.HiveNodes, *g.XGMIPhysicalID, *g.NUMANode, *g.VRAMBytes>>20,
		g.UniqueID, *g.XGMIUncorrectableErrors, *g.XGMICorrectableErrors, *g.PCIe.SpeedMTps, *g.PCIe.Width)
	want := "0000:05:00.0 0x74a1 [2] hive 1229782938247303441 of 8, slot 0, NUMA 0, 196592 MiB, id 5555555555555555, " +
		"errors 0 0, 32000 MT/s x16"
	if got != want {
		t.Errorf("GPU 0 is\n%s, want\n%s", got, want)
	}
	link := f.Mesh.Pairs[0][1]
	if link.Type != LinkXGMI || link.Weight != 15 || *link.Hops != 1 || *link.MinBandwidthMBps != 64000 {
		t.Errorf("link 0->1 is %+v", link)
	}
	if f.KernelRelease != "6.8.0-60-generic" || *f.Host.NUMABalancing != 0 || f.Host.IOMMU != IOMMUPassthrough ||
		*f.Generation != 2 {
		t.Errorf("kernel %q, settings %+v, generation %v", f.KernelRelease, f.Host, f.Generation)
	}
	if f.Origin != v1alpha1.OriginHardware {
		t.Errorf("origin %s of a tree without simrocm.conf", f.Origin)
	}
}

package discover

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

// TestMixedModes: KFD states 15 x hops and a bandwidth for an unpartitioned GPU, 41 and no bandwidth for a partition.
// The two say nothing of each other; what one side states by its own rule still counts.
func TestMixedModes(t *testing.T) {
	type side struct {
		weight uint64
		mbps   uint64 // 0 is not stated
	}
	direct, part := side{15, 64000}, side{41, 0}
	for name, c := range map[string]struct {
		modes       [3]string // of GPU a, b and c; c is b's twin
		there, back side      // between a and b
		want        []string
		mesh        string
	}{
		"one mode": {[3]string{"SPX", "SPX", "SPX"}, direct, direct, nil, MeshFull},
		"one mode, one way detours": {[3]string{"SPX", "SPX", "SPX"}, direct, side{30, 64000},
			[]string{"Error LinkAsymmetric a<->b"}, MeshIncomplete},
		"one mode, one way is narrow": {[3]string{"SPX", "SPX", "SPX"}, direct, side{15, 32000},
			[]string{"Error LinkAsymmetric a<->b"}, MeshFull},
		"one mode, both narrow": {[3]string{"SPX", "SPX", "SPX"}, side{15, 32000}, side{15, 32000},
			[]string{"Error LinkBandwidth a<->b"}, MeshFull},
		"one mode, a partition's cost": {[3]string{"SPX", "SPX", "SPX"}, part, part,
			[]string{"Warning LinkWeight a<->b"}, MeshFull},
		"each side by its rule":         {[3]string{"SPX", "CPX", "CPX"}, direct, part, nil, MeshFull},
		"each side by its rule, turned": {[3]string{"CPX", "SPX", "SPX"}, part, direct, nil, MeshFull},
		"two partition modes":           {[3]string{"DPX", "CPX", "CPX"}, part, part, nil, MeshFull},
		"both ways by the later GPU":    {[3]string{"SPX", "DPX", "DPX"}, part, part, nil, MeshFull},
		"both ways by the earlier GPU":  {[3]string{"SPX", "DPX", "DPX"}, direct, direct, nil, MeshFull},
		"bandwidths of two rules": {[3]string{"SPX", "CPX", "CPX"}, side{15, 32000},
			side{41, 64000}, nil, MeshFull},
		"the unpartitioned side has a detour": {[3]string{"CPX", "SPX", "SPX"}, part, side{30, 64000},
			[]string{"Error LinkWeight a<->b"}, MeshIncomplete},
		"the unpartitioned side knows no way": {[3]string{"SPX", "CPX", "CPX"}, side{0, 0}, part,
			[]string{"Error LinkWeight a<->b"}, MeshIncomplete},
		"one mode is not known": {[3]string{"", "CPX", "CPX"}, direct, part, nil, MeshFull},
		"no mode is known":      {[3]string{"", "", ""}, part, part, nil, MeshFull},
	} {
		t.Run(name, func(t *testing.T) {
			model, _ := LookupModel(0x74a1)
			f := &Facts{Generation: ptr.To(uint64(1)), GenerationStable: true, Model: model.Name, kfdPresent: true}
			var first [3]int
			for i, mode := range c.modes {
				g := GPU{PCIAddress: string(rune('a' + i)), Model: model.Name, model: model, HiveID: ptr.To(uint64(7)),
					Complete: true, ComputePartition: mode, ExpectedPartitions: partitionsOf(mode, model.XCDs)}
				first[i] = 10 * (i + 1)
				for n := range max(1, g.ExpectedPartitions) {
					g.Nodes = append(g.Nodes, first[i]+n)
				}
				f.GPUs = append(f.GPUs, g)
			}
			link := func(i, j int, s side) {
				for _, from := range f.GPUs[i].Nodes {
					for _, to := range f.GPUs[j].Nodes {
						if from == to {
							continue
						}
						r := linkRecord{from: from, to: to, kind: ioLinkXGMI, weight: s.weight}
						if s.mbps > 0 {
							r.minMBps, r.maxMBps = ptr.To(s.mbps), ptr.To(s.mbps)
						}
						f.linkRecords = append(f.linkRecords, r)
					}
				}
			}
			own := func(i int) side {
				if f.GPUs[i].partitioned() {
					return part
				}
				return direct
			}
			for i := range f.GPUs {
				link(i, i, side{13, 819200})
			}
			link(0, 1, c.there)
			link(1, 0, c.back)
			link(0, 2, own(0))
			link(2, 0, own(2))
			link(1, 2, own(1))
			link(2, 1, own(2))
			f.Mesh = buildMesh(f, 3)
			var l problemList
			checkFabric(&l, f)
			var got []string
			for _, p := range l {
				got = append(got, p.Severity+" "+p.Code+" "+p.Subject())
			}
			if diff := cmp.Diff(c.want, got); diff != "" || f.Mesh.State != c.mesh {
				t.Errorf("mesh %s, expected %s; problems (-want +got):\n%s", f.Mesh.State, c.mesh, diff)
			}
		})
	}
}

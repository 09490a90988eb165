package worker

import (
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestVariantsOverRealProcesses(t *testing.T) {
	root := node(t)
	const small, large = 65536, 16 << 20
	paths := map[rcclx.Variant]map[int64]rcclx.Path{
		rcclx.Baseline:     {small: rcclx.PathRingTree, large: rcclx.PathRingTree},
		rcclx.DDA:          {small: rcclx.PathDDAFlat, large: rcclx.PathDDATree},
		rcclx.LowPrecision: {small: rcclx.PathRingTree, large: rcclx.PathLowPrecision},
	}
	for _, v := range []rcclx.Variant{rcclx.Baseline, rcclx.DDA, rcclx.LowPrecision} {
		t.Run(string(v), func(t *testing.T) {
			var steps []rank.Step
			for _, c := range rcclx.Collectives() {
				sizes := []int64{small, large}
				if v != rcclx.LowPrecision && c != rcclx.AllReduce {
					sizes = sizes[:1] // only FP8 makes a difference at the large size
				}
				steps = append(steps, measure(c, rcclx.BFloat16, sizes...))
			}
			want := 5
			if v == rcclx.LowPrecision {
				want = 8
			}
			g := newGroup(root, v, steps...)
			g.run(t, true)
			g.requireDone(t)
			for at := range g.events {
				loaded := g.of(at, rank.EventLoaded)
				if len(loaded) != 1 || loaded[0].Library.Flavor != rcclx.FlavorSimulated ||
					loaded[0].Library.Gates() != rcclx.FlavorRCCLXDev || loaded[0].Library.BuildHash == "" ||
					loaded[0].Library.PCIAddress == "" || loaded[0].Library.FreeMemoryBytes == 0 {
					t.Fatalf("rank %d loaded %+v", at, loaded)
				}
				starts, measured := g.of(at, rank.EventStepStart), g.of(at, rank.EventMeasured)
				if len(starts) != want || len(measured) != want {
					t.Fatalf("rank %d: %d starts and %d measurements, want %d of each",
						at, len(starts), len(measured), want)
				}
				for i, e := range measured {
					m := e.Measurement
					if *starts[i].At != *e.At || m.Latency.MedianNanoseconds <= 0 || m.Latency.Repeats != 5 ||
						m.Checks[0].CheckedElements == 0 {
						t.Errorf("rank %d: %+v", at, m)
					}
					if m.Checks[0].WrongElements != 0 {
						t.Errorf("rank %d %s: %d wrong elements", at, e.At.String(), m.Checks[0].WrongElements)
					}
					quantised := v == rcclx.LowPrecision && m.SizeBytes == large
					if (m.Checks[0].MaxRelativeErrorPPM > 0) != quantised {
						t.Errorf("rank %d %s: relative error %d ppm, quantised should be %v",
							at, e.At.String(), m.Checks[0].MaxRelativeErrorPPM, quantised)
					}
					if m.Collective == rcclx.AllReduce && m.ExpectedPath != paths[v][m.SizeBytes] {
						t.Errorf("rank %d %s: path %s, want %s",
							at, e.At.String(), m.ExpectedPath, paths[v][m.SizeBytes])
					}
				}
			}
		})
	}
}

// Every field of a measurement, of a library without ncclReduce: it measures the rest.
func TestMeasurements(t *testing.T) {
	inPlace := measure(rcclx.AllReduce, rcclx.Float8E4M3, 100003)
	inPlace.Placement = rcclx.InPlace
	data := measure(rcclx.AllToAllv, rcclx.Float16, 100003)
	data.Data = []rcclx.Data{rcclx.DataGradients, rcclx.DataExact, rcclx.DataActivations}
	g := newGroup(node(t, "fault = missing-symbol:ncclReduce", "model = MI355X"), rcclx.Baseline, inPlace, data,
		measure(rcclx.Broadcast, rcclx.Int8, 100003), measure(rcclx.SendRecv, rcclx.Float64, 100003))
	g.spec.WorldSize, g.spec.NonBlocking = 3, true
	g.run(t, true)
	g.requireDone(t)
	for at := range g.events {
		if library := g.of(at, rank.EventLoaded)[0].Library; len(library.SettingsHash) != 16 ||
			library.SettingsHash != g.of(0, rank.EventLoaded)[0].Library.SettingsHash {
			t.Errorf("rank %d has the settings %q", at, library.SettingsHash)
		}
		measured := g.of(at, rank.EventMeasured)
		names := []string{"AllReduce Float8E4M3 100003 B in place", "AllToAllv Float16 100003 B",
			"Broadcast Int8 100003 B", "SendRecv Float64 100003 B"}
		counts := []int64{100003, 16667, 100003, 12500}
		for i, e := range measured {
			m := e.Measurement
			placement, checks := rcclx.OutOfPlace, []rcclx.Data{rcclx.DataExact}
			switch i {
			case 0:
				placement = rcclx.InPlace
			case 1:
				checks = data.Data
			}
			if e.At.String() != names[i] || m.Placement != placement || m.SizeBytes != 100003 ||
				m.CountElements != counts[i] || m.LaunchNanoseconds <= 0 ||
				len(m.Checks) != len(checks) || m.Wrong() != 0 {
				t.Fatalf("rank %d: %s %+v", at, e.At.String(), m)
			}
			for j, check := range m.Checks {
				if check.Data != checks[j] || check.CheckedElements == 0 {
					t.Errorf("rank %d %s: %+v", at, e.At.String(), check)
				}
			}
		}
		if len(measured) != len(names) {
			t.Errorf("rank %d measured %d steps of %d", at, len(measured), len(names))
		}
	}
}

// A count that FP8's code loses a tail of is flagged, and the loss is seen.
func TestHazardIsFlagged(t *testing.T) {
	sizes := append(rcclx.HazardSizes(rcclx.ReduceScatter, rcclx.Float32, 16<<20, 4), 16<<20)
	step := measure(rcclx.ReduceScatter, rcclx.Float32, sizes...)
	step.WarmupIterations, step.Iterations = 0, 1
	g := newGroup(node(t), rcclx.LowPrecision, step)
	g.spec.WorldSize = 4
	g.run(t, true)
	g.requireDone(t)
	for at := range g.events {
		for i, e := range g.of(at, rank.EventMeasured) {
			hazard := i < len(sizes)-1
			if m := e.Measurement; (m.Hazard != "") != hazard || m.ExpectedPath != rcclx.PathLowPrecision ||
				(m.Wrong() > 0) != hazard {
				t.Errorf("rank %d, %d elements: hazard %q, %+v", at, m.CountElements, m.Hazard, m.Checks)
			}
		}
	}
}

func TestPairProbe(t *testing.T) {
	g := newGroup(node(t, "fault = slow-link:2-5:25"), rcclx.Baseline,
		rank.Step{Kind: rank.StepPairProbe, SizesBytes: []int64{4 << 20}, WarmupIterations: 1, Iterations: 5})
	g.run(t, true)
	g.requireDone(t)
	bandwidth := map[[2]int]int64{}
	for at := range g.events {
		pairs := g.of(at, rank.EventPairMeasured)
		if len(pairs) != 7 {
			t.Fatalf("rank %d met %d peers, want 7", at, len(pairs))
		}
		for _, e := range pairs {
			if e.Pair.WrongElements != 0 || e.Pair.BandwidthMBps <= 0 {
				t.Errorf("rank %d: %+v", at, e.Pair)
			}
			bandwidth[[2]int{at, e.Pair.Peer}] = e.Pair.BandwidthMBps
		}
	}
	var all []int64
	for _, b := range bandwidth {
		all = append(all, b)
	}
	slices.Sort(all)
	median := all[len(all)/2]
	for pair, b := range bandwidth {
		slow := pair == [2]int{2, 5} || pair == [2]int{5, 2}
		if slow != (b < median*60/100) {
			t.Errorf("ranks %v exchange at %d MB/s, median %d; slow should be %v", pair, b, median, slow)
		}
	}
}

func TestProbeOnlyLoads(t *testing.T) {
	g := &group{root: node(t, "flavor = rccl-dda"), spec: rank.Spec{Node: "sim-node-0"}}
	g.run(t, true)
	g.requireDone(t)
	if loaded := g.of(0, rank.EventLoaded); len(loaded) != 1 || loaded[0].Library.VersionCode < 21300 {
		t.Errorf("loaded %+v", loaded)
	}
}

package executor

import (
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// Pair is two GPUs by ordinal, the smaller one first.
type Pair struct{ A, B int }

func pairOf(a, b int) Pair { return Pair{min(a, b), max(a, b)} }

// PairBandwidth is what was measured between two GPUs.
type PairBandwidth struct {
	Pair
	SizeBytes int64
	// BandwidthMBps of the slower direction.
	BandwidthMBps int64
	WrongElements int64
}

// PairBandwidths combines what both ends of each pair measured, by pair ascending. A pair that only one end reported
// counts as measured by that end.
func PairBandwidths(ranks []supervise.RankOutcome) []PairBandwidth {
	found := map[Pair]PairBandwidth{}
	for _, r := range ranks {
		for _, m := range r.Pairs {
			p := pairOf(r.Rank, m.Peer)
			b, ok := found[p]
			if !ok {
				b = PairBandwidth{Pair: p, SizeBytes: m.SizeBytes, BandwidthMBps: m.BandwidthMBps}
			}
			b.BandwidthMBps = min(b.BandwidthMBps, m.BandwidthMBps)
			b.WrongElements += m.WrongElements
			found[p] = b
		}
	}
	out := make([]PairBandwidth, 0, len(found))
	for _, b := range found {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b PairBandwidth) int {
		if a.A != b.A {
			return a.A - b.A
		}
		return a.B - b.B
	})
	return out
}

// LinkFindings is the judgement of a node's pairs.
type LinkFindings struct {
	Probe    *api.LinkProbe
	Culprits []api.Culprit
	// Seen is what was seen of the first culprit; its message has the next step, too.
	Seen string
}

// add names a culprit.
func (f *LinkFindings) add(c api.Culprit, seen, next string) {
	if len(f.Culprits) == 0 {
		f.Seen = seen
	}
	c.Message = seen + "; " + next
	f.Culprits = append(f.Culprits, c)
}

// JudgeLinks holds each pair against the node's median pair. A pair below minPercent of it is slow; where most pairs of
// one GPU are slow, that GPU is named, else the link. minPercent of zero only reports.
func JudgeLinks(node string, pairs []PairBandwidth, pci []string, minPercent int32) LinkFindings {
	if len(pairs) == 0 {
		return LinkFindings{}
	}
	sorted := slices.Clone(pairs)
	slices.SortStableFunc(sorted, func(a, b PairBandwidth) int {
		return int(min(max(a.BandwidthMBps-b.BandwidthMBps, -1), 1))
	})
	slowest := sorted[0]
	// The upper median: with four GPUs and one of them slow, half of the pairs are slow.
	median := sorted[len(sorted)/2].BandwidthMBps
	f := LinkFindings{Probe: &api.LinkProbe{SizeBytes: slowest.SizeBytes, MedianMBps: median,
		MinMBps: slowest.BandwidthMBps, Slowest: linkName(slowest.Pair, pci)}}
	for _, b := range pairs {
		if b.WrongElements > 0 {
			f.add(api.Culprit{Node: node, Kind: "Link", Name: linkName(b.Pair, pci), Reason: api.ReasonWrongData},
				fmt.Sprintf("send and receive of %d bytes between the two GPUs gave %d wrong elements, expected none",
					b.SizeBytes, b.WrongElements),
				"drain the node and check the RAS counters of both GPUs")
		}
	}
	limit := median * int64(minPercent) / 100
	slow := map[int][]PairBandwidth{}
	total := map[int]int{}
	for _, b := range pairs {
		total[b.A]++
		total[b.B]++
		if b.BandwidthMBps < limit {
			slow[b.A] = append(slow[b.A], b)
			slow[b.B] = append(slow[b.B], b)
		}
	}
	slowGPU := map[int]bool{}
	for g := range pci {
		if n := len(slow[g]); n >= 2 && 2*n > total[g] {
			slowGPU[g] = true
			worst := slices.MinFunc(slow[g], func(a, b PairBandwidth) int {
				return int(min(max(a.BandwidthMBps-b.BandwidthMBps, -1), 1))
			})
			f.add(api.Culprit{Node: node, Kind: "GPU", Name: gpuName(g, pci), Reason: api.ReasonSlowGPU},
				fmt.Sprintf("%d of its %d links are slow: the slowest, %s, moves %s, "+
					"%d %% of the node's median of %s, expected at least %d %%",
					n, total[g], linkName(worst.Pair, pci), units.Bandwidth(worst.BandwidthMBps),
					percent(worst.BandwidthMBps, median), units.Bandwidth(median), minPercent),
				"drain the node and check clocks, power cap and RAS counters of this GPU")
		}
	}
	for _, b := range sorted { // the slowest first
		if b.BandwidthMBps < limit && !slowGPU[b.A] && !slowGPU[b.B] {
			f.add(api.Culprit{Node: node, Kind: "Link", Name: linkName(b.Pair, pci), Reason: api.ReasonSlowLink},
				fmt.Sprintf("moves %s each way at %s, %d %% of the node's median pair of %s, expected at least %d %%",
					units.Bandwidth(b.BandwidthMBps), units.Size(b.SizeBytes), percent(b.BandwidthMBps, median),
					units.Bandwidth(median), minPercent),
				"check the xGMI error counters of both GPUs and reseat or replace the faulty one")
		}
	}
	return f
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return part * 100 / whole
}

// gpuName is a GPU's PCI address, or its ordinal where the address is not known.
func gpuName(ordinal int, pci []string) string {
	if ordinal >= 0 && ordinal < len(pci) && pci[ordinal] != "" {
		return pci[ordinal]
	}
	return fmt.Sprintf("GPU ordinal %d", ordinal)
}

func linkName(p Pair, pci []string) string { return gpuName(p.A, pci) + "<->" + gpuName(p.B, pci) }

// missingPairs says how many pairs of n ranks were not measured.
func missingPairs(pairs []PairBandwidth, n int) int { return n*(n-1)/2 - len(pairs) }

// pairStep is the name of the probe for messages.
const pairStep = string(rank.StepPairProbe)

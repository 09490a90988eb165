package judge

import (
	"cmp"
	"maps"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runplan"
)

// What the status holds of the nodes' results.
const (
	MaxGroupSeries = 72
	MaxSeriesSizes = 40
)

// unknownNoise stands for a size that no node reported the noise of.
const unknownNoise = -1

// maxLibraries bounds how many builds a run names.
const maxLibraries = 16

// Libraries are the builds of the communication library that the nodes loaded, the most frequent first.
func Libraries(outcomes []Outcome) []v1alpha1.RunLibrary {
	var out []v1alpha1.RunLibrary
	at := map[v1alpha1.LibraryFacts]int{}
	for i := range outcomes {
		r := outcomes[i].Report
		if r == nil || r.Library == nil {
			continue
		}
		k, seen := at[*r.Library]
		if !seen {
			k = len(out)
			at[*r.Library] = k
			out = append(out, v1alpha1.RunLibrary{LibraryFacts: *r.Library})
		}
		out[k].Nodes++
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.RunLibrary) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out[:min(len(out), maxLibraries)]
}

// AggregateResults makes one series over all nodes of each (variant, collective, datatype, placement), in the plan's
// order.
func AggregateResults(outcomes []Outcome) []v1alpha1.GroupResultSeries {
	type column struct {
		latencyNanoseconds, busBandwidthMBps []int64
		noisePercent                         []int64 // of the nodes that reported it
		slowest                              string
		slowestMBps                          int64
	}
	type table struct {
		nodes   int
		columns map[int64]*column
		wrong   int64
		errPPM  *int64
	}
	tables := map[runplan.Key]*table{}
	var order []runplan.Key
	for i := range outcomes {
		if outcomes[i].Report == nil {
			continue
		}
		for _, r := range outcomes[i].Report.Results {
			key := runplan.KeyOf(&r)
			t := tables[key]
			if t == nil {
				t = &table{columns: map[int64]*column{}}
				tables[key] = t
				order = append(order, key)
			}
			t.nodes++
			t.wrong += r.WrongElements
			if r.MaxRelativeErrorPPM != nil && (t.errPPM == nil || *r.MaxRelativeErrorPPM > *t.errPPM) {
				worst := *r.MaxRelativeErrorPPM
				t.errPPM = &worst
			}
			for j := range min(len(r.SizeBytes), len(r.LatencyNanoseconds), len(r.BusBandwidthMBps)) {
				c := t.columns[r.SizeBytes[j]]
				if c == nil {
					c = &column{}
					t.columns[r.SizeBytes[j]] = c
				}
				if c.slowest == "" || r.BusBandwidthMBps[j] < c.slowestMBps {
					c.slowest, c.slowestMBps = outcomes[i].Node, r.BusBandwidthMBps[j]
				}
				c.latencyNanoseconds = append(c.latencyNanoseconds, r.LatencyNanoseconds[j])
				c.busBandwidthMBps = append(c.busBandwidthMBps, r.BusBandwidthMBps[j])
				if j < len(r.NoisePercent) {
					c.noisePercent = append(c.noisePercent, int64(r.NoisePercent[j]))
				}
			}
		}
	}
	variants := map[v1alpha1.Variant]int{v1alpha1.VariantBaseline: 0, v1alpha1.VariantDDA: 1,
		v1alpha1.VariantLowPrecision: 2}
	slices.SortStableFunc(order, func(a, b runplan.Key) int {
		return cmp.Compare(variants[a.Variant], variants[b.Variant])
	})
	if len(order) > MaxGroupSeries {
		order = order[:MaxGroupSeries]
	}
	out := make([]v1alpha1.GroupResultSeries, 0, len(order))
	for _, key := range order {
		t := tables[key]
		s := v1alpha1.GroupResultSeries{
			Variant: key.Variant, Collective: key.Collective, Datatype: key.Datatype, Placement: key.Placement,
			Nodes: int32(t.nodes), WrongElements: t.wrong, MaxRelativeErrorPPM: t.errPPM,
			SizeBytes: []int64{}, LatencyNanoseconds: []int64{}, BusBandwidthMBps: []int64{},
			MinBusBandwidthMBps: []int64{},
		}
		sizes := slices.Sorted(maps.Keys(t.columns))
		if len(sizes) > MaxSeriesSizes {
			sizes = sizes[len(sizes)-MaxSeriesSizes:]
		}
		noise, anyNoise := make([]int32, 0, len(sizes)), false
		for _, size := range sizes {
			c := t.columns[size]
			if len(c.noisePercent) > 0 {
				noise, anyNoise = append(noise, int32(Median(c.noisePercent))), true
			} else {
				noise = append(noise, unknownNoise)
			}
			s.SizeBytes = append(s.SizeBytes, size)
			s.LatencyNanoseconds = append(s.LatencyNanoseconds, Median(c.latencyNanoseconds))
			s.BusBandwidthMBps = append(s.BusBandwidthMBps, Median(c.busBandwidthMBps))
			s.MinBusBandwidthMBps = append(s.MinBusBandwidthMBps, c.slowestMBps)
			s.SlowestNode = c.slowest
		}
		if anyNoise {
			s.NoisePercent = noise
		}
		out = append(out, s)
	}
	return out
}

// Headline is Baseline AllReduce at the largest size, of the first datatype that was measured, out of place where it
// was measured so.
func Headline(results []v1alpha1.GroupResultSeries) *v1alpha1.Headline {
	var found *v1alpha1.Headline
	for _, r := range results {
		last := len(r.SizeBytes) - 1
		if last < 0 || r.Variant != v1alpha1.VariantBaseline || r.Collective != v1alpha1.AllReduce ||
			found != nil && r.Placement == v1alpha1.InPlace {
			continue
		}
		found = &v1alpha1.Headline{Variant: r.Variant, Collective: r.Collective, Datatype: r.Datatype,
			Placement: r.Placement, SizeBytes: r.SizeBytes[last], BusBandwidthMBps: r.BusBandwidthMBps[last]}
		if r.Placement != v1alpha1.InPlace {
			break
		}
	}
	return found
}

// The bounds of the group's errors with random data, as the API has them.
const (
	MaxDataErrors     = 16
	maxDataErrorCells = 16
)

// AggregateDataErrors is over all nodes: the worst errors, and the sums of the counts.
func AggregateDataErrors(outcomes []Outcome) []v1alpha1.DataErrors {
	type tableKey struct {
		variant   v1alpha1.Variant
		datatype  v1alpha1.Datatype
		placement v1alpha1.Placement
		data      v1alpha1.DataKind
	}
	type cellKey struct {
		collective v1alpha1.Collective
		sizeBytes  int64
	}
	var out []v1alpha1.DataErrors
	tables, cells := map[tableKey]int{}, map[tableKey]map[cellKey]int{}
	for i := range outcomes {
		if outcomes[i].Report == nil {
			continue
		}
		for _, e := range outcomes[i].Report.DataErrors {
			k := tableKey{e.Variant, e.Datatype, e.Placement, e.Data}
			at, there := tables[k]
			if !there {
				if len(out) == MaxDataErrors {
					continue
				}
				at = len(out)
				tables[k], cells[k] = at, map[cellKey]int{}
				out = append(out,
					v1alpha1.DataErrors{Variant: k.variant, Datatype: k.datatype, Placement: k.placement, Data: k.data})
			}
			t := &out[at]
			for j := range min(len(e.Collectives), len(e.SizeBytes), len(e.MaxErrorPPM), len(e.MeanErrorPPM),
				len(e.CheckedElements)) {
				c := cellKey{e.Collectives[j], e.SizeBytes[j]}
				n, there := cells[k][c]
				if !there {
					if len(t.SizeBytes) == maxDataErrorCells {
						continue
					}
					n = len(t.SizeBytes)
					cells[k][c] = n
					t.Collectives, t.SizeBytes = append(t.Collectives, c.collective), append(t.SizeBytes, c.sizeBytes)
					for _, list := range []*[]int64{&t.MaxErrorPPM, &t.MeanErrorPPM, &t.CheckedElements, &t.NaNElements,
						&t.OverflowElements} {
						*list = append(*list, 0)
					}
				}
				t.MaxErrorPPM[n], t.MeanErrorPPM[n] = max(t.MaxErrorPPM[n], e.MaxErrorPPM[j]),
					max(t.MeanErrorPPM[n], e.MeanErrorPPM[j])
				t.CheckedElements[n] += e.CheckedElements[j]
				if j < len(e.NaNElements) {
					t.NaNElements[n] += e.NaNElements[j]
				}
				if j < len(e.OverflowElements) {
					t.OverflowElements[n] += e.OverflowElements[j]
				}
			}
		}
	}
	for i := range out {
		for _, list := range []*[]int64{&out[i].NaNElements, &out[i].OverflowElements} {
			if !slices.ContainsFunc(*list, func(n int64) bool { return n > 0 }) {
				*list = nil
			}
		}
	}
	return out
}

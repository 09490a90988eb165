package controllers

import (
	"cmp"
	"encoding/json"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	maxGroupSeries = 72
	maxSeriesSizes = 40
)

// aggregateResults makes one series over all nodes of each (variant, collective, datatype, placement), in the plan's order.
func aggregateResults(outcomes []outcome) []v1alpha1.GroupResultSeries {
	type column struct {
		latencyNanoseconds, busBandwidthMBps []int64
		slowest                              string
		slowestMBps                          int64
	}
	type table struct {
		nodes   int
		columns map[int64]*column
		wrong   int64
		errPPM  *int64
	}
	tables := map[seriesKey]*table{}
	var order []seriesKey
	for i := range outcomes {
		if outcomes[i].report == nil {
			continue
		}
		for _, r := range outcomes[i].report.Results {
			key := keyOf(&r)
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
					c.slowest, c.slowestMBps = outcomes[i].node, r.BusBandwidthMBps[j]
				}
				c.latencyNanoseconds = append(c.latencyNanoseconds, r.LatencyNanoseconds[j])
				c.busBandwidthMBps = append(c.busBandwidthMBps, r.BusBandwidthMBps[j])
			}
		}
	}
	variants := map[v1alpha1.Variant]int{v1alpha1.VariantBaseline: 0, v1alpha1.VariantDDA: 1, v1alpha1.VariantLowPrecision: 2}
	slices.SortStableFunc(order, func(a, b seriesKey) int { return cmp.Compare(variants[a.variant], variants[b.variant]) })
	if len(order) > maxGroupSeries {
		order = order[:maxGroupSeries]
	}
	out := make([]v1alpha1.GroupResultSeries, 0, len(order))
	for _, key := range order {
		t := tables[key]
		s := v1alpha1.GroupResultSeries{
			Variant: key.variant, Collective: key.collective, Datatype: key.datatype, Placement: key.placement,
			Nodes: int32(t.nodes), WrongElements: t.wrong, MaxRelativeErrorPPM: t.errPPM,
			SizeBytes: []int64{}, LatencyNanoseconds: []int64{}, BusBandwidthMBps: []int64{}, MinBusBandwidthMBps: []int64{},
		}
		sizes := sortedKeys64(t.columns)
		if len(sizes) > maxSeriesSizes {
			sizes = sizes[len(sizes)-maxSeriesSizes:]
		}
		for _, size := range sizes {
			c := t.columns[size]
			s.SizeBytes = append(s.SizeBytes, size)
			s.LatencyNanoseconds = append(s.LatencyNanoseconds, medianOf(c.latencyNanoseconds))
			s.BusBandwidthMBps = append(s.BusBandwidthMBps, medianOf(c.busBandwidthMBps))
			s.MinBusBandwidthMBps = append(s.MinBusBandwidthMBps, c.slowestMBps)
			s.SlowestNode = c.slowest
		}
		out = append(out, s)
	}
	return out
}

func sortedKeys64[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// headline is Baseline AllReduce at the largest size, of the first datatype that was measured, out of place where it was
// measured so.
func headline(results []v1alpha1.GroupResultSeries) *v1alpha1.Headline {
	var found *v1alpha1.Headline
	for _, r := range results {
		last := len(r.SizeBytes) - 1
		if last < 0 || r.Variant != v1alpha1.VariantBaseline || r.Collective != v1alpha1.AllReduce || found != nil && r.Placement == v1alpha1.InPlace {
			continue
		}
		found = &v1alpha1.Headline{Variant: r.Variant, Collective: r.Collective, Datatype: r.Datatype, Placement: r.Placement,
			SizeBytes: r.SizeBytes[last], BusBandwidthMBps: r.BusBandwidthMBps[last]}
		if r.Placement != v1alpha1.InPlace {
			break
		}
	}
	return found
}

// maxDataErrors bounds the group's list; maxErrorSizes the sizes of each.
const (
	maxDataErrors = 64
	maxErrorSizes = 4
)

// aggregateDataErrors makes one series over all nodes of each kind of data: the worst errors, and the sums of the counts.
func aggregateDataErrors(outcomes []outcome) []v1alpha1.DataErrorSeries {
	type key struct {
		seriesKey
		data v1alpha1.DataKind
	}
	type column struct{ maximum, mean, checked, nan, overflow int64 }
	tables := map[key]map[int64]*column{}
	var order []key
	for i := range outcomes {
		if outcomes[i].report == nil {
			continue
		}
		for _, e := range outcomes[i].report.DataErrors {
			k := key{seriesKey{e.Variant, e.Collective, e.Datatype, e.Placement}, e.Data}
			if tables[k] == nil {
				tables[k] = map[int64]*column{}
				order = append(order, k)
			}
			for j := range min(len(e.SizeBytes), len(e.MaxErrorPPM), len(e.MeanErrorPPM), len(e.CheckedElements)) {
				c := tables[k][e.SizeBytes[j]]
				if c == nil {
					c = &column{}
					tables[k][e.SizeBytes[j]] = c
				}
				c.maximum, c.mean = max(c.maximum, e.MaxErrorPPM[j]), max(c.mean, e.MeanErrorPPM[j])
				c.checked += e.CheckedElements[j]
				if j < len(e.NaNElements) {
					c.nan += e.NaNElements[j]
				}
				if j < len(e.OverflowElements) {
					c.overflow += e.OverflowElements[j]
				}
			}
		}
	}
	var out []v1alpha1.DataErrorSeries
	for _, k := range order[:min(len(order), maxDataErrors)] {
		e := v1alpha1.DataErrorSeries{Variant: k.variant, Collective: k.collective, Datatype: k.datatype, Placement: k.placement, Data: k.data}
		sizes := sortedKeys64(tables[k])
		var nan, overflow int64
		for _, size := range sizes[max(0, len(sizes)-maxErrorSizes):] {
			c := tables[k][size]
			e.SizeBytes, e.MaxErrorPPM, e.MeanErrorPPM = append(e.SizeBytes, size), append(e.MaxErrorPPM, c.maximum), append(e.MeanErrorPPM, c.mean)
			e.CheckedElements = append(e.CheckedElements, c.checked)
			e.NaNElements, e.OverflowElements = append(e.NaNElements, c.nan), append(e.OverflowElements, c.overflow)
			nan, overflow = nan+c.nan, overflow+c.overflow
		}
		if nan == 0 {
			e.NaNElements = nil
		}
		if overflow == 0 {
			e.OverflowElements = nil
		}
		out = append(out, e)
	}
	return out
}

// maxStatusBytes leaves room for metadata below the object's 64 KiB.
const maxStatusBytes = 56 << 10

// boundStatus shortens the status until its JSON fits: messages first, then settings, then the smaller sizes of the
// results. The children keep everything.
func boundStatus(status *v1alpha1.CommGroupStatus) {
	fits := func() bool {
		data, err := json.Marshal(status)
		return err != nil || len(data) <= maxStatusBytes
	}
	if fits() {
		return
	}
	for _, limit := range []int{120, 40} {
		for i := range status.Settings {
			status.Settings[i].Message = shorten(status.Settings[i].Message, limit)
		}
		for i := range status.Culprits {
			status.Culprits[i].Message = shorten(status.Culprits[i].Message, 2*limit)
		}
		if fits() {
			return
		}
	}
	for i := range status.DataErrors {
		e := &status.DataErrors[i]
		for _, list := range []*[]int64{&e.SizeBytes, &e.MaxErrorPPM, &e.MeanErrorPPM, &e.CheckedElements, &e.NaNElements, &e.OverflowElements} {
			*list = (*list)[max(0, len(*list)-1):]
		}
	}
	for sizes := 20; sizes >= 5; sizes -= 5 {
		for i := range status.Results {
			r := &status.Results[i]
			if drop := len(r.SizeBytes) - sizes; drop > 0 {
				r.SizeBytes, r.LatencyNanoseconds = r.SizeBytes[drop:], r.LatencyNanoseconds[drop:]
				r.BusBandwidthMBps, r.MinBusBandwidthMBps = r.BusBandwidthMBps[drop:], r.MinBusBandwidthMBps[drop:]
			}
		}
		if fits() {
			return
		}
	}
	if len(status.Settings) > 20 {
		status.Settings = status.Settings[:20]
	}
}

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// series is the part of a result series that group and node results share.
type series struct {
	tableKey
	variant             v1alpha1.Variant
	sizeBytes           []int64
	latencyNanoseconds  []int64
	busBandwidthMBps    []int64
	wrongElements       int64
	maxRelativeErrorPPM *int64
	// spreadPercent is how far repeats are apart at each size; apart says so in words for a group. Both are empty
	// without repeats.
	spreadPercent []int32
	apart         string
}

// tableKey is what the variants of one table have in common; an empty placement is out of place.
type tableKey struct {
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
	placement  v1alpha1.Placement
}

// GroupAB prints the group's A/B tables: one for each collective, datatype and placement, one row for each message
// size. Where variants are named, only these are shown; a gain is against Baseline all the same. The errors with random
// data follow, where they were measured. nodes are asked how far apart the repeats of each are; without them nothing is
// said of it.
func GroupAB(w io.Writer, group *state.Group, nodes []Member, variants ...string) error {
	all := make([]series, 0, len(group.Status.Results))
	for i := range group.Status.Results {
		r := &group.Status.Results[i]
		all = append(all, series{tableKey: tableKey{r.Collective, r.Datatype, r.Placement},
			variant: r.Variant, sizeBytes: r.SizeBytes, latencyNanoseconds: r.LatencyNanoseconds,
			busBandwidthMBps: r.BusBandwidthMBps, wrongElements: r.WrongElements,
			maxRelativeErrorPPM: r.MaxRelativeErrorPPM, apart: Apart(r, group.Status.Plan, nodes)})
	}
	if err := abTables(w, all, variants); err != nil {
		return err
	}
	return DataErrors(w, group.Status.DataErrors)
}

// NodeAB prints one node's A/B tables and errors with random data; for variants see GroupAB.
func NodeAB(w io.Writer, node *Member, variants ...string) error {
	run := node.Status.Run
	if run == nil {
		_, err := fmt.Fprintln(w, "no results yet")
		return err
	}
	if err := Note(w, ofAnotherRun(node)); err != nil {
		return err
	}
	all := make([]series, 0, len(run.Results))
	for i := range run.Results {
		r := &run.Results[i]
		all = append(all, series{tableKey: tableKey{r.Collective, r.Datatype, r.Placement}, variant: r.Variant,
			sizeBytes: r.SizeBytes, latencyNanoseconds: r.LatencyNanoseconds, busBandwidthMBps: r.BusBandwidthMBps,
			wrongElements: r.WrongElements, maxRelativeErrorPPM: r.MaxRelativeErrorPPM, spreadPercent: r.SpreadPercent})
	}
	if err := abTables(w, all, variants); err != nil {
		return err
	}
	if run.OmittedSeries > 0 {
		if _, err := fmt.Fprintf(w, "%d more series were measured and judged; the run pod's log has them\n",
			run.OmittedSeries); err != nil {
			return err
		}
	}
	return DataErrors(w, run.DataErrors)
}

// ofAnotherRun says where a node's figures are not of the run that it is assigned: that one was closed without a
// report, or goes on.
func ofAnotherRun(node *Member) string {
	report, run := node.Status.Run, node.Spec.Run
	if report == nil || run == nil || report.ID == run.ID {
		return ""
	}
	now := "has not reported yet"
	if c := run.Closed; c != nil {
		now = fmt.Sprintf("gave none: %s (%s)", c.Verdict, c.Reason)
	}
	return fmt.Sprintf("these figures are of run %s; run %s %s", report.ID, run.ID, now)
}

func abTables(w io.Writer, all []series, variants []string) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no results yet")
		return err
	}
	var keys []tableKey
	byKey := map[tableKey][]series{}
	for _, s := range all {
		k := s.tableKey
		if !slices.Contains(keys, k) && named(variants, s.variant) {
			keys = append(keys, k)
		}
		byKey[k] = append(byKey[k], s)
	}
	for i, k := range keys {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := abTable(w, k, byKey[k], variants); err != nil {
			return err
		}
	}
	return nil
}

// named says whether a variant is among the names; no names are all.
func named(names []string, v v1alpha1.Variant) bool {
	return len(names) == 0 ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, string(v)) })
}

func abTable(w io.Writer, key tableKey, measured []series, names []string) error {
	placement := "out of place"
	if key.placement == v1alpha1.InPlace {
		placement = "in place"
	}
	if _, err := fmt.Fprintf(w,
		"%s %s, %s (latency in us, bus bandwidth in GB/s = 10^9 bytes/s, gain against Baseline)\n",
		key.collective, key.datatype, placement); err != nil {
		return err
	}
	head := []string{"SIZE"}
	var baseline *series
	var variants []series
	for i, v := range measured {
		if v.variant == v1alpha1.VariantBaseline {
			baseline = &measured[i]
		}
		if named(names, v.variant) {
			variants = append(variants, v)
		}
	}
	for _, v := range variants {
		name := strings.ToUpper(string(v.variant))
		head = append(head, name+" us", "GB/s")
		if v.variant != v1alpha1.VariantBaseline {
			head = append(head, "GAIN")
		}
		if len(v.spreadPercent) > 0 {
			head = append(head, "APART")
		}
	}
	rows := [][]string{head}
	for _, size := range allSizes(variants) {
		row := []string{units.Bytes(size)}
		for _, v := range variants {
			row = append(row, at(v, size, v.latencyNanoseconds, units.Microseconds),
				at(v, size, v.busBandwidthMBps, units.GBps))
			if v.variant != v1alpha1.VariantBaseline {
				row = append(row, gain(baseline, v, size))
			}
			if i := slices.Index(v.sizeBytes, size); len(v.spreadPercent) > 0 {
				row = append(row, spread(v.spreadPercent, i))
			}
		}
		rows = append(rows, row)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, v := range variants {
		note := ""
		if v.wrongElements > 0 {
			note = fmt.Sprintf("%d elements wrong", v.wrongElements)
		}
		if v.maxRelativeErrorPPM != nil && *v.maxRelativeErrorPPM > 0 {
			note = strings.TrimPrefix(note+", largest relative error "+units.Percent(*v.maxRelativeErrorPPM), ", ")
		}
		if v.apart != "" {
			note = strings.TrimPrefix(note+"; "+v.apart, "; ")
		}
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s: %s\n", v.variant, note); err != nil {
			return err
		}
	}
	return nil
}

func allSizes(variants []series) []int64 {
	var sizes []int64
	for _, v := range variants {
		sizes = append(sizes, v.sizeBytes...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func at(s series, size int64, values []int64, format func(int64) string) string {
	i := slices.Index(s.sizeBytes, size)
	if i < 0 || i >= len(values) {
		return unknown
	}
	return format(values[i])
}

func gain(baseline *series, s series, size int64) string {
	if baseline == nil {
		return unknown
	}
	i, j := slices.Index(baseline.sizeBytes, size), slices.Index(s.sizeBytes, size)
	if i < 0 || j < 0 || i >= len(baseline.latencyNanoseconds) || j >= len(s.latencyNanoseconds) ||
		s.latencyNanoseconds[j] <= 0 {
		return unknown
	}
	return fmt.Sprintf("%.2fx", float64(baseline.latencyNanoseconds[i])/float64(s.latencyNanoseconds[j]))
}

// DataErrors prints how far results lie from an fp32 reference with random data over the ranges that models have;
// nothing where none was measured.
func DataErrors(w io.Writer, all []v1alpha1.DataErrors) error {
	if len(all) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "\nErrors against an fp32 reference with random data (max: over the largest "+
		"magnitude; mean: over the mean magnitude; elements over all ranks)"); err != nil {
		return err
	}
	var rows [][]string
	for _, e := range all {
		variant := string(e.Variant)
		if e.Placement == v1alpha1.InPlace {
			variant += " in place"
		}
		for i := range min(len(e.Collectives), len(e.SizeBytes)) {
			rows = append(rows, []string{string(e.Collectives[i]), string(e.Datatype), string(e.Data),
				units.Bytes(e.SizeBytes[i]), variant, item(e.MaxErrorPPM, i, units.Percent),
				item(e.MeanErrorPPM, i, units.Percent), counted(e.NaNElements, i), counted(e.OverflowElements, i),
				item(e.CheckedElements, i, decimal)})
		}
	}
	// By collective, datatype and data: FP8 and Baseline stand beside each other.
	slices.SortStableFunc(rows, func(a, b []string) int { return slices.Compare(a[:3], b[:3]) })
	return table(w, append([][]string{{"COLLECTIVE", "DATATYPE", "DATA", "SIZE", "VARIANT", "MAX ERROR", "MEAN ERROR",
		"NAN", "OVERFLOWED", "CHECKED"}}, rows...))
}

func decimal(n int64) string { return fmt.Sprint(n) }

func item(values []int64, i int, format func(int64) string) string {
	if i >= len(values) {
		return unknown
	}
	return format(values[i])
}

// counted is an element of a list that is left out where all of it is zero.
func counted(values []int64, i int) string {
	if len(values) == 0 {
		return "0"
	}
	return item(values, i, decimal)
}

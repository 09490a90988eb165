// Package compare holds two runs against each other: what was different about them, and what each measurement gained or
// lost. It says where a change is within the noise, and where a side lacks a measurement.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// The noise that a change must exceed, as for the advice on settings (docs/settings.md).
const (
	// leastNoisePercent: two runs of one plan on idle nodes differ by as much.
	leastNoisePercent = 3
	// unknownNoisePercent is taken where a side tells no noise.
	unknownNoisePercent = 5
	// mostNoisePercent: above it a measurement tells nothing.
	mostNoisePercent = 25
)

// Outcome of one measurement.
type Outcome string

// The outcomes. OnlyA and OnlyB: the other run did not measure it. Noisy: too much noise to tell.
const (
	Even   Outcome = "even"
	Faster Outcome = "faster"
	Slower Outcome = "slower"
	Noisy  Outcome = "noisy"
	OnlyA  Outcome = "lost"
	OnlyB  Outcome = "new"
)

// Row is one measurement of both runs: bus bandwidth in 10^6 bytes per second. Absent figures were not measured.
type Row struct {
	SizeBytes int64  `json:"sizeBytes"`
	AMBps     *int64 `json:"aBusBandwidthMBps,omitempty"`
	BMBps     *int64 `json:"bBusBandwidthMBps,omitempty"`
	// ChangePercent of bandwidth from A to B: -10 is a tenth less.
	ChangePercent *float64 `json:"changePercent,omitempty"`
	NoisePercent  int32    `json:"noisePercent"`
	Outcome       Outcome  `json:"outcome"`
}

// Series is one series of both runs.
type Series struct {
	// Name for users, for example "AllReduce BFloat16 Baseline", with the dimension for results over several nodes.
	Name string `json:"name"`
	Rows []Row  `json:"rows"`
	// WrongA and WrongB are elements that were wrong.
	WrongA int64 `json:"aWrongElements,omitempty"`
	WrongB int64 `json:"bWrongElements,omitempty"`
}

// Difference is something that was not the same in both runs.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Comparison of run A (the earlier, as a rule) with run B.
type Comparison struct {
	A *v1alpha1.CommRun `json:"-"`
	B *v1alpha1.CommRun `json:"-"`
	// Kinds differ: the figures are of different things, and a change in them is no gain or loss.
	Kinds []Difference `json:"kinds,omitempty"`
	// Changes that may explain one.
	Changes []Difference `json:"changes,omitempty"`
	Series  []Series     `json:"series"`
}

// Filter chooses series by their words, in any case; empty fields match all.
type Filter struct {
	Variants    []string
	Collectives []string
}

func (f Filter) matches(variant v1alpha1.Variant, collective v1alpha1.Collective) bool {
	in := func(list []string, value string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, value) })
	}
	return in(f.Variants, string(variant)) && in(f.Collectives, string(collective))
}

// Runs compares two runs.
func Runs(a, b *v1alpha1.CommRun, f Filter) *Comparison {
	out := &Comparison{A: a, B: b, Kinds: kinds(a, b), Changes: changes(a, b)}
	out.Series = append(nodeSeries(a, b, f), spanSeries(a, b, f)...)
	return out
}

// figures are one run's side of a series.
type figures struct {
	there     bool
	sizes     []int64
	latencyNs []int64
	busMBps   []int64
	noise     []int32
	wrong     int64
}

type key struct {
	dimension  string
	ranks      int32
	nodes      int32
	variant    v1alpha1.Variant
	collective v1alpha1.Collective
	datatype   v1alpha1.Datatype
	placement  v1alpha1.Placement
}

func (k key) name() string {
	text := fmt.Sprintf("%s %s", k.collective, k.datatype)
	if k.variant != "" {
		text += " " + string(k.variant)
	}
	if k.placement == v1alpha1.InPlace {
		text += " in place"
	}
	if k.dimension != "" {
		text += fmt.Sprintf(", %s of %s on %s",
			k.dimension, units.Counted(int64(k.ranks), "rank"), units.Counted(int64(k.nodes), "node"))
	}
	return text
}

func nodeSeries(a, b *v1alpha1.CommRun, f Filter) []Series {
	side := func(r *v1alpha1.CommRun) (map[key]figures, []key) {
		all := map[key]figures{}
		var order []key
		for i := range r.Status.Results {
			s := &r.Status.Results[i]
			if !f.matches(s.Variant, s.Collective) {
				continue
			}
			k := key{variant: s.Variant, collective: s.Collective, datatype: s.Datatype,
				placement: cmp.Or(s.Placement, v1alpha1.OutOfPlace)}
			all[k] = figures{true, s.SizeBytes, s.LatencyNanoseconds, s.BusBandwidthMBps,
				s.NoisePercent, s.WrongElements}
			order = append(order, k)
		}
		return all, order
	}
	return joined(side, a, b)
}

// spanSeries compares communicators of the same dimension, ranks and nodes only. Over several nodes no noise is kept.
func spanSeries(a, b *v1alpha1.CommRun, f Filter) []Series {
	side := func(r *v1alpha1.CommRun) (map[key]figures, []key) {
		all := map[key]figures{}
		var order []key
		if r.Status.Span == nil {
			return all, nil
		}
		for i := range r.Status.Span.Results {
			s := &r.Status.Span.Results[i]
			if !f.matches(v1alpha1.VariantBaseline, s.Collective) {
				continue
			}
			k := key{dimension: s.Dimension, ranks: s.Ranks, nodes: s.Nodes, collective: s.Collective,
				datatype: s.Datatype, placement: cmp.Or(s.Placement, v1alpha1.OutOfPlace)}
			all[k] = figures{there: true, sizes: s.SizeBytes, latencyNs: s.LatencyNanoseconds,
				busMBps: s.BusBandwidthMBps}
			order = append(order, k)
		}
		return all, order
	}
	return joined(side, a, b)
}

func joined(side func(*v1alpha1.CommRun) (map[key]figures, []key), a, b *v1alpha1.CommRun) []Series {
	ofA, order := side(a)
	ofB, orderB := side(b)
	for _, k := range orderB {
		if !ofA[k].there {
			order = append(order, k)
		}
	}
	var out []Series
	for _, k := range order {
		x, y := ofA[k], ofB[k]
		s := Series{Name: k.name(), WrongA: x.wrong, WrongB: y.wrong}
		sizes := slices.Concat(x.sizes, y.sizes)
		slices.Sort(sizes)
		for _, size := range slices.Compact(sizes) {
			s.Rows = append(s.Rows, row(size, &x, &y))
		}
		out = append(out, s)
	}
	return out
}

func row(size int64, a, b *figures) Row {
	r := Row{SizeBytes: size, NoisePercent: noise(a, b, size)}
	i, j := slices.Index(a.sizes, size), slices.Index(b.sizes, size)
	if i >= 0 && i < len(a.busMBps) {
		r.AMBps = &a.busMBps[i]
	}
	if j >= 0 && j < len(b.busMBps) {
		r.BMBps = &b.busMBps[j]
	}
	switch {
	case r.AMBps == nil && r.BMBps == nil:
		r.Outcome = Noisy // a size without figures on either side tells nothing
		return r
	case r.BMBps == nil:
		r.Outcome = OnlyA
		return r
	case r.AMBps == nil:
		r.Outcome = OnlyB
		return r
	}
	change, ok := change(a, b, i, j)
	if !ok {
		r.Outcome = Noisy
		return r
	}
	r.ChangePercent = &change
	switch {
	case r.NoisePercent > mostNoisePercent:
		r.Outcome = Noisy
	case math.Abs(change) <= float64(r.NoisePercent):
		r.Outcome = Even
	case change > 0:
		r.Outcome = Faster
	default:
		r.Outcome = Slower
	}
	return r
}

// change of bandwidth in percent, from the latencies where both are there: of one size they say the same with more
// digits.
func change(a, b *figures, i, j int) (float64, bool) {
	from, to := float64(a.busMBps[i]), float64(b.busMBps[j])
	if i < len(a.latencyNs) && j < len(b.latencyNs) && a.latencyNs[i] > 0 && b.latencyNs[j] > 0 {
		from, to = 1/float64(a.latencyNs[i]), 1/float64(b.latencyNs[j])
	}
	if from <= 0 || to < 0 {
		return 0, false
	}
	return math.Round((to/from-1)*1000) / 10, true
}

// noise is what a change at the size must exceed: both sides' noise together.
func noise(a, b *figures, size int64) int32 {
	var sum int32
	for _, f := range []*figures{a, b} {
		i := slices.Index(f.sizes, size)
		if i < 0 || i >= len(f.noise) || f.noise[i] < 0 {
			return unknownNoisePercent
		}
		sum += f.noise[i]
	}
	return max(leastNoisePercent, sum)
}

package settings

import (
	"cmp"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// The bounds of the advice, as the API has them, and so that it leaves the status room for the rest.
const (
	maxAdvice = 48
	MaxBands  = 8
)

// WorthInput is what the advice rests on.
type WorthInput struct {
	Spec       *v1alpha1.CommGroupSpec
	Run        *v1alpha1.GroupRunStatus
	Outcomes   []judge.Outcome
	DataErrors []v1alpha1.DataErrors
	// Settings of the group, with what is known of their data.
	Settings []v1alpha1.SettingStatus
	// GFXTargets of the members.
	GFXTargets []string
}

// abComparison is one setting, collective, datatype and placement to be compared with Baseline, size by size.
type abComparison struct {
	base, with runplan.Key
	points     []rcclx.ABPoint
	// errPPM is the worst relative error of any member, wrong the elements of all.
	errPPM *int64
	wrong  int64
	// at is where the last member had the two series: members mostly report in one order.
	atBase, atWith int
}

// Worth judges each setting that the spec asks for by a run that is over; nothing before that. Members count with
// whatever verdict, each compared with itself: where a slow link slows Baseline, it slows the variant.
func Worth(in WorthInput) (flavor rcclx.Flavor, all []rcclx.Worth) {
	if in.Run == nil || in.Run.Phase != v1alpha1.RunPhaseFinished {
		return "", nil
	}
	reports := make([]*v1alpha1.NodeRunStatus, 0, len(in.Outcomes))
	for i := range in.Outcomes {
		if r := in.Outcomes[i].Report; r != nil && r.Phase == v1alpha1.NodeRunFinished && len(r.Results) > 0 {
			reports = append(reports, r)
		}
	}
	if len(reports) == 0 {
		return "", nil
	}
	flavor = sharedGates(reports)
	input := rcclx.WorthInput{Flavor: flavor, Settings: Asked(in.Spec), Ranks: int(in.Spec.RanksPerNode)}
	if len(in.GFXTargets) == 1 {
		input.GFX = in.GFXTargets[0]
	}
	plan, job := runplan.For(in.Spec), JobOf(in.Spec, in.Settings)
	for _, variant := range plan.Variants {
		if variant == v1alpha1.VariantBaseline {
			continue
		}
		for _, c := range rcclx.Collectives() {
			for _, d := range plan.Datatypes {
				if len(all) == maxAdvice || !slices.Contains(plan.Collectives, v1alpha1.Collective(c)) {
					continue
				}
				w := input
				w.Variant, w.Collective, w.Datatype = rcclx.Variant(variant), c, rcclx.Datatype(d)
				if w.Variant == rcclx.LowPrecision {
					w.Data = job.UsabilityOf(c)
				}
				if judged, ok := judgeWorth(w, &plan, in, reports); ok {
					all = append(all, judged)
				}
			}
		}
	}
	return flavor, all
}

// judgeWorth gathers the members' numbers for one setting, collective and datatype.
func judgeWorth(in rcclx.WorthInput, plan *v1alpha1.RunPlan, from WorthInput,
	reports []*v1alpha1.NodeRunStatus) (rcclx.Worth, bool) {
	c, d := v1alpha1.Collective(in.Collective), v1alpha1.Datatype(in.Datatype)
	placements, sizes := runplan.Measurements(plan, c, d, from.Spec.RanksPerNode)
	sizes = slices.DeleteFunc(slices.Clone(sizes), func(size int64) bool { return !in.Acts(size) })
	if len(sizes) == 0 {
		return rcclx.Worth{}, false
	}
	for _, p := range placements {
		x := &abComparison{base: runplan.Key{Variant: v1alpha1.VariantBaseline, Collective: c, Datatype: d,
			Placement: runplan.ShownPlacement(p)}, with: runplan.Key{Variant: v1alpha1.Variant(in.Variant),
			Collective: c, Datatype: d, Placement: runplan.ShownPlacement(p)}}
		for _, size := range sizes {
			x.points = append(x.points, rcclx.ABPoint{SizeBytes: size, Members: len(reports), LeftOut: true,
				GainsPPM: make([]int64, 0, len(reports))})
		}
		for _, r := range reports {
			x.add(r)
		}
		in.Series = append(in.Series, rcclx.ABSeries{Placement: p, Points: x.points})
		in.WrongElements += x.wrong
		in.ErrorPPM = larger(in.ErrorPPM, x.errPPM)
	}
	if in.ErrorPPM != nil { // with random data it may be larger
		for i := range from.DataErrors {
			e := &from.DataErrors[i]
			for j := range min(len(e.Collectives), len(e.MaxErrorPPM)) {
				if e.Variant == v1alpha1.Variant(in.Variant) && e.Datatype == d && e.Collectives[j] == c {
					in.ErrorPPM = larger(in.ErrorPPM, &e.MaxErrorPPM[j])
				}
			}
		}
	}
	return rcclx.JudgeWorth(in)
}

// larger is the larger of two numbers of which either may be missing.
func larger(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// add takes one member's numbers in. A size without numbers was left out of the report for space only where the agent
// says Pass, which it does not before it has measured everything.
func (x *abComparison) add(r *v1alpha1.NodeRunStatus) {
	base, with := seriesAt(r.Results, x.base, &x.atBase), seriesAt(r.Results, x.with, &x.atWith)
	if with != nil {
		x.wrong += with.WrongElements
		// the data was chosen so that FP8 must round: zero is unmeasured
		if e := with.MaxRelativeErrorPPM; e != nil && *e > 0 {
			x.errPPM = larger(x.errPPM, e)
		}
	}
	for i := range x.points {
		p := &x.points[i]
		before, noiseBefore := cellAt(base, p.SizeBytes)
		after, noiseAfter := cellAt(with, p.SizeBytes)
		if before <= 0 || after <= 0 {
			p.LeftOut = p.LeftOut && r.Verdict == v1alpha1.VerdictPass
			continue
		}
		p.GainsPPM = append(p.GainsPPM, int64(float64(before-after)/float64(before)*1e6))
		if noiseBefore > 0 && noiseAfter > 0 {
			p.NoisePPM = append(p.NoisePPM, int64(noiseBefore+noiseAfter)*10_000)
		}
	}
}

// seriesAt finds a series, at first where the last member had it.
func seriesAt(results []v1alpha1.ResultSeries, key runplan.Key, at *int) *v1alpha1.ResultSeries {
	if *at < len(results) && runplan.KeyOf(&results[*at]) == key {
		return &results[*at]
	}
	i := slices.IndexFunc(results, func(r v1alpha1.ResultSeries) bool { return runplan.KeyOf(&r) == key })
	if i < 0 {
		return nil
	}
	*at = i
	return &results[i]
}

// cellAt is the latency at a size and its noise; zero where there is none.
func cellAt(r *v1alpha1.ResultSeries, sizeBytes int64) (latencyNanoseconds int64, noisePercent int32) {
	if r == nil {
		return 0, 0
	}
	i, ok := slices.BinarySearch(r.SizeBytes, sizeBytes)
	if !ok || i >= len(r.LatencyNanoseconds) {
		return 0, 0
	}
	if i < len(r.NoisePercent) {
		noisePercent = r.NoisePercent[i]
	}
	return r.LatencyNanoseconds[i], noisePercent
}

// sharedGates is the flavor whose gates hold for all members; unknown where they differ or one is not known.
func sharedGates(reports []*v1alpha1.NodeRunStatus) rcclx.Flavor {
	flavor := GatesOf(reports[0].Library)
	for _, r := range reports[1:] {
		if GatesOf(r.Library) != flavor {
			return rcclx.FlavorUnknown
		}
	}
	return flavor
}

// GatesOf is the flavor whose gates hold for a library.
func GatesOf(library *v1alpha1.LibraryFacts) rcclx.Flavor {
	if library == nil {
		return rcclx.FlavorUnknown
	}
	return rcclx.Flavor(cmp.Or(library.Imitates, library.Flavor))
}

// Asked are the settings of the spec as the library's package has them.
func Asked(spec *v1alpha1.CommGroupSpec) rcclx.Settings {
	s := rcclx.Settings{
		DDA: rcclx.DDASettings{Mode: rcclx.Mode(spec.DDA.Mode), AllReduceFlatMaxBytes: spec.DDA.AllReduceFlatMaxBytes,
			AllReduceTreeMaxBytes: spec.DDA.AllReduceTreeMaxBytes},
		LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.Mode(spec.LowPrecision.Mode)},
	}
	for _, c := range spec.LowPrecision.Collectives {
		s.LowPrecision.Collectives = append(s.LowPrecision.Collectives, rcclx.Collective(c))
	}
	for _, e := range spec.OwnVariables() {
		s.Env = append(s.Env, rcclx.EnvVar{Name: e.Name, Value: e.Value})
	}
	return s
}

// Advice is the judgement as the API has it.
func Advice(flavor rcclx.Flavor, spec *v1alpha1.CommGroupSpec, settings []v1alpha1.SettingStatus,
	all []rcclx.Worth) []v1alpha1.SettingAdvice {
	var out []v1alpha1.SettingAdvice
	for _, a := range rcclx.Advise(flavor, Asked(spec), all, JobOf(spec, settings), int(spec.RanksPerNode)) {
		shown := v1alpha1.SettingAdvice{Name: rcclx.SettingName(a.Variant, a.Collective) + "/" + string(a.Datatype),
			State: v1alpha1.WorthState(a.State), MemoryBytes: a.MemoryBytes, Recommend: a.Recommend, Message: a.Message}
		if a.Variant == rcclx.LowPrecision && rcclx.KnowsLowPrecision(a.Collective, a.Datatype) {
			shown.ErrorPPM = a.ErrorPPM
		}
		for _, b := range a.Bands(MaxBands) {
			shown.Bands = append(shown.Bands, v1alpha1.GainBand{MinBytes: b.MinBytes, MaxBytes: b.MaxBytes,
				Outcome: b.Outcome, MedianGainPercent: int32(max(-1_000_000, min(b.MedianGainPercent, 100)))})
		}
		out = append(out, shown)
	}
	return out
}

// BoundAdvice shortens what says least: the messages, then the bands of those at the end.
func BoundAdvice(advice []v1alpha1.SettingAdvice, limit int) {
	for i := range advice {
		advice[i].Message = clip.Head(advice[i].Message, limit)
		if i >= limit/4 {
			advice[i].Bands = nil
		}
	}
}

// JobOf is what the choice for FP8 depends on beside the numbers.
func JobOf(spec *v1alpha1.CommGroupSpec, settings []v1alpha1.SettingStatus) rcclx.Job {
	job := rcclx.Job{OverNodes: spec.Span == v1alpha1.SpanGroup, Data: map[rcclx.Collective]rcclx.Usability{}}
	for _, l := range spec.Publish.AcceptedLosses {
		job.Accepted = append(job.Accepted, rcclx.Loss(l))
	}
	if spec.Publish.JobCounts == v1alpha1.JobCountsPadded {
		job.Accepted = append(job.Accepted, rcclx.LossTail)
	}
	for i := range settings {
		if c, isFP8 := strings.CutPrefix(settings[i].Name, rcclx.PrefixLowPrecision); isFP8 {
			job.Data[rcclx.Collective(c)] = usabilityOf(&settings[i])
		}
	}
	return job
}

// usabilityOf a setting's results. A warning stands against them whatever the state says; without a state, as agents of
// an earlier release report, it is not known.
func usabilityOf(s *v1alpha1.SettingStatus) rcclx.Usability {
	out := rcclx.Usability{State: cmp.Or(string(s.Usable), rcclx.UsabilityUnknown)}
	for _, l := range rcclx.Losses() {
		if slices.Contains(s.Warnings, string(l)) {
			out.State, out.Losses = rcclx.NotUsable, append(out.Losses, l)
		}
	}
	return out
}

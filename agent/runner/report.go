package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// nodeBudgetBytes is what a CommNode may take as JSON, managed fields left out (docs/decisions/0005).
	nodeBudgetBytes = 12 << 10
	// leastReportBytes is what a report gets even beside facts and a plan that are larger than usual.
	leastReportBytes = 3 << 10
	logTailBytes     = 1024
	maxEnvironment   = 80
	// sessionBytes are left for the group's stage, where one follows: spec.session with a task, and status.session.
	sessionBytes       = 4 << 10
	hardwareLabelBytes = 64
)

// Finished gives the report of a run that is over.
func Finished(base api.NodeRunStatus, e Evidence, j Judgement, finish metav1.Time) api.NodeRunStatus {
	s := base
	s.Phase, s.FinishTime = api.NodeRunFinished, &finish
	s.Verdict, s.Reason, s.Message = j.Verdict, j.Reason, j.Message
	s.Results, s.Settings, s.Links, s.Culprits = j.Table.Results(e.Plan.SizesBytes), j.Settings, j.Links, j.Culprits
	s.Checks = j.Checks
	s.DataErrors, s.Preconditions = j.Table.DataErrors(), notMet(e.Preconditions)
	s.Library, s.ROCm = libraryFacts(e.Library), rocmFacts(e)
	s.Step = ""
	if e.Failure != nil {
		s.Step, s.RASVerdict = clip.Head(stepOf(e), 128), clip.Head(e.Failure.RAS, 512)
	}
	for _, v := range e.Variants {
		if v.Variant != rcclx.Baseline {
			continue
		}
		var longest int64
		for _, r := range v.Outcome.Ranks {
			longest = max(longest, r.InitDuration.Nanoseconds())
		}
		if longest > 0 && (s.InitNanoseconds == nil || *s.InitNanoseconds < longest) {
			s.InitNanoseconds = &longest
		}
	}
	if e.Library != nil {
		for _, v := range rcclx.JobEnvironment(e.Library.Gates(), SettingsOf(e.Plan)) {
			if len(s.Environment) < maxEnvironment {
				s.Environment = append(s.Environment, api.EnvVar{Name: v.Name, Value: v.Value})
			}
		}
	}
	if n := len(e.Variants); n > 0 && e.Failure != nil {
		s.LogTail = e.Variants[n-1].Outcome.LogTail(logTailBytes)
	}
	return s
}

func stepOf(e Evidence) string {
	if n := len(e.Variants); n > 0 && e.Variants[n-1].Outcome.Failure == e.Failure {
		return fmt.Sprintf("%s %s", e.Variants[n-1].Variant, e.Failure.Step)
	}
	return e.Failure.Step
}

func libraryFacts(lib *rcclx.LibraryInfo) *api.LibraryFacts {
	if lib == nil {
		return nil
	}
	f := &api.LibraryFacts{
		Flavor: clip.Head(string(lib.Flavor), 32), Imitates: clip.Head(string(lib.Imitates), 32), Version: lib.VersionString(),
		Path: clip.Head(lib.Path, 512), BuildHash: clip.Head(lib.BuildHash, hardwareLabelBytes),
	}
	if lib.RuntimeVersionCode > 0 {
		f.RuntimeVersion = runtimeVersion(lib)
	}
	return f
}

// rocmFacts are the container's ROCm; nil where it could not be looked at, and where there is none beside NVIDIA's library,
// which needs none.
func rocmFacts(e Evidence) *api.ROCmFacts {
	r := e.ROCm
	if r == nil || r.State == discover.ROCmNotFound && e.Library != nil && e.Library.Flavor == rcclx.FlavorNCCL {
		return nil
	}
	return &api.ROCmFacts{
		State: r.State, Version: clip.Head(r.Version, 64), Source: clip.Head(r.Source, 256),
		HIPVersion: clip.Head(r.HIPVersion, 64), RCCLVersion: clip.Head(r.RCCLVersion, 64),
	}
}

// runtimeVersion renders HIP's code, major*10^7 + minor*10^5 + patch (hip_version.h), or CUDA's, major*1000 + minor*10.
func runtimeVersion(lib *rcclx.LibraryInfo) string {
	v := lib.RuntimeVersionCode
	if lib.Flavor == rcclx.FlavorNCCL {
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return fmt.Sprintf("%d.%d.%d", v/10_000_000, v/100_000%100, v%100_000)
}

// reportBudget is what a report may take beside the other parts of its CommNode, in bytes of JSON.
func reportBudget(node api.CommNode) int {
	node.ManagedFields, node.Status.Run = nil, nil
	// "run":, and a comma stand around the report; a changed resourceVersion or time may add a few more.
	const around = 64
	left := nodeBudgetBytes - encodedBytes(node) - around
	if run := node.Spec.Run; run != nil && run.Span == api.SpanGroup {
		left -= max(0, sessionBytes-encodedBytes(node.Spec.Session)-encodedBytes(node.Status.Session)) // an earlier run's are in it already
	}
	return max(left, leastReportBytes)
}

// Fit makes a report fit budgetBytes of JSON, giving up the least useful first: the ends of long messages, then the sizes
// at which a variant's setting is not in effect and so equals Baseline, the noise of the series, then sizes in the middle of each series, and of a
// large plan whole series of the variants, which it counts. It never drops a verdict, a culprit's name, a setting or a
// Baseline series. keep are sizes that stay in any case, for example those of thresholds.
func Fit(s api.NodeRunStatus, budgetBytes int, keep []int64) api.NodeRunStatus {
	s = *s.DeepCopy()
	fits := func() bool { return encodedBytes(s) <= budgetBytes }
	steps := []func(){
		func() { shorten(&s, 160) },
		func() { s.Checks = fewerWords(s.Checks, 1) },
		func() { dropWithoutEffect(s.Results, s.Settings, 1, keep) },
		func() { shorten(&s, 80) },
		func() { s.DataErrors = largestSizes(s.DataErrors) },
		func() { dropNoise(s.Results) },
		func() { shorten(&s, 56) },
		func() { s.Checks = fewerWords(s.Checks, 0) },
		func() { dropWithoutEffect(s.Results, s.Settings, 0, keep) },
	}
	for _, step := range steps {
		if fits() {
			return s
		}
		step()
	}
	// The variants give way before Baseline, which everything else is compared with.
	for thinned := true; thinned; {
		thinned = false
		for i := range slices.Backward(s.Results) {
			if fits() {
				return s
			}
			thinned = thin(&s.Results[i], keep) || thinned
		}
	}
	for !fits() && dropSeries(&s) {
		s.OmittedSeries++
	}
	if !fits() {
		shorten(&s, 24)
		s.DataErrors = nil
		s.Checks = s.Checks[:min(len(s.Checks), 4)] // the worst
	}
	return s
}

// dropSeries leaves out the least useful series: of a variant whose setting is not in effect, else of a variant in place,
// else the last one of a variant. Baseline stays; it reports whether there was one.
func dropSeries(s *api.NodeRunStatus) bool {
	at, worth := -1, 3
	for i := range slices.Backward(s.Results) {
		r := &s.Results[i]
		w := 2
		switch {
		case r.Variant == api.VariantBaseline:
			continue
		case withoutEffect(r, s.Settings):
			w = 0
		case r.Placement == api.InPlace:
			w = 1
		}
		if w < worth {
			at, worth = i, w
		}
	}
	if at < 0 {
		return false
	}
	s.Results = slices.Delete(s.Results, at, at+1)
	return true
}

// withoutEffect says whether the gates keep a variant's setting off at every size, or do not know the collective at all.
func withoutEffect(r *api.ResultSeries, settings []api.SettingStatus) bool {
	at := slices.IndexFunc(settings, func(x api.SettingStatus) bool { return x.Name == settingPrefix[r.Variant]+string(r.Collective) })
	return at < 0 || settings[at].Effective == api.EffectiveNotInEffect
}

// settingPrefix begins the names of the settings that a variant measures.
var settingPrefix = map[api.Variant]string{api.VariantDDA: rcclx.PrefixDDA, api.VariantLowPrecision: rcclx.PrefixLowPrecision}

// largestSizes leaves the largest size of each collective.
func largestSizes(all []api.DataErrors) []api.DataErrors {
	for i := range all {
		e := &all[i]
		for k := range slices.Backward(e.SizeBytes) {
			larger := func(j int) bool { return e.Collectives[j] == e.Collectives[k] && e.SizeBytes[j] > e.SizeBytes[k] }
			found := false
			for j := range e.SizeBytes {
				found = found || larger(j)
			}
			if !found {
				continue
			}
			e.Collectives = slices.Delete(e.Collectives, k, k+1)
			for _, list := range []*[]int64{&e.SizeBytes, &e.MaxErrorPPM, &e.MeanErrorPPM, &e.CheckedElements, &e.NaNElements, &e.OverflowElements} {
				if k < len(*list) {
					*list = slices.Delete(*list, k, k+1)
				}
			}
		}
	}
	return all
}

// encodedBytes is the size as the API server stores it: JSON without the escapes for HTML.
func encodedBytes(object any) int {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return 0 // an object of plain strings and numbers always encodes
	}
	return buf.Len() - 1
}

func shorten(s *api.NodeRunStatus, limit int) {
	for i := range s.Settings {
		l := limit
		if s.Settings[i].Requested == string(api.FeatureDisabled) {
			l = 24 // what is not asked for needs no explanation
		}
		s.Settings[i].Message = clip.Head(s.Settings[i].Message, l)
	}
	s.LogTail = clip.Tail(s.LogTail, 4*limit)
	s.RASVerdict = clip.Head(s.RASVerdict, 2*limit)
	for i := range s.Preconditions {
		s.Preconditions[i].Message = clip.Head(s.Preconditions[i].Message, limit)
	}
	for i := range s.Culprits {
		s.Culprits[i].Message = clip.Head(s.Culprits[i].Message, 3*limit)
	}
}

// dropWithoutEffect leaves out the sizes between first and last at which the gates keep a variant's setting off. As many
// as margin stay beside the gates' bounds: they show where the gain ends.
func dropWithoutEffect(results []api.ResultSeries, settings []api.SettingStatus, margin int, keep []int64) {
	for i := range results {
		r := &results[i]
		name := settingPrefix[r.Variant] + string(r.Collective)
		at := slices.IndexFunc(settings, func(s api.SettingStatus) bool { return s.Name == name })
		if at < 0 || settings[at].Effective == api.EffectiveUnknown {
			continue
		}
		gate := settings[at]
		off := func(k int) bool {
			size := r.SizeBytes[k]
			return gate.Effective == api.EffectiveNotInEffect || gate.MinBytes != nil && size < *gate.MinBytes || gate.MaxBytes != nil && size > *gate.MaxBytes
		}
		dropSizes(r, func(k int) bool {
			return off(k-margin) && off(k) && off(k+margin) && !slices.Contains(keep, r.SizeBytes[k])
		})
	}
}

// dropNoise leaves out what only helps to tell a small gain from noise.
func dropNoise(results []api.ResultSeries) {
	for i := range results {
		results[i].NoisePercent = nil
	}
}

// dropSizes leaves out the columns between the first and the last for which drop is true; it reports whether any was.
func dropSizes(r *api.ResultSeries, drop func(k int) bool) bool {
	var out []int
	for k := 1; k < len(r.SizeBytes)-1; k++ {
		if drop(k) {
			out = append(out, k)
		}
	}
	for _, k := range slices.Backward(out) {
		r.SizeBytes = slices.Delete(r.SizeBytes, k, k+1)
		r.LatencyNanoseconds = slices.Delete(r.LatencyNanoseconds, k, k+1)
		r.BusBandwidthMBps = slices.Delete(r.BusBandwidthMBps, k, k+1)
		if k < len(r.NoisePercent) {
			r.NoisePercent = slices.Delete(r.NoisePercent, k, k+1)
		}
	}
	return len(out) > 0
}

// thin leaves out every other size between the first and the last of a series, but for those to keep; it reports whether
// anything was left out.
func thin(r *api.ResultSeries, keep []int64) bool {
	return dropSizes(r, func(k int) bool { return k%2 == 1 && !slices.Contains(keep, r.SizeBytes[k]) })
}

// thresholdSizes are the sizes that Fit keeps for a plan.
func thresholdSizes(p api.RunPlan) []int64 {
	var out []int64
	for _, t := range p.Thresholds {
		out = append(out, t.SizeBytes)
	}
	return out
}

package publish

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// fp8Prefix begins the variables that switch FP8 transport.
const fp8Prefix = "RCCL_LOW_PRECISION_ENABLE"

// fp8Publication is what is published of FP8. FP8 changes a job's data, so it goes out only for collectives for which
// the run confirmed it and whose results are usable, or whose losses the spec accepts (docs/decisions/0007).
type fp8Publication struct {
	// withheld says why nothing at all is published; reason goes with it, or with a note about a part that is left out.
	withheld, reason string
	// note is for the condition, comments are for rccl.conf.
	note     string
	comments []string
	// variables that take the place of the reported ones; nil leaves those as they are, but on.
	variables []v1alpha1.EnvVar
	// keep are the collectives that it is on for; left are those that the run confirmed and that are not worth it.
	keep []string
	left []leftOut
	// record is keep with the losses that the spec accepts.
	record []v1alpha1.PublishedLowPrecision
	// unproven are those that the run did not confirm.
	unproven []string
}

// leftOut is a collective that FP8 is off for although the run confirmed it.
type leftOut struct{ collective, why string }

// lossOf is a collective with losses of its results.
type lossOf struct {
	collective string
	losses     []rcclx.Loss
}

// provenFP8 decides which collectives get FP8 in the published settings. encodings says that the members' GPUs encode
// FP8 differently: each node's own run cannot show what comes of that between nodes. notWorth says of collectives why
// FP8 does not pay for them; none where that does not count.
func provenFP8(spec *v1alpha1.CommGroupSpec, shown []v1alpha1.SettingStatus, library *v1alpha1.LibraryFacts,
	encodings string, notWorth map[string]string) fp8Publication {
	if spec.LowPrecision.Mode == v1alpha1.FeatureDisabled || spec.LowPrecision.Mode == "" {
		return fp8Publication{}
	}
	if library == nil {
		return fp8Publication{withheld: "FP8 is asked for, and it is not known which library was measured.",
			reason: v1alpha1.ReasonNotProven}
	}
	flavor := settings.GatesOf(library)
	required := spec.LowPrecision.Mode == v1alpha1.FeatureRequired
	if encodings != "" {
		if required {
			return fp8Publication{reason: v1alpha1.ReasonMixedFP8Encodings,
				withheld: "lowPrecision.mode is Required. " + encodings}
		}
		return fp8Publication{reason: v1alpha1.ReasonMixedFP8Encodings,
			note: " " + encodings, variables: fp8Variables(flavor, spec, nil),
			comments: []string{"FP8 is off: the group has GPUs that encode it differently"}}
	}
	var keep, unproven []string
	var left, unchecked []leftOut
	var lossy, accepted []lossOf // what keeps it from being published, and what the spec accepts
	job := settings.JobOf(spec, shown)
	for _, c := range askedFP8(spec) {
		i := slices.IndexFunc(shown, func(s v1alpha1.SettingStatus) bool {
			return s.Name == rcclx.PrefixLowPrecision+c
		})
		proof := i >= 0 && settings.Allowed(&shown[i]) && shown[i].Verified == v1alpha1.VerifiedConfirmed
		usable := job.UsabilityOf(rcclx.Collective(c))
		switch {
		case usable.State == rcclx.NotUsable: // that data is wrong goes before that it is slow
			lossy = append(lossy, lossOf{c, usable.Losses})
		case !proof:
			unproven = append(unproven, c)
		case usable.State != rcclx.Usable:
			unchecked = append(unchecked, leftOut{c, usable.Objection(rcclx.Collective(c))})
		case notWorth[c] != "":
			left = append(left, leftOut{c, notWorth[c]})
		default:
			keep = append(keep, c)
			if losses := job.Data[rcclx.Collective(c)].Losses; len(losses) > 0 {
				accepted = append(accepted, lossOf{c, losses})
			}
		}
	}
	switch {
	case required && len(lossy) > 0:
		return fp8Publication{reason: lossReason(lossy), withheld: fmt.Sprintf(
			"lowPrecision.mode is Required, and %s: %s; else name only the other collectives in "+
				"lowPrecision.collectives.", lossWords(lossy), toAccept(lossy))}
	case required && len(unchecked) > 0:
		return fp8Publication{reason: v1alpha1.ReasonNotProven, withheld: fmt.Sprintf(
			"lowPrecision.mode is Required, and %s: run again with agents of this release, and measure sizes "+
				"from %s on.", unchecked[0].why, rcclx.HumanBytes(rcclx.LowPrecisionMinBytes))}
	case required && len(left) > 0:
		return fp8Publication{reason: v1alpha1.ReasonNotWorthIt, withheld: fmt.Sprintf(
			"lowPrecision.mode is Required, and %s: name only the other collectives in lowPrecision.collectives, "+
				"set the mode to Preferred, or publish.choice to AsRequested.", left[0].why)}
	}
	left = append(left, unchecked...)
	if flavor == rcclx.FlavorRCCLXStable && len(keep) < len(rcclx.Collectives()) {
		if required && len(keep) > 0 {
			return fp8Publication{reason: v1alpha1.ReasonNotProven, withheld: fmt.Sprintf(
				"lowPrecision.mode is Required, and this library has one switch for all collectives, "+
					"of which the run did not prove %s: measure these, too.",
				strings.Join(unproven, ", "))}
		}
		for _, c := range keep {
			left = append(left, leftOut{c, "this library has one switch for all four collectives"})
		}
		keep, accepted = nil, nil
	}
	out := fp8Publication{variables: fp8Variables(flavor, spec, keep), keep: keep, left: left, unproven: unproven}
	for _, c := range keep {
		out.record = append(out.record, v1alpha1.PublishedLowPrecision{Collective: v1alpha1.Collective(c),
			Losses: job.Data[rcclx.Collective(c)].Names()})
	}
	if len(accepted) > 0 {
		out.reason = lossReason(accepted)
		out.note += fmt.Sprintf(" %s; it is published for them all the same, since %s.",
			lossWords(accepted), acceptedBy(accepted))
		out.comments = append(out.comments,
			fmt.Sprintf("%s: it is on here for them all the same, since %s", lossWords(accepted), acceptedBy(accepted)))
	}
	if len(lossy) > 0 {
		out.reason = lossReason(lossy)
		out.note += fmt.Sprintf(" %s: it is off for them; %s.", lossWords(lossy), toAccept(lossy))
		out.comments = append(out.comments, lossWords(lossy)+": it is off here for them")
	}
	if len(unproven) > 0 && len(out.variables) > 0 {
		out.note += fmt.Sprintf(" FP8 is off where the run did not confirm it: %s.", strings.Join(unproven, ", "))
	}
	return out
}

// lossReason is the condition's reason: TailHazard where nothing else stands against the results.
func lossReason(of []lossOf) string {
	if slices.ContainsFunc(of, func(x lossOf) bool { return !slices.Equal(x.losses, []rcclx.Loss{rcclx.LossTail}) }) {
		return v1alpha1.ReasonResultsNotUsable
	}
	return v1alpha1.ReasonTailHazard
}

// withLoss are the collectives that have a loss.
func withLoss(of []lossOf, l rcclx.Loss) []string {
	var out []string
	for _, x := range of {
		if slices.Contains(x.losses, l) {
			out = append(out, x.collective)
		}
	}
	return out
}

// lossWords say what FP8 did to the results, by loss.
func lossWords(of []lossOf) string {
	var parts []string
	for _, l := range rcclx.Losses() {
		with := withLoss(of, l)
		if len(with) == 0 {
			continue
		}
		names := strings.Join(with, ", ")
		switch l {
		case rcclx.LossWrongData:
			parts = append(parts, "wrong elements with "+names)
		case rcclx.LossTail:
			parts = append(parts, fmt.Sprintf("wrong elements with %s at counts that are no multiple of 128 x ranks "+
				"(AllReduce) or 128 (ReduceScatter) (TailHazard)", names))
		case rcclx.LossOverflow:
			parts = append(parts, fmt.Sprintf("NaN, infinite or clipped values with %s (Overflow)", names))
		case rcclx.LossUnderflow:
			parts = append(parts,
				fmt.Sprintf("a mean error over %s with %s (Underflow)", units.Percent(rcclx.MaxMeanErrorPPM), names))
		}
	}
	if len(parts) == 0 { // a loss without a name
		names := make([]string, 0, len(of))
		for _, x := range of {
			names = append(names, x.collective)
		}
		return "FP8 gave results that are not usable with " + strings.Join(names, ", ")
	}
	return "FP8 gave " + strings.Join(parts, ", ")
}

// toAccept says what in the spec publishes FP8 all the same.
func toAccept(of []lossOf) string {
	var parts []string
	if len(withLoss(of, rcclx.LossTail)) > 0 {
		parts = append(parts, "if every job pads its counts, set publish.jobCounts to Padded")
	}
	if names := acceptable(of); len(names) > 0 {
		parts = append(parts,
			fmt.Sprintf("if your models bear the loss, set publish.acceptedLosses to [%s]", strings.Join(names, ", ")))
	}
	if len(parts) == 0 {
		return "look for the cause (docs/runbooks/reasons/WrongData.md)"
	}
	return strings.Join(parts, "; ")
}

// acceptedBy says what in the spec accepts the losses.
func acceptedBy(of []lossOf) string {
	var parts []string
	if len(withLoss(of, rcclx.LossTail)) > 0 {
		parts = append(parts, "publish.jobCounts is Padded: every job must pad its counts")
	}
	if names := acceptable(of); len(names) > 0 {
		parts = append(parts, fmt.Sprintf("publish.acceptedLosses has %s", strings.Join(names, ", ")))
	}
	return strings.Join(parts, ", and ")
}

// acceptable are the losses that publish.acceptedLosses can name.
func acceptable(of []lossOf) []string {
	var names []string
	for _, l := range []rcclx.Loss{rcclx.LossOverflow, rcclx.LossUnderflow} {
		if len(withLoss(of, l)) > 0 {
			names = append(names, string(l))
		}
	}
	return names
}

// askedFP8 are the collectives that the spec asks FP8 for.
func askedFP8(spec *v1alpha1.CommGroupSpec) []string {
	if len(spec.LowPrecision.Collectives) > 0 {
		return spec.LowPrecision.Collectives
	}
	var all []string
	for _, c := range rcclx.Collectives() {
		all = append(all, string(c))
	}
	return all
}

// fp8Variables switch FP8 on for the named collectives and off for all others.
func fp8Variables(flavor rcclx.Flavor, spec *v1alpha1.CommGroupSpec, collectives []string) []v1alpha1.EnvVar {
	s := rcclx.Settings{LowPrecision: rcclx.LowPrecisionSettings{Mode: rcclx.Mode(spec.LowPrecision.Mode)}}
	for _, c := range collectives {
		s.LowPrecision.Collectives = append(s.LowPrecision.Collectives, rcclx.Collective(c))
	}
	if len(collectives) == 0 {
		s.LowPrecision.Mode = rcclx.ModeDisabled
	}
	var out []v1alpha1.EnvVar
	for _, e := range rcclx.JobEnvironment(flavor, s) {
		if strings.HasPrefix(e.Name, fp8Prefix) {
			out = append(out, v1alpha1.EnvVar{Name: e.Name, Value: e.Value})
		}
	}
	return out
}

// apply puts the decided FP8 variables in the place of the reported ones. Where none is decided, FP8 is on for nothing:
// an image or an older object may have switched it on past the spec.
func (f fp8Publication) apply(env []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	if f.variables == nil {
		out := slices.Clone(env)
		for i := range out {
			if strings.HasPrefix(out[i].Name, fp8Prefix) && out[i].Value == "1" {
				out[i].Value = "0"
			}
		}
		return out
	}
	out := slices.DeleteFunc(slices.Clone(env), func(e v1alpha1.EnvVar) bool {
		return strings.HasPrefix(e.Name, fp8Prefix)
	})
	return append(out, f.variables...)
}

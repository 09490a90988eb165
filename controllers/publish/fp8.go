package publish

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/rcclx"
)

// fp8Prefix begins the variables that switch FP8 transport.
const fp8Prefix = "RCCL_LOW_PRECISION_ENABLE"

// fp8Publication is what is published of FP8. FP8 changes a job's data, so it goes out only for collectives for which the
// run confirmed it and found no wrong elements at any count that was tried (docs/decisions/0007).
type fp8Publication struct {
	// withheld says why nothing at all is published; reason goes with it, or with a note about a part that is left out.
	withheld, reason string
	// note is for the condition, comment for rccl.conf.
	note, comment string
	// variables that take the place of the reported ones; nil leaves those as they are.
	variables []v1alpha1.EnvVar
	// keep are the collectives that it is on for; left are those that the run confirmed and that are not worth it.
	keep []string
	left []leftOut
	// unproven are those that the run did not confirm.
	unproven []string
}

// leftOut is a collective that FP8 is off for although the run confirmed it.
type leftOut struct{ collective, why string }

// provenFP8 decides which collectives get FP8 in the published settings. encodings says that the members' GPUs encode FP8
// differently: each node's own run cannot show what comes of that between nodes. notWorth says of collectives why FP8 does
// not pay for them; none where that does not count.
func provenFP8(spec *v1alpha1.CommGroupSpec, shown []v1alpha1.SettingStatus, library *v1alpha1.LibraryFacts, encodings string, notWorth map[string]string) fp8Publication {
	if spec.LowPrecision.Mode == v1alpha1.FeatureDisabled || spec.LowPrecision.Mode == "" {
		return fp8Publication{}
	}
	if library == nil {
		return fp8Publication{withheld: "FP8 is asked for, and it is not known which library was measured.", reason: v1alpha1.ReasonNotProven}
	}
	flavor := settings.GatesOf(library)
	if encodings != "" {
		if spec.LowPrecision.Mode == v1alpha1.FeatureRequired {
			return fp8Publication{reason: v1alpha1.ReasonMixedFP8Encodings, withheld: "lowPrecision.mode is Required. " + encodings}
		}
		return fp8Publication{reason: v1alpha1.ReasonMixedFP8Encodings, note: " " + encodings, variables: fp8Variables(flavor, spec, nil),
			comment: "FP8 is off: the group has GPUs that encode it differently"}
	}
	var keep, confirmed, hazardous, unproven []string
	var left []leftOut
	for _, c := range askedFP8(spec) {
		i := slices.IndexFunc(shown, func(s v1alpha1.SettingStatus) bool { return s.Name == rcclx.PrefixLowPrecision+c })
		proof := i >= 0 && settings.Allowed(&shown[i]) && shown[i].Verified == v1alpha1.VerifiedConfirmed
		if proof {
			confirmed = append(confirmed, c)
		}
		hazard := i >= 0 && slices.Contains(shown[i].Warnings, v1alpha1.WarningTailHazard)
		// That data may be wrong goes before that it is slow.
		if why := notWorth[c]; proof && why != "" && (!hazard || spec.Publish.JobCounts == v1alpha1.JobCountsPadded) {
			left = append(left, leftOut{c, why})
			continue
		}
		switch {
		case hazard:
			hazardous = append(hazardous, c)
			if proof && spec.Publish.JobCounts == v1alpha1.JobCountsPadded {
				keep = append(keep, c)
			}
		case proof:
			keep = append(keep, c)
		default:
			unproven = append(unproven, c)
		}
	}
	if spec.LowPrecision.Mode == v1alpha1.FeatureRequired && len(left) > 0 {
		return fp8Publication{reason: v1alpha1.ReasonNotWorthIt, withheld: fmt.Sprintf(
			"lowPrecision.mode is Required, and %s: name only the other collectives in lowPrecision.collectives, set the mode to Preferred, or publish.choice to AsRequested.", left[0].why)}
	}
	var oneSwitch []string
	if flavor == rcclx.FlavorRCCLXStable && len(keep) < len(rcclx.Collectives()) {
		keep, oneSwitch = nil, keep
	}
	out := fp8Publication{variables: fp8Variables(flavor, spec, keep), keep: keep, left: left, unproven: unproven}
	for _, c := range oneSwitch {
		out.left = append(out.left, leftOut{c, "this library has one switch for all four collectives"})
	}
	hazard := ""
	if len(hazardous) > 0 {
		out.reason = v1alpha1.ReasonTailHazard
		hazard = fmt.Sprintf("FP8 gave wrong elements with %s at counts that are no multiple of 128 x ranks (AllReduce) or 128 (ReduceScatter)",
			strings.Join(hazardous, " and "))
	}
	const ifPadded = "if every job pads its counts, set publish.jobCounts to Padded"
	switch padded := spec.Publish.JobCounts == v1alpha1.JobCountsPadded; {
	case spec.LowPrecision.Mode == v1alpha1.FeatureRequired && len(keep) < len(confirmed) && hazard != "" && !padded:
		return fp8Publication{reason: out.reason, withheld: fmt.Sprintf(
			"%s, and lowPrecision.mode is Required: %s; else name only the other collectives in lowPrecision.collectives.", hazard, ifPadded)}
	case spec.LowPrecision.Mode == v1alpha1.FeatureRequired && len(keep) < len(confirmed):
		return fp8Publication{reason: v1alpha1.ReasonNotProven, withheld: fmt.Sprintf(
			"lowPrecision.mode is Required, and this library has one switch for all collectives, of which the run did not prove %s: measure these, too.", strings.Join(unproven, ", "))}
	case hazard != "" && padded:
		out.comment = hazard + ": every job must pad its counts"
		out.note = fmt.Sprintf(" %s; it is published for them all the same, since publish.jobCounts is Padded.", hazard)
	case hazard != "":
		out.comment = hazard + ": it is off here for them"
		out.note = fmt.Sprintf(" %s: it is off for them; %s.", hazard, ifPadded)
	}
	if len(unproven) > 0 && len(out.variables) > 0 {
		out.note += fmt.Sprintf(" FP8 is off where the run did not confirm it: %s.", strings.Join(unproven, ", "))
	}
	return out
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

// apply puts the decided FP8 variables in the place of the reported ones.
func (f fp8Publication) apply(env []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	if f.variables == nil {
		return env
	}
	out := slices.DeleteFunc(slices.Clone(env), func(e v1alpha1.EnvVar) bool { return strings.HasPrefix(e.Name, fp8Prefix) })
	return append(out, f.variables...)
}

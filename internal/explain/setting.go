package explain

import (
	"fmt"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// Setting says what was measured of a setting and what keeps it from acting. Wrong elements come first, which a job
// must know of, and the gates last. errors are the random data's, of the same node.
func Setting(s *api.SettingStatus, errors []api.DataErrors) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	variant, collective := measuredAs(s.Name)
	acts := s.Effective == api.EffectiveInEffect || s.Effective == api.EffectivePartial
	if e := s.Evidence; e != nil {
		if e.WrongElements > 0 {
			add(fmt.Sprintf("%d wrong elements", e.WrongElements))
		}
		if e.TailElements > 0 {
			add(fmt.Sprintf("counts that are no multiple of %d elements give %d wrong elements (library hazard): "+
				"pad your buffers", e.TailMultipleElements, e.TailElements))
		}
		add(compared(s, variant, collective))
		for _, loss := range s.Warnings {
			switch loss {
			case api.WarningOverflow:
				add(overflow(errors, variant, collective))
			case api.WarningUnderflow:
				add(underflow(errors, variant, collective))
			}
		}
		if len(e.UncheckedData) > 0 {
			add(fmt.Sprintf("not checked at every size with %s data", strings.Join(e.UncheckedData, ", ")))
		}
	} else if s.Verified == api.VerifiedConfirmed || s.Verified == api.VerifiedNotConfirmed {
		add(fmt.Sprintf("the report had no room for how %s compares with Baseline", variant))
	} else if acts && variant != "" {
		add(fmt.Sprintf("no size for which it is in effect was measured in both Baseline and %s", variant))
	}
	if s.Cause != "" && s.Effective == api.EffectivePartial {
		add("not for all sizes and datatypes: " + s.Cause)
	} else {
		add(s.Cause)
	}
	return strings.Join(parts, "; ")
}

// measuredAs is the variant that a setting is measured in, and its collective; empty for a variable.
func measuredAs(setting string) (api.Variant, api.Collective) {
	if c, ok := strings.CutPrefix(setting, rcclx.PrefixDDA); ok {
		return api.VariantDDA, api.Collective(c)
	}
	if c, ok := strings.CutPrefix(setting, rcclx.PrefixLowPrecision); ok {
		return api.VariantLowPrecision, api.Collective(c)
	}
	return "", ""
}

// compared says how the setting's best size compares with Baseline.
func compared(s *api.SettingStatus, v api.Variant, c api.Collective) string {
	e := s.Evidence
	confirmed := s.Verified == api.VerifiedConfirmed
	switch {
	case v == api.VariantLowPrecision && e.MaxErrorPPM == nil:
		return fmt.Sprintf("%s was measured, but no element was checked for rounding", c)
	case v == api.VariantLowPrecision && !confirmed:
		return fmt.Sprintf("%s shows no FP8 rounding at any of %d sizes; %s", c, e.ComparedSizes, best(e))
	case v == api.VariantLowPrecision:
		return fmt.Sprintf("%s %s, relative error %s", c, best(e), units.Percent(*e.MaxErrorPPM))
	case !confirmed:
		return fmt.Sprintf("%s no faster than Baseline by %d %% at any of %d sizes; best %s",
			c, rcclx.ConfirmGainPercent, e.ComparedSizes, best(e))
	}
	return fmt.Sprintf("%s %s", c, best(e))
}

// best is "1024 B: 20.0 us -> 8.0 us, 2.49x".
func best(e *api.SettingEvidence) string {
	datatype, placement := "", ""
	if e.Datatype != api.BFloat16 {
		datatype = string(e.Datatype) + " "
	}
	if e.Placement == api.InPlace {
		placement = " in place"
	}
	gain := "no gain known"
	if e.LatencyNanoseconds > 0 {
		gain = fmt.Sprintf("%.2fx", float64(e.BaselineNanoseconds*1_000_000/e.LatencyNanoseconds)/1e6)
	}
	return fmt.Sprintf("%s%d B%s: %.1f us -> %.1f us, %s", datatype, e.SizeBytes, placement,
		float64(e.BaselineNanoseconds)/1e3, float64(e.LatencyNanoseconds)/1e3, gain)
}

// randomData are the kinds of data that are as models have them, and their names in a message.
var randomData = []struct {
	data api.DataKind
	name string
}{{api.DataActivations, "activations"}, {api.DataGradients, "gradients"}}

// sumOf adds up one kind of data's errors with a collective: elements over all sizes, and the largest mean error.
func sumOf(errors []api.DataErrors, v api.Variant, c api.Collective,
	d api.DataKind) (checked, nan, overflow, meanPPM int64) {
	at := func(list []int64, i int) int64 {
		if i < len(list) {
			return list[i]
		}
		return 0
	}
	for i := range errors {
		e := &errors[i]
		if e.Variant != v || e.Data != d {
			continue
		}
		for k := range e.Collectives {
			if e.Collectives[k] == c {
				checked, nan = checked+at(e.CheckedElements, k), nan+at(e.NaNElements, k)
				overflow, meanPPM = overflow+at(e.OverflowElements, k), max(meanPPM, at(e.MeanErrorPPM, k))
			}
		}
	}
	return checked, nan, overflow, meanPPM
}

// overflow says what FP8 made of values over its range.
func overflow(errors []api.DataErrors, v api.Variant, c api.Collective) string {
	const why = "FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range"
	var out []string
	for _, kind := range randomData {
		checked, nan, clipped, _ := sumOf(errors, v, c, kind.data)
		var lost []string
		if nan > 0 {
			lost = append(lost, fmt.Sprintf("%d became NaN", nan))
		}
		if clipped > 0 {
			lost = append(lost, fmt.Sprintf("%d became infinite or were clipped", clipped))
		}
		if len(lost) > 0 {
			out = append(out, fmt.Sprintf("%s: of %d elements %s", kind.name, checked, strings.Join(lost, " and ")))
		}
	}
	if len(out) == 0 {
		return "values were lost: " + why // the report had no room for how many
	}
	return strings.Join(out, "; ") + ": " + why
}

// underflow says how far off FP8 is, on average, with the kind of data for which it is most.
func underflow(errors []api.DataErrors, v api.Variant, c api.Collective) string {
	const why = "values under 2^-10 become zero"
	var worst int64
	name, without := "", ""
	for _, kind := range randomData {
		_, _, _, mean := sumOf(errors, v, c, kind.data)
		if mean <= worst {
			continue
		}
		worst, name, without = mean, kind.name, ""
		if checked, _, _, base := sumOf(errors, api.VariantBaseline, c, kind.data); checked > 0 {
			without = fmt.Sprintf(", %s without FP8", units.Percent(base))
		}
	}
	if worst <= rcclx.MaxMeanErrorPPM {
		return fmt.Sprintf("mean error over %s: %s", units.Percent(rcclx.MaxMeanErrorPPM), why)
	}
	return fmt.Sprintf("%s: mean error %s%s, usable up to %s: %s", name, units.Percent(worst), without,
		units.Percent(rcclx.MaxMeanErrorPPM), why)
}

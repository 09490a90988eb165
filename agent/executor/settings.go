package executor

import (
	"fmt"
	"slices"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	maxSettings     = 80
	maxSettingCause = 256
)

// JudgeSettings says of each setting what was requested, what the gates of the library allow on its GPU, and what the
// table shows.
func JudgeSettings(lib rcclx.LibraryInfo, p api.RunPlan, t Table) []api.SettingStatus {
	var out []api.SettingStatus
	scope := ScopeOf(p, t.Ranks)
	scope.GFX = rcclx.GFXOf(lib.DeviceName)
	for _, e := range rcclx.Effectives(lib.Gates(), SettingsOf(p), scope) {
		variant, c := settingVariant(e.Name)
		if c != "" && !slices.Contains(p.Collectives, api.Collective(c)) {
			continue // an empty scope asks about every collective
		}
		if len(out) == maxSettings {
			break
		}
		s := api.SettingStatus{Name: e.Name, Requested: e.Requested, Effective: api.EffectiveState(e.State),
			Reason: e.Reason, MinBytes: e.MinBytes, MaxBytes: e.MaxBytes, Verified: api.VerifiedUnknown}
		switch e.State {
		case rcclx.StateInEffect: // nothing keeps it from acting
		case rcclx.StatePartial:
			s.Cause = clip.Head(e.Gates, maxSettingCause)
		default:
			s.Cause = clip.Head(e.Message, maxSettingCause)
		}
		if c != "" && (e.State == rcclx.StateInEffect || e.State == rcclx.StatePartial) {
			verify(&s, e, variant, c, p, t)
		}
		out = append(out, s)
	}
	return out
}

// settingVariant gives the variant that a setting is measured in, and its collective; empty for a variable.
func settingVariant(name string) (rcclx.Variant, rcclx.Collective) {
	if c, ok := strings.CutPrefix(name, rcclx.PrefixDDA); ok {
		return rcclx.DDA, rcclx.Collective(c)
	}
	if c, ok := strings.CutPrefix(name, rcclx.PrefixLowPrecision); ok {
		return rcclx.LowPrecision, rcclx.Collective(c)
	}
	return "", ""
}

// comparison is one size of a variant beside Baseline.
type comparison struct {
	datatype   rcclx.Datatype
	placement  rcclx.Placement
	base, with Cell
}

// gain is Baseline's latency over the variant's, in parts per million; more than a million is faster.
func (c comparison) gain() int64 {
	if c.with.LatencyNanoseconds <= 0 {
		return 0
	}
	return c.base.LatencyNanoseconds * 1_000_000 / c.with.LatencyNanoseconds
}

// faster says whether the gain is at least rcclx.ConfirmGainPercent and stands out of both measurements' noise.
func (c comparison) faster() bool {
	base, with := c.base.LatencyNanoseconds, c.with.LatencyNanoseconds
	least := max(base*rcclx.ConfirmGainPercent/100, base*(c.base.NoisePPM+c.with.NoisePPM)/1_000_000)
	return base > 0 && with > 0 && base-with >= least
}

// quantised says whether values were rounded in the variant, but not in Baseline.
func (c comparison) quantised() bool {
	return c.with.MaxRelativeErrorPPM() > c.base.MaxRelativeErrorPPM()
}

// verify compares a variant with Baseline within the sizes for which the setting is in effect. DDA is confirmed by a
// gain in latency, FP8 by its rounding: its data was chosen so that Baseline has none.
func verify(s *api.SettingStatus, e rcclx.Effective, v rcclx.Variant, c rcclx.Collective, p api.RunPlan, t Table) {
	compared := comparisons(e, v, c, p, t)
	if len(compared) == 0 {
		s.Usable = api.ResultsUnknown
		return
	}
	confirms := comparison.faster
	if v == rcclx.LowPrecision {
		confirms = comparison.quantised
	}
	best, confirmed := compared[0], false
	for _, x := range compared {
		switch better := x.gain() > best.gain(); {
		case confirms(x) && (!confirmed || better):
			best, confirmed = x, true
		case !confirmed && better:
			best = x
		}
	}
	s.Evidence = &api.SettingEvidence{ComparedSizes: int32(len(compared)), Datatype: api.Datatype(best.datatype),
		Placement: shownPlacement(best.placement), SizeBytes: best.base.SizeBytes,
		BaselineNanoseconds: best.base.LatencyNanoseconds, LatencyNanoseconds: best.with.LatencyNanoseconds}
	if v == rcclx.LowPrecision {
		s.Evidence.MaxErrorPPM = roundingError(compared)
	}
	switch {
	case confirmed:
		s.Verified = api.VerifiedConfirmed
	case v == rcclx.LowPrecision && s.Evidence.MaxErrorPPM == nil: // nothing was checked that would show it
	default:
		s.Verified = api.VerifiedNotConfirmed
	}
	addDataSeen(s, seenData(t, v, c, e.MinBytes), c, t.Ranks)
}

// comparisons are the sizes at which the setting is in effect and which were measured in both Baseline and the variant.
func comparisons(e rcclx.Effective, v rcclx.Variant, c rcclx.Collective, p api.RunPlan, t Table) []comparison {
	var compared []comparison
	for _, d := range p.Datatypes {
		for _, placement := range rcclx.MeasurablePlacements(c, placements(p.Placements)) {
			base, okBase := t.Find(SeriesKey{rcclx.Baseline, c, rcclx.Datatype(d), placement})
			with, okWith := t.Find(SeriesKey{v, c, rcclx.Datatype(d), placement})
			if !okBase || !okWith {
				continue
			}
			for _, b := range base.Cells {
				w, ok := with.Cell(b.SizeBytes)
				if ok && w.Hazard == "" && (e.MinBytes == nil || b.SizeBytes >= *e.MinBytes) &&
					(e.MaxBytes == nil || b.SizeBytes <= *e.MaxBytes) {
					compared = append(compared, comparison{rcclx.Datatype(d), placement, b, w})
				}
			}
		}
	}
	return compared
}

// roundingError is the largest relative error of the variant; nil where no element was checked for rounding.
func roundingError(compared []comparison) *int64 {
	var worst int64
	checked := false
	for _, x := range compared {
		checked = checked || x.with.Check(rcclx.DataRounding).CheckedElements > 0
		worst = max(worst, x.with.MaxRelativeErrorPPM())
	}
	if !checked {
		return nil
	}
	return &worst
}

// addDataSeen adds what the data checks found.
func addDataSeen(s *api.SettingStatus, seen rcclx.DataSeen, c rcclx.Collective, ranks int) {
	usability := seen.Usability()
	s.Usable, s.Warnings = api.UsableState(usability.State), usability.Names()
	s.Evidence.WrongElements, s.Evidence.TailElements = seen.WrongElements, seen.TailElements
	if seen.TailElements > 0 {
		s.Evidence.TailMultipleElements = rcclx.HazardMultiple(c, ranks)
	}
	for _, d := range seen.Missing {
		s.Evidence.UncheckedData = append(s.Evidence.UncheckedData, string(d))
	}
}

// Unmet returns what a Required setting lacks, one sentence each; empty where all requirements are met. A collective
// for which the library build has no DDA at all (NotBuilt) is let pass as long as another one is confirmed.
func Unmet(p api.RunPlan, settings []api.SettingStatus, errors []api.DataErrors) []string {
	var out []string
	for _, f := range []struct {
		prefix, field string
		mode          api.FeatureMode
	}{{rcclx.PrefixDDA, "dda.mode", p.DDA.Mode}, {rcclx.PrefixLowPrecision, "lowPrecision.mode", p.LowPrecision.Mode}} {
		if f.mode != api.FeatureRequired {
			continue
		}
		confirmed := 0
		var unmet, notBuilt []string
		for _, s := range settings {
			if !strings.HasPrefix(s.Name, f.prefix) || s.Requested == string(api.FeatureDisabled) {
				continue
			}
			inEffect := s.Effective == api.EffectiveInEffect || s.Effective == api.EffectivePartial
			text := fmt.Sprintf("%s is %s (%s), %s: %s",
				s.Name, s.Effective, s.Reason, s.Verified, explain.Setting(&s, errors))
			switch {
			case inEffect && s.Verified == api.VerifiedConfirmed:
				confirmed++
			case s.Effective == api.EffectiveNotInEffect && s.Reason == api.SettingReasonNotBuilt:
				notBuilt = append(notBuilt, text)
			default:
				unmet = append(unmet, text)
			}
		}
		if confirmed == 0 {
			unmet = append(unmet, notBuilt...)
			if len(unmet) == 0 {
				unmet = []string{f.field + " is Required, but no collective that was measured has the setting"}
			}
		}
		out = append(out, unmet...)
	}
	return out
}

package executor

import (
	"fmt"
	"slices"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

const (
	// confirmGainPercent is the least gain in latency over Baseline that counts as seen.
	confirmGainPercent = 5
	maxSettings        = 80
	maxSettingMessage  = 512
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
		s := api.SettingStatus{Name: e.Name, Requested: e.Requested, Effective: api.EffectiveState(e.State), Reason: e.Reason,
			MinBytes: e.MinBytes, MaxBytes: e.MaxBytes, Verified: api.VerifiedUnknown, Message: e.Message}
		if c != "" {
			seen := verify(e, variant, c, p, t)
			s.Verified, s.Usable, s.Warnings = seen.state, seen.usable, seen.warnings
			if seen.text != "" {
				s.Message = seen.text
				if s.Verified != api.VerifiedConfirmed && e.State != rcclx.StateInEffect {
					s.Message = seen.text + "; " + e.Message
				}
			}
		}
		if e.Gates != "" && !strings.Contains(s.Message, e.Gates) { //nolint:gocritic // renders: it is said once
			// Behind the numbers: the end is what is cut off, and the reason and the sizes say of the gates the most.
			s.Message += "; not for all sizes and datatypes: " + e.Gates
		}
		s.Message = clip.Head(s.Message, maxSettingMessage)
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

// verification is what the measurement shows of a setting.
type verification struct {
	state    api.VerifiedState
	usable   api.UsableState
	text     string
	warnings []string
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

// faster says whether the gain is at least confirmGainPercent and stands out of both measurements' noise.
func (c comparison) faster() bool {
	least := max(c.base.LatencyNanoseconds*confirmGainPercent/100, c.base.LatencyNanoseconds*(c.base.NoisePPM+c.with.NoisePPM)/1_000_000)
	return c.base.LatencyNanoseconds > 0 && c.with.LatencyNanoseconds > 0 && c.base.LatencyNanoseconds-c.with.LatencyNanoseconds >= least
}

// quantised says whether values were rounded in the variant, but not in Baseline.
func (c comparison) quantised() bool {
	return c.with.MaxRelativeErrorPPM() > c.base.MaxRelativeErrorPPM()
}

func (c comparison) String() string {
	dt, place := "", ""
	if c.datatype != rcclx.BFloat16 {
		dt = string(c.datatype) + " "
	}
	if c.placement == rcclx.InPlace {
		place = " in place"
	}
	return fmt.Sprintf("%s%d B%s: %s -> %s, %s", dt, c.base.SizeBytes, place, micros(c.base.LatencyNanoseconds), micros(c.with.LatencyNanoseconds), ratio(c.gain()))
}

// verify compares a variant with Baseline within the sizes for which the setting is in effect. DDA is confirmed by a
// gain in latency, FP8 by its rounding: its data was chosen so that Baseline has none.
func verify(e rcclx.Effective, v rcclx.Variant, c rcclx.Collective, p api.RunPlan, t Table) verification {
	if e.State != rcclx.StateInEffect && e.State != rcclx.StatePartial {
		return verification{state: api.VerifiedUnknown}
	}
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
				if ok && w.Hazard == "" && (e.MinBytes == nil || b.SizeBytes >= *e.MinBytes) && (e.MaxBytes == nil || b.SizeBytes <= *e.MaxBytes) {
					compared = append(compared, comparison{rcclx.Datatype(d), placement, b, w})
				}
			}
		}
	}
	if len(compared) == 0 {
		return verification{state: api.VerifiedUnknown, usable: api.ResultsUnknown, text: fmt.Sprintf("no size for which it is in effect was measured in both Baseline and %s", v)}
	}
	var seen verification
	if v == rcclx.LowPrecision {
		seen = verifyLowPrecision(c, compared)
	} else {
		seen = verifyGain(c, compared)
	}
	found := seenData(t, v, c, e.MinBytes)
	usability := found.Usability()
	seen.usable = api.UsableState(usability.State)
	var first []string // wrong elements go in front: that is what a job must know
	for _, l := range usability.Losses {
		seen.warnings = append(seen.warnings, string(l))
		if text := lossText(t, c, l, found); l == rcclx.LossWrongData || l == rcclx.LossTail {
			first = append(first, text)
		} else {
			seen.text += "; " + text
		}
	}
	if len(found.Missing) > 0 {
		seen.text += fmt.Sprintf("; not checked at every size with %v data", found.Missing)
	}
	seen.text = strings.Join(append(first, seen.text), "; ")
	return seen
}

// verifyGain confirms a setting by a gain in latency.
func verifyGain(c rcclx.Collective, compared []comparison) verification {
	best := compared[0]
	confirmed := false
	for _, x := range compared {
		if x.faster() && (!confirmed || x.gain() > best.gain()) {
			best, confirmed = x, true
		} else if !confirmed && x.gain() > best.gain() {
			best = x
		}
	}
	if !confirmed {
		return verification{state: api.VerifiedNotConfirmed, text: fmt.Sprintf("%s no faster than Baseline by %d %% at any of %d sizes; best %s", c, confirmGainPercent, len(compared), best)}
	}
	return verification{state: api.VerifiedConfirmed, text: fmt.Sprintf("%s %s", c, best)}
}

func verifyLowPrecision(c rcclx.Collective, compared []comparison) verification {
	best := compared[0]
	confirmed, checked := false, false
	var worst int64
	for _, x := range compared {
		checked = checked || x.with.Check(rcclx.DataRounding).CheckedElements > 0
		worst = max(worst, x.with.MaxRelativeErrorPPM())
		if x.quantised() && (!confirmed || x.gain() > best.gain()) {
			best, confirmed = x, true
		}
	}
	switch {
	case !checked:
		return verification{state: api.VerifiedUnknown, text: fmt.Sprintf("%s was measured, but no element was checked for rounding", c)}
	case !confirmed:
		return verification{state: api.VerifiedNotConfirmed, text: fmt.Sprintf("%s shows no FP8 rounding at any of %d sizes; %s", c, len(compared), best)}
	}
	return verification{state: api.VerifiedConfirmed, text: fmt.Sprintf("%s %s, relative error %s", c, best, ppm(worst))}
}

// Unmet returns what a Required setting lacks, one sentence each; empty where all requirements are met. A collective
// for which the library build has no DDA at all (NotBuilt) is let pass as long as another one is confirmed.
func Unmet(p api.RunPlan, settings []api.SettingStatus) []string {
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
			text := fmt.Sprintf("%s is %s (%s), %s: %s", s.Name, s.Effective, s.Reason, s.Verified, s.Message)
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

func micros(nanoseconds int64) string { return fmt.Sprintf("%.1f us", float64(nanoseconds)/1000) }
func ratio(ppm int64) string          { return fmt.Sprintf("%.2fx", float64(ppm)/1e6) }
func ppm(v int64) string              { return fmt.Sprintf("%.2f %%", float64(v)/1e4) }

package settings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// The bounds keep the group's status small.
const (
	maxSettings = 80
	maxMessage  = 400
)

// effectiveRank and verifiedRank order states, the worst last.
func effectiveRank(s v1alpha1.EffectiveState) int {
	switch s {
	case v1alpha1.EffectiveInEffect:
		return 0
	case v1alpha1.EffectivePartial:
		return 1
	case v1alpha1.EffectiveNotInEffect:
		return 3
	case v1alpha1.EffectiveUnknown:
	}
	return 2
}

func verifiedRank(s v1alpha1.VerifiedState) int {
	switch s {
	case v1alpha1.VerifiedConfirmed:
		return 0
	case v1alpha1.VerifiedNotConfirmed:
		return 2
	case v1alpha1.VerifiedUnknown:
	}
	return 1
}

func usableRank(s v1alpha1.UsableState) int {
	switch s {
	case v1alpha1.ResultsUsable:
		return 0
	case v1alpha1.ResultsNotUsable:
		return 2
	case v1alpha1.ResultsUnknown:
	}
	return 1
}

// Aggregate says of each setting what holds over all nodes: the worst node's state counts, and a node that
// reports nothing of a setting counts as Unknown.
func Aggregate(outcomes []judge.Outcome) []v1alpha1.SettingStatus {
	type tally struct {
		worst     v1alpha1.SettingStatus
		worstNode string
		errors    []v1alpha1.DataErrors // of that node
		verified  v1alpha1.VerifiedState
		usable    v1alpha1.UsableState
		nodes     int
		alike     int // nodes in the worst state
		warnings  []string
	}
	tallies := map[string]*tally{}
	for i := range outcomes {
		if outcomes[i].Report == nil {
			continue
		}
		for _, s := range outcomes[i].Report.Settings {
			t := tallies[s.Name]
			if t == nil {
				tallies[s.Name] = &tally{worst: *s.DeepCopy(),
					worstNode: outcomes[i].Node, errors: outcomes[i].Report.DataErrors,
					verified: s.Verified, usable: s.Usable, nodes: 1, alike: 1, warnings: slices.Clone(s.Warnings)}
				continue
			}
			for _, word := range s.Warnings {
				if !slices.Contains(t.warnings, word) {
					t.warnings = append(t.warnings, word)
				}
			}
			t.nodes++
			switch {
			case effectiveRank(s.Effective) > effectiveRank(t.worst.Effective):
				low, high := t.worst.MinBytes, t.worst.MaxBytes
				t.worst, t.worstNode, t.errors, t.alike = *s.DeepCopy(), outcomes[i].Node,
					outcomes[i].Report.DataErrors, 1
				t.worst.MinBytes, t.worst.MaxBytes = narrower(low, s.MinBytes, 1), narrower(high, s.MaxBytes, -1)
			case s.Effective == t.worst.Effective:
				t.alike++
				t.worst.MinBytes, t.worst.MaxBytes = narrower(t.worst.MinBytes, s.MinBytes, 1),
					narrower(t.worst.MaxBytes, s.MaxBytes, -1)
			}
			if verifiedRank(s.Verified) > verifiedRank(t.verified) {
				t.verified = s.Verified
			}
			if usableRank(s.Usable) > usableRank(t.usable) {
				t.usable = s.Usable
			}
		}
	}
	total := len(outcomes)
	out := make([]v1alpha1.SettingStatus, 0, len(tallies))
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		s := t.worst
		message := explain.Setting(&s, t.errors)
		s.Verified, s.Usable = t.verified, t.usable
		slices.Sort(t.warnings)
		s.Warnings = t.warnings
		if len(s.Warnings) > 0 { // also where an agent of an earlier release says no more
			s.Usable = v1alpha1.ResultsNotUsable
		}
		if t.nodes < total {
			if effectiveRank(s.Effective) < effectiveRank(v1alpha1.EffectiveUnknown) {
				s.Effective, s.Reason = v1alpha1.EffectiveUnknown, v1alpha1.SettingReasonUnknown
			}
			if verifiedRank(s.Verified) < verifiedRank(v1alpha1.VerifiedUnknown) {
				s.Verified = v1alpha1.VerifiedUnknown
			}
			if s.Usable == v1alpha1.ResultsUsable {
				s.Usable = v1alpha1.ResultsUnknown
			}
			message = fmt.Sprintf("Nodes that report it: %d of %d. %s", t.nodes, total, message)
		} else if t.alike < total {
			message = fmt.Sprintf("On %d of %d nodes, first %s: %s", t.alike, total, t.worstNode, message)
		} else if total > 1 {
			message = fmt.Sprintf("On %d of %d nodes: %s", t.alike, total, message)
		}
		s.Message = clip.Head(message, maxMessage)
		if effectiveRank(s.Effective) >= effectiveRank(v1alpha1.EffectiveUnknown) {
			s.MinBytes, s.MaxBytes = nil, nil
		}
		out = append(out, s)
	}
	if len(out) > maxSettings {
		out = out[:maxSettings]
	}
	return out
}

// narrower is the tighter of two bounds, sign 1 for lower and -1 for upper ones; nil is no bound.
func narrower(a, b *int64, sign int64) *int64 {
	if a == nil || (b != nil && *b*sign > *a*sign) {
		return b
	}
	return a
}

// Requested says whether the setting was asked for.
func Requested(s *v1alpha1.SettingStatus) bool {
	return s.Requested != string(v1alpha1.FeatureDisabled) && s.Reason != v1alpha1.SettingReasonDisabled
}

// Allowed says whether the library's gates let the setting act, at all sizes or at some.
func Allowed(s *v1alpha1.SettingStatus) bool {
	return s.Effective == v1alpha1.EffectiveInEffect || s.Effective == v1alpha1.EffectivePartial
}

// notUsable names the settings whose results are not usable on some node, with the warnings that say why.
func notUsable(settings []v1alpha1.SettingStatus) []string {
	var names []string
	for i := range settings {
		s := &settings[i]
		switch {
		case len(s.Warnings) > 0:
			names = append(names, fmt.Sprintf("%s (%s)", s.Name, strings.Join(s.Warnings, ", ")))
		case s.Usable == v1alpha1.ResultsNotUsable:
			names = append(names, s.Name)
		}
	}
	return names
}

// InEffect is the condition of the same name. That results are not usable stands behind it, whatever its status.
func InEffect(settings []v1alpha1.SettingStatus, spec *v1alpha1.CommGroupSpec) decision.Finding {
	f := state(settings, spec)
	if names := notUsable(settings); len(names) > 0 {
		f.Message += fmt.Sprintf(" Results are not usable with %s; see status.settings of the CommRun.",
			explain.Names(names, 6))
	}
	return f
}

func state(settings []v1alpha1.SettingStatus, spec *v1alpha1.CommGroupSpec) decision.Finding {
	if spec.DDA.Mode == v1alpha1.FeatureDisabled && spec.LowPrecision.Mode == v1alpha1.FeatureDisabled &&
		len(spec.Runtime.Env) == 0 {
		return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNotRequested,
			Message: "The spec asks for no setting."}
	}
	if len(settings) == 0 {
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotVerified,
			Message: "No run has reported on the settings."}
	}
	var off, unproven, unknown []string
	requested := 0
	for i := range settings {
		s := &settings[i]
		if !Requested(s) {
			continue
		}
		requested++
		switch {
		case s.Effective == v1alpha1.EffectiveNotInEffect:
			off = append(off, s.Name+" ("+s.Reason+")")
		case s.Verified == v1alpha1.VerifiedNotConfirmed:
			unproven = append(unproven, s.Name)
		case !Allowed(s) || s.Verified == v1alpha1.VerifiedUnknown:
			unknown = append(unknown, s.Name)
		}
	}
	switch {
	case len(off) > 0:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotInEffect,
			Message: fmt.Sprintf("%d of %d requested settings are not in effect: %s. status.settings of the "+
				"CommRun says why.", len(off), requested, explain.Names(off, 6))}
	case len(unproven) > 0:
		return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotVerified,
			Message: fmt.Sprintf("The gates allow %s, and the A/B run shows no difference from Baseline. "+
				"Set the mode to Disabled if it does not help.", explain.Names(unproven, 6))}
	case len(unknown) > 0:
		return decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotVerified,
			Message: "Not known for " + explain.Names(unknown, 6) + "."}
	}
	return decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInEffect,
		Message: fmt.Sprintf("All %d requested settings are in effect within their gates, confirmed by the A/B run.",
			requested)}
}

// RequirementUnmet names a setting whose mode is Required and which is not in effect; empty where there is none.
func RequirementUnmet(settings []v1alpha1.SettingStatus, spec *v1alpha1.CommGroupSpec) string {
	required := map[string]v1alpha1.FeatureMode{rcclx.PrefixDDA: spec.DDA.Mode,
		rcclx.PrefixLowPrecision: spec.LowPrecision.Mode}
	for _, prefix := range slices.Sorted(maps.Keys(required)) {
		if required[prefix] != v1alpha1.FeatureRequired {
			continue
		}
		found := false
		for i := range settings {
			s := &settings[i]
			if !strings.HasPrefix(s.Name, prefix) || !Requested(s) {
				continue
			}
			if Allowed(s) && s.Verified != v1alpha1.VerifiedNotConfirmed {
				found = true
			}
		}
		if !found {
			return strings.TrimSuffix(prefix, ".") + " is Required and in effect for no collective"
		}
	}
	return ""
}

// Summary is "DDA", "FP8", "DDA,FP8", "none" or "unknown": what the gates allow and the A/B run confirmed for at least
// one collective. A feature is followed by "(NotUsable)" where no such collective has results that a job can use.
func Summary(settings []v1alpha1.SettingStatus) string {
	var on []string
	undecided := len(settings) == 0
	for _, f := range []struct{ prefix, name string }{{rcclx.PrefixDDA, "DDA"}, {rcclx.PrefixLowPrecision, "FP8"}} {
		confirmed, usable := false, false
		for i := range settings {
			s := &settings[i]
			if !strings.HasPrefix(s.Name, f.prefix) || !Requested(s) {
				continue
			}
			if Allowed(s) && s.Verified == v1alpha1.VerifiedConfirmed {
				confirmed, usable = true, usable || s.Usable != v1alpha1.ResultsNotUsable
			}
			undecided = undecided || s.Effective == v1alpha1.EffectiveUnknown ||
				Allowed(s) && s.Verified == v1alpha1.VerifiedUnknown
		}
		switch {
		case usable:
			on = append(on, f.name)
		case confirmed:
			on = append(on, f.name+"("+string(v1alpha1.ResultsNotUsable)+")")
		}
	}
	fallback := "none"
	if undecided {
		fallback = "unknown"
	}
	return cmp.Or(strings.Join(on, ","), fallback)
}

// MixedFP8 says that FP8 is asked for and GPUs of these targets encode it differently; empty where not.
func MixedFP8(spec *v1alpha1.CommGroupSpec, targets []string) string {
	if spec.LowPrecision.Mode == v1alpha1.FeatureDisabled || spec.LowPrecision.Mode == "" {
		return ""
	}
	broken := compat.CheckFP8(targets)
	if broken == nil {
		return ""
	}
	return explain.Sentence(broken.Message) + " No FP8 setting is published for this group."
}

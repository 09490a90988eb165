package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx"
)

// chosen is what of the proven settings goes out (docs/decisions/0014).
type chosen struct {
	// withheld says why nothing at all is published; reason goes with it, or with a note about a part that is left out.
	withheld, reason string
	// note is for the condition, comments are lines for rccl.conf.
	note     string
	comments []string
	env      []v1alpha1.EnvVar
	// fp8 is what FP8 is on for, with the losses that the spec accepts.
	fp8 []v1alpha1.PublishedLowPrecision
}

// choose decides by publish.choice. What is not worth it is switched off by its variable, and not just left out:
// RCCLX and AMD's RCCL have DDA on by default.
func choose(in Input, report *v1alpha1.NodeRunStatus) chosen {
	spec := &in.Group.Spec
	flavor := settings.GatesOf(report.Library)
	encodings := settings.MixedFP8(spec, in.GFXTargets)
	if cmp.Or(spec.Publish.Choice, v1alpha1.PublishWhereWorthIt) == v1alpha1.PublishAsRequested {
		fp8 := provenFP8(spec, in.Settings, report.Library, encodings, nil)
		out := chosen{withheld: fp8.withheld, reason: fp8.reason, note: fp8.note,
			env: fp8.apply(report.Environment), fp8: fp8.record}
		out.comments = fp8.comments
		for _, o := range fp8.left {
			out.comments = append(out.comments, fmt.Sprintf("FP8 is off for %s: %s.", o.collective, o.why))
			out.note += fmt.Sprintf(" FP8 is off for %s: %s.", o.collective, o.why)
		}
		if len(fp8.keep) > 0 {
			out.comments = append(out.comments,
				fmt.Sprintf("FP8 is on for %s%s.", strings.Join(fp8.keep, ", "), costs(in, rcclx.LowPrecision)))
		}
		return out
	}
	dda := chooseDDA(in, flavor)
	if spec.DDA.Mode == v1alpha1.FeatureRequired && !dda.On {
		return chosen{reason: v1alpha1.ReasonNotWorthIt, withheld: fmt.Sprintf(
			"dda.mode is Required, and %s: set it to Preferred, or publish.choice to AsRequested.", dda.Why)}
	}
	objections := map[string]string{}
	for _, c := range rcclx.ChooseLowPrecision(in.Worth, askedCollectives(spec), dda,
		settings.JobOf(spec, in.Settings)) {
		if !c.On {
			objections[string(c.Collective)] = c.Why
		}
	}
	fp8 := provenFP8(spec, in.Settings, report.Library, encodings, objections)
	if fp8.withheld != "" {
		return chosen{withheld: fp8.withheld, reason: fp8.reason}
	}
	out := chosen{reason: fp8.reason, note: fp8.note, comments: fp8.comments, fp8: fp8.record}
	out.env = withDDA(flavor, spec, dda, fp8.apply(report.Environment))
	out.comments = append(out.comments,
		fmt.Sprintf("Of what run %s measured on %s: what is in effect, confirmed and worth it.",
			in.Run.ID, units.Counted(len(in.Outcomes), "member")))
	out.explain(in, dda, fp8)
	return out
}

// leaveOutComputed keeps out what agents compute for each node: the run did not measure the spec's value, and a job on
// another node needs another.
func (c *chosen) leaveOutComputed(spec *v1alpha1.CommGroupSpec) {
	var names []string
	c.env = slices.DeleteFunc(slices.Clone(c.env), func(e v1alpha1.EnvVar) bool {
		if !spec.Computes(e.Name) {
			return false
		}
		names = append(names, e.Name)
		return true
	})
	for _, e := range spec.Runtime.Env {
		if spec.Computes(e.Name) && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		c.note += fmt.Sprintf(" Not in it: %s, which agents compute for each node; remove it from runtime.env.",
			strings.Join(names, ", "))
	}
}

// chooseDDA is the choice by the numbers, of what the run confirmed only.
func chooseDDA(in Input, flavor rcclx.Flavor) rcclx.DDAChoice {
	spec := &in.Group.Spec
	if !rcclx.Mode(spec.DDA.Mode).Requests() {
		return rcclx.DDAChoice{Why: "the spec asks for none"}
	}
	confirmed := slices.ContainsFunc(in.Settings, func(s v1alpha1.SettingStatus) bool {
		return strings.HasPrefix(s.Name, rcclx.PrefixDDA) && settings.Requested(&s) && settings.Allowed(&s) &&
			s.Verified == v1alpha1.VerifiedConfirmed && s.Usable != v1alpha1.ResultsNotUsable
	})
	choice := rcclx.ChooseDDA(flavor, settings.Asked(spec), in.Worth)
	if choice.On && !confirmed {
		return rcclx.DDAChoice{Why: "the run did not confirm it for any collective"}
	}
	return choice
}

func askedCollectives(spec *v1alpha1.CommGroupSpec) []rcclx.Collective {
	if !rcclx.Mode(spec.LowPrecision.Mode).Requests() {
		return nil
	}
	var out []rcclx.Collective
	for _, c := range askedFP8(spec) {
		out = append(out, rcclx.Collective(c))
	}
	return out
}

// withDDA puts the variables of the choice in the place of those that the spec's settings gave.
func withDDA(flavor rcclx.Flavor, spec *v1alpha1.CommGroupSpec, dda rcclx.DDAChoice,
	env []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	asked := settings.Asked(spec)
	given := map[string]bool{}
	for _, row := range rcclx.SettingVariables(flavor, asked) {
		if strings.HasPrefix(row.Setting, rcclx.PrefixDDA) && row.Value != nil {
			given[row.Name] = true
		}
	}
	out := slices.DeleteFunc(slices.Clone(env), func(e v1alpha1.EnvVar) bool { return given[e.Name] })
	choice := asked
	choice.DDA = rcclx.DDASettings{Mode: rcclx.ModeDisabled}
	if dda.On {
		choice.DDA = rcclx.DDASettings{Mode: rcclx.ModePreferred, AllReduceFlatMaxBytes: dda.FlatMaxBytes,
			AllReduceTreeMaxBytes: dda.TreeMaxBytes}
	}
	for _, row := range rcclx.SettingVariables(flavor, choice) {
		if strings.HasPrefix(row.Setting, rcclx.PrefixDDA) && row.Value != nil {
			out = slices.DeleteFunc(out, func(e v1alpha1.EnvVar) bool { return e.Name == row.Name })
			out = append(out, v1alpha1.EnvVar{Name: row.Name, Value: *row.Value})
		}
	}
	return out
}

// explain says in rccl.conf and in the condition what is on, what is left out and why, with gain and memory.
func (c *chosen) explain(in Input, dda rcclx.DDAChoice, fp8 fp8Publication) {
	spec := &in.Group.Spec
	var off []string
	on, asked := false, rcclx.Mode(spec.DDA.Mode).Requests() || rcclx.Mode(spec.LowPrecision.Mode).Requests()
	if rcclx.Mode(spec.DDA.Mode).Requests() {
		if dda.On {
			on = true
			c.comments = append(c.comments, fmt.Sprintf("DDA is on: %s%s.", dda.Why, costs(in, rcclx.DDA)))
			c.gains(in, rcclx.DDA, nil)
		} else {
			c.comments = append(c.comments, fmt.Sprintf("DDA is off: %s.", dda.Why))
			off = append(off, "DDA is off: "+dda.Why)
		}
	}
	if len(fp8.keep) > 0 {
		on = true
		c.comments = append(c.comments,
			fmt.Sprintf("FP8 is on for %s%s.", strings.Join(fp8.keep, ", "), costs(in, rcclx.LowPrecision)))
		c.gains(in, rcclx.LowPrecision, fp8.keep)
	}
	for _, o := range fp8.left {
		c.comments = append(c.comments, fmt.Sprintf("FP8 is off for %s: %s.", o.collective, o.why))
		off = append(off, fmt.Sprintf("FP8 is off for %s: %s", o.collective, o.why))
	}
	for _, name := range fp8.unproven {
		c.comments = append(c.comments, fmt.Sprintf("FP8 is off for %s: the run did not confirm it.", name))
	}
	if !on && asked {
		c.comments = append(c.comments,
			"Nothing of what was asked for is both confirmed and worth it: these are the variables of Baseline.")
		off = append([]string{"Nothing of what was asked for is both confirmed and worth it, so that the variables " +
			"are Baseline's"}, off...)
	}
	if len(off) > 0 {
		c.note += " " + strings.Join(off, "; ") + "."
	}
}

// gains are lines of what was measured, for the collectives that are on; nil for all.
func (c *chosen) gains(in Input, v rcclx.Variant, of []string) {
	for _, w := range in.Worth {
		if w.Variant != v || of != nil && !slices.Contains(of, string(w.Collective)) {
			continue
		}
		var parts []string
		for _, b := range w.Bands(settings.MaxBands) {
			change := fmt.Sprintf("%d %% less time", b.MedianGainPercent)
			switch {
			case b.Outcome == rcclx.OutcomeEven:
				change = "no change"
			case b.MedianGainPercent < 0:
				change = fmt.Sprintf("%d %% more time", -b.MedianGainPercent)
			}
			where := fmt.Sprintf("from %s to %s", units.Size(b.MinBytes), units.Size(b.MaxBytes))
			if b.MinBytes == b.MaxBytes {
				where = "at " + units.Size(b.MinBytes)
			}
			parts = append(parts, change+" "+where)
		}
		line := fmt.Sprintf("  %s %s: %s", w.Collective, w.Datatype, strings.Join(parts, ", "))
		if price := w.ForItsError(settings.JobOf(&in.Group.Spec, in.Settings)); price != "" {
			line += ", " + price
		}
		if open := w.Unproven(); open != "" {
			line += "; " + open
		}
		c.comments = append(c.comments, line+".")
	}
}

// costs is the most device memory that the setting takes, in half a sentence; empty where it is not known.
func costs(in Input, v rcclx.Variant) string {
	var most *rcclx.Worth
	for i := range in.Worth {
		if w := &in.Worth[i]; w.Variant == v && w.MemoryBytes != nil &&
			(most == nil || *w.MemoryBytes > *most.MemoryBytes) {
			most = w
		}
	}
	if most == nil {
		return ""
	}
	text := fmt.Sprintf(", for %s of device memory a rank and communicator", rcclx.HumanBytes(*most.MemoryBytes))
	if more := most.MoreRanks(int(in.Group.Spec.RanksPerNode)); more != "" {
		text += fmt.Sprintf(", and %s; over several nodes it was not measured", more)
	}
	return text
}

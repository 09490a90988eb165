package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/rcclx"
)

// Decide decides what the ConfigMap shall hold. Settings of an older run stay while no newer run has proven others.
// What of them may not be published any longer does not: a release without today's rules published it, or the spec
// accepts or asks for it no longer.
func Decide(in Input) Publication {
	out := decide(in)
	old := in.Group.Status.Published
	if out.ConfigMap != nil || out.LookUp || old == nil || out.Published != old {
		return out
	}
	kept := in.kept()
	if kept == nil || !intact(kept, old.Hash) {
		return out
	}
	variables := variablesOf(kept)
	rest, objections := in.withoutFP8(variables)
	if why, next := mayNotStay(in, rest); why != "" {
		// The status has it until it is gone: a delete that the API server refuses is tried again.
		return Publication{Published: old, Remove: []string{old.ConfigMapName},
			Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonVariableNotPublishable,
				Message: fmt.Sprintf("ConfigMap %s is deleted: variable %s. %s; what the next run that passes proves "+
					"is published.", old.ConfigMapName, why, next)}}
	}
	if len(objections) == 0 {
		return out
	}
	return in.rewritten(kept, rest, objections)
}

// rewritten publishes the older run's settings again without FP8: pods that take the ConfigMap by envFrom do not start
// without it.
func (in *Input) rewritten(kept *corev1.ConfigMap, rest map[string]string, objections []string) Publication {
	old := in.Group.Status.Published
	comments := []string{fmt.Sprintf("The settings that run %s proved, less what may not be published any longer.",
		old.RunID)}
	for _, o := range objections {
		comments = append(comments, "FP8 is off: "+o+".")
	}
	next := kept.DeepCopy()
	var hash string
	next.Data, hash = contentOf(rest, comments)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AnnotationSettingsHash, hash)
	published := &v1alpha1.PublishedStatus{ConfigMapName: old.ConfigMapName, Hash: hash, RunID: old.RunID,
		Time: *decision.Stamp(in.Now)}
	for _, p := range old.LowPrecision {
		if switchedOn(rest, rcclx.Collective(p.Collective)) {
			published.LowPrecision = append(published.LowPrecision, p)
		}
	}
	return Publication{Published: published, ConfigMap: next, Condition: decision.Finding{Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonVariableNotPublishable, Message: fmt.Sprintf("ConfigMap %s holds the settings of "+
			"run %s with FP8 off: variable %s. Pods that run keep their environment: restart the jobs that took it "+
			"before. What the next run that passes proves is published.", old.ConfigMapName, old.RunID, objections[0])}}
}

// switchedOn says whether a variable switches FP8 on for the collective.
func switchedOn(variables map[string]string, c rcclx.Collective) bool {
	for name, value := range variables {
		if strings.HasPrefix(name, fp8Prefix) && value == "1" &&
			slices.Contains(rcclx.LowPrecisionSwitchedBy(name), c) {
			return true
		}
	}
	return false
}

// withoutFP8 are the variables with FP8 off where it may not be on any longer, and for each one changed its name and
// why.
func (in *Input) withoutFP8(variables map[string]string) (rest map[string]string, objections []string) {
	rest = maps.Clone(variables)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if !strings.HasPrefix(name, fp8Prefix) || variables[name] != "1" {
			continue
		}
		if why := in.fp8Objection(name); why != "" {
			rest[name] = "0"
			objections = append(objections, name+" switches FP8 on"+why)
		}
	}
	return rest, objections
}

// kept is the ConfigMap that the status names, under its present or its former name.
func (in *Input) kept() *corev1.ConfigMap {
	for _, cm := range []*corev1.ConfigMap{in.Existing, in.Former} {
		if cm != nil && cm.Name == in.Group.Status.Published.ConfigMapName {
			return cm
		}
	}
	return nil
}

// mayNotStay names the first published variable that may not be published now, says why, and what to do; empty where
// all may.
func mayNotStay(in Input, variables map[string]string) (why, next string) {
	if name, why := notPublishable(variables); why != "" {
		return name + " " + why, "Correct runtime.env, or the runtime image where it is not there"
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if in.Group.Spec.Computes(name) {
			return name + " is one that agents compute for each node", "Remove it from runtime.env"
		}
	}
	return "", ""
}

// fp8Objection says in half a sentence why the variable may not switch FP8 on any longer; empty where it may.
func (in *Input) fp8Objection(variable string) string {
	spec := &in.Group.Spec
	if settings.MixedFP8(spec, in.GFXTargets) != "" {
		return ", and the group has GPUs that encode it differently"
	}
	switched := rcclx.LowPrecisionSwitchedBy(variable)
	if len(switched) == 0 {
		return ", which spec.lowPrecision does not ask for"
	}
	asked := askedCollectives(spec)
	job := settings.JobOf(spec, in.Settings)
	for _, c := range switched {
		if !slices.Contains(asked, c) {
			return fmt.Sprintf(" for %s, which spec.lowPrecision does not ask for", c)
		}
		seen := withRecorded(job.Data[c], in.Group.Status.Published.LowPrecision, c)
		if why := seen.Accepting(job.Accepted).Objection(c); why != "" {
			return ", and " + why
		}
	}
	return ""
}

// withRecorded adds what the run saw that the published settings are of. What a later run did not look at is as it was
// then, and a loss that was accepted then stands though a later run did not meet it.
func withRecorded(shown rcclx.Usability, recorded []v1alpha1.PublishedLowPrecision,
	c rcclx.Collective) rcclx.Usability {
	i := slices.IndexFunc(recorded, func(p v1alpha1.PublishedLowPrecision) bool {
		return string(p.Collective) == string(c)
	})
	switch {
	case i < 0:
		return shown
	case len(recorded[i].Losses) > 0:
		if shown.State == rcclx.NotUsable && len(shown.Losses) == 0 {
			return shown // a loss without a name, which nobody accepts
		}
		shown.State, shown.Losses = rcclx.NotUsable, slices.Clone(shown.Losses)
		for _, l := range recorded[i].Losses {
			if !slices.Contains(shown.Losses, rcclx.Loss(l)) {
				shown.Losses = append(shown.Losses, rcclx.Loss(l))
			}
		}
	case shown.State != rcclx.NotUsable:
		shown.State = rcclx.Usable
	}
	return shown
}

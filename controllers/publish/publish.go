package publish

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/rcclx"
)

// confKey holds the settings as /etc/rccl.conf takes them.
const confKey = "rccl.conf"

// Input is what publishing rests on.
type Input struct {
	Now      time.Time
	Group    *state.Group
	Run      *v1alpha1.GroupRunStatus
	Outcomes []judge.Outcome
	Settings []v1alpha1.SettingStatus
	Origin   v1alpha1.Origin
	Existing *corev1.ConfigMap
	// Former is the ConfigMap that the group published under another name; nil where it has none.
	Former *corev1.ConfigMap
	// Certain: Existing is what the API has, not only what the cache has.
	Certain bool
	Owned   []string
	// GFXTargets of the members.
	GFXTargets []string
	// Worth are the judgements of the A/B numbers.
	Worth []rcclx.Worth
}

// Publication is what is to be published, and what is said of it.
type Publication struct {
	Condition decision.Finding
	Published *v1alpha1.PublishedStatus
	ConfigMap *corev1.ConfigMap
	LookUp    bool
	Remove    []string
	// Events to send, and when to check again without one.
	Events []decision.Event
	WakeAt time.Time
}

// ConfigMapName is the name that the group publishes under.
func ConfigMapName(group *state.Group) string {
	name := group.Name + "-rccl-settings"
	if len(name) > validation.DNS1123SubdomainMaxLength {
		name = objects.Name(validation.DNS1123LabelMaxLength, group.Name, group.Name, "rccl-settings")
	}
	return cmp.Or(group.Spec.Publish.ConfigMapName, name)
}

// notPublishable names the first variable that may not be published, and says why; empty where all may.
func notPublishable(variables map[string]string) (name, why string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if why := rcclx.WhyNotPublishable(rcclx.EnvVar{Name: name, Value: variables[name]}); why != "" {
			return rcclx.OneLine(name), why
		}
	}
	return "", ""
}

func decide(in Input) Publication {
	name := ConfigMapName(in.Group)
	old := in.Group.Status.Published
	if in.Group.Spec.Publish.Mode == v1alpha1.PublishOff {
		return Publication{
			Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPublishOff,
				Message: "publish.mode is Off."},
			Remove: slices.Clone(in.Owned),
		}
	}
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return Publication{Published: otherPublished(in, name),
			Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapNameInvalid,
				Message: fmt.Sprintf("No ConfigMap can be named %q: %s. Change publish.configMapName.", name, bad[0])}}
	}
	if in.Existing != nil && !objects.OwnedBy(in.Existing, in.Group) {
		return notOwned(in, name)
	}
	why, reason, first := proven(in)
	if why != "" {
		return keepPublished(in, old, name, why, reason)
	}
	choice := choose(in, first)
	if choice.withheld != "" {
		return keepPublished(in, old, name, choice.withheld, choice.reason)
	}
	choice.leaveOutComputed(&in.Group.Spec)
	if variable, why := notPublishable(valuesOf(choice.env)); why != "" {
		return keepPublished(in, old, name, fmt.Sprintf("Nothing is published: variable %s %s. Correct runtime.env, "+
			"or the runtime image where it is not there.", variable, why), v1alpha1.ReasonVariableNotPublishable)
	}
	desired := configMapWith(in, name, choice.env, choice.comments)
	if in.Existing == nil && !in.Certain {
		return Publication{LookUp: true, Published: old,
			Condition: decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotProven,
				Message: "The ConfigMap is being looked up."}}
	}
	out := Publication{
		Condition: decision.Finding{Status: metav1.ConditionTrue,
			Reason: cmp.Or(choice.reason, v1alpha1.ReasonPublished), Message: fmt.Sprintf("ConfigMap %s holds "+
				"the settings that run %s proved on all members: `envFrom: [{configMapRef: {name: %s}}]`.%s",
				name, in.Run.ID, name, choice.note)},
		Published: &v1alpha1.PublishedStatus{ConfigMapName: name,
			Hash: desired.Annotations[v1alpha1.AnnotationSettingsHash], RunID: in.Run.ID, Time: *decision.Stamp(in.Now),
			LowPrecision: choice.fp8},
	}
	if old != nil && samePublished(old, out.Published) {
		out.Published = old
	}
	if !sameSettings(in.Existing, desired) {
		out.ConfigMap = desired
		if in.Existing != nil && old != nil && old.ConfigMapName == name && !intact(in.Existing, old.Hash) {
			out.Events = append(out.Events, decision.Event{Warning: true, Reason: v1alpha1.ReasonSettingsRestored,
				Action: "PublishSettings", Note: fmt.Sprintf("ConfigMap %s did not hold what run %s proved: "+
					"someone changed it. It holds the proven settings again.", name, old.RunID)})
		}
	}
	for _, other := range in.Owned {
		if other != name {
			out.Remove = append(out.Remove, other)
		}
	}
	return out
}

// keepPublished leaves what an earlier run published, and says so.
func keepPublished(in Input, old *v1alpha1.PublishedStatus, name, why, reason string) Publication {
	if other := otherPublished(in, name); other != nil {
		return Publication{Published: other, Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: reason,
			Message: fmt.Sprintf("%s ConfigMap %s, of the name before, still holds the settings of run %s.",
				explain.Sentence(why), other.ConfigMapName, other.RunID)}}
	}
	if old == nil || in.Existing == nil {
		return Publication{Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: reason, Message: why}}
	}
	if !intact(in.Existing, old.Hash) {
		return Publication{Published: old,
			Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapChanged,
				Message: fmt.Sprintf("ConfigMap %s was changed by someone after run %s proved its settings: "+
					"do not use it. They are put back once a run passes. %s", name, old.RunID, explain.Sentence(why))}}
	}
	// A run that goes on changes nothing in what is proven, and whoever failed before it is not proven by its start.
	if in.Run != nil && in.Run.Phase == v1alpha1.RunPhaseRunning && in.Run.ProvenRunID == old.RunID {
		return Publication{Published: old,
			Condition: decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished,
				Message: fmt.Sprintf("ConfigMap %s holds the settings that run %s proved; run %s is going on.",
					name, old.RunID, in.Run.ID)}}
	}
	return Publication{Published: old, Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%s ConfigMap %s still holds the settings of run %s.",
			explain.Sentence(why), name, old.RunID)}}
}

// proven returns a member's report whose variables hold for all, or why there is nothing to publish.
func proven(in Input) (why, reason string, report *v1alpha1.NodeRunStatus) {
	run := in.Run
	switch {
	case run == nil:
		return "No run has been made.", v1alpha1.ReasonNotProven, nil
	case run.Phase != v1alpha1.RunPhaseFinished:
		return fmt.Sprintf("Run %s has not finished.", run.ID), v1alpha1.ReasonNotProven, nil
	case run.Generation != in.Group.Generation:
		return fmt.Sprintf("Run %s measured an older spec.", run.ID), v1alpha1.ReasonNotProven, nil
	case len(judge.StaleNodes(in.Outcomes)) > 0:
		return fmt.Sprintf("The results of %s no longer count.", explain.Names(judge.StaleNodes(in.Outcomes), 5)),
			v1alpha1.ReasonNotProven, nil
	case run.Verdict != v1alpha1.VerdictPass:
		return fmt.Sprintf("Run %s did not pass on every member (%s).", run.ID, run.Verdict),
			v1alpha1.ReasonNotProven, nil
	case in.Origin == v1alpha1.OriginUnknown:
		return "It is not known whether the results come from hardware.", v1alpha1.ReasonNotProven, nil
	case in.Origin == v1alpha1.OriginSimulated && in.Group.Spec.Publish.Simulated != v1alpha1.SimulatedAllow:
		return "The results come from the simulator. Set publish.simulated to Allow to publish them all the same.",
			v1alpha1.ReasonSimulatedResults, nil
	}
	if unmet := settings.RequirementUnmet(in.Settings, &in.Group.Spec); unmet != "" {
		return unmet + ".", v1alpha1.ReasonRequirementNotMet, nil
	}
	var first *judge.Outcome
	for i := range in.Outcomes {
		o := &in.Outcomes[i]
		if o.Report == nil {
			return fmt.Sprintf("Node %s has no report.", o.Node), v1alpha1.ReasonNotProven, nil
		}
		if first == nil {
			first = o
			continue
		}
		if name := firstDifference(first.Report.Environment, o.Report.Environment); name != "" {
			return fmt.Sprintf("Variable %s differs between node %s and node %s: use one runtime image on all members.",
				name, first.Node, o.Node), v1alpha1.ReasonNotProven, nil
		}
	}
	if first == nil || len(first.Report.Environment) == 0 {
		return "The agents reported no variables.", v1alpha1.ReasonNotProven, nil
	}
	return "", "", first.Report
}

func firstDifference(a, b []v1alpha1.EnvVar) string {
	values := valuesOf(a)
	for _, e := range b {
		if v, there := values[e.Name]; !there || v != e.Value {
			return e.Name
		}
		delete(values, e.Name)
	}
	if rest := slices.Sorted(maps.Keys(values)); len(rest) > 0 {
		return rest[0]
	}
	return ""
}

// contentOf holds the variables one by one, and all of them as a file. Its hash is over the variables alone: it tells a
// job whether its settings changed, whatever the comments say.
func contentOf(variables map[string]string, comments []string) (data map[string]string, hash string) {
	lines := settingLines(variables)
	var conf strings.Builder
	for _, comment := range comments {
		fmt.Fprintf(&conf, "# %s\n", rcclx.OneLine(comment))
	}
	conf.WriteString(lines)
	data = maps.Clone(variables)
	data[confKey] = conf.String()
	return data, objects.Hash(lines)
}

func configMapWith(in Input, name string, env []v1alpha1.EnvVar, comments []string) *corev1.ConfigMap {
	data, hash := contentOf(valuesOf(env), comments)
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: in.Group.Namespace,
			Labels:    objects.Labels(in.Group, ""),
			Annotations: map[string]string{
				v1alpha1.AnnotationSettingsHash: hash,
				v1alpha1.AnnotationRun:          in.Run.ID,
				v1alpha1.AnnotationOrigin:       string(in.Origin),
				v1alpha1.AnnotationGroup:        in.Group.Namespace + "/" + in.Group.Name,
			},
			OwnerReferences: []metav1.OwnerReference{objects.Owner(in.Group)},
		},
		Data: data,
	}
}

func valuesOf(env []v1alpha1.EnvVar) map[string]string {
	values := make(map[string]string, len(env)+1)
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return values
}

// samePublished says whether two differ at most in their time.
func samePublished(a, b *v1alpha1.PublishedStatus) bool {
	x := *a
	x.Time = b.Time
	return equality.Semantic.DeepEqual(&x, b)
}

func sameSettings(existing, desired *corev1.ConfigMap) bool {
	if existing == nil || !maps.Equal(existing.Data, desired.Data) {
		return false
	}
	for key, value := range desired.Annotations {
		if existing.Annotations[key] != value {
			return false
		}
	}
	return true
}

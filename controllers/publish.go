package controllers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/rcclx"
)

// confKey holds the settings as /etc/rccl.conf takes them.
const confKey = "rccl.conf"

type publishInput struct {
	now      time.Time
	group    *v1alpha1.CommGroup
	run      *v1alpha1.GroupRunStatus
	outcomes []judge.Outcome
	settings []v1alpha1.SettingStatus
	origin   v1alpha1.Origin
	existing *corev1.ConfigMap
	// certain: existing is what the API has, not only what the cache has.
	certain bool
	owned   []string
	// gfxTargets of the members.
	gfxTargets []string
	// worth are the judgements of the A/B numbers.
	worth []rcclx.Worth
}

type publication struct {
	condition decision.Finding
	published *v1alpha1.PublishedStatus
	configMap *corev1.ConfigMap
	lookUp    bool
	remove    []string
	// events to send, and when to look again without one.
	events []decision.Event
	wakeAt time.Time
}

func configMapName(group *v1alpha1.CommGroup) string {
	name := group.Name + "-rccl-settings"
	if len(name) > validation.DNS1123SubdomainMaxLength {
		name = objects.Name(validation.DNS1123LabelMaxLength, group.Name, group.Name, "rccl-settings")
	}
	return cmp.Or(group.Spec.Publish.ConfigMapName, name)
}

// publish decides what the ConfigMap shall hold. Settings of an older run stay while no newer run has proven others.
func publish(in publishInput) publication {
	name := configMapName(in.group)
	old := in.group.Status.Published
	if in.group.Spec.Publish.Mode == v1alpha1.PublishOff {
		return publication{
			condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPublishOff, Message: "publish.mode is Off."},
			remove:    slices.Clone(in.owned),
		}
	}
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return publication{published: otherPublished(in, name), condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapNameInvalid,
			Message: fmt.Sprintf("No ConfigMap can be named %q: %s. Change publish.configMapName.", name, bad[0])}}
	}
	if in.existing != nil && !objects.OwnedBy(in.existing, in.group) {
		return notOwned(in, name)
	}
	why, reason, first := proven(in)
	if why != "" {
		return keepPublished(in, old, name, why, reason)
	}
	choice := chooseSettings(in, first)
	if choice.withheld != "" {
		return keepPublished(in, old, name, choice.withheld, choice.reason)
	}
	desired := settingsConfigMap(in, name, choice.env, choice.comments)
	if in.existing == nil && !in.certain {
		return publication{lookUp: true, published: old,
			condition: decision.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotProven, Message: "The ConfigMap is being looked up."}}
	}
	out := publication{
		condition: decision.Finding{Status: metav1.ConditionTrue, Reason: cmp.Or(choice.reason, v1alpha1.ReasonPublished),
			Message: fmt.Sprintf("ConfigMap %s holds the settings that run %s proved on all members: `envFrom: [{configMapRef: {name: %s}}]`.%s", name, in.run.ID, name, choice.note)},
		published: &v1alpha1.PublishedStatus{ConfigMapName: name, Hash: desired.Annotations[v1alpha1.AnnotationSettingsHash],
			RunID: in.run.ID, Time: *decision.Stamp(in.now)},
	}
	if old != nil && old.ConfigMapName == name && old.Hash == out.published.Hash && old.RunID == in.run.ID {
		out.published = old
	}
	if !sameSettings(in.existing, desired) {
		out.configMap = desired
		if in.existing != nil && old != nil && old.ConfigMapName == name && !intact(in.existing, old.Hash) {
			out.events = append(out.events, decision.Event{Warning: true, Reason: v1alpha1.ReasonSettingsRestored, Action: "PublishSettings",
				Note: fmt.Sprintf("ConfigMap %s did not hold what run %s proved: someone changed it. It holds the proven settings again.", name, old.RunID)})
		}
	}
	for _, other := range in.owned {
		if other != name {
			out.remove = append(out.remove, other)
		}
	}
	return out
}

// keepPublished leaves what an earlier run published, and says so.
func keepPublished(in publishInput, old *v1alpha1.PublishedStatus, name, why, reason string) publication {
	if old == nil || in.existing == nil {
		return publication{condition: decision.Finding{Status: metav1.ConditionFalse, Reason: reason, Message: why}}
	}
	if !intact(in.existing, old.Hash) {
		return publication{published: old, condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapChanged,
			Message: fmt.Sprintf("ConfigMap %s was changed by someone after run %s proved its settings: do not use it. They are put back once a run passes. %s", name, old.RunID, words.Sentence(why))}}
	}
	// A run that goes on changes nothing in what is proven, and whoever failed before it is not proven by its start.
	if in.run != nil && in.run.Phase == v1alpha1.RunPhaseRunning && in.run.ProvenRunID == old.RunID {
		return publication{published: old, condition: decision.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished,
			Message: fmt.Sprintf("ConfigMap %s holds the settings that run %s proved; run %s is going on.", name, old.RunID, in.run.ID)}}
	}
	return publication{published: old, condition: decision.Finding{Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%s ConfigMap %s still holds the settings of run %s.", words.Sentence(why), name, old.RunID)}}
}

// proven returns a member's report whose variables hold for all, or why there is nothing to publish.
func proven(in publishInput) (why, reason string, report *v1alpha1.NodeRunStatus) {
	run := in.run
	switch {
	case run == nil:
		return "No run has been made.", v1alpha1.ReasonNotProven, nil
	case run.Phase != v1alpha1.RunPhaseFinished:
		return fmt.Sprintf("Run %s has not finished.", run.ID), v1alpha1.ReasonNotProven, nil
	case run.Generation != in.group.Generation:
		return fmt.Sprintf("Run %s measured an older spec.", run.ID), v1alpha1.ReasonNotProven, nil
	case len(judge.StaleNodes(in.outcomes)) > 0:
		return fmt.Sprintf("The results of %s no longer count.", words.SomeNames(judge.StaleNodes(in.outcomes), 5)), v1alpha1.ReasonNotProven, nil
	case run.Verdict != v1alpha1.VerdictPass:
		return fmt.Sprintf("Run %s did not pass on every member (%s).", run.ID, run.Verdict), v1alpha1.ReasonNotProven, nil
	case in.origin == v1alpha1.OriginUnknown:
		return "It is not known whether the results come from hardware.", v1alpha1.ReasonNotProven, nil
	case in.origin == v1alpha1.OriginSimulated && in.group.Spec.Publish.Simulated != v1alpha1.SimulatedAllow:
		return "The results come from the simulator. Set publish.simulated to Allow to publish them all the same.", v1alpha1.ReasonSimulatedResults, nil
	}
	if unmet := settings.RequirementUnmet(in.settings, &in.group.Spec); unmet != "" {
		return unmet + ".", v1alpha1.ReasonRequirementNotMet, nil
	}
	var first *judge.Outcome
	for i := range in.outcomes {
		o := &in.outcomes[i]
		if o.Report == nil {
			return fmt.Sprintf("Node %s has no report.", o.Node), v1alpha1.ReasonNotProven, nil
		}
		if first == nil {
			first = o
			continue
		}
		if name := firstDifference(first.Report.Environment, o.Report.Environment); name != "" {
			return fmt.Sprintf("Variable %s differs between node %s and node %s: use one runtime image on all members.", name, first.Node, o.Node), v1alpha1.ReasonNotProven, nil
		}
	}
	if first == nil || len(first.Report.Environment) == 0 {
		return "The agents reported no variables.", v1alpha1.ReasonNotProven, nil
	}
	return "", "", first.Report
}

func firstDifference(a, b []v1alpha1.EnvVar) string {
	values := make(map[string]string, len(a))
	for _, e := range a {
		values[e.Name] = e.Value
	}
	for _, e := range b {
		if v, there := values[e.Name]; !there || v != e.Value {
			return e.Name
		}
		delete(values, e.Name)
	}
	if rest := words.SortedKeys(values); len(rest) > 0 {
		return rest[0]
	}
	return ""
}

// settingsConfigMap holds the variables one by one, and all of them as a file. Its hash is over the variables alone: it tells a
// job whether its settings changed, whatever the comments say.
func settingsConfigMap(in publishInput, name string, env []v1alpha1.EnvVar, comments []string) *corev1.ConfigMap {
	data := make(map[string]string, len(env)+1)
	for _, e := range env {
		data[e.Name] = e.Value
	}
	lines := settingLines(data)
	var conf strings.Builder
	for _, comment := range comments {
		fmt.Fprintf(&conf, "# %s\n", strings.ReplaceAll(comment, "\n", " "))
	}
	conf.WriteString(lines)
	data[confKey] = conf.String()
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: in.group.Namespace,
			Labels:    objects.Labels(in.group, ""),
			Annotations: map[string]string{
				v1alpha1.AnnotationSettingsHash: objects.Hash(lines),
				v1alpha1.AnnotationRun:          in.run.ID,
				v1alpha1.AnnotationOrigin:       string(in.origin),
				v1alpha1.AnnotationGroup:        in.group.Namespace + "/" + in.group.Name,
			},
			OwnerReferences: []metav1.OwnerReference{objects.Owner(in.group)},
		},
		Data: data,
	}
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

package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
)

// lookAgain is how long a ConfigMap of someone else is left before the next look: no event tells when it goes.
const lookAgain = 5 * time.Minute

// notOwned leaves a ConfigMap alone that does not belong to the group, and says whose it is.
func notOwned(in Input, name string) Publication {
	return Publication{
		Published: otherPublished(in, name),
		WakeAt:    in.Now.Add(lookAgain),
		Condition: decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigMapNotOwned,
			Message: fmt.Sprintf("ConfigMap %s exists and %s; it is left alone. Set publish.configMapName to another "+
				"name, or delete it.", name, ownerOf(in.Existing))},
	}
}

// ownerOf says whose a ConfigMap is.
func ownerOf(cm *corev1.ConfigMap) string {
	refs := cm.GetOwnerReferences()
	i := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool {
		return r.Kind == "CommGroup" && strings.HasPrefix(r.APIVersion, v1alpha1.GroupVersion.Group+"/")
	})
	switch {
	case i >= 0:
		return fmt.Sprintf("belongs to CommGroup %s, which publishes under the same name", refs[i].Name)
	case len(refs) > 0:
		return fmt.Sprintf("belongs to %s %s", refs[0].Kind, refs[0].Name)
	case cm.Labels[objects.ManagedByLabel] == objects.ManagedBy:
		return "has this operator's labels, but no owner"
	}
	return "does not belong to this CommGroup"
}

// otherPublished is what the group has published under another name, and still has.
func otherPublished(in Input, name string) *v1alpha1.PublishedStatus {
	old := in.Group.Status.Published
	if old == nil || old.ConfigMapName == name || !slices.Contains(in.Owned, old.ConfigMapName) {
		return nil
	}
	return old
}

func settingLines(variables map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&b, "%s=%s\n", name, variables[name])
	}
	return b.String()
}

// variablesOf are those that a ConfigMap holds one by one.
func variablesOf(cm *corev1.ConfigMap) map[string]string {
	variables := maps.Clone(cm.Data)
	delete(variables, confKey)
	return variables
}

// intact says whether a published ConfigMap still holds what its hash is of, both as variables and as a file. Releases
// before there were several lines of comments hashed the file with its comment.
func intact(cm *corev1.ConfigMap, hash string) bool {
	lines := settingLines(variablesOf(cm))
	conf := cm.Data[confKey]
	rest := conf
	for strings.HasPrefix(rest, "#") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return len(cm.BinaryData) == 0 && rest == lines && (objects.Hash(lines) == hash || objects.Hash(conf) == hash)
}

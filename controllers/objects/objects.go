package objects

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Objects of this operator have this label.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "commgroup-operator"
)

// Labels are on every object that the controller makes for a group.
func Labels(group metav1.Object, role string) map[string]string {
	l := map[string]string{
		ManagedByLabel:               ManagedBy,
		v1alpha1.LabelGroup:          v1alpha1.LabelValue(group.GetName()),
		v1alpha1.LabelGroupNamespace: group.GetNamespace(),
		v1alpha1.LabelGroupUID:       string(group.GetUID()),
	}
	if role != "" {
		l[v1alpha1.LabelRole] = role
	}
	return l
}

// Owner has the group's objects go with it.
func Owner(group metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: group.GetName(), UID: group.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// Name joins parts to a name that is a DNS label of at most limit characters, ending in a hash of the identity.
func Name(limit int, identity string, parts ...string) string {
	tail := "-" + Hash(identity)[:8]
	name := strings.ReplaceAll(strings.Join(parts, "-"), ".", "-")
	if limit -= len(tail); len(name) > limit {
		name = strings.TrimRight(name[:limit], "-")
	}
	return name + tail
}

// Hash of a text, 16 hexadecimal digits.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:16]
}

// GPUResource is the resource that run pods ask GPUs by.
func GPUResource(spec *v1alpha1.CommGroupSpec) string {
	return cmp.Or(spec.Runtime.Pod.GPUResourceName, v1alpha1.ResourceGPU)
}

// OwnedBy says whether the object is the group's.
func OwnedBy(object metav1.Object, group metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == group.GetUID()
	})
}

package stage

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// ToldRefusal is what the group's status says of refused writes, as a sentence to add; empty where it says nothing.
func ToldRefusal(group *state.Group) string {
	c := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionRunning)
	if c == nil {
		return ""
	}
	_, told, ok := strings.Cut(c.Message, v1alpha1.ReasonWritesRefused+":") //nolint:gocritic // a remark is no condition of its own yet
	if !ok {
		return ""
	}
	return told
}

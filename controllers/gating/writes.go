package gating

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
)

// Patches are what makes a Node carry the annotations given (nil removes one) and the marks that then follow from all
// its statements: a JSON merge patch of the Node, and a strategic merge patch of its status. Nil where nothing changes.
//
// The first holds the version that was read, since a merge patch replaces the list of taints as a whole: a taint that
// someone else set meanwhile must not be lost. The second merges by the conditions' types and holds the UID, so that a
// Node re-created under the name is left alone.
func Patches(node *corev1.Node, annotations map[string]*string, now time.Time) (object, status []byte, err error) {
	next := maps.Clone(node.Annotations)
	if next == nil {
		next = map[string]string{}
	}
	changed := map[string]*string{}
	for key, value := range annotations {
		old, there := next[key]
		switch {
		case value == nil && there:
			delete(next, key)
			changed[key] = nil
		case value != nil && (!there || old != *value):
			next[key] = *value
			changed[key] = value
		}
	}
	want, have := marksFor(Statements(next)), marksOn(node)
	metadata := map[string]any{}
	if len(changed) > 0 {
		metadata["annotations"] = changed
	}
	if want.label != have.label {
		metadata["labels"] = map[string]any{v1alpha1.LabelCommValidated: orNull(want.label)}
	}
	patch := map[string]any{}
	if want.taint != have.taint {
		patch["spec"] = map[string]any{"taints": taintsWith(node.Spec.Taints, want.taint, now)}
	}
	if len(metadata) > 0 || len(patch) > 0 {
		metadata["resourceVersion"], metadata["uid"] = node.ResourceVersion, node.UID
		patch["metadata"] = metadata
		if object, err = json.Marshal(patch); err != nil {
			return nil, nil, err
		}
	}
	var conditions []any
	if want.validated != have.validated {
		conditions = append(conditions, conditionPatch(node, v1alpha1.NodeConditionCommValidated, want.validated, now))
	}
	if want.problem != have.problem {
		conditions = append(conditions, conditionPatch(node, v1alpha1.NodeConditionCommProblem, want.problem, now))
	}
	if len(conditions) > 0 {
		status, err = json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": node.UID},
			"status":   map[string]any{"conditions": conditions},
		})
	}
	return object, status, err
}

// conditionPatch sets or removes a condition. Its heartbeat is the time of the change: nothing is written to say that
// nothing changed.
func conditionPatch(node *corev1.Node, kind corev1.NodeConditionType, want condition, now time.Time) map[string]any {
	patch := map[string]any{"type": kind}
	if want.status == "" {
		patch["$patch"] = "delete"
		return patch
	}
	since := *decision.Stamp(now)
	if old := conditionOn(node, kind); old != nil && old.Status == want.status {
		since = old.LastTransitionTime
	}
	patch["status"], patch["reason"], patch["message"] = want.status, want.reason, want.message
	patch["lastHeartbeatTime"], patch["lastTransitionTime"] = decision.Stamp(now), since
	return patch
}

// taintsWith are the node's taints with or without gating's, all others as they are; nil, which a merge patch takes for
// none, where no taint is left.
func taintsWith(taints []corev1.Taint, wanted bool, now time.Time) []corev1.Taint {
	var out []corev1.Taint
	for i := range taints {
		if !isMark(&taints[i]) {
			out = append(out, taints[i])
		}
	}
	if wanted {
		out = append(out, corev1.Taint{Key: v1alpha1.TaintCommFailed, Effect: corev1.TaintEffectNoSchedule,
			TimeAdded: decision.Stamp(now)})
	}
	return out
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Write is a Node with the annotations to set on it; nil removes one.
type Write struct {
	Node        *corev1.Node
	Annotations map[string]*string
}

// Orphaned are the writes that rid Nodes of statements of groups that are no more, and of marks that no statement
// explains. live are the UIDs of the groups that there are.
func Orphaned(nodes []corev1.Node, live map[string]bool) []Write {
	var out []Write
	for i := range nodes {
		node := &nodes[i]
		if !node.DeletionTimestamp.IsZero() {
			continue
		}
		w := Write{Node: node}
		statements := Statements(node.Annotations)
		for key := range node.Annotations {
			if uid, ok := UIDOf(key); ok && !live[uid] {
				if w.Annotations == nil {
					w.Annotations = map[string]*string{}
				}
				w.Annotations[key] = nil
				delete(statements, key)
			}
		}
		if w.Annotations != nil || marksFor(statements) != marksOn(node) {
			out = append(out, w)
		}
	}
	return out
}

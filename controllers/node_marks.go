package controllers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/words"
)

// statement is what one group's gating holds of one node. It stands in an annotation of the Node, one for each group, so
// that no group lifts another one's mark. All marks of the Node follow from its statements alone.
type statement struct {
	// Verdict is Fail, which marks the node, or Pass, which says that it was validated.
	Verdict v1alpha1.Verdict `json:"verdict"`
	// Group is namespace/name, Run the run that showed it first.
	Group   string `json:"group"`
	Run     string `json:"run,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Time of the statement.
	Time metav1.Time `json:"time"`
	// NodeUID, BootID and GPUs are the node that it is about: another Node object of the same name is another node.
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID,omitempty"`
	GPUs    string `json:"gpus,omitempty"`
	// Actions by which the group marks nodes.
	Actions []v1alpha1.GatingAction `json:"actions"`
}

const (
	// maxStatementBytes bounds what is read: anyone who may write annotations of Nodes could have written it.
	maxStatementBytes = 4096
	// statementMessageBytes bounds what is written.
	statementMessageBytes = 256
	// conditionMessageBytes bounds the message of the Node's condition.
	conditionMessageBytes = 1024
)

var (
	errStatementTooLong = fmt.Errorf("longer than %d bytes", maxStatementBytes)
	errStatementVerdict = errors.New("verdict is neither Pass nor Fail")
	errStatementGroup   = errors.New("names no group")
)

// markKey is the annotation of the group with the UID.
func markKey(groupUID string) string { return v1alpha1.AnnotationGatingPrefix + groupUID }

// markUID is the UID of the group whose annotation it is; false where the key is none of a group's.
func markUID(key string) (string, bool) {
	uid, ok := strings.CutPrefix(key, v1alpha1.AnnotationGatingPrefix)
	return uid, ok && uid != "" && key != v1alpha1.AnnotationGatingExempt
}

// parseStatement reads an annotation. Fields that it does not know are of a newer version and stay unread.
func parseStatement(value string) (statement, error) {
	var s statement
	if len(value) > maxStatementBytes {
		return s, errStatementTooLong
	}
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return statement{}, fmt.Errorf("no statement of gating: %w", err)
	}
	switch {
	case s.Verdict != v1alpha1.VerdictFail && s.Verdict != v1alpha1.VerdictPass:
		return statement{}, errStatementVerdict
	case s.Group == "":
		return statement{}, errStatementGroup
	}
	return s, nil
}

// String is the annotation's value. A statement is of strings and a time, which always can be written.
func (s *statement) String() string {
	data, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(data)
}

// exempt says whether a person keeps gating from the node.
func exempt(annotations map[string]string) bool {
	value, ok := annotations[v1alpha1.AnnotationGatingExempt]
	return ok && value != "false"
}

// statementsOf reads all groups' statements, by their keys; what is none counts for nothing.
func statementsOf(annotations map[string]string) map[string]statement {
	var out map[string]statement
	for key, value := range annotations {
		if _, ok := markUID(key); !ok {
			continue
		}
		if s, err := parseStatement(value); err == nil {
			if out == nil {
				out = make(map[string]statement, 1)
			}
			out[key] = s
		}
	}
	return out
}

// nodeMarks is what a Node carries. An empty status means no condition, an empty label none.
type nodeMarks struct {
	status          corev1.ConditionStatus
	reason, message string
	label           string
	taint           bool
}

// marksFor are the marks that follow from the statements: the node is failed while one group at least holds it so.
func marksFor(statements map[string]statement) nodeMarks {
	var m nodeMarks
	for _, verdict := range []v1alpha1.Verdict{v1alpha1.VerdictFail, v1alpha1.VerdictPass} {
		var named []string // of the groups that set the condition
		for _, s := range statements {
			if s.Verdict != verdict {
				continue
			}
			for _, action := range s.Actions {
				switch action {
				case v1alpha1.GatingCondition:
					named = append(named, s.said())
				case v1alpha1.GatingLabel:
					m.label = cmp.Or(m.label, labelOf(verdict))
				case v1alpha1.GatingTaint:
					m.taint = m.taint || verdict == v1alpha1.VerdictFail
				}
			}
		}
		if len(named) == 0 || m.status != "" {
			continue
		}
		m.status, m.reason = corev1.ConditionFalse, v1alpha1.ReasonCommFailed
		if verdict == v1alpha1.VerdictPass {
			m.status, m.reason = corev1.ConditionTrue, v1alpha1.ReasonCommPassed
		}
		slices.Sort(named)
		m.message = words.Shorten(strings.Join(slices.Compact(named), " "), conditionMessageBytes)
	}
	return m
}

func labelOf(verdict v1alpha1.Verdict) string {
	if verdict == v1alpha1.VerdictFail {
		return v1alpha1.CommValidatedFailed
	}
	return v1alpha1.CommValidatedPassed
}

// said is the statement in a sentence or two.
func (s *statement) said() string {
	if s.Verdict == v1alpha1.VerdictPass {
		return "Passed in CommGroup " + s.Group + ", run " + s.Run + "."
	}
	return strings.TrimSpace(fmt.Sprintf("Failed in CommGroup %s, run %s: %s. %s", s.Group, s.Run, cmp.Or(s.Reason, "no reason given"), words.Sentence(s.Message)))
}

// marksOn are the marks that the Node carries now.
func marksOn(node *corev1.Node) nodeMarks {
	m := nodeMarks{label: node.Labels[v1alpha1.LabelCommValidated]}
	for i := range node.Spec.Taints {
		m.taint = m.taint || isMark(&node.Spec.Taints[i])
	}
	if c := commValidated(node); c != nil {
		m.status, m.reason, m.message = c.Status, c.Reason, c.Message
	}
	return m
}

// isMark says whether the taint is gating's. The same key with another effect is someone else's and stays.
func isMark(t *corev1.Taint) bool {
	return t.Key == v1alpha1.TaintCommFailed && t.Effect == corev1.TaintEffectNoSchedule
}

func commValidated(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1alpha1.NodeConditionCommValidated {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// nodePatches are what makes a Node carry the annotations given (nil removes one) and the marks that then follow from all
// its statements: a JSON merge patch of the Node, and a strategic merge patch of its status. Nil where nothing changes.
//
// The first holds the version that was read, since a merge patch replaces the list of taints as a whole: a taint that someone
// else set meanwhile must not be lost. The second merges by the condition's type and holds the UID, so that a Node made
// anew under the name is left alone.
func nodePatches(node *corev1.Node, annotations map[string]*string, now time.Time) (object, status []byte, err error) {
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
	want, have := marksFor(statementsOf(next)), marksOn(node)
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
	if want.status != have.status || want.reason != have.reason || want.message != have.message {
		status, err = conditionPatch(node, want, now)
	}
	return object, status, err
}

// conditionPatch sets or removes the condition. Its heartbeat is the time of the change: nothing is written to say that
// nothing changed.
func conditionPatch(node *corev1.Node, want nodeMarks, now time.Time) ([]byte, error) {
	condition := map[string]any{"type": v1alpha1.NodeConditionCommValidated}
	if want.status == "" {
		condition["$patch"] = "delete"
	} else {
		since := *decision.Stamp(now)
		if old := commValidated(node); old != nil && old.Status == want.status {
			since = old.LastTransitionTime
		}
		condition["status"], condition["reason"], condition["message"] = want.status, want.reason, want.message
		condition["lastHeartbeatTime"], condition["lastTransitionTime"] = decision.Stamp(now), since
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status":   map[string]any{"conditions": []any{condition}},
	})
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
		out = append(out, corev1.Taint{Key: v1alpha1.TaintCommFailed, Effect: corev1.TaintEffectNoSchedule, TimeAdded: decision.Stamp(now)})
	}
	return out
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// markAnnotations are the annotations of gating alone, which is all that the cache keeps of a Node's.
func markAnnotations(annotations map[string]string) map[string]string {
	var out map[string]string
	for key, value := range annotations {
		if strings.HasPrefix(key, v1alpha1.AnnotationGatingPrefix) {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[key] = value
		}
	}
	return out
}

// marksChanged says whether a Node's statements, exemption or marks differ: someone may have removed one by hand.
func marksChanged(before, after *corev1.Node) bool {
	return !maps.Equal(markAnnotations(before.Annotations), markAnnotations(after.Annotations)) || marksOn(before) != marksOn(after)
}

// keepMarks drops of a Node's annotations and conditions all that gating does not look at.
func keepMarks(node *corev1.Node) {
	node.Annotations = markAnnotations(node.Annotations)
	var kept []corev1.NodeCondition
	if c := commValidated(node); c != nil {
		kept = []corev1.NodeCondition{*c}
	}
	node.Status.Conditions = kept
}

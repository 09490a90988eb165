package gating

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// Statement is what one group's gating holds of one node. It stands in an annotation of the Node, one for each group,
// so that no group lifts another one's mark. All marks of the Node follow from its statements alone.
type Statement struct {
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

// Key is the annotation of the group with the UID.
func Key(groupUID string) string { return v1alpha1.AnnotationGatingPrefix + groupUID }

// UIDOf is the UID of the group whose annotation it is; false where the key is none of a group's.
func UIDOf(key string) (string, bool) {
	uid, ok := strings.CutPrefix(key, v1alpha1.AnnotationGatingPrefix)
	return uid, ok && uid != "" && key != v1alpha1.AnnotationGatingExempt
}

// ParseStatement reads an annotation. Fields that it does not know are of a newer version and stay unread.
func ParseStatement(value string) (Statement, error) {
	var s Statement
	if len(value) > maxStatementBytes {
		return s, errStatementTooLong
	}
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return Statement{}, fmt.Errorf("no statement of gating: %w", err)
	}
	switch {
	case s.Verdict != v1alpha1.VerdictFail && s.Verdict != v1alpha1.VerdictPass:
		return Statement{}, errStatementVerdict
	case s.Group == "":
		return Statement{}, errStatementGroup
	}
	return s, nil
}

// String is the annotation's value. A statement is of strings and a time, which always can be written.
func (s *Statement) String() string {
	data, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(data)
}

// exempt says whether a user keeps gating from the node.
func exempt(annotations map[string]string) bool {
	value, ok := annotations[v1alpha1.AnnotationGatingExempt]
	return ok && value != "false"
}

// Statements reads all groups' statements, by their keys; what is none counts for nothing.
func Statements(annotations map[string]string) map[string]Statement {
	var out map[string]Statement
	for key, value := range annotations {
		if _, ok := UIDOf(key); !ok {
			continue
		}
		if s, err := ParseStatement(value); err == nil {
			if out == nil {
				out = make(map[string]Statement, 1)
			}
			out[key] = s
		}
	}
	return out
}

// marks is what a Node carries. An empty label means none.
type marks struct {
	validated, problem condition
	label              string
	taint              bool
}

// condition of a Node; an empty status means none.
type condition struct {
	status          corev1.ConditionStatus
	reason, message string
}

// conditionsOf are the two conditions that a verdict is told by: they differ in their polarity only
// (docs/decisions/0020).
func conditionsOf(verdict v1alpha1.Verdict, message string) (validated, problem condition) {
	if verdict == v1alpha1.VerdictPass {
		return condition{corev1.ConditionTrue, v1alpha1.ReasonCommPassed, message},
			condition{corev1.ConditionFalse, v1alpha1.ReasonCommPassed, message}
	}
	return condition{corev1.ConditionFalse, v1alpha1.ReasonCommFailed, message},
		condition{corev1.ConditionTrue, v1alpha1.ReasonCommFailed, message}
}

// marksFor are the marks that follow from the statements: the node is failed while one group at least holds it so, and
// no mark then says that it passed.
func marksFor(statements map[string]Statement) marks {
	var m marks
	verdict := v1alpha1.VerdictPass
	for _, s := range statements {
		if s.Verdict == v1alpha1.VerdictFail {
			verdict = v1alpha1.VerdictFail
		}
	}
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
				m.label = labelOf(verdict)
			case v1alpha1.GatingTaint:
				m.taint = verdict == v1alpha1.VerdictFail
			}
		}
	}
	if len(named) == 0 {
		return m
	}
	slices.Sort(named)
	m.validated, m.problem = conditionsOf(verdict,
		clip.Head(strings.Join(slices.Compact(named), " "), conditionMessageBytes))
	return m
}

func labelOf(verdict v1alpha1.Verdict) string {
	if verdict == v1alpha1.VerdictFail {
		return v1alpha1.CommValidatedFailed
	}
	return v1alpha1.CommValidatedPassed
}

// said is the statement in a sentence or two.
func (s *Statement) said() string {
	if s.Verdict == v1alpha1.VerdictPass {
		return "Passed in CommGroup " + s.Group + ", run " + s.Run + "."
	}
	return strings.TrimSpace(fmt.Sprintf("Failed in CommGroup %s, run %s: %s. %s",
		s.Group, s.Run, cmp.Or(s.Reason, "no reason given"), explain.Sentence(s.Message)))
}

// marksOn are the marks that the Node carries now.
func marksOn(node *corev1.Node) marks {
	m := marks{label: node.Labels[v1alpha1.LabelCommValidated]}
	for i := range node.Spec.Taints {
		m.taint = m.taint || isMark(&node.Spec.Taints[i])
	}
	m.validated, m.problem = said(node, v1alpha1.NodeConditionCommValidated),
		said(node, v1alpha1.NodeConditionCommProblem)
	return m
}

// isMark says whether the taint is gating's. The same key with another effect is someone else's and stays.
func isMark(t *corev1.Taint) bool {
	return t.Key == v1alpha1.TaintCommFailed && t.Effect == corev1.TaintEffectNoSchedule
}

func conditionOn(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// said is what the Node's condition says.
func said(node *corev1.Node, kind corev1.NodeConditionType) condition {
	if c := conditionOn(node, kind); c != nil {
		return condition{c.Status, c.Reason, c.Message}
	}
	return condition{}
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

// Changed says whether a Node's statements, exemption or marks differ: someone may have removed one by hand.
func Changed(before, after *corev1.Node) bool {
	return !maps.Equal(markAnnotations(before.Annotations), markAnnotations(after.Annotations)) ||
		marksOn(before) != marksOn(after)
}

// Keep drops of a Node's annotations and conditions all that gating does not look at.
func Keep(node *corev1.Node) {
	node.Annotations = markAnnotations(node.Annotations)
	var kept []corev1.NodeCondition
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1alpha1.NodeConditionCommValidated ||
			c.Type == v1alpha1.NodeConditionCommProblem {
			kept = append(kept, *c)
		}
	}
	node.Status.Conditions = kept
}

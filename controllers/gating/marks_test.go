package gating

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func testStatement(verdict v1alpha1.Verdict, group string, actions ...v1alpha1.GatingAction) Statement {
	s := Statement{Verdict: verdict, Group: group, Run: "1-1", Time: *decision.Stamp(testkit.Now),
		NodeUID: "uid-n", Actions: actions}
	if verdict == v1alpha1.VerdictFail {
		s.Reason, s.Message = v1alpha1.ReasonSlowLink, "one link is slow"
	}
	return s
}

// marked sets the statements (an empty value removes one) and returns the Node with its marks.
func marked(t testing.TB, node *corev1.Node, statements map[string]string, now time.Time) *corev1.Node {
	t.Helper()
	annotations := map[string]*string{}
	for key, value := range statements {
		if annotations[key] = nil; value != "" {
			annotations[key] = &value
		}
	}
	object, status, err := Patches(node, annotations, now)
	if err != nil {
		t.Fatal(err)
	}
	out := testkit.Patched(t, node, object, status)
	if object, status, err = Patches(out, annotations, now.Add(time.Hour)); object != nil ||
		status != nil || err != nil {
		t.Fatalf("the same again is to be written: %s, %s, %v", object, status, err)
	}
	return out
}

var (
	isTrue    = condition{status: corev1.ConditionTrue, reason: v1alpha1.ReasonCommPassed}
	noProblem = condition{status: corev1.ConditionFalse, reason: v1alpha1.ReasonCommPassed}
	isFalse   = condition{status: corev1.ConditionFalse, reason: v1alpha1.ReasonCommFailed}
	isProblem = condition{status: corev1.ConditionTrue, reason: v1alpha1.ReasonCommFailed}
)

func TestMarksFollowFromAllStatements(t *testing.T) {
	fail := func(group string, actions ...v1alpha1.GatingAction) Statement {
		return testStatement(v1alpha1.VerdictFail, group, actions...)
	}
	pass := func(group string, actions ...v1alpha1.GatingAction) Statement {
		return testStatement(v1alpha1.VerdictPass, group, actions...)
	}
	const condition, label, taint = v1alpha1.GatingCondition, v1alpha1.GatingLabel, v1alpha1.GatingTaint
	for _, c := range []struct {
		name       string
		statements []Statement
		want       marks
		words      []string
	}{
		{"none", nil, marks{}, nil},
		{"failed by condition", []Statement{fail("a/g", condition)},
			marks{validated: isFalse, problem: isProblem}, []string{"a/g", "run 1-1", "SlowLink", "one link is slow."}},
		{"failed by label and taint", []Statement{fail("a/g", label, taint)}, marks{label: "failed", taint: true}, nil},
		{"passed by all", []Statement{pass("a/g", testkit.EveryAction...)},
			marks{validated: isTrue, problem: noProblem, label: "passed"},
			[]string{"Passed in CommGroup a/g, run 1-1."}},
		{"one fails, one passes", []Statement{pass("a/g", testkit.EveryAction...), fail("b/g", testkit.EveryAction...)},
			marks{validated: isFalse, problem: isProblem, label: "failed", taint: true}, []string{"b/g"}},
		{"both fail", []Statement{fail("b/g", condition), fail("a/g", condition, taint)},
			marks{validated: isFalse, problem: isProblem, taint: true}, []string{"a/g", "b/g"}},
		{"the failed one only taints, the passed one would set the rest",
			[]Statement{fail("a/g", taint), pass("b/g", condition, label)}, marks{taint: true}, nil},
		{"the failed one sets the condition, the passed one would label",
			[]Statement{fail("a/g", condition), pass("b/g", label)}, marks{validated: isFalse, problem: isProblem},
			[]string{"a/g"}},
		{"the failed one marks nothing", []Statement{fail("a/g"), pass("b/g", testkit.EveryAction...)}, marks{}, nil},
		{"no action", []Statement{fail("a/g")}, marks{}, nil},
		{"an action of a newer version", []Statement{fail("a/g", "Cordon")}, marks{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			annotations := map[string]string{v1alpha1.AnnotationGatingExempt: "false", "example.com/other": "x",
				Key("broken"): "{"}
			for i := range c.statements {
				annotations[Key(c.statements[i].Group)] = c.statements[i].String()
			}
			got := marksFor(Statements(annotations))
			for _, word := range c.words {
				if !strings.Contains(got.validated.message, word) {
					t.Errorf("the message %q lacks %q", got.validated.message, word)
				}
			}
			if len(c.words) == 2 &&
				strings.Index(got.validated.message, c.words[0]) > strings.Index(got.validated.message, c.words[1]) {
				t.Errorf("groups out of order: %q", got.validated.message)
			}
			if got.problem.message != got.validated.message {
				t.Errorf("the conditions say %q and %q", got.validated.message, got.problem.message)
			}
			if got.validated.message, got.problem.message = "", ""; got != c.want {
				t.Errorf("marks %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestMarksLeaveAllElseAlone walks a Node with taints, labels, annotations and conditions of others through all marks.
func TestMarksLeaveAllElseAlone(t *testing.T) {
	node := testkit.Node("n", map[string]string{"example.com/label": "theirs"})
	node.ResourceVersion = "7"
	node.Annotations = map[string]string{"example.com/annotation": "theirs"}
	node.Spec.PodCIDR = "10.0.0.0/24"
	node.Spec.Taints = []corev1.Taint{
		{Key: "example.com/taint", Value: "v", Effect: corev1.TaintEffectNoExecute,
			TimeAdded: decision.Stamp(testkit.Now)},
		{Key: v1alpha1.TaintCommFailed, Effect: corev1.TaintEffectPreferNoSchedule}, // someone else's: another effect
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: *decision.Stamp(testkit.Now), LastTransitionTime: *decision.Stamp(testkit.Now)}}
	var want corev1.Node
	data, err := json.Marshal(node) // as it comes back from the API
	if err := errors.Join(err, json.Unmarshal(data, &want)); err != nil {
		t.Fatal(err)
	}
	failed := testStatement(v1alpha1.VerdictFail, "a/g", testkit.EveryAction...)
	passed := testStatement(v1alpha1.VerdictPass, "a/g", testkit.EveryAction...)
	other := testStatement(v1alpha1.VerdictFail, "b/g", testkit.EveryAction...)

	one := marked(t, &want, map[string]string{Key("a"): failed.String()}, testkit.Now)
	if m := marksOn(one); m.validated.status != corev1.ConditionFalse || m.label != "failed" || !m.taint {
		t.Fatalf("marks %+v", m)
	}
	if got := one.Spec.Taints[len(one.Spec.Taints)-1]; len(one.Spec.Taints) != 3 ||
		got.Effect != corev1.TaintEffectNoSchedule || got.Value != "" {
		t.Fatalf("taints %+v", one.Spec.Taints)
	}
	two := marked(t, one, map[string]string{Key("b"): other.String()}, testkit.Now.Add(time.Minute))
	if c := conditionOn(two, v1alpha1.NodeConditionCommValidated); !strings.Contains(c.Message, "a/g") ||
		!strings.Contains(c.Message, "b/g") || !c.LastTransitionTime.Time.Equal(testkit.Now) {
		t.Fatalf("condition %+v: the status is since the first group's mark", c)
	}
	half := marked(t, two, map[string]string{Key("a"): passed.String()}, testkit.Now.Add(2*time.Minute))
	if m := marksOn(half); m.validated.status != corev1.ConditionFalse || m.label != "failed" || !m.taint ||
		strings.Contains(m.validated.message, "a/g") {
		t.Fatalf("the pass of one group lifted another's mark: %+v", m)
	}
	good := marked(t, half, map[string]string{Key("b"): ""}, testkit.Now.Add(3*time.Minute))
	if c, m := conditionOn(good, v1alpha1.NodeConditionCommValidated),
		marksOn(good); m.validated.status != corev1.ConditionTrue || m.label != "passed" || m.taint ||
		!c.LastTransitionTime.Time.Equal(testkit.Now.Add(3*time.Minute)) {
		t.Fatalf("marks %+v", m)
	}
	bare := marked(t, good, map[string]string{Key("a"): ""}, testkit.Now.Add(4*time.Minute))
	if !reflect.DeepEqual(*bare, want) {
		t.Fatalf("after all statements are withdrawn the Node is\n%+v, it was\n%+v", bare, want)
	}
}

func TestPatchesHoldWhatTheyRestOn(t *testing.T) {
	node := testkit.Node("n", nil)
	node.ResourceVersion = "41"
	s := testStatement(v1alpha1.VerdictFail, "a/g", testkit.EveryAction...)
	value := s.String()
	object, status, err := Patches(&node, map[string]*string{Key("a"): &value}, testkit.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"resourceVersion":"41"`, `"uid":"uid-n"`, `"effect":"NoSchedule"`} {
		if !strings.Contains(string(object), word) {
			t.Errorf("the patch lacks %s: %s", word, object)
		}
	}
	if !strings.Contains(string(status), `"uid":"uid-n"`) {
		t.Errorf("the status patch lacks the UID: %s", status)
	}
	if strings.Contains(string(object)+string(status), "NoExecute") {
		t.Error("a patch holds NoExecute")
	}
}

func TestStatementsThatAreNone(t *testing.T) {
	good := testStatement(v1alpha1.VerdictFail, "a/g", testkit.EveryAction...)
	if got, err := ParseStatement(good.String()); err != nil || !reflect.DeepEqual(got.String(), good.String()) {
		t.Fatalf("%+v comes back as %+v, %v", good, got, err)
	}
	if got, err := ParseStatement(
		`{"verdict":"Pass","group":"a/g","time":null,"nodeUID":"u","actions":["Taint"],"severity":9}`); err != nil ||
		got.NodeUID != "u" {
		t.Errorf("a field of a newer version: %+v, %v", got, err)
	}
	for name, value := range map[string]string{
		"empty": "", "no JSON": "true story", "list": "[]", "null": "null", "no verdict": `{"group":"a/g"}`,
		"no group":        `{"verdict":"Fail"}`,
		"another verdict": `{"verdict":"Error","group":"a/g"}`,
		"time":            `{"verdict":"Fail","group":"a/g","time":"yesterday"}`,
		"cut":             good.String()[:40],
		"too long":        `{"verdict":"Fail","group":"` + strings.Repeat("g", maxStatementBytes) + `"}`,
	} {
		if got, err := ParseStatement(value); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMarkKeys(t *testing.T) {
	for key, want := range map[string]string{
		"gating.rcclx.io/3f0e": "3f0e", "gating.rcclx.io/exempt": "", "gating.rcclx.io/": "", "rcclx.io/comm": "",
		"xgating.rcclx.io/3f0e": "",
	} {
		if uid, ok := UIDOf(key); ok != (want != "") || ok && uid != want {
			t.Errorf("%s: %q, %v", key, uid, ok)
		}
	}
	for value, want := range map[string]bool{"": true, "true": true, "until-tuesday": true, "false": false} {
		if exempt(map[string]string{v1alpha1.AnnotationGatingExempt: value}) != want {
			t.Errorf("exempt=%q", value)
		}
	}
}

func TestOrphanedMarks(t *testing.T) {
	s := testStatement(v1alpha1.VerdictFail, "a/g", testkit.EveryAction...)
	with := func(name string, uids ...string) corev1.Node {
		node := testkit.Node(name, nil)
		statements := map[string]string{}
		for _, uid := range uids {
			statements[Key(uid)] = s.String()
		}
		return *marked(t, &node, statements, testkit.Now)
	}
	handmade := with("handmade", "live")
	delete(handmade.Annotations, Key("live")) // the statement is gone, its marks are left
	ending := with("ending", "gone")
	ending.DeletionTimestamp = decision.Stamp(testkit.Now)
	exempted := with("exempted")
	exempted.Annotations = map[string]string{v1alpha1.AnnotationGatingExempt: "true"}
	writes := Orphaned([]corev1.Node{with("fine", "live"), with("orphan", "gone"), with("both", "gone", "live"),
		testkit.Node("bare", nil), handmade, ending, exempted}, map[string]bool{"live": true})
	var names []string
	for _, w := range writes {
		names = append(names, w.Node.Name)
		object, status, err := Patches(w.Node, w.Annotations, testkit.Now)
		if err != nil {
			t.Fatal(err)
		}
		m := marksOn(testkit.Patched(t, w.Node, object, status))
		if failed := m.validated.status == corev1.ConditionFalse && m.taint &&
			m.label == "failed"; failed != (w.Node.Name == "both") || !failed && m != (marks{}) {
			t.Errorf("node %s has marks %+v", w.Node.Name, m)
		}
	}
	if !slices.Equal(names, []string{"orphan", "both", "handmade"}) {
		t.Errorf("writes to %v", names)
	}
}

// FuzzStatement: whatever stands in the annotation, what is read of it comes back the same, and its marks are bounded.
func FuzzStatement(f *testing.F) {
	for _, s := range []Statement{testStatement(v1alpha1.VerdictFail, "a/g", testkit.EveryAction...),
		testStatement(v1alpha1.VerdictPass, "a/g")} {
		f.Add(s.String())
	}
	f.Add(`{"verdict":"Fail","group":"\ud800","time":"2026-03-01T12:00:00Z","actions":null}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, value string) {
		s, err := ParseStatement(value)
		if err != nil {
			if !reflect.DeepEqual(s, Statement{}) {
				t.Fatalf("an error and %+v", s)
			}
			return
		}
		again, err := ParseStatement(s.String())
		if len(s.String()) <= maxStatementBytes && (err != nil || again.String() != s.String()) {
			t.Fatalf("%q comes back as %q, %v", s.String(), again.String(), err)
		}
		m := marksFor(Statements(map[string]string{Key("a"): value}))
		if len(m.validated.message) > conditionMessageBytes || m.taint && s.Verdict != v1alpha1.VerdictFail {
			t.Fatalf("marks %+v of %q", m, value)
		}
	})
}

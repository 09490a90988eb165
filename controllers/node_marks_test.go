package controllers

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

var everyAction = []v1alpha1.GatingAction{v1alpha1.GatingCondition, v1alpha1.GatingLabel, v1alpha1.GatingTaint}

func testStatement(verdict v1alpha1.Verdict, group string, actions ...v1alpha1.GatingAction) statement {
	s := statement{Verdict: verdict, Group: group, Run: "1-1", Time: *decision.Stamp(testkit.Now), NodeUID: "uid-n", Actions: actions}
	if verdict == v1alpha1.VerdictFail {
		s.Reason, s.Message = v1alpha1.ReasonSlowLink, "one link is slow"
	}
	return s
}

// mergePatch applies a JSON merge patch (RFC 7386), as the API server does.
func mergePatch(target any, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	into, ok := target.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for key, value := range fields {
		if value == nil {
			delete(into, key)
		} else {
			into[key] = mergePatch(into[key], value)
		}
	}
	return into
}

// patched is the Node as the API server would have it after both patches.
func patched(t testing.TB, node *corev1.Node, object, status []byte) *corev1.Node {
	t.Helper()
	data, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	if object != nil {
		var target, patch any
		if err := errors.Join(json.Unmarshal(data, &target), json.Unmarshal(object, &patch)); err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(mergePatch(target, patch)); err != nil {
			t.Fatal(err)
		}
	}
	if status != nil {
		if data, err = strategicpatch.StrategicMergePatch(data, status, corev1.Node{}); err != nil {
			t.Fatal(err)
		}
	}
	out := &corev1.Node{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
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
	object, status, err := nodePatches(node, annotations, now)
	if err != nil {
		t.Fatal(err)
	}
	out := patched(t, node, object, status)
	if object, status, err = nodePatches(out, annotations, now.Add(time.Hour)); object != nil || status != nil || err != nil {
		t.Fatalf("the same again is to be written: %s, %s, %v", object, status, err)
	}
	return out
}

func TestMarksFollowFromAllStatements(t *testing.T) {
	fail := func(group string, actions ...v1alpha1.GatingAction) statement {
		return testStatement(v1alpha1.VerdictFail, group, actions...)
	}
	pass := func(group string, actions ...v1alpha1.GatingAction) statement {
		return testStatement(v1alpha1.VerdictPass, group, actions...)
	}
	const condition, label, taint = v1alpha1.GatingCondition, v1alpha1.GatingLabel, v1alpha1.GatingTaint
	for _, c := range []struct {
		name       string
		statements []statement
		want       nodeMarks
		words      []string
	}{
		{"none", nil, nodeMarks{}, nil},
		{"failed by condition", []statement{fail("a/g", condition)},
			nodeMarks{status: corev1.ConditionFalse, reason: v1alpha1.ReasonCommFailed}, []string{"a/g", "run 1-1", "SlowLink", "one link is slow."}},
		{"failed by label and taint", []statement{fail("a/g", label, taint)}, nodeMarks{label: "failed", taint: true}, nil},
		{"passed by all", []statement{pass("a/g", everyAction...)},
			nodeMarks{status: corev1.ConditionTrue, reason: v1alpha1.ReasonCommPassed, label: "passed"}, []string{"Passed in CommGroup a/g, run 1-1."}},
		{"one fails, one passes", []statement{pass("a/g", everyAction...), fail("b/g", everyAction...)},
			nodeMarks{status: corev1.ConditionFalse, reason: v1alpha1.ReasonCommFailed, label: "failed", taint: true}, []string{"b/g"}},
		{"both fail", []statement{fail("b/g", condition), fail("a/g", condition, taint)},
			nodeMarks{status: corev1.ConditionFalse, reason: v1alpha1.ReasonCommFailed, taint: true}, []string{"a/g", "b/g"}},
		{"the failed one only taints, the passed one sets the condition", []statement{fail("a/g", taint), pass("b/g", condition)},
			nodeMarks{status: corev1.ConditionTrue, reason: v1alpha1.ReasonCommPassed, taint: true}, []string{"b/g"}},
		{"no action", []statement{fail("a/g")}, nodeMarks{}, nil},
		{"an action of a newer version", []statement{fail("a/g", "Cordon")}, nodeMarks{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			annotations := map[string]string{v1alpha1.AnnotationGatingExempt: "false", "example.com/other": "x", markKey("broken"): "{"}
			for i := range c.statements {
				annotations[markKey(c.statements[i].Group)] = c.statements[i].String()
			}
			got := marksFor(statementsOf(annotations))
			for _, word := range c.words {
				if !strings.Contains(got.message, word) {
					t.Errorf("the message %q lacks %q", got.message, word)
				}
			}
			if len(c.words) == 2 && strings.Index(got.message, c.words[0]) > strings.Index(got.message, c.words[1]) {
				t.Errorf("groups out of order: %q", got.message)
			}
			if got.message = ""; got != c.want {
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
		{Key: "example.com/taint", Value: "v", Effect: corev1.TaintEffectNoExecute, TimeAdded: decision.Stamp(testkit.Now)},
		{Key: v1alpha1.TaintCommFailed, Effect: corev1.TaintEffectPreferNoSchedule}, // someone else's: another effect
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: *decision.Stamp(testkit.Now), LastTransitionTime: *decision.Stamp(testkit.Now)}}
	var want corev1.Node
	data, err := json.Marshal(node) // as it comes back from the API
	if err := errors.Join(err, json.Unmarshal(data, &want)); err != nil {
		t.Fatal(err)
	}
	failed := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	passed := testStatement(v1alpha1.VerdictPass, "a/g", everyAction...)
	other := testStatement(v1alpha1.VerdictFail, "b/g", everyAction...)

	one := marked(t, &want, map[string]string{markKey("a"): failed.String()}, testkit.Now)
	if m := marksOn(one); m.status != corev1.ConditionFalse || m.label != "failed" || !m.taint {
		t.Fatalf("marks %+v", m)
	}
	if got := one.Spec.Taints[len(one.Spec.Taints)-1]; len(one.Spec.Taints) != 3 || got.Effect != corev1.TaintEffectNoSchedule || got.Value != "" {
		t.Fatalf("taints %+v", one.Spec.Taints)
	}
	two := marked(t, one, map[string]string{markKey("b"): other.String()}, testkit.Now.Add(time.Minute))
	if c := commValidated(two); !strings.Contains(c.Message, "a/g") || !strings.Contains(c.Message, "b/g") || !c.LastTransitionTime.Time.Equal(testkit.Now) {
		t.Fatalf("condition %+v: the status is since the first group's mark", c)
	}
	half := marked(t, two, map[string]string{markKey("a"): passed.String()}, testkit.Now.Add(2*time.Minute))
	if m := marksOn(half); m.status != corev1.ConditionFalse || m.label != "failed" || !m.taint || strings.Contains(m.message, "a/g") {
		t.Fatalf("the pass of one group lifted another's mark: %+v", m)
	}
	good := marked(t, half, map[string]string{markKey("b"): ""}, testkit.Now.Add(3*time.Minute))
	if c, m := commValidated(good), marksOn(good); m.status != corev1.ConditionTrue || m.label != "passed" || m.taint || !c.LastTransitionTime.Time.Equal(testkit.Now.Add(3*time.Minute)) {
		t.Fatalf("marks %+v", m)
	}
	bare := marked(t, good, map[string]string{markKey("a"): ""}, testkit.Now.Add(4*time.Minute))
	if !reflect.DeepEqual(*bare, want) {
		t.Fatalf("after all statements are withdrawn the Node is\n%+v, it was\n%+v", bare, want)
	}
}

func TestPatchesHoldWhatTheyRestOn(t *testing.T) {
	node := testkit.Node("n", nil)
	node.ResourceVersion = "41"
	s := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	value := s.String()
	object, status, err := nodePatches(&node, map[string]*string{markKey("a"): &value}, testkit.Now)
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
	good := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	if got, err := parseStatement(good.String()); err != nil || !reflect.DeepEqual(got.String(), good.String()) {
		t.Fatalf("%+v comes back as %+v, %v", good, got, err)
	}
	if got, err := parseStatement(`{"verdict":"Pass","group":"a/g","time":null,"nodeUID":"u","actions":["Taint"],"severity":9}`); err != nil || got.NodeUID != "u" {
		t.Errorf("a field of a newer version: %+v, %v", got, err)
	}
	for name, value := range map[string]string{
		"empty": "", "no JSON": "true story", "list": "[]", "null": "null", "no verdict": `{"group":"a/g"}`, "no group": `{"verdict":"Fail"}`,
		"another verdict": `{"verdict":"Error","group":"a/g"}`, "time": `{"verdict":"Fail","group":"a/g","time":"yesterday"}`,
		"cut": good.String()[:40], "too long": `{"verdict":"Fail","group":"` + strings.Repeat("g", maxStatementBytes) + `"}`,
	} {
		if got, err := parseStatement(value); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMarkKeys(t *testing.T) {
	for key, want := range map[string]string{
		"gating.rcclx.io/3f0e": "3f0e", "gating.rcclx.io/exempt": "", "gating.rcclx.io/": "", "rcclx.io/comm": "", "xgating.rcclx.io/3f0e": "",
	} {
		if uid, ok := markUID(key); ok != (want != "") || ok && uid != want {
			t.Errorf("%s: %q, %v", key, uid, ok)
		}
	}
	for value, want := range map[string]bool{"": true, "true": true, "until-tuesday": true, "false": false} {
		if exempt(map[string]string{v1alpha1.AnnotationGatingExempt: value}) != want {
			t.Errorf("exempt=%q", value)
		}
	}
}

// TestTheCacheKeepsWhatGatingLooksAt and nothing else of annotations and conditions.
func TestTheCacheKeepsWhatGatingLooksAt(t *testing.T) {
	s := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	node := testkit.Node("n", nil)
	node = *marked(t, &node, map[string]string{markKey("a"): s.String()}, testkit.Now)
	node.Annotations["example.com/large"] = strings.Repeat("x", 10000)
	node.Annotations[v1alpha1.AnnotationGatingExempt] = "false"
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
	before := marksOn(&node)
	trimmed, err := trimNode(&node)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := trimmed.(*corev1.Node)
	if !ok || len(got.Annotations) != 2 || len(got.Status.Conditions) != 1 || marksOn(got) != before {
		t.Fatalf("annotations %v, conditions %v", got.Annotations, got.Status.Conditions)
	}
	// With what the cache keeps, nothing is to be written either.
	if object, status, err := nodePatches(got, nil, testkit.Now); object != nil || status != nil || err != nil {
		t.Fatalf("%s, %s, %v", object, status, err)
	}
}

// TestOnlyMarksWakeTheController: a heartbeat does not, a mark that someone removed by hand does.
func TestOnlyMarksWakeTheController(t *testing.T) {
	s := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	plain := testkit.Node("n", nil)
	base := marked(t, &plain, map[string]string{markKey("a"): s.String()}, testkit.Now)
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":          {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"another annotation": {func(n *corev1.Node) { n.Annotations["example.com/x"] = "y" }, false},
		"another taint": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "x", Effect: "NoSchedule"})
		}, false},
		"the kubelet's boot id":  {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }, true},
		"the taint is gone":      {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
		"the statement is gone":  {func(n *corev1.Node) { delete(n.Annotations, markKey("a")) }, true},
		"the node is exempt now": {func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationGatingExempt] = "" }, true},
		"the condition is True":  {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
		"the label is gone":      {func(n *corev1.Node) { delete(n.Labels, v1alpha1.LabelCommValidated) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := base.DeepCopy()
			c.change(after)
			if got := nodeChanged(base, after); got != c.want {
				t.Errorf("nodeChanged = %v, want %v", got, c.want)
			}
		})
	}
}

func TestOrphanedMarks(t *testing.T) {
	s := testStatement(v1alpha1.VerdictFail, "a/g", everyAction...)
	with := func(name string, uids ...string) corev1.Node {
		node := testkit.Node(name, nil)
		statements := map[string]string{}
		for _, uid := range uids {
			statements[markKey(uid)] = s.String()
		}
		return *marked(t, &node, statements, testkit.Now)
	}
	handmade := with("handmade", "live")
	delete(handmade.Annotations, markKey("live")) // the statement is gone, its marks are left
	ending := with("ending", "gone")
	ending.DeletionTimestamp = decision.Stamp(testkit.Now)
	exempted := with("exempted")
	exempted.Annotations = map[string]string{v1alpha1.AnnotationGatingExempt: "true"}
	writes := orphanedMarks([]corev1.Node{with("fine", "live"), with("orphan", "gone"), with("both", "gone", "live"), testkit.Node("bare", nil), handmade, ending, exempted},
		map[string]bool{"live": true})
	var names []string
	for _, w := range writes {
		names = append(names, w.node.Name)
		object, status, err := nodePatches(w.node, w.annotations, testkit.Now)
		if err != nil {
			t.Fatal(err)
		}
		m := marksOn(patched(t, w.node, object, status))
		if failed := m.status == corev1.ConditionFalse && m.taint && m.label == "failed"; failed != (w.node.Name == "both") || !failed && m != (nodeMarks{}) {
			t.Errorf("node %s has marks %+v", w.node.Name, m)
		}
	}
	if !slices.Equal(names, []string{"orphan", "both", "handmade"}) {
		t.Errorf("writes to %v", names)
	}
}

// FuzzStatement: whatever stands in the annotation, what is read of it comes back the same, and its marks are bounded.
func FuzzStatement(f *testing.F) {
	for _, s := range []statement{testStatement(v1alpha1.VerdictFail, "a/g", everyAction...), testStatement(v1alpha1.VerdictPass, "a/g")} {
		f.Add(s.String())
	}
	f.Add(`{"verdict":"Fail","group":"\ud800","time":"2026-03-01T12:00:00Z","actions":null}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, value string) {
		s, err := parseStatement(value)
		if err != nil {
			if !reflect.DeepEqual(s, statement{}) {
				t.Fatalf("an error and %+v", s)
			}
			return
		}
		again, err := parseStatement(s.String())
		if len(s.String()) <= maxStatementBytes && (err != nil || again.String() != s.String()) {
			t.Fatalf("%q comes back as %q, %v", s.String(), again.String(), err)
		}
		m := marksFor(statementsOf(map[string]string{markKey("a"): value}))
		if len(m.message) > conditionMessageBytes || m.taint && s.Verdict != v1alpha1.VerdictFail {
			t.Fatalf("marks %+v of %q", m, value)
		}
	})
}

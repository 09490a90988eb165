package controllers

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
)

// manyRanksWorld has nodes of 64 GPUs, as in CPX mode.
func manyRanksWorld(t *testing.T, nodes int, f faults, change func(*v1alpha1.CommGroup)) *groupWorld {
	t.Helper()
	group := groupSpan(nodes, func(g *v1alpha1.CommGroup) {
		g.Spec.RanksPerNode = 64
		change(g)
	})
	w := &groupWorld{world: newWorld(group, testNodes(nodes)), t: t, faults: f, tasks: map[string]map[string]bool{}, taken: map[string]time.Time{}, index: map[string]int{}}
	for i := range w.nodes {
		w.nodes[i].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: resource.MustParse("64")}
		w.index[w.nodes[i].Name] = i
	}
	w.settle()
	w.reportFacts()
	w.settle()
	return w
}

// TestTasksFitTheCommNode: no task has more communicators of a node than its CommNode holds. A dimension with more is said not to
// be measured, before the run and after it, and is no pass; the others are measured, and a culprit is found without its rail.
func TestTasksFitTheCommNode(t *testing.T) {
	for name, tc := range map[string]struct {
		faults  faults
		change  func(*v1alpha1.CommGroup)
		verdict v1alpha1.Verdict
		words   string
		culprit string
		passed  []string
	}{
		"a dimension over all nodes": {change: mesh("dp", 4, "tp", 64), verdict: v1alpha1.VerdictInconclusive,
			words: "Dimension dp of the mesh was not measured: a node's ranks are in 64 of its communicators, and at most 16 fit", passed: []string{"mesh-tp-1"}},
		"both within": {change: mesh("dp", 64, "tp", 4), verdict: v1alpha1.VerdictPass, words: "2 dimensions of the mesh measured", passed: []string{"mesh-dp-1", "mesh-tp-1"}},
		"a rail hangs": {faults: faults{hangRails: [][2]int{{2, 40}}}, change: func(*v1alpha1.CommGroup) {}, verdict: v1alpha1.VerdictFail,
			words: "n00002", culprit: "n00002"},
	} {
		t.Run(name, func(t *testing.T) {
			w := manyRanksWorld(t, 4, tc.faults, tc.change)
			most := 0
			w.meddle = func() {
				for _, cn := range w.commNodes {
					if s := cn.Spec.Session; s != nil && s.Task != nil {
						most = max(most, len(s.Task.Communicators))
					}
				}
			}
			w.play()
			s := w.span()
			if s.Verdict != tc.verdict || !strings.Contains(s.Message, tc.words) {
				t.Errorf("%s: %s", s.Verdict, s.Message)
			}
			if most == 0 || most > spans.MaxNodeCommunicators {
				t.Errorf("a node has %d communicators at once, at most %d fit", most, spans.MaxNodeCommunicators)
			}
			if tc.culprit != "" && (len(s.Culprits) == 0 || s.Culprits[0].Node != tc.culprit || s.Culprits[0].Kind != "Node") {
				t.Errorf("culprits %+v", s.Culprits)
			}
			g := &groupStage{span: s}
			for _, id := range tc.passed {
				if one := g.testOf(id); one == nil || one.Verdict != v1alpha1.VerdictPass {
					t.Errorf("test %s: %+v", id, one)
				}
			}
			accepted := ""
			for _, c := range w.group.Status.Conditions {
				if c.Type == v1alpha1.ConditionAccepted {
					accepted = c.Message
				}
			}
			if told := strings.Contains(accepted, "will not be measured"); told != (tc.verdict == v1alpha1.VerdictInconclusive) {
				t.Errorf("Accepted says: %s", accepted)
			}
		})
	}
}

// TestSessionOfManyCommunicators: the part of a CommNode that the controller writes for a task leaves room for facts and reports,
// with unique ids as they are, and with ids that fill their 128 bytes.
func TestSessionOfManyCommunicators(t *testing.T) {
	for idBytes, limit := range map[int]int{36: 3 << 10, 128: 5 << 10} {
		group := groupSpan(64, func(g *v1alpha1.CommGroup) {
			g.Spec.RanksPerNode = spans.MaxNodeCommunicators
			g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather, v1alpha1.ReduceScatter, v1alpha1.AllToAll}
			mesh("dp", 64, "tp", spans.MaxNodeCommunicators)(g)
		})
		members := make([]spans.Member, 64)
		for i := range members {
			members[i] = spans.Member{Index: i, Ranks: spans.MaxNodeCommunicators}
		}
		parts, err := spans.Mesh(members, group.Spec.Mesh, 0)
		if err != nil {
			t.Fatal(err)
		}
		g := &groupStage{in: spanInput{group: group, run: &v1alpha1.GroupRunStatus{ID: "12-345"}}, plans: map[string]*v1alpha1.NodeTask{}, span: &v1alpha1.SpanStatus{Members: 64}}
		session := g.newSession(3, &v1alpha1.CommNode{})
		session.Task = g.taskOf(&v1alpha1.SpanTest{ID: meshTestID("dp")}, parts[3])
		for i := range session.Task.Communicators {
			session.Task.Communicators[i].UniqueID = bytes.Repeat([]byte{0xa5}, idBytes)
		}
		if got := sizeOf(t, session); len(session.Task.Communicators) != spans.MaxNodeCommunicators || got > limit {
			t.Errorf("ids of %d bytes: %d communicators take %d bytes, at most %d may be", idBytes, len(session.Task.Communicators), got, limit)
		}
	}
}

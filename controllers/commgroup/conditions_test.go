package commgroup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestAMonitorHasItsTime: one that has not reported since its CommTask was made is silent after the grace, and not
// before.
func TestAMonitorHasItsTime(t *testing.T) {
	ct := &v1alpha1.CommTask{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(testkit.Now)}}
	nodes := testkit.Nodes(1)
	members := []decision.Member{{Name: nodes[0].Name, UID: string(nodes[0].UID), Node: &nodes[0]}}
	at := func(d time.Duration) (decision.Finding, time.Time) {
		return agentsReporting(members, map[string]*v1alpha1.CommTask{nodes[0].Name: ct}, nil, testkit.Now.Add(d), 600)
	}
	if f, wakeAt := at(600*time.Second - time.Millisecond); f.Reason != v1alpha1.ReasonWaitingForAgents ||
		!wakeAt.Equal(testkit.Now.Add(600*time.Second)) {
		t.Errorf("within the grace: %+v, wake at %s", f, wakeAt)
	}
	if f, _ := at(600 * time.Second); f.Reason != v1alpha1.ReasonAgentNotReporting ||
		f.Status != metav1.ConditionFalse {
		t.Errorf("after the grace: %+v", f)
	}
}

// TestASimulatedLibraryMakesTheGroupSimulated, though the nodes' facts come from hardware.
func TestASimulatedLibraryMakesTheGroupSimulated(t *testing.T) {
	reporting := []*v1alpha1.CommNode{{Status: v1alpha1.CommNodeStatus{Facts: testkit.Facts(testkit.Now)}}}
	report := func(flavor string) []judge.Outcome {
		return []judge.Outcome{{Report: &v1alpha1.NodeRunStatus{}},
			{Report: &v1alpha1.NodeRunStatus{Library: &v1alpha1.LibraryFacts{Flavor: flavor}}}, {}}
	}
	unknown := []*v1alpha1.CommNode{reporting[0],
		{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{}}}, reporting[0]}
	for _, tc := range []struct {
		reporting []*v1alpha1.CommNode
		outcomes  []judge.Outcome
		want      v1alpha1.Origin
	}{
		{reporting, report("simulated"), v1alpha1.OriginSimulated},
		{nil, report("simulated"), v1alpha1.OriginSimulated},
		{reporting, report("rccl"), v1alpha1.OriginHardware},
		{nil, report("rccl"), v1alpha1.OriginUnknown},
		{unknown, nil, v1alpha1.OriginUnknown},
	} {
		if got := originOf(tc.reporting, tc.outcomes); got != tc.want {
			t.Errorf("%d nodes, %d outcomes: %s, want %s", len(tc.reporting), len(tc.outcomes), got, tc.want)
		}
	}
}

package stage

import (
	"bytes"
	"encoding/json"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// TestSessionOfManyCommunicators: the part of a CommTask that the controller writes for a task leaves room for facts
// and reports, with unique ids as they are, and with ids that fill their 128 bytes.
func TestSessionOfManyCommunicators(t *testing.T) {
	for idBytes, limit := range map[int]int{36: 3 << 10, 128: 5 << 10} {
		group := testkit.SpanGroup(64, func(g *state.Group) {
			g.Spec.RanksPerNode = spans.MaxNodeCommunicators
			g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather,
				v1alpha1.ReduceScatter, v1alpha1.AllToAll}
			testkit.Mesh("dp", 64, "tp", spans.MaxNodeCommunicators)(g)
		})
		members := make([]spans.Member, 64)
		for i := range members {
			members[i] = spans.Member{Index: i, Ranks: spans.MaxNodeCommunicators}
		}
		parts, err := spans.Mesh(members, group.Spec.Mesh, 0)
		if err != nil {
			t.Fatal(err)
		}
		g := newMachine(Input{Group: group, Run: &v1alpha1.GroupRunStatus{ID: "12-345"}},
			&v1alpha1.SpanStatus{Members: 64})
		session := g.newSession(3, &v1alpha1.CommTask{})
		session.Task = g.taskOf(&v1alpha1.SpanTest{Kind: v1alpha1.TestMesh, Dimension: "dp"}, parts[3])
		for i := range session.Task.Communicators {
			session.Task.Communicators[i].UniqueID = bytes.Repeat([]byte{0xa5}, idBytes)
		}
		data, err := json.Marshal(session)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(data); len(session.Task.Communicators) != spans.MaxNodeCommunicators || got > limit {
			t.Errorf("ids of %d bytes: %d communicators take %d bytes, at most %d may be",
				idBytes, len(session.Task.Communicators), got, limit)
		}
	}
}

// TestIdleDeadlineOutlastsEveryWait: no agent gives up while the controller waits for others, whatever takes longest
// and however many there are.
func TestIdleDeadlineOutlastsEveryWait(t *testing.T) {
	for _, members := range []int32{2, 1500, 12_500} {
		for _, nodeSeconds := range []int32{10, 1800, 86_400} {
			for _, membersSeconds := range []int32{5, 86_400} {
				for _, localization := range []v1alpha1.LocalizationSpec{{Mode: v1alpha1.LocalizationOff},
					{DeadlineSeconds: 10}, {}, {DeadlineSeconds: 86_400}} {
					group := testkit.SpanGroup(2, func(g *state.Group) {
						testkit.Mesh("dp", 2, "tp", 8)(g)
						g.Spec.Localization, g.Spec.Run.NodeDeadlineSeconds, g.Spec.Run.MembersDeadlineSeconds =
							localization, nodeSeconds, membersSeconds
						g.Spec.Benchmark.MaxSizeBytes, g.Spec.Benchmark.Repeats = 1<<30, 16
					})
					g := newMachine(Input{Group: group, Run: &v1alpha1.GroupRunStatus{ID: "12-345"}},
						&v1alpha1.SpanStatus{Members: members})
					idle := decision.Seconds(g.newSession(0, &v1alpha1.CommTask{}).IdleDeadlineSeconds)
					for _, kind := range []v1alpha1.TestKind{v1alpha1.TestGroup, v1alpha1.TestMesh,
						v1alpha1.TestPairs} {
						ids, reports := g.limits(&v1alpha1.SpanTest{Kind: kind}, int(members))
						search := decision.Seconds(localizationDeadlineSeconds(&group.Spec))
						if wait := max(decision.Seconds(membersSeconds), reports+podstate.ReportGrace+search) +
							ids; idle <= wait {
							t.Errorf("%d members, run.nodeDeadlineSeconds %d, "+
								"run.membersDeadlineSeconds %d, localization %+v: "+
								"an agent may have no task for %s around a test of kind %s, and gives up after %s",
								members, nodeSeconds, membersSeconds, localization, wait, kind, idle)
						}
					}
				}
			}
		}
	}
}

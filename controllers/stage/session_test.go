package stage

import (
	"bytes"
	"encoding/json"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestSessionOfManyCommunicators: the part of a CommNode that the controller writes for a task leaves room for facts and reports,
// with unique ids as they are, and with ids that fill their 128 bytes.
func TestSessionOfManyCommunicators(t *testing.T) {
	for idBytes, limit := range map[int]int{36: 3 << 10, 128: 5 << 10} {
		group := testkit.SpanGroup(64, func(g *v1alpha1.CommGroup) {
			g.Spec.RanksPerNode = spans.MaxNodeCommunicators
			g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather, v1alpha1.ReduceScatter, v1alpha1.AllToAll}
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
		g := &machine{in: Input{Group: group, Run: &v1alpha1.GroupRunStatus{ID: "12-345"}}, plans: map[string]*v1alpha1.NodeTask{}, span: &v1alpha1.SpanStatus{Members: 64}}
		session := g.newSession(3, &v1alpha1.CommNode{})
		session.Task = g.taskOf(&v1alpha1.SpanTest{ID: MeshTestID("dp")}, parts[3])
		for i := range session.Task.Communicators {
			session.Task.Communicators[i].UniqueID = bytes.Repeat([]byte{0xa5}, idBytes)
		}
		data, err := json.Marshal(session)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(data); len(session.Task.Communicators) != spans.MaxNodeCommunicators || got > limit {
			t.Errorf("ids of %d bytes: %d communicators take %d bytes, at most %d may be", idBytes, len(session.Task.Communicators), got, limit)
		}
	}
}

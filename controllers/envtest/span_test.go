package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// groupAgents play the agents of the group's stage against the API server.
type groupAgents struct {
	*world
	// hangs, by node name: communicators over several nodes with it in them do not end.
	hangs map[string]bool
	tasks []string
}

// act lets each agent take its next step; it says whether one did.
func (a *groupAgents) act() bool {
	a.Helper()
	moved := false
	members := map[string][]string{} // of each communicator, by unique id
	for _, node := range a.nodes {
		ct := a.commTask(node)
		if s := ct.Spec.Session; s != nil && s.State == v1alpha1.SessionOpen && s.Task != nil {
			for _, c := range s.Task.Communicators {
				id := c.UniqueID
				if id == nil && ct.Status.Session != nil && ct.Status.Session.Task != nil &&
					ct.Status.Session.Task.ID == s.Task.ID {
					for _, own := range ct.Status.Session.Task.Communicators {
						if own.Name == c.Name {
							id = own.UniqueID
						}
					}
				}
				members[string(id)] = append(members[string(id)], node)
			}
		}
	}
	for _, node := range a.nodes {
		ct := a.commTask(node)
		s := ct.Spec.Session
		if s == nil {
			continue
		}
		now := metav1.NewMicroTime(a.clock.Now())
		next := ct.Status.Session.DeepCopy()
		switch {
		case next == nil || next.RunID != s.RunID:
			a.startGroupPod(node)
			next = &v1alpha1.SessionStatus{RunID: s.RunID, State: v1alpha1.SessionReady, SettingsHash: "h",
				Library: &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3", BuildHash: "abc"},
				Network: &v1alpha1.NetworkStatus{Interface: "eth0",
					Addresses: []string{fmt.Sprintf("10.0.0.%d", 1+slices.Index(a.nodes, node))}, Clock: &now}}
		case s.State == v1alpha1.SessionClosed && next.State != v1alpha1.SessionEnded:
			next.State = v1alpha1.SessionEnded
		case s.State == v1alpha1.SessionClosed || s.Task == nil:
			continue
		case next.Task == nil || next.Task.ID != s.Task.ID:
			a.tasks = append(a.tasks, s.Task.ID)
			next.State, next.Task = v1alpha1.SessionWorking,
				&v1alpha1.NodeTaskStatus{ID: s.Task.ID, Phase: v1alpha1.TaskJoining}
			for _, c := range s.Task.Communicators {
				one := v1alpha1.TaskCommunicatorStatus{Name: c.Name}
				if c.Ranks[0] == 0 {
					one.UniqueID = fmt.Appendf(nil, "%s %s %s", s.RunID, s.Task.ID, c.Name+node)
				}
				next.Task.Communicators = append(next.Task.Communicators, one)
			}
		case next.Task.Phase != v1alpha1.TaskFinished:
			for i, c := range s.Task.Communicators {
				id := c.UniqueID
				if id == nil {
					id = next.Task.Communicators[i].UniqueID
				}
				if all := members[string(id)]; len(all) == int(c.Nodes) {
					a.work(s.Task, &c, all, &next.Task.Communicators[i])
				}
			}
			if slices.ContainsFunc(next.Task.Communicators, func(c v1alpha1.TaskCommunicatorStatus) bool {
				return c.Verdict == ""
			}) {
				continue
			}
			next.State, next.Task.Phase = v1alpha1.SessionReady, v1alpha1.TaskFinished
		default:
			continue
		}
		ct.Status.Session = next
		a.must(admin.Status().Update(a.ctx, ct))
		moved = true
	}
	return moved
}

func (a *groupAgents) work(task *v1alpha1.NodeTask, c *v1alpha1.TaskCommunicator, all []string,
	s *v1alpha1.TaskCommunicatorStatus) {
	s.Transport = "RDMA"
	if c.Nodes > 1 && slices.ContainsFunc(all, func(node string) bool { return a.hangs[node] }) {
		s.Verdict, s.Reason, s.Message, s.Step = v1alpha1.VerdictFail, v1alpha1.ReasonRankHung, "no rank came back",
			testkit.Step(4096)
		return
	}
	s.Verdict = v1alpha1.VerdictPass
	if c.Ranks[0] != 0 {
		return
	}
	for _, collective := range task.Collectives {
		r := v1alpha1.ResultSeries{Variant: v1alpha1.VariantBaseline, Collective: collective,
			Datatype: task.Datatypes[0], SizeBytes: task.SizesBytes}
		for range task.SizesBytes {
			r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.LatencyNanoseconds, 1000),
				append(r.BusBandwidthMBps, 40_000)
		}
		s.Results = append(s.Results, r)
	}
}

// groupPods of the stage that are not told to end.
func (w *world) groupPods() []corev1.Pod {
	return slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool {
		return p.Labels[v1alpha1.LabelStage] != v1alpha1.StagePodGroup || !p.DeletionTimestamp.IsZero()
	})
}

func (w *world) startGroupPod(node string) {
	w.Helper()
	for _, pod := range w.groupPods() {
		if pod.Labels[v1alpha1.LabelNode] != v1alpha1.LabelValue(node) {
			continue
		}
		w.bind(&pod, node)
		w.must(admin.Get(w.ctx, client.ObjectKeyFromObject(&pod), &pod))
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ranks", State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}}}
		w.must(admin.Status().Update(w.ctx, &pod))
		return
	}
	w.Fatalf("no group pod for node %s", node)
}

// play lets agents and controller go on until neither does.
func (a *groupAgents) play() {
	a.Helper()
	for range 200 {
		a.settle()
		a.endPods()
		if !a.act() {
			return
		}
	}
	a.Fatal("200 steps, and still something goes on")
}

func (w *world) passAlone() {
	w.Helper()
	for _, node := range w.nodes {
		w.finish(node, 300_000, nil)
	}
}

func TestGroupSpanFromApplyToReady(t *testing.T) {
	w := newWorld(t, 4, func(g *v1alpha1.CommGroup) {
		g.Spec.Span = v1alpha1.SpanGroup
		g.Spec.Mesh = []v1alpha1.MeshDimension{{Name: "dp", Size: 4}, {Name: "tp", Size: 8}}
	})
	w.running()
	w.passAlone()
	if s := w.joined.Status.Span; s == nil || s.Stage != v1alpha1.StageWaitingForMembers || len(w.groupPods()) != 4 {
		t.Fatalf("after the nodes' own stage: %+v, %d group pods", w.joined.Status.Span, len(w.groupPods()))
	}
	w.wantCondition(v1alpha1.ConditionRunning, yes, v1alpha1.ReasonRunInProgress, "WaitingForMembers", "4 of 4")
	w.wantCondition(v1alpha1.ConditionReady, unknown, v1alpha1.ReasonRunInProgress)
	w.restart() // nothing is kept in the manager
	a := &groupAgents{world: w}
	a.play()
	s := w.joined.Status.Span
	if s.Stage != v1alpha1.StageEnded || s.Verdict != v1alpha1.VerdictPass || s.Transport != "RDMA" ||
		!strings.Contains(s.Network, "IPv4") {
		t.Fatalf("span %+v", s)
	}
	dimensions := map[string]int32{}
	for _, r := range s.Results {
		dimensions[r.Dimension] = r.Communicators
	}
	if dimensions["group"] != 1 || dimensions["dp"] != 8 || dimensions["tp"] != 4 {
		t.Errorf("results of %v", dimensions)
	}
	w.wantCondition(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, "4 members and the group")
	w.pass(exitGraceAndMore)
	w.settle()
	if pods := w.groupPods(); len(pods) != 0 {
		t.Errorf("%d group pods hold GPUs after the run", len(pods))
	}
	for _, node := range w.nodes {
		if session := w.commTask(node).Spec.Session; session.State != v1alpha1.SessionClosed || session.Task != nil {
			t.Errorf("session of %s: %+v", node, session)
		}
	}
}

// exitGraceAndMore is what agents get to end by themselves, and more.
const exitGraceAndMore = 60e9

func TestHangAcrossNodesIsLocalized(t *testing.T) {
	w := newWorld(t, 6, func(g *v1alpha1.CommGroup) { g.Spec.Span = v1alpha1.SpanGroup })
	w.running()
	w.passAlone()
	culprit := w.nodes[4]
	a := &groupAgents{world: w, hangs: map[string]bool{culprit: true}}
	a.play()
	s := w.joined.Status.Span
	if s.Verdict != v1alpha1.VerdictFail || s.Reason != v1alpha1.ReasonHangAcrossNodes || s.Localization == nil ||
		s.Localization.State != v1alpha1.LocalizationFound {
		t.Fatalf("span %+v, search %+v", s, s.Localization)
	}
	if c := w.group.Status.Culprits; len(c) != 1 || c[0].Kind != "Node" || c[0].Name != culprit {
		t.Errorf("culprits %+v, want %s", c, culprit)
	}
	w.wantCondition(v1alpha1.ConditionReady, no, v1alpha1.ReasonHangAcrossNodes, culprit)
	w.wantCondition(v1alpha1.ConditionRunning, no, v1alpha1.ReasonRunFinished)
}

// TestSuspendedGroupFreesItsGPUs: a run that is suspended in the group's stage ends its sessions and pods.
func TestSuspendedGroupFreesItsGPUs(t *testing.T) {
	w := newWorld(t, 2, func(g *v1alpha1.CommGroup) { g.Spec.Span = v1alpha1.SpanGroup })
	w.running()
	w.passAlone()
	a := &groupAgents{world: w}
	a.act() // they are ready
	w.settle()
	w.update(func(g *v1alpha1.CommGroup) { g.Spec.Run.State = v1alpha1.RunSuspended })
	w.settle()
	if s := w.joined.Status.Span; s.Stage != v1alpha1.StageEnded || s.Verdict != v1alpha1.VerdictSkipped ||
		len(w.groupPods()) != 0 {
		t.Errorf("span %+v, %d group pods", s, len(w.groupPods()))
	}
	for _, node := range w.nodes {
		if s := w.commTask(node).Spec.Session; s == nil || s.State != v1alpha1.SessionClosed {
			t.Errorf("session of %s: %+v", node, s)
		}
	}
}

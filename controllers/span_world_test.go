package controllers

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// faults of the nodes of a groupWorld, by the nodes' places.
type faults struct {
	slowNodes, hangNodes []int
	slowPairs, hangPairs [][2]int
	// slowRails and hangRails are a node and one of its devices.
	slowRails, hangRails [][2]int
	// slowPairRails and hangPairRails are two nodes and the device whose rail between them is bad.
	slowPairRails, hangPairRails [][3]int
	// wrongNodes give wrong data over several nodes, and see it themselves; dieNodes lose a rank there.
	wrongNodes, dieNodes []int
	// silentNodes take tasks up and never end them; neverReady never are.
	silentNodes, neverReady []int
	// muteNodes are ready and never take a task up.
	muteNodes []int
	// meshOnly: the faults above show in the tests of the mesh only; sideBySide: in all whose communicators work side
	// by side, those of a search in the mesh, too.
	meshOnly, sideBySide bool
	tcpNodes             []int
	// crawlNodes are so slow that a step over more than two nodes misses its deadline.
	crawlNodes []int
	// slowAll slows every communicator over several nodes.
	slowAll bool
	// figure may change what a communicator over the nodes reaches, in MB/s.
	figure func(nodes []int, mbps int64) int64
	// quirk may change what an agent says when it is ready.
	quirk func(node int, s *v1alpha1.SessionStatus)
	// report may change what an agent says of a task that is over.
	report func(node int, ct *v1alpha1.CommTask)
	// takes is how long a communicator of a test works from when the last of its nodes took the task up; nil: no time.
	takes func(test string, nodes []int) time.Duration
}

const goodMBps, badMBps = 40_000, 10_000

// groupWorld plays the agents of the group's stage: communicators form where every node has its task and the root's id.
type groupWorld struct {
	*world
	t      testing.TB
	faults faults
	// tasks that nodes took up, with the nodes.
	tasks map[string]map[string]bool
	// taken is when a node took its task up, by node and task.
	taken map[string]time.Time
	// family of the session when a node took its task up, by node and task.
	family map[string]v1alpha1.AddressFamily
	// free is since when a node has no task to do.
	free map[string]time.Time
	// due is when the next communicator at work has done it; zero where none is.
	due time.Time
	// meddle is called in each step of play.
	meddle func()
	index  map[string]int
}

func groupWorldOf(t testing.TB, w *world) *groupWorld {
	return &groupWorld{world: w, t: t, tasks: map[string]map[string]bool{}, taken: map[string]time.Time{},
		family: map[string]v1alpha1.AddressFamily{}, free: map[string]time.Time{}, index: map[string]int{}}
}

func newGroupWorld(t testing.TB, nodes int, f faults, change func(*state.Group)) *groupWorld {
	t.Helper()
	return newGroupWorldAt(t, testkit.Now, nodes, f, change)
}

func newGroupWorldAt(t testing.TB, now time.Time, nodes int, f faults, change func(*state.Group)) *groupWorld {
	t.Helper()
	w := groupWorldOf(t, newWorld(testkit.SpanGroup(nodes, change), testkit.Nodes(nodes)))
	w.faults = f
	w.now = now
	for i := range w.nodes {
		w.index[w.nodes[i].Name] = i
	}
	w.settle()
	w.reportFacts()
	w.settle()
	return w
}

func (w *groupWorld) span() *v1alpha1.SpanStatus { return w.group.Status.Span }

// test is the one with this id; a zero one where there is none.
func (w *groupWorld) test(id string) (out v1alpha1.SpanTest) {
	for i := range w.span().Tests {
		if w.span().Tests[i].ID == id {
			return w.span().Tests[i]
		}
	}
	return out
}

// groupPod of a node, nil where it has none.
func (w *groupWorld) groupPod(node string) *corev1.Pod {
	for _, pod := range w.pods {
		if pod.Labels[v1alpha1.LabelNode] == node && ofGroupStage(pod) {
			return pod
		}
	}
	return nil
}

// playNodes lets each node that is to run alone pass.
func (w *groupWorld) playNodes() bool {
	moved := false
	for _, pod := range w.pods {
		node := pod.Labels[v1alpha1.LabelNode]
		ct := w.commTask(node)
		if ofGroupStage(pod) || ct == nil || ct.Spec.Run == nil || pod.Labels[v1alpha1.LabelRunID] != ct.Spec.Run.ID ||
			!podstate.Alive(pod) {
			continue
		}
		startPod(pod, node, w.now)
		ct.Status.Run = testkit.Report(w.plan(), ct.Spec.Run, v1alpha1.VerdictPass, 300_000, w.now)
		endPod(pod, 0, w.now)
		moved = true
	}
	return moved
}

// playAgents lets each agent of the stage do what it would do next; it says whether anything happened.
func (w *groupWorld) playAgents() bool {
	moved := false
	pods := map[string]*corev1.Pod{}
	for _, pod := range w.pods {
		if ofGroupStage(pod) {
			pods[pod.Labels[v1alpha1.LabelNode]] = pod
		}
	}
	for i := range w.nodes {
		name := w.nodes[i].Name
		ct, pod := w.commTask(name), pods[name]
		if pod != nil && !pod.DeletionTimestamp.IsZero() {
			delete(w.pods, pod.Name) // the kubelet ends it
			moved = true
			continue
		}
		if ct == nil || ct.Spec.Session == nil || pod == nil || !podstate.Alive(pod) ||
			slices.Contains(w.faults.neverReady, i) {
			continue
		}
		a := ct.Spec.Session
		if ct.Status.Session == nil || ct.Status.Session.RunID != a.RunID {
			startPod(pod, name, w.now)
			ct.Status.Session = &v1alpha1.SessionStatus{RunID: a.RunID,
				State: v1alpha1.SessionReady, SettingsHash: "same",
				Library: &v1alpha1.LibraryFacts{Flavor: "rcclx-dev", Version: "2.28.3", BuildHash: "abc"},
				Network: &v1alpha1.NetworkStatus{Interface: "eth1", Addresses: []string{fmt.Sprintf("10.0.%d.%d",
					i/250, i%250+1)}, Clock: &metav1.MicroTime{Time: w.now}}}
			if w.faults.quirk != nil {
				w.faults.quirk(i, ct.Status.Session)
			}
			moved = true
			continue
		}
		s := ct.Status.Session
		if a.State == v1alpha1.SessionClosed {
			if s.State != v1alpha1.SessionEnded {
				s.State = v1alpha1.SessionEnded
				endPod(pod, 0, w.now)
				moved = true
			}
			continue
		}
		if slices.Contains(w.faults.muteNodes, i) {
			continue
		}
		task := a.Task
		if task != nil && s.Task != nil && s.Task.ID == task.ID {
			task = nil // taken up before
		}
		if task == nil && w.endsIdle(name, a, s) {
			endPod(pod, 0, w.now)
			moved = true
			continue
		}
		if task != nil && s.State != v1alpha1.SessionFailed {
			delete(w.free, name)
			s.State = v1alpha1.SessionWorking
			s.Task = &v1alpha1.NodeTaskStatus{ID: task.ID, Phase: v1alpha1.TaskJoining}
			for j := range task.Communicators {
				c := &task.Communicators[j]
				one := v1alpha1.TaskCommunicatorStatus{Name: c.Name}
				if spans.IsRoot(c) {
					one.UniqueID = []byte(task.ID + "/" + c.Name + "/" + name)
				}
				s.Task.Communicators = append(s.Task.Communicators, one)
			}
			if w.tasks[task.ID] == nil {
				w.tasks[task.ID] = map[string]bool{}
			}
			w.tasks[task.ID][name] = true
			w.taken[name+task.ID] = w.now
			w.family[name+task.ID] = a.AddressFamily
			moved = true
		}
	}
	return w.playCommunicators() || moved
}

// endsIdle ends the session of an agent that has had nothing to do for too long.
func (w *groupWorld) endsIdle(name string, a *v1alpha1.SessionAssignment, s *v1alpha1.SessionStatus) bool {
	if s.State != v1alpha1.SessionReady {
		return false
	}
	if w.free[name].IsZero() {
		w.free[name] = w.now
	}
	idle := decision.Seconds(a.IdleDeadlineSeconds)
	if w.now.Before(w.free[name].Add(idle)) {
		return false
	}
	s.State, s.Reason, s.Message = v1alpha1.SessionEnded, v1alpha1.ReasonSessionIdle,
		"no task came within "+idle.String()
	return true
}

type joined struct {
	node   int
	comm   *v1alpha1.TaskCommunicator
	status *v1alpha1.TaskCommunicatorStatus
	task   *v1alpha1.NodeTask
	report *v1alpha1.NodeTaskStatus
}

// playCommunicators ends the communicators that are complete.
func (w *groupWorld) playCommunicators() bool {
	byID := map[string][]joined{}
	for i := range w.nodes {
		ct := w.commTask(w.nodes[i].Name)
		if ct == nil || ct.Spec.Session == nil || ct.Spec.Session.Task == nil || ct.Status.Session == nil ||
			ct.Status.Session.Task == nil {
			continue
		}
		task, report := ct.Spec.Session.Task, ct.Status.Session.Task
		if task.ID != report.ID || report.Phase == v1alpha1.TaskFinished {
			continue
		}
		for j := range task.Communicators {
			c := &task.Communicators[j]
			id := c.UniqueID
			if spans.IsRoot(c) {
				id = report.Communicators[j].UniqueID
			}
			if id != nil && report.Communicators[j].Verdict == "" {
				byID[string(id)] = append(byID[string(id)], joined{i, c, &report.Communicators[j], task, report})
			}
		}
	}
	moved := false
	w.due = time.Time{}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		all := byID[id]
		if len(all) == int(all[0].comm.Nodes) {
			if at := w.endOf(all); w.now.Before(at) {
				if w.due.IsZero() || at.Before(w.due) {
					w.due = at
				}
				continue
			}
			w.work(all)
			moved = true
		}
	}
	for i := range w.nodes {
		ct := w.commTask(w.nodes[i].Name)
		if ct == nil || ct.Spec.Session == nil || ct.Status.Session == nil || ct.Status.Session.Task == nil ||
			ct.Status.Session.Task.Phase == v1alpha1.TaskFinished || slices.Contains(w.faults.silentNodes, i) {
			continue
		}
		done := true
		task := ct.Status.Session.Task
		for j := range task.Communicators {
			c := &task.Communicators[j]
			if limit := ct.Spec.Session.Task; c.Verdict == "" && limit != nil && limit.ID == task.ID &&
				!w.now.Before(w.taken[w.nodes[i].Name+task.ID].Add(decision.Seconds(limit.DeadlineSeconds))) {
				c.Verdict, c.Reason, c.Message = v1alpha1.VerdictFail, v1alpha1.ReasonRankHung,
					"peers did not come in time"
			}
			done = done && c.Verdict != ""
		}
		if done {
			ct.Status.Session.Task.Phase = v1alpha1.TaskFinished
			ct.Status.Session.State = v1alpha1.SessionReady
			if w.faults.report != nil {
				w.faults.report(i, ct)
			}
			moved = true
		}
	}
	return moved
}

// endOf is when a communicator has done its work.
func (w *groupWorld) endOf(all []joined) time.Time {
	here, last := map[int]bool{}, time.Time{}
	for _, j := range all {
		here[j.node] = true
		if at := w.taken[w.nodes[j.node].Name+j.task.ID]; at.After(last) {
			last = at
		}
	}
	if w.faults.takes == nil {
		return last
	}
	return last.Add(w.faults.takes(all[0].task.ID, sortedNodes(here)))
}

// work gives the outcome of one communicator to its nodes.
func (w *groupWorld) work(all []joined) {
	here := make(map[int]bool, len(all))
	for _, j := range all {
		here[j.node] = true
	}
	has := func(node int) bool { return here[node] }
	hasRail := func(rail [2]int) bool {
		return slices.ContainsFunc(all, func(j joined) bool {
			return j.node == rail[0] && slices.Contains(j.comm.Devices, int32(rail[1]))
		})
	}
	over := len(all) > 1 && (!w.faults.meshOnly || w.test(all[0].task.ID).Kind == v1alpha1.TestMesh) &&
		(!w.faults.sideBySide || all[0].comm.Name != spans.NameGroup)
	any := func(nodes []int) bool { return over && slices.ContainsFunc(nodes, has) }
	pair := func(pairs [][2]int) bool {
		return over && slices.ContainsFunc(pairs, func(p [2]int) bool { return has(p[0]) && has(p[1]) })
	}
	f := &w.faults
	crawl := any(f.crawlNodes)
	hung := crawl && len(all) > 2 || any(f.hangNodes) || any(f.silentNodes) || pair(f.hangPairs) ||
		over && slices.ContainsFunc(f.hangRails, hasRail)
	slow := any(f.slowNodes) || pair(f.slowPairs) || over && slices.ContainsFunc(f.slowRails, hasRail) ||
		over && f.slowAll
	pairRail := func(list [][3]int) bool {
		return over && slices.ContainsFunc(list, func(p [3]int) bool {
			return hasRail([2]int{p[0], p[2]}) && hasRail([2]int{p[1], p[2]})
		})
	}
	hung, slow = hung || pairRail(f.hangPairRails), slow || pairRail(f.slowPairRails)
	family := func(j joined) v1alpha1.AddressFamily { return w.family[w.nodes[j.node].Name+j.task.ID] }
	apart := slices.ContainsFunc(all, func(j joined) bool { return family(j) != family(all[0]) })
	for _, j := range all {
		s := j.status
		if len(all) > 1 { // of what stays within a node an agent says nothing
			s.Transport = judge.TransportRDMA
			if slices.Contains(f.tcpNodes, j.node) {
				s.Transport = judge.TransportTCP
			}
		}
		name := w.nodes[j.node].Name
		switch {
		case apart:
			s.Verdict, s.Reason, s.Message, s.Step = v1alpha1.VerdictFail, v1alpha1.ReasonInitFailed,
				"address family mismatch", nil
		case any(f.dieNodes):
			s.Verdict, s.Reason, s.Message, s.Step = v1alpha1.VerdictFail, v1alpha1.ReasonRankHung,
				"ranks waited for a peer", testkit.Step(1024)
			if slices.Contains(f.dieNodes, j.node) {
				s.Reason = v1alpha1.ReasonRankDied
				s.Guilty = &v1alpha1.Culprit{Node: name, Kind: "Rank", Name: "rank 3", Reason: v1alpha1.ReasonRankDied,
					Message: "rank 3 ended by signal 6"}
			}
		case hung:
			s.Verdict, s.Reason, s.Message, s.Step = v1alpha1.VerdictFail, v1alpha1.ReasonRankHung, "no rank came back",
				testkit.Step(4096)
		case any(f.wrongNodes):
			s.Verdict, s.Reason, s.Message, s.Step = v1alpha1.VerdictFail, v1alpha1.ReasonWrongData,
				"12 elements differ", testkit.Step(1048576)
		default:
			s.Verdict, s.InitNanoseconds = v1alpha1.VerdictPass, ptr.To(int64(1_000_000))
			if spans.IsRoot(j.comm) {
				s.Repeats = j.task.Repeats
				bandwidth := int64(goodMBps)
				switch {
				case crawl:
					bandwidth = goodMBps / 100
				case slow:
					bandwidth = badMBps
				}
				if f.figure != nil {
					bandwidth = f.figure(sortedNodes(here), bandwidth)
				}
				plan := &v1alpha1.RunPlan{Collectives: j.task.Collectives, Datatypes: j.task.Datatypes,
					Placements: j.task.Placements, SizesBytes: j.task.SizesBytes}
				for _, p := range runplan.SeriesOf(plan, j.comm.WorldSize) {
					r := v1alpha1.ResultSeries{Variant: p.Key.Variant, Collective: p.Key.Collective,
						Datatype: p.Key.Datatype, Placement: p.Key.Placement}
					for _, size := range p.Sizes {
						r.SizeBytes, r.LatencyNanoseconds = append(r.SizeBytes, size),
							append(r.LatencyNanoseconds, 1_000_000)
						if r.BusBandwidthMBps = append(r.BusBandwidthMBps, bandwidth); s.Repeats > 1 {
							r.SpreadPercent = append(r.SpreadPercent, int32(len(r.SizeBytes)))
						}
					}
					s.Results = append(s.Results, r)
				}
			}
		}
	}
}

func sortedNodes(here map[int]bool) []int {
	var out []int
	for node := range here {
		out = append(out, node)
	}
	slices.Sort(out)
	return out
}

// play goes on until the run is over, or so many hours have gone by.
func (w *groupWorld) play() {
	w.t.Helper()
	end := w.now.Add(24 * time.Hour)
	for range 5000 {
		w.settle()
		w.check()
		if w.meddle != nil {
			w.meddle()
		}
		if nodes, agents := w.playNodes(), w.playAgents(); nodes || agents {
			continue
		}
		if run := w.group.Status.Run; run != nil && run.Phase != v1alpha1.RunPhaseRunning &&
			len(w.decided.CommTasks) == 0 && w.alive() == 0 {
			return
		}
		if w.meddle != nil {
			w.settle()
		}
		at := w.decided.WakeAt
		if at.IsZero() {
			w.t.Fatalf("nothing goes on and nothing is waited for: %+v", w.span())
		}
		if at.After(end) {
			w.t.Fatalf("the run does not end: %+v", w.span())
		}
		if at.After(w.now) {
			most := 5 * time.Minute
			if w.faults.takes != nil {
				most = 20 * time.Second // agents see their deadlines in time
			}
			if w.due.After(w.now) {
				most = min(most, w.due.Sub(w.now))
			}
			w.now = w.now.Add(min(at.Sub(w.now), most)) // agents have deadlines, too
		} else {
			w.now = w.now.Add(time.Second)
		}
		w.reportFacts()
	}
	w.t.Fatalf("too many steps: %+v", w.span())
}

// alive counts the pods that hold GPUs.
func (w *groupWorld) alive() int {
	n := 0
	for _, pod := range w.pods {
		if podstate.Alive(pod) {
			n++
		}
	}
	return n
}

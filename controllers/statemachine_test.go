package controllers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestStateMachineNode and TestStateMachineGroup play random histories of a group and hold each step against the
// invariants.
func TestStateMachineNode(t *testing.T) {
	playSeeds(t, v1alpha1.SpanNode, map[string]int{"mark Pass": 5, "ready": 50, "culprit": 20, "missing": 50,
		"verdict Fail": 1, "kept": 2, "stands": 20, "read fails": 100, "old read": 5, "rests on": 5, "old objects": 1,
		"run NodesChanged": 2, "run Scheduled": 5, "ended": 20, "happens CommGroup": 10, "happens CommTask": 10,
		"happens Node": 10, "happens Pod": 5, "happens ConfigMap": 2, "happens manager": 1})
}

func TestStateMachineGroup(t *testing.T) {
	playSeeds(t, v1alpha1.SpanGroup, map[string]int{"mark Pass": 1, "ready": 10, "culprit": 20, "stage passed": 5,
		"verdict Fail": 2, "kept": 5, "stands": 2, "read fails": 100, "old read": 5, "ended": 20,
		"happens CommGroup": 10, "happens CommTask": 10, "happens Node": 10, "happens Pod": 5, "happens ConfigMap": 2,
		"happens manager": 1})
}

// FuzzStateMachine looks for seeds whose history breaks an invariant.
func FuzzStateMachine(f *testing.F) {
	f.Add(uint64(1000), true)
	f.Add(uint64(1262), true) // the spec becomes one of span Node after the group's stage failed
	f.Add(uint64(1000), false)
	f.Fuzz(func(t *testing.T, seed uint64, group bool) {
		span := v1alpha1.SpanNode
		if group {
			span = v1alpha1.SpanGroup
		}
		playHistory(t, seed, span)
	})
}

// playSeeds wants at least so much of each in twenty histories, and without TEST_LONG a fourth of it in sixteen.
func playSeeds(t *testing.T, span v1alpha1.Span, least map[string]int) {
	const all = 20
	seeds := testenv.Draws(16, all)
	seen := map[string]int{}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for what, n := range playHistory(t, seed, span) {
				seen[what] += n
			}
		})
	}
	t.Logf("%v", seen)
	for what, n := range least {
		if n = testenv.Draws(max(1, n/4), n); seen[what] < n && !t.Failed() {
			t.Errorf("the histories are too tame: %s %d times, want %d", what, seen[what], n)
		}
	}
}

// playHistory plays one history, ends it, and returns what was seen in it.
func playHistory(t *testing.T, seed uint64, span v1alpha1.Span) map[string]int {
	m := randomMachine(t, seed, span)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, span %s", seed, span)
		}
	}()
	unrest := 4 + m.rng.IntN(30) // as clusters mostly are: now and then something happens
	for range 120 {
		calm := m.rng.IntN(unrest) > 0
		switch {
		case m.rng.IntN(3) == 0:
			m.passTime()
		case calm:
			m.work()
		default:
			m.happen()
		}
		switch m.rng.IntN(12) {
		case 0, 1, 2:
			m.quiet()
		case 3, 4:
		case 5:
			m.readFails()
		default:
			_, _ = m.step(false)
		}
	}
	m.endHistory()
	return m.known.seen
}

func randomMachine(t *testing.T, seed uint64, span v1alpha1.Span) *machine {
	rng := rand.New(rand.NewPCG(seed, 29))
	n := 1 + rng.IntN(6)
	group := testkit.SpanGroup(n, nil)
	group.Spec.Span = span
	group.Spec.Run.MaxParallelNodes = 1 + rng.Int32N(int32(n))
	group.Spec.Run.StartDeadlineSeconds, group.Spec.Run.NodeDeadlineSeconds = 60, 120
	group.Spec.Run.MembersDeadlineSeconds = 90
	group.Spec.Members.MinMembers = 1 + rng.Int32N(int32(n))
	group.Spec.Benchmark.MaxSizeBytes = 16384
	group.Spec.Benchmark.Variants = []v1alpha1.Variant{v1alpha1.VariantBaseline, v1alpha1.VariantDDA}
	if rng.IntN(2) == 0 {
		// so that every one that fails is named
		group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingDryRun, MaxPercent: ptr.To(int32(100))}
		if seed%2 == 1 {
			group.Spec.Gating = v1alpha1.GatingSpec{Mode: v1alpha1.GatingEnforce, Actions: testkit.EveryAction,
				MaxPercent: ptr.To(int32(20 + 10*(seed%9)))}
		}
	}
	if rng.IntN(3) == 0 {
		group.Spec.Run.Schedule = "*/10 * * * *"
	}
	if rng.IntN(3) == 0 && n > 1 {
		group.Spec.Mesh = []v1alpha1.MeshDimension{{Name: "dp", Size: int32(n)}, {Name: "tp", Size: 8}}
	}
	if rng.IntN(4) == 0 {
		group.Spec.Localization.Mode = v1alpha1.LocalizationOff
	}
	m := newMachine(t, seed, group, n)
	m.punctual = rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		m.failing = 4 + rng.IntN(20)
	}
	for _, name := range m.nodeNames() {
		if rng.IntN(3) == 0 {
			m.skew[name] = time.Duration(rng.IntN(360)-180) * time.Second
		}
	}
	for range max(0, rng.IntN(5)-2) {
		if n < 2 {
			break
		}
		i, f := rng.IntN(n), &m.faults
		switch rng.IntN(8) {
		case 0:
			f.hangNodes = append(f.hangNodes, i)
		case 1:
			f.slowNodes = append(f.slowNodes, i)
		case 2:
			j := (i + 1) % n
			f.hangPairs = append(f.hangPairs, [2]int{i, j})
			m.blame(m.nodes[j].Name, "hangs with its neighbour")
		case 3:
			f.slowRails = append(f.slowRails, [2]int{i, rng.IntN(8)})
		case 4:
			f.wrongNodes = append(f.wrongNodes, i)
		case 5:
			f.dieNodes = append(f.dieNodes, i)
		case 6:
			f.silentNodes = append(f.silentNodes, i)
		case 7:
			f.muteNodes = append(f.muteNodes, i)
		}
		m.blame(m.nodes[i].Name, "is faulty in the group")
	}
	return m
}

// busy says whether something of the node's is to be done by its agents now.
func (m *machine) busy(node string) bool {
	ct := m.commTask(node)
	return ct == nil || ct.Spec.Session != nil && ct.Spec.Session.State == v1alpha1.SessionOpen ||
		ct.Spec.Run != nil && ct.Spec.Run.Closed == nil && runs.FinishedReport(ct) == nil ||
		m.groupPod(node) != nil && podstate.Alive(m.groupPod(node)) || m.factsOn(node) == nil
}

// passTime goes on a little, or to what the manager waits for. Whoever should have acted meanwhile is late.
func (m *machine) passTime() {
	d := time.Duration(m.rng.IntN(3000)) * time.Millisecond
	work := slices.ContainsFunc(m.nodeNames(), m.busy) ||
		m.group.Status.Run != nil && m.group.Status.Run.Phase == v1alpha1.RunPhaseRunning
	if (!m.punctual || !work) && m.rng.IntN(3) == 0 {
		if d = time.Duration(m.rng.IntN(100)) * time.Second; m.rng.IntN(2) == 0 && m.wakeAt.After(m.now) {
			d = min(m.wakeAt.Sub(m.now), 10*time.Minute)
		}
	}
	m.now = m.now.Add(d)
	late := d > 10*time.Second
	for _, node := range m.nodeNames() {
		if late && (m.busy(node) || m.group.Status.Run != nil && m.group.Status.Run.Phase == v1alpha1.RunPhaseRunning) {
			m.blame(node, "late")
		}
		// Many short whiles are a long one, too.
		ct, run := m.commTask(node), m.group.Status.Run
		if run != nil && run.Phase == v1alpha1.RunPhaseRunning && m.now.Sub(run.StartTime.Time) > 45*time.Second &&
			(ct == nil || !runs.Assigned(ct, run.ID) || runs.FinishedReport(ct) == nil) {
			m.blame(node, "slow")
		}
		if m.factsOn(node) != nil && m.rng.IntN(8) > 0 {
			m.monitor(node)
		} else if m.factsOn(node) != nil && !nodefacts.Hold(m.commNodes[node], m.now) {
			m.blame(node, "its facts ran out")
		}
	}
	m.logf("%s go by", d)
}

// work lets monitors, kubelets and agents do what they are to do, each with some chance.
func (m *machine) work() {
	m.kubelets()
	for _, node := range m.nodeNames() {
		if m.rng.IntN(4) > 0 {
			m.monitor(node)
		}
		if m.rng.IntN(4) > 0 {
			verdict := v1alpha1.VerdictPass
			if m.rng.IntN(60) == 0 {
				verdict = v1alpha1.VerdictFail
			}
			m.runAgent(node, verdict)
		}
	}
	m.stageAgents()
}

// runAgent starts the node's run pod, or lets the agent in it report.
func (m *machine) runAgent(node string, verdict v1alpha1.Verdict) {
	ct := m.commTask(node)
	for _, name := range m.podsOn(node) {
		pod := m.pods[name]
		if ofGroupStage(pod) || !podstate.Alive(pod) || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if pod.Spec.NodeName == "" {
			if !slices.ContainsFunc(m.podsOn(node), func(other string) bool {
				return m.pods[other].Spec.NodeName != "" && podstate.Alive(m.pods[other])
			}) {
				startPod(pod, node, m.clock(node)) // the scheduler found its GPUs free
			}
			return
		}
		if ct == nil || !runs.Assigned(ct, pod.Labels[v1alpha1.LabelRunID]) {
			continue
		}
		if runs.FinishedReport(ct) != nil {
			endPod(pod, 0, m.clock(node))
			return
		}
		r := testkit.Report(m.plan(), ct.Spec.Run, verdict, 300_000, m.clock(node))
		r.BootID = m.facts(node).BootID
		code := int32(0)
		if verdict != v1alpha1.VerdictPass {
			r.Reason, code = v1alpha1.ReasonWrongData, 1
			m.blame(node, "reported "+string(verdict))
		}
		ct.Status.Run = r
		if m.rng.IntN(4) > 0 {
			endPod(pod, code, m.clock(node))
		}
		if hash := m.known.hashOf[ct.Spec.Run.ID]; verdict == v1alpha1.VerdictPass && hash != "" {
			if m.known.passed[ct.Spec.NodeUID] == nil {
				m.known.passed[ct.Spec.NodeUID] = map[string]bool{}
			}
			m.known.passed[ct.Spec.NodeUID][hash] = true
		}
		m.logf("%s reports %s in run %s", node, verdict, ct.Spec.Run.ID)
		return
	}
}

// stageAgents lets the agents of the group's stage go on, but for some that take their time.
func (m *machine) stageAgents() {
	for _, node := range m.nodeNames() {
		pods := m.podsOn(node)
		ct := m.commTask(node)
		orphan := ct != nil && ct.Spec.Session == nil && ct.Status.Session != nil // its session was taken away: it ends
		if orphan {
			ct.Status.Session = nil
		}
		for _, name := range pods {
			if pod := m.pods[name]; orphan && ofGroupStage(pod) && podstate.Alive(pod) && pod.Spec.NodeName != "" {
				endPod(pod, 1, m.clock(node))
			}
			if pod := m.pods[name]; ofGroupStage(pod) && !podstate.Alive(pod) && len(pods) > 1 {
				delete(m.pods, name) // so that there is one at a time
			}
		}
	}
	never := m.faults.neverReady
	for i := range m.nodes {
		if m.absent[m.nodes[i].Name] || m.rng.IntN(4) == 0 {
			m.faults.neverReady = append(slices.Clip(m.faults.neverReady), i)
		}
	}
	if m.playAgents() {
		m.logf("agents of the stage go on")
	}
	m.faults.neverReady = never
}

// happenings are what may happen in a random history: by number what each is of; see happen.
var happenings = []string{viaCommTask, viaCommTask, viaPod, viaPod, viaPod, viaCommTask, viaCommTask, viaNode, viaNode,
	viaNode, viaNode, viaGroup, viaGroup, viaGroup, viaGroup, viaGroup, viaCommTask, viaNode, viaConfigMap, viaGroup,
	viaCommTask, viaCommTask, viaManager, viaCommNode, viaCommNode, viaCommNode, viaCommRun, viaCommRun}

// viaManager: another manager takes over.
const viaManager = "manager"

// happen is something that happens to the group, its nodes, its objects or the manager.
func (m *machine) happen() {
	names := m.nodeNames()
	if len(names) == 0 {
		m.absent = map[string]bool{}
		return
	}
	node := names[m.rng.IntN(len(names))]
	ct := m.commTask(node)
	pods := m.podsOn(node)
	what := m.rng.IntN(len(happenings))
	m.known.seen["happens "+happenings[what]]++
	switch what {
	case 0, 1:
		m.runAgent(node, []v1alpha1.Verdict{v1alpha1.VerdictFail, v1alpha1.VerdictError}[what])
	case 2:
		if len(pods) > 0 {
			m.blame(node, "its pod was lost")
			delete(m.pods, pods[0])
		}
	case 3:
		if len(pods) > 0 {
			m.blame(node, "its pod was evicted")
			m.deletePod(pods[0])
		}
	case 4:
		if len(pods) > 0 && podstate.Alive(m.pods[pods[0]]) && m.pods[pods[0]].Spec.NodeName != "" {
			m.blame(node, "its pod ended")
			endPod(m.pods[pods[0]], int32(m.rng.IntN(2)), m.clock(node))
		}
	case 5, 6:
		m.blame(node, "rebooted")
		m.changes[node]++
		if m.rng.IntN(2) == 0 {
			m.monitor(node) // else it tells later
		}
	case 7:
		m.blame(node, "went away")
		m.absent[node] = true
	case 8, 9:
		for _, name := range slices.Sorted(maps.Keys(m.absent)) {
			if m.absent[name] {
				m.made++
				m.nodes = slices.Clone(m.nodes)
				// the name of old, another node
				m.nodes[m.index[name]].UID = types.UID(fmt.Sprintf("uid-%s-%d", name, m.made))
				delete(m.absent, name)
			}
		}
	case 10:
		if len(m.nodes) < 8 {
			name := fmt.Sprintf("n%05d", len(m.nodes)*7+m.rng.IntN(7))
			if _, there := m.index[name]; !there {
				m.index[name] = len(m.nodes)
				m.nodes = append(slices.Clone(m.nodes), testkit.Node(name, nil))
			}
		}
	case 11:
		m.group.Spec.Benchmark.Iterations++
		m.group.Generation++
	case 12:
		m.group.Spec.Publish.Mode = []v1alpha1.PublishMode{v1alpha1.PublishOff,
			v1alpha1.PublishWhenProven}[m.rng.IntN(2)]
		m.group.Generation++ // nothing that a run depends on
	case 13:
		m.setState([]v1alpha1.RunState{v1alpha1.RunActive, v1alpha1.RunSuspended}[m.rng.IntN(2)])
	case 14:
		m.setState(v1alpha1.RunActive)
	case 15:
		m.request(fmt.Sprint(m.rng.IntN(1000)))
	case 16:
		if ct != nil {
			m.blame(node, "its CommTask was deleted")
			m.deleteCommTask(ct.Name)
		}
	case 17:
		m.blame(node, "GPUs came or went")
		m.nodes = slices.Clone(m.nodes)
		gpus := testkit.Node(node, nil).Status.Allocatable[v1alpha1.ResourceGPU]
		gpus.Set([]int64{4, 8, 8}[m.rng.IntN(3)])
		m.nodes[m.index[node]].Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceGPU: gpus}
	case 18:
		switch {
		case m.configMap == nil:
			m.configMap = &corev1.ConfigMap{Data: map[string]string{"theirs": "1"}}
			m.configMap.Name, m.configMap.Namespace = publish.ConfigMapName(m.group), m.group.Namespace
		case m.rng.IntN(2) == 0:
			m.configMap = nil
		default:
			m.configMap.Data = map[string]string{"NCCL_DEBUG": "INFO"}
		}
	case 19:
		m.group.Spec.Span = []v1alpha1.Span{v1alpha1.SpanNode, v1alpha1.SpanGroup}[m.rng.IntN(2)]
		m.group.Generation++
	case 20:
		if ct != nil && ct.Status.Run != nil {
			m.blame(node, "its report was lost")
			ct.Status.Run = nil
		}
	case 21:
		if ct != nil && ct.Status.Session != nil {
			m.blame(node, "its agent was told to stop")
			s := ct.Status.Session
			s.State, s.Reason, s.Message = v1alpha1.SessionFailed, v1alpha1.ReasonInterrupted, "SIGTERM"
		}
	case 22:
		m.record() // another manager takes over; it knows nothing but the objects, and those as its caches have them
		m.cache, m.other, m.wakeAt = m.other, m.cache, time.Time{}
	case 23:
		m.odd(node, "its driver is another one", func(f *v1alpha1.NodeFacts) { f.Driver.Version = "6.10.5" })
	case 24:
		m.odd(node, "it has a problem", func(f *v1alpha1.NodeFacts) {
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemDriverNotLoaded,
				Message: "no driver"}}
		})
	case 25:
		m.odd(node, "it is simulated", func(f *v1alpha1.NodeFacts) { f.Origin = v1alpha1.OriginSimulated })
	case 26:
		if m.rng.IntN(3) == 0 { // it ends the run, and little would happen in those that follow each other so soon
			m.deleteRun()
		}
	case 27:
		m.runs.suspend(m.group, m.rng.IntN(3) == 0)
		if latest := state.Latest(m.runs); latest != nil {
			m.version++
			latest.ResourceVersion = strconv.Itoa(m.version)
		}
		m.join()
	default:
		m.failf("nothing happens with number %d", what)
	}
	m.logf("event %d at %s", what, node)
}

// odd makes the node's facts odd, or as they were where they are.
func (m *machine) odd(node, why string, change func(*v1alpha1.NodeFacts)) {
	m.blame(node, why)
	if m.oddities[node] != nil {
		change = nil
	}
	m.oddities[node] = change
	if m.rng.IntN(2) == 0 {
		m.monitor(node) // else it tells later
	}
}

// endHistory leaves the cluster alone: no agent answers any more, and kubelets end what is to end. Within the sum of
// its deadlines the run is over and no pod is left that holds anything.
func (m *machine) endHistory() {
	m.t.Helper()
	m.group.Spec.Run.Schedule = ""
	m.failing = 0
	spec := &m.group.Spec
	one := time.Duration(len(m.nodes)+1)*(decision.Seconds(spec.Run.StartDeadlineSeconds+
		spec.Run.NodeDeadlineSeconds)+podstate.StuckAfter+time.Minute) +
		time.Duration(stage.PodSeconds(spec))*time.Second
	// the run that goes on, and those that follow from what changed before
	end := m.now.Add(one * (commrun.MaxRepeats + 2))
	m.logf("left alone")
	for range 3000 {
		m.kubelets()
		m.quiet()
		run := m.group.Status.Run
		if m.alive() == 0 && (run == nil || run.Phase != v1alpha1.RunPhaseRunning) {
			m.known.seen["ended"]++
			return
		}
		if m.now.After(end) {
			m.failf("the run does not end: %s, %d pods", runWords(&m.group.Status), m.alive())
		}
		for _, node := range m.nodeNames() {
			m.blame(node, "left alone")
		}
		switch {
		case m.wakeAt.IsZero() && m.alive() == 0:
			m.failf("nothing is waited for, and the run goes on: %s", runWords(&m.group.Status))
		case m.wakeAt.IsZero() &&
			slices.ContainsFunc(slices.Sorted(maps.Keys(m.pods)), func(name string) bool { return m.holds(name) }):
			m.failf("pods hold GPUs, and nothing wakes the manager: %s", runWords(&m.group.Status))
		case m.wakeAt.After(m.now):
			m.now = m.wakeAt
			m.checkHeld() // before the manager, which slept until now, does anything
			m.checkOverdue()
		default:
			m.now = m.now.Add(time.Second)
		}
	}
	m.failf("the run does not end: %s, %d pods", runWords(&m.group.Status), m.alive())
}

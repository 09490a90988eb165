package controllers

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// knowledge is what a machine knows apart from the objects: what really happened.
type knowledge struct {
	// passed are the nodes whose agents reported a pass with all results, by the Node's UID: the spec's hash, of what
	// was measured.
	passed map[string]map[string]bool
	// formed are the specs over whose members the group's communicator was good, by hash and the members.
	formed map[string]bool
	// hashOf the spec that a run measures, by the run's id.
	hashOf map[string]string
	// faulty are the nodes to which anything bad was done, by name.
	faulty map[string]string
	// verdicts of runs, by id.
	verdicts map[string]v1alpha1.Verdict
	// published is what SettingsPublished last said, but for reads that failed.
	published *metav1.Condition
	run       int64
	idle      time.Time // since when no run goes on
	seen      map[string]int
}

func newKnowledge() knowledge {
	return knowledge{passed: map[string]map[string]bool{}, formed: map[string]bool{}, hashOf: map[string]string{},
		faulty: map[string]string{}, verdicts: map[string]v1alpha1.Verdict{}, seen: map[string]int{}}
}

func (m *machine) blame(node, why string) {
	if m.known.faulty[node] == "" {
		m.known.faulty[node] = why
	}
}

// step reconciles once and checks what must be true after each step.
func (m *machine) step(fresh bool) (Decision, error) {
	m.t.Helper()
	before := m.group.Status.DeepCopy()
	written := m.writes.status
	s, d, err := m.reconcile(fresh)
	words := "decided"
	if err != nil {
		words = "refused: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	m.logf("%s: %s; %d CommTasks, +%d -%d pods",
		words, runWords(&m.group.Status), len(d.CommTasks), len(d.CreatePods), len(d.DeletePods))
	if m.rng.IntN(8) == 0 {
		m.checkPure(s)
	}
	if m.rng.IntN(6) == 0 {
		m.checkMissing(s, &d)
	}
	if m.writes.status > written {
		m.checkStatus(before, s)
	}
	return d, err
}

// readFails is a reconcile whose reads failed, and which could still write that.
func (m *machine) readFails() {
	m.t.Helper()
	m.record()
	m.catchUp(false)
	s := m.read()
	s.ListError, s.CommTasks, s.RunPods = errors.New("no answer"), nil, nil
	before := m.group.Status.DeepCopy()
	d := Decide(s, testConfig)
	written := m.writes.status
	err := m.writeGroup(s, &d)
	m.join()
	if m.logf("a read fails: %v", err); m.writes.status > written { // else the status is an older one, of other objects
		m.checkStatus(before, s)
	}
	m.known.seen["read fails"]++
}

func runWords(s *state.Status) string {
	run := s.Run
	if run == nil {
		return "no run"
	}
	words := fmt.Sprintf("run %s (%s) %s %s", run.ID, run.Trigger, run.Phase, run.Verdict)
	if s.Span != nil {
		words += fmt.Sprintf(", stage %s %s %s, left %q", s.Span.Stage, s.Span.Verdict, s.Span.Reason, s.Span.LeftSet)
	}
	return words
}

// checkStatus holds a status that was written against what really happened.
func (m *machine) checkStatus(before *state.Status, s *Snapshot) {
	m.t.Helper()
	now := &m.group.Status
	if words := contradictions(now); words != "" {
		m.failf("%s", words)
	}
	if now.ObservedGeneration < before.ObservedGeneration {
		m.failf("generation %d after %d", now.ObservedGeneration, before.ObservedGeneration)
	}
	for i := range now.Conditions {
		c := &now.Conditions[i]
		if old := meta.FindStatusCondition(before.Conditions, c.Type); old != nil &&
			c.ObservedGeneration < old.ObservedGeneration {
			m.failf("%s: generation %d after %d", c.Type, c.ObservedGeneration, old.ObservedGeneration)
		}
	}
	m.checkRun(now)
	if is, was := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionSettingsPublished),
		m.known.published; is.Reason != v1alpha1.ReasonListFailed {
		passed := now.Run != nil && now.Run.Phase == v1alpha1.RunPhaseFinished &&
			now.Run.Verdict == v1alpha1.VerdictPass
		if p := now.Published; p != nil && now.Run != nil && now.Run.Phase == v1alpha1.RunPhaseRunning &&
			runs.NumberOf(p.RunID) == now.Run.Number-1 {
			passed = m.known.verdicts[p.RunID] == v1alpha1.VerdictPass
		}
		if was != nil && was.Status != metav1.ConditionTrue && is.Status == metav1.ConditionTrue && !passed {
			m.failf("settings that were not published as proven (%s) are so without a run that passed: %s",
				was.Reason, runWords(now))
		}
		m.known.published = is.DeepCopy()
	}
	for _, c := range slices.Concat(now.Culprits, spanCulprits(now)) {
		m.known.seen["culprit"]++
		names := strings.FieldsFunc(c.Node+" "+c.Name, func(r rune) bool { return strings.ContainsRune(" ,<>-", r) })
		// Who differs from the most is odd, though the others may have been changed.
		// a link is of several nodes
		odd := (strings.HasPrefix(c.Reason, "Mixed") || c.Kind == "Link") && len(m.known.faulty) > 0
		if !odd && !slices.ContainsFunc(names, func(n string) bool { return m.known.faulty[n] != "" }) {
			m.failf("innocent %s is named: %+v\nfaulty: %v", c.Node, c, m.known.faulty)
		}
	}
	for _, would := range now.WouldGate {
		node, _, _ := strings.Cut(would, " ")
		if m.known.seen["would gate"]++; m.known.faulty[strings.TrimSuffix(node, ":")] == "" {
			m.failf("innocent %s would be gated\nfaulty: %v", would, m.known.faulty)
		}
	}
	if meta.IsStatusConditionTrue(now.Conditions, v1alpha1.ConditionReady) {
		m.known.seen["ready"]++
		m.checkReady(now, s)
	}
}

func spanCulprits(s *state.Status) []v1alpha1.Culprit {
	if s.Span == nil {
		return nil
	}
	return s.Span.Culprits
}

// checkRun: numbers go up, and what failed passes only in a new run.
func (m *machine) checkRun(now *state.Status) {
	run := now.Run
	if run == nil {
		if m.known.run > 0 {
			m.failf("the run is gone")
		}
		return
	}
	if run.Number < m.known.run || run.Number > m.known.run+1 {
		m.failf("run %d after %d", run.Number, m.known.run)
	}
	if run.Number > m.known.run {
		m.tasks, m.taken = map[string]map[string]bool{}, map[string]time.Time{} // tasks have names within their run
		clear(m.free)
		m.known.seen["run "+run.Trigger]++
		has := func(h v1alpha1.RunSummary) bool { return runs.NumberOf(h.ID) == m.known.run }
		if h := now.History; m.known.run > 0 && !slices.ContainsFunc(h, has) {
			m.failf("run %d began, and the history does not have run %d: %+v", run.Number, m.known.run, h)
		}
	}
	m.known.run = run.Number
	m.known.hashOf[run.ID] = run.SpecHash
	if old := m.known.verdicts[run.ID]; run.Verdict == v1alpha1.VerdictPass && old != "" &&
		old != v1alpha1.VerdictPass && old != v1alpha1.VerdictInconclusive {
		m.failf("run %s passes after it was %s", run.ID, old)
	}
	if run.Verdict != "" && m.known.verdicts[run.ID] == "" {
		m.known.seen["verdict "+string(run.Verdict)]++
	}
	if run.Verdict != "" {
		m.known.verdicts[run.ID] = run.Verdict
	}
	switch {
	case run.Phase == v1alpha1.RunPhaseRunning:
		m.known.idle = time.Time{}
	case m.known.idle.IsZero():
		m.known.idle = m.now
	}
	if span := now.Span; span != nil && span.Verdict == v1alpha1.VerdictPass && span.RunID == run.ID {
		m.checkFormed(span, run)
	}
}

// checkFormed: the group's stage passes only where a communicator over all its members was formed, and gave numbers.
func (m *machine) checkFormed(span *v1alpha1.SpanStatus, run *v1alpha1.GroupRunStatus) {
	i := slices.IndexFunc(span.Tests, func(t v1alpha1.SpanTest) bool {
		return t.Kind == v1alpha1.TestGroup && t.Verdict == v1alpha1.VerdictPass
	})
	if i < 0 || span.LeftSet != "" || span.Present != span.Members || len(span.Results) == 0 ||
		len(m.tasks[span.Tests[i].ID]) != int(span.Members) {
		m.failf("the group's stage passes with %+v, tasks %v", span, m.tasks)
	}
	m.known.seen["stage passed"]++
	m.known.formed[run.SpecHash+"/"+fmt.Sprint(slices.Sorted(maps.Keys(m.tasks[span.Tests[i].ID])))] = true
}

// checkReady: Ready is True only where each member's agent has reported a pass of what the spec asks for, and with span
// Group the communicator over just these members was good.
func (m *machine) checkReady(now *state.Status, s *Snapshot) {
	members, err := membership.Select(&s.Group.Spec, s.Nodes)
	if err != nil || len(members) == 0 {
		m.failf("Ready with %d members, %v", len(members), err)
	}
	hash := runplan.SpecHash(&s.Group.Spec)
	var all []string
	for _, member := range members {
		if !m.known.passed[member.UID][hash] {
			m.failf("Ready, and the agent of node %s (%s) never reported a pass of this spec", member.Name, member.UID)
		}
		all = append(all, member.Name)
	}
	slices.Sort(all)
	if s.Group.Spec.Span == v1alpha1.SpanGroup && !m.known.formed[hash+"/"+fmt.Sprint(all)] {
		m.failf("Ready, and no communicator over %v was formed with this spec: %+v", all, now.Span)
	}
}

// checkPure: a decision changes nothing that it reads, and is the same each time.
func (m *machine) checkPure(s *Snapshot) {
	copied := *s
	copied.Group = s.Group.DeepCopy()
	copied.CommTasks = (&v1alpha1.CommTaskList{Items: s.CommTasks}).DeepCopy().Items
	first := Decide(s, testConfig)
	second := Decide(&copied, testConfig)
	if !reflect.DeepEqual(first.Status, second.Status) || len(first.CommTasks) != len(second.CommTasks) ||
		!first.WakeAt.Equal(second.WakeAt) {
		m.failf("two decisions on one snapshot differ: %+v\n%+v", first.Status, second.Status)
	}
	if !reflect.DeepEqual(s.CommTasks, copied.CommTasks) || !reflect.DeepEqual(s.Group, copied.Group) {
		m.failf("a decision changed what it read")
	}
}

// checkMissing: with any one report, result or list gone, the same objects make no pass; and a read that failed
// concludes nothing.
func (m *machine) checkMissing(s *Snapshot, d *Decision) {
	without := *s
	without.ListError = errors.New("no answer")
	got := Decide(&without, testConfig)
	for _, c := range got.Status.Conditions {
		if c.Status != metav1.ConditionUnknown || c.Reason != v1alpha1.ReasonListFailed {
			m.failf("%s is %s (%s) after a read that failed", c.Type, c.Status, c.Reason)
		}
	}
	m.checkForgotten(s, &got)
	got.Status.Conditions = s.Group.Status.Conditions
	if !objects.Same(&got.Status, &s.Group.Status) || len(got.CommTasks)+len(got.CreatePods)+len(got.DeletePods)+
		len(got.DeleteCommTasks)+len(got.Events)+len(got.RunEvents) > 0 {
		m.failf("a read that failed changes %+v", got)
	}
	run := d.Status.Run
	if run == nil || run.Phase != v1alpha1.RunPhaseFinished || run.Verdict != v1alpha1.VerdictPass ||
		len(s.CommTasks) == 0 {
		return
	}
	members, err := membership.Select(&s.Group.Spec, s.Nodes)
	if err != nil || membership.Hash(members) != run.MembersHash {
		return
	}
	at := m.rng.IntN(len(s.CommTasks))
	for what, take := range map[string]func(*v1alpha1.CommTask){
		"status.run": func(ct *v1alpha1.CommTask) { ct.Status.Run = nil },
		"spec.run":   func(ct *v1alpha1.CommTask) { ct.Spec.Run = nil },
		"verdict":    func(ct *v1alpha1.CommTask) { ct.Status.Run.Verdict = "" },
		"results":    func(ct *v1alpha1.CommTask) { ct.Status.Run.Results = nil },
		"a series":   func(ct *v1alpha1.CommTask) { ct.Status.Run.Results = ct.Status.Run.Results[1:] },
		"the last size": func(ct *v1alpha1.CommTask) {
			r := &ct.Status.Run.Results[0]
			r.SizeBytes = r.SizeBytes[:len(r.SizeBytes)-1]
		},
		"another run":    func(ct *v1alpha1.CommTask) { ct.Status.Run.ID = "9-99" },
		"another spec":   func(ct *v1alpha1.CommTask) { ct.Status.Run.Generation++ },
		"still measured": func(ct *v1alpha1.CommTask) { ct.Status.Run.Phase = v1alpha1.NodeRunRunning },
	} {
		poor := *s
		poor.CommTasks = (&v1alpha1.CommTaskList{Items: s.CommTasks}).DeepCopy().Items
		ct := &poor.CommTasks[at]
		if ct.Status.Run == nil || ct.Spec.Run == nil || len(ct.Status.Run.Results) == 0 ||
			!slices.ContainsFunc(members, func(x decision.Member) bool { return x.Name == ct.Spec.NodeName }) {
			return
		}
		take(ct)
		m.known.seen["missing"]++
		got := Decide(&poor, testConfig)
		v := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionValidated)
		if r := got.Status.Run; r.ID == run.ID && r.Phase != v1alpha1.RunPhaseRunning &&
			(r.Verdict == v1alpha1.VerdictPass || v.Status == metav1.ConditionTrue) {
			m.failf("run %s passes although node %s lacks %s: %s", r.ID, ct.Spec.NodeName, what, v.Message)
		}
	}
}

// checkForgotten: once the objects can be read again, a read that failed has left nothing in what is concluded from
// them.
func (m *machine) checkForgotten(s *Snapshot, failed *Decision) {
	plain := Decide(s, testConfig)
	again := *s
	again.Group = s.Group.DeepCopy()
	again.Group.Status = *failed.Status.DeepCopy()
	after := Decide(&again, testConfig)
	if words := otherConditions(plain.Status.Conditions, after.Status.Conditions); words != "" {
		m.failf("after a read that failed, and is done again, %s; %s", words, runWords(&plain.Status))
	}
	if now := plain.Status.Run; now != nil && now.Phase == v1alpha1.RunPhaseRunning &&
		meta.IsStatusConditionTrue(plain.Status.Conditions, cPublished) {
		m.known.seen["stands"]++
	}
}

// otherConditions names a condition that says another thing in the second list; empty where there is none.
func otherConditions(a, b []metav1.Condition) string {
	for _, kind := range commgroup.ConditionTypes {
		x, y := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if x == nil || y == nil || x.Status != y.Status || x.Reason != y.Reason {
			return fmt.Sprintf("%s is %+v and not %+v", kind, y, x)
		}
	}
	return ""
}

// quiet reconciles with caches that have come up until nothing changes, which has to be soon; then nothing is written,
// and nothing is to be done at once.
func (m *machine) quiet() {
	m.t.Helper()
	failing := m.failing
	m.failing = 0
	defer func() { m.failing = failing }()
	for range maxSettleSteps {
		before := m.writes
		d, err := m.step(true)
		if err != nil {
			m.failf("a write on a fresh read is refused: %v", err)
		}
		if now := m.writes; now.status == before.status && now.commTasks == before.commTasks &&
			now.pods == before.pods && now.configMaps == before.configMaps && now.marks == before.marks {
			if n := len(d.CommTasks) + len(d.CreatePods) + len(d.DeleteCommTasks) + len(d.DeletePods) +
				len(d.DeleteConfigMaps) + len(d.NodeMarks); n > 0 || d.ConfigMap != nil {
				m.failf("nothing changes, and still %d writes are decided: %+v", n, d)
			}
			if !d.WakeAt.IsZero() && !d.WakeAt.After(m.now) {
				m.failf("nothing changes, and it is to be looked at again at once, again and again: wake at %s, %s",
					d.WakeAt.Format("15:04:05.000"), runWords(&d.Status))
			}
			m.checkHeld()
			m.checkNamedRuns()
			m.checkKept()
			return
		}
	}
	m.failf("%d decisions with no event in between still change something", maxSettleSteps)
}

// maxSettleSteps: CommTasks, the run, its assignments, pods; or the end of one run and the begin of the next.
const maxSettleSteps = 12

// checkHeld: with no run that goes on, and its agents' time to end by themselves over, each pod that holds GPUs is told
// to end, whatever the nodes' clocks say.
func (m *machine) checkHeld() {
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		pod := m.pods[name]
		if !m.holds(name) {
			continue
		}
		if run := m.group.Status.Run; run == nil || pod.Labels[v1alpha1.LabelRunID] != run.ID {
			m.failf("pod %s of no run holds GPUs; %s", name, runWords(&m.group.Status))
		}
		if !m.known.idle.IsZero() && m.now.Sub(m.known.idle) > 2*podstate.ExitGrace+time.Second {
			m.failf("pod %s holds GPUs %s after the run's end", name, m.now.Sub(m.known.idle))
		}
	}
}

// holds says whether a pod holds GPUs and nobody has told it to end.
func (m *machine) holds(name string) bool {
	return podstate.Alive(m.pods[name]) && m.pods[name].DeletionTimestamp.IsZero()
}

// checkOverdue: a run pod whose ranks were started is ended at the node's deadline, and one whose agent has reported
// soon after: the manager does not sleep on until something else wakes it.
func (m *machine) checkOverdue() {
	limit := decision.Seconds(m.group.Spec.Run.NodeDeadlineSeconds)
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		pod := m.pods[name]
		ct := m.commTask(pod.Labels[v1alpha1.LabelNode])
		if !m.holds(name) || ofGroupStage(pod) || podstate.RanksStarted(pod).IsZero() || ct == nil {
			continue
		}
		if started := nodefacts.Corrected(m.commNodes[ct.Spec.NodeName],
			podstate.RanksStarted(pod)); m.now.Sub(started) > limit+time.Second {
			m.failf("pod %s holds GPUs %s after the start of its ranks, %s are allowed; %s",
				name, m.now.Sub(started), limit, runWords(&m.group.Status))
		}
		if r := runs.FinishedReport(ct); r != nil && r.FinishTime != nil &&
			runs.Assigned(ct, pod.Labels[v1alpha1.LabelRunID]) {
			if at := nodefacts.Corrected(m.commNodes[ct.Spec.NodeName],
				r.FinishTime.Time); m.now.Sub(at) > 2*podstate.ExitGrace+time.Second {
				m.failf("pod %s holds GPUs %s after its agent has reported; %s",
					name, m.now.Sub(at), runWords(&m.group.Status))
			}
		}
	}
}

// checkNamedRuns: an agent that works for the run finds in its CommTask the CommRun that says what to do.
func (m *machine) checkNamedRuns() {
	run := m.group.Status.Run
	if run == nil || run.Phase != v1alpha1.RunPhaseRunning || run.Number == m.deletedRun {
		return
	}
	named := func(node, name string) {
		at := slices.IndexFunc(m.runs, func(r v1alpha1.CommRun) bool { return r.Name == name })
		if at < 0 || m.runs[at].Status.ID != run.ID || m.runs[at].Status.Plan == nil ||
			m.runs[at].Status.Template == nil {
			m.failf("node %s is to work for run %s by CommRun %q, which has no plan of it", node, run.ID, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.commTasks)) {
		spec := &m.commTasks[name].Spec
		if a := spec.Run; a != nil && a.ID == run.ID && a.Closed == nil {
			named(spec.NodeName, a.Name)
		}
		if s := spec.Session; s != nil && s.RunID == run.ID && s.State == v1alpha1.SessionOpen {
			named(spec.NodeName, s.RunName)
		}
	}
}

// checkKept: of the pods that have ended, only those stay that tell why the present run failed.
func (m *machine) checkKept() {
	kept := 0
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		pod, run := m.pods[name], m.group.Status.Run
		if podstate.Alive(pod) || !pod.DeletionTimestamp.IsZero() ||
			run != nil && run.Phase == v1alpha1.RunPhaseRunning {
			continue
		}
		kept++
		if run == nil || pod.Labels[v1alpha1.LabelRunID] != run.ID || run.Phase != v1alpha1.RunPhaseFinished ||
			run.Verdict == v1alpha1.VerdictPass {
			m.failf("pod %s has ended and stays; %s", name, runWords(&m.group.Status))
		}
	}
	m.known.seen["kept"] += kept
}

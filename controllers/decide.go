package controllers

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/baseline"
	"rcclx.io/commgroup-operator/controllers/compatible"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/state"
)

// Decide works out what should be from what is. It reads no clock and does no I/O, and changes nothing in the snapshot.
func Decide(s *Snapshot, cfg Config) Decision {
	group := s.Group
	var d Decision
	d.Status = *group.Status.DeepCopy()
	if s.ListError != nil {
		d.Status.Conditions = setConditions(d.Status.Conditions, listFailed(s.ListError), group.Generation, s.Now)
		return d
	}
	members, accepted, membersErr := membersOf(group, s.Nodes, cfg, s.Now)
	in := runInput{
		now: s.Now, group: group, runDeleted: s.RunDeleted, startRefused: s.StartRefused, accepted: accepted.IsTrue(), members: members, hash: membership.Hash(members),
		commTasks: make(map[string]*v1alpha1.CommTask, len(s.CommTasks)), commNodes: commNodesOf(s.CommNodes, s.Nodes), pods: map[string][]*corev1.Pod{}, groupPods: map[string][]*corev1.Pod{},
		others: sharing.Of(group, s.OtherRunPods, s.Claims, s.Now), looked: s.Looked, unread: s.Unread, busyAt: s.BusyAt,
	}
	nodeOfPod := make(map[string]string, len(s.CommTasks)) // by UID of the CommTask
	for i := range s.CommTasks {
		ct := &s.CommTasks[i]
		in.commTasks[ct.Spec.NodeName] = ct
		nodeOfPod[string(ct.UID)] = ct.Spec.NodeName
	}
	for i := range s.RunPods {
		pod := &s.RunPods[i]
		pods, node := in.pods, podNode(pod, nodeOfPod)
		if ofGroupStage(pod) {
			pods = in.groupPods
		}
		pods[node] = append(pods[node], pod)
	}

	state := stepRun(in)
	outcomes := judgeNodes(state.nodes, group)
	decideSpan(&state, outcomes, in)
	state.admitGroupPods(in)
	results := judge.AggregateResults(outcomes)
	var compared baseline.Comparison
	runEvents := slices.Concat(state.events, state.span.Events)
	if run := state.run; run != nil && (run.Phase == v1alpha1.RunPhaseFinished || run.Phase == v1alpha1.RunPhaseRunning && runs.Partial(run)) {
		compared = baseline.Compare(baseline.Input{Group: group, Run: run, Outcomes: outcomes, Results: results, Span: judge.SpanResultsOf(state.span.Span, run)})
	}
	if run := state.run; run != nil && run.Phase == v1alpha1.RunPhaseFinished {
		told, worse := settleVerdict(run, stage.WithSpan(compared.With(outcomes), &group.Spec, run, state.span.Span), in)
		if runEvents = append(runEvents, told...); worse != "" {
			d.restsOn = []string{worse}
		}
		run.BaselineKey = compared.Key
		d.Status.Baseline = compared.Next(group.Status.Baseline, run)
	}
	d.CommTasks, d.DeleteCommTasks = planCommTasks(&state, in)
	d.DeletePods = withoutKept(slices.Concat(state.deletePods, state.span.DeletePods), &state, outcomes, in)
	for _, name := range state.createPodsOn {
		d.CreatePods = append(d.CreatePods, runPodFor(group, in.commTasks[name], state.run.ID, cfg))
	}
	for _, name := range state.span.CreatePodsOn {
		pod := groupPodFor(group, in.commTasks[name], state.run.ID, stage.PodSeconds(&group.Spec), cfg)
		queueTogether(pod, group, state.run.ID, in.stagePods(&state))
		d.CreatePods = append(d.CreatePods, pod)
	}
	d.restsOn = append(append(d.restsOn, lostNodes(state.nodes)...), state.span.RestsOn...)
	d.restsOn = d.restsOn[:min(len(d.restsOn), maxRestsOn)]
	d.LookAt = state.lookAt
	d.WakeAt = decision.Earlier(state.wakeAt, state.span.WakeAt)
	fillStatus(&d, s, in, &state, outcomes, accepted, results, &compared)
	d.DeleteRuns = beyondLimits(&group.Spec.HistoryLimits, d.Status.Run, s.Runs)
	d.Events = append(d.Events, decideGating(&d, s, &in, outcomes, &compared, membersErr == nil, &cfg)...)
	d.RunEvents = runEvents
	d.Events = slices.Concat(d.Events, transitions(group.Status.Conditions, d.Status.Conditions))
	d.Status.KeepMeasured(&group.Status)
	if !same(&group.Status, &d.Status) { // else it fits, since it was written, and nothing has to be encoded to know that
		boundGroup(&d.Status)
		boundRun(group, &d.Status)
	}
	return d
}

// commNodesOf are the CommNodes by node name, without those of a Node object that was deleted and created again under its name.
func commNodesOf(commNodes []v1alpha1.CommNode, nodes []corev1.Node) map[string]*v1alpha1.CommNode {
	uids := make(map[string]string, len(nodes))
	for i := range nodes {
		uids[nodes[i].Name] = string(nodes[i].UID)
	}
	out := make(map[string]*v1alpha1.CommNode, len(commNodes))
	for i := range commNodes {
		cn := &commNodes[i]
		if uid, ok := uids[cn.Name]; !ok || uid == cn.Spec.NodeUID {
			out[cn.Name] = cn
		}
	}
	return out
}

// membersOf selects the group's members and says whether its spec can be carried out on them.
func membersOf(group *state.Group, nodes []corev1.Node, cfg Config, now time.Time) ([]decision.Member, decision.Finding, error) {
	members, err := membership.Select(&group.Spec, nodes)
	accepted := acceptance(&group.Spec, members, err, cfg.DefaultRuntimeImage, now)
	accepted.Message += membership.UnknownNames(&group.Spec, nodes)
	return members, overridesAllowed(hostNetworkAllowed(accepted, group, cfg), &group.Spec), err
}

// decideSpan moves the group's stage on, which follows the nodes' own and ends the run.
func decideSpan(state *runState, outcomes []judge.Outcome, in runInput) {
	state.span = stage.Step(stage.Input{Now: in.now, Group: in.group, Run: state.run, NodesDone: state.nodesDone,
		Members: in.members, Outcomes: outcomes, CommTasks: in.commTasks, CommNodes: in.commNodes, Pods: in.groupPods, RunDeleted: in.runDeleted, Others: &in.others, Looked: in.looked})
	if run := state.run; state.nodesDone && state.span.Over && run.Phase == v1alpha1.RunPhaseRunning {
		run.Phase = v1alpha1.RunPhaseFinished
		run.FinishTime = decision.Stamp(in.now)
	}
}

// podNode is the node that a run pod is meant for, from its owner; a pod whose CommTask is gone goes by its own node.
func podNode(pod *corev1.Pod, nodeOfCommTask map[string]string) string {
	for _, ref := range pod.OwnerReferences {
		if name, ok := nodeOfCommTask[string(ref.UID)]; ok {
			return name
		}
	}
	return pod.Spec.NodeName
}

// maxRestsOn bounds the nodes that are looked up before much is concluded from what was read: a cache that is behind is so with many.
const maxRestsOn = 64

// lostNodes are those that the run ends on just now since they, or their pods, are not there.
func lostNodes(nodes []nodeState) (names []string) {
	for i := range nodes {
		n := &nodes[i]
		if a := runs.AssignmentOf(n.commTask); n.closure == nil || a != nil && a.Closed != nil {
			continue
		}
		if n.closure.Reason == v1alpha1.ReasonRunPodFailed || n.closure.Reason == v1alpha1.ReasonMemberLost {
			names = append(names, n.name)
		}
	}
	return names
}

// settleVerdict writes the verdict of a finished run, anew each time, from the children. Where it becomes worse than it was, it gives the
// node that it rests on.
func settleVerdict(run *v1alpha1.GroupRunStatus, outcomes []judge.Outcome, in runInput) (told []decision.Event, worse string) {
	unchanged := in.hash == run.MembersHash
	verdict, decisive := judge.GroupVerdict(outcomes, unchanged)
	was, justFinished := run.Verdict, run.Verdict == ""
	if unchanged || justFinished || run.Verdict == v1alpha1.VerdictPass {
		run.Verdict = verdict
	}
	if !justFinished {
		if decisive != nil && judge.Rank(run.Verdict) > judge.Rank(was) {
			worse = decisive.Node
		}
		return nil, worse
	}
	note := fmt.Sprintf("Run %s finished: %s.", run.ID, run.Verdict)
	if run.Verdict != v1alpha1.VerdictPass && decisive != nil {
		note += fmt.Sprintf(" %s on %s: %s", decisive.Reason, decisive.Node, words.Told(decisive.Message, decisive.Node))
	}
	return []decision.Event{{Warning: run.Verdict != v1alpha1.VerdictPass, Reason: v1alpha1.ReasonRunFinished, Action: "FinishRun", Note: words.Shorten(note, 1000)}}, ""
}

// planCommTasks works out each member's CommTask, and which have to go.
func planCommTasks(state *runState, in runInput) (changes []CommTaskChange, remove []string) {
	run := state.run
	// A run that starts now is not in the status yet: it is assigned once it is.
	persisted := run != nil && in.group.Status.Run != nil && in.group.Status.Run.ID == run.ID
	starting := run != nil && !persisted
	running := persisted && run.Phase == v1alpha1.RunPhaseRunning
	inRun := make(map[string]*nodeState, len(state.nodes))
	for i := range state.nodes {
		inRun[state.nodes[i].name] = &state.nodes[i]
	}
	assignment := func(ct *v1alpha1.CommTask, n *nodeState) *v1alpha1.RunAssignment {
		switch {
		case n == nil && starting:
			return runs.AssignmentOf(ct) // until there is a new one, it says what the node last showed
		case n == nil || run == nil:
			return nil
		case runs.Counts(runs.AssignmentOf(ct), run) && !n.renewed:
			return keptAssignment(n, run, starting, in)
		case running:
			return newAssignment(run, n, in)
		}
		return nil
	}
	session := func(ct *v1alpha1.CommTask, name string) *v1alpha1.SessionAssignment {
		next, has := state.span.Sessions[name]
		if has || ct == nil || ct.Spec.Session == nil || run == nil || in.runDeleted {
			return next
		}
		if starting || runs.NumberOf(ct.Spec.Session.RunID) == run.Number && state.span.Span != nil {
			return ct.Spec.Session // the latter: the status that was read is older than the session
		}
		return nil
	}
	kept := make(map[string]bool, len(in.members))
	labels := objects.Labels(in.group, "")
	for i := range in.members {
		m := &in.members[i]
		ct := in.commTasks[m.Name]
		if ct != nil && ct.Spec.NodeUID != m.UID {
			continue // of a node that was there before under this name: it goes first
		}
		kept[m.Name] = true
		spec := v1alpha1.CommTaskSpec{NodeName: m.Name, NodeUID: m.UID, Ranks: m.Ranks,
			Group: v1alpha1.GroupReference{Name: in.group.Name, UID: string(in.group.UID)},
			Run:   assignment(ct, inRun[m.Name]), Session: session(ct, m.Name)}
		if ct == nil || !sameSpec(&ct.Spec, &spec) || !belongs(ct, in.group, m, labels) {
			changes = append(changes, CommTaskChange{Current: ct, Desired: desiredCommTask(in.group, m, ct, labels, spec)})
		}
	}
	for _, name := range words.SortedKeys(in.commTasks) {
		if kept[name] {
			continue
		}
		ct := in.commTasks[name]
		n := inRun[name]
		if n == nil || !running {
			remove = append(remove, ct.Name)
			continue
		}
		spec := ct.Spec
		spec.Run, spec.Session = assignment(ct, n), session(ct, name)
		if !sameSpec(&ct.Spec, &spec) {
			desired := ct.DeepCopy()
			desired.Spec = spec
			changes = append(changes, CommTaskChange{Current: ct, Desired: desired})
		}
	}
	return changes, remove
}

// belongs says whether a CommTask has the group's labels and owner.
func belongs(ct *v1alpha1.CommTask, group *state.Group, m *decision.Member, labels map[string]string) bool {
	for key, value := range labels {
		if ct.Labels[key] != value {
			return false
		}
	}
	return ct.Labels[v1alpha1.LabelNode] == v1alpha1.LabelValue(m.Name) && objects.OwnedBy(ct, group)
}

func desiredCommTask(group *state.Group, m *decision.Member, current *v1alpha1.CommTask, labels map[string]string, spec v1alpha1.CommTaskSpec) *v1alpha1.CommTask {
	desired := &v1alpha1.CommTask{Spec: spec}
	if current != nil {
		desired.ObjectMeta = *current.ObjectMeta.DeepCopy()
	} else {
		desired.Name, desired.Namespace = v1alpha1.CommTaskName(group.Name, m.Name), group.Namespace
	}
	if desired.Labels == nil {
		desired.Labels = map[string]string{}
	}
	maps.Copy(desired.Labels, labels)
	desired.Labels[v1alpha1.LabelNode] = v1alpha1.LabelValue(m.Name)
	if !objects.OwnedBy(desired, group) {
		desired.OwnerReferences = append(desired.OwnerReferences, objects.Owner(group))
	}
	return desired
}

// sameSpec compares run and session by their pointers first: of 12,500 members nearly all keep theirs, and to compare what
// they point at by reflection was a fourth of a decision.
func sameSpec(a, b *v1alpha1.CommTaskSpec) bool {
	x, y := *a, *b
	x.Run, x.Session, y.Run, y.Session = nil, nil, nil, nil
	return x == y && same(a.Run, b.Run) && same(a.Session, b.Session)
}

// same says whether the API server would see no difference, as it sees none between an empty list and none. What is the same to Go is the
// same to it, too, and is found so in a fraction of the time.
func same[T any](a, b *T) bool {
	return a == b || reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}

// sameSpecAs says whether the run measures what the spec asks for by now.
func sameSpecAs(run *v1alpha1.GroupRunStatus, spec *v1alpha1.CommGroupSpec) bool {
	return run != nil && run.SpecHash == runplan.SpecHash(spec)
}

// fillStatus computes the whole status from the children.
func fillStatus(d *Decision, s *Snapshot, in runInput, state *runState, outcomes []judge.Outcome, accepted decision.Finding, results []v1alpha1.GroupResultSeries, compared *baseline.Comparison) {
	group, run := s.Group, state.run
	status := &d.Status
	status.ObservedGeneration = group.Generation
	was := group.Status.Run
	starts := run != nil && (was == nil || was.ID != run.ID)
	lacksPlan := run != nil && run.Phase == v1alpha1.RunPhaseRunning && status.Plan == nil && sameSpecAs(run, &group.Spec)
	if starts || lacksPlan {
		plan := runplan.For(&group.Spec)
		status.Plan = &plan
	}
	status.Run = run
	status.Span = state.span.Span
	var reporting []*v1alpha1.CommNode
	for i := range in.members {
		if cn := in.commNodes[in.members[i].Name]; nodefacts.Hold(cn, s.Now) {
			reporting = append(reporting, cn)
		}
	}
	status.Members = countMembers(len(in.members), len(reporting), run, outcomes)
	status.Origin = originOf(reporting, outcomes)
	// What the run before has shown stands until a repeat of it ends.
	keep := run != nil && run.Phase == v1alpha1.RunPhaseRunning && repeats(run)
	if !keep {
		status.Settings = settings.Aggregate(outcomes)
		status.Results, status.Libraries = results, judge.Libraries(outcomes)
		status.DataErrors = judge.AggregateDataErrors(outcomes)
		status.Headline = judge.Headline(status.Results)
		if h := status.Headline; h != nil && run != nil && status.Span != nil && status.Span.RunID == run.ID {
			h.GroupBusBandwidthMBps, h.GroupNodes = history.GroupFigure(status.Span)
		}
		status.Effective = settings.Summary(status.Settings)
		span := judge.SpanResultsOf(status.Span, run)
		var overNodes []v1alpha1.PerformanceCheck
		if len(span) > 0 {
			overNodes = judge.SpanChecks(&group.Spec, span, judge.PlaceOfMembers(outcomes, status.Span.Transport))
		}
		status.Checks = judge.AggregateChecks(outcomes, overNodes, compared.Checks)
	}
	counted := compatible.TakeCensus(reporting, outcomes)
	status.Inventory = compatible.Inventory(counted)

	f := map[string]decision.Finding{v1alpha1.ConditionAccepted: accepted, v1alpha1.ConditionSimulated: simulated(status.Origin)}
	var odd []v1alpha1.Culprit
	f[v1alpha1.ConditionCompatible], odd = compatible.Decide(compatible.Input{
		Spec: &group.Spec, Members: in.members, Census: counted, Reporting: reporting, Outcomes: outcomes})
	if !keep {
		status.Culprits, status.CulpritsRunID = judge.GroupCulprits(stage.WithSpan(outcomes, &group.Spec, run, status.Span), odd), ""
		if run != nil && len(status.Culprits) > 0 {
			status.CulpritsRunID = run.ID
		}
	}
	agents, agentsWake := agentsReporting(in.members, in.commTasks, in.commNodes, s.Now, group.Spec.Run.StartDeadlineSeconds)
	f[v1alpha1.ConditionAgentsReporting] = agents
	d.WakeAt = decision.Earlier(d.WakeAt, agentsWake)
	f[v1alpha1.ConditionRunning] = running(group, run, status.Members, state.waiting, hindered(state.nodes)+heldUp(state.nodes)+stage.Progress(status.Span))
	f[v1alpha1.ConditionValidated] = validationOf(group, state, compared.With(outcomes), accepted.IsTrue())
	f[v1alpha1.ConditionSettingsInEffect] = settings.InEffect(status.Settings, &group.Spec)

	flavor, worth := settings.Worth(settings.WorthInput{Spec: &group.Spec, Run: run, Outcomes: outcomes, DataErrors: status.DataErrors, Settings: status.Settings, GFXTargets: knownTargets(in)})
	if !keep {
		status.Advice = settings.Advice(flavor, &group.Spec, status.Settings, worth)
	}
	p := publish.Decide(publish.Input{
		Worth: worth,
		Now:   s.Now, Group: group, Run: run, Outcomes: outcomes, Settings: status.Settings, Origin: status.Origin,
		Existing: s.ConfigMap, Former: s.FormerConfigMap, Certain: s.ConfigMapCertain, Owned: s.OwnedConfigMaps, GFXTargets: knownTargets(in),
	})
	f[v1alpha1.ConditionSettingsPublished] = p.Condition
	status.Published, d.ConfigMap, d.NeedConfigMapLookup, d.DeleteConfigMaps = p.Published, p.ConfigMap, p.LookUp, p.Remove
	d.WakeAt, d.Events = decision.Earlier(d.WakeAt, p.WakeAt), append(d.Events, p.Events...)
	f[v1alpha1.ConditionReady] = readiness(f)

	history.Record(status, &group.Status, group.Spec.Run.MaxGPUMinutesPerDay, &history.End{Run: run, Reason: f[v1alpha1.ConditionValidated].Reason, BaselineKey: compared.Key,
		Held: func() (int64, int32) { return heldSeconds(run, status.Span, in) }}, s.Now)

	status.NextRunTime, status.Schedule = nil, schedule.Of(group, s.Now)
	if group.Spec.Run.State != v1alpha1.RunSuspended && run != nil {
		if next := schedule.Next(group, schedule.Done(group, status.History, run, s.Now)); !next.IsZero() {
			status.NextRunTime = decision.Stamp(next)
			// One that is due and waits, for members or monitors, starts with what it waits for.
			if run.Phase != v1alpha1.RunPhaseRunning && next.After(s.Now) {
				d.WakeAt = decision.Earlier(d.WakeAt, next)
			}
		}
	}
	status.Conditions = setConditions(status.Conditions, f, group.Generation, s.Now)
}

func countMembers(selected, reporting int, run *v1alpha1.GroupRunStatus, outcomes []judge.Outcome) v1alpha1.MemberCounts {
	c := v1alpha1.MemberCounts{Selected: int32(selected), Reporting: int32(reporting)}
	for i := range outcomes {
		if outcomes[i].Stale {
			c.Stale++
			continue
		}
		switch outcomes[i].Verdict {
		case v1alpha1.VerdictPass:
			c.Passed++
		case v1alpha1.VerdictFail:
			c.Failed++
		case v1alpha1.VerdictInconclusive:
			c.Inconclusive++
		case v1alpha1.VerdictError:
			c.Errored++
		case v1alpha1.VerdictSkipped:
			c.Skipped++
		default:
			if run == nil || run.Phase != v1alpha1.RunPhaseRunning {
				continue
			}
			if outcomes[i].Phase == judge.Waiting {
				c.Pending++
			} else {
				c.Running++
			}
		}
	}
	c.Summary = fmt.Sprintf("%d/%d", c.Passed, selected)
	return c
}

// knownTargets are the GPU targets of the members, by what their monitors last said: GPUs do not change with silence.
func knownTargets(in runInput) []string {
	targets := map[string]bool{}
	for i := range in.members {
		if cn := in.commNodes[in.members[i].Name]; cn != nil && cn.Status.Facts != nil {
			targets[cn.Status.Facts.GFXTarget] = true
		}
	}
	return words.SortedKeys(targets)
}

// originOf is Simulated where anything came from the simulator, and Hardware only where everything says so.
func originOf(reporting []*v1alpha1.CommNode, outcomes []judge.Outcome) v1alpha1.Origin {
	hardware := len(reporting) > 0
	for _, cn := range reporting {
		switch cn.Status.Facts.Origin {
		case v1alpha1.OriginSimulated:
			return v1alpha1.OriginSimulated
		case v1alpha1.OriginHardware:
		default:
			hardware = false
		}
	}
	for i := range outcomes {
		if r := outcomes[i].Report; r != nil && r.Library != nil && r.Library.Flavor == "simulated" {
			return v1alpha1.OriginSimulated
		}
	}
	if hardware {
		return v1alpha1.OriginHardware
	}
	return v1alpha1.OriginUnknown
}

// deletingFinding is what Ready says while the group is being deleted.
func deletingFinding(what string) decision.Finding {
	return decision.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeleting, Message: what}
}

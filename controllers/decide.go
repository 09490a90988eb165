package controllers

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/compatible"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/membership"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runplan"
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
	in := inputOf(s, members, accepted.IsTrue())
	run := commrun.Next(in)
	d.CommTasks, d.DeleteCommTasks, d.DeletePods, d.LookAt = run.Changes, run.DeleteCommTasks, run.DeletePods, run.LookAt
	d.RunEvents, d.restsOn, d.WakeAt = run.Events, run.RestsOn, run.WakeAt
	for _, name := range run.CreatePodsOn {
		d.CreatePods = append(d.CreatePods, runPodFor(group, in.CommTasks[name], run.Run.ID, cfg))
	}
	for _, name := range run.CreateGroupPodsOn {
		pod := groupPodFor(group, in.CommTasks[name], run.Run.ID, stage.PodSeconds(&group.Spec), cfg)
		queueTogether(pod, group, run.Run.ID, run.GroupPods)
		d.CreatePods = append(d.CreatePods, pod)
	}
	if r := run.Run; r != nil && r.Phase == v1alpha1.RunPhaseFinished {
		d.Status.Baseline = run.Compared.Next(group.Status.Baseline, r)
	}
	fillStatus(&d, s, in, &run, accepted)
	d.DeleteRuns = beyondLimits(&group.Spec.HistoryLimits, d.Status.Run, s.Runs)
	d.Events = append(d.Events, decideGating(&d, s, &in, &run, membersErr == nil, &cfg)...)
	d.Events = slices.Concat(d.Events, transitions(group.Status.Conditions, d.Status.Conditions))
	d.Status.KeepMeasured(&group.Status)
	if !objects.Same(&group.Status, &d.Status) { // else it fits, since it was written, and nothing has to be encoded to know that
		boundGroup(&d.Status)
		boundRun(group, &d.Status)
	}
	return d
}

// inputOf is what the run looks at, by node.
func inputOf(s *Snapshot, members []decision.Member, accepted bool) commrun.Input {
	in := commrun.Input{
		Now: s.Now, Group: s.Group, RunDeleted: s.RunDeleted, StartRefused: s.StartRefused, Accepted: accepted, Members: members,
		CommTasks: make(map[string]*v1alpha1.CommTask, len(s.CommTasks)), CommNodes: commNodesOf(s.CommNodes, s.Nodes),
		Pods: map[string][]*corev1.Pod{}, GroupPods: map[string][]*corev1.Pod{},
		Others: sharing.Of(s.Group, s.OtherRunPods, s.Claims, s.Now), Looked: s.Looked, Unread: s.Unread, BusyAt: s.BusyAt,
	}
	nodeOfPod := make(map[string]string, len(s.CommTasks)) // by UID of the CommTask
	for i := range s.CommTasks {
		ct := &s.CommTasks[i]
		in.CommTasks[ct.Spec.NodeName] = ct
		nodeOfPod[string(ct.UID)] = ct.Spec.NodeName
	}
	for i := range s.RunPods {
		pod := &s.RunPods[i]
		pods, node := in.Pods, podNode(pod, nodeOfPod)
		if ofGroupStage(pod) {
			pods = in.GroupPods
		}
		pods[node] = append(pods[node], pod)
	}
	return in
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

// podNode is the node that a run pod is meant for, from its owner; a pod whose CommTask is gone goes by its own node.
func podNode(pod *corev1.Pod, nodeOfCommTask map[string]string) string {
	for _, ref := range pod.OwnerReferences {
		if name, ok := nodeOfCommTask[string(ref.UID)]; ok {
			return name
		}
	}
	return pod.Spec.NodeName
}

// fillStatus computes the whole status from the children.
func fillStatus(d *Decision, s *Snapshot, in commrun.Input, state *commrun.Decision, accepted decision.Finding) {
	group, run := s.Group, state.Run
	outcomes, compared := state.Outcomes, &state.Compared
	status := &d.Status
	status.ObservedGeneration = group.Generation
	was := group.Status.Run
	starts := run != nil && (was == nil || was.ID != run.ID)
	lacksPlan := run != nil && run.Phase == v1alpha1.RunPhaseRunning && status.Plan == nil && commrun.SameSpecAs(run, &group.Spec)
	if starts || lacksPlan {
		plan := runplan.For(&group.Spec)
		status.Plan = &plan
	}
	status.Run = run
	status.Span = state.Span
	var reporting []*v1alpha1.CommNode
	for i := range in.Members {
		if cn := in.CommNodes[in.Members[i].Name]; nodefacts.Hold(cn, s.Now) {
			reporting = append(reporting, cn)
		}
	}
	status.Members = countMembers(len(in.Members), len(reporting), run, outcomes)
	status.Origin = originOf(reporting, outcomes)
	// What the run before has shown stands until a repeat of it ends.
	keep := run != nil && run.Phase == v1alpha1.RunPhaseRunning && repeats(run)
	if !keep {
		status.Settings = settings.Aggregate(outcomes)
		status.Results, status.Libraries = state.Results, judge.Libraries(outcomes)
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
		Spec: &group.Spec, Members: in.Members, Census: counted, Reporting: reporting, Outcomes: outcomes})
	if !keep {
		status.Culprits, status.CulpritsRunID = judge.GroupCulprits(stage.WithSpan(outcomes, &group.Spec, run, status.Span), odd), ""
		if run != nil && len(status.Culprits) > 0 {
			status.CulpritsRunID = run.ID
		}
	}
	agents, agentsWake := agentsReporting(in.Members, in.CommTasks, in.CommNodes, s.Now, group.Spec.Run.StartDeadlineSeconds)
	f[v1alpha1.ConditionAgentsReporting] = agents
	d.WakeAt = decision.Earlier(d.WakeAt, agentsWake)
	f[v1alpha1.ConditionRunning] = running(group, run, status.Members, state.Waiting, state.Progress)
	f[v1alpha1.ConditionValidated] = validationOf(group, state, accepted.IsTrue())
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
		Held: func() (int64, int32) { return commrun.HeldSeconds(run, status.Span, in) }}, s.Now)

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
func knownTargets(in commrun.Input) []string {
	targets := map[string]bool{}
	for i := range in.Members {
		if cn := in.CommNodes[in.Members[i].Name]; cn != nil && cn.Status.Facts != nil {
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

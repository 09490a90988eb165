package commgroup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/baseline"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/compatible"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/history"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/publish"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/schedule"
	"rcclx.io/commgroup-operator/controllers/settings"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/state"
)

// Input is what the group's status rests on.
type Input struct {
	// Input is what was observed, Run what follows for the run.
	*commrun.Input
	Run *commrun.Decision
	// Accepted says whether the spec can be carried out; MembersKnown that its members could be selected.
	Accepted     decision.Finding
	MembersKnown bool
	// Nodes of the cluster; Runs are the group's CommRuns.
	Nodes []corev1.Node
	Runs  []v1alpha1.CommRun
	// ConfigMap of the name that settings are published under, nil where none was found; ConfigMapCertain: it was
	// looked up in the API.
	ConfigMap        *corev1.ConfigMap
	ConfigMapCertain bool
	// FormerConfigMap is the one that status.published names, where it has another name by now; OwnedConfigMaps are the
	// names of all that carry the group's UID.
	FormerConfigMap *corev1.ConfigMap
	OwnedConfigMaps []string
	// PrivilegedNamespaces are those whose CommGroups may mark nodes.
	PrivilegedNamespaces []string
}

// Decision is what should be of the group, beside its run.
type Decision struct {
	Status state.Status
	Events []decision.Event
	// ConfigMap to create or update, nil for none; DeleteConfigMaps by name, all owned by the group.
	ConfigMap        *corev1.ConfigMap
	DeleteConfigMaps []string
	// NeedConfigMapLookup asks to look the ConfigMap up in the API and to decide again.
	NeedConfigMapLookup bool
	// DeleteRuns are CommRuns beyond the history limits.
	DeleteRuns []*v1alpha1.CommRun
	// NodeMarks are statements of gating to write to Nodes, the most urgent first.
	NodeMarks []gating.Mark
	// Running is the condition of that name, to which refused writes are added.
	Running decision.Finding
	WakeAt  time.Time
}

// Next works out the group's status, and what follows from it: what is published, which nodes are gated, and which
// CommRuns are no longer kept.
func Next(in Input) Decision {
	s := &step{in: &in, findings: map[string]decision.Finding{v1alpha1.ConditionAccepted: in.Accepted}}
	s.out.Status = *in.Group.Status.DeepCopy()
	s.takeRun()
	s.countMembers()
	if !s.repeated() {
		s.showResults()
	}
	s.checkCompatible()
	s.checkRun()
	s.publish()
	s.recordHistory()
	s.planSchedule()
	out, was := &s.out, &in.Group.Status
	out.Status.Remarks = remarksOf(s.findings)
	out.Status.Conditions = SetConditions(out.Status.Conditions, s.findings, in.Group.Generation, in.Now)
	out.DeleteRuns = beyondLimits(&in.Group.Spec.HistoryLimits, out.Status.Run, in.Runs)
	s.gate()
	out.Events = slices.Concat(
		out.Events,
		remarkEvents(was.Remarks, out.Status.Remarks),
		Transitions(was.Conditions, out.Status.Conditions),
	)
	out.Status.KeepMeasured(was)
	// else it fits, since it was written, and nothing has to be encoded to know that
	if !objects.Same(was, &out.Status) {
		boundGroup(&out.Status)
		boundRun(in.Group, &out.Status)
	}
	return s.out
}

// step is the status while it is worked out.
type step struct {
	in  *Input
	out Decision
	// reporting are the CommNodes of the members whose monitors report; findings become the conditions.
	reporting []*v1alpha1.CommNode
	findings  map[string]decision.Finding
}

func (s *step) wake(at time.Time) { s.out.WakeAt = decision.Earlier(s.out.WakeAt, at) }

// repeated says whether what the run before has shown stands until a repeat of it ends.
func (s *step) repeated() bool {
	run := s.in.Run.Run
	return run != nil && run.Phase == v1alpha1.RunPhaseRunning && state.Repeats(run)
}

// takeRun takes over what was decided of the run.
func (s *step) takeRun() {
	group, run, status := s.in.Group, s.in.Run.Run, &s.out.Status
	status.ObservedGeneration = group.Generation
	was := group.Status.Run
	starts := run != nil && (was == nil || was.ID != run.ID)
	lacksPlan := run != nil && run.Phase == v1alpha1.RunPhaseRunning && status.Plan == nil &&
		commrun.SameSpecAs(run, &group.Spec)
	if starts || lacksPlan {
		plan := runplan.For(&group.Spec)
		status.Plan = &plan
	}
	if run != nil && run.Phase == v1alpha1.RunPhaseFinished {
		status.Baseline = s.in.Run.Compared.Next(group.Status.Baseline, run)
	}
	status.Run, status.Span = run, s.in.Run.Span
}

// countMembers counts the members by what they report and have shown.
func (s *step) countMembers() {
	for i := range s.in.Members {
		if cn := s.in.CommNodes[s.in.Members[i].Name]; nodefacts.Hold(cn, s.in.Now) {
			s.reporting = append(s.reporting, cn)
		}
	}
	status, outcomes := &s.out.Status, s.in.Run.Outcomes
	status.Members = countMembers(len(s.in.Members), len(s.reporting), status.Run, outcomes)
	status.Origin = originOf(s.reporting, outcomes)
	s.findings[v1alpha1.ConditionSimulated] = simulated(status.Origin)
}

func countMembers(
	selected, reporting int,
	run *v1alpha1.GroupRunStatus,
	outcomes []judge.Outcome,
) v1alpha1.MemberCounts {
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

// showResults shows what the nodes and the group's stage have measured.
func (s *step) showResults() {
	group, status, outcomes := s.in.Group, &s.out.Status, s.in.Run.Outcomes
	status.Settings = settings.Aggregate(outcomes)
	status.Results, status.Libraries = s.in.Run.Results, judge.Libraries(outcomes)
	status.DataErrors = judge.AggregateDataErrors(outcomes)
	status.Headline = judge.Headline(status.Results)
	if h := status.Headline; h != nil && status.Run != nil && status.Span != nil && status.Span.RunID == status.Run.ID {
		h.GroupBusBandwidthMBps, h.GroupNodes = history.GroupFigure(status.Span)
	}
	status.Effective = settings.Summary(status.Settings)
	var overNodes []v1alpha1.PerformanceCheck
	if span := judge.SpanResultsOf(status.Span, status.Run); len(span) > 0 {
		overNodes = judge.SpanChecks(&group.Spec, span, judge.PlaceOfMembers(outcomes, status.Span.Transport))
	}
	status.Checks = judge.AggregateChecks(outcomes, overNodes, s.in.Run.Compared.Checks)
}

// checkCompatible holds the members against each other.
func (s *step) checkCompatible() {
	group, status, outcomes := s.in.Group, &s.out.Status, s.in.Run.Outcomes
	census := compatible.TakeCensus(s.reporting, outcomes)
	status.Inventory = compatible.Inventory(census)
	var odd []v1alpha1.Culprit
	s.findings[v1alpha1.ConditionCompatible], odd = compatible.Decide(compatible.Input{
		Spec: &group.Spec, Members: s.in.Members, Census: census, Reporting: s.reporting, Outcomes: outcomes})
	if s.repeated() {
		return
	}
	status.CulpritsRunID = ""
	status.Culprits = judge.GroupCulprits(stage.WithSpan(outcomes, &group.Spec, status.Run, status.Span), odd)
	if status.Run != nil && len(status.Culprits) > 0 {
		status.CulpritsRunID = status.Run.ID
	}
}

// checkRun says whether the agents report, and what the run does and has shown.
func (s *step) checkRun() {
	in, group, status := s.in, s.in.Group, &s.out.Status
	agents, wakeAt := agentsReporting(in.Members, in.CommTasks, in.CommNodes, in.Now,
		group.Spec.Run.StartDeadlineSeconds)
	s.wake(wakeAt)
	s.findings[v1alpha1.ConditionAgentsReporting] = agents
	s.out.Running = Running(group, status.Run, status.Members, in.Run.Waiting, in.Run.Progress)
	s.findings[v1alpha1.ConditionRunning] = s.out.Running
	s.findings[v1alpha1.ConditionValidated] = validationOf(group, in.Run, in.Accepted.IsTrue())
	s.findings[v1alpha1.ConditionSettingsInEffect] = settings.InEffect(status.Settings, &group.Spec)
}

// publish decides which settings are worth it, and publishes what is proven.
func (s *step) publish() {
	in, group, status, outcomes := s.in, s.in.Group, &s.out.Status, s.in.Run.Outcomes
	targets := knownTargets(in)
	flavor, worth := settings.Worth(
		settings.WorthInput{Spec: &group.Spec, Run: status.Run, Outcomes: outcomes, DataErrors: status.DataErrors,
			Settings: status.Settings, GFXTargets: targets},
	)
	if !s.repeated() {
		status.Advice = settings.Advice(flavor, &group.Spec, status.Settings, worth)
	}
	p := publish.Decide(publish.Input{
		Worth: worth, Now: in.Now, Group: group, Run: status.Run, Outcomes: outcomes, Settings: status.Settings,
		Origin:   status.Origin,
		Existing: in.ConfigMap, Former: in.FormerConfigMap, Certain: in.ConfigMapCertain, Owned: in.OwnedConfigMaps,
		GFXTargets: targets,
	})
	s.findings[v1alpha1.ConditionSettingsPublished] = p.Condition
	s.findings[v1alpha1.ConditionReady] = readiness(s.findings)
	status.Published = p.Published
	s.out.ConfigMap, s.out.NeedConfigMapLookup, s.out.DeleteConfigMaps = p.ConfigMap, p.LookUp, p.Remove
	s.out.Events = append(s.out.Events, p.Events...)
	s.wake(p.WakeAt)
}

// knownTargets are the GPU targets of the members, by what their monitors last said: GPUs do not change with silence.
func knownTargets(in *Input) []string {
	targets := map[string]bool{}
	for i := range in.Members {
		if cn := in.CommNodes[in.Members[i].Name]; cn != nil && cn.Status.Facts != nil {
			targets[cn.Status.Facts.GFXTarget] = true
		}
	}
	return slices.Sorted(maps.Keys(targets))
}

// recordHistory takes a run that is over into the history and the budget.
func (s *step) recordHistory() {
	group, status := s.in.Group, &s.out.Status
	history.Record(status, &group.Status, group.Spec.Run.MaxGPUMinutesPerDay, &history.End{
		Run: status.Run, Reason: s.findings[v1alpha1.ConditionValidated].Reason,
		BaselineKey: clip.Head(s.in.Run.Compared.Key, baseline.MaxKey),
		Held:        func() (int64, int32) { return commrun.HeldSeconds(status.Run, status.Span, *s.in.Input) }},
		s.in.Now)
}

// planSchedule says when the next scheduled run starts.
func (s *step) planSchedule() {
	group, status, now := s.in.Group, &s.out.Status, s.in.Now
	status.NextRunTime, status.Schedule = nil, schedule.Of(group, now)
	if group.Spec.Run.State == v1alpha1.RunSuspended || status.Run == nil {
		return
	}
	next := schedule.Next(group, schedule.Done(group, status.History, status.Run, now))
	if next.IsZero() {
		return
	}
	status.NextRunTime = decision.Stamp(next)
	// One that is due and waits, for members or monitors, starts with what it waits for.
	if status.Run.Phase != v1alpha1.RunPhaseRunning && next.After(now) {
		s.wake(next)
	}
}

// gate decides which nodes are marked, by the rest of the status.
func (s *step) gate() {
	in, status := s.in, &s.out.Status
	g := gating.Decide(&gating.Input{
		Now: in.Now, Group: in.Group, Nodes: in.Nodes, Members: in.Members, MembersKnown: in.MembersKnown,
		CommTasks: in.CommTasks,
		CommNodes: in.CommNodes, Run: status.Run, Outcomes: in.Run.Outcomes, Span: status.Span,
		NoBaseline: in.Run.Compared.Missing(),
		Privileged: in.PrivilegedNamespaces,
	})
	status.Gating, status.WouldGate, s.out.NodeMarks = g.Status, g.WouldGate, g.Marks
	s.wake(g.WakeAt)
	s.out.Events = append(s.out.Events, g.Events...)
}

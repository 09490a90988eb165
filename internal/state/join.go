package state

import (
	"cmp"
	"slices"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Triggers of runs: why they were started.
const (
	TriggerSpecChanged    = "SpecChanged"
	TriggerMembersChanged = "MembersChanged"
	TriggerNodesChanged   = "NodesChanged"
	TriggerScheduled      = "Scheduled"
	TriggerRequested      = "Requested"
)

const (
	// maxCulprits is how many culprits the CommGroup's own status names.
	maxCulprits = 4
	// maxMessageBytes of each of them.
	maxMessageBytes = 256
	// maxInventory is how many items of the inventory the CommGroup's own status has.
	maxInventory = 16
)

// Repeats says whether the run measures again what an earlier run of the same spec and members has measured. While it
// goes on, what that one has shown stands.
func Repeats(run *v1alpha1.GroupRunStatus) bool {
	return run.Trigger == TriggerScheduled || run.Trigger == TriggerRequested
}

// Over says whether the run has ended, however it went.
func Over(run *v1alpha1.GroupRunStatus) bool {
	return run.Phase != "" && run.Phase != v1alpha1.RunPhaseRunning
}

// Pending says whether a CommRun is of a run that has not started, or that was suspended.
func Pending(run *v1alpha1.CommRun) bool {
	phase := run.Status.Phase
	return phase == "" && run.Status.Verdict == "" || phase == v1alpha1.RunPhaseSuspended
}

// Latest is the run that started last of the CommRuns; nil where none has started.
func Latest(runs []v1alpha1.CommRun) *v1alpha1.CommRun { return latestBefore(runs, 0) }

// latestBefore is the last started of those with a number below the given one; of all where that is 0.
func latestBefore(runs []v1alpha1.CommRun, number int64) (latest *v1alpha1.CommRun) {
	for i := range runs {
		n := runs[i].Status.Number
		if n > 0 && (number == 0 || n < number) && (latest == nil || n > latest.Status.Number) {
			latest = &runs[i]
		}
	}
	return latest
}

// Join puts a CommGroup and its CommRuns together; runs of other groups are none of them. The CommRun of the latest
// run says where that run is, whatever the CommGroup's status says of it in short. Where it is gone, what it had
// measured is, too. The result shares its parts with the objects.
func Join(group *v1alpha1.CommGroup, runs []v1alpha1.CommRun) *Group {
	from := &group.Status
	g := &Group{TypeMeta: group.TypeMeta, ObjectMeta: group.ObjectMeta, Spec: group.Spec, Status: Status{
		Conditions: from.Conditions, Remarks: from.Remarks, ObservedGeneration: from.ObservedGeneration,
		Origin:  from.Origin,
		Members: from.Members, Run: from.Run, Inventory: from.Inventory, Effective: from.Effective,
		Headline: from.Headline, Culprits: from.Culprits, CulpritsRunID: from.CulpritsRunID, Baseline: from.Baseline,
		History: from.History, Trend: from.Trend, Budget: from.Budget, Gating: from.Gating, WouldGate: from.WouldGate,
		Published: from.Published, NextRunTime: from.NextRunTime, Schedule: from.Schedule,
	}}
	g.Status.Requests = requests(runs)
	var newest *v1alpha1.CommRun
	for i := range runs {
		if r := &runs[i]; r.Status.Baseline != nil && (newest == nil || r.Status.Number > newest.Status.Number) {
			newest = r
		}
	}
	if newest != nil {
		g.Status.Baseline = newest.Status.Baseline
	}
	latest := Latest(runs)
	if latest == nil || from.Run != nil && latest.Status.Number < from.Run.Number {
		return g
	}
	status := &g.Status
	run := latest.Status.GroupRunStatus
	goesOn := run.Phase == v1alpha1.RunPhaseRunning || run.Phase == v1alpha1.RunPhaseSuspended
	status.RunSuspended = latest.Spec.Suspend && goesOn
	if run.Name = latest.Name; run.Phase == v1alpha1.RunPhaseSuspended {
		run.Phase = v1alpha1.RunPhaseAborted // for the group that is the run's end: the next one has another id
	}
	status.Behind = from.Run == nil || from.Run.ID != run.ID || from.Run.Phase != run.Phase ||
		from.Run.Verdict != run.Verdict
	status.Run, status.Span = &run, latest.Status.Span
	status.Template, status.Plan = latest.Status.Template, latest.Status.Plan
	results := latest
	if run.Phase == v1alpha1.RunPhaseRunning && Repeats(&run) {
		results = latestBefore(runs, run.Number)
		if results != nil && !repeated(&results.Status.GroupRunStatus, &run, from.History) {
			results = nil
		}
	}
	if results != nil {
		r := &results.Status
		status.ResultsRunID = r.ID
		status.Libraries, status.Settings, status.Results = r.Libraries, r.Settings, r.Results
		status.DataErrors, status.Checks, status.Advice = r.DataErrors, r.Checks, r.Advice
		if status.Culprits, status.CulpritsRunID = r.Culprits, ""; len(r.Culprits) > 0 {
			status.CulpritsRunID = r.ID
		}
	}
	return g
}

// repeated says whether the earlier run is the one that the later one repeats: of the same spec and members, and with
// none between them.
func repeated(earlier, later *v1alpha1.GroupRunStatus, history []v1alpha1.RunSummary) bool {
	return earlier.SpecHash == later.SpecHash && earlier.MembersHash == later.MembersHash &&
		(len(history) == 0 || history[0].ID == earlier.ID)
}

// requests are the names of the pending ones that are not suspended, the oldest first.
func requests(runs []v1alpha1.CommRun) (names []string) {
	var pending []*v1alpha1.CommRun
	for i := range runs {
		// One that the controller created is no request before it has started.
		r := &runs[i]
		asked := r.Status.ID != "" || r.Labels[v1alpha1.LabelRunID] == ""
		if Pending(r) && asked && !r.Spec.Suspend && r.DeletionTimestamp.IsZero() {
			pending = append(pending, r)
		}
	}
	slices.SortFunc(pending, func(a, b *v1alpha1.CommRun) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range pending {
		names = append(names, r.Name)
	}
	return names
}

// GroupStatus is the CommGroup's own part of the status.
func (s *Status) GroupStatus() v1alpha1.CommGroupStatus {
	out := v1alpha1.CommGroupStatus{
		Conditions: s.Conditions, Remarks: s.Remarks, ObservedGeneration: s.ObservedGeneration, Origin: s.Origin,
		Members: s.Members,
		Run:     s.Run, Inventory: s.Inventory[:min(len(s.Inventory), maxInventory)],
		Effective: s.Effective, Headline: s.Headline, CulpritsRunID: s.CulpritsRunID,
		History: s.History, Trend: s.Trend, Budget: s.Budget, Gating: s.Gating, WouldGate: s.WouldGate,
		Published: s.Published, NextRunTime: s.NextRunTime, Schedule: s.Schedule,
	}
	for _, c := range s.Culprits[:min(len(s.Culprits), maxCulprits)] {
		c.Message = shorten(c.Message)
		out.Culprits = append(out.Culprits, c)
	}
	if s.Baseline != nil {
		short := *s.Baseline
		short.Series = nil
		out.Baseline = &short
	}
	return out
}

// shorten cuts a message to maxMessageBytes, at a rune.
func shorten(text string) string {
	const more = "..."
	if len(text) <= maxMessageBytes {
		return text
	}
	end := maxMessageBytes - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// KeepMeasured puts what the run has measured in the place of what the members show by now: it is final once the run
// is over, and nodes that change after it take nothing away from it. was is the status before.
func (s *Status) KeepMeasured(was *Status) {
	if s.Run == nil || was.Run == nil || s.Run.ID != was.Run.ID || !Over(was.Run) {
		return
	}
	s.Libraries = was.Libraries
	// Copies: elements may be cut, which the cache has, too.
	s.Results, s.DataErrors = slices.Clone(was.Results), slices.Clone(was.DataErrors)
	if s.Members.Stale > 0 {
		s.Settings, s.Checks, s.Advice = slices.Clone(was.Settings), slices.Clone(was.Checks), slices.Clone(was.Advice)
	}
}

// RunStatus is the part of the status that is the latest run's, as its CommRun is to have it; stored is the CommRun
// as it is.
func (g *Group) RunStatus(stored *v1alpha1.CommRun) v1alpha1.CommRunStatus {
	s, was := &g.Status, &stored.Status
	out := v1alpha1.CommRunStatus{GroupRunStatus: *s.Run, Origin: s.Origin, Template: was.Template}
	out.Plan, out.Span = s.Plan, s.Span
	if was.ID != s.Run.ID {
		was, out.Template = &v1alpha1.CommRunStatus{}, templateOf(&g.Spec)
	}
	running := s.Run.Phase == v1alpha1.RunPhaseRunning
	if running && Repeats(s.Run) {
		return out // the results of the status are the earlier run's
	}
	out.Culprits, out.Settings, out.Checks, out.Advice = s.Culprits, s.Settings, s.Checks, s.Advice
	out.Inventory, out.Libraries, out.Results, out.DataErrors = s.Inventory, s.Libraries, s.Results, s.DataErrors
	if running {
		return out
	}
	if was.Members != nil {
		out.Members, out.Summary, out.Inventory, out.Origin = was.Members, was.Summary, was.Inventory, was.Origin
	} else {
		out.Members = &s.Members
	}
	out.Baseline = s.Baseline
	own := func(h v1alpha1.RunSummary) bool { return h.ID == s.Run.ID }
	if i := slices.IndexFunc(s.History, own); out.Summary == nil && i >= 0 {
		out.Summary = &s.History[i]
	}
	stops := was.Phase == v1alpha1.RunPhaseSuspended || stored.Spec.Suspend && was.Phase == v1alpha1.RunPhaseRunning
	if s.Run.Phase == v1alpha1.RunPhaseAborted && stops {
		out.Phase = v1alpha1.RunPhaseSuspended
	}
	return out
}

func templateOf(spec *v1alpha1.CommGroupSpec) *v1alpha1.RunTemplate {
	spec = spec.DeepCopy()
	spec.Runtime.Env = spec.OwnVariables()
	// These change nothing in what is measured.
	spec.Runtime.Pod, spec.Runtime.ImagePullSecrets = v1alpha1.PodOverrides{}, nil
	return &v1alpha1.RunTemplate{RanksPerNode: spec.RanksPerNode, Span: spec.Span, Mesh: spec.Mesh,
		Network: spec.Network, Runtime: spec.Runtime, DDA: spec.DDA, LowPrecision: spec.LowPrecision,
		Benchmark: spec.Benchmark}
}

// Objects are the CommGroup and the CommRun that the value is stored as, for those who make both up; the latter is
// nil before the first run.
func (g *Group) Objects() (*v1alpha1.CommGroup, *v1alpha1.CommRun) {
	group := &v1alpha1.CommGroup{TypeMeta: g.TypeMeta, ObjectMeta: g.ObjectMeta, Spec: g.Spec}
	group.Status = g.Status.GroupStatus()
	if g.Status.Run == nil {
		return group, nil
	}
	run := NewRun(g, cmp.Or(g.Status.Run.Name, v1alpha1.CommRunName(g.Name, g.Status.Run.Number)))
	run.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup", Name: g.Name, UID: g.UID,
	}}
	if g.Status.Template != nil {
		run.Status.ID, run.Status.Template = g.Status.Run.ID, g.Status.Template
	}
	run.Status = g.RunStatus(run)
	return group, run
}

// NewRun is a CommRun of the group that has not started.
func NewRun(group metav1.Object, name string) *v1alpha1.CommRun {
	return &v1alpha1.CommRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommRun"},
		ObjectMeta: metav1.ObjectMeta{Namespace: group.GetNamespace(), Name: name},
		Spec:       v1alpha1.CommRunSpec{GroupName: group.GetName()},
	}
}

package commrun

import (
	"maps"
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/internal/state"
)

// planCommTasks works out each member's CommTask, and which have to go.
func planCommTasks(state *runState, in Input) (changes []Change, remove []string) {
	run := state.run
	// A run that starts now is not in the status yet: it is assigned once it is.
	persisted := run != nil && in.Group.Status.Run != nil && in.Group.Status.Run.ID == run.ID
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
		if has || ct == nil || ct.Spec.Session == nil || run == nil || in.RunDeleted {
			return next
		}
		if starting || runs.NumberOf(ct.Spec.Session.RunID) == run.Number && state.span.Span != nil {
			return ct.Spec.Session // the latter: the status that was read is older than the session
		}
		return nil
	}
	kept := make(map[string]bool, len(in.Members))
	labels := objects.Labels(in.Group, "")
	for i := range in.Members {
		m := &in.Members[i]
		ct := in.CommTasks[m.Name]
		if ct != nil && ct.Spec.NodeUID != m.UID {
			continue // of a node that was there before under this name: it goes first
		}
		kept[m.Name] = true
		if ct == nil && starting {
			continue // it is created once the run is written, with its assignment: one write less for each node
		}
		spec := v1alpha1.CommTaskSpec{NodeName: m.Name, NodeUID: m.UID, Ranks: m.Ranks,
			Group: v1alpha1.GroupReference{Name: in.Group.Name, UID: string(in.Group.UID)},
			Run:   assignment(ct, inRun[m.Name]), Session: session(ct, m.Name)}
		if ct == nil || !objects.SameSpec(&ct.Spec, &spec) || !belongs(ct, in.Group, m, labels) {
			changes = append(changes, Change{Current: ct, Desired: desiredCommTask(in.Group, m, ct, labels, spec)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.CommTasks)) {
		if kept[name] {
			continue
		}
		ct := in.CommTasks[name]
		n := inRun[name]
		if n == nil || !running {
			remove = append(remove, ct.Name)
			continue
		}
		spec := ct.Spec
		spec.Run, spec.Session = assignment(ct, n), session(ct, name)
		if !objects.SameSpec(&ct.Spec, &spec) {
			desired := ct.DeepCopy()
			desired.Spec = spec
			changes = append(changes, Change{Current: ct, Desired: desired})
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

func desiredCommTask(group *state.Group, m *decision.Member, current *v1alpha1.CommTask, labels map[string]string,
	spec v1alpha1.CommTaskSpec) *v1alpha1.CommTask {
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

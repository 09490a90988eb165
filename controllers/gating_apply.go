package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/words"
)

// decideGating adds gating's part to the decision, once the rest of the status is known, and returns its events.
func decideGating(d *Decision, s *Snapshot, in *commrun.Input, run *commrun.Decision, membersKnown bool, cfg *Config) []decision.Event {
	g := gating.Decide(&gating.Input{
		Now: s.Now, Group: s.Group, Nodes: s.Nodes, Members: in.Members, MembersKnown: membersKnown, CommTasks: in.CommTasks, CommNodes: in.CommNodes,
		Run: d.Status.Run, Outcomes: run.Outcomes, Span: d.Status.Span, NoBaseline: run.Compared.Missing(), Privileged: cfg.PrivilegedNamespaces,
	})
	d.Status.Gating, d.Status.WouldGate, d.NodeMarks = g.Status, g.WouldGate, g.Marks
	d.WakeAt = decision.Earlier(d.WakeAt, g.WakeAt)
	return g.Events
}

// maxRefusals are how many Nodes the API server refuses before the others are not tried, where it has let none be written: one or two may
// have an admission webhook of their own; without the right to write Nodes it refuses all.
const maxRefusals = 3

// writeNodes brings the Nodes' annotations and marks to what they should be; the errors run parallel to the writes. A Node
// that is gone is no error.
func writeNodes(ctx context.Context, c client.Client, writes []gating.Write, now time.Time) []error {
	var written, refused atomic.Int64
	var last atomic.Pointer[error]
	return atOnce(writes, func(w gating.Write) error {
		if written.Load() == 0 && refused.Load() >= maxRefusals {
			return *last.Load()
		}
		err := writeNode(ctx, c, &w, now)
		switch {
		case err == nil:
			written.Add(1)
		case apierrors.IsForbidden(err):
			last.Store(&err)
			refused.Add(1)
		}
		return err
	})
}

func writeNode(ctx context.Context, c client.Client, w *gating.Write, now time.Time) error {
	object, status, err := gating.Patches(w.Node, w.Annotations, now)
	if err != nil {
		return fmt.Errorf("marks of node %s: %w", w.Node.Name, err)
	}
	node := &corev1.Node{}
	node.Name = w.Node.Name
	owner := client.FieldOwner(v1alpha1.FieldManagerController)
	if object != nil {
		if err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, object), owner); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if status != nil {
		return client.IgnoreNotFound(c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, status), owner))
	}
	return nil
}

// forbiddenPause is between two tries to mark nodes where the API server forbids it.
const forbiddenPause = time.Minute

// applyNodeMarks writes the group's statements and the marks that follow, and tells of each node that was gated or is no
// longer. The Node is the record of it, so that the events go out as soon as that is written.
func (r *CommGroupReconciler) applyNodeMarks(ctx context.Context, s *Snapshot, d *Decision) error {
	key := gating.Key(string(s.Group.UID))
	writes := make([]gating.Write, len(d.NodeMarks))
	for i := range d.NodeMarks {
		writes[i] = gating.Write{Node: d.NodeMarks[i].Node, Annotations: map[string]*string{key: nil}}
		if st := d.NodeMarks[i].Statement; st != nil {
			value := st.String()
			writes[i].Annotations[key] = &value
		}
	}
	var failed []error
	var done []*gating.Mark
	var forbidden error
	var refused []string
	for i, err := range writeNodes(ctx, r.Client, writes, s.Now) {
		switch {
		case err == nil:
			done = append(done, &d.NodeMarks[i])
		case apierrors.IsForbidden(err):
			forbidden, refused = err, append(refused, d.NodeMarks[i].Node.Name)
		default:
			failed = append(failed, fmt.Errorf("mark node %s: %w", d.NodeMarks[i].Node.Name, err))
		}
	}
	r.tellMarks(s.Stored, done)
	if forbidden != nil && d.Status.Gating != nil {
		// To fail here would try again at once, again and again; and a person is to see it in the status.
		g := d.Status.Gating
		g.Message = words.Shorten(strings.TrimSpace(fmt.Sprintf("Cannot mark %s: %v. Where the manager has no right to patch Nodes, bind the role commgroup-manager-gating to it (docs/gating.md). %s",
			words.SomeNames(refused, 3), forbidden, g.Message)), gating.MessageBytes)
		d.WakeAt = decision.Earlier(d.WakeAt, s.Now.Add(forbiddenPause))
	} else if forbidden != nil {
		failed = append(failed, forbidden)
	}
	return errors.Join(failed...)
}

// tellMarks sends one event about each node, and one about the group for all of them.
func (r *CommGroupReconciler) tellMarks(group *v1alpha1.CommGroup, done []*gating.Mark) {
	name := group.Namespace + "/" + group.Name
	for _, kind := range []struct {
		change                      gating.Change
		event, reason, action, verb string
	}{
		{gating.Gated, corev1.EventTypeWarning, v1alpha1.ReasonNodeGated, "GateNode", "Gated"},
		{gating.Ungated, corev1.EventTypeNormal, v1alpha1.ReasonNodeUngated, "UngateNode", "No longer gated"},
	} {
		var names []string
		why := ""
		for _, m := range done {
			if m.Change != kind.change {
				continue
			}
			if len(names) == 0 {
				why = m.Why
			}
			names = append(names, m.Node.Name)
			r.Recorder.Eventf(m.Node, group, kind.event, kind.reason, kind.action, "%s",
				words.Shorten(fmt.Sprintf("%s by CommGroup %s: %s", kind.verb, name, words.Sentence(m.Why)), 1000))
		}
		if len(names) > 0 {
			r.Recorder.Eventf(group, nil, kind.event, kind.reason, kind.action, "%s",
				words.Shorten(fmt.Sprintf("%s: %s. %s", kind.verb, words.SomeNames(names, 5), words.Sentence(words.OfFirst(why, names))), 1000))
		}
	}
}

// liftMarks withdraws all statements of a group that is being deleted, and says what is left.
func (r *CommGroupReconciler) liftMarks(ctx context.Context, group *v1alpha1.CommGroup) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	key := gating.Key(string(group.UID))
	var marks []*gating.Mark
	var writes []gating.Write
	for i := range nodes.Items {
		node := &nodes.Items[i]
		value, ok := node.Annotations[key]
		if !ok {
			continue
		}
		m := &gating.Mark{Node: node, Why: "the group is deleted"}
		if s, err := gating.ParseStatement(value); err != nil || s.Verdict == v1alpha1.VerdictFail {
			m.Change = gating.Ungated
		}
		marks = append(marks, m)
		writes = append(writes, gating.Write{Node: node, Annotations: map[string]*string{key: nil}})
	}
	var done []*gating.Mark
	var names []string
	var first error
	for i, err := range writeNodes(ctx, r.Client, writes, r.Clock.Now()) {
		if err == nil {
			done = append(done, marks[i])
			continue
		}
		names = append(names, marks[i].Node.Name)
		if first == nil {
			first = err
		}
	}
	r.tellMarks(group, done)
	if first != nil {
		return fmt.Errorf("on nodes %s: %w", words.SomeNames(names, 3), first)
	}
	return nil
}

// MarkSweeper rids Nodes of marks whose group was deleted while no manager was there to lift them.
type MarkSweeper struct {
	Client    client.Client
	APIReader client.Reader
	Now       func() time.Time
	// Tick says when to sweep.
	Tick <-chan time.Time
	// Namespaces are the only ones that the manager serves, and may read; none means all. Marks of groups elsewhere are orphans too:
	// no manager looks after them.
	Namespaces []string
	// Access to them. Marks of groups of a namespace that there is and that cannot be read stay.
	Access *Access
	// Report is told of what could not be done.
	Report func(error)
}

// sweepInterval between two sweeps.
const sweepInterval = 10 * time.Minute

// NeedLeaderElection says that only one manager sweeps.
func (m *MarkSweeper) NeedLeaderElection() bool { return true }

// Start sweeps at once and then at every tick, until the context ends.
func (m *MarkSweeper) Start(ctx context.Context) error {
	for {
		if err := m.Sweep(ctx); err != nil && ctx.Err() == nil {
			m.Report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.Tick:
		}
	}
}

// Sweep looks at all Nodes once. Before it takes a group for gone it asks the API server itself: the cache may not have it
// yet.
func (m *MarkSweeper) Sweep(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := m.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	live, err := m.liveGroups(ctx, m.Client, nodes.Items)
	if err != nil {
		return err
	}
	writes := gating.Orphaned(nodes.Items, live)
	if len(writes) == 0 {
		return nil
	}
	fresh, err := m.liveGroups(ctx, m.APIReader, nodes.Items)
	if err != nil {
		return err
	}
	maps.Copy(live, fresh)
	writes = gating.Orphaned(nodes.Items, live)
	errs := writeNodes(ctx, m.Client, writes, m.Now())
	// A conflict is someone who wrote the Node since: the next sweep sees what is left.
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil || apierrors.IsConflict(err) })
	if len(errs) > 0 {
		return fmt.Errorf("marks of groups that are gone, on %s: %w", words.Counted(len(errs), "node"), errs[0])
	}
	return nil
}

// liveGroups are the UIDs of all groups that there are, and of those that marks name in namespaces that cannot be read.
func (m *MarkSweeper) liveGroups(ctx context.Context, reader client.Reader, nodes []corev1.Node) (map[string]bool, error) {
	namespaces := m.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	live, unread := map[string]bool{}, map[string]bool{}
	for _, name := range namespaces {
		var groups v1alpha1.CommGroupList
		var err error
		refused := m.Access.Refused(name)
		if !refused {
			err = reader.List(ctx, &groups, client.InNamespace(name))
			refused = apierrors.IsForbidden(err) && name != metav1.NamespaceAll
		}
		if refused {
			namespace, err := namespaceOf(ctx, m.APIReader, name)
			if err != nil {
				m.Report(err) // and its marks stay
			}
			unread[name] = namespace != nil || err != nil
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("commgroups: %w", err)
		}
		for i := range groups.Items {
			live[string(groups.Items[i].UID)] = true
		}
	}
	for i := range nodes {
		for key, s := range gating.Statements(nodes[i].Annotations) {
			namespace, _, _ := strings.Cut(s.Group, "/")
			if uid, ok := gating.UIDOf(key); ok && unread[namespace] {
				live[uid] = true
			}
		}
	}
	return live, nil
}

// runTolerations lets run pods onto a node that gating, or a NodeReadinessRule upon its condition, has tainted: else a node
// that failed once could never pass again.
func runTolerations(own []corev1.Toleration) []corev1.Toleration {
	return append(slices.Clone(own),
		corev1.Toleration{Key: v1alpha1.TaintCommFailed, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		corev1.Toleration{Key: v1alpha1.TaintReadiness, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
}

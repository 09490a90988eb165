package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
)

// maxRefusals are how many Nodes the API server refuses before the others are not tried, where it has let none be
// written: one or two may have an admission webhook of their own; without the right to write Nodes it refuses all.
const maxRefusals = 3

// writeNodes brings the Nodes' annotations and marks to what they should be; the errors run parallel to the writes. A
// Node that is gone is no error.
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
		return client.IgnoreNotFound(c.Status().Patch(ctx, node,
			client.RawPatch(types.StrategicMergePatchType, status), owner))
	}
	return nil
}

// forbiddenPause is between two tries to mark nodes where the API server forbids it.
const forbiddenPause = time.Minute

// applyNodeMarks writes the group's statements and the marks that follow, and tells of each node that was gated or is
// no longer. The Node is the record of it, so that the events go out as soon as that is written.
func (r *writer) applyNodeMarks(ctx context.Context, s *Snapshot, d *Decision) error {
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
		// To fail here would try again at once, again and again; and a user is to see it in the status.
		g := d.Status.Gating
		g.Message = clip.Head(strings.TrimSpace(fmt.Sprintf("Cannot mark %s: %v. Where the manager has "+
			"no right to patch Nodes, bind the role commgroup-manager-gating to it (docs/gating.md). %s",
			explain.Names(refused, 3), forbidden, g.Message)), gating.MessageBytes)
		d.WakeAt = decision.Earlier(d.WakeAt, s.Now.Add(forbiddenPause))
	} else if forbidden != nil {
		failed = append(failed, forbidden)
	}
	return errors.Join(failed...)
}

// tellMarks sends one event about each node, and one about the group for all of them.
func (r *writer) tellMarks(group *v1alpha1.CommGroup, done []*gating.Mark) {
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
				clip.Head(fmt.Sprintf("%s by CommGroup %s: %s", kind.verb, name, explain.Sentence(m.Why)), 1000))
		}
		if len(names) > 0 {
			r.Recorder.Eventf(group, nil, kind.event, kind.reason, kind.action, "%s",
				clip.Head(fmt.Sprintf("%s: %s. %s",
					kind.verb, explain.Names(names, 5), explain.Sentence(explain.OfFirst(why, names))), 1000))
		}
	}
}

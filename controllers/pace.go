package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	// quickMembers is how many members a group has at most whose reconcile writes few enough objects to be quick.
	quickMembers = 64
	// quickReconcile is what a quick reconcile takes at most.
	quickReconcile = time.Second
	// slowFor is how long a group stays slow after a reconcile that was: as what slows it, a webhook for example, may.
	slowFor = 5 * time.Minute
	// slowRetry is when a slow group is tried again where others hold the workers that slow groups may have.
	slowRetry = time.Second
)

// decisionCostPerMember is about what one reconcile costs for each member: 1.85 s at 12,500 with gating
// (docs/benchmarks.md).
const decisionCostPerMember = 150 * time.Microsecond

// minReconcileInterval is the least time between the end of a group's reconcile and the begin of the next one. It is as
// long as the reconcile itself may take, so that events of one group, whoever causes them, take at most half of one
// worker. Groups that cost less than minWake have none.
func minReconcileInterval(members int) time.Duration {
	if interval := time.Duration(members) * decisionCostPerMember; interval >= minWake {
		return interval
	}
	return 0
}

// pacer knows when each large group may be reconciled next, and keeps slow groups from taking all workers. No decision
// needs it: a new manager does without.
type pacer struct {
	// slowWorkers is how many workers slow groups may hold at once; zero for any number.
	slowWorkers int

	lock   sync.Mutex
	groups map[types.NamespacedName]pace
	// slowNow is how many workers slow groups hold.
	slowNow int
}

// slowWorkers leaves a worker, where there are several, to the groups that are not slow.
func slowWorkers(workers int) int { return max(1, workers-1) }

// pace is what the pacer knows of a group.
type pace struct {
	members int
	// next is when the group may be reconciled next.
	next time.Time
	// quickFrom is when the group counts as quick again; zero until a reconcile was.
	quickFrom time.Time
}

// wait is how long the group's reconcile has to wait yet.
func (p *pacer) wait(group types.NamespacedName, now time.Time) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	return max(0, p.groups[group].next.Sub(now))
}

// counted notes how many members the reconcile that is under way has found.
func (p *pacer) counted(group types.NamespacedName, members int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.groups == nil {
		p.groups = map[types.NamespacedName]pace{}
	}
	known := p.groups[group]
	known.members = members
	p.groups[group] = known
}

// forget is for groups that are gone.
func (p *pacer) forget(group types.NamespacedName) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.groups, group)
}

// begin takes a worker for a reconcile; end gives it back. Not ok where the group is slow, and slow groups hold as many
// as they may.
func (p *pacer) begin(group types.NamespacedName, now time.Time) (end func(time.Time), ok bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.groups[group]
	slow := known.quickFrom.IsZero() || now.Before(known.quickFrom) || known.members > quickMembers
	if slow && p.slowWorkers > 0 && p.slowNow >= p.slowWorkers {
		return nil, false
	}
	if slow {
		p.slowNow++
	}
	return func(ended time.Time) {
		p.lock.Lock()
		defer p.lock.Unlock()
		if slow {
			p.slowNow--
		}
		if known, ok := p.groups[group]; ok { // not one that is gone
			switch slow := ended.Sub(now) > quickReconcile; {
			case slow:
				known.quickFrom = ended.Add(slowFor)
			case known.quickFrom.IsZero():
				known.quickFrom = ended
			}
			known.next = ended.Add(minReconcileInterval(known.members))
			p.groups[group] = known
		}
	}, true
}

// paced accepts a new group at once, keeps the minimum interval between two reconciles of a large one, and keeps one
// worker free of slow groups. A reconcile that has to wait is put off, not left out.
func (r *CommGroupReconciler) paced(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	switch accepted, err := r.accept(ctx, req.NamespacedName); {
	case err != nil:
		return retryConflict(ctx, ctrl.Result{}, err)
	case accepted:
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	if wait := r.pace.wait(req.NamespacedName, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	end, ok := r.pace.begin(req.NamespacedName, r.Clock.Now())
	if !ok {
		return ctrl.Result{RequeueAfter: slowRetry}, nil
	}
	defer func() { end(r.Clock.Now()) }()
	result, err := r.Reconcile(ctx, req)
	return retryConflict(ctx, result, err)
}

// accept writes the condition Accepted of a new group before anything else is done for it, which may take long.
func (r *CommGroupReconciler) accept(ctx context.Context, key types.NamespacedName) (accepted bool, err error) {
	if !r.Config.serves(key.Namespace) || r.Access.Refused(key.Namespace) {
		return false, nil
	}
	var group v1alpha1.CommGroup
	if err := r.Client.Get(ctx, key, &group); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if len(group.Status.Conditions) > 0 || !group.DeletionTimestamp.IsZero() {
		if n := int(group.Status.Members.Selected); n > 0 { // after a restart the pacer knows no group
			r.pace.counted(key, n)
		}
		return false, nil
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("nodes of commgroup %s: %w", key, err)
	}
	now := r.Clock.Now()
	joined := state.Join(&group, nil)
	members, finding, _ := membersOf(joined, nodes.Items, r.Config, now)
	r.pace.counted(key, len(members))
	d := Decision{Status: *joined.Status.DeepCopy()}
	d.Status.Conditions = commgroup.SetConditions(nil, map[string]decision.Finding{v1alpha1.ConditionAccepted: finding},
		group.Generation, now)
	d.Events = commgroup.Transitions(nil, d.Status.Conditions)
	if err := r.writeStatus(ctx, &group, &d); err != nil && !onlyRefusals(err) {
		return false, err
	} else if err != nil { // the reconcile will be refused, too, and says so
		return false, nil
	}
	return true, nil
}

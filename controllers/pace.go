package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// decisionCostPerMember is about what one reconcile costs for each member: 1.85 s at 12,500 with gating (docs/benchmarks.md).
const decisionCostPerMember = 150 * time.Microsecond

// minReconcileInterval is the least time between the end of a group's reconcile and the begin of the next one. It is as long as the
// reconcile itself may take, so that events of one group, whoever causes them, take at most half of one worker. Groups that cost
// less than minWake have none.
func minReconcileInterval(members int) time.Duration {
	if interval := time.Duration(members) * decisionCostPerMember; interval >= minWake {
		return interval
	}
	return 0
}

// pacer knows when each large group may be reconciled next. No decision needs it: a new manager does without.
type pacer struct {
	lock sync.Mutex
	next map[types.NamespacedName]time.Time
	// members of the reconcile that is under way.
	members map[types.NamespacedName]int
}

// wait is how long the group's reconcile has to wait yet.
func (p *pacer) wait(group types.NamespacedName, now time.Time) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	return max(0, p.next[group].Sub(now))
}

// counted notes how many members the reconcile that is under way has found.
func (p *pacer) counted(group types.NamespacedName, members int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.members == nil {
		p.members, p.next = map[types.NamespacedName]int{}, map[types.NamespacedName]time.Time{}
	}
	p.members[group] = members
}

// ended notes the end of a reconcile. One that found no group leaves nothing behind.
func (p *pacer) ended(group types.NamespacedName, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	interval := minReconcileInterval(p.members[group])
	delete(p.members, group)
	delete(p.next, group)
	if interval > 0 {
		p.next[group] = now.Add(interval)
	}
}

// paced keeps the minimum interval between two reconciles of a large group: one that comes too soon is put off, not left out.
func (r *CommGroupReconciler) paced(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if wait := r.pace.wait(req.NamespacedName, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	defer func() { r.pace.ended(req.NamespacedName, r.Clock.Now()) }()
	return r.retryConflicts(ctx, req)
}

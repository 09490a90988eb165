package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commgroup"
	"rcclx.io/commgroup-operator/internal/state"
)

// CommGroupReconciler makes CommGroups so. It keeps nothing in memory between two calls that a decision needs.
type CommGroupReconciler struct {
	cleaner
	failedReads failedReads
	pace        pacer
}

// New is a reconciler that works with these.
func New(with Dependencies) *CommGroupReconciler {
	return &CommGroupReconciler{cleaner: cleaner{&writer{observer: &observer{Dependencies: with}}}}
}

const (
	// minWake keeps a deadline that is just due from making the queue spin.
	minWake = 100 * time.Millisecond
	// refusedRetry is when a refused write is tried again at the latest. A quota or a policy changes without an event
	// that wakes the group.
	refusedRetry = time.Minute
	// minRefusedRetry keeps a deadline that is due, and whose write is refused, from repeating that write at minWake.
	minRefusedRetry = time.Second
)

// Reconcile gathers, decides, applies, and writes the status once. Events go out only after the status that they speak
// of is written.
func (r *CommGroupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.Config.serves(req.Namespace) {
		return ctrl.Result{}, nil // served once, and no longer: it is left to its users
	}
	if r.Access.Refused(req.Namespace) {
		return r.withoutAccess(ctx, req.NamespacedName)
	}
	group := &v1alpha1.CommGroup{}
	if err := r.Client.Get(ctx, req.NamespacedName, group); err != nil {
		if apierrors.IsNotFound(err) {
			r.looks.forget(req.NamespacedName)
			r.gone.forget(req.NamespacedName)
			r.podsRefused.forget(req.NamespacedName)
			r.failedReads.forget(req.NamespacedName)
			r.pace.forget(req.NamespacedName)
			return r.cleanUpAfter(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if !group.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, group)
	}
	leftErr := r.withoutFinalizer(ctx, group)
	if leftErr != nil && !onlyRefusals(leftErr) {
		return ctrl.Result{}, leftErr
	}
	snapshot := r.gather(ctx, group)
	switch err := r.checkLaterRun(ctx, snapshot); {
	case errors.Is(err, errOldRead):
		return ctrl.Result{RequeueAfter: oldReadPoll}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("commgroup %s: %w", req.NamespacedName, err)
	}
	decision := Decide(snapshot, r.Config)
	if len(decision.LookAt) > 0 {
		// No error of the reconcile: the decision has it, and the time of the next look.
		if err := r.lookAt(ctx, snapshot, decision.LookAt); err != nil {
			logf.FromContext(ctx).Error(err, "Could not look for other pods on nodes; trying again soon")
		}
		decision = Decide(snapshot, r.Config)
	}
	if decision.NeedConfigMapLookup {
		if err := r.lookUpConfigMap(ctx, snapshot); err != nil {
			snapshot.ListError = err
		}
		decision = Decide(snapshot, r.Config)
	}
	r.pace.counted(req.NamespacedName, int(decision.Status.Members.Selected))
	if snapshot.ListError != nil {
		return ctrl.Result{}, r.couldNotRead(ctx, snapshot, &decision)
	}
	r.failedReads.forget(req.NamespacedName)
	switch err := r.stillSo(ctx, snapshot, &decision); {
	case errors.Is(err, errOldRead):
		return ctrl.Result{RequeueAfter: oldReadPoll}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("commgroup %s: %w", req.NamespacedName, err)
	}
	add(&decision.refused.others, "delete what an earlier group of this name left", leftErr)
	applyErr := errors.Join(r.apply(ctx, snapshot, &decision), leftErr)
	if errors.Is(applyErr, errOldRead) {
		// no status: it would name the node as guilty
		return ctrl.Result{}, fmt.Errorf("commgroup %s: %w", req.NamespacedName, applyErr)
	}
	if errors.Is(applyErr, errClosureNotWritten) && finishes(snapshot.Group, &decision) {
		// With the run over and nothing to say how it ended on this node, its reason would be lost for good.
		decision = held(snapshot, &decision, decision.Status.Run.Refused)
	}
	runErr := r.writeRun(ctx, snapshot, &decision)
	switch {
	case errors.Is(runErr, errOldRead):
		return ctrl.Result{RequeueAfter: oldReadPoll}, nil
	case runErr != nil && !onlyRefusals(runErr):
		return ctrl.Result{}, errors.Join(runErr, applyErr)
	case runErr != nil && starts(snapshot, &decision): // all else goes on without the run
		add(&decision.refused.others, "create CommRun "+decision.Status.Run.Name, runErr)
		snapshot.StartRefused = runErr
		without := Decide(snapshot, r.Config)
		without.refused, without.WakeAt = decision.refused, decision.WakeAt
		// Those that were to be created with the run's assignment.
		applyErr = errors.Join(applyErr, r.writeCommTasks(ctx, snapshot, &without))
		without.refused.tell(&without, snapshot.Group, snapshot.Now)
		decision, applyErr = without, errors.Join(applyErr, r.writeRun(ctx, snapshot, &without))
	case runErr != nil: // the run stays where it was; the group says why
		add(&decision.refused.others, "write CommRun "+decision.Status.Run.Name, runErr)
		decision = held(snapshot, &decision, nil)
	}
	// The status's error is the first: a conflict of its own is to be found whatever else was refused.
	return afterWrites(ctx, errors.Join(r.writeStatus(ctx, group, &decision), runErr, applyErr),
		decision.WakeAt, snapshot.Now)
}

// starts says whether the decision starts a run.
func starts(s *Snapshot, d *Decision) bool {
	was, is := s.Group.Status.Run, d.Status.Run
	return is != nil && (was == nil || was.ID != is.ID)
}

// held is a decision that leaves the status as it was read, and says what was refused.
func held(s *Snapshot, d *Decision, refused *v1alpha1.RunRefusal) Decision {
	out := Decision{Status: *s.Group.Status.DeepCopy(), WakeAt: d.WakeAt}
	out.running = commgroup.Running(s.Group, out.Status.Run, out.Status.Members, "", "")
	if out.Status.Run != nil && refused != nil {
		out.Status.Run.Refused = refused
	}
	d.refused.tell(&out, s.Group, s.Now)
	return out
}

// readGrace is how long reads may fail before the status says so. A restart of the API server, or the loss of a
// connection, takes less; until then the status stays as it was last known.
const readGrace = time.Minute

// couldNotRead returns the error of the reads, and writes the decision's status, Unknown in all, once they have failed
// for readGrace.
func (r *CommGroupReconciler) couldNotRead(ctx context.Context, s *Snapshot, d *Decision) error {
	key := client.ObjectKeyFromObject(s.Group)
	err := fmt.Errorf("commgroup %s: %w", key, s.ListError)
	if since := r.failedReads.since(key, s.Now); s.Now.Sub(since) < readGrace {
		return err
	}
	return errors.Join(err, r.writeStatus(ctx, s.Stored, d))
}

// failedReads is since when the reads of groups fail. No decision needs it: a new manager begins its grace again.
type failedReads struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]time.Time
}

// since is when the group's reads began to fail, which is now unless they failed before.
func (f *failedReads) since(group types.NamespacedName, now time.Time) time.Time {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.groups == nil {
		f.groups = map[types.NamespacedName]time.Time{}
	}
	if at, ok := f.groups[group]; ok {
		return at
	}
	f.groups[group] = now
	return now
}

func (f *failedReads) forget(group types.NamespacedName) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.groups, group)
}

// afterWrites returns when to reconcile again after the writes returned err; wakeAt is the decision's next wake-up,
// zero for none. A refusal is in the conditions, or in the log alone where the status is refused, and lasts until
// somebody acts. It is no error of the reconcile: the back-off of one would replace the wake-up, and a run's deadline
// would be seen late.
func afterWrites(ctx context.Context, err error, wakeAt, now time.Time) (ctrl.Result, error) {
	switch {
	case err == nil && wakeAt.IsZero():
		return ctrl.Result{}, nil
	case err == nil:
		return ctrl.Result{RequeueAfter: max(minWake, wakeAt.Sub(now))}, nil
	case !onlyRefusals(err):
		return ctrl.Result{}, err
	}
	again := refusedRetry
	if !wakeAt.IsZero() {
		again = min(again, max(minRefusedRetry, wakeAt.Sub(now)))
	}
	logf.FromContext(ctx).Info("The API server refused writes; trying again", "after", again.String(),
		"refused", err.Error())
	return ctrl.Result{RequeueAfter: again}, nil
}

// finishes says whether the decision ends the group's run, or the part of it that the nodes do alone.
func finishes(group *state.Group, d *Decision) bool {
	was, is := group.Status.Run, d.Status.Run
	if was == nil || is == nil || was.Phase != v1alpha1.RunPhaseRunning {
		return false
	}
	alone := func(s *v1alpha1.SpanStatus) bool {
		return s == nil || s.RunID != is.ID || s.Stage == v1alpha1.StageNodes
	}
	return is.Phase == v1alpha1.RunPhaseFinished || alone(group.Status.Span) && !alone(d.Status.Span)
}

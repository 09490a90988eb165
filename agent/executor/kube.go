package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/commtask"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	// watchFor is how long one watch lasts before the CommTask is listed again, which finds what a watch may have lost.
	watchFor = 5 * time.Minute
	// watchSlack is how much longer a watch is waited for that the API server should have ended.
	watchSlack = 30 * time.Second
	// pollEvery is how often a CommTask is read that may not be watched: 12,500 agents are 1,250 reads a second then.
	pollEvery = 10 * time.Second
	retryMin  = time.Second
	retryMax  = 30 * time.Second
)

// KubeTask is a node's CommTask as a run's pods use it: the Reporter of one stage, which claims status.run alone, and
// the Link of the other, which claims status.session alone.
type KubeTask struct {
	Client client.WithWatch
	// Name of the CommTask.
	Name types.NamespacedName
	// RunID that is carried out.
	RunID string
	Clock clock.Clock
	Log   *slog.Logger
}

func (k KubeTask) ref() commtask.Ref { return commtask.Ref{Client: k.Client, Name: k.Name} }

// Assignment implements Reporter.
func (k KubeTask) Assignment(ctx context.Context) (Assignment, error) {
	node, err := k.ref().Get(ctx)
	if err != nil {
		return Assignment{}, err
	}
	group := types.NamespacedName{Namespace: node.Namespace, Name: node.Spec.Group.Name}
	a := Assignment{Group: group, Run: node.Spec.Run, Ranks: int(node.Spec.Ranks.Count), Reported: node.Status.Run,
		BudgetBytes: reportBudget(*node)}
	if a.Run == nil || a.Run.ID != k.RunID || a.Run.Closed != nil {
		return a, nil
	}
	run, err := k.commRun(ctx, a.Run.Name)
	if err != nil {
		return Assignment{}, err
	}
	a.Plan = planOf(run)
	return a, nil
}

// commRun reads the run's CommRun; commtask.ErrSuperseded where there is none.
func (k KubeTask) commRun(ctx context.Context, name string) (*api.CommRun, error) {
	var run api.CommRun
	key := types.NamespacedName{Namespace: k.Name.Namespace, Name: name}
	// What all members read at the same time comes from the API server's cache, where that has it.
	cached := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
	if err := k.Client.Get(ctx, key, &run, cached); err == nil && checkRun(&run, k.RunID) == nil {
		return &run, nil
	}
	run = api.CommRun{}
	if err := k.Client.Get(ctx, key, &run); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: CommRun %s does not exist", commtask.ErrSuperseded, key)
	} else if err != nil {
		return nil, fmt.Errorf("get CommRun %s: %w", key, err)
	}
	return &run, checkRun(&run, k.RunID)
}

// errMayNotWatch: the agent's role lacks list or watch on commtasks.
var errMayNotWatch = errors.New("the CommTask may not be watched")

// watching tells that right from others that an answer may be about.
func watching(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", errMayNotWatch, err)
	}
	return err
}

// Follow implements Link by a watch of that one object, which costs the API server nothing for the changes of others:
// it keeps such watchers by name (kubernetes staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go).
func (k KubeTask) Follow(ctx context.Context, see func(Seen)) {
	f := following{KubeTask: k, see: see}
	wait, polling := retryMin, false
	for ctx.Err() == nil {
		var err error
		if polling {
			err = f.poll(ctx)
		} else {
			err = f.watchOnce(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && polling:
			wait = pollEvery
		case err == nil:
			wait = retryMin
		case errors.Is(err, errMayNotWatch) && !polling:
			k.Log.Warn("the CommTask may not be watched, so that it is read again and again; give the agent's role "+
				"the verbs list and watch on commtasks", "every", pollEvery.String(), "error", err)
			polling = true
			continue
		default:
			see(Seen{Err: err})
			wait = min(2*wait, retryMax)
		}
		pause(ctx, k.Clock, jittered(wait))
	}
}

// jittered spreads many agents that wait for the same: from d to one and a half d.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

// following is one Follow under way.
type following struct {
	KubeTask
	see func(Seen)
	// run is the CommRun of the session. What is taken of it does not change, so that it is read once.
	run *api.CommRun
}

// poll reads the CommTask once.
func (f *following) poll(ctx context.Context) error {
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	node, err := f.ref().Get(actx)
	switch {
	case errors.Is(err, commtask.ErrSuperseded):
		f.see(Seen{Gone: true})
		return nil
	case err != nil:
		return err
	}
	return f.tell(ctx, *node)
}

// tell tells what a CommTask says.
func (f *following) tell(ctx context.Context, node api.CommTask) error {
	s := node.Spec.Session
	asks := s != nil && s.RunID == f.RunID && s.State != api.SessionClosed && node.DeletionTimestamp == nil
	if asks && f.run == nil {
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		run, err := f.commRun(actx, s.RunName)
		switch {
		case errors.Is(err, commtask.ErrSuperseded):
			f.see(Seen{Gone: true, Why: fmt.Sprintf("CommRun %s/%s does not exist", f.Name.Namespace, s.RunName)})
			return nil
		case err != nil:
			return err
		}
		f.run = run
	}
	f.see(seenOf(node, f.run))
	return nil
}

// watchOnce lists the CommTask and then watches it until the watch ends. nil means that it ended in order.
func (f *following) watchOnce(ctx context.Context) error {
	var list api.CommTaskList
	only := []client.ListOption{client.InNamespace(f.Name.Namespace),
		client.MatchingFields{"metadata.name": f.Name.Name}}
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	err := f.Client.List(actx, &list, only...)
	cancel()
	if err != nil {
		return fmt.Errorf("list CommTask %s: %w", f.Name, watching(err))
	}
	if len(list.Items) == 0 {
		f.see(Seen{Gone: true})
	} else if err := f.tell(ctx, list.Items[0]); err != nil {
		return err
	}
	seconds := int64(jittered(watchFor) / time.Second)
	w, err := f.Client.Watch(ctx, &api.CommTaskList{}, append(only, &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds}})...)
	if err != nil {
		return fmt.Errorf("watch CommTask %s: %w", f.Name, watching(err))
	}
	defer w.Stop()
	timer := f.Clock.NewTimer(time.Duration(seconds)*time.Second + watchSlack)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C():
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if done, err := f.onEvent(ctx, e); done {
				return err
			}
		}
	}
}

// onEvent takes in one event of the watch; done where the watch is of no more use.
func (f *following) onEvent(ctx context.Context, e watch.Event) (done bool, err error) {
	switch e.Type {
	case watch.Deleted:
		f.see(Seen{Gone: true})
	case watch.Added, watch.Modified:
		if node, ok := e.Object.(*api.CommTask); ok {
			err := f.tell(ctx, *node)
			return err != nil, err
		}
	case watch.Error:
		err := apierrors.FromObject(e.Object)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return true, nil // what was missed is in the next list
		}
		return true, fmt.Errorf("watch CommTask %s: %w", f.Name, err)
	}
	return false, nil
}

// seenOf is what a CommTask says of the session.
func seenOf(node api.CommTask, run *api.CommRun) Seen {
	if node.DeletionTimestamp != nil {
		return Seen{Gone: true}
	}
	s := asked(node.Spec, run)
	s.Reported = node.Status.Session.DeepCopy()
	s.BudgetBytes = sessionBudget(node)
	return s
}

// ReportRun implements Reporter.
func (k KubeTask) ReportRun(ctx context.Context, status api.NodeRunStatus) error {
	return k.report(ctx, "run", api.FieldManagerRun, &status, func(spec api.CommTaskSpec) string {
		switch run := spec.Run; {
		case run == nil:
			return "the CommTask asks for no run any more"
		case run.ID != k.RunID:
			return fmt.Sprintf("the CommTask asks for run %s, this is %s", run.ID, k.RunID)
		case run.Closed != nil:
			return fmt.Sprintf("the controller closed run %s: %s", k.RunID, run.Closed.Message)
		}
		return ""
	})
}

// ReportSession implements Link.
func (k KubeTask) ReportSession(ctx context.Context, status api.SessionStatus) error {
	return k.report(ctx, "session", api.FieldManagerSession, &status, func(spec api.CommTaskSpec) string {
		switch a := spec.Session; {
		case a == nil:
			return "the CommTask asks for no session any more"
		case a.RunID != k.RunID:
			return fmt.Sprintf("the CommTask asks for the session of run %s, this is of run %s", a.RunID, k.RunID)
		}
		return ""
	})
}

// report writes one part of a CommTask's status. It reads the CommTask first, so that a late report never hides that
// of a newer run: superseded says why nobody waits for the report, and is empty where somebody does.
func (k KubeTask) report(ctx context.Context, part, owner string, status any,
	superseded func(api.CommTaskSpec) string) error {
	node, err := k.ref().Get(ctx)
	if err != nil {
		return err
	}
	if why := superseded(node.Spec); why != "" {
		return fmt.Errorf("%w: CommTask %s: %s", commtask.ErrSuperseded, k.Name, why)
	}
	return k.ref().Apply(ctx, node.UID, part, owner, status)
}

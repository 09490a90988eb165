package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// Seen is what the CommTask says of the session at one moment.
type Seen struct {
	// Gone is set where there is no CommTask, or it is being deleted, or its CommRun is gone; all else is empty then,
	// but for Why, which says so of the CommRun.
	Gone bool
	Why  string
	// Session is nil while none is asked for.
	Session *api.SessionAssignment
	// Plan and Network are those of the CommRun, where a session is asked for.
	Plan    api.RunPlan
	Network api.NetworkSpec
	// Reported is the last report, if any.
	Reported *api.SessionStatus
	// BudgetBytes is what a report may take as JSON.
	BudgetBytes int
	// Err is why nothing was seen. The session goes on with what it knows.
	Err error
}

// asked is what a CommTask's spec asks for, and its CommRun, which is nil without a session.
func asked(spec api.CommTaskSpec, run *api.CommRun) Seen {
	s := Seen{Session: spec.Session.DeepCopy()}
	if s.Session != nil && run != nil {
		s.Plan, s.Network = planOf(run), run.Status.Template.Network
		s.Network.AddressFamily = cmp.Or(s.Session.AddressFamily, s.Network.AddressFamily)
	}
	return s
}

// planOf is the plan of a CommRun that has one.
func planOf(run *api.CommRun) api.RunPlan {
	plan := *run.Status.Plan.DeepCopy()
	plan.Env = api.WithoutComputed(plan.Env)
	return plan
}

// errNoPlan: the CommRun does not say what to do in the run.
var errNoPlan = errors.New("no plan")

// checkRun says why a CommRun does not say what to do in the run of an id.
func checkRun(run *api.CommRun, id string) error {
	switch {
	case run.Status.ID != id:
		return fmt.Errorf("%w: CommRun %s/%s is of run %q, not of run %s",
			errNoPlan, run.Namespace, run.Name, run.Status.ID, id)
	case run.Status.Plan == nil || run.Status.Template == nil:
		return fmt.Errorf("%w: CommRun %s/%s has no status.plan or no status.template; its manager may be of "+
			"another version", errNoPlan, run.Namespace, run.Name)
	}
	return nil
}

// Link is the way to the CommTask.
type Link interface {
	// Follow tells what the CommTask says, as it is first and after each change, until ctx ends. It may tell the same
	// twice, and leave out what was replaced by something newer. see does not block.
	Follow(ctx context.Context, see func(Seen))
	// ReportSession writes status.session, unless the CommTask asks for another session (commtask.ErrSuperseded).
	ReportSession(ctx context.Context, status api.SessionStatus) error
}

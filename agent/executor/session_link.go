package executor

import (
	"context"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// Seen is what the CommTask says of the session at one moment.
type Seen struct {
	// Gone is set where there is no CommTask, or it is being deleted; all else is empty then.
	Gone bool
	// Session is nil while none is asked for.
	Session *api.SessionAssignment
	// Env and LibraryPath are those of the node's own part in the run: they are the same for both, and are in the CommTask once.
	Env         []api.EnvVar
	LibraryPath string
	// Reported is the last report, if any.
	Reported *api.SessionStatus
	// BudgetBytes is what a report may take as JSON.
	BudgetBytes int
	// Err is why nothing was seen. The session goes on with what it knows.
	Err error
}

// asked is what a CommTask's spec asks for.
func asked(spec api.CommTaskSpec) Seen {
	s := Seen{Session: spec.Session.DeepCopy()}
	if spec.Run != nil {
		s.Env, s.LibraryPath = api.WithoutComputed(spec.Run.Plan.Env), spec.Run.Plan.LibraryPath
	}
	return s
}

// Link is the way to the CommTask.
type Link interface {
	// Follow tells what the CommTask says, as it is first and after each change, until ctx ends. It may tell the same twice,
	// and leave out what was replaced by something newer. see does not block.
	Follow(ctx context.Context, see func(Seen))
	// Report writes status.session, unless the CommTask asks for another session (commtask.ErrSuperseded).
	Report(ctx context.Context, status api.SessionStatus) error
}

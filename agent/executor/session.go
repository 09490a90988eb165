package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/internal/clip"
)

// uniqueIDBytes is the size of ncclUniqueId (nccl.h).
const uniqueIDBytes = 128

const (
	// defaultIdle is how long a session waits for a task where the assignment does not say.
	defaultIdle = 5 * time.Minute
	// idGrace is how long a node with rank 0 of several communicators waits to publish all of their ids in one write.
	idGrace = 2 * time.Second
	// prepareDeadline bounds the preparation beside the loading of the library, for which the assignment has a
	// deadline.
	prepareDeadline = 2 * time.Minute
)

// Preparer gets a node ready, as Node does.
type Preparer interface {
	Prepare(ctx context.Context, p Preparation) (Prepared, *supervise.Failure)
}

// Session is one node's part in the group's stage of one run.
type Session struct {
	Node
	Config   Config
	Link     Link
	Network  network.Host
	Preparer Preparer
}

// SessionResult is what a session came to.
type SessionResult struct {
	// Status as it was last reported or tried to.
	Status api.SessionStatus
	// Reported says that the API server took it.
	Reported bool
	// Tasks that were carried out to their end.
	Tasks int
}

// Run waits for the session, gets the node ready, and carries out tasks until the CommTask says that none follows.
// The error is nil where a last report was written, whatever it says; else it says why none was.
func (s *Session) Run(ctx context.Context) (SessionResult, error) {
	fctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mailbox := newNewest[Seen]()
	go s.Link.Follow(fctx, mailbox.put)
	first, err := s.await(ctx, mailbox)
	if err != nil {
		return SessionResult{}, err
	}
	if r := first.Reported; r != nil && r.RunID == s.Config.RunID &&
		(r.State == api.SessionFailed || r.State == api.SessionEnded) {
		s.Log.Info("this session was already over", "state", r.State, "reason", r.Reason)
		return SessionResult{Status: *r, Reported: true}, nil
	}
	l := newLoop(s, mailbox, first)
	defer func() { l.prepared.Release() }()
	return l.run(ctx)
}

// await waits until the CommTask asks for this session.
func (s *Session) await(ctx context.Context, mailbox newest[Seen]) (Seen, error) {
	what := fmt.Sprintf("node %s: waited %s for the session of run %s", s.Name, s.Config.Wait, s.Config.RunID)
	saw := "nothing"
	timer := s.Clock.NewTimer(s.Config.Wait)
	defer timer.Stop()
	for {
		select {
		case seen := <-mailbox:
			switch {
			case seen.Err != nil:
				saw = seen.Err.Error()
			case seen.Gone:
				return seen, fmt.Errorf("node %s: %w: %s",
					s.Name, commtask.ErrSuperseded, cmp.Or(seen.Why, "the CommTask does not exist"))
			case seen.Session == nil:
				saw = "a CommTask that asks for no session"
			case seen.Session.RunID != s.Config.RunID:
				saw = "a CommTask that asks for the session of run " + seen.Session.RunID
			case seen.Session.State == api.SessionClosed:
				return seen, fmt.Errorf("node %s: %w: the session of run %s has ended",
					s.Name, commtask.ErrSuperseded, s.Config.RunID)
			case seen.Session.Ranks < 1:
				saw = "a session that wants no ranks of this node"
			default:
				return seen, nil
			}
		case <-timer.C():
			return Seen{}, fmt.Errorf("%s, saw %s: the run may have been superseded; check spec.session of the "+
				"CommTask, its CommRun, and the pod's access to both", what, saw)
		case <-ctx.Done():
			return Seen{}, fmt.Errorf("node %s: interrupted while waiting for the session of run %s: %w",
				s.Name, s.Config.RunID, context.Cause(ctx))
		}
	}
}

// loop is a session under way. Only run's own goroutine reads and writes it.
type loop struct {
	*Session
	mailbox newest[Seen]
	seen    Seen
	status  api.SessionStatus
	// prepared is what the node has to give back when the session is over.
	prepared Prepared

	running *running      // the present or last task
	last    *api.NodeTask // taken up last, with the ids that are known; nil once withdrawn
	next    *api.NodeTask // to be taken up once the present one's ranks are gone
	events  chan event
	gone    chan struct{} // closed where nobody reads events any more
	reports *background[api.SessionStatus]
	idle    time.Time // since when there is no task
	tasks   int
}

func newLoop(s *Session, mailbox newest[Seen], first Seen) *loop {
	l := &loop{Session: s, mailbox: mailbox, seen: first, prepared: Prepared{Release: func() {}},
		events: make(chan event, 64), gone: make(chan struct{})}
	l.status = api.SessionStatus{RunID: s.Config.RunID}
	if r := first.Reported; r != nil && r.RunID == s.Config.RunID {
		l.status.Task = r.Task.DeepCopy()
	}
	return l
}

// ending is why a session ends.
type ending struct {
	state           api.SessionState
	reason, message string
	// err is set where nobody waits for a report.
	err error
}

func (l *loop) run(ctx context.Context) (SessionResult, error) {
	defer close(l.gone)
	defer func() {
		if l.running != nil {
			l.running.stop()
		}
	}()
	l.reports = l.reporter().start()
	defer l.reports.stop()
	e := l.prepare(ctx)
	if e == nil {
		l.status.State = api.SessionReady
		l.idle = l.Clock.Now()
		l.report()
		e = l.work(ctx)
	}
	if e.err != nil {
		return l.result(false), fmt.Errorf("node %s: %w", l.Name, e.err)
	}
	l.status.State, l.status.Reason, l.status.Message = e.state, e.reason, clip.Head(e.message, 1024)
	l.Log.Info("session over", "state", e.state, "reason", e.reason, "message", e.message, "tasks", l.tasks)
	l.reports.stop()
	_, err := l.reporter().last(ctx, l.fitted(), l.Config.ReportGrace, l.Config.InterruptedGrace)
	if err != nil {
		err = fmt.Errorf("node %s: the session of run %s is over (%s %s), but the report could not be written: %w",
			l.Name, l.Config.RunID, e.state, e.reason, err)
	}
	return l.result(err == nil), err
}

func (l *loop) result(reported bool) SessionResult {
	return SessionResult{Status: l.status, Reported: reported, Tasks: l.tasks}
}

func (s *Session) reporter() reporter[api.SessionStatus] {
	return reporter[api.SessionStatus]{write: s.Link.ReportSession, verdictOnly: verdictsOnly,
		clock: s.Clock, log: s.Log}
}

func (l *loop) report() { l.reports.put(l.fitted()) }

// fitted is the status in the form that is reported now.
func (l *loop) fitted() api.SessionStatus {
	now := metav1.NewMicroTime(l.Clock.Now().UTC())
	s := *l.status.DeepCopy()
	if s.Network != nil {
		s.Network.Clock = &now
	}
	var keep []int64
	if l.running != nil {
		keep = l.running.task.KeepSizesBytes
	}
	return FitSession(s, l.seen.BudgetBytes, keep)
}

// readiness is how far a node came with getting ready.
type readiness struct {
	network  *api.NetworkStatus
	prepared Prepared
	// failure is nil where the node can take part.
	failure *ending
}

// getReady resolves the network, looks at the node and loads the library.
func (s *Session) getReady(ctx context.Context, seen Seen) readiness {
	a := seen.Session
	failed := func(reason, message string) *ending {
		return &ending{state: api.SessionFailed, reason: reason, message: message}
	}
	st, problem := network.Resolve(s.Network, s.request(seen))
	r := readiness{network: &st, prepared: Prepared{Release: func() {}}}
	if problem != nil {
		r.failure = failed(problem.Reason, problem.Message)
		return r
	}
	// The family is agreed on later, and must not make the settings of an agent that starts late another's.
	env := s.environment(seen, st, api.AddressFamilyAuto)
	plan := baselinePlan(env, seen.Plan.LibraryPath, seen.Plan.InitDeadlineSeconds)
	var failure *supervise.Failure
	r.prepared, failure = s.Preparer.Prepare(ctx,
		Preparation{RunID: a.RunID, Ranks: int(a.Ranks), Nodes: int(a.Members),
			Plan: plan, Deadline: s.Clock.Now().Add(seconds(seen.Plan.InitDeadlineSeconds) + prepareDeadline)})
	if failure != nil {
		_, reason := verdictOf(*failure)
		r.failure = failed(reason, failure.Message)
	} else if f := preflight.FirstFailed(network.RequireRDMA(seen.Network, r.prepared.Preconditions)); f != nil {
		r.failure = failed(api.ReasonPreconditionFailed,
			fmt.Sprintf("%s: node %s: %s", f.Name, s.Name, f.Advised(audience.Pod)))
	}
	return r
}

// prepare gets the node ready. nil means that it can take part.
func (l *loop) prepare(ctx context.Context) *ending {
	pctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan readiness, 1)
	first := l.seen
	go func() { done <- l.getReady(pctx, first) }()
	var why *ending
	for {
		select {
		case r := <-done:
			l.prepared, l.status.Network = r.prepared, r.network
			switch {
			case why != nil:
				return why
			case ctx.Err() != nil:
				return l.interrupted(ctx)
			case r.failure != nil:
				return r.failure
			}
			l.status.Library = libraryFacts(l.prepared.Library)
			l.status.SettingsHash = l.prepared.Library.SettingsHash
			return nil
		case seen := <-l.mailbox:
			if e := l.look(seen); e != nil && why == nil {
				why = e
				cancel(errors.New(e.message))
			}
		}
	}
}

// look takes in what the CommTask says, but for its task. It returns why the session is over, if it is.
func (l *loop) look(seen Seen) *ending {
	if seen.Err != nil {
		l.Log.Warn("the CommTask could not be read", "error", seen.Err)
		return nil
	}
	o, why := decide(l.Config.RunID, l.last, seen)
	switch o {
	case superseded:
		return &ending{err: fmt.Errorf("%w: %s; the ranks were ended", commtask.ErrSuperseded, why)}
	case end:
		l.seen = seen
		return &ending{state: api.SessionEnded}
	}
	l.seen = seen
	return nil
}

func (l *loop) interrupted(ctx context.Context) *ending {
	return &ending{state: api.SessionFailed, reason: api.ReasonInterrupted, message: fmt.Sprintf(
		"node %s: the group's stage was interrupted (%v): the pod was evicted or deleted, or the node shuts down; "+
			"the next run takes the node in again",
		l.Name, context.Cause(ctx))}
}

// verdictsOnly is a report that any API server of this version takes.
func verdictsOnly(s api.SessionStatus, cause error) api.SessionStatus {
	out := api.SessionStatus{RunID: s.RunID, State: s.State, Reason: s.Reason, Message: s.Message, Network: s.Network,
		Library: s.Library, SettingsHash: s.SettingsHash}
	if s.Task == nil {
		return out
	}
	out.Task = &api.NodeTaskStatus{ID: s.Task.ID, Phase: s.Task.Phase}
	for _, c := range s.Task.Communicators {
		out.Task.Communicators = append(out.Task.Communicators,
			api.TaskCommunicatorStatus{Name: c.Name, UniqueID: c.UniqueID, Verdict: c.Verdict, Reason: c.Reason,
				OmittedSeries: c.OmittedSeries + int32(len(c.Results)), Message: clip.Head(clip.Head(c.Message, 300)+
					"; details are only in the pod's log, since the API server rejected them: "+cause.Error(), 512)})
	}
	return out
}

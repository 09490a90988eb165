package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/commnode"
	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/runner"
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
	// prepareDeadline bounds the preparation beside the loading of the library, for which the assignment has a deadline.
	prepareDeadline = 2 * time.Minute
)

// Config says which session to carry out.
type Config struct {
	Node, RunID string
	// WaitForSession bounds the wait for the CommNode to ask for the session.
	WaitForSession time.Duration
	// ReportGrace is how long after the session's end its last report is still tried; InterruptedGrace how long after SIGTERM,
	// which must fit the pod's grace period.
	ReportGrace, InterruptedGrace time.Duration
}

// Preparer looks at the node and loads the library once, as runner.Runner does.
type Preparer interface {
	Prepare(ctx context.Context, p runner.Preparation) (runner.Prepared, *supervise.Failure)
}

// Session is one node's part in the group's stage of one run.
type Session struct {
	Config   Config
	Link     Link
	Host     network.Host
	Preparer Preparer
	Teams    supervise.TeamRunner
	Clock    clock.Clock
	// Environ is the pod's environment, as os.Environ gives it; PodIP its address, empty outside of Kubernetes.
	Environ []string
	PodIP   string
	Log     *slog.Logger
}

// Result is what a session came to.
type Result struct {
	// Status as it was last reported or tried to.
	Status api.SessionStatus
	// Reported says that the API server took it.
	Reported bool
	// Tasks that were carried out to their end.
	Tasks int
}

// Run waits for the session, gets the node ready, and carries out tasks until the CommNode says that none follows. The error
// is nil where a last report was written, whatever it says; else it says why none was.
func (s *Session) Run(ctx context.Context) (Result, error) {
	fctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mailbox := newNewest[Seen]()
	go s.Link.Follow(fctx, mailbox.put)
	first, err := s.await(ctx, mailbox)
	if err != nil {
		return Result{}, err
	}
	if r := first.Reported; r != nil && r.RunID == s.Config.RunID && (r.State == api.SessionFailed || r.State == api.SessionEnded) {
		s.Log.Info("this session was already over", "state", r.State, "reason", r.Reason)
		return Result{Status: *r, Reported: true}, nil
	}
	l := newLoop(s, mailbox, first)
	defer func() { l.release() }()
	return l.run(ctx)
}

// await waits until the CommNode asks for this session.
func (s *Session) await(ctx context.Context, mailbox newest[Seen]) (Seen, error) {
	what := fmt.Sprintf("node %s: waited %s for the session of run %s", s.Config.Node, s.Config.WaitForSession, s.Config.RunID)
	saw := "nothing"
	timer := s.Clock.NewTimer(s.Config.WaitForSession)
	defer timer.Stop()
	for {
		select {
		case seen := <-mailbox:
			switch {
			case seen.Err != nil:
				saw = seen.Err.Error()
			case seen.Gone:
				return seen, fmt.Errorf("node %s: %w: the CommNode does not exist", s.Config.Node, commnode.ErrSuperseded)
			case seen.Session == nil:
				saw = "a CommNode that asks for no session"
			case seen.Session.RunID != s.Config.RunID:
				saw = "a CommNode that asks for the session of run " + seen.Session.RunID
			case seen.Session.State == api.SessionClosed:
				return seen, fmt.Errorf("node %s: %w: the session of run %s has ended", s.Config.Node, commnode.ErrSuperseded, s.Config.RunID)
			case seen.Session.Ranks < 1:
				saw = "a session that wants no ranks of this node"
			default:
				return seen, nil
			}
		case <-timer.C():
			return Seen{}, fmt.Errorf("%s, saw %s: the run may have been superseded; check the CommNode's spec.session and the pod's access to it", what, saw)
		case <-ctx.Done():
			return Seen{}, fmt.Errorf("node %s: interrupted while waiting for the session of run %s: %w", s.Config.Node, s.Config.RunID, context.Cause(ctx))
		}
	}
}

// loop is a session under way. Only run's own goroutine reads and writes it.
type loop struct {
	*Session
	mailbox newest[Seen]
	seen    Seen
	status  api.SessionStatus
	pci     []string
	lib     runner.Prepared
	release func()

	running *running      // the present or last task
	last    *api.NodeTask // taken up last, with the ids that are known; nil once withdrawn
	next    *api.NodeTask // to be taken up once the present one's ranks are gone
	events  chan event
	gone    chan struct{} // closed where nobody reads events any more
	reports *reports
	idle    time.Time // since when there is no task
	tasks   int
}

func newLoop(s *Session, mailbox newest[Seen], first Seen) *loop {
	l := &loop{Session: s, mailbox: mailbox, seen: first, release: func() {}, events: make(chan event, 64), gone: make(chan struct{})}
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

func (l *loop) run(ctx context.Context) (Result, error) {
	defer close(l.gone)
	defer func() {
		if l.running != nil {
			l.running.stop()
		}
	}()
	l.reports = startReports(l.Session)
	defer l.reports.stop()
	e := l.prepare(ctx)
	if e == nil {
		l.status.State = api.SessionReady
		l.idle = l.Clock.Now()
		l.report()
		e = l.work(ctx)
	}
	if e.err != nil {
		return l.result(false), fmt.Errorf("node %s: %w", l.Config.Node, e.err)
	}
	l.status.State, l.status.Reason, l.status.Message = e.state, e.reason, clip.Head(e.message, 1024)
	l.Log.Info("session over", "state", e.state, "reason", e.reason, "message", e.message, "tasks", l.tasks)
	grace := l.Config.ReportGrace
	if ctx.Err() != nil {
		grace = min(grace, l.Config.InterruptedGrace)
	}
	err := l.reports.last(l.fitted(), grace)
	if err != nil {
		err = fmt.Errorf("node %s: the session of run %s is over (%s %s), but the report could not be written: %w", l.Config.Node, l.Config.RunID, e.state, e.reason, err)
	}
	return l.result(err == nil), err
}

func (l *loop) result(reported bool) Result {
	return Result{Status: l.status, Reported: reported, Tasks: l.tasks}
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
	return Fit(s, l.seen.BudgetBytes, keep)
}

// prepare resolves the network, looks at the node and loads the library. nil means that the node can take part.
func (l *loop) prepare(ctx context.Context) *ending {
	pctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type outcome struct {
		network  *api.NetworkStatus
		prepared runner.Prepared
		failure  *ending
	}
	done := make(chan outcome, 1)
	seen := l.seen
	a := seen.Session
	go func() {
		var o outcome
		o.prepared.Release = func() {}
		st, problem := network.Resolve(l.Host, l.request(seen))
		o.network = &st
		if problem != nil {
			o.failure = &ending{state: api.SessionFailed, reason: problem.Reason, message: problem.Message}
			done <- o
			return
		}
		var failed *supervise.Failure
		// The family is agreed on later, and must not make the settings of an agent that starts late another's.
		init := seconds(a.InitDeadlineSeconds)
		o.prepared, failed = l.Preparer.Prepare(pctx, runner.Preparation{RunID: a.RunID, Ranks: int(a.Ranks), Nodes: int(a.Members),
			Env: l.environment(seen, st, api.AddressFamilyAuto), LibraryPath: seen.LibraryPath, InitDeadline: init, Deadline: l.Clock.Now().Add(init + prepareDeadline)})
		if failed != nil {
			_, reason := verdictOf(*failed)
			o.failure = &ending{state: api.SessionFailed, reason: reason, message: failed.Message}
		} else if f := preflight.FirstFailed(network.RequireRDMA(a.Network, o.prepared.Preconditions)); f != nil {
			o.failure = &ending{state: api.SessionFailed, reason: api.ReasonPreconditionFailed, message: fmt.Sprintf("%s: node %s: %s", f.Name, l.Config.Node, f.Advised(audience.Pod))}
		}
		done <- o
	}()
	var why *ending
	for {
		select {
		case o := <-done:
			l.release = o.prepared.Release
			l.status.Network = o.network
			switch {
			case why != nil:
				return why
			case ctx.Err() != nil:
				return l.interrupted(ctx)
			case o.failure != nil:
				return o.failure
			}
			l.lib, l.pci = o.prepared, o.prepared.PCI
			l.status.Library = runner.LibraryFacts(o.prepared.Library)
			l.status.SettingsHash = o.prepared.Library.SettingsHash
			return nil
		case seen := <-l.mailbox:
			if e := l.look(seen); e != nil && why == nil {
				why = e
				cancel(errors.New(e.message))
			}
		}
	}
}

// look takes in what the CommNode says, but for its task. It returns why the session is over, if it is.
func (l *loop) look(seen Seen) *ending {
	if seen.Err != nil {
		l.Log.Warn("the CommNode could not be read", "error", seen.Err)
		return nil
	}
	o, why := decide(l.Config.RunID, l.last, seen)
	switch o {
	case superseded:
		return &ending{err: fmt.Errorf("%w: %s; the ranks were ended", commnode.ErrSuperseded, why)}
	case end:
		l.seen = seen
		return &ending{state: api.SessionEnded}
	}
	l.seen = seen
	return nil
}

func (l *loop) interrupted(ctx context.Context) *ending {
	return &ending{state: api.SessionFailed, reason: api.ReasonInterrupted, message: fmt.Sprintf(
		"node %s: the group's stage was interrupted (%v): the pod was evicted or deleted, or the node shuts down; the next run takes the node in again",
		l.Config.Node, context.Cause(ctx))}
}

func seconds(s int32) time.Duration { return time.Duration(s) * time.Second }

package supervise

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/rank"
)

// The deadlines that a Team gets where it names none.
const (
	defaultExitDeadline = 30 * time.Second
	// lateShare of a deadline: an error in the last tenth is late. Ranks begin a step within moments of each other.
	lateShare           = 10
	defaultReapDeadline = 30 * time.Second
)

// Supervisor runs teams of rank processes. Nothing that it starts outlives a call of Run, but for a process that
// SIGKILL does not end within the reap deadline; Run names that one.
type Supervisor struct {
	Launcher Launcher
	Clock    clock.Clock
	// RAS is asked what the library knows when ranks are late; nil means the service itself.
	RAS AskRAS
}

// supervision is one team being run.
type supervision struct {
	clock    clock.Clock
	team     Team
	ranks    ranks
	failures failures
	killed   bool
	freed    time.Duration // from the first failure to the last process's end
	ras      rasWatch
	// processState is /proc/PID/stat's state of a process.
	processState func(pid int) string
}

func newSupervision(c clock.Clock, team Team) *supervision {
	return &supervision{clock: c, team: team, ranks: ranksOf(team.Specs), processState: stateOf}
}

// Run starts the team's ranks, watches them to their end and returns what became of them. It ends the whole team at the
// first failure, since the ranks of a broken communicator only wait for one another.
func (s *Supervisor) Run(ctx context.Context, team Team) Outcome {
	if team.ExitDeadline == 0 {
		team.ExitDeadline = defaultExitDeadline
	}
	if team.ReapDeadline == 0 {
		team.ReapDeadline = defaultReapDeadline
	}
	v := newSupervision(s.Clock, team)
	if v.ras.ask = s.RAS; v.ras.ask == nil {
		v.ras.ask = askRAS
	}
	release := v.prepareRAS()
	defer release()
	began := s.Clock.Now()
	messages := make(chan message, 64)
	stop := make(chan struct{})
	defer close(stop)
	v.startAll(s.Launcher, messages, stop)
	v.loop(ctx, messages, stop)
	v.ras.stop()
	out := Outcome{Team: team.Name, Failure: v.failures.blame(v.ranks),
		Duration: s.Clock.Since(began), KillDuration: v.freed}
	for _, r := range v.ranks {
		if r.process != nil {
			r.StdoutTail, r.StderrTail = r.process.stdout.String(), r.process.stderr.String()
		}
		out.Ranks = append(out.Ranks, r.RankOutcome)
	}
	return out
}

func (v *supervision) startAll(l Launcher, messages chan<- message, stop <-chan struct{}) {
	argv, err := l.argv()
	for i, r := range v.ranks {
		r.exited = true
		if err != nil {
			continue
		}
		var output io.WriteCloser
		if v.team.Output != nil {
			output = v.team.Output(i)
		}
		env := v.team.Env
		if r.Rank == 0 {
			env = append(env[:len(env):len(env)], v.team.RootEnv...)
		}
		if r.process, err = start(argv, env, i, output, v.clock.Now, messages, stop); err != nil {
			v.fail(Failure{Kind: FailStart, Rank: i, Step: "start",
				Message: v.at(i, "could not be started: "+err.Error()+"; "+noProcess.For(v.team.Audience))})
			continue
		}
		r.exited = false
		r.ProcessID, r.Since = r.process.cmd.Process.Pid, v.clock.Now()
		v.setDeadline(r, r.spec.InitDeadline, "load")
		werr := r.process.writeLine(r.spec)
		if werr == nil && v.team.UniqueID != nil && r.Rank != 0 {
			werr = r.process.writeLine(rank.Rendezvous{UniqueID: v.team.UniqueID})
		}
		if werr != nil {
			v.fail(Failure{Kind: FailProtocol, Rank: i, Step: "start", Message: v.at(i, werr.Error())})
		}
	}
	if err != nil && len(v.failures.all) == 0 {
		v.fail(Failure{Kind: FailStart, Rank: -1, Step: "start",
			Message: fmt.Sprintf("node %s: %s: %v", v.team.Node, v.team.Name, err)})
	}
}

func (v *supervision) loop(ctx context.Context, messages chan message, stop <-chan struct{}) {
	done := ctx.Done()
	for slices.ContainsFunc(v.ranks, func(r *watched) bool { return !r.exited }) {
		now := v.clock.Now()
		if len(v.failures.all) > 0 && !v.killed && !v.failures.awaitDeath(now) {
			v.killAll()
		}
		at, index := v.earliest()
		question := v.nextQuestion()
		if !question.IsZero() && !question.After(now) && at.After(now) {
			v.question(messages, stop)
			continue
		}
		if !at.IsZero() && !at.After(now) {
			// What already lies in the queue came before the deadline was noticed, and may move it.
			select {
			case m := <-messages:
				v.handle(m)
			default:
				v.expire(index)
			}
			continue
		}
		var expired <-chan time.Time
		var timer clock.Timer
		if wake := soonest(now, at, question, v.failures.until); !wake.IsZero() {
			timer = v.clock.NewTimer(wake.Sub(now))
			expired = timer.C()
		}
		select {
		case m := <-messages:
			v.handle(m)
		case <-expired:
		case <-done:
			done = nil
			v.fail(Failure{Kind: FailInterrupted, Rank: -1, Step: v.ranks.furthestStep(),
				Message: fmt.Sprintf("node %s: %s was interrupted (%v) with %s",
					v.team.Node, v.team.Name, context.Cause(ctx), v.ranks.whereabouts(v.clock.Now()))})
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// soonest is the first of the times that are still to come; zero where none is.
func soonest(now time.Time, times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// earliest returns the next deadline and the rank that it is for; -1 stands for the run's own.
func (v *supervision) earliest() (time.Time, int) {
	at, index := v.ranks.earliest()
	if run := v.team.RunDeadline; !v.killed && !run.IsZero() && (at.IsZero() || !at.Before(run)) {
		return run, -1
	}
	return at, index
}

func (v *supervision) expire(index int) {
	switch {
	case index < 0:
		v.fail(Failure{Kind: FailRunDeadline, Rank: -1, Step: v.ranks.furthestStep(), Message: fmt.Sprintf(
			"node %s: the run deadline passed during %s with %s; raise %s or measure fewer sizes",
			v.team.Node, v.team.Name, v.ranks.whereabouts(v.clock.Now()),
			cmp.Or(v.team.RunDeadlineField, "run.nodeDeadlineSeconds"))})
	case v.killed:
		// Not even SIGKILL ended it: the process hangs inside the kernel, and nothing in user space can change that.
		r := v.ranks[index]
		r.Stuck = true
		v.gone(r)
		close(r.process.lines)
	default:
		f := v.hang(index, rank.Error{Step: v.ranks[index].awaits})
		f.DetectedAfter = v.clock.Since(v.ranks[index].deadline)
		v.fail(f)
	}
}

func (v *supervision) at(i int, what string) string {
	return fmt.Sprintf("node %s: %s: %s %s", v.team.Node, v.team.Name, v.ranks[i].Name(), what)
}

// setDeadline begins a rank's next wait. After the kill only its end is waited for, whatever it sent before.
func (v *supervision) setDeadline(r *watched, after time.Duration, awaits string) {
	if v.killed {
		return
	}
	r.awaits = awaits
	r.began = v.clock.Now()
	r.deadline = time.Time{}
	if after > 0 {
		r.deadline = r.began.Add(after)
	}
}

// fail records a failure, with what everybody was doing, before the kill changes that.
func (v *supervision) fail(f Failure) {
	now := v.clock.Now()
	f.Doing, f.At = v.ranks.doing(now), v.ranks.positionOf(f.Step)
	if f.Kind == FailHung || f.Kind == FailRankError || f.Kind == FailRunDeadline {
		f.RAS = v.ras.verdict(v.ranks.lateSince(now), now)
	}
	v.failures.add(f, now)
}

func (v *supervision) killAll() {
	v.killed = true
	for _, r := range v.ranks {
		if !r.exited {
			r.process.kill()
			r.deadline = v.clock.Now().Add(v.team.ReapDeadline)
		}
	}
}

func (v *supervision) handle(m message) {
	switch {
	case m.event != nil:
		v.onEvent(m.rank, *m.event)
	case m.garbage != "":
		v.fail(Failure{Kind: FailProtocol, Rank: m.rank, Step: v.ranks[m.rank].awaits,
			Message: v.at(m.rank, "broke the protocol while "+
				v.ranks[m.rank].Doing()+": "+m.garbage+"; "+otherBinary.For(v.team.Audience))})
	case m.exit != nil:
		v.onExit(m.rank, *m.exit)
	case m.ras != nil:
		v.ras.onAnswer(*m.ras)
	}
}

func (v *supervision) onExit(i int, exit exitStatus) {
	r := v.ranks[i]
	if r.exited {
		return
	}
	v.gone(r)
	r.ended = exit.at
	close(r.process.lines)
	if exit.signal == syscall.SIGKILL && r.process.killedByUs {
		return
	}
	signal := ""
	if r.Exit, signal = exit.String(), signalName(exit.signal); exit.code == 2 {
		if name, what := caughtSignal(r.process.stderr.String()); name != "" {
			r.Exit, signal = fmt.Sprintf("was ended by %s (%s)", name, what), name
		}
	}
	if r.Error != nil || r.Done && exit.ok() {
		return
	}
	if exit.ok() {
		r.Exit = "ended without a word and before its work was done, with code 0,"
	}
	v.fail(Failure{Kind: FailDied, Rank: i, Step: r.awaits,
		Killed: exit.signal == syscall.SIGKILL, DetectedAfter: v.clock.Since(exit.at),
		Message: v.at(i, r.Exit+" while "+r.Doing()+"; "+afterSignal(signal).For(v.team.Audience))})
}

// gone counts a process off: it has ended, or no hope is left that it does.
func (v *supervision) gone(r *watched) {
	r.exited = true
	r.deadline = time.Time{}
	if len(v.failures.all) > 0 {
		v.freed = v.clock.Since(v.failures.since)
	}
}

func (v *supervision) onEvent(i int, ev rank.Event) {
	r := v.ranks[i]
	if ev.Rank != r.Rank {
		v.fail(Failure{Kind: FailProtocol, Rank: i, Step: r.awaits,
			Message: v.at(i, fmt.Sprintf("sent an event of rank %d", ev.Rank))})
		return
	}
	// A complaint is no progress: who complains first of a hang is not further than its peers.
	if ev.Kind != rank.EventUniqueID && ev.Kind != rank.EventError {
		r.Events++
	}
	if ev.Kind != rank.EventError {
		r.LastEvent, r.Since = ev.Kind, v.clock.Now()
	}
	switch ev.Kind {
	case rank.EventLoaded:
		r.Library = ev.Library
		if ev.Library.PCIAddress != "" {
			r.PCIAddress = ev.Library.PCIAddress
		}
		if r.spec.WorldSize == 0 {
			v.setDeadline(r, v.team.ExitDeadline, "destroy")
		}
	case rank.EventUniqueID:
		v.shareID(ev.UniqueID)
	case rank.EventInitStart:
		v.setDeadline(r, r.spec.InitDeadline, "init")
	case rank.EventInitDone:
		r.InitDuration = ev.InitDuration
		v.setDeadline(r, r.spec.StepDeadline, "the first step")
	case rank.EventStepStart:
		r.At = ev.At
		v.setDeadline(r, r.spec.StepDeadline, ev.At.String())
	case rank.EventMeasured:
		r.Measurements = append(r.Measurements, *ev.Measurement)
	case rank.EventPairMeasured:
		r.Pairs = append(r.Pairs, *ev.Pair)
	case rank.EventDone:
		r.Done = true
		v.setDeadline(r, v.team.ExitDeadline, "destroy")
	case rank.EventError:
		r.Error = ev.Error
		v.onError(i, *ev.Error)
	}
	if v.team.OnEvent != nil {
		v.team.OnEvent(ev)
	}
}

func (v *supervision) onError(i int, e rank.Error) {
	if consequence(e.Code) {
		v.failures.complain(v.clock.Now())
	}
	if e.Code == rank.CodeRankHung {
		v.fail(v.hang(i, e))
		return
	}
	f := Failure{Kind: FailRankError, Rank: i, Code: e.Code, Step: e.Step,
		Message: v.at(i, fmt.Sprintf("failed at %s: %s: %s", e.Step, e.Code, e.Message))}
	if advice := errorAdvice[e.Code].For(v.team.Audience); advice != "" {
		f.Message += "; " + advice
	}
	r := v.ranks[i]
	took, limit := v.clock.Since(r.began), r.deadline.Sub(r.began)
	if f.Late = consequence(e.Code) && !r.deadline.IsZero() && took >= limit-limit/lateShare; f.Late {
		f.Message += fmt.Sprintf("; that was after %s of the %s that it may take, when a rank that gives up on a "+
			"hang closes its connections", took.Round(100*time.Millisecond), limit)
	}
	v.fail(f)
}

func (v *supervision) shareID(id []byte) {
	for i, r := range v.ranks {
		if r.Rank == 0 || r.exited {
			continue
		}
		if err := r.process.writeLine(rank.Rendezvous{UniqueID: id}); err != nil {
			v.fail(Failure{Kind: FailProtocol, Rank: i, Step: "init", Message: v.at(i, err.Error())})
		}
	}
}

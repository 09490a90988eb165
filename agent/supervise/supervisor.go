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
	// deathGrace is how long the team is left alone after an error that a peer's death may have caused: the rank that lost
	// a connection can be heard before the death that cut it is noticed. Short, since a death must be told within a
	// second.
	deathGrace = 300 * time.Millisecond
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
	procs    []*process
	ranks    []RankOutcome
	began    []time.Time // when each rank's wait began
	deadline []time.Time // of each rank; zero means none
	awaits   []string    // what the deadline is for
	exited   []bool
	failures []Failure
	// complaints are those of the failures that a peer's death may have caused; until then it is waited for.
	complaints int
	until      time.Time
	ended      []time.Time // when each process ended; zero where it has not
	killed     bool
	failedAt   time.Time
	freed      time.Duration // from there to the last process's end
	ras        rasWatch
	// processState is /proc/PID/stat's state of a process; nil reads it.
	processState func(pid int) string
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
	n := len(team.Specs)
	v := &supervision{
		clock: s.Clock, team: team, procs: make([]*process, n), ranks: make([]RankOutcome, n),
		began: make([]time.Time, n), deadline: make([]time.Time, n), awaits: make([]string, n), exited: make([]bool, n), ended: make([]time.Time, n),
		ras: rasWatch{ask: s.RAS},
	}
	if v.ras.ask == nil {
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
	for i, p := range v.procs {
		if p == nil {
			continue
		}
		v.ranks[i].StdoutTail, v.ranks[i].StderrTail = p.stdout.String(), p.stderr.String()
	}
	return Outcome{Team: team.Name, Ranks: v.ranks, Failure: v.blame(), Duration: s.Clock.Since(began), KillDuration: v.freed}
}

func (v *supervision) startAll(l Launcher, messages chan<- message, stop <-chan struct{}) {
	argv, err := l.argv()
	for i, spec := range v.team.Specs {
		v.ranks[i] = RankOutcome{Rank: spec.Rank, Device: spec.Device, PCIAddress: spec.PCIAddress}
		v.exited[i] = true
		if err != nil {
			continue
		}
		var output io.WriteCloser
		if v.team.Output != nil {
			output = v.team.Output(i)
		}
		env := v.team.Env
		if spec.Rank == 0 {
			env = append(env[:len(env):len(env)], v.team.RootEnv...)
		}
		if v.procs[i], err = start(argv, env, i, output, v.clock.Now, messages, stop); err != nil {
			v.fail(Failure{Kind: FailStart, Rank: i, Step: "start", Message: v.at(i, "could not be started: "+err.Error()+"; "+
				noProcess.For(v.team.Audience))})
			continue
		}
		v.exited[i] = false
		v.ranks[i].ProcessID, v.ranks[i].Since = v.procs[i].cmd.Process.Pid, v.clock.Now()
		v.setDeadline(i, spec.InitDeadline, "load")
		werr := v.procs[i].writeLine(spec)
		if werr == nil && v.team.UniqueID != nil && spec.Rank != 0 {
			werr = v.procs[i].writeLine(rank.Rendezvous{UniqueID: v.team.UniqueID})
		}
		if werr != nil {
			v.fail(Failure{Kind: FailProtocol, Rank: i, Step: "start", Message: v.at(i, werr.Error())})
		}
	}
	if err != nil && len(v.failures) == 0 {
		v.fail(Failure{Kind: FailStart, Rank: -1, Step: "start", Message: fmt.Sprintf("node %s: %s: %v", v.team.Node, v.team.Name, err)})
	}
}

func (v *supervision) loop(ctx context.Context, messages chan message, stop <-chan struct{}) {
	done := ctx.Done()
	for slices.Contains(v.exited, false) {
		now := v.clock.Now()
		if len(v.failures) > 0 && !v.killed && !v.awaitsDeath(now) {
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
		if wake := soonest(now, at, question, v.until); !wake.IsZero() {
			timer = v.clock.NewTimer(wake.Sub(now))
			expired = timer.C()
		}
		select {
		case m := <-messages:
			v.handle(m)
		case <-expired:
		case <-done:
			done = nil
			v.fail(Failure{Kind: FailInterrupted, Rank: -1, Step: v.furthestStep(),
				Message: fmt.Sprintf("node %s: %s was interrupted (%v) with %s", v.team.Node, v.team.Name, context.Cause(ctx), v.whereabouts())})
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
	at, index := v.earliestOfRanks()
	if run := v.team.RunDeadline; !v.killed && !run.IsZero() && (at.IsZero() || !at.Before(run)) {
		return run, -1
	}
	return at, index
}

// earliestOfRanks is the next deadline of a rank, and the rank; zero and -1 where there is none.
func (v *supervision) earliestOfRanks() (time.Time, int) {
	var at time.Time
	index := -1
	for i, d := range v.deadline {
		if !v.exited[i] && !d.IsZero() && (at.IsZero() || d.Before(at)) {
			at, index = d, i
		}
	}
	return at, index
}

func (v *supervision) expire(index int) {
	switch {
	case index < 0:
		v.fail(Failure{Kind: FailRunDeadline, Rank: -1, Step: v.furthestStep(), Message: fmt.Sprintf(
			"node %s: the run deadline passed during %s with %s; raise %s or measure fewer sizes",
			v.team.Node, v.team.Name, v.whereabouts(), cmp.Or(v.team.RunDeadlineField, "run.nodeDeadlineSeconds"))})
	case v.killed:
		// Not even SIGKILL ended it: the process hangs inside the kernel, and nothing in user space can change that.
		v.ranks[index].Stuck = true
		v.gone(index)
		close(v.procs[index].lines)
	default:
		f := v.hang(index, rank.Error{Step: v.awaits[index]})
		f.DetectedAfter = v.clock.Since(v.deadline[index])
		v.fail(f)
	}
}

func (v *supervision) setDeadline(i int, after time.Duration, awaits string) {
	v.awaits[i] = awaits
	v.began[i] = v.clock.Now()
	v.deadline[i] = time.Time{}
	if after > 0 && !v.killed {
		v.deadline[i] = v.began[i].Add(after)
	}
}

// fail records a failure, with what everybody was doing, before the kill changes that.
func (v *supervision) fail(f Failure) {
	f.Doing, f.At = v.doing(), v.positionOf(f.Step)
	if len(v.failures) == 0 {
		v.failedAt = v.clock.Now()
	}
	if f.Kind == FailHung || f.Kind == FailRankError || f.Kind == FailRunDeadline {
		f.RAS = v.ras.verdict(v.lateSince(), v.clock.Now())
	}
	v.failures = append(v.failures, f)
}

// positionOf is the position that a step's name is of; nil for steps outside of measurements.
func (v *supervision) positionOf(step string) *rank.Position {
	for i := range v.ranks {
		if at := v.ranks[i].At; at != nil && at.String() == step {
			return at
		}
	}
	return nil
}

// awaitsDeath says whether all that has failed so far may be the result of a death that is not noticed yet.
func (v *supervision) awaitsDeath(now time.Time) bool {
	return len(v.failures) == v.complaints && now.Before(v.until)
}

func (v *supervision) killAll() {
	v.killed = true
	for i, p := range v.procs {
		if p != nil && !v.exited[i] {
			p.kill()
			v.deadline[i] = v.clock.Now().Add(v.team.ReapDeadline)
		}
	}
}

func (v *supervision) handle(m message) {
	switch {
	case m.event != nil:
		v.onEvent(m.rank, *m.event)
	case m.garbage != "":
		v.fail(Failure{Kind: FailProtocol, Rank: m.rank, Step: v.awaits[m.rank], Message: v.at(m.rank, "broke the protocol while "+
			v.ranks[m.rank].Doing()+": "+m.garbage+"; "+otherBinary.For(v.team.Audience))})
	case m.exit != nil:
		v.onExit(m.rank, *m.exit)
	case m.ras != nil:
		v.ras.onAnswer(*m.ras)
	}
}

func (v *supervision) onExit(i int, exit exitStatus) {
	if v.exited[i] {
		return
	}
	v.gone(i)
	v.ended[i] = exit.at
	close(v.procs[i].lines)
	r := &v.ranks[i]
	if exit.signal == syscall.SIGKILL && v.procs[i].killedByUs {
		return
	}
	signal := ""
	if r.Exit, signal = exit.String(), signalName(exit.signal); exit.code == 2 {
		if name, what := caughtSignal(v.procs[i].stderr.String()); name != "" {
			r.Exit, signal = fmt.Sprintf("was ended by %s (%s)", name, what), name
		}
	}
	if r.Error != nil || r.Done && exit.ok() {
		return
	}
	if exit.ok() {
		r.Exit = "ended without a word and before its work was done, with code 0,"
	}
	v.fail(Failure{Kind: FailDied, Rank: i, Step: v.awaits[i], Killed: exit.signal == syscall.SIGKILL, DetectedAfter: v.clock.Since(exit.at),
		Message: v.at(i, r.Exit+" while "+r.Doing()+"; "+afterSignal(signal).For(v.team.Audience))})
}

// gone counts a process off: it has ended, or no hope is left that it does.
func (v *supervision) gone(i int) {
	v.exited[i] = true
	v.deadline[i] = time.Time{}
	if len(v.failures) > 0 {
		v.freed = v.clock.Since(v.failedAt)
	}
}

func (v *supervision) onEvent(i int, ev rank.Event) {
	r, spec := &v.ranks[i], v.team.Specs[i]
	if ev.Rank != spec.Rank {
		v.fail(Failure{Kind: FailProtocol, Rank: i, Step: v.awaits[i], Message: v.at(i, fmt.Sprintf("sent an event of rank %d", ev.Rank))})
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
		if spec.WorldSize == 0 {
			v.setDeadline(i, v.team.ExitDeadline, "destroy")
		}
	case rank.EventUniqueID:
		v.shareID(ev.UniqueID)
	case rank.EventInitStart:
		v.setDeadline(i, spec.InitDeadline, "init")
	case rank.EventInitDone:
		r.InitDuration = ev.InitDuration
		v.setDeadline(i, spec.StepDeadline, "the first step")
	case rank.EventStepStart:
		r.At = ev.At
		v.setDeadline(i, spec.StepDeadline, ev.At.String())
	case rank.EventMeasured:
		r.Measurements = append(r.Measurements, *ev.Measurement)
	case rank.EventPairMeasured:
		r.Pairs = append(r.Pairs, *ev.Pair)
	case rank.EventDone:
		r.Done = true
		v.setDeadline(i, v.team.ExitDeadline, "destroy")
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
		if v.complaints++; v.complaints == 1 {
			v.until = v.clock.Now().Add(deathGrace)
		}
	}
	if e.Code == rank.CodeRankHung {
		v.fail(v.hang(i, e))
		return
	}
	f := Failure{Kind: FailRankError, Rank: i, Code: e.Code, Step: e.Step, Message: v.at(i, fmt.Sprintf("failed at %s: %s: %s", e.Step, e.Code, e.Message))}
	if advice := errorAdvice[e.Code].For(v.team.Audience); advice != "" {
		f.Message += "; " + advice
	}
	took, limit := v.clock.Since(v.began[i]), v.deadline[i].Sub(v.began[i])
	if f.Late = consequence(e.Code) && !v.deadline[i].IsZero() && took >= limit-limit/lateShare; f.Late {
		f.Message += fmt.Sprintf("; that was after %s of the %s that it may take, when a rank that gives up on a hang closes its connections", took.Round(100*time.Millisecond), limit)
	}
	v.fail(f)
}

func (v *supervision) shareID(id []byte) {
	for i, p := range v.procs {
		if v.team.Specs[i].Rank == 0 || p == nil || v.exited[i] {
			continue
		}
		if err := p.writeLine(rank.Rendezvous{UniqueID: id}); err != nil {
			v.fail(Failure{Kind: FailProtocol, Rank: i, Step: "init", Message: v.at(i, err.Error())})
		}
	}
}

// blame chooses the failure to name. A death explains the errors of peers that lost their connection, and comes first
// even where a peer's complaint was read before the death was noticed.
func (v *supervision) blame() *Failure {
	if len(v.failures) == 0 {
		return nil
	}
	first := v.failures[0]
	if (first.Kind == FailRankError || first.Kind == FailHung) && consequence(first.Code) {
		for _, f := range v.failures[1:] {
			if f.Kind == FailDied && v.explains(f, first) || first.Kind == FailRankError && f.Kind == FailRankError && !consequence(f.Code) {
				first = f
				break
			}
		}
	}
	for i, r := range v.ranks {
		if r.Stuck {
			first.Message += "; " + v.ranks[i].Name() + " did not end on SIGKILL: it hangs in the kernel driver, look at dmesg; only a reset of the GPU or a reboot helps"
			if first.Rank < 0 {
				first.Rank = i
			}
		}
	}
	return &first
}

// explains says whether a death can be the cause of what another rank complained of. A rank that crashes once the one
// that complained is gone may have crashed for that; no lost connection sends a SIGKILL. Nor is a hang, which takes a
// whole deadline, explained by a crash at its end.
func (v *supervision) explains(death, complaint Failure) bool {
	if death.Killed || complaint.Kind != FailRankError {
		return death.Killed
	}
	gone := v.ended[complaint.Rank]
	return gone.IsZero() || !gone.Before(v.ended[death.Rank])
}

// consequence says whether an error can be the mere result of a peer's end.
func consequence(code string) bool {
	return code == rank.CodeInitFailed || code == rank.CodeCollectiveFailed || code == rank.CodeRankHung
}

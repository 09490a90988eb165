package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// running is a task under way, or one that is over. Only the loop's goroutine reads and writes it; what its ranks do
// comes as events. A nil one is no task.
type running struct {
	*loop
	task  api.NodeTask
	comms []communicator
	since time.Time
	until time.Time
	ctx   context.Context
	// cancel ends all ranks.
	cancel context.CancelCauseFunc
	group  sync.WaitGroup
	// dropped: nobody waits for the result.
	dropped bool
	// roots: this node has rank 0 of one of the communicators at least.
	roots bool
	// firstID is when the first of its ids was there, published that they were reported, told that all have joined was.
	firstID         time.Time
	published, told bool
	// ports that this node's communicators of the task were given.
	ports map[int]bool
}

// communicator is one of a task's.
type communicator struct {
	started, joined, over bool
	id                    []byte // that this node's rank 0 made
	outcome               supervise.Outcome
	result                api.TaskCommunicatorStatus
}

// start starts the ranks of all communicators whose id this node makes or knows.
func (l *loop) start(task api.NodeTask) *running {
	now := l.Clock.Now()
	r := &running{loop: l, task: task, comms: make([]communicator, len(task.Communicators)), since: now,
		until: now.Add(seconds(task.DeadlineSeconds)), ports: map[int]bool{}}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	for i, c := range task.Communicators {
		r.roots = r.roots || isRoot(c)
		if isRoot(c) || len(c.UniqueID) > 0 {
			r.launch(i)
		}
	}
	return r
}

// busy says whether ranks are there, or are still to come.
func (r *running) busy() bool {
	return r != nil && slices.ContainsFunc(r.comms, func(c communicator) bool { return !c.over })
}

// drop ends the ranks of a task whose result nobody waits for.
func (r *running) drop() {
	if !r.busy() || r.dropped {
		return
	}
	r.dropped = true
	r.cancel(fmt.Errorf("task %s was dropped", r.task.ID))
	for i := range r.comms {
		r.comms[i].over = r.comms[i].over || !r.comms[i].started
	}
}

// stop ends all ranks and waits for their end.
func (r *running) stop() {
	if r.cancel != nil {
		r.cancel(context.Canceled)
	}
	r.group.Wait()
}

// give hands a unique id to a communicator that waits for it.
func (r *running) give(i int, id []byte) {
	r.task.Communicators[i].UniqueID = id
	if c := &r.comms[i]; !c.started && !c.over {
		r.launch(i)
	}
}

// launch starts the ranks of one communicator, in a team of their own: where one of them fails, the others of the
// communicator are ended at once, and those of other communicators go on.
func (r *running) launch(i int) {
	c := r.task.Communicators[i]
	r.comms[i].started = true
	run, plan, st := r.seen.Session.RunID, r.seen.Plan, r.status.Network
	var rootEnv []string
	if isRoot(c) {
		var problem *network.Problem
		if rootEnv, problem = r.rendezvous(r.seen, *st, run+"/"+r.task.ID+"/"+c.Name, r.ports); problem != nil {
			r.comms[i].over = true
			r.comms[i].result = api.TaskCommunicatorStatus{Name: c.Name, Verdict: api.VerdictError,
				Reason: problem.Reason, Message: clip.Head(problem.Message, 512)}
			return
		}
	}
	env := r.environment(r.seen, *st, r.seen.Network.AddressFamily)
	baseline := baselinePlan(env, plan.LibraryPath, plan.InitDeadlineSeconds)
	team := supervise.Team{Node: r.Name, Name: fmt.Sprintf("task %s, communicator %s", r.task.ID, c.Name),
		Env:     r.rankEnvironment(baseline, *r.prepared.Library, rcclx.Baseline),
		RootEnv: rootEnv, RunDeadline: r.until, RunDeadlineField: "run.stepDeadlineSeconds"}
	if !isRoot(c) {
		team.UniqueID = make([]byte, uniqueIDBytes)
		copy(team.UniqueID, c.UniqueID)
	}
	steps := taskSteps(r.task, int(c.WorldSize))
	for at, device := range c.Devices {
		team.Specs = append(team.Specs, rank.Spec{Node: r.Name, Variant: rcclx.Baseline,
			Rank: int(c.Ranks[at]), WorldSize: int(c.WorldSize), Nodes: int(c.Nodes), Device: int(device),
			PCIAddress: r.prepared.PCI[device], LibraryPath: plan.LibraryPath, Steps: steps,
			InitDeadline: seconds(plan.InitDeadlineSeconds), StepDeadline: seconds(plan.StepDeadlineSeconds)})
	}
	joined := 0
	team.OnEvent = func(e rank.Event) {
		switch e.Kind {
		case rank.EventUniqueID:
			r.send(event{of: r, comm: i, id: e.UniqueID})
		case rank.EventInitDone:
			if joined++; joined == len(c.Devices) {
				r.send(event{of: r, comm: i, joined: true})
			}
		}
	}
	var logs *transports
	if c.Nodes > 1 {
		logs = newTransports(c)
		team.Output = logs.output
	}
	required := r.seen.Network.RequireTransport // seen is the loop's own
	r.group.Go(func() {
		out := ended{outcome: r.Teams.Run(r.ctx, team)}
		if logs != nil {
			t := logs.result()
			if required == api.TransportRDMA {
				t.TellNext()
			}
			out.transport = &t
		}
		r.send(event{of: r, comm: i, done: &out})
	})
}

// send gives the loop an event, unless it is over.
func (r *running) send(e event) {
	select {
	case r.events <- e:
	case <-r.gone:
	}
}

func (r *running) onID(i int, id []byte, now time.Time) {
	r.comms[i].id = trimID(id)
	if r.firstID.IsZero() {
		r.firstID = now
	}
}

// trimID cuts the zeros at the end of a unique id; what is left holds an address and a magic number, so never nothing.
func trimID(id []byte) []byte {
	n := len(id)
	for n > 1 && id[n-1] == 0 {
		n--
	}
	return id[:n]
}

func (r *running) onDone(i int, e ended) {
	c := &r.comms[i]
	c.over, c.outcome = true, e.outcome
	if c.result.Verdict == "" {
		c.result = judgePart(r.Name, r.task, r.task.Communicators[i], e, c.id != nil)
	}
}

// idsReady says whether the ids that this node makes can be reported: all are there, or the rest keeps the first
// waiting.
func (r *running) idsReady(now time.Time) bool {
	if r.firstID.IsZero() {
		return false
	}
	for i, c := range r.comms {
		if isRoot(r.task.Communicators[i]) && c.id == nil && !c.over {
			return !now.Before(r.firstID.Add(idGrace))
		}
	}
	return true
}

func (r *running) allJoined() bool {
	return !slices.ContainsFunc(r.comms, func(c communicator) bool { return !c.joined && !c.over })
}

// idsDue is when the wait for ids of other nodes is over; zero where there is none.
func (r *running) idsDue() time.Time {
	if !slices.ContainsFunc(r.comms, func(c communicator) bool { return !c.started && !c.over }) {
		return time.Time{}
	}
	return earlier(r.since.Add(seconds(r.seen.Plan.InitDeadlineSeconds)), r.until)
}

// missIDs ends the wait for ids of other nodes.
func (r *running) missIDs() {
	for i := range r.comms {
		c := &r.comms[i]
		if c.started || c.over {
			continue
		}
		spec := r.task.Communicators[i]
		c.over = true
		c.result = api.TaskCommunicatorStatus{Name: spec.Name, Verdict: api.VerdictError, Reason: api.ReasonInitFailed,
			Message: clip.Head(fmt.Sprintf(
				"node %s: task %s, communicator %s: no unique id came within %s for ranks %v, so none was started: "+
					"look at the node that has rank 0",
				r.Name, r.task.ID, spec.Name, r.idsWaited(), spec.Ranks), 512)}
	}
}

func (r *running) idsWaited() time.Duration {
	return earlier(r.since.Add(seconds(r.seen.Plan.InitDeadlineSeconds)), r.until).Sub(r.since)
}

// giveUp makes all communicators that are not over an Error.
func (r *running) giveUp(reason, message string) {
	for i := range r.comms {
		c := &r.comms[i]
		if c.over {
			continue
		}
		c.over = !c.started
		c.result = api.TaskCommunicatorStatus{Name: r.task.Communicators[i].Name, Verdict: api.VerdictError,
			Reason: reason, Message: clip.Head(message, 512)}
	}
}

// stuck names ranks that did not end on SIGKILL: the node cannot take part any more. Empty where there is none.
func (r *running) stuck() string {
	for _, c := range r.comms {
		for _, o := range c.outcome.Ranks {
			if o.Stuck {
				return fmt.Sprintf("node %s: task %s: %s (process %d) did not end on SIGKILL: "+
					"it hangs in the kernel driver, so that its GPU takes no further task; "+
					"look at dmesg; only a reset of the GPU or a reboot helps",
					r.Name, r.task.ID, o.Name(), o.ProcessID)
			}
		}
	}
	return ""
}

// taskStatus is the task as it is reported.
func (r *running) taskStatus(finished bool) *api.NodeTaskStatus {
	s := &api.NodeTaskStatus{ID: r.task.ID, Phase: api.TaskJoining}
	switch {
	case finished:
		s.Phase = api.TaskFinished
	case r.allJoined():
		s.Phase = api.TaskRunning
	}
	for i, c := range r.comms {
		result := c.result
		result.Name = r.task.Communicators[i].Name
		result.UniqueID = c.id
		s.Communicators = append(s.Communicators, result)
	}
	return s
}

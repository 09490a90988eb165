package executor

import (
	"context"
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// event is what a communicator tells the loop: exactly one of the fields beside the first two is set.
type event struct {
	of   *running
	comm int
	// id that this node's rank 0 made.
	id []byte
	// joined: all ranks of this node have joined.
	joined bool
	// done: no rank of this node is left.
	done *ended
}

// ended is what became of a communicator.
type ended struct {
	outcome supervise.Outcome
	// transport that carried data to other nodes, as the library's log says it; nil where there are none.
	transport *network.Transport
}

// work carries out tasks until the session is over. When it returns, no rank is left.
func (l *loop) work(ctx context.Context) *ending {
	var over *ending
	finish := func(e *ending) {
		if e == nil || over != nil {
			return
		}
		over, l.next = e, nil
		if l.running != nil {
			l.running.drop()
		}
	}
	interrupt := ctx.Done()
	finish(l.look(l.seen))
	if over == nil {
		l.obey()
	}
	for over == nil || l.running.busy() {
		var wake <-chan time.Time
		stopTimer := func() bool { return true }
		if at := l.wakeAt(); !at.IsZero() && over == nil {
			timer := l.Clock.NewTimer(at.Sub(l.Clock.Now()))
			wake, stopTimer = timer.C(), timer.Stop
		}
		select {
		case seen := <-l.mailbox:
			finish(l.look(seen))
			if over == nil && seen.Err == nil {
				l.obey()
			}
		case e := <-l.events:
			finish(l.onEvent(e, over != nil))
		case err := <-l.reports.fatal:
			finish(&ending{err: err})
		case <-wake:
			finish(l.onTime())
		case <-interrupt:
			interrupt = nil
			e := l.interrupted(ctx)
			if l.running.busy() {
				l.running.giveUp(e.reason, e.message)
				l.status.Task = l.running.taskStatus(true)
			}
			finish(e)
		}
		stopTimer()
	}
	return over
}

// obey does what the CommTask asks for.
func (l *loop) obey() {
	o, why := decide(l.Config.RunID, l.last, l.seen)
	task := l.seen.Session.Task
	switch o {
	case stay:
		if l.last == nil || task == nil {
			return
		}
		ids := newIDs(*l.last, *task)
		if len(ids) == 0 {
			return
		}
		l.last = task.DeepCopy()
		switch {
		case l.next != nil:
			l.next = l.last
		case l.running.busy() && !l.running.dropped:
			for _, i := range ids {
				l.running.give(i, task.Communicators[i].UniqueID)
			}
		}
	case drop:
		l.Log.Info("task dropped", "task", l.last.ID, "why", why)
		l.last, l.next = nil, nil
		l.running.drop()
		if !l.running.busy() {
			l.idle = l.Clock.Now()
		}
	case take:
		l.last = task.DeepCopy()
		l.next = l.last
		l.running.drop()
		l.takeNext()
	}
}

// takeNext starts the next task where the ranks of the one before are gone.
func (l *loop) takeNext() {
	if l.next == nil || l.running.busy() {
		return
	}
	task := *l.next
	l.next = nil
	// Only an agent that was restarted finds a report of a task that it has not taken up itself.
	if old := l.status.Task; l.running == nil && old != nil && old.ID == task.ID {
		if old.Phase != api.TaskFinished {
			l.refuse(task, api.ReasonInterrupted,
				"the agent was started anew while the task went on, and its ranks are gone")
		}
		return
	}
	if why := checkTask(task, len(l.prepared.PCI)); why != "" {
		l.refuse(task, api.ReasonRunPodFailed, why+"; the agent and the manager may be of different versions")
		return
	}
	l.Log.Info("task", "id", task.ID, "communicators", len(task.Communicators))
	l.running = l.start(task)
	if !l.running.busy() {
		l.finishTask()
	}
}

// refuse reports a task that is not carried out.
func (l *loop) refuse(task api.NodeTask, reason, message string) {
	l.running = &running{loop: l, task: task, comms: make([]communicator, len(task.Communicators))}
	l.running.giveUp(reason, "node "+l.Name+": task "+task.ID+": "+message)
	l.finishTask()
}

// finishTask reports the task that is over.
func (l *loop) finishTask() {
	l.tasks++
	l.idle = l.Clock.Now()
	l.status.State, l.status.Task = api.SessionReady, l.running.taskStatus(true)
	for _, c := range l.status.Task.Communicators {
		l.Log.Info("communicator finished", "task", l.running.task.ID, "name", c.Name, "verdict", c.Verdict,
			"reason", c.Reason, "transport", c.Transport, "message", c.Message)
		for i := range c.Results { // a report that has to be cut may leave some out
			r := &c.Results[i]
			l.Log.Info("series", "task", l.running.task.ID, "name", c.Name, "collective", r.Collective,
				"datatype", r.Datatype, "placement", r.Placement, "sizeBytes", r.SizeBytes,
				"latencyNanoseconds", r.LatencyNanoseconds, "busBandwidthMBps", r.BusBandwidthMBps,
				"repeats", max(1, c.Repeats), "spreadPercent", r.SpreadPercent)
		}
	}
	l.report()
}

// onEvent takes in what a communicator tells. It returns why the session is over, if it is.
func (l *loop) onEvent(e event, over bool) *ending {
	r := e.of
	switch {
	case e.id != nil:
		r.onID(e.comm, e.id, l.Clock.Now())
	case e.joined:
		r.comms[e.comm].joined = true
	case e.done != nil:
		r.onDone(e.comm, *e.done)
	}
	if over {
		return nil
	}
	if stuck := r.stuck(); stuck != "" && !r.busy() {
		if !r.dropped {
			l.finishTask()
		}
		return &ending{state: api.SessionFailed, reason: api.ReasonRankHung, message: stuck}
	}
	switch {
	case r.dropped && !r.busy():
		l.idle = l.Clock.Now()
		l.takeNext()
	case r.dropped:
	case !r.busy():
		l.finishTask()
	default:
		l.publish()
	}
	return nil
}

// publish reports the ids that this node's ranks made, and then that they have joined. Only a node with rank 0 of a
// communicator does so: the others' reports would only cost the API server two writes a node and task.
func (l *loop) publish() {
	r := l.running
	if !r.roots {
		return
	}
	now := l.Clock.Now()
	switch {
	case !r.published && r.idsReady(now):
		r.published = true
	case r.published && !r.told && r.allJoined():
		r.told = true
	default:
		return
	}
	l.status.State, l.status.Task = api.SessionWorking, r.taskStatus(false)
	l.report()
}

// wakeAt is when the loop has something to do by itself; zero for never.
func (l *loop) wakeAt() time.Time {
	if !l.running.busy() {
		return l.idle.Add(l.idleDeadline())
	}
	if l.running.dropped {
		return time.Time{}
	}
	at := l.running.idsDue()
	if r := l.running; r.roots && !r.published && !r.firstID.IsZero() {
		at = earlier(at, r.firstID.Add(idGrace))
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (l *loop) idleDeadline() time.Duration {
	if d := seconds(l.seen.Session.IdleDeadlineSeconds); d > 0 {
		return d
	}
	return defaultIdle
}

// onTime does what is due. It returns why the session is over, if it is.
func (l *loop) onTime() *ending {
	now := l.Clock.Now()
	if !l.running.busy() {
		if now.Before(l.idle.Add(l.idleDeadline())) {
			return nil
		}
		return &ending{state: api.SessionEnded, reason: api.ReasonSessionIdle, message: fmt.Sprintf(
			"node %s: no task came within %s, so the GPUs were given back: the manager may be down or may not reach "+
				"the API server; the run goes on without the node or ends at its deadline",
			l.Name, l.idleDeadline())}
	}
	if l.running.dropped {
		return nil
	}
	if at := l.running.idsDue(); !at.IsZero() && !now.Before(at) {
		l.running.missIDs()
	}
	if !l.running.busy() {
		l.finishTask()
		return nil
	}
	l.publish()
	return nil
}

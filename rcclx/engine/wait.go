package engine

import "time"

// Polling begins often, so that short steps end soon, and slows down, so that many ranks on few processors do not take
// them from the work that they wait for.
const (
	firstPoll = 20 * time.Microsecond
	lastPoll  = 2 * time.Millisecond
	// asyncEvery is how many polls pass between two looks at the communicator's asynchronous error.
	asyncEvery = 8
)

// limit is the time that one measurement has.
type limit struct {
	until    time.Time
	deadline time.Duration
}

func (comm *communicator) limit(deadline time.Duration) limit {
	return limit{comm.clock.Now().Add(deadline), deadline}
}

// wait polls until all that was queued on the stream is done, or the limit is over, or the library reports an error.
func (comm *communicator) wait(waiting string, l limit) error {
	if err := comm.lib.Runtime.record(comm.done, comm.stream); err != nil {
		return err
	}
	return comm.waitEvent(comm.done, waiting, l)
}

func (comm *communicator) waitEvent(event uintptr, waiting string, l limit) error {
	pause := firstPoll
	for polls := 1; ; polls++ {
		done, err := comm.lib.Runtime.done(event)
		if err != nil || done {
			return err
		}
		if comm.handle != 0 && polls%asyncEvery == 0 {
			async, err := comm.asyncResult()
			if err != nil {
				return err
			}
			if async != resultInProgress {
				if err := comm.lib.check("the communicator (ncclCommGetAsyncError)", comm.handle, async); err != nil {
					return err
				}
			}
		}
		if comm.clock.Now().After(l.until) {
			return &DeadlineError{Waiting: waiting, Deadline: l.deadline}
		}
		comm.clock.Sleep(pause)
		pause = min(2*pause, lastPoll)
	}
}

// promptPolls go without a pause, so that the queueing of a call, which takes microseconds, is not measured as a pause.
const promptPolls = 100

// settle turns a result into an error; where the library says that it is still at work, it asks until it is done.
func (comm *communicator) settle(call string, result int32, l limit) error {
	pause := firstPoll
	for polls := 0; result == resultInProgress; polls++ {
		if polls >= promptPolls {
			if comm.clock.Now().After(l.until) {
				return &DeadlineError{Waiting: call, Deadline: l.deadline}
			}
			comm.clock.Sleep(pause)
			pause = min(2*pause, lastPoll)
		}
		var err error
		if result, err = comm.asyncResult(); err != nil {
			return err
		}
	}
	return comm.lib.check(call, comm.handle, result)
}

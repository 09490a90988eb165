package executor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// meshTask has four communicators of one GPU each: this node has rank 0 of the first two.
func meshTask(id string) *api.NodeTask {
	t := testTask(id)
	for d := range int32(4) {
		t.Communicators = append(t.Communicators, api.TaskCommunicator{Name: fmt.Sprintf("dp/%d", d), WorldSize: 4,
			Nodes: 4, Devices: []int32{d}, Ranks: []int32{d / 2}})
	}
	return &t
}

// TestChangesWhileACommunicatorEnds: what the CommTask says may change at any moment, also while ranks end. -race finds
// what is read of it beside the session's own loop.
func TestChangesWhileACommunicatorEnds(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.link.waitReady(t)
	f.give(meshTask("mesh-1"))
	for range 2 {
		x := f.teams.next(t)
		for i := range 20 {
			f.link.change(func(s *Seen) { s.Network.RequireTransport = api.TransportRequirement(fmt.Sprint(i)) })
		}
		x.pass()
	}
}

// TestIDsAreToldTogether: the ids of all communicators that this node makes go out in one report, the ranks of the
// others are started as their ids come, and one report more says that all have joined.
func TestIDsAreToldTogether(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.link.waitReady(t)
	task := meshTask("mesh-dp-1")
	f.give(task)
	a, b := f.teams.next(t), f.teams.next(t)
	if a.Specs[0].Rank != 0 || a.UniqueID != nil || b.UniqueID != nil || a.Specs[0].WorldSize != 4 ||
		a.Specs[0].Nodes != 4 {
		t.Errorf("the first teams are %+v, %+v", a.Team, b.Team)
	}
	a.makeID(1, 2, 3)
	b.makeID(4)
	ids := f.link.waitIDs(t, task.ID, "dp/0", "dp/1")
	names := map[string]string{a.Name: string([]byte{1, 2, 3}), b.Name: string([]byte{4})}
	for name, id := range ids {
		if want := names["task mesh-dp-1, communicator "+name]; string(id) != want {
			t.Errorf("%s has id %v, expected %v", name, id, []byte(want))
		}
	}
	task.Communicators[2].UniqueID = []byte{7}
	f.give(task)
	c := f.teams.next(t)
	if c.Specs[0].Device != 2 || c.Specs[0].Rank != 1 || len(c.UniqueID) != uniqueIDBytes || c.UniqueID[0] != 7 {
		t.Errorf("dp/2 starts as %+v", c.Team)
	}
	task.Communicators[3].UniqueID = []byte{8}
	f.give(task)
	d := f.teams.next(t)
	for _, x := range []*fakeTeam{a, b, c, d} {
		x.OnEvent(rank.Event{Kind: rank.EventInitDone})
	}
	f.link.wait(t, "running", func(s api.SessionStatus) bool {
		return s.Task != nil && s.Task.Phase == api.TaskRunning
	})
	for _, x := range []*fakeTeam{a, b, c, d} {
		x.pass()
	}
	s := f.link.waitFinished(t, task.ID)
	for i, x := range s.Communicators {
		if x.Verdict != api.VerdictPass || x.Name != task.Communicators[i].Name || (len(x.Results) > 0) != (i < 2) ||
			(x.UniqueID != nil) != (i < 2) {
			t.Errorf("%+v", x)
		}
	}
	f.link.change(func(s *Seen) { s.Session.State = api.SessionClosed })
	if err := f.wait(t); err != nil {
		t.Error(err)
	}
	// Ready, the ids, joined, finished, and the end.
	if len(f.link.reports) != 5 || f.ready.released != 1 {
		t.Errorf("%d reports, GPUs released %d times", len(f.link.reports), f.ready.released)
	}
}

// TestLateID: one communicator whose id does not come keeps the others' only for a moment.
func TestLateID(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.link.waitReady(t)
	task := meshTask("mesh-dp-1")
	task.Communicators = task.Communicators[:2]
	f.give(task)
	a, b := f.teams.next(t), f.teams.next(t)
	a.makeID(1)
	f.step(t, idGrace)
	f.link.waitIDs(t, task.ID, strings.TrimPrefix(a.Name, "task mesh-dp-1, communicator "))
	b.makeID(2)
	a.pass()
	b.pass()
	f.link.waitFinished(t, task.ID)
}

// TestIDsOfOthersDoNotCome: the wait for them is bounded.
func TestIDsOfOthersDoNotCome(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.link.waitReady(t)
	task := meshTask("mesh-dp-1")
	task.Communicators = task.Communicators[2:]
	f.give(task)
	f.step(t, 30*time.Second)
	for _, c := range f.link.waitFinished(t, task.ID).Communicators {
		if c.Verdict != api.VerdictError || c.Reason != api.ReasonInitFailed || c.Guilty != nil ||
			!strings.Contains(c.Message, "30s") || !strings.Contains(c.Message, "node-a") {
			t.Errorf("%+v", c)
		}
	}
}

func TestIdle(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.step(t, 120*time.Second)
	if err := f.wait(t); err != nil {
		t.Fatal(err)
	}
	if s := f.result.Status; s.State != api.SessionEnded || s.Reason != api.ReasonSessionIdle ||
		!strings.Contains(s.Message, "2m0s") || f.ready.released != 1 {
		t.Errorf("%+v, released %d times", s, f.ready.released)
	}
}

// TestIdleBeginsAnew after each task, and not while one goes on.
func TestIdleBeginsAnew(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	f.link.waitReady(t)
	task := within("mesh-tp-1")[0]
	f.give(&task)
	x := f.teams.next(t)
	f.clock.Step(time.Hour)
	x.pass()
	f.link.waitFinished(t, task.ID)
	f.step(t, 120*time.Second)
	if err := f.wait(t); err != nil || f.result.Status.Reason != api.ReasonSessionIdle || f.result.Tasks != 1 {
		t.Errorf("%v, %+v", err, f.result)
	}
}

func TestNodeThatCannotTakePart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*faked)
		reason string
	}{
		{"no such interface", func(f *faked) { f.link.seen.Network.Interface = &api.InterfaceSelector{Name: "eth9"} },
			api.ReasonInterfaceNotFound},
		{"no library", func(f *faked) {
			f.ready.failure = &supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeLibraryMissing,
				Message: "node node-a: librccl.so.1 was not found"}
		}, api.ReasonLibraryMissing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFaked(t)
			tc.change(f)
			f.start(t)
			if err := f.wait(t); err != nil {
				t.Fatal(err)
			}
			if s := f.result.Status; s.State != api.SessionFailed || s.Reason != tc.reason ||
				!strings.Contains(strings.ToLower(s.Message), "node node-a") || !f.result.Reported {
				t.Errorf("%+v", f.result)
			}
			if tc.reason == api.ReasonLibraryMissing && f.ready.released != 1 {
				t.Errorf("the GPUs were released %d times", f.ready.released)
			}
		})
	}
}

// TestEnvironmentOfRanks: what the network needs is set, and wins over a user's own.
func TestEnvironmentOfRanks(t *testing.T) {
	f := newFaked(t)
	f.link.seen.Plan.Env = []api.EnvVar{{Name: "NCCL_SOCKET_FAMILY", Value: "AF_INET6"},
		{Name: "NCCL_MIN_NCHANNELS", Value: "4"}, {Name: "NCCL_HOSTID", Value: "one-for-all"}}
	f.link.seen.Network.AddressFamily = api.AddressFamilyIPv4
	f.start(t)
	f.link.waitReady(t)
	task := wholeGroup("group-1", make([]*member, 2))[0]
	f.give(&task)
	x := f.teams.next(t)
	for _, want := range []string{"NCCL_SOCKET_IFNAME==sim0", "NCCL_SOCKET_FAMILY=AF_INET", "NCCL_MIN_NCHANNELS=4",
		"NCCL_DEBUG=INFO", "NCCL_HOSTID=node-a"} {
		if !slices.Contains(x.Env, want) {
			t.Errorf("%s is not in %v", want, x.Env)
		}
	}
	p := f.ready.asked[0]
	if slices.ContainsFunc(p.Plan.Env, func(e api.EnvVar) bool {
		return e.Name == "NCCL_SOCKET_FAMILY" && e.Value == "AF_INET"
	}) {
		t.Error("the settings of an agent that starts after the family was agreed on are others than those of one " +
			"that starts before")
	}
	if p.Ranks != 4 || p.Nodes != 4 || p.RunID != "run-1" || p.Plan.InitDeadlineSeconds != 30 {
		t.Errorf("prepared for %+v", p)
	}
}

// TestStartedAnew: an agent that takes the place of one that died neither repeats a task nor hides its result.
func TestStartedAnew(t *testing.T) {
	task := within("mesh-tp-1")[0]
	for phase, want := range map[api.TaskPhase]api.Verdict{api.TaskFinished: api.VerdictPass,
		api.TaskJoining: api.VerdictError} {
		f := newFaked(t)
		f.link.seen.Session.Task = task.DeepCopy()
		f.link.seen.Reported = &api.SessionStatus{RunID: "run-1",
			State: api.SessionWorking, Task: &api.NodeTaskStatus{ID: task.ID, Phase: phase,
				Communicators: []api.TaskCommunicatorStatus{{Name: "tp/0", Verdict: api.VerdictPass}}}}
		f.start(t)
		if s := f.link.waitFinished(t, task.ID); s.Communicators[0].Verdict != want {
			t.Errorf("%s: %+v", phase, s)
		}
		next := within("mesh-tp-2")[0]
		f.give(&next)
		f.teams.next(t).pass()
		f.link.waitFinished(t, next.ID)
		f.cancel(nil)
		_ = f.wait(t)
	}
}

func TestSessionThatIsOver(t *testing.T) {
	f := newFaked(t)
	f.link.seen.Reported = &api.SessionStatus{RunID: "run-1", State: api.SessionFailed,
		Reason: api.ReasonLibraryMissing}
	f.start(t)
	if err := f.wait(t); err != nil || !f.result.Reported || len(f.ready.asked) != 0 {
		t.Errorf("%v, %+v", err, f.result)
	}
}

func TestNoSession(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Seen)
		words  string
	}{
		"none":         {func(s *Seen) { s.Session = nil }, "no session"},
		"another run":  {func(s *Seen) { s.Session.RunID = "run-0" }, "run run-0"},
		"no ranks":     {func(s *Seen) { s.Session.Ranks = 0 }, "no ranks"},
		"out of reach": {func(s *Seen) { *s = Seen{Err: errors.New("connection refused")} }, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaked(t)
			tc.change(&f.link.seen)
			mailbox := newNewest[Seen]()
			mailbox.put(f.link.copy())
			go func() {
				_, err := f.await(t.Context(), mailbox)
				f.ended <- err
			}()
			for len(mailbox) > 0 { // until it was looked at
				runtime.Gosched()
			}
			f.step(t, time.Minute)
			if err := f.wait(t); err == nil || !strings.Contains(err.Error(), tc.words) ||
				!strings.Contains(err.Error(), "node-a") {
				t.Errorf("%v, expected %q", err, tc.words)
			}
		})
	}
}

// TestReports: a report is tried until it is taken; one that is refused goes out with the verdicts only; and nobody
// works for a run that was replaced.
func TestReports(t *testing.T) {
	t.Run("tried again", func(t *testing.T) {
		f := newFaked(t)
		f.link.answer = func(n int, _ api.SessionStatus) error {
			if n < 3 {
				return errors.New("connection refused")
			}
			return nil
		}
		f.start(t)
		for range 3 {
			f.stepRetry(t)
		}
		f.link.waitReady(t)
	})
	t.Run("refused", func(t *testing.T) {
		f := newFaked(t)
		f.link.answer = func(_ int, s api.SessionStatus) error {
			if s.Task != nil && s.Task.Phase == api.TaskFinished && s.Task.Communicators[0].Results != nil {
				return fmt.Errorf("%w: results are not known", commtask.ErrRejected)
			}
			return nil
		}
		f.start(t)
		task := within("mesh-tp-1")[0]
		f.give(&task)
		f.teams.next(t).pass()
		if c := f.link.waitFinished(t, task.ID).Communicators[0]; c.Verdict != api.VerdictPass ||
			!strings.Contains(c.Message, "results are not known") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("superseded", func(t *testing.T) {
		f := newFaked(t)
		f.link.answer = func(int, api.SessionStatus) error {
			return fmt.Errorf("%w: another run", commtask.ErrSuperseded)
		}
		f.start(t)
		if err := f.wait(t); !errors.Is(err, commtask.ErrSuperseded) || f.ready.released != 1 {
			t.Errorf("%v, released %d times", err, f.ready.released)
		}
	})
	t.Run("the last one", func(t *testing.T) {
		f := newFaked(t)
		f.link.answer = func(_ int, s api.SessionStatus) error {
			if s.State == api.SessionEnded {
				return errors.New("no route to host")
			}
			return nil
		}
		f.start(t)
		f.link.waitReady(t)
		f.link.change(func(s *Seen) { s.Session.State = api.SessionClosed })
		began := f.clock.Now()
		err := f.stepRetries(t)
		if took := f.clock.Since(began); took < 35*time.Second || took > 45*time.Second {
			t.Errorf("it was tried for %s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "no route to host") || f.result.Reported ||
			f.result.Status.State != api.SessionEnded {
			t.Errorf("%v, %+v", err, f.result)
		}
	})
}

// stepRetry moves the clock past the next try of a report, whose time has chance in it.
func (f *faked) stepRetry(t *testing.T) {
	t.Helper()
	for {
		select {
		case made := <-f.clock.made:
			if made.d <= backoffMax && !made.stopped.Load() {
				f.clock.Step(made.d)
				return
			}
		case <-time.After(patience):
			t.Fatal("the report is not tried again")
		}
	}
}

// stepRetries moves the clock past each try of a report until the session is over.
func (f *faked) stepRetries(t *testing.T) error {
	t.Helper()
	for {
		select {
		case err := <-f.ended:
			return err
		case made := <-f.clock.made:
			if made.d <= backoffMax && !made.stopped.Load() {
				f.clock.Step(made.d)
			}
		case <-time.After(patience):
			t.Fatal("the session does not end")
		}
	}
}

// TestStuckRank: a GPU whose process does not even end on SIGKILL takes no further task.
func TestStuckRank(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	task := wholeGroup("group-1", make([]*member, 2))[0]
	f.give(&task)
	x := f.teams.next(t)
	o := passed(x.Specs)
	o.Ranks[1].Stuck = true
	o.Failure = &supervise.Failure{Kind: supervise.FailHung, Code: rank.CodeRankHung, Rank: -1,
		Step: "AllReduce Float32 4096 B", Message: "node node-a: all hang"}
	x.out <- o
	if err := f.wait(t); err != nil {
		t.Fatal(err)
	}
	s := f.result.Status
	if s.State != api.SessionFailed || s.Reason != api.ReasonRankHung || !strings.Contains(s.Message, "SIGKILL") {
		t.Errorf("%+v", s)
	}
	if c := s.Task.Communicators[0]; c.Guilty == nil || c.Guilty.Kind != "GPU" || c.Guilty.Name != pci(1) {
		t.Errorf("%+v", c)
	}
}

// TestBadTask: what cannot be carried out is told, and the session goes on.
func TestBadTask(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	task := within("mesh-tp-1")[0]
	task.Communicators[0].Devices = []int32{0, 9}
	f.give(&task)
	if c := f.link.waitFinished(t, task.ID).Communicators[0]; c.Verdict != api.VerdictError ||
		!strings.Contains(c.Message, "GPU 9") {
		t.Errorf("%+v", c)
	}
	next := within("mesh-tp-2")[0]
	f.give(&next)
	f.teams.next(t).pass()
	f.link.waitFinished(t, next.ID)
}

// TestWithdrawnTask: its ranks are ended, nobody reports it, and the wait for the next begins.
func TestWithdrawnTask(t *testing.T) {
	f := newFaked(t)
	f.start(t)
	task := within("mesh-tp-1")[0]
	f.give(&task)
	x := f.teams.next(t)
	f.give(nil)
	<-x.ctx.Done()
	f.step(t, 120*time.Second)
	if err := f.wait(t); err != nil || f.result.Status.Reason != api.ReasonSessionIdle || f.result.Status.Task != nil {
		t.Errorf("%v, %+v", err, f.result)
	}
}

// TestWhatCarriedTheDataIsTold: a communicator between nodes says what its ranks' log shows, and where RDMA is required
// and the log gives no cause for TCP it says where to look; of one within the node nothing is said.
func TestWhatCarriedTheDataIsTold(t *testing.T) {
	tcp := "n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [send] via NET/Socket/0\n"
	cause := "n:1:1 [0] NCCL INFO NET/IB : No device found.\n"
	for name, tc := range map[string]struct {
		log       string
		required  api.TransportRequirement
		nodes     int32
		transport string
		says      string
		next      bool
	}{
		"TCP, RDMA required": {tcp, api.TransportRDMA, 4, "TCP", "node node-a: between nodes: TCP", true},
		"TCP with a cause":   {cause + tcp, api.TransportRDMA, 4, "TCP", "found no RDMA device", false},
		"TCP, anything goes": {tcp, api.TransportAny, 4, "TCP", "node node-a: between nodes: TCP", false},
		"RDMA": {strings.ReplaceAll(tcp, "Socket", "IB"), api.TransportRDMA, 4,
			"RDMA", "", false},
		"nothing logged":                  {"", api.TransportRDMA, 4, "Unknown", "Unknown", false},
		"within the node nothing is told": {tcp, api.TransportRDMA, 1, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaked(t)
			f.teams.log = tc.log
			f.start(t)
			f.link.waitReady(t)
			f.link.change(func(s *Seen) { s.Network.RequireTransport = tc.required })
			task := testTask("group-1")
			task.Communicators = []api.TaskCommunicator{{Name: "group", WorldSize: 4 * tc.nodes, Nodes: tc.nodes,
				Devices: []int32{0, 1, 2, 3}, Ranks: []int32{0, 1, 2, 3}}}
			f.give(&task)
			x := f.teams.next(t)
			x.makeID(1)
			x.pass()
			c := f.link.waitFinished(t, task.ID).Communicators[0]
			if c.Verdict != api.VerdictPass || c.Transport != tc.transport || !strings.Contains(c.Message, tc.says) ||
				tc.says == "" && c.Message != "" || strings.Contains(c.Message, "memlock") != tc.next {
				t.Errorf("%+v", c)
			}
		})
	}
}

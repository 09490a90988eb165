package executor

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// fakeTeams runs no processes: a test says what becomes of each team.
type fakeTeams struct {
	started chan *fakeTeam
	// log is what each rank writes.
	log string
}

type fakeTeam struct {
	supervise.Team
	ctx context.Context
	out chan supervise.Outcome
}

func (f *fakeTeams) Run(ctx context.Context, team supervise.Team) supervise.Outcome {
	x := &fakeTeam{Team: team, ctx: ctx, out: make(chan supervise.Outcome, 1)}
	f.started <- x
	if team.Output != nil {
		for i := range team.Specs {
			out := team.Output(i)
			_, _ = io.WriteString(out, f.log)
			_ = out.Close()
		}
	}
	select {
	case o := <-x.out:
		return o
	case <-ctx.Done():
		return supervise.Outcome{Failure: &supervise.Failure{Kind: supervise.FailInterrupted, Rank: -1,
			Message: context.Cause(ctx).Error()}}
	}
}

// next is the next team that is started.
func (f *fakeTeams) next(t *testing.T) *fakeTeam {
	t.Helper()
	select {
	case x := <-f.started:
		return x
	case <-time.After(patience):
		t.Fatal("no team was started")
		return nil
	}
}

func (x *fakeTeam) makeID(id ...byte) {
	full := make([]byte, uniqueIDBytes)
	copy(full, id)
	x.OnEvent(rank.Event{Kind: rank.EventUniqueID, UniqueID: full})
}

// pass ends the team as one whose ranks have all measured what they were to.
func (x *fakeTeam) pass() { x.out <- passed(x.Specs) }

func passed(specs []rank.Spec) supervise.Outcome {
	var o supervise.Outcome
	for _, s := range specs {
		r := supervise.RankOutcome{Rank: s.Rank, Device: s.Device, PCIAddress: s.PCIAddress,
			InitDuration: time.Millisecond, LastEvent: rank.EventDone, Done: true}
		for _, step := range s.Steps {
			for _, size := range step.SizesBytes {
				shape, _ := rcclx.ShapeOf(step.Collective, step.Datatype, size, s.WorldSize)
				r.Measurements = append(r.Measurements, rank.Measurement{Collective: step.Collective,
					Datatype: step.Datatype, Placement: step.Placement, SizeBytes: size,
					CountElements: shape.CountElements,
					Latency:       rcclx.LatencyStats{MedianNanoseconds: 1000 * int64(1+s.Rank), Repeats: 1},
					Checks:        []rcclx.CheckResult{{Data: rcclx.DataExact, CheckedElements: 10}}})
			}
		}
		o.Ranks = append(o.Ranks, r)
	}
	return o
}

// fakePreparer is a node that is ready at once, or not.
type fakePreparer struct {
	ranks    int
	failure  *supervise.Failure
	mu       sync.Mutex
	asked    []Preparation
	released int
}

func (f *fakePreparer) Prepare(_ context.Context, p Preparation) (Prepared, *supervise.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, p)
	out := Prepared{Library: &rcclx.LibraryInfo{Flavor: rcclx.FlavorRCCL, VersionCode: 22703,
		SettingsHash: "0123456789abcdef"}, Release: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.released++
	}}
	for i := range f.ranks {
		out.PCI = append(out.PCI, pci(i))
	}
	return out, f.failure
}

func pci(i int) string { return "0000:0" + string(rune('a'+i)) + ":00.0" }

// faked is a session without processes, on a clock that stands still but for the test's steps.
type faked struct {
	*Session
	link   *memoryLink
	teams  *fakeTeams
	ready  *fakePreparer
	clock  noticedClock
	cancel context.CancelCauseFunc
	ended  chan error
	result SessionResult
}

func testAssignment() api.SessionAssignment {
	return api.SessionAssignment{RunID: "run-1", Members: 4, Ranks: 4, RunName: "group-1", IdleDeadlineSeconds: 120,
		State: api.SessionOpen}
}

func testPlan() api.RunPlan { return api.RunPlan{InitDeadlineSeconds: 30, StepDeadlineSeconds: 10} }

// testRun is the CommRun of the session.
func testRun() api.CommRun {
	run := api.CommRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "group-1"},
		Spec: api.CommRunSpec{GroupName: "group"}}
	plan := defaultPlan()
	plan.InitDeadlineSeconds, plan.StepDeadlineSeconds = testPlan().InitDeadlineSeconds, testPlan().StepDeadlineSeconds
	run.Status.Phase, run.Status.StartTime = api.RunPhaseRunning, metav1.Unix(1_800_000_000, 0)
	run.Status.ID, run.Status.Plan, run.Status.Template = "run-1", &plan, &api.RunTemplate{}
	return run
}

func newFaked(t *testing.T) *faked {
	t.Helper()
	f := &faked{link: newMemoryLink(testAssignment()),
		teams: &fakeTeams{started: make(chan *fakeTeam, 16)}, ready: &fakePreparer{ranks: 4},
		clock: noticedClock{clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), make(chan *noticedTimer, 1024)},
		ended: make(chan error, 1)}
	f.Session = &Session{Node: Node{Name: "node-a", Teams: f.teams, Clock: f.clock,
		Environ: []string{"POD_IP=10.9.0.1"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
		Config: Config{RunID: "run-1", Wait: time.Minute,
			ReportGrace: 45 * time.Second, InterruptedGrace: 8 * time.Second},
		Link: f.link, Network: networkHost{network.NodeHost{Root: t.TempDir()}}, Preparer: f.ready}
	return f
}

func (f *faked) start(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, f.cancel = context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		f.result, err = f.Run(ctx)
		f.ended <- err
	}()
	t.Cleanup(func() { // it logs to the test until it is over
		f.cancel(context.Canceled)
		<-done
	})
}

func (f *faked) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the session does not end")
		return nil
	}
}

// step moves the clock by d once somebody waits for that long. A timer that was stopped is nobody's wait any more.
func (f *faked) step(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case made := <-f.clock.made:
			if made.d == d && !made.stopped.Load() {
				f.clock.Step(d)
				return
			}
		case <-timer.C:
			t.Fatalf("nobody waits for %s", d)
		}
	}
}

// noticedClock tells of the timers that are made.
type noticedClock struct {
	*clocktesting.FakeClock
	made chan *noticedTimer
}

// noticedTimer knows whether it still runs.
type noticedTimer struct {
	clock.Timer
	d       time.Duration
	stopped atomic.Bool
}

func (n *noticedTimer) Stop() bool {
	n.stopped.Store(true)
	return n.Timer.Stop()
}

func (c noticedClock) NewTimer(d time.Duration) clock.Timer {
	t := &noticedTimer{Timer: c.FakeClock.NewTimer(d), d: d}
	c.made <- t
	return t
}

func (f *faked) give(task *api.NodeTask) {
	f.link.change(func(s *Seen) { s.Session.Task = task.DeepCopy() })
}

package supervise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/ras"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestRASEnvironment(t *testing.T) {
	for _, c := range []struct {
		name    string
		env     []string
		address string // "own" for a port of 127.0.0.1 of the team's own
	}{
		{"nothing set", []string{"PATH=/bin"}, "own"},
		{"enabled", []string{"NCCL_RAS_ENABLE=1"}, "own"},
		{"empty is the default", []string{"NCCL_RAS_ENABLE="}, "own"},
		{"disabled", []string{"NCCL_RAS_ENABLE=0"}, ""},
		{"disabled, with an address", []string{"NCCL_RAS_ADDR=localhost:9", "NCCL_RAS_ENABLE=0x0"}, ""},
		{"text is zero to the library", []string{"NCCL_RAS_ENABLE=yes"}, ""},
		{"anything but 1 is off", []string{"NCCL_RAS_ENABLE=2"}, ""},
		{"a person's address", []string{"NCCL_RAS_ADDR=192.0.2.1:28028"}, "192.0.2.1:28028"},
		{"all interfaces", []string{"NCCL_RAS_ADDR=0.0.0.0:28028"}, "localhost:28028"},
		{"all interfaces, IPv6", []string{"NCCL_RAS_ADDR=[::]:28028"}, "localhost:28028"},
	} {
		before := slices.Clone(c.env)
		env, address, release, err := rasEnvironment(c.env)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if !slices.Equal(c.env, before) {
			t.Errorf("%s: the team's own environment was changed to %v", c.name, c.env)
		}
		if c.address != "own" {
			if address != c.address || !slices.Equal(env, c.env) {
				t.Errorf("%s: address %q, environment %v", c.name, address, env)
			}
		} else if !strings.HasPrefix(address, "127.0.0.1:") ||
			!slices.Equal(env, append(before, "NCCL_RAS_ADDR="+address)) {
			t.Errorf("%s: address %q, environment %v, want one of 127.0.0.1 in both", c.name, address, env)
		}
	}
}

func TestNextQuestion(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		name   string
		change func(v *supervision)
		want   time.Time
	}{
		{"half of the deadline that is over first", func(*supervision) {}, at(5)},
		{"once more, halfway to it", func(v *supervision) { v.ras.asked = []time.Time{at(5)} },
			at(7).Add(500 * time.Millisecond)},
		{"not a third time", func(v *supervision) { v.ras.asked = []time.Time{at(5), at(8)} }, time.Time{}},
		{"an earlier wait does not count", func(v *supervision) { v.ras.asked = []time.Time{at(-8), at(-6), at(5)} },
			at(7).Add(500 * time.Millisecond)},
		{"after a time of the team's own", func(v *supervision) { v.team.AskRASAfter = 9 * time.Second }, at(9)},
		{"one that is longer than the deadline",
			func(v *supervision) { v.team.AskRASAfter = time.Minute }, time.Time{}},
		{"never", func(v *supervision) { v.team.AskRASAfter = -1 }, time.Time{}},
		{"nobody to ask", func(v *supervision) { v.ras.address = "" }, time.Time{}},
		{"one question at a time", func(v *supervision) { v.ras.pending = true }, time.Time{}},
		{"something has failed already", func(v *supervision) { v.failures.all = make([]Failure, 1) }, time.Time{}},
		{"while it loads the library", func(v *supervision) { v.ranks[1].awaits = "load" }, time.Time{}},
		{"the run's deadline comes first", func(v *supervision) { v.team.RunDeadline = at(4) }, at(2)},
		{"a later run deadline", func(v *supervision) { v.team.RunDeadline = at(40) }, at(5)},
		{"the other rank is gone", func(v *supervision) { v.ranks[1].exited = true }, at(10)},
		{"all are gone", func(v *supervision) { v.ranks[0].exited, v.ranks[1].exited = true, true }, time.Time{}},
	} {
		v := &supervision{ranks: ranks{{began: start, deadline: at(20), awaits: "init"},
			{began: start, deadline: at(10), awaits: "init"}}, ras: rasWatch{address: "127.0.0.1:1"}}
		c.change(v)
		if got := v.nextQuestion(); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRASVerdict(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	forming := ras.Report{Collected: true, Groups: []ras.Group{{RanksPerCommunicator: 8, Status: "INIT"}}}
	behind := ras.Report{Collected: true,
		Groups: []ras.Group{{RanksPerCommunicator: 8, Status: "RUNNING", Errors: []string{"MISMATCH"}}},
		Communicators: []ras.Communicator{{Hash: "a", Operations: []ras.Operations{{Collective: "AllReduce",
			Classes: []ras.Class{{Count: 7, Launched: 2}, {Count: 1, Launched: 1, Ranks: []ras.Rank{{Rank: 3}}}}}}}}}
	const forms = "RAS: communicator of 8 ranks is INIT on all of them"
	const lags = "RAS: communicator of 8 ranks is RUNNING with MISMATCH: rank 3 has launched 1 of the AllReduce " +
		"operations, the others 2 "
	broken := errors.New("out of order")
	for _, c := range []struct {
		name  string
		watch rasWatch
		want  string
	}{
		{"not asked", rasWatch{}, ""},
		{"could not be asked", rasWatch{problem: "no port"}, "RAS did not answer: no port"},
		{"asked in an earlier step",
			rasWatch{asked: []time.Time{at(-5)}, answers: []rasAnswer{{asked: at(-5), report: behind}}}, ""},
		{"once", rasWatch{answers: []rasAnswer{{asked: at(5), report: forming}}}, forms},
		{"twice", rasWatch{answers: []rasAnswer{{asked: at(5), report: behind}, {asked: at(7), report: behind}}},
			lags + "(standing still for 2s)"},
		{"the second failed",
			rasWatch{answers: []rasAnswer{{asked: at(5), report: behind}, {asked: at(7), err: broken}}},
			lags + "(asked once; ranks at work differ, too)"},
		{"both failed", rasWatch{answers: []rasAnswer{{asked: at(5), err: broken}, {asked: at(7), err: broken}}},
			"RAS did not answer: out of order"},
		{"still open", rasWatch{asked: []time.Time{at(5)}, pending: true}, "RAS did not answer: no answer within 5s"},
	} {
		if got := c.watch.verdict(start, at(10)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A question that nobody answers holds nothing up, and ends with the team.
func TestUnansweredQuestion(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Now())
	team := fakeTeam(t, 3, fakeScript{Rank: 2, At: stepName, Do: "hang"})
	team.ExitDeadline = 3 * time.Hour
	left := 0
	team.OnEvent = func(ev rank.Event) {
		if ev.Kind == rank.EventDone || ev.Rank == 2 && isAt(ev) {
			if left++; left == 3 {
				fake.Step(40 * time.Minute) // of an hour
			}
		}
	}
	s := fakeSupervisor(t, fake)
	ended := make(chan string, 1)
	s.RAS = func(ctx context.Context, address string) (ras.Report, error) {
		fake.Step(time.Hour)
		<-ctx.Done()
		ended <- address
		return ras.Report{}, context.Cause(ctx)
	}
	out := s.Run(t.Context(), team)
	f := out.Failure
	if f == nil || f.Kind != FailHung || f.Rank != 2 || f.RAS != "RAS did not answer: no answer within 1h0m0s" {
		t.Fatalf("failure = %+v", f)
	}
	if f.DetectedAfter != 40*time.Minute || len(f.Doing) != 3 || f.Doing[0].Rank != 2 || f.Doing[0].Step != stepName ||
		f.Doing[0].For < time.Hour {
		t.Errorf("detected after %s, doing %+v", f.DetectedAfter, f.Doing)
	}
	if address := <-ended; !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("asked at %q", address)
	}
	simtest.NoChildren(t)
}

func TestHealthyRunsAreNotAsked(t *testing.T) {
	s := fakeSupervisor(t, clock.RealClock{})
	s.RAS = func(context.Context, string) (ras.Report, error) {
		t.Error("RAS was asked")
		return ras.Report{}, nil
	}
	if out := s.Run(t.Context(), fakeTeam(t, 4, fakeScript{Rank: -1})); out.Failure != nil || out.KillDuration != 0 {
		t.Errorf("%+v", out.Failure)
	}
}

// simulatedStep is the deadline of steps that hang: long enough for what does not, on a busy machine under -race.
const simulatedStep = 10 * time.Second

// simulatedTeam is a team of real ranks on the simulated library, whose DDA is off so that RAS sees what they do.
func simulatedTeam(t testing.TB, ranks int, fault string, stepDeadline time.Duration) (*Supervisor, Team) {
	t.Helper()
	team := Team{Node: "sim-node-0", Name: "Baseline", ExitDeadline: time.Minute,
		Env: append(simtest.Environ(t, simtest.Libraries(t, fault)), "HSA_NO_SCRATCH_RECLAIM=1",
			"NCCL_HOSTID=sim-node-0", "RCCL_DDA_NRANKS=0")}
	for r := range ranks {
		team.Specs = append(team.Specs, rank.Spec{Node: team.Node, Variant: rcclx.Baseline, Rank: r,
			WorldSize: ranks, Nodes: 1, Device: r, InitDeadline: time.Minute, StepDeadline: stepDeadline,
			Steps: []rank.Step{{Kind: rank.StepMeasure, Collective: rcclx.AllReduce,
				Datatype: rcclx.Float32, SizesBytes: []int64{65536}, WarmupIterations: 1, Iterations: 2}}})
	}
	return &Supervisor{Launcher: Launcher{Command: simtest.Rank(t)}, Clock: clock.RealClock{}}, team
}

func TestSimulatedRAS(t *testing.T) {
	for _, c := range []struct {
		name, fault string
		init        time.Duration
		env         string
		step        string // that the message must name, or its start
		ras, is     string
	}{
		{"a rank that does not launch", "late:2:3600000", time.Minute, "", "AllReduce",
			"Simulated RAS: communicator of 4 ranks is RUNNING with MISMATCH: rank 2 has launched none of the " +
				"AllReduce (printed as Broadcast) operations, the others ", "standing still for "},
		{"a kernel that does not end", "hang:2", time.Minute, "", "AllReduce",
			"Simulated RAS: communicator of 4 ranks is RUNNING and its ranks have launched equally many operations",
			""},
		{"init", "init-hang:1", simulatedStep, "", "init",
			"Simulated RAS: communicator of 4 ranks is INIT on all of them", ""},
		{"RAS is off", "hang:2", time.Minute, "NCCL_RAS_ENABLE=0", "AllReduce", "", ""},
		{"RAS cannot listen", "hang:2", time.Minute, "NCCL_RAS_ADDR=127.0.0.1:nowhere", "AllReduce",
			"RAS did not answer: no process serves RAS at 127.0.0.1:nowhere", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, team := simulatedTeam(t, 4, c.fault, simulatedStep)
			for i := range team.Specs {
				team.Specs[i].InitDeadline = c.init
			}
			if c.env != "" {
				team.Env = append(team.Env, c.env)
			}
			out := s.Run(t.Context(), team)
			f := out.Failure
			if f == nil || f.Kind != FailHung || !strings.HasPrefix(f.Step, c.step) {
				t.Fatalf("failure = %+v", f)
			}
			t.Logf("%s\nRAS: %s\ndoing %+v, killed in %s", f.Message, f.RAS, f.Doing, out.KillDuration)
			if !strings.HasPrefix(f.RAS, c.ras) || !strings.Contains(f.RAS, c.is) || (c.ras == "") != (f.RAS == "") {
				t.Errorf("RAS said %q, want %q and %q", f.RAS, c.ras, c.is)
			}
			if len(f.Doing) != 4 || out.KillDuration <= 0 {
				t.Errorf("doing %+v, killed in %s", f.Doing, out.KillDuration)
			}
			simtest.NoChildren(t)
		})
	}
}

func TestSimulatedDeaths(t *testing.T) {
	for _, c := range []struct {
		fault string
		kind  FailureKind
		words []string
	}{
		{"segfault:2", FailDied, []string{"rank 2 (GPU 0000:5b:00.0)", "SIGSEGV", "in step AllReduce", "crashed"}},
		{"init-abort:2", FailDied, []string{"rank 2 (GPU 0000:5b:00.0)", "SIGABRT", "ncclCommInitRank", "gave up"}},
		{"destroy-hang:2", FailHung, []string{"destroy", "rank 2 after step AllReduce"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			s, team := simulatedTeam(t, 4, c.fault, simulatedStep)
			out := s.Run(t.Context(), team)
			f := out.Failure
			if f == nil || f.Kind != c.kind || f.Rank != 2 {
				t.Fatalf("failure = %+v", f)
			}
			t.Logf("%s\n%s\nRAS: %s\ndetected in %s, killed in %s",
				f.Message, out.LogTail(300), f.RAS, f.DetectedAfter, out.KillDuration)
			for _, w := range c.words {
				if !strings.Contains(f.Message, w) {
					t.Errorf("message %q lacks %q", f.Message, w)
				}
			}
			simtest.NoChildren(t)
		})
	}
}

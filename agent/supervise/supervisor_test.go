package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

// stepName names the second step of a fake rank.
const stepName = "AllReduce BFloat16 4096 B"

// isAt says whether the event is of that step.
func isAt(ev rank.Event) bool { return ev.At != nil && ev.At.String() == stepName }

// fakeTeam is a team of fake ranks with two steps.
func fakeTeam(t *testing.T, ranks int, script fakeScript) Team {
	t.Helper()
	raw, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	team := Team{Node: "node-a", Name: "Baseline", Env: []string{fakeScriptEnv + "=" + string(raw)},
		ExitDeadline: time.Minute, ReapDeadline: time.Minute}
	for r := range ranks {
		team.Specs = append(team.Specs,
			rank.Spec{Node: "node-a", Variant: rcclx.Baseline, Rank: r, WorldSize: ranks, Nodes: 1, Device: r,
				InitDeadline: time.Hour, StepDeadline: time.Hour, Steps: []rank.Step{{Kind: rank.StepMeasure,
					Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizesBytes: []int64{1024, 4096}}}})
	}
	return team
}

func fakeSupervisor(t *testing.T, c clock.Clock) *Supervisor {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Supervisor{Launcher: Launcher{Command: []string{self}}, Clock: c}
}

func TestHealthyTeam(t *testing.T) {
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(), fakeTeam(t, 8, fakeScript{Rank: -1}))
	if out.Failure != nil {
		t.Fatalf("failure: %+v", out.Failure)
	}
	for i, r := range out.Ranks {
		if !r.Done || len(r.Measurements) != 2 || r.InitDuration != time.Millisecond || r.PCIAddress == "" ||
			r.Library == nil {
			t.Errorf("rank %d: %+v", i, r)
		}
		if want := "log of rank " + strconv.Itoa(i); !strings.Contains(r.StdoutTail, want) {
			t.Errorf("rank %d: tail %q lacks %q", i, r.StdoutTail, want)
		}
	}
	simtest.NoChildren(t)
}

func TestProbeTeam(t *testing.T) {
	team := fakeTeam(t, 3, fakeScript{Rank: -1})
	for i := range team.Specs {
		team.Specs[i].WorldSize = 0
	}
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(), team)
	if out.Failure != nil || out.Ranks[2].Library == nil || !out.Ranks[2].Done {
		t.Fatalf("outcome: %+v", out)
	}
}

func TestFailuresNameTheRank(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script fakeScript
		kind   FailureKind
		step   string
		words  []string
		tail   string
	}{
		{"abort in init", fakeScript{Rank: 3, At: "init", Do: "abort"}, FailDied, "init",
			[]string{"SIGABRT", "ncclCommInitRank", "gave up"}, "out of luck"},
		{"bus error", fakeScript{Rank: 3, At: stepName, Do: "bus"}, FailDied, stepName,
			[]string{"SIGBUS", "/dev/shm"}, ""},
		{"crash", fakeScript{Rank: 3, At: stepName, Do: "crash"}, FailDied, stepName,
			[]string{"SIGSEGV", "crashed"}, ""},
		{"terminated", fakeScript{Rank: 3, At: stepName, Do: "terminated"}, FailDied, stepName,
			[]string{"signal 15", "not the agent"}, ""},
		{"ends too early", fakeScript{Rank: 3, At: stepName, Do: "exit0"}, FailDied, stepName,
			[]string{"without a word", "code 0"}, ""},
		{"flood", fakeScript{Rank: 3, At: stepName, Do: "flood"}, FailDied, stepName,
			[]string{"code 3"}, "the last word"},
		{"killed by another", fakeScript{Rank: 3, At: stepName, Do: "killed"}, FailDied, stepName,
			[]string{"signal 9", "OOM"}, ""},
		{"exit in a step", fakeScript{Rank: 3, At: stepName, Do: "exit3"}, FailDied, stepName,
			[]string{"code 3", "in step " + stepName}, ""},
		{"exit after done", fakeScript{Rank: 3, At: "exit", Do: "exit3"}, FailDied, "destroy",
			[]string{"code 3", "done"}, ""},
		{"exit before load", fakeScript{Rank: 3, At: "load", Do: "exit3"}, FailDied, "load",
			[]string{"loading the library"}, ""},
		{"garbage", fakeScript{Rank: 3, At: stepName, Do: "garbage"}, FailProtocol, stepName,
			[]string{"NCCL WARN", "another version"}, ""},
		{"event of another rank", fakeScript{Rank: 3, At: "init", Do: "wrongRank"}, FailProtocol, "init",
			[]string{"rank 99"}, ""},
		{"error", fakeScript{Rank: 3, At: "init", Do: "error", Code: rank.CodeInsufficientMemory}, FailRankError,
			"init", []string{"InsufficientMemory", "scripted"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(), fakeTeam(t, 4, tc.script))
			f := out.Failure
			if f == nil {
				t.Fatal("no failure")
			}
			if f.Kind != tc.kind || f.Rank != 3 || f.Step != tc.step || f.Killed != (tc.script.Do == "killed") {
				t.Errorf("failure = %+v, expected kind %s of rank 3 at %s", f, tc.kind, tc.step)
			}
			for _, w := range append(tc.words, "node-a", "Baseline", "rank 3") {
				if !strings.Contains(f.Message, w) {
					t.Errorf("message %q lacks %q", f.Message, w)
				}
			}
			if tc.script.At != "load" && !strings.Contains(f.Message, "0000:35:00.0") {
				t.Errorf("message %q lacks the GPU", f.Message)
			}
			if !strings.Contains(out.LogTail(1024), tc.tail) {
				t.Errorf("log tail %q lacks %q", out.LogTail(1024), tc.tail)
			}
			simtest.NoChildren(t)
		})
	}
}

// TestDeadlines steps a fake clock once every rank has come as far as it will.
func TestDeadlines(t *testing.T) {
	for _, tc := range []struct {
		name    string
		script  fakeScript
		last    rank.EventKind // of the ranks that wait
		lastOf  int            // how many ranks send it last
		advance time.Duration
		kind    FailureKind
		named   int
		step    string
	}{
		{"step", fakeScript{Rank: 2, At: stepName, Do: "hang"}, rank.EventDone, 3, time.Hour, FailHung, 2, stepName},
		{"init", fakeScript{Rank: 2, At: "init", Do: "hang"}, rank.EventDone, 3, time.Hour, FailHung, 2, "init"},
		{"load", fakeScript{Rank: 2, At: "load", Do: "hang"}, rank.EventDone, 3, time.Hour, FailHung, 2, "load"},
		{"deaf to signals", fakeScript{Rank: 2, At: stepName, Do: "hangIgnoringSignals"}, rank.EventDone, 3, time.Hour,
			FailHung, 2, stepName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := clocktesting.NewFakeClock(time.Now())
			team := fakeTeam(t, 4, tc.script)
			team.ExitDeadline = 3 * time.Hour
			last, hung := 0, false
			team.OnEvent = func(ev rank.Event) {
				if ev.Kind == tc.last {
					last++
				}
				if ev.Rank == tc.script.Rank {
					hung = hung || tc.script.At == "load" || ev.Kind == rank.EventInitStart && tc.script.At == "init" ||
						isAt(ev) || ev.Kind == rank.EventDone
				}
				if last == tc.lastOf && (hung || tc.script.At == "load") {
					fake.Step(tc.advance)
					last = -100
				}
			}
			out := fakeSupervisor(t, fake).Run(t.Context(), team)
			f := out.Failure
			if f == nil || f.Kind != tc.kind || f.Rank != tc.named || f.Step != tc.step {
				t.Fatalf("failure = %+v, expected %s of rank %d at %s", f, tc.kind, tc.named, tc.step)
			}
			for _, w := range []string{"node-a", "missed the deadline of " + tc.advance.String()} {
				if !strings.Contains(f.Message, w) {
					t.Errorf("message %q lacks %q", f.Message, w)
				}
			}
			simtest.NoChildren(t)
		})
	}
}

func TestRunDeadlineAndInterrupt(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Now())
	team := fakeTeam(t, 2, fakeScript{Rank: 1, At: stepName, Do: "hang"})
	team.RunDeadline = fake.Now().Add(time.Minute)
	team.OnEvent = func(ev rank.Event) {
		if ev.Rank == 1 && isAt(ev) {
			fake.Step(time.Minute)
		}
	}
	out := fakeSupervisor(t, fake).Run(t.Context(), team)
	if out.Failure == nil || out.Failure.Kind != FailRunDeadline {
		t.Errorf("failure = %+v, expected the run deadline", out.Failure)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	team = fakeTeam(t, 2, fakeScript{Rank: 1, At: stepName, Do: "hang"})
	team.OnEvent = func(ev rank.Event) {
		if ev.Rank == 1 && isAt(ev) {
			cancel(errors.New("SIGTERM"))
		}
	}
	out = fakeSupervisor(t, clock.RealClock{}).Run(ctx, team)
	if f := out.Failure; f == nil || f.Kind != FailInterrupted || !strings.Contains(f.Message, "SIGTERM") ||
		!strings.Contains(f.Message, stepName) {
		t.Errorf("failure = %+v, expected an interruption", f)
	}
	if got := len(out.Ranks[1].Measurements); got != 1 {
		t.Errorf("rank 1 kept %d measurements, expected the 1 from before", got)
	}
	simtest.NoChildren(t)
}

func TestStartFailure(t *testing.T) {
	s := &Supervisor{Launcher: Launcher{Command: []string{"/nonexistent/agent"}}, Clock: clock.RealClock{}}
	out := s.Run(t.Context(), fakeTeam(t, 2, fakeScript{Rank: -1}))
	if f := out.Failure; f == nil || f.Kind != FailStart || !strings.Contains(f.Message, "/nonexistent/agent") {
		t.Errorf("failure = %+v", f)
	}
}

// TestGrandchildIsKilled checks that what a rank starts ends with it, even where it holds the rank's output open.
func TestGrandchildIsKilled(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(),
		fakeTeam(t, 2, fakeScript{Rank: 1, At: "init", Do: "fork", PidFile: pidFile}))
	if out.Failure == nil || out.Failure.Rank != 1 {
		t.Fatalf("failure = %+v", out.Failure)
	}
	awaitEnd(t, pidFile)
}

// TestGrandchildInASessionOfItsOwn holds all pipes of a dead rank open, where no signal to the rank's group reaches it.
func TestGrandchildInASessionOfItsOwn(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(),
		fakeTeam(t, 2, fakeScript{Rank: 1, At: stepName, Do: "daemon", PidFile: pidFile}))
	if f := out.Failure; f == nil || f.Rank != 1 || f.Kind != FailDied || !strings.Contains(f.Message, "code 3") {
		t.Errorf("failure = %+v", f)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the grandchild did not outlive the rank: %v", err)
	}
	awaitEnd(t, pidFile)
}

// awaitEnd returns once the process whose pid is in the file is gone, or a zombie that its new parent has not reaped.
func awaitEnd(t *testing.T, pidFile string) {
	t.Helper()
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	for {
		// A zombie has no command line.
		cmdline, err := os.ReadFile(filepath.Join("/proc", string(pid), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			return
		}
		runtime.Gosched()
	}
}

// TestRanksDieWithTheirParent kills a supervisor, which then cannot kill its ranks itself.
func TestRanksDieWithTheirParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	parent := exec.CommandContext(t.Context(), self, hangingParent, pidFile)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	awaitEnd(t, pidFile)
}

// An event that lay in the queue at the kill must not take the reap deadline away: a process that hangs in the kernel
// would be waited for without end.
func TestEventAfterTheKillKeepsTheReapDeadline(t *testing.T) {
	v := newSupervision(clock.RealClock{}, Team{Specs: specs(0, 1, rank.Spec{StepDeadline: time.Minute})})
	reap := time.Unix(1000, 0)
	v.killed, v.ranks[0].deadline = true, reap
	at := &rank.Position{Kind: rank.StepMeasure, Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizeBytes: 8}
	v.onEvent(0, rank.Event{Kind: rank.EventStepStart, At: at})
	if got := v.ranks[0].deadline; !got.Equal(reap) {
		t.Errorf("the deadline is %s, expected %s", got, reap)
	}
}

func TestDeathExplainsPeersErrors(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }
	complaint := func(code string) Failure { return Failure{Kind: FailRankError, Rank: 0, Code: code} }
	hang := Failure{Kind: FailHung, Rank: -1, Code: rank.CodeRankHung}
	for _, c := range []struct {
		name          string
		first, second Failure
		ended         [3]time.Time // of ranks 0, 1 and 2
		want          int
	}{
		{"a death", complaint(rank.CodeInitFailed), Failure{Kind: FailDied, Rank: 2}, [3]time.Time{{}, {}, at(5)}, 2},
		{"a death before the end of the rank that complained", complaint(rank.CodeCollectiveFailed),
			Failure{Kind: FailDied, Rank: 2}, [3]time.Time{at(7), {}, at(5)}, 2},
		{"a crash when the rank that complained was gone", complaint(rank.CodeCollectiveFailed),
			Failure{Kind: FailDied, Rank: 2}, [3]time.Time{at(7), {}, at(9)}, 0},
		{"a SIGKILL that was noticed late", complaint(rank.CodeCollectiveFailed),
			Failure{Kind: FailDied, Rank: 2, Killed: true}, [3]time.Time{at(7), {}, at(9)}, 2},
		{"an error with a cause of its own", complaint(rank.CodeInsufficientMemory), Failure{Kind: FailDied, Rank: 2},
			[3]time.Time{{}, {}, at(5)}, 0},
		{"a peer's error with a cause of its own", complaint(rank.CodeInitFailed),
			Failure{Kind: FailRankError, Rank: 1, Code: rank.CodeInsufficientMemory}, [3]time.Time{}, 1},
		{"a hang and a SIGKILL", hang, Failure{Kind: FailDied, Rank: 2, Killed: true}, [3]time.Time{{}, {}, at(5)}, 2},
		{"a hang and a crash at its end", hang, Failure{Kind: FailDied, Rank: 2}, [3]time.Time{{}, {}, at(5)}, -1},
	} {
		rs := ranksOf(specs(0, 3, rank.Spec{}))
		for i, r := range rs {
			r.ended = c.ended[i]
		}
		fs := failures{all: []Failure{c.first, c.second}}
		if f := fs.blame(rs); f.Rank != c.want {
			t.Errorf("%s: blame = %+v, expected rank %d", c.name, f, c.want)
		}
	}
}

// TestDeathBehindAPeersError kills a rank only once a peer's error was read, with a clock that stands still: the death
// must be waited for, and no other time passes. Where it does pass, the SIGKILL must not be taken for the team's own.
func TestDeathBehindAPeersError(t *testing.T) {
	for _, c := range []struct {
		name    string
		advance time.Duration
	}{{"noticed within the grace", 0}, {"noticed after it", deathGrace}} {
		t.Run(c.name, func(t *testing.T) {
			fake := clocktesting.NewFakeClock(time.Now())
			pidFile := filepath.Join(t.TempDir(), "pid")
			team := fakeTeam(t, 4, fakeScript{Rank: 3, At: stepName, Do: "hang", PidFile: pidFile,
				Also: &fakeScript{Rank: 0, At: stepName, Do: "error", Code: rank.CodeCollectiveFailed, After: pidFile}})
			team.OnEvent = func(ev rank.Event) {
				if ev.Kind != rank.EventError {
					return
				}
				text, err := os.ReadFile(pidFile)
				if err != nil {
					t.Error(err)
				}
				pid, err := strconv.Atoi(string(text))
				if err != nil {
					t.Error(err)
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				if c.advance > 0 {
					for !dying(pid) && syscall.Kill(pid, 0) == nil { // until it is dying, dead or reaped
						runtime.Gosched()
					}
					fake.Step(c.advance)
				}
			}
			out := fakeSupervisor(t, fake).Run(t.Context(), team)
			if f := out.Failure; f == nil || f.Kind != FailDied || f.Rank != 3 || !f.Killed ||
				!strings.Contains(f.Message, "OOM") {
				t.Errorf("failure = %+v, expected the death of rank 3", f)
			}
			simtest.NoChildren(t)
		})
	}
}

func TestExiting(t *testing.T) {
	const rest = " S 1 2 3 0 -1 %d 100 0 0 0 5 3"
	for _, c := range []struct {
		stat string
		want bool
	}{
		{"7 (rank)" + fmt.Sprintf(rest, 0x400000|0x4), true},
		{"7 (rank)" + fmt.Sprintf(rest, 0x400000), false},
		{"7 (a) b (c)" + fmt.Sprintf(rest, 0x4), true},
		{"7 (rank) S 1", false}, {"", false}, {"7 (rank) S 1 2 3 0 -1 x", false},
	} {
		if got := exiting(c.stat); got != c.want {
			t.Errorf("%q: %v", c.stat, got)
		}
	}
	if self := os.Getpid(); dying(self) {
		t.Error("this process is said to be dying")
	}
}

func TestRankEnvironment(t *testing.T) {
	got := RankEnvironment([]string{"PATH=/bin", "SIMROCM_ROOT=/r", "HIP_VISIBLE_DEVICES=0",
		"ROCR_VISIBLE_DEVICES=0", "SECRET=x", "NCCL_ALGO=Ring", "IONIC_LOCKFREE=all"},
		[]rcclx.EnvVar{{Name: "RCCL_DDA_NRANKS", Value: "0"}, {Name: "NCCL_HOSTID", Value: "one-for-all"}}, "node-a")
	want := []string{"IONIC_LOCKFREE=all", "NCCL_HOSTID=node-a", "PATH=/bin", "RCCL_DDA_NRANKS=0", "SIMROCM_ROOT=/r"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTail(t *testing.T) {
	var tl tail
	_, _ = tl.Write([]byte("first line\nsecond line\n"))
	if got := tl.String(); got != "first line\nsecond line\n" {
		t.Errorf("got %q", got)
	}
	_, _ = tl.Write([]byte(strings.Repeat("x", tailBytes-6) + "\nlast\n"))
	if got := tl.String(); len(got) > tailBytes+8 || !strings.HasSuffix(got, "\nlast\n") ||
		strings.Contains(got, "first") {
		t.Errorf("got %d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}

func TestTailStopsAtACrash(t *testing.T) {
	var tl tail
	for _, part := range []string{"NCCL WARN bad\nSIGABRT", ": abort\nPC=", "0x40e8ce m=0",
		" sigcode=0\n\ngoroutine 1:\n", strings.Repeat("stack\n", 2000)} {
		_, _ = tl.Write([]byte(part))
	}
	if got, want := tl.String(), "NCCL WARN bad\nSIGABRT: abort\nPC=0x40e8ce m=0 sigcode=0\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, s := range []string{`{"kind":"Loaded","rank":0,"library":{}}`, `{"kind":"Done"}`, `{"kind":"Measured"}`,
		`{"kind":"x"}`, "", "[]", "null", `{"kind":"Error","error":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		ev, err := parseEvent(line)
		if (ev == nil) == (err == nil) {
			t.Fatalf("event %v, error %v", ev, err)
		}
		if err == nil && ev.Kind == rank.EventMeasured && ev.Measurement == nil {
			t.Fatal("a measurement without one")
		}
	})
}

func TestCaughtSignal(t *testing.T) {
	for in, want := range map[string]string{
		"FATAL: x\nSIGABRT: abort\nPC=0x1 m=0\n":    "SIGABRT (abort)",
		"SIGBUS: bus error\nPC=0x1 m=0 sigcode=2\n": "SIGBUS (bus error)",
		"fatal error: x\n" +
			"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4]\n": "SIGSEGV (segmentation violation)",
		"NCCL WARN SIGNAL: none": " ()",
		"":                       " ()",
	} {
		if name, what := caughtSignal(in); name+" ("+what+")" != want {
			t.Errorf("%q: got %q (%q), want %q", in, name, what, want)
		}
	}
}

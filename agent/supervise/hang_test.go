package supervise

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/ras"
	"rcclx.io/commgroup-operator/internal/simtest"
	"rcclx.io/commgroup-operator/rcclx"
)

// specs are those of n ranks on one node, the first of them given.
func specs(first, n int, of rank.Spec) []rank.Spec {
	all := make([]rank.Spec, n)
	for i := range all {
		all[i] = of
		all[i].Rank, all[i].Device = first+i, i
	}
	return all
}

// Who is named in a hang, by whose word, and which limit was missed.
func TestWhoIsLate(t *testing.T) {
	const step = "AllReduce BFloat16 8 B"
	start := time.Unix(1000, 0)
	mismatch := ras.Report{Collected: true,
		Groups: []ras.Group{{RanksPerCommunicator: 4, Status: "RUNNING", Errors: []string{"MISMATCH"}}},
		Communicators: []ras.Communicator{{Hash: "a", Operations: []ras.Operations{{Collective: "AllReduce",
			Classes: []ras.Class{{Count: 3, Launched: 25}, {Count: 1, Launched: 14, Ranks: []ras.Rank{{Rank: 3}}}}}}}}}
	slower := func(launched int64) ras.Report {
		r := mismatch
		r.Communicators = []ras.Communicator{{Hash: "a", Operations: []ras.Operations{{Collective: "AllReduce",
			Classes: []ras.Class{{Count: 3, Launched: 25},
				{Count: 1, Launched: launched, Ranks: []ras.Rank{{Rank: 3}}}}}}}}
		return r
	}
	silent := ras.Report{Collected: true,
		Groups:        []ras.Group{{RanksPerCommunicator: 4, Status: "RUNNING", Errors: []string{"INCOMPLETE"}}},
		Communicators: []ras.Communicator{{Hash: "a", MissingRanks: 2, Missing: []ras.Rank{{Rank: 1}, {Rank: 2}}}}}
	pair := rank.Position{Kind: rank.StepPairProbe, SizeBytes: 4, Peer: 1}
	gaveUp := rank.Error{Code: rank.CodeRankHung, Step: step, Message: "not done within 3.6s",
		Limit: 3600 * time.Millisecond}
	for _, c := range []struct {
		name    string
		events  [4]int
		exited  [4]bool
		said    rank.Error // of rank 2
		answers []ras.Report
		rank    int
		behind  string
		byRAS   bool
		begins  string // of the message
		holds   string
	}{
		{"all alike, a rank speaks", [4]int{5, 5, 5, 5}, [4]bool{}, gaveUp, nil, -1, "", false,
			"all 4 ranks missed the deadline of 3.6s for " + step +
				" (a rank's own limit, under the 4s given; rank 2 (GPU ordinal 2) says: not done within 3.6s); ", ""},
		{"all alike, nobody speaks", [4]int{5, 5, 5, 5}, [4]bool{}, rank.Error{Step: step}, nil, -1, "", false,
			"all 4 ranks missed the deadline of 4s for " + step + " (rank 2 (GPU ordinal 2) first); ", ""},
		{"init", [4]int{2, 2, 2, 2}, [4]bool{}, rank.Error{Step: "init"}, nil, -1, "", false,
			"all 4 ranks missed the deadline of 9s for init (rank 2 ", ""},
		{"one behind", [4]int{5, 4, 5, 5}, [4]bool{}, gaveUp, nil, 1, "1", false,
			"rank 1 (GPU ordinal 1) missed the deadline of 3.6s for ", "rank 2 (GPU ordinal 2) says: not done"},
		{"the one behind speaks itself", [4]int{5, 5, 4, 5}, [4]bool{}, gaveUp, nil, 2, "2", false,
			"rank 2 (GPU ordinal 2) missed the deadline of 3.6s for ", "it says: not done"},
		{"some behind", [4]int{5, 4, 5, 4}, [4]bool{}, rank.Error{Step: step}, nil, -1, "1,3", false,
			"ranks 1,3 missed the deadline of 4s for ", "(rank 2 (GPU ordinal 2) first)"},
		{"RAS narrows them down", [4]int{5, 4, 5, 4}, [4]bool{}, rank.Error{Step: step},
			[]ras.Report{mismatch, mismatch}, 3, "3", true, "rank 3 (GPU ordinal 3), by RAS's word", ""},
		{"RAS speaks against another one", [4]int{4, 4, 5, 5}, [4]bool{}, rank.Error{Step: step},
			[]ras.Report{mismatch, mismatch}, -1, "0,1", false, "ranks 0,1 missed", ""},
		{"the events are clear, whatever RAS says", [4]int{5, 4, 5, 5}, [4]bool{}, rank.Error{Step: step},
			[]ras.Report{mismatch, mismatch}, 1, "1", false, "rank 1 (GPU ordinal 1) missed", ""},
		{"RAS names one", [4]int{5, 5, 5, 5}, [4]bool{}, gaveUp, []ras.Report{mismatch, mismatch}, 3, "3", true,
			"rank 3 (GPU ordinal 3), by RAS's word (launched fewer operations than the others, standing still for " +
				"1s), missed the deadline of 3.6s for ", "rank 2 (GPU ordinal 2) says: "},
		{"RAS names one that still moves", [4]int{5, 5, 5, 5}, [4]bool{}, gaveUp,
			[]ras.Report{slower(9), slower(14)}, -1, "3", true, "all 4 ranks missed the deadline of 3.6s for ",
			"by RAS's word rank 3 launched fewer operations than the others, who stood still for 1s"},
		{"RAS was asked once", [4]int{5, 5, 5, 5}, [4]bool{}, gaveUp, []ras.Report{mismatch}, -1, "", false,
			"all 4 ranks missed", ""},
		{"RAS names two", [4]int{5, 5, 5, 5}, [4]bool{}, gaveUp, []ras.Report{silent}, -1, "1,2", true,
			"ranks 1,2, by RAS's word (gave no answer), missed", ""},
		{"destroy, one is left", [4]int{9, 9, 9, 9}, [4]bool{true, true, false, true}, rank.Error{Step: "destroy"}, nil,
			2, "", false, "rank 2 (GPU ordinal 2) missed the deadline of 7s for destroy; ", ""},
		{"destroy, two are left", [4]int{9, 9, 9, 9}, [4]bool{true, false, false, true}, rank.Error{Step: "destroy"},
			nil, -1, "", false, "ranks 1,2 of 4 missed the deadline of 7s for destroy (", ""},
		{"destroy by a rank's own limit", [4]int{9, 9, 9, 9}, [4]bool{},
			rank.Error{Step: "destroy", Message: "x", Limit: 3600 * time.Millisecond}, nil, -1, "", false,
			"all 4 ranks missed the deadline of 3.6s for destroy (a rank's own limit, under the 4s given; ", ""},
		{"pairs rightly differ", [4]int{5, 4, 5, 4}, [4]bool{}, rank.Error{Step: pair.String()}, nil, -1, "", false,
			"rank 2 (GPU ordinal 2) missed the deadline of 4s for ", ""},
	} {
		fake := clocktesting.NewFakeClock(start)
		spec := rank.Spec{WorldSize: 4, InitDeadline: 9 * time.Second, StepDeadline: 4 * time.Second}
		v := newSupervision(fake,
			Team{Node: "n", Name: "Baseline", ExitDeadline: 7 * time.Second, Specs: specs(0, 4, spec)})
		for i, r := range v.ranks {
			r.Events, r.Since, r.At = c.events[i], start, &pair
			r.began, r.deadline, r.awaits, r.exited = start, start.Add(4*time.Second), c.said.Step, c.exited[i]
		}
		for i, report := range c.answers {
			v.ras.answers = append(v.ras.answers,
				rasAnswer{asked: start.Add(time.Duration(i) * time.Second), report: report})
		}
		f := v.hang(2, c.said)
		if f.Rank != c.rank || join(f.Behind) != c.behind || f.ByRAS != c.byRAS ||
			!strings.HasPrefix(f.Message, "node n: Baseline: "+c.begins) || !strings.Contains(f.Message, c.holds) {
			t.Errorf("%s: rank %d, behind %v, by RAS %v: %s", c.name, f.Rank, f.Behind, f.ByRAS, f.Message)
		}
	}
}

// A rank that starts each operation late holds up its peers, and only RAS knows which one it is.
func TestSimulatedLateRank(t *testing.T) {
	s, team := simulatedTeam(t, 4, "late:2:3600000", 4*time.Second)
	out := s.Run(t.Context(), team)
	f := out.Failure
	if f == nil || f.Kind != FailHung || f.Rank != 2 || !f.ByRAS {
		t.Fatalf("failure = %+v", f)
	}
	for _, w := range []string{"Baseline: rank 2 (GPU 0000:5b:00.0), by RAS's word (launched fewer operations",
		"missed the deadline of 3.6s for AllReduce", "under the 4s given", "within 3.6s"} {
		if !strings.Contains(f.Message, w) {
			t.Errorf("message %q lacks %q", f.Message, w)
		}
	}
	simtest.NoChildren(t)
}

func TestHangAtExitNamesTheRankThatIsLeft(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Now())
	v := newSupervision(fake,
		Team{Node: "n", Name: "Baseline", ExitDeadline: time.Minute, Specs: specs(0, 3, rank.Spec{})})
	for i, r := range v.ranks {
		r.Events, r.exited = 5, i != 1
	}
	if f := v.hang(1, rank.Error{Step: "destroy"}); f.Rank != 1 || !strings.Contains(f.Message, "rank 1") ||
		!strings.Contains(f.Message, "1m0s for destroy") {
		t.Errorf("failure = %+v", f)
	}
}

// TestStoppedRankIsNamed: whoever does not run is what the others wait for, and no GPU is to blame.
func TestStoppedRankIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		states  map[int]string // by rank
		exited  [4]bool
		rank    int
		stopped string
		begins  string
	}{
		"none": {nil, [4]bool{}, -1, "", "all 4 ranks missed"},
		"one": {map[int]string{1: "T", 2: "S", 3: "R"}, [4]bool{}, 1, "1",
			"rank 1 (GPU ordinal 1), stopped (state T in /proc/101/stat), missed"},
		"under a debugger": {map[int]string{3: "t"}, [4]bool{}, 3, "3",
			"rank 3 (GPU ordinal 3), stopped (state t in /proc/103/stat), missed"},
		"two": {map[int]string{0: "T", 3: "T"}, [4]bool{}, -1, "0,3",
			"ranks 0,3, stopped (state T in /proc/PID/stat), missed"},
		"one that has ended":  {map[int]string{1: "T"}, [4]bool{1: true}, -1, "", "ranks 0,2,3 of 4 missed"},
		"what cannot be read": {map[int]string{1: ""}, [4]bool{}, -1, "", "all 4 ranks missed"},
	} {
		start := time.Now()
		spec := rank.Spec{WorldSize: 4, StepDeadline: 4 * time.Second}
		v := newSupervision(clocktesting.NewFakeClock(start),
			Team{Node: "n", Name: "Baseline", Specs: specs(0, 4, spec)})
		v.processState = func(pid int) string { return tc.states[pid-100] }
		for i, r := range v.ranks {
			r.ProcessID, r.Events, r.Since = 100+i, 3, start
			r.began, r.deadline, r.awaits, r.exited = start, start, "a step", tc.exited[i]
		}
		f := v.hang(2, rank.Error{Step: "a step"})
		if f.Rank != tc.rank || join(f.Stopped) != tc.stopped ||
			!strings.HasPrefix(f.Message, "node n: Baseline: "+tc.begins) {
			t.Errorf("%s: rank %d, stopped %v: %s", name, f.Rank, f.Stopped, f.Message)
		}
		if named := tc.stopped != ""; strings.Contains(f.Message, "SIGSTOP") != named {
			t.Errorf("%s: %s", name, f.Message)
		}
	}
}

func TestStateOfAProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("%v, %v", err, ws)
	}
	if s := stateOf(cmd.Process.Pid); s != "T" {
		t.Errorf("a stopped process is in state %q", s)
	}
	if s := stateOf(os.Getpid()); s == "T" || s == "" {
		t.Errorf("this process is in state %q", s)
	}
	if s := stateOf(1 << 30); s != "" {
		t.Errorf("no process is in state %q", s)
	}
}

// Where all stand alike, the rank that says first that it waits too long must not make its peer look late.
func TestComplaintOfAHangBlamesNoPeer(t *testing.T) {
	for complains := range 2 {
		spec := rank.Spec{WorldSize: 2, StepDeadline: time.Second}
		v := newSupervision(clocktesting.NewFakeClock(time.Now()),
			Team{Node: "n", Name: "Baseline", Specs: specs(0, 2, spec)})
		for i := range v.ranks {
			v.onEvent(i, rank.Event{Kind: rank.EventStepStart, Rank: i, At: &rank.Position{Kind: rank.StepMeasure,
				Collective: rcclx.AllReduce, Datatype: rcclx.BFloat16, SizeBytes: 8}})
		}
		v.onEvent(complains, rank.Event{Kind: rank.EventError, Rank: complains,
			Error: &rank.Error{Code: rank.CodeRankHung, Step: "AllReduce BFloat16 8 B", Message: "not done"}})
		f := v.failures.blame(v.ranks)
		if f == nil || f.Kind != FailHung || f.Rank != -1 || len(f.Behind) != 0 {
			t.Errorf("rank %d complains: %+v", complains, f)
		}
	}
}

package supervise

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/ras"
	"rcclx.io/commgroup-operator/internal/simtest"
)

// partOfTeam is a node's part of a communicator over two nodes: ranks 4 to 7 of 8, on GPUs 0 to 3.
func partOfTeam(t *testing.T, script fakeScript) Team {
	t.Helper()
	team := fakeTeam(t, 4, script)
	for i := range team.Specs {
		s := &team.Specs[i]
		s.Rank, s.WorldSize, s.Nodes = 4+i, 8, 2
	}
	team.UniqueID = []byte("0123456789") // what fake ranks expect
	return team
}

// kept is a copy of a rank's output.
type kept struct {
	bytes.Buffer
	closed int
}

func (k *kept) Close() error {
	k.closed++
	return nil
}

func TestPartOfACommunicator(t *testing.T) {
	team := partOfTeam(t, fakeScript{Rank: -1})
	outputs := make([]kept, 4)
	team.Output = func(i int) io.WriteCloser { return &outputs[i] }
	ids := 0
	team.OnEvent = func(e rank.Event) {
		if e.Kind == rank.EventUniqueID {
			ids++
		}
	}
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(), team)
	if out.Failure != nil || ids != 0 {
		t.Fatalf("%+v, %d ids", out.Failure, ids)
	}
	for i, r := range out.Ranks {
		if r.Rank != 4+i || r.Device != i || !r.Done || len(r.Measurements) != 2 {
			t.Errorf("%d: %+v", i, r)
		}
		if text := outputs[i].String(); outputs[i].closed != 1 || text != r.StdoutTail ||
			!strings.Contains(text, "log of rank ") {
			t.Errorf("%d: output %q, closed %d times, tail %q", i, text, outputs[i].closed, r.StdoutTail)
		}
	}
	simtest.NoChildren(t)
}

// TestOutputIsClosedWithoutAProcess: who reads the copy is not left waiting.
func TestOutputIsClosedWithoutAProcess(t *testing.T) {
	team := partOfTeam(t, fakeScript{Rank: -1})
	var outputs []*kept
	team.Output = func(int) io.WriteCloser {
		outputs = append(outputs, &kept{})
		return outputs[len(outputs)-1]
	}
	s := &Supervisor{Launcher: Launcher{Command: []string{"no/such/program"}}, Clock: clock.RealClock{}}
	if out := s.Run(t.Context(), team); out.Failure == nil || out.Failure.Kind != FailStart || len(outputs) == 0 {
		t.Errorf("%+v, %d outputs", out.Failure, len(outputs))
	}
	for i, o := range outputs {
		if o.closed != 1 {
			t.Errorf("output %d was closed %d times", i, o.closed)
		}
	}
}

// TestRootEnvironment is for the process of rank 0 only, wherever it stands in the team.
func TestRootEnvironment(t *testing.T) {
	team := fakeTeam(t, 4, fakeScript{Rank: -1})
	team.Specs[0], team.Specs[2] = team.Specs[2], team.Specs[0]
	// The fake rank of rank 0 fails where its script comes from RootEnv.
	team.RootEnv = []string{fakeScriptEnv + `={"Rank":0,"At":"init","Do":"exit3"}`}
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(), team)
	if f := out.Failure; f == nil || f.Kind != FailDied || out.Ranks[f.Rank].Rank != 0 || f.Rank != 2 {
		t.Errorf("%+v", f)
	}
	simtest.NoChildren(t)
}

func TestFailuresInAPart(t *testing.T) {
	out := fakeSupervisor(t, clock.RealClock{}).Run(t.Context(),
		partOfTeam(t, fakeScript{Rank: 6, At: stepName, Do: "exit3"}))
	f := out.Failure
	if f == nil || f.Kind != FailDied || f.Rank != 2 || !strings.Contains(f.Message, "rank 6 (GPU 0000:25:00.0)") ||
		!strings.Contains(out.LogTail(1024), "log of rank 6") {
		t.Errorf("%+v, log tail %q", f, out.LogTail(1024))
	}
	simtest.NoChildren(t)
}

// TestHangOverNodes: in a node's part of a communicator nobody else's ranks are counted as late, and those that RAS
// names on other nodes are told as such.
func TestHangOverNodes(t *testing.T) {
	start := time.Unix(1000, 0)
	behind := func(ranks ...int) []rasAnswer {
		var list []ras.Rank
		for _, r := range ranks {
			list = append(list, ras.Rank{Rank: r})
		}
		report := ras.Report{Collected: true,
			Groups: []ras.Group{{RanksPerCommunicator: 8, Status: "RUNNING", Errors: []string{"MISMATCH"}}},
			Communicators: []ras.Communicator{{Hash: "a", Operations: []ras.Operations{{Collective: "AllReduce",
				Classes: []ras.Class{{Count: 8 - len(ranks), Launched: 25},
					{Count: len(ranks), Launched: 14, Ranks: list}}}}}}}
		return []rasAnswer{{asked: start, report: report}, {asked: start.Add(time.Second), report: report}}
	}
	for _, tc := range []struct {
		name    string
		events  [4]int
		answers []rasAnswer
		rank    int
		words   []string
	}{
		{"all alike", [4]int{5, 5, 5, 5}, nil, -1, []string{"all 4 ranks of this node, of 8 missed the deadline"}},
		{"one behind its peers here", [4]int{5, 5, 4, 5}, nil, 2, []string{"rank 6 (GPU ordinal 2) missed"}},
		{"two behind", [4]int{4, 5, 4, 5}, nil, -1, []string{"ranks 4,6 missed"}},
		{"RAS names one of ours", [4]int{5, 5, 5, 5}, behind(5), 1, []string{"rank 5 (GPU ordinal 1), by RAS's word"}},
		{"RAS names another node's", [4]int{5, 5, 5, 5}, behind(2), -1,
			[]string{"all 4 ranks of this node, of 8 missed", "by RAS's word rank 2, on other nodes, launched fewer"}},
		{"RAS names ranks of both", [4]int{5, 5, 5, 5}, behind(2, 5), -1,
			[]string{"all 4 ranks of this node", "by RAS's word rank 2,5, on other nodes"}},
	} {
		spec := rank.Spec{WorldSize: 8, StepDeadline: 4 * time.Second}
		v := newSupervision(clocktesting.NewFakeClock(start),
			Team{Node: "n", Name: "task group-1, communicator group", Specs: specs(4, 4, spec)})
		for i, r := range v.ranks {
			r.Events, r.Since = tc.events[i], start
			r.began, r.deadline, r.awaits = start, start.Add(4*time.Second), stepName
		}
		v.ras.answers = tc.answers
		f := v.hang(0, rank.Error{Step: stepName})
		if f.Rank != tc.rank {
			t.Errorf("%s: rank index %d, expected %d: %s", tc.name, f.Rank, tc.rank, f.Message)
		}
		for _, w := range tc.words {
			if !strings.Contains(f.Message, w) {
				t.Errorf("%s: %q lacks %q", tc.name, f.Message, w)
			}
		}
	}
}

// TestErrorAtTheEndOfAHang: a rank elsewhere gives up on a hang a moment earlier, and its connections end. What failed
// at once, or for a reason of its own, is no hang.
func TestErrorAtTheEndOfAHang(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		code  string
		after time.Duration
		limit time.Duration // none where zero
		late  bool
	}{
		{"at once", rank.CodeCollectiveFailed, 300 * time.Millisecond, time.Minute, false},
		{"in the middle", rank.CodeCollectiveFailed, 53 * time.Second, time.Minute, false},
		{"at the end", rank.CodeCollectiveFailed, 54 * time.Second, time.Minute, true},
		{"init at the end", rank.CodeInitFailed, 59 * time.Second, time.Minute, true},
		{"a cause of its own", rank.CodeInsufficientMemory, 59 * time.Second, time.Minute, false},
		{"no deadline", rank.CodeCollectiveFailed, time.Hour, 0, false},
	} {
		v := newSupervision(clocktesting.NewFakeClock(start.Add(tc.after)),
			Team{Node: "n", Name: "task group-1, communicator group", Specs: specs(4, 1, rank.Spec{})})
		r := v.ranks[0]
		r.Since, r.began, r.awaits = start, start, stepName
		if tc.limit > 0 {
			r.deadline = start.Add(tc.limit)
		}
		v.onError(0, rank.Error{Code: tc.code, Step: stepName, Message: "remote process exited"})
		f := v.failures.all[0]
		if f.Late != tc.late || f.Code != tc.code ||
			strings.Contains(f.Message, fmt.Sprintf("after %s of the 1m0s", tc.after)) != tc.late {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}

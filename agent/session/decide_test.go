package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

func TestDecide(t *testing.T) {
	open := func(change func(*api.SessionAssignment)) Seen {
		a := testAssignment()
		if change != nil {
			change(&a)
		}
		return Seen{Session: &a}
	}
	task := within("mesh-tp-1")[0]
	with := func(change func(*api.NodeTask)) Seen {
		x := task.DeepCopy()
		if change != nil {
			change(x)
		}
		return open(func(a *api.SessionAssignment) { a.Task = x })
	}
	withID := task.DeepCopy()
	withID.Communicators[0].UniqueID = []byte{1}
	for _, tc := range []struct {
		name string
		last *api.NodeTask
		seen Seen
		want order
	}{
		{"nothing seen", &task, Seen{Err: errors.New("timeout")}, stay},
		{"gone", &task, Seen{Gone: true}, superseded},
		{"no session", &task, Seen{}, superseded},
		{"another run", &task, open(func(a *api.SessionAssignment) { a.RunID = "run-2" }), superseded},
		{"ended", &task, open(func(a *api.SessionAssignment) { a.State, a.Task = api.SessionClosed, &task }), end},
		{"no task yet", nil, open(nil), stay},
		{"withdrawn", &task, open(nil), drop},
		{"first", nil, with(nil), take},
		{"the same", &task, with(nil), stay},
		{"an id comes", &task, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{1} }), stay},
		{"the same id", withID, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{1} }), stay},
		{"another unique id", withID, with(func(x *api.NodeTask) { x.Communicators[0].UniqueID = []byte{2} }), take},
		{"another task", &task, with(func(x *api.NodeTask) { x.ID = "mesh-tp-2" }), take},
		{"other sizes", &task, with(func(x *api.NodeTask) { x.SizesBytes = []int64{8} }), take},
		{"other ranks", &task, with(func(x *api.NodeTask) { x.Communicators[0].Ranks = []int32{1, 0} }), take},
		{"a communicator more", &task, with(func(x *api.NodeTask) { x.Communicators = append(x.Communicators, x.Communicators[0]) }), take},
	} {
		if got, why := decide("run-1", tc.last, tc.seen); got != tc.want || (got == superseded || got == drop || got == end) != (why != "") {
			t.Errorf("%s: %d (%s), expected %d", tc.name, got, why, tc.want)
		}
	}
}

func TestCheckTask(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*api.NodeTask)
		words  string
	}{
		"good":               {func(*api.NodeTask) {}, ""},
		"none":               {func(x *api.NodeTask) { x.Communicators = nil }, "no communicator"},
		"twice":              {func(x *api.NodeTask) { x.Communicators = append(x.Communicators, x.Communicators[0]) }, "there twice"},
		"no device":          {func(x *api.NodeTask) { x.Communicators[0].Devices, x.Communicators[0].Ranks = nil, nil }, "0 devices"},
		"a rank too few":     {func(x *api.NodeTask) { x.Communicators[0].Ranks = []int32{0} }, "2 devices for 1 ranks"},
		"a world too small":  {func(x *api.NodeTask) { x.Communicators[0].WorldSize = 1 }, "1 ranks over 1 nodes"},
		"over no node":       {func(x *api.NodeTask) { x.Communicators[0].Nodes = 0 }, "over 0 nodes"},
		"GPU not there":      {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = 2 }, "GPU 2"},
		"negative GPU":       {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = -1 }, "GPU -1"},
		"one GPU twice":      {func(x *api.NodeTask) { x.Communicators[0].Devices[1] = 0 }, "may be in one"},
		"one rank twice":     {func(x *api.NodeTask) { x.Communicators[0].Ranks[1] = 0 }, "rank 0 of 2"},
		"rank past the last": {func(x *api.NodeTask) { x.Communicators[0].Ranks[1] = 2 }, "rank 2 of 2"},
		"long id":            {func(x *api.NodeTask) { x.Communicators[0].UniqueID = make([]byte, 129) }, "129 bytes"},
		"no iterations":      {func(x *api.NodeTask) { x.Iterations = 0 }, "0 iterations"},
		"no deadline":        {func(x *api.NodeTask) { x.DeadlineSeconds = 0 }, "deadline of 0"},
	} {
		task := within("t-1")[0]
		tc.change(&task)
		if got := checkTask(task, 2); (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
			t.Errorf("%s: %q, expected %q", name, got, tc.words)
		}
	}
}

// FuzzTask: whatever the CommNode asks for, a task is refused or can be planned and judged.
func FuzzTask(f *testing.F) {
	for _, task := range []api.NodeTask{within("a")[0], *meshTask("b"), wholeGroup("c", make([]*member, 2))[0], {}} {
		data, err := json.Marshal(task)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var task api.NodeTask
		if json.Unmarshal(data, &task) != nil || checkTask(task, 4) != "" {
			return
		}
		if !sameTask(task, task) || len(newIDs(task, task)) > 0 {
			t.Errorf("%+v is not itself", task)
		}
		for _, c := range task.Communicators {
			var specs []rank.Spec
			for i, r := range c.Ranks {
				specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]), Steps: plan(task, int(c.WorldSize))})
			}
			s := judge("node-a", task, c, ended{outcome: passed(specs)}, isRoot(c))
			if s.Verdict != api.VerdictPass && s.Verdict != api.VerdictError || s.Verdict == api.VerdictError && s.Message == "" {
				t.Errorf("%+v gives %+v", c, s)
			}
			if o := passed(specs); len(o.Ranks[0].Measurements) > 0 {
				o.Ranks[0].Measurements = o.Ranks[0].Measurements[1:]
				if s := judge("node-a", task, c, ended{outcome: o}, isRoot(c)); s.Verdict == api.VerdictPass {
					t.Errorf("%+v passes although a measurement is missing", c)
				}
			}
		}
	})
}

func TestJudge(t *testing.T) {
	root, other := wholeGroup("group-1", make([]*member, 2))[0], wholeGroup("group-1", make([]*member, 2))[1]
	outcome := func(task api.NodeTask, change func(*supervise.Outcome)) supervise.Outcome {
		c := task.Communicators[0]
		var specs []rank.Spec
		for i, r := range c.Ranks {
			specs = append(specs, rank.Spec{Rank: int(r), WorldSize: int(c.WorldSize), Device: int(c.Devices[i]), PCIAddress: pci(i), Steps: plan(task, int(c.WorldSize))})
		}
		o := passed(specs)
		if change != nil {
			change(&o)
		}
		return o
	}
	failure := func(f supervise.Failure, change func(*supervise.Outcome)) func(*supervise.Outcome) {
		return func(o *supervise.Outcome) {
			f.Message = "node node-b: words"
			o.Failure = &f
			if change != nil {
				change(o)
			}
		}
	}
	last := func(at int, kind rank.EventKind) func(*supervise.Outcome) {
		return func(o *supervise.Outcome) { o.Ranks[at].LastEvent = kind }
	}
	for _, tc := range []struct {
		name    string
		task    api.NodeTask
		change  func(*supervise.Outcome)
		verdict api.Verdict
		reason  string
		guilty  string // kind and name
	}{
		{"good", other, nil, api.VerdictPass, "", ""},
		{"wrong data", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements[0].Checks[0].WrongElements = 3 }, api.VerdictFail, api.ReasonWrongData, ""},
		{"not measured", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements = nil }, api.VerdictError, api.ReasonInconclusive, ""},
		{"not checked", other, func(o *supervise.Outcome) { o.Ranks[1].Measurements[0].Checks[0].CheckedElements = 0 }, api.VerdictError, api.ReasonInconclusive, ""},
		{"died", other, failure(supervise.Failure{Kind: supervise.FailDied, Rank: 1}, nil), api.VerdictFail, api.ReasonRankDied, "GPU " + pci(1)},
		{"killed from outside", other, failure(supervise.Failure{Kind: supervise.FailDied, Rank: 1, Killed: true}, nil), api.VerdictFail, api.ReasonRankDied, "Rank rank 3"},
		{"a peer's end", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeCollectiveFailed}, nil), api.VerdictFail, api.ReasonCollectiveFailed, ""},
		{"a peer's end, late", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeCollectiveFailed, Late: true}, nil), api.VerdictFail, api.ReasonRankHung, ""},
		{"init failed", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeInitFailed}, nil), api.VerdictFail, api.ReasonInitFailed, ""},
		{"no memory", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeInsufficientMemory, Rank: 1}, nil), api.VerdictError, api.ReasonInsufficientMemory, "GPU " + pci(1)},
		{"no library", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeLibraryMissing, Rank: 1}, nil), api.VerdictError, api.ReasonLibraryMissing, "Node node-b"},
		{"bad spec", other, failure(supervise.Failure{Kind: supervise.FailRankError, Code: rank.CodeBadSpec, Rank: 1}, nil), api.VerdictError, api.ReasonRunPodFailed, ""},
		{"all hang", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "AllReduce Float32 4096 B"}, nil), api.VerdictFail, api.ReasonRankHung, ""},
		{"one lags in a step", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "AllReduce Float32 4096 B"}, last(1, rank.EventStepStart)), api.VerdictFail, api.ReasonRankHung, ""},
		{"one waits to join", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "init"}, last(1, rank.EventInitStart)), api.VerdictFail, api.ReasonRankHung, ""},
		{"one never loaded", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "load"}, last(1, "")), api.VerdictFail, api.ReasonRankHung, "GPU " + pci(1)},
		{"one does not begin to join", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: 1, Behind: []int{1}, Step: "preconditions"}, last(1, rank.EventLoaded)), api.VerdictFail, api.ReasonRankHung, "GPU " + pci(1)},
		{"no id was made", root, failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1, Step: "init"}, nil), api.VerdictFail, api.ReasonRankHung, "Node node-b"},
		{"not started", other, failure(supervise.Failure{Kind: supervise.FailStart, Rank: 0}, nil), api.VerdictError, api.ReasonPreconditionFailed, "Node node-b"},
		{"out of time", other, failure(supervise.Failure{Kind: supervise.FailRunDeadline, Rank: -1}, nil), api.VerdictFail, api.ReasonRunDeadlineExceeded, ""},
		{"garbage", other, failure(supervise.Failure{Kind: supervise.FailProtocol, Rank: 0}, nil), api.VerdictError, api.ReasonRunPodFailed, ""},
		{"does not end", other, failure(supervise.Failure{Kind: supervise.FailHung, Rank: -1}, func(o *supervise.Outcome) { o.Ranks[0].Stuck = true }), api.VerdictFail, api.ReasonRankHung, "GPU " + pci(0)},
	} {
		s := judge("node-b", tc.task, tc.task.Communicators[0], ended{outcome: outcome(tc.task, tc.change)}, false)
		who := ""
		if s.Guilty != nil {
			who = s.Guilty.Kind + " " + s.Guilty.Name
		}
		if s.Verdict != tc.verdict || s.Reason != tc.reason || who != tc.guilty || (s.Message == "") != (tc.verdict == api.VerdictPass) {
			t.Errorf("%s: %s %s, guilty %q: %q", tc.name, s.Verdict, s.Reason, who, s.Message)
		}
	}
	// The slowest of the node's ranks counts, and a size that one of them lacks does not.
	o := outcome(root, func(o *supervise.Outcome) { o.Ranks[1].Measurements = o.Ranks[1].Measurements[:1] })
	r := judge("node-a", root, root.Communicators[0], ended{outcome: o}, true).Results
	if len(r) != 1 || fmt.Sprint(r[0].SizeBytes, r[0].LatencyNanoseconds) != "[4096] [2000]" || r[0].BusBandwidthMBps[0] != rcclx.BusBandwidthMBps(rcclx.AllReduce, 4096, 2000, 4) {
		t.Errorf("results %+v", r)
	}
}

func TestFit(t *testing.T) {
	s := api.SessionStatus{RunID: "run-1", State: api.SessionReady, Message: strings.Repeat("x", 1000), Network: &api.NetworkStatus{Interface: "eth0"},
		Task: &api.NodeTaskStatus{ID: "mesh-dp-1", Phase: api.TaskFinished}}
	for i := range 8 {
		c := api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", i), Verdict: api.VerdictFail, Reason: api.ReasonRankHung, Message: strings.Repeat("m", 512),
			Guilty: &api.Culprit{Node: "node-a", Kind: "GPU", Name: pci(0), Reason: "R", Message: strings.Repeat("g", 512)}}
		for range 3 {
			r := api.ResultSeries{Variant: api.VariantBaseline, Collective: api.AllReduce, Datatype: api.Float32, NoisePercent: []int32{1, 2, 3}}
			for k := range int64(20) {
				r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, 1024<<k), append(r.LatencyNanoseconds, 100000+k), append(r.BusBandwidthMBps, 300000+k)
			}
			c.Results = append(c.Results, r)
		}
		s.Task.Communicators = append(s.Task.Communicators, c)
	}
	for _, n := range []int{1, 2, 4, 8} {
		part := *s.DeepCopy()
		part.Task.Communicators = part.Task.Communicators[:n]
		if got := encodedBytes(Fit(part, 1<<20, nil)); got > mostBytes {
			t.Errorf("%d communicators take %d bytes", n, got)
		}
	}
	small := Fit(s, 0, nil)
	for i, c := range small.Task.Communicators {
		if c.Verdict != api.VerdictFail || c.Reason == "" || c.Guilty == nil || c.Guilty.Name != pci(0) || len(c.Results)+int(c.OmittedSeries) != 3 {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if len(s.Task.Communicators[0].Results[0].SizeBytes) != 20 {
		t.Error("the report itself was changed")
	}
	over := *s.DeepCopy()
	over.Task.Communicators[0].UniqueID = make([]byte, 128)
	if got := Fit(over, 0, nil); got.Task.Communicators[0].UniqueID != nil {
		t.Error("an id that nobody needs was kept where space is short")
	}
	ids := api.SessionStatus{Task: &api.NodeTaskStatus{Communicators: []api.TaskCommunicatorStatus{{UniqueID: make([]byte, 128)}}}}
	if got := Fit(ids, 10, nil); len(got.Task.Communicators[0].UniqueID) != 128 {
		t.Error("an id was cut")
	}
}

func TestThin(t *testing.T) {
	for _, tc := range []struct {
		n, least int
		want     string
		keep     []int64
	}{{7, 3, "[0 2 4 6]", nil}, {6, 3, "[0 2 4 5]", nil}, {4, 3, "[0 2 3]", nil}, {3, 3, "[0 1 2]", nil}, {3, 2, "[0 2]", nil}, {2, 2, "[0 1]", nil}, {1, 2, "[0]", nil},
		{5, 2, "[0 2 4]", nil}, {7, 2, "[0 1 3 5 6]", []int64{1, 5}}, {5, 2, "[0 1 3 4]", []int64{1, 3}}, {4, 2, "[0 1 2 3]", []int64{1, 2}}} {
		var r api.ResultSeries
		for i := range int64(tc.n) {
			r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, i), append(r.LatencyNanoseconds, i), append(r.BusBandwidthMBps, i)
		}
		thin(&r, tc.least, tc.keep)
		if got := fmt.Sprint(r.SizeBytes); got != tc.want || fmt.Sprint(r.BusBandwidthMBps) != tc.want || fmt.Sprint(r.LatencyNanoseconds) != tc.want {
			t.Errorf("%d sizes, at least %d: %s, expected %s", tc.n, tc.least, got, tc.want)
		}
	}
}

// TestFitKeepsWhatJudges: whatever a spec may ask for, a series that stays in a report has its first and its last size and those
// of thresholds, those that do not stay are counted, and each communicator keeps its first while there is room.
func TestFitKeepsWhatJudges(t *testing.T) {
	collectives := []api.Collective{api.AllReduce, api.AllGather, api.ReduceScatter, api.AllToAll, api.Broadcast, api.Reduce, api.SendRecv, api.AllToAllv}
	for _, comms := range []int{1, 2, 8, 64} {
		for _, series := range []int{1, 4, 16, 24} {
			if comms*series > 256 {
				continue // larger than the largest status, and seconds of work
			}
			for _, sizes := range []int{1, 2, 12, 40} {
				for _, budget := range []int{2 << 10, 2900, 1 << 20} {
					s := api.SessionStatus{RunID: "run-1", State: api.SessionReady, SettingsHash: strings.Repeat("a", 64), Library: &api.LibraryFacts{Flavor: "rccl", Version: "2.28.3", Path: "/opt/rocm/lib/librccl.so.1"},
						Network: &api.NetworkStatus{Interface: "eth0", Addresses: []string{"10.0.0.1"}}, Task: &api.NodeTaskStatus{ID: "mesh-dp-1", Phase: api.TaskFinished}}
					var keep []int64
					for c := range comms {
						one := api.TaskCommunicatorStatus{Name: fmt.Sprintf("dp/%d", c), Verdict: api.VerdictPass, Transport: "RDMA", UniqueID: make([]byte, 40)}
						for k := range series {
							r := api.ResultSeries{Variant: api.VariantBaseline, Collective: collectives[k%8], Datatype: api.BFloat16}
							for i := range int64(sizes) {
								r.SizeBytes, r.LatencyNanoseconds, r.BusBandwidthMBps = append(r.SizeBytes, 1000+i), append(r.LatencyNanoseconds, 123456), append(r.BusBandwidthMBps, 312345)
							}
							one.Results = append(one.Results, r)
						}
						s.Task.Communicators = append(s.Task.Communicators, one)
					}
					if sizes == 12 {
						keep = []int64{1003, 1007}
					}
					got := Fit(s, budget, keep)
					least := 0
					for _, c := range got.Task.Communicators {
						if least = max(least, len(c.Results)); len(c.Results)+int(c.OmittedSeries) != series || c.Verdict != api.VerdictPass {
							t.Fatalf("%d communicators of %d series: %s has %d and says that %d are left out", comms, series, c.Name, len(c.Results), c.OmittedSeries)
						}
						for _, r := range c.Results {
							n := len(r.SizeBytes)
							if r.SizeBytes[0] != 1000 || r.SizeBytes[n-1] != 999+int64(sizes) || len(r.LatencyNanoseconds) != n || len(r.BusBandwidthMBps) != n {
								t.Fatalf("%d communicators of %d series: sizes %v of %d", comms, series, r.SizeBytes, sizes)
							}
							if comms == 1 && len(keep) > 0 && (!slices.Contains(r.SizeBytes, keep[0]) || !slices.Contains(r.SizeBytes, keep[1])) {
								t.Fatalf("%d series: sizes %v lack those of thresholds", series, r.SizeBytes)
							}
						}
						if comms <= 8 && budget > leastBytes && len(c.Results) == 0 {
							t.Errorf("%d communicators of %d series: none is left of %s", comms, series, c.Name)
						}
					}
					// Verdicts stay whatever they take; results only while there is room.
					if n := encodedBytes(got); n > max(leastBytes, min(mostBytes, budget)) && least > 0 || n > 6<<10 {
						t.Errorf("%d communicators of %d series of %d sizes: %d bytes of %d", comms, series, sizes, n, budget)
					}
				}
			}
		}
	}
}

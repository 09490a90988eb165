package ras

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func answer(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestParseRealAnswer(t *testing.T) {
	got := Parse(answer(t, "nccl-2.28.9-mismatch"))
	want := Report{
		Library: "NCCL 2.28.9", Nodes: 1, Processes: 2, GPUs: 2, Collected: true, Complete: true,
		Groups: []Group{{Number: 0, Communicators: 1, RanksPerCommunicator: 2, Status: "RUNNING",
			Errors: []string{"MISMATCH"}}},
		Communicators: []Communicator{{Hash: "1d82bfc7347b3740",
			Operations: []Operations{{Collective: "AllReduce", Classes: []Class{
				{Count: 1, Launched: 204204, Ranks: []Rank{{Rank: 1, GPU: "1", PID: 2425}}},
				{Count: 1, Launched: 203790, Ranks: []Rank{{Rank: 0, GPU: "0", PID: 2424}}},
			}}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseEverything(t *testing.T) {
	got := Parse(answer(t, "dead-process"))
	want := Report{
		Library: "NCCL 2.28.9+cuda13.0", Nodes: 3, Processes: 8, GPUs: 9, Collected: true, Complete: true, Timeouts: 3,
		Groups: []Group{
			{Number: 0, Communicators: 1, RanksPerCommunicator: 9, Status: "RUNNING",
				Errors: []string{"INCOMPLETE", "ERROR", "MISMATCH"}},
			{Number: 1, Communicators: 2, RanksPerCommunicator: 2, Status: "RUNNING"},
		},
		Missing: Processes{Count: 1, Listed: []Process{{PID: 77, Node: "192.0.2.3", GPUs: "1 (NVML 3)"}}},
		Dead:    Processes{Count: 1, Listed: []Process{{PID: 78, Node: "192.0.2.3", GPUs: "2,3"}}},
		Communicators: []Communicator{{
			Hash: "00f1d82bfc7347b3", MissingRanks: 2,
			Missing: []Rank{{Rank: 4, GPU: "1 (NVML 3)", PID: 77}, {Rank: 5}},
			Errors: []RankErrors{
				{Count: 1, Classes: []Class{{Count: 1, Status: "Unhandled CUDA error", Ranks: []Rank{{0, "0", 70}}}}},
				{Asynchronous: true, Count: 3, Classes: []Class{
					{Count: 2, Status: "Remote process error", Ranks: []Rank{{1, "1", 71}, {6, "0", 79}}},
					{Count: 1, Status: "System error", Ranks: []Rank{{2, "2", 72}}},
				}},
			},
			Statuses: []Class{{Count: 6, Status: "RUNNING"}, {Count: 1, Status: "ABORT", Ranks: []Rank{{7, "1", 79}}}},
			Operations: []Operations{
				{Collective: "AllReduce", Classes: []Class{{Count: 4, Launched: 9},
					{Count: 3, Ranks: []Rank{{0, "0", 70}, {1, "1", 71}, {2, "2", 72}}}}},
				{Collective: "Broadcast", Classes: []Class{{Count: 1, Launched: 1, Ranks: []Rank{{8, "2", 80}}},
					{Count: 1, Ranks: []Rank{{0, "0", 70}}}}},
			},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestVerdict(t *testing.T) {
	hang := Parse(answer(t, "hang-in-allreduce"))
	alike := hang
	alike.Groups = []Group{{RanksPerCommunicator: 8, Communicators: 1, Status: "RUNNING"}}
	alike.Communicators = nil
	behind := Parse(strings.Replace(answer(t, "hang-in-allreduce"), "operation 13", "operation 14", 1))
	for _, c := range []struct {
		name    string
		report  Report
		earlier *Report
		want    string
	}{
		{"two ranks at work", Parse(answer(t, "nccl-2.28.9-mismatch")), nil,
			"RAS: communicator of 2 ranks is RUNNING with MISMATCH: rank 1 has launched 204204 of the AllReduce " +
				"operations, rank 0 203790 (asked once; ranks at work differ, too)"},
		{"one rank is behind and stays so", hang, &hang, "RAS: communicator of 8 ranks is RUNNING with MISMATCH: " +
			"rank 3 has launched 12 of the AllReduce (printed as Broadcast) operations, the others 13 (standing " +
			"still for 5s) (DDA and low precision are not counted)"},
		{"the others went on", behind, &hang, "RAS: communicator of 8 ranks is RUNNING with MISMATCH: " +
			"rank 3 has launched 12 of the AllReduce (printed as Broadcast) operations, the others 14 (still moving) " +
			"(DDA and low precision are not counted)"},
		{"all stood alike before", hang, &alike, "RAS: communicator of 8 ranks is RUNNING with MISMATCH: " +
			"rank 3 has launched 12 of the AllReduce (printed as Broadcast) operations, the others 13 (moving: " +
			"they stood alike 5s before) (DDA and low precision are not counted)"},
		{"alike", alike, nil, "RAS: communicator of 8 ranks is RUNNING and its ranks have launched equally many " +
			"operations, so none lags behind in launching (DDA and low precision are not counted)"},
		{"much at once", Parse(answer(t, "dead-process")), nil, "RAS: communicator of 9 ranks is RUNNING " +
			"with INCOMPLETE, ERROR, MISMATCH: no answer from ranks 4,5; rank 0 reported Unhandled CUDA " +
			"error at initialisation; ranks 1,6 reported Remote process error after initialisation; rank 2 " +
			"reported System error after initialisation; rank 7 is ABORT, the others RUNNING; ranks 0,1,2 have " +
			"launched none of the AllReduce operations, the others 9 (asked once; ranks at work differ, too); " +
			"rank 8 has launched 1 of the Broadcast operations, rank 0 none (asked once; ranks at work differ, too); " +
			"no answer from process 77 (GPU 1 (NVML 3)); given up as dead: process 78 (GPU 2,3)"},
		{"nobody has met", Parse(answer(t, "nobody-met")), nil,
			"RAS: no communicator yet, so its ranks have not all met (0 processes are known)"},
		{"cut off", Parse(strings.Split(answer(t, "nobody-met"), " (0.000s)")[0]), nil,
			"RAS: the answer broke off before it came to the communicators"},
		{"nothing", Report{}, nil, "RAS: the answer broke off before it came to the communicators"},
	} {
		if got := Verdict(c.report, c.earlier, 5*time.Second); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"nccl-2.28.9-mismatch", "rccl-2.27.7-mismatch", "rccl-2.27.7-killed",
		"garbage-communicator", "hang-in-allreduce", "dead-process", "nobody-met"} {
		text := answer(f, name)
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add("Errors\n#0-0 (0) INCOMPLETE\n  Missing communicator data from 99999999999999999999 ranks\n  Rank 1 -- x\n")
	f.Add("Errors\n  Rank 1 -- GPU 1 managed by process 1 on node x\n  3 ranks have status X\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := Parse(text)
		if len(r.Groups) > maxGroups || len(r.Communicators) > maxGroups || len(r.Dead.Listed) > maxListed {
			t.Fatalf("too much is kept: %d groups, %d communicators", len(r.Groups), len(r.Communicators))
		}
		if r.Complete && !strings.Contains(text, "Warnings") {
			t.Fatal("complete without its last section")
		}
		if v := Verdict(r, &r, time.Second); v == "" {
			t.Fatal("no verdict")
		}
	})
}

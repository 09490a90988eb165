package ras

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSuspect(t *testing.T) {
	group := func(ranks int, errors ...string) []Group {
		return []Group{{RanksPerCommunicator: ranks, Status: "RUNNING", Errors: errors}}
	}
	operations := func(collective string, others int, launched int64, lag int64, ranks ...int) Operations {
		behind := Class{Count: len(ranks), Launched: lag}
		for _, r := range ranks {
			behind.Ranks = append(behind.Ranks, Rank{Rank: r})
		}
		return Operations{Collective: collective, Classes: []Class{{Count: others, Launched: launched}, behind}}
	}
	mismatch := func(ranks int, o ...Operations) Report {
		return Report{Collected: true, Groups: group(ranks, "MISMATCH"),
			Communicators: []Communicator{{Hash: "a", Operations: o}}}
	}
	silent := func(ranks, missing int, named ...int) Report {
		c := Communicator{Hash: "a", MissingRanks: missing}
		for _, r := range named {
			c.Missing = append(c.Missing, Rank{Rank: r})
		}
		return Report{Collected: true, Groups: group(ranks, "INCOMPLETE"), Communicators: []Communicator{c}}
	}
	silentAndMoving := silent(8, 1, 6)
	silentAndMoving.Communicators[0].Operations = []Operations{operations("AllReduce", 6, 25, 14, 3)}
	healthy := Report{Collected: true, Groups: group(8)}
	one := mismatch(8, operations("AllReduce", 7, 25, 14, 3))
	for _, c := range []struct {
		name    string
		report  Report
		earlier *Report
		want    []int
		why     string
	}{
		{"one behind, standing still", one, &one, []int{3},
			"launched fewer operations than the others, standing still for 1s"},
		{"asked once", one, nil, nil, ""},
		{"the others move", one, new(mismatch(8, operations("AllReduce", 7, 24, 13, 3))), nil, ""},
		{"it was another one before", one, new(mismatch(8, operations("AllReduce", 7, 25, 13, 4))), nil, ""},
		{"only the one behind moves", one, new(mismatch(8, operations("AllReduce", 7, 25, 13, 3))), []int{3},
			"launched fewer operations than the others, who stood still for 1s"},
		{"they stood alike before", one, &healthy, nil, ""},
		{"two behind", mismatch(8, operations("AllReduce", 6, 25, 0, 5, 2)),
			new(mismatch(8, operations("AllReduce", 6, 25, 0, 5, 2))), []int{2, 5}, "launched fewer"},
		{"more than half behind", mismatch(8, operations("AllReduce", 3, 25, 14, 0, 1, 2, 3, 4)),
			new(mismatch(8, operations("AllReduce", 3, 25, 14, 0, 1, 2, 3, 4))), nil, ""},
		{"one ahead, so the rest is behind", mismatch(8, operations("AllReduce", 7, 13, 14, 3)),
			new(mismatch(8, operations("AllReduce", 7, 13, 14, 3))), nil, ""},
		{"one rank here, another one there",
			mismatch(8, operations("AllReduce", 7, 25, 14, 3), operations("AllGather", 7, 2, 1, 4)),
			new(mismatch(8, operations("AllReduce", 7, 25, 14, 3), operations("AllGather", 7, 2, 1, 4))), nil, ""},
		{"the same one in both",
			mismatch(8, operations("AllReduce", 7, 25, 14, 3), operations("AllGather", 7, 2, 1, 3)),
			new(mismatch(8, operations("AllReduce", 7, 25, 14, 3), operations("AllGather", 7, 2, 1, 3))), []int{3},
			"launched fewer"},
		{"silent", silent(8, 1, 6), nil, []int{6}, "gave no answer"},
		{"another job's communicator", silent(2, 1, 1), nil, nil, ""},
		{"one of two silent", silent(2, 1, 1), nil, []int{1}, "gave no answer"},
		{"silent, but not named", silent(8, 2, 6), nil, nil, ""},
		{"most are silent", silent(8, 5, 0, 1, 2, 3, 4), nil, nil, ""},
		{"silent while counts move", silentAndMoving, &healthy, nil, ""},
		{"nothing wrong", healthy, &healthy, nil, ""},
		{"no answer at all", Report{}, nil, nil, ""},
	} {
		ranks := 8
		if c.name == "one of two silent" {
			ranks = 2
		}
		got := Suspect(c.report, c.earlier, time.Second, ranks)
		if !slices.Equal(got.Ranks, c.want) || !strings.HasPrefix(got.Why, c.why) || (c.why == "") != (got.Why == "") ||
			got.Moving != (c.name == "only the one behind moves") {
			t.Errorf("%s: %+v, want %v %q", c.name, got, c.want, c.why)
		}
	}
}

// Answers in the forms that real libraries and public reports show: what is said, and who is suspected, when the same
// answer comes twice.
func TestAnswers(t *testing.T) {
	const notCounted = " (DDA and low precision are not counted)"
	for _, c := range []struct {
		name    string
		ranks   int
		verdict string
		want    Suspicion
	}{
		{"rccl-2.27.7-mismatch", 3, "RAS: communicator of 3 ranks is RUNNING with MISMATCH: rank 1 has launched " +
			"2 of the AllReduce (printed as Reduce) operations, the others 3 (standing still for 1s)" + notCounted,
			Suspicion{Ranks: []int{1}, Why: "launched fewer operations than the others, standing still for 1s"}},
		{"rccl-2.27.7-killed", 3, "RAS: communicator of 3 ranks is RUNNING with INCOMPLETE, MISMATCH: " +
			"no answer from rank 2; rank 0 has launched 3 of the AllReduce (printed as Reduce) operations, " +
			"rank 1 2 (standing still for 1s); no answer from process 11172 (GPU 2)" + notCounted,
			Suspicion{Ranks: []int{2}, Why: "gave no answer"}},
		{"majority-behind", 32, "RAS: communicator of 32 ranks is RUNNING with MISMATCH: ranks 12,13 have launched " +
			"513 of the AllGather operations, the others 512 (standing still for 1s)", Suspicion{}},
		{"garbage-communicator", 2, "RAS: communicator of 2 ranks is RUNNING with INCOMPLETE: no answer from rank 1; " +
			"no answer from process 6004 (GPU 0)", Suspicion{Ranks: []int{1}, Why: "gave no answer"}},
		{"healthy-while-hung", 256, "RAS: communicator of 256 ranks is RUNNING and its ranks have launched equally " +
			"many operations, so none lags behind in launching", Suspicion{}},
	} {
		r := Parse(answer(t, c.name))
		if !r.Collected || !r.Complete {
			t.Errorf("%s: collected %v, complete %v", c.name, r.Collected, r.Complete)
		}
		if got := Verdict(r, &r, time.Second); got != c.verdict {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.verdict)
		}
		if got := Suspect(r, &r, time.Second, c.ranks); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: suspects %+v, want %+v", c.name, got, c.want)
		}
	}
}

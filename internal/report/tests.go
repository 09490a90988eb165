package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// TestLine is one test of the group's stage as users read it.
type TestLine struct {
	ID string
	// Set are the indexes of the members that took part, without those that the group had gone on without by then.
	Set string
	// Nodes says in words who took part: by name where they are two.
	Nodes   string
	Verdict v1alpha1.Verdict
	Reason  string
	// BusMBps of the slowest communicator; nil where none was measured.
	BusMBps *int64
	// OfBestPair is a pair's figure in percent of the best pair's since the last test of the group; nil where it is no
	// pair.
	OfBestPair *int64
	Seconds    *int32
	// Pair are the names of the two nodes that the figure is of; empty where it is of no single pair, and in the mesh,
	// where another step is measured.
	Pair []string
}

// TestLines gives the tests of a group's stage in the order in which they were made. nodes give names to the indexes.
func TestLines(group *state.Group, nodes []Member) []TestLine {
	stage := group.Status.Span
	if stage == nil {
		return nil
	}
	names := map[int]string{}
	for i := range nodes {
		if a := nodes[i].Spec.Session; a != nil && a.RunID == stage.RunID {
			names[int(a.Index)] = nodes[i].Spec.NodeName
		}
	}
	out := make([]TestLine, 0, len(stage.Tests))
	var left memberSet
	mesh := false
	unnoted := withoutNote(stage)
	bests := bestPairs(stage.Tests)
	for i := range stage.Tests {
		t := &stage.Tests[i]
		line := TestLine{ID: t.ID, Set: t.Set, Verdict: t.Verdict, Reason: t.Reason, BusMBps: t.BusBandwidthMBps,
			Seconds: t.Seconds}
		set, ok := parseMembers(t.Set)
		mesh = mesh || t.Kind == v1alpha1.TestMesh
		if i == unnoted {
			left, _ = parseMembers(stage.LeftSet)
		}
		switch {
		case !ok:
		case t.Kind == v1alpha1.TestDeparture:
			left = append(left, set...)
			line.Nodes = namesIn(set, names) + ": left out from here on"
		default:
			set = set.without(left)
			line.Set, line.Nodes = set.String(), whoIn(t, set, names)
			if two := set.first(3); len(two) == 2 && !mesh &&
				(t.Kind == v1alpha1.TestPairs || t.Kind == v1alpha1.TestPairRecord || t.Kind == v1alpha1.TestSearch) {
				line.Pair = []string{nameOf(two[0], names), nameOf(two[1], names)}
			}
		}
		if best := bests[i]; best > 0 && t.BusBandwidthMBps != nil {
			percent := *t.BusBandwidthMBps * 100 / best
			line.OfBestPair = &percent
		}
		out = append(out, line)
	}
	return out
}

// withoutNote is the test from which on the group goes on without members, where no entry notes since when: the list
// was cut, or is of an older manager. It is the last test of the group then; -1 where there is none.
func withoutNote(stage *v1alpha1.SpanStatus) int {
	at, groups := -1, 0
	for i := range stage.Tests {
		switch stage.Tests[i].Kind {
		case v1alpha1.TestDeparture:
			return -1
		case v1alpha1.TestGroup:
			at, groups = i, groups+1
		}
	}
	if at > 0 || groups > 1 {
		return at
	}
	return -1
}

// bestPairs gives for each test of pairs what the best pair since the last test of the group or of a dimension reached;
// zero for other tests. Only tests of one kind repeat the same step.
func bestPairs(tests []v1alpha1.SpanTest) []int64 {
	block := 0
	type comparable struct {
		block  int
		search bool
	}
	of := make([]*comparable, len(tests)) // nil for what is no pair
	best := map[comparable]int64{}
	for i := range tests {
		t := &tests[i]
		switch t.Kind {
		case v1alpha1.TestGroup, v1alpha1.TestMesh:
			block++
			continue
		case v1alpha1.TestPairs, v1alpha1.TestPairRecord:
		case v1alpha1.TestSearch:
			if set, ok := parseMembers(t.Set); !ok || set.count() != 2 {
				continue
			}
		default:
			continue
		}
		of[i] = &comparable{block, t.Kind == v1alpha1.TestSearch}
		if t.BusBandwidthMBps != nil {
			best[*of[i]] = max(best[*of[i]], *t.BusBandwidthMBps)
		}
	}
	out := make([]int64, len(tests))
	for i, key := range of {
		if key != nil {
			out[i] = best[*key]
		}
	}
	return out
}

// whoIn says in words over whom a test was, and what of it the figure is.
func whoIn(t *v1alpha1.SpanTest, set memberSet, names map[int]string) string {
	who := namesIn(set, names)
	switch {
	case t.Kind == v1alpha1.TestRails:
		return who + ": by rails, the slowest"
	case t.Kind == v1alpha1.TestPairs: // the round as a whole
		return who + " in pairs: the slowest"
	case t.Kind != v1alpha1.TestPairRecord || set.count() == 2:
		return who
	case t.Verdict == v1alpha1.VerdictPass:
		return who + " in pairs: the best"
	case t.Verdict == v1alpha1.VerdictFail:
		return who + " in pairs: bad ones"
	}
	return who + " in pairs"
}

// namesIn names the members where they are at most two, else counts them.
func namesIn(set memberSet, names map[int]string) string {
	if n := set.count(); n > 2 {
		return fmt.Sprintf("%d nodes", n)
	}
	parts := make([]string, 0, 2)
	for _, i := range set.first(2) {
		parts = append(parts, nameOf(i, names))
	}
	return strings.Join(parts, ", ")
}

func nameOf(index int, names map[int]string) string {
	return cmp.Or(names[index], fmt.Sprintf("member %d", index))
}

// spanTests prints each test in the order in which they were made. Members are indexes in rank order.
func spanTests(w io.Writer, tests []TestLine) error {
	if len(tests) == 0 {
		return nil
	}
	pairs := false
	for i := range tests {
		pairs = pairs || tests[i].OfBestPair != nil
	}
	head := []string{"TEST", "MEMBERS", "VERDICT", "REASON", "SLOWEST (GB/s)"}
	if pairs {
		head = append(head, "OF BEST PAIR")
	}
	rows := [][]string{append(head, "SECONDS", "NODES")}
	for i := range tests {
		t := &tests[i]
		row := []string{t.ID, t.Set, cmp.Or(string(t.Verdict), "running"), orUnknown(t.Reason), optionalGBps(t.BusMBps)}
		if pairs {
			percent := unknown
			if t.OfBestPair != nil {
				percent = fmt.Sprintf("%d %%", *t.OfBestPair)
			}
			row = append(row, percent)
		}
		seconds := unknown
		if t.Seconds != nil {
			seconds = fmt.Sprint(*t.Seconds)
		}
		rows = append(rows, append(row, seconds, orUnknown(t.Nodes)))
	}
	return table(w, rows)
}

// spanResults prints the largest size of each series. The figures are medians over the communicators of a dimension.
func spanResults(w io.Writer, results []v1alpha1.SpanResultSeries) error {
	if len(results) == 0 {
		return nil
	}
	repeated := HasRepeats(results)
	head := []string{"DIMENSION", "COMMUNICATORS", "RANKS", "NODES", "COLLECTIVE", "SIZE", "LATENCY (us)",
		"BUSBW (GB/s)", "SLOWEST (GB/s)"}
	if repeated {
		head = append(head, "REPEATS", "APART")
	}
	rows := [][]string{head}
	for i := range results {
		r := &results[i]
		last := len(r.SizeBytes) - 1
		if last < 0 {
			continue
		}
		what := fmt.Sprintf("%s %s", r.Collective, r.Datatype)
		if r.Placement != "" {
			what += " " + string(r.Placement)
		}
		slowest := item(r.MinBusBandwidthMBps, last, units.GBps)
		if r.Slowest != "" {
			slowest += " " + r.Slowest
		}
		row := []string{r.Dimension, fmt.Sprint(r.Communicators), fmt.Sprint(r.Ranks),
			fmt.Sprint(r.Nodes), what, units.Bytes(r.SizeBytes[last]),
			item(r.LatencyNanoseconds, last, units.Microseconds), item(r.BusBandwidthMBps, last, units.GBps), slowest}
		if repeated {
			repeats, spread := RepeatsWords(r, last)
			row = append(row, repeats, spread)
		}
		rows = append(rows, row)
	}
	return table(w, rows)
}

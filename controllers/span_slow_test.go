package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/testenv"
)

// goodPairWas says whether a pair was measured that is not slow, so that slow ones stand out.
func (w *groupWorld) goodPairWas() bool {
	for i := range w.span().Tests {
		t := &w.span().Tests[i]
		set, err := localize.ParseSet(t.Set)
		if t.Kind != v1alpha1.TestPairs || err != nil {
			continue
		}
		for _, pair := range stage.PairsOf(set, int(t.Round)) {
			slow := func(p [2]int) bool { return p == [2]int{pair[0], pair[1]} }
			if !slices.Contains(w.faults.slowNodes, pair[0]) && !slices.Contains(w.faults.slowNodes, pair[1]) &&
				!slices.ContainsFunc(w.faults.slowPairs, slow) {
				return true
			}
		}
	}
	return false
}

// checkSlow holds what must be true after a run with slow nodes or pairs.
func (w *groupWorld) checkSlow(t *testing.T, marked bool) {
	t.Helper()
	s := w.span()
	f := w.faults
	bad := slices.Clone(f.slowNodes)
	for _, p := range f.slowPairs {
		bad = append(bad, p[0], p[1])
	}
	for _, r := range f.slowRails {
		bad = append(bad, r[0])
	}
	for _, c := range s.Culprits {
		switch a, b, _ := strings.Cut(c.Name, "<->"); {
		case c.Kind == "Pair":
			// Each of the two is slow with whom, or one of them is.
			if !slices.Contains(bad, w.index[a]) && !slices.Contains(bad, w.index[b]) {
				t.Errorf("innocent pair: %+v", c)
			}
		case !slices.Contains(bad, w.index[c.Node]):
			t.Errorf("innocent node: %+v", c)
		}
	}
	text := s.Message
	if strings.Contains(text, "alike") && s.Verdict == v1alpha1.VerdictPass {
		t.Errorf("claims that all are alike: %s", text)
	}
	switch {
	case s.Verdict != v1alpha1.VerdictPass:
	case marked:
		t.Errorf("passes under a mark that is not met: %s", text)
	case w.goodPairWas():
		t.Errorf("passes although good and slow pairs were measured: %s", text)
	case !strings.Contains(text, judge.SpeedNotJudged) &&
		!strings.Contains(text, "What slows all members would not show"):
		t.Errorf("passes and does not say what its speed was held against: %s", text)
	}
	if t.Failed() {
		t.Logf("%+v: %s (%s) %s\n%s", f, s.Verdict, s.Reason, s.Message, w.tests())
	}
}

// TestSlowFaultsNeverPassAsAlike: any subset of slow nodes of few members, and one slow pair anywhere.
func TestSlowFaultsNeverPassAsAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	allUpTo, pairs, subsets := testenv.Draws(4, 5), testenv.Draws(1, 8), testenv.Draws(1, 16)
	for n := 2; n <= 16; n++ {
		var all []faults
		for a := range n {
			for b := range a {
				all = append(all, faults{slowPairs: [][2]int{{b, a}}})
			}
		}
		if n <= allUpTo {
			for mask := 1; mask < 1<<n; mask++ {
				all = append(all, faults{slowNodes: bits(mask, n)})
			}
		} else {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			all = all[:pairs]
			for range subsets {
				all = append(all, faults{slowNodes: bits(1+r.IntN(1<<n-1), n)})
			}
		}
		for i, f := range all {
			for _, marked := range testenv.Draws([]bool{i%2 == 0}, []bool{false, true}) {
				t.Run(fmt.Sprintf("%d members, nodes %v, pairs %v, marked %v", n, f.slowNodes, f.slowPairs, marked),
					func(t *testing.T) {
						var change func(*state.Group)
						if marked {
							change = groupThreshold(30_000)
						}
						w := newGroupWorld(t, n, f, change)
						w.play()
						w.checkSlow(t, marked)
					})
			}
		}
	}
}

func bits(mask, n int) []int {
	var out []int
	for i := range n {
		if mask>>i&1 == 1 {
			out = append(out, i)
		}
	}
	return out
}

// TestSlowOnesAreNamed: up to half of the members slow, the ends of the ring, three members, a pair that is no
// neighbour.
func TestSlowOnesAreNamed(t *testing.T) {
	for _, tc := range []struct {
		nodes    int
		faults   faults
		marked   bool
		culprits []string
	}{
		{nodes: 3, faults: faults{slowNodes: []int{1}}, culprits: []string{"Node 1"}},
		{nodes: 3, faults: faults{slowNodes: []int{1}}, marked: true, culprits: []string{"Node 1"}},
		{nodes: 3, faults: faults{slowPairs: [][2]int{{0, 2}}}, culprits: []string{"Pair 0<->2"}},
		{nodes: 4, faults: faults{slowNodes: []int{0, 1}}, culprits: []string{"Node 0", "Node 1"}},
		{nodes: 4, faults: faults{slowNodes: []int{0, 2}}, culprits: []string{"Node 0", "Node 2"}},
		{nodes: 5, faults: faults{slowPairs: [][2]int{{0, 4}}}, culprits: []string{"Pair 0<->4"}},
		{nodes: 6, faults: faults{slowNodes: []int{0, 1, 2, 3}},
			culprits: []string{"Node 0", "Node 1", "Node 2", "Node 3"}},
		{nodes: 6, faults: faults{slowNodes: []int{0, 3}}, culprits: []string{"Node 0", "Node 3"}},
		{nodes: 7, faults: faults{slowPairs: [][2]int{{0, 6}}}, culprits: []string{"Pair 0<->6"}},
		{nodes: 8, faults: faults{slowNodes: []int{0, 3, 5}}, culprits: []string{"Node 0", "Node 3", "Node 5"}},
		{nodes: 8, faults: faults{slowNodes: []int{0, 1, 2, 3}},
			culprits: []string{"Node 0", "Node 1", "Node 2", "Node 3"}},
		{nodes: 16, faults: faults{slowNodes: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}}, culprits: []string{"Node 0", "Node 1",
			"Node 2", "Node 3", "Node 4", "Node 5", "Node 6", "Node 7", "Node 8"}},
		{nodes: 16, faults: faults{slowPairs: [][2]int{{2, 9}}}, culprits: []string{"Pair 2<->9"}},
	} {
		t.Run(fmt.Sprintf("%d members, %+v", tc.nodes, tc.faults), func(t *testing.T) {
			var change func(*state.Group)
			if tc.marked {
				change = groupThreshold(30_000)
			}
			w := newGroupWorld(t, tc.nodes, tc.faults, change)
			w.play()
			w.checkSlow(t, tc.marked)
			s := w.span()
			if got := w.culprits(); !slices.Equal(got, tc.culprits) || s.Verdict != v1alpha1.VerdictFail {
				t.Errorf("%s, culprits %v, want %v: %s\n%s", s.Verdict, got, tc.culprits, s.Message, w.tests())
			}
			if !strings.Contains(fmt.Sprint(s.Culprits), "25 %") {
				t.Errorf("no percent in %+v", s.Culprits)
			}
			if l := s.Localization; l == nil || !strings.Contains(l.Message, "Confirmed") {
				t.Errorf("not confirmed: %+v", l)
			}
			t.Log(s.Message)
		})
	}
}

// TestSpeedThatWasNotJudgedIsSaid: where nothing could be compared, the stage's message and Validated say so.
func TestSpeedThatWasNotJudgedIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes  int
		change func(*state.Group)
		said   bool
	}{
		"two members": {nodes: 2, said: true},
		"localization Off": {nodes: 8, said: true,
			change: func(g *state.Group) { g.Spec.Localization.Mode = v1alpha1.LocalizationOff }},
		"percent 0": {nodes: 8, said: true,
			change: func(g *state.Group) { g.Spec.Benchmark.NodeMinPercentOfMedian = ptr.To(int32(0)) }},
		"pairs":         {nodes: 8},
		"a mark is met": {nodes: 2, change: groupThreshold(30_000)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGroupWorld(t, tc.nodes, faults{}, tc.change)
			w.play()
			message := ""
			for _, c := range w.group.Status.Conditions {
				if c.Type == v1alpha1.ConditionValidated {
					message = c.Message
				}
			}
			if s := w.span(); s.Verdict != v1alpha1.VerdictPass ||
				strings.Contains(s.Message, judge.SpeedNotJudged) != tc.said ||
				strings.Contains(message, judge.SpeedNotJudged) != tc.said {
				t.Errorf("said, want %v: %s %s\n%s", tc.said, s.Verdict, s.Message, message)
			}
		})
	}
}

// falls is bandwidth that falls with the number of nodes, as where latency counts; noise is at most so many per mille.
func falls(start, slope int64, noise int, r *rand.Rand) func([]int, int64) int64 {
	return func(nodes []int, mbps int64) int64 {
		mbps = mbps * start / (start + slope*int64(len(nodes)))
		if noise > 0 {
			mbps = mbps * int64(1000-r.IntN(noise)) / 1000
		}
		return mbps
	}
}

// TestSizeIsNoCulprit: where bandwidth falls with the number of nodes, nobody is named, and the search ends soon and
// says so.
func TestSizeIsNoCulprit(t *testing.T) {
	for _, n := range testenv.Draws([]int{8, 64}, []int{8, 16, 64, 200}) {
		for _, slope := range []int64{1, 20} {
			for _, marked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d members, slope %d, marked %v", n, slope, marked), func(t *testing.T) {
					change := func(*state.Group) {}
					if marked {
						change = groupThreshold(39_900)
					}
					w := newGroupWorld(t, n, faults{figure: falls(100, slope, 0, nil)}, func(g *state.Group) {
						g.Spec.Localization.DeadlineSeconds = 86400
						change(g)
					})
					w.play()
					s := w.span()
					if len(s.Culprits) > 0 || marked && s.Verdict != v1alpha1.VerdictFail {
						t.Errorf("%s, culprits %v", s.Verdict, w.culprits())
					}
					if l := s.Localization; l != nil && (l.State != v1alpha1.LocalizationNotFound || l.Tests > 40) {
						t.Errorf("search %+v", l)
					}
					if strings.Contains(s.Message, "Something among these is bad") {
						t.Error("suspects where nothing is bad")
					}
					t.Log(s.Verdict, s.Reason, s.Message, w.tests())
				})
			}
		}
	}
	for seed := range testenv.Draws[uint64](10, 30) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := []int{3, 5, 8, 12, 16, 24, 32, 48}[r.IntN(8)]
		slope := int64(10 * (1 + r.IntN(3)))
		w := newGroupWorld(t, n, faults{figure: falls(100, slope, 100, r)}, groupThreshold(39_000))
		w.play()
		if len(w.span().Culprits) > 0 {
			t.Errorf("seed %d, %d members, slope %d: %v\n%s", seed, n, slope, w.culprits(), w.tests())
		}
	}
}

// TestEarlyTestsAreJudgedAgain: without pairs, the first tests of a search are made while nothing fast is known.
func TestEarlyTestsAreJudgedAgain(t *testing.T) {
	for n := 3; n <= 6; n++ {
		for slow := range n {
			w := newGroupWorld(t, n, faults{slowNodes: []int{slow}}, func(g *state.Group) {
				groupThreshold(30_000)(g)
				g.Spec.Benchmark.NodeMinPercentOfMedian = ptr.To(int32(0))
			})
			w.play()
			if got, want := w.culprits(), []string{fmt.Sprintf("Node %d", slow)}; !slices.Equal(got, want) {
				t.Errorf("%d members: culprits %v, want %v: %s\n%s", n, got, want, w.span().Message, w.tests())
			}
		}
	}
}

// TestTestsAreCountedOnce: the bound on tests is that of the status, whatever a search took before.
func TestTestsAreCountedOnce(t *testing.T) {
	many := testenv.Draws(120, 1000)
	for _, tc := range []struct {
		nodes  int
		faults faults
	}{
		{many, faults{hangPairs: [][2]int{{3, many - 20}, {40, many / 2}}}},
		{232, faults{hangNodes: []int{1, 13, 25, 37, 49, 61, 73, 85, 97, 109, 121, 133, 145, 157, 169, 181,
			193, 205, 217, 229}}},
	} {
		w := newGroupWorld(t, tc.nodes, tc.faults, func(g *state.Group) {
			g.Spec.Run.NodeDeadlineSeconds, g.Spec.Localization.DeadlineSeconds = 86400, 86400
		})
		w.play()
		s := w.span()
		t.Logf("%d tests, culprits %v, %+v", len(s.Tests), w.culprits(), s.Localization)
		if s.Localization.State == v1alpha1.LocalizationOutOfBounds &&
			len(s.Tests) < stage.MaxTests-2*stage.TestsReserve {
			t.Errorf("out of bounds with %d tests of %d", len(s.Tests), stage.MaxTests)
		}
		if len(s.Culprits) == 0 {
			t.Errorf("no culprit: %s", s.Message)
		}
		if strings.Contains(s.Message, "did not name a culprit") && len(s.Culprits) > 0 {
			t.Errorf("says that none was named: %s", s.Message)
		}
		checkSize(t, "after many tests", &w.group.Status)
	}
}

// TestNoiseIsNoCulprit: figures of good members differ a little, of a few members as of very many.
func TestNoiseIsNoCulprit(t *testing.T) {
	for seed := range testenv.Draws[uint64](7, 20) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := []int{3, 4, 6, 7, 16, 33, 300}[seed%7]
		w := newGroupWorld(t, n, faults{figure: falls(1, 0, 120, r)}, nil)
		w.play()
		if s := w.span(); s.Verdict != v1alpha1.VerdictPass || len(s.Culprits) > 0 {
			t.Errorf("seed %d, %d members: %s %s %v\n%s", seed, n, s.Verdict, s.Message, w.culprits(), w.tests())
		}
	}
}

// TestSlowWithNoise: the slow ones, and nobody else, are named although figures differ a little.
func TestSlowWithNoise(t *testing.T) {
	for seed := range testenv.Draws[uint64](15, 40) {
		r := rand.New(rand.NewPCG(seed, 6))
		n := 3 + r.IntN(30)
		slow := r.Perm(n)[:1+r.IntN(max(1, n/2-1))]
		w := newGroupWorld(t, n, faults{slowNodes: slow, figure: falls(1, 0, 100, r)}, nil)
		w.play()
		w.checkSlow(t, false)
		named := 0
		for _, c := range w.span().Culprits {
			if c.Kind == "Node" {
				named++
			}
		}
		if named < min(len(slow), stage.MaxCulprits) {
			t.Errorf("seed %d, %d members, slow %v: %v: %s\n%s",
				seed, n, slow, w.culprits(), w.span().Message, w.tests())
		}
	}
}

// TestManySlowPairsAreAllKept: pairs that are not recorded one by one do not count as good.
func TestManySlowPairsAreAllKept(t *testing.T) {
	for _, n := range []int{40, testenv.Draws(250, 3000)} {
		var slow []int
		for i := 0; i < n/4; i++ {
			slow = append(slow, i*4)
		}
		w := newGroupWorld(t, n, faults{slowNodes: slow}, func(g *state.Group) {
			g.Spec.Run.NodeDeadlineSeconds = 86400
		})
		checked := false
		w.meddle = func() {
			s := w.span()
			if checked || s == nil || s.Stage != v1alpha1.StageLocalizing {
				return
			}
			checked = true
			bad := 0
			for _, test := range stage.PairsTold(w.group, s, n) {
				is := slices.ContainsFunc(test.Set, func(i int) bool { return i%4 == 0 && i/4 < n/4 })
				if is && test.Outcome == localize.Good {
					t.Fatalf("%d members: slow pair %v counts as good", n, test.Set)
				}
				if test.Outcome == localize.Bad {
					if bad++; !is {
						t.Fatalf("%d members: good pair %v counts as slow", n, test.Set)
					}
				}
			}
			if bad == 0 {
				t.Error("no pair is bad")
			}
		}
		w.play()
		if !checked {
			t.Errorf("%d members: no search: %s", n, w.span().Message)
		}
		for _, c := range w.span().Culprits {
			if !slices.ContainsFunc(w.accused(&c), func(i int) bool { return i%4 == 0 }) {
				t.Errorf("innocent %+v", c)
			}
		}
		t.Log(len(w.span().Tests), w.span().Message)
	}
}

// TestWordsOfCulprits: messages name what left, count the pairs that were evidence, and end at the end of a word.
func TestWordsOfCulprits(t *testing.T) {
	w := newGroupWorld(t, 8, faults{slowPairs: [][2]int{{2, 3}}}, nil)
	w.play()
	for _, want := range []string{"one of the two of", "12 pairs in 3 rounds", "25 %"} {
		if text := w.span().Message + w.span().Localization.Message +
			fmt.Sprint(w.span().Culprits); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if got := clip.Sentences("Seven words are in this long sentence.", 20); got != "Seven words are ..." {
		t.Errorf("clip gives %q", got)
	}
	if got := clip.Sentences("One sentence is here. Another one follows.", 30); got != "One sentence is here." {
		t.Errorf("clip gives %q", got)
	}
	for _, text := range []string{strings.Repeat("é", 50), strings.Repeat("a b", 30),
		strings.Repeat("no end ", 20), "Short."} {
		for limit := 8; limit < 60; limit++ {
			if got := clip.Sentences(text, limit); len(got) > limit || !utf8.ValidString(got) {
				t.Fatalf("clip to %d gives %q", limit, got)
			}
		}
	}
}

package controllers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/stage"
	"rcclx.io/commgroup-operator/controllers/testkit"
	"rcclx.io/commgroup-operator/internal/state"
)

// sessionBytes is what a run's own report of a large plan leaves for that of the session.
const sessionBytes = 2900

// cutToSize does with a report what the agent does before it writes it.
func cutToSize(t *testing.T, ct *v1alpha1.CommTask) {
	t.Helper()
	cut := executor.FitSession(*ct.Status.Session, sessionBytes, ct.Spec.Session.Task.KeepSizesBytes)
	ct.Status.Session = &cut
	data, err := json.Marshal(cut)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(data); n > sessionBytes && cut.Task.Communicators[0].Results != nil || n > 2*sessionBytes {
		t.Errorf("the report of %s has %d bytes, more than %d", ct.Name, n, sessionBytes)
	}
}

// TestGoodGroupPassesAtAnySpec: whatever the API lets a spec measure, a good group passes and nobody is blamed,
// although a report holds only so much; what was left out is told.
func TestGoodGroupPassesAtAnySpec(t *testing.T) {
	collectives := []v1alpha1.Collective{v1alpha1.AllReduce, v1alpha1.AllGather, v1alpha1.ReduceScatter,
		v1alpha1.AllToAll, v1alpha1.Broadcast, v1alpha1.Reduce, v1alpha1.SendRecv, v1alpha1.AllToAllv}
	datatypes := []v1alpha1.Datatype{v1alpha1.BFloat16, v1alpha1.Float32, v1alpha1.Float16, v1alpha1.Int8,
		v1alpha1.Int32, v1alpha1.Float64}
	type spec struct {
		collectives []v1alpha1.Collective
		datatypes   []v1alpha1.Datatype
		placements  []v1alpha1.Placement
		nodes       int
		ranks       int32
		mesh        bool
		largest     int64
	}
	both := []v1alpha1.Placement{v1alpha1.OutOfPlace, v1alpha1.InPlace}
	specs := []spec{
		{collectives[:4], datatypes[:1], both[:1], 16, 8, true, 1 << 33},
		{collectives[:2], datatypes[:1], both[:1], 8, 8, true, 1 << 30},
		{collectives[:4], datatypes[:6], both[:1], 16, 8, false, 1 << 33},
		{collectives[:4], datatypes[:3], both, 8, 8, true, 1 << 33},
		{collectives[1:2], datatypes[:1], both[1:], 4, 8, true, 1 << 33},
		{collectives[:4], datatypes[:1], both[:1], 4, 8, true, 1 << 33},
		{collectives, datatypes[:3], both[:1], 3, 8, true, 1 << 33},
		{collectives, datatypes[:3], both[:1], 3, 8, false, 1 << 33},
	}
	r := rand.New(rand.NewPCG(5, 8))
	for range 15 {
		s := spec{collectives: slices.Clone(collectives), datatypes: slices.Clone(datatypes),
			placements: both[:1+r.IntN(2)], nodes: 2 + r.IntN(8),
			ranks: []int32{1, 2, 4, 8}[r.IntN(4)], mesh: r.IntN(2) == 0, largest: 1 << (16 + r.IntN(18))}
		r.Shuffle(len(s.collectives), func(i, j int) {
			s.collectives[i], s.collectives[j] = s.collectives[j], s.collectives[i]
		})
		s.collectives = s.collectives[:1+r.IntN(8)]
		s.datatypes = s.datatypes[:1+r.IntN(min(6, 24/len(s.placements)/len(s.collectives)))]
		specs = append(specs, s)
	}
	for i, s := range specs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newGroupWorld(t, s.nodes, faults{report: func(_ int, ct *v1alpha1.CommTask) {
				cutToSize(t, ct)
			}}, func(g *state.Group) {
				b := &g.Spec.Benchmark
				b.Collectives, b.Datatypes, b.Placements, b.MaxSizeBytes = s.collectives, s.datatypes,
					s.placements, s.largest
				g.Spec.RanksPerNode = s.ranks
				if s.mesh {
					testkit.Mesh("dp", s.nodes, "tp", int(s.ranks))(g)
				}
				least := int64(30_000)
				for _, c := range s.collectives[:1] {
					b.Thresholds = []v1alpha1.Threshold{{Span: v1alpha1.SpanGroup,
						Collective: c, Datatype: s.datatypes[0], Placement: s.placements[0],
						SizeBytes: runplan.Sizes(b)[len(runplan.Sizes(b))/2+1], MinBusBandwidthMBps: &least}}
				}
			})
			if w.group.Status.Run == nil {
				t.Fatal("not accepted: ", w.group.Status.Conditions)
			}
			w.play()
			span := w.span()
			t.Log(w.tests(), span.Message)
			if span.Verdict != v1alpha1.VerdictPass || w.group.Status.Run.Verdict != v1alpha1.VerdictPass ||
				len(span.Culprits) > 0 || span.LeftSet != "" {
				t.Errorf("%s %s, culprits %v, left %q: %s",
					span.Verdict, span.Reason, w.culprits(), span.LeftSet, span.Message)
			}
			planned := len(runplan.SeriesOf(&v1alpha1.RunPlan{Collectives: s.collectives, Datatypes: s.datatypes,
				Placements: s.placements, SizesBytes: runplan.Sizes(&w.group.Spec.Benchmark)}, s.ranks*int32(s.nodes)))
			told := strings.Contains(span.Message, "left out of reports")
			if have := len(span.Results); !s.mesh && (have < planned) != told {
				t.Errorf("%d series of %d are there, and the message is: %s", have, planned, span.Message)
			}
			if s.mesh && s.ranks == 8 && len(s.collectives) == 4 && !told {
				t.Errorf("a report of 32 series cannot hold all, and nothing says so: %s", span.Message)
			}
		})
	}
}

// eachComm changes each communicator of a report.
func eachComm(f func(*v1alpha1.TaskCommunicatorStatus)) func(*v1alpha1.SessionStatus) {
	return func(s *v1alpha1.SessionStatus) {
		for i := range s.Task.Communicators {
			f(&s.Task.Communicators[i])
		}
	}
}

func eachFigure(value int64) func(*v1alpha1.SessionStatus) {
	return eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
		for i := range c.Results {
			for k := range c.Results[i].BusBandwidthMBps {
				c.Results[i].BusBandwidthMBps[k] = value
			}
		}
	})
}

func says(verdict v1alpha1.Verdict, reason string) func(*v1alpha1.SessionStatus) {
	return eachComm(func(c *v1alpha1.TaskCommunicatorStatus) { c.Verdict, c.Reason = verdict, reason })
}

// TestOddReportsAreNoPass: a report without what was measured, or whose verdict and reason do not fit together, never
// passes, and is nobody's fault but of the agent that wrote it.
func TestOddReportsAreNoPass(t *testing.T) {
	accuse := func(verdict v1alpha1.Verdict) func(*v1alpha1.SessionStatus) {
		return eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
			c.Verdict, c.Reason = verdict, v1alpha1.ReasonRankDied
			c.Guilty = &v1alpha1.Culprit{Node: "n00001", Kind: "Node", Name: "n00001", Reason: v1alpha1.ReasonRankDied}
		})
	}
	lacks := func(s *v1alpha1.SessionStatus) { s.Task.Communicators = s.Task.Communicators[:2] }
	none := func(s *v1alpha1.SessionStatus) { s.Task.Communicators = nil }
	for _, tc := range []struct {
		name string
		// rootOnly: only the node of rank 0 has results to be odd about.
		rootOnly bool
		// only: odd in tests of this kind, else in all.
		only  v1alpha1.TestKind
		odd   func(*v1alpha1.SessionStatus)
		least v1alpha1.Verdict
		words string
		hang  bool
	}{
		{name: "no bandwidths", rootOnly: true, least: v1alpha1.VerdictError, words: "without a figure",
			odd: eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
				for i := range c.Results {
					c.Results[i].BusBandwidthMBps = nil
				}
			})},
		{name: "no latencies", rootOnly: true, least: v1alpha1.VerdictError, words: "without a figure",
			odd: eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
				for i := range c.Results {
					c.Results[i].LatencyNanoseconds = c.Results[i].LatencyNanoseconds[1:]
				}
			})},
		{name: "no results", rootOnly: true, least: v1alpha1.VerdictError, words: "without a result",
			odd: eachComm(func(c *v1alpha1.TaskCommunicatorStatus) { c.Results = nil })},
		{name: "zero", rootOnly: true, least: v1alpha1.VerdictError, words: "without a figure", odd: eachFigure(0)},
		{name: "negative", rootOnly: true, least: v1alpha1.VerdictError, words: "without a figure",
			odd: eachFigure(-5)},
		{name: "overflow", rootOnly: true, least: v1alpha1.VerdictError, words: "without a figure",
			odd: eachFigure(1 << 62)},
		{name: "zero in pairs", least: v1alpha1.VerdictError, words: "without a figure", rootOnly: true,
			only: v1alpha1.TestPairs, odd: eachFigure(0)},
		{name: "wrong elements", rootOnly: true, least: v1alpha1.VerdictFail, words: "gives wrong data",
			odd: eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
				for i := range c.Results {
					c.Results[i].WrongElements = 7
				}
			})},
		{name: "Error AllPassed", odd: says(v1alpha1.VerdictError, v1alpha1.ReasonAllPassed),
			least: v1alpha1.VerdictError, words: "could not do"},
		{name: "Error without reason", odd: says(v1alpha1.VerdictError, ""), least: v1alpha1.VerdictError,
			words: "could not do"},
		{name: "Error Inconclusive", odd: says(v1alpha1.VerdictError, v1alpha1.ReasonInconclusive),
			least: v1alpha1.VerdictError, words: "could not do"},
		{name: "Inconclusive AllPassed", odd: says(v1alpha1.VerdictInconclusive, v1alpha1.ReasonAllPassed),
			least: v1alpha1.VerdictInconclusive, words: "could not do"},
		{name: "Skipped", odd: says(v1alpha1.VerdictSkipped, ""), least: v1alpha1.VerdictSkipped,
			words: "could not do"},
		{name: "Fail AllPassed", odd: says(v1alpha1.VerdictFail, v1alpha1.ReasonAllPassed),
			least: v1alpha1.VerdictFail},
		{name: "Fail Inconclusive", odd: says(v1alpha1.VerdictFail, v1alpha1.ReasonInconclusive),
			least: v1alpha1.VerdictFail},
		{name: "Fail with a word of another version", odd: says(v1alpha1.VerdictFail, "SomethingNew"),
			least: v1alpha1.VerdictFail},
		{name: "accuses another", odd: accuse(v1alpha1.VerdictFail), least: v1alpha1.VerdictFail},
		{name: "session failed with AllPassed", odd: func(s *v1alpha1.SessionStatus) {
			s.State, s.Reason = v1alpha1.SessionFailed, v1alpha1.ReasonAllPassed
		}, least: v1alpha1.VerdictError},
		{name: "a communicator of the mesh is missing", only: v1alpha1.TestMesh, odd: lacks,
			least: v1alpha1.VerdictError, words: "lacks the verdict of communicator dp/2", rootOnly: true},
		{name: "no verdict in the mesh", only: v1alpha1.TestMesh, odd: says("", ""), least: v1alpha1.VerdictError,
			words: "lacks the verdict"},
		{name: "nothing in pairs", only: v1alpha1.TestPairs, odd: none, least: v1alpha1.VerdictError,
			words: "lacks the verdict"},
		{name: "nothing in the search", only: v1alpha1.TestSearch, odd: none, least: v1alpha1.VerdictFail, hang: true},
	} {
		for who := range 4 {
			if who%3 > 0 || tc.rootOnly && who > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s by %d", tc.name, who), func(t *testing.T) {
				var w *groupWorld
				f := faults{report: func(node int, ct *v1alpha1.CommTask) {
					if node == who && (tc.only == "" || w.test(ct.Status.Session.Task.ID).Kind == tc.only) {
						tc.odd(ct.Status.Session)
					}
				}}
				allowed := []string{w0(who)}
				if tc.hang {
					f.hangNodes = []int{5}
					allowed = append(allowed, w0(5))
				}
				w = newGroupWorld(t, 8, f, testkit.Mesh("dp", 8, "tp", 8))
				w.play()
				span := w.span()
				t.Log(span.Verdict, span.Reason, span.Message, w.tests())
				if judge.Rank(span.Verdict) < judge.Rank(tc.least) ||
					w.group.Status.Run.Verdict == v1alpha1.VerdictPass ||
					condition(w.group, v1alpha1.ConditionReady) == "True" {
					t.Errorf("%s (%s): %s", span.Verdict, span.Reason, span.Message)
				}
				all := span.Message
				for _, c := range span.Culprits {
					all += c.Message
					if !slices.Contains(allowed, c.Node) || c.Kind == "Pair" {
						t.Errorf("%s %s of node %s is blamed: %s %s", c.Kind, c.Name, c.Node, c.Reason, c.Message)
					}
				}
				if !strings.Contains(all, tc.words) {
					t.Errorf("nothing says %q: %s", tc.words, all)
				}
			})
		}
	}
}

// w0 is the name of a node in a groupWorld.
func w0(node int) string { return fmt.Sprintf("n%05d", node) }

// TestPassThatAccusesIsIgnored: who passed has nothing to be guilty of.
func TestPassThatAccusesIsIgnored(t *testing.T) {
	w := newGroupWorld(t, 8, faults{report: func(_ int, ct *v1alpha1.CommTask) {
		eachComm(func(c *v1alpha1.TaskCommunicatorStatus) {
			c.Guilty = &v1alpha1.Culprit{Node: "n00001", Kind: "Node", Name: "n00001", Reason: v1alpha1.ReasonRankDied}
		})(ct.Status.Session)
	}}, nil)
	w.play()
	if s := w.span(); s.Verdict != v1alpha1.VerdictPass || len(s.Culprits) > 0 {
		t.Errorf("%s %s %v", s.Verdict, s.Message, w.culprits())
	}
}

// TestClockThatJumpsBlamesNobody: the first look that sees a deadline past waits for reports that are on their way.
func TestClockThatJumpsBlamesNobody(t *testing.T) {
	for _, kind := range []v1alpha1.TestKind{v1alpha1.TestGroup, v1alpha1.TestPairs, v1alpha1.TestSearch,
		v1alpha1.TestMesh} {
		t.Run(string(kind), func(t *testing.T) {
			f, want := faults{}, v1alpha1.VerdictPass
			if kind == v1alpha1.TestSearch {
				f.hangNodes, want = []int{5}, v1alpha1.VerdictFail
			}
			w := newGroupWorld(t, 8, f, testkit.Mesh("dp", 8, "tp", 8))
			jumped := false
			w.meddle = func() {
				s := w.span()
				if jumped || s == nil || len(s.Tests) == 0 {
					return
				}
				if last := &s.Tests[len(s.Tests)-1]; last.Verdict == "" && last.Kind == kind &&
					len(w.tasks[last.ID]) > 0 {
					jumped = true
					w.now = w.now.Add(20 * time.Minute) // less than a whole search may take
					w.reportFacts()
					w.settle()
					if last := w.span().Tests[len(w.span().Tests)-1]; last.Verdict != "" || last.OverdueTime == nil {
						t.Errorf("test %s is closed at the first look: %s %v", last.ID, last.Verdict, last.OverdueTime)
					}
				}
			}
			w.play()
			s := w.span()
			if !jumped || s.Verdict != want || kind != v1alpha1.TestSearch && len(s.Culprits) > 0 {
				t.Errorf("jumped %v: %s %s, culprits %v, left %s",
					jumped, s.Verdict, s.Message, w.culprits(), s.LeftSet)
			}
			for _, c := range s.Culprits {
				if c.Node != w0(5) {
					t.Errorf("%s is blamed: %s", c.Node, c.Message)
				}
			}
		})
	}
}

// TestManagerThatWasAwayBlamesNobody: where members were not given a task in time, those that have it only waited, and
// those that have not gave their GPUs back.
func TestManagerThatWasAwayBlamesNobody(t *testing.T) {
	w := newGroupWorld(t, 8, faults{}, nil)
	away := false
	w.meddle = func() {
		s := w.span()
		if away || s == nil || len(s.Tests) != 1 || len(w.tasks[s.Tests[0].ID]) > 0 {
			return
		}
		away = true
		w.playAgents() // rank 0 makes its id, and nobody gives it to the others
		w.now = w.now.Add(2 * time.Hour)
		w.reportFacts()
	}
	w.play()
	s := w.span()
	if !away || s.Verdict != v1alpha1.VerdictError || s.Reason != v1alpha1.ReasonRunDeadlineExceeded ||
		len(s.Culprits) > 0 || !strings.Contains(s.Message, "no manager was there") {
		t.Errorf("away %v: %s %s %s, culprits %v, left %s",
			away, s.Verdict, s.Reason, s.Message, w.culprits(), s.LeftSet)
	}
}

// TestNodeThatIsNeverHeardOfIsNotMeasured: whichever node it is, and however many, it is no Fail, and says so.
func TestNodeThatIsNeverHeardOfIsNotMeasured(t *testing.T) {
	for _, mute := range [][]int{{0}, {3}, {7}, {2, 5}, {1, 2, 3, 4, 5, 6, 7}} {
		w := newGroupWorld(t, 8, faults{muteNodes: mute}, nil)
		w.play()
		s := w.span()
		t.Log(s.Verdict, s.Reason, s.Message, w.tests())
		if s.Verdict != v1alpha1.VerdictError {
			t.Errorf("%v: %s %s: %s", mute, s.Verdict, s.Reason, s.Message)
		}
		for _, c := range s.Culprits {
			if !slices.Contains(mute, w.index[c.Node]) || stage.VerdictOf(c.Reason) != v1alpha1.VerdictError ||
				!strings.Contains(c.Message, "has not reported") && !strings.Contains(c.Message, "made no unique id") {
				t.Errorf("%v: %s %s %s", mute, c.Node, c.Reason, c.Message)
			}
		}
	}
}

// TestOnlyAMajorityMakesOthersOdd: which of two halves is the norm nobody can know, and what was not said is no value.
func TestOnlyAMajorityMakesOthersOdd(t *testing.T) {
	for _, tc := range []struct {
		name string
		// builds of the nodes; empty: not reported.
		builds, culprits []string
		verdict          v1alpha1.Verdict
		words            []string
	}{
		{"one of two", []string{"a", "b"}, nil, v1alpha1.VerdictFail, []string{"rccl 2 a", "rccl 2 b", w0(0), w0(1)}},
		{"two of four", []string{"b", "a", "b", "a"}, nil, v1alpha1.VerdictFail,
			[]string{"rccl 2 a", "rccl 2 b", "2 nodes (n00001, n00003)"}},
		{"two, one and one", []string{"a", "a", "b", "c"}, nil, v1alpha1.VerdictFail,
			[]string{"rccl 2 a", "rccl 2 b", "rccl 2 c"}},
		{"one of three", []string{"b", "a", "b"}, []string{"Node 1"}, v1alpha1.VerdictFail,
			[]string{"rccl 2 a", "rccl 2 b"}},
		{"two did not say", []string{"a", "", "", "a"}, nil, v1alpha1.VerdictPass,
			[]string{"not reported", w0(1), w0(2)}},
		{"most did not say", []string{"a", "", "", "", "b"}, nil, v1alpha1.VerdictFail,
			[]string{"rccl 2 a", "rccl 2 b"}},
		{"nobody said", []string{"", "", "", ""}, nil, v1alpha1.VerdictPass, []string{"not reported"}},
	} {
		for kind, reason := range map[string]string{"library": v1alpha1.ReasonMixedLibraryVersions,
			"settings": v1alpha1.ReasonMixedSettings} {
			t.Run(tc.name+" "+kind, func(t *testing.T) {
				w := newGroupWorld(t, len(tc.builds), faults{quirk: func(n int, s *v1alpha1.SessionStatus) {
					value := tc.builds[n]
					switch {
					case kind == "settings" && value != "":
						s.SettingsHash = "rccl 2 " + value
					case kind == "settings":
						s.SettingsHash = ""
					case value == "":
						s.Library = nil
					default:
						s.Library = &v1alpha1.LibraryFacts{Flavor: "rccl", Version: "2", BuildHash: value}
					}
				}}, nil)
				w.play()
				s := w.span()
				if s.Verdict != tc.verdict || tc.verdict == v1alpha1.VerdictFail && s.Reason != reason ||
					!slices.Equal(w.culprits(), tc.culprits) {
					t.Errorf("%s %s, culprits %v: %s", s.Verdict, s.Reason, w.culprits(), s.Message)
				}
				for _, word := range tc.words {
					if !strings.Contains(s.Message, word) {
						t.Errorf("%q is not in: %s", word, s.Message)
					}
				}
			})
		}
	}
}

// TestNothingMeasurableIsNobodysFault: sizes that give no rank an element are told before anything is tried.
func TestNothingMeasurableIsNobodysFault(t *testing.T) {
	w := newGroupWorld(t, 8, faults{}, func(g *state.Group) {
		g.Spec.Benchmark.Collectives = []v1alpha1.Collective{v1alpha1.AllToAll}
		g.Spec.Benchmark.MinSizeBytes, g.Spec.Benchmark.MaxSizeBytes = 16, 64
	})
	w.play()
	s := w.span()
	if s.Verdict != v1alpha1.VerdictInconclusive || len(s.Culprits) > 0 || s.LeftSet != "" ||
		!strings.Contains(s.Message, "maxSizeBytes") {
		t.Errorf("%s %s, culprits %v", s.Verdict, s.Message, w.culprits())
	}
}

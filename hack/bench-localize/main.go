// Command bench-localize counts what the search for a culprit takes, by simulation: tests, rounds, the planner's own
// time, and the time that the rounds take on a cluster at a stated time of a test.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"rcclx.io/commgroup-operator/internal/localize"
	"rcclx.io/commgroup-operator/internal/units"
)

// world is what is really bad.
type world struct {
	nodes []int
	pair  []int
}

func (w *world) outcome(set localize.Set) localize.Outcome {
	if slices.ContainsFunc(w.nodes, set.Has) || (len(w.pair) == 2 && set.Has(w.pair[0]) && set.Has(w.pair[1])) {
		return localize.Bad
	}
	return localize.Good
}

// right says whether the finding names exactly what is bad.
func (w *world) right(finding *localize.Finding) bool {
	var pairs [][2]int
	if len(w.pair) == 2 {
		pairs = [][2]int{{w.pair[0], w.pair[1]}}
	}
	return slices.Equal(finding.Members, w.nodes) && slices.Equal(finding.Pairs, pairs)
}

// gpusOfNode are searched for what hangs or gives wrong data.
const gpusOfNode = 8

// row of the table.
type row struct {
	what          string
	members       int
	gpus          bool // of one node
	searches      int
	wrong         int
	tests, rounds []int
	planned       time.Duration
}

// search once, and note what it took.
func (r *row) search(w *world) error {
	problem := localize.Problem{Members: localize.Range(0, r.members), Steady: r.gpus}
	var history []localize.Test
	for {
		began := time.Now()
		step, err := localize.Next(problem, history)
		r.planned += time.Since(began)
		if err != nil {
			return err
		}
		if step.Done {
			r.searches++
			r.tests, r.rounds = append(r.tests, len(history)), append(r.rounds, step.Round)
			if !w.right(&step.Finding) {
				r.wrong++
			}
			return nil
		}
		for _, test := range step.Tests {
			test.Outcome = w.outcome(test.Set)
			history = append(history, test)
		}
	}
}

func spread(values []int) string {
	sum := 0
	for _, value := range values {
		sum += value
	}
	return fmt.Sprintf("%d / %.1f / %d", slices.Min(values), float64(sum)/float64(len(values)), slices.Max(values))
}

func main() {
	perTest := flag.Duration("test-time", time.Minute,
		"time of one round on the cluster: forming, measuring and ending its communicators, all at once")
	searches := flag.Int("searches", 500, "searches of each row, at random places")
	seed := flag.Uint64("seed", 1, "seed of the places")
	flag.Parse()
	if err := run(*perTest, *searches, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "bench-localize:", err)
		os.Exit(1)
	}
}

func run(perTest time.Duration, searches int, seed uint64) error {
	if searches < 1 || perTest <= 0 {
		return fmt.Errorf("searches %d, test-time %s: want at least one search, and a time", searches, perTest)
	}
	wrong := 0
	random := rand.New(rand.NewPCG(seed, 0))
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Printf("SIMULATED outcomes: %d searches a row, minimum / mean / maximum; a round is taken to last %s.\n",
		searches, perTest)
	fmt.Fprintln(out, "MEMBERS\tBAD\tTESTS\tROUNDS\tBOUND\tSEARCH TIME (MEAN, MAX)\tPLANNER A SEARCH\tALL PAIRS / "+
		"TESTS\tNOT NAMED RIGHT")
	for _, members := range []int{16, 232, 4096, gpusOfNode} {
		for _, bad := range []int{1, 2, 3, 0} {
			r := row{members: members, gpus: members == gpusOfNode}
			what := "node"
			if r.gpus {
				what = "GPU"
			}
			r.what = units.Counted(int64(bad), what)
			if bad == 0 {
				r.what = "a pair of " + what + "s"
			}
			for range searches {
				w := world{}
				for len(w.nodes) < bad {
					w.nodes = localize.NewSet(append(w.nodes, random.IntN(members))...)
				}
				for bad == 0 && len(w.pair) < 2 {
					w.pair = localize.NewSet(random.IntN(members), random.IntN(members))
				}
				if err := r.search(&w); err != nil {
					return err
				}
			}
			r.print(out, perTest)
			wrong += r.wrong
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d searches did not name exactly what was bad", wrong)
	}
	return nil
}

func (r *row) print(out *tabwriter.Writer, perTest time.Duration) {
	rounds, tests := 0, 0
	for at := range r.rounds {
		rounds, tests = rounds+r.rounds[at], tests+r.tests[at]
	}
	mean := perTest * time.Duration(rounds) / time.Duration(r.searches)
	fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%d\t%s, %s\t%s\t%d / %.0f = %.0f\t%d\n", r.members, r.what,
		spread(r.tests), spread(r.rounds), localize.MaxRounds(r.members, r.gpus), mean.Round(time.Second),
		perTest*time.Duration(slices.Max(r.rounds)), (r.planned / time.Duration(r.searches)).Round(time.Microsecond),
		r.members*(r.members-1)/2, float64(tests)/float64(r.searches),
		float64(r.members*(r.members-1)/2)*float64(r.searches)/float64(tests), r.wrong)
}

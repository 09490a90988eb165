package stage

import "fmt"

// repeatsWords says how many repeats the figures over the nodes are the median of, and how far they are apart at most; empty where
// none are asked for.
func (g *machine) repeatsWords() string {
	n, most, known := g.in.Group.Spec.Benchmark.Repeats, int32(0), true
	if n < 2 {
		return ""
	}
	for i := range g.span.Results {
		s := &g.span.Results[i]
		known = known && len(s.SpreadPercent) == len(s.SizeBytes)
		for _, p := range s.SpreadPercent {
			most = max(most, p)
		}
	}
	if !known {
		return fmt.Sprintf(" Each figure is the median of %d repeats; how far they are apart did not fit into reports.", n)
	}
	return fmt.Sprintf(" Each figure is the median of %d repeats, which are at most %d %% apart.", n, most)
}

package stage

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/words"
)

// maxFigure is beyond every latency in nanoseconds (18 minutes) and bus bandwidth in MB/s; percentages of it fit an int64.
const maxFigure = 1 << 40

// missingResult names the first planned measurement that the results lack, but for the series that are said to have been left
// out: each of the repeats, and the first and the last size of each have to be there, with their figures.
func (g *machine) missingResult(t *v1alpha1.SpanTest, c *communicator, status *v1alpha1.TaskCommunicatorStatus) string {
	if want, got := g.planOf(t).Repeats, status.Repeats; max(1, got) != max(1, want) {
		return fmt.Sprintf("each of the %d repeats of benchmark.repeats: it tells of %d", max(1, want), max(1, got))
	}
	for i := range status.Results {
		r := &status.Results[i]
		for _, list := range [][]int64{r.LatencyNanoseconds, r.BusBandwidthMBps} {
			if len(list) != len(r.SizeBytes) || slices.ContainsFunc(list, func(v int64) bool { return v <= 0 || v > maxFigure }) {
				return fmt.Sprintf("a figure for each size of %s: it gives %d sizes, latencies %v ns and bus bandwidths %v MB/s", runplan.KeyOf(r).Measurement(), len(r.SizeBytes), firstOf(r.LatencyNanoseconds, 4), firstOf(r.BusBandwidthMBps, 4))
			}
		}
	}
	omitted := status.OmittedSeries
	for _, p := range runplan.SeriesOf(g.runPlanOf(t), c.ranks) {
		i := slices.IndexFunc(status.Results, func(r v1alpha1.ResultSeries) bool { return runplan.KeyOf(&r) == p.Key })
		if i < 0 {
			if omitted--; omitted < 0 {
				return "a result of " + p.Key.Measurement()
			}
			continue
		}
		for _, size := range []int64{p.Sizes[0], p.Sizes[len(p.Sizes)-1]} {
			if !slices.Contains(status.Results[i].SizeBytes, size) {
				return fmt.Sprintf("a result of %s at %d B", p.Key.Measurement(), size)
			}
		}
	}
	return ""
}

func firstOf(list []int64, n int) []int64 { return list[:min(n, len(list))] }

// runPlanOf is what a test measures, as a plan of a node's run.
func (g *machine) runPlanOf(t *v1alpha1.SpanTest) *v1alpha1.RunPlan {
	task := g.planOf(t)
	return &v1alpha1.RunPlan{Collectives: task.Collectives, Datatypes: task.Datatypes, Placements: task.Placements, SizesBytes: task.SizesBytes}
}

func nothingMeasurable(plan *v1alpha1.RunPlan, ranks int32) bool {
	return len(runplan.SeriesOf(plan, ranks)) == 0
}

// notCompared tells what of a good stage was measured or said, and not compared with anything: series that did not fit into
// reports, and members whose agents did not say which library or settings they have.
func (g *machine) notCompared() string {
	var out []string
	last := g.lastGroupTest()
	for i := range g.span.Tests {
		t := &g.span.Tests[i]
		dimension := judge.DimensionGroup
		if t.Kind == v1alpha1.TestMesh {
			dimension = t.Dimension
		} else if i != last {
			continue
		}
		l, err := g.layoutOf(t)
		if err != nil || t.Verdict != v1alpha1.VerdictPass || len(l.communicators) == 0 {
			continue
		}
		for _, p := range runplan.SeriesOf(g.runPlanOf(t), l.communicators[0].ranks) {
			there, all := 0, len(l.communicators)
			for j := range g.span.Results {
				s := &g.span.Results[j]
				if s.Dimension == dimension && p.Key == (runplan.Key{Variant: v1alpha1.VariantBaseline, Collective: s.Collective, Datatype: s.Datatype, Placement: s.Placement}) {
					there = int(s.Communicators)
				}
			}
			switch {
			case there >= all:
			case there == 0:
				out = append(out, dimension+" "+p.Key.Measurement())
			default:
				out = append(out, fmt.Sprintf("%s %s of %d of %d communicators", dimension, p.Key.Measurement(), all-there, all))
			}
		}
	}
	text := ""
	if len(out) > 0 {
		text = fmt.Sprintf(" Measured and checked, but left out of reports, which hold only so much, and so not judged: %s.", words.SomeNames(out, 5))
	}
	var unknown []string
	for _, s := range g.present() {
		if s.report != nil && (libraryOf(s) == "" || s.report.SettingsHash == "") {
			unknown = append(unknown, s.name)
		}
	}
	if len(unknown) > 0 {
		text += fmt.Sprintf(" Library or settings were not reported, and so not compared, by %s.", words.SomeNames(unknown, 5))
	}
	return text
}

// mainBandwidth is that of the first series of AllReduce that was planned, else of the first of all, at its largest size; nil
// where the report had no place for it.
func mainBandwidth(all []runplan.Planned, results []v1alpha1.ResultSeries) *int64 {
	main := max(0, slices.IndexFunc(all, func(p runplan.Planned) bool { return p.Key.Collective == v1alpha1.AllReduce }))
	if main >= len(all) {
		return nil
	}
	at := slices.IndexFunc(results, func(r v1alpha1.ResultSeries) bool { return runplan.KeyOf(&r) == all[main].Key })
	if at < 0 || len(results[at].BusBandwidthMBps) == 0 {
		return nil
	}
	list := results[at].BusBandwidthMBps
	return ptr.To(list[len(list)-1])
}

// slowest is the bus bandwidth of the slowest communicator; nil where none was measured.
func (r *testResult) slowest() *int64 {
	var out *int64
	for i := range r.communicators {
		if bw := r.communicators[i].busBWMBps; bw != nil && (out == nil || *bw < *out) {
			out = bw
		}
	}
	return out
}

// silent says whether a communicator came to its end without its figure.
func (r *testResult) silent() bool {
	return slices.ContainsFunc(r.communicators, func(c commResult) bool { return !c.bad && c.busBWMBps == nil })
}

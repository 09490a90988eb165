package stage

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/checks"
)

// planner lays tests over the members: which communicators they form, what these measure, and how long that may take.
type planner struct {
	*roster
	// plans caches what tests measure, and choice the network of so many present members.
	plans    map[planKey]*v1alpha1.NodeTask
	choice   *networkChoice
	choiceOf int
}

// planKey is a test's; one that is only asked about has no id.
type planKey struct {
	kind v1alpha1.TestKind
	id   string
}

// planOf is what a test measures: the group and the mesh everything in each repeat, a test of the search the one step,
// a few times.
func (g *planner) planOf(t *v1alpha1.SpanTest) *v1alpha1.NodeTask {
	key := planKey{t.Kind, t.ID}
	if plan := g.plans[key]; plan != nil {
		return plan
	}
	spec := &g.in.Group.Spec
	b := &spec.Benchmark
	order, keep := keptFirst(b)
	task := &v1alpha1.NodeTask{
		KeepSizesBytes: keep, Collectives: order, Datatypes: slices.Clone(b.Datatypes),
		Placements: runplan.Placements(b.Placements),
		SizesBytes: runplan.Sizes(b), Repeats: runplan.Repeats(b.Repeats),
		WarmupIterations: ptr.Deref(b.WarmupIterations, runplan.DefaultWarmupIterations), Iterations: b.Iterations,
	}
	if t.Kind != v1alpha1.TestGroup && t.Kind != v1alpha1.TestMesh {
		step := g.searchStep()
		task.Collectives, task.Datatypes = []v1alpha1.Collective{step.Collective}, []v1alpha1.Datatype{step.Datatype}
		task.Placements = nil
		if step.Placement == v1alpha1.InPlace {
			task.Placements = []v1alpha1.Placement{v1alpha1.InPlace}
		}
		task.SizesBytes, task.KeepSizesBytes, task.Repeats = []int64{step.SizeBytes}, nil, 0
		task.WarmupIterations, task.Iterations = min(task.WarmupIterations, searchWarmups),
			min(task.Iterations, searchIterations)
	}
	task.DeadlineSeconds = taskSeconds(spec, len(task.Collectives)*len(task.Datatypes)*max(1, len(task.Placements))*
		len(task.SizesBytes)*max(1, int(task.Repeats)))
	g.plans[key] = task
	return task
}

// runPlanOf is what a test measures, as a plan of a node's run.
func (g *planner) runPlanOf(t *v1alpha1.SpanTest) *v1alpha1.RunPlan {
	task := g.planOf(t)
	return &v1alpha1.RunPlan{Collectives: task.Collectives, Datatypes: task.Datatypes, Placements: task.Placements,
		SizesBytes: task.SizesBytes}
}

// taskOf is a member's task in a test, without the unique ids.
func (g *planner) taskOf(t *v1alpha1.SpanTest, part spans.Part) *v1alpha1.NodeTask {
	plan := g.planOf(t).DeepCopy()
	plan.ID = t.ID
	plan.Communicators = part.Communicators
	return plan
}

// keptFirst are the collectives of a benchmark in the order in which a report that has to be cut keeps them: AllReduce,
// by which communicators are compared, then those with thresholds; and the sizes of these.
func keptFirst(b *v1alpha1.BenchmarkSpec) (order []v1alpha1.Collective, keep []int64) {
	rank := map[v1alpha1.Collective]int{v1alpha1.AllReduce: -2}
	sizes := runplan.Sizes(b)
	for _, t := range runplan.ThresholdsOf(b, v1alpha1.SpanGroup) {
		if t.Collective != v1alpha1.AllReduce {
			rank[t.Collective] = -1
		}
		if slices.Contains(sizes, t.SizeBytes) && !slices.Contains(keep, t.SizeBytes) {
			keep = append(keep, t.SizeBytes)
		}
	}
	order = slices.Clone(b.Collectives)
	slices.SortStableFunc(order, func(x, y v1alpha1.Collective) int { return cmp.Compare(rank[x], rank[y]) })
	return order, keep
}

// A test of the search measures its step this often: it looks for what is far off, not for a figure.
const (
	searchWarmups    = 2
	searchIterations = 5
)

// limits of a test: how long after its start each unique id must be there, and how long after it each report.
func (g *planner) limits(t *v1alpha1.SpanTest, members int) (ids, reports time.Duration) {
	spec := &g.in.Group.Spec
	more := time.Duration(members) * perMemberSlack
	return decision.Seconds(spec.Run.InitDeadlineSeconds) + testSlack + more,
		taskLimit(spec, g.planOf(t).DeadlineSeconds) + more
}

// taskSeconds is what a node gets for a task of so many measurements; the whole never takes longer than a node's run
// may.
func taskSeconds(spec *v1alpha1.CommGroupSpec, measurements int) int32 {
	steps := min(int64(measurements)*int64(spec.Run.StepDeadlineSeconds), int64(spec.Run.NodeDeadlineSeconds))
	return spec.Run.InitDeadlineSeconds + int32(steps)
}

// taskLimit is how long the controller waits for a test: the nodes of rank 0 first start and make the unique ids.
func taskLimit(spec *v1alpha1.CommGroupSpec, taskSeconds int32) time.Duration {
	return decision.Seconds(spec.Run.InitDeadlineSeconds) + decision.Seconds(taskSeconds) + testSlack
}

// testSlack is for tasks and reports to travel; perMemberSlack comes on top where there are very many.
const (
	testSlack      = 30 * time.Second
	perMemberSlack = 10 * time.Millisecond
)

// defaultLocalizationSeconds holds where localization.deadlineSeconds is absent.
const defaultLocalizationSeconds = 1800

func localizationDeadlineSeconds(spec *v1alpha1.CommGroupSpec) int32 {
	if spec.Localization.Mode == v1alpha1.LocalizationOff {
		return 0
	}
	return cmp.Or(spec.Localization.DeadlineSeconds, defaultLocalizationSeconds)
}

// usualStep is what a search repeats where nothing says more: AllReduce where it is measured, at the largest size.
func (g *planner) usualStep() v1alpha1.Step {
	b := &g.in.Group.Spec.Benchmark
	step := v1alpha1.Step{Collective: v1alpha1.AllReduce, Datatype: v1alpha1.BFloat16}
	if len(b.Collectives) > 0 && !slices.Contains(b.Collectives, v1alpha1.AllReduce) {
		step.Collective = b.Collectives[0]
	}
	if len(b.Datatypes) > 0 {
		step.Datatype = b.Datatypes[0]
	}
	if sizes := runplan.Sizes(b); len(sizes) > 0 {
		step.SizeBytes = sizes[len(sizes)-1]
	}
	if slices.Contains(b.Placements, v1alpha1.InPlace) && !slices.Contains(b.Placements, v1alpha1.OutOfPlace) {
		step.Placement = v1alpha1.InPlace
	}
	return step
}

// stepOf is the step to repeat where this one was bad; what it does not say, or what is not measured here, is the usual
// one's.
func (g *planner) stepOf(bad *v1alpha1.Step) v1alpha1.Step {
	b := &g.in.Group.Spec.Benchmark
	step := g.usualStep()
	if bad == nil {
		return step
	}
	if slices.Contains(b.Collectives, bad.Collective) {
		step.Collective = bad.Collective
	}
	if slices.Contains(b.Datatypes, bad.Datatype) {
		step.Datatype = bad.Datatype
	}
	if slices.Contains(runplan.Sizes(b), bad.SizeBytes) {
		step.SizeBytes = bad.SizeBytes
	}
	if bad.Placement == v1alpha1.InPlace && slices.Contains(b.Placements, v1alpha1.InPlace) {
		step.Placement = v1alpha1.InPlace
	}
	return step
}

// slowStep is the step of the group that is furthest under a mark; the usual one where none is.
func (g *planner) slowStep() v1alpha1.Step {
	if at := g.lastGroupTest(); at >= 0 && g.span.Tests[at].Reason == v1alpha1.ReasonSlowGroup {
		if notMet, _ := checks.Of(g.groupChecks()); len(notMet) > 0 {
			return g.stepOf(notMet[0].Step)
		}
	}
	return g.usualStep()
}

// searchStep is the step of the search that goes on; before one it is the usual step.
func (g *planner) searchStep() v1alpha1.Step {
	if l := g.span.Localization; l != nil && l.State == v1alpha1.LocalizationRunning {
		return g.stepOf(l.Step)
	}
	return g.slowStep()
}

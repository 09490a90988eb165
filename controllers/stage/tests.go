package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/decision"
	"rcclx.io/commgroup-operator/controllers/runplan"
	"rcclx.io/commgroup-operator/controllers/runs"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/localize"
)

// MaxTests bounds status.span.tests; the API allows for more, and the whole status has to stay small.
const MaxTests = 160

// MaxSetBytes bounds the sets of these tests all together.
const MaxSetBytes = 12 << 10

// testID names a test for people and tasks: group-2, localize-3-1, mesh-dp-1. Nothing reads it.
func testID(t *v1alpha1.SpanTest) string {
	switch t.Kind {
	case v1alpha1.TestMesh:
		return fmt.Sprintf("mesh-%s-%d", t.Dimension, t.Round)
	case v1alpha1.TestSearch:
		return fmt.Sprintf("localize-%d-%d", t.Round, t.Index)
	case v1alpha1.TestRails:
		return fmt.Sprintf("rails-%d-%d", t.Round, t.Index)
	case v1alpha1.TestPairs:
		return fmt.Sprintf("screen-%d", t.Round)
	case v1alpha1.TestPairRecord:
		return fmt.Sprintf("screen-%d-%d", t.Round, t.Index)
	case v1alpha1.TestDeparture:
		return fmt.Sprintf("left-%d", t.Round)
	}
	return fmt.Sprintf("group-%d", t.Round)
}

// groupTests counts how often the group itself was formed.
func (g *machine) groupTests() int {
	n := 0
	for i := range g.span.Tests {
		if g.span.Tests[i].Kind == v1alpha1.TestGroup {
			n++
		}
	}
	return n
}

// lastGroupTest is the place of the last one in the list; -1 where there is none.
func (g *machine) lastGroupTest() int {
	for i := len(g.span.Tests) - 1; i >= 0; i-- {
		if g.span.Tests[i].Kind == v1alpha1.TestGroup {
			return i
		}
	}
	return -1
}

// open begins a test of this kind, round, index and dimension over the set; its tasks are given out once the status is written.
func (g *machine) open(t v1alpha1.SpanTest, set string) bool {
	all := len(set)
	for i := range g.span.Tests {
		all += len(g.span.Tests[i].Set)
	}
	if len(g.span.Tests) >= MaxTests || len(set) > localize.MaxText || all > MaxSetBytes {
		return false
	}
	t.ID, t.Set, t.StartTime = testID(&t), set, *decision.Stamp(g.in.Now)
	g.span.Tests = append(g.span.Tests, t)
	return true
}

func (g *machine) openGroup(stage v1alpha1.RunStage) {
	g.enter(stage, 0)
	if !g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestGroup, Round: int32(g.groupTests() + 1)}, g.wholeSet()) {
		g.end(v1alpha1.VerdictError, v1alpha1.ReasonGroupStepFailed, fmt.Sprintf(
			"No further test fits into the status: it has %d, and the members that left are noted there. To try again, %s.", len(g.span.Tests), runs.Ask(g.in.Group)))
	}
}

// closeOpen closes what is open as Error: it was not ended.
func (g *machine) closeOpen(reason string) {
	for i := range g.span.Tests {
		if t := &g.span.Tests[i]; t.Verdict == "" {
			g.closeTest(t, v1alpha1.VerdictError, reason, nil)
		}
	}
}

func (g *machine) closeTest(t *v1alpha1.SpanTest, verdict v1alpha1.Verdict, reason string, busBWMBps *int64) {
	t.Verdict, t.Reason, t.BusBandwidthMBps, t.OverdueTime = verdict, reason, busBWMBps, nil
	if verdict == v1alpha1.VerdictPass {
		t.Reason = ""
	}
	t.Seconds = ptr.To(int32(max(0, g.in.Now.Sub(t.StartTime.Time)/time.Second)))
}

// communicator is one communicator of a test.
type communicator struct {
	name  string
	ranks int32
	// seats in rank order; the first has rank 0.
	seats []*seat
}

// layout is who is in which communicators of a test.
type layout struct {
	// shares by index of the seat.
	shares map[int]spans.Part
	// communicators, in order; places say which one a seat's name means: in a test over pairs many have one name.
	communicators []*communicator
	places        map[place]*communicator
}

type place struct {
	index int
	name  string
}

func (l *layout) add(seats []*seat, parts []spans.Part) {
	here := map[string]*communicator{}
	for _, p := range parts {
		l.shares[p.Index] = p
		for i := range p.Communicators {
			c := &p.Communicators[i]
			one := here[c.Name]
			if one == nil {
				one = &communicator{name: c.Name, ranks: c.WorldSize}
				here[c.Name] = one
				l.communicators = append(l.communicators, one)
			}
			s := seats[p.Index]
			if spans.IsRoot(c) {
				one.seats = append([]*seat{s}, one.seats...)
			} else {
				one.seats = append(one.seats, s)
			}
			l.places[place{p.Index, c.Name}] = one
		}
	}
}

// layoutOf lays the communicators of a test over the members that are present.
func (g *machine) layoutOf(t *v1alpha1.SpanTest) (*layout, error) {
	l := &layout{shares: map[int]spans.Part{}, places: map[place]*communicator{}}
	set := slices.DeleteFunc(g.readSet(t.Set), func(i int) bool { return g.seats[i] == nil || !g.seats[i].present })
	add := func(parts []spans.Part, err error) error {
		if err == nil {
			l.add(g.seats, parts)
		}
		return err
	}
	switch t.Kind {
	case v1alpha1.TestRails:
		return l, add(spans.Rails(g.spanMembers(set)))
	case v1alpha1.TestMesh:
		mesh := g.in.Group.Spec.Mesh
		at := slices.IndexFunc(mesh, func(d v1alpha1.MeshDimension) bool { return d.Name == t.Dimension })
		return l, add(spans.Mesh(g.spanMembers(set), mesh, at))
	case v1alpha1.TestPairs:
		for _, pair := range PairsOf(set, int(t.Round)) {
			if err := add(spans.Group(g.spanMembers(pair[:]))); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
	return l, add(g.searchLayout(t, g.spanMembers(set)))
}

func (g *machine) spanMembers(set localize.Set) []spans.Member {
	out := make([]spans.Member, len(set))
	for i, index := range set {
		out[i] = spans.Member{Index: index, Ranks: int(g.seats[index].next.Ranks)}
	}
	return out
}

// taskStatus is what the member's agent says of the test, nil where it says nothing.
func (s *seat) taskStatus(id string) *v1alpha1.NodeTaskStatus {
	if s.report == nil || s.report.Task == nil || s.report.Task.ID != id {
		return nil
	}
	return s.report.Task
}

// of gives a communicator of the task by its name.
func commStatus(task *v1alpha1.NodeTaskStatus, name string) *v1alpha1.TaskCommunicatorStatus {
	if task == nil {
		return nil
	}
	for i := range task.Communicators {
		if task.Communicators[i].Name == name {
			return &task.Communicators[i]
		}
	}
	return nil
}

// uniqueID that the root of the communicator published for this test; nil while it has not.
func (c *communicator) uniqueID(test string) []byte {
	if s := commStatus(c.seats[0].taskStatus(test), c.name); s != nil {
		return s.UniqueID
	}
	return nil
}

// assignTasks gives the open tests of the written status out: first to the members with a rank 0, which make the unique ids,
// then to the others, with the ids. What nobody waits for any more is withdrawn.
func (g *machine) assignTasks() {
	if g.saved == nil || g.span.Stage == v1alpha1.StageEnded {
		return
	}
	known := make(map[string]bool, len(g.saved.Tests)) // by id: still open
	for i := range g.saved.Tests {
		known[g.saved.Tests[i].ID] = g.saved.Tests[i].Verdict == ""
	}
	for _, s := range g.present() {
		t := s.next.Task
		if t == nil {
			continue
		}
		if open, there := known[t.ID]; there && !open {
			if status := s.taskStatus(t.ID); status == nil || status.Phase != v1alpha1.TaskFinished {
				s.next.Task = nil // its test is over: ranks that still hang are ended
			}
		}
	}
	for i := range g.saved.Tests {
		t := &g.saved.Tests[i]
		if t.Verdict != "" || i >= len(g.span.Tests) || g.span.Tests[i].Verdict != "" || t.Kind == v1alpha1.TestPairRecord || g.span.Tests[i].OverdueTime != nil {
			continue // also past its deadline, where only reports are waited for
		}
		l, err := g.layoutOf(t)
		if err != nil {
			continue // evaluateOpen has closed such a test
		}
		family := g.network().Family
		for index, part := range l.shares {
			s := g.seats[index]
			if now := s.next.Task; now != nil && now.ID != t.ID {
				if _, there := known[now.ID]; !there {
					continue // of a newer status than the one that was read
				}
			}
			complete := true
			task := g.taskOf(t, part)
			for j := range task.Communicators {
				c := &task.Communicators[j]
				if spans.IsRoot(c) {
					continue
				}
				if c.UniqueID = l.places[place{index, c.Name}].uniqueID(t.ID); c.UniqueID == nil {
					complete = false
				}
			}
			if complete || part.HasRoot() {
				s.next.Task = task
				if family != "" {
					s.next.AddressFamily = family
				}
			}
		}
	}
}

// taskOf is a member's task in a test, without the unique ids.
func (g *machine) taskOf(t *v1alpha1.SpanTest, part spans.Part) *v1alpha1.NodeTask {
	plan := g.planOf(t).DeepCopy()
	plan.ID = t.ID
	plan.Communicators = part.Communicators
	return plan
}

// planKey is a test's; one that is only asked about has no id.
type planKey struct {
	kind v1alpha1.TestKind
	id   string
}

// planOf is what a test measures: the group and the mesh everything in each repeat, a test of the search the one step, a few times.
func (g *machine) planOf(t *v1alpha1.SpanTest) *v1alpha1.NodeTask {
	key := planKey{t.Kind, t.ID}
	if plan := g.plans[key]; plan != nil {
		return plan
	}
	spec := &g.in.Group.Spec
	b := &spec.Benchmark
	order, keep := keptFirst(b)
	task := &v1alpha1.NodeTask{
		KeepSizesBytes: keep, Collectives: order, Datatypes: slices.Clone(b.Datatypes), Placements: runplan.Placements(b.Placements),
		SizesBytes: runplan.Sizes(b), Repeats: runplan.Repeats(b.Repeats), WarmupIterations: ptr.Deref(b.WarmupIterations, runplan.DefaultWarmupIterations), Iterations: b.Iterations,
	}
	if t.Kind != v1alpha1.TestGroup && t.Kind != v1alpha1.TestMesh {
		step := g.searchStep()
		task.Collectives, task.Datatypes = []v1alpha1.Collective{step.Collective}, []v1alpha1.Datatype{step.Datatype}
		task.Placements = nil
		if step.Placement == v1alpha1.InPlace {
			task.Placements = []v1alpha1.Placement{v1alpha1.InPlace}
		}
		task.SizesBytes, task.KeepSizesBytes, task.Repeats = []int64{step.SizeBytes}, nil, 0
		task.WarmupIterations, task.Iterations = min(task.WarmupIterations, searchWarmups), min(task.Iterations, searchIterations)
	}
	task.DeadlineSeconds = taskSeconds(spec, len(task.Collectives)*len(task.Datatypes)*max(1, len(task.Placements))*len(task.SizesBytes)*max(1, int(task.Repeats)))
	g.plans[key] = task
	return task
}

// keptFirst are the collectives of a benchmark in the order in which a report that has to be cut keeps them: AllReduce, by which
// communicators are compared, then those with thresholds; and the sizes of these.
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

// taskSeconds is what a node gets for a task of so many measurements; the whole never takes longer than a node's run may.
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

// limits of a test: how long after its start each unique id must be there, and how long after it each report.
func (g *machine) limits(t *v1alpha1.SpanTest, members int) (ids, reports time.Duration) {
	spec := &g.in.Group.Spec
	more := time.Duration(members) * perMemberSlack
	return decision.Seconds(spec.Run.InitDeadlineSeconds) + testSlack + more, taskLimit(spec, g.planOf(t).DeadlineSeconds) + more
}

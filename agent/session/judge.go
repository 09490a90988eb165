package session

import (
	"cmp"
	"fmt"
	"slices"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/runner"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// repeatsOf is how often a task's measurements are made.
func repeatsOf(t api.NodeTask) int { return max(1, int(t.Repeats)) }

// plan gives the steps of a task's ranks: all of them once, and all again for each repeat. What a collective does not have, in place or at so small a size, is left out.
func plan(t api.NodeTask, worldSize int) []rank.Step {
	var places []rcclx.Placement
	for _, p := range t.Placements {
		places = append(places, rcclx.Placement(p))
	}
	var out []rank.Step
	for _, c := range t.Collectives {
		for _, d := range t.Datatypes {
			for _, p := range rcclx.MeasurablePlacements(rcclx.Collective(c), places) {
				sizes := rcclx.MeasurableSizes(rcclx.Collective(c), rcclx.Datatype(d), t.SizesBytes, worldSize)
				if len(sizes) > 0 {
					out = append(out, rank.Step{Kind: rank.StepMeasure, Collective: rcclx.Collective(c), Datatype: rcclx.Datatype(d), Placement: p, SizesBytes: sizes,
						WarmupIterations: int(t.WarmupIterations), Iterations: int(t.Iterations), Data: []rcclx.Data{rcclx.DataExact}})
				}
			}
		}
	}
	return slices.Repeat(out, repeatsOf(t))
}

// judge says what became of this node's ranks of a communicator. madeID says whether its rank 0 made the unique id.
func judge(node string, t api.NodeTask, c api.TaskCommunicator, e ended, madeID bool) api.TaskCommunicatorStatus {
	s := api.TaskCommunicatorStatus{Name: c.Name}
	if e.transport != nil {
		s.Transport = string(e.transport.Carrier)
	}
	var longest int64
	for _, r := range e.outcome.Ranks {
		longest = max(longest, r.InitDuration.Nanoseconds())
	}
	if longest > 0 {
		s.InitNanoseconds = &longest
	}
	if isRoot(c) {
		for _, x := range tabulate(e.outcome, int(c.WorldSize)) {
			if r := x.result(len(e.outcome.Ranks), repeatsOf(t)); len(r.SizeBytes) > 0 {
				s.Results = append(s.Results, r)
			}
		}
		s.Results = s.Results[:min(len(s.Results), 24)]
		if repeatsOf(t) > 1 && len(s.Results) > 0 {
			s.Repeats = t.Repeats
		}
	}
	set := func(v api.Verdict, reason string, step *api.Step, message string) {
		s.Verdict, s.Reason, s.Step, s.Message = v, reason, step, clip.Head(message, 512)
	}
	prefix := fmt.Sprintf("node %s: task %s, communicator %s: ", node, t.ID, c.Name)
	if step, text := firstWrong(t, int(c.WorldSize), e.outcome); text != "" {
		set(api.VerdictFail, api.ReasonWrongData, step, prefix+text+": what a rank receives comes from all of them, so that this names none")
		return s
	}
	if f := e.outcome.Failure; f != nil {
		verdict, reason := verdictOf(*f)
		message := clip.Head(f.Message, 400)
		if f.RAS != "" {
			message += "; " + f.RAS
		}
		set(verdict, reason, stepOf(f.At), message)
		s.Guilty = guilty(node, reason, c, e.outcome, madeID)
		return s
	}
	if what := missing(t, c, e.outcome); what != "" {
		set(api.VerdictError, api.ReasonInconclusive, nil, prefix+what)
		return s
	}
	s.Verdict = api.VerdictPass
	if t := e.transport; t != nil && (t.Carrier != network.RDMA || len(t.Causes) > 0) {
		s.Message = clip.Head(fmt.Sprintf("node %s: between nodes: %s", node, t), 256)
	}
	return s
}

// ownCodes are errors of a rank that no other rank can be the cause of.
var ownCodes = []string{rank.CodeLibraryMissing, rank.CodeLibraryTooOld, rank.CodeSymbolMissing, rank.CodePreconditionFailed, rank.CodeInsufficientMemory}

// verdictOf turns a failure into a verdict and its reason.
func verdictOf(f supervise.Failure) (api.Verdict, string) {
	switch f.Kind {
	case supervise.FailInterrupted:
		return api.VerdictError, api.ReasonInterrupted
	case supervise.FailRunDeadline: // no step hung, but together they took too long
		return api.VerdictFail, api.ReasonRunDeadlineExceeded
	case supervise.FailStart:
		return api.VerdictError, api.ReasonPreconditionFailed
	case supervise.FailDied:
		return api.VerdictFail, api.ReasonRankDied
	case supervise.FailHung:
		return api.VerdictFail, api.ReasonRankHung
	case supervise.FailRankError:
		switch {
		case slices.Contains(ownCodes, f.Code):
			return api.VerdictError, f.Code
		case f.Late:
			return api.VerdictFail, api.ReasonRankHung
		case f.Code == rank.CodeInitFailed:
			return api.VerdictFail, api.ReasonInitFailed
		case f.Code == rank.CodeCollectiveFailed:
			return api.VerdictFail, api.ReasonCollectiveFailed
		}
	}
	return api.VerdictError, api.ReasonRunPodFailed
}

// guilty names what of this node the other nodes' failures follow from, where the node can know that by itself: a rank that
// died, that could not start or load, or that never got so far as to need its peers. nil for all else: who waits for ranks of
// other nodes, or lost the connection to one, is a victim as far as can be seen from here.
func guilty(node, reason string, c api.TaskCommunicator, o supervise.Outcome, madeID bool) *api.Culprit {
	f := o.Failure
	at, kind := f.Rank, "GPU"
	switch f.Kind {
	case supervise.FailStart:
		kind = "Node"
	case supervise.FailDied:
		if f.Killed {
			kind = "Rank" // SIGKILL comes from outside (memory limit, a person): no GPU is to blame
		}
	case supervise.FailRankError:
		switch {
		case !slices.Contains(ownCodes, f.Code):
			at, kind = -1, ""
		case f.Code == rank.CodeLibraryMissing || f.Code == rank.CodeLibraryTooOld || f.Code == rank.CodeSymbolMissing:
			kind = "Node" // all ranks load the library by the same path
		}
	case supervise.FailHung:
		switch {
		case len(f.Stopped) > 0:
			at, kind = f.Stopped[0], "Rank" // from outside: no GPU is to blame
		case at < 0 && isRoot(c) && !madeID:
			kind = "Node"
		case at < 0 || f.ByRAS || !beforePeers(o.Ranks[at]):
			at, kind = -1, ""
		}
	default:
		at, kind = -1, ""
	}
	if i := slices.IndexFunc(o.Ranks, func(r supervise.RankOutcome) bool { return r.Stuck }); i >= 0 {
		at, kind = i, "GPU"
	}
	out := &api.Culprit{Node: node, Kind: kind, Reason: reason, Message: clip.Head(f.Message, 512)}
	switch {
	case kind == "":
		return nil
	case kind == "Node" || at < 0 || at >= len(o.Ranks):
		out.Kind, out.Name = "Node", node
	case kind == "Rank" || o.Ranks[at].PCIAddress == "":
		out.Kind, out.Name = "Rank", fmt.Sprintf("rank %d", o.Ranks[at].Rank)
	default:
		out.Name = o.Ranks[at].PCIAddress
	}
	return out
}

// beforePeers says whether a rank stands where it needs no other rank: it has not loaded the library, or does not begin to
// join although it could.
func beforePeers(r supervise.RankOutcome) bool {
	return r.LastEvent == "" || r.LastEvent == rank.EventLoaded
}

// firstWrong describes the first measurement with wrong elements, in the order of the steps; text is empty where all is right.
func firstWrong(t api.NodeTask, worldSize int, o supervise.Outcome) (step *api.Step, text string) {
	first, each := -1, max(1, measurementsOf(plan(t, worldSize))/repeatsOf(t))
	for _, r := range o.Ranks {
		for i, m := range r.Measurements {
			if m.Wrong() == 0 || first >= 0 && i >= first {
				continue
			}
			first, step = i, stepOfMeasurement(m)
			text = fmt.Sprintf("%d wrong elements on %s at %s", m.Wrong(), r.Name(), step)
			if n := m.Unwritten(); n > 0 {
				text += fmt.Sprintf(", %d of them never written by the library", n)
			}
			if n := repeatsOf(t); n > 1 {
				text += fmt.Sprintf(" (repeat %d of %d)", i/each+1, n)
			}
		}
	}
	return step, text
}

func stepOfMeasurement(m rank.Measurement) *api.Step {
	return stepOf(&rank.Position{Kind: rank.StepMeasure, Collective: m.Collective, Datatype: m.Datatype, Placement: m.Placement, SizeBytes: m.SizeBytes})
}

// stepOf is a rank's position as the API has it; nil where it measured no collective.
func stepOf(at *rank.Position) *api.Step {
	if at == nil || at.Kind != rank.StepMeasure {
		return nil
	}
	return &api.Step{Collective: api.Collective(at.Collective), Datatype: api.Datatype(at.Datatype), Placement: api.Placement(at.Placement), SizeBytes: at.SizeBytes}
}

// missing says what was to be measured or checked and was not; empty where all was.
func missing(t api.NodeTask, c api.TaskCommunicator, o supervise.Outcome) string {
	want := measurementsOf(plan(t, int(c.WorldSize)))
	if want == 0 {
		return fmt.Sprintf("nothing was measured: none of the sizes %v gives each of %d ranks an element; measure larger ones", t.SizesBytes, c.WorldSize)
	}
	for _, r := range o.Ranks {
		if len(r.Measurements) != want {
			each := ""
			if n := repeatsOf(t); n > 1 {
				each = fmt.Sprintf(", which is %d in each of %d repeats", want/n, n)
			}
			return fmt.Sprintf("%s has %d measurements, expected %d%s; the agent binary in the pod may be of another version than the operator", r.Name(), len(r.Measurements), want, each)
		}
		for _, m := range r.Measurements {
			if !checked(m) && mustCheck(m, r.Rank) {
				return fmt.Sprintf("%s checked no element at %s", r.Name(), stepOfMeasurement(m))
			}
		}
	}
	return ""
}

// measurementsOf is how many a rank makes in these steps.
func measurementsOf(steps []rank.Step) int {
	n := 0
	for _, s := range steps {
		n += len(s.SizesBytes)
	}
	return n
}

func checked(m rank.Measurement) bool {
	return slices.ContainsFunc(m.Checks, func(c rcclx.CheckResult) bool { return c.CheckedElements > 0 })
}

// mustCheck says whether a rank has a result of its own: of Reduce only the root, and of Broadcast in place all but the root.
func mustCheck(m rank.Measurement, r int) bool {
	switch m.Collective {
	case rcclx.Reduce:
		return r == 0
	case rcclx.Broadcast:
		return r != 0
	}
	return true
}

// series is one (collective, datatype, placement), by size: the slowest of this node's ranks, and of those on other nodes as they told.
type series struct {
	collective rcclx.Collective
	datatype   rcclx.Datatype
	placement  rcclx.Placement
	worldSize  int
	wrong      int64
	cells      []*cell
}

// cell is one size: of each repeat the slowest of the ranks that reported it.
type cell struct {
	size, moved, noisePPM int64
	repeats               []repeat
}

type repeat struct {
	latency int64
	ranks   int
}

func tabulate(o supervise.Outcome, worldSize int) []*series {
	var out []*series
	for _, r := range o.Ranks {
		times := map[*cell]int{} // how often this rank has measured it
		for _, m := range r.Measurements {
			at := slices.IndexFunc(out, func(s *series) bool {
				return s.collective == m.Collective && s.datatype == m.Datatype && s.placement == m.Placement
			})
			if at < 0 {
				at = len(out)
				out = append(out, &series{collective: m.Collective, datatype: m.Datatype, placement: m.Placement, worldSize: worldSize})
			}
			c := out[at].cell(m.SizeBytes)
			c.add(m, worldSize, times[c])
			times[c]++
			out[at].wrong += m.Wrong()
		}
	}
	return out
}

func (s *series) cell(size int64) *cell {
	at := slices.IndexFunc(s.cells, func(c *cell) bool { return c.size == size })
	if at < 0 {
		at = len(s.cells)
		s.cells = append(s.cells, &cell{size: size})
	}
	return s.cells[at]
}

// add takes the measurement of one more rank in, which is its n-th of this size from 0.
func (c *cell) add(m rank.Measurement, worldSize, n int) {
	if n == len(c.repeats) {
		c.repeats = append(c.repeats, repeat{})
	}
	one := &c.repeats[n]
	one.ranks++
	one.latency = max(one.latency, m.Latency.MedianNanoseconds, m.SlowestNanoseconds)
	c.noisePPM = max(c.noisePPM, m.Latency.CoefficientOfVariationPPM)
	if shape, err := rcclx.ShapeOfCount(m.Collective, m.Datatype, m.CountElements, worldSize); err == nil {
		c.moved = shape.SizeBytes()
	}
}

// result leaves out sizes that not every rank of the node measured in each repeat, since the slowest may be the one that is
// missing, and those whose bandwidth cannot be told. Of the repeats the median counts: none is chosen for being good.
func (s *series) result(ranks, repeats int) api.ResultSeries {
	r := api.ResultSeries{Variant: api.VariantBaseline, Collective: api.Collective(s.collective), Datatype: api.Datatype(s.datatype), WrongElements: s.wrong}
	if s.placement == rcclx.InPlace {
		r.Placement = api.InPlace
	}
	slices.SortFunc(s.cells, func(a, b *cell) int { return cmp.Compare(a.size, b.size) })
	for _, c := range s.cells {
		if len(c.repeats) != repeats || slices.ContainsFunc(c.repeats, func(x repeat) bool { return x.ranks != ranks }) {
			continue
		}
		latencies := make([]int64, repeats)
		for i := range latencies {
			latencies[i] = c.repeats[i].latency
		}
		latency := runner.Median(latencies)
		bandwidth := rcclx.BusBandwidthMBps(s.collective, c.moved, latency, s.worldSize)
		if slices.Min(latencies) <= 0 || bandwidth <= 0 || len(r.SizeBytes) == 40 {
			continue
		}
		r.SizeBytes = append(r.SizeBytes, c.size)
		r.LatencyNanoseconds = append(r.LatencyNanoseconds, latency)
		r.BusBandwidthMBps = append(r.BusBandwidthMBps, bandwidth)
		r.NoisePercent = append(r.NoisePercent, int32(min((c.noisePPM+9_999)/10_000, 1000)))
		if repeats > 1 {
			// Bandwidth goes with the inverse of the latency: of the fastest the slowest lacks 1 - least/most.
			least, most := slices.Min(latencies), slices.Max(latencies)
			r.SpreadPercent = append(r.SpreadPercent, int32(((most-least)*100+most-1)/most))
		}
	}
	if slices.Contains(r.NoisePercent, 0) {
		r.NoisePercent = nil // a size without it would read as one without noise
	}
	return r
}

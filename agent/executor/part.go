package executor

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// judgePart says what became of this node's ranks of a communicator. madeID says whether its rank 0 made the unique id.
func judgePart(node string, t api.NodeTask, c api.TaskCommunicator, e ended, madeID bool) api.TaskCommunicatorStatus {
	s := api.TaskCommunicatorStatus{Name: c.Name, InitNanoseconds: longestInit(e.outcome.Ranks)}
	if e.transport != nil {
		s.Transport = string(e.transport.Carrier)
	}
	table := tabulatePart(c, e.outcome)
	repeats := repeatsOf(t.Repeats)
	if isRoot(c) {
		s.Results = table.Results(t.SizesBytes, repeats)
		s.Results = s.Results[:min(len(s.Results), maxSeries)]
		if repeats > 1 && len(s.Results) > 0 {
			s.Repeats = t.Repeats
		}
	}
	prefix := fmt.Sprintf("node %s: task %s, communicator %s: ", node, t.ID, c.Name)
	missing := missingInPart(t, int(c.WorldSize), table)
	switch f := e.outcome.Failure; {
	case table.Wrong != nil:
		at := table.Wrong.at()
		s.Verdict, s.Reason, s.Step = api.VerdictFail, api.ReasonWrongData, stepOf(&at)
		s.Message = prefix + wrongInPart(*table.Wrong, repeats) +
			": what a rank receives comes from all of them, so that this names none"
	case f != nil:
		s.Verdict, s.Reason = verdictOfPart(*f)
		s.Step, s.Guilty, s.Message = stepOf(f.At), guilty(node, s.Reason, c, e.outcome, madeID),
			clip.Head(f.Message, 400)
		if f.RAS != "" {
			s.Message += "; " + f.RAS
		}
	case missing != "":
		s.Verdict, s.Reason, s.Message = api.VerdictError, api.ReasonInconclusive, prefix+missing
	default:
		s.Verdict = api.VerdictPass
		if t := e.transport; t != nil && (t.Carrier != network.RDMA || len(t.Causes) > 0) {
			s.Message = clip.Head(fmt.Sprintf("node %s: between nodes: %s", node, t), 256)
		}
	}
	s.Message = clip.Head(s.Message, 512)
	return s
}

// maxSeries is what TaskCommunicatorStatus.Results holds.
const maxSeries = 24

// tabulatePart is what this node's ranks of a communicator measured.
func tabulatePart(c api.TaskCommunicator, o supervise.Outcome) Table {
	local := make([]int, len(c.Ranks))
	for i, r := range c.Ranks {
		local[i] = int(r)
	}
	return Tabulate([]VariantOutcome{{rcclx.Baseline, o}}, int(c.WorldSize), local)
}

// verdictOfPart is the verdict of a failure of ranks whose peers are on other nodes.
func verdictOfPart(f supervise.Failure) (api.Verdict, string) {
	switch {
	case f.Kind == supervise.FailRunDeadline: // no step hung, but together they took too long
		return api.VerdictFail, api.ReasonRunDeadlineExceeded
	case f.Late: // what hung may be on another node
		return api.VerdictFail, api.ReasonRankHung
	}
	return verdictOf(f)
}

// wrongInPart describes wrong elements that ranks of this node have.
func wrongInPart(w Measured, repeats int) string {
	who := w.Cell.wrongOn[0]
	if n := len(w.Cell.wrongOn); n > 1 {
		who = fmt.Sprintf("%d ranks, %s among them,", n, who)
	}
	text := fmt.Sprintf("%d wrong elements on %s at %s", w.Cell.UnexplainedElements, who, w.at())
	if n := w.Cell.unwritten(); n > 0 {
		text += fmt.Sprintf(", %d of them never written by the library", n)
	}
	if repeats > 1 {
		text += fmt.Sprintf(" (repeat %d of %d)", w.Repeat, repeats)
	}
	return text
}

// missingInPart says what was to be measured or checked and was not; empty where all was.
func missingInPart(t api.NodeTask, worldSize int, table Table) string {
	steps := taskMatrix(t).steps(worldSize)
	if len(steps) == 0 {
		return fmt.Sprintf("nothing was measured: none of the sizes %v gives each of %d ranks an element; "+
			"measure larger ones", t.SizesBytes, worldSize)
	}
	missing := table.missing([]VariantPlan{{rcclx.Baseline, steps}}, repeatsOf(t.Repeats))
	if len(missing) == 0 {
		return ""
	}
	return strings.Join(missing, "; ") + "; the agent binary in the pod may be of another version than the operator"
}

// guilty names what of this node the other nodes' failures follow from, where the node can know that by itself: a
// rank that died, that could not start or load, or that never got so far as to need its peers. nil for all else: who
// waits for ranks of other nodes, or lost the connection to one, is a victim as far as can be seen from here.
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
		case !hasOwnError(*f):
			at, kind = -1, ""
		case lacksLibrary(*f):
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
	var out api.Culprit
	switch {
	case kind == "":
		return nil
	case kind == "Node" || at < 0 || at >= len(o.Ranks):
		out = api.Culprit{Node: node, Kind: "Node", Name: node, Reason: reason, Message: clip.Head(f.Message, 512)}
	case kind == "Rank" || o.Ranks[at].PCIAddress == "":
		out = rankCulprit(node, o.Ranks[at].Rank, reason, f.Message)
	default:
		out = api.Culprit{Node: node, Kind: "GPU", Name: o.Ranks[at].PCIAddress, Reason: reason,
			Message: clip.Head(f.Message, 512)}
	}
	return &out
}

// beforePeers says whether a rank stands where it needs no other rank: it has not loaded the library, or does not
// begin to join although it could.
func beforePeers(r supervise.RankOutcome) bool {
	return r.LastEvent == "" || r.LastEvent == rank.EventLoaded
}

// stepOf is a rank's position as the API has it; nil where it measured no collective.
func stepOf(at *rank.Position) *api.Step {
	if at == nil || at.Kind != rank.StepMeasure {
		return nil
	}
	return &api.Step{Collective: api.Collective(at.Collective), Datatype: api.Datatype(at.Datatype),
		Placement: api.Placement(at.Placement), SizeBytes: at.SizeBytes}
}

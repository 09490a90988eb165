package executor

import (
	"fmt"
	"strings"

	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/localize"
)

// Search is a finished search for a culprit among a node's GPUs; members of its finding are ordinals.
type Search struct {
	// What failed, in words: "Baseline AllReduce BFloat16 65536 B hangs".
	What    string
	Finding localize.Finding
	probes  []probe
	// stopped says what got in its way, and smaller is the size that was searched with where the one that failed is
	// larger.
	stopped string
	smaller int64
}

// probe is a communicator of a search, and what became of it.
type probe struct {
	localize.Test
	// failure, or wrong elements, of a bad one.
	failure *supervise.Failure
	wrong   int64
}

func (p *probe) String() string {
	text := "GPUs " + join(p.Set)
	switch f := p.failure; {
	case p.Outcome == localize.Good:
		return text + " passed"
	case f == nil:
		return fmt.Sprintf("%s gave %d wrong elements", text, p.wrong)
	case f.Kind == supervise.FailHung:
		return text + " hung at " + f.Step
	case f.Kind == supervise.FailDied:
		return fmt.Sprintf("%s lost rank %d at %s", text, f.Rank, f.Step)
	default:
		return text + " failed at " + f.Step
	}
}

func (s *Search) history() []localize.Test {
	history := make([]localize.Test, len(s.probes))
	for i := range s.probes {
		history[i] = s.probes[i].Test
	}
	return history
}

// texts of the probes that these are.
func (s *Search) texts(are func(p *probe) bool) string {
	var parts []string
	for i := range s.probes {
		if p := &s.probes[i]; are(p) {
			parts = append(parts, p.String())
		}
	}
	return strings.Join(parts, "; ")
}

func bad(p *probe) bool { return p.Outcome == localize.Bad }

// manyGPUs at fault that are, with those not told apart, also half of the node's or more are none of them the cause.
const manyGPUs = 3

// shared says whether so many GPUs fail that what they share is at fault: to take all of them away would fix nothing.
func (s *Search) shared() bool {
	f := &s.Finding
	return len(f.Members) >= manyGPUs && 2*(len(f.Members)+len(f.Suspects)) >= f.Evidence.Among && len(f.Pairs) == 0
}

// found says whether GPUs or links are named.
func (s *Search) found() bool { return len(s.Finding.Members)+len(s.Finding.Pairs) > 0 && !s.shared() }

// why says in one sentence how the search came to its finding.
func (s *Search) why() string {
	e := &s.Finding.Evidence
	switch {
	case s.found():
		return fmt.Sprintf("found by %d communicators in %d rounds", e.Tests, e.Rounds)
	case s.stopped != "":
		return "it was cut short: " + s.stopped
	case s.shared():
		return fmt.Sprintf("%d of %d GPUs fail, which points at what they share (library, driver, settings, "+
			"a busy node) rather than at each of them", len(s.Finding.Members), e.Among)
	case e.Tests == 0:
		return "no communicator could be run to search for it"
	case s.texts(bad) == "" && s.smaller > 0:
		return fmt.Sprintf("none of %d smaller communicators in %d rounds reproduces it with %d B: "+
			"all GPUs and links work, so the step may have been too long for its deadline, and no hang; "+
			"raise run.stepDeadlineSeconds, or measure smaller sizes", e.Tests, e.Rounds, s.smaller)
	case s.texts(bad) == "":
		return fmt.Sprintf("none of %d smaller communicators in %d rounds reproduces it", e.Tests, e.Rounds)
	case e.Good == 0 && e.Tests > 1:
		return "every communicator fails, which points at the library, driver or settings rather than one GPU"
	case e.Good == 0:
		return "no GPU was left that is known to be good, so a GPU cannot be told from a link"
	case e.Bound != "":
		return "the rounds ended before one GPU or link was left"
	default:
		return "communicators fail whose GPUs and links work in others, so the fault comes and goes or lies in " +
			"more than one place"
	}
}

// suspects are the GPUs that remain where none is named.
func (s *Search) suspects() string {
	f := &s.Finding
	switch {
	case s.found() || s.texts(bad) == "":
		return ""
	case s.shared():
		return fmt.Sprintf("GPU ordinals %s fail with every partner", join(f.Members))
	case f.Evidence.Good == 0:
		return s.texts(bad)
	case len(f.Suspects) > 0 && len(f.Suspects) < f.Evidence.Among:
		return "something among GPU ordinals " + join(f.Suspects)
	}
	return ""
}

func join(gpus []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(gpus)), ","), "[]")
}

// culprits names the finding as the API has it, at most eight.
func (s *Search) culprits(node, reason string, pci []string) []api.Culprit {
	const most, next = 8, "drain the node, then look at dmesg and the RAS error counters of"
	if !s.found() {
		return nil
	}
	var out []api.Culprit
	for _, g := range s.Finding.Members {
		name := gpuName(g, pci)
		seen := s.texts(func(p *probe) bool { return p.Set.Has(g) })
		out = append(out,
			api.Culprit{Node: node, Kind: "GPU", Name: name, Reason: reason, Message: clip.Head(fmt.Sprintf(
				"%s with every partner (ordinals: %s), expected none; %s GPU %s", s.What, seen, next, name), 512)})
	}
	for _, l := range s.Finding.Pairs {
		name := linkName(Pair{l[0], l[1]}, pci)
		seen := s.texts(func(p *probe) bool { return p.Set.Has(l[0]) || p.Set.Has(l[1]) })
		out = append(out,
			api.Culprit{Node: node, Kind: "Link", Name: name, Reason: reason, Message: clip.Head(fmt.Sprintf(
				"%s only between these two GPUs, each works with others (ordinals: %s); %s both GPUs",
				s.What, seen, next), 512)})
	}
	return out[:min(len(out), most)]
}

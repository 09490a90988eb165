package stage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/controllers/words"
	"rcclx.io/commgroup-operator/internal/localize"
)

// kindCommunicators is the kind of a culprit without a node: communicators of one dimension of the mesh, dp/0-7,9.
const kindCommunicators = "Link"

// ofCommunicators says whether the culprit stands for communicators of the mesh whose node is not known.
func ofCommunicators(c *v1alpha1.Culprit) bool { return c.Kind == kindCommunicators && c.Node == "" }

// numberOf a communicator of the mesh, whose name is dimension/K; -1 of another.
func numberOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
	if err != nil {
		return -1
	}
	return n
}

// maxCommunicatorsName is what the API holds of a culprit's name.
const maxCommunicatorsName = 253

// communicatorsName is the name of communicators of a dimension by their numbers; of very many that are scattered the first ones.
func communicatorsName(dimension string, numbers []int) string {
	set := localize.NewSet(numbers...)
	for {
		if name := dimension + "/" + set.String(); len(name) <= maxCommunicatorsName {
			return name
		}
		set = set[:len(set)*3/4]
	}
}

// untraced is the culprit that stands for the bad communicators of a dimension, and their numbers; nil where there is none.
func (g *machine) untraced(dimension string) (*v1alpha1.Culprit, localize.Set) {
	for i := range g.span.Culprits {
		c := &g.span.Culprits[i]
		at := strings.LastIndexByte(c.Name, '/')
		if !ofCommunicators(c) || at < 0 || c.Name[:at] != dimension {
			continue
		}
		if set, err := localize.ParseSet(c.Name[at+1:]); err == nil {
			return c, set
		}
	}
	return nil, nil
}

// partsOf are the shares of a test's members by the names of the nodes; none where it cannot be laid out.
func (g *machine) partsOf(t *v1alpha1.SpanTest) map[string]spans.Part {
	out := map[string]spans.Part{}
	l, err := g.layoutOf(t)
	if err != nil {
		return out
	}
	for index, part := range l.shares {
		out[g.seats[index].name] = part
	}
	return out
}

// explained says whether a culprit that is known makes the communicator bad: a node in it, a GPU or NIC of its ranks, or a pair.
func (g *machine) explained(c *communicator, parts map[string]spans.Part) bool {
	here := func(node string) *seat {
		if at := slices.IndexFunc(c.seats, func(s *seat) bool { return s.name == node }); at >= 0 {
			return c.seats[at]
		}
		return nil
	}
	return slices.ContainsFunc(g.span.Culprits, func(known v1alpha1.Culprit) bool {
		if VerdictOf(known.Reason) != v1alpha1.VerdictFail || known.Reason == v1alpha1.ReasonTransportFallback {
			return false
		}
		switch known.Kind {
		case "Node", "Rank":
			return here(known.Node) != nil
		case "Pair":
			return !slices.ContainsFunc(known.Pair, func(node string) bool { return here(node) == nil })
		case "GPU", "NIC":
			s := here(known.Node)
			if s == nil {
				return false
			}
			part := parts[s.name]
			at := slices.IndexFunc(part.Communicators, func(own v1alpha1.TaskCommunicator) bool { return own.Name == c.name })
			return at >= 0 && slices.ContainsFunc(part.Communicators[at].Devices, func(device int32) bool { return isDevice(s, device, known.Name) })
		}
		return false
	})
}

// isDevice says whether a culprit's name is that of the node's device or of the NIC next to it.
func isDevice(s *seat, device int32, name string) bool {
	if name == fmt.Sprintf("GPU %d", device) {
		return true
	}
	f := s.facts()
	return f != nil && int(device) < len(f.GPUs) && (f.GPUs[device].PCIAddress == name || f.GPUs[device].NIC == name)
}

// searchBase is the place of the test that a search would be for: the last one of the group or of a dimension; -1 where there
// is none.
func (g *machine) searchBase() int { return BaseOf(g.span.Tests) }

// BaseOf is the place of the last test of the group or of a dimension; -1 where there is none.
func BaseOf(tests []v1alpha1.SpanTest) int {
	for i := len(tests) - 1; i >= 0; i-- {
		if kind := tests[i].Kind; kind == v1alpha1.TestGroup || kind == v1alpha1.TestMesh {
			return i
		}
	}
	return -1
}

// dimensionSearched is the dimension that the tests since the last one of the group are about; empty where it is none.
func (g *machine) dimensionSearched() string {
	if at := g.searchBase(); at >= 0 && g.span.Tests[at].Kind == v1alpha1.TestMesh {
		return g.span.Tests[at].Dimension
	}
	return ""
}

// searchMesh begins the search for what makes communicators of a dimension bad.
func (g *machine) searchMesh(r *testResult, dimension string) bool {
	culprit, _ := g.untraced(dimension)
	if culprit == nil || g.in.Group.Spec.Localization.Mode == v1alpha1.LocalizationOff || len(g.searchSet()) <= LeastMembers {
		return false
	}
	g.startSearch(g.stepOf(r.step))
	return true
}

// searchSet are the members that a search is among: all that are present; in a dimension of the mesh those of its bad
// communicators, and some more where they are too few to tell them apart.
func (g *machine) searchSet() localize.Set {
	present := g.presentSet()
	dimension := g.dimensionSearched()
	if dimension == "" {
		return present
	}
	_, numbers := g.untraced(dimension)
	l, err := g.layoutOf(&g.span.Tests[g.searchBase()])
	if err != nil {
		return present
	}
	var members []int
	for _, c := range l.communicators {
		if numbers.Has(numberOf(c.name)) {
			for _, s := range c.seats {
				members = append(members, s.index)
			}
		}
	}
	set := localize.NewSet(members...)
	for _, index := range present {
		if len(set) >= minPairsMembers {
			break
		}
		set = localize.NewSet(append(slices.Clone(set), index)...)
	}
	return set
}

// searchLayout lays a test of a search: as the dimension that it is for where each of its communicators takes one device of a
// node, so that all devices work side by side; else one communicator over all ranks.
func (g *machine) searchLayout(t *v1alpha1.SpanTest, members []spans.Member) ([]spans.Part, error) {
	at := slices.IndexFunc(g.span.Tests, func(o v1alpha1.SpanTest) bool { return o.ID == t.ID })
	base := BaseOf(g.span.Tests[:max(0, at)])
	if base < 0 || g.span.Tests[base].Kind != v1alpha1.TestMesh {
		return spans.Group(members)
	}
	mesh := g.in.Group.Spec.Mesh
	dimension := slices.IndexFunc(mesh, func(d v1alpha1.MeshDimension) bool { return d.Name == g.span.Tests[base].Dimension })
	stride, ranks := 1, 1
	for _, d := range mesh[dimension+1:] {
		stride *= int(d.Size)
	}
	for _, m := range members {
		ranks = max(ranks, m.Ranks)
	}
	if stride >= ranks {
		return spans.Rails(members)
	}
	return spans.Group(members)
}

// bestOfMesh is the best that the dimension, and the tests of its search just closed, reach; zero outside of such a search.
func (g *machine) bestOfMesh() int64 {
	dimension := g.dimensionSearched()
	best := int64(0)
	if dimension == "" {
		return best
	}
	step := g.searchStep()
	for i := range g.span.Results {
		s := &g.span.Results[i]
		if s.Dimension != dimension || s.Collective != step.Collective || s.Datatype != step.Datatype {
			continue
		}
		if at := slices.Index(s.SizeBytes, step.SizeBytes); at >= 0 && at < len(s.BusBandwidthMBps) {
			best = max(best, s.BusBandwidthMBps[at])
		}
	}
	for i := range g.round {
		for _, bw := range bandwidths(g.round[i].communicators) {
			best = max(best, bw)
		}
	}
	return best
}

// tracedTo drops the communicators of the dimension that a search explained: it found what is bad and nothing is left over. Those that
// no named culprit makes bad stay.
func (g *machine) tracedTo(f localize.Finding) {
	dimension := g.dimensionSearched()
	if dimension == "" || f.State != localize.Found || len(f.Suspects) > 0 {
		return
	}
	culprit, numbers := g.untraced(dimension)
	base := &g.span.Tests[g.searchBase()]
	l, err := g.layoutOf(base)
	if culprit == nil || err != nil {
		return
	}
	var rest []int
	parts := g.partsOf(base)
	for _, c := range l.communicators {
		if n := numberOf(c.name); numbers.Has(n) && !g.explained(c, parts) {
			rest = append(rest, n)
		}
	}
	if len(rest) > 0 {
		if len(rest) < len(numbers) {
			culprit.Name = communicatorsName(dimension, rest)
			culprit.Message = words.Shorten(fmt.Sprintf("What the search named does not make %s bad. %s", culprit.Name, culprit.Message), 512)
		}
		return
	}
	named := *culprit
	g.span.Culprits = slices.DeleteFunc(g.span.Culprits, func(c v1alpha1.Culprit) bool { return same(&c, &named) })
}

// backToMesh goes on with the mesh after a search in it; it says whether the search was one.
func (g *machine) backToMesh() bool {
	if g.dimensionSearched() == "" {
		return false
	}
	g.enter(v1alpha1.StageMesh, 0)
	g.openMesh()
	return true
}

// tellCommonNode tells of the node that is in every bad communicator, and in none that is good, where communicators of two
// dimensions at least are bad: those of one dimension alone have other nodes in common as well. It is a hint and no culprit:
// two faults elsewhere may look the same, a bad pair in each of the dimensions.
func (g *machine) tellCommonNode() {
	common := map[*seat]bool{}
	for _, s := range g.present() {
		common[s] = true
	}
	reason, bad := "", []string(nil)
	for at := range g.in.Group.Spec.Mesh {
		dimension := g.in.Group.Spec.Mesh[at].Name
		t := meshTest(g.span.Tests, dimension)
		if t == nil {
			continue
		}
		culprit, numbers := g.untraced(dimension)
		l, err := g.layoutOf(t)
		if err != nil || culprit == nil && t.Verdict != v1alpha1.VerdictPass {
			return // what is bad in it is not known, or has another cause
		}
		if culprit != nil {
			reason = culprit.Reason
			bad = append(bad, dimension)
		} else if !eachHasLike(l) || !g.comparesDimensions() {
			continue // it works, and how fast it should be is not known
		}
		for _, c := range l.communicators {
			if len(c.seats) < LeastMembers {
				continue
			}
			isBad := numbers.Has(numberOf(c.name))
			for s := range common {
				if slices.Contains(c.seats, s) != isBad {
					delete(common, s)
				}
			}
		}
	}
	if len(bad) < 2 || len(common) != 1 {
		return
	}
	for s := range common {
		g.explain(reason, fmt.Sprintf("Look first at node %s: of the dimensions %s it is in every communicator that is bad, it is in none that is good, and no other node is so. No smaller test shows it, so that it is no culprit yet. %s",
			s.name, strings.Join(bad, ", "), g.span.Message))
	}
}

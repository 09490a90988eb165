package stage

import (
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/localize"
)

// communicator is one communicator of a test.
type communicator struct {
	name  string
	ranks int32
	// participants in rank order; the first has rank 0.
	participants []*participant
}

// layout is who is in which communicators of a test.
type layout struct {
	// shares by index of the participant.
	shares map[int]spans.Part
	// communicators, in order; places say which one a participant's name means: in a test over pairs many have one
	// name.
	communicators []*communicator
	places        map[place]*communicator
}

type place struct {
	index int
	name  string
}

func (l *layout) add(participants []*participant, parts []spans.Part) {
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
			s := participants[p.Index]
			if spans.IsRoot(c) {
				one.participants = append([]*participant{s}, one.participants...)
			} else {
				one.participants = append(one.participants, s)
			}
			l.places[place{p.Index, c.Name}] = one
		}
	}
}

// layoutOf lays the communicators of a test over the members that are present.
func (g *planner) layoutOf(t *v1alpha1.SpanTest) (*layout, error) {
	l := &layout{shares: map[int]spans.Part{}, places: map[place]*communicator{}}
	set := slices.DeleteFunc(g.readSet(t.Set), func(i int) bool {
		return g.participants[i] == nil || !g.participants[i].present
	})
	add := func(parts []spans.Part, err error) error {
		if err == nil {
			l.add(g.participants, parts)
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

// searchLayout lays a test of a search: as the dimension that it is for where each of its communicators takes one
// device of a node, so that all devices work side by side; else one communicator over all ranks.
func (g *planner) searchLayout(t *v1alpha1.SpanTest, members []spans.Member) ([]spans.Part, error) {
	at := slices.IndexFunc(g.span.Tests, func(o v1alpha1.SpanTest) bool { return o.ID == t.ID })
	base := BaseOf(g.span.Tests[:max(0, at)])
	if base < 0 || g.span.Tests[base].Kind != v1alpha1.TestMesh {
		return spans.Group(members)
	}
	mesh := g.in.Group.Spec.Mesh
	dimension := slices.IndexFunc(mesh, func(d v1alpha1.MeshDimension) bool {
		return d.Name == g.span.Tests[base].Dimension
	})
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

// partsOf are the shares of a test's members by the names of the nodes; none where it cannot be laid out.
func (g *planner) partsOf(t *v1alpha1.SpanTest) map[string]spans.Part {
	out := map[string]spans.Part{}
	l, err := g.layoutOf(t)
	if err != nil {
		return out
	}
	for index, part := range l.shares {
		out[g.participants[index].name] = part
	}
	return out
}

// waitsForID says whether a member waits for unique ids of others, and whether it waits for one that never comes, since
// the node of rank 0 ended without.
func (l *layout) waitsForID(share *spans.Part, test string) (waits, never bool) {
	for i := range share.Communicators {
		c := l.places[place{share.Index, share.Communicators[i].Name}]
		if spans.IsRoot(&share.Communicators[i]) || c.uniqueID(test) != nil {
			continue
		}
		if root := c.participants[0].taskStatus(test); root != nil && root.Phase == v1alpha1.TaskFinished {
			return false, true
		}
		waits = true
	}
	return waits, false
}

// uniqueID that the root of the communicator published for this test; nil while it has not.
func (c *communicator) uniqueID(test string) []byte {
	if s := commStatus(c.participants[0].taskStatus(test), c.name); s != nil {
		return s.UniqueID
	}
	return nil
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

// meshMismatch says why the mesh does not fit the present members; nil where it does.
func (g *planner) meshMismatch() error {
	world := 0
	for _, s := range g.present() {
		world += int(s.next.Ranks)
	}
	return spans.CheckMesh(g.in.Group.Spec.Mesh, world)
}

// meshShares says why a dimension cannot be laid over the present members; nil where it can.
func (g *planner) meshShares(at int) error {
	parts, err := spans.Mesh(g.spanMembers(g.presentSet()), g.in.Group.Spec.Mesh, at)
	if err != nil {
		return err
	}
	return spans.CheckParts(parts)
}

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

// communicatorsName is the name of communicators of a dimension by their numbers; of very many that are scattered the
// first ones.
func communicatorsName(dimension string, numbers []int) string {
	set := localize.NewSet(numbers...)
	for {
		if name := dimension + "/" + set.String(); len(name) <= maxCommunicatorsName {
			return name
		}
		set = set[:len(set)*3/4]
	}
}

// untraced is the culprit that stands for the bad communicators of a dimension, and their numbers; nil where there is
// none.
func (g *planner) untraced(dimension string) (*v1alpha1.Culprit, localize.Set) {
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

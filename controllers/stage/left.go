package stage

import (
	"slices"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/localize"
)

// noteLeft notes who left since the last note, before what is tried without them; it says whether there was room for that.
func (g *machine) noteLeft() bool {
	var set localize.Set
	notes, noted := 0, leftIn(g.span.Tests)
	for i, s := range g.seats {
		if (s == nil || !s.present) && !noted.Has(i) {
			set = append(set, i)
		}
	}
	for i := range g.span.Tests {
		if g.span.Tests[i].Kind == v1alpha1.TestDeparture {
			notes++
		}
	}
	verdict, reason := v1alpha1.VerdictFail, v1alpha1.ReasonCulpritFound
	if g.lost || g.span.Stage == v1alpha1.StageWaitingForMembers {
		verdict, reason = v1alpha1.VerdictError, v1alpha1.ReasonMemberLost
		if g.leftSilent == len(set) {
			reason = v1alpha1.ReasonAgentNotReporting
		}
	}
	for len(set) > 0 {
		n := len(set)
		for len(set[:n].String()) > localize.MaxText {
			n /= 2
		}
		notes++
		if !g.open(v1alpha1.SpanTest{Kind: v1alpha1.TestDeparture, Round: int32(notes)}, set[:n].String()) {
			return false
		}
		g.closeTest(&g.span.Tests[len(g.span.Tests)-1], verdict, reason, nil)
		set = set[n:]
	}
	g.justLeft, g.leftSilent = nil, 0
	return true
}

// SetOf is the set of a test without those who had left before it.
func SetOf(tests []v1alpha1.SpanTest, at int) localize.Set {
	set, err := localize.ParseSet(tests[at].Set)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(set, leftIn(tests[:at]).Has)
}

// leftIn are the members that left while these tests were made, as far as it is noted.
func leftIn(tests []v1alpha1.SpanTest) localize.Set {
	var out []int
	for i := range tests {
		if tests[i].Kind == v1alpha1.TestDeparture {
			set, _ := localize.ParseSet(tests[i].Set)
			out = append(out, set...)
		}
	}
	return localize.NewSet(out...)
}

// leftSince are the members that left since the last test of the group or the mesh.
func (g *machine) leftSince() localize.Set {
	return localize.NewSet(append(leftIn(g.span.Tests[g.searchBase()+1:]), g.justLeft...)...)
}

// writeSet gives a set as ranges that also span members who left before the search: so it stays short, and is read back as what
// of it was there.
func (g *machine) writeSet(set localize.Set) string {
	present := localize.NewSet(append(g.presentSet(), g.leftSince()...)...)
	var wide localize.Set
	at := 0
	for _, index := range set {
		for at < len(present) && present[at] < index {
			at++
		}
		if len(wide) > 0 && at > 0 && present[at-1] == wide[len(wide)-1] {
			for i := wide[len(wide)-1] + 1; i < index; i++ {
				wide = append(wide, i)
			}
		}
		wide = append(wide, index)
	}
	return wide.String()
}

// readSet gives the members of a set that writeSet wrote, of a test since the last one of the group or the mesh.
func (g *machine) readSet(text string) localize.Set {
	wide, err := localize.ParseSet(text)
	if err != nil {
		return nil
	}
	left := g.leftSince()
	return slices.DeleteFunc(wide, func(i int) bool {
		return !left.Has(i) && (i >= len(g.seats) || g.seats[i] == nil || !g.seats[i].present)
	})
}

// wholeSet is the set of all that are present, for a test that those after it are counted from: one range, from which all are taken
// who left before it (noteLeft). So it is short, however many they are.
func (g *machine) wholeSet() string {
	present := g.presentSet()
	return localize.Range(present[0], present[len(present)-1]+1).String()
}

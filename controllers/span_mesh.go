package controllers

import (
	"fmt"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/spans"
	"rcclx.io/commgroup-operator/internal/checks"
)

// openMesh begins the next dimension of the mesh that was not measured yet, or ends the stage.
func (g *groupStage) openMesh() {
	mesh := g.in.group.Spec.Mesh
	for _, at := range spans.Measurable(mesh) {
		id := fmt.Sprintf("%s-%s-1", testMeshKind, mesh[at].Name)
		made := false
		for i := range g.span.Tests {
			made = made || g.span.Tests[i].ID == id
		}
		if made {
			continue
		}
		if !g.open(id, g.writeSet(g.presentSet())) {
			g.worsen(v1alpha1.ReasonInconclusive, fmt.Sprintf("Dimension %s of the mesh was not measured: no further test fits into the status.", mesh[at].Name))
		}
		return
	}
	g.pass()
}

// afterMesh judges a dimension: each of its communicators has to work, and none may be far slower than the others.
func (g *groupStage) afterMesh() {
	if len(g.round) == 0 {
		g.openMesh()
		if g.span.Stage == v1alpha1.StageMesh && len(g.span.Tests) >= maxSpanTests {
			g.pass()
		}
		return
	}
	r := &g.round[0]
	dimension := testDimension(r.test.ID)
	if r.bad {
		g.afterBadDimension(r, dimension)
	} else {
		g.keepResults(dimension, r.communicators)
		g.compareDimension(r, dimension)
	}
	g.openMesh()
}

func (g *groupStage) afterBadDimension(r *testResult, dimension string) {
	message := fmt.Sprintf("Dimension %s of the mesh: %s", dimension, r.message)
	g.worsen(r.reason, message)
	if len(r.guilty) > 0 {
		for _, name := range sortedKeys(r.guilty) {
			g.blame(r.guilty[name])
		}
		return
	}
	for i := range r.communicators {
		if c := &r.communicators[i]; c.bad {
			g.blame(g.communicatorCulprit(c, c.reason, c.message))
		}
	}
}

// communicatorCulprit names a communicator of the mesh: the node where it lies within one, else the communicator itself.
func (g *groupStage) communicatorCulprit(c *commResult, reason, message string) v1alpha1.Culprit {
	words := fmt.Sprintf("Communicator %s over %s: %s", c.name, someNames(names(c.seats), 4), message)
	if len(c.seats) == 1 {
		return nodeCulprit(c.seats[0].name, reason, words)
	}
	return v1alpha1.Culprit{Node: c.seats[0].name, Kind: "Link", Name: c.name, Reason: reason, Message: words}
}

// compareDimension holds the communicators of a dimension against each other, and its results against what was asked for.
func (g *groupStage) compareDimension(r *testResult, dimension string) {
	if expected := usual(bandwidths(r.communicators)); expected > 0 && g.compares() {
		for i := range r.communicators {
			c := &r.communicators[i]
			if c.busBWMBps == nil || *c.busBWMBps*100 >= expected*g.minPercent() {
				continue
			}
			message := fmt.Sprintf("%s reaches %d MB/s, %d %% of what the others of dimension %s usually reach (%d MB/s); at least %d %% is expected. Compare its GPUs' NICs and links with those of the others.",
				c.name, *c.busBWMBps, *c.busBWMBps*100/expected, dimension, expected, g.minPercent())
			g.blame(g.communicatorCulprit(c, v1alpha1.ReasonSlowCommunicator, message))
			g.worsen(v1alpha1.ReasonSlowCommunicator, message)
			r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonSlowCommunicator
		}
	}
	var own []v1alpha1.SpanResultSeries
	for i := range g.span.Results {
		if g.span.Results[i].Dimension == dimension {
			own = append(own, g.span.Results[i])
		}
	}
	all := spanChecks(&g.in.group.Spec, own, placeOfMembers(g.in.outcomes, g.in.commNodes, g.span.Transport))
	notMet, _ := checks.Of(all)
	if len(notMet) > 0 {
		r.test.Verdict, r.test.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonBelowThreshold
		g.worsen(v1alpha1.ReasonBelowThreshold, checks.Message(notMet))
	}
}

// endMesh ends the stage where a member fell out while the mesh was measured: the rest does not fit the mesh.
func (g *groupStage) endMesh() {
	g.end(v1alpha1.VerdictInconclusive, v1alpha1.ReasonMeshMismatch, "A member fell out while the mesh was measured, and the others do not fit it: what is missing of the mesh was not measured.")
}

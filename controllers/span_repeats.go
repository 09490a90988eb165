package controllers

import "fmt"

// repeatsWords says that the repeats that a person asked for are not over nodes; empty where none are asked for. A task forms its
// communicators anew with an id of its own, so that each repeat would be a test of the stage.
func (g *groupStage) repeatsWords() string {
	n := g.in.group.Spec.Benchmark.Repeats
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" benchmark.repeats (%d) holds for the nodes alone: over several nodes each communicator was measured once.", n)
}

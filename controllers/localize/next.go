package localize

import (
	"errors"
	"math/bits"
)

// DefaultMaxTests bounds the tests of a search: a CommGroup's status keeps 256, those of the group and its mesh with them.
const DefaultMaxTests = 200

// MaxRounds is the bound on the rounds of a search among so many members: log2, and a few rounds for what no single bad node
// explains.
func MaxRounds(members int) int {
	if members < 2 {
		return 0
	}
	return bits.Len(uint(members-1)) + 5
}

// errNotPlanned is what Next answers until the planner is in.
var errNotPlanned = errors.New("localize: no plan")

// Next gives the round that follows from the tests made so far, or the end. It is deterministic, and reads the history as
// facts only: tests of other plans, of members that have left, or of before the search are learned from as they are. It
// refuses a problem of fewer than two members, sets out of order, and outcomes and kinds that it does not know.
func Next(_ Problem, _ []Test) (Step, error) {
	return Step{}, errNotPlanned
}

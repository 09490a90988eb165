// Package localize plans the rounds of smaller communicators that name what makes a communicator over many members bad:
// nodes of a group, or the GPUs of one node. It is pure: the next round follows from the tests made so far, so that
// nothing is kept in a process.
//
// The model: a test over a set of members is bad where the set holds a bad member, or both members of a bad pair. Every
// member passed alone before, so the smallest test has two. Where the fault may come and go, two bad pairs with a
// member in common count as that member.
package localize

// Kind says which communicators a test forms.
type Kind string

// The kinds. Span: one communicator over all ranks of the set's nodes; Rails: two nodes, one communicator for each
// device.
const (
	KindSpan  Kind = "Span"
	KindRails Kind = "Rails"
)

// Outcome of a test.
type Outcome string

// The outcomes. Open: not known yet; Unknown: the test could not be made, which is neither good nor bad.
const (
	Open    Outcome = ""
	Good    Outcome = "Good"
	Bad     Outcome = "Bad"
	Unknown Outcome = "Unknown"
)

// Test is one test, planned or made.
type Test struct {
	// Round from 1; 0 is a test from before the search that is to be learned from.
	Round   int
	Kind    Kind
	Set     Set
	Outcome Outcome
}

// Problem is what the search is for: the test over all members was bad, unless some have left since.
type Problem struct {
	// Members that are present. What is known of others is left out.
	Members Set
	// Fewer: members have left since the test that is searched for, so that nothing says that it would be bad over the
	// others.
	Fewer bool
	// Steady: the fault shows in each test that holds it, as a hang does and slowness may not. One bad test of two
	// members that are good with others proves a pair, and where no test of the first rounds is good, what all share is
	// to blame.
	Steady bool
	// MaxRounds bounds the rounds; zero means MaxRounds of the members.
	MaxRounds int
	// MaxTests bounds the tests of all rounds; zero means DefaultMaxTests.
	MaxTests int
	// Rails asks for one more round once culprits are named, beyond the bounds above: each bad member with a good one,
	// and each bad pair, rail by rail. What the rails show is for the caller to read.
	Rails bool
}

// Step is what to do next.
type Step struct {
	// Round of the tests, from 1.
	Round int
	// Tests to make at once; no member is in two of them. None while Done is false: the history has open tests, wait
	// for them.
	Tests []Test
	// Done: the search has ended, and Finding says how.
	Done    bool
	Finding Finding
}

// State says how a search ended.
type State string

// The states. Found: at least one culprit has a name; NotFound: none has, and no further test would tell more;
// OutOfBounds: rounds or tests ran out (what was named until then is in the finding).
const (
	Found       State = "Found"
	NotFound    State = "NotFound"
	OutOfBounds State = "OutOfBounds"
)

// Bound that ended a search before its end.
type Bound string

// The bounds of a Problem.
const (
	BoundRounds Bound = "Rounds"
	BoundTests  Bound = "Tests"
)

// Finding is what a search showed: who is to blame, and what speaks for it.
type Finding struct {
	State State
	// Members that are bad, ascending.
	Members Set
	// Pairs that are bad only together, ascending, the lower index first.
	Pairs [][2]int
	// Suspects are members among which something bad is, not told apart.
	Suspects Set
	Evidence Evidence
}

// Evidence is what the tests of a search came to.
type Evidence struct {
	// Among so many members.
	Among int
	// Tests and Rounds of the search.
	Tests, Rounds int
	// Good tests, those from before the search with them. BadPairs are bad tests of two members, and Contradictions are
	// bad sets that lie in a good one: something comes and goes.
	Good, BadPairs, Contradictions int
	// AllBad: the test over all members was bad, the one that the search is for with it.
	AllBad bool
	// Shared: so much is bad, and nothing good, that single members are no explanation.
	Shared bool
	// SuspectsCleared: each suspect was in a good test.
	SuspectsCleared bool
	// Bound of the problem that ended the search before its end; empty where none did.
	Bound Bound
}

// Package stage decides the group's stage of a run, which follows the nodes' own: who takes part, which network and
// communicators they form, what is tried next, and whom the results name. It is a state machine over values: Step goes
// from status.span and the nodes' sessions as the API has them, and does no I/O.
//
// The machine stands on layers. Each embeds the one below it, so that the compiler keeps calls from going up:
//
//	record    the tests, verdict and culprits that are written down; events and the next wake-up
//	roster    who takes part, and who has departed
//	planner   what a test measures, over which communicators, and within which deadlines
//	members   sessions, tasks and pods; why a member cannot take part
//	rounds    what the tests of a round show, compared with each other
//	findings  culprits, and what is bad in the mesh
//	summary   what a stage that ends well has shown, and what it has not
//	machine   which part of the stage follows (stage.go), and the search (search.go)
//
// The planner of the search (localize) and the layout of ranks (spans) are packages below. The reconciler, gating,
// publishing and the baseline are not for this package to know.
package stage

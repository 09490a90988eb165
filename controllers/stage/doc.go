// Package stage decides the group's stage of a run, which follows the nodes' own: who takes part, which network and communicators
// they form, what is tried next, and whom the results name. It is a state machine over values: each step goes from status.span and
// the nodes' sessions as the API has them, and does no I/O. The planner (localize) and the layout of ranks (spans) are below it; the
// reconciler, gating, publishing and the baseline are not for it to know.
package stage

// Package executor carries out tasks on one node and reports them. A node alone (Runner) measures a run's plan in all
// of its variants and searches for a culprit among its GPUs; a node in the group's stage (Session) keeps its GPUs and
// carries out one task after the other, each with its ranks in communicators over several nodes. Both plan steps,
// have ranks supervised, tabulate what they measured, judge it, make the report fit its budget and write it until it
// is taken, by the same parts. What is decided is pure; processes, the API server and the clock sit behind
// interfaces.
package executor

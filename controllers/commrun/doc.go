// Package commrun decides a CommRun: whether one is due (trigger.go), where it stands on each node (node.go), what its
// CommTasks and pods should be (tasks.go, retention.go), and what it shows (outcomes.go). Next takes the run one step
// on, from what was observed to what should be written; it reads no clock and does no I/O. The group's stage, which
// follows the nodes' own, is package stage.
package commrun

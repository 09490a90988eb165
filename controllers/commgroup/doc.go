// Package commgroup decides a CommGroup's status beside its run: conditions, counts, what is shown and published, which
// nodes are gated, and which CommRuns are kept. Next goes from what was observed and what commrun decided; it reads no
// clock and does no I/O.
package commgroup

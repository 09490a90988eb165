// Package judge makes verdicts: of the outcomes of a run's nodes, compared with each other and with the references, the
// group's verdict, its culprits and its results. How a run gets its outcomes, and what follows from a verdict, it must
// not know.
package judge

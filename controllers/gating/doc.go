// Package gating decides which Nodes a group marks as failed or passed, and when a mark is lifted: statements in
// annotations of the Node, the marks that follow from all groups' statements, and the breaker that keeps a bad run from
// marking a whole pool. It writes nothing itself.
package gating

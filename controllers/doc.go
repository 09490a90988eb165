// Package controllers reconciles CommGroups. It observes (observe.go), decides by pure functions (decide.go), applies
// what follows from the stored state (apply.go) and writes the next one, once. What is decided is in the packages
// below, which never import this one: commrun for the run, commgroup for the rest of the status, and what these stand
// on (docs/decisions/0018).
package controllers

// Package controllers reconciles CommGroups: it gathers the group's objects, decides what should be (pure functions
// over values: members, the nodes' own run, history, conditions), applies the difference, and writes the status once. What reads
// facts and pods, plans, judges, leads the group's stage, and concludes from a run (compatible, baseline, settings, publish, gating)
// is in the packages below, which never import this one (docs/decisions/0018).
package controllers

// Package controllers reconciles CommGroups: it gathers the group's objects, decides what should be (pure functions
// over values: members, monitors, run, settings, publication, baseline, gating, conditions), applies the difference, and
// writes the status once. What reads facts and pods, plans, judges, and leads the group's stage is in the packages below, which
// never import this one (docs/decisions/0018).
package controllers

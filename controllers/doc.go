// Package controllers reconciles CommGroups: it gathers the group's objects, decides what should be (pure functions
// over values: members, monitors, plan, run, verdict, settings, publication, conditions), applies the difference, and
// writes the status once.
package controllers

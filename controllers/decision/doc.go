// Package decision has the values that every part of a decision speaks in: the members that it is about, the findings
// that become conditions, the events that tell of it, and the times at which it is checked again. It decides nothing
// itself, and imports only the API.
package decision

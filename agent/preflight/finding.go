// Package preflight says what must hold on a node before its ranks load the communication library: a failed
// precondition is an error with a reason of its own, since the library itself would hang, abort or be silently slow.
package preflight

// State of a precondition.
type State string

// The states. Unknown: what it depends on could not be read, which is never taken as met.
const (
	Met     State = "Met"
	Warning State = "Warning"
	Failed  State = "Failed"
	Unknown State = "Unknown"
)

// Finding is one precondition as it was found.
type Finding struct {
	// Name of the precondition, one CamelCase word: SharedMemory, LockedMemory, NUMABalancing.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Rank that it concerns; -1 for the whole node.
	Rank int `json:"rank"`
	// Message says what was seen, what was expected and what to do.
	Message string `json:"message"`
}

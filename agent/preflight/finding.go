// Package preflight says what must hold on a node before its ranks form a communicator: a failed precondition is an
// error with a reason of its own, since the library itself would hang, abort or be silently slow.
//
// A run gathers facts and holds them against its need twice: CheckNode before any process loads the library, CheckRanks
// when a process on each GPU has loaded it and said what it saw. Lock keeps a second run off the same GPUs meanwhile.
package preflight

import (
	"fmt"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/internal/audience"
)

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
	// Message says what was seen and what was expected; Advised adds what to do.
	Message string `json:"message"`
	// Pending says that CheckRanks will find it again: only the library tells which of two vendors' GPUs it is about.
	Pending bool `json:"-"`
}

// String is the finding with its name: "SharedMemory: /dev/shm has ...".
func (f Finding) String() string { return f.Name + ": " + f.Message }

// Advised is the message, and what to do where the precondition does not hold. Where that is not known, nothing may be
// wrong.
func (f Finding) Advised(who audience.Audience) string {
	next := table[f.Name].Next.For(who)
	switch f.State {
	case Met:
		return f.Message
	case Unknown:
		next = "make sure that " + table[f.Name].Holds
	}
	return strings.TrimRight(f.Message, ".") + ": " + next
}

// FirstFailed is the first precondition that failed, which ends a run; nil where none did.
func FirstFailed(findings []Finding) *Finding {
	for i := range findings {
		if findings[i].State == Failed {
			return &findings[i]
		}
	}
	return nil
}

// Join adds later findings to earlier ones, without those that were pending and have been found since.
func Join(earlier, later []Finding) []Finding {
	out := make([]Finding, 0, len(earlier)+len(later))
	for _, f := range earlier {
		if !f.Pending || !slices.ContainsFunc(later, func(l Finding) bool { return l.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return append(out, later...)
}

func found(name string, s State, rank int, format string, args ...any) Finding {
	return Finding{Name: name, State: s, Rank: rank, Message: fmt.Sprintf(format, args...)}
}

func met(name, format string, args ...any) Finding { return found(name, Met, -1, format, args...) }

// Package rank is the protocol between agent run and the child process that holds one GPU (package worker): that loads
// the library, joins the communicator, carries out its steps and streams what happens to its parent. A rank is a
// process of its own because the library caches its settings for a process's lifetime, may abort the process, and can
// only be ended by SIGKILL when a kernel hangs.
//
// Protocol: the parent writes one JSON line to the rank's standard input (Spec) and, to every rank but rank 0, a second
// one (Rendezvous). The rank writes Events as JSON lines to file descriptor 3; standard output and error belong to the
// library, which logs there.
package rank

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// EventFD is the file descriptor that a rank writes its events to.
const EventFD = 3

// Spec is what one rank has to do.
type Spec struct {
	// Node is the node's name, for messages.
	Node string `json:"node"`
	// Variant whose environment the parent has set.
	Variant rcclx.Variant `json:"variant"`
	// Rank of this process, and number of ranks, in the communicator. A world size of zero only loads the library,
	// reports it (Loaded) and ends (Done): that is how a parent learns the flavor before it plans variants.
	Rank      int `json:"rank"`
	WorldSize int `json:"worldSize"`
	// Nodes that the communicator reaches over.
	Nodes int `json:"nodes"`
	// Device ordinal to use. With RCCLX's DDA it must equal the rank, with all devices visible.
	Device int `json:"device"`
	// PCIAddress that the device is expected to have; empty means no check.
	PCIAddress string `json:"pciAddress,omitempty"`
	// LibraryPath and RuntimePath to load; empty means librccl.so.1 and libamdhip64.so by the loader's search.
	LibraryPath string `json:"libraryPath,omitempty"`
	RuntimePath string `json:"runtimePath,omitempty"`
	// NonBlocking forms the communicator without blocking where the library can (2.14 and up), so that a failing init
	// is seen before its deadline. It costs a thread for each call, so it is for what is not timed.
	NonBlocking bool `json:"nonBlocking,omitempty"`
	// Settings as requested, for the expected path of each call.
	Settings rcclx.Settings `json:"settings"`
	// Steps to carry out, in order, the same on every rank.
	Steps []Step `json:"steps"`
	// InitDeadline bounds the forming of the communicator, StepDeadline one measurement; both in nanoseconds. The
	// parent enforces them with SIGKILL; the rank gives up a little earlier, up to a second, so that it can say what it
	// knows.
	InitDeadline time.Duration `json:"initDeadlineNanoseconds"`
	StepDeadline time.Duration `json:"stepDeadlineNanoseconds"`
}

// Rendezvous is the second line to every rank but rank 0.
type Rendezvous struct {
	// UniqueID as rank 0 made it, 128 bytes.
	UniqueID []byte `json:"uniqueID"`
}

// StepKind is what a step does.
type StepKind string

// The kinds of step.
const (
	// StepMeasure measures one collective and datatype at each of the sizes.
	StepMeasure StepKind = "Measure"
	// StepPairProbe sends and receives between pairs of ranks, each rank in one pair at a time, every pair once.
	StepPairProbe StepKind = "PairProbe"
)

// Step is one part of a rank's work.
type Step struct {
	Kind       StepKind         `json:"kind"`
	Collective rcclx.Collective `json:"collective,omitempty"`
	Datatype   rcclx.Datatype   `json:"datatype,omitempty"`
	// Placement of the result; empty means out of place.
	Placement rcclx.Placement `json:"placement,omitempty"`
	// Data that each size is checked with, the first of them also what is timed. DataExact, for LowPrecision
	// DataRounding, is checked in any case.
	Data []rcclx.Data `json:"data,omitempty"`
	// SizesBytes by rccl-tests' definition: the larger of send and receive buffer.
	SizesBytes []int64 `json:"sizesBytes"`
	// WarmupIterations come before each measurement and are never counted. At least Iterations are measured, and up to
	// 100 where the size is small (engine.MeasureRequest); Latency tells how many.
	WarmupIterations int `json:"warmupIterations"`
	Iterations       int `json:"iterations"`
}

// Position is one thing that a rank does in a step: a collective at one size, or the probe of one pair.
type Position struct {
	Kind       StepKind         `json:"kind"`
	Collective rcclx.Collective `json:"collective,omitempty"`
	Datatype   rcclx.Datatype   `json:"datatype,omitempty"`
	Placement  rcclx.Placement  `json:"placement,omitempty"`
	SizeBytes  int64            `json:"sizeBytes"`
	// Peer is the other rank of the pair.
	Peer int `json:"peer,omitempty"`
}

// String names the position for messages, for example "AllReduce BFloat16 65536 B in place". Nothing reads it.
func (p Position) String() string {
	if p.Kind == StepPairProbe {
		return fmt.Sprintf("%s with rank %d, %d B", p.Kind, p.Peer, p.SizeBytes)
	}
	return rcclx.MeasurementName(p.Collective, p.Datatype, p.SizeBytes, p.Placement)
}

// EventKind is what a rank says.
type EventKind string

// The kinds of event, in the order in which a rank sends them.
const (
	EventLoaded       EventKind = "Loaded"       // Library is set
	EventUniqueID     EventKind = "UniqueID"     // rank 0 only; UniqueID is set
	EventInitStart    EventKind = "InitStart"    // about to join the communicator
	EventInitDone     EventKind = "InitDone"     // InitDuration is set
	EventStepStart    EventKind = "StepStart"    // At is set, for every size of a step
	EventMeasured     EventKind = "Measured"     // Measurement is set
	EventPairMeasured EventKind = "PairMeasured" // Pair is set
	EventError        EventKind = "Error"        // Error is set; the rank exits after it
	EventDone         EventKind = "Done"         // all steps are done and the communicator is destroyed
)

// Event is one line from a rank to its parent.
type Event struct {
	Kind EventKind `json:"kind"`
	Rank int       `json:"rank"`
	Time time.Time `json:"time"`
	// At says what the rank does, or has done.
	At           *Position          `json:"at,omitempty"`
	Library      *rcclx.LibraryInfo `json:"library,omitempty"`
	UniqueID     []byte             `json:"uniqueID,omitempty"`
	InitDuration time.Duration      `json:"initDurationNanoseconds,omitempty"`
	Measurement  *Measurement       `json:"measurement,omitempty"`
	Pair         *PairMeasurement   `json:"pair,omitempty"`
	Error        *Error             `json:"error,omitempty"`
}

// Measurement is one collective at one size as one rank saw it.
type Measurement struct {
	Collective rcclx.Collective `json:"collective"`
	Datatype   rcclx.Datatype   `json:"datatype"`
	Placement  rcclx.Placement  `json:"placement"`
	SizeBytes  int64            `json:"sizeBytes"`
	// CountElements passed to the call.
	CountElements int64 `json:"countElements"`
	// Latency of one call by device events over Repeats batches of iterations; warm-up is not counted.
	Latency rcclx.LatencyStats `json:"latency"`
	// LaunchNanoseconds is the host's time to queue one call, the library's own part included.
	LaunchNanoseconds int64 `json:"launchNanoseconds,omitempty"`
	// SlowestNanoseconds is the median of the communicator's slowest rank, where that spans nodes; else zero.
	SlowestNanoseconds int64 `json:"slowestNanoseconds,omitempty"`
	// Checks of the result against the reference, one for each kind of data of the step and one with DataExact or
	// DataRounding.
	Checks []rcclx.CheckResult `json:"checks"`
	// Hazard says where the library is known to lose data for such a count; empty where it is not.
	Hazard string `json:"hazard,omitempty"`
	// ExpectedPath that the gates predict for the call.
	ExpectedPath rcclx.Path `json:"expectedPath"`
}

// Wrong is the number of wrong elements over all checks.
func (m Measurement) Wrong() int64 {
	var wrong int64
	for _, c := range m.Checks {
		wrong += c.WrongElements
	}
	return wrong
}

// Unwritten are those of the wrong elements that the library never wrote.
func (m Measurement) Unwritten() int64 {
	var n int64
	for _, c := range m.Checks {
		n += c.UnwrittenElements
	}
	return n
}

// PairMeasurement is the send and receive between this rank and a peer, at the same time in both directions.
type PairMeasurement struct {
	Peer      int   `json:"peer"`
	SizeBytes int64 `json:"sizeBytes"`
	// BandwidthMBps of one direction, in 10^6 bytes per second.
	BandwidthMBps int64 `json:"bandwidthMBps"`
	WrongElements int64 `json:"wrongElements"`
}

// Error says what a rank could not do.
type Error struct {
	// Code is one of the codes below.
	Code string `json:"code"`
	// Step that failed: "load", "preconditions", "init", a position's name, or "destroy".
	Step string `json:"step"`
	// Message says what was seen, what was expected and the next step.
	Message string `json:"message"`
	// Limit is the rank's own limit for the step where it gave up: a little less than the deadline in the Spec. Zero
	// for the other codes than CodeRankHung.
	Limit time.Duration `json:"limitNanoseconds,omitempty"`
}

// Codes of errors. They are the reasons of the API's conditions.
const (
	CodeLibraryMissing     = "LibraryMissing"
	CodeLibraryTooOld      = "LibraryTooOld"
	CodeSymbolMissing      = "SymbolMissing"
	CodePreconditionFailed = "PreconditionFailed"
	CodeInsufficientMemory = "InsufficientMemory"
	CodeInitFailed         = "InitFailed"
	CodeCollectiveFailed   = "CollectiveFailed"
	CodeRankHung           = "RankHung" // a deadline was missed; Step says which
	CodeBadSpec            = "BadSpec"
)

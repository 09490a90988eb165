package supervise

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/rcclx"
)

// Team is a set of rank processes on one node that form one communicator, or the node's part of one over several nodes:
// then the ranks in Specs are some of WorldSize, and an index in the team is not a rank.
type Team struct {
	// Node is the node's name and Name says what the team is for, for messages: "Baseline", "search round 1 GPUs 0,1".
	Node, Name string
	// Audience that the messages advise.
	Audience audience.Audience
	// Specs of the ranks, by rank. A WorldSize of zero in each means a probe: load the library and stop.
	Specs []rank.Spec
	// UniqueID of a communicator whose rank 0 is on another node, 128 bytes; nil where rank 0 is among Specs and makes
	// it.
	UniqueID []byte
	// Env is the whole environment of each rank. RootEnv is added for rank 0.
	Env, RootEnv []string
	// ExitDeadline bounds the time from a rank's Done to its exit, ReapDeadline that from SIGKILL to its end.
	ExitDeadline, ReapDeadline time.Duration
	// RunDeadline ends everything; zero means none. RunDeadlineField is what to raise where it passes; empty means
	// run.nodeDeadlineSeconds.
	RunDeadline      time.Time
	RunDeadlineField string
	// AskRASAfter is how long the ranks may be in init or in a step before the library's RAS service is asked what it
	// knows; zero means half of the deadline at hand, a negative value never. It is asked once more halfway from there
	// to the deadline: what stands still between the two answers is what hangs.
	AskRASAfter time.Duration
	// OnEvent, where set, sees each event in the supervisor's own goroutine, after its deadline was set.
	OnEvent func(rank.Event)
	// Output, where set, gives what takes a copy of a rank's standard output, by index in the team. It is closed when
	// the rank has ended, before Run returns; it must not fail or block.
	Output func(index int) io.WriteCloser
}

// TeamRunner runs a team to its end; Supervisor is the real one.
type TeamRunner interface {
	Run(ctx context.Context, team Team) Outcome
}

// RankOutcome is what one rank did.
type RankOutcome struct {
	Rank, Device int
	// ProcessID of the rank; 0 where it was not started.
	ProcessID int
	// PCIAddress as the rank's Loaded event or the spec gave it; empty where neither did.
	PCIAddress   string
	Library      *rcclx.LibraryInfo
	InitDuration time.Duration
	// LastEvent and At say how far the rank came; Events counts what it sent, less rank 0's unique id and an error.
	LastEvent rank.EventKind
	// Since when it is there, by the supervisor's clock.
	Since time.Time
	// At is what it did last; nil before its first step.
	At           *rank.Position
	Events       int
	Measurements []rank.Measurement
	Pairs        []rank.PairMeasurement
	Done         bool
	// Error that the rank reported, if any.
	Error *rank.Error
	// Exit says how the process ended; empty where it was killed by its supervisor or never reaped.
	Exit string
	// Stuck is set where SIGKILL did not end the process: it hangs inside the kernel.
	Stuck bool
	// StdoutTail and StderrTail are the ends of its output.
	StdoutTail, StderrTail string
}

// stepName names what the rank did last; empty before its first step.
func (r RankOutcome) stepName() string {
	if r.At == nil {
		return ""
	}
	return r.At.String()
}

// Name is how messages call the rank.
func (r RankOutcome) Name() string {
	if r.PCIAddress == "" {
		return fmt.Sprintf("rank %d (GPU ordinal %d)", r.Rank, r.Device)
	}
	return fmt.Sprintf("rank %d (GPU %s)", r.Rank, r.PCIAddress)
}

// Doing says what the rank was at.
func (r RankOutcome) Doing() string {
	switch r.LastEvent {
	case "":
		return "starting and loading the library"
	case rank.EventLoaded, rank.EventUniqueID:
		return "waiting to join the communicator"
	case rank.EventInitStart:
		return "joining the communicator (ncclCommInitRank)"
	case rank.EventInitDone:
		return "between joining and the first step"
	case rank.EventDone:
		return "done"
	}
	if r.At == nil {
		return "in an unnamed step"
	}
	if r.LastEvent == rank.EventMeasured || r.LastEvent == rank.EventPairMeasured {
		return "after step " + r.At.String()
	}
	return "in step " + r.At.String()
}

// FailureKind is a way in which a team fails.
type FailureKind string

// The ways, the most telling first: where several come together, the first of this list is the failure.
const (
	FailStart       FailureKind = "Start"       // a process could not be started
	FailDied        FailureKind = "Died"        // a rank ended without having been told to, and without a word
	FailProtocol    FailureKind = "Protocol"    // a rank sent what is no event
	FailRankError   FailureKind = "RankError"   // a rank reported an error
	FailHung        FailureKind = "Hung"        // a deadline was missed
	FailInterrupted FailureKind = "Interrupted" // the context ended
	FailRunDeadline FailureKind = "RunDeadline" // the run's own deadline passed
)

// Failure is why a team ended before all of its ranks were done.
type Failure struct {
	Kind FailureKind
	// Rank to name, as its index in the team: the one that died or reported; for a hang the one that came least far,
	// or -1 where all stood alike.
	Rank int
	// Behind are the ranks that came less far than others, in a hang, as indexes in the team.
	Behind []int
	// Stopped are the ranks whose processes were stopped from outside when the deadline passed (SIGSTOP, a debugger),
	// as indexes in the team: they are what the others wait for.
	Stopped []int
	// ByRAS is set where only the library's RAS service names Rank and Behind: a hint, since it does not see every
	// operation. Where those that are behind still move, they stand in Behind alone.
	ByRAS bool
	// Code is a rank.Code… where a rank reported an error or a deadline was missed.
	Code string
	// Late is set where a rank's error came when nearly all of the time that its step may take was over: a peer that
	// gives up on a hang closes its connections, and that is what the others see.
	Late bool
	// Step that failed: "load", "init", "destroy" or a position's name; At is that position, nil for the others.
	Step string
	At   *rank.Position
	// Killed is set where a rank was ended by a SIGKILL that the agent did not send: a memory limit or a user.
	Killed bool
	// RAS is what the library's RAS service said of the communicator while the ranks were late; empty where it was not
	// asked.
	RAS string
	// DetectedAfter is how long after the rank's death, or after the missed deadline, it was noticed; zero for the
	// rest.
	DetectedAfter time.Duration
	// Doing says what the ranks were doing, those that came least far first, at most 16 of them.
	Doing []RankDoing
	// Message names node, team, rank and GPU, what was seen and what was expected.
	Message string
}

// maxDoing bounds Failure.Doing.
const maxDoing = 16

// RankDoing is what one rank was doing when its team failed.
type RankDoing struct {
	Rank, Device int
	// PCIAddress of its GPU; empty where it was not known.
	PCIAddress string
	// Doing is RankOutcome.Doing of that moment, Step the step it was in, if any, and For how long it was there.
	Doing, Step string
	For         time.Duration
}

// Outcome is what became of a team.
type Outcome struct {
	Team     string
	Ranks    []RankOutcome
	Failure  *Failure
	Duration time.Duration
	// KillDuration is how long it took after the failure until the last process was gone, so that its GPU was free;
	// zero without a failure. With a Stuck rank it says how long that was waited for.
	KillDuration time.Duration
}

// LogTail is the end of the output of the failing rank, at most limit bytes; empty without a failure of one rank.
func (o Outcome) LogTail(limit int) string {
	if o.Failure == nil || o.Failure.Rank < 0 || o.Failure.Rank >= len(o.Ranks) {
		return ""
	}
	r := o.Ranks[o.Failure.Rank]
	text := strings.TrimSpace(r.StderrTail)
	if out := strings.TrimSpace(r.StdoutTail); out != "" {
		text = strings.TrimSpace(out + "\n" + text)
	}
	return clip.Tail(text, limit)
}

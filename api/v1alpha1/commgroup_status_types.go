package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Remark is something of a condition that a user should know and that changes nothing in its status.
type Remark struct {
	// reason in one word; docs/reasons.md explains it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`
	// message says what was seen and what to do. The condition's message has it, too.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message"`
}

// CommGroupStatus is where the group stands. What its runs have measured is in their CommRuns. It stays under 16 KiB at
// any number of members.
type CommGroupStatus struct {
	// conditions of the group; docs/reasons.md explains each reason.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// remarks of conditions, which change nothing in them: clocks that are off (ClockSkew, of AgentsReporting), labels
	// that contradict the facts (InventoryMismatch, of Compatible), and writes that the API server refused
	// (WritesRefused, of Running). Absent where all is well.
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Remarks []Remark `json:"remarks,omitempty"`
	// observedGeneration is the spec's generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// origin: Simulated where any fact or number came from the simulator.
	// +optional
	Origin Origin `json:"origin,omitempty"`
	// members counts the nodes.
	// +optional
	// +structType=atomic
	Members MemberCounts `json:"members,omitzero"`
	// run is the present or last run, in short: its CommRun has its results.
	// +optional
	// +structType=atomic
	Run *GroupRunStatus `json:"run,omitempty"`
	// effective sums up the settings in effect, for example "DDA,FP8", "DDA,FP8(NotUsable)" where no job can use the
	// results of FP8, or "none".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Effective string `json:"effective,omitempty"`
	// headline is the one number for dashboards: Baseline AllReduce at the largest size, the members' median.
	// +optional
	// +structType=atomic
	Headline *Headline `json:"headline,omitempty"`
	// inventory counts the members by what they are and run by now.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Inventory []InventoryItem `json:"inventory,omitempty"`
	// culprits: the worst four, the worst first. The CommRun of culpritsRunID has more.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Culprits []Culprit `json:"culprits,omitempty"`
	// culpritsRunID is the run that named the culprits. While a run repeats an earlier one, they are that one's.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	CulpritsRunID string `json:"culpritsRunID,omitempty"`
	// baseline of the group's own runs, without its series, which the latest CommRun that is over has.
	// +optional
	// +structType=atomic
	Baseline *BaselineStatus `json:"baseline,omitempty"`
	// history of the last runs, the newest first, and where they point.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	History []RunSummary `json:"history,omitempty"`
	// trend of the headline bandwidth over the runs of the present baseline.
	// +optional
	Trend Trend `json:"trend,omitempty"`
	// budget of GPU time.
	// +optional
	// +structType=atomic
	Budget *BudgetStatus `json:"budget,omitempty"`
	// gating is what gating did.
	// +optional
	// +structType=atomic
	Gating *GatingStatus `json:"gating,omitempty"`
	// wouldGate are the nodes that Enforce would hold marked now (mode DryRun), at most 16 by name; with Enforce those
	// that failed in the simulator while gating.simulated is Forbid.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	WouldGate []string `json:"wouldGate,omitempty"`
	// published is the ConfigMap that holds the proven settings.
	// +optional
	// +structType=atomic
	Published *PublishedStatus `json:"published,omitempty"`
	// nextRunTime is when the schedule is due next.
	// +optional
	NextRunTime *metav1.Time `json:"nextRunTime,omitempty"`
	// schedule is run.schedule as it was last seen, and since when: what the line names before that is not due.
	// +optional
	// +structType=atomic
	Schedule *ScheduleStatus `json:"schedule,omitempty"`
}

// ScheduleStatus is since when a group has its schedule.
type ScheduleStatus struct {
	// line is run.schedule.
	// +kubebuilder:validation:MaxLength=128
	Line string `json:"line"`
	// since when the manager knows it.
	Since metav1.Time `json:"since"`
}

// MemberCounts counts the members.
type MemberCounts struct {
	// summary is passed/selected, for a column.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
	// selected nodes.
	Selected int32 `json:"selected"`
	// reporting nodes: their monitor's report still holds.
	Reporting int32 `json:"reporting"`
	// passed, failed, inconclusive, errored and skipped count the verdicts of the present or last run.
	Passed       int32 `json:"passed"`
	Failed       int32 `json:"failed"`
	Inconclusive int32 `json:"inconclusive"`
	Errored      int32 `json:"errored"`
	Skipped      int32 `json:"skipped"`
	// running nodes have a pod for the present run: it holds GPUs, or waits for them.
	Running int32 `json:"running"`
	// pending nodes wait for their turn in the present run.
	Pending int32 `json:"pending"`
	// stale nodes have a result that no longer counts, since they were rebooted or changed after it.
	// +optional
	Stale int32 `json:"stale,omitempty"`
}

// RunPhase is where a run is.
// +kubebuilder:validation:Enum=Running;Finished;Aborted;Suspended
type RunPhase string

// The run phases.
const (
	RunPhaseRunning  RunPhase = "Running"
	RunPhaseFinished RunPhase = "Finished"
	RunPhaseAborted  RunPhase = "Aborted"
	// RunPhaseSuspended: spec.suspend of the CommRun ended it; it starts again, with a new id, once that is false.
	RunPhaseSuspended RunPhase = "Suspended"
)

// GroupRunStatus is the state of a run.
type GroupRunStatus struct {
	// name of the CommRun.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// id of the run, unique within the group: generation, then a number.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// number counts the group's runs.
	Number int64 `json:"number"`
	// generation of the spec that the run measures: the newest one that asks for the same measurements as the spec did
	// when the run started. A change of publish, gating, health or schedule alone starts no run.
	Generation int64 `json:"generation"`
	// since is the number of the last run that measured every member. A run with trigger NodesChanged measures only the
	// nodes whose results are stale; results of runs from since on count for the others.
	// +optional
	Since int64 `json:"since,omitempty"`
	// trigger: SpecChanged, MembersChanged, NodesChanged, Scheduled or Requested.
	// +kubebuilder:validation:MaxLength=64
	Trigger string `json:"trigger"`
	// membersHash identifies the set of members.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	MembersHash string `json:"membersHash,omitempty"`
	// specHash identifies the parts of the spec that a run depends on.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// phase of the run.
	Phase RunPhase `json:"phase"`
	// verdict over all members, once finished.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// startTime of the run.
	StartTime metav1.Time `json:"startTime"`
	// finishTime of the run.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// baselineKey that the run measured under, once it is over; absent where members differ in it.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	BaselineKey string `json:"baselineKey,omitempty"`
	// provenRunID is the run before, where that passed: what it proved stands while this one goes on. Absent once the
	// spec changes.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	ProvenRunID string `json:"provenRunID,omitempty"`
	// moved: since this run, a repeat, started a member was seen that may not be what the run before measured.
	// Validated rests on provenRunID no longer.
	// +optional
	Moved bool `json:"moved,omitempty"`
	// refused is what the API server refuses of what the run needs. Absent while it takes all.
	// +optional
	Refused *RunRefusal `json:"refused,omitempty"`
}

// RunRefusal says that CommTasks cannot be written for a run. Past startDeadlineSeconds the run goes on without their
// nodes.
type RunRefusal struct {
	// since when some are refused.
	Since metav1.Time `json:"since"`
	// message has the API server's words.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// nodes whose CommTasks are there and cannot be changed, the first 64 of them.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Nodes []string `json:"nodes,omitempty"`
	// more: there are more such nodes.
	// +optional
	More bool `json:"more,omitempty"`
}

// Headline is one measurement chosen for display.
type Headline struct {
	Variant    Variant    `json:"variant"`
	Collective Collective `json:"collective"`
	Datatype   Datatype   `json:"datatype"`
	// placement of the result; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// sizeBytes of the message.
	SizeBytes int64 `json:"sizeBytes"`
	// busBandwidthMBps is the members' median, in 10^6 bytes per second.
	BusBandwidthMBps int64 `json:"busBandwidthMBps"`
	// groupBusBandwidthMBps is what one communicator over groupNodes members reached, before anybody was left out;
	// where that was not measured, what the group that is left did. Absent with span Node, and while it is not
	// measured.
	// +optional
	GroupBusBandwidthMBps *int64 `json:"groupBusBandwidthMBps,omitempty"`
	// groupNodes are the members of that communicator.
	// +optional
	GroupNodes int32 `json:"groupNodes,omitempty"`
}

// InventoryItem counts members that share one value of one property.
type InventoryItem struct {
	// property: ROCmVersion, DriverVersion, KernelRelease, GPUModel, GFXTarget, Partition, Library, Mesh, ContainerROCm
	// (of the run's image), HostRCCL or Firmware.
	// +kubebuilder:validation:MaxLength=32
	Property string `json:"property"`
	// value of the property; "unknown" where it could not be read.
	// +kubebuilder:validation:MaxLength=128
	Value string `json:"value"`
	// nodes that have the value.
	Nodes int32 `json:"nodes"`
	// example is one node that has the value.
	// +kubebuilder:validation:MaxLength=253
	Example string `json:"example"`
}

// GroupResultSeries is one (variant, collective, datatype, placement) over all members; its lists run parallel to
// sizeBytes.
type GroupResultSeries struct {
	Variant    Variant    `json:"variant"`
	Collective Collective `json:"collective"`
	Datatype   Datatype   `json:"datatype"`
	// placement of the results; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// nodes that the series is made of.
	Nodes int32 `json:"nodes"`
	// sizeBytes of the messages, ascending.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	SizeBytes []int64 `json:"sizeBytes"`
	// latencyNanoseconds is the members' median of their medians.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	LatencyNanoseconds []int64 `json:"latencyNanoseconds"`
	// busBandwidthMBps is the members' median.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	BusBandwidthMBps []int64 `json:"busBandwidthMBps"`
	// minBusBandwidthMBps is the slowest member's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	MinBusBandwidthMBps []int64 `json:"minBusBandwidthMBps"`
	// noisePercent is, for each size, the members' median of the coefficient of variation over the repeats; -1 where no
	// member reported it; absent where none reported any.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	NoisePercent []int32 `json:"noisePercent,omitempty"`
	// slowestNode at the largest size.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SlowestNode string `json:"slowestNode,omitempty"`
	// wrongElements over all members and sizes.
	WrongElements int64 `json:"wrongElements"`
	// maxRelativeErrorPPM over all members and sizes, for LowPrecision.
	// +optional
	MaxRelativeErrorPPM *int64 `json:"maxRelativeErrorPPM,omitempty"`
}

// PublishedStatus is the ConfigMap that holds the proven settings.
type PublishedStatus struct {
	// configMapName in the CommGroup's namespace.
	// +kubebuilder:validation:MaxLength=253
	ConfigMapName string `json:"configMapName"`
	// hash of the settings.
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// runID of the run that proved them.
	// +kubebuilder:validation:MaxLength=63
	RunID string `json:"runID"`
	// time of publication.
	Time metav1.Time `json:"time"`
	// lowPrecision are the collectives that FP8 is on for, with the losses that publish accepted then. Where it accepts
	// them no longer, FP8 is switched off in the ConfigMap.
	// +listType=map
	// +listMapKey=collective
	// +kubebuilder:validation:MaxItems=4
	// +optional
	LowPrecision []PublishedLowPrecision `json:"lowPrecision,omitempty"`
}

// PublishedLowPrecision is a collective that the published settings switch FP8 on for.
type PublishedLowPrecision struct {
	Collective Collective `json:"collective"`
	// losses of its results in the run that proved the settings, as in the warnings of status.settings; absent where it
	// had none.
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Losses []string `json:"losses,omitempty"`
}

// GroupReference names the CommGroup that a CommTask belongs to.
type GroupReference struct {
	// name of the CommGroup, in the same namespace.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the CommGroup.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

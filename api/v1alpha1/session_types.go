package v1alpha1

// SessionState is where a node is in the group's stage of a run.
// +kubebuilder:validation:Enum=Ready;Working;Failed;Ended
type SessionState string

// The session states. Failed: the node cannot take part; Ended: the agent has given its GPUs back.
const (
	SessionReady   SessionState = "Ready"
	SessionWorking SessionState = "Working"
	SessionFailed  SessionState = "Failed"
	SessionEnded   SessionState = "Ended"
)

// SessionAssignment is the node's part in the group's stage of a run: a pod that keeps the node's GPUs while tasks
// follow each other. Variables, library, network and the deadlines of forming and measuring are those of the CommRun.
type SessionAssignment struct {
	// runID that the stage belongs to.
	// +kubebuilder:validation:MaxLength=63
	RunID string `json:"runID"`
	// runName is the name of the CommRun.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RunName string `json:"runName,omitempty"`
	// index of the node among the members of the stage, from 0, in rank order. It is fixed when the stage starts.
	Index int32 `json:"index"`
	// members of the stage.
	Members int32 `json:"members"`
	// ranks that the node gives to the stage.
	Ranks int32 `json:"ranks"`
	// addressFamily that all members have and agreed on; absent until then.
	// +optional
	AddressFamily AddressFamily `json:"addressFamily,omitempty"`
	// idleDeadlineSeconds is how long the agent waits for a next task before it gives its GPUs back by itself.
	IdleDeadlineSeconds int32 `json:"idleDeadlineSeconds"`
	// state: Open, or Ended once no task follows.
	// +kubebuilder:validation:Enum=Open;Ended
	State string `json:"state"`
	// task that the node has to do now; absent while it has none.
	// +optional
	Task *NodeTask `json:"task,omitempty"`
}

// The states of a session assignment.
const (
	SessionOpen   = "Open"
	SessionClosed = "Ended"
)

// NodeTask is one set of communicators that are formed, measured and destroyed once.
type NodeTask struct {
	// id of the task, unique within the run: stage, round, and number of the test in the round, for example
	// localize-3-1.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// communicators that the node's ranks are in; each rank is in at most one. They run at the same time.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Communicators []TaskCommunicator `json:"communicators"`
	// collectives, datatypes, placements and sizes to measure, in order, in Baseline settings.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Collectives []Collective `json:"collectives"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Datatypes []Datatype `json:"datatypes"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +optional
	Placements []Placement `json:"placements,omitempty"`
	// sizesBytes: see RunPlan.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	SizesBytes []int64 `json:"sizesBytes"`
	// keepSizesBytes are sizes that stay in a report that has to be cut, beside the first and the last: those of
	// thresholds.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	KeepSizesBytes []int64 `json:"keepSizesBytes,omitempty"`
	// warmupIterations and iterations: see RunPlan.
	WarmupIterations int32 `json:"warmupIterations"`
	Iterations       int32 `json:"iterations"`
	// repeats of all measurements, one round of them after the other in the same communicators; absent means one.
	// +kubebuilder:validation:Maximum=9
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// deadlineSeconds bounds the task on the node, from the time the agent takes it up.
	DeadlineSeconds int32 `json:"deadlineSeconds"`
}

// TaskCommunicator is one communicator as one of its nodes sees it.
type TaskCommunicator struct {
	// name, unique within the task, for example group, dp/3 or rail/5.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// worldSize of the communicator.
	WorldSize int32 `json:"worldSize"`
	// nodes that it reaches over.
	Nodes int32 `json:"nodes"`
	// devices of this node, by ordinal.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Devices []int32 `json:"devices"`
	// ranks of these devices, in the same order. The node of rank 0 makes the unique id.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ranks []int32 `json:"ranks"`
	// uniqueID as the node of rank 0 made it, without zeros at its end; absent on that node.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	UniqueID []byte `json:"uniqueID,omitempty"`
}

// SessionStatus is what the node's agent says of its part in the group's stage.
type SessionStatus struct {
	// runID that the agent works for.
	// +kubebuilder:validation:MaxLength=63
	RunID string `json:"runID"`
	// state of the node.
	State SessionState `json:"state"`
	// reason and message where the state is Failed.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// network as resolved on the node.
	// +optional
	Network *NetworkStatus `json:"network,omitempty"`
	// library that the node's ranks load.
	// +optional
	Library *LibraryFacts `json:"library,omitempty"`
	// settingsHash over the variables and files that the library takes settings from; members that differ may hang.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SettingsHash string `json:"settingsHash,omitempty"`
	// task is the present or last task.
	// +optional
	Task *NodeTaskStatus `json:"task,omitempty"`
}

// TaskPhase is where a node is in a task.
// +kubebuilder:validation:Enum=Joining;Running;Finished
type TaskPhase string

// The task phases.
const (
	TaskJoining  TaskPhase = "Joining"
	TaskRunning  TaskPhase = "Running"
	TaskFinished TaskPhase = "Finished"
)

// NodeTaskStatus is one task as one node saw it.
type NodeTaskStatus struct {
	// id of the task.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// phase of the task on this node.
	Phase TaskPhase `json:"phase"`
	// communicators, in the order of the assignment.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Communicators []TaskCommunicatorStatus `json:"communicators,omitempty"`
}

// TaskCommunicatorStatus is one communicator of a task as one node saw it.
type TaskCommunicatorStatus struct {
	// name of the communicator.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// uniqueID, where this node has rank 0.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	UniqueID []byte `json:"uniqueID,omitempty"`
	// verdict of this node's ranks: Pass (all steps done, no wrong element), Fail (hung, or wrong data) or Error.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason, one CamelCase word, where the verdict is not Pass.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// step that it ended at where it did not pass; absent where that was outside of all steps, as while the
	// communicator was formed.
	// +optional
	Step *Step `json:"step,omitempty"`
	// guilty: a rank of this node died, gave wrong data or fell behind all others by what the node itself could see, so
	// that the other nodes' failures follow from it.
	// +optional
	Guilty *Culprit `json:"guilty,omitempty"`
	// transport that carried the data to other nodes, as the library's log says it: RDMA, TCP, or Unknown.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Transport string `json:"transport,omitempty"`
	// initNanoseconds is the longest time that a rank of this node took to join.
	// +optional
	InitNanoseconds *int64 `json:"initNanoseconds,omitempty"`
	// results as this node's ranks measured them, the slowest rank's latency; only from the node of rank 0.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	// +optional
	Results []ResultSeries `json:"results,omitempty"`
	// repeats that each figure of results is the median of; absent means one.
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// omittedSeries counts the series that were measured and checked, but left out here to keep the object small; the
	// group pod's log has them.
	// +optional
	OmittedSeries int32 `json:"omittedSeries,omitempty"`
}

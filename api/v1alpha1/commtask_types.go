package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CommTask is the part of one member node in the runs of a CommGroup. The controller writes the spec; only that node's
// run agent writes the status. What is known of the node itself is in its CommNode.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ct,categories=rocm
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Ranks",type=string,JSONPath=`.spec.ranks.summary`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.run.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.run.reason`
// +kubebuilder:printcolumn:name="Closed",type=string,JSONPath=`.spec.run.closed.reason`
// +kubebuilder:printcolumn:name="Stale",type=string,JSONPath=`.spec.run.stale.reason`
// +kubebuilder:printcolumn:name="Run",type=string,JSONPath=`.spec.run.id`
// +kubebuilder:printcolumn:name="Reported",type=string,JSONPath=`.status.run.id`
// +kubebuilder:printcolumn:name="Model",type=string,priority=1,JSONPath=`.spec.run.platform.model`
// +kubebuilder:printcolumn:name="ROCm",type=string,priority=1,JSONPath=`.spec.run.platform.rocm`
// +kubebuilder:printcolumn:name="Mesh",type=string,priority=1,JSONPath=`.spec.run.platform.mesh`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CommTask struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the controller plans for the node.
	// +required
	Spec CommTaskSpec `json:"spec"`
	// status is what the node's run agent reports.
	// +optional
	Status CommTaskStatus `json:"status,omitzero"`
}

// CommTaskList is a list of CommTasks.
// +kubebuilder:object:root=true
type CommTaskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommTask `json:"items"`
}

// CommTaskSpec is what the controller plans for one node.
type CommTaskSpec struct {
	// nodeName of the member.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName does not change: a CommTask stands for one node"
	NodeName string `json:"nodeName"`
	// nodeUID of the Node object: a node that was deleted and made again is another node.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`
	// group that the node is a member of.
	// +structType=atomic
	Group GroupReference `json:"group"`
	// ranks that the controller assigned.
	// +structType=atomic
	Ranks RankRange `json:"ranks"`
	// run is what the node has to do; absent while nothing is due.
	// +optional
	// +structType=atomic
	Run *RunAssignment `json:"run,omitempty"`
	// session is the node's part in the group's stage of a run; absent while there is none.
	// +optional
	// +structType=atomic
	Session *SessionAssignment `json:"session,omitempty"`
}

// RankRange is a node's share of the group's ranks.
type RankRange struct {
	// summary is first-last/world, for a column.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
	// first rank on the node.
	First int32 `json:"first"`
	// count of ranks on the node.
	Count int32 `json:"count"`
	// worldSize of the group.
	WorldSize int32 `json:"worldSize"`
}

// RunAssignment is one run on one node.
type RunAssignment struct {
	// id of the run.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// name of the CommRun. What to measure, and how, is in its status.plan.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// generation of the CommGroup's spec that the run measures.
	Generation int64 `json:"generation"`
	// number of the group's run: which results still count is compared by it.
	// +optional
	Number int64 `json:"number,omitempty"`
	// platform that the node was when the run was assigned. A result counts only while the node is still that.
	// +optional
	Platform *PlatformFacts `json:"platform,omitempty"`
	// podName is the run pod, once the controller has seen it; without a report, a pod that is gone after that failed.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	PodName string `json:"podName,omitempty"`
	// closed is set when the controller ended the run on this node without a report from the agent.
	// +optional
	Closed *RunClosure `json:"closed,omitempty"`
	// stale is set when the run's result no longer counts: the node is not what it was when it was measured.
	// +optional
	Stale *RunStaleness `json:"stale,omitempty"`
	// repeats counts the results right before this one that were Fail or Error and then stale. After two of them a bad
	// result stands until a person asks for a run: a run may be what makes the node reboot.
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// retries counts the runs right before this one that were Skipped on the node since its GPUs were in use or taken
	// away, or that found no GPU or no monitor on it. After five of them nothing starts one by itself until a run of
	// all is due.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// waiting says why the node's run pod is not made although it is the node's turn; absent where it does not wait.
	// +optional
	Waiting *RunWait `json:"waiting,omitempty"`
}

// RunWait says for whom a node's run waits.
type RunWait struct {
	// reason, one CamelCase word: NodeBusy, ListFailed where the pods on the node could not be read, or
	// RunPodNotStarted where the namespace's quota has no room for the run pod yet, or an admission webhook does not
	// answer.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message names the pod or CommGroup.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// since when the node waits.
	Since metav1.Time `json:"since"`
}

// PlatformFacts is what of a node a result depends on. An empty field was not known.
type PlatformFacts struct {
	// bootID of the node's kernel.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// driver: version and srcversion of amdgpu, or its kind and srcversion where it has no version.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Driver string `json:"driver,omitempty"`
	// rocm version of the host, and its RCCL where it has one, as the inventory shows them.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ROCm string `json:"rocm,omitempty"`
	// partition mode.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Partition string `json:"partition,omitempty"`
	// firmware that all GPUs share, or "mixed".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Firmware string `json:"firmware,omitempty"`
	// gpus is the number of GPUs and the first 8 hex digits of the SHA-256 over their PCI addresses, for example
	// 8/1f0c22ab.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	GPUs string `json:"gpus,omitempty"`
	// model that all GPUs share, or "mixed".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Model string `json:"model,omitempty"`
	// mesh: the state of the xGMI mesh, as in the CommNode's facts.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Mesh string `json:"mesh,omitempty"`
	// devices counts the logical GPUs: partitions count each.
	// +optional
	Devices int32 `json:"devices,omitempty"`
}

// RunStaleness says why a result no longer counts.
type RunStaleness struct {
	// reason, one CamelCase word: NodeRebooted, DriverChanged, ROCmChanged, Repartitioned, FirmwareChanged or
	// GPUsChanged.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message names what it was and what it is.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// time of the finding.
	Time metav1.Time `json:"time"`
}

// RunClosure says why the controller ended a run on a node without the agent's report.
type RunClosure struct {
	// verdict that counts for the node: Error or Skipped.
	Verdict Verdict `json:"verdict"`
	// reason, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// time of the decision.
	Time metav1.Time `json:"time"`
	// heldSeconds that the run pod had held its GPUs by then; absent where it held none or where that is not known.
	// +optional
	HeldSeconds int64 `json:"heldSeconds,omitempty"`
}

// CommTaskStatus is what the node's run agent reports. With managed fields a
// CommTask stays under 10 KiB, and under 14 KiB where a session follows.
type CommTaskStatus struct {
	// run is the present or last run on the node, from the agent's run pod.
	// +optional
	// +structType=atomic
	Run *NodeRunStatus `json:"run,omitempty"`
	// session is the node's part in the group's stage of a run, from the agent's group pod.
	// +optional
	// +structType=atomic
	Session *SessionStatus `json:"session,omitempty"`
}

// NodeRunPhase is where a run on a node is.
// +kubebuilder:validation:Enum=Running;Finished
type NodeRunPhase string

// The phases of a run on a node.
const (
	NodeRunRunning  NodeRunPhase = "Running"
	NodeRunFinished NodeRunPhase = "Finished"
)

// NodeRunStatus is the present or last run on the node.
type NodeRunStatus struct {
	// id of the run; a report with another id than the spec's is of an older run.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// generation of the CommGroup's spec that was measured.
	Generation int64 `json:"generation"`
	// phase of the run.
	Phase NodeRunPhase `json:"phase"`
	// startTime of the run on the node.
	StartTime metav1.Time `json:"startTime"`
	// finishTime of the run on the node.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// bootID of the kernel that the run was made on.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// verdict, once finished.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason for the verdict, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// step that the run is at or ended at, for example "DDA AllReduce BFloat16 65536 B".
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Step string `json:"step,omitempty"`
	// library that the ranks loaded.
	// +optional
	Library *LibraryFacts `json:"library,omitempty"`
	// rocm is the user space of the run's container, which is what jobs with this image use; the host's is in
	// facts.rocm.
	// +optional
	ROCm *ROCmFacts `json:"rocm,omitempty"`
	// initNanoseconds is the longest time that a rank took to join the Baseline communicator.
	// +optional
	InitNanoseconds *int64 `json:"initNanoseconds,omitempty"`
	// settings: requested, effective and verified on this node.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=80
	// +optional
	Settings []SettingStatus `json:"settings,omitempty"`
	// preconditions that were not met, the worst first; those that were met are not listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Preconditions []PreconditionStatus `json:"preconditions,omitempty"`
	// results measured on this node.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=72
	// +optional
	Results []ResultSeries `json:"results,omitempty"`
	// omittedSeries counts the series that were measured and judged, but left out here to keep the object small; the
	// run pod's log has them.
	// +optional
	OmittedSeries int32 `json:"omittedSeries,omitempty"`
	// checks of this node's measurements against thresholds and references: what was not met first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Checks []PerformanceCheck `json:"checks,omitempty"`
	// dataErrors with random data over the ranges of gradients and activations: FP8's, and Baseline's own for
	// comparison.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	DataErrors []DataErrors `json:"dataErrors,omitempty"`
	// links is the measured bandwidth between pairs of GPUs.
	// +optional
	Links *LinkProbe `json:"links,omitempty"`
	// culprits found on this node, the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Culprits []Culprit `json:"culprits,omitempty"`
	// environment of the ranks of the last variant: what a job would have to set.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=80
	// +optional
	Environment []EnvVar `json:"environment,omitempty"`
	// rasVerdict is what the library's RAS service said of the communicator when ranks were late; absent where it was
	// not asked, or did not answer.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	RASVerdict string `json:"rasVerdict,omitempty"`
	// logTail is the end of the failing rank's output, at most 1 KiB.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LogTail string `json:"logTail,omitempty"`
}

// PreconditionStatus is one thing that must hold before ranks load the library, and does not or could not be read.
type PreconditionStatus struct {
	// name of the precondition, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// state: Failed ends the run; Warning and Unknown (it could not be read) do not.
	// +kubebuilder:validation:Enum=Failed;Warning;Unknown
	State string `json:"state"`
	// rank that it concerns; absent for the whole node.
	// +optional
	Rank *int32 `json:"rank,omitempty"`
	// message says what was seen, what was expected and what to do.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// LibraryFacts is the communication library that the ranks loaded.
type LibraryFacts struct {
	// flavor: rccl, rccl-dda, rcclx-dev, rcclx-stable, nccl, simulated or unknown.
	// +kubebuilder:validation:MaxLength=32
	Flavor string `json:"flavor"`
	// imitates is the flavor whose gates the simulator follows; only set for flavor simulated.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Imitates string `json:"imitates,omitempty"`
	// version, for example 2.28.3.
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version"`
	// path of the loaded file.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Path string `json:"path,omitempty"`
	// runtimeVersion of HIP or CUDA as the library of that name says it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// buildHash is the first 16 hex digits of the SHA-256 of the loaded file.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BuildHash string `json:"buildHash,omitempty"`
}

// ResultSeries is one (variant, collective, datatype, placement); its lists run parallel to sizeBytes.
type ResultSeries struct {
	Variant    Variant    `json:"variant"`
	Collective Collective `json:"collective"`
	Datatype   Datatype   `json:"datatype"`
	// placement of the results; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// sizeBytes of the messages, ascending; sizes that were not reached are absent.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	SizeBytes []int64 `json:"sizeBytes"`
	// latencyNanoseconds is the median over the iterations of the slowest rank.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	LatencyNanoseconds []int64 `json:"latencyNanoseconds"`
	// busBandwidthMBps by rccl-tests' definition, from latencyNanoseconds.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	BusBandwidthMBps []int64 `json:"busBandwidthMBps"`
	// noisePercent is the coefficient of variation of the latency over the repeats, the worst rank's, in percent,
	// rounded up; absent where it was not measured, or left out to keep the object small.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	NoisePercent []int32 `json:"noisePercent,omitempty"`
	// spreadPercent is how far the slowest repeat (benchmark.repeats) lies below the fastest at each size, in percent,
	// rounded up; absent without repeats, over a single node, or left out to keep the object small.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	SpreadPercent []int32 `json:"spreadPercent,omitempty"`
	// wrongElements over all sizes and ranks, but for FP8 counts with a tail hazard (the setting's warning tells of
	// those).
	WrongElements int64 `json:"wrongElements"`
	// maxRelativeErrorPPM over all sizes and ranks, for LowPrecision.
	// +optional
	MaxRelativeErrorPPM *int64 `json:"maxRelativeErrorPPM,omitempty"`
}

// LinkProbe is the measured bandwidth between pairs of GPUs, one pair at a time for each GPU.
type LinkProbe struct {
	// sizeBytes sent each way.
	SizeBytes int64 `json:"sizeBytes"`
	// medianMBps over all pairs, one direction.
	MedianMBps int64 `json:"medianMBps"`
	// minMBps of the slowest pair.
	MinMBps int64 `json:"minMBps"`
	// slowest pair of GPUs, as two PCI addresses joined by <->.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Slowest string `json:"slowest,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CommNode is one member node of a CommGroup. The controller writes the spec; only that node's agent writes the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cn,categories=rocm
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Ranks",type=string,JSONPath=`.spec.ranks.summary`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.facts.gpuModel`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.facts.gpuCount`
// +kubebuilder:printcolumn:name="ROCm",type=string,JSONPath=`.status.facts.rocm.version`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.facts.driver.version`
// +kubebuilder:printcolumn:name="Mesh",type=string,JSONPath=`.status.facts.xgmi.mesh`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.run.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.run.reason`
// +kubebuilder:printcolumn:name="Seen",type=date,JSONPath=`.status.facts.observedTime`
type CommNode struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the controller plans for the node.
	// +required
	Spec CommNodeSpec `json:"spec"`
	// status is what the node's agent saw.
	// +optional
	Status CommNodeStatus `json:"status,omitzero"`
}

// CommNodeList is a list of CommNodes.
// +kubebuilder:object:root=true
type CommNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommNode `json:"items"`
}

// CommNodeSpec is what the controller plans for one node.
type CommNodeSpec struct {
	// nodeName of the member.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName does not change: a CommNode stands for one node"
	NodeName string `json:"nodeName"`
	// nodeUID of the Node object: a node that was deleted and made again is another node.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`
	// group that the node is a member of.
	Group GroupReference `json:"group"`
	// ranks that the controller assigned.
	Ranks RankRange `json:"ranks"`
	// run is what the node has to do; absent while nothing is due.
	// +optional
	Run *RunAssignment `json:"run,omitempty"`
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
	// generation of the CommGroup's spec that the run measures.
	Generation int64 `json:"generation"`
	// plan to carry out.
	Plan RunPlan `json:"plan"`
	// podName is the run pod, once the controller has seen it; without a report, a pod that is gone after that failed.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	PodName string `json:"podName,omitempty"`
	// closed is set when the controller ended the run on this node without a report from the agent.
	// +optional
	Closed *RunClosure `json:"closed,omitempty"`
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
}

// CommNodeStatus is what the node's agent saw; an object stays under 10 KiB, managed fields left out.
type CommNodeStatus struct {
	// facts of the node, from the agent's monitor.
	// +optional
	Facts *NodeFacts `json:"facts,omitempty"`
	// run is the present or last run on the node, from the agent's run pod.
	// +optional
	Run *NodeRunStatus `json:"run,omitempty"`
}

// NodeFacts is what sysfs tells of a node.
type NodeFacts struct {
	// observedTime is when the facts were read or last confirmed.
	ObservedTime metav1.Time `json:"observedTime"`
	// validForSeconds after observedTime the facts count as unknown.
	ValidForSeconds int32 `json:"validForSeconds"`
	// origin of the facts.
	Origin Origin `json:"origin"`
	// bootID of the node's kernel; results of another boot are stale.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// kernelRelease as uname -r prints it.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	KernelRelease string `json:"kernelRelease,omitempty"`
	// driver is the amdgpu kernel driver.
	Driver DriverFacts `json:"driver"`
	// rocm is the host's ROCm user space; often absent, since images bring their own.
	ROCm ROCmFacts `json:"rocm"`
	// gpuModel is the model that all GPUs share, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=64
	GPUModel string `json:"gpuModel"`
	// gfxTarget that all GPUs share, for example gfx942, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=64
	GFXTarget string `json:"gfxTarget"`
	// gpuCount counts physical GPUs that KFD shows; partitions of one GPU count once.
	GPUCount int32 `json:"gpuCount"`
	// deviceCount counts logical devices that KFD shows: partitions count each.
	DeviceCount int32 `json:"deviceCount"`
	// partition mode that all GPUs share, for example SPX/NPS1, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=32
	Partition string `json:"partition"`
	// gpus, by PCI address.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	GPUs []GPUFacts `json:"gpus,omitempty"`
	// xgmi is the state of the xGMI mesh.
	XGMI XGMIFacts `json:"xgmi"`
	// problems: what is wrong or could not be read, and why; the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12
	// +optional
	Problems []Problem `json:"problems,omitempty"`
}

// DriverFacts is the amdgpu kernel driver.
type DriverFacts struct {
	// version of the DKMS driver; empty for an in-tree driver, which has none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Version string `json:"version,omitempty"`
	// kind: DKMS, InTree, BuiltIn, NotLoaded or Unknown.
	// +kubebuilder:validation:Enum=DKMS;InTree;BuiltIn;NotLoaded;Unknown
	Kind string `json:"kind"`
	// srcVersion identifies an in-tree module's source.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SrcVersion string `json:"srcVersion,omitempty"`
}

// ROCmFacts is the host's ROCm user space.
type ROCmFacts struct {
	// version, for example 7.0.2; empty where none was found.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Version string `json:"version,omitempty"`
	// source is the file that gave the version.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Source string `json:"source,omitempty"`
	// state: Found, NotFound, Ambiguous (several installs) or Unreadable.
	// +kubebuilder:validation:Enum=Found;NotFound;Ambiguous;Unreadable
	State string `json:"state"`
}

// GPUFacts is one physical GPU.
type GPUFacts struct {
	// pciAddress, domain:bus:device.function.
	// +kubebuilder:validation:MaxLength=16
	PCIAddress string `json:"pciAddress"`
	// model by device id; "unknown" with the id for a newer one.
	// +kubebuilder:validation:MaxLength=64
	Model string `json:"model"`
	// numaNode; absent where the firmware does not say.
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// vramMiB of the GPU; absent where unknown.
	// +optional
	VRAMMiB *int64 `json:"vramMiB,omitempty"`
	// weights to each GPU of the node, in the list's order, "-" for itself and "?" where no link is known: KFD's cost, 15 for
	// one xGMI hop.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Weights string `json:"weights,omitempty"`
}

// XGMIFacts is the state of the xGMI mesh.
type XGMIFacts struct {
	// mesh: Full, Incomplete, NotApplicable (a model without xGMI) or Unknown.
	// +kubebuilder:validation:Enum=Full;Incomplete;NotApplicable;Unknown
	Mesh string `json:"mesh"`
	// hives of the node.
	Hives int32 `json:"hives"`
	// links counts directed xGMI links between GPUs.
	Links int32 `json:"links"`
	// expectedLinks for the model and number of GPUs; absent where no expectation is known.
	// +optional
	ExpectedLinks *int32 `json:"expectedLinks,omitempty"`
	// linkBandwidthMBps that the driver states for one link; absent where it states none. It is no health signal.
	// +optional
	LinkBandwidthMBps *int64 `json:"linkBandwidthMBps,omitempty"`
	// uncorrectableErrors and correctableErrors of xGMI since the driver was loaded; absent where the kernel has no counter.
	// +optional
	UncorrectableErrors *int64 `json:"uncorrectableErrors,omitempty"`
	// correctableErrors: see uncorrectableErrors.
	// +optional
	CorrectableErrors *int64 `json:"correctableErrors,omitempty"`
}

// Problem is one thing that is wrong or could not be read.
type Problem struct {
	// severity: Error problems keep a group from being Compatible, Warning ones do not.
	// +kubebuilder:validation:Enum=Error;Warning
	Severity string `json:"severity"`
	// code, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code"`
	// subject: the GPU, link or file.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Subject string `json:"subject,omitempty"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=400
	Message string `json:"message"`
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
	// omittedSeries counts the series that were measured and judged, but left out here to keep the object small; the run
	// pod's log has them.
	// +optional
	OmittedSeries int32 `json:"omittedSeries,omitempty"`
	// dataErrors with random data over the ranges of gradients and activations: FP8's, and Baseline's own for comparison.
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
	// rasVerdict is what the library's RAS service said of the communicator when ranks were late; absent where it was not
	// asked, or did not answer.
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
	// wrongElements over all sizes and ranks, but for FP8 counts with a tail hazard (the setting's warning tells of those).
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

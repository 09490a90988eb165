package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MeshDimension is one dimension of the device mesh that a job lays over the group's ranks, as torch's init_device_mesh
// and torchcomms' split have it.
type MeshDimension struct {
	// name of the dimension, for example dp, pp or tp.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]*$`
	Name string `json:"name"`
	// size is the number of ranks along the dimension.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	Size int32 `json:"size"`
}

// LocalizationMode says whether a bad step over several nodes is searched for its culprit.
// +kubebuilder:validation:Enum=Auto;Off
type LocalizationMode string

// The localization modes.
const (
	LocalizationAuto LocalizationMode = "Auto"
	LocalizationOff  LocalizationMode = "Off"
)

// LocalizationSpec bounds the search for what makes a step over several nodes fail, hang or be slow.
type LocalizationSpec struct {
	// mode: Auto runs rounds of smaller communicators until the culprit is named; Off reports the bad step only.
	// +kubebuilder:default=Auto
	// +optional
	Mode LocalizationMode `json:"mode,omitempty"`
	// maxRounds bounds the search; zero means as many as the planner's own bound for the group's size allows.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +optional
	MaxRounds int32 `json:"maxRounds,omitempty"`
	// deadlineSeconds bounds the whole search.
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	// +optional
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
}

// NetworkMode says on which network the ranks of different nodes meet.
// +kubebuilder:validation:Enum=Pod;Host;Multus
type NetworkMode string

// The network modes.
const (
	NetworkPod    NetworkMode = "Pod"
	NetworkHost   NetworkMode = "Host"
	NetworkMultus NetworkMode = "Multus"
)

// AddressFamily is the family of all members' addresses in one communicator.
// +kubebuilder:validation:Enum=Auto;IPv4;IPv6
type AddressFamily string

// The address families. Auto takes IPv4 where every member has such an address, else IPv6, and says why.
const (
	AddressFamilyAuto AddressFamily = "Auto"
	AddressFamilyIPv4 AddressFamily = "IPv4"
	AddressFamilyIPv6 AddressFamily = "IPv6"
)

// TransportRequirement is what must carry the data between nodes.
// +kubebuilder:validation:Enum=Any;RDMA
type TransportRequirement string

// The transport requirements.
const (
	TransportAny  TransportRequirement = "Any"
	TransportRDMA TransportRequirement = "RDMA"
)

// InterfaceSelector names a network interface; each node resolves it for itself and fails its check where it finds none.
// +kubebuilder:validation:XValidation:rule="(has(self.cidr) ? 1 : 0) + (has(self.name) ? 1 : 0) + (has(self.pciAddress) ? 1 : 0) == 1",message="network.interface takes exactly one of cidr, name and pciAddress"
type InterfaceSelector struct {
	// cidr that one address of the interface lies in, for example 10.4.0.0/16: works where nodes name their NICs differently.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="network.interface.cidr is not a CIDR: write it like 10.4.0.0/16 or fd00:4::/64"
	// +optional
	CIDR string `json:"cidr,omitempty"`
	// name of the interface, exactly: eth1 does not match eth10 or eth1.100. It is handed to the library as =name.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^\s/=^,:]+$`
	// +optional
	Name string `json:"name,omitempty"`
	// pciAddress of the NIC, for example 0000:0c:00.0.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
}

// PortRange is a range of TCP ports, both ends included.
// +kubebuilder:validation:XValidation:rule="self.first <= self.last",message="network.portRange.first must not be larger than last"
type PortRange struct {
	// first port.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	First int32 `json:"first"`
	// last port.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Last int32 `json:"last"`
}

// ResourceCount asks for some of an extended resource, for example rdma/hca.
type ResourceCount struct {
	// name of the resource.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+/[a-zA-Z0-9._-]+$`
	Name string `json:"name"`
	// count of them for each run pod.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Count int32 `json:"count"`
}

// NetworkSpec says how the ranks of different nodes meet. It matters with span Group only.
// +kubebuilder:validation:XValidation:rule="!has(self.multusNetworks) || size(self.multusNetworks) == 0 || (has(self.mode) && self.mode == 'Multus')",message="network.multusNetworks needs network.mode Multus"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Multus' || (has(self.multusNetworks) && size(self.multusNetworks) > 0)",message="network.mode Multus needs network.multusNetworks: name the NetworkAttachmentDefinitions"
type NetworkSpec struct {
	// mode: Pod is the cluster's pod network, Host the node's own (only in namespaces that the operator's configuration
	// allows), Multus adds the networks named in multusNetworks.
	// +kubebuilder:default=Pod
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`
	// multusNetworks are NetworkAttachmentDefinitions, as name or namespace/name, one interface each in their order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	MultusNetworks []string `json:"multusNetworks,omitempty"`
	// rdmaResources that each run pod of the group's stage asks for beside its GPUs, so that the RDMA devices are in the pod.
	// One that runtime.pod.resources names too keeps the count from there; the GPUs' own resource is refused.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RDMAResources []ResourceCount `json:"rdmaResources,omitempty"`
	// interface for the rendezvous and for TCP; absent: the one that carries the pod's address.
	// +optional
	Interface *InterfaceSelector `json:"interface,omitempty"`
	// addressFamily of all members in one communicator.
	// +kubebuilder:default=Auto
	// +optional
	AddressFamily AddressFamily `json:"addressFamily,omitempty"`
	// hcas are the RDMA devices to use, exactly, as device or device:port, for example mlx5_0:1; absent: all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.-]+(:[0-9]{1,3})?$`
	// +optional
	HCAs []string `json:"hcas,omitempty"`
	// gidIndex for RoCE; absent: the library's choice.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	// +optional
	GIDIndex *int32 `json:"gidIndex,omitempty"`
	// portRange that listening ports are taken from, checked to be free before use; absent: the kernel's choice.
	// +optional
	PortRange *PortRange `json:"portRange,omitempty"`
	// requireTransport: RDMA fails a step over several nodes whose data went over TCP.
	// +kubebuilder:default=Any
	// +optional
	RequireTransport TransportRequirement `json:"requireTransport,omitempty"`
}

// NetworkStatus is the network as one node resolved it.
type NetworkStatus struct {
	// interface that was chosen.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	Interface string `json:"interface,omitempty"`
	// addresses of the interface, at most one of each family.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// hcas that are there and up, of those asked for.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	HCAs []string `json:"hcas,omitempty"`
	// message says what of the request the node cannot hold, where that does not keep it from taking part.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
	// clock of the node when it wrote this, so that the controller can tell clocks that are apart.
	// +optional
	Clock *metav1.MicroTime `json:"clock,omitempty"`
}

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

// SessionAssignment is the node's part in the group's stage of a run: a pod that keeps the node's GPUs while tasks follow
// each other.
type SessionAssignment struct {
	// runID that the stage belongs to.
	// +kubebuilder:validation:MaxLength=63
	RunID string `json:"runID"`
	// index of the node among the members of the stage, from 0, in rank order. It is fixed when the stage starts.
	Index int32 `json:"index"`
	// members of the stage.
	Members int32 `json:"members"`
	// ranks that the node gives to the stage.
	Ranks int32 `json:"ranks"`
	// network as requested.
	// +optional
	Network NetworkSpec `json:"network,omitzero"`
	// env are the group's own variables.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// libraryPath: see RunPlan.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LibraryPath string `json:"libraryPath,omitempty"`
	// initDeadlineSeconds bounds the forming of a communicator, stepDeadlineSeconds one measurement.
	InitDeadlineSeconds int32 `json:"initDeadlineSeconds"`
	StepDeadlineSeconds int32 `json:"stepDeadlineSeconds"`
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
	// id of the task, unique within the run: stage, round, and number of the test in the round, for example localize-3-1.
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
	// keepSizesBytes are sizes that stay in a report that has to be cut, beside the first and the last: those of thresholds.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	KeepSizesBytes []int64 `json:"keepSizesBytes,omitempty"`
	// warmupIterations and iterations: see RunPlan.
	WarmupIterations int32 `json:"warmupIterations"`
	Iterations       int32 `json:"iterations"`
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
	// step that it ended at where it did not pass.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Step string `json:"step,omitempty"`
	// guilty: a rank of this node died, gave wrong data or fell behind all others by what the node itself could see, so that
	// the other nodes' failures follow from it.
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
	// omittedSeries counts the series that were measured and checked, but left out here to keep the object small; the group
	// pod's log has them.
	// +optional
	OmittedSeries int32 `json:"omittedSeries,omitempty"`
}

// RunStage is where a run of span Group is.
// +kubebuilder:validation:Enum=Nodes;WaitingForMembers;Group;Mesh;Localizing;Reforming;Ended
type RunStage string

// The stages. A run of span Node has stage Nodes only.
const (
	StageNodes             RunStage = "Nodes"
	StageWaitingForMembers RunStage = "WaitingForMembers"
	StageGroup             RunStage = "Group"
	StageMesh              RunStage = "Mesh"
	StageLocalizing        RunStage = "Localizing"
	StageReforming         RunStage = "Reforming"
	StageEnded             RunStage = "Ended"
)

// SpanStatus is what the group's stage of the present or last run showed.
type SpanStatus struct {
	// runID of the run.
	// +kubebuilder:validation:MaxLength=63
	RunID string `json:"runID"`
	// stage that the run is at.
	Stage RunStage `json:"stage"`
	// stageStartTime and stageDeadline of the stage.
	// +optional
	StageStartTime *metav1.Time `json:"stageStartTime,omitempty"`
	// +optional
	StageDeadline *metav1.Time `json:"stageDeadline,omitempty"`
	// members that the stage started with, and those that are still in it.
	// +optional
	Members int32 `json:"members,omitempty"`
	// +optional
	Present int32 `json:"present,omitempty"`
	// left are members that the group went on without, at most 16 by name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Left []string `json:"left,omitempty"`
	// leftSet are all members that the group went on without, as ranges of their indexes, for example 3,17-18.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LeftSet string `json:"leftSet,omitempty"`
	// verdict over the group's stage, once ended.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason and message for the verdict.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// network that the members use: family, transport and why.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Network string `json:"network,omitempty"`
	// transport that carried the data between nodes: RDMA, TCP, Mixed or Unknown.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Transport string `json:"transport,omitempty"`
	// tests that were made, in order: the group's own, those of the mesh, and those of the search.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Tests []SpanTest `json:"tests,omitempty"`
	// localization says how the search for a culprit went.
	// +optional
	Localization *LocalizationStatus `json:"localization,omitempty"`
	// culprits that the group's stage named, in the order of their naming.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Culprits []Culprit `json:"culprits,omitempty"`
	// results of the group's communicator and of each dimension of the mesh.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=48
	// +optional
	Results []SpanResultSeries `json:"results,omitempty"`
}

// SpanTest is one communicator, or one set of alike ones, that was tried.
type SpanTest struct {
	// id of the task.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// set of members, as ranges of their indexes.
	// +kubebuilder:validation:MaxLength=512
	Set string `json:"set"`
	// verdict: Pass, Fail (slow, hung, wrong) or Error; absent while it goes on.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// busBandwidthMBps of the slowest communicator at the largest size; absent where none was measured.
	// +optional
	BusBandwidthMBps *int64 `json:"busBandwidthMBps,omitempty"`
	// overdueTime is when the controller first saw the deadline of the open test past: reports have some seconds more from
	// then on, since a clock that jumped, or a manager that was away, is no fault of the nodes.
	// +optional
	OverdueTime *metav1.Time `json:"overdueTime,omitempty"`
	// startTime of the test, and seconds that it took.
	StartTime metav1.Time `json:"startTime"`
	// +optional
	Seconds *int32 `json:"seconds,omitempty"`
}

// LocalizationState is how the search for a culprit went.
// +kubebuilder:validation:Enum=Running;Found;NotFound;OutOfBounds
type LocalizationState string

// The localization states. NotFound: every smaller communicator was good; OutOfBounds: rounds or time ran out.
const (
	LocalizationRunning     LocalizationState = "Running"
	LocalizationFound       LocalizationState = "Found"
	LocalizationNotFound    LocalizationState = "NotFound"
	LocalizationOutOfBounds LocalizationState = "OutOfBounds"
)

// LocalizationStatus says how the search for a culprit went.
type LocalizationStatus struct {
	// state of the search.
	State LocalizationState `json:"state"`
	// step that was repeated in smaller communicators.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Step string `json:"step,omitempty"`
	// rounds and tests made so far; maxRounds is the bound.
	Rounds    int32 `json:"rounds"`
	MaxRounds int32 `json:"maxRounds"`
	Tests     int32 `json:"tests"`
	// startTime and seconds of the search.
	StartTime metav1.Time `json:"startTime"`
	// +optional
	Seconds *int32 `json:"seconds,omitempty"`
	// message says what is known in one sentence.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// SpanResultSeries is one (dimension, collective, datatype, placement) over the communicators of a span; its lists run
// parallel to sizeBytes.
type SpanResultSeries struct {
	// dimension: group, or the name of a dimension of the mesh.
	// +kubebuilder:validation:MaxLength=16
	Dimension  string     `json:"dimension"`
	Collective Collective `json:"collective"`
	Datatype   Datatype   `json:"datatype"`
	// placement of the results; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// communicators of the dimension, and ranks and nodes of each.
	Communicators int32 `json:"communicators"`
	Ranks         int32 `json:"ranks"`
	Nodes         int32 `json:"nodes"`
	// sizeBytes of the messages, ascending.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	SizeBytes []int64 `json:"sizeBytes"`
	// latencyNanoseconds and busBandwidthMBps are the median over the communicators, minBusBandwidthMBps the slowest one's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	LatencyNanoseconds []int64 `json:"latencyNanoseconds"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	BusBandwidthMBps []int64 `json:"busBandwidthMBps"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	MinBusBandwidthMBps []int64 `json:"minBusBandwidthMBps"`
	// slowest communicator at the largest size, for example dp/3.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Slowest string `json:"slowest,omitempty"`
}

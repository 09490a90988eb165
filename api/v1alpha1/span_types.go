package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MeshDimension is one dimension of the device mesh that a job lays over the group's ranks, as torch's init_device_mesh
// and torchcomms' split have it.
type MeshDimension struct {
	// name of the dimension, for example dp, pp or tp.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'group'",message="a dimension of mesh must not be called group, as the communicator over all members is: give it another name"
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

// SpeedNotJudged says why the speed over several nodes was held against nothing: no threshold or reference applies, and
// pairs of members were not compared since localization.mode is Off, benchmark.nodeMinPercentOfMedian is 0, there are
// fewer than three members, or for another reason (NotCompared).
// +kubebuilder:validation:Enum=LocalizationOff;ComparisonOff;TooFewMembers;NotCompared
type SpeedNotJudged string

// The reasons.
const (
	SpeedLocalizationOff SpeedNotJudged = "LocalizationOff"
	SpeedComparisonOff   SpeedNotJudged = "ComparisonOff"
	SpeedTooFewMembers   SpeedNotJudged = "TooFewMembers"
	SpeedNotCompared     SpeedNotJudged = "NotCompared"
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
	// speedNotJudged says why the speed of a stage that passed was held against nothing; absent where it was judged.
	// +optional
	SpeedNotJudged SpeedNotJudged `json:"speedNotJudged,omitempty"`
	// network that the members use: family, transport and why.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Network string `json:"network,omitempty"`
	// transport that carried the data between nodes, in the group and in all dimensions of the mesh: RDMA or TCP where
	// each member said so, Mixed where they differ, else Unknown.
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
	// culpritSet are all members that failed as culprits, as ranges of their indexes: those too that culprits has no
	// room for. The two nodes of a pair are not in it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	CulpritSet string `json:"culpritSet,omitempty"`
	// speedJudged: the group that was left at the end passed, and its speed was held against a threshold, a reference,
	// or its pairs.
	// +optional
	SpeedJudged bool `json:"speedJudged,omitempty"`
	// culprits that the group's stage named, in the order of their naming; where there are more, one of each node comes
	// first.
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

// TestKind is what a test of the group's stage is over.
// +kubebuilder:validation:Enum=Group;Mesh;Search;Rails;Pairs;PairRecord;Departure
type TestKind string

// The kinds of tests.
const (
	// TestGroup: one communicator over all members.
	TestGroup TestKind = "Group"
	// TestMesh: all communicators of one dimension of the mesh.
	TestMesh TestKind = "Mesh"
	// TestSearch: a smaller communicator, in the search for a culprit.
	TestSearch TestKind = "Search"
	// TestRails: one communicator for each rail of two nodes, in the search for a culprit.
	TestRails TestKind = "Rails"
	// TestPairs: pairs of neighbours, all at once.
	TestPairs TestKind = "Pairs"
	// TestPairRecord: no test of its own, but a part of what the test of pairs before it gave. Index 0 is what its best
	// pairs reach, the others are its bad pairs.
	TestPairRecord TestKind = "PairRecord"
	// TestDeparture: no test, but the members that the group goes on without from there on, and why.
	TestDeparture TestKind = "Departure"
)

// SpanTest is one communicator, or one set of alike ones, that was tried.
type SpanTest struct {
	// id of the test, and of the members' tasks in it. It is unique in the run, and no more than a name.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// kind says what the test is over.
	Kind TestKind `json:"kind"`
	// round that the test is of, counted from 1 for each kind: Search and Rails count together. A PairRecord has its
	// Pairs' round.
	// +kubebuilder:validation:Minimum=1
	Round int32 `json:"round"`
	// index of the test in its round.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Index int32 `json:"index,omitempty"`
	// dimension of the mesh, for kind Mesh.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Dimension string `json:"dimension,omitempty"`
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
	// overdueTime is when the controller first saw the deadline of the open test past: reports have some seconds more
	// from then on, since a clock that jumped, or a manager that was away, is no fault of the nodes.
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
	// +optional
	Step *Step `json:"step,omitempty"`
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
	// latencyNanoseconds and busBandwidthMBps are the median over the communicators, minBusBandwidthMBps the slowest
	// one's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	LatencyNanoseconds []int64 `json:"latencyNanoseconds"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	BusBandwidthMBps []int64 `json:"busBandwidthMBps"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	MinBusBandwidthMBps []int64 `json:"minBusBandwidthMBps"`
	// repeats that each figure is the median of; absent means one.
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// spreadPercent is how far the slowest repeat lies below the fastest at each size, in percent, of the communicator
	// where that is most; absent without repeats, or where a report had no place for it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	SpreadPercent []int32 `json:"spreadPercent,omitempty"`
	// slowest communicator at the largest size, for example dp/3.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Slowest string `json:"slowest,omitempty"`
	// transport that carried the data between the nodes of its communicators: RDMA, TCP, Mixed or Unknown; absent
	// within a node.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Transport string `json:"transport,omitempty"`
}

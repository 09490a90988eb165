package v1alpha1

import "fmt"

// Span says over what one communicator reaches.
// +kubebuilder:validation:Enum=Node;Group
type Span string

// The spans. Node is one communicator a member node: xGMI, DDA and FP8 are measured here. Group is one over all
// members.
const (
	SpanNode  Span = "Node"
	SpanGroup Span = "Group"
)

// Variant is one side of the A/B comparison; each runs in fresh processes on the same GPUs in the same run.
// +kubebuilder:validation:Enum=Baseline;DDA;LowPrecision
type Variant string

// The variants of a run. Baseline has DDA and low precision off.
const (
	VariantBaseline     Variant = "Baseline"
	VariantDDA          Variant = "DDA"
	VariantLowPrecision Variant = "LowPrecision"
)

// Collective is a collective operation of the library.
// +kubebuilder:validation:Enum=AllReduce;AllGather;ReduceScatter;AllToAll;AllToAllv;Broadcast;Reduce;SendRecv
type Collective string

// The collectives that a run can measure. DDA and FP8 exist for the first four at most.
const (
	AllReduce     Collective = "AllReduce"
	AllGather     Collective = "AllGather"
	ReduceScatter Collective = "ReduceScatter"
	AllToAll      Collective = "AllToAll"
	AllToAllv     Collective = "AllToAllv" // uneven parts
	Broadcast     Collective = "Broadcast" // from rank 0
	Reduce        Collective = "Reduce"    // to rank 0
	SendRecv      Collective = "SendRecv"  // a ring: each rank sends to the next one
)

// Datatype is an element type of the library.
// +kubebuilder:validation:Enum=Float64;Float32;Float16;BFloat16;Float8E4M3;Float8E5M2;Int32;Int8
type Datatype string

// The datatypes that a run can measure, where the library build has them.
const (
	Float64    Datatype = "Float64"
	Float32    Datatype = "Float32"
	Float16    Datatype = "Float16"
	BFloat16   Datatype = "BFloat16"
	Float8E4M3 Datatype = "Float8E4M3"
	Float8E5M2 Datatype = "Float8E5M2"
	Int32      Datatype = "Int32"
	Int8       Datatype = "Int8"
)

// Placement says whether a call's result goes to a buffer of its own.
// +kubebuilder:validation:Enum=OutOfPlace;InPlace
type Placement string

// The placements, as rccl-tests has them. AllToAll, AllToAllv and SendRecv have no in-place form.
const (
	OutOfPlace Placement = "OutOfPlace"
	InPlace    Placement = "InPlace"
)

// DataKind is a kind of random values that results are compared with an fp32 reference for.
// +kubebuilder:validation:Enum=Gradients;Activations
type DataKind string

// The kinds of data whose errors are reported: random values over the ranges that gradients (most far below 1) and
// activations (outliers in the hundreds) have in a model.
const (
	DataGradients   DataKind = "Gradients"
	DataActivations DataKind = "Activations"
)

// Verdict is the outcome of a run. Missing data is never Pass.
// +kubebuilder:validation:Enum=Pass;Fail;Inconclusive;Error;Skipped
type Verdict string

// The verdicts. Fail: measured and not good enough. Error: could not be measured. Inconclusive: measured, but no
// reference to judge by.
const (
	VerdictPass         Verdict = "Pass"
	VerdictFail         Verdict = "Fail"
	VerdictInconclusive Verdict = "Inconclusive"
	VerdictError        Verdict = "Error"
	VerdictSkipped      Verdict = "Skipped"
)

// Origin says whether facts and numbers come from hardware or from the simulator.
// +kubebuilder:validation:Enum=Hardware;Simulated;Unknown
type Origin string

// The origins.
const (
	OriginHardware  Origin = "Hardware"
	OriginSimulated Origin = "Simulated"
	OriginUnknown   Origin = "Unknown"
)

// FeatureMode is how strongly a setting is asked for.
// +kubebuilder:validation:Enum=Disabled;Preferred;Required
type FeatureMode string

// The modes. Preferred: use it where the library's gates allow, report where not. Required: the run fails where it
// is not in effect.
const (
	FeatureDisabled  FeatureMode = "Disabled"
	FeaturePreferred FeatureMode = "Preferred"
	FeatureRequired  FeatureMode = "Required"
)

// EffectiveState is what the gates of the library build allow for a setting.
// +kubebuilder:validation:Enum=InEffect;Partial;NotInEffect;Unknown
type EffectiveState string

// The effective states. Partial: for some of the measured sizes or datatypes only.
const (
	EffectiveInEffect    EffectiveState = "InEffect"
	EffectivePartial     EffectiveState = "Partial"
	EffectiveNotInEffect EffectiveState = "NotInEffect"
	EffectiveUnknown     EffectiveState = "Unknown"
)

// VerifiedState is what the A/B measurement shows of a setting.
// +kubebuilder:validation:Enum=Confirmed;NotConfirmed;Unknown
type VerifiedState string

// The verified states. NotConfirmed: measured, and no difference from Baseline was seen.
const (
	VerifiedConfirmed    VerifiedState = "Confirmed"
	VerifiedNotConfirmed VerifiedState = "NotConfirmed"
	VerifiedUnknown      VerifiedState = "Unknown"
)

// EnvVar is one environment variable of the rank processes.
type EnvVar struct {
	// name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// value of the variable, taken as it is.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Value string `json:"value,omitempty"`
}

// DDASpec chooses direct data access: one- and two-shot collectives over peers' memory within a node.
type DDASpec struct {
	// mode: Disabled, Preferred (where the library's gates allow) or Required: the run fails unless DDA is in effect
	// and confirmed for each measured collective that the library build has it for, and for one at least. Open builds
	// of RCCLX have it for AllReduce only.
	// +kubebuilder:default=Preferred
	// +optional
	Mode FeatureMode `json:"mode,omitempty"`
	// allReduceFlatMaxBytes is the largest AllReduce that takes the flat (one-shot) path. Library default: 204800.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	AllReduceFlatMaxBytes *int64 `json:"allReduceFlatMaxBytes,omitempty"`
	// allReduceTreeMaxBytes is the largest AllReduce that takes the tree (two-shot) path. Library default: 30408704.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	AllReduceTreeMaxBytes *int64 `json:"allReduceTreeMaxBytes,omitempty"`
}

// LowPrecisionSpec chooses FP8 (E4M3) transport of fp32 and bf16 data; the library uses it from 16 MiB up.
type LowPrecisionSpec struct {
	// mode: Disabled, Preferred (where the library's gates allow) or Required (fail where they do not).
	// +kubebuilder:default=Disabled
	// +optional
	Mode FeatureMode `json:"mode,omitempty"`
	// collectives that may use FP8; empty means every one that has it: AllReduce, AllGather, ReduceScatter, AllToAll.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.all(c, c in ['AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll'])",message="FP8 low precision exists only for AllReduce, AllGather, ReduceScatter and AllToAll: remove the other collectives from lowPrecision.collectives"
	// +optional
	Collectives []string `json:"collectives,omitempty"`
	// maxRelativeErrorPPM fails a run whose FP8 results differ from the fp32 reference by more than this share of the
	// largest magnitude, in parts per million, with data of one magnitude. E4M3 has three mantissa bits: one rounding
	// is up to 62500 (2^-4). Random data over the ranges of gradients and activations fails no run: it decides whether
	// the results are usable, and so whether FP8 is published (status.settings, dataErrors).
	// +kubebuilder:default=130000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxRelativeErrorPPM int64 `json:"maxRelativeErrorPPM,omitempty"`
}

// RunPlan is what one node has to do in one run.
type RunPlan struct {
	// variants to compare, in order; Baseline always comes first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Variants []Variant `json:"variants"`
	// collectives to measure.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Collectives []Collective `json:"collectives"`
	// datatypes to measure.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Datatypes []Datatype `json:"datatypes"`
	// placements to measure; absent means out of place. In place is left out for collectives that have no such form.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +optional
	Placements []Placement `json:"placements,omitempty"`
	// sizesBytes are the message sizes to measure, as rccl-tests counts them (the larger of send and receive),
	// ascending. One that leaves a rank without an element is left out.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	SizesBytes []int64 `json:"sizesBytes"`
	// warmupIterations are run before each measurement and never counted.
	WarmupIterations int32 `json:"warmupIterations"`
	// iterations are measured for each size.
	Iterations int32 `json:"iterations"`
	// dda as requested.
	// +optional
	DDA DDASpec `json:"dda,omitzero"`
	// lowPrecision as requested.
	// +optional
	LowPrecision LowPrecisionSpec `json:"lowPrecision,omitzero"`
	// env are the group's own variables, the same for every variant.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// libraryPath is the communication library to load; empty: librccl.so.1 by the loader's own search.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LibraryPath string `json:"libraryPath,omitempty"`
	// initDeadlineSeconds bounds the forming of a communicator.
	InitDeadlineSeconds int32 `json:"initDeadlineSeconds"`
	// stepDeadlineSeconds bounds one measurement: one collective, datatype and size with its warm-up.
	StepDeadlineSeconds int32 `json:"stepDeadlineSeconds"`
	// runDeadlineSeconds bounds the whole run on the node, the search for a culprit included.
	RunDeadlineSeconds int32 `json:"runDeadlineSeconds"`
	// linkMinPercent is the share of the node's median pair bandwidth under which a pair of GPUs counts as slow.
	LinkMinPercent int32 `json:"linkMinPercent"`
	// thresholds that the node's measurements are held against.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Thresholds []Threshold `json:"thresholds,omitempty"`
	// references: see BenchmarkSpec.
	// +optional
	References JudgingMode `json:"references,omitempty"`
	// repeats of the node's whole plan, each in fresh processes; absent means one.
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
}

// Threshold is a least bus bandwidth for one kind of measurement. Fields that are left out match anything.
// +kubebuilder:validation:XValidation:rule="has(self.minBusBandwidthMBps) != has(self.minPercentOfReference)",message="a threshold takes exactly one of minBusBandwidthMBps and minPercentOfReference"
// +kubebuilder:validation:XValidation:rule="(has(self.span) && self.span == 'Group') || (!has(self.transport) && (!has(self.nodes) || self.nodes == 1))",message="a threshold with span Node never applies with transport or with more than one of nodes: set its span to Group, or leave them out"
// +kubebuilder:validation:XValidation:rule="!has(self.span) || self.span != 'Group' || !has(self.variant) || self.variant == 'Baseline'",message="a threshold with span Group never applies to another variant than Baseline: over several nodes only Baseline is measured"
// +kubebuilder:validation:XValidation:rule="!has(self.span) || self.span != 'Group' || !has(self.statistic) || self.statistic == 'Median'",message="a threshold with span Group never applies to another statistic than Median: over several nodes only medians are kept"
type Threshold struct {
	// span that the threshold holds for.
	// +kubebuilder:default=Node
	// +optional
	Span Span `json:"span,omitempty"`
	// variant that the threshold holds for.
	// +kubebuilder:default=Baseline
	// +optional
	Variant Variant `json:"variant,omitempty"`
	// collective that the threshold holds for.
	Collective Collective `json:"collective"`
	// datatype that the threshold holds for.
	// +kubebuilder:default=BFloat16
	// +optional
	Datatype Datatype `json:"datatype,omitempty"`
	// sizeBytes of the message; it must be one of the measured sizes, else the threshold is Inconclusive.
	// +kubebuilder:validation:Minimum=1
	SizeBytes int64 `json:"sizeBytes"`
	// placement of the result.
	// +kubebuilder:default=OutOfPlace
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// statistic over the repeats.
	// +kubebuilder:default=Median
	// +optional
	Statistic Statistic `json:"statistic,omitempty"`
	// model of the GPUs, for example MI300X.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'[\\p{C}\\p{Zl}\\p{Zp}]')",message="a threshold's model must not carry control or invisible characters: write it as `kubectl commgroup results` shows it"
	// +optional
	Model string `json:"model,omitempty"`
	// partition mode of the GPUs, for example SPX/NPS1, or one half of it, for example CPX.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'[\\p{C}\\p{Zl}\\p{Zp}]')",message="a threshold's partition must not carry control or invisible characters: write it as `kubectl commgroup results` shows it"
	// +optional
	Partition string `json:"partition,omitempty"`
	// ranks of the communicator.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Ranks *int32 `json:"ranks,omitempty"`
	// nodes of the communicator.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// transport between the nodes: RDMA or TCP.
	// +kubebuilder:validation:Enum=RDMA;TCP
	// +optional
	Transport string `json:"transport,omitempty"`
	// flavor of the library, as in library.flavor.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'[\\p{C}\\p{Zl}\\p{Zp}]')",message="a threshold's flavor must not carry control or invisible characters: write it as `kubectl commgroup results` shows it"
	// +optional
	Flavor string `json:"flavor,omitempty"`
	// minBusBandwidthMBps is the least bus bandwidth that passes, in 10^6 bytes per second.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MinBusBandwidthMBps *int64 `json:"minBusBandwidthMBps,omitempty"`
	// minPercentOfReference is the least share of the built-in reference for exactly this kind of measurement.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	// +optional
	MinPercentOfReference *int32 `json:"minPercentOfReference,omitempty"`
}

// UsableState says whether a job can use the results of a setting.
// +kubebuilder:validation:Enum=Usable;NotUsable;Unknown
type UsableState string

// The usable states. Unknown: not all of the data was checked.
const (
	ResultsUsable    UsableState = "Usable"
	ResultsNotUsable UsableState = "NotUsable"
	ResultsUnknown   UsableState = "Unknown"
)

// SettingStatus says of one setting what was requested, what the library's gates allow, and what the A/B run shows:
// whether it takes effect (verified), and whether its results are usable (usable).
type SettingStatus struct {
	// name of the setting, for example dda.AllReduce, lowPrecision.AllGather or env.RCCL_DDA_ENABLE.
	// +kubebuilder:validation:MaxLength=160
	Name string `json:"name"`
	// requested is the value in the spec.
	// +kubebuilder:validation:MaxLength=256
	Requested string `json:"requested"`
	// effective is what the gates of this library build allow for this group's ranks, nodes, datatypes and sizes.
	Effective EffectiveState `json:"effective"`
	// reason for the effective state, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// minBytes and maxBytes bound the message sizes for which the setting is in effect; absent where it is in effect
	// for none.
	// +optional
	MinBytes *int64 `json:"minBytes,omitempty"`
	// maxBytes: see minBytes; absent also where there is no upper bound.
	// +optional
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	// verified says whether the measurement shows that the setting takes effect: DDA by a gain, FP8 by its rounding. It
	// says nothing of whether the results are usable.
	Verified VerifiedState `json:"verified"`
	// usable says whether a job can use the results. NotUsable: with some of the tested data, elements were wrong,
	// values became NaN or infinite or were clipped, or the mean relative error was over 6.25 % (2^-4); warnings say
	// which. Unknown: not all of the data was checked. Absent where the setting is not in effect, for single variables,
	// and in reports of earlier releases.
	// +optional
	Usable UsableState `json:"usable,omitempty"`
	// warnings of what the setting does to data where it is in effect, one CamelCase word each: WrongData, TailHazard,
	// Overflow, Underflow.
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Warnings []string `json:"warnings,omitempty"`
	// cause of the effective state in half a sentence, by the library's gates; absent where the setting is in effect
	// for all that was asked about.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Cause string `json:"cause,omitempty"`
	// evidence is what the measurement shows of the setting, of the node that message names; absent where nothing was
	// compared with Baseline.
	// +optional
	Evidence *SettingEvidence `json:"evidence,omitempty"`
	// message says in one sentence what was seen and what to do. A CommTask has none: it follows from the fields above
	// and from dataErrors.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// SettingEvidence is what the A/B measurement shows of a setting: its best size beside Baseline, and what its data
// checks found.
type SettingEvidence struct {
	// comparedSizes were measured in both Baseline and the variant, over all datatypes and placements.
	ComparedSizes int32 `json:"comparedSizes"`
	// datatype, placement and sizeBytes of the best of them: the largest gain in latency.
	Datatype Datatype `json:"datatype"`
	// placement of the results; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// sizeBytes of the message.
	SizeBytes int64 `json:"sizeBytes"`
	// baselineNanoseconds is Baseline's latency there.
	BaselineNanoseconds int64 `json:"baselineNanoseconds"`
	// latencyNanoseconds with the setting.
	LatencyNanoseconds int64 `json:"latencyNanoseconds"`
	// maxErrorPPM is the largest relative error of rounded values, in parts per million, for FP8; absent where no
	// element was checked for rounding.
	// +optional
	MaxErrorPPM *int64 `json:"maxErrorPPM,omitempty"`
	// wrongElements that nothing explains.
	// +optional
	WrongElements int64 `json:"wrongElements,omitempty"`
	// tailElements are wrong at counts that are no multiple of tailMultipleElements: a hazard of the library's code.
	// +optional
	TailElements int64 `json:"tailElements,omitempty"`
	// tailMultipleElements: see tailElements.
	// +optional
	TailMultipleElements int64 `json:"tailMultipleElements,omitempty"`
	// uncheckedData are the kinds of data (Exact, Rounding, Gradients, Activations) that were not checked at every
	// size.
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=32
	// +optional
	UncheckedData []string `json:"uncheckedData,omitempty"`
}

// DataErrors are how far results lie from an fp32 reference with one kind of random data; its lists run parallel, one
// entry for each collective and size. For FP8 the sizes are the smallest measured one at which it is in effect and the
// largest.
type DataErrors struct {
	Variant  Variant  `json:"variant"`
	Datatype Datatype `json:"datatype"`
	// placement of the results; absent means out of place.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// data that the calls were made with.
	Data DataKind `json:"data"`
	// collectives, one for each entry.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Collectives []Collective `json:"collectives"`
	// sizeBytes of the messages.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	SizeBytes []int64 `json:"sizeBytes"`
	// maxErrorPPM is the largest deviation over the largest magnitude of the reference, in parts per million, the worst
	// rank's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MaxErrorPPM []int64 `json:"maxErrorPPM"`
	// meanErrorPPM is the mean deviation over the mean magnitude of the reference, in parts per million, the worst
	// rank's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MeanErrorPPM []int64 `json:"meanErrorPPM"`
	// checkedElements over all ranks.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	CheckedElements []int64 `json:"checkedElements"`
	// nanElements became NaN over all ranks, where the reference is a number; absent where none did anywhere in the
	// list.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	NaNElements []int64 `json:"nanElements,omitempty"`
	// overflowElements became infinite or were clipped to the format's largest value, over all ranks; absent where none
	// did.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	OverflowElements []int64 `json:"overflowElements,omitempty"`
}

// Step is one measurement: a collective at one size.
type Step struct {
	// variant that was measured; absent where it is Baseline.
	// +optional
	Variant Variant `json:"variant,omitempty"`
	// collective that was measured.
	Collective Collective `json:"collective"`
	// datatype of its elements.
	Datatype Datatype `json:"datatype"`
	// placement of the result; absent where it is OutOfPlace.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// sizeBytes by rccl-tests' definition: the larger of send and receive buffer.
	SizeBytes int64 `json:"sizeBytes"`
}

// String names the step for messages, for example "AllReduce BFloat16 65536 B in place". Nothing reads it.
func (s Step) String() string {
	text := fmt.Sprintf("%s %s %d B", s.Collective, s.Datatype, s.SizeBytes)
	if s.Variant != "" {
		text = string(s.Variant) + " " + text
	}
	if s.Placement == InPlace {
		text += " in place"
	}
	return text
}

// Culprit names what is to blame for a verdict.
type Culprit struct {
	// node that the culprit is on; empty for what is no single node's: a pair of nodes, or a communicator.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// pair are both nodes, for kind Pair.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Pair []string `json:"pair,omitempty"`
	// kind of culprit.
	// +kubebuilder:validation:Enum=Node;GPU;Link;Rank;Pair;NIC
	Kind string `json:"kind"`
	// name of the culprit: a PCI address, two of them joined by <-> for a link, a node's name, two of them
	// joined by <-> for a pair of nodes, a NIC, or "rank N".
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// reason, one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

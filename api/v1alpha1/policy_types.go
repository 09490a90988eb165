package v1alpha1

// RunState switches runs on and off.
// +kubebuilder:validation:Enum=Active;Suspended
type RunState string

// The run states.
const (
	RunActive    RunState = "Active"
	RunSuspended RunState = "Suspended"
)

// NodeUse says on which nodes a run may start.
// +kubebuilder:validation:Enum=Idle;Any
type NodeUse string

// The node uses.
const (
	NodeUseIdle NodeUse = "Idle"
	NodeUseAny  NodeUse = "Any"
)

// HistoryLimits bound how many CommRuns are kept, the newest of each kind.
type HistoryLimits struct {
	// passed runs that are kept.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	// +optional
	Passed int32 `json:"passed,omitempty"`
	// failed runs that are kept: all that ended without the verdict Pass.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// RunPolicySpec says when runs happen and how long they may take. A run happens when the members or what it would
// measure change (runtime, ranks, settings, benchmark, deadlines; not publish, gating or the schedule), on the
// schedule, and when a CommRun asks for one.
type RunPolicySpec struct {
	// state: Suspended ends a run that is going on, frees its GPUs and starts no other.
	// +kubebuilder:default=Active
	// +optional
	State RunState `json:"state,omitempty"`
	// schedule is a cron line of five fields (minute hour day month weekday, UTC) for further runs; empty means none. A
	// line that is new or changed starts no run before its next time.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$') || self.matches('^([*]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[0-9]+)?(,([*]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[0-9]+)?)* +([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[0-9]+)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[0-9]+)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[0-9]+)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[0-9]+)?)* +([*]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[0-9]+)?(,([*]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[0-9]+)?)* +([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[0-9]+)?(,([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[0-9]+)?)*$')",message="run.schedule is not a cron line: write five fields (minute hour day-of-month month day-of-week), for example '0 3 * * *', or one of @hourly, @daily, @weekly, @monthly; Sunday is 0 or SUN, not 7"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^ ]+ +[^ ]+ +((30|31|30,31|31,30) +(0?2|(?i:FEB))|31 +(0?[2469]|11|(?i:FEB|APR|JUN|SEP|NOV))(,(0?[2469]|11|(?i:FEB|APR|JUN|SEP|NOV)))*) +[*?]$')",message="run.schedule never comes: none of its months has such a day; correct the day or the month, for example '0 3 28 2 *'"
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// jitterSeconds delays each scheduled run by up to this much, by a share that is fixed for the group and the time,
	// so that groups with one schedule do not start at once.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	JitterSeconds int32 `json:"jitterSeconds,omitempty"`
	// nodes: Idle starts a run on a node only while no other pod there holds GPUs; Any where enough GPUs are free.
	// +kubebuilder:default=Idle
	// +optional
	Nodes NodeUse `json:"nodes,omitempty"`
	// maxGPUMinutesPerDay bounds what runs of this group hold of GPUs in a day (UTC); a run that would go past it waits
	// for the next day. Zero means no bound.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	MaxGPUMinutesPerDay int64 `json:"maxGPUMinutesPerDay,omitempty"`
	// queueName is the Kueue LocalQueue that run pods are queued in.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	QueueName string `json:"queueName,omitempty"`
	// membersDeadlineSeconds bounds the wait of a run of span Group for its members' pods; past it the group goes on
	// with those that are there, where they are at least members.minMembers.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MembersDeadlineSeconds int32 `json:"membersDeadlineSeconds,omitempty"`
	// maxParallelNodes is the most nodes that run alone at once. The group's stage, with span Group, needs all its
	// members.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	// +optional
	MaxParallelNodes int32 `json:"maxParallelNodes,omitempty"`
	// startDeadlineSeconds bounds the time from a run pod's creation to its start; past it the node is Skipped (GPUs
	// busy) or Error (image, node).
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=86400
	// +optional
	StartDeadlineSeconds int32 `json:"startDeadlineSeconds,omitempty"`
	// nodeDeadlineSeconds bounds a run on one node, from its start to its report.
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	// +optional
	NodeDeadlineSeconds int32 `json:"nodeDeadlineSeconds,omitempty"`
	// initDeadlineSeconds bounds the forming of one communicator.
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	InitDeadlineSeconds int32 `json:"initDeadlineSeconds,omitempty"`
	// stepDeadlineSeconds bounds one measurement: one collective, datatype and size with its warm-up.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	StepDeadlineSeconds int32 `json:"stepDeadlineSeconds,omitempty"`
}

// GatingMode says what a failed verdict does to a node.
// +kubebuilder:validation:Enum=Off;DryRun;Enforce
type GatingMode string

// The gating modes. DryRun only reports which nodes would be gated.
const (
	GatingOff     GatingMode = "Off"
	GatingDryRun  GatingMode = "DryRun"
	GatingEnforce GatingMode = "Enforce"
)

// GatingAction is how a node is marked.
// +kubebuilder:validation:Enum=Condition;Label;Taint
type GatingAction string

// The gating actions. Taint has the effect NoSchedule: pods that run are never touched.
const (
	GatingCondition GatingAction = "Condition"
	GatingLabel     GatingAction = "Label"
	GatingTaint     GatingAction = "Taint"
)

// GatingSpec says what a failed verdict does to a node. Marks are lifted when the node passes again, is replaced, is no
// longer a member, or the group is deleted. Only namespaces that the operator's configuration allows may mark nodes;
// elsewhere Enforce works as DryRun. docs/gating.md has what happens when.
type GatingSpec struct {
	// mode: Off, DryRun to report in the status which nodes would be gated, or Enforce.
	// +kubebuilder:default=Off
	// +optional
	Mode GatingMode `json:"mode,omitempty"`
	// actions that mark a node: the conditions CommValidated and CommProblem, the label rcclx.io/comm-validated, or the
	// taint rcclx.io/comm-failed.
	// +listType=set
	// +kubebuilder:default={Condition}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Actions []GatingAction `json:"actions,omitempty"`
	// maxPercent of the members that may be gated at once: where more fail, the cause is probably shared, and no
	// further node is gated until a run ends in which no more fail. While a run goes on, the share is of those measured
	// so far (of 20 at least). One node may always be gated.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxPercent *int32 `json:"maxPercent,omitempty"`
	// simulated: Allow lets results that come from the simulator mark nodes; Forbid treats them as mode DryRun does.
	// +kubebuilder:default=Forbid
	// +optional
	Simulated SimulatedPolicy `json:"simulated,omitempty"`
}

// PublishMode says when settings are published.
// +kubebuilder:validation:Enum=Off;WhenProven
type PublishMode string

// The publish modes.
const (
	PublishOff        PublishMode = "Off"
	PublishWhenProven PublishMode = "WhenProven"
)

// SimulatedPolicy says whether what only the simulator showed may have effects: published settings, marked nodes.
// +kubebuilder:validation:Enum=Forbid;Allow
type SimulatedPolicy string

// The policies for simulated results.
const (
	SimulatedForbid SimulatedPolicy = "Forbid"
	SimulatedAllow  SimulatedPolicy = "Allow"
)

// JobCounts says what is known of the element counts in the jobs that take the published settings.
// +kubebuilder:validation:Enum=Any;Padded
type JobCounts string

// The job counts.
const (
	JobCountsAny    JobCounts = "Any"
	JobCountsPadded JobCounts = "Padded"
)

// AcceptedLoss is a loss of FP8 that the owner of the jobs accepts.
// +kubebuilder:validation:Enum=Overflow;Underflow
type AcceptedLoss string

// The losses that can be accepted; TailHazard is accepted by jobCounts.
const (
	AcceptOverflow  AcceptedLoss = WarningOverflow
	AcceptUnderflow AcceptedLoss = WarningUnderflow
)

// PublishSpec says where proven settings go: a ConfigMap with the variables (envFrom) and rccl.conf.
type PublishSpec struct {
	// mode: WhenProven publishes after a run that passed on every member; Off publishes nothing.
	// +kubebuilder:default=WhenProven
	// +optional
	Mode PublishMode `json:"mode,omitempty"`
	// choice: WhereWorthIt publishes what is proven, usable and not slower, with the thresholds that the numbers
	// recommend; AsRequested publishes what is proven and usable as the spec has it.
	// +kubebuilder:default=WhereWorthIt
	// +optional
	Choice PublishChoice `json:"choice,omitempty"`
	// configMapName in the CommGroup's namespace; empty means the group's name with -rccl-settings behind it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="publish.configMapName is no name that a ConfigMap can have: use lower-case letters, digits, dashes and dots, with a letter or digit at both ends of each part between dots"
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`
	// jobCounts: Any leaves FP8 out of the published settings for the collectives whose results were wrong at counts
	// that FP8 does not divide evenly (warning TailHazard). Padded publishes it for them all the same: it asserts that
	// every job pads its AllReduce counts to multiples of 128 x ranks and its ReduceScatter counts to multiples of 128
	// elements.
	// +kubebuilder:default=Any
	// +optional
	JobCounts JobCounts `json:"jobCounts,omitempty"`
	// acceptedLosses publishes FP8 although it loses data of the jobs. Overflow: values over 240 (gfx942) or 448
	// (gfx950), as activations have them, become NaN or are clipped. Underflow: values under 2^-10 become zero, as most
	// of a model's gradients are, so that the mean relative error is over 6.25 %. Without it FP8 is off for the
	// collectives that carry these warnings.
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +optional
	AcceptedLosses []AcceptedLoss `json:"acceptedLosses,omitempty"`
	// simulated: Allow publishes settings that only the simulator proved, marked as such.
	// +kubebuilder:default=Forbid
	// +optional
	Simulated SimulatedPolicy `json:"simulated,omitempty"`
}

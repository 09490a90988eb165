package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CommGroup is a group of GPU nodes that shall form RCCLX communicators with chosen settings. The controller runs the
// communicators, measures them with and without the settings, and says which are really in effect.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cg,categories=rocm
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.status.members.summary`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.run.verdict`
// +kubebuilder:printcolumn:name="Effective",type=string,JSONPath=`.status.effective`
// +kubebuilder:printcolumn:name="BusBW(MB/s)",type=integer,JSONPath=`.status.headline.busBandwidthMBps`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=`.status.origin`
// +kubebuilder:printcolumn:name="Last Run",type=date,JSONPath=`.status.run.finishTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Culprit",type=string,priority=1,JSONPath=`.status.culprits[0].name`
// +kubebuilder:printcolumn:name="Run",type=string,priority=1,JSONPath=`.status.run.id`
type CommGroup struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what a person asks for.
	// +required
	Spec CommGroupSpec `json:"spec"`
	// status is what the controller sees; only the controller writes it.
	// +optional
	Status CommGroupStatus `json:"status,omitzero"`
}

// CommGroupList is a list of CommGroups.
// +kubebuilder:object:root=true
type CommGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommGroup `json:"items"`
}

// CommGroupSpec is what a person asks for.
// +kubebuilder:validation:XValidation:rule="!has(self.mesh) || size(self.mesh) == 0 || (has(self.span) && self.span == 'Group')",message="mesh needs span Group: its communicators reach over several members"
// +kubebuilder:validation:XValidation:rule="!has(self.dda) || self.dda.mode != 'Required' || self.ranksPerNode == 8",message="DDA works only with exactly 8 ranks in one communicator: set ranksPerNode to 8, or dda.mode to Preferred or Disabled"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.network.portRange) || !has(self.span) || self.span != 'Group' || self.network.portRange.last - self.network.portRange.first + 1 >= 16 * self.ranksPerNode",message="network.portRange has fewer than 16 ports for each rank of a node (16 x ranksPerNode): make it larger, for example 30000-31023"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.network.rdmaResources) || self.network.rdmaResources.all(r, r.name != 'amd.com/gpu' && (!has(self.runtime) || !has(self.runtime.pod) || !has(self.runtime.pod.gpuResourceName) || r.name != self.runtime.pod.gpuResourceName))",message="network.rdmaResources must not name the GPUs' own resource: ranksPerNode says how many GPUs a run pod takes"
type CommGroupSpec struct {
	// members chooses the nodes.
	// +required
	Members MembersSpec `json:"members"`
	// ranksPerNode is the number of GPUs, and so of rank processes, that each member gives to a run.
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	RanksPerNode int32 `json:"ranksPerNode,omitempty"`
	// span of the communicators: Node is one communicator a member; Group adds one over all members that passed alone.
	// +kubebuilder:default=Node
	// +optional
	Span Span `json:"span,omitempty"`
	// mesh is the device mesh of the jobs, the slowest-changing dimension first, for example dp 16 and tp 8: the
	// communicators of each dimension are formed and measured. The product of the sizes is members x ranksPerNode.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Mesh []MeshDimension `json:"mesh,omitempty"`
	// network says how ranks of different nodes meet.
	// +kubebuilder:default={}
	// +optional
	Network NetworkSpec `json:"network,omitzero"`
	// localization bounds the search for the culprit of a bad step over several nodes.
	// +kubebuilder:default={}
	// +optional
	Localization LocalizationSpec `json:"localization,omitzero"`
	// runtime says in what image and with what library the ranks run.
	// +kubebuilder:default={}
	// +optional
	Runtime RuntimeSpec `json:"runtime,omitzero"`
	// dda chooses direct data access.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule="!has(self.allReduceFlatMaxBytes) || !has(self.allReduceTreeMaxBytes) || self.allReduceFlatMaxBytes <= self.allReduceTreeMaxBytes",message="dda.allReduceFlatMaxBytes must not be larger than dda.allReduceTreeMaxBytes: the flat path serves the small messages"
	// +optional
	DDA DDASpec `json:"dda,omitzero"`
	// lowPrecision chooses FP8 transport.
	// +kubebuilder:default={}
	// +optional
	LowPrecision LowPrecisionSpec `json:"lowPrecision,omitzero"`
	// benchmark says what a run measures.
	// +kubebuilder:default={}
	// +optional
	Benchmark BenchmarkSpec `json:"benchmark,omitzero"`
	// run says when runs happen and how long they may take.
	// +kubebuilder:default={}
	// +optional
	Run RunPolicySpec `json:"run,omitzero"`
	// health says how the monitors watch the nodes between runs.
	// +kubebuilder:default={}
	// +optional
	Health HealthSpec `json:"health,omitzero"`
	// gating says what a failed verdict does to a node.
	// +kubebuilder:default={}
	// +optional
	Gating GatingSpec `json:"gating,omitzero"`
	// publish says where proven settings go.
	// +kubebuilder:default={}
	// +optional
	Publish PublishSpec `json:"publish,omitzero"`
}

// MembersSpec chooses nodes: those that nodeSelector matches, plus nodeNames, less exclude.
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) || (has(self.nodeNames) && size(self.nodeNames) > 0)",message="members chooses no node: set members.nodeSelector or list members.nodeNames"
// +kubebuilder:validation:XValidation:rule="!has(self.minMembers) || !has(self.maxMembers) || self.minMembers <= self.maxMembers",message="members.minMembers must not be larger than members.maxMembers"
type MembersSpec struct {
	// nodeSelector matches nodes by their labels. An empty selector matches every node.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// nodeNames are nodes named one by one.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	NodeNames []string `json:"nodeNames,omitempty"`
	// exclude are nodes left out although they match.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Exclude []string `json:"exclude,omitempty"`
	// minMembers is the least number of nodes for the group to be accepted, and the least that reports before a run of all
	// starts. With span Group it is also the least (and never below 2) that the group's stage goes on with when members do not
	// pass alone, are not ready in time, or are lost: with the default of 1 a group of 16 goes on with 2.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	// +optional
	MinMembers int32 `json:"minMembers,omitempty"`
	// maxMembers is the most nodes that are taken, in rank order; absent means no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	// +optional
	MaxMembers *int32 `json:"maxMembers,omitempty"`
}

// RuntimeSpec says in what image and with what library the ranks run.
type RuntimeSpec struct {
	// image holds the ROCm user space and the library under test; it needs glibc, but no agent: that is copied in.
	// Empty means the operator's default runtime image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
	// imagePullPolicy of the run pods.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// imagePullSecrets of the run pods, in the CommGroup's namespace.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// libraryPath is the communication library in the image; empty: librccl.so.1 by the loader's own search.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.startsWith('/')",message="runtime.libraryPath must be an absolute path in the runtime image, or empty for the loader's own search"
	// +optional
	LibraryPath string `json:"libraryPath,omitempty"`
	// env are variables for the rank processes: NCCL_*, RCCL_*, HSA_* and HIP_* only.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.name.matches('^(NCCL|RCCL|HSA|HIP)_[A-Z0-9_]+$'))",message="runtime.env takes only variables named NCCL_*, RCCL_*, HSA_* or HIP_*: put anything else into the runtime image"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.contains('LD_PRELOAD') && (!has(e.value) || !e.value.contains('LD_PRELOAD')))",message="runtime.env must not carry LD_PRELOAD: it would load code into the ranks; build it into the runtime image instead"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name in ['NCCL_CONF_FILE', 'NCCL_NET_PLUGIN', 'NCCL_TUNER_PLUGIN', 'NCCL_PROFILER_PLUGIN', 'NCCL_ENV_PLUGIN', 'NCCL_GIN_PLUGIN', 'NCCL_COMM_ID', 'HSA_TOOLS_LIB', 'HSA_HOSTCALL_LIB']))",message="runtime.env must not name a file or library to load or the rendezvous (NCCL_CONF_FILE, NCCL_COMM_ID, *_PLUGIN, HSA_TOOLS_LIB): build plugins into the runtime image"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.matches('^RCCL_(ENABLE_DDA_|LOW_PRECISION_ENABLE|DDA_NRANKS$|DDA_ALL_REDUCE_(FLAT|TREE)_MAX_BYTES$)'))",message="runtime.env must not set what the operator sets: use spec.dda and spec.lowPrecision instead"
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// pod overrides parts of the run pods.
	// +kubebuilder:default={}
	// +optional
	Pod PodOverrides `json:"pod,omitzero"`
}

// PodOverrides are the parts of run pods that a person may change; none can raise a pod's privileges.
type PodOverrides struct {
	// labels added to the run pods, for example kueue.x-k8s.io/queue-name.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations added to the run pods.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// tolerations of the run pods; monitors tolerate every taint.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// priorityClassName of the run pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// gpuResourceName is the extended resource to ask for.
	// +kubebuilder:default="amd.com/gpu"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+/[a-zA-Z0-9._-]+$`
	// +optional
	GPUResourceName string `json:"gpuResourceName,omitempty"`
	// shmSizeMiB is the size of the memory-backed /dev/shm, counted against the pod's memory.
	// +kubebuilder:default=4096
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=1048576
	// +optional
	ShmSizeMiB int32 `json:"shmSizeMiB,omitempty"`
	// resources beside the GPUs.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// BenchmarkSpec says what a run measures.
// +kubebuilder:validation:XValidation:rule="!has(self.sizeFactor) || !has(self.sizeStepBytes)",message="benchmark.sizeFactor and benchmark.sizeStepBytes exclude each other: a size grows by a factor or by a step, so remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.sizeStepBytes) || !has(self.minSizeBytes) || !has(self.maxSizeBytes) || (self.maxSizeBytes - self.minSizeBytes) / self.sizeStepBytes < 40",message="benchmark.sizeStepBytes gives more than 40 sizes between minSizeBytes and maxSizeBytes: raise it, or bring the two closer together"
// +kubebuilder:validation:XValidation:rule="!has(self.placements) || !has(self.collectives) || 'OutOfPlace' in self.placements || self.collectives.exists(c, !(c in ['AllToAll', 'AllToAllv', 'SendRecv']))",message="nothing would be measured: benchmark.placements is InPlace alone, and AllToAll, AllToAllv and SendRecv have no in-place form; add OutOfPlace or another collective"
// +kubebuilder:validation:XValidation:rule="!has(self.collectives) || !has(self.datatypes) || !has(self.placements) || size(self.collectives) * size(self.datatypes) * size(self.placements) <= 24",message="benchmark asks for more than 24 combinations of collective, datatype and placement, more than one CommNode can hold results of: measure fewer in one run"
// +kubebuilder:validation:XValidation:rule="!has(self.minSizeBytes) || !has(self.maxSizeBytes) || self.minSizeBytes <= self.maxSizeBytes",message="benchmark.minSizeBytes must not be larger than benchmark.maxSizeBytes: swap them or set only one"
type BenchmarkSpec struct {
	// variants to compare. Baseline is always run, first. Variants whose setting is Disabled are left out.
	// +listType=set
	// +kubebuilder:default={Baseline,DDA,LowPrecision}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Variants []Variant `json:"variants,omitempty"`
	// collectives to measure.
	// +listType=set
	// +kubebuilder:default={AllReduce,AllGather,ReduceScatter,AllToAll}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Collectives []Collective `json:"collectives,omitempty"`
	// datatypes to measure.
	// +listType=set
	// +kubebuilder:default={BFloat16}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Datatypes []Datatype `json:"datatypes,omitempty"`
	// placements of the results. InPlace is left out for AllToAll, AllToAllv and SendRecv, which have no such form.
	// +listType=set
	// +kubebuilder:default={OutOfPlace}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +optional
	Placements []Placement `json:"placements,omitempty"`
	// minSizeBytes is the smallest message, as rccl-tests counts it. A size that leaves a rank without an element (8 B of
	// BFloat16 in an AllGather over 8 ranks) is left out for that collective.
	// +kubebuilder:default=1024
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=17179869184
	// +optional
	MinSizeBytes int64 `json:"minSizeBytes,omitempty"`
	// maxSizeBytes is the largest message.
	// +kubebuilder:default=67108864
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=17179869184
	// +optional
	MaxSizeBytes int64 `json:"maxSizeBytes,omitempty"`
	// sizeFactor multiplies one size to the next; 4 where neither it nor sizeStepBytes is set.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1024
	// +optional
	SizeFactor int32 `json:"sizeFactor,omitempty"`
	// sizeStepBytes is added to one size to give the next, instead of sizeFactor.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=17179869184
	// +optional
	SizeStepBytes int64 `json:"sizeStepBytes,omitempty"`
	// warmupIterations are run before each measurement and never counted.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	WarmupIterations *int32 `json:"warmupIterations,omitempty"`
	// iterations are measured for each size; the statistic is the median.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Iterations int32 `json:"iterations,omitempty"`
	// thresholds that fail a node which stays under them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Thresholds []Threshold `json:"thresholds,omitempty"`
	// references: Enforce fails a measurement that stays under a built-in reference of exactly its kind (collective, datatype,
	// size, placement, model, partition, ranks, transport); Report only shows the percentage.
	// +kubebuilder:default=Enforce
	// +optional
	References JudgingMode `json:"references,omitempty"`
	// regression holds a run against the group's own baseline.
	// +kubebuilder:default={}
	// +optional
	Regression RegressionSpec `json:"regression,omitzero"`
	// repeats measures each node alone this many times, each in fresh processes. Verdicts rest on the median of all of them:
	// one good repeat among bad ones passes nothing. It holds for the nodes' own measurements; over several nodes (span Group)
	// each communicator is measured once, by the median of its iterations.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// nodeMinPercentOfMedian fails a node whose bus bandwidth at the largest size is below this share of the members' median.
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	NodeMinPercentOfMedian *int32 `json:"nodeMinPercentOfMedian,omitempty"`
	// linkMinPercent fails a pair of GPUs whose bandwidth is below this share of their node's median pair.
	// +kubebuilder:default=70
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	LinkMinPercent *int32 `json:"linkMinPercent,omitempty"`
}

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

// RunPolicySpec says when runs happen and how long they may take. A run happens when the members or what it would measure
// change (runtime, ranks, settings, benchmark, deadlines; not publish, gating, health or the schedule), on the schedule, and
// when the annotation rcclx.io/run-requested changes.
type RunPolicySpec struct {
	// state: Suspended ends a run that is going on, frees its GPUs and starts no other.
	// +kubebuilder:default=Active
	// +optional
	State RunState `json:"state,omitempty"`
	// schedule is a cron line of five fields (minute hour day month weekday, UTC) for further runs; empty means none.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$') || self.matches('^([*]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[0-9]+)?(,([*]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[0-9]+)?)* +([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[0-9]+)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[0-9]+)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[0-9]+)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[0-9]+)?)* +([*]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[0-9]+)?(,([*]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[0-9]+)?)* +([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[0-9]+)?(,([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[0-9]+)?)*$')",message="run.schedule is not a cron line: write five fields (minute hour day-of-month month day-of-week), for example '0 3 * * *', or one of @hourly, @daily, @weekly, @monthly; Sunday is 0 or SUN, not 7"
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// jitterSeconds delays each scheduled run by up to this much, by a share that is fixed for the group and the time, so that
	// groups with one schedule do not start at once.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	JitterSeconds int32 `json:"jitterSeconds,omitempty"`
	// nodes: Idle starts a run on a node only while no other pod there holds GPUs; Any where enough GPUs are free.
	// +kubebuilder:default=Idle
	// +optional
	Nodes NodeUse `json:"nodes,omitempty"`
	// maxGPUMinutesPerDay bounds what runs of this group hold of GPUs in a day (UTC); a run that would go past it waits for
	// the next day. Zero means no bound.
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
	// membersDeadlineSeconds bounds the wait of a run of span Group for its members' pods; past it the group goes on with
	// those that are there, where they are at least members.minMembers.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MembersDeadlineSeconds int32 `json:"membersDeadlineSeconds,omitempty"`
	// maxParallelNodes is the most nodes that run alone at once. The group's stage, with span Group, needs all its members.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	// +optional
	MaxParallelNodes int32 `json:"maxParallelNodes,omitempty"`
	// startDeadlineSeconds bounds the time from a run pod's creation to its start; past it the node is Skipped (GPUs busy)
	// or Error (image, node).
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

// HealthSpec says how the monitors watch the nodes between runs.
type HealthSpec struct {
	// intervalSeconds between two looks at a node's sysfs. Nothing is written when nothing changed.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// reportValidSeconds is how long a report holds; monitors repeat theirs at half of it, past it a node counts as Unknown.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	// +optional
	ReportValidSeconds int32 `json:"reportValidSeconds,omitempty"`
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
	// actions that mark a node: the condition CommValidated, the label rcclx.io/comm-validated, or the taint
	// rcclx.io/comm-failed.
	// +listType=set
	// +kubebuilder:default={Condition}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Actions []GatingAction `json:"actions,omitempty"`
	// maxPercent of the members that may be gated at once: where more fail, the cause is probably shared, and no further node
	// is gated until the share falls again. One node may always be gated.
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

// PublishSpec says where proven settings go: a ConfigMap with the variables (envFrom) and rccl.conf.
type PublishSpec struct {
	// mode: WhenProven publishes after a run that passed on every member; Off publishes nothing.
	// +kubebuilder:default=WhenProven
	// +optional
	Mode PublishMode `json:"mode,omitempty"`
	// choice: WhereWorthIt publishes what is proven and not slower, with the thresholds that the numbers recommend;
	// AsRequested publishes what is proven as the spec has it.
	// +kubebuilder:default=WhereWorthIt
	// +optional
	Choice PublishChoice `json:"choice,omitempty"`
	// configMapName in the CommGroup's namespace; empty means the group's name with -rccl-settings behind it.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="publish.configMapName is no name that a ConfigMap can have: use lower-case letters, digits, dashes and dots, with a letter or digit at both ends of each part between dots"
	// +optional
	ConfigMapName string `json:"configMapName,omitempty"`
	// jobCounts: Any leaves FP8 out of the published settings for the collectives whose results were wrong at counts that
	// FP8 does not divide evenly (warning TailHazard). Padded publishes it for them all the same: it asserts that every job
	// pads its AllReduce counts to multiples of 128 x ranks and its ReduceScatter counts to multiples of 128 elements.
	// +kubebuilder:default=Any
	// +optional
	JobCounts JobCounts `json:"jobCounts,omitempty"`
	// simulated: Allow publishes settings that only the simulator proved, marked as such.
	// +kubebuilder:default=Forbid
	// +optional
	Simulated SimulatedPolicy `json:"simulated,omitempty"`
}

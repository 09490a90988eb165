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
// +kubebuilder:printcolumn:name="GroupBW(MB/s)",type=integer,JSONPath=`.status.headline.groupBusBandwidthMBps`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=`.status.origin`
// +kubebuilder:printcolumn:name="Last Run",type=date,JSONPath=`.status.run.finishTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Culprit",type=string,priority=1,JSONPath=`.status.culprits[0].name`
// +kubebuilder:printcolumn:name="Culprit On",type=string,priority=1,JSONPath=`.status.culprits[0].node`
// +kubebuilder:printcolumn:name="Culprit Run",type=string,priority=1,JSONPath=`.status.culpritsRunID`
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
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.network.portRange) || !has(self.span) || self.span != 'Group' || self.network.portRange.last - self.network.portRange.first + 1 >= 16 * self.ranksPerNode",message="network.portRange has fewer than 16 ports for each rank of a node (16 x ranksPerNode): make it larger, for example 20000-21023"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.network.rdmaResources) || self.network.rdmaResources.all(r, r.name != 'amd.com/gpu' && (!has(self.runtime) || !has(self.runtime.pod) || !has(self.runtime.pod.gpuResourceName) || r.name != self.runtime.pod.gpuResourceName))",message="network.rdmaResources must not name the GPUs' own resource: ranksPerNode says how many GPUs a run pod takes"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.runtime) || !has(self.runtime.env) || self.runtime.env.all(e, !((e.name == 'NCCL_SOCKET_IFNAME' && has(self.network.interface)) || (e.name == 'NCCL_SOCKET_FAMILY' && has(self.network.addressFamily) && self.network.addressFamily != 'Auto') || (e.name == 'NCCL_IB_HCA' && has(self.network.hcas) && size(self.network.hcas) > 0) || (e.name == 'NCCL_IB_GID_INDEX' && has(self.network.gidIndex))))",message="runtime.env must not set NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY, NCCL_IB_HCA or NCCL_IB_GID_INDEX beside the field of spec.network that sets it: remove the variable or the field"
// +kubebuilder:validation:XValidation:rule="!has(self.gating) || !has(self.gating.mode) || self.gating.mode == 'Off' || !has(self.gating.actions) || !('Label' in self.gating.actions) || !has(self.members.nodeSelector) || !((has(self.members.nodeSelector.matchLabels) && 'rcclx.io/comm-validated' in self.members.nodeSelector.matchLabels) || (has(self.members.nodeSelector.matchExpressions) && self.members.nodeSelector.matchExpressions.exists(e, e.key == 'rcclx.io/comm-validated')))",message="members.nodeSelector must not go by rcclx.io/comm-validated while gating sets that label: a node that fails would leave the group, be unmarked, join it again, and so on. Use another label, or the actions Condition and Taint"
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
	// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.interface.cidr) || !isCIDR(self.interface.cidr) || !has(self.addressFamily) || self.addressFamily == 'Auto' || cidr(self.interface.cidr).ip().family() == (self.addressFamily == 'IPv6' ? 6 : 4)",message="network.interface.cidr is of the other family than network.addressFamily: give a CIDR of that family, or leave addressFamily at Auto"
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
	// historyLimits bound the CommRuns that are kept of this group.
	// +kubebuilder:default={}
	// +optional
	HistoryLimits HistoryLimits `json:"historyLimits,omitzero"`
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
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="members.nodeNames has what is no name of a Node: write each as `kubectl get nodes` shows it, without blanks or other characters"
	// +optional
	NodeNames []string `json:"nodeNames,omitempty"`
	// exclude are nodes left out although they match.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="members.exclude has what is no name of a Node: write each as `kubectl get nodes` shows it, without blanks or other characters"
	// +optional
	Exclude []string `json:"exclude,omitempty"`
	// minMembers is the least number of nodes for the group to be accepted, and the least that reports before a run of
	// all starts. With span Group it is also the least (and never below 2) that the group's stage goes on with when
	// members do not pass alone, are not ready in time, or are lost: with the default of 1 a group of 16 goes on
	// with 2.
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
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^(([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|[[][0-9A-Fa-f:]+[]])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})?$')",message="runtime.image is no image reference: write it as the registry names it, for example registry.example/rocm:7.0 or with @sha256: and the digest, without blanks, a scheme or capitals in its path"
	// +optional
	Image string `json:"image,omitempty"`
	// imagePullPolicy of the run pods.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// imagePullSecrets of the run pods, in the CommGroup's namespace.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.name) || s.name == '' || s.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="runtime.imagePullSecrets has what is no name of a Secret: write each as `kubectl get secrets` shows it"
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// libraryPath is the communication library in the image; empty: librccl.so.1 by the loader's own search.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.startsWith('/')",message="runtime.libraryPath must be an absolute path in the runtime image, or empty for the loader's own search"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'[\\p{C}\\p{Zl}\\p{Zp}]')",message="runtime.libraryPath must not carry line breaks, tabs or other control or invisible characters: write the path as `ls` shows it in the runtime image"
	// +optional
	LibraryPath string `json:"libraryPath,omitempty"`
	// env are variables for the rank processes: NCCL_*, RCCL_*, HSA_* and HIP_* only, and 4 KiB of names and
	// values together: each CommTask has a copy.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.map(e, size(e.name) + (has(e.value) ? size(bytes(e.value)) : 0)).sum() <= 4096",message="runtime.env is larger than 4096 bytes, names and values together: the CommRun has a copy of it. Put what is long into a file of the runtime image"
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.name.matches('^(NCCL|RCCL|HSA|HIP)_[A-Z0-9_]+$'))",message="runtime.env takes only variables named NCCL_*, RCCL_*, HSA_* or HIP_*: put anything else into the runtime image"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.contains('LD_PRELOAD') && (!has(e.value) || !e.value.contains('LD_PRELOAD')))",message="runtime.env must not carry LD_PRELOAD: it would load code into the ranks; build it into the runtime image instead"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.endsWith('_PLUGIN') && !(e.name in ['NCCL_CONF_FILE', 'NCCL_COMM_ID', 'HSA_TOOLS_LIB', 'HSA_HOSTCALL_LIB']))",message="runtime.env must not name a file or library to load or the rendezvous (NCCL_CONF_FILE, NCCL_COMM_ID, *_PLUGIN, HSA_TOOLS_LIB): build plugins into the runtime image"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name in ['NCCL_HOSTID', 'NCCL_RAS_ADDR', 'NCCL_DEBUG_FILE']))",message="runtime.env must not set what agents compute for each node or communicator: remove NCCL_HOSTID, NCCL_RAS_ADDR and NCCL_DEBUG_FILE"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.value) || !e.value.matches(r'[\\p{Cc}\\p{Zl}\\p{Zp}]'))",message="runtime.env must not carry line breaks, tabs or other control characters in a value: each line of the published rccl.conf is one variable"
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
	// labels added to the run pods, for example kueue.x-k8s.io/queue-name. Keys that a cluster's components act on are
	// refused.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k.startsWith('rcclx.io/') || k.startsWith('gating.rcclx.io/') || k.startsWith('k8s.v1.cni.cncf.io/') || k.startsWith('v1.multus-cni.io/') || k.startsWith('container.apparmor.security.beta.kubernetes.io/') || k.startsWith('container.seccomp.security.alpha.kubernetes.io/') || k.startsWith('seccomp.security.alpha.kubernetes.io/') || k.startsWith('io.kubernetes.') || k.startsWith('io.katacontainers.') || k.startsWith('inject.istio.io/') || k.startsWith('vault.hashicorp.com/') || k.startsWith('iam.amazonaws.com/') || k.startsWith('azure.workload.identity/')))",message="runtime.pod.labels must not carry keys of this operator, of networks, of container runtimes, of security profiles or of what injects volumes and identities: docs/security.md says what is allowed"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations added to the run pods. Keys that a cluster's components act on are refused.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k.startsWith('rcclx.io/') || k.startsWith('gating.rcclx.io/') || k.startsWith('k8s.v1.cni.cncf.io/') || k.startsWith('v1.multus-cni.io/') || k.startsWith('container.apparmor.security.beta.kubernetes.io/') || k.startsWith('container.seccomp.security.alpha.kubernetes.io/') || k.startsWith('seccomp.security.alpha.kubernetes.io/') || k.startsWith('io.kubernetes.') || k.startsWith('io.katacontainers.') || k.startsWith('inject.istio.io/') || k.startsWith('vault.hashicorp.com/') || k.startsWith('iam.amazonaws.com/') || k.startsWith('azure.workload.identity/')))",message="runtime.pod.annotations must not carry keys of this operator, of networks, of container runtimes, of security profiles or of what injects volumes and identities: docs/security.md says what is allowed"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// tolerations of the run pods; monitors tolerate every taint.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// priorityClassName of the run pods; not one of the cluster's own pods.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('system-')",message="runtime.pod.priorityClassName must not be a class of the cluster's own pods (system-*): choose one for jobs, or leave it out"
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="runtime.pod.priorityClassName is no name of a PriorityClass: write it as `kubectl get priorityclasses` shows it"
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
	// runAsUser is the user of the ranks; absent means the image's own, which is root in many ROCm images. A namespace
	// of the Pod Security level restricted takes run pods only with this set.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	RunAsUser *int64 `json:"runAsUser,omitempty"`
	// supplementalGroups of the ranks, for example the nodes' group render, which /dev/kfd may belong to.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=2147483647
	// +optional
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
}

// BenchmarkSpec says what a run measures.
// +kubebuilder:validation:XValidation:rule="!has(self.sizeFactor) || !has(self.sizeStepBytes)",message="benchmark.sizeFactor and benchmark.sizeStepBytes exclude each other: a size grows by a factor or by a step, so remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.sizeStepBytes) || !has(self.minSizeBytes) || !has(self.maxSizeBytes) || (self.maxSizeBytes - self.minSizeBytes) / self.sizeStepBytes < 40",message="benchmark.sizeStepBytes gives more than 40 sizes between minSizeBytes and maxSizeBytes: raise it, or bring the two closer together"
// +kubebuilder:validation:XValidation:rule="!has(self.placements) || !has(self.collectives) || 'OutOfPlace' in self.placements || self.collectives.exists(c, !(c in ['AllToAll', 'AllToAllv', 'SendRecv']))",message="nothing would be measured: benchmark.placements is InPlace alone, and AllToAll, AllToAllv and SendRecv have no in-place form; add OutOfPlace or another collective"
// +kubebuilder:validation:XValidation:rule="!has(self.collectives) || !has(self.datatypes) || !has(self.placements) || size(self.collectives) * size(self.datatypes) * size(self.placements) <= 24",message="benchmark asks for more than 24 combinations of collective, datatype and placement, more than one CommTask can hold results of: measure fewer in one run"
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
	// minSizeBytes is the smallest message, as rccl-tests counts it. A size that leaves a rank without an element (8 B
	// of BFloat16 in an AllGather over 8 ranks) is left out for that collective.
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
	// references: Enforce fails a measurement that stays under a built-in reference of exactly its kind (collective,
	// datatype, size, placement, model, partition, ranks, transport); Report only shows the percentage.
	// +kubebuilder:default=Enforce
	// +optional
	References JudgingMode `json:"references,omitempty"`
	// regression holds a run against the group's own baseline.
	// +kubebuilder:default={}
	// +optional
	Regression RegressionSpec `json:"regression,omitzero"`
	// repeats measures each node alone this many times, each in fresh processes, and each communicator over several
	// nodes (span Group) as often, each time all of it, once it is formed. Verdicts rest on the median of all of them:
	// one good repeat among bad ones passes nothing, and one that is missing is no pass. What a search for a culprit
	// measures is not repeated.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +optional
	Repeats int32 `json:"repeats,omitempty"`
	// nodeMinPercentOfMedian fails a node whose bus bandwidth at the largest size is below this share of the median of
	// the members with its GPU model, partition mode and ranks. Fewer than three alike are not compared, and the
	// condition Validated says so; 0 compares none.
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

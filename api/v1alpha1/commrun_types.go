package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CommRun is one run of a CommGroup: what was measured, and what came of it. The controller creates one when a run is
// due; a user creates one to ask for a run. The latest are kept (spec.historyLimits of the CommGroup).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cgr,categories=rocm
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.groupName`
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.status.trigger`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.summary.reason`
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.status.summary.members`
// +kubebuilder:printcolumn:name="BusBW(MB/s)",type=integer,JSONPath=`.status.summary.busBandwidthMBps`
// +kubebuilder:printcolumn:name="GroupBW(MB/s)",type=integer,JSONPath=`.status.summary.groupBusBandwidthMBps`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finishTime`
// +kubebuilder:printcolumn:name="Culprit",type=string,priority=1,JSONPath=`.status.summary.culprit`
// +kubebuilder:printcolumn:name="ID",type=string,priority=1,JSONPath=`.status.id`
type CommRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec asks for the run.
	// +required
	Spec CommRunSpec `json:"spec"`
	// status is absent until the run starts; only the controller writes it.
	// +optional
	// +structType=atomic
	Status CommRunStatus `json:"status,omitzero"`
}

// CommRunList is a list of CommRuns.
// +kubebuilder:object:root=true
type CommRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommRun `json:"items"`
}

// CommRunSpec asks for a run.
// +kubebuilder:validation:XValidation:rule="self.groupName == oldSelf.groupName",message="groupName of a CommRun does not change: create another CommRun"
type CommRunSpec struct {
	// groupName is the CommGroup in the same namespace that the run is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	GroupName string `json:"groupName"`
	// suspend keeps the run from starting. Set while it is under way, it ends the run's pods; no other run of the group
	// starts until it is false, and the run starts from its beginning then, or until the CommRun is deleted.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// RunTemplate is the part of a CommGroup's spec that decides what a run measures.
type RunTemplate struct {
	// ranksPerNode, span, mesh, network, runtime, dda, lowPrecision and benchmark: see CommGroupSpec.
	RanksPerNode int32 `json:"ranksPerNode"`
	// +optional
	Span Span `json:"span,omitempty"`
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Mesh []MeshDimension `json:"mesh,omitempty"`
	// +optional
	Network NetworkSpec `json:"network,omitzero"`
	// +optional
	Runtime RuntimeSpec `json:"runtime,omitzero"`
	// +optional
	DDA DDASpec `json:"dda,omitzero"`
	// +optional
	LowPrecision LowPrecisionSpec `json:"lowPrecision,omitzero"`
	// +optional
	Benchmark BenchmarkSpec `json:"benchmark,omitzero"`
}

// CommRunStatus is what a run measures, and what came of it. It stays under 64 KiB at any number of members. What it
// measured is final once the run is over; verdict and culprits follow its nodes until the next run.
type CommRunStatus struct {
	GroupRunStatus `json:",inline"`
	RunResults     `json:",inline"`
	// template is what is measured, and how: the CommGroup's spec of the run's start.
	// +optional
	Template *RunTemplate `json:"template,omitempty"`
	// plan that the agents carry out, as the manager worked it out from the template.
	// +optional
	Plan *RunPlan `json:"plan,omitempty"`
	// members counts the nodes by their verdicts, once the run is over.
	// +optional
	Members *MemberCounts `json:"members,omitempty"`
	// origin: Simulated where any fact or number came from the simulator.
	// +optional
	Origin Origin `json:"origin,omitempty"`
	// summary of the run, once it is over.
	// +optional
	Summary *RunSummary `json:"summary,omitempty"`
	// culprits: the worst few, the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Culprits []Culprit `json:"culprits,omitempty"`
	// baseline of the group's runs up to this one.
	// +optional
	Baseline *BaselineStatus `json:"baseline,omitempty"`
}

// RunResults is what a run has shown over all members.
type RunResults struct {
	// inventory counts the members by what they were and ran.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Inventory []InventoryItem `json:"inventory,omitempty"`
	// libraries are the builds of the communication library that the members loaded, the most frequent first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Libraries []RunLibrary `json:"libraries,omitempty"`
	// settings: requested, effective and verified, over all members.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=80
	// +optional
	Settings []SettingStatus `json:"settings,omitempty"`
	// results over all members.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=72
	// +optional
	Results []GroupResultSeries `json:"results,omitempty"`
	// dataErrors over all members: the worst errors, and the sums of the counts.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	DataErrors []DataErrors `json:"dataErrors,omitempty"`
	// checks against thresholds, references and the group's baseline: the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Checks []PerformanceCheck `json:"checks,omitempty"`
	// advice: which settings are worth it by the A/B numbers.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Advice []SettingAdvice `json:"advice,omitempty"`
	// span is what the communicators over several members showed; absent with span Node.
	// +optional
	Span *SpanStatus `json:"span,omitempty"`
}

// RunLibrary is one build of the communication library, and how many members loaded it.
type RunLibrary struct {
	LibraryFacts `json:",inline"`
	// nodes that loaded it.
	Nodes int32 `json:"nodes"`
}

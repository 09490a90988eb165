package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CommRun is one run of a CommGroup: what was measured, and what came of it. The controller creates it at the end of a run, and keeps
// the latest of them (spec.historyLimits of the CommGroup). Its name is the group's and the run's number.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cgr,categories=rocm
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group.name`
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.spec.trigger`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.summary.reason`
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.status.summary.members`
// +kubebuilder:printcolumn:name="BusBW(MB/s)",type=integer,JSONPath=`.status.summary.busBandwidthMBps`
// +kubebuilder:printcolumn:name="GroupBW(MB/s)",type=integer,JSONPath=`.status.summary.groupBusBandwidthMBps`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finishTime`
// +kubebuilder:printcolumn:name="Culprit",type=string,priority=1,JSONPath=`.status.summary.culprit`
// +kubebuilder:printcolumn:name="ID",type=string,priority=1,JSONPath=`.spec.id`
type CommRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what the run measures; it does not change.
	// +required
	Spec CommRunSpec `json:"spec"`
	// status is what came of it; only the controller writes it.
	// +optional
	Status CommRunStatus `json:"status,omitzero"`
}

// CommRunList is a list of CommRuns.
// +kubebuilder:object:root=true
type CommRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CommRun `json:"items"`
}

// CommRunSpec is what a run measures, and why.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a CommRun does not change: change the CommGroup, and a new run follows"
type CommRunSpec struct {
	// group that the run is of.
	Group GroupReference `json:"group"`
	// id of the run, unique within the group: generation, then number.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// number counts the group's runs.
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`
	// generation of the CommGroup's spec that the run was created for.
	Generation int64 `json:"generation"`
	// since is the number of the last run that measured every member. A run with trigger NodesChanged measures only the
	// nodes whose results are stale; results of runs from since on count for the others.
	// +optional
	Since int64 `json:"since,omitempty"`
	// trigger: SpecChanged, MembersChanged, NodesChanged, Scheduled or Requested.
	// +kubebuilder:validation:MaxLength=64
	Trigger string `json:"trigger"`
	// request is the value of the annotation rcclx.io/run-requested that was seen at the start.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Request string `json:"request,omitempty"`
	// template is what was measured, and how: the CommGroup's spec of that time. Absent where that had changed before the run ended.
	// +optional
	Template *RunTemplate `json:"template,omitempty"`
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

// CommRunStatus is what came of a run. It stays under 64 KiB at any number of members.
type CommRunStatus struct {
	// verdict over all members.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// startTime and finishTime of the run.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// members counts the nodes by their verdicts.
	// +optional
	Members MemberCounts `json:"members,omitzero"`
	// origin: Simulated where any fact or number came from the simulator.
	// +optional
	Origin Origin `json:"origin,omitempty"`
	// summary of the run, once it is over.
	// +optional
	Summary *RunSummary `json:"summary,omitempty"`
	// inventory counts the members by what they were and ran, once the run is over.
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
	// culprits: the worst few, the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Culprits []Culprit `json:"culprits,omitempty"`
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

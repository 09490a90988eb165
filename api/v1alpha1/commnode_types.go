package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CommNode is what is known of one node of the cluster: its GPUs, links, NICs, ROCm and health. It has the node's name,
// belongs to the Node, and serves every CommGroup that the node is a member of. That node's monitor makes it and writes
// it; nobody else does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cn,categories=rocm
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.status.facts.gpuModel`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.facts.gpuCount`
// +kubebuilder:printcolumn:name="ROCm",type=string,JSONPath=`.status.facts.rocm.version`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.facts.driver.version`
// +kubebuilder:printcolumn:name="Mesh",type=string,JSONPath=`.status.facts.xgmi.mesh`
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.status.facts.problems[0].code`
// +kubebuilder:printcolumn:name="Seen",type=date,JSONPath=`.status.facts.observedTime`
// +kubebuilder:printcolumn:name="Origin",type=string,priority=1,JSONPath=`.status.facts.origin`
// +kubebuilder:printcolumn:name="Partition",type=string,priority=1,JSONPath=`.status.facts.partition`
// +kubebuilder:printcolumn:name="Kernel",type=string,priority=1,JSONPath=`.status.facts.kernelRelease`
type CommNode struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is the node's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec identifies the node.
	// +required
	Spec CommNodeSpec `json:"spec"`
	// status is what the node's monitor reports.
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

// CommNodeSpec identifies the node.
type CommNodeSpec struct {
	// nodeUID of the Node object: a node that was deleted and created again under its name is another node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeUID does not change: a CommNode stands for one Node object"
	NodeUID string `json:"nodeUID"`
}

// CommNodeStatus is what the node's monitor reports; the whole object stays under 8 KiB.
type CommNodeStatus struct {
	// facts of the node.
	// +optional
	// +structType=atomic
	Facts *NodeFacts `json:"facts,omitempty"`
}

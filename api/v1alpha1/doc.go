// Package v1alpha1 holds the rcclx.io/v1alpha1 API: CommGroup, which a person writes, and CommTask, one for each
// member node. Units stand in the field names: MB = 10^6 bytes, MBps = 10^6 bytes per second. There are no floats.
//
// +kubebuilder:object:generate=true
// +groupName=rcclx.io
package v1alpha1

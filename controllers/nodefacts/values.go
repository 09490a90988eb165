package nodefacts

import (
	"cmp"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Unknown stands for what a node's facts do not tell.
const Unknown = "unknown"

// ROCmValue is the host's ROCm. Hosts without ROCm are usual, since images bring their own; that is a value of its own,
// not unknown.
func ROCmValue(r *v1alpha1.ROCmFacts) string {
	switch r.State {
	case "Found":
		return r.Version
	case "NotFound":
		return "not installed"
	}
	return Unknown
}

// ContainerROCm is the version in the container of the node's run; "" where it is not known.
func ContainerROCm(r *v1alpha1.NodeRunStatus) string {
	if r == nil || r.ROCm == nil || r.ROCm.State != "Found" {
		return ""
	}
	return r.ROCm.Version
}

// PlatformFirmware is the firmware of the GPUs in one line; empty where it is not known.
func PlatformFirmware(f *v1alpha1.FirmwareFacts) string {
	if f == nil {
		return ""
	}
	return labelled(", ", "MEC", f.MEC, "SDMA", f.SDMA)
}

// DriverValue is the driver's version, or what there is in place of one.
func DriverValue(d *v1alpha1.DriverFacts) string {
	switch d.Kind {
	case "DKMS":
		return d.Version
	case "InTree", "BuiltIn":
		return cmp.Or(d.Version, d.Kind+" "+cmp.Or(d.SrcVersion, "without version"))
	case "NotLoaded":
		return "not loaded"
	}
	return cmp.Or(d.Version, Unknown)
}

// Mixed stands for GPUs of one node that differ.
const Mixed = "mixed"

package v1alpha1

import (
	"cmp"
	"strings"
)

// Severities of a Problem. Error problems keep a group from being Compatible, Warning ones do not.
const (
	SeverityError   = "Error"
	SeverityWarning = "Warning"
)

// Codes of problems that an agent finds on its node (Problem.Code). ReasonOfProblem gives the condition reason of each.
const (
	ProblemSysfsUnreadable  = ReasonSysfsUnreadable
	ProblemDriverNotLoaded  = ReasonDriverNotLoaded
	ProblemNoGPUs           = ReasonNoGPUs
	ProblemMixedModels      = ReasonMixedModels
	ProblemMixedPartitions  = ReasonMixedPartitions
	ProblemGPUHidden        = "GPUHidden"
	ProblemGPUNotInKFD      = "GPUNotInKFD"
	ProblemGPUMissing       = "GPUMissing"
	ProblemGPULost          = "GPULost"
	ProblemPartitionMissing = "PartitionMissing"
	ProblemReadTimeout      = "ReadTimeout"
	ProblemTopologyUnstable = "TopologyUnstable"

	ProblemXGMINotInitialised = "XGMINotInitialised"
	ProblemXGMIBridgeAbsent   = "XGMIBridgeAbsent"
	ProblemHiveSplit          = "HiveSplit"
	ProblemLinkAsymmetric     = "LinkAsymmetric"
	ProblemLinkMissing        = "LinkMissing"
	ProblemPCIeInsteadOfXGMI  = "PCIeInsteadOfXGMI"
	ProblemLinkWeight         = "LinkWeight"
	ProblemLinkBandwidth      = "LinkBandwidth"
	ProblemLinkInconsistent   = "LinkInconsistent"
	ProblemLinkLost           = "LinkLost"

	ProblemXGMIPortDown            = "XGMIPortDown"
	ProblemXGMIUncorrectableErrors = "XGMIUncorrectableErrors"
	ProblemXGMICorrectableErrors   = "XGMICorrectableErrors"

	ProblemPCIeDegraded         = "PCIeDegraded"
	ProblemNUMAUnknown          = "NUMAUnknown"
	ProblemNUMABalancing        = "NUMABalancing"
	ProblemIOMMUNotPassthrough  = "IOMMUNotPassthrough"
	ProblemROCmAmbiguous        = "ROCmAmbiguous"
	ProblemROCmUnreadable       = "ROCmUnreadable"
	ProblemDriverChanged        = "DriverChanged"
	ProblemNodeRebooted         = "NodeRebooted"
	ProblemMoreProblems         = "MoreProblems"
	ProblemUnknownModel         = "UnknownModel"
	ProblemPartitionUnreadable  = "PartitionUnreadable"
	ProblemErrorCountUnreadable = "ErrorCountUnreadable"

	ProblemRenderNodeMissing   = "RenderNodeMissing"
	ProblemUncorrectableErrors = "UncorrectableErrors"
	ProblemCorrectableErrors   = "CorrectableErrors"
	ProblemDeferredErrors      = "DeferredErrors"
	ProblemRetiredPages        = "RetiredPages"
	ProblemThrottled           = "Throttled"
	ProblemPCIeReplays         = "PCIeReplays"
	ProblemRepartitioned       = "Repartitioned"
	ProblemMetricsUnsupported  = "MetricsUnsupported"
	ProblemNICDown             = "NICDown"
	ProblemNICFar              = "NICFar"
	ProblemMixedFirmware       = ReasonMixedFirmware
	ProblemROCmTooOld          = ReasonROCmTooOld
	ProblemDriverMismatch      = ReasonDriverMismatch
)

// Subject renders what the problem is about; "" is the node as a whole.
func (p *Problem) Subject() string {
	switch {
	case p.PeerGPU != "":
		return p.GPU + "<->" + p.PeerGPU
	case len(p.GPUs) > 0:
		return strings.Join(p.GPUs, " ")
	}
	return cmp.Or(p.GPU, p.NIC, p.Path)
}

// ReasonOfProblem is the condition reason under which a problem of this code counts; ReasonHealthDegraded for a code
// that this version does not know.
func ReasonOfProblem(code string) string {
	switch code {
	case ProblemSysfsUnreadable, ProblemDriverNotLoaded, ProblemNoGPUs, ProblemMixedModels, ProblemMixedPartitions,
		ReasonTopologyFault, ReasonGPUCountMismatch, ReasonMixedFirmware, ReasonROCmTooOld, ReasonDriverMismatch:
		return code
	case ProblemGPUHidden, ProblemReadTimeout, ProblemTopologyUnstable, ProblemPartitionUnreadable,
		ProblemErrorCountUnreadable, ProblemROCmUnreadable:
		return ReasonSysfsUnreadable
	case ProblemGPUNotInKFD, ProblemGPUMissing, ProblemGPULost, ProblemRenderNodeMissing:
		return ReasonGPUCountMismatch
	case ProblemPartitionMissing:
		return ReasonMixedPartitions
	case ProblemXGMINotInitialised, ProblemXGMIBridgeAbsent, ProblemHiveSplit, ProblemLinkAsymmetric,
		ProblemLinkMissing, ProblemPCIeInsteadOfXGMI, ProblemLinkWeight, ProblemLinkBandwidth,
		ProblemLinkInconsistent, ProblemLinkLost:
		return ReasonTopologyFault
	}
	return ReasonHealthDegraded
}

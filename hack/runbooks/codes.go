package main

import "rcclx.io/commgroup-operator/api/v1alpha1"

// codes are those of problems that a node's monitor finds. A culprit carries such a code as its reason, and users look
// for it here.
var codes = []string{
	v1alpha1.ProblemSysfsUnreadable, v1alpha1.ProblemDriverNotLoaded, v1alpha1.ProblemNoGPUs,
	v1alpha1.ProblemMixedModels,
	v1alpha1.ProblemMixedPartitions, v1alpha1.ProblemGPUHidden, v1alpha1.ProblemGPUNotInKFD, v1alpha1.ProblemGPUMissing,
	v1alpha1.ProblemGPULost, v1alpha1.ProblemPartitionMissing, v1alpha1.ProblemReadTimeout,
	v1alpha1.ProblemTopologyUnstable,
	v1alpha1.ProblemXGMINotInitialised, v1alpha1.ProblemXGMIBridgeAbsent, v1alpha1.ProblemHiveSplit,
	v1alpha1.ProblemLinkAsymmetric,
	v1alpha1.ProblemLinkMissing, v1alpha1.ProblemPCIeInsteadOfXGMI, v1alpha1.ProblemLinkWeight,
	v1alpha1.ProblemLinkBandwidth,
	v1alpha1.ProblemLinkInconsistent, v1alpha1.ProblemLinkLost, v1alpha1.ProblemXGMIPortDown,
	v1alpha1.ProblemXGMIUncorrectableErrors,
	v1alpha1.ProblemXGMICorrectableErrors, v1alpha1.ProblemPCIeDegraded, v1alpha1.ProblemNUMAUnknown,
	v1alpha1.ProblemNUMABalancing,
	v1alpha1.ProblemIOMMUNotPassthrough, v1alpha1.ProblemROCmAmbiguous, v1alpha1.ProblemROCmUnreadable,
	v1alpha1.ProblemDriverChanged,
	v1alpha1.ProblemNodeRebooted, v1alpha1.ProblemMoreProblems, v1alpha1.ProblemUnknownModel,
	v1alpha1.ProblemPartitionUnreadable,
	v1alpha1.ProblemErrorCountUnreadable, v1alpha1.ProblemRenderNodeMissing, v1alpha1.ProblemUncorrectableErrors,
	v1alpha1.ProblemCorrectableErrors, v1alpha1.ProblemDeferredErrors, v1alpha1.ProblemRetiredPages,
	v1alpha1.ProblemThrottled,
	v1alpha1.ProblemPCIeReplays, v1alpha1.ProblemRepartitioned, v1alpha1.ProblemMetricsUnsupported,
	v1alpha1.ProblemNICDown,
	v1alpha1.ProblemNICFar, v1alpha1.ProblemMixedFirmware, v1alpha1.ProblemROCmTooOld, v1alpha1.ProblemDriverMismatch,
}

// codesOf are the codes that count under a reason, but for one of its own name.
func codesOf(reason string) []string {
	var out []string
	for _, code := range codes {
		if code != reason && v1alpha1.ReasonOfProblem(code) == reason {
			out = append(out, code)
		}
	}
	return out
}

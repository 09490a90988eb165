package controllers

// conditionsBefore has the conditions of each state before the event, in the order of conditionTypes: Ready, Accepted,
// AgentsReporting, Compatible, Running, Validated, SettingsInEffect, SettingsPublished, Simulated.
var conditionsBefore = map[string]string{
	fromNeverRan: "Unknown/WaitingForAgents True/Accepted Unknown/WaitingForAgents Unknown/FactsUnknown " +
		"False/WaitingForPreconditions Unknown/WaitingForPreconditions Unknown/NotVerified False/NotProven " +
		"Unknown/FactsUnknown",
	fromNotAccepted: "False/NoGPUResource False/NoGPUResource Unknown/WaitingForAgents Unknown/FactsUnknown " +
		"False/NeverRan Unknown/NeverRan Unknown/NotVerified False/NotProven Unknown/FactsUnknown",
	fromReady: "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished True/AllPassed " +
		"True/InEffect True/Published False/Hardware",
	fromFailed: "False/SlowLink True/Accepted True/AllReporting True/AllCompatible False/RunFinished False/SlowLink " +
		"True/InEffect False/NotProven False/Hardware",
	fromRunning: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
	fromAborted: "Unknown/Suspended True/Accepted True/AllReporting True/AllCompatible False/Suspended " +
		"Unknown/Suspended Unknown/NotVerified False/NotProven False/Hardware",
	fromRepeat: "True/Ready True/Accepted True/AllReporting True/AllCompatible True/RunInProgress True/AllPassed " +
		"True/InEffect True/Published False/Hardware",
	fromPartial: "Unknown/ResultsStale True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/ResultsStale Unknown/NotVerified True/Published False/Hardware",
	fromAlone: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
	fromWaiting: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	fromStage: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	fromMesh: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	fromSearch: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	fromReforming: "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
		"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	fromGroupReady: "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished True/AllPassed " +
		"True/InEffect True/Published False/Hardware",
	fromGroupFailed: "False/HangAcrossNodes True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
		"False/HangAcrossNodes True/InEffect False/NotProven False/Hardware",
}

// conditionsAfter has, for each state, which conditions are another once the controller has settled after an event, and
// to what; the events that come to the same are listed together.
var conditionsAfter = map[string]map[string]string{
	fromNeverRan: {
		stays: "CommTask deleted; kubelet on another boot; member added; member lost; node labelled away; node made " +
			"anew; other span; requested; resumed; schedule due; spec change",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting": "deadlines passed; report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Running=False/NeverRan " +
			"Validated=Unknown/NeverRan": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Running=False/NeverRan Validated=Unknown/NeverRan": "nobody selected",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/RunInProgress AgentsReporting=True/AllReporting Compatible=True/AllCompatible " +
			"Running=True/RunInProgress Validated=Unknown/RunInProgress Simulated=False/Hardware": "monitors report",
		"Running=False/Suspended Validated=Unknown/Suspended": "suspended",
		"SettingsPublished=False/PublishOff":                  "publish off",
		cannotBe: "CommNode deleted; ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; a problem; " +
			"node rebooted; not in effect; other driver; pod evicted; pod failed; pod lost; report error; report " +
			"fail; report lost; report pass; report turns bad; results lost; simulated; CommRun deleted; run suspended",
	},
	fromNotAccepted: {
		stays: "CommTask deleted; kubelet on another boot; member lost; node labelled away; node made anew; other " +
			"span; requested; resumed; schedule due; spec change",
		"AgentsReporting=False/AgentNotReporting": "deadlines passed; report expired",
		"AgentsReporting=True/AllReporting Compatible=False/GPUCountMismatch Simulated=False/Hardware": "monitors " +
			"report",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched": "nobody " +
			"selected",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/WaitingForAgents Accepted=True/Accepted Running=False/WaitingForPreconditions " +
			"Validated=Unknown/WaitingForPreconditions": "GPUs back; member added",
		"Running=False/Suspended Validated=Unknown/Suspended": "suspended",
		"SettingsPublished=False/PublishOff":                  "publish off",
		cannotBe: "CommNode deleted; ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs gone; a problem; " +
			"node rebooted; not in effect; other driver; pod evicted; pod failed; pod lost; report error; report " +
			"fail; report lost; report pass; report turns bad; results lost; simulated; CommRun deleted; run suspended",
	},
	fromReady: {
		stays: "ConfigMap deleted; ConfigMap edited; deadlines passed; kubelet on another boot; resumed; " +
			"CommRun deleted; run suspended",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions Running=True/RunInProgress " +
			"Validated=Unknown/ResultsStale SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Validated=Unknown/Inconclusive SettingsInEffect=Unknown/NotVerified " +
			"SettingsPublished=False/NotProven Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/SlowLink Validated=False/SlowLink SettingsPublished=False/NotProven": "report turns bad",
		"Ready=Unknown/Inconclusive Validated=Unknown/Inconclusive SettingsInEffect=Unknown/NotVerified " +
			"SettingsPublished=False/NotProven": "CommTask deleted; report lost",
		"Ready=Unknown/Inconclusive Validated=Unknown/Inconclusive SettingsPublished=False/NotProven": "results lost",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/ResultsStale Running=True/RunInProgress Validated=Unknown/ResultsStale " +
			"SettingsInEffect=Unknown/NotVerified": "node rebooted",
		"Ready=Unknown/RunInProgress Running=True/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsInEffect=Unknown/NotVerified": "member lost; node labelled away",
		"Ready=Unknown/RunInProgress Running=True/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsInEffect=Unknown/NotVerified SettingsPublished=False/NotProven": "other span; spec change",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown " +
			"Running=True/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsInEffect=Unknown/NotVerified": "member added; node made anew",
		"Running=False/Suspended":                                           "suspended",
		"Running=True/RunInProgress":                                        "requested; schedule due",
		"SettingsInEffect=False/NotInEffect":                                "not in effect",
		"SettingsPublished=False/ConfigMapNotOwned":                         "ConfigMap taken",
		"SettingsPublished=False/PublishOff":                                "publish off",
		"SettingsPublished=False/SimulatedResults Simulated=True/Simulated": "simulated",
		cannotBe: "GPUs back; monitors report; pod evicted; pod failed; pod lost; report error; report fail; report " +
			"pass",
	},
	fromFailed: {
		stays: "deadlines passed; kubelet on another boot; pod evicted; pod failed; pod lost; results lost; resumed; " +
			"CommRun deleted; run suspended",
		"AgentsReporting=False/AgentNotReporting Compatible=Unknown/FactsUnknown":  "report expired",
		"AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown": "CommNode deleted",
		"Compatible=False/DriverNotLoaded":                                         "a problem",
		"Ready=False/Deleting":                                                     "group deleted",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions Running=True/RunInProgress " +
			"Validated=Unknown/ResultsStale SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Validated=Unknown/Inconclusive SettingsInEffect=Unknown/NotVerified " +
			"Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=Unknown/Inconclusive Validated=Unknown/Inconclusive SettingsInEffect=Unknown/NotVerified": "CommTask " +
			"deleted; report lost",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/ResultsStale Running=True/RunInProgress Validated=Unknown/ResultsStale " +
			"SettingsInEffect=Unknown/NotVerified": "node rebooted",
		"Ready=Unknown/RunInProgress Running=True/RunInProgress " +
			"Validated=Unknown/RunInProgress": "requested; schedule due",
		"Ready=Unknown/RunInProgress Running=True/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsInEffect=Unknown/NotVerified": "member lost; node labelled away; other span; spec change",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown " +
			"Running=True/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsInEffect=Unknown/NotVerified": "member added; node made anew",
		"Running=False/Suspended":            "suspended",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; monitors report; report error; " +
			"report fail; report pass; report turns bad",
	},
	fromRunning: {
		stays: "CommTask deleted; kubelet on another boot; member lost; node labelled away; node rebooted; " +
			"other span; pod evicted; pod failed; pod lost; requested; resumed; schedule due; spec change",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted " +
			"SettingsInEffect=True/InEffect": "report error",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions":                     "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=Unknown/Inconclusive " +
			"Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RunDeadlineExceeded Running=False/RunFinished Validated=False/RunDeadlineExceeded": "deadlines " +
			"passed",
		"Ready=False/SlowLink Running=False/RunFinished Validated=False/SlowLink " +
			"SettingsInEffect=True/InEffect": "report fail",
		"Ready=True/Ready Running=False/RunFinished Validated=True/AllPassed SettingsInEffect=True/InEffect " +
			"SettingsPublished=True/Published": "report pass",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; monitors report; not in effect; " +
			"report lost; report turns bad; results lost",
		"Ready=Unknown/ResultsStale Validated=Unknown/ResultsStale": "CommRun deleted",
	},
	fromAborted: {
		stays: "CommTask deleted; deadlines passed; kubelet on another boot; member lost; node labelled away; node " +
			"rebooted; other span; pod evicted; pod failed; pod lost; requested; schedule due; spec change; " +
			"suspended; CommRun deleted; run suspended",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded":                             "a problem",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions":                     "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/RunInProgress Running=True/RunInProgress Validated=Unknown/RunInProgress": "resumed",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; monitors report; not in effect; " +
			"report error; report fail; report lost; report pass; report turns bad; results lost",
	},
	fromRepeat: {
		stays: "kubelet on another boot; not in effect; pod evicted; pod failed; pod lost; report lost; requested; " +
			"results lost",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting Compatible=Unknown/FactsUnknown " +
			"Validated=Unknown/RunInProgress": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted " +
			"SettingsPublished=False/NotProven": "report error",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"Validated=Unknown/RunInProgress": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=Unknown/Inconclusive " +
			"SettingsInEffect=Unknown/NotVerified SettingsPublished=False/NotProven " +
			"Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RunDeadlineExceeded Running=False/RunFinished Validated=False/RunDeadlineExceeded " +
			"SettingsInEffect=Unknown/NotVerified SettingsPublished=False/NotProven": "deadlines passed",
		"Ready=False/SlowLink Running=False/RunFinished Validated=False/SlowLink " +
			"SettingsPublished=False/NotProven": "report fail",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/RunInProgress Validated=Unknown/RunInProgress": "CommTask deleted; member lost; node labelled " +
			"away; node rebooted",
		"Ready=Unknown/RunInProgress Validated=Unknown/RunInProgress SettingsInEffect=Unknown/NotVerified " +
			"SettingsPublished=False/NotProven": "other span; resumed; spec change",
		"Ready=Unknown/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsPublished=False/NotProven": "schedule due",
		"Ready=Unknown/RunInProgress Validated=Unknown/RunInProgress SettingsPublished=False/PublishOff": "publish off",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended " +
			"SettingsInEffect=Unknown/NotVerified SettingsPublished=False/NotProven": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown " +
			"Validated=Unknown/RunInProgress": "CommNode deleted; member added; node made anew",
		"Running=False/RunFinished":                 "report pass",
		"SettingsPublished=False/ConfigMapChanged":  "ConfigMap edited",
		"SettingsPublished=False/ConfigMapNotOwned": "ConfigMap taken",
		"SettingsPublished=False/NotProven":         "ConfigMap deleted",
		"Simulated=True/Simulated":                  "simulated",
		cannotBe:                                    "GPUs back; monitors report; report turns bad",
		"Ready=Unknown/ResultsStale Validated=Unknown/ResultsStale SettingsInEffect=Unknown/NotVerified " +
			"SettingsPublished=False/NotProven": "CommRun deleted",
	},
	fromPartial: {
		stays: "CommTask deleted; kubelet on another boot; member lost; node labelled away; not in effect; report " +
			"lost; requested; results lost",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted " +
			"SettingsInEffect=True/InEffect SettingsPublished=False/NotProven": "report error",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions":                     "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=Unknown/Inconclusive " +
			"SettingsPublished=False/NotProven Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RunDeadlineExceeded Running=False/RunFinished Validated=False/RunDeadlineExceeded " +
			"SettingsPublished=False/NotProven": "deadlines passed",
		"Ready=False/RunPodFailed Running=False/RunFinished Validated=False/RunPodFailed " +
			"SettingsPublished=False/NotProven": "pod failed; pod lost",
		"Ready=False/SlowLink Running=False/RunFinished Validated=False/SlowLink SettingsInEffect=True/InEffect " +
			"SettingsPublished=False/NotProven": "report fail",
		"Ready=True/Ready Running=False/RunFinished Validated=True/AllPassed " +
			"SettingsInEffect=True/InEffect": "report pass",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/Preempted Running=False/RunFinished Validated=Unknown/Preempted " +
			"SettingsPublished=False/NotProven": "pod evicted",
		"Ready=Unknown/RunInProgress Validated=Unknown/RunInProgress " +
			"SettingsPublished=False/NotProven": "other span; spec change",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended " +
			"SettingsPublished=False/NotProven": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown " +
			"Validated=Unknown/RunInProgress SettingsPublished=False/NotProven": "node made anew",
		"SettingsPublished=False/ConfigMapChanged":  "ConfigMap edited",
		"SettingsPublished=False/ConfigMapNotOwned": "ConfigMap taken",
		"SettingsPublished=False/NotProven":         "ConfigMap deleted; resumed; schedule due; CommRun deleted",
		"SettingsPublished=False/PublishOff":        "publish off",
		"Simulated=True/Simulated":                  "simulated",
		cannotBe:                                    "GPUs back; monitors report; node rebooted; report turns bad",
	},
}

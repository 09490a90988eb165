package controllers

// conditionsAfterInGroup are the rows of conditionsAfter for the states of span Group.
var conditionsAfterInGroup = map[string]map[string]string{
	fromAlone: {
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
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=Unknown/TooFewMembers " +
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
	fromWaiting: {
		stays: "kubelet on another boot; member lost; node labelled away; pod evicted; pod failed; pod lost; report " +
			"turns bad; requested; results lost; schedule due",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting Compatible=Unknown/FactsUnknown " +
			"Running=False/RunFinished Validated=Unknown/RunPodUnschedulable": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded":                  "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted": "report error",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=False/MemberLost " +
			"SettingsInEffect=Unknown/NotVerified Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RankDied Running=False/RunFinished Validated=False/RankDied": "report fail",
		"Ready=True/Ready Running=False/RunFinished Validated=True/AllPassed " +
			"SettingsPublished=True/Published": "report pass",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/RunPodUnschedulable Running=False/RunFinished " +
			"Validated=Unknown/RunPodUnschedulable": "deadlines passed",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; node rebooted; other span; report lost; resumed; " +
			"spec change",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; " +
			"monitors report",
		"Ready=Unknown/Superseded Running=False/Superseded Validated=Unknown/Superseded": "CommRun deleted",
	},
	fromStage: {
		stays: "deadlines passed; kubelet on another boot; member lost; node labelled away; pod evicted; pod failed; " +
			"pod lost; report turns bad; requested; results lost; schedule due",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded":                  "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted": "report error",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=False/MemberLost " +
			"SettingsInEffect=Unknown/NotVerified Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RankDied Running=False/RunFinished Validated=False/RankDied": "report fail",
		"Ready=True/Ready Running=False/RunFinished Validated=True/AllPassed " +
			"SettingsPublished=True/Published": "report pass",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; node rebooted; other span; report lost; resumed; " +
			"spec change",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; " +
			"monitors report",
		"Ready=Unknown/Superseded Running=False/Superseded Validated=Unknown/Superseded": "CommRun deleted",
	},
	fromMesh: {
		stays: "deadlines passed; kubelet on another boot; report turns bad; requested; results lost; schedule due",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded":                  "a problem",
		"Ready=False/Interrupted Running=False/RunFinished Validated=False/Interrupted": "report error",
		"Ready=False/MemberLost Running=False/RunFinished Validated=False/MemberLost":   "pod lost",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=False/MemberLost " +
			"SettingsInEffect=Unknown/NotVerified Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RankDied Running=False/RunFinished Validated=False/RankDied":         "report fail",
		"Ready=False/RunPodFailed Running=False/RunFinished Validated=False/RunPodFailed": "pod failed",
		"Ready=True/Ready Running=False/RunFinished Validated=True/AllPassed " +
			"SettingsPublished=True/Published": "report pass",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/MeshMismatch Running=False/RunFinished Validated=Unknown/MeshMismatch": "pod evicted",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; " +
			"run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown " +
			"SettingsInEffect=Unknown/NotVerified": "node made anew",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; member lost; node labelled away; node rebooted; " +
			"other span; report lost; resumed; spec change",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; " +
			"monitors report",
		"Ready=Unknown/Superseded Running=False/Superseded Validated=Unknown/Superseded": "CommRun deleted",
	},
	fromSearch: {
		stays: "kubelet on another boot; member lost; node labelled away; pod evicted; pod failed; pod lost; report " +
			"turns bad; requested; results lost; schedule due",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/HangAcrossNodes Running=False/RunFinished Validated=False/HangAcrossNodes": "deadlines passed; " +
			"report error; report fail; report pass",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=False/HangAcrossNodes " +
			"SettingsInEffect=Unknown/NotVerified Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; node rebooted; other span; report lost; resumed; " +
			"spec change",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; " +
			"monitors report",
		"Ready=Unknown/Superseded Running=False/Superseded Validated=Unknown/Superseded": "CommRun deleted",
	},
	fromReforming: {
		stays: "deadlines passed; kubelet on another boot; member lost; node labelled away; pod evicted; pod failed; " +
			"pod lost; report turns bad; requested; results lost; schedule due",
		"Ready=False/AgentNotReporting AgentsReporting=False/AgentNotReporting " +
			"Compatible=Unknown/FactsUnknown": "report expired",
		"Ready=False/Deleting": "group deleted",
		"Ready=False/DriverNotLoaded Compatible=False/DriverNotLoaded": "a problem",
		"Ready=False/HangAcrossNodes Running=False/RunFinished Validated=False/HangAcrossNodes": "report error; " +
			"report pass",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions " +
			"SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown Running=False/RunFinished Validated=False/HangAcrossNodes " +
			"SettingsInEffect=Unknown/NotVerified Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/RankDied Running=False/RunFinished Validated=False/RankDied": "report fail",
		"Ready=Unknown/ListFailed Accepted=Unknown/ListFailed AgentsReporting=Unknown/ListFailed " +
			"Compatible=Unknown/ListFailed Running=Unknown/ListFailed Validated=Unknown/ListFailed " +
			"SettingsInEffect=Unknown/ListFailed SettingsPublished=Unknown/ListFailed " +
			"Simulated=Unknown/ListFailed": "ListError",
		"Ready=Unknown/Suspended Running=False/Suspended Validated=Unknown/Suspended": "suspended; run suspended",
		"Ready=Unknown/WaitingForAgents AgentsReporting=Unknown/WaitingForAgents " +
			"Compatible=Unknown/FactsUnknown": "CommNode deleted; member added; node made anew",
		"SettingsInEffect=False/NotInEffect": "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; node rebooted; other span; report lost; resumed; " +
			"spec change",
		"SettingsPublished=False/PublishOff": "publish off",
		"Simulated=True/Simulated":           "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; " +
			"monitors report",
		"Ready=Unknown/Superseded Running=False/Superseded Validated=Unknown/Superseded": "CommRun deleted",
	},
	fromGroupReady: {
		stays: "ConfigMap deleted; ConfigMap edited; deadlines passed; kubelet on another boot; resumed; run suspended",
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
		"Ready=Unknown/Inconclusive Validated=Unknown/Inconclusive SettingsPublished=False/NotProven": "results " +
			"lost; CommRun deleted",
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
	fromGroupFailed: {
		stays: "deadlines passed; kubelet on another boot; pod evicted; pod failed; pod lost; results lost; " +
			"resumed; run suspended",
		"AgentsReporting=False/AgentNotReporting Compatible=Unknown/FactsUnknown":  "report expired",
		"AgentsReporting=Unknown/WaitingForAgents Compatible=Unknown/FactsUnknown": "CommNode deleted",
		"Compatible=False/DriverNotLoaded":                                         "a problem",
		"Ready=False/Deleting":                                                     "group deleted",
		"Ready=False/MixedDriverVersions Compatible=False/MixedDriverVersions Running=True/RunInProgress " +
			"Validated=Unknown/ResultsStale SettingsInEffect=Unknown/NotVerified": "other driver",
		"Ready=False/NoGPUResource Accepted=False/NoGPUResource Compatible=False/GPUCountMismatch": "GPUs gone",
		"Ready=False/NoNodesMatched Accepted=False/NoNodesMatched AgentsReporting=Unknown/NoNodesMatched " +
			"Compatible=Unknown/FactsUnknown SettingsInEffect=Unknown/NotVerified " +
			"Simulated=Unknown/FactsUnknown": "nobody selected",
		"Ready=False/SlowLink Validated=False/SlowLink": "report turns bad",
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
		"Running=False/Suspended":              "suspended",
		"SettingsInEffect=False/NotInEffect":   "not in effect",
		"SettingsInEffect=Unknown/NotVerified": "CommTask deleted; report lost",
		"SettingsPublished=False/PublishOff":   "publish off",
		"Simulated=True/Simulated":             "simulated",
		cannotBe: "ConfigMap deleted; ConfigMap edited; ConfigMap taken; GPUs back; monitors report; report error; " +
			"report fail; report pass",
		"Ready=Unknown/Inconclusive Validated=Unknown/Inconclusive": "CommRun deleted",
	},
}

package controllers

// conditionsAfter has, for each state and event, the status and reason of each condition once the controller has settled, in the
// order of conditionTypes: Ready, Accepted, AgentsReporting, Compatible, Running, Validated, SettingsInEffect,
// SettingsPublished, Simulated.
var conditionsAfter = map[string]map[string]string{
	fromReady: {
		"spec change": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"member added": "Unknown/WaitingForAgents True/Accepted Unknown/WaitingForAgents Unknown/FactsUnknown True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified True/Published False/Hardware",
		"member lost": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified True/Published False/Hardware",
		"report pass": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"report fail": "False/SlowLink True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/SlowLink True/InEffect False/NotProven False/Hardware",
		"report error": "False/Interrupted True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/Interrupted True/InEffect False/NotProven False/Hardware",
		"report expired": "False/AgentNotReporting True/Accepted False/AgentNotReporting Unknown/FactsUnknown False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"pod lost": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"suspended": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/Suspended " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"resumed": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"requested": "True/Ready True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"schedule due": "True/Ready True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"ListError": "Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed " +
			"Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed",
		"node rebooted": "Unknown/ResultsStale True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/ResultsStale Unknown/NotVerified True/Published False/Hardware",
		"group deleted": "False/Deleting True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
	},
	fromRunning: {
		"spec change": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"member added": "Unknown/WaitingForAgents True/Accepted Unknown/WaitingForAgents Unknown/FactsUnknown True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"member lost": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"report pass": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"report fail": "False/SlowLink True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/SlowLink True/InEffect False/NotProven False/Hardware",
		"report error": "False/Interrupted True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/Interrupted True/InEffect False/NotProven False/Hardware",
		"report expired": "False/AgentNotReporting True/Accepted False/AgentNotReporting Unknown/FactsUnknown True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"pod lost": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"suspended": "Unknown/Suspended True/Accepted True/AllReporting True/AllCompatible False/Suspended " +
			"Unknown/Suspended Unknown/NotVerified False/NotProven False/Hardware",
		"resumed": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"requested": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"schedule due": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"ListError": "Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed " +
			"Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed",
		"node rebooted": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"group deleted": "False/Deleting True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
	},
	fromStage: {
		"spec change": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"member added": "Unknown/WaitingForAgents True/Accepted Unknown/WaitingForAgents Unknown/FactsUnknown True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"member lost": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"report pass": "True/Ready True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"True/AllPassed True/InEffect True/Published False/Hardware",
		"report fail": "False/RankDied True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/RankDied True/InEffect False/NotProven False/Hardware",
		"report error": "False/Interrupted True/Accepted True/AllReporting True/AllCompatible False/RunFinished " +
			"False/Interrupted True/InEffect False/NotProven False/Hardware",
		"report expired": "False/AgentNotReporting True/Accepted False/AgentNotReporting Unknown/FactsUnknown True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"pod lost": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"suspended": "Unknown/Suspended True/Accepted True/AllReporting True/AllCompatible False/Suspended " +
			"Unknown/Suspended True/InEffect False/NotProven False/Hardware",
		"resumed": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"requested": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"schedule due": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
		"ListError": "Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed " +
			"Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed Unknown/ListFailed",
		"node rebooted": "Unknown/RunInProgress True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress Unknown/NotVerified False/NotProven False/Hardware",
		"group deleted": "False/Deleting True/Accepted True/AllReporting True/AllCompatible True/RunInProgress " +
			"Unknown/RunInProgress True/InEffect False/NotProven False/Hardware",
	},
}

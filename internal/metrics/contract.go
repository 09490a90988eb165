// Package metrics is the contract of the operator's metrics: each name, its unit, its labels and who exposes it. Collectors,
// alerts, dashboards and docs/metrics.md are all made from this table, so that none can name a metric that does not exist.
package metrics

// Source is the process that exposes a metric.
type Source string

// The sources.
const (
	Manager Source = "manager" // the leader alone
	Agent   Source = "agent"   // each node's monitor
)

// Kind is the metric's type.
type Kind string

// The kinds.
const (
	Gauge   Kind = "gauge"
	Counter Kind = "counter"
)

// Metric is one metric of the contract.
type Metric struct {
	Name   string
	Help   string // one line, with the unit
	Kind   Kind
	Labels []string
	Source Source
	// Series bounds the number of series, in words.
	Series string
}

// Labels that every series has: the group. They are not called namespace and name, which Prometheus' own target labels would clash with.
const (
	LabelGroupNamespace = "group_namespace"
	LabelGroup          = "group"
	LabelNode           = "node"
)

func of(source Source, kind Kind, name, help, series string, labels ...string) Metric {
	return Metric{Name: name, Help: help, Kind: kind, Source: source, Series: series, Labels: append([]string{LabelGroupNamespace, LabelGroup}, labels...)}
}

// Metrics of the manager, made from the CommGroup's and its CommNodes' status at each scrape, so that they go with the object.
var (
	Info = of(Manager, Gauge, "commgroup_info", "1; what the group is. gpu_model and library are those of most members.", "1 a group",
		"span", "origin", "gpu_model", "library", "run_state")
	Condition           = of(Manager, Gauge, "commgroup_condition", "1 where the condition has this status, else 0.", "3 a condition", "type", "status")
	ConditionReason     = of(Manager, Gauge, "commgroup_condition_reason", "1; the condition's present reason, which docs/reasons.md explains.", "1 a condition", "type", "reason")
	ConditionTransition = of(Manager, Gauge, "commgroup_condition_last_transition_timestamp_seconds", "When the condition last changed its status, seconds since 1970.", "1 a condition", "type")
	Members             = of(Manager, Gauge, "commgroup_members", "Members by state: selected, reporting, running, pending, stale, and by verdict passed, failed, inconclusive, errored, skipped.", "10 a group", "state")
	BusBandwidth        = of(Manager, Gauge, "commgroup_busbw_bytes_per_second", "Bus bandwidth of the last run, bytes a second (busBandwidthMBps x 10^6). stage node: over the members' own communicators; stage group: the communicator over all.",
		"1 a measured size and statistic", "stage", "variant", "collective", "datatype", "placement", "size_bytes", "statistic")
	AlgBandwidth = of(Manager, Gauge, "commgroup_algbw_bytes_per_second", "Algorithm bandwidth of the last run, bytes a second: size over latency.", "1 a measured size",
		"stage", "variant", "collective", "datatype", "placement", "size_bytes")
	Latency = of(Manager, Gauge, "commgroup_latency_seconds", "Latency of the last run, seconds: the members' median of medians.", "1 a measured size",
		"stage", "variant", "collective", "datatype", "placement", "size_bytes")
	RelativeError = of(Manager, Gauge, "commgroup_relative_error_ratio", "Worst relative error of FP8 transport in the last run against the fp32 reference (0.01 is 1 %).", "1 a series of results",
		"variant", "collective", "datatype", "placement")
	WrongElements = of(Manager, Gauge, "commgroup_wrong_elements", "Elements that were wrong in the last run, over all members and sizes.", "1 a series of results",
		"variant", "collective", "datatype", "placement")
	Headline = of(Manager, Gauge, "commgroup_headline_busbw_bytes_per_second", "The one number: bus bandwidth of Baseline AllReduce at the largest size, bytes a second.", "1 a group")
	Verdict  = of(Manager, Gauge, "commgroup_verdict", "1 for the verdict of the last run that ended, else 0.", "5 a group", "verdict")
	Setting  = of(Manager, Gauge, "commgroup_setting_info", "1; a setting as requested, effective and verified, and the reason.", "1 a setting",
		"setting", "requested", "effective", "verified", "reason")
	CheckRatio = of(Manager, Gauge, "commgroup_check_ratio", "Measured over expected, for each check of the last run against a threshold, a reference or the baseline (1 is exactly the expected).", "at most 16 a group",
		"check", "subject", "verdict")
	Culprit         = of(Manager, Gauge, "commgroup_culprit_info", "1; a culprit of the last run: what it is and why.", "at most 16 a group", "kind", "name", "node", "reason")
	Runs            = of(Manager, Counter, "commgroup_runs_total", "Runs that the group has started.", "1 a group")
	RunActive       = of(Manager, Gauge, "commgroup_run_active", "1 while a run goes on, else 0.", "1 a group")
	RunStart        = of(Manager, Gauge, "commgroup_run_start_timestamp_seconds", "Start of the present or last run, seconds since 1970.", "1 a group")
	RunFinish       = of(Manager, Gauge, "commgroup_run_finish_timestamp_seconds", "End of the last run, seconds since 1970; absent while one goes on.", "1 a group")
	RunDuration     = of(Manager, Gauge, "commgroup_run_duration_seconds", "How long the last run that ended took, seconds.", "1 a group")
	NextRun         = of(Manager, Gauge, "commgroup_next_run_timestamp_seconds", "When the schedule is due next, seconds since 1970; absent without a schedule.", "1 a group")
	OldestReport    = of(Manager, Gauge, "commgroup_oldest_report_timestamp_seconds", "When the member that reported least recently did so, seconds since 1970, by the API server's clock; absent until all have reported once.", "1 a group")
	NodeVerdict     = of(Manager, Gauge, "commgroup_node_verdict", "1; a member's verdict in the present or last run, and its reason.", "1 a member", LabelNode, "verdict", "reason")
	NodeBusBW       = of(Manager, Gauge, "commgroup_node_busbw_bytes_per_second", "A member's own bus bandwidth of the headline measurement, bytes a second.", "1 a member", LabelNode)
	NodeLastReport  = of(Manager, Gauge, "commgroup_node_last_report_timestamp_seconds", "When the API server last took a report of the member's monitor, seconds since 1970.", "1 a member", LabelNode)
	NodeSlowestPair = of(Manager, Gauge, "commgroup_node_pair_bandwidth_bytes_per_second", "Measured bandwidth between two GPUs of a member, bytes a second: the pairs that its report names (the worst ones).", "at most the reported pairs a member", LabelNode, "gpu", "peer")
)

// Metrics of the agents' monitors, made from their last scan.
var (
	AgentInfo       = of(Agent, Gauge, "commgroup_agent_info", "1; the node's agent and platform.", "1 a node", LabelNode, "version", "rocm_version", "driver_version", "gpu_model", "partition", "origin")
	AgentScan       = of(Agent, Gauge, "commgroup_agent_last_scan_timestamp_seconds", "When the node was last scanned, seconds since 1970, by the node's clock.", "1 a node", LabelNode)
	AgentReport     = of(Agent, Gauge, "commgroup_agent_last_report_timestamp_seconds", "When the API server last took a report, seconds since 1970, by the node's clock; absent until it did.", "1 a node", LabelNode)
	AgentScanTime   = of(Agent, Gauge, "commgroup_agent_scan_duration_seconds", "How long the last scan took, seconds.", "1 a node", LabelNode)
	AgentFailures   = of(Agent, Counter, "commgroup_agent_report_failures_total", "Reports that the API server did not take.", "1 a node", LabelNode)
	AgentGPUs       = of(Agent, Gauge, "commgroup_agent_gpus", "Physical GPUs that KFD shows; absent where they could not be counted.", "1 a node", LabelNode)
	AgentXGMILinks  = of(Agent, Gauge, "commgroup_agent_xgmi_links", "Directed xGMI links: state up, and expected of this model where that is known.", "2 a node", LabelNode, "state")
	AgentXGMILinkUp = of(Agent, Gauge, "commgroup_agent_xgmi_link_up", "1 where the kernel shows an xGMI link from gpu to peer, else 0.", "56 a node of 8 GPUs", LabelNode, "gpu", "peer")
	AgentRAS        = of(Agent, Counter, "commgroup_agent_ras_errors_total", "RAS errors of a GPU since the driver was loaded.", "2 a GPU", LabelNode, "gpu", "severity")
	AgentProblems   = of(Agent, Gauge, "commgroup_agent_problem_info", "1; a problem that the scan found.", "at most 12 a node", LabelNode, "reason", "subject")
)

// All is the contract, in the order of docs/metrics.md.
func All() []Metric {
	return []Metric{
		Info, Condition, ConditionReason, ConditionTransition, Members, Verdict, Headline, BusBandwidth, AlgBandwidth, Latency, RelativeError, WrongElements,
		CheckRatio, Setting, Culprit, Runs, RunActive, RunStart, RunFinish, RunDuration, NextRun, OldestReport, NodeVerdict, NodeBusBW, NodeLastReport, NodeSlowestPair,
		AgentInfo, AgentScan, AgentReport, AgentScanTime, AgentFailures, AgentGPUs, AgentXGMILinks, AgentXGMILinkUp, AgentRAS, AgentProblems,
	}
}

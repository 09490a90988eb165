// Package metrics is the contract of the operator's metrics: each name, its unit, its labels and who exposes it.
// Collectors, alerts, dashboards and docs/metrics.md are all made from this table, so that none can name a metric that
// does not exist. Values of labels are the words of the API (Pass, Baseline, AllReduce). What is not known has no
// series: it is never zero.
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

// Labels that more than one metric has. The group's are not called namespace and name, which Prometheus' own target
// labels would clash with.
const (
	LabelGroupNamespace = "group_namespace"
	LabelGroup          = "group"
	LabelNode           = "node"

	LabelType   = "type"
	LabelStatus = "status"
	LabelReason = "reason"
	LabelState  = "state"
	LabelSpan   = "span" // Node: each member's own communicators; Group: communicators over several members
	// of span Group: group for the communicator over all, else the mesh's dimension; empty for span Node
	LabelDimension  = "dimension"
	LabelVariant    = "variant"
	LabelCollective = "collective"
	LabelDatatype   = "datatype"
	LabelPlacement  = "placement" // OutOfPlace or InPlace
	LabelSize       = "size_bytes"
	LabelStatistic  = "statistic" // Median or Min (the slowest member or communicator)
	LabelVerdict    = "verdict"
	LabelOrigin     = "origin"
	LabelGPUModel   = "gpu_model"
	LabelGPU        = "gpu"
	LabelPeer       = "peer"
	LabelSeverity   = "severity"
	LabelVersion    = "version"
)

// Values of LabelState of commgroup_members.
const (
	MembersSelected     = "selected"
	MembersReporting    = "reporting"
	MembersRunning      = "running"
	MembersPending      = "pending"
	MembersStale        = "stale"
	MembersPassed       = "passed"
	MembersFailed       = "failed"
	MembersInconclusive = "inconclusive"
	MembersErrored      = "errored"
	MembersSkipped      = "skipped"
)

// VerdictStale is the value of LabelVerdict of commgroup_node_verdict where the node is no longer what was measured.
const VerdictStale = "Stale"

// RequestedSet is what commgroup_setting_info says of a variable of the spec: its value is the group's own business.
const RequestedSet = "set"

// Values of LabelSeverity of error counters.
const (
	SeverityUncorrectable = "uncorrectable"
	SeverityCorrectable   = "correctable"
	SeverityDeferred      = "deferred"
)

// Values of LabelState of commgroup_agent_xgmi_links.
const (
	LinksUp       = "up"
	LinksExpected = "expected"
)

func of(source Source, kind Kind, name, help, series string, labels ...string) Metric {
	if source == Manager {
		labels = append([]string{LabelGroupNamespace, LabelGroup}, labels...)
	}
	return Metric{Name: name, Help: help, Kind: kind, Source: source, Series: series, Labels: labels}
}

// Metrics of the manager, made from the status of the CommGroup, its CommTasks and its members' CommNodes at each
// scrape, so that they go with the object.
var (
	ManagerInfo = Metric{Name: "commgroup_manager_info", Help: "1; the manager that leads.", Kind: Gauge,
		Source: Manager, Series: "1", Labels: []string{LabelVersion}}
	Info = of(Manager, Gauge, "commgroup_info",
		"1; what the group is. gpu_model and library are those of most members.", "1 a group",
		LabelSpan, LabelOrigin, LabelGPUModel, "library", "run_state")
	Condition = of(Manager, Gauge, "commgroup_condition", "1 where the condition has this status, else 0.",
		"3 a condition, 9 conditions a group", LabelType, LabelStatus)
	ConditionReason = of(Manager, Gauge, "commgroup_condition_reason",
		"1; the condition's present reason, which docs/reasons.md explains.", "1 a condition", LabelType, LabelReason)
	ConditionTransition = of(Manager, Gauge, "commgroup_condition_last_transition_timestamp_seconds",
		"When the condition last changed its status, seconds since 1970.", "1 a condition", LabelType)
	Members = of(Manager, Gauge, "commgroup_members", "Members by state: selected, reporting, running, "+
		"pending, stale, and by verdict passed, failed, inconclusive, errored, skipped.", "10 a group", LabelState)
	BusBandwidth = of(Manager, Gauge, "commgroup_busbw_bytes_per_second",
		"Bus bandwidth of the last run, bytes a second (the API's MB/s x 10^6): "+
			"the members' median and slowest, or with span Group the communicators'.",
		"2 a measured size, at most 40 sizes in each of 72 series of span Node and 48 of span Group", LabelSpan,
		LabelDimension, LabelVariant, LabelCollective, LabelDatatype, LabelPlacement, LabelSize, LabelStatistic)
	AlgBandwidth = of(Manager, Gauge, "commgroup_algbw_bytes_per_second", "Algorithm bandwidth of the last run, "+
		"bytes a second: message size over commgroup_latency_seconds.", "1 a measured size, as above",
		LabelSpan, LabelDimension, LabelVariant, LabelCollective, LabelDatatype, LabelPlacement, LabelSize)
	Latency = of(Manager, Gauge, "commgroup_latency_seconds", "Latency of the last run, seconds: "+
		"the median over the members (span Group: the communicators) of their medians.", "1 a measured size, as above",
		LabelSpan, LabelDimension, LabelVariant, LabelCollective, LabelDatatype, LabelPlacement, LabelSize)
	RelativeError = of(Manager, Gauge, "commgroup_relative_error_ratio",
		"Worst relative error of FP8 transport in the last run against the fp32 reference (0.01 is 1 %).",
		"1 a series of results, at most 72 a group", LabelVariant, LabelCollective, LabelDatatype, LabelPlacement)
	WrongElements = of(Manager, Gauge, "commgroup_wrong_elements",
		"Elements that were wrong in the last run, over all members and sizes.",
		"1 a series of results, at most 72 a group", LabelVariant, LabelCollective, LabelDatatype, LabelPlacement)
	Headline = of(Manager, Gauge, "commgroup_headline_busbw_bytes_per_second", "The one number: bus bandwidth of "+
		"Baseline AllReduce at the largest size, the members' median, bytes a second.", "1 a group")
	Verdict = of(Manager, Gauge, "commgroup_verdict",
		"1 for the verdict of the last run that ended with one, else 0; absent before.", "5 a group", LabelVerdict)
	Setting = of(Manager, Gauge, "commgroup_setting_info", "1; a setting as requested, effective and verified, "+
		"whether its results are usable, and the reason. The value of a variable is not told: set.",
		"1 a setting, at most 80 a group", "setting", "requested", "effective", "verified", "usable", LabelReason)
	CheckRatio = of(Manager, Gauge, "commgroup_check_ratio", "Measured over expected bus bandwidth "+
		"of a check of the last run against the spec's threshold, a reference or the baseline (1 "+
		"is exactly the expected); absent where not measured. node is empty for the group's own.",
		"at most 16 a group, the worst", "source", "measurement", LabelNode, "mode", LabelState)
	Culprit = of(Manager, Gauge, "commgroup_culprit_info", "1; a culprit of the last run: what it is and why.",
		"at most 16 a group", "kind", "name", LabelNode, LabelReason)
	GatedNodes = of(Manager, Gauge, "commgroup_gated_nodes",
		"Nodes that carry the group's gating mark now; absent where gating is off.", "1 a group")
	BreakerOpen = of(Manager, Gauge, "commgroup_gating_breaker_open", "1 while so many members failed at once that "+
		"gating marks no further node, else 0; absent where gating is off.", "1 a group")
	Runs      = of(Manager, Counter, "commgroup_runs_total", "Runs that the group has started.", "1 a group")
	RunActive = of(Manager, Gauge, "commgroup_run_active", "1 while a run goes on, else 0.", "1 a group")
	RunStart  = of(Manager, Gauge, "commgroup_run_start_timestamp_seconds",
		"Start of the present or last run, seconds since 1970.", "1 a group")
	RunFinish = of(Manager, Gauge, "commgroup_run_finish_timestamp_seconds",
		"End of the last run, seconds since 1970; absent while one goes on.", "1 a group")
	RunDuration = of(Manager, Gauge, "commgroup_run_duration_seconds",
		"How long the last run that ended took, seconds.", "1 a group")
	NextRun = of(Manager, Gauge, "commgroup_next_run_timestamp_seconds",
		"When the schedule is due next, seconds since 1970; absent without a schedule.", "1 a group")
	BudgetUsed = of(Manager, Gauge, "commgroup_budget_used_gpu_seconds",
		"GPU time that runs used on the last UTC day with one, seconds; absent without a budget.", "1 a group")
	BudgetLimit = of(Manager, Gauge, "commgroup_budget_limit_gpu_seconds",
		"GPU time that runs may use each UTC day, seconds; absent without a budget.", "1 a group")
	ReportValid = of(Manager, Gauge, "commgroup_report_valid_seconds", "How long a member's report holds, seconds, "+
		"the longest of them: an older one counts as unknown. Absent until one has reported.", "1 a group")

	OldestReport = of(Manager, Gauge, "commgroup_oldest_report_timestamp_seconds",
		"When the member that reported least recently did so, seconds since 1970, by the API server's clock; "+
			"absent until all have reported once.", "1 a group")
	NodeVerdict = of(Manager, Gauge, "commgroup_node_verdict",
		"1; a member's own verdict in the last run that it took part in, and its reason; Stale where it no "+
			"longer counts, absent while it runs. A comparison with the other members is in commgroup_culprit_info.",
		"1 a member", LabelNode, LabelVerdict, LabelReason)
	NodeBusBW = of(Manager, Gauge, "commgroup_node_busbw_bytes_per_second", "A member's own bus bandwidth of "+
		"the measurement that commgroup_headline_busbw_bytes_per_second has, bytes a second.", "1 a member", LabelNode)
	NodeLastReport = of(Manager, Gauge, "commgroup_node_last_report_timestamp_seconds",
		"When the API server last took a report of the member's monitor, seconds since 1970.", "1 a member", LabelNode)
	NodeSlowestPair = of(Manager, Gauge, "commgroup_node_slowest_pair_bandwidth_bytes_per_second",
		"Measured bandwidth between the two GPUs of a member that are slowest, one direction, bytes a second.",
		"1 a member", LabelNode, LabelGPU, LabelPeer)
	NodeMedianPair = of(Manager, Gauge, "commgroup_node_median_pair_bandwidth_bytes_per_second",
		"Median of the measured bandwidth over all pairs of GPUs of a member, one direction, bytes a second.",
		"1 a member", LabelNode)
)

// Metrics of the agents' monitors, made from their last scan. A monitor serves every group of its node and knows none:
// promql.OfMembers finds those of a group.
var (
	AgentInfo = of(Agent, Gauge, "commgroup_agent_info",
		"1; the node's agent and platform as the last scan saw it.", "1 a node", LabelNode, LabelVersion,
		"rocm_version", "driver_version", LabelGPUModel, "partition", LabelOrigin)
	AgentScan = of(Agent, Gauge, "commgroup_agent_last_scan_timestamp_seconds",
		"When the node was last scanned with success, seconds since 1970, by the node's clock.", "1 a node", LabelNode)
	AgentReport = of(Agent, Gauge, "commgroup_agent_last_report_timestamp_seconds",
		"When the API server last took a report, seconds since 1970, by the node's clock; absent until it did.",
		"1 a node", LabelNode)
	AgentValid = of(Agent, Gauge, "commgroup_agent_report_valid_seconds",
		"How long a report of the monitor holds, seconds; absent until it had one to write.", "1 a node", LabelNode)
	AgentScanTime = of(Agent, Gauge, "commgroup_agent_scan_duration_seconds", "How long the last scan took, seconds.",
		"1 a node", LabelNode)
	AgentScanFails = of(Agent, Counter, "commgroup_agent_scan_failures_total",
		"Scans of the node that failed since the agent started.", "1 a node", LabelNode)
	AgentFailures = of(Agent, Counter, "commgroup_agent_report_failures_total",
		"Reports that the API server did not take since the agent started.", "1 a node", LabelNode)
	AgentGPUs = of(Agent, Gauge, "commgroup_agent_gpus",
		"Physical GPUs that KFD shows; absent where they could not be counted.", "1 a node", LabelNode)
	AgentXGMILinks = of(Agent, Gauge, "commgroup_agent_xgmi_links", "Directed pairs of GPUs that xGMI joins: "+
		"state up, and expected of this model where that is known; absent where links could not be read.",
		"2 a node", LabelNode, LabelState)
	AgentXGMILinkUp = of(Agent, Gauge, "commgroup_agent_xgmi_link_up",
		"1 where the kernel shows an xGMI link from gpu to peer; 0 where it shows none and the "+
			"model joins each two GPUs; else absent, and absent where links could not be read.",
		"56 a node of 8 GPUs, at most 240", LabelNode, LabelGPU, LabelPeer)
	AgentXGMIErrors = of(Agent, Counter, "commgroup_agent_xgmi_errors_total",
		"xGMI errors of a GPU since the driver was loaded: uncorrectable and correctable.",
		"2 a GPU, at most 16 GPUs a node", LabelNode, LabelGPU, LabelSeverity)
	AgentRAS = of(Agent, Counter, "commgroup_agent_ras_errors_total",
		"RAS errors of a GPU since the driver was loaded, over all blocks, xGMI included: "+
			"uncorrectable, correctable and deferred; absent where a counter of the GPU could not be read.",
		"3 a GPU, at most 16 GPUs a node", LabelNode, LabelGPU, LabelSeverity)
	AgentProblems = of(Agent, Gauge, "commgroup_agent_problem_info",
		"1; a problem that the last scan found. docs/discovery.md explains each code.", "at most 12 a node", LabelNode,
		LabelSeverity, "code", "subject")
)

// All is the contract, in the order of docs/metrics.md.
func All() []Metric {
	return []Metric{
		ManagerInfo, Info, Condition, ConditionReason, ConditionTransition, Members, Verdict, Headline, BusBandwidth,
		AlgBandwidth, Latency, RelativeError, WrongElements,
		CheckRatio, Setting, Culprit, GatedNodes, BreakerOpen, Runs, RunActive, RunStart, RunFinish, RunDuration,
		NextRun, BudgetUsed, BudgetLimit, ReportValid,
		OldestReport, NodeVerdict, NodeBusBW, NodeLastReport, NodeSlowestPair, NodeMedianPair,
		AgentInfo, AgentScan, AgentReport, AgentValid, AgentScanTime, AgentScanFails, AgentFailures, AgentGPUs,
		AgentXGMILinks, AgentXGMILinkUp, AgentXGMIErrors, AgentRAS, AgentProblems,
	}
}

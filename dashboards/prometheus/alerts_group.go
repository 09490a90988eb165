package prometheus

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

const (
	groupName = "{{ $labels.group_namespace }}/{{ $labels.group }}"
	status    = "`kubectl commgroup status GROUP -n NAMESPACE` - verdict, culprits, conditions and settings in one view"
	explain   = "`kubectl commgroup explain GROUP -n NAMESPACE` - why a setting is not in effect"
	results   = "`kubectl commgroup results GROUP -n NAMESPACE` - the measurements by size and variant"
	topology  = "`kubectl commgroup topology NODE` - the node's xGMI mesh, drawn"
	members   = "`kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP` - each member's verdict and reason"
	reported  = "`kubectl get cn` - each node's GPUs, first problem and age of its report"
	// Of a run that is over only pods that ended by themselves on failed nodes are left, until the next run.
	runLogs = "`kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/role=run --all-containers --prefix " +
		"--tail=-1` - the logs of failed nodes, at most 16 pods that ended by themselves, kept until the next run. " +
		"Where there are none: `kubectl commgroup run GROUP -n NAMESPACE`, then the same with `-f " +
		"--max-log-requests=64` as soon as its pods start. What a rank that failed printed last stays in its " +
		"CommTask: `status.run.logTail`"
	monitors = "`kubectl -n commgroup-system get pods -o wide -l app.kubernetes.io/name=commgroup-monitor` - the " +
		"monitors, then `kubectl logs` of the one on the node"
)

// reasonOfReady looks the present reason up when the alert is written, so that a change of the reason does not start
// the waiting again.
var reasonOfReady = "{{ with printf \"" + metrics.ConditionReason.Name +
	"{type='Ready',group_namespace='%s',group='%s'}\" $labels.group_namespace $labels.group | query }}" +
	"{{ . | first | label \"reason\" }}{{ else }}unknown{{ end }}"

// ended is the series of a verdict of the pool's last run.
func ended(verdict, values string) Series {
	return of(metrics.Verdict, labels{"verdict": verdict}, values)
}

func groupAlerts() []Alert {
	return []Alert{notReady(), failed(), runErrored(), culpritFound(), wrongData(), performanceBelowExpected(),
		bandwidthDropped()}
}

func notReady() Alert {
	ready := func(status, values string) Series {
		return of(metrics.Condition, labels{"type": "Ready", "status": status}, values)
	}
	return Alert{
		Name: "CommGroupNotReady", Severity: Warning, For: 15 * time.Minute,
		Expr: fmt.Sprintf("%s == 0 unless %s %s unless %s %s",
			promql.Max(promql.Of(metrics.Condition, promql.Is("type", "Ready"), promql.Is("status", "True"))),
			promql.OnGroup(), promql.RunGoesOn(), promql.OnGroup(), promql.OutOfWork()),
		Summary: "CommGroup " + groupName + " is not Ready",
		Description: "CommGroup " + groupName +
			" has not been Ready for 15 minutes and no run is at work. Reason now: " + reasonOfReady + ".",
		Page: Page{
			Meaning: "The condition `Ready` of a CommGroup has been other than `True` for 15 minutes, while no run " +
				"was at work and the group was not suspended.",
			Impact: "The nodes of the group are not proven fit to run jobs together.",
			Look: []string{status, members,
				"`kubectl get events -n NAMESPACE --field-selector involvedObject.name=GROUP` - what changed last"},
			Do: []string{"Open the page of the reason in the description, below; it names the next step.",
				"Where a node is named, take it out of the group (`spec.members.exclude`) or mend it, then ask for a " +
					"run: `kubectl commgroup run GROUP -n NAMESPACE`."},
			Silence: "While the group is taken into service: silence by `group_namespace` and `group`, " +
				"or set `spec.run.state: Suspended`, which stops this alert by itself.",
			Reasons: toMend("Condition Accepted", "Condition AgentsReporting", "Condition Compatible",
				validated, stage),
		},
		Tests: []Test{
			{Name: "not ready for 20 minutes", At: 20 * time.Minute,
				Series: []Series{ready("True", "0x30"), ready("False", "1x30"), of(metrics.RunActive, nil, "0x30"),
					of(metrics.ConditionReason, labels{"type": "Ready", "reason": "TooFewMembers"}, "1x12 _x20"),
					of(metrics.ConditionReason, labels{"type": "Ready", "reason": "TopologyFault"}, "_x12 1x20")},
				Fires: []Fired{{Labels: pool, Summary: "CommGroup ml/pool is not Ready", Description: "CommGroup " +
					"ml/pool has not been Ready for 15 minutes and no run is at work. Reason now: TopologyFault."}}},
			{Name: "not ready for 10 minutes", At: 10 * time.Minute, Pending: 1,
				Series: []Series{ready("True", "0x30")}},
			{Name: "a run is at work", At: 20 * time.Minute,
				Series: []Series{ready("True", "0x30"), of(metrics.RunActive, nil, "1x30")}},
			{Name: "suspended", At: 20 * time.Minute, Series: []Series{ready("True", "0x30"),
				of(metrics.ConditionReason, labels{"type": "Running", "reason": "Suspended"}, "1x30")}},
			{Name: "ready", At: 20 * time.Minute, Series: []Series{ready("True", "1x30")}},
		},
	}
}

func failed() Alert {
	return Alert{
		Name: "CommGroupFailed", Severity: Critical,
		Expr:    promql.Max(promql.Of(metrics.Verdict, promql.Is("verdict", "Fail"))) + " == 1",
		Summary: "CommGroup " + groupName + " failed its last run",
		Description: "The last run of CommGroup " + groupName + " ended with verdict Fail. CommGroupCulpritFound " +
			"names what failed; kubectl commgroup status shows it with the next step.",
		Page: Page{
			Meaning: "The last run measured something that is wrong, too slow, or hung, and the verdict is `Fail`.",
			Impact:  "A job over these nodes would be slow, hang, or compute wrong sums.",
			Look:    []string{status, results, topology},
			Do: []string{"Follow the next step that stands with the first culprit.",
				"Drain the culprit's node, where it has one: a pair or a communicator is no node's fault. " +
					"A mended node is run again by `kubectl commgroup run GROUP -n NAMESPACE`."},
			Silence: "Only by `group_namespace` and `group`, for the time of the repair. It ends when a run passes.",
			Reasons: failReasons,
		},
		Tests: []Test{
			{Name: "failed", At: time.Minute, Series: []Series{ended("Fail", "1x10"), ended("Pass", "0x10")},
				Fires: []Fired{{Labels: pool, Summary: "CommGroup ml/pool failed its last run",
					Description: "The last run of CommGroup ml/pool ended with verdict Fail. CommGroupCulpritFound " +
						"names what failed; kubectl commgroup status shows it with the next step."}}},
			{Name: "passed", At: time.Minute, Series: []Series{ended("Fail", "0x10"), ended("Pass", "1x10")}},
		},
	}
}

func runErrored() Alert {
	return Alert{
		Name: "CommGroupRunErrored", Severity: Warning, For: 5 * time.Minute,
		Expr:    promql.Max(promql.Of(metrics.Verdict, promql.Is("verdict", "Error"))) + " == 1",
		Summary: "The last run of CommGroup " + groupName + " could not measure",
		Description: "The last run of CommGroup " + groupName + " ended with verdict Error: something kept it from " +
			"measuring. kubectl commgroup status says which node and why.",
		Page: Page{
			Meaning: "The last run ended with `Error`: pods did not start, a library was missing, a precondition was " +
				"not met. Nothing is known of the hardware.",
			Impact: "The group has no verdict, and so no proof.",
			Look: []string{status, members, "`kubectl get events -n NAMESPACE --field-selector type=Warning` - what " +
				"the kubelet and the scheduler said of run pods", runLogs},
			Do: []string{"Open the page of the reason, below: image, library path, GPU resources and memory are the " +
				"usual ones.", "Run again: `kubectl commgroup run GROUP -n NAMESPACE`."},
			Silence: "By `group_namespace` and `group`, until the image or the quota is mended.",
			Reasons: errorReasons(),
		},
		Tests: []Test{
			{Name: "error", At: 6 * time.Minute, Series: []Series{ended("Error", "1x10")},
				Fires: []Fired{{Labels: pool, Summary: "The last run of CommGroup ml/pool could not measure",
					Description: "The last run of CommGroup ml/pool ended with verdict Error: something kept it from " +
						"measuring. kubectl commgroup status says which node and why."}}},
			{Name: "error just now", At: 2 * time.Minute, Pending: 1, Series: []Series{ended("Error", "1x10")}},
			{Name: "no error", At: 6 * time.Minute, Series: []Series{ended("Error", "0x10")}},
		},
	}
}

func culpritFound() Alert {
	// What is no single node's, a pair or a communicator, has no node: nobody drains one for it.
	const onNode = "{{ if $labels.node }} on node {{ $labels.node }}{{ end }}"
	culprit := labels{"kind": "Link", "name": "0000:5b:00.0<->0000:a5:00.0", "node": "gpu-2", "reason": "SlowLink"}
	pair := labels{"kind": "Pair", "name": "gpu-1<->gpu-2", "reason": "SlowPair"}
	communicator := labels{"kind": "Link", "name": "dp/0-7", "reason": "SlowCommunicator"}
	lost := labels{"kind": "Node", "name": "gpu-3", "node": "gpu-3", "reason": "MemberLost"}
	refuses := labels{"kind": "Node", "name": "gpu-3", "node": "gpu-3", "reason": "InterfaceNotFound"}
	monitored := labels{"kind": "Node", "name": "gpu-3", "node": "gpu-3", "reason": "PCIeInsteadOfXGMI"}
	return Alert{
		Name: "CommGroupCulpritFound", Severity: Warning,
		Expr: promql.Max(promql.Of(metrics.Culprit, promql.NotIn("reason", errorReasons()...)), "kind", "name",
			"node", "reason"),
		Summary: "{{ $labels.kind }} {{ $labels.name }}" + onNode + ": {{ $labels.reason }}",
		Description: "The last run of CommGroup " + groupName + " names {{ $labels.kind }} {{ $labels.name }}" +
			onNode + " as a culprit: {{ $labels.reason }}.",
		Page: Page{
			Meaning: "The last run named a node, GPU, link, pair of nodes, NIC or rank as the cause of a bad result. " +
				"One alert for each, at most 16 a group.",
			Impact: "Jobs that use it are slow or fail.",
			Look: []string{status, topology,
				"`kubectl get ct -n NAMESPACE GROUP.NODE -o yaml` - the node's own report with all figures"},
			Do: []string{"The message in `status.culprits` of the run's CommRun ends with the next step; " +
				"the reason's page, below, has more. Codes that are not below come from the monitor: " +
				"[discovery](../../discovery.md).", "Where the culprit has a node: " +
				"drain it, mend it, and run again by `kubectl commgroup run GROUP -n NAMESPACE`.",
				"A pair of nodes or a communicator has none: drain nobody, its reason's page says where " +
					"to look (the path between two good nodes, what the communicator's members share).",
				"A node of which nothing could be measured, since it was lost or could not take part, is there " +
					"without this alert: its reason's page says what to do, and that is not to drain it."},
			Silence: "By `node`, or by `name` where there is no node, while a ticket for it is open. " +
				"It ends when a later run does not name it.",
			Reasons: culpritReasons,
		},
		Tests: []Test{
			{Name: "a slow link", At: time.Minute, Series: []Series{of(metrics.Culprit, culprit, "1x10")},
				Fires: []Fired{{Labels: pool.with(culprit),
					Summary: "Link 0000:5b:00.0<->0000:a5:00.0 on node gpu-2: SlowLink",
					Description: "The last run of CommGroup ml/pool names Link 0000:5b:00.0<->0000:a5:00.0 on node " +
						"gpu-2 as a culprit: SlowLink."}}},
			{Name: "a pair of nodes", At: time.Minute, Series: []Series{of(metrics.Culprit, pair, "1x10")},
				Fires: []Fired{{Labels: pool.with(pair), Summary: "Pair gpu-1<->gpu-2: SlowPair",
					Description: "The last run of CommGroup ml/pool names Pair gpu-1<->gpu-2 as a " +
						"culprit: SlowPair."}}},
			{Name: "a communicator", At: time.Minute, Series: []Series{of(metrics.Culprit, communicator, "1x10")},
				Fires: []Fired{{Labels: pool.with(communicator), Summary: "Link dp/0-7: SlowCommunicator",
					Description: "The last run of CommGroup ml/pool names Link dp/0-7 as a culprit: " +
						"SlowCommunicator."}}},
			{Name: "a code of the monitor", At: time.Minute, Series: []Series{of(metrics.Culprit, monitored, "1x10")},
				Fires: []Fired{{Labels: pool.with(monitored), Summary: "Node gpu-3 on node gpu-3: PCIeInsteadOfXGMI",
					Description: "The last run of CommGroup ml/pool names Node gpu-3 on node gpu-3 as a culprit: " +
						"PCIeInsteadOfXGMI."}}},
			{Name: "a node that was lost", At: time.Minute, Series: []Series{of(metrics.Culprit, lost, "1x10")}},
			{Name: "a node that could not take part", At: time.Minute,
				Series: []Series{of(metrics.Culprit, refuses, "1x10")}},
			{Name: "a group without culprits", At: time.Minute, Series: []Series{ended("Fail", "1x10")}},
		},
	}
}

func wrongData() Alert {
	series := labels{"variant": "Baseline", "collective": "AllReduce", "datatype": "BFloat16",
		"placement": "OutOfPlace"}
	return Alert{
		Name: "CommGroupWrongData", Severity: Critical,
		Expr:    promql.Max(promql.Of(metrics.WrongElements), "variant", "collective", "datatype") + " > 0",
		Summary: "{{ $labels.variant }} {{ $labels.collective }} computes wrong data in CommGroup " + groupName,
		Description: "{{ $value }} elements of {{ $labels.variant }} {{ $labels.collective }} {{ $labels.datatype }} " +
			"were wrong in the last run of CommGroup " + groupName + ".",
		Page: Page{
			Meaning: "Results of a collective differed from the reference. Known hazards of FP8 counts are not " +
				"counted here, those are warnings of the setting.",
			Impact: "Silent data corruption: training goes wrong without an error.",
			Look: []string{status, results,
				"The dashboard CommGroup - nodes and links, for RAS errors of the culprit's GPUs"},
			Do: []string{"Take the culprit's node out of service at once.", "Look for uncorrectable RAS errors of " +
				"its GPUs and run again with the library's previous build, to tell hardware from library."},
			Silence: "Never while jobs run on the nodes.",
			Reasons: []string{"WrongData"},
		},
		Tests: []Test{
			{Name: "wrong", At: time.Minute, Series: []Series{of(metrics.WrongElements, series, "3x10")},
				Fires: []Fired{{Labels: pool.with(labels{"variant": "Baseline", "collective": "AllReduce",
					"datatype": "BFloat16"}), Summary: "Baseline AllReduce computes wrong data in CommGroup ml/pool",
					Description: "3 elements of Baseline AllReduce BFloat16 were wrong in the last run of " +
						"CommGroup ml/pool."}}},
			{Name: "right", At: time.Minute, Series: []Series{of(metrics.WrongElements, series, "0x10")}},
		},
	}
}

func performanceBelowExpected() Alert {
	check := labels{"source": "MI300X reference", "measurement": "Baseline AllReduce BFloat16 67108864 B",
		"node": "gpu-2", "mode": "Enforce", "state": "NotMet"}
	return Alert{
		Name: "CommGroupPerformanceBelowExpected", Severity: Warning,
		Expr: promql.Max(promql.Of(metrics.CheckRatio, promql.Is("state", "NotMet")), "source",
			"measurement", "node", "mode"),
		Summary: "CommGroup " + groupName + " is slower than expected: {{ $labels.measurement }}",
		Description: "{{ $labels.measurement }} reaches {{ $value | humanizePercentage }} of what {{ $labels.source " +
			"}} expects{{ if $labels.node }} on node {{ $labels.node }}{{ end }} in CommGroup " + groupName +
			" ({{ $labels.mode }}).",
		Page: Page{
			Meaning: "A measurement of the last run stayed under a threshold of the spec, a published reference of " +
				"exactly its kind, or the group's own baseline.",
			Impact: "Jobs are slower than they could be. With mode `Enforce` the run failed, with `Report` it did not.",
			Look:   []string{status, results, "`status.checks[].causes` of the run's CommRun - what to look at first"},
			Do: []string{"[thresholds](../../thresholds.md) says where marks come from and what lowers numbers.",
				"Compare with earlier runs on the dashboard CommGroup - group."},
			Silence: "By `measurement`, or set the mode of that comparison to `Report` or `Off` in the spec.",
			Reasons: []string{"BelowThreshold", "Regression"},
		},
		Tests: []Test{
			{Name: "at half of the mark", At: time.Minute, Series: []Series{of(metrics.CheckRatio, check, "0.5x10")},
				Fires: []Fired{{Labels: pool.with(labels{"source": check["source"], "measurement": check["measurement"],
					"node": "gpu-2", "mode": "Enforce"}),
					Summary: "CommGroup ml/pool is slower than expected: Baseline AllReduce BFloat16 67108864 B",
					Description: "Baseline AllReduce BFloat16 67108864 B reaches 50% of what MI300X reference " +
						"expects on node gpu-2 in CommGroup ml/pool (Enforce)."}}},
			{Name: "met", At: time.Minute,
				Series: []Series{of(metrics.CheckRatio, check.with(labels{"state": "Met"}), "1.02x10")}},
		},
	}
}

func bandwidthDropped() Alert {
	return Alert{
		Name: "CommGroupBandwidthDropped", Severity: Warning, For: 5 * time.Minute,
		Expr: fmt.Sprintf("%s < 0.9 * %s", promql.Max(promql.Of(metrics.Headline)),
			promql.Max("quantile_over_time(0.5, "+promql.Of(metrics.Headline)+"[7d])")),
		Summary: "Bus bandwidth of CommGroup " + groupName + " dropped",
		Description: "The headline bus bandwidth of CommGroup " + groupName +
			" is {{ $value | humanize }}B/s, more than 10 % under its median of the last 7 days.",
		Page: Page{
			Meaning: "The headline measurement (Baseline AllReduce at the largest size) lost more than a tenth " +
				"against its own median of seven days.",
			Impact: "The group passes perhaps, and is slower than it was.",
			Look:   []string{results, status, "`status.history` and `status.trend` of the CommGroup"},
			Do: []string{"Look what changed since the last good run: driver, firmware, library, members, " +
				"benchmark sizes.", "With `benchmark.regression.mode: Enforce` such a loss fails the run."},
			Silence: "By group, for seven days after a change that was meant (other sizes, another library).",
			Reasons: []string{"Regression"},
		},
		Tests: []Test{
			{Name: "a fifth less", At: 80 * time.Minute,
				Series: []Series{of(metrics.Headline, nil, "300000000000x60 240000000000x60")},
				Fires: []Fired{{Labels: pool, Summary: "Bus bandwidth of CommGroup ml/pool dropped",
					Description: "The headline bus bandwidth of CommGroup ml/pool is 240GB/s, more than 10 % under " +
						"its median of the last 7 days."}}},
			{Name: "just dropped", At: 63 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.Headline, nil, "300000000000x60 240000000000x60")}},
			{Name: "a twentieth less", At: 80 * time.Minute,
				Series: []Series{of(metrics.Headline, nil, "300000000000x60 285000000000x60")}},
		},
	}
}

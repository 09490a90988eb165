package prometheus

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

const onNode = "node {{ $labels.node }}"

// node is the node that the tests speak of.
var node = labels{"node": "gpu-2"}

func nodeAlerts() []Alert {
	return []Alert{xgmiLinkDown(), rasErrors(), agentDown(), agentReportFailing(), agentScanStale(), agentProblem()}
}

func xgmiLinkDown() Alert {
	link := node.with(labels{"gpu": "0000:5b:00.0", "peer": "0000:a5:00.0"})
	return Alert{
		Name: "CommGroupXGMILinkDown", Severity: Critical, For: 2 * time.Minute,
		Expr:    promql.NodeMax(promql.Of(metrics.AgentXGMILinkUp), "gpu", "peer") + " == 0",
		Summary: "xGMI link {{ $labels.gpu }} to {{ $labels.peer }} on " + onNode + " is down",
		Description: "On " + onNode +
			" the kernel shows no xGMI link from GPU {{ $labels.gpu }} to {{ $labels.peer }}.",
		Page: Page{
			Meaning: "The kernel's topology lacks an xGMI link between two GPUs of a model whose GPUs are all joined.",
			Impact:  "The pair talks over PCIe: collectives on the node are many times slower, or do not start.",
			Look: []string{topology, "On the node: `dmesg | grep -i xgmi`",
				"`agent discover -o table` on the node - what each file says"},
			Do: []string{"Drain the node and power-cycle it; where the link stays down, replace the GPU or " +
				"the baseboard.", "After the repair the node is run again by itself."},
			Silence: "By `node`, while the ticket is open.",
			Reasons: []string{"TopologyFault", "HealthDegraded"},
		},
		Tests: []Test{
			{Name: "down", At: 3 * time.Minute, Series: []Series{of(metrics.AgentXGMILinkUp, link, "0x10")},
				Fires: []Fired{{Labels: link, Summary: "xGMI link 0000:5b:00.0 to 0000:a5:00.0 on node gpu-2 is down",
					Description: "On node gpu-2 the kernel shows no xGMI link from GPU 0000:5b:00.0 to " +
						"0000:a5:00.0."}}},
			{Name: "just now", At: time.Minute, Pending: 1,
				Series: []Series{of(metrics.AgentXGMILinkUp, link, "0x10")}},
			{Name: "up", At: 3 * time.Minute, Series: []Series{of(metrics.AgentXGMILinkUp, link, "1x10")}},
		},
	}
}

func rasErrors() Alert {
	ras := func(severity, values string) Series {
		return of(metrics.AgentRAS, node.with(labels{"gpu": "0000:5b:00.0", "severity": severity}), values)
	}
	return Alert{
		Name: "CommGroupRASErrors", Severity: Critical,
		Expr: promql.NodeMax("increase("+
			promql.Of(metrics.AgentRAS, promql.Is("severity", metrics.SeverityUncorrectable))+"[1h])", "gpu") + " > 0",
		Summary: "Uncorrectable RAS errors of GPU {{ $labels.gpu }} on " + onNode,
		Description: "GPU {{ $labels.gpu }} on " + onNode +
			" counted {{ $value | humanize }} uncorrectable RAS errors within an hour.",
		Page: Page{
			Meaning: "The driver counted uncorrectable errors (memory, xGMI or another block) of a GPU " +
				"within the last hour.",
			Impact: "Data may be lost; ranks on the GPU die or hang.",
			Look: []string{topology,
				"On the node: `dmesg | grep -i -E 'ras|umc|poison'` and the GPU's `ras/` counters in sysfs"},
			Do: []string{"Drain the node, reset the GPU or reboot, then ask for a run.",
				"Where errors come again, replace the GPU."},
			Silence: "By `node` and `gpu`, while the ticket is open. It ends an hour after the last error.",
			Reasons: []string{"HealthDegraded"},
		},
		Tests: []Test{
			{Name: "errors come", At: 30 * time.Minute, Series: []Series{ras("uncorrectable", "0x15 2x30")},
				// increase extrapolates to the whole of its range, as far as the series reaches.
				Fires: []Fired{{Labels: node.with(labels{"gpu": "0000:5b:00.0"}),
					Summary:     "Uncorrectable RAS errors of GPU 0000:5b:00.0 on node gpu-2",
					Description: "GPU 0000:5b:00.0 on node gpu-2 counted 2 uncorrectable RAS errors within an hour."}}},
			{Name: "old errors", At: 30 * time.Minute, Series: []Series{ras("uncorrectable", "2x60")}},
			{Name: "corrected ones", At: 30 * time.Minute, Series: []Series{ras("correctable", "0+5x60")}},
		},
	}
}

func agentDown() Alert {
	info := node.with(labels{"version": "v1", "rocm_version": "7.0.2", "driver_version": "6.14.14",
		"gpu_model": "MI300X", "partition": "SPX/NPS1", "origin": "Hardware"})
	return Alert{
		Name: "CommGroupAgentDown", Severity: Warning, For: 10 * time.Minute,
		Expr: fmt.Sprintf("%s unless %s %s and on () max_over_time(%s[1h])",
			promql.NodeMax(promql.Of(metrics.NodeLastReport)), promql.OnNode, promql.Of(metrics.AgentInfo),
			promql.Of(metrics.AgentInfo)),
		Summary: "The monitor on " + onNode + " is not scraped",
		Description: "Prometheus has had no metrics of the monitor on " + onNode +
			" for 10 minutes, while monitors were scraped within the hour.",
		Page: Page{
			Meaning: "The manager knows the node as a member of a CommGroup, and its monitor gives no metrics: " +
				"the pod is down, or Prometheus cannot reach it. Where no monitor at all was scraped within the " +
				"hour, this alert does not speak: monitors are then not scraped at all.",
			Impact: "Link and RAS alerts of the node cannot fire.",
			Look:   []string{monitors, "Prometheus, Status, Targets: the monitor's target and its error"},
			Do: []string{"Mend the pod or its node.",
				"A network policy may keep Prometheus from the monitors' port; the chart's values have a rule for it."},
			Silence: "By `node`, while it is in maintenance.",
			Reasons: []string{"AgentNotReporting"},
		},
		Tests: []Test{
			{Name: "one of two is gone", At: 38 * time.Minute,
				Series: []Series{of(metrics.NodeLastReport, node, "0+60x60"),
					of(metrics.NodeLastReport, labels{"node": "gpu-3"}, "0+60x60"),
					of(metrics.AgentInfo, info, "1x20 _x40"),
					of(metrics.AgentInfo, info.with(labels{"node": "gpu-3"}), "1x60")},
				Fires: []Fired{{Labels: node, Summary: "The monitor on node gpu-2 is not scraped",
					Description: "Prometheus has had no metrics of the monitor on node gpu-2 for 10 minutes, " +
						"while monitors were scraped within the hour."}}},
			{Name: "gone just now", At: 28 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.NodeLastReport, node, "0+60x60"),
					of(metrics.AgentInfo, info, "1x20 _x40")}},
			{Name: "monitors are not scraped", At: 35 * time.Minute,
				Series: []Series{of(metrics.NodeLastReport, node, "0+60x60")}},
			{Name: "there", At: 35 * time.Minute,
				Series: []Series{of(metrics.NodeLastReport, node, "0+60x60"), of(metrics.AgentInfo, info, "1x60")}},
		},
	}
}

func agentReportFailing() Alert {
	return Alert{
		Name: "CommGroupAgentReportFailing", Severity: Warning, For: 10 * time.Minute,
		Expr:    promql.NodeMax("increase("+promql.Of(metrics.AgentFailures)+"[15m])") + " >= 3",
		Summary: "Reports of the monitor on " + onNode + " are not taken",
		Description: "The API server did not take {{ $value | humanize }} reports of the monitor on " + onNode +
			" within 15 minutes.",
		Page: Page{
			Meaning: "The monitor scans its node, and the API server refuses the reports or does not answer.",
			Impact:  "What groups know of the node grows old.",
			Look:    []string{monitors},
			Do: []string{"`forbidden`: the roles or the admission policy " +
				"of the agents are older than the agent: upgrade the release.",
				"A time-out: the node does not reach the API server, look at its network and at network policies."},
			Silence: "By `node`.",
			Reasons: []string{"AgentNotReporting"},
		},
		Tests: []Test{
			{Name: "each is refused", At: 40 * time.Minute, Series: []Series{of(metrics.AgentFailures, node, "0+1x60")},
				Fires: []Fired{{Labels: node, Summary: "Reports of the monitor on node gpu-2 are not taken",
					Description: "The API server did not take 15 reports of the monitor on node gpu-2 " +
						"within 15 minutes."}}},
			{Name: "since some minutes", At: 10 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.AgentFailures, node, "0+1x60")}},
			{Name: "one in an hour", At: 40 * time.Minute,
				Series: []Series{of(metrics.AgentFailures, node, "0x35 1x30")}},
		},
	}
}

func agentScanStale() Alert {
	return Alert{
		Name: "CommGroupAgentScanStale", Severity: Warning, For: 5 * time.Minute,
		// By the node's clock: clocks that are minutes apart fire it too, and should be fixed as well. A monitor scans
		// at half of the time that its report holds, or sooner.
		Expr: fmt.Sprintf("time() - %s > 300 + %s",
			promql.NodeMax(promql.Of(metrics.AgentScan)), promql.NodeMax(promql.Of(metrics.AgentValid))),
		Summary: "The monitor on " + onNode + " no longer scans",
		Description: "The monitor on " + onNode +
			" last scanned its node with success {{ $value | humanizeDuration }} ago, by the node's clock.",
		Page: Page{
			Meaning: "The monitor answers, and its last successful scan is older than a report holds and " +
				"five minutes more.",
			Impact: "A link or GPU that is lost now goes unseen.",
			Look: []string{monitors, "`" + metrics.AgentScanFails.Name + "` - do scans fail, or is one stuck?",
				"The node's clock: `chronyc tracking`"},
			Do: []string{"A scan that is stuck in sysfs means that the driver hangs: drain the node and reboot it.",
				"Restart the monitor's pod."},
			Silence: "By `node`.",
			Reasons: []string{"SysfsUnreadable", "ClockSkew"},
		},
		Tests: []Test{
			{Name: "silent for 25 minutes", At: 25 * time.Minute,
				Series: []Series{of(metrics.AgentScan, node, "0x60"), of(metrics.AgentValid, node, "600x60")},
				Fires: []Fired{{Labels: node, Summary: "The monitor on node gpu-2 no longer scans",
					Description: "The monitor on node gpu-2 last scanned its node with success 25m 0s ago, " +
						"by the node's clock."}}},
			{Name: "silent for 17 minutes", At: 17 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.AgentScan, node, "0x60"), of(metrics.AgentValid, node, "600x60")}},
			{Name: "reports hold for an hour", At: 25 * time.Minute,
				Series: []Series{of(metrics.AgentScan, node, "0x60"), of(metrics.AgentValid, node, "3600x60")}},
			{Name: "scans go on", At: 25 * time.Minute,
				Series: []Series{of(metrics.AgentScan, node, "0+60x60"), of(metrics.AgentValid, node, "600x60")}},
		},
	}
}

func agentProblem() Alert {
	problem := node.with(labels{"severity": "Error", "code": "PCIeInsteadOfXGMI",
		"subject": "0000:5b:00.0<->0000:a5:00.0"})
	whole := node.with(labels{"severity": "Error", "code": "NoGPUs"})
	return Alert{
		Name: "CommGroupAgentProblem", Severity: Warning, For: 10 * time.Minute,
		Expr:    promql.NodeMax(promql.Of(metrics.AgentProblems, promql.Is("severity", "Error")), "code", "subject"),
		Summary: "{{ $labels.code }} on " + onNode + "{{ with $labels.subject }}: {{ . }}{{ end }}",
		Description: "The monitor on " + onNode +
			" has found {{ $labels.code }}{{ with $labels.subject }} ({{ . }}){{ end }} for 10 minutes.",
		Page: Page{
			Meaning: "The monitor finds a problem of severity Error on its node: a link, a GPU, the driver, " +
				"or files that cannot be read.",
			Impact: "No group with the node is Compatible.",
			Look: []string{topology,
				"`kubectl get cn NODE -o jsonpath='{.status.facts.problems}'` - messages with the next step"},
			Do:      []string{"[discovery](../../discovery.md) explains each code."},
			Silence: "By `node` and `code`, while the ticket is open.",
			Reasons: []string{"TopologyFault", "NoGPUs", "DriverNotLoaded", "SysfsUnreadable"},
		},
		Tests: []Test{
			{Name: "a link over PCIe", At: 11 * time.Minute,
				Series: []Series{of(metrics.AgentProblems, problem, "1x20")},
				Fires: []Fired{{Labels: node.with(labels{"code": problem["code"], "subject": problem["subject"]}),
					Summary: "PCIeInsteadOfXGMI on node gpu-2: 0000:5b:00.0<->0000:a5:00.0",
					Description: "The monitor on node gpu-2 has found PCIeInsteadOfXGMI " +
						"(0000:5b:00.0<->0000:a5:00.0) for 10 minutes."}}},
			{Name: "of the node as a whole", At: 11 * time.Minute,
				Series: []Series{of(metrics.AgentProblems, whole, "1x20")},
				Fires: []Fired{{Labels: node.with(labels{"code": whole["code"]}), Summary: "NoGPUs on node gpu-2",
					Description: "The monitor on node gpu-2 has found NoGPUs for 10 minutes."}}},
			{Name: "just now", At: 5 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.AgentProblems, problem, "1x20")}},
			{Name: "a warning", At: 11 * time.Minute,
				Series: []Series{of(metrics.AgentProblems, problem.with(labels{"severity": "Warning"}), "1x20")}},
		},
	}
}

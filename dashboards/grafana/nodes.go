package grafana

import (
	"fmt"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

var chosenNode = promql.Like(metrics.LabelNode, "$node")

// chosenNodes is a metric of the chosen nodes. A monitor's is that of a member of the chosen group.
func chosenNodes(m metrics.Metric, more ...promql.Match) string {
	more = append([]promql.Match{chosenNode}, more...)
	if m.Source == metrics.Agent {
		return promql.OfMembers(promql.Of(m, more...), chosen()...)
	}
	return of(m, more...)
}

// inAnHour is by how much a monitor's counter grew on the chosen nodes.
func inAnHour(m metrics.Metric) string {
	return promql.NodeMax(promql.OfMembers("increase("+promql.Of(m, chosenNode)+"[1h])", chosen()...))
}

func nodes() Dashboard {
	const node = "{{node}}"
	linkUp := promql.NodeMin(chosenNodes(metrics.AgentXGMILinkUp), "gpu", "peer")
	busbw := promql.NodeMax(chosenNodes(metrics.NodeBusBW))
	return Dashboard{
		UID: "commgroup-nodes", Title: "CommGroup - nodes and links",
		Description: "Members of a CommGroup: bandwidth of each node, xGMI links, and RAS errors of its GPUs.",
		variables: []variable{namespaceVariable(!all), groupVariable(!all),
			{metrics.LabelNode, "Node", of(metrics.NodeLastReport), true}},
		rows: []row{
			{"Nodes", []panel{
				{kind: rows, title: "Nodes", width: 24, height: 10, description: "Verdict: each node's own, " +
					"of the last run that it took part in. The slowest pair is named by its GPUs' PCI addresses.",
					transformations: merged([]string{"Value #A", "Value #E"},
						map[string]string{"Value #B": "bus bandwidth (bytes/s)", "Value #C": "slowest pair (bytes/s)",
							"Value #D": "median pair (bytes/s)", "Value #F": "report age (s)", "Value #G": "links up"}),
					queries: []query{
						{expr: promql.NodeMax(chosenNodes(metrics.NodeVerdict), "verdict", "reason")}, {expr: busbw},
						{expr: promql.NodeMax(chosenNodes(metrics.NodeSlowestPair), "gpu", "peer")},
						{expr: promql.NodeMax(chosenNodes(metrics.NodeMedianPair))},
						{expr: promql.NodeMax(chosenNodes(metrics.AgentInfo), "rocm_version", "driver_version",
							"gpu_model", "partition")},
						{expr: "time() - " + promql.NodeMax(chosenNodes(metrics.NodeLastReport))},
						{expr: promql.NodeMax(chosenNodes(metrics.AgentXGMILinks,
							promql.Is("state", metrics.LinksUp)))},
					}},
				{kind: gauges, title: "Slowest 20 nodes by bus bandwidth", width: 12, height: 12,
					unit: bandwidth, description: "Each node's own, of the headline measurement.",
					queries: []query{{"bottomk(20, " + busbw + ")", node}}},
				{kind: gauges, title: "Slowest 20 nodes by their slowest pair of GPUs", width: 12, height: 12,
					unit: share, description: "The slowest pair's bandwidth as a share of the node's median pair: " +
						"100 % is an even mesh.", steps: []step{{0, red}, {0.7, orange}, {0.9, green}},
					queries: []query{{fmt.Sprintf("bottomk(20, %s / %s)",
						promql.NodeMin(chosenNodes(metrics.NodeSlowestPair)),
						promql.NodeMax(chosenNodes(metrics.NodeMedianPair))), node}}},
			}},
			{"Problems", []panel{
				{kind: rows, title: "Problems that the monitors find", width: 24,
					height: 7, none: "No problem: the last scans found none.",
					description:     "On the chosen nodes, by the last scan. docs/discovery.md explains each code.",
					transformations: merged([]string{"Value"}, nil), queries: []query{
						{expr: promql.NodeMax(chosenNodes(metrics.AgentProblems), "severity", "code", "subject")}}},
			}},
			{"Links and GPUs", []panel{
				{kind: rows, title: "xGMI links", width: 12, height: 12, description: "Up (1) or down (0) from a GPU " +
					"(row) to its peers (columns), for the worst of the chosen nodes: choose one node to see its mesh.",
					values:          map[string]word{"0": {"down", red}, "1": {"up", green}},
					transformations: matrix("gpu", "peer"),
					queries:         []query{{expr: "min by (gpu, peer) (" + linkUp + ")"}}},
				{kind: number, title: "Links down", width: 4, height: 12, unit: count, steps: noneIsGood,
					description: "Directed links of the chosen nodes that the kernel does not show.",
					queries:     []query{{expr: "sum(1 - " + linkUp + ")"}}},
				{kind: lines, title: "Links up and expected", width: 8, height: 12, unit: count,
					queries: []query{{"sum by (state) (" +
						promql.NodeMax(chosenNodes(metrics.AgentXGMILinks), "state") + ")", "{{state}}"}}},
				{kind: lines, title: "RAS errors since the driver was loaded", width: 8, height: 8,
					unit: count, description: "Over all blocks of the GPUs of the chosen nodes.",
					queries: []query{{"sum by (node, severity) (" + promql.NodeMax(chosenNodes(metrics.AgentRAS), "gpu",
						"severity") + ")", "{{node}} {{severity}}"}}},
				{kind: lines, title: "xGMI errors since the driver was loaded", width: 8, height: 8,
					unit: count, description: "Part of the RAS errors; of the GPUs of the chosen nodes.",
					queries: []query{{"sum by (node, severity) (" + promql.NodeMax(chosenNodes(metrics.AgentXGMIErrors),
						"gpu", "severity") + ")", "{{node}} {{severity}}"}}},
				{kind: lines, title: "GPUs that the kernel shows", width: 8, height: 8, unit: count,
					queries: []query{{promql.NodeMax(chosenNodes(metrics.AgentGPUs)), node}}},
			}},
			{"Monitors", []panel{
				{kind: lines, title: "Age of the last report", width: 12, height: 8,
					unit: seconds, description: "By the API server's clock.",
					queries: []query{{"time() - " + promql.NodeMax(chosenNodes(metrics.NodeLastReport)), node}}},
				{kind: lines, title: "Age of the last scan", width: 12,
					height: 8, unit: seconds, description: "By the node's clock.",
					queries: []query{{"time() - " + promql.NodeMax(chosenNodes(metrics.AgentScan)), node}}},
				{kind: lines, title: "Duration of a scan", width: 12, height: 8, unit: seconds,
					queries: []query{{promql.NodeMax(chosenNodes(metrics.AgentScanTime)), node}}},
				{kind: lines, title: "Reports that were not taken, and scans that failed, an hour", width: 12,
					height: 8, unit: count, queries: []query{
						{inAnHour(metrics.AgentFailures), "{{node}} reports"},
						{inAnHour(metrics.AgentScanFails), "{{node}} scans"}}},
			}},
		},
	}
}

package grafana

import (
	"fmt"
	"maps"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

const (
	groupLegend = "{{group_namespace}}/{{group}}"
	all         = true
)

// groupColumns are the names of the columns that each table of groups has.
func groupColumns(more map[string]string) map[string]string {
	names := map[string]string{metrics.LabelGroupNamespace: "namespace", metrics.LabelGroup: "group"}
	maps.Copy(names, more)
	return names
}

// orZero shows a zero where a count finds nothing: no series then means none, since the groups themselves are there.
func orZero(expression string) string {
	return fmt.Sprintf("(%s) or (0 * count(%s))", expression, of(metrics.Info))
}

func culprits() string { return promql.Max(of(metrics.Culprit), "kind", "name", "node", "reason") }

// culpritTable names the culprits, a row each.
func culpritTable(names map[string]string, hide []string) panel {
	return panel{kind: rows, title: "Who is the culprit", width: 24,
		height: 7, none: "No culprit: last runs and reports named none.",
		description: "What the last run, or the monitors' reports, hold for the cause: " +
			"node, GPU, link, pair of nodes, NIC or rank, on which node and why; at most 16 a group. " +
			"docs/runbooks/reasons has a page for each reason, docs/discovery.md the codes of monitors.",
		transformations: merged(append([]string{"Value"}, hide...), names), queries: []query{{expr: culprits()}}}
}

func fleet() Dashboard {
	ready := promql.Max(of(metrics.Condition, promql.Is("type", "Ready"), promql.Is("status", "True")))
	member := func(state string) string { return promql.Max(of(metrics.Members, promql.Is("state", state))) }
	return Dashboard{
		UID: "commgroup-fleet", Title: "CommGroup - fleet",
		Description: "All CommGroups: which are ready, what failed, and how fresh that knowledge is.",
		variables:   []variable{namespaceVariable(all), groupVariable(all)},
		rows: []row{
			{"Now", []panel{
				{kind: number, title: "Groups", width: 4, height: 4, unit: count,
					queries: []query{{expr: "count(" + promql.Max(of(metrics.Info)) + ")"}}},
				{kind: number, title: "Not ready", width: 4, height: 4, unit: count,
					steps: noneIsGood, description: "Groups whose condition Ready is not True.",
					queries: []query{{expr: orZero("count(" + ready + " == 0)")}}},
				{kind: number, title: "Members", width: 4, height: 4, unit: count,
					queries: []query{{expr: "sum(" + member(metrics.MembersSelected) + ")"}}},
				{kind: number, title: "Members that passed", width: 4,
					height: 4, unit: share, steps: []step{{0, red}, {1, green}},
					description: "Of the selected ones, in the present or last run.",
					queries: []query{{expr: fmt.Sprintf("sum(%s) / (sum(%s) > 0)",
						member(metrics.MembersPassed), member(metrics.MembersSelected))}}},
				{kind: number, title: "Culprits", width: 4, height: 4, unit: count, steps: noneIsGood,
					description: "Nodes, GPUs, links, pairs, NICs and ranks that last runs named, at most 16 a group.",
					queries:     []query{{expr: orZero("count(" + culprits() + ")")}}},
				{kind: number, title: "Oldest report", width: 4, height: 4,
					unit: seconds, description: "Age of the oldest report of any member.",
					steps:   []step{{0, green}, {600, orange}, {1800, red}},
					queries: []query{{expr: "max(time() - " + of(metrics.OldestReport) + ")"}}},
			}},
			{"Groups", []panel{
				{kind: rows, title: "Groups", width: 24, height: 9,
					description: "Verdict: of the last run that ended. Reason: of the condition Ready.",
					transformations: merged([]string{"Value #B", "Value #C"},
						groupColumns(map[string]string{"Value #A": "ready", "Value #D": "members", "Value #E": "passed",
							"Value #F": "failed", "Value #G": "bus bandwidth (bytes/s)", "Value #H": "report age (s)",
							"Value #I": "last run (s)"})), queries: []query{
						{expr: ready},
						{expr: promql.Max(of(metrics.Verdict), "verdict") + " == 1"},
						{expr: promql.Max(of(metrics.ConditionReason, promql.Is("type", "Ready")), "reason")},
						{expr: member(metrics.MembersSelected)}, {expr: member(metrics.MembersPassed)},
						{expr: member(metrics.MembersFailed)},
						{expr: promql.Max(of(metrics.Headline))},
						{expr: "time() - " + promql.Max(of(metrics.OldestReport))},
						{expr: promql.Max(of(metrics.RunDuration))},
					}},
				culpritTable(groupColumns(map[string]string{"name": "culprit"}), nil),
				{kind: states, title: "Ready", width: 12, height: 8, values: yesNo,
					queries: []query{{ready, groupLegend}}},
				{kind: states, title: "A run is at work", width: 12, height: 8,
					values:  map[string]word{"0": {"no", grey}, "1": {"yes", blue}},
					queries: []query{{promql.Max(of(metrics.RunActive)), groupLegend}}},
			}},
			{"Over time", []panel{
				{kind: lines, title: "Headline bus bandwidth", width: 12, height: 8, unit: bandwidth,
					description: "Baseline AllReduce at the largest size, the members' median.",
					queries:     []query{{promql.Max(of(metrics.Headline)), groupLegend}}},
				{kind: lines, title: "Members by state", width: 12, height: 8, unit: count,
					description: "Over the chosen groups.", queries: []query{{"sum by (state) (" +
						promql.Max(of(metrics.Members), "state") + ")", "{{state}}"}}},
				{kind: lines, title: "Age of the oldest report", width: 12, height: 8, unit: seconds,
					queries: []query{{"time() - " + promql.Max(of(metrics.OldestReport)), groupLegend}}},
				{kind: lines, title: "Duration of the last run", width: 12, height: 8, unit: seconds,
					queries: []query{{promql.Max(of(metrics.RunDuration)), groupLegend}}},
			}},
			{"Manager", []panel{
				{kind: number, title: "Manager that leads", width: 4, height: 8, unit: count, steps: moreIsGood,
					queries: []query{{"count by (version) (" + promql.Of(metrics.ManagerInfo) + ")", "{{version}}"}}},
				{kind: lines, title: "Reconciles a second", width: 10, height: 8, unit: "reqps",
					queries: []query{{"sum by (result) (rate(" + promql.Of(promql.Reconciles,
						promql.Is("controller", promql.Controller)) + "[$__rate_interval]))", "{{result}}"}}},
				{kind: lines, title: "Groups that wait to be reconciled", width: 10, height: 8, unit: count,
					queries: []query{{"max(" +
						promql.Of(promql.QueueDepth, promql.Is("controller", promql.Controller)) + ")", "waiting"}}},
			}},
		},
	}
}

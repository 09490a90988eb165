package grafana

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

func dataSourceRef() common.DataSourceRef {
	uid, kind := datasource, "prometheus"
	return common.DataSourceRef{Uid: &uid, Type: &kind}
}

// measured restricts results to what the variables of the dashboard choose.
func measured(more ...promql.Match) []promql.Match {
	return chosen(append([]promql.Match{
		promql.Is(metrics.LabelCollective, "$collective"), promql.Is(metrics.LabelDatatype, "$datatype"),
		promql.Is(metrics.LabelPlacement, "$placement"),
	}, more...)...)
}

func measuredVariables() []variable {
	in := of(metrics.Latency)
	return []variable{
		namespaceVariable(!all), groupVariable(!all),
		{metrics.LabelCollective, "Collective", in, false}, {metrics.LabelDatatype, "Datatype", in, false},
		{metrics.LabelPlacement, "Placement", in, false},
	}
}

// series gives each series one label to tell it by: the variant, and the span and dimension.
func series(expression string) string {
	return fmt.Sprintf(`label_join(%s, "series", " ", "variant", "dimension")`, expression)
}

// ownWeek is the headline against its own median of seven days, with the labels of a check: it is there from the first
// run on.
func ownWeek() string {
	ratio := fmt.Sprintf("%s / %s",
		promql.Max(of(metrics.Headline)), promql.Max("quantile_over_time(0.5, "+of(metrics.Headline)+"[7d])"))
	return fmt.Sprintf(
		`label_replace(label_replace(%s, "source", "median of 7 days", "", ""), "measurement", "headline bus bandwidth", "", "")`,
		ratio)
}

// facts are single figures of a group, a row each; runs are always there.
func facts() string {
	named := func(what, expression string) string {
		return fmt.Sprintf(`label_replace(%s, "what", %q, "", "")`, expression, what)
	}
	return strings.Join([]string{
		named("runs started", promql.Max(of(metrics.Runs))),
		named("next run in (s)", promql.Max(of(metrics.NextRun))+" - time()"),
		named("GPU time used today (s)", promql.Max(of(metrics.BudgetUsed))),
		named("GPU time a day (s)", promql.Max(of(metrics.BudgetLimit))),
		named("nodes marked by gating", promql.Max(of(metrics.GatedNodes))),
		named("gating stopped (1 is yes)", promql.Max(of(metrics.BreakerOpen))),
	}, " or ")
}

var resultLabels = []string{metrics.LabelVariant, metrics.LabelDimension, metrics.LabelSize}

func group() Dashboard {
	bus := func(statistic string) string {
		return series(promql.Max(promql.Of(metrics.BusBandwidth,
			measured(promql.Is(metrics.LabelStatistic, statistic))...), resultLabels...))
	}
	return Dashboard{
		UID: "commgroup-group", Title: "CommGroup - group", Description: "One CommGroup: verdict, bandwidth and " +
			"latency by size, gain of the settings, and what is in effect.",
		variables: measuredVariables(),
		rows: []row{
			{"Now", []panel{
				{kind: words, title: "Verdict", width: 4, height: 4, description: "Of the last run that ended.",
					queries: []query{{promql.Max(of(metrics.Verdict), "verdict") + " == 1", "{{verdict}}"}}},
				{kind: words, title: "Ready: reason", width: 4, height: 4,
					queries: []query{{promql.Max(of(metrics.ConditionReason, promql.Is("type", "Ready")), "reason"),
						"{{reason}}"}}},
				{kind: number, title: "Members that passed", width: 4, height: 4, unit: count, queries: []query{
					{promql.Max(of(metrics.Members, promql.Is("state", metrics.MembersPassed))), "passed"},
					{promql.Max(of(metrics.Members, promql.Is("state", metrics.MembersSelected))), "selected"}}},
				{kind: number, title: "Headline bus bandwidth", width: 4, height: 4, unit: bandwidth,
					description: "Baseline AllReduce at the largest size, the members' median; 10^9 bytes are 1 GB.",
					queries:     []query{{expr: promql.Max(of(metrics.Headline))}}},
				{kind: number, title: "Last run took", width: 4, height: 4, unit: seconds,
					queries: []query{{expr: promql.Max(of(metrics.RunDuration))}}},
				{kind: number, title: "Oldest report", width: 4, height: 4, unit: seconds,
					queries: []query{{expr: "time() - " + promql.Max(of(metrics.OldestReport))}}},
			}},
			{"Culprits", []panel{culpritTable(map[string]string{"name": "culprit"}, promql.Group)}},
			{"By message size", []panel{
				{kind: bars, title: "Bus bandwidth", width: 12, height: 10, unit: bandwidth,
					description:     "Median of the members, or of the communicators of a span over several nodes.",
					transformations: bySize(), queries: []query{{expr: bus("Median")}}},
				{kind: bars, title: "Bus bandwidth of the slowest", width: 12, height: 10, unit: bandwidth,
					description: "Slowest member or communicator.", transformations: bySize(),
					queries: []query{{expr: bus("Min")}}},
				{kind: bars, title: "Latency", width: 12, height: 10, unit: seconds,
					logarithmic: true, transformations: bySize(), queries: []query{
						{expr: series(promql.Max(promql.Of(metrics.Latency, measured()...), resultLabels...))}}},
				{kind: bars, title: "Algorithm bandwidth", width: 12, height: 10, unit: bandwidth,
					description: "Message size over latency.", transformations: bySize(), queries: []query{
						{expr: series(promql.Max(promql.Of(metrics.AlgBandwidth, measured()...), resultLabels...))}}},
			}},
			{"Settings and checks", []panel{
				{kind: rows, title: "Settings", width: 12, height: 10,
					description: "Requested by the spec, effective by the library's gates, verified by the A/B run: " +
						"that it takes effect. Usable: whether a job can use the results.",
					transformations: merged([]string{"Value", "group", "group_namespace"}, nil),
					queries: []query{{expr: promql.Max(of(metrics.Setting), "setting", "requested", "effective",
						"verified", "usable", "reason")}}},
				{kind: rows, title: "Checks", width: 12, height: 10, unit: share, description: "Measured over " +
					"expected: 100 % is exactly what a threshold, reference or the group's baseline expects. " +
					"At most 16, the worst, and the headline against its own median of 7 days.",
					transformations: merged([]string{"group", "group_namespace"},
						map[string]string{"Value": "of expected"}),
					queries: []query{{expr: "sort(" + promql.Max(of(metrics.CheckRatio), "source",
						"measurement", "node", "mode", "state") + " or " + ownWeek() + ")"}}},
				{kind: rows, title: "Conditions", width: 12, height: 10,
					transformations: merged([]string{"Value #A", "Value #B", "group", "group_namespace"}, nil),
					queries: []query{{expr: promql.Max(of(metrics.Condition), "type", "status") + " == 1"},
						{expr: promql.Max(of(metrics.ConditionReason), "type", "reason")}}},
				{kind: number, title: "Wrong elements", width: 6, height: 10, unit: count, steps: noneIsGood,
					description: "Of the last run, over all members and sizes. Anything but 0 is silent data " +
						"corruption.", queries: []query{{"sum by (variant) (" + promql.Max(of(metrics.WrongElements),
						"variant", "collective", "datatype", "placement") + ")", "{{variant}}"}}},
				{kind: rows, title: "Runs, budget and gating", width: 6, height: 10,
					description:     "What the group does not use (a schedule, a budget, gating) has no row.",
					transformations: merged([]string{"group", "group_namespace"}, map[string]string{"Value": "value"}),
					queries:         []query{{expr: facts()}}},
			}},
			{"Over time", []panel{
				{kind: lines, title: "Headline bus bandwidth", width: 12, height: 8, unit: bandwidth,
					queries: []query{{promql.Max(of(metrics.Headline)), groupLegend}}},
				{kind: lines, title: "Members by state", width: 12, height: 8, unit: count,
					queries: []query{{promql.Max(of(metrics.Members), "state"), "{{state}}"}}},
				{kind: states, title: "Conditions", width: 24, height: 8, values: yesNo, queries: []query{
					{promql.Max(of(metrics.Condition, promql.Is("status", "True")), "type"), "{{type}}"}}},
			}},
		},
	}
}

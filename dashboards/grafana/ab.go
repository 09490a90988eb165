package grafana

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

// matrix makes a row of each value of one label with a column of each value of another, in order of their names.
func matrix(rowLabel, columnLabel string) []sdk.DataTransformerConfig {
	return []sdk.DataTransformerConfig{
		{Id: "sortBy", Options: map[string]any{"sort": []map[string]any{{"field": columnLabel}}}},
		{Id: "sortBy", Options: map[string]any{"sort": []map[string]any{{"field": rowLabel}}}},
		{Id: "groupingToMatrix", Options: map[string]any{"columnField": columnLabel, "rowField": rowLabel,
			"valueField": "Value", "emptyValue": "empty"}},
	}
}

func ab() Dashboard {
	// The communicators over several nodes are measured without variants.
	ofNode := promql.Is(metrics.LabelSpan, "Node")
	busbw := func(variant string) string {
		return series(promql.Max(promql.Of(metrics.BusBandwidth, measured(ofNode, promql.Is(metrics.LabelStatistic,
			"Median"), promql.In(metrics.LabelVariant, promql.Baseline, variant))...), resultLabels...))
	}
	gain := func(variant string) string {
		return "max by (collective, size_bytes) (" +
			promql.Gain(chosen(ofNode, promql.Is(metrics.LabelDatatype, "$datatype"), promql.Is(metrics.LabelPlacement,
				"$placement"), promql.In(metrics.LabelVariant, promql.Baseline, variant))...) + ")"
	}
	byCollective := func(expression string) string {
		return `label_join(` + expression + `, "series", "", "collective")`
	}
	return Dashboard{
		UID: "commgroup-ab", Title: "CommGroup - A/B",
		Description: "What DDA and FP8 low precision bring against Baseline, and what FP8 costs in precision.",
		variables:   measuredVariables(),
		rows: []row{
			{"DDA against Baseline", []panel{
				{kind: bars, title: "Bus bandwidth", width: 12, height: 10, unit: bandwidth,
					description: "Of the chosen collective; the members' median.", transformations: bySize(),
					queries: []query{{expr: busbw("DDA")}}},
				{kind: bars, title: "Gain by collective", width: 12, height: 10, unit: "x",
					description: "Baseline's latency over DDA's: above 1 DDA is faster.", steps: faster,
					transformations: bySize(), queries: []query{{expr: byCollective(gain("DDA"))}}},
			}},
			{"FP8 low precision against Baseline", []panel{
				{kind: bars, title: "Bus bandwidth", width: 12, height: 10, unit: bandwidth,
					description: "Of the chosen collective; the members' median.", transformations: bySize(),
					queries: []query{{expr: busbw("LowPrecision")}}},
				{kind: bars, title: "Gain by collective", width: 12, height: 10, unit: "x",
					description: "Baseline's latency over FP8's: above 1 FP8 is faster.", steps: faster,
					transformations: bySize(), queries: []query{{expr: byCollective(gain("LowPrecision"))}}},
				{kind: rows, title: "Worst relative error", width: 12, height: 8, unit: "percentunit",
					description: "Of FP8 transport against an fp32 reference, over all sizes.",
					transformations: merged([]string{"group", "group_namespace"},
						map[string]string{"Value": "relative error"}),
					queries: []query{{expr: promql.Max(of(metrics.RelativeError), "variant", "collective",
						"datatype", "placement")}}},
				{kind: rows, title: "What is in effect", width: 12,
					height: 8, description: "Settings that were asked for.",
					transformations: merged([]string{"Value", "group", "group_namespace"}, nil),
					queries: []query{{expr: promql.Max(of(metrics.Setting, promql.Not("requested", "Disabled")),
						"setting", "requested", "effective", "verified", "usable", "reason")}}},
			}},
		},
	}
}

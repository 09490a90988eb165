package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

func newStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status NAME",
		Short: "Conditions, members, settings (requested, effective, verified) and culprits of a CommGroup",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			group, nodes, err := load(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			if err := printStatus(cmd.OutOrStdout(), group, nodes); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReady) {
				return errNotReady
			}
			return nil
		},
	}
}

func printStatus(w io.Writer, group *v1alpha1.CommGroup, nodes []v1alpha1.CommNode) error {
	type section struct {
		title string
		print func() error
	}
	sections := []section{
		{"", func() error { return report.Notice(w, group) }},
		{"Conditions", func() error { return report.Conditions(w, group) }},
		{"Members", func() error { return report.Nodes(w, nodes) }},
		{"Settings", func() error { return report.Settings(w, group.Status.Settings) }},
	}
	if len(group.Status.Advice) > 0 {
		sections = append(sections, section{"Settings worth it, by the A/B numbers", func() error { return report.Advice(w, group.Status.Advice) }})
	}
	if len(group.Status.Culprits) > 0 {
		sections = append(sections, section{"Culprits", func() error { return report.Culprits(w, group.Status.Culprits) }})
	}
	if len(group.Status.Checks) > 0 {
		sections = append(sections, section{"Performance against thresholds, references and baseline", func() error { return report.Checks(w, group.Status.Checks) }})
	}
	if b := group.Status.Baseline; b != nil {
		sections = append(sections, section{"", func() error { return report.Baseline(w, b) }})
	}
	if len(group.Status.History) > 0 {
		sections = append(sections, section{"Last runs", func() error { return report.History(w, &group.Status) }})
	}
	if group.Status.Span != nil {
		sections = append(sections, section{"Over several nodes", func() error { return report.Span(w, group, nodes) }})
	}
	if report.HasPreconditions(nodes) {
		sections = append(sections, section{"Preconditions not met", func() error { return report.Preconditions(w, nodes) }})
	}
	if report.HasRASVerdicts(nodes) {
		sections = append(sections, section{"What the library's RAS service said", func() error { return report.RASVerdicts(w, nodes) }})
	}
	for _, s := range sections {
		if s.title != "" {
			if _, err := fmt.Fprintf(w, "\n%s\n", s.title); err != nil {
				return err
			}
		}
		if err := s.print(); err != nil {
			return err
		}
	}
	return nil
}

func newTopologyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "topology NAME [NODE]",
		Short: "The xGMI mesh of each member, or of one",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			_, nodes, err := load(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			shown := 0
			for i := range nodes {
				if len(args) == 2 && nodes[i].Spec.NodeName != args[1] {
					continue
				}
				if shown++; shown > 1 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := report.Topology(cmd.OutOrStdout(), &nodes[i]); err != nil {
					return err
				}
			}
			if shown == 0 {
				return fmt.Errorf("no such member: kubectl get commnodes -n %s lists the members", namespace)
			}
			return nil
		},
	}
}

func newResultsCommand(o *options) *cobra.Command {
	var output, node string
	cmd := &cobra.Command{
		Use:   "results NAME",
		Short: "The A/B table: Baseline, DDA and LowPrecision by message size",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			group, nodes, err := load(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			return printResults(cmd.OutOrStdout(), group, nodes, node, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or csv")
	cmd.Flags().StringVar(&node, "node", "", "results of one node instead of the group's medians")
	return cmd
}

func printResults(w io.Writer, group *v1alpha1.CommGroup, nodes []v1alpha1.CommNode, nodeName, output string) error {
	var one *v1alpha1.CommNode
	for i := range nodes {
		if nodes[i].Spec.NodeName == nodeName {
			one = &nodes[i]
		}
	}
	if nodeName != "" && one == nil {
		return fmt.Errorf("node %q is no member of %s", nodeName, group.Name)
	}
	switch output {
	case "table":
		if err := report.Notice(w, group); err != nil {
			return err
		}
		if one != nil {
			return report.NodeAB(w, one)
		}
		return report.GroupAB(w, group)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if one != nil {
			return enc.Encode(one.Status.Run)
		}
		return enc.Encode(struct {
			Origin     v1alpha1.Origin              `json:"origin"`
			Run        *v1alpha1.GroupRunStatus     `json:"run"`
			Results    []v1alpha1.GroupResultSeries `json:"results"`
			DataErrors []v1alpha1.DataErrors        `json:"dataErrors,omitempty"`
		}{group.Status.Origin, group.Status.Run, group.Status.Results, group.Status.DataErrors})
	case "csv":
		if one != nil {
			return fmt.Errorf("csv is for the group's results: leave out --node, or use -o json")
		}
		return writeCSV(w, group)
	default:
		return fmt.Errorf("unknown output %q: use table, json or csv", output)
	}
}

func writeCSV(w io.Writer, group *v1alpha1.CommGroup) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"origin", "run", "variant", "collective", "datatype", "placement", "sizeBytes", "latencyNanoseconds", "busBandwidthMBps", "minBusBandwidthMBps", "nodes"}}
	run := ""
	if group.Status.Run != nil {
		run = group.Status.Run.ID
	}
	number := func(list []int64, i int) string {
		if i >= len(list) {
			return ""
		}
		return strconv.FormatInt(list[i], 10)
	}
	for _, r := range group.Status.Results {
		for i, size := range r.SizeBytes {
			rows = append(rows, []string{string(group.Status.Origin), run, string(r.Variant), string(r.Collective), string(r.Datatype), string(cmp.Or(r.Placement, v1alpha1.OutOfPlace)),
				strconv.FormatInt(size, 10), number(r.LatencyNanoseconds, i), number(r.BusBandwidthMBps, i), number(r.MinBusBandwidthMBps, i), fmt.Sprint(r.Nodes)})
		}
	}
	return out.WriteAll(rows)
}

package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/runrecord"
	"rcclx.io/commgroup-operator/internal/state"
)

// resultsChoice says which results to show, and how.
type resultsChoice struct {
	output      string
	node        string
	run         string
	variants    []string
	collectives []string
}

func newResultsCommand(o *options) *cobra.Command {
	var choice resultsChoice
	cmd := &cobra.Command{
		Use:   "results NAME",
		Short: "The A/B table: Baseline, DDA and LowPrecision by message size",
		Long: "Latency, bus bandwidth and gain of the last run, or with --run of an earlier one, as the members' " +
			"medians, or with --node of one node.\n" +
			"The JSON of a group is a file that kubectl commgroup compare takes. In CSV a figure that was not " +
			"measured is empty.",
		Example: "  kubectl commgroup results mi300x\n  kubectl commgroup results mi300x --collective AllReduce " +
			"--variant Baseline,DDA\n" +
			"  kubectl commgroup results mi300x --node gpu-node-07 -o csv\n  kubectl commgroup results mi300x -o " +
			"json > before.json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := o.out(cmd)
			if err != nil {
				return err
			}
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			group, nodes, err := load(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			if choice.run == "" {
				runs, err := runsOf(cmd.Context(), c, namespace, args[0])
				if err != nil {
					return err
				}
				return printResults(w, group, shownRun(group, runs), nodes, choice)
			}
			if choice.node != "" {
				return fmt.Errorf("--run and --node: of earlier runs only the group's figures are kept; leave one out")
			}
			record, err := runOf(cmd.Context(), c, namespace, args[0], choice.run)
			if err != nil {
				return err
			}
			// the nodes' own reports are of the last run
			return printResults(w, withRun(group, record), record, nil, choice)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&choice.output, "output", "o", outputTable, "table, json or csv")
	flags.StringVar(&choice.node, "node", "", "results of one node instead of the group's medians")
	flags.StringVar(&choice.run, "run", "", "id of an earlier run, or previous")
	flags.StringSliceVar(&choice.variants, "variant", nil, "only these variants: Baseline, DDA, LowPrecision")
	flags.StringSliceVar(&choice.collectives, "collective", nil, "only these collectives, for example AllReduce")
	return cmd
}

// shownRun is the CommRun whose results a group shows: the latest one, or the one before it while that is repeated. Nil
// without any.
func shownRun(group *state.Group, runs []v1alpha1.CommRun) *v1alpha1.CommRun {
	at := slices.IndexFunc(runs, func(r v1alpha1.CommRun) bool { return r.Status.ID == group.Status.ResultsRunID })
	if group.Status.ResultsRunID == "" || at < 0 {
		return nil
	}
	return &runs[at]
}

// withRun is the group as it was at the end of an earlier run, as far as results go.
func withRun(group *state.Group, r *v1alpha1.CommRun) *state.Group {
	out := &state.Group{ObjectMeta: group.ObjectMeta, Spec: group.Spec}
	s := &out.Status
	s.Run, s.Template, s.ResultsRunID = &r.Status.GroupRunStatus, r.Status.Template, r.Status.ID
	s.Origin, s.Members, s.DataErrors, s.Results, s.Span = r.Status.Origin,
		ptr.Deref(r.Status.Members, v1alpha1.MemberCounts{}), r.Status.DataErrors, r.Status.Results, r.Status.Span
	s.Settings, s.Inventory, s.Checks, s.Culprits, s.CulpritsRunID = r.Status.Settings, r.Status.Inventory,
		r.Status.Checks, r.Status.Culprits, r.Status.ID
	if r.Status.Summary != nil {
		s.History = []v1alpha1.RunSummary{*r.Status.Summary}
	}
	return out
}

func (choice *resultsChoice) matches(variant v1alpha1.Variant, collective v1alpha1.Collective) bool {
	in := func(list []string, value string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, value) })
	}
	return in(choice.variants, string(variant)) && in(choice.collectives, string(collective))
}

// needs says whether a series is shown, or is the Baseline that a table holds what it shows against.
func (choice *resultsChoice) needs(variant v1alpha1.Variant, collective v1alpha1.Collective) bool {
	return choice.matches(variant, collective) || choice.output == outputTable && variant == v1alpha1.VariantBaseline &&
		(&resultsChoice{collectives: choice.collectives}).matches(variant, collective)
}

func (choice *resultsChoice) filtered() bool { return len(choice.variants)+len(choice.collectives) > 0 }

// printResults shows the group's results; record is the CommRun that has them, nil where there is none.
func printResults(
	w io.Writer, group *state.Group, record *v1alpha1.CommRun, nodes []report.Member, choice resultsChoice,
) error {
	one, err := memberNamed(group, nodes, choice.node)
	if err != nil {
		return err
	}
	found := false
	whole, wholeNode := group, one
	if one != nil {
		one, found = filterNode(one, &choice)
	} else {
		group, found = filterGroup(group, &choice)
	}
	if !found && (choice.filtered() || choice.output != outputJSON) { // a run without results is a record, too
		return noResults(whole, wholeNode, &choice)
	}
	switch choice.output {
	case outputTable:
		if err := report.Notice(w, group); err != nil {
			return err
		}
		if one != nil {
			return report.NodeAB(w, one, choice.variants...)
		}
		if err := report.GroupAB(w, group, nodes, choice.variants...); err != nil {
			return err
		}
		if choice.filtered() {
			return nil
		}
		return report.SpanResults(w, whole)
	case outputJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if one != nil {
			return enc.Encode(one.Status.Run)
		}
		if record == nil {
			return fmt.Errorf("CommGroup %s/%s has no CommRun: it has made no run yet, or that was deleted",
				group.Namespace, group.Name)
		}
		record = record.DeepCopy()
		record.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: runrecord.Kind}
		record.ManagedFields = nil
		filterResults(&record.Status.RunResults, &choice)
		return enc.Encode(record)
	case outputCSV:
		if one != nil {
			return writeNodeCSV(w, group.Status.Origin, one)
		}
		return writeCSV(w, group)
	default:
		return fmt.Errorf("unknown output %q: use table, json or csv", choice.output)
	}
}

// noResults says that there is nothing to show: none of what was asked for, and what there is, or none at all, and why.
func noResults(group *state.Group, node *report.Member, choice *resultsChoice) error {
	var variants, collectives []string
	add := func(v v1alpha1.Variant, c v1alpha1.Collective) {
		variants, collectives = append(variants, string(v)), append(collectives, string(c))
	}
	of := fmt.Sprintf("CommGroup %s/%s", group.Namespace, group.Name)
	if node != nil {
		of = "node " + node.Spec.NodeName
		if node.Status.Run != nil {
			for i := range node.Status.Run.Results {
				add(node.Status.Run.Results[i].Variant, node.Status.Run.Results[i].Collective)
			}
		}
	} else {
		for i := range group.Status.Results {
			add(group.Status.Results[i].Variant, group.Status.Results[i].Collective)
		}
	}
	if len(variants) == 0 {
		return fmt.Errorf("%s has no results yet: %s", of, whyNothing(group))
	}
	return fmt.Errorf("no results of variant %s and collective %s; %s has variants %s and collectives %s",
		orAny(choice.variants), orAny(choice.collectives), of, distinct(variants), distinct(collectives))
}

// memberNamed is the CommTask of a node's name; nil where no name is given.
func memberNamed(group *state.Group, nodes []report.Member, name string) (*report.Member, error) {
	if name == "" {
		return nil, nil
	}
	for i := range nodes {
		if nodes[i].Spec.NodeName == name {
			return &nodes[i], nil
		}
	}
	return nil, fmt.Errorf("node %q is no member of %s; kubectl get commtasks lists the members", name, group.Name)
}

func filterGroup(group *state.Group, choice *resultsChoice) (*state.Group, bool) {
	out := group.DeepCopy()
	s := &out.Status
	shown := v1alpha1.RunResults{Results: s.Results, DataErrors: s.DataErrors, Span: s.Span}
	found := filterResults(&shown, choice)
	s.Results, s.DataErrors = shown.Results, shown.DataErrors
	return out, found
}

// filterResults leaves out what is not asked for, and says whether anything is there that is.
func filterResults(all *v1alpha1.RunResults, choice *resultsChoice) (found bool) {
	found = slices.ContainsFunc(all.Results, func(r v1alpha1.GroupResultSeries) bool {
		return choice.matches(r.Variant, r.Collective)
	})
	all.Results = slices.DeleteFunc(all.Results, func(r v1alpha1.GroupResultSeries) bool {
		return !choice.needs(r.Variant, r.Collective)
	})
	all.DataErrors = filterDataErrors(all.DataErrors, choice)
	if all.Span != nil {
		all.Span.Results = slices.DeleteFunc(all.Span.Results, func(r v1alpha1.SpanResultSeries) bool {
			return !choice.matches(v1alpha1.VariantBaseline, r.Collective)
		})
	}
	return found
}

func filterNode(node *report.Member, choice *resultsChoice) (*report.Member, bool) {
	out := &report.Member{CommTask: *node.DeepCopy()}
	run := out.Status.Run
	if run == nil {
		return out, false
	}
	found := slices.ContainsFunc(run.Results, func(r v1alpha1.ResultSeries) bool {
		return choice.matches(r.Variant, r.Collective)
	})
	run.Results = slices.DeleteFunc(run.Results, func(r v1alpha1.ResultSeries) bool {
		return !choice.needs(r.Variant, r.Collective)
	})
	run.DataErrors = filterDataErrors(run.DataErrors, choice)
	return out, found
}

// filterDataErrors leaves out whole entries: one holds several collectives, and stays where one of them is asked for.
func filterDataErrors(all []v1alpha1.DataErrors, choice *resultsChoice) []v1alpha1.DataErrors {
	return slices.DeleteFunc(all, func(e v1alpha1.DataErrors) bool {
		return !slices.ContainsFunc(e.Collectives, func(c v1alpha1.Collective) bool {
			return choice.matches(e.Variant, c)
		})
	})
}

// figure is an element of a list; empty where it was not measured.
func figure[T int32 | int64](list []T, i int) string {
	if i >= len(list) {
		return ""
	}
	return strconv.FormatInt(int64(list[i]), 10)
}

func writeCSV(w io.Writer, group *state.Group) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"origin", "run", "variant", "collective", "datatype", "placement", "sizeBytes",
		"latencyNanoseconds", "busBandwidthMBps", "minBusBandwidthMBps", "nodes"}}
	run := group.Status.ResultsRunID
	for _, r := range group.Status.Results {
		for i, size := range r.SizeBytes {
			rows = append(rows, []string{string(group.Status.Origin), run, string(r.Variant),
				string(r.Collective), string(r.Datatype), string(cmp.Or(r.Placement, v1alpha1.OutOfPlace)),
				strconv.FormatInt(size, 10), figure(r.LatencyNanoseconds, i), figure(r.BusBandwidthMBps, i),
				figure(r.MinBusBandwidthMBps, i), fmt.Sprint(r.Nodes)})
		}
	}
	return out.WriteAll(rows)
}

func writeNodeCSV(w io.Writer, origin v1alpha1.Origin, node *report.Member) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"origin", "run", "node", "variant", "collective", "datatype", "placement", "sizeBytes",
		"latencyNanoseconds", "busBandwidthMBps", "noisePercent", "spreadPercent"}}
	if run := node.Status.Run; run != nil {
		for _, r := range run.Results {
			for i, size := range r.SizeBytes {
				rows = append(rows, []string{string(origin), run.ID, node.Spec.NodeName, string(r.Variant),
					string(r.Collective), string(r.Datatype), string(cmp.Or(r.Placement, v1alpha1.OutOfPlace)),
					strconv.FormatInt(size, 10), figure(r.LatencyNanoseconds, i), figure(r.BusBandwidthMBps, i),
					figure(r.NoisePercent, i), figure(r.SpreadPercent, i)})
			}
		}
	}
	return out.WriteAll(rows)
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

func newStatusCommand(o *options) *cobra.Command {
	v := &statusView{options: o}
	var all, follow bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Conditions, members, settings and culprits of a CommGroup, or one line for each group",
		Long: "Without NAME one line for each CommGroup of the namespace, or of all with -A. With NAME everything: " +
			"conditions, culprits, members (the\n" +
			"worst first, at most 32 of them), settings (requested, effective, verified, usable), checks, " +
			"the last runs. A note says where no manager leads, as far as its lease may be read.\n\n" +
			"With --watch it is shown anew whenever it has changed, until Ctrl-C or --timeout. A terminal shows as " +
			"much as fits into it, and all of\n" +
			"the last status at the end; a pipe or file gets each status in full, one after the other. " +
			"An API server that is away for a while is waited for.\n\n" +
			"Exit code 0: every group shown is Ready; 1: one is not; 2: the command failed, or there is no group to " +
			"show. With --watch the last status counts.",
		Example: "  kubectl commgroup status\n  kubectl commgroup status -A\n  kubectl commgroup status mi300x -n " +
			"training\n  kubectl commgroup status mi300x -o yaml\n" +
			"  kubectl commgroup status mi300x -w\n  kubectl commgroup status -A -w --timeout 8h",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && all:
				return fmt.Errorf("--all-namespaces shows every group: leave out %s, or the flag", args[0])
			case cmd.Flags().Changed("timeout") && !follow:
				return errors.New("--timeout bounds --watch: give both, or neither")
			case timeout <= 0:
				return fmt.Errorf("--timeout %s: give a time above zero, for example 8h", timeout)
			}
			w, err := o.out(cmd)
			if err != nil {
				return err
			}
			if v.client, v.namespace, err = o.connect(); err != nil {
				return err
			}
			if len(args) == 1 {
				v.name = args[0]
			} else if all {
				v.namespace = ""
			}
			if follow {
				return watchStatus(cmd, v, w, timeout)
			}
			state, err := v.print(cmd.Context(), w)
			return cmp.Or(err, state)
		},
	}
	cmd.Flags().StringVarP(&v.output, "output", "o", outputTable, "table, json or yaml")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "groups of all namespaces")
	cmd.Flags().BoolVar(&v.allMembers, "all-members", false, "list every member, however many there are")
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "show it anew whenever it has changed, until Ctrl-C")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Hour, "with --watch: stop after this time")
	return cmd
}

// statusView shows one group, or all of a namespace where it has no name, or of all namespaces where that is empty,
// too.
type statusView struct {
	options    *options
	client     client.WithWatch
	namespace  string
	name       string
	output     string
	allMembers bool
	// members that the group had when it was shown last.
	members int
}

// print shows what there is now. verdict is what the exit code says of it: nil where every group shown is Ready.
func (v *statusView) print(ctx context.Context, w io.Writer) (verdict, err error) {
	if v.name != "" {
		group, nodes, err := load(ctx, v.client, v.namespace, v.name)
		if err != nil {
			return nil, err
		}
		v.members = len(nodes)
		if v.output != outputTable {
			stored := &v1alpha1.CommGroup{}
			if err := v.client.Get(ctx, client.ObjectKeyFromObject(group), stored); err != nil {
				return nil, explained(ctx, v.client, v.namespace, v.name, err)
			}
			return notReady(*group), printObject(w, stored, v.output)
		}
		if err := report.Note(w, managerSilence(ctx, v.client, v.options.clock)); err != nil {
			return nil, err
		}
		unread, err := report.ReadNodes(ctx, v.client, nodes)
		if err != nil {
			return nil, err
		}
		if err := report.Note(w, unread); err != nil {
			return nil, err
		}
		return notReady(*group), printStatus(w, group, nodes, v.allMembers, v.options.clock.Now())
	}
	var groups v1alpha1.CommGroupList
	if err := v.client.List(ctx, &groups, client.InNamespace(v.namespace)); err != nil {
		return nil, explained(ctx, v.client, v.namespace, "", fmt.Errorf("listing CommGroups: %w", err))
	}
	var runs v1alpha1.CommRunList
	if err := v.client.List(ctx, &runs, client.InNamespace(v.namespace)); err != nil {
		return nil, fmt.Errorf("listing CommRuns: %w", err)
	}
	all := state.JoinAll(groups.Items, runs.Items)
	if v.output != outputTable {
		err = printObject(w, &groups, v.output)
	} else if len(all) > 0 {
		if err := report.Note(w, managerSilence(ctx, v.client, v.options.clock)); err != nil {
			return nil, err
		}
		err = printGroups(w, all, v.namespace, v.options.clock.Now())
	}
	return cmp.Or(someGroups(all, v.namespace), notReady(all...)), err
}

// The outputs that several commands know.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputCSV   = "csv"
)

// someGroups is an error where there is no group: nothing is no yes, and a misspelt namespace looks like that.
func someGroups(groups []state.Group, namespace string) error {
	switch {
	case len(groups) > 0:
		return nil
	case namespace == "":
		return errors.New("there is no CommGroup in any namespace")
	}
	return fmt.Errorf("there is no CommGroup in namespace %s: choose another with -n, or see all with -A", namespace)
}

func notReady(groups ...state.Group) error {
	for i := range groups {
		if !ready(&groups[i]) {
			return errNotReady
		}
	}
	return nil
}

// ready: the condition speaks of the present spec, and the group is not being deleted.
func ready(g *state.Group) bool {
	return meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) &&
		g.Status.ObservedGeneration == g.Generation && g.DeletionTimestamp.IsZero()
}

// printObject writes an object, or a list, as the API has it, without what only servers read.
func printObject(w io.Writer, object runtime.Object, output string) error {
	switch o := object.(type) {
	case *v1alpha1.CommGroup:
		o.TypeMeta, o.ManagedFields = groupKind, nil
	case *v1alpha1.CommGroupList:
		o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroupList"}
		for i := range o.Items {
			o.Items[i].TypeMeta, o.Items[i].ManagedFields = groupKind, nil
		}
	}
	var data []byte
	var err error
	switch output {
	case outputJSON:
		data, err = json.MarshalIndent(object, "", "  ")
		data = append(data, '\n')
	case outputYAML:
		data, err = yaml.Marshal(object)
	default:
		return fmt.Errorf("unknown output %q: use table, json or yaml", output)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

var groupKind = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CommGroup"}

func printGroups(w io.Writer, groups []state.Group, namespace string, now time.Time) error {
	if err := report.Groups(w, groups, namespace == ""); err != nil {
		return err
	}
	for i := range groups {
		g := &groups[i]
		for _, text := range report.Remarks(g, nil, now) {
			if _, err := fmt.Fprintf(w, "%s/%s: %s\n", g.Namespace, g.Name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// section is one part of what status prints.
type section struct {
	title string
	shown bool
	print func() error
}

func printStatus(w io.Writer, group *state.Group, nodes []report.Member, allMembers bool, now time.Time) error {
	s := &group.Status
	limit := report.MaxNodes
	if allMembers {
		limit = 0
	}
	for _, part := range []section{
		{"", true, func() error { return report.Notice(w, group) }},
		{"", true, func() error { return report.RemarkLines(w, group, nodes, now) }},
		{"Conditions", len(s.Conditions) > 0, func() error { return report.Conditions(w, group) }},
		{report.CulpritsTitle(s), len(s.Culprits) > 0, func() error { return report.Culprits(w, s.Culprits) }},
		{"Over several nodes", s.Span != nil, func() error { return report.Span(w, group, nodes) }},
		{"Members", len(nodes) > 0, func() error { return report.Nodes(w, group, nodes, limit) }},
		{"Settings", true, func() error { return report.Settings(w, s.Settings) }},
		{"Settings worth it, by the A/B numbers", len(s.Advice) > 0,
			func() error { return report.Advice(w, s.Advice) }},
		{"Performance against thresholds, references and baseline", len(s.Checks) > 0,
			func() error { return report.Checks(w, s.Checks) }},
		{"", s.Baseline != nil, func() error { return report.Baseline(w, s.Baseline) }},
		{"Last runs", len(s.History) > 0, func() error { return report.History(w, s) }},
		{"Gating", report.HasGating(group), func() error { return report.Gating(w, group) }},
		{"Preconditions not met", report.HasPreconditions(nodes),
			func() error { return report.Preconditions(w, nodes) }},
		{"What the library's RAS service said", report.HasRASVerdicts(nodes),
			func() error { return report.RASVerdicts(w, nodes) }},
	} {
		if !part.shown {
			continue
		}
		if part.title != "" {
			if err := report.Title(w, part.title); err != nil {
				return err
			}
		}
		if err := part.print(); err != nil {
			return err
		}
	}
	return nil
}

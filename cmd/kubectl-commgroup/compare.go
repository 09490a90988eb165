package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/compare"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/runrecord"
	"rcclx.io/commgroup-operator/internal/state"
)

// Words that stand for runs.
const (
	runLatest   = "latest"
	runPrevious = "previous"
)

func newCompareCommand(o *options) *cobra.Command {
	var list, anyway bool
	var failAbove float64
	var output string
	var filter compare.Filter
	cmd := &cobra.Command{
		Use:   "compare RUN [RUN]",
		Short: "Hold two runs against each other: what was different, and what each message size gained or lost",
		Long: "RUN is GROUP/ID, for example mi300x/1-3; GROUP/latest; GROUP/previous; or a file that kubectl " +
			"commgroup results -o json wrote (its name\n" +
			"ends in .json, or - for standard input). The second RUN may leave the group out. GROUP alone compares " +
			"its last two runs.\n" +
			"The first run is A, the second B; a change is from A to B. Runs are CommRuns: spec.historyLimits says " +
			"how many the controller keeps.\n\n" +
			"A change counts where it exceeds the noise of both runs together, and at least 3 %. Runs of different " +
			"kinds (simulated and hardware,\n" +
			"GPU models, partitions, ranks a node) are refused: --anyway prints them all the same.\n\n" +
			"Exit code 0: done; 1: with --fail-above, run B is worse; 2: the command failed, or the runs are of " +
			"different kinds.",
		Example: "  kubectl commgroup compare mi300x\n  kubectl commgroup compare mi300x/1-3 1-4\n  kubectl " +
			"commgroup compare before.json mi300x/latest --fail-above 5\n" +
			"  kubectl commgroup compare --list mi300x",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := o.out(cmd)
			if err != nil {
				return err
			}
			if list {
				return o.listRuns(cmd.Context(), w, args)
			}
			refs, err := runRefs(args)
			if err != nil {
				return err
			}
			var records [2]*v1alpha1.CommRun
			for i, ref := range refs {
				if records[i], err = o.loadRun(cmd.Context(), cmd.InOrStdin(), ref); err != nil {
					return err
				}
			}
			c := compare.Runs(records[0], records[1], filter)
			if whole := compare.Runs(records[0], records[1], compare.Filter{}); len(c.Series) == 0 &&
				len(whole.Series) > 0 {
				return nothingToCompare(whole, filter)
			}
			if len(c.Kinds) > 0 && !anyway {
				return fmt.Errorf("the runs are of different kinds: %s; --anyway compares them all the same",
					compare.Differences(c.Kinds))
			}
			if err := printComparison(w, c, output); err != nil {
				return err
			}
			if !cmd.Flags().Changed("fail-above") {
				return nil
			}
			if worse := c.Regressions(failAbove); len(worse) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "run B is worse than run A by more than %g %%: %s\n",
					failAbove, compare.Some(worse))
				return errNotReady
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the runs of GROUP that can be compared")
	flags.BoolVar(&anyway, "anyway", false, "compare runs of different kinds")
	flags.Float64Var(&failAbove, "fail-above", 0, "exit with 1 where a measurement lost more than this many percent, "+
		"was not measured again, or the verdict is no longer Pass")
	flags.StringVarP(&output, "output", "o", outputTable, "table or json")
	flags.StringSliceVar(&filter.Variants, "variant", nil, "only these variants: Baseline, DDA, LowPrecision")
	flags.StringSliceVar(&filter.Collectives, "collective", nil, "only these collectives, for example AllReduce")
	return cmd
}

// nothingToCompare says what the runs have, where nothing of what was asked for is among it.
func nothingToCompare(whole *compare.Comparison, f compare.Filter) error {
	names := make([]string, 0, len(whole.Series))
	for i := range whole.Series {
		names = append(names, whole.Series[i].Name)
	}
	return fmt.Errorf("neither run has variant %s and collective %s; %s",
		orAny(f.Variants), orAny(f.Collectives), choices(names, "they have nothing", "they have "))
}

// orAny are the words of a filter.
func orAny(words []string) string { return cmp.Or(strings.Join(words, ", "), "any") }

// distinct are words in order, each once.
func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

// runRef is a run of a group, or a file.
type runRef struct{ file, group, id string }

var runID = regexp.MustCompile(`^[0-9]+-[0-9]+$`)

func isRun(s string) bool { return runID.MatchString(s) || s == runLatest || s == runPrevious }

// runRefs reads the grammar of compare's arguments.
func runRefs(args []string) (out [2]runRef, err error) {
	if len(args) == 1 {
		if isFile(args[0]) || strings.Contains(args[0], "/") || isRun(args[0]) {
			return out,
				fmt.Errorf("%s is one run: name a second one, or give only the group to compare its last two", args[0])
		}
		return [2]runRef{{group: args[0], id: runPrevious}, {group: args[0], id: runLatest}}, nil
	}
	for i, arg := range args {
		group, id, slash := strings.Cut(arg, "/")
		switch {
		case isFile(arg):
			out[i].file = arg
		case slash && isRun(id) && group != "":
			out[i] = runRef{group: group, id: id}
		case slash:
			return out, fmt.Errorf("%q is no run: write GROUP/ID with an id as in kubectl commgroup compare --list "+
				"GROUP, GROUP/latest or GROUP/previous", arg)
		case isRun(arg) && i == 1 && out[0].group != "":
			out[i] = runRef{group: out[0].group, id: arg}
		case isRun(arg):
			return out, fmt.Errorf("run %s of which group? Write GROUP/%s", arg, arg)
		default:
			out[i] = runRef{group: arg, id: runLatest}
		}
	}
	if out[0] == out[1] {
		return out, fmt.Errorf("%s and %s are one run: name two", args[0], args[1])
	}
	return out, nil
}

func isFile(arg string) bool { return arg == "-" || strings.HasSuffix(arg, ".json") }

// loadRun reads a run from a file or from the cluster.
func (o *options) loadRun(ctx context.Context, stdin io.Reader, ref runRef) (*v1alpha1.CommRun, error) {
	if ref.file == "-" {
		return runrecord.Read(stdin)
	}
	if ref.file != "" {
		f, err := os.Open(ref.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r, err := runrecord.Read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref.file, err)
		}
		return r, nil
	}
	c, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	return runOf(ctx, c, namespace, ref.group, ref.id)
}

// runsOf are the group's CommRuns.
func runsOf(ctx context.Context, c client.Client, namespace, name string) ([]v1alpha1.CommRun, error) {
	group := &v1alpha1.CommGroup{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, group); err != nil {
		return nil, explained(ctx, c, namespace, name, err)
	}
	var list v1alpha1.CommRunList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the CommRuns of %s/%s: %w", namespace, name, err)
	}
	return state.RunsOf(group, list.Items), nil
}

// keptRuns are the group's CommRuns that came to a verdict, the newest first.
func keptRuns(ctx context.Context, c client.Client, namespace, name string) ([]v1alpha1.CommRun, error) {
	all, err := runsOf(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(all, func(r v1alpha1.CommRun) bool {
		return r.Status.Verdict == "" || !state.Over(&r.Status.GroupRunStatus)
	})
	slices.SortFunc(out, func(a, b v1alpha1.CommRun) int { return cmp.Compare(b.Status.Number, a.Status.Number) })
	return out, nil
}

// runOf reads one run of a group; id may be latest or previous.
func runOf(ctx context.Context, c client.Client, namespace, name, id string) (*v1alpha1.CommRun, error) {
	kept, err := keptRuns(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(kept, func(r v1alpha1.CommRun) bool { return r.Status.ID == id })
	switch id {
	case runLatest:
		at = 0
	case runPrevious:
		at = 1
	}
	if at < 0 || at >= len(kept) {
		var ids []string
		for i := range kept {
			ids = append(ids, kept[i].Status.ID)
		}
		return nil, fmt.Errorf("run %s of %s/%s is not kept; %s. Ask for one more: kubectl commgroup run %s -n %s",
			id, namespace, name, choices(ids, "the group has finished none", "kept are "), name, namespace)
	}
	return &kept[at], nil
}

func (o *options) listRuns(ctx context.Context, w io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("--list takes one group, not %d names", len(args))
	}
	c, namespace, err := o.connect()
	if err != nil {
		return err
	}
	kept, err := keptRuns(ctx, c, namespace, args[0])
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return fmt.Errorf("%s/%s has finished no run; ask for one: kubectl commgroup run %s -n %s",
			namespace, args[0], args[0], namespace)
	}
	return report.Runs(w, kept)
}

func printComparison(w io.Writer, c *compare.Comparison, output string) error {
	switch output {
	case outputTable:
		return report.Compare(w, c)
	case outputJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		side := func(r *v1alpha1.CommRun) map[string]any {
			return map[string]any{"namespace": r.Namespace, "name": r.Spec.GroupName, "origin": r.Status.Origin,
				"run": r.Status.ID, "verdict": r.Status.Verdict}
		}
		return enc.Encode(struct {
			A map[string]any `json:"a"`
			B map[string]any `json:"b"`
			*compare.Comparison
			Verdict string `json:"verdict"`
		}{side(c.A), side(c.B), c, c.Verdict()})
	}
	return fmt.Errorf("unknown output %q: use table or json", output)
}

package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

func newExplainCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "explain NAME [SETTING]",
		Short: "Why is a setting in effect, or not: the gate that stops it, the library build, the nodes that " +
			"differ, and what to change",
		Long: "Without SETTING every setting of the last run is explained. SETTING is a name as kubectl commgroup " +
			"status shows it, or its beginning:\n" +
			"dda for all of dda, env.RCCL_DDA_ENABLE for one. The words come with the program: no network is needed " +
			"but the cluster's API.",
		Example: "  kubectl commgroup explain mi300x\n  kubectl commgroup explain mi300x dda.AllReduce\n  kubectl " +
			"commgroup explain mi300x env",
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return o.groupNames(cmd, args, typed)
			}
			c, namespace, err := o.connect()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			group, _, err := load(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return settingNames(group.Status.Settings), cobra.ShellCompDirectiveNoFileComp
		},
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
			if err := report.Notice(w, group); err != nil {
				return err
			}
			if len(group.Status.Settings) == 0 {
				return fmt.Errorf("CommGroup %s/%s tells of no settings yet: %s", namespace, args[0], whyNothing(group))
			}
			settings, err := chooseSettings(group.Status.Settings, strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			return report.Explain(w, group, nodes, settings)
		},
	}
}

// chooseSettings are those of a name, or whose name begins so.
func chooseSettings(all []v1alpha1.SettingStatus, name string) ([]v1alpha1.SettingStatus, error) {
	if name == "" {
		return all, nil
	}
	var out []v1alpha1.SettingStatus
	for i := range all {
		if strings.EqualFold(all[i].Name, name) {
			return all[i : i+1], nil
		}
		if rest, ok := strings.CutPrefix(strings.ToLower(all[i].Name), strings.ToLower(name)); ok &&
			strings.HasPrefix(rest, ".") {
			out = append(out, all[i])
		}
	}
	if len(out) == 0 {
		return nil,
			fmt.Errorf("the last run has no setting %s; %s", name, choices(settingNames(all), "it has none", "it has "))
	}
	return out, nil
}

func settingNames(all []v1alpha1.SettingStatus) []string {
	var out []string
	for i := range all {
		out = append(out, all[i].Name)
	}
	return out
}

// whyNothing is what keeps the group from a run that would tell its settings and results.
func whyNothing(g *state.Group) string {
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionAgentsReporting,
		v1alpha1.ConditionRunning, v1alpha1.ConditionValidated} {
		c := meta.FindStatusCondition(g.Status.Conditions, kind)
		if c != nil && (c.Status != "True" || kind == v1alpha1.ConditionRunning) &&
			c.Reason != v1alpha1.ReasonRunFinished {
			return fmt.Sprintf("%s is %s (%s): %s", kind, c.Status, c.Reason, cmp.Or(c.Message, "no message"))
		}
	}
	return "no run has reported any"
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

func newTopologyCommand(o *options) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use:   "topology NODE | GROUP [NODE]",
		Short: "Draw a node: its GPUs, the xGMI mesh between them, NUMA nodes, NICs, error counters and what is wrong",
		Long: "With NODE the node is looked for among the members of every CommGroup of the namespace, and where it " +
			"is none, among all nodes with a\n" +
			"CommNode; with GROUP all of its members are drawn.\n" +
			"A name that is both a node's and a group's is taken for the node; --group says otherwise.",
		Example: "  kubectl commgroup topology gpu-node-07\n  kubectl commgroup topology mi300x\n  kubectl commgroup " +
			"topology mi300x gpu-node-07\n" +
			"  kubectl commgroup topology gpu-node-07 --group mi300x",
		Args: cobra.RangeArgs(0, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return o.memberNames(cmd, args, group)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := o.out(cmd)
			if err != nil {
				return err
			}
			if len(args) == 2 && group == "" {
				group, args = args[0], args[1:]
			}
			if len(args) == 2 || len(args) == 0 && group == "" {
				return fmt.Errorf("%d names: give NODE, or GROUP, or GROUP NODE", len(args))
			}
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			if group != "" {
				_, nodes, err := load(cmd.Context(), c, namespace, group)
				if err != nil {
					return err
				}
				nodes = slices.DeleteFunc(nodes, func(m report.Member) bool {
					return len(args) > 0 && !slices.Contains(args, m.Spec.NodeName)
				})
				if len(nodes) == 0 {
					return fmt.Errorf("CommGroup %s/%s has no such member; kubectl get commtasks lists the members",
						namespace, group)
				}
				return drawNodes(cmd.Context(), w, c, nodes)
			}
			var all v1alpha1.CommTaskList
			if err := c.List(cmd.Context(), &all, client.InNamespace(namespace)); err != nil {
				return explained(cmd.Context(), c, namespace, "", fmt.Errorf("listing CommTasks: %w", err))
			}
			nodes, err := chooseNodes(report.Members(all.Items), args[0])
			if err != nil {
				return err
			}
			return drawNodes(cmd.Context(), w, c, nodes)
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "CommGroup that the node is looked for in")
	return cmd
}

// memberNames completes with nodes and, as the first of two names, groups.
func (o *options) memberNames(cmd *cobra.Command, args []string, group string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || len(args) == 1 && group != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := []string{}
	if len(args) == 1 {
		group = args[0]
	} else if group == "" {
		names, _ = o.groupNames(cmd, args, "")
	}
	c, namespace, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var nodes v1alpha1.CommTaskList
	if err := c.List(cmd.Context(), &nodes, client.InNamespace(namespace)); err != nil {
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	for i := range nodes.Items {
		if name := nodes.Items[i].Spec.NodeName; (group == "" || nodes.Items[i].Spec.Group.Name == group) &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// chooseNodes are the members that a name stands for: a node, or all members of a group. Any other name may be a node
// that is no member.
func chooseNodes(all []report.Member, name string) ([]report.Member, error) {
	var ofNode, ofGroup []report.Member
	var groups []string
	for i := range all {
		if all[i].Spec.NodeName == name {
			ofNode = append(ofNode, all[i])
			groups = append(groups, all[i].Spec.Group.Name)
		}
		if all[i].Spec.Group.Name == name {
			ofGroup = append(ofGroup, all[i])
		}
	}
	slices.Sort(groups)
	switch {
	case len(ofNode) > 1:
		return nil, fmt.Errorf("node %s is a member of %d groups: %s; name one with --group",
			name, len(groups), choices(groups, "", ""))
	case len(ofNode) == 1:
		return ofNode, nil
	case len(ofGroup) > 0:
		return ofGroup, nil
	}
	return []report.Member{report.NoMember(name)}, nil
}

func drawNodes(ctx context.Context, w io.Writer, c client.Client, nodes []report.Member) error {
	unread, err := report.ReadNodes(ctx, c, nodes)
	if err != nil {
		return err
	}
	if one := &nodes[0]; one.Name == "" && one.Node == nil { // not a member
		err := fmt.Errorf("%s is neither a member of a CommGroup of this namespace, "+
			"nor a CommGroup with members, nor a node with a CommNode; "+
			"kubectl get commtasks -A lists the members, and kubectl get commnodes the nodes", one.Spec.NodeName)
		if unread != "" {
			err = fmt.Errorf("%w. Note: %s", err, unread)
		}
		return err
	}
	if err := report.Note(w, unread); err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b report.Member) int { return cmp.Compare(a.Spec.Ranks.First, b.Spec.Ranks.First) })
	for i := range nodes {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := report.Topology(w, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

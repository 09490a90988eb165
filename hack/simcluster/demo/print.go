package demo

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// section is one part of what is printed.
type section struct {
	title string
	print func() error
}

// print shows what a user wants to see of the group.
func (d *demo) print(ctx context.Context, group *state.Group) error {
	var tasks v1alpha1.CommTaskList
	if err := d.client.List(ctx, &tasks, client.InNamespace("default")); err != nil {
		return err
	}
	nodes := report.Members(tasks.Items)
	if _, err := report.ReadNodes(ctx, d.client, nodes); err != nil {
		return err
	}
	d.say("")
	if err := report.Notice(d.Out, group); err != nil {
		return err
	}
	for _, kind := range []string{"cg", "cgr", "ct", "cn"} {
		d.step("kubectl get %s", kind)
		table, err := d.kubectl(ctx, "get", kind)
		if err != nil {
			return err
		}
		d.say("%s", strings.TrimRight(table, "\n"))
	}
	sections := []section{
		{"Conditions", func() error { return report.Conditions(d.Out, group) }},
		{"Nodes", func() error { return report.Nodes(d.Out, group, nodes, 0) }},
		{"xGMI mesh", func() error { return d.printMesh(nodes) }},
		{"Settings: requested, effective, verified, usable",
			func() error { return report.Settings(d.Out, group.Status.Settings) }},
		{"A/B by message size: the members' medians", func() error { return report.GroupAB(d.Out, group, nodes) }},
		{"Culprits", func() error { return report.Culprits(d.Out, group.Status.Culprits) }},
		{"Published settings", func() error { return d.printPublished(ctx, group) }},
	}
	if d.Span {
		sections = slices.DeleteFunc(sections, func(s section) bool {
			return !oneOf(s.title, []string{"Conditions", "Nodes", "Culprits"})
		})
		sections = slices.Insert(sections, 2, section{"Over several nodes: each test, and the results", func() error {
			return report.Span(d.Out, group, nodes)
		}})
	}
	for _, s := range sections {
		if (s.title == "Culprits" && d.Fault == nil && len(group.Status.Culprits) == 0) ||
			(len(group.Status.Results) == 0 && strings.HasPrefix(s.title, "A/B")) {
			continue
		}
		d.step("%s", s.title)
		if err := s.print(); err != nil {
			return err
		}
	}
	return nil
}

// printMesh draws the mesh of the node of interest in full; the others are alike or have a problem of their own.
func (d *demo) printMesh(nodes []report.Member) error {
	for i := range nodes {
		n := &nodes[i]
		if (d.Fault == nil && i == 0) || (d.Fault != nil && n.Spec.NodeName == FaultyNode) {
			if err := report.Topology(d.Out, n); err != nil {
				return err
			}
		}
		if f := n.Facts(); f != nil && len(f.Problems) > 0 {
			d.say("%s:", n.Spec.NodeName)
			if err := report.Problems(d.Out, f.Problems); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *demo) printPublished(ctx context.Context, group *state.Group) error {
	published := group.Status.Published
	if published == nil {
		d.say("none: %s", conditionText(group, v1alpha1.ConditionSettingsPublished))
		return nil
	}
	var cm corev1.ConfigMap
	if err := d.client.Get(ctx, client.ObjectKey{Namespace: group.Namespace, Name: published.ConfigMapName},
		&cm); err != nil {
		return err
	}
	d.say("ConfigMap %s/%s, hash %s, proven by run %s (the demo lets simulated results be published: "+
		"publish.simulated is Allow)", cm.Namespace, cm.Name, published.Hash, published.RunID)
	for _, key := range sortedKeys(cm.Data) {
		if strings.Contains(cm.Data[key], "\n") {
			d.say("  %s: |\n    %s", key, strings.ReplaceAll(strings.TrimSpace(cm.Data[key]), "\n", "\n    "))
			continue
		}
		d.say("  %s=%s", key, cm.Data[key])
	}
	return nil
}

func conditionText(group *state.Group, kind string) string {
	c := current(group, kind)
	if c == nil {
		return "no condition " + kind + " yet"
	}
	return c.Reason + ": " + c.Message
}

func (d *demo) printNext(group *state.Group) {
	dir, also := d.State.Dir, ""
	if rel, err := filepath.Rel(d.Repo, dir); err == nil && filepath.IsLocal(rel) {
		dir = rel
	}
	if dir != ".demo" { // make's own STATE_DIR
		also = " STATE_DIR=" + dir
	}
	d.step("The cluster stays up. Next:")
	d.say("  export KUBECONFIG=%s PATH=%s:%s:$PATH", d.State.Kubeconfig(), d.Bin, d.Binaries)
	d.say("  kubectl get cg,cgr,ct,cn")
	d.say("  kubectl get cg %s -o yaml", group.Name)
	d.say("  kubectl commgroup status %s", group.Name)
	d.say("  kubectl commgroup explain %s      # each setting, and why it is in effect or not", group.Name)
	d.say("  kubectl commgroup results %s", group.Name)
	d.say("  kubectl commgroup report %s --html report.html", group.Name)
	d.say("  kubectl get pods -A -o wide; kubectl logs -n %s deploy/commgroup-manager", operatorNamespace)
	d.say("  make demo FAULT=%s%s      # see the operator name what is wrong", Faults[0].Name, also)
	d.say("  make demo SPAN=group FAULT=slow-nic%s      # over several nodes, down to the NIC", also)
	d.say("  make demo-down%s", also)
	d.say("Logs: %s and %s", filepath.Join(dir, "logs"), filepath.Join(dir, "nodes", "NODE", "logs"))
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}

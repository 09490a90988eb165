package state

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Load reads a CommGroup and its CommRuns. Errors are those of the API server.
func Load(ctx context.Context, c client.Reader, key client.ObjectKey) (*Group, error) {
	group := &v1alpha1.CommGroup{}
	if err := c.Get(ctx, key, group); err != nil {
		return nil, err
	}
	return Of(ctx, c, group)
}

// Of adds to a CommGroup that was read its CommRuns.
func Of(ctx context.Context, c client.Reader, group *v1alpha1.CommGroup) (*Group, error) {
	var runs v1alpha1.CommRunList
	if err := c.List(ctx, &runs, client.InNamespace(group.Namespace)); err != nil {
		return nil, err
	}
	return Join(group, RunsOf(group, runs.Items)), nil
}

// LoadAll reads all CommGroups of a namespace, of all for "", and their CommRuns, as they are listed.
func LoadAll(ctx context.Context, c client.Reader, namespace string) ([]Group, error) {
	var groups v1alpha1.CommGroupList
	if err := c.List(ctx, &groups, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var runs v1alpha1.CommRunList
	if err := c.List(ctx, &runs, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return JoinAll(groups.Items, runs.Items), nil
}

// JoinAll puts each CommGroup and its CommRuns together.
func JoinAll(groups []v1alpha1.CommGroup, runs []v1alpha1.CommRun) []Group {
	type key struct{ namespace, group string }
	byGroup := map[key][]v1alpha1.CommRun{}
	for i := range runs {
		k := key{runs[i].Namespace, runs[i].Spec.GroupName}
		byGroup[k] = append(byGroup[k], runs[i])
	}
	out := make([]Group, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		out = append(out, *Join(g, RunsOf(g, byGroup[key{g.Namespace, g.Name}])))
	}
	return out
}

// RunsOf are those of the CommRuns that are the group's: its own by their owner, and those that a user created and
// that have none yet. What an earlier group of the name left is not.
func RunsOf(group *v1alpha1.CommGroup, runs []v1alpha1.CommRun) []v1alpha1.CommRun {
	var out []v1alpha1.CommRun
	for i := range runs {
		r := &runs[i]
		if r.Namespace != group.Namespace || r.Spec.GroupName != group.Name {
			continue
		}
		if owner := GroupOf(r); owner == group.UID || owner == "" && r.Status.ID == "" {
			out = append(out, *r)
		}
	}
	return out
}

// GroupOf is the UID of the CommGroup that owns the CommRun; empty where none does. Others may own it, too.
func GroupOf(run *v1alpha1.CommRun) types.UID {
	for _, o := range run.OwnerReferences {
		if o.Kind == "CommGroup" && o.APIVersion == v1alpha1.GroupVersion.String() {
			return o.UID
		}
	}
	return ""
}

package main

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

// asTenant is the command line of who may read a namespace and nothing of the cluster.
func asTenant(c *cli) *cli {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "commnodes"},
		"", nil)
	c.options.client = interceptor.NewClient(c.options.client, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, node := o.(*v1alpha1.CommNode); node {
				return forbidden
			}
			return inner.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			if _, nodes := list.(*v1alpha1.CommNodeList); nodes {
				return forbidden
			}
			return inner.List(ctx, list, opts...)
		}})
	return c
}

// TestTenantSeesAllButCommNodes: who may not read CommNodes gets everything else, what the last run saw of the nodes,
// and one line with the role to ask for.
func TestTenantSeesAllButCommNodes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"status", "mi300x"}, 1,
			[]string{"sim-node-2  16-23/32  8     MI300X  -    SPX/NPS1  7.0.2, RCCL 2.26.6",
				"\nCulprits\n", "\nSettings\n"}},
		{[]string{"topology", "sim-node-2"}, 0,
			[]string{"sim-node-2, as run 1-1 saw it: 8 x MI300X (SPX/NPS1), xGMI mesh Full;",
				"measured between pairs at 16M"}},
		{[]string{"report", "mi300x", "--html", "-"}, 0, []string{"8 x MI300X", "SIMULATED"}},
	} {
		out, errs, code := asTenant(newCLI(t, nil)).run(tc.args...)
		if code != tc.code || strings.Count(out, report.NodesRole) != 1 {
			t.Errorf("%v: exit code %d, %s, and the role is not named once:\n%s", tc.args, code, errs, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, out)
			}
		}
	}
	if out, errs, code := asTenant(newCLI(t, nil)).run("topology", "elsewhere"); code != exitFailed || out != "" ||
		!strings.Contains(errs, report.NodesRole) {
		t.Errorf("a node that is no member: exit code %d, %q, %q", code, out, errs)
	}
	for _, args := range [][]string{{"explain", "mi300x"}, {"results", "mi300x"}} { // these need no CommNodes
		if out, errs, code := asTenant(newCLI(t, nil)).run(args...); code != 0 ||
			strings.Contains(out+errs, report.NodesRole) {
			t.Errorf("%v: exit code %d, %s\n%s", args, code, errs, out)
		}
	}
}

// TestTopologyOfANodeWithoutGroup: a node's CommNode is enough.
func TestTopologyOfANodeWithoutGroup(t *testing.T) {
	alone := &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{GPUCount: 4,
		GPUModel: "MI250X", XGMI: v1alpha1.XGMIFacts{Mesh: "Full"}}}}
	alone.Name = "spare"
	out, errs, code := newCLI(t, nil, alone).run("topology", "spare")
	if code != 0 || !strings.HasPrefix(out, "spare: 4 x MI250X") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

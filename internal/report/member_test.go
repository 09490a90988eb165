package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestReadNodes: few members are read one by one and many by a list; a node without CommNode, and one of another Node
// object, stays without.
func TestReadNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, getAtMost + 1} {
		var failing error
		gets, lists := 0, 0
		b := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				gets++
				return errors.Join(failing, c.Get(ctx, key, o, opts...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
				opts ...client.ListOption) error {
				lists++
				return errors.Join(failing, c.List(ctx, list, opts...))
			}})
		members := make([]Member, n)
		for i := range members {
			members[i] = NoMember(fmt.Sprint("n", i))
			node := &v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeUID: "now"},
				Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{GPUCount: int32(i)}}}
			node.Name = members[i].Spec.NodeName
			if i > 0 {
				b.WithObjects(node)
			}
		}
		members[n-1].Spec.NodeUID, members[n-2].Spec.NodeUID = "before", "now"
		c := b.Build()
		if unread, err := ReadNodes(t.Context(), c, members); unread != "" || err != nil {
			t.Fatalf("%d members: %q, %v", n, unread, err)
		}
		if members[0].Facts() != nil || members[n-1].Facts() != nil || members[n-2].Facts() == nil ||
			members[n-2].Facts().GPUCount != int32(n-2) {
			t.Errorf("%d members: %+v", n, members)
		}
		if few := n <= getAtMost; few != (lists == 0) || few != (gets == n) {
			t.Errorf("%d members: %d gets and %d lists", n, gets, lists)
		}
		failing = apierrors.NewForbidden(schema.GroupResource{Resource: "commnodes"}, "", nil)
		if unread, err := ReadNodes(t.Context(), c, members); !strings.Contains(unread, NodesRole) || err != nil {
			t.Errorf("%d members, forbidden: %q, %v", n, unread, err)
		}
		failing = errors.New("away")
		if unread, err := ReadNodes(t.Context(), c, members); unread != "" || !errors.Is(err, failing) {
			t.Errorf("%d members, away: %q, %v", n, unread, err)
		}
	}
}

// TestHardware: a node's CommNode tells what it is; without it the last run does, and nothing is made up.
func TestHardware(t *testing.T) {
	m := NoMember("n1")
	if got := m.Hardware(); got != (Hardware{}) {
		t.Errorf("of nothing: %+v", got)
	}
	m.Spec.Run = &v1alpha1.RunAssignment{Platform: &v1alpha1.PlatformFacts{GPUs: "8/1f0c22ab", Model: "MI300X",
		Mesh: "Full", ROCm: "7.0.2", Driver: "6.14.14", Partition: "SPX/NPS1"}}
	if got, want := m.Hardware(), (Hardware{GPUs: "8", Model: "MI300X", Mode: "SPX/NPS1", ROCm: "7.0.2",
		Driver: "6.14.14", Mesh: "Full"}); got != want {
		t.Errorf("of the run: %+v, want %+v", got, want)
	}
	m.Node = &v1alpha1.CommNode{Status: v1alpha1.CommNodeStatus{Facts: &v1alpha1.NodeFacts{GPUCount: 4,
		GPUModel: "MI250X"}}}
	if got := m.Hardware(); got.GPUs != "4" || got.Model != "MI250X" {
		t.Errorf("of the CommNode: %+v", got)
	}
}

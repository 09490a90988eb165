package monitor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// fakeCluster has a Node and a token that tells what extra says.
func fakeCluster(t *testing.T, extra map[string]authenticationv1.ExtraValue, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme,
		authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.CommNode{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if self, ok := o.(*authenticationv1.SelfSubjectReview); ok {
				self.Status.UserInfo.Extra = extra
				return nil
			}
			return c.Create(ctx, o, opts...)
		},
		// The fake client would create what is not there; the API server answers NotFound (TestAgainstAPIServer).
		SubResourceApply: func(ctx context.Context, c client.Client, part string, o runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			var there v1alpha1.CommNode
			if err := c.Get(ctx, client.ObjectKey{Name: o.(interface{ GetName() string }).GetName()},
				&there); err != nil {
				return err
			}
			return c.SubResource(part).Apply(ctx, o, opts...)
		}}).Build()
}

// ofNode is what a token says that is bound to a pod on the node.
func ofNode(name, uid string) map[string]authenticationv1.ExtraValue {
	return map[string]authenticationv1.ExtraValue{nodeNameExtra: {name}, nodeUIDExtra: {uid}}
}

func TestKubeReporter(t *testing.T) {
	c, ctx := fakeCluster(t, ofNode("node-a", "uid-a")), t.Context()
	k := &KubeReporter{Client: c, Node: "node-a"}
	if facts, err := k.Last(ctx); facts != nil || err != nil {
		t.Errorf("facts of no CommNode: %v, %v", facts, err)
	}
	for range 2 {
		if err := k.Report(ctx, twoGPUs(time.Unix(1e9, 0)).NodeFacts(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if facts, err := k.Last(ctx); err != nil || facts == nil || facts.GPUCount != 2 ||
		facts.GPUs[1].PCIAddress != "0000:2b:00.0" {
		t.Errorf("last facts %+v, %v", facts, err)
	}
	var cn v1alpha1.CommNode
	if err := c.Get(ctx, client.ObjectKey{Name: "node-a"}, &cn); err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "uid-a"}}
	if cn.Spec.NodeUID != "uid-a" || !reflect.DeepEqual(cn.OwnerReferences, owner) || cn.Status.Facts == nil ||
		cn.Status.Facts.GPUCount != 2 {
		t.Errorf("CommNode %+v", cn)
	}
	// The node was deleted and created again, and this CommNode not yet.
	another := &KubeReporter{Client: fakeCluster(t, ofNode("node-a", "uid-b"),
		&v1alpha1.CommNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: cn.Spec, Status: cn.Status}),
		Node: "node-a"}
	if facts, err := another.Last(ctx); facts != nil || err != nil {
		t.Errorf("facts of an earlier Node object: %v, %v", facts, err)
	}
}

// TestNodeUID: a pod's own token tells the UID of its node, and no other node's monitor can be; without it the Node
// does.
func TestNodeUID(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "uid-of-node"}}
	for name, tc := range map[string]struct {
		extra     map[string]authenticationv1.ExtraValue
		node      []client.Object
		want, err string
	}{
		"by the token": {ofNode("node-a", "uid-a"), nil, "uid-a", ""},
		"token of another node": {ofNode("node-b", "uid-b"), []client.Object{node}, "",
			"the pod's token is of node node-b"},
		"by the Node": {nil, []client.Object{node}, "uid-of-node", ""},
		"by neither":  {nil, nil, "", "the token names no UID of its node"},
		"token without the UID": {map[string]authenticationv1.ExtraValue{nodeNameExtra: {"node-a"}},
			[]client.Object{node}, "uid-of-node", ""},
		"token of an unbound pod": {map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"p"}}, []client.Object{node}, "uid-of-node", ""},
	} {
		k := &KubeReporter{Client: fakeCluster(t, tc.extra, tc.node...), Node: "node-a"}
		got, err := k.nodeUID(t.Context())
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, tc.want, tc.err)
		}
	}
}

func TestHealth(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	h := NewHealth(clock, 30*time.Second, 2*time.Minute)
	check := func(path string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	check("/readyz", 503)
	check("/healthz", 503)
	check("/livez", 200)
	check("/other", 404)
	h.looked(clock.Now())
	h.reported(clock.Now())
	check("/readyz", 200)
	check("/healthz", 200)
	clock.Step(3 * time.Minute)
	check("/readyz", 503) // the report is too old
	check("/livez", 200)
	clock.Step(10 * time.Minute)
	check("/livez", 503)
	(*Health)(nil).looked(clock.Now())
	(*Health)(nil).reported(clock.Now())
}

package envtest

import (
	"context"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writes counts the requests that would change an object; the reconciler makes several at once.
type writes struct {
	client.Client
	n atomic.Int64
}

func (w *writes) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	w.n.Add(1)
	return w.Client.Apply(ctx, o, opts...)
}

func (w *writes) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	w.n.Add(1)
	return w.Client.Create(ctx, o, opts...)
}

func (w *writes) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	w.n.Add(1)
	return w.Client.Update(ctx, o, opts...)
}

func (w *writes) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	w.n.Add(1)
	return w.Client.Patch(ctx, o, p, opts...)
}

func (w *writes) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	w.n.Add(1)
	return w.Client.Delete(ctx, o, opts...)
}

// TestTwoReconcilesInARowMakeNoWrite: what the API server adds to an object by default is no reason to write it again,
// and what somebody changes is.
func TestTwoReconcilesInARowMakeNoWrite(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.running()
	count := &writes{Client: w.r.Client}
	w.r.Client = count
	reconcile := func() int64 {
		t.Helper()
		count.n.Store(0)
		_, err := w.r.Reconcile(w.ctx, w.request())
		w.must(err)
		return count.n.Load()
	}
	for range 2 {
		if n := reconcile(); n != 0 {
			t.Errorf("%d writes although nothing has changed", n)
		}
	}
	ct := w.commTask(w.nodes[0])
	want := ct.Spec.Ranks
	ct.Spec.Ranks.First++
	w.must(admin.Update(w.ctx, ct))
	if n := reconcile(); n != 1 {
		t.Errorf("%d writes after somebody changed the ranks of a CommTask, expected one", n)
	}
	if got := w.commTask(w.nodes[0]).Spec.Ranks; got != want {
		t.Errorf("the ranks are not put back: %+v", got)
	}
	if n := reconcile(); n != 0 {
		t.Errorf("%d writes after the ranks were put back", n)
	}
}

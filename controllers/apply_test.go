package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

// TestDeletesAreSentAtOnce: of pods and of CommTasks, maxWritesAtOnce are under way at the same time; what one answers
// holds up no other, and each name is deleted once.
func TestDeletesAreSentAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const each = 2 * maxWritesAtOnce
	arrived := make(chan string)
	answers := make(chan error)
	c := interceptor.NewClient(nil, interceptor.Funcs{
		Delete: func(ctx context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
			select {
			case arrived <- fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName()):
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	var d Decision
	for i := range each {
		d.DeletePods = append(d.DeletePods, fmt.Sprintf("pod-%d", i))
		d.DeleteCommTasks = append(d.DeleteCommTasks, fmt.Sprintf("ct-%d", i))
	}
	r := New(Dependencies{Client: c, Config: testConfig})
	done := make(chan error, 1)
	go func() {
		done <- r.apply(ctx, &Snapshot{Group: testkit.Group(), Stored: &v1alpha1.CommGroup{}, Now: testkit.Now}, &d)
	}()
	seen := map[string]int{}
	refused := errors.New("not now")
	for range 2 * each / maxWritesAtOnce {
		for range maxWritesAtOnce { // as many come before the first has its answer
			select {
			case name := <-arrived:
				seen[name]++
			case <-ctx.Done():
				t.Fatalf("after %d deletes no other comes before one has its answer", len(seen))
			}
		}
		for range maxWritesAtOnce {
			answers <- refused
		}
	}
	if err := <-done; !errors.Is(err, refused) {
		t.Errorf("apply: %v", err)
	}
	for i := range each {
		for _, name := range []string{fmt.Sprintf("*v1.Pod team/pod-%d", i),
			fmt.Sprintf("*v1alpha1.CommTask team/ct-%d", i)} {
			if seen[name] != 1 {
				t.Errorf("%s is deleted %d times", name, seen[name])
			}
		}
	}
}

// TestForbiddenMarks: where the API server forbids to mark any Node, few writes are begun; where a webhook of their own
// protects one or two, all others are marked.
func TestForbiddenMarks(t *testing.T) {
	value := (&gating.Statement{Verdict: v1alpha1.VerdictPass,
		Actions: []v1alpha1.GatingAction{v1alpha1.GatingLabel}}).String()
	var writes []gating.Write
	for i := range 500 {
		node := &corev1.Node{}
		node.Name = fmt.Sprintf("n%d", i)
		writes = append(writes, gating.Write{Node: node, Annotations: map[string]*string{gating.Key("uid"): &value}})
	}
	for name, tc := range map[string]struct {
		protected []string // empty: all
		tried     int
	}{
		"all":                      {nil, maxWritesAtOnce + maxRefusals},
		"the first two":            {[]string{"n0", "n1"}, 500},
		"some after many that may": {[]string{"n100", "n101", "n102", "n103"}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			var tried atomic.Int64
			c := interceptor.NewClient(nil, interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch,
					_ ...client.PatchOption) error {
					tried.Add(1)
					if len(tc.protected) == 0 || slices.Contains(tc.protected, o.GetName()) {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(),
							errors.New("no role"))
					}
					return nil
				},
			})
			for i, err := range writeNodes(t.Context(), c, writes, testkit.Now) {
				if want := len(tc.protected) == 0 ||
					slices.Contains(tc.protected, writes[i].Node.Name); apierrors.IsForbidden(err) != want {
					t.Fatalf("node %s: %v", writes[i].Node.Name, err)
				}
			}
			if n := int(tried.Load()); n < maxRefusals || n > tc.tried || len(tc.protected) > 0 && n < tc.tried {
				t.Errorf("%d writes are tried, want %d", n, tc.tried)
			}
		})
	}
}

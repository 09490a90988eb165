package commtask

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// TestWhatTheAnswersMean: an agent gives up only where nobody waits for it, shortens its report only where it was
// refused, and tries again after everything else.
func TestWhatTheAnswersMean(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kind, resource := schema.GroupKind{Group: "rcclx.io", Kind: "CommTask"},
		schema.GroupResource{Group: "rcclx.io", Resource: "commtasks"}
	for _, tc := range []struct {
		name   string
		answer error
		is     error
	}{
		{name: "taken"},
		{name: "invalid", answer: apierrors.NewInvalid(kind, "a", nil), is: ErrRejected},
		{name: "bad request", answer: apierrors.NewBadRequest("no"), is: ErrRejected},
		{name: "too large", answer: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), is: ErrRejected},
		{name: "gone", answer: apierrors.NewNotFound(resource, "a"), is: ErrSuperseded},
		{name: "conflict", answer: apierrors.NewConflict(resource, "a", errors.New("uid mismatch"))},
		{name: "forbidden", answer: apierrors.NewForbidden(resource, "a", errors.New("policy"))},
		{name: "busy", answer: apierrors.NewTooManyRequests("later", 1)},
		{name: "out of reach", answer: errors.New("connection refused")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer := interceptor.Funcs{SubResourceApply: func(_ context.Context, _ client.Client, part string,
				_ runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
				if part != "status" {
					t.Errorf("applied to %s", part)
				}
				return tc.answer
			}}
			ref := Ref{Client: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(answer).Build(),
				Name: types.NamespacedName{Namespace: "ns", Name: "a"}}
			err := ref.Apply(t.Context(), "uid", "run", api.FieldManagerRun, &api.NodeRunStatus{})
			if (err == nil) != (tc.answer == nil) || tc.answer != nil && !errors.Is(err, tc.answer) {
				t.Fatalf("%v, the answer was %v", err, tc.answer)
			}
			for _, sentinel := range []error{ErrRejected, ErrSuperseded} {
				if errors.Is(err, sentinel) != errors.Is(tc.is, sentinel) {
					t.Errorf("%v is %v: %v", err, sentinel, errors.Is(err, sentinel))
				}
			}
		})
	}
}

func TestGet(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	leaving := &api.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leaving", DeletionTimestamp: &now,
		Finalizers: []string{"test/keep"}}}
	here := &api.CommTask{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "here"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(leaving, here).Build()
	for name, is := range map[string]error{"here": nil, "leaving": ErrSuperseded, "none": ErrSuperseded} {
		node, err := Ref{Client: c, Name: types.NamespacedName{Namespace: "ns", Name: name}}.Get(t.Context())
		if !errors.Is(err, is) || (err == nil) != (node != nil) {
			t.Errorf("%s: %v, %v", name, node, err)
		}
	}
}

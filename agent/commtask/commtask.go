// Package commtask reads a node's CommTask for an agent, and writes one part of its status. Each part has one writer:
// the run pod owns status.run, the group pod status.session (docs/security.md).
package commtask

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// The errors that tell more than that something passing went wrong.
var (
	// ErrSuperseded: nobody waits for the report. The object asks for other work, or for none, was closed, or is gone.
	ErrSuperseded = errors.New("superseded")
	// ErrRejected: the API server takes no report of this form.
	ErrRejected = errors.New("the report was rejected")
)

// Ref is one CommTask of the API server.
type Ref struct {
	Client client.Client
	Name   types.NamespacedName
}

// Get reads the CommTask; ErrSuperseded where there is none, or it is being deleted.
func (r Ref) Get(ctx context.Context) (*api.CommTask, error) {
	var task api.CommTask
	if err := r.Client.Get(ctx, r.Name, &task); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: CommTask %s does not exist", ErrSuperseded, r.Name)
		}
		return nil, fmt.Errorf("get CommTask %s: %w", r.Name, err)
	}
	if task.DeletionTimestamp != nil {
		return nil, fmt.Errorf("%w: CommTask %s is being deleted", ErrSuperseded, r.Name)
	}
	return &task, nil
}

// Apply writes one part of the status, and claims no other. With a uid a CommTask that was deleted and created again
// meanwhile is another one. ErrRejected where the API server does not take it, ErrSuperseded where it is gone.
func (r Ref) Apply(ctx context.Context, uid types.UID, part, owner string, value any) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind("CommTask"))
	u.SetNamespace(r.Name.Namespace)
	u.SetName(r.Name.Name)
	u.SetUID(uid)
	return ApplyStatus(ctx, r.Client, u, part, owner, value)
}

// ApplyStatus writes one part of the object's status by server-side apply. The object has its kind and name, and its
// UID where it matters. Errors are those of Ref.Apply.
func ApplyStatus(ctx context.Context, c client.Client, object *unstructured.Unstructured, part, owner string,
	value any) error {
	what := fmt.Sprintf("%s %s", object.GetKind(), client.ObjectKeyFromObject(object))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return fmt.Errorf("%w: encode status.%s of %s: %w", ErrRejected, part, what, err)
	}
	object.Object["status"] = map[string]any{part: content}
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner),
		client.ForceOwnership)
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s is gone: %w", ErrSuperseded, what, err)
	}
	return fmt.Errorf("write status.%s of %s: %w", part, what, err)
}

package runner

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// KubeReporter reports to a CommNode. It claims status.run only: status.facts belongs to the node's monitor.
type KubeReporter struct {
	Client client.Client
	// Name of the CommNode.
	Name types.NamespacedName
	// RunID that is carried out.
	RunID string
}

func (k KubeReporter) get(ctx context.Context) (*api.CommNode, error) {
	var node api.CommNode
	if err := k.Client.Get(ctx, k.Name, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: CommNode %s does not exist", ErrSuperseded, k.Name)
		}
		return nil, fmt.Errorf("get CommNode %s: %w", k.Name, err)
	}
	if node.DeletionTimestamp != nil {
		return nil, fmt.Errorf("%w: CommNode %s is being deleted", ErrSuperseded, k.Name)
	}
	return &node, nil
}

// Assignment implements Reporter.
func (k KubeReporter) Assignment(ctx context.Context) (Assignment, error) {
	node, err := k.get(ctx)
	if err != nil {
		return Assignment{}, err
	}
	return Assignment{Run: node.Spec.Run, Ranks: int(node.Spec.Ranks.Count), Reported: node.Status.Run,
		BudgetBytes: reportBudget(*node), Facts: node.Status.Facts}, nil
}

// Report implements Reporter. It reads the CommNode first, so that a late report never hides that of a newer run.
func (k KubeReporter) Report(ctx context.Context, status api.NodeRunStatus) error {
	node, err := k.get(ctx)
	if err != nil {
		return err
	}
	switch run := node.Spec.Run; {
	case run == nil:
		return fmt.Errorf("%w: CommNode %s asks for no run any more", ErrSuperseded, k.Name)
	case run.ID != k.RunID:
		return fmt.Errorf("%w: CommNode %s asks for run %s, this is %s", ErrSuperseded, k.Name, run.ID, k.RunID)
	case run.Closed != nil:
		return fmt.Errorf("%w: the controller closed run %s: %s", ErrSuperseded, k.RunID, run.Closed.Message)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("%w: encode the report: %w", ErrRejected, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"run": content}}}
	u.SetGroupVersionKind(api.GroupVersion.WithKind("CommNode"))
	u.SetNamespace(k.Name.Namespace)
	u.SetName(k.Name.Name)
	// A CommNode that was deleted and made again meanwhile is another one.
	u.SetUID(node.UID)
	err = k.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(api.FieldManagerRun), client.ForceOwnership)
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: CommNode %s is gone", ErrSuperseded, k.Name)
	}
	return fmt.Errorf("write status.run of CommNode %s: %w", k.Name, err)
}

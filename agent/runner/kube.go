package runner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/commnode"
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

func (k KubeReporter) ref() commnode.Ref { return commnode.Ref{Client: k.Client, Name: k.Name} }

// Assignment implements Reporter.
func (k KubeReporter) Assignment(ctx context.Context) (Assignment, error) {
	node, err := k.ref().Get(ctx)
	if err != nil {
		return Assignment{}, err
	}
	group := types.NamespacedName{Namespace: node.Namespace, Name: node.Spec.Group.Name}
	return Assignment{Group: group, Run: node.Spec.Run, Ranks: int(node.Spec.Ranks.Count), Reported: node.Status.Run,
		BudgetBytes: reportBudget(*node), Facts: node.Status.Facts}, nil
}

// Report implements Reporter. It reads the CommNode first, so that a late report never hides that of a newer run.
func (k KubeReporter) Report(ctx context.Context, status api.NodeRunStatus) error {
	node, err := k.ref().Get(ctx)
	if err != nil {
		return err
	}
	switch run := node.Spec.Run; {
	case run == nil:
		return fmt.Errorf("%w: CommNode %s asks for no run any more", commnode.ErrSuperseded, k.Name)
	case run.ID != k.RunID:
		return fmt.Errorf("%w: CommNode %s asks for run %s, this is %s", commnode.ErrSuperseded, k.Name, run.ID, k.RunID)
	case run.Closed != nil:
		return fmt.Errorf("%w: the controller closed run %s: %s", commnode.ErrSuperseded, k.RunID, run.Closed.Message)
	}
	return k.ref().Apply(ctx, node.UID, "run", api.FieldManagerRun, &status)
}

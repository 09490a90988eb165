package monitor

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// KubeReporter writes facts to a CommTask by server-side apply on its status, as FieldManagerMonitor. The applied
// object has status.facts alone, so that the run agent's status.run is never claimed nor removed.
type KubeReporter struct {
	Client client.Client
	// CommTask is the name and namespace of the node's CommTask.
	CommTask types.NamespacedName
}

// Last implements Reporter. A CommTask that does not exist yet has no facts.
func (k *KubeReporter) Last(ctx context.Context) (*v1alpha1.NodeFacts, error) {
	var ct v1alpha1.CommTask
	if err := k.Client.Get(ctx, k.CommTask, &ct); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read status.facts of CommTask %s: %w", k.CommTask, err)
	}
	return ct.Status.Facts, nil
}

// Has implements Reporter. It reads metadata alone, from the API server's cache: thousands of monitors ask.
func (k *KubeReporter) Has(ctx context.Context) (bool, error) {
	var ct metav1.PartialObjectMetadata
	ct.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommTask"))
	err := k.Client.Get(ctx, k.CommTask, &ct, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read metadata of CommTask %s: %w", k.CommTask, err)
	}
	for _, m := range ct.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor {
			return true, nil
		}
	}
	return false, nil
}

// Report implements Reporter. A CommTask that does not exist yet is a NotFound error.
func (k *KubeReporter) Report(ctx context.Context, facts *v1alpha1.NodeFacts) error {
	return commtask.Ref{Client: k.Client, Name: k.CommTask}.Apply(ctx, "", "facts", v1alpha1.FieldManagerMonitor, facts)
}

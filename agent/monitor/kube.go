package monitor

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/commnode"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// KubeReporter writes facts to a CommNode by server-side apply on its status, as FieldManagerMonitor. The applied
// object has status.facts alone, so that the run agent's status.run is never claimed nor removed.
type KubeReporter struct {
	Client client.Client
	// CommNode is the name and namespace of the node's CommNode.
	CommNode types.NamespacedName
}

// Last implements Reporter. A CommNode that does not exist yet has no facts.
func (k *KubeReporter) Last(ctx context.Context) (*v1alpha1.NodeFacts, error) {
	var cn v1alpha1.CommNode
	if err := k.Client.Get(ctx, k.CommNode, &cn); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read status.facts of CommNode %s: %w", k.CommNode, err)
	}
	return cn.Status.Facts, nil
}

// Has implements Reporter. It reads metadata alone, from the API server's cache: thousands of monitors ask.
func (k *KubeReporter) Has(ctx context.Context) (bool, error) {
	var cn metav1.PartialObjectMetadata
	cn.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommNode"))
	err := k.Client.Get(ctx, k.CommNode, &cn, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read metadata of CommNode %s: %w", k.CommNode, err)
	}
	for _, m := range cn.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor {
			return true, nil
		}
	}
	return false, nil
}

// Report implements Reporter. A CommNode that does not exist yet is a NotFound error.
func (k *KubeReporter) Report(ctx context.Context, facts *v1alpha1.NodeFacts) error {
	return commnode.Ref{Client: k.Client, Name: k.CommNode}.Apply(ctx, "", "facts", v1alpha1.FieldManagerMonitor, facts)
}

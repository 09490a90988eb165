package monitor

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/commtask"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// KubeReporter writes facts to the node's CommNode by server-side apply on its status, as FieldManagerMonitor. It
// creates the CommNode where there is none, owned by the Node, so that it goes with it.
type KubeReporter struct {
	Client client.Client
	// Node is the node's name, and so the CommNode's.
	Node string

	uid string // of the Node object, once known
}

func (k *KubeReporter) key() client.ObjectKey { return client.ObjectKey{Name: k.Node} }

// Last implements Reporter. A CommNode that does not exist yet has no facts; nor has that of an earlier Node object of
// this name.
func (k *KubeReporter) Last(ctx context.Context) (*v1alpha1.NodeFacts, error) {
	var cn v1alpha1.CommNode
	if err := k.Client.Get(ctx, k.key(), &cn); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read status.facts of CommNode %s: %w", k.Node, err)
	}
	if uid, err := k.nodeUID(ctx); err != nil || uid != cn.Spec.NodeUID {
		return nil, err
	}
	return cn.Status.Facts, nil
}

// Has implements Reporter. It reads metadata alone, from the API server's cache: thousands of monitors ask.
func (k *KubeReporter) Has(ctx context.Context) (bool, error) {
	var cn metav1.PartialObjectMetadata
	cn.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommNode"))
	err := k.Client.Get(ctx, k.key(), &cn, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read metadata of CommNode %s: %w", k.Node, err)
	}
	for _, m := range cn.ManagedFields {
		if m.Manager == v1alpha1.FieldManagerMonitor && m.Operation == metav1.ManagedFieldsOperationApply {
			return true, nil
		}
	}
	return false, nil
}

// Report implements Reporter.
func (k *KubeReporter) Report(ctx context.Context, facts *v1alpha1.NodeFacts) error {
	err := k.apply(ctx, facts)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := k.create(ctx); err != nil {
		return err
	}
	return k.apply(ctx, facts)
}

func (k *KubeReporter) apply(ctx context.Context, facts *v1alpha1.NodeFacts) error {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CommNode"))
	u.SetName(k.Node)
	return commtask.ApplyStatus(ctx, k.Client, u, "facts", v1alpha1.FieldManagerMonitor, facts)
}

func (k *KubeReporter) create(ctx context.Context) error {
	k.uid = "" // the node may have been deleted and created again, with its CommNode
	uid, err := k.nodeUID(ctx)
	if err != nil {
		return err
	}
	cn := &v1alpha1.CommNode{Spec: v1alpha1.CommNodeSpec{NodeUID: uid}}
	cn.Name = k.Node
	cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.Node, UID: types.UID(uid)}}
	if err := k.Client.Create(ctx, cn, client.FieldOwner(v1alpha1.FieldManagerMonitor)); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create CommNode %s: %w", k.Node, err)
	}
	return nil
}

// nodeUIDExtra and nodeNameExtra are what the API server says of the node of a pod's own token, from Kubernetes 1.32 on
// (k8s.io/apiserver/pkg/authentication/serviceaccount, NodeUIDKey).
const (
	nodeNameExtra = "authentication.kubernetes.io/node-name"
	nodeUIDExtra  = "authentication.kubernetes.io/node-uid"
)

// nodeUID is the UID of the Node object. A pod's token says it, so that a monitor needs no right to read Nodes; any
// other user, who runs a monitor by hand, needs it.
func (k *KubeReporter) nodeUID(ctx context.Context) (string, error) {
	if k.uid != "" {
		return k.uid, nil
	}
	var self authenticationv1.SelfSubjectReview
	if err := k.Client.Create(ctx, &self); err != nil {
		return "", fmt.Errorf("ask the API server whose token this is: %w", err)
	}
	extra := self.Status.UserInfo.Extra
	if names := extra[nodeNameExtra]; len(names) == 1 && names[0] != k.Node {
		return "",
			fmt.Errorf("the pod's token is of node %s, and --node is %s: use the node's own name", names[0], k.Node)
	}
	if uids := extra[nodeUIDExtra]; len(uids) == 1 {
		k.uid = uids[0]
		return k.uid, nil
	}
	var node corev1.Node
	if err := k.Client.Get(ctx, k.key(), &node); err != nil {
		return "", fmt.Errorf("the token names no UID of its node (Kubernetes 1.32 or newer does, for a pod's own), "+
			"and the Node cannot be read: %w", err)
	}
	k.uid = string(node.UID)
	return k.uid, nil
}

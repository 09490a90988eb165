package controllers

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

// CacheOptions keep in memory only what the controller made, and of nodes only what it looks at; of the served
// namespaces alone where such are named.
func CacheOptions(served ...string) cache.Options {
	ours := labels.SelectorFromSet(labels.Set{objects.ManagedByLabel: objects.ManagedBy})
	runPods := labels.SelectorFromSet(labels.Set{v1alpha1.LabelRole: v1alpha1.RoleRun})
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: servedNamespaces(served),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:       {Transform: trimNode},
			&v1alpha1.CommNode{}: {Transform: trimCommNode},
			&v1alpha1.CommRun{}:  {Transform: trimCommRun},
			&corev1.Pod{}:        {Label: runPods},
			&corev1.ConfigMap{}:  {Label: ours},
			// By name, which is all that the manager's role lets it read of these.
			&corev1.ServiceAccount{}: {Field: fields.OneTermEqualSelector("metadata.name", runpod.ServiceAccount)},
			&rbacv1.RoleBinding{}:    {Field: fields.OneTermEqualSelector("metadata.name", runpod.RoleBinding)},
		},
	}
}

// CachedObjects are one of each kind that the controller reads from the cache.
func CachedObjects() []client.Object {
	return []client.Object{&v1alpha1.CommGroup{}, &v1alpha1.CommTask{}, &v1alpha1.CommNode{}, &v1alpha1.CommRun{},
		&corev1.ConfigMap{}, &corev1.Pod{}, &corev1.Node{}, &corev1.ServiceAccount{}, &rbacv1.RoleBinding{}}
}

// trimCommNode keeps of the managed fields when the monitor wrote last, which is how old its report is, and nothing
// else.
func trimCommNode(object any) (any, error) {
	if cn, ok := object.(*v1alpha1.CommNode); ok {
		w := nodefacts.MonitorWrite(cn.ManagedFields)
		cn.ManagedFields = nil
		if w != nil {
			cn.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: w.Manager, Operation: w.Operation,
				Subresource: w.Subresource, Time: w.Time}}
		}
	}
	return object, nil
}

// trimCommRun drops what others may have written and nothing is decided by.
func trimCommRun(object any) (any, error) {
	if run, ok := object.(*v1alpha1.CommRun); ok {
		run.ManagedFields, run.Annotations = nil, nil
	}
	return object, nil
}

// trimNode drops what takes most of a Node's memory and decides nothing.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
		gating.Keep(node)
		node.Status.Addresses = nil
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return object, nil
}

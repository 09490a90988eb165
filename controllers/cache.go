package controllers

import (
	appsv1 "k8s.io/api/apps/v1"
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
)

// CacheOptions keep in memory only what the controller made, and of nodes only what it looks at; of the served namespaces
// alone where such are named.
func CacheOptions(operatorNamespace string, served ...string) cache.Options {
	ours := labels.SelectorFromSet(labels.Set{objects.ManagedByLabel: objects.ManagedBy})
	runPods := labels.SelectorFromSet(labels.Set{v1alpha1.LabelRole: v1alpha1.RoleRun})
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: servedNamespaces(served),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:       {Transform: trimNode},
			&v1alpha1.CommTask{}: {Transform: trimCommTask},
			&corev1.Pod{}:        {Label: runPods},
			&corev1.ConfigMap{}:  {Label: ours, Transform: trimConfigMap},
			// By name, which is all that the manager's role lets it read of these.
			&corev1.ServiceAccount{}: {Field: fields.OneTermEqualSelector("metadata.name", RunServiceAccount)},
			&rbacv1.RoleBinding{}:    {Field: fields.OneTermEqualSelector("metadata.name", RunRoleBinding)},
			&appsv1.DaemonSet{}:      {Label: ours, Namespaces: map[string]cache.Config{operatorNamespace: {}}},
		},
	}
}

// CachedObjects are one of each kind that the controller reads from the cache.
func CachedObjects() []client.Object {
	return []client.Object{&v1alpha1.CommGroup{}, &v1alpha1.CommTask{}, &corev1.ConfigMap{}, &corev1.Pod{}, &corev1.Node{},
		&appsv1.DaemonSet{}, &corev1.ServiceAccount{}, &rbacv1.RoleBinding{}}
}

// trimCommTask keeps of the managed fields when the monitor wrote last, which is how old its report is, and nothing else.
func trimCommTask(object any) (any, error) {
	if ct, ok := object.(*v1alpha1.CommTask); ok {
		w := nodefacts.MonitorWrite(ct.ManagedFields)
		ct.ManagedFields = nil
		if w != nil {
			ct.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: w.Manager, Operation: w.Operation, Subresource: w.Subresource, Time: w.Time}}
		}
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

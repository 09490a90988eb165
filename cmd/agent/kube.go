package main

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// commTaskOf is the CommTask of a node in the CommGroup, NAMESPACE/NAME.
func commTaskOf(group, node string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(group, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--group is %q, expected NAMESPACE/NAME", group)
	}
	return types.NamespacedName{Namespace: namespace, Name: api.CommTaskName(name, node)}, nil
}

// newClient reaches the API server: it reads, watches and writes CommTasks and CommNodes.
func newClient() (client.WithWatch, error) {
	cfg, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w: set KUBECONFIG, or run in a pod with a service account", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{api.AddToScheme, corev1.AddToScheme,
		authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return c, nil
}

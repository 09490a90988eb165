package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

// restConfig is how to reach the cluster, and the namespace to work in.
func (o *options) restConfig() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("no cluster to talk to: %w; set KUBECONFIG or --kubeconfig", err)
	}
	cluster, err := config.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no cluster to talk to: %w; set KUBECONFIG or --kubeconfig", err)
	}
	return cluster, cmp.Or(o.namespace, namespace), nil
}

// connect gives a client and the namespace to work in.
func (o *options) connect() (client.WithWatch, string, error) {
	if o.client != nil {
		return o.client, cmp.Or(o.namespace, "default"), nil
	}
	cluster, namespace, err := o.restConfig()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	c, err := client.NewWithWatch(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("connecting to %s: %w", cluster.Host, err)
	}
	return c, namespace, nil
}

// load reads a group and its members, without what is known of their nodes.
func load(ctx context.Context, c client.Client, namespace, name string) (*state.Group, []report.Member, error) {
	group, nodes, err := loadPaged(ctx, c, namespace, name)
	return group, nodes, explained(ctx, c, namespace, name, err)
}

// explained adds to an error what a user can do about it.
func explained(ctx context.Context, c client.Client, namespace, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w; the cluster does not know CommGroups: install the operator's CRDs", err)
	case apierrors.IsNotFound(err):
		var groups v1alpha1.CommGroupList
		if c.List(ctx, &groups, client.InNamespace(namespace)) != nil {
			return err
		}
		var names []string
		for i := range groups.Items {
			names = append(names, groups.Items[i].Name)
		}
		return fmt.Errorf("no CommGroup %s in namespace %s; %s",
			name, namespace, choices(names, "it has none: choose another with -n", "it has "))
	}
	return err
}

// choices lists names for an error, at most ten.
func choices(names []string, none, some string) string {
	const most = 10
	if len(names) == 0 {
		return none
	}
	text := some
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// groupNames completes the first argument with the namespace's CommGroups.
func (o *options) groupNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, namespace, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var groups v1alpha1.CommGroupList
	if err := c.List(cmd.Context(), &groups, client.InNamespace(namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range groups.Items {
		names = append(names, groups.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Command kubectl-commgroup shows CommGroups to people: kubectl commgroup status|topology|results|run|wait.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Exit codes, for scripts.
const (
	exitOK       = 0
	exitNotReady = 1 // the group is not Ready
	exitFailed   = 2 // the command itself failed
)

// errNotReady ends a command with exitNotReady; what is wrong has been printed.
var errNotReady = errors.New("not ready")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(newRootCommand().ExecuteContext(ctx))
	stop()
	os.Exit(code)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNotReady):
		return exitNotReady
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		return exitFailed
	}
}

// options are shared by all subcommands.
type options struct {
	kubeconfig string
	context    string
	namespace  string
}

// version is set by the build.
var version = "dev"

func newRootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:     "kubectl-commgroup",
		Version: version,
		Short:   "Show and drive CommGroups: are these GPU nodes fit, and are the settings in effect?",
		Long: "Show and drive CommGroups.\n\nExit codes: 0 done (status and wait: the group is Ready), 1 the group is not Ready, " +
			"2 the command failed.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl commgroup"},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig file")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the CommGroup (default: the context's)")
	root.AddCommand(newStatusCommand(o), newTopologyCommand(o), newResultsCommand(o), newRunCommand(o), newWaitCommand(o))
	root.AddCommand(newReportCommand(o))
	return root
}

// connect gives a client and the namespace to work in.
func (o *options) connect() (client.WithWatch, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("no cluster to talk to: %w; set KUBECONFIG or --kubeconfig", err)
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	rest, err := config.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no cluster to talk to: %w; set KUBECONFIG or --kubeconfig", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	c, err := client.NewWithWatch(rest, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("connecting to %s: %w", rest.Host, err)
	}
	return c, namespace, nil
}

// load reads a group and its nodes.
func load(ctx context.Context, c client.Client, namespace, name string) (*v1alpha1.CommGroup, []v1alpha1.CommNode, error) {
	group := &v1alpha1.CommGroup{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, group); err != nil {
		return nil, nil, fmt.Errorf("reading CommGroup %s/%s: %w", namespace, name, err)
	}
	var nodes v1alpha1.CommNodeList
	if err := c.List(ctx, &nodes, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelGroup: v1alpha1.LabelValue(name)}); err != nil {
		return nil, nil, fmt.Errorf("listing the CommNodes of %s/%s: %w", namespace, name, err)
	}
	return group, nodes.Items, nil
}

// Command kubectl-commgroup shows CommGroups to users and drives them; docs/cli.md has all of its commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/internal/report"
)

// Exit codes, for scripts.
const (
	exitOK       = 0
	exitNotReady = 1 // the answer is no: a group is not Ready, a run got worse, a bundle lacks something
	exitFailed   = 2 // there is no answer: the command failed, or gave up waiting
)

// errNotReady ends a command with exitNotReady; what is wrong has been printed.
var errNotReady = errors.New("not ready")

func main() {
	ctrl.SetLogger(logr.Discard()) // else the client library complains that there is none, in the middle of the output
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
		fmt.Fprintln(&report.Terminal{Writer: os.Stderr}, "error:", err)
		return exitFailed
	}
}

// options are shared by all subcommands.
type options struct {
	kubeconfig string
	context    string
	namespace  string
	colour     string
	clock      clock.WithTicker
	// client of the cluster; nil: the one that the kubeconfig names.
	client client.WithWatch
}

// version is set by the build.
var version = "dev"

func newRootCommand() *cobra.Command { return rootCommand(&options{clock: clock.RealClock{}}) }

func rootCommand(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:     "kubectl-commgroup",
		Version: version,
		Short:   "Show and drive CommGroups: are these GPU nodes fit, and are the settings in effect?",
		Long: "Show and drive CommGroups: are these GPU nodes fit, and are the settings in effect?\n\n" +
			"Exit codes: 0 the answer is yes (the group is Ready, the run is as good), 1 it is no, 2 there is none: " +
			"the command failed, or gave up\n" +
			"waiting. Colours are only used on a terminal; NO_COLOR or --color=never turns them off.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl commgroup"},
	}
	root.SetErr(&report.Terminal{Writer: os.Stderr})
	flags := root.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"path of the kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig file")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the CommGroup (default: the context's)")
	flags.StringVar(&o.colour, "color", colourAuto, "colours: auto (on a terminal), always or never")
	root.AddCommand(newStatusCommand(o), newTopologyCommand(o), newResultsCommand(o), newCompareCommand(o),
		newExplainCommand(o), newRunCommand(o), newWaitCommand(o), newVersionCommand(o))
	root.AddCommand(newReportCommand(o))
	root.AddCommand(newBundleCommand(o))
	return root
}

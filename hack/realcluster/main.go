// Command realcluster runs a Kubernetes cluster of real nodes on one machine: a control plane, and for each node a kubelet and
// a containerd with a network, mounts and processes of their own. The nodes' GPUs are simulated, and say so. It needs root.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/realcluster/host"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use: "realcluster", Short: "A Kubernetes cluster of real nodes with simulated GPUs on one machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newCheckCommand(), newUpCommand(), newLoadCommand(), newStatusCommand(), newKubeconfigCommand(), newDownCommand(), newNodeCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "realcluster:", err)
		if errors.As(err, new(host.InTheWayError)) {
			return 2
		}
		return 1
	}
	return 0
}

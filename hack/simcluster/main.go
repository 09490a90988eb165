// Command simcluster runs a Kubernetes control plane and simulated GPU nodes on one machine, without root and without
// containers, and shows the operator on them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use: "simcluster", Short: "A Kubernetes cluster with simulated GPU nodes on one machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newUpCommand(), newDownCommand(), newDemoCommand(), newStatusCommand(), newNodeCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "simcluster:", err)
		return 1
	}
	return 0
}

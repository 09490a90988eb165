// Command simcluster runs a Kubernetes control plane and simulated GPU nodes on one machine, without root and without
// containers, and shows the operator on them.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/simcluster/command"
)

func main() { os.Exit(run()) }

func run() int {
	root := &cobra.Command{Use: "simcluster", Short: "A Kubernetes cluster with simulated GPU nodes on one machine"}
	root.AddCommand(newUpCommand(), newDownCommand(), newDemoCommand(),
		command.Status(usualDir, "`make demo` or `simcluster up`"), newNodeCommand())
	if command.Run(root) != nil {
		return 1
	}
	return 0
}

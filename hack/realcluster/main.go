// Command realcluster runs a Kubernetes cluster of real nodes on one machine: a control plane, and for each node a
// kubelet and a containerd with a network, mounts and processes of their own. The nodes' GPUs are simulated, and say
// so. It needs root.
package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/realcluster/host"
	"rcclx.io/commgroup-operator/hack/simcluster/command"
)

func main() { os.Exit(run()) }

func run() int {
	root := &cobra.Command{Use: "realcluster",
		Short: "A Kubernetes cluster of real nodes with simulated GPUs on one machine"}
	root.AddCommand(newCheckCommand(), newUpCommand(), newLoadCommand(), command.Status(usualDir, "`realcluster up`"),
		newKubeconfigCommand(), newDownCommand(), newNodeCommand())
	switch err := command.Run(root); {
	case err == nil:
		return 0
	case errors.As(err, new(host.InTheWayError)):
		return 2
	}
	return 1
}

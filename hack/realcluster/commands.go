package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/realcluster/host"
	"rcclx.io/commgroup-operator/hack/realcluster/realnode"
	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/command"
)

// usualDir is the state directory where none is named.
const usualDir = ".e2e"

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Say whether this machine can run such a cluster; exit status 1 and the reason where it " +
			"cannot, 2 where another cluster is in the way", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return host.Check(cmd.Context()) },
	}
}

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Start the cluster and wait until every node is ready", Args: cobra.NoArgs,
	}
	dir := command.StateFlag(cmd, usualDir)
	var o host.Options
	cmd.Flags().StringVar(&o.Binaries, "binaries", "",
		"folder with the control plane, kubelet and kube-proxy (hack/kube/build.sh prints it)")
	cmd.Flags().StringVar(&o.CNI, "cni", "/usr/lib/cni",
		"folder with the network plugins bridge, host-local and loopback")
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&o.GPUs, "gpus", 8, "amd.com/gpu of each node")
	cmd.Flags().StringVar(&o.Model, "model", "MI300X", "model of the simulated GPUs")
	cmd.Flags().StringSliceVar(&o.Images, "image", nil,
		"image archive to load into every node; may be repeated; one holds the pause image")
	cmd.Flags().StringVar(&o.PauseImage, "pause-image", "pause:realcluster",
		"name of the image that holds a pod's namespaces")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Binaries == "" {
			return errors.New("--binaries is missing: give the folder that hack/kube/build.sh prints")
		}
		if err := host.Check(cmd.Context()); err != nil {
			return err
		}
		var err error
		if o.Executable, err = os.Executable(); err != nil {
			return err
		}
		if o.Binaries, err = filepath.Abs(o.Binaries); err != nil {
			return err
		}
		o.Log = command.Out
		return command.Locked(*dir, func(state cluster.State) error {
			o.State = state
			if err := host.Up(cmd.Context(), o); err != nil {
				return fmt.Errorf("%w\nend what was started with `realcluster down --state-dir %s`", err, state.Dir)
			}
			fmt.Printf("The cluster is up; its GPUs are SIMULATED. Use it with:\n  export KUBECONFIG=%s\n",
				state.Kubeconfig())
			return nil
		})
	}
	return cmd
}

func newLoadCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "load ARCHIVE...", Short: "Load image archives into every node",
		Args: cobra.MinimumNArgs(1)}
	dir := command.StateFlag(cmd, usualDir)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return command.Locked(*dir, func(state cluster.State) error { return host.Load(cmd.Context(), state, args) })
	}
	return cmd
}

func newKubeconfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kubeconfig", Short: "Print the path of the administrator's kubeconfig",
		Args: cobra.NoArgs}
	dir := command.StateFlag(cmd, usualDir)
	cmd.RunE = func(*cobra.Command, []string) error {
		state, err := cluster.NewState(*dir)
		if err != nil {
			return err
		}
		if _, err := os.Stat(state.Kubeconfig()); err != nil {
			return fmt.Errorf("there is no cluster in %s: start one with `realcluster up`", state.Dir)
		}
		fmt.Println(state.Kubeconfig())
		return nil
	}
	return cmd
}

func newDownCommand() *cobra.Command {
	return command.Down(usualDir, "End and remove exactly what was made; can be repeated",
		func(ctx context.Context, state cluster.State) error {
			return host.Down(ctx, state, command.Out)
		})
}

// newNodeCommand is a node's first process; `up` starts it.
func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Be a node (started by up)", Args: cobra.NoArgs, Hidden: true}
	config := cmd.Flags().String("config", "", "the node's description")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := realnode.ReadConfig(*config)
		if err != nil {
			return err
		}
		return realnode.Run(cmd.Context(), c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	return cmd
}

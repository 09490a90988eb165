package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/realcluster/host"
	"rcclx.io/commgroup-operator/hack/realcluster/realnode"
	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
)

// out prints one line of progress.
func out(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

func stateFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("state-dir", ".e2e", "directory that holds everything of this cluster")
}

// locked runs f while no other command works on the state directory.
func locked(dir string, f func(cluster.State) error) error {
	state, err := cluster.NewState(dir)
	if err != nil {
		return err
	}
	unlock, err := state.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f(state)
}

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Say whether this machine can run such a cluster; exit status 1 and the reason where it cannot, 2 where another cluster is in the way", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return host.Check(cmd.Context()) },
	}
}

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Start the cluster and wait until every node is ready", Args: cobra.NoArgs,
	}
	dir := stateFlag(cmd)
	var o host.Options
	cmd.Flags().StringVar(&o.Binaries, "binaries", "", "folder with the control plane, kubelet and kube-proxy (hack/kube/build.sh prints it)")
	cmd.Flags().StringVar(&o.CNI, "cni", "/usr/lib/cni", "folder with the network plugins bridge, host-local and loopback")
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	cmd.Flags().IntVar(&o.GPUs, "gpus", 8, "amd.com/gpu of each node")
	cmd.Flags().StringVar(&o.Model, "model", "MI300X", "model of the simulated GPUs")
	cmd.Flags().StringSliceVar(&o.Images, "image", nil, "image archive to load into every node; may be repeated; one holds the pause image")
	cmd.Flags().StringVar(&o.PauseImage, "pause-image", "pause:realcluster", "name of the image that holds a pod's namespaces")
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
		o.Log = out
		return locked(*dir, func(state cluster.State) error {
			o.State = state
			if err := host.Up(cmd.Context(), o); err != nil {
				return fmt.Errorf("%w\nend what was started with `realcluster down --state-dir %s`", err, state.Dir)
			}
			fmt.Printf("The cluster is up; its GPUs are SIMULATED. Use it with:\n  export KUBECONFIG=%s\n", state.Kubeconfig())
			return nil
		})
	}
	return cmd
}

func newLoadCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "load ARCHIVE...", Short: "Load image archives into every node", Args: cobra.MinimumNArgs(1)}
	dir := stateFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return locked(*dir, func(state cluster.State) error { return host.Load(cmd.Context(), state, args) })
	}
	return cmd
}

func newKubeconfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kubeconfig", Short: "Print the path of the administrator's kubeconfig", Args: cobra.NoArgs}
	dir := stateFlag(cmd)
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

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Say which of the cluster's processes run", Args: cobra.NoArgs}
	dir := stateFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		state, err := cluster.NewState(*dir)
		if err != nil {
			return err
		}
		if !state.Exists() {
			return fmt.Errorf("there is no cluster in %s: start one with `realcluster up`", state.Dir)
		}
		lines, healthy, err := cluster.Status(state)
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(lines, "\n"))
		if !healthy {
			return errors.New("not every process runs: see the logs in " + state.LogDir())
		}
		return nil
	}
	return cmd
}

func newDownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "down", Short: "End and remove exactly what was made; can be repeated", Args: cobra.NoArgs,
	}
	dir := stateFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return locked(*dir, func(state cluster.State) error {
			if err := host.Down(cmd.Context(), state, out); err != nil {
				return err
			}
			_ = os.Remove(state.Dir + ".lock")
			return nil
		})
	}
	return cmd
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

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/command"
	"rcclx.io/commgroup-operator/hack/simcluster/simnode"
)

// usualDir is the state directory where none is named.
const usualDir = ".demo"

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Start the control plane and simulated nodes, without the operator", Args: cobra.NoArgs,
	}
	dir := command.StateFlag(cmd, usualDir)
	binaries := cmd.Flags().String("binaries", "",
		"folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler (hack/kube/build.sh prints it)")
	nodes := cmd.Flags().Int("nodes", 4, "number of GPU nodes")
	gpus := cmd.Flags().Int64("gpus", 8, "amd.com/gpu of each GPU node")
	images := cmd.Flags().StringToString("image", nil,
		"image name and the directory tree that stands for it, NAME=DIR; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *binaries == "" {
			return errors.New("--binaries is missing: give the folder that hack/kube/build.sh prints")
		}
		return command.Locked(*dir, func(state cluster.State) error {
			cp, err := cluster.Up(cmd.Context(), state, *binaries, command.Out)
			if err != nil {
				return err
			}
			byName := simnode.Images{}
			for name, tree := range *images {
				abs, err := filepath.Abs(tree)
				if err != nil {
					return err
				}
				byName[name] = simnode.Image{Dir: abs}
			}
			var specs []cluster.NodeSpec
			for i := range *nodes {
				name := fmt.Sprintf("sim-node-%d", i)
				specs = append(specs,
					cluster.NodeSpec{Name: name, GPUs: *gpus, CPU: "96", Memory: "1536Gi", Root: state.NodeRoot(name),
						Labels: map[string]string{"feature.node.kubernetes.io/amd-gpu": "true"}})
			}
			if err := cp.WriteNodes(specs, byName); err != nil {
				return err
			}
			executable, err := os.Executable()
			if err != nil {
				return err
			}
			if err := cp.StartNodes(cmd.Context(), executable); err != nil {
				return err
			}
			fmt.Printf("The cluster is up. Use it with:\n  export KUBECONFIG=%s\n", state.Kubeconfig())
			return nil
		})
	}
	return cmd
}

func newDownCommand() *cobra.Command {
	return command.Down(usualDir, "End exactly the processes that were started and remove the state directory",
		func(_ context.Context, state cluster.State) error {
			return cluster.Down(state, command.Out)
		})
}

// newNodeCommand is the process that stands for all nodes; `up` and `demo` start it.
func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Be the simulated nodes (started by up and demo)",
		Args: cobra.NoArgs, Hidden: true}
	dir := command.StateFlag(cmd, usualDir)
	health := cmd.Flags().String("health-address", "127.0.0.1:0",
		"address of /healthz, which answers 200 once every node is registered")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		state, err := cluster.NewState(*dir)
		if err != nil {
			return err
		}
		config, err := simnode.ReadConfig(state.NodesFile())
		if err != nil {
			return err
		}
		var ready atomic.Bool
		listener, err := net.Listen("tcp", *health)
		if err != nil {
			return err
		}
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !ready.Load() {
					http.Error(w, "nodes are being registered", http.StatusServiceUnavailable)
				}
			})}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		return simnode.Run(cmd.Context(), config, log, func() { ready.Store(true) })
	}
	return cmd
}

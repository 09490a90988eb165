// Package command has what the commands of simcluster and realcluster share: the state directory, its lock, and saying
// what runs.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
)

// Out prints one line of progress.
func Out(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

// Run executes the command line until a signal asks to end, and prints the error.
func Run(root *cobra.Command) error {
	// else the client library prints a stack trace where a slow machine takes long to the first client
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SilenceUsage, root.SilenceErrors = true, true
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	return err
}

// StateFlag adds the flag that names the state directory.
func StateFlag(cmd *cobra.Command, usual string) *string {
	return cmd.Flags().String("state-dir", usual, "directory that holds everything of this cluster")
}

// Locked runs f while no other command works on the state directory. A lock without a state directory protects nothing:
// it is removed.
func Locked(dir string, f func(cluster.State) error) error {
	state, err := cluster.NewState(dir)
	if err != nil {
		return err
	}
	unlock, err := state.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	defer func() {
		if !state.Exists() {
			_ = os.Remove(state.LockFile())
		}
	}()
	return f(state)
}

// Status says which of the cluster's processes run; start is how to start one where there is none.
func Status(usual, start string) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Say which of the cluster's processes run", Args: cobra.NoArgs}
	dir := StateFlag(cmd, usual)
	cmd.RunE = func(*cobra.Command, []string) error {
		state, err := cluster.NewState(*dir)
		if err != nil {
			return err
		}
		if !state.Exists() {
			return fmt.Errorf("there is no cluster in %s: start one with %s", state.Dir, start)
		}
		lines, healthy, err := cluster.Status(state)
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(lines, "\n"))
		fmt.Printf("export KUBECONFIG=%s\n", state.Kubeconfig())
		if !healthy {
			return errors.New("not every process runs: see the logs in " + state.LogDir())
		}
		return nil
	}
	return cmd
}

// Down is the command that ends a cluster.
func Down(usual, short string, down func(context.Context, cluster.State) error) *cobra.Command {
	cmd := &cobra.Command{Use: "down", Short: short, Args: cobra.NoArgs}
	dir := StateFlag(cmd, usual)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return Locked(*dir, func(state cluster.State) error { return down(cmd.Context(), state) })
	}
	return cmd
}

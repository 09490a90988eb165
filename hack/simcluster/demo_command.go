package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/command"
	"rcclx.io/commgroup-operator/hack/simcluster/demo"
)

func newDemoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Show the operator on a fresh cluster of simulated MI300X nodes; it stays up afterwards",
		Args: cobra.NoArgs,
	}
	dir := command.StateFlag(cmd, usualDir)
	repo := cmd.Flags().String("repo", ".", "the repository's root")
	binaries := cmd.Flags().String("binaries", "",
		"folder with the control plane's binaries and kubectl (hack/kube/build.sh prints it)")
	bin := cmd.Flags().String("bin", "bin", "folder with manager and agent")
	simrocm := cmd.Flags().String("simrocm", "bin/simrocm", "folder with the simulated ROCm libraries")
	faultName := cmd.Flags().String("fault", "",
		"what goes wrong on "+demo.FaultyNode+": one of "+demo.FaultNames(false)+"; of the last two also both, "+
			"with a comma; with --span group one of "+demo.FaultNames(true)+"; empty for nothing")
	span := cmd.Flags().String("span", "node", "node: each node alone; group: over several nodes, too")
	nodes := cmd.Flags().Int("nodes", 4, fmt.Sprintf("nodes with GPUs, %d to %d", demo.MinNodes, demo.MaxNodes))
	began := cmd.Flags().Int64("began", 0, "when the whole command began, in seconds since 1970; 0 means now")
	deadline := cmd.Flags().Duration("deadline", 15*time.Minute,
		"how long the CommGroup may take to come to its outcome")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *span != "node" && *span != "group" {
			return fmt.Errorf("SPAN=%s is not known: choose node or group", *span)
		}
		if *nodes < demo.MinNodes || *nodes > demo.MaxNodes {
			return fmt.Errorf("NODES=%d: choose %d (faults are on the third node, %s) to %d",
				*nodes, demo.MinNodes, demo.FaultyNode, demo.MaxNodes)
		}
		fault, changes, err := demo.FindFaults(*faultName, *span == "group")
		if err != nil {
			return err
		}
		options := demo.Options{Span: *span == "group", Nodes: *nodes, Fault: fault, Changes: changes,
			Began: time.Now(), ManagerDeadline: 3 * time.Minute, GroupDeadline: *deadline, Out: os.Stdout}
		if *began > 0 {
			options.Began = time.Unix(*began, 0)
		}
		for from, to := range map[*string]*string{repo: &options.Repo, binaries: &options.Binaries, bin: &options.Bin,
			simrocm: &options.Simrocm} {
			if *to, err = filepath.Abs(*from); err != nil {
				return err
			}
		}
		return command.Locked(*dir, func(state cluster.State) error {
			options.State = state
			if state.Exists() {
				fmt.Println("Ending the demo that is there:")
				if err := cluster.Down(state, command.Out); err != nil {
					return err
				}
			}
			return demo.Run(cmd.Context(), options)
		})
	}
	return cmd
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"rcclx.io/commgroup-operator/agent/discover"
)

// exitProblems is the exit code of discover where it could read the node and found it not healthy. As everywhere, 2 is
// for wrong usage.
const exitProblems = 3

// exitUnproven is the exit code of discover where it found no error, and too little to call the node healthy.
const exitUnproven = 4

// simulatedHint says how to try without a GPU.
const simulatedHint = "Without a GPU, a simulated node can be looked at: go run ./hack/simrocm/cmd/nodetree --dir " +
	"DIR --model MI300X, then agent discover --root DIR"

func newDiscoverCommand() *cobra.Command {
	var (
		root     string
		output   string
		expected int
		deadline time.Duration
	)
	cmd := &cobra.Command{
		Use:   "discover",
		Short: "Print the GPU facts of a host, or of a copy of its sysfs tree",
		Long: `Print what sysfs tells of a host: GPU models, partitions, xGMI mesh, RDMA devices and the nearest one of each GPU,
driver and ROCm versions, error counters, what is wrong with them, and what could not be read and why. The table's
matrices have the titles of rocm-smi --showtopo; its first line and its last are the verdict. It reads files only; it
needs no cluster and opens no device.
` + simulatedHint + `.

Exit codes: 0 healthy (warnings allowed), 1 it could not run, 2 wrong usage, 3 problems of severity Error were found,
4 no fault was found, but the node is not proven healthy: the xGMI mesh is not known or not complete, or GPUs are hidden
from this container.`,
		Example: `  agent discover
  agent discover --root /host -o json
  agent discover --root ./copied-tree -o yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains([]string{"table", "json", "yaml"}, output):
				return usageError(fmt.Errorf("-o %q is not known: use table, json or yaml", output))
			case expected < 0:
				return usageError(fmt.Errorf("--expected-gpus %d: give a number over zero, or 0 for the usual number "+
					"of the model", expected))
			case deadline <= 0:
				return usageError(fmt.Errorf("--read-deadline %s: give a time over zero", deadline))
			}
			fs, err := discover.OpenRoot(root)
			if err != nil {
				return fmt.Errorf("%w: give the directory that holds sys, proc and opt with --root", err)
			}
			defer func() { _ = fs.Close() }()
			opts := discover.Options{ReadDeadline: deadline, ExpectedGPUs: expected,
				Simulated: os.Getenv("SIMROCM_ROOT") != "" && root == "/"}
			if root == "/" {
				opts.ROCmPaths = []string{os.Getenv("ROCM_PATH"), os.Getenv("ROCM_HOME")}
			}
			facts, err := discover.Scan(cmd.Context(), fs, opts)
			if err != nil {
				return err
			}
			if err := writeFacts(cmd.OutOrStdout(), facts, output); err != nil {
				return err
			}
			if len(facts.GPUs) == 0 {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), simulatedHint)
			}
			if !facts.Healthy() {
				return &exitError{code: exitProblems}
			}
			if !facts.Proven() {
				return &exitError{code: exitUnproven}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "directory that holds the host's sys, proc and opt")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	cmd.Flags().IntVar(&expected, "expected-gpus", 0,
		"physical GPUs that the node should have; 0 takes the usual number of its model")
	cmd.Flags().DurationVar(&deadline, "read-deadline", 2*time.Second, "longest time for one file")
	return cmd
}

func writeFacts(w io.Writer, facts *discover.Facts, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(facts)
	case "yaml":
		data, err := yaml.Marshal(facts)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	return facts.WriteTable(w)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/preflight"
	"rcclx.io/commgroup-operator/agent/supervise"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/clip"
)

const (
	// terminationLogEnv overrides the file that the kubelet takes a container's last words from.
	terminationLogEnv     = "COMMGROUP_TERMINATION_LOG"
	defaultTerminationLog = "/dev/termination-log"
	// terminationLogBytes is the most that the kubelet keeps of it.
	terminationLogBytes = 4096
	// interruptedGrace leaves 2 s of a run pod's grace period of 10 s for its last words.
	interruptedGrace = 8 * time.Second
)

func newRunCommand() *cobra.Command {
	var group, node, runID string
	var wait, grace time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Carry out one run on this node, as its CommTask asks, and report the result",
		Long: "Reads the plan from the node's CommTask, starts one rank process for each GPU and variant, and reports to status.run.\n" +
			"Exits with 0 once a report is written, whatever its verdict.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			commTask, err := commTaskOf(group, node)
			if err != nil {
				return err
			}
			if node == "" || runID == "" {
				return errors.New("--node and --run-id must be set")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			c, err := newClient()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("group", group, "node", node, "run", runID)
			r := &executor.Runner{
				Node:     thisNode(node, &supervise.Supervisor{Clock: clock.RealClock{}}, log),
				Config:   executor.Config{RunID: runID, Wait: wait, ReportGrace: grace, InterruptedGrace: interruptedGrace},
				Reporter: executor.KubeReporter{Client: c, Name: commTask, RunID: runID},
			}
			return runOnce(ctx, r, cmd.OutOrStdout(), terminationLog())
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "the CommGroup, as NAMESPACE/NAME")
	cmd.Flags().StringVar(&node, "node", "", "the name of this node")
	cmd.Flags().StringVar(&runID, "run-id", "", "the id of the run to carry out")
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long to wait for the CommTask to ask for the run")
	cmd.Flags().DurationVar(&grace, "report-grace", time.Minute, "how long after the run deadline to go on trying to report")
	return cmd
}

// thisNode is the machine that this process runs on.
func thisNode(name string, teams supervise.TeamRunner, log *slog.Logger) executor.Node {
	host := preflight.PodHost{Root: os.Getenv("SIMROCM_ROOT")}
	return executor.Node{Name: name, Host: host, Teams: teams, LockDir: host.LockDir(), Clock: clock.RealClock{}, Environ: os.Environ(), Log: log}
}

func terminationLog() string {
	if path := os.Getenv(terminationLogEnv); path != "" {
		return path
	}
	return defaultTerminationLog
}

// runOnce prints the full result as one JSON line, and where it could not be reported leaves it for the kubelet too.
func runOnce(ctx context.Context, r *executor.Runner, out io.Writer, terminationPath string) error {
	result, err := r.Run(ctx)
	if result.Full.ID != "" {
		data, jerr := json.Marshal(result.Full)
		if jerr != nil {
			return errors.Join(err, jerr)
		}
		_, _ = fmt.Fprintln(out, string(data))
	}
	if err == nil {
		return nil
	}
	text := lastWords(result, err)
	if werr := os.WriteFile(terminationPath, []byte(text), 0o644); werr != nil {
		r.Log.Warn("no termination message", "error", werr)
	}
	return err
}

// lastWords is the result as JSON where it fits a termination message, else the verdict only, else the error.
func lastWords(result executor.Result, err error) string {
	brief := api.NodeRunStatus{ID: result.Full.ID, Generation: result.Full.Generation, Phase: result.Full.Phase, StartTime: result.Full.StartTime,
		FinishTime: result.Full.FinishTime, Verdict: result.Full.Verdict, Reason: result.Full.Reason, Message: result.Full.Message, Culprits: result.Full.Culprits}
	for _, s := range []api.NodeRunStatus{result.Status, brief} {
		if data, jerr := json.Marshal(s); jerr == nil && s.Verdict != "" && len(data) <= terminationLogBytes {
			return string(data)
		}
	}
	return clip.Head(err.Error(), terminationLogBytes)
}

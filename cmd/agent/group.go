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
	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/supervise"
	"rcclx.io/commgroup-operator/internal/clip"
)

const groupLong = `Takes part in the group's stage of a run, in which communicators reach over several nodes: reads the session from the
node's CommTask, gets the node ready, and carries out one task after the other as the CommTask asks. It reports to
status.session, and gives the GPUs back when the CommTask says that no task follows, or when none comes for a while.

Exit codes: 0 the session is over and its last report was written, whatever it says; 1 it could not be reported, no session
was asked for in time, or another run took its place; 2 wrong usage.`

// groupFlags are the flags as they are typed.
type groupFlags struct {
	group, node, runID, file, rankBinary string
	wait, grace                          time.Duration
}

func newGroupCommand() *cobra.Command {
	var f groupFlags
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Take part in communicators over several nodes, as the node's CommTask asks, and report the results",
		Long:  groupLong,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("group", f.group, "node", f.node, "run", f.runID)
			link, err := f.link(log)
			if err != nil {
				return err
			}
			return runSession(ctx, f.session(link, log), cmd.OutOrStdout(), terminationLog())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.group, "group", "", "the CommGroup, as NAMESPACE/NAME")
	flags.StringVar(&f.node, "node", "", "the name of this node")
	flags.StringVar(&f.runID, "run-id", "", "the id of the run")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait for the CommTask to ask for the session")
	flags.DurationVar(&f.grace, "report-grace", time.Minute, "how long after the session's end to go on trying to report")
	// For trying machines without Kubernetes; not what a group pod uses.
	flags.StringVar(&f.file, "session-file", "", "follow this file with commTask and commRun as JSON in place of the API server's, and write the status to the file with .status behind its name")
	flags.StringVar(&f.rankBinary, "rank-binary", "", "program of a rank; none means rank beside the agent")
	for _, name := range []string{"session-file", "rank-binary"} {
		_ = flags.MarkHidden(name) // it fails for flags that are not there
	}
	return cmd
}

// link is the way to the CommTask.
func (f groupFlags) link(log *slog.Logger) (executor.Link, error) {
	if f.node == "" || f.runID == "" {
		return nil, usageError(errors.New("--node and --run-id must be set"))
	}
	if f.file != "" {
		return executor.FileLink{Path: f.file, StatusPath: f.file + ".status", RunID: f.runID, Clock: clock.RealClock{}}, nil
	}
	commTask, err := commTaskOf(f.group, f.node)
	if err != nil {
		return nil, usageError(err)
	}
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	return executor.KubeLink{Client: c, Name: commTask, RunID: f.runID, Clock: clock.RealClock{}, Log: log}, nil
}

func (f groupFlags) session(link executor.Link, log *slog.Logger) *executor.Session {
	teams := &supervise.Supervisor{Clock: clock.RealClock{}}
	if f.rankBinary != "" {
		teams.Launcher = supervise.Launcher{Command: []string{f.rankBinary}}
	}
	node := thisNode(f.node, teams, log)
	return &executor.Session{
		Node:   node,
		Config: executor.Config{RunID: f.runID, Wait: f.wait, ReportGrace: f.grace, InterruptedGrace: interruptedGrace},
		Link:   link, Network: network.NodeHost{Root: os.Getenv("SIMROCM_ROOT")}, Preparer: node,
	}
}

// runSession prints the last status as one JSON line, and where it could not be reported leaves it for the kubelet too.
func runSession(ctx context.Context, s *executor.Session, out io.Writer, terminationPath string) error {
	result, err := s.Run(ctx)
	words := ""
	if result.Status.State != "" {
		data, jerr := json.Marshal(result.Status)
		if jerr != nil {
			return errors.Join(err, jerr)
		}
		_, _ = fmt.Fprintln(out, string(data))
		words = string(data)
	}
	if err == nil {
		return nil
	}
	if words == "" || len(words) > terminationLogBytes {
		words = err.Error()
	}
	if werr := os.WriteFile(terminationPath, []byte(clip.Head(words, terminationLogBytes)), 0o644); werr != nil {
		s.Log.Warn("no termination message", "error", werr)
	}
	return err
}

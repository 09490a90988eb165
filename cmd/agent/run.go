package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/agent/network"
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

const runLong = `Carries out one stage of a run on this node as its CommTask asks, with one rank process for each GPU.

Stage Node reads spec.run, measures this node alone, and reports to status.run. Stage Group takes part in communicators
over several nodes: it reads spec.session, gets the node ready, carries out one task after the other, and reports to
status.session. It gives the GPUs back when the CommTask says that no task follows, or when none comes for a while.

Exit codes: 0 the last report was written, whatever it says; 1 it could not be written, the CommTask did not ask for the
stage in time, or another run took its place; 2 wrong usage.`

// The stages of a run, each of which has a pod of its own on a node.
const stageNode, stageGroup = "Node", "Group"

// runFlags are the flags as they are typed.
type runFlags struct {
	stage, group, node, runID, file, rankBinary string
	wait, grace                                 time.Duration
}

func newRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Carry out one stage of a run on this node, as its CommTask asks, and report the result",
		Long:  runLong,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("group", f.group,
				"node", f.node, "run", f.runID)
			work, err := f.work(log)
			if err != nil {
				return err
			}
			return runStage(cmd.Context(), work, cmd.OutOrStdout(), terminationLog(), log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.stage, "stage", stageNode, "the stage of the run, Node or Group")
	flags.StringVar(&f.group, "group", "", "the CommGroup, as NAMESPACE/NAME")
	flags.StringVar(&f.node, "node", "", "the name of this node")
	flags.StringVar(&f.runID, "run-id", "", "the id of the run")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait for the CommTask to ask for the stage")
	flags.DurationVar(&f.grace, "report-grace", time.Minute,
		"how long to go on trying to report, after the run's deadline in stage Node, after the session's "+
			"end in stage Group")
	// For trying machines without Kubernetes; not what a run pod uses.
	flags.StringVar(&f.file, "session-file", "", "follow this file with commTask and commRun as JSON in place of the "+
		"API server's, and write the status to the file with .status behind its name")
	flags.StringVar(&f.rankBinary, "rank-binary", "", "program of a rank; none means rank beside the agent")
	for _, name := range []string{"session-file", "rank-binary"} {
		_ = flags.MarkHidden(name) // it fails for flags that are not there
	}
	return cmd
}

// work is the stage that the flags ask for.
func (f *runFlags) work(log *slog.Logger) (stage, error) {
	switch {
	case f.stage != stageNode && f.stage != stageGroup:
		return nil, usageError(fmt.Errorf("--stage is %q: use %s or %s", f.stage, stageNode, stageGroup))
	case f.node == "" || f.runID == "":
		return nil, usageError(errors.New("--node and --run-id must be set"))
	case f.file != "" && f.stage != stageGroup:
		return nil, usageError(errors.New("--session-file is for --stage " + stageGroup))
	}
	node := thisNode(f.node, &supervise.Supervisor{Launcher: launcher(f.rankBinary), Clock: clock.RealClock{}}, log)
	config := executor.Config{RunID: f.runID, Wait: f.wait, ReportGrace: f.grace, InterruptedGrace: interruptedGrace}
	if f.file != "" {
		return ofGroup(node, config, executor.FileLink{Path: f.file, StatusPath: f.file + ".status", RunID: f.runID,
			Clock: clock.RealClock{}}), nil
	}
	name, err := commTaskOf(f.group, f.node)
	if err != nil {
		return nil, usageError(err)
	}
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	task := executor.KubeTask{Client: c, Name: name, RunID: f.runID, Clock: clock.RealClock{}, Log: log}
	if f.stage == stageGroup {
		return ofGroup(node, config, task), nil
	}
	return ofNode(node, config, task), nil
}

// stage carries out one stage of a run. full is its last status, nil where there is none; brief are the forms of it
// that a termination message may have, the fullest first.
type stage func(ctx context.Context) (full any, brief []any, err error)

func ofNode(node executor.Node, config executor.Config, reporter executor.Reporter) stage {
	r := &executor.Runner{Node: node, Config: config, Reporter: reporter}
	return func(ctx context.Context) (any, []any, error) {
		result, err := r.Run(ctx)
		full := result.Full
		switch {
		case full.ID == "":
			return nil, nil, err
		case full.Verdict == "":
			return full, nil, err // it says less than the error
		}
		return full, []any{result.Status, verdictOf(full)}, err
	}
}

// verdictOf is a report without its evidence.
func verdictOf(s api.NodeRunStatus) api.NodeRunStatus {
	return api.NodeRunStatus{ID: s.ID, Generation: s.Generation, Phase: s.Phase, StartTime: s.StartTime,
		FinishTime: s.FinishTime, Verdict: s.Verdict, Reason: s.Reason, Message: s.Message, Culprits: s.Culprits}
}

func ofGroup(node executor.Node, config executor.Config, link executor.Link) stage {
	s := &executor.Session{Node: node, Config: config, Link: link,
		Network: network.NodeHost{Root: os.Getenv("SIMROCM_ROOT")}, Preparer: node}
	return func(ctx context.Context) (any, []any, error) {
		result, err := s.Run(ctx)
		if result.Status.State == "" {
			return nil, nil, err
		}
		return result.Status, []any{result.Status}, err
	}
}

// thisNode is the machine that this process runs on.
func thisNode(name string, teams supervise.TeamRunner, log *slog.Logger) executor.Node {
	host := preflight.PodHost{Root: os.Getenv("SIMROCM_ROOT")}
	return executor.Node{Name: name, Host: host, Teams: teams, LockDir: host.LockDir(), Clock: clock.RealClock{},
		Environ: os.Environ(), Log: log}
}

func terminationLog() string {
	if path := os.Getenv(terminationLogEnv); path != "" {
		return path
	}
	return defaultTerminationLog
}

// runStage prints the last status as one JSON line, and where it could not be reported leaves it for the kubelet too.
func runStage(ctx context.Context, work stage, out io.Writer, terminationPath string, log *slog.Logger) error {
	full, brief, err := work(ctx)
	if full != nil {
		data, jerr := json.Marshal(full)
		if jerr != nil {
			return errors.Join(err, jerr)
		}
		_, _ = fmt.Fprintln(out, string(data))
	}
	if err == nil {
		return nil
	}
	if werr := os.WriteFile(terminationPath, []byte(lastWords(brief, err)), 0o644); werr != nil {
		log.Warn("no termination message", "error", werr)
	}
	return err
}

// lastWords is the first form that fits a termination message as JSON, else the error.
func lastWords(brief []any, err error) string {
	for _, s := range brief {
		if data, jerr := json.Marshal(s); jerr == nil && len(data) <= terminationLogBytes {
			return string(data)
		}
	}
	return clip.Head(err.Error(), terminationLogBytes)
}

// Command agent runs on the nodes of a CommGroup: it reads their facts (discover, monitor), and runs communicators on
// their GPUs (run and bench, which start the binary rank once for each GPU).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// exitError ends the process with a code of its own; its message was printed already where it is empty.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

// endSignals end a command in order, so that what it measured is printed. A hangup is one: a terminal or ssh that is
// gone ends the foreground's programs by it. Where it is ignored, as under nohup, it stays so.
func endSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	code := exitCode(newRootCommand().ExecuteContext(ctx))
	stop()
	os.Exit(code)
}

// noArgs is for commands that take flags only.
func noArgs(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(fmt.Errorf("%q is no flag: %s --help lists them", args[0], command.CommandPath()))
	}
	return nil
}

// exitCode prints the error, if any, and chooses the process's exit code.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if err.Error() != "" {
		fmt.Fprintln(os.Stderr, "agent:", err)
	}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit.code
	}
	return 1
}

// version is set by the build.
var version = "dev"

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "agent",
		Version:       version,
		Short:         "Reads a GPU node's facts and runs RCCLX communicators on it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.Args = func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError(fmt.Errorf("%q is no command: %s --help lists them", args[0], command.CommandPath()))
		}
		return nil
	}
	root.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	root.AddCommand(newDiscoverCommand(), newMonitorCommand(), newInstallCommand(), newRunCommand(),
		newExplainCommand(), newBenchCommand(), newImportCommand())
	return root
}

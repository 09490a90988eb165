package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"rcclx.io/commgroup-operator/agent/rank"
)

// newRankCommand is the child process that holds one GPU. People do not call it; agent run does.
func newRankCommand() *cobra.Command {
	eventFD := rank.EventFD
	command := &cobra.Command{
		Use:   "rank",
		Short: "Hold one GPU for agent run: read a spec from standard input, write events to a file descriptor",
		Long: `rank loads the communication library, joins a communicator and measures what its spec says.
It reads one JSON line (and for every rank but 0 a second one with the unique id) from standard input and
writes events as JSON lines to --event-fd. Standard output and error belong to the library, which logs there.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			events := os.NewFile(uintptr(eventFD), "events")
			if events == nil {
				return fmt.Errorf("file descriptor %d is not valid: give --event-fd one that is open", eventFD)
			}
			if _, err := events.Stat(); err != nil {
				return fmt.Errorf("file descriptor %d is not open (%w): agent run opens it; to try by hand, add %d>events.jsonl", eventFD, err, eventFD)
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return rank.Run(ctx, command.InOrStdin(), events)
		},
	}
	command.Flags().IntVar(&eventFD, "event-fd", rank.EventFD, "file descriptor that events are written to")
	return command
}

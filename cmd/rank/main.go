// Command rank holds one GPU for agent run. It is a binary of its own because it loads the communication library, and
// so needs glibc's loader, which the agent's image does not have.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"rcclx.io/commgroup-operator/agent/rank"
	"rcclx.io/commgroup-operator/agent/rank/worker"
)

const usage = `rank loads the communication library, joins a communicator and measures what its spec says. agent run starts it.
It reads one JSON line (and for every rank but 0 a second one with the unique id) from standard input and
writes events as JSON lines to -event-fd. Standard output and error belong to the library, which logs there.
`

func main() {
	eventFD := flag.Int("event-fd", rank.EventFD, "file descriptor that events are written to")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*eventFD); err != nil {
		// What went wrong in the run itself was told in the last event.
		if !errors.Is(err, worker.ErrFailed) {
			fmt.Fprintln(os.Stderr, "rank:", err)
		}
		os.Exit(1)
	}
}

func run(eventFD int) error {
	events := os.NewFile(uintptr(eventFD), "events")
	if events == nil {
		return fmt.Errorf("file descriptor %d is not valid: give -event-fd one that is open", eventFD)
	}
	if _, err := events.Stat(); err != nil {
		return fmt.Errorf("file descriptor %d is not open (%w): agent run opens it; to try by hand, "+
			"add %d>events.jsonl", eventFD, err, eventFD)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return worker.Run(ctx, os.Stdin, events)
}

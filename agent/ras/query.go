package ras

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const (
	// protocolVersion of the client; the server ignores it and answers with its own (client_support.cc).
	protocolVersion = 2
	// maxAnswerBytes bounds what is read: a verbose answer on 1000 ranks is about 100 KiB.
	maxAnswerBytes = 1 << 20
	// greetingDeadline bounds the greeting of one connection. It may have come to a process that is stopped, and the
	// next one comes to another; the library's own client waits as long (client.cc TIMEOUT_INCREMENT).
	greetingDeadline = time.Second
	// maxAttempts bounds the connections that are tried: with SO_REUSEPORT each may come to another process.
	maxAttempts = 8
	// maxGatherSeconds is the library's own limit for gathering what its processes know, 5 s a leg.
	maxGatherSeconds = 5
)

// Dial opens a connection, as net.Dialer's DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Query asks the RAS service at address (host:port) for the state of the job and returns what it says. It takes no
// longer than ctx allows and needs a deadline there: the service waits for processes that do not answer. An answer that
// is cut off is returned beside the error.
func Query(ctx context.Context, dial Dial, address string) (Report, error) {
	for attempt := 1; ; attempt++ {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return Report{}, fmt.Errorf("no process serves RAS at %s (a rank does so from the middle of its "+
				"initialisation on, unless NCCL_RAS_ENABLE is 0): %w", address, err)
		}
		text, err := converse(ctx, conn)
		_ = conn.Close()
		if errors.Is(err, errNoGreeting) && time.Now().Before(end(ctx)) && attempt < maxAttempts {
			continue
		}
		report := Parse(text)
		if err == nil && !report.Complete {
			err = errors.New("the answer ends early")
		}
		if err != nil {
			return report, fmt.Errorf("ask RAS at %s: %w", address, err)
		}
		return report, nil
	}
}

// errNoGreeting means that nobody spoke at the other end.
var errNoGreeting = errors.New("connected, but nobody answered the greeting")

// converse carries out the dialogue on one connection and returns what came behind it.
func converse(ctx context.Context, conn net.Conn) (string, error) {
	last := end(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	greeted := time.Now().Add(greetingDeadline)
	if last.Before(greeted) {
		greeted = last
	}
	_ = conn.SetDeadline(greeted)
	in := bufio.NewReader(io.LimitReader(conn, maxAnswerBytes))
	if _, err := fmt.Fprintf(conn, "CLIENT PROTOCOL %d\n", protocolVersion); err != nil {
		return "", errNoGreeting
	}
	greeting, err := in.ReadString('\n')
	if err != nil {
		return "", errNoGreeting
	}
	if !strings.HasPrefix(greeting, "SERVER PROTOCOL ") {
		return "", fmt.Errorf("expected SERVER PROTOCOL, got %.80q: something else listens at this address", greeting)
	}
	_ = conn.SetDeadline(last)
	// Zero would mean no limit to the library. The gathering must end before we do, or there is no answer at all.
	seconds := min(max(int(time.Until(last)/time.Second)-1, 1), maxGatherSeconds)
	if _, err := fmt.Fprintf(conn, "TIMEOUT %d\n", seconds); err != nil {
		return "", cause(ctx, err)
	}
	if _, err := in.ReadString('\n'); err != nil { // "OK", or an error that does not matter
		return "", cause(ctx, err)
	}
	if _, err := io.WriteString(conn, "VERBOSE STATUS\n"); err != nil {
		return "", cause(ctx, err)
	}
	var text strings.Builder
	_, err = io.Copy(&text, in)
	return text.String(), cause(ctx, err)
}

// end is when the context ends, or a minute from now.
func end(ctx context.Context) time.Time {
	if d, ok := ctx.Deadline(); ok {
		return d
	}
	return time.Now().Add(time.Minute)
}

// cause prefers the end of the context to its consequence.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded // the connection's limit is that of the context, and may come first
	}
	return err
}

package ras

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience ends a test that would hang; no result depends on it.
const patience = time.Minute

var dialer net.Dialer

// serve answers each connection with handle, whose first argument counts them from 1.
func serve(t *testing.T, handle func(n int, conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(n, conn)
		}
	}()
	return l.Addr().String()
}

// speak is the library's side of the dialogue: it answers the greeting and the limit, and gives the limit.
func speak(conn net.Conn) (limit string, ok bool) {
	in := bufio.NewReader(conn)
	for _, step := range []struct{ want, answer string }{{"CLIENT PROTOCOL 2\n", "SERVER PROTOCOL 2\n"},
		{"TIMEOUT ", "OK\n"}, {"VERBOSE STATUS\n", ""}} {
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, step.want) {
			return limit, false
		}
		if step.want == "TIMEOUT " {
			limit = strings.TrimSpace(strings.TrimPrefix(line, step.want))
		}
		_, _ = io.WriteString(conn, step.answer)
	}
	return limit, true
}

func TestQuery(t *testing.T) {
	text := answer(t, "dead-process")
	limits := make(chan string, 1)
	address := serve(t, func(n int, conn net.Conn) {
		if n == 1 {
			_ = conn.Close() // a process that ends just now: the next connection comes to another one
			return
		}
		limit, ok := speak(conn)
		if !ok {
			limit = "not the dialogue of the library's own client"
		}
		limits <- limit
		for part := range strings.SplitAfterSeq(text, "\n") {
			_, _ = io.WriteString(conn, part)
		}
		_ = conn.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := Query(ctx, dialer.DialContext, address)
	if err != nil || r.Processes != 8 || r.Dead.Count != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if limit := <-limits; limit != "5" {
		t.Errorf("limit of the gathering %q, want 5, the library's own", limit)
	}
}

func TestQueryFailures(t *testing.T) {
	var silent atomic.Int32
	for _, c := range []struct {
		name   string
		handle func(n int, conn net.Conn)
		limit  time.Duration
		want   string
	}{
		{"another service", func(_ int, conn net.Conn) { _, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n") }, patience,
			"something else listens"},
		{"nobody speaks", func(_ int, conn net.Conn) { silent.Add(1); _ = conn.Close() }, patience,
			"nobody answered the greeting"},
		{"the answer ends early", func(_ int, conn net.Conn) {
			_, _ = speak(conn)
			_, _ = io.WriteString(conn, "NCCL version 2.28.9 compiled with CUDA 13.0\n")
			_ = conn.Close()
		}, patience, "ends early"},
		{"the gathering takes too long", func(_ int, conn net.Conn) {
			_, _ = speak(conn)
			_, _ = io.WriteString(conn, "NCCL version 2.28.9 compiled with CUDA 13.0\n\nJob summary\n")
		}, 200 * time.Millisecond, "deadline exceeded"},
		{"a process that is stopped", func(int, net.Conn) {}, 200 * time.Millisecond, "nobody answered the greeting"},
		{"more than anybody reads", func(_ int, conn net.Conn) {
			_, _ = speak(conn)
			for range 2 * maxAnswerBytes / 1024 {
				if _, err := fmt.Fprintf(conn, "%1023s\n", "x"); err != nil {
					return
				}
			}
		}, patience, "ends early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := serve(t, c.handle)
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			_, err := Query(ctx, dialer.DialContext, address)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), address) {
				t.Errorf("error %v, want one with %q and the address", err, c.want)
			}
		})
	}
	if silent.Load() != maxAttempts {
		t.Errorf("%d connections to a port where nobody speaks, want %d", silent.Load(), maxAttempts)
	}
}

// The library's processes share the reserved port, and only they answer on it.
func TestReserve(t *testing.T) {
	address, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := Query(ctx, dialer.DialContext, address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before anybody listens: %v, want a refused connection", err)
	}
	if l, err := net.Listen("tcp", address); err == nil {
		_ = l.Close()
		t.Error("a process without SO_REUSEPORT got the port, too")
	}
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	for range 2 {
		l, err := shared.Listen(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = speak(conn)
				_, _ = io.WriteString(conn, answer(t, "nobody-met"))
				_ = conn.Close()
			}
		}()
	}
	for range 8 {
		if _, err := Query(ctx, dialer.DialContext, address); err != nil {
			t.Error(err)
		}
	}
}

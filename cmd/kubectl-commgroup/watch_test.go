package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// shared is a buffer that a command writes while a test reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// watching is a command that watches, with a look at the cluster whenever the test says so.
type watching struct {
	*cli
	looks     chan struct{}
	fails     atomic.Pointer[apierrors.StatusError] // of the next looks
	out, errs shared
	stop      context.CancelFunc
	ended     chan int
}

// startWatch starts the command and returns after its first look.
func startWatch(t *testing.T, change func(*state.Group), args ...string) *watching {
	t.Helper()
	w := &watching{cli: newCLI(t, change), looks: make(chan struct{}), ended: make(chan int, 1)}
	w.options.client = interceptor.NewClient(w.options.client, interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			if _, nodes := list.(*v1alpha1.CommTaskList); nodes {
				var err error
				if away := w.fails.Load(); away != nil {
					err = away
				} else {
					err = inner.List(ctx, list, opts...)
				}
				select {
				case w.looks <- struct{}{}:
				case <-ctx.Done():
				}
				return err
			}
			return inner.List(ctx, list, opts...)
		}})
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	t.Cleanup(cancel)
	root := rootCommand(w.options)
	root.SetOut(&w.out)
	root.SetErr(&w.errs)
	root.SetArgs(append([]string{"status", "mi300x", "--watch"}, args...))
	go func() {
		err := root.ExecuteContext(ctx)
		if err != nil && !errors.Is(err, errNotReady) {
			fmt.Fprintln(&w.errs, err)
		}
		w.ended <- exitCode(err)
	}()
	<-w.looks
	return w
}

// again lets time pass until the command looks once more.
func (w *watching) again() {
	for {
		w.clock.Step(redrawAfter)
		select {
		case <-w.looks:
			return
		case <-time.After(5 * time.Millisecond): // it was not waiting for the clock yet
		}
	}
}

// set changes the status of the group, in its objects.
func (w *watching) set(change func(*state.Status)) {
	w.t.Helper()
	ctx, c := w.t.Context(), w.options.client
	group, err := state.Load(ctx, c, client.ObjectKeyFromObject(w.group))
	if err != nil {
		w.t.Fatal(err)
	}
	g, run := group.Objects()
	for _, o := range []client.Object{g, run} {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			w.t.Fatal(err)
		}
	}
	change(&group.Status)
	run.Status, g.Status = group.RunStatus(run), group.Status.GroupStatus()
	for _, o := range []client.Object{run, g} { // the controller's order
		if err := c.Status().Update(ctx, o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *watching) end() (string, string, int) {
	w.stop()
	code := <-w.ended
	return w.out.String(), w.errs.String(), code
}

// TestWatchInAPipe: each status in full and plain, and none that says nothing new; the interrupt ends it with the last
// one's exit code.
func TestWatchInAPipe(t *testing.T) {
	w := startWatch(t, nil)
	w.again()
	w.again() // what the look before has shown is there now
	if got := strings.Count(w.out.String(), "CommGroup default/mi300x as of "); got != 1 {
		t.Fatalf("without a change it is shown %d times:\n%s", got, w.out.String())
	}
	w.set(func(s *state.Status) { s.Culprits[0].Message = "seen anew" })
	w.again()
	w.again()
	out, errs, code := w.end()
	if strings.Count(out, "CommGroup default/mi300x as of ") != 2 || strings.Count(out, "\nConditions\n") != 2 ||
		strings.Count(out, "seen anew") != 1 || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	if code != exitNotReady || errs != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestWatchAsYAML: each is a document of its own.
func TestWatchAsYAML(t *testing.T) {
	w := startWatch(t, nil, "-o", "yaml")
	w.set(func(s *state.Status) { s.Culprits[0].Message = "seen anew" })
	w.again()
	w.again()
	out, _, code := w.end()
	if code != exitNotReady || strings.Count(out, "---\napiVersion: rcclx.io/v1alpha1\n") != 2 ||
		strings.Contains(out, " as of ") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestWatchEnds at its deadline, with the exit code of the last status.
func TestWatchEnds(t *testing.T) {
	for want, status := range map[int]string{exitOK: "True", exitNotReady: "False"} {
		c := newCLI(t, func(g *state.Group) {
			for i := range g.Status.Conditions {
				if one := &g.Status.Conditions[i]; one.Type == v1alpha1.ConditionReady {
					one.Status = "True"
					if status == "False" {
						one.Status = "False"
					}
				}
			}
		})
		out, errs, code := c.run("status", "mi300x", "-w", "--timeout", "300ms")
		if code != want || !strings.Contains(errs, "Watched for 300ms (--timeout).") ||
			!strings.Contains(out, "Conditions") {
			t.Errorf("Ready %s: exit code %d, expected %d, %s", status, code, want, errs)
		}
		if out, errs, code := c.run("status", "-A", "-w", "--timeout", "300ms"); code != want ||
			!strings.Contains(out, "all CommGroups as of ") || !strings.Contains(out, "mi300x") {
			t.Errorf("all, Ready %s: exit code %d, expected %d, %s %s", status, code, want, out, errs)
		}
	}
	for name, args := range map[string][]string{
		"no such group":           {"status", "nope", "-w", "--timeout", "1m"},
		"no group at all":         {"status", "-n", "nowhere", "-w", "--timeout", "1m"},
		"a time without a watch":  {"status", "mi300x", "--timeout", "1m"},
		"no time at all":          {"status", "mi300x", "-w", "--timeout", "0s"},
		"an output nobody writes": {"status", "mi300x", "-w", "-o", "xml"},
	} {
		if _, errs, code := newCLI(t, nil).run(args...); code != exitFailed || errs == "" {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}

// TestWatchWaitsForTheServer: while the API server is away the last status stands, and that is told once, and its end.
func TestWatchWaitsForTheServer(t *testing.T) {
	w := startWatch(t, nil)
	w.again()
	w.fails.Store(apierrors.NewServiceUnavailable("the server is away"))
	w.again()
	w.again()
	w.fails.Store(nil) // the look that the test knows of is over, and the next one begins with its word
	w.again()
	w.again()
	out, errs, code := w.end()
	if code != exitNotReady || strings.Count(errs, "NOTE: not read since ") != 1 ||
		strings.Count(errs, "nothing has changed") != 1 || strings.Count(out, " as of ") != 1 {
		t.Errorf("exit code %d, shown %d times, %s", code, strings.Count(out, " as of "), errs)
	}
}

// TestWatchOfADeletedGroup ends: there is nothing more to come.
func TestWatchOfADeletedGroup(t *testing.T) {
	w := startWatch(t, func(g *state.Group) { g.Finalizers = nil })
	if err := w.options.client.Delete(t.Context(), &v1alpha1.CommGroup{ObjectMeta: w.group.ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(redrawAfter)
	if code := <-w.ended; code != exitFailed || !strings.Contains(w.errs.String(), "was deleted") &&
		!strings.Contains(w.errs.String(), "no CommGroup mi300x in namespace default") {
		t.Errorf("exit code %d, %s", code, w.errs.String())
	}
}

func TestPassing(t *testing.T) {
	group := schema.GroupResource{Group: "rcclx.io", Resource: "commgroups"}
	for err, want := range map[error]bool{
		apierrors.NewServiceUnavailable("x"): true, apierrors.NewTooManyRequests("x", 1): true,
		apierrors.NewInternalError(errors.New("x")):         true,
		fmt.Errorf("listing: %w", context.DeadlineExceeded): true,
		apierrors.NewForbidden(group, "x", nil):             false, apierrors.NewNotFound(group, "x"): false,
		apierrors.NewUnauthorized("x"): false, errors.New("x"): false,
	} {
		if got := passing(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestUnaged: what only grows older is no news, any other change is.
func TestUnaged(t *testing.T) {
	for _, same := range [][2]string{
		{"NOTE: no manager has been heard of for 1m30s (lease",
			"NOTE: no manager has been heard of for 1h0m32s (lease"},
		{"ml/a: no status yet, 35s after it was made", "ml/a: no status yet, 2m37s after it was made"},
	} {
		if unaged(same[0]) != unaged(same[1]) {
			t.Errorf("%q and %q", same[0], same[1])
		}
	}
	if unaged("1-1  Pass  35s") == unaged("1-1  Pass  36s") {
		t.Error("a run's time is no age")
	}
}

func TestFitting(t *testing.T) {
	lines := []string{"a", strings.Repeat("b", 25), "\x1b[31mc\x1b[0m", "d"}
	for name, tc := range map[string]struct {
		columns, rows int
		want          int
		more          string
	}{
		"all":           {10, 6, 4, ""},
		"one too few":   {10, 5, 4, "... 2 more"}, // a, b in three rows, and the remark
		"a wide window": {80, 4, 4, ""},
		"size unknown":  {0, 0, 4, ""},
		"one line":      {10, 2, 2, "... 3 more"},
	} {
		got := fitting(lines, tc.columns, tc.rows)
		rows := 0
		for _, line := range got {
			rows += max(1, (seen(line)+max(1, tc.columns)-1)/max(1, tc.columns))
		}
		if tc.rows > 0 && rows > tc.rows {
			t.Errorf("%s: %d rows in %d: %q", name, rows, tc.rows, got)
		}
		if last := got[len(got)-1]; tc.more != "" && !strings.HasPrefix(last, tc.more[:7]) ||
			tc.more == "" && len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestWatchOnATerminal draws over what it drew, never more than fits, and leaves all of the last status behind.
func TestWatchOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	const rows, columns = 12, 100
	if err := pty.Setsize(slave, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	c := newCLI(t, nil)
	root := rootCommand(c.options)
	root.SetOut(slave)
	root.SetArgs([]string{"status", "mi300x", "-w", "--color", "never"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := readAll(master, "more lines", cancel)
	err = root.ExecuteContext(ctx)
	_ = slave.Close()
	text := <-read
	_ = master.Close()
	if exitCode(err) != exitNotReady {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	drawn, after, closed := strings.Cut(text, "\x1b[?1049l")
	if !closed || !strings.HasPrefix(drawn, "\x1b[?1049h\x1b[HCommGroup default/mi300x, Ctrl-C ends; last change ") ||
		!strings.HasSuffix(drawn, "\x1b[J") {
		t.Errorf("drawn %q", drawn)
	}
	if lines := strings.Count(drawn, "\n") + 1; lines > rows {
		t.Errorf("%d lines on %d rows", lines, rows)
	}
	if strings.Contains(after, "\x1b") || !strings.Contains(after, "Settings") ||
		!strings.Contains(after, "sim-node-3") {
		t.Errorf("left behind: %q", after)
	}
}

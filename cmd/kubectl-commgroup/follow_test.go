package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// answering is a cluster whose manager starts the run that is asked for, and ends it at the given number of reads.
func answering(t *testing.T, reads int) *cli {
	t.Helper()
	c := newCLI(t, func(g *state.Group) {
		for i := range g.Status.Conditions {
			if g.Status.Conditions[i].Type == v1alpha1.ConditionReady {
				g.Status.Conditions[i].Status = metav1.ConditionTrue
			}
		}
	})
	seen := 0
	var asked *v1alpha1.CommRun
	c.options.client = interceptor.NewClient(c.options.client, interceptor.Funcs{
		Create: func(ctx context.Context, inner client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			asked, _ = o.(*v1alpha1.CommRun)
			return inner.Create(ctx, o, opts...)
		},
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := inner.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			group, ok := o.(*v1alpha1.CommGroup)
			if !ok || asked == nil {
				return nil
			}
			seen++
			run := group.Status.Run
			run.ID, run.Number, run.Name = "1-2", 2, asked.Name
			run.Trigger, run.Phase = state.TriggerRequested, v1alpha1.RunPhaseRunning
			group.Status.Members.Passed, group.Status.Members.Failed, group.Status.Members.Running = int32(seen), 0, 2
			if seen >= reads {
				run.Phase, run.Verdict = v1alpha1.RunPhaseFinished, v1alpha1.VerdictPass
			}
			started := asked.DeepCopy()
			started.OwnerReferences = []metav1.OwnerReference{{Kind: "CommGroup", Name: group.Name, UID: group.UID}}
			if err := inner.Update(ctx, started); err != nil {
				return err
			}
			started.Status.GroupRunStatus = *run
			err := inner.Status().Update(ctx, started)
			asked = started
			return err
		}})
	return c
}

func TestRunAndWait(t *testing.T) {
	out, errs, code := answering(t, 10).run("run", "mi300x")
	if code != 0 || !strings.Contains(out,
		"default/mi300x: run 1-2 has started; follow it with: kubectl commgroup wait mi300x -n default") {
		t.Errorf("run: exit code %d, %s\n%s", code, errs, out)
	}
	out, errs, code = answering(t, 2).run("run", "mi300x", "--wait")
	if code != 0 || !strings.Contains(out, "run 1-2: Finished, Pass") || strings.Contains(out, "\x1b") ||
		strings.Contains(out, "\r") {
		t.Errorf("run --wait in a pipe: exit code %d, %s\n%q", code, errs, out)
	}
}

// TestRunAsksOnce: the request is a CommRun; while it waits, a second command asks for no other run.
func TestRunAsksOnce(t *testing.T) {
	c := newCLI(t, nil)
	for range 2 {
		_, errs, code := c.run("run", "mi300x", "--answer-timeout", "1ms")
		if code != exitFailed || !strings.Contains(errs, "(CommRun mi300x-") {
			t.Errorf("exit code %d, %s", code, errs)
		}
	}
	var runs v1alpha1.CommRunList
	if err := c.options.client.List(t.Context(), &runs); err != nil {
		t.Fatal(err)
	}
	asked := slices.DeleteFunc(runs.Items, func(r v1alpha1.CommRun) bool { return !state.Pending(&r) })
	if len(asked) != 1 || asked[0].Namespace != "default" ||
		asked[0].Spec != (v1alpha1.CommRunSpec{GroupName: "mi300x"}) {
		t.Errorf("asked for %+v, want one run", asked)
	}
}

// TestRunBehindASuspendedOne: who asks for a run is told what keeps it from starting.
func TestRunBehindASuspendedOne(t *testing.T) {
	group, _ := saved(t)
	_, suspended := group.Objects()
	suspended.Name, suspended.Spec.Suspend = "mi300x-2", true
	suspended.Status = v1alpha1.CommRunStatus{}
	suspended.Status.ID, suspended.Status.Number, suspended.Status.Phase = "1-2", 2, v1alpha1.RunPhaseSuspended
	suspended.Status.Generation = group.Generation
	for _, command := range []string{"run", "wait"} {
		_, errs, code := newCLI(t, nil, suspended).run(command, "mi300x")
		if code != exitFailed || !strings.Contains(errs, "CommRun default/mi300x-2 is suspended") {
			t.Errorf("exit code %d, %s", code, errs)
		}
	}
}

// TestRequestThatStartsWhatWaited: what a run waited for before the request is not told as the answer to it; where it
// waits on, that is told in the end.
func TestRequestThatStartsWhatWaited(t *testing.T) {
	for name, starts := range map[string]bool{"the request starts it": true, "it waits on": false} {
		c := newCLI(t, func(g *state.Group) {
			for i := range g.Status.Conditions {
				if one := &g.Status.Conditions[i]; one.Type == v1alpha1.ConditionRunning {
					one.Status, one.Reason, one.Message = metav1.ConditionFalse, v1alpha1.ReasonWaiting,
						"it does not fit into any day"
				}
			}
		})
		c.options.client = interceptor.NewClient(c.options.client, interceptor.Funcs{
			Watch: func(ctx context.Context, inner client.WithWatch, _ client.ObjectList,
				_ ...client.ListOption) (watch.Interface, error) {
				events := watch.NewFakeWithChanSize(1, false)
				group, err := state.Load(ctx, inner, client.ObjectKeyFromObject(c.group))
				if err != nil || !starts {
					return events, err
				}
				run := group.Status.Run
				run.ID, run.Number, run.Name = "1-2", 2, group.Status.Requests[0]
				changed, _ := group.Objects()
				events.Modify(changed)
				return events, nil
			}})
		out, errs, code := c.run("run", "mi300x",
			"--answer-timeout", map[bool]string{true: "1m", false: "50ms"}[starts])
		if told := strings.Contains(out, "does not fit into any day"); code != 0 || told == starts ||
			strings.Contains(out, "run 1-2 has started") != starts {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, errs, out)
		}
	}
}

// TestLiveLine: on a terminal one line is drawn over, fits the width, and is gone at the end.
func TestLiveLine(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(slave, &pty.Winsize{Rows: 40, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	c := answering(t, 100)
	root := rootCommand(c.options)
	root.SetOut(slave)
	root.SetArgs([]string{"run", "mi300x", "--wait", "--color", "never"})
	ctx, cancel := context.WithCancel(t.Context())
	read := readAll(master, "members done", cancel)
	err = root.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted; the run goes on") {
		t.Errorf("interrupted: %v", err)
	}
	_ = slave.Close()
	text := <-read
	_ = master.Close()
	_, live, _ := strings.Cut(text, "\n") // the first line says that the run has started
	if !strings.HasPrefix(live, "\r[0s] run 1-2: 2 of 4 members done, 2 passed, 2 running") ||
		!strings.HasSuffix(live, "\r\x1b[K") {
		t.Errorf("live line: %q", live)
	}
	for _, line := range strings.Split(escape.ReplaceAllString(live, ""), "\r") {
		if len(line) >= 60 {
			t.Errorf("%d characters in %q on a terminal of 60", len(line), line)
		}
	}
}

func TestAnswerTo(t *testing.T) {
	condition := func(kind, status, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: "why"}
	}
	for name, tc := range map[string]struct {
		status state.Status
		want   string
	}{
		"nothing yet": {state.Status{}, ""},
		"an older run": {state.Status{Run: &v1alpha1.GroupRunStatus{ID: "1-1", Name: "pool-1",
			Phase: v1alpha1.RunPhaseFinished}}, ""},
		"started": {state.Status{Run: &v1alpha1.GroupRunStatus{ID: "1-2", Name: "pool-asked",
			Phase: v1alpha1.RunPhaseRunning}}, "run 1-2 has started"},
		"over already": {state.Status{Run: &v1alpha1.GroupRunStatus{ID: "1-2", Name: "pool-asked",
			Phase: v1alpha1.RunPhaseFinished}}, "run 1-2 has started"},
		"another one": {state.Status{Run: &v1alpha1.GroupRunStatus{ID: "1-1", Name: "pool-1",
			Phase: v1alpha1.RunPhaseRunning}}, "run 1-1 is going on; the requested one follows it"},
		"not accepted": {state.Status{Conditions: []metav1.Condition{condition("Accepted", "False", "NoGPUResource")}},
			"no run starts yet: why (NoGPUResource)"},
		"it waits": {state.Status{Conditions: []metav1.Condition{condition("Running", "False",
			"WaitingForPreconditions")}}, "no run starts yet: why (WaitingForPreconditions)"},
		"waited before": {state.Status{Conditions: []metav1.Condition{{Type: "Running", Status: "False",
			Reason: "WaitingForPreconditions", Message: "no budget"}}}, ""},
		"the run before": {state.Status{Conditions: []metav1.Condition{condition("Running", "False", "RunFinished")}},
			""},
	} {
		got := answerTo(&state.Group{Status: tc.status}, "pool-asked", "no budget")
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// readAll reads a terminal to its end, and interrupts as Ctrl-C does once the words are there.
func readAll(terminal io.Reader, words string, interrupt func()) <-chan string {
	read := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		part := make([]byte, 4096)
		for {
			n, err := terminal.Read(part)
			b.Write(part[:n])
			if err != nil {
				read <- b.String()
				return
			}
			if strings.Contains(b.String(), words) {
				interrupt()
			}
		}
	}()
	return read
}

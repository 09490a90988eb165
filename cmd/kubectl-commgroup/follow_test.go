package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// answering is a cluster whose manager starts the run that is asked for, and ends it at the given number of reads.
func answering(t *testing.T, reads int) *cli {
	t.Helper()
	c := newCLI(t, func(g *v1alpha1.CommGroup) {
		for i := range g.Status.Conditions {
			if g.Status.Conditions[i].Type == v1alpha1.ConditionReady {
				g.Status.Conditions[i].Status = metav1.ConditionTrue
			}
		}
	})
	seen := 0
	c.options.client = interceptor.NewClient(c.options.client, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := inner.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			group, ok := o.(*v1alpha1.CommGroup)
			request := o.GetAnnotations()[v1alpha1.AnnotationRunRequested]
			if !ok || request == "" {
				return nil
			}
			seen++
			run := group.Status.Run
			run.ID, run.Request, run.Phase = "1-2", request, v1alpha1.RunPhaseRunning
			group.Status.Members.Passed, group.Status.Members.Failed, group.Status.Members.Running = int32(seen), 0, 2
			if seen >= reads {
				run.Phase, run.Verdict = v1alpha1.RunPhaseFinished, v1alpha1.VerdictPass
			}
			return nil
		}})
	return c
}

func TestRunAndWait(t *testing.T) {
	out, errs, code := answering(t, 10).run("run", "mi300x")
	if code != 0 || !strings.Contains(out, "default/mi300x: run 1-2 has started; follow it with: kubectl commgroup wait mi300x -n default") {
		t.Errorf("run: exit code %d, %s\n%s", code, errs, out)
	}
	out, errs, code = answering(t, 2).run("run", "mi300x", "--wait")
	if code != 0 || !strings.Contains(out, "run 1-2: Finished, Pass") || strings.Contains(out, "\x1b") || strings.Contains(out, "\r") {
		t.Errorf("run --wait in a pipe: exit code %d, %s\n%q", code, errs, out)
	}
}

// TestRequestThatStartsWhatWaited: what a run waited for before the request is not told as the answer to it; where it waits on, that
// is told in the end.
func TestRequestThatStartsWhatWaited(t *testing.T) {
	for name, starts := range map[string]bool{"the request starts it": true, "it waits on": false} {
		c := newCLI(t, func(g *v1alpha1.CommGroup) {
			for i := range g.Status.Conditions {
				if one := &g.Status.Conditions[i]; one.Type == v1alpha1.ConditionRunning {
					one.Status, one.Reason, one.Message = metav1.ConditionFalse, v1alpha1.ReasonWaiting, "it does not fit into any day"
				}
			}
		})
		c.options.client = interceptor.NewClient(c.options.client, interceptor.Funcs{
			Watch: func(ctx context.Context, inner client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
				events := watch.NewFakeWithChanSize(1, false)
				group := &v1alpha1.CommGroup{}
				if err := inner.Get(ctx, client.ObjectKeyFromObject(c.group), group); err != nil || !starts {
					return events, err
				}
				group.Status.Run.ID, group.Status.Run.Request = "1-2", group.Annotations[v1alpha1.AnnotationRunRequested]
				events.Modify(group)
				return events, nil
			}})
		out, errs, code := c.run("run", "mi300x", "--answer-timeout", map[bool]string{true: "1m", false: "50ms"}[starts])
		if told := strings.Contains(out, "does not fit into any day"); code != 0 || told == starts || strings.Contains(out, "run 1-2 has started") != starts {
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
	if !strings.HasPrefix(live, "\r[0s] run 1-2: 2 of 4 members done, 2 passed, 2 running") || !strings.HasSuffix(live, "\r\x1b[K") {
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
		status v1alpha1.CommGroupStatus
		want   string
	}{
		"nothing yet":    {v1alpha1.CommGroupStatus{}, ""},
		"an older run":   {v1alpha1.CommGroupStatus{Run: &v1alpha1.GroupRunStatus{ID: "1-1", Request: "old", Phase: v1alpha1.RunPhaseFinished}}, ""},
		"started":        {v1alpha1.CommGroupStatus{Run: &v1alpha1.GroupRunStatus{ID: "1-2", Request: "new", Phase: v1alpha1.RunPhaseRunning}}, "run 1-2 has started"},
		"over already":   {v1alpha1.CommGroupStatus{Run: &v1alpha1.GroupRunStatus{ID: "1-2", Request: "new", Phase: v1alpha1.RunPhaseFinished}}, "run 1-2 has started"},
		"another one":    {v1alpha1.CommGroupStatus{Run: &v1alpha1.GroupRunStatus{ID: "1-1", Request: "old", Phase: v1alpha1.RunPhaseRunning}}, "run 1-1 is going on; the requested one follows it"},
		"not accepted":   {v1alpha1.CommGroupStatus{Conditions: []metav1.Condition{condition("Accepted", "False", "NoGPUResource")}}, "no run starts yet: why (NoGPUResource)"},
		"it waits":       {v1alpha1.CommGroupStatus{Conditions: []metav1.Condition{condition("Running", "False", "WaitingForPreconditions")}}, "no run starts yet: why (WaitingForPreconditions)"},
		"waited before":  {v1alpha1.CommGroupStatus{Conditions: []metav1.Condition{{Type: "Running", Status: "False", Reason: "WaitingForPreconditions", Message: "no budget"}}}, ""},
		"the run before": {v1alpha1.CommGroupStatus{Conditions: []metav1.Condition{condition("Running", "False", "RunFinished")}}, ""},
	} {
		got := answerTo(&v1alpha1.CommGroup{Status: tc.status}, "new", "no budget")
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

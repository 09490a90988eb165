package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
)

// groupName is the name in config/samples/commgroup.yaml.
const groupName = "mi300x"

// quietSeconds is how long the progress may stay silent.
const quietSeconds = 15

// applyAndWait applies the sample and follows it until it comes to its outcome.
func (d *demo) applyAndWait(ctx context.Context, pci []string) (Outcome, *state.Group, error) {
	sample := "hack/demo/group"
	if d.Fault != nil {
		sample = "hack/demo/group-fault"
	}
	how := []string{"-k", filepath.Join(d.Repo, sample)}
	if d.Span {
		sample = "hack/demo/group-span"
		file, err := d.writeSpanSample(ctx, sample)
		if err != nil {
			return Outcome{}, nil, err
		}
		how = []string{"-f", file}
	}
	d.step("Applying the sample CommGroup: kubectl apply -k %s", sample)
	if err := d.kubectlRetry(ctx, append([]string{"apply"}, how...)...); err != nil {
		return Outcome{}, nil, err
	}
	applied := time.Now()
	d.mark = applied
	w := watcher{demo: d, applied: applied, lastLine: applied}
	for {
		var tasks v1alpha1.CommTaskList
		group, err := state.Load(ctx, d.client, client.ObjectKey{Namespace: "default", Name: groupName})
		if err == nil {
			err = d.client.List(ctx, &tasks, client.InNamespace("default"))
		}
		if ctx.Err() != nil {
			return Outcome{}, nil,
				fmt.Errorf("stopped while waiting for CommGroup %s; `make demo-down` ends the cluster: %w",
					groupName, ctx.Err())
		}
		if err != nil {
			return Outcome{}, nil, err
		}
		w.observe(group, tasks.Items)
		outcome := Judge(group, d.Fault, pci)
		if outcome.Done {
			w.finish()
			return outcome, group, nil
		}
		if time.Since(applied) > d.GroupDeadline {
			w.finish()
			outcome.Seen = fmt.Sprintf("after %s %s", d.GroupDeadline, outcome.Seen)
			return outcome, group, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// watcher turns changes into lines of progress and into phases.
type watcher struct {
	*demo
	applied, lastLine time.Time
	last              string
	compatible        bool
	started, finished bool
}

func (w *watcher) observe(group *state.Group, tasks []v1alpha1.CommTask) {
	run := group.Status.Run
	if c := current(group, v1alpha1.ConditionCompatible); !w.compatible && !w.started && c != nil &&
		c.Status == "True" {
		w.compatible = true
		w.done("apply to compatible: monitors started, facts read")
	}
	if run != nil && !w.started {
		for i := range tasks {
			if tasks[i].Status.Run != nil && tasks[i].Status.Run.ID == run.ID {
				w.started = true
				name := "run pods started"
				if !w.compatible {
					name = "apply to run started: monitors, facts, run pods"
				}
				w.done(name)
				break
			}
		}
	}
	if group.Status.Settled() && !w.finished {
		w.finished = true
		if w.Span {
			w.done("run: each node alone, then over several, and the search if something was bad")
		} else {
			w.done("run: three variants measured on every node")
		}
	}
	w.progress(group, tasks)
}

// progress prints a line where something changed, and one after a while where nothing did.
func (w *watcher) progress(group *state.Group, tasks []v1alpha1.CommTask) {
	line := progressLine(group, tasks)
	if (line != w.last && time.Since(w.lastLine) > time.Second) || time.Since(w.lastLine) > quietSeconds*time.Second {
		w.say("    %5.1f s  %s", time.Since(w.applied).Seconds(), line)
		w.last, w.lastLine = line, time.Now()
	}
}

func (w *watcher) finish() { w.done("settled: verdict, conditions, settings published") }

// progressLine says in one line where a group is.
func progressLine(group *state.Group, tasks []v1alpha1.CommTask) string {
	ready := current(group, v1alpha1.ConditionReady)
	if ready == nil {
		return "waiting for the manager to take the group up"
	}
	if text := spanLine(group); text != "" {
		return ready.Reason + ": " + text
	}
	m := group.Status.Members
	line := fmt.Sprintf("%s: %d of %d reporting; passed %d, failed %d, running %d, pending %d",
		ready.Reason, m.Reporting, m.Selected, m.Passed, m.Failed+m.Errored, m.Running, m.Pending)
	var steps []string
	for i := range tasks {
		if run := tasks[i].Status.Run; run != nil && run.Phase == v1alpha1.NodeRunRunning && run.Step != "" {
			steps = append(steps, strings.TrimPrefix(tasks[i].Spec.NodeName, "sim-")+" at "+run.Step)
		}
	}
	sort.Strings(steps)
	if len(steps) > 0 {
		line += "; " + steps[0]
	}
	if len(steps) > 1 {
		line += fmt.Sprintf(" (and %d more)", len(steps)-1)
	}
	return line
}

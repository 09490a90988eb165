package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/state"
)

// interval of the monitors, as hack/demo/operator has it.
const interval = 5 * time.Second

// reportSlack is what a scan, its write and the demo's own polling may take beside the monitor's interval.
const reportSlack = 3 * time.Second

// change makes a fault on the running node, follows what comes of it, and prints it.
func (d *demo) change(ctx context.Context, fault *Fault, pci []string) error {
	d.step("FAULT=%s: on %s, %s", fault.Name, FaultyNode, fault.Description)
	d.mark = time.Now()
	before, tasks, err := d.read(ctx)
	if err != nil {
		return err
	}
	if before.Status.Run == nil {
		return fmt.Errorf("CommGroup %s has no run before %s", groupName, fault.Name)
	}
	a := Aftermath{RunBefore: before.Status.Run.ID, Assigned: assignments(tasks), Pods: map[string]int{}}
	seen, err := d.startWatches(ctx)
	if err != nil {
		return err
	}
	defer seen.stop()
	fault.Change(&d.node)
	if err := replaceTree(d.State.NodeRoot(FaultyNode), d.node, fault.Name); err != nil {
		return err
	}
	began := time.Now()
	outcome, err := d.follow(ctx, &a, fault, pci, seen, began)
	if err != nil {
		return err
	}
	d.done(fmt.Sprintf("%s: from the change to its outcome", fault.Name))
	if err := d.printChange(ctx, &a, fault); err != nil {
		return err
	}
	if !outcome.Reached {
		return fmt.Errorf("the expected outcome of %s was not reached: %s", fault.Name, outcome.Seen)
	}
	d.step("As expected: %s", outcome.Seen)
	return nil
}

func (d *demo) read(ctx context.Context) (*state.Group, []v1alpha1.CommTask, error) {
	group, err := state.Load(ctx, d.client, client.ObjectKey{Namespace: "default", Name: groupName})
	if err != nil {
		return nil, nil, err
	}
	var tasks v1alpha1.CommTaskList
	err = d.client.List(ctx, &tasks, client.InNamespace("default"))
	return group, tasks.Items, err
}

// watches tell of every version since a change: a mark that a run replaces at once is gone before the next look.
type watches struct{ pods, groups, tasks, nodes watch.Interface }

func (d *demo) startWatches(ctx context.Context) (w watches, err error) {
	runPods := client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun}
	for _, kind := range []struct {
		list client.ObjectList
		only client.ListOption
		to   *watch.Interface
	}{
		{&corev1.PodList{}, runPods, &w.pods},
		{&v1alpha1.CommGroupList{}, client.InNamespace("default"), &w.groups},
		{&v1alpha1.CommTaskList{}, client.InNamespace("default"), &w.tasks},
		{&v1alpha1.CommNodeList{}, client.InNamespace(""), &w.nodes},
	} {
		if err = d.client.List(ctx, kind.list, kind.only); err == nil {
			from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: kind.list.GetResourceVersion()}}
			*kind.to, err = d.client.Watch(ctx, kind.list, kind.only, from)
		}
		if err != nil {
			w.stop()
			return w, err
		}
	}
	return w, nil
}

func (w watches) stop() {
	for _, one := range []watch.Interface{w.pods, w.groups, w.tasks, w.nodes} {
		if one != nil {
			one.Stop()
		}
	}
}

// drain takes in all that the watches have told since the last look, and says what is new in it.
func (w watches) drain(a *Aftermath, elapsed time.Duration) (lines []string, err error) {
	err = errors.Join(drain(w.pods, a.takePod),
		drain(w.tasks, func(e watch.Event) {
			if t, ok := e.Object.(*v1alpha1.CommTask); ok {
				lines = append(lines, a.takeTask(t)...)
			}
		}),
		drain(w.nodes, func(e watch.Event) {
			if n, ok := e.Object.(*v1alpha1.CommNode); ok {
				lines = append(lines, a.takeNode(n, elapsed)...)
			}
		}),
		drain(w.groups, func(e watch.Event) {
			if g, ok := e.Object.(*v1alpha1.CommGroup); ok {
				lines = append(lines, a.takeGroup(g)...)
			}
		}))
	return lines, err
}

// replaceTree puts a new tree in the place of the one that the node shows. Each of its directories is exchanged
// at once, so that a monitor reads the old one or the new one; the old tree stays beside it, for a scan that is under
// way.
func replaceTree(root string, node nodetree.Node, why string) error {
	next := root + ".before-" + why
	if err := nodetree.Write(next, node); err != nil {
		return err
	}
	for _, part := range []string{"proc", "opt", "sys"} {
		if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(next, part), unix.AT_FDCWD, filepath.Join(root, part),
			unix.RENAME_EXCHANGE); err != nil {
			return fmt.Errorf("exchange %s of %s: %w; the state directory needs a file system with RENAME_EXCHANGE, "+
				"such as ext4, xfs or tmpfs", part, root, err)
		}
	}
	// The mark of simulation stays in both trees.
	conf := filepath.Join(root, "simrocm.conf")
	if err := copyFile(filepath.Join(next, "simrocm.conf"), conf+".new"); err != nil {
		return err
	}
	return os.Rename(conf+".new", conf)
}

// follow looks at the group until the fault has come to its outcome.
func (d *demo) follow(ctx context.Context, a *Aftermath, fault *Fault, pci []string, seen watches,
	began time.Time) (Outcome, error) {
	w := watcher{demo: d, applied: began, lastLine: began}
	for {
		group, tasks, err := d.read(ctx)
		if ctx.Err() != nil {
			return Outcome{},
				fmt.Errorf("stopped while waiting for what comes of %s; `make demo-down` ends the cluster: %w",
					fault.Name, ctx.Err())
		}
		if err != nil {
			return Outcome{}, err
		}
		var events corev1.EventList
		if err := d.client.List(ctx, &events, client.InNamespace("default")); err != nil {
			return Outcome{}, err
		}
		a.Group, a.Tasks, a.Elapsed = group, tasks, time.Since(began)
		lines, err := seen.drain(a, a.Elapsed)
		if err != nil {
			return Outcome{}, err
		}
		if !fault.Incompatible {
			lines = append(lines, a.takeEvents(events.Items, d.node.BootID)...)
		}
		for _, line := range lines {
			w.say("    %5.1f s  %s", a.Elapsed.Seconds(), line)
		}
		w.progress(group, tasks)
		outcome := JudgeChange(a, fault, pci)
		if outcome.Done {
			return outcome, nil
		}
		if time.Since(began) > d.GroupDeadline {
			outcome.Seen = fmt.Sprintf("after %s %s", d.GroupDeadline, outcome.Seen)
			return outcome, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (d *demo) printChange(ctx context.Context, a *Aftermath, fault *Fault) error {
	show := func(title, program string, args ...string) error {
		d.step("%s", title)
		out, err := d.tool(ctx, program, args...)
		d.say("%s", strings.TrimRight(out, "\n"))
		return err
	}
	kubectl := filepath.Join(d.Binaries, "kubectl")
	if fault.Incompatible {
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionCompatible} {
			if c := current(a.Group, kind); c != nil {
				d.say("%s is %s (%s): %s", kind, c.Status, c.Reason, c.Message)
			}
		}
		d.say("Run pods started since: %s; the last run is still %s", a.podsText(), a.Group.Status.Run.ID)
		return show("kubectl commgroup topology "+groupName+" "+FaultyNode,
			filepath.Join(d.Bin, "kubectl-commgroup"), "topology", groupName, FaultyNode)
	}
	if err := show("kubectl get events --field-selector reason="+v1alpha1.ReasonResultsStale, kubectl,
		"get", "events", "--field-selector", "reason="+v1alpha1.ReasonResultsStale); err != nil {
		return err
	}
	if err := show("kubectl get cg,cgr,ct,cn", kubectl, "get", "cg,cgr,ct,cn"); err != nil {
		return err
	}
	run := a.Group.Status.Run
	d.say("Run %s, trigger %s: run pods started on %s; the results of run %s stand for the others",
		run.ID, run.Trigger, a.podsText(), a.RunBefore)
	return nil
}

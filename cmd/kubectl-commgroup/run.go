package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/reasons"
	"rcclx.io/commgroup-operator/internal/report"
	"rcclx.io/commgroup-operator/internal/state"
)

const (
	defaultTimeout = 30 * time.Minute
	// answerTimeout is how long the manager may take to see a request.
	answerTimeout = 30 * time.Second
	// ticksPerLook ticks are from one look at the manager's lease to the next: half a minute.
	ticksPerLook = int(30 * time.Second / redrawAfter)
)

func newRunCommand(o *options) *cobra.Command {
	var wait bool
	var timeout, answer time.Duration
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Ask for a new run of all members, and with --wait follow it to its end",
		Long: "The request is a CommRun, which the command creates; it returns once the manager has answered it. " +
			"While a run is going on, the\n" +
			"requested one follows it. Where a CommRun waits already, the command creates no second one.\n\n" +
			"Exit code 0: requested, with --wait the group is Ready after the run; 1: with --wait it is not; 2: " +
			"the command failed, no manager\n" +
			"answered, the group is suspended, or --timeout was over.",
		Example:           "  kubectl commgroup run mi300x\n  kubectl commgroup run mi300x --wait --timeout 1h",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.newFollower(cmd, args[0])
			if err != nil {
				return err
			}
			text, err := f.request(cmd.Context(), answer)
			if err != nil {
				return err
			}
			if !wait {
				text += fmt.Sprintf("; follow it with: kubectl commgroup wait %s -n %s", args[0], f.namespace)
			}
			if _, err := fmt.Fprintln(f.out, text); err != nil || !wait {
				return err
			}
			return f.wait(cmd.Context(), timeout)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the run is over, showing progress")
	cmd.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "with --wait: give up after this time")
	cmd.Flags().DurationVar(&answer, "answer-timeout", answerTimeout,
		"give up where the manager has not answered the request by then")
	return cmd
}

func newWaitCommand(o *options) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until the present run is over, showing progress",
		Long: "Waits for the run of the group's present spec and of the last request. On a terminal one line shows " +
			"where it is; else a line is\n" +
			"printed for each change.\n\nExit code 0: the group is Ready after the run; 1: it is not; 2: " +
			"the command failed, or --timeout was over.",
		Example: "  kubectl commgroup wait mi300x\n  kubectl commgroup wait mi300x --timeout 2h && helm install " +
			"training ./chart",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.groupNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.newFollower(cmd, args[0])
			if err != nil {
				return err
			}
			return f.wait(cmd.Context(), timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "give up after this time")
	return cmd
}

// follower follows one group.
type follower struct {
	options   *options
	client    client.WithWatch
	namespace string
	name      string
	out       *report.Terminal
	live      bool // out is a terminal, so that a line may be drawn over
}

func (o *options) newFollower(cmd *cobra.Command, name string) (*follower, error) {
	out, err := o.out(cmd)
	if err != nil {
		return nil, err
	}
	c, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	_, live := terminalOf(cmd.OutOrStdout())
	return &follower{o, c, namespace, name, out, live}, nil
}

// request asks for a run, and waits for the manager's answer, which it returns in words.
func (f *follower) request(ctx context.Context, timeout time.Duration) (string, error) {
	stored := &v1alpha1.CommGroup{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: f.name}, stored); err != nil {
		return "", explained(ctx, f.client, f.namespace, f.name, err)
	}
	group, err := state.Of(ctx, f.client, stored)
	if err != nil {
		return "", err
	}
	if err := runnable(group); err != nil {
		return "", err
	}
	request := ""
	if waiting := group.Status.Requests; len(waiting) > 0 {
		request = waiting[0]
	} else {
		asked := state.NewRun(stored, "")
		asked.GenerateName = f.name + "-"
		if err := f.client.Create(ctx, asked); err != nil {
			return "", fmt.Errorf("creating a CommRun of %s/%s: %w", f.namespace, f.name, err)
		}
		request = asked.Name
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, before := "", waitingMessage(group)
	var last *state.Group
	err = f.each(ctx, func(g *state.Group) (bool, error) {
		last, text = g, answerTo(g, request, before)
		return text != "", nil
	}, nil)
	if errors.Is(err, context.DeadlineExceeded) && last != nil {
		// A request that waits already, and waits on, changes nothing in what is said of it.
		if text = answerTo(last, request, ""); text != "" {
			err = nil
		}
	}
	switch {
	case err == nil:
		return fmt.Sprintf("%s/%s: %s", f.namespace, f.name, text), nil
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("a run of %s/%s is requested (CommRun %s), and no manager has answered within %s: "+
			"is it running? kubectl get pods -A -l app.kubernetes.io/name=commgroup-manager. The run starts "+
			"once one does", f.namespace, f.name, request, timeout)
	}
	return "", err
}

// runnable says why no run of the group can start.
func runnable(g *state.Group) error {
	switch {
	case !g.DeletionTimestamp.IsZero():
		return fmt.Errorf("CommGroup %s/%s is being deleted: it makes no run", g.Namespace, g.Name)
	case g.Spec.Run.State == v1alpha1.RunSuspended:
		return fmt.Errorf("CommGroup %s/%s is suspended (run.state: Suspended): no run starts. Set it to Active: "+
			"kubectl -n %s patch commgroup %s --type merge -p '{\"spec\":{\"run\":{\"state\":\"Active\"}}}'",
			g.Namespace, g.Name, g.Namespace, g.Name)
	case g.Status.RunSuspended:
		return fmt.Errorf("CommRun %s/%s is suspended (spec.suspend): no run starts before it. Set that to false: "+
			"kubectl -n %s patch commrun %s --type merge -p '{\"spec\":{\"suspend\":false}}', or delete it",
			g.Namespace, g.Status.Run.Name, g.Namespace, g.Status.Run.Name)
	}
	return nil
}

// waitingMessage says what a run that is due waits for; empty where none does.
func waitingMessage(g *state.Group) string {
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionRunning); c != nil &&
		c.Reason == v1alpha1.ReasonWaiting {
		return c.Message
	}
	return ""
}

// answerTo is what the group's status says to a request; empty while it says nothing. What a run waited for before the
// request is no answer: the request may be what starts it, as past the budget.
func answerTo(g *state.Group, request, before string) string {
	run := g.Status.Run
	switch {
	case run != nil && run.Name == request:
		return fmt.Sprintf("run %s has started", run.ID)
	case run != nil && run.Phase == v1alpha1.RunPhaseRunning && g.Status.ObservedGeneration == g.Generation:
		return fmt.Sprintf("run %s is going on; the requested one follows it", run.ID)
	}
	// What keeps any run from starting keeps this one, too.
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionRunning} {
		c := meta.FindStatusCondition(g.Status.Conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue || c.ObservedGeneration != g.Generation {
			continue
		}
		if kind == v1alpha1.ConditionAccepted || c.Reason == v1alpha1.ReasonWaiting && c.Message != before {
			return fmt.Sprintf("requested, and no run starts yet: %s (%s)", c.Message, c.Reason)
		}
	}
	return ""
}

// wait follows the group until its run is over, and says how it went.
func (f *follower) wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &progress{follower: f, began: f.options.clock.Now()}
	var last *state.Group
	silence, told, ticks := "", false, 0
	// heed looks now and then whether there is a manager at all, and says once where there is none.
	heed := func() error {
		if ticks++; (ticks-1)%ticksPerLook != 0 {
			return nil
		}
		if silence = managerSilence(ctx, f.client, f.options.clock); silence == "" || told {
			return nil
		}
		told = true
		p.clear()
		return report.Note(f.out, silence)
	}
	err := f.each(ctx, func(g *state.Group) (bool, error) {
		last = g
		if runOver(g) {
			return true, nil
		}
		if run := g.Status.Run; run == nil || run.Phase != v1alpha1.RunPhaseRunning {
			if err := runnable(g); err != nil {
				return false, err
			}
		}
		if ticks == 0 {
			if err := heed(); err != nil {
				return false, err
			}
		}
		return false, p.show(g)
	}, func() error { return cmp.Or(heed(), p.tick(ctx)) })
	p.clear()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text := fmt.Sprintf("waiting for the run of CommGroup %s/%s to end: gave up after %s; last seen: %s.",
			f.namespace, f.name, timeout, strings.TrimRight(lastSeen(last), ". "))
		if silence != "" {
			return errors.New(text + " " + reasons.Sentence(silence))
		}
		return fmt.Errorf("%s See kubectl commgroup status %s -n %s, or wait longer with --timeout",
			text, f.name, f.namespace)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; the run goes on: kubectl commgroup wait %s -n %s", f.name, f.namespace)
	case err != nil:
		return err
	}
	return f.ended(last)
}

// ended prints how the run went.
func (f *follower) ended(g *state.Group) error {
	run := g.Status.Run
	text := fmt.Sprintf("run %s: %s", run.ID, run.Phase)
	if run.Verdict != "" {
		text += ", " + string(run.Verdict)
	}
	if run.FinishTime != nil {
		text += " after " + run.FinishTime.Sub(run.StartTime.Time).Round(time.Second).String()
	}
	for _, print := range []func() error{
		func() error { return report.Notice(f.out, g) },
		func() error { _, err := fmt.Fprintln(f.out, text); return err },
		func() error { return report.Conditions(f.out, g) },
		func() error { return report.Culprits(f.out, g.Status.Culprits) },
	} {
		if err := print(); err != nil {
			return err
		}
	}
	return notReady(*g)
}

func lastSeen(g *state.Group) string {
	if g == nil {
		return "nothing"
	}
	return progressLine(g)
}

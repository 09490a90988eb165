package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

func newRunCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME",
		Short: "Ask for a new run",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			token := time.Now().UTC().Format(time.RFC3339)
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationRunRequested: token}}})
			if err != nil {
				return err
			}
			group := &v1alpha1.CommGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: args[0]}}
			if err := c.Patch(cmd.Context(), group, client.RawPatch(types.MergePatchType, patch)); err != nil {
				return fmt.Errorf("asking for a run of %s/%s: %w", namespace, args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "run of %s/%s requested (%s); follow it with: kubectl commgroup wait %s -n %s\n", namespace, args[0], token, args[0], namespace)
			return err
		},
	}
}

func newWaitCommand(o *options) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until the present run is over, showing progress; exit 0 when the group is Ready, 1 when it is not",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := o.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			group, err := waitForRun(ctx, cmd, c, namespace, args[0])
			if err != nil {
				return err
			}
			if err := report.Conditions(cmd.OutOrStdout(), group); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReady) {
				return errNotReady
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Minute, "give up after this time")
	return cmd
}

// waitForRun follows a group until the run of its present generation and request is over.
func waitForRun(ctx context.Context, cmd *cobra.Command, c client.WithWatch, namespace, name string) (*v1alpha1.CommGroup, error) {
	last := ""
	for {
		w, err := c.Watch(ctx, &v1alpha1.CommGroupList{}, client.InNamespace(namespace),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
		if err != nil {
			return nil, fmt.Errorf("watching CommGroup %s/%s: %w", namespace, name, err)
		}
		group, line, done := follow(cmd, w, last)
		w.Stop()
		if done {
			return group, nil
		}
		last = line
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for CommGroup %s/%s: %w; last seen: %s", namespace, name, ctx.Err(), orNothing(last))
		}
	}
}

// follow reads one watch until the run is over or the watch ends, and prints each change of progress once.
func follow(cmd *cobra.Command, w watch.Interface, last string) (*v1alpha1.CommGroup, string, bool) {
	for event := range w.ResultChan() {
		group, ok := event.Object.(*v1alpha1.CommGroup)
		if !ok {
			return nil, last, false
		}
		if line := progress(group); line != last {
			last = line
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		if runOver(group) {
			return group, last, true
		}
	}
	return nil, last, false
}

// runOver says whether the group's last run is over and belongs to its present spec and request.
func runOver(group *v1alpha1.CommGroup) bool {
	run := group.Status.Run
	return run != nil && group.Status.ObservedGeneration == group.Generation && run.Generation == group.Generation &&
		run.Request == group.Annotations[v1alpha1.AnnotationRunRequested] && run.Phase != v1alpha1.RunPhaseRunning
}

func progress(group *v1alpha1.CommGroup) string {
	m := group.Status.Members
	ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
	why := "no status yet"
	if ready != nil {
		why = ready.Reason
	}
	return fmt.Sprintf("%d members, %d reporting, %d running, %d waiting, %d passed, %d failed, %d errors (%s)",
		m.Selected, m.Reporting, m.Running, m.Pending, m.Passed, m.Failed, m.Errored+m.Skipped+m.Inconclusive, why)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

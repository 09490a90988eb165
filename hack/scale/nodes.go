package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/agent/executor"
	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// nodes are the kubelets and run agents of all nodes.
type nodes struct {
	*bench
	// Writes of kubelets and scheduler, and of agents; reports that were final.
	kubelet, agent, final atomic.Int64
	work                  chan func(context.Context) error
}

func newNodes(b *bench) *nodes {
	return &nodes{bench: b, work: make(chan func(context.Context) error, b.nodes)}
}

func (n *nodes) reported() int { return int(n.final.Load()) }

// start begins to play; the channel gets the first error.
func (n *nodes) start(ctx context.Context) (<-chan error, error) {
	ended := make(chan error, 1)
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			select {
			case ended <- err:
			default:
			}
		}
	}
	for range n.workers {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case do := <-n.work:
					fail(do(ctx))
				}
			}
		}()
	}
	pods := &corev1.PodList{}
	if err := n.admin.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return n.admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), &client.ListOptions{Raw: &o})
		}})
	if err != nil {
		return nil, err
	}
	var once sync.Map
	do := func(one func(context.Context) error) {
		select {
		case n.work <- one:
		case <-ctx.Done():
		}
	}
	go func() {
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				fail(fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object)))
				return
			}
			_, seen := once.LoadOrStore(pod.UID, true)
			switch {
			case event.Type == watch.Added && !seen:
				do(func(ctx context.Context) error { return n.play(ctx, pod.DeepCopy()) })
			case event.Type == watch.Modified && pod.DeletionTimestamp != nil:
				do(func(ctx context.Context) error { return n.remove(ctx, pod) })
			}
		}
		fail(errors.New("the watch of pods ended"))
	}()
	return ended, nil
}

// remove is what a kubelet does with a pod that was told to end.
func (n *nodes) remove(ctx context.Context, pod *corev1.Pod) error {
	err := n.admin.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err == nil {
		n.kubelet.Add(1)
	}
	return client.IgnoreNotFound(err)
}

// progressReports are the reports of an agent before its last: one before each of the plan's variants, and one before
// the first (agent/executor, execution.progress).
const progressReports = 4

// play is the life of a run pod: it is bound, starts, its agent reads what to do and reports, and it ends.
func (n *nodes) play(ctx context.Context, pod *corev1.Pod) error {
	fail := func(what string, err error) error { return fmt.Errorf("pod %s: %s: %w", pod.Name, what, err) }
	node, err := nodeOf(pod)
	if err != nil {
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	switch err := n.admin.SubResource("binding").Create(ctx, pod, binding); {
	case apierrors.IsNotFound(err):
		return nil // it was deleted before it had a node
	case err != nil:
		return fail("bind", err)
	}
	n.kubelet.Add(1)
	started := metav1.Now()
	if err := n.podStatus(ctx, pod, corev1.PodRunning,
		corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}); err != nil {
		return fail("started", err)
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return fail("read", errors.New("no CommTask owns it"))
	}
	agent := executor.KubeTask{
		Client: n.admin,
		Name:   client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name},
		RunID:  pod.Labels[v1alpha1.LabelRunID],
	}
	assignment, err := agent.Assignment(ctx)
	if err != nil {
		return fail("read the assignment", err)
	}
	if assignment.Run == nil {
		return fail("read the assignment", errors.New("its CommTask has no run"))
	}
	report := n.Report.DeepCopy()
	report.ID, report.Generation, report.StartTime = assignment.Run.ID, assignment.Run.Generation, started
	for i := range progressReports {
		progress := v1alpha1.NodeRunStatus{
			ID:         report.ID,
			Generation: report.Generation,
			StartTime:  started,
			Phase:      v1alpha1.NodeRunRunning,
			BootID:     report.BootID,
			Step:       fmt.Sprintf("step %d", i),
		}
		if err := n.report(ctx, agent, progress); err != nil {
			return fail("report progress", err)
		}
	}
	report.FinishTime = &metav1.Time{Time: time.Now()}
	if err := n.report(ctx, agent, *report); err != nil {
		return fail("report", err)
	}
	n.final.Add(1)
	return n.podStatus(
		ctx,
		pod,
		corev1.PodSucceeded,
		corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: started,
			FinishedAt: metav1.Now()}},
	)
}

func (n *nodes) report(ctx context.Context, agent executor.KubeTask, status v1alpha1.NodeRunStatus) error {
	n.agent.Add(1)
	return agent.ReportRun(ctx, status)
}

func (n *nodes) podStatus(
	ctx context.Context,
	pod *corev1.Pod,
	phase corev1.PodPhase,
	state corev1.ContainerState,
) error {
	next := pod.DeepCopy()
	next.Status.Phase = phase
	next.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: state}}
	err := n.admin.Status().Patch(ctx, next, client.MergeFrom(pod))
	if apierrors.IsNotFound(err) {
		return nil // it was deleted meanwhile
	}
	n.kubelet.Add(1)
	return err
}

// nodeOf is the node that a run pod has to be on.
func nodeOf(pod *corev1.Pod) (string, error) {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
					return field.Values[0], nil
				}
			}
		}
	}
	return "", fmt.Errorf("pod %s: no node is asked for", pod.Name)
}

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/publish"
)

// ofGroup selects what carries the group's UID, so that a group made anew never adopts the old one's objects.
func ofGroup(group metav1.Object) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroupUID: string(group.GetUID())}
}

func runPodsOf(group metav1.Object) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroupUID: string(group.GetUID()), v1alpha1.LabelRole: v1alpha1.RoleRun}
}

// gather reads everything that a decision rests on. A part that cannot be read sets ListError.
func (r *CommGroupReconciler) gather(ctx context.Context, group *v1alpha1.CommGroup) *Snapshot {
	s := &Snapshot{Now: r.Clock.Now(), Stored: group}
	s.BusyAt = r.looks.of(client.ObjectKeyFromObject(group), s.Now)
	var errs []error
	fail := func(what string, err error) {
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// Deciding changes nothing, so the cache need not copy thousands of objects for it.
	shared := client.UnsafeDisableDeepCopy

	fail("commruns", r.readRuns(ctx, s))
	var nodes corev1.NodeList
	fail("nodes", r.Client.List(ctx, &nodes, shared))
	s.Nodes = nodes.Items
	var commNodes v1alpha1.CommNodeList
	fail("commnodes", r.Client.List(ctx, &commNodes, shared))
	s.CommNodes = commNodes.Items
	var commTasks v1alpha1.CommTaskList
	fail("commtasks", r.Client.List(ctx, &commTasks, client.InNamespace(group.Namespace), ofGroup(group), shared))
	s.CommTasks = commTasks.Items
	var pods corev1.PodList
	fail("run pods", r.Client.List(ctx, &pods, client.InNamespace(group.Namespace), runPodsOf(group), shared))
	s.RunPods = pods.Items
	fail("awaited run pods", r.readMissingPods(ctx, s))
	fail("other groups' runs", r.gatherOthers(ctx, s))
	var configMaps corev1.ConfigMapList
	fail("configmaps", r.Client.List(ctx, &configMaps, client.InNamespace(group.Namespace), ofGroup(group), shared))
	name := publish.ConfigMapName(s.Group)
	for i := range configMaps.Items {
		cm := &configMaps.Items[i]
		if !objects.OwnedBy(cm, s.Stored) {
			continue
		}
		s.OwnedConfigMaps = append(s.OwnedConfigMaps, cm.Name)
		if cm.Name == name {
			s.ConfigMap, s.ConfigMapCertain = cm, true
		} else if p := group.Status.Published; p != nil && cm.Name == p.ConfigMapName {
			s.FormerConfigMap = cm
		}
	}
	s.ListError = errors.Join(errs...)
	return s
}

// missingPods names the pods that a CommTask awaits a report of and the cache does not have. They may have been deleted; or the
// cache has the CommTask already and not yet the pod, as in a manager that just took over. Only the API itself can tell, and a run
// that was closed by mistake stays closed.
func missingPods(s *Snapshot) []string {
	cached := make(map[string]bool, len(s.RunPods))
	for i := range s.RunPods {
		cached[s.RunPods[i].Name] = true
	}
	var missing []string
	await := func(name string) {
		if !cached[name] {
			missing = append(missing, name)
		}
	}
	for i := range s.CommTasks {
		ct := &s.CommTasks[i]
		if inSession(ct) {
			await(groupPodName(s.Group, ct.Spec.Session.RunID, ct.Spec.NodeName))
		}
		run, report := ct.Spec.Run, ct.Status.Run
		if run == nil || run.PodName == "" || run.Closed != nil {
			continue
		}
		if report != nil && report.ID == run.ID && report.Phase == v1alpha1.NodeRunFinished {
			continue
		}
		await(run.PodName)
	}
	return missing
}

// maxPodGets is how many missing pods are read one by one; more are listed.
const maxPodGets = 64

// goneHolds is how long the API server's answer holds that it has no such pod. Pods that stay missing, as where their CommTasks
// cannot be written, are then no list of thousands of pods in each reconcile.
const goneHolds = refusedRetry

// gonePods is when the API server was last asked for awaited pods that it did not have, by group. No decision needs it: it spares
// reads, and a new manager does without.
type gonePods struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]map[string]time.Time
}

// unread are those of the missing pods whose answer is too old, or never was. What is not missing is forgotten.
func (g *gonePods) unread(group types.NamespacedName, missing []string, now time.Time) []string {
	g.lock.Lock()
	defer g.lock.Unlock()
	var unread []string
	kept := map[string]time.Time{}
	for _, name := range missing {
		at, ok := g.groups[group][name]
		if ago := now.Sub(at); ok && ago >= 0 && ago < goneHolds {
			kept[name] = at
		} else {
			unread = append(unread, name)
		}
	}
	if g.groups == nil {
		g.groups = map[types.NamespacedName]map[string]time.Time{}
	}
	if g.groups[group] = kept; len(kept) == 0 {
		delete(g.groups, group)
	}
	return unread
}

// add notes that the API server has none of the pods.
func (g *gonePods) add(group types.NamespacedName, names []string, now time.Time) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, name := range names {
		if g.groups[group] == nil {
			g.groups[group] = map[string]time.Time{}
		}
		g.groups[group][name] = now
	}
}

func (g *gonePods) forget(group types.NamespacedName) {
	g.lock.Lock()
	defer g.lock.Unlock()
	delete(g.groups, group)
}

// readMissingPods adds to the snapshot the awaited pods that the cache does not have and the API server does.
func (r *CommGroupReconciler) readMissingPods(ctx context.Context, s *Snapshot) error {
	key := client.ObjectKeyFromObject(s.Group)
	missing := r.gone.unread(key, missingPods(s), s.Now)
	if len(missing) > maxPodGets {
		pods, err := r.liveRunPods(ctx, s.Group)
		if err != nil {
			return err
		}
		s.RunPods = pods
		live := make(map[string]bool, len(pods))
		for i := range pods {
			live[pods[i].Name] = true
		}
		r.gone.add(key, slices.DeleteFunc(missing, func(name string) bool { return live[name] }), s.Now)
		return nil
	}
	found := make([]*corev1.Pod, len(missing))
	at := make(map[string]int, len(missing))
	for i, name := range missing {
		at[name] = i
	}
	errs := atOnce(missing, func(name string) error {
		var pod corev1.Pod
		err := r.APIReader.Get(ctx, types.NamespacedName{Namespace: s.Group.Namespace, Name: name}, &pod)
		if err == nil && pod.Labels[v1alpha1.LabelGroupUID] == string(s.Group.UID) && pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRun {
			found[at[name]] = &pod
		}
		return client.IgnoreNotFound(err)
	})
	var gone []string
	for i, pod := range found {
		switch {
		case pod != nil:
			s.RunPods = append(s.RunPods, *pod)
		case errs[i] == nil:
			gone = append(gone, missing[i])
		}
	}
	r.gone.add(key, gone, s.Now)
	return errors.Join(errs...)
}

// podsPerPage bounds one answer of the API server.
const podsPerPage = 500

// liveRunPods lists the group's run pods at the API itself, page by page; all pages are of one state of the cluster.
func (r *CommGroupReconciler) liveRunPods(ctx context.Context, group metav1.Object) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for next := ""; ; {
		var page corev1.PodList
		err := r.APIReader.List(ctx, &page, client.InNamespace(group.GetNamespace()), runPodsOf(group), client.Limit(podsPerPage), client.Continue(next))
		if err != nil {
			return nil, err
		}
		pods = append(pods, page.Items...)
		if next = page.Continue; next == "" {
			return pods, nil
		}
	}
}

// inSession says whether the node's agent takes part in a group's stage: it has answered, and was not told to end.
func inSession(ct *v1alpha1.CommTask) bool {
	a, r := ct.Spec.Session, ct.Status.Session
	return a != nil && r != nil && a.State == v1alpha1.SessionOpen && r.RunID == a.RunID && r.State != v1alpha1.SessionEnded && r.State != v1alpha1.SessionFailed
}

// lookUpConfigMap asks the API itself for the ConfigMap: the cache holds only those that the controller made.
func (r *CommGroupReconciler) lookUpConfigMap(ctx context.Context, s *Snapshot) error {
	var cm corev1.ConfigMap
	err := r.APIReader.Get(ctx, types.NamespacedName{Namespace: s.Group.Namespace, Name: publish.ConfigMapName(s.Group)}, &cm)
	switch {
	case apierrors.IsNotFound(err):
		s.ConfigMap, s.ConfigMapCertain = nil, true
		return nil
	case err != nil:
		return fmt.Errorf("configmap %s: %w", publish.ConfigMapName(s.Group), err)
	}
	s.ConfigMap, s.ConfigMapCertain = &cm, true
	return nil
}

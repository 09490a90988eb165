package controllers

import (
	"cmp"
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
	"rcclx.io/commgroup-operator/controllers/runpod"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/internal/state"
)

// observer reads what a decision rests on. It keeps nothing in memory that a decision needs.
type observer struct {
	Dependencies
	looks lookMemory
	gone  gonePods
}

// Snapshot is everything that a decision rests on, read at one time. Deciding never changes it: its objects may be
// shared with the cache.
type Snapshot struct {
	Now   time.Time
	Group *state.Group
	// Stored is the CommGroup as it was read, StoredRun the CommRun of the run that Group.Status.Run is; nil where
	// there is none.
	Stored    *v1alpha1.CommGroup
	StoredRun *v1alpha1.CommRun
	// RunDeleted: the CommRun of the group's latest run was deleted, and the run is known by the group's status alone.
	RunDeleted bool
	// Nodes of the cluster.
	Nodes []corev1.Node
	// CommNodes of the cluster.
	CommNodes []v1alpha1.CommNode
	// CommTasks and RunPods that carry the group's UID.
	CommTasks []v1alpha1.CommTask
	RunPods   []corev1.Pod
	// OtherRunPods are those of other groups, of all namespaces, that are not over; Claims are the nodes that other
	// groups' stages have.
	OtherRunPods []corev1.Pod
	Claims       []sharing.Claim
	// Looked is who holds GPUs on the nodes that were looked up, by node name; empty where nobody does. Nil before.
	Looked map[string]string
	// Unread are nodes that were to be looked up and whose pods could not be listed, with the API server's words.
	Unread map[string]string
	// BusyAt is when this manager last saw others' pods hold GPUs on a node, by its name: it is not checked again so
	// soon.
	BusyAt map[string]time.Time
	// ConfigMap of the name that settings are published under, nil where none was found.
	ConfigMap *corev1.ConfigMap
	// ConfigMapCertain: the ConfigMap was looked up in the API, so that nil means that there is none.
	ConfigMapCertain bool
	// FormerConfigMap is the group's own that status.published names, where it has another name by now.
	FormerConfigMap *corev1.ConfigMap
	// OwnedConfigMaps are the names of all ConfigMaps that carry the group's UID.
	OwnedConfigMaps []string
	// Runs are the group's CommRuns, those too that have not started.
	Runs []v1alpha1.CommRun
	// StartRefused says why the API server takes no CommRun for the run that is to start; nil where it was not tried,
	// or does.
	StartRefused error
	// ListError is set when a part could not be read; nothing may be concluded then.
	ListError error
}

// ofGroup selects what carries the group's UID, so that a re-created group never adopts the old one's objects.
func ofGroup(group metav1.Object) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroupUID: string(group.GetUID())}
}

func runPodsOf(group metav1.Object) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelGroupUID: string(group.GetUID()), v1alpha1.LabelRole: v1alpha1.RoleRun}
}

// gather reads everything that a decision rests on. A part that cannot be read sets ListError.
func (r *observer) gather(ctx context.Context, group *v1alpha1.CommGroup) *Snapshot {
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

// readRuns reads the group's CommRuns and puts the group together. Where its status names a later run than they do,
// the API server says whether the cache is behind or the CommRun was deleted.
func (r *observer) readRuns(ctx context.Context, s *Snapshot) error {
	defer func() { s.Group = state.Join(s.Stored, s.Runs) }()
	var list v1alpha1.CommRunList
	err := r.Client.List(ctx, &list, client.InNamespace(s.Stored.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	s.Runs = state.RunsOf(s.Stored, list.Items)
	s.StoredRun = state.Latest(s.Runs)
	run := s.Stored.Status.Run
	if run == nil || s.StoredRun != nil && s.StoredRun.Status.Number >= run.Number {
		return nil
	}
	s.StoredRun = nil
	var live v1alpha1.CommRun
	name := cmp.Or(run.Name, v1alpha1.CommRunName(s.Stored.Name, run.Number))
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.Stored.Namespace, Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		s.RunDeleted = true
		return nil
	case err != nil:
		return fmt.Errorf("commrun %s: %w", name, err)
	}
	others := slices.DeleteFunc(s.Runs, func(r v1alpha1.CommRun) bool { return r.Name == name })
	s.Runs = slices.Concat(others, state.RunsOf(s.Stored, []v1alpha1.CommRun{live}))
	if latest := state.Latest(s.Runs); latest != nil && latest.Status.Number >= run.Number {
		s.StoredRun = latest
	} else {
		s.RunDeleted = true // another one has its name by now
	}
	return nil
}

// missingPods names the pods that a CommTask awaits a report of and the cache does not have. They may have been
// deleted; or the cache has the CommTask already and not yet the pod, as in a manager that just took over. Only the API
// itself can tell, and a run that was closed by mistake stays closed.
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
			await(runpod.GroupName(s.Group, ct.Spec.Session.RunID, ct.Spec.NodeName))
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

// goneHolds is how long the API server's answer holds that it has no such pod. Pods that stay missing, as where their
// CommTasks cannot be written, are then no list of thousands of pods in each reconcile.
const goneHolds = refusedRetry

// gonePods is when the API server was last asked for awaited pods that it did not have, by group. No decision needs it:
// it spares reads, and a new manager does without.
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

func (g *gonePods) forget(group types.NamespacedName) {
	g.lock.Lock()
	defer g.lock.Unlock()
	delete(g.groups, group)
}

// inSession says whether the node's agent takes part in a group's stage: it has answered, and was not told to end.
func inSession(ct *v1alpha1.CommTask) bool {
	a, r := ct.Spec.Session, ct.Status.Session
	return a != nil && r != nil && a.State == v1alpha1.SessionOpen && r.RunID == a.RunID &&
		r.State != v1alpha1.SessionEnded && r.State != v1alpha1.SessionFailed
}

// readMissingPods adds to the snapshot the awaited pods that the cache does not have and the API server does.
func (r *observer) readMissingPods(ctx context.Context, s *Snapshot) error {
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
		if err == nil && pod.Labels[v1alpha1.LabelGroupUID] == string(s.Group.UID) &&
			pod.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRun {
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

// liveRunPods lists the group's run pods at the API itself, page by page; all pages are of one state of the cluster.
func (r *observer) liveRunPods(ctx context.Context, group metav1.Object) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for next := ""; ; {
		var page corev1.PodList
		err := r.APIReader.List(ctx, &page, client.InNamespace(group.GetNamespace()), runPodsOf(group),
			client.Limit(podsPerPage), client.Continue(next))
		if err != nil {
			return nil, err
		}
		pods = append(pods, page.Items...)
		if next = page.Continue; next == "" {
			return pods, nil
		}
	}
}

// lookUpConfigMap asks the API itself for the ConfigMap: the cache holds only those that the controller made.
func (r *observer) lookUpConfigMap(ctx context.Context, s *Snapshot) error {
	var cm corev1.ConfigMap
	err := r.APIReader.Get(ctx,
		types.NamespacedName{Namespace: s.Group.Namespace, Name: publish.ConfigMapName(s.Group)}, &cm)
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

// podsPerPage bounds one answer of the API server.
const podsPerPage = 500

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

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/commrun"
	"rcclx.io/commgroup-operator/controllers/objects"
	"rcclx.io/commgroup-operator/controllers/podstate"
	"rcclx.io/commgroup-operator/controllers/sharing"
	"rcclx.io/commgroup-operator/internal/state"
)

// isPlanned says whether a CommTask of the pod's namespace and group controls it. Anybody may label a pod as one of a
// run: one that is on no node holds no GPU, and must not keep a node from others.
func (r *observer) isPlanned(ctx context.Context, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "CommTask" {
		return false
	}
	var ct v1alpha1.CommTask
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, &ct,
		client.UnsafeDisableDeepCopy)
	return err == nil && ct.UID == owner.UID && ct.Spec.Group.UID == pod.Labels[v1alpha1.LabelGroupUID]
}

// gatherOthers reads what other groups run: their pods, and the nodes that their stages claim.
func (r *observer) gatherOthers(ctx context.Context, s *Snapshot) error {
	shared := client.UnsafeDisableDeepCopy
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRun},
		shared); err != nil {
		return fmt.Errorf("run pods of other groups: %w", err)
	}
	own := string(s.Group.UID)
	s.OtherRunPods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Labels[v1alpha1.LabelGroupUID] == own || !podstate.Alive(&pod) ||
			pod.Spec.NodeName == "" && !r.isPlanned(ctx, &pod)
	})
	var groups v1alpha1.CommGroupList
	if err := r.Client.List(ctx, &groups, shared); err != nil {
		return fmt.Errorf("other groups: %w", err)
	}
	s.Claims = nil
	var runs v1alpha1.CommRunList
	if err := r.Client.List(ctx, &runs, shared); err != nil {
		return fmt.Errorf("runs of other groups: %w", err)
	}
	going := slices.DeleteFunc(groups.Items, func(g v1alpha1.CommGroup) bool {
		return g.Status.Run == nil || g.Status.Run.Phase != v1alpha1.RunPhaseRunning || string(g.UID) == own
	})
	all := state.JoinAll(going, runs.Items)
	for i := range all {
		group := &all[i]
		claim := sharing.ClaimOf(group)
		if claim == nil || string(group.UID) == own {
			continue
		}
		var nodes v1alpha1.CommTaskList
		if err := r.Client.List(ctx, &nodes, client.InNamespace(group.Namespace), ofGroup(group), shared); err != nil {
			return fmt.Errorf("commtasks of %s: %w", claim.Group, err)
		}
		for j := range nodes.Items {
			ct := &nodes.Items[j]
			if a := ct.Spec.Session; a != nil && a.State == v1alpha1.SessionOpen && a.RunID == group.Status.Run.ID {
				claim.Nodes = append(claim.Nodes, ct.Spec.NodeName)
			}
		}
		s.Claims = append(s.Claims, *claim)
	}
	return nil
}

// lookAt asks the API itself which pods on the nodes hold GPUs that are not of this group's runs: the cache has none
// but run pods. A node whose pods cannot be listed waits as a busy one does: not known is not free.
func (r *observer) lookAt(ctx context.Context, s *Snapshot, nodes []string) error {
	holders := make([]string, len(nodes))
	at := make(map[string]int, len(nodes))
	for i, name := range nodes {
		at[name] = i
	}
	look := func(name string) error {
		var pods corev1.PodList
		err := r.APIReader.List(ctx, &pods,
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)})
		if err != nil {
			return fmt.Errorf("pods on node %s: %w", name, err)
		}
		holders[at[name]] = sharing.Holders(pods.Items, objects.GPUResource(&s.Group.Spec), s.Group)
		return nil
	}
	errs := atOnce(nodes, look)
	s.Looked, s.Unread = make(map[string]string, len(nodes)), map[string]string{}
	for i, name := range nodes {
		if errs[i] == nil {
			s.Looked[name] = holders[i]
		} else {
			s.Unread[name] = errs[i].Error()
		}
	}
	r.looks.add(client.ObjectKeyFromObject(s.Group), s.Looked, s.Now)
	r.looks.add(client.ObjectKeyFromObject(s.Group), s.Unread, s.Now)
	return errors.Join(errs...)
}

// lookMemory is when nodes were last seen busy, by group. No decision needs it: it spares reads, and a new manager does
// without.
type lookMemory struct {
	lock   sync.Mutex
	groups map[types.NamespacedName]map[string]time.Time
}

// of the group what is younger than a poll.
func (m *lookMemory) of(group types.NamespacedName, now time.Time) map[string]time.Time {
	m.lock.Lock()
	defer m.lock.Unlock()
	maps.DeleteFunc(m.groups[group], func(node string, _ time.Time) bool {
		return !commrun.Lately(m.groups[group], node, now)
	})
	if len(m.groups[group]) == 0 {
		delete(m.groups, group)
	}
	return maps.Clone(m.groups[group])
}

// add notes the nodes that the look has shown to be busy.
func (m *lookMemory) add(group types.NamespacedName, looked map[string]string, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for node, holders := range looked {
		if holders == "" {
			continue
		}
		if m.groups == nil {
			m.groups = map[types.NamespacedName]map[string]time.Time{}
		}
		if m.groups[group] == nil {
			m.groups[group] = map[string]time.Time{}
		}
		m.groups[group][node] = now
	}
}

func (m *lookMemory) forget(group types.NamespacedName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.groups, group)
}

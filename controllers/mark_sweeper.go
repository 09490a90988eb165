package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/gating"
	"rcclx.io/commgroup-operator/internal/units"
)

// MarkSweeper rids Nodes of marks whose group was deleted while no manager was there to lift them.
type MarkSweeper struct {
	Client    client.Client
	APIReader client.Reader
	Now       func() time.Time
	// Tick says when to sweep.
	Tick <-chan time.Time
	// Namespaces are the only ones that the manager serves, and may read; none means all. Marks of groups elsewhere are
	// orphans too: no manager looks after them.
	Namespaces []string
	// Access to them. Marks of groups of a namespace that there is and that cannot be read stay.
	Access *Access
	// Report is told of what could not be done.
	Report func(error)
}

// sweepInterval between two sweeps.
const sweepInterval = 10 * time.Minute

// NeedLeaderElection says that only one manager sweeps.
func (m *MarkSweeper) NeedLeaderElection() bool { return true }

// Start sweeps at once and then at every tick, until the context ends.
func (m *MarkSweeper) Start(ctx context.Context) error {
	for {
		if err := m.Sweep(ctx); err != nil && ctx.Err() == nil {
			m.Report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.Tick:
		}
	}
}

// Sweep looks at all Nodes once. Before it takes a group for gone it asks the API server itself: the cache may not have
// it yet.
func (m *MarkSweeper) Sweep(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := m.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	live, err := m.liveGroups(ctx, m.Client, nodes.Items)
	if err != nil {
		return err
	}
	writes := gating.Orphaned(nodes.Items, live)
	if len(writes) == 0 {
		return nil
	}
	fresh, err := m.liveGroups(ctx, m.APIReader, nodes.Items)
	if err != nil {
		return err
	}
	maps.Copy(live, fresh)
	writes = gating.Orphaned(nodes.Items, live)
	errs := writeNodes(ctx, m.Client, writes, m.Now())
	// A conflict is someone who wrote the Node since: the next sweep sees what is left.
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil || apierrors.IsConflict(err) })
	if len(errs) > 0 {
		return fmt.Errorf("marks of groups that are gone, on %s: %w", units.Counted(len(errs), "node"), errs[0])
	}
	return nil
}

// liveGroups are the UIDs of all groups that there are, and of those that marks name in namespaces that cannot be read.
func (m *MarkSweeper) liveGroups(ctx context.Context, reader client.Reader,
	nodes []corev1.Node) (map[string]bool, error) {
	namespaces := m.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	live, unread := map[string]bool{}, map[string]bool{}
	for _, name := range namespaces {
		var groups v1alpha1.CommGroupList
		var err error
		refused := m.Access.Refused(name)
		if !refused {
			err = reader.List(ctx, &groups, client.InNamespace(name))
			refused = apierrors.IsForbidden(err) && name != metav1.NamespaceAll
		}
		if refused {
			namespace, err := namespaceOf(ctx, m.APIReader, name)
			if err != nil {
				m.Report(err) // and its marks stay
			}
			unread[name] = namespace != nil || err != nil
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("commgroups: %w", err)
		}
		for i := range groups.Items {
			live[string(groups.Items[i].UID)] = true
		}
	}
	for i := range nodes {
		for key, s := range gating.Statements(nodes[i].Annotations) {
			namespace, _, _ := strings.Cut(s.Group, "/")
			if uid, ok := gating.UIDOf(key); ok && unread[namespace] {
				live[uid] = true
			}
		}
	}
	return live, nil
}

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/runpod"
)

// accessInterval between two looks at the rights in the served namespaces.
const accessInterval = 30 * time.Second

// ErrReadableAgain ends a manager that began without a namespace and may read it now: its next start serves it.
var ErrReadableAgain = errors.New("namespaces that were left out at the start can be read now")

// Access knows in which of the served namespaces the manager has the rights that its cache needs. A namespace whose
// Role or RoleBinding was deleted, or that is gone itself, would keep the cache from filling, and so stop the operator
// for all others: it is left out. A nil Access serves the whole cluster.
type Access struct {
	Client client.Client
	Log    logr.Logger
	// Tick says when to check again; nil is every accessInterval.
	Tick <-chan time.Time

	served  []string
	leftOut []string // at the start: not in the cache

	mu      sync.Mutex
	refused map[string]string // what may not be done, by namespace
}

// NewAccess looks at the rights in the served namespaces; where none are named it is nil.
func NewAccess(ctx context.Context, c client.Client, log logr.Logger, served []string) (*Access, error) {
	if len(served) == 0 {
		return nil, nil
	}
	a := &Access{Client: c, Log: log, served: served, refused: map[string]string{}}
	if err := a.look(ctx); err != nil {
		return nil, err
	}
	for _, namespace := range served {
		if a.Refused(namespace) {
			a.leftOut = append(a.leftOut, namespace)
		}
	}
	return a, nil
}

// Refused says that the namespace is served and cannot be.
func (a *Access) Refused(namespace string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused[namespace] != "" || slices.Contains(a.leftOut, namespace)
}

// CacheOptions are those of the namespaces that can be read.
func (a *Access) CacheOptions(operatorNamespace string) cache.Options {
	if a == nil {
		return CacheOptions()
	}
	readable := slices.DeleteFunc(slices.Clone(a.served), a.Refused)
	if len(readable) > 0 {
		return CacheOptions(readable...)
	}
	// No namespace would mean every one.
	options := CacheOptions(operatorNamespace)
	options.NewInformer = informerOfNone
	return options
}

// informerOfNone reads what is not in served namespaces alone.
func informerOfNone(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration,
	indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	switch object.(type) {
	case *corev1.Node, *v1alpha1.CommNode:
	default:
		from = noObjects{}
	}
	return toolscache.NewSharedIndexInformer(from, object, resync, indexers)
}

// noObjects is a list that is empty and stays so.
type noObjects struct{}

func (noObjects) List(metav1.ListOptions) (runtime.Object, error) { return &metav1.List{}, nil }

func (noObjects) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported says that the list has to be asked for.
func (noObjects) IsWatchListSemanticsUnSupported() bool { return true }

// NeedLeaderElection says that every manager has a cache.
func (a *Access) NeedLeaderElection() bool { return false }

// Start checks again at every tick, until the context ends or a namespace that was left out can be read.
func (a *Access) Start(ctx context.Context) error {
	tick := a.Tick
	if tick == nil {
		ticker := time.NewTicker(accessInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if err := a.look(ctx); err != nil {
			if ctx.Err() == nil {
				a.Log.Error(err, "Could not look at the rights in the served namespaces; trying again",
					"in", accessInterval.String())
			}
			continue
		}
		if back := a.back(); len(back) > 0 {
			return fmt.Errorf("%w: %s", ErrReadableAgain, strings.Join(back, ", "))
		}
	}
}

// back are the namespaces that were left out and could be read at the last look.
func (a *Access) back() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.leftOut), func(namespace string) bool { return a.refused[namespace] != "" })
}

// look asks the API server, and tells what has changed.
func (a *Access) look(ctx context.Context) error {
	refusals := make([]string, len(a.served))
	indices := make([]int, len(a.served))
	for i := range indices {
		indices[i] = i
	}
	if err := errors.Join(atOnce(indices, func(i int) (err error) {
		refusals[i], err = denied(ctx, a.Client, a.served[i])
		return err
	})...); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, namespace := range a.served {
		switch refusals[i] {
		case a.refused[namespace]:
		case "":
			a.Log.Info("The rights in a namespace are back", "namespace", namespace)
		default:
			a.Log.Error(nil, "A namespace cannot be served; the others are. Its CommGroups are left as they are. "+
				"If it is gone, take it out of the chart's value namespaces; else restore Role and "+
				"RoleBinding commgroup-manager-groups in it by helm upgrade. The manager looks again by itself",
				"namespace", namespace, "refused", refusals[i], "every", accessInterval.String())
		}
		a.refused[namespace] = refusals[i]
	}
	return nil
}

// cached are the lists that the cache makes in each served namespace; as CacheOptions has them.
var cached = []authorizationv1.ResourceAttributes{
	{Group: v1alpha1.GroupVersion.Group, Resource: "commgroups"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "commtasks"},
	{Group: v1alpha1.GroupVersion.Group, Resource: "commruns"},
	{Resource: "pods"},
	{Resource: "configmaps"},
	{Resource: "serviceaccounts", Name: runpod.ServiceAccount},
	{Group: rbacv1.GroupName, Resource: "rolebindings", Name: runpod.RoleBinding},
}

// denied is what the cache needs in the namespace and may not do; empty where it may do all.
func denied(ctx context.Context, c client.Client, namespace string) (string, error) {
	for _, attributes := range cached {
		for _, verb := range []string{"list", "watch"} {
			attributes.Namespace, attributes.Verb = namespace, verb
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
			if err := c.Create(ctx, review); err != nil {
				return "", fmt.Errorf("whether the manager may %s %s in namespace %s: "+
					"%w; let it create selfsubjectaccessreviews (group %s)",
					verb, attributes.Resource, namespace, err, authorizationv1.GroupName)
			}
			if !review.Status.Allowed {
				return verb + " " + attributes.Resource, nil
			}
		}
	}
	return "", nil
}

package controllers

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/controllers/runpod"
)

// Dependencies are what a reconciler works with.
type Dependencies struct {
	// Client reads from the cache, APIReader from the API server itself.
	Client    client.Client
	APIReader client.Reader
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	Config    Config
	// Access to the served namespaces; nil where all are.
	Access *Access
}

// Config is what the manager's flags say.
type Config struct {
	// AgentImage holds /agent: run pods copy the binary out of it.
	AgentImage string
	// AgentPullPolicy of that image; empty leaves it to the kubelet's default.
	AgentPullPolicy corev1.PullPolicy
	// Namespaces are the only ones that the operator serves; none means all.
	Namespaces []string
	// DefaultRuntimeImage of run pods whose CommGroup names none; may be empty.
	DefaultRuntimeImage string
	// PrivilegedNamespaces are those whose CommGroups may do what reaches beyond their namespace: run pods in the
	// node's network, and mark nodes.
	PrivilegedNamespaces []string
	// RunPriorityClass of run pods whose CommGroup names none; empty leaves it to the cluster's default.
	RunPriorityClass string
}

// pods is the part for run pods.
func (c *Config) pods() runpod.Config {
	return runpod.Config{
		AgentImage:          c.AgentImage,
		AgentPullPolicy:     c.AgentPullPolicy,
		DefaultRuntimeImage: c.DefaultRuntimeImage,
		RunPriorityClass:    c.RunPriorityClass,
	}
}

// serves says whether CommGroups of the namespace are the manager's business.
func (c *Config) serves(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// errNamespaces: the namespaces that the manager serves do not fit together.
var errNamespaces = errors.New("namespaces")

// CheckNamespaces says what is wrong with the namespaces that a manager shall serve; none means all.
func CheckNamespaces(operator string, served, privileged []string) error {
	for _, name := range slices.Concat(served, privileged) {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%w: %q is no name of a namespace: %s", errNamespaces, name, problems[0])
		}
	}
	if len(served) == 0 {
		return nil
	}
	if slices.Contains(served, operator) {
		return fmt.Errorf(
			"%w: %s is the operator's own, whose pods may be privileged: keep CommGroups in others",
			errNamespaces,
			operator,
		)
	}
	for _, name := range privileged {
		if !slices.Contains(served, name) {
			return fmt.Errorf(
				"%w: %s is privileged and not served: add it to --namespaces, or take it out of "+
					"--privileged-namespaces",
				errNamespaces,
				name,
			)
		}
	}
	return nil
}

// servedNamespaces are those that a cache is limited to; nil means all.
func servedNamespaces(names []string) map[string]cache.Config {
	if len(names) == 0 {
		return nil
	}
	out := make(map[string]cache.Config, len(names))
	for _, name := range names {
		out[name] = cache.Config{}
	}
	return out
}

package controllers

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

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
		return fmt.Errorf("%w: %s is the operator's own, whose pods may be privileged: keep CommGroups in others", errNamespaces, operator)
	}
	for _, name := range privileged {
		if !slices.Contains(served, name) {
			return fmt.Errorf("%w: %s is privileged and not served: add it to --namespaces, or take it out of --privileged-namespaces", errNamespaces, name)
		}
	}
	return nil
}

// serves says whether CommGroups of the namespace are the manager's business.
func (c *Config) serves(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
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

package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/yaml"
)

// MonitorOptions are what the manager's flags set of the monitors' pods.
type MonitorOptions struct {
	// Resources of a monitor; nil leaves the default.
	Resources *corev1.ResourceRequirements
	// PriorityClass of the monitors; empty leaves it to the cluster's default.
	PriorityClass string
	// Tolerations of the monitors; nil tolerates every taint.
	Tolerations []corev1.Toleration
	// PullSecrets are names of Secrets in the operator's namespace.
	PullSecrets []string
	// MetricsPort of the monitors' pods; 0 serves no metrics.
	MetricsPort int32
}

// monitorMetricsVariable tells a monitor its port: a variable, which an older agent does not mind.
const monitorMetricsVariable = "METRICS_PORT"

// ParseResources reads a container's resources as JSON; empty text is nil.
func ParseResources(text string) (*corev1.ResourceRequirements, error) {
	if text == "" {
		return nil, nil
	}
	var r corev1.ResourceRequirements
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("no resources of a container, such as {\"limits\":{\"memory\":\"128Mi\"}}: %w", err)
	}
	for name, request := range r.Requests {
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			return nil, fmt.Errorf("the request of %s, %s, is above its limit, %s: lower it", name, &request, &limit)
		}
	}
	return &r, nil
}

// ParseTolerations reads a pod's tolerations as JSON; empty text is nil.
func ParseTolerations(text string) ([]corev1.Toleration, error) {
	if text == "" {
		return nil, nil
	}
	var t []corev1.Toleration
	if err := yaml.UnmarshalStrict([]byte(text), &t); err != nil {
		return nil, fmt.Errorf("no list of tolerations, such as [{\"operator\":\"Exists\"}]: %w", err)
	}
	for i := range t {
		if t[i].Operator == corev1.TolerationOpExists && t[i].Value != "" {
			return nil, fmt.Errorf("toleration %d: operator Exists takes no value, and %q is given: remove it", i, t[i].Value)
		}
		if t[i].Key == "" && t[i].Operator != corev1.TolerationOpExists {
			return nil, fmt.Errorf("toleration %d names no key: name one, or use operator Exists", i)
		}
	}
	return t, nil
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

// set puts the options into a monitor's pod.
func (o *MonitorOptions) set(pod *corev1.PodSpec, pull corev1.PullPolicy) {
	pod.PriorityClassName = o.PriorityClass
	if o.Tolerations != nil {
		pod.Tolerations = o.Tolerations
	}
	for _, name := range o.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	for i := range pod.Containers {
		pod.Containers[i].ImagePullPolicy = pull
		if o.MetricsPort > 0 {
			pod.Containers[i].Env = append(pod.Containers[i].Env, corev1.EnvVar{Name: monitorMetricsVariable, Value: strconv.Itoa(int(o.MetricsPort))})
			pod.Containers[i].Ports = append(pod.Containers[i].Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: o.MetricsPort, Protocol: corev1.ProtocolTCP})
		}
		if o.Resources != nil {
			pod.Containers[i].Resources = *o.Resources
		}
	}
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

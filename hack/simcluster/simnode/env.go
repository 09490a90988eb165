package simnode

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Expand replaces $(NAME) by what lookup says; $$ stands for one $, and a reference that is not known stays as it is.
func Expand(s string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				out.WriteString(s[i:])
				return out.String()
			}
			name := s[i+2 : i+2+end]
			if value, ok := lookup(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString(s[i : i+3+end])
			}
			i += 2 + end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// Env is an ordered list of variables; the last one of a name counts.
type Env []corev1.EnvVar

// Lookup finds a variable's value.
func (e Env) Lookup(name string) (string, bool) {
	for _, v := range slices.Backward(e) {
		if v.Name == name {
			return v.Value, true
		}
	}
	return "", false
}

// Strings gives NAME=VALUE, each name once, sorted.
func (e Env) Strings() []string {
	values := map[string]string{}
	for _, v := range e {
		values[v.Name] = v.Value
	}
	out := make([]string, 0, len(values))
	for name, value := range values {
		out = append(out, name+"="+value)
	}
	sort.Strings(out)
	return out
}

// EnvSources gives what variables may be taken from. A map that is nil means that the object is not there.
type EnvSources struct {
	ConfigMap func(name string) (map[string]string, error)
	Secret    func(name string) (map[string]string, error)
	Field     func(path string) (string, error)
	Resource  func(ref *corev1.ResourceFieldSelector) (string, error)
}

// BuildEnv computes a container's variables as the kubelet does: envFrom first, then env in order with $(NAME) of what
// is already defined. base holds what the runtime itself sets.
func BuildEnv(c *corev1.Container, base Env, src EnvSources) (Env, error) {
	env := slices.Clone(base)
	for _, from := range c.EnvFrom {
		data, err := envFromData(from, src)
		if err != nil {
			return nil, err
		}
		for _, key := range sortedKeys(data) {
			env = append(env, corev1.EnvVar{Name: from.Prefix + key, Value: data[key]})
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env = append(env, corev1.EnvVar{Name: v.Name, Value: Expand(v.Value, env.Lookup)})
			continue
		}
		value, found, err := valueFrom(v.ValueFrom, src)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if found {
			env = append(env, corev1.EnvVar{Name: v.Name, Value: value})
		}
	}
	return env, nil
}

func envFromData(from corev1.EnvFromSource, src EnvSources) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		data, err := src.ConfigMap(from.ConfigMapRef.Name)
		return requireObject("configmap", from.ConfigMapRef.Name, data, err, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		data, err := src.Secret(from.SecretRef.Name)
		return requireObject("secret", from.SecretRef.Name, data, err, from.SecretRef.Optional)
	}
	return nil, nil
}

func requireObject(kind, name string, data map[string]string, err error, optional *bool) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	if data == nil && (optional == nil || !*optional) {
		return nil, fmt.Errorf("%s %q not found", kind, name)
	}
	return data, nil
}

func valueFrom(from *corev1.EnvVarSource, src EnvSources) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = src.Field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = src.Resource(from.ResourceFieldRef)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := src.ConfigMap(ref.Name)
		return requireKey("configmap", ref.Name, ref.Key, data, err, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := src.Secret(ref.Name)
		return requireKey("secret", ref.Name, ref.Key, data, err, ref.Optional)
	}
	return "", false, fmt.Errorf("this kind of valueFrom is not known to the simulated node")
}

func requireKey(kind, name, key string, data map[string]string, err error,
	optional *bool) (value string, found bool, _ error) {
	data, err = requireObject(kind, name, data, err, optional)
	if err != nil {
		return "", false, err
	}
	value, found = data[key]
	if !found && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %q", key, kind, name)
	}
	return value, found, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// FieldValue resolves a downward API field path of a pod.
func FieldValue(pod *corev1.Pod, hostIP, podIP, path string) (string, error) {
	if base, key, ok := subscript(path); ok {
		switch base {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("field path %q takes no key", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return podIP, nil
	}
	return "", fmt.Errorf("field path %q is not known to the simulated node", path)
}

func subscript(path string) (base, key string, ok bool) {
	base, rest, found := strings.Cut(path, "['")
	if !found || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return base, strings.TrimSuffix(rest, "']"), true
}

func formatMap(m map[string]string) string {
	var out strings.Builder
	for _, k := range sortedKeys(m) {
		fmt.Fprintf(&out, "%s=%s\n", k, strconv.Quote(m[k]))
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// ResourceValue resolves a resourceFieldRef: in units of the divisor, rounded up. A limit that is not set means all
// that the node has.
func ResourceValue(c *corev1.Container, ref *corev1.ResourceFieldSelector,
	allocatable corev1.ResourceList) (string, error) {
	side, name, ok := strings.Cut(ref.Resource, ".")
	if !ok {
		return "", fmt.Errorf("resource %q is not of the form limits.NAME or requests.NAME", ref.Resource)
	}
	key := corev1.ResourceName(name)
	var quantity resource.Quantity
	switch side {
	case "limits":
		quantity, ok = c.Resources.Limits[key]
		if !ok {
			quantity = allocatable[key]
		}
	case "requests":
		quantity = c.Resources.Requests[key]
	default:
		return "", fmt.Errorf("resource %q is not of the form limits.NAME or requests.NAME", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if key == corev1.ResourceCPU {
		return strconv.FormatInt(ceilDivide(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceilDivide(quantity.Value(), divisor.Value()), 10), nil
}

func ceilDivide(a, b int64) int64 {
	if b <= 0 {
		return a
	}
	return (a + b - 1) / b
}

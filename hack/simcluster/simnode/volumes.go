package simnode

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// serviceAccountPath is where every pod's service-account volume is mounted.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// volumes holds one pod's volumes as directories.
type volumes struct {
	client kubernetes.Interface
	// dir holds the volumes; shm, where set, the memory-backed ones; root is the node's tree for hostPath.
	dir, shm, root string
	hostIP, podIP  string
	allocatable    corev1.ResourceList
	now            func() time.Time
	tokens         map[string]issuedToken
}

type issuedToken struct {
	value string
	// renewAt is 80 % into the token's life, when the kubelet asks for a new one too.
	renewAt time.Time
}

// path is where a volume lies.
func (v *volumes) path(volume corev1.Volume) string {
	switch {
	case volume.HostPath != nil:
		return filepath.Join(v.root, volume.HostPath.Path)
	case volume.EmptyDir != nil && volume.EmptyDir.Medium == corev1.StorageMediumMemory && v.shm != "":
		return filepath.Join(v.shm, volume.Name)
	}
	return filepath.Join(v.dir, volume.Name)
}

// sync makes or refreshes every volume of the pod.
func (v *volumes) sync(ctx context.Context, pod *corev1.Pod) error {
	for _, volume := range pod.Spec.Volumes {
		if err := v.syncOne(ctx, pod, volume); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

func (v *volumes) syncOne(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) error {
	path := v.path(volume)
	switch {
	case volume.HostPath != nil:
		return syncHostPath(volume.HostPath, path)
	case volume.EmptyDir != nil:
		return os.MkdirAll(path, 0o777)
	}
	files := map[string]string{}
	var err error
	switch {
	case volume.ConfigMap != nil:
		err = v.addConfigMap(ctx, pod, files, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		err = v.addSecret(ctx, pod, files, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		err = v.addDownward(pod, files, volume.DownwardAPI.Items)
	case volume.Projected != nil:
		for i := range volume.Projected.Sources {
			if err = v.addProjection(ctx, pod, files, volume.Name, &volume.Projected.Sources[i]); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return writeFiles(path, files)
}

func syncHostPath(source *corev1.HostPathVolumeSource, path string) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && kind == corev1.HostPathDirectory && !info.IsDir():
		return fmt.Errorf("hostPath type check failed: %s is not a directory", source.Path)
	case err == nil && kind == corev1.HostPathFile && info.IsDir():
		return fmt.Errorf("hostPath type check failed: %s is not a file", source.Path)
	case err == nil:
		return nil
	case !os.IsNotExist(err):
		return err
	case kind == corev1.HostPathUnset || kind == corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case kind == corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return fmt.Errorf("hostPath type check failed: %s is not there on the node", source.Path)
}

func (v *volumes) addProjection(ctx context.Context, pod *corev1.Pod, files map[string]string, volume string,
	s *corev1.VolumeProjection) error {
	switch {
	case s.ServiceAccountToken != nil:
		token, err := v.token(ctx, pod, volume+"/"+s.ServiceAccountToken.Path, s.ServiceAccountToken)
		if err != nil {
			return err
		}
		files[s.ServiceAccountToken.Path] = token
		return nil
	case s.ConfigMap != nil:
		return v.addConfigMap(ctx, pod, files, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		return v.addSecret(ctx, pod, files, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return v.addDownward(pod, files, s.DownwardAPI.Items)
	}
	return fmt.Errorf("this kind of projected source is not known to the simulated node")
}

// token asks for a token of the pod's own service account, bound to the pod, as the kubelet does.
func (v *volumes) token(ctx context.Context, pod *corev1.Pod, key string,
	p *corev1.ServiceAccountTokenProjection) (string, error) {
	if t, ok := v.tokens[key]; ok && v.now().Before(t.renewAt) {
		return t.value, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	got, err := v.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	life := got.Status.ExpirationTimestamp.Sub(v.now())
	v.tokens[key] = issuedToken{value: got.Status.Token, renewAt: v.now().Add(life * 8 / 10)}
	return got.Status.Token, nil
}

// configMap reads a ConfigMap's data; nil means that it is not there.
func (v *volumes) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	object, err := v.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	maps.Copy(data, object.Data)
	for k, b := range object.BinaryData {
		data[k] = string(b)
	}
	return data, nil
}

// secret reads a Secret's data; nil means that it is not there.
func (v *volumes) secret(ctx context.Context, namespace, name string) (map[string]string, error) {
	object, err := v.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for k, b := range object.Data {
		data[k] = string(b)
	}
	return data, nil
}

func (v *volumes) addConfigMap(ctx context.Context, pod *corev1.Pod, files map[string]string, name string,
	items []corev1.KeyToPath, optional *bool) error {
	data, err := v.configMap(ctx, pod.Namespace, name)
	if data, err = requireObject("configmap", name, data, err, optional); err != nil {
		return err
	}
	return addItems(files, data, items, "configmap "+name, optional)
}

func (v *volumes) addSecret(ctx context.Context, pod *corev1.Pod, files map[string]string, name string,
	items []corev1.KeyToPath, optional *bool) error {
	data, err := v.secret(ctx, pod.Namespace, name)
	if data, err = requireObject("secret", name, data, err, optional); err != nil {
		return err
	}
	return addItems(files, data, items, "secret "+name, optional)
}

func addItems(files, data map[string]string, items []corev1.KeyToPath, what string, optional *bool) error {
	if len(items) == 0 {
		maps.Copy(files, data)
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		switch {
		case ok:
			files[item.Path] = value
		case optional == nil || !*optional:
			return fmt.Errorf("%s references non-existent config key: %s", what, item.Key)
		}
	}
	return nil
}

func (v *volumes) addDownward(pod *corev1.Pod, files map[string]string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = FieldValue(pod, v.hostIP, v.podIP, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			c := findContainer(pod, item.ResourceFieldRef.ContainerName)
			if c == nil {
				return fmt.Errorf("downward API: no container named %q", item.ResourceFieldRef.ContainerName)
			}
			value, err = ResourceValue(c, item.ResourceFieldRef, v.allocatable)
		}
		if err != nil {
			return err
		}
		files[item.Path] = value
	}
	return nil
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// writeFiles makes the directory hold exactly these files. Each is replaced by a rename, so that a reader sees the old
// or the new one, and one that did not change is left alone.
func writeFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, value := range files {
		path := filepath.Join(dir, name)
		if !strings.HasPrefix(path, dir+string(filepath.Separator)) {
			return fmt.Errorf("file name %q leaves the volume", name)
		}
		if old, err := os.ReadFile(path); err == nil && string(old) == value {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path+".part", []byte(value), 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".part", path); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, kept := files[e.Name()]; !kept && !e.IsDir() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// mounts lists where a container sees its volumes.
func (v *volumes) mounts(pod *corev1.Pod, c *corev1.Container, lookup func(string) (string, bool)) ([]Mount, error) {
	byName := map[string]corev1.Volume{}
	for _, volume := range pod.Spec.Volumes {
		byName[volume.Name] = volume
	}
	var mounts []Mount
	for _, m := range c.VolumeMounts {
		volume, ok := byName[m.Name]
		if !ok {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod has not", c.Name, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = Expand(m.SubPathExpr, lookup)
		}
		real := filepath.Join(v.path(volume), sub)
		if sub != "" && volume.EmptyDir != nil {
			if err := os.MkdirAll(real, 0o755); err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, Mount{Path: m.MountPath, Real: real})
	}
	return mounts, nil
}

package simnode

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestExpand(t *testing.T) {
	lookup := Env{{Name: "A", Value: "old"}, {Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}}.Lookup
	for in, want := range map[string]string{
		"":               "",
		"plain":          "plain",
		"$(A)":           "1",
		"x$(A)y$(B)z":    "x1y$(A)z", // values are not expanded again
		"$(MISSING)":     "$(MISSING)",
		"$$(A)":          "$(A)",
		"$$$(A)":         "$1",
		"$":              "$",
		"$A":             "$A",
		"$(A":            "$(A",
		"--node=$(A),$)": "--node=1,$)",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("a$(B)$$(C)$(")
	f.Fuzz(func(t *testing.T, in string) {
		if got := Expand(in, func(string) (string, bool) { return "", false }); len(got) > len(in) {
			t.Errorf("Expand(%q) = %q: it grew although nothing is known", in, got)
		}
	})
}

func TestBuildEnv(t *testing.T) {
	data := map[string]map[string]string{"cm": {"K": "v", "K2": "v2"}}
	src := EnvSources{
		ConfigMap: func(name string) (map[string]string, error) { return data[name], nil },
		Secret:    func(string) (map[string]string, error) { return nil, nil },
		Field:     func(path string) (string, error) { return "field:" + path, nil },
		Resource:  func(ref *corev1.ResourceFieldSelector) (string, error) { return "resource:" + ref.Resource, nil },
	}
	key := func(name, key string, optional bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
	}
	tests := map[string]struct {
		container corev1.Container
		want      []string
		wantErr   string
	}{
		"order and expansion": {
			container: corev1.Container{Env: []corev1.EnvVar{
				{Name: "A", Value: "$(BASE)-a"}, {Name: "B", Value: "$(A)/$(C)"}, {Name: "C", Value: "late"}}},
			want: []string{"A=base-a", "B=base-a/$(C)", "BASE=base", "C=late"},
		},
		"envFrom with prefix, env wins": {
			container: corev1.Container{
				EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
				Env: []corev1.EnvVar{{Name: "P_K", Value: "own"}}},
			want: []string{"BASE=base", "P_K2=v2", "P_K=own"},
		},
		"field, resource and key": {
			container: corev1.Container{Env: []corev1.EnvVar{
				{Name: "F",
					ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "R", ValueFrom: &corev1.EnvVarSource{
					ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
				{Name: "K", ValueFrom: key("cm", "K", false)}}},
			want: []string{"BASE=base", "F=field:metadata.name", "K=v", "R=resource:limits.cpu"},
		},
		"optional key that is not there": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "K", ValueFrom: key("cm", "NO", true)}}},
			want:      []string{"BASE=base"}},
		"key that is not there": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "K", ValueFrom: key("cm", "NO", false)}}},
			wantErr:   `variable K: couldn't find key NO in configmap "cm"`},
		"object that is not there": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "K", ValueFrom: key("none", "K", false)}}},
			wantErr:   `variable K: configmap "none" not found`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			env, err := BuildEnv(&tc.container, Env{{Name: "BASE", Value: "base"}}, src)
			if got := errorText(err); got != tc.wantErr {
				t.Fatalf("error %q, want %q", got, tc.wantErr)
			}
			if err == nil {
				if diff := cmp.Diff(tc.want, env.Strings()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFieldAndResourceValues(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n",
		UID: "u", Labels: map[string]string{"a": "1", "b/c": "2"}},
		Spec: corev1.PodSpec{NodeName: "node", ServiceAccountName: "sa"}}
	for path, want := range map[string]string{
		"metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "spec.nodeName": "node",
		"spec.serviceAccountName": "sa",
		"status.hostIP":           "127.77.1.1", "status.podIP": "127.77.1.2", "metadata.labels['b/c']": "2",
		"metadata.labels['none']": "",
		"metadata.labels":         "a=\"1\"\nb/c=\"2\"",
	} {
		if got, err := FieldValue(pod, "127.77.1.1", "127.77.1.2", path); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := FieldValue(pod, "", "", "spec.unknown"); err == nil {
		t.Errorf("spec.unknown = %q, want an error", got)
	}
	c := &corev1.Container{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}}}
	node := corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("8Gi")}
	for _, tc := range []struct{ resource, divisor, want string }{
		{"limits.cpu", "0", "2"}, {"limits.cpu", "1m", "1500"}, {"limits.memory", "1Mi", "1024"},
		{"requests.cpu", "0", "0"},
	} {
		ref := &corev1.ResourceFieldSelector{Resource: tc.resource, Divisor: resource.MustParse(tc.divisor)}
		if got, err := ResourceValue(c, ref, node); err != nil || got != tc.want {
			t.Errorf("%s / %s = %q, %v; want %q", tc.resource, tc.divisor, got, err, tc.want)
		}
	}
	if got, err := ResourceValue(&corev1.Container{}, &corev1.ResourceFieldSelector{Resource: "limits.cpu"},
		node); err != nil || got != "96" {
		t.Errorf("limits.cpu without a limit = %q, %v; want the node's 96", got, err)
	}
}

func TestRewriter(t *testing.T) {
	image := t.TempDir()
	if err := os.MkdirAll(filepath.Join(image, "opt/rocm/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := NewRewriter([]Mount{{"/scratch", "/v/scratch"}, {"/scratch/deep", "/v/deep"}, {"/host/sys", "/n/tree/sys"},
		{"/host/proc", "/n/tree/proc"}, {"/mixed/a", "/one/a"}, {"/mixed/b", "/two/b"}}, image)
	for in, want := range map[string]string{
		"/scratch":                   "/v/scratch",
		"/scratch/f":                 "/v/scratch/f",
		"/workshop":                  "/workshop",
		"/scratch/deep/x":            "/v/deep/x",
		"--dir=/scratch/f":           "--dir=/v/scratch/f",
		"/usr/bin:/scratch:/nowhere": "/usr/bin:/v/scratch:/nowhere",
		"cat /scratch/f >/scratch/g": "cat /v/scratch/f >/v/scratch/g",
		"a/scratch":                  "a/scratch",
		"https://host/scratch":       "https://host/scratch",
		"/opt/rocm/lib":              image + "/opt/rocm/lib",
		"/opt/rocm/none":             "/opt/rocm/none",
		"/host":                      "/n/tree",
		"/host/sys/class":            "/n/tree/sys/class",
		"/mixed":                     "/mixed",
		"/":                          "/",
		"":                           "",
	} {
		if got := r.String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestBindAddress(t *testing.T) {
	for in, want := range map[string]string{
		"--metrics-bind-address=:8080": "--metrics-bind-address=127.77.1.2:8080",
		"--addr=0.0.0.0:9":             "--addr=127.77.1.2:9",
		":8081":                        "127.77.1.2:8081",
		"--addr=127.0.0.1:9":           "--addr=127.0.0.1:9",
		"--addr=:0":                    "--addr=:0",
		"--flag=a:b":                   "--flag=a:b",
		"12:30":                        "12:30",
		"":                             "",
	} {
		if got := BindAddress(in, "127.77.1.2"); got != want {
			t.Errorf("BindAddress(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShouldRestart(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		kind   containerKind
		code   int32
		want   bool
	}{
		{always, kindMain, 0, true}, {always, kindMain, 1, true}, {onFailure, kindMain, 0, false},
		{onFailure, kindMain, 1, true},
		{never, kindMain, 1, false}, {always, kindInit, 0, false}, {always, kindInit, 1, true},
		{never, kindInit, 1, false},
		{never, kindSidecar, 0, true},
	} {
		if got := ShouldRestart(tc.policy, tc.kind, tc.code); got != tc.want {
			t.Errorf("ShouldRestart(%s, %d, %d) = %t", tc.policy, tc.kind, tc.code, got)
		}
	}
}

func TestNextBackoff(t *testing.T) {
	var got []time.Duration
	delay := time.Duration(0)
	for restarts := range int32(8) {
		delay = NextBackoff(delay, time.Second, restarts)
		got = append(got, delay)
	}
	want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 300 * time.Second, 300 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := NextBackoff(300*time.Second, 11*time.Minute, 9); got != 0 {
		t.Errorf("after 11 minutes of running the delay is %s, want none", got)
	}
}

func TestLedger(t *testing.T) {
	pod := func(gpus string) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{gpuResource: resource.MustParse(gpus)}}}}}
	}
	l := newLedger(map[corev1.ResourceName]int64{gpuResource: 8})
	if devices, reason, _ := l.admit("a", pod("6")); reason != "" || len(devices[gpuResource]) != 6 {
		t.Fatalf("first pod: devices %v, reason %q", devices, reason)
	}
	if _, reason, message := l.admit("b", pod("3")); reason != "OutOfamd.com/gpu" ||
		message != "Pod was rejected: Node didn't have enough resource: amd.com/gpu, requested: 3, used: "+
			"6, capacity: 8" {
		t.Errorf("second pod: %q: %q", reason, message)
	}
	devices, reason, _ := l.admit("c", pod("2"))
	if diff := cmp.Diff([]int64{6, 7}, devices[gpuResource]); diff != "" || reason != "" {
		t.Errorf("third pod: %s %s", reason, diff)
	}
	l.release("a")
	if _, reason, _ := l.admit("d", pod("6")); reason != "" {
		t.Errorf("after the release: %s", reason)
	}
	if _, reason, _ := l.admit("e", &corev1.PodSpec{Containers: []corev1.Container{{}}}); reason != "" {
		t.Errorf("a pod without GPUs: %s", reason)
	}
}

func TestProbeTracker(t *testing.T) {
	tracker := newProbeTracker(&corev1.Probe{SuccessThreshold: 2, FailureThreshold: 3})
	want := []probeVerdict{probeUndecided, probePassed, probeUndecided, probeUndecided, probeFailed,
		probeUndecided, probeUndecided}
	for i, ok := range []bool{true, true, false, false, false, true, false} {
		if got := tracker.observe(ok); got != want[i] {
			t.Errorf("result %d: %d, want %d", i, got, want[i])
		}
	}
}

func TestUnsupported(t *testing.T) {
	if why := Unsupported(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}}); why != "" {
		t.Errorf("emptyDir: %s", why)
	}
	for name, spec := range map[string]corev1.PodSpec{
		"volume": {Volumes: []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}},
		"hook": {Containers: []corev1.Container{{Lifecycle: &corev1.Lifecycle{}}}},
		"grpc": {Containers: []corev1.Container{
			{LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}}}}},
		"claims": {ResourceClaims: []corev1.PodResourceClaim{{Name: "c"}}},
	} {
		if Unsupported(&corev1.Pod{Spec: spec}) == "" {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTail(t *testing.T) {
	for _, tc := range []struct {
		in    string
		lines int
		want  string
	}{{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc", 1, "c"}, {"a\n", 5, "a\n"}, {"a\n", 0, ""}, {"", 3, ""}} {
		if got := string(tail([]byte(tc.in), tc.lines)); got != tc.want {
			t.Errorf("tail(%q, %d) = %q, want %q", tc.in, tc.lines, got, tc.want)
		}
	}
}

func TestImages(t *testing.T) {
	images := Images{"a:dev": {Dir: "/a"}, "b:latest": {Dir: "/b"}}
	for name, want := range map[string]string{"a:dev": "/a", "docker.io/library/a:dev": "/a", "b": "/b",
		"a": "", "a:other": ""} {
		if got, _ := images.Find(name); got.Dir != want {
			t.Errorf("Find(%q) = %q, want %q", name, got.Dir, want)
		}
	}
}

func TestGrace(t *testing.T) {
	for _, tc := range []struct {
		spec, deletion *int64
		want           time.Duration
	}{{nil, nil, 30 * time.Second}, {ptr.To(int64(5)), nil, 5 * time.Second}, {ptr.To(int64(5)), ptr.To(int64(0)), 0}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: tc.deletion},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: tc.spec}}
		if got := Grace(pod); got != tc.want {
			t.Errorf("Grace = %s, want %s", got, tc.want)
		}
	}
}

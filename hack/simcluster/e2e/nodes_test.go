// Package e2e runs pods on simulated nodes under a real control plane.
package e2e

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
	"rcclx.io/commgroup-operator/hack/simcluster/simnode"
	"rcclx.io/commgroup-operator/internal/testenv"
)

const deadline = 90 * time.Second

// start brings up a control plane and one simulated node with 8 GPUs.
func start(t *testing.T) (kubernetes.Interface, cluster.State) {
	t.Helper()
	binaries, err := testenv.Binaries("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	state, err := cluster.NewState(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	started := false
	t.Cleanup(func() {
		cancel()
		if started {
			if err := <-ended; err != nil {
				t.Errorf("the node ended with: %v", err)
			}
		}
		if err := cluster.Down(state, t.Logf); err != nil {
			t.Error(err)
		}
	})
	cp, err := cluster.Up(ctx, state, binaries, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.MkdirAll(image, 0o755); err != nil {
		t.Fatal(err)
	}
	node := cluster.NodeSpec{Name: "node-0", GPUs: 8, CPU: "96", Memory: "64Gi", Root: state.NodeRoot("node-0")}
	if err := cp.WriteNodes([]cluster.NodeSpec{node}, simnode.Images{"shell:dev": {Dir: image}}); err != nil {
		t.Fatal(err)
	}
	config, err := simnode.ReadConfig(state.NodesFile())
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	started = true
	go func() { ended <- simnode.Run(ctx, config, slog.New(slog.DiscardHandler), func() { close(ready) }) }()
	select {
	case <-ready:
	case <-time.After(deadline):
		t.Fatalf("the node was not registered after %s", deadline)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", state.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	return client, state
}

func shell(name, script string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(1)),
		Containers: []corev1.Container{{Name: "main", Image: "shell:dev", Command: []string{"sh", "-c", script}}}}}
	if change != nil {
		change(pod)
	}
	return pod
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// waitPod waits until the pod is as is says.
func waitPod(t *testing.T, client kubernetes.Interface, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	last := &corev1.Pod{}
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, deadline,
		true, func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			last = pod
			return is(pod), nil
		})
	if err != nil {
		t.Fatalf("pod %s: not %s: %v; its status is %+v", name, what, err, last.Status)
	}
	return last
}

func gpus(n string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"amd.com/gpu": resource.MustParse(n)}
	}
}

func TestPodsOnASimulatedNode(t *testing.T) {
	client, state := start(t)
	pods := client.CoreV1().Pods("default")
	create := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	terminated := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	}
	logOf := func(t *testing.T, name string) string {
		t.Helper()
		data, err := os.ReadFile(state.Path("nodes", "node-0", "logs", "default_"+name+"_main.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}

	t.Run("init container, volumes, downward API, exit code and message", func(t *testing.T) {
		create(t, shell("full",
			`cat /scratch/f; echo "$WHO $HOSTNAME"; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; echo why > /dev/termination-log; exit 3`,
			func(p *corev1.Pod) {
				mounts := []corev1.VolumeMount{{Name: "w", MountPath: "/scratch"}}
				p.Spec.Volumes = []corev1.Volume{{Name: "w",
					VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "shell:dev",
					Command: []string{"sh", "-c", "echo from-init > /scratch/f"}, VolumeMounts: mounts}}
				p.Spec.Containers[0].VolumeMounts = mounts
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "WHO",
					ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
			}))
		pod := waitPod(t, client, "full", "ended", terminated)
		end := pod.Status.ContainerStatuses[0].State.Terminated
		if pod.Status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 3 || end.Reason != "Error" ||
			end.Message != "why\n" {
			t.Errorf("phase %s, ended as %+v; want Failed with exit code 3, reason Error and message why",
				pod.Status.Phase, end)
		}
		if got := logOf(t, "full"); got != "from-init\nnode-0 full\ntoken\n" {
			t.Errorf("log %q", got)
		}
	})
	t.Run("GPUs are counted and given back", func(t *testing.T) {
		create(t, shell("holder", "sleep 300", gpus("8")))
		waitPod(t, client, "holder", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		create(t, shell("refused", "true", func(p *corev1.Pod) { gpus("1")(p); p.Spec.NodeName = "node-0" }))
		if pod := waitPod(t, client, "refused", "ended", terminated); pod.Status.Reason != "OutOfamd.com/gpu" {
			t.Errorf("reason %q, want OutOfamd.com/gpu", pod.Status.Reason)
		}
		create(t, shell("next", "true", gpus("8")))
		if err := pods.Delete(t.Context(), "holder", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if pod := waitPod(t, client, "next", "ended", terminated); pod.Status.Phase != corev1.PodSucceeded {
			t.Errorf("phase %s, want Succeeded once the GPUs are free", pod.Status.Phase)
		}
	})
	t.Run("deletion ends a pod that does not listen, and removes it", func(t *testing.T) {
		create(t, shell("stubborn", "trap '' TERM; setsid sleep 300 & sleep 300 & while true; do sleep 0.1; done", nil))
		waitPod(t, client, "stubborn",
			"running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		if err := pods.Delete(t.Context(), "stubborn", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, deadline,
			true, func(ctx context.Context) (bool, error) {
				_, err := pods.Get(ctx, "stubborn", metav1.GetOptions{})
				return apierrors.IsNotFound(err), ignoreNotFound(err)
			})
		if err != nil {
			t.Fatalf("the pod is still there: %v", err)
		}
	})
	t.Run("active deadline", func(t *testing.T) {
		create(t, shell("late", "sleep 300", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1)) }))
		if pod := waitPod(t, client, "late", "ended", terminated); pod.Status.Reason != "DeadlineExceeded" ||
			pod.Status.Phase != corev1.PodFailed {
			t.Errorf("phase %s, reason %q; want Failed, DeadlineExceeded", pod.Status.Phase, pod.Status.Reason)
		}
	})
	t.Run("unknown image", func(t *testing.T) {
		create(t, shell("noimage", "true", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nobody/has:this" }))
		waitPod(t, client, "noimage", "waiting for its image", func(p *corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
				p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImagePull"
		})
	})
	t.Run("restart and readiness", func(t *testing.T) {
		create(t, shell("again", "test -e /scratch/second && { touch /scratch/ready; exec sleep 300; }; "+
			"touch /scratch/second; exit 1", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyAlways
			p.Spec.Volumes = []corev1.Volume{{Name: "w",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "w", MountPath: "/scratch"}}
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/scratch/ready"}}}}
		}))
		pod := waitPod(t, client, "again", "ready", func(p *corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
		})
		if c := pod.Status.ContainerStatuses[0]; c.RestartCount != 1 || c.LastTerminationState.Terminated == nil ||
			c.LastTerminationState.Terminated.ExitCode != 1 {
			t.Errorf("restarts %d, last end %+v; want one restart after exit code 1",
				c.RestartCount, c.LastTerminationState.Terminated)
		}
	})
	t.Run("liveness probe ends a container that does not answer", func(t *testing.T) {
		create(t, shell("dead", "exec sleep 300", func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}}}
		}))
		pod := waitPod(t, client, "dead", "ended", terminated)
		if end := pod.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			t.Errorf("ended as %+v, want exit code 143 (SIGTERM)", end)
		}
	})
	t.Run("logs through the API server", func(t *testing.T) {
		data, err := pods.GetLogs("full", &corev1.PodLogOptions{Container: "main", TailLines: ptr.To(int64(1))}).
			DoRaw(t.Context())
		if err != nil || strings.TrimSpace(string(data)) != "token" {
			t.Errorf("last line %q, %v; want token", data, err)
		}
	})
}

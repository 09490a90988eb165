package simnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	volumeRetry   = 2 * time.Second
	volumeRefresh = 60 * time.Second
	imageRetry    = 10 * time.Second
	configRetry   = 5 * time.Second
)

// gpuResource is what AMD's device plugin publishes.
const gpuResource corev1.ResourceName = "amd.com/gpu"

// errStopped is the cause for which a pod's work ends when somebody asked for it.
var errStopped = errors.New("pod is stopped")

// worker runs one pod from its admission to its end.
type worker struct {
	node *Node
	dir  string
	// pod as first seen; its spec does not change in what matters here.
	pod     *corev1.Pod
	podIP   string
	volumes *volumes
	devices map[corev1.ResourceName][]int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	// finished is closed when no container runs any more and none will.
	finished chan struct{}
	// dirty wakes the status writer.
	dirty chan struct{}

	mu       sync.Mutex
	views    map[string]containerView
	start    *metav1.Time
	reason   string
	message  string
	stopping bool
	grace    time.Duration
	// runs counts the starts of each container in this process, for ids.
	runs int
}

func newWorker(n *Node, pod *corev1.Pod) *worker {
	ctx, cancel := context.WithCancelCause(n.ctx)
	w := &worker{
		node: n, pod: pod, dir: filepath.Join(n.dir, "pods", string(pod.UID)), ctx: ctx, cancel: cancel,
		finished: make(chan struct{}), dirty: make(chan struct{}, 1), views: map[string]containerView{},
	}
	w.adopt(pod.Status)
	return w
}

// adopt takes over the counts of a pod that an earlier node process ran: its processes are gone, so they start again.
func (w *worker) adopt(status corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range list {
			view := containerView{RestartCount: c.RestartCount, Last: c.LastTerminationState}
			if c.State.Running != nil {
				view.RestartCount++
				view.Last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Signal: 9, Reason: "Error", StartedAt: c.State.Running.StartedAt,
					FinishedAt: metav1.Now(),
					Message:    "the node process restarted and ended this container", ContainerID: c.ContainerID,
				}}
			}
			w.views[c.Name] = view
		}
	}
	w.start = status.StartTime
}

// run works until every container has ended for good.
func (w *worker) run() {
	defer func() {
		w.cleanUp()
		close(w.finished)
		w.wake()
	}()
	if reason, message := w.admit(); reason != "" {
		w.fail(reason, message)
		w.node.event(w.pod, corev1.EventTypeWarning, reason, message)
		return
	}
	now := metav1.Now()
	w.mu.Lock()
	if w.start == nil {
		w.start = &now
	}
	began := w.start.Time
	w.mu.Unlock()
	w.wake()
	if seconds := w.pod.Spec.ActiveDeadlineSeconds; seconds != nil {
		timer := time.AfterFunc(time.Until(began.Add(time.Duration(*seconds)*time.Second)), func() {
			w.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
			w.stop(Grace(w.pod))
		})
		defer timer.Stop()
	}
	if !w.prepareVolumes() {
		return
	}
	var all sync.WaitGroup
	all.Go(w.refreshVolumes)
	if len(w.devices[gpuResource]) == 0 || w.sleep(time.Duration(w.node.config.GPUPodDelaySeconds)*time.Second) {
		w.runContainers()
	}
	w.cancel(errStopped)
	all.Wait()
}

func (w *worker) admit() (reason, message string) {
	if why := Unsupported(w.pod); why != "" {
		return "UnsupportedBySimulatedNode", why
	}
	ip, err := w.node.addresses.take(w.pod.UID)
	if err != nil {
		return "OutOfAddresses", err.Error()
	}
	w.podIP = ip
	w.devices, reason, message = w.node.ledger.admit(w.pod.UID, &w.pod.Spec)
	return reason, message
}

func (w *worker) prepareVolumes() bool {
	w.volumes = &volumes{
		client: w.node.client, dir: filepath.Join(w.dir, "volumes"), root: w.node.config.Root, hostIP: w.node.config.IP,
		podIP: w.podIP, allocatable: w.node.capacity, now: time.Now, tokens: map[string]issuedToken{},
	}
	if w.node.shm != "" {
		w.volumes.shm = filepath.Join(w.node.shm, string(w.pod.UID))
	}
	for {
		err := os.MkdirAll(filepath.Join(w.dir, "run"), 0o755)
		if err == nil {
			err = w.volumes.sync(w.ctx, w.pod)
		}
		if err == nil {
			return true
		}
		if w.ctx.Err() == nil {
			w.node.event(w.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		}
		if !w.sleep(volumeRetry) {
			return false
		}
	}
}

func (w *worker) refreshVolumes() {
	for w.sleep(volumeRefresh) {
		if err := w.volumes.sync(w.ctx, w.node.current(w.pod)); err != nil && w.ctx.Err() == nil {
			w.node.event(w.pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
}

// runContainers runs the init containers one after the other, then the others all at once.
func (w *worker) runContainers() {
	var sidecars, mains sync.WaitGroup
	stopSidecars, cancelSidecars := context.WithCancel(w.ctx)
	defer cancelSidecars()
	for i := range w.pod.Spec.InitContainers {
		c := &w.pod.Spec.InitContainers[i]
		if initKind(c) == kindSidecar {
			started := make(chan struct{})
			sidecars.Go(func() { w.supervise(stopSidecars, c, kindSidecar, started) })
			select {
			case <-started:
			case <-w.ctx.Done():
			}
			continue
		}
		w.supervise(w.ctx, c, kindInit, nil)
		if !initDone(kindInit, w.view(c.Name)) {
			cancelSidecars()
			sidecars.Wait()
			return
		}
	}
	for i := range w.pod.Spec.Containers {
		c := &w.pod.Spec.Containers[i]
		mains.Go(func() { w.supervise(w.ctx, c, kindMain, nil) })
	}
	mains.Wait()
	cancelSidecars()
	sidecars.Wait()
}

// supervise starts a container again and again as its restart policy says. started is closed once it has started.
func (w *worker) supervise(ctx context.Context, c *corev1.Container, kind containerKind, started chan struct{}) {
	var backoff time.Duration
	var restarts int32
	for {
		if ctx.Err() != nil {
			return
		}
		begin := time.Now()
		exit, ok := w.runOnce(ctx, c, started)
		if !ok {
			return
		}
		if started != nil {
			started = closeOnce(started)
		}
		again := ShouldRestart(w.pod.Spec.RestartPolicy, kind, exit.Code) && ctx.Err() == nil
		w.update(c.Name, func(v *containerView) { v.willRestart = again })
		if !again {
			return
		}
		backoff = NextBackoff(backoff, time.Since(begin), restarts)
		restarts++
		if backoff > 0 {
			w.update(c.Name, func(v *containerView) {
				v.Last, v.willRestart = v.State, false
				v.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "CrashLoopBackOff",
					Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s",
						backoff, c.Name, w.pod.Name)}}
			})
			w.node.event(w.pod, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container "+c.Name)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		w.update(c.Name, func(v *containerView) {
			if v.State.Terminated != nil {
				v.Last = v.State
			}
			v.RestartCount++
			v.willRestart = false
		})
	}
}

func closeOnce(ch chan struct{}) chan struct{} {
	select {
	case <-ch:
	default:
		close(ch)
	}
	return ch
}

// prepare waits until the image is there and the environment can be computed; ok is false when the pod is stopped
// first.
func (w *worker) prepare(ctx context.Context, c *corev1.Container, id string) (line commandLine, r *Rewriter, ok bool) {
	for attempt := 0; ; attempt++ {
		images, err := ReadImages(w.node.imagesFile)
		image, found := images.Find(c.Image)
		retry, reason, message := imageRetry, "", ""
		switch {
		case err != nil:
			reason, message = "ImageInspectError", err.Error()
		case !found:
			reason, message = "ErrImagePull",
				fmt.Sprintf("image %q is not in the simulated node's list of images", c.Image)
			if attempt%2 == 1 {
				reason, message = "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %s", c.Image, message)
			}
		default:
			retry = configRetry
			if line, r, err = w.commandLine(ctx, c, image, id); err == nil {
				return line, r, true
			}
			reason, message = "CreateContainerConfigError", err.Error()
		}
		if ctx.Err() != nil {
			return line, r, false
		}
		w.update(c.Name, func(v *containerView) {
			v.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		})
		w.node.event(w.pod, corev1.EventTypeWarning, "Failed", message)
		select {
		case <-ctx.Done():
			return line, r, false
		case <-time.After(retry):
		}
	}
}

func (w *worker) commandLine(ctx context.Context, c *corev1.Container, image Image,
	id string) (commandLine, *Rewriter, error) {
	pod := w.node.current(w.pod)
	host, port, err := serverHostPort(w.node.server)
	if err != nil {
		return commandLine{}, nil, err
	}
	base := Env{{Name: "KUBERNETES_SERVICE_HOST", Value: host}, {Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port}}
	// A container with a part of the GPUs sees only those, as with a device cgroup.
	if gpus := w.devices[gpuResource]; len(gpus) > 0 && int64(len(gpus)) < w.node.config.GPUs {
		base = append(base, corev1.EnvVar{Name: "HIP_VISIBLE_DEVICES",
			Value: strings.Trim(strings.ReplaceAll(fmt.Sprint(gpus), " ", ","), "[]")})
	}
	env, err := BuildEnv(c, base, EnvSources{
		ConfigMap: func(name string) (map[string]string, error) {
			return w.volumes.configMap(ctx, pod.Namespace, name)
		},
		Secret: func(name string) (map[string]string, error) { return w.volumes.secret(ctx, pod.Namespace, name) },
		Field:  func(path string) (string, error) { return FieldValue(pod, w.node.config.IP, w.podIP, path) },
		Resource: func(ref *corev1.ResourceFieldSelector) (string, error) {
			of := c
			if ref.ContainerName != "" && ref.ContainerName != c.Name {
				if of = findContainer(pod, ref.ContainerName); of == nil {
					return "", fmt.Errorf("no container named %q", ref.ContainerName)
				}
			}
			return ResourceValue(of, ref, w.node.capacity)
		},
	})
	if err != nil {
		return commandLine{}, nil, err
	}
	mounts, err := w.volumes.mounts(pod, c, env.Lookup)
	if err != nil {
		return commandLine{}, nil, err
	}
	scratch := filepath.Join(w.dir, "containers", c.Name)
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return commandLine{}, nil, err
	}
	mounts = append(mounts, Mount{Path: messagePath(c), Real: w.messageFile(c, id)})
	kubeconfig := ""
	for _, m := range mounts {
		if m.Path == serviceAccountPath {
			kubeconfig = filepath.Join(scratch, "kubeconfig")
			if err := writePodKubeconfig(kubeconfig, w.node.server, m.Real, pod.Namespace); err != nil {
				return commandLine{}, nil, err
			}
		}
	}
	hostname := pod.Name
	if pod.Spec.Hostname != "" {
		hostname = pod.Spec.Hostname
	}
	if pod.Spec.HostNetwork {
		hostname = w.node.config.Name
	}
	fabric := ""
	if len(w.devices[gpuResource]) > 0 {
		fabric = w.node.fabric
	}
	line, err := buildCommand(containerInput{
		fabric:    fabric,
		container: c, image: image, mounts: mounts, env: env, root: w.node.config.Root, kubeconfig: kubeconfig,
		scratch: scratch, hostname: hostname, podIP: w.podIP, id: id,
	})
	return line, NewRewriter(mounts, image.Dir), err
}

func (w *worker) messageFile(c *corev1.Container, id string) string {
	return filepath.Join(w.dir, "containers", c.Name, "termination-log-"+id)
}

// runOnce starts a container once and waits for its end; ok is false when it never started because the pod was stopped.
func (w *worker) runOnce(ctx context.Context, c *corev1.Container, started chan struct{}) (exit Exit, ok bool) {
	w.mu.Lock()
	w.runs++
	id := fmt.Sprintf("%d-%d", time.Now().UnixNano(), w.runs)
	w.mu.Unlock()
	line, rewriter, ok := w.prepare(ctx, c, id)
	if !ok {
		return exit, false
	}
	logPath := w.node.logPath(w.pod, c.Name)
	containerID := "simulated://" + id
	w.node.markLogStart(logPath)
	process, err := startProcess(line, logPath, c.Name, filepath.Join(w.dir, "run"))
	if err != nil {
		now := metav1.Now()
		w.update(c.Name, func(v *containerView) {
			v.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: now, FinishedAt: now,
				ContainerID: containerID}}
			v.ID, v.Started, v.Ready = containerID, false, false
		})
		w.node.event(w.pod, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return Exit{Code: 128}, true
	}
	begin := metav1.Now()
	w.update(c.Name, func(v *containerView) {
		if v.State.Terminated != nil {
			v.Last = v.State
		}
		v.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begin}}
		v.ID, v.Started, v.Ready = containerID, c.StartupProbe == nil, c.StartupProbe == nil && c.ReadinessProbe == nil
	})
	w.node.event(w.pod, corev1.EventTypeNormal, "Started", "Container started: "+c.Name)
	if started != nil && c.StartupProbe == nil {
		closeOnce(started)
	}
	probesContext, stopProbes := context.WithCancel(ctx)
	var probes sync.WaitGroup
	kill := make(chan struct{}, 1)
	probes.Go(func() { w.probe(probesContext, c, line, rewriter, started, kill) })
	select {
	case <-process.done:
	case <-ctx.Done():
		process.stop(w.stopGrace())
	case <-kill:
		process.stop(Grace(w.pod))
	}
	stopProbes()
	probes.Wait()
	<-process.done
	exit = process.exit
	w.update(c.Name, func(v *containerView) {
		v.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exit.Code, Signal: exit.Signal, Reason: ExitReason(exit.Code), StartedAt: begin,
			FinishedAt: metav1.Now(),
			Message:    terminationMessage(c, w.messageFile(c, id), logPath, exit.Code), ContainerID: containerID}}
		v.Started, v.Ready = false, false
	})
	return exit, true
}

func (w *worker) stopGrace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grace
}

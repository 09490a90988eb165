package simnode

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// probe runs the container's probes until ctx ends: the startup probe first, then readiness and liveness.
func (w *worker) probe(ctx context.Context, c *corev1.Container, line commandLine, r *Rewriter, started chan struct{},
	kill chan<- struct{}) {
	execute := func(ctx context.Context, command []string) error { return runInContainer(ctx, line, command, r) }
	if c.StartupProbe != nil {
		ok := w.probeUntil(ctx, c, c.StartupProbe, "Startup", execute, func(verdict probeVerdict) (stop bool) {
			return verdict != probeUndecided
		})
		if !ok {
			if ctx.Err() == nil {
				kill <- struct{}{}
			}
			return
		}
		w.update(c.Name, func(v *containerView) { v.Started, v.Ready = true, c.ReadinessProbe == nil })
		if started != nil {
			closeOnce(started)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.LivenessProbe == nil {
			return
		}
		passed := w.probeUntil(ctx, c, c.LivenessProbe, "Liveness", execute, func(verdict probeVerdict) bool {
			return verdict == probeFailed
		})
		if !passed && ctx.Err() == nil {
			w.node.event(w.pod, corev1.EventTypeNormal, "Killing",
				fmt.Sprintf("Container %s failed liveness probe, will be restarted", c.Name))
			kill <- struct{}{}
		}
	}()
	if c.ReadinessProbe != nil {
		w.probeUntil(ctx, c, c.ReadinessProbe, "Readiness", execute, func(verdict probeVerdict) bool {
			if verdict != probeUndecided {
				w.update(c.Name, func(v *containerView) { v.Ready = verdict == probePassed })
			}
			return false
		})
	}
	<-done
}

// probeUntil repeats a probe until decide says stop or ctx ends, and says whether the last verdict was a pass.
func (w *worker) probeUntil(ctx context.Context, c *corev1.Container, p *corev1.Probe, kind string,
	execute func(context.Context, []string) error, decide func(probeVerdict) bool) bool {
	tracker := newProbeTracker(p)
	wait := time.Duration(p.InitialDelaySeconds) * time.Second
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		wait = time.Duration(max(p.PeriodSeconds, 1)) * time.Second
		err := probeOnce(ctx, p, c, w.podIP, execute)
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			w.node.event(w.pod, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %v", kind, err))
		}
		verdict := tracker.observe(err == nil)
		if decide(verdict) {
			return verdict == probePassed
		}
	}
}

func (w *worker) sleep(d time.Duration) bool {
	select {
	case <-w.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (w *worker) view(name string) containerView {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.views[name]
}

func (w *worker) update(name string, change func(*containerView)) {
	w.mu.Lock()
	v := w.views[name]
	change(&v)
	w.views[name] = v
	w.mu.Unlock()
	w.wake()
}

func (w *worker) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

func (w *worker) fail(reason, message string) {
	w.mu.Lock()
	if w.reason == "" {
		w.reason, w.message = reason, message
	}
	w.mu.Unlock()
	w.wake()
}

// stop asks for the end of the pod; a later call can only shorten the grace period.
func (w *worker) stop(grace time.Duration) {
	w.mu.Lock()
	first := !w.stopping
	if first || grace < w.grace {
		w.grace = grace
	}
	w.stopping = true
	w.mu.Unlock()
	if first {
		w.cancel(errStopped)
	}
	w.wake()
}

// status computes the pod's status as it is now.
func (w *worker) status(current *corev1.Pod) corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	views := make(map[string]containerView, len(w.views))
	for name, v := range w.views {
		views[name] = v
	}
	status := computeStatus(&w.pod.Spec, statusInput{
		HostIP: w.node.config.IP, PodIP: w.podIP, StartTime: w.start, Containers: views, FailedReason: w.reason,
		FailedMessage: w.message, Stopping: w.stopping, Conditions: current.Status.Conditions,
		Generation: current.Generation, Now: metav1.Now(),
	})
	status.QOSClass = current.Status.QOSClass
	return status
}

// cleanUp frees what a pod that has ended holds. Its small files stay until the Pod object is gone.
func (w *worker) cleanUp() {
	w.node.ledger.release(w.pod.UID)
	if len(w.devices[gpuResource]) > 0 {
		sweepFabric(w.node.fabric)
	}
	if w.node.shm != "" {
		_ = os.RemoveAll(filepath.Join(w.node.shm, string(w.pod.UID)))
	}
}

// remove takes away the pod's directory and address.
func (w *worker) remove() {
	w.node.addresses.release(w.pod.UID)
	_ = os.RemoveAll(w.dir)
}

func serverHostPort(server string) (host, port string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", fmt.Errorf("API server address %q: %w", server, err)
	}
	return u.Hostname(), u.Port(), nil
}

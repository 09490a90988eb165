package simnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"rcclx.io/commgroup-operator/hack/simcluster/procs"
)

// Node is one simulated node.
type Node struct {
	config     NodeConfig
	server     string
	imagesFile string
	dir, shm   string
	fabric     string
	client     kubernetes.Interface
	capacity   corev1.ResourceList
	ledger     *ledger
	addresses  *addresses
	events     record.EventRecorder
	informer   cache.SharedIndexInformer
	log        *slog.Logger
	ctx        context.Context
	logPort    int32

	mu      sync.Mutex
	workers map[types.UID]*worker
	work    sync.WaitGroup
}

func newNode(ctx context.Context, c Config, nc NodeConfig, log *slog.Logger) (*Node, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", nc.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", nc.Name, err)
	}
	rest.QPS, rest.Burst = 50, 100
	rest.UserAgent = "simnode/" + nc.Name
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", nc.Name, err)
	}
	capacity, err := nc.capacity()
	if err != nil {
		return nil, err
	}
	n := &Node{
		config: nc, server: c.Server, imagesFile: c.ImagesFile, dir: filepath.Join(c.Dir, nc.Name), client: client,
		fabric: c.FabricDir(), capacity: capacity,
		ledger:    newLedger(map[corev1.ResourceName]int64{gpuResource: nc.GPUs}),
		addresses: newAddresses(nc.IP), log: log.With("node", nc.Name), ctx: ctx, workers: map[types.UID]*worker{},
	}
	if c.SharedMemoryDir != "" {
		n.shm = filepath.Join(c.SharedMemoryDir, nc.Name)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: nc.Name})
	list := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "",
		fields.OneTermEqualSelector("spec.nodeName", nc.Name))
	n.informer = cache.NewSharedIndexInformer(list, &corev1.Pod{}, 0, cache.Indexers{})
	return n, nil
}

func (nc NodeConfig) capacity() (corev1.ResourceList, error) {
	list := corev1.ResourceList{
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: nc.CPU,
		corev1.ResourceMemory: nc.Memory} {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("node %s: %s %q: %w", nc.Name, name, value, err)
		}
		list[name] = q
	}
	if nc.GPUs > 0 {
		list[gpuResource] = *resource.NewQuantity(nc.GPUs, resource.DecimalSI)
	}
	return list, nil
}

// run registers the node and serves it until ctx ends. ready is called once pods can be bound to it.
func (n *Node) run(ready func()) error {
	if err := n.endLeftovers(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(n.dir, "logs"), n.fabric} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := n.startLogServer(); err != nil {
		return err
	}
	if err := n.register(); err != nil {
		return err
	}
	go n.heartbeat()
	if _, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.sync(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { n.sync(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				n.gone(pod.UID)
			}
		},
	}); err != nil {
		return err
	}
	go n.informer.Run(n.ctx.Done())
	if !cache.WaitForCacheSync(n.ctx.Done(), n.informer.HasSynced) {
		return n.ctx.Err()
	}
	ready()
	<-n.ctx.Done()
	n.mu.Lock()
	for _, w := range n.workers {
		w.stop(time.Second)
	}
	n.mu.Unlock()
	n.work.Wait()
	return nil
}

// endLeftovers ends the processes of pods that an earlier node process left behind when it was killed.
func (n *Node) endLeftovers() error {
	pods := filepath.Join(n.dir, "pods")
	dirs, err := filepath.Glob(filepath.Join(pods, "*", "run"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		records, err := procs.Load(dir)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := procs.KillMembers(r, killWait); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(pods)
}

// sync brings a pod's worker in line with the Pod object.
func (n *Node) sync(pod *corev1.Pod) {
	n.mu.Lock()
	w, known := n.workers[pod.UID]
	if !known {
		terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if (terminal && pod.DeletionTimestamp == nil) || n.ctx.Err() != nil {
			n.mu.Unlock()
			return
		}
		w = newWorker(n, pod)
		n.workers[pod.UID] = w
		n.work.Go(func() { n.writeStatus(w) })
		if terminal || pod.DeletionTimestamp != nil {
			// Nothing of it runs here; it only has to leave the API.
			w.stop(0)
			close(w.finished)
		} else {
			n.work.Go(w.run)
		}
	}
	n.mu.Unlock()
	if pod.DeletionTimestamp != nil {
		n.log.Info("stopping", "pod", pod.Namespace+"/"+pod.Name, "grace", Grace(pod))
		w.stop(Grace(pod))
	}
}

// gone ends a pod whose object is no longer there.
func (n *Node) gone(uid types.UID) {
	n.mu.Lock()
	w := n.workers[uid]
	n.mu.Unlock()
	if w == nil {
		return
	}
	w.stop(0)
	n.work.Go(func() {
		<-w.finished
		w.remove()
		n.mu.Lock()
		delete(n.workers, uid)
		n.mu.Unlock()
	})
}

// current gives the newest version of a pod that is known, else the given one.
func (n *Node) current(pod *corev1.Pod) *corev1.Pod {
	object, exists, err := n.informer.GetStore().GetByKey(pod.Namespace + "/" + pod.Name)
	if err == nil && exists {
		if now, ok := object.(*corev1.Pod); ok && now.UID == pod.UID {
			return now
		}
	}
	return pod
}

// writeStatus reports a pod's status whenever it changes, and takes a deleted pod out of the API when it has ended.
func (n *Node) writeStatus(w *worker) {
	last := w.pod
	for {
		select {
		case <-w.dirty:
		case <-n.ctx.Done():
			return
		}
		ended := false
		select {
		case <-w.finished:
			ended = true
		default:
		}
		var err error
		if last, err = n.patchStatus(w, last); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				if n.isGone(w.pod) {
					return
				}
			}
			if n.ctx.Err() == nil {
				n.log.Warn("writing a pod's status failed; it is tried again",
					"pod", w.pod.Namespace+"/"+w.pod.Name, "error", err)
			}
			time.AfterFunc(time.Second, w.wake)
			continue
		}
		if ended && n.current(w.pod).DeletionTimestamp != nil {
			zero := int64(0)
			err := n.client.CoreV1().Pods(w.pod.Namespace).Delete(n.ctx, w.pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &w.pod.UID}})
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				n.log.Info("removed", "pod", w.pod.Namespace+"/"+w.pod.Name)
				return
			}
			time.AfterFunc(time.Second, w.wake)
		}
	}
}

func (n *Node) isGone(pod *corev1.Pod) bool {
	now, err := n.client.CoreV1().Pods(pod.Namespace).Get(n.ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || (err == nil && now.UID != pod.UID)
}

// patchStatus writes the difference to the last version that is known, as the kubelet does.
func (n *Node) patchStatus(w *worker, last *corev1.Pod) (*corev1.Pod, error) {
	current := n.current(w.pod)
	if last.ResourceVersion == "" || newer(current.ResourceVersion, last.ResourceVersion) {
		last = current
	}
	before, err := json.Marshal(corev1.Pod{Status: last.Status})
	if err != nil {
		return last, err
	}
	after, err := json.Marshal(corev1.Pod{Status: w.status(last)})
	if err != nil {
		return last, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return last, err
	}
	if string(patch) == "{}" {
		return last, nil
	}
	var body map[string]any
	if err := json.Unmarshal(patch, &body); err != nil {
		return last, err
	}
	body["metadata"] = map[string]any{"uid": w.pod.UID}
	if patch, err = json.Marshal(body); err != nil {
		return last, err
	}
	now, err := n.client.CoreV1().Pods(w.pod.Namespace).Patch(n.ctx, w.pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return last, err
	}
	return now, nil
}

// newer compares resource versions, which are numbers that grow.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return strings.Compare(a, b) > 0
}

func (n *Node) event(pod *corev1.Pod, kind, reason, message string) {
	n.events.Event(pod, kind, reason, message)
	n.log.Info("event", "pod", pod.Namespace+"/"+pod.Name, "reason", reason, "message", message)
}

func (n *Node) logPath(pod *corev1.Pod, container string) string {
	return filepath.Join(n.dir, "logs", fmt.Sprintf("%s_%s_%s.log", pod.Namespace, pod.Name, container))
}

// Run serves all nodes of a configuration until ctx ends. ready is called once every one of them is registered.
func Run(ctx context.Context, c Config, log *slog.Logger, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nodes []*Node
	for _, nc := range c.Nodes {
		n, err := newNode(ctx, c, nc, log)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	errs := make(chan error, len(nodes))
	var registered, ended sync.WaitGroup
	registered.Add(len(nodes))
	for _, n := range nodes {
		ended.Go(func() {
			if err := n.run(registered.Done); err != nil && !errors.Is(err, context.Canceled) {
				errs <- fmt.Errorf("node %s: %w", n.config.Name, err)
				cancel()
			}
		})
	}
	go func() {
		registered.Wait()
		ready()
	}()
	ended.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

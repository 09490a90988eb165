package simnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	leaseSeconds     = 40
	leaseRenewal     = 10 * time.Second
	statusRenewal    = 5 * time.Minute
	registerDeadline = 60 * time.Second
)

// object is the Node as a kubelet registers it, with what a device plugin and the feature discovery would add.
func (n *Node) object() *corev1.Node {
	now := metav1.Now()
	labels := map[string]string{
		corev1.LabelHostname: n.config.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(labels, n.config.Labels)
	kernel := readTrimmed("/proc/sys/kernel/osrelease")
	if own := readTrimmed(filepath.Join(n.config.Root, "proc/sys/kernel/osrelease")); own != "" {
		kernel = own
	}
	boot := readTrimmed("/proc/sys/kernel/random/boot_id")
	if own := readTrimmed(filepath.Join(n.config.Root, "proc/sys/kernel/random/boot_id")); own != "" {
		boot = own
	}
	status := func(kind corev1.NodeConditionType, is corev1.ConditionStatus,
		reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: is, Reason: reason, Message: message, LastHeartbeatTime: now,
			LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.config.Name, Labels: labels,
			Annotations: map[string]string{"simcluster/simulated": "true"}},
		Status: corev1.NodeStatus{
			Capacity: n.capacity, Allocatable: n.capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.config.IP},
				{Type: corev1.NodeHostName, Address: n.config.Name}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.logPort}},
			Conditions: []corev1.NodeCondition{
				status(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "simulated"),
				status(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "simulated"),
				status(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "simulated"),
				status(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady",
					"the simulated node runs pods as local processes"),
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "v1.37.2-simulated", ContainerRuntimeVersion: "simulated://processes",
				OperatingSystem: runtime.GOOS,
				Architecture:    runtime.GOARCH, KernelVersion: kernel, OSImage: "simulated node", BootID: boot,
				MachineID: n.config.Name, SystemUUID: n.config.Name,
			},
		},
	}
}

func readTrimmed(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (n *Node) register() error {
	end := time.Now().Add(registerDeadline)
	for {
		err := n.registerOnce()
		if err == nil || n.ctx.Err() != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("registering failed for %s: %w", registerDeadline, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (n *Node) registerOnce() error {
	want := n.object()
	nodes := n.client.CoreV1().Nodes()
	_, err := nodes.Create(n.ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if err := n.patchNode(want, false); err != nil {
			return err
		}
		err = n.patchNode(want, true)
	}
	if err != nil {
		return err
	}
	return n.renewLease()
}

// patchNode writes the node's labels, or with status its status.
func (n *Node) patchNode(want *corev1.Node, status bool) error {
	body := map[string]any{"metadata": map[string]any{"labels": want.Labels}}
	var sub []string
	if status {
		body, sub = map[string]any{"status": want.Status}, []string{"status"}
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(n.ctx, n.config.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, sub...)
	return err
}

func (n *Node) heartbeat() {
	lease, status := time.NewTicker(leaseRenewal), time.NewTicker(statusRenewal)
	defer lease.Stop()
	defer status.Stop()
	for {
		var err error
		select {
		case <-n.ctx.Done():
			return
		case <-lease.C:
			err = n.renewLease()
		case <-status.C:
			err = n.patchNode(n.object(), true)
		}
		if err != nil && n.ctx.Err() == nil {
			n.log.Warn("heartbeat failed; it is tried again", "error", err)
		}
	}
}

func (n *Node) renewLease() error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	lease, err := leases.Get(n.ctx, n.config.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err := n.client.CoreV1().Nodes().Get(n.ctx, n.config.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = leases.Create(n.ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.config.Name, Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.config.Name,
				LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(n.ctx, lease, metav1.UpdateOptions{})
	return err
}

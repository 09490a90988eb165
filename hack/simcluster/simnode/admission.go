package simnode

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodGPUs counts the units of an extended resource that a pod takes: the sum over its containers, or what one init
// container takes if that is more.
func PodGPUs(spec *corev1.PodSpec, name corev1.ResourceName) int64 {
	var sum, largestInit, sidecars int64
	for i := range spec.Containers {
		q := spec.Containers[i].Resources.Limits[name]
		sum += q.Value()
	}
	for i := range spec.InitContainers {
		q := spec.InitContainers[i].Resources.Limits[name]
		if initKind(&spec.InitContainers[i]) == kindSidecar {
			sidecars += q.Value()
			continue
		}
		largestInit = max(largestInit, q.Value()+sidecars)
	}
	return max(sum+sidecars, largestInit)
}

// extendedResources names the resources of a pod that are counted device by device.
func extendedResources(spec *corev1.PodSpec) []corev1.ResourceName {
	found := map[corev1.ResourceName]bool{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			for name := range c.Resources.Limits {
				if strings.Contains(string(name), "/") {
					found[name] = true
				}
			}
		}
	}
	names := make([]corev1.ResourceName, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return names[i] < names[j] })
	return names
}

// ledger counts a node's devices: which pod holds which. It is what the kubelet's device manager is.
type ledger struct {
	mu       sync.Mutex
	capacity map[corev1.ResourceName]int64
	held     map[corev1.ResourceName]map[int64]types.UID
}

func newLedger(capacity map[corev1.ResourceName]int64) *ledger {
	return &ledger{capacity: capacity, held: map[corev1.ResourceName]map[int64]types.UID{}}
}

// admit takes devices for a pod, the lowest free ones, or says why it cannot.
func (l *ledger) admit(uid types.UID,
	spec *corev1.PodSpec) (devices map[corev1.ResourceName][]int64, reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := extendedResources(spec)
	for _, name := range names {
		need, used := PodGPUs(spec, name), int64(len(l.held[name]))
		if used+need > l.capacity[name] {
			return nil, "OutOf" + string(name), fmt.Sprintf("Pod was rejected: Node didn't have enough resource: "+
				"%s, requested: %d, used: %d, capacity: %d", name, need, used, l.capacity[name])
		}
	}
	devices = map[corev1.ResourceName][]int64{}
	for _, name := range names {
		if l.held[name] == nil {
			l.held[name] = map[int64]types.UID{}
		}
		need := PodGPUs(spec, name)
		for device := int64(0); device < l.capacity[name] && int64(len(devices[name])) < need; device++ {
			if _, taken := l.held[name][device]; !taken {
				l.held[name][device] = uid
				devices[name] = append(devices[name], device)
			}
		}
	}
	return devices, "", ""
}

// release gives a pod's devices back.
func (l *ledger) release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.held {
		for device, holder := range held {
			if holder == uid {
				delete(held, device)
			}
		}
	}
}

// addresses hands out the addresses of a node's /24: .1 is the node, the pods get .2 to .254.
type addresses struct {
	mu     sync.Mutex
	prefix string
	next   int
	taken  map[int]types.UID
}

func newAddresses(nodeIP string) *addresses {
	return &addresses{prefix: nodeIP[:strings.LastIndexByte(nodeIP, '.')+1], next: 2, taken: map[int]types.UID{}}
}

func (a *addresses) take(uid types.UID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range 253 {
		n := a.next
		a.next++
		if a.next > 254 {
			a.next = 2
		}
		if _, taken := a.taken[n]; !taken {
			a.taken[n] = uid
			return fmt.Sprintf("%s%d", a.prefix, n), nil
		}
	}
	return "", fmt.Errorf("all 253 pod addresses of %s0/24 are taken", a.prefix)
}

func (a *addresses) release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, holder := range a.taken {
		if holder == uid {
			delete(a.taken, n)
		}
	}
}

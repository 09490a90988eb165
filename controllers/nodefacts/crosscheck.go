package nodefacts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
)

// amdResources begins the names of the resources that AMD's device plugin publishes: amd.com/gpu, or with the naming
// strategy mixed one for each partition mode, such as amd.com/cpx_nps4.
const amdResources = "amd.com/"

// CountMismatch says where the sources that count a node's GPUs disagree, and names both sides; empty where they agree,
// or one is not known. resource is the one that the group asks for.
func CountMismatch(f *v1alpha1.NodeFacts, node *corev1.Node, resource string) string {
	if !gpusCertain(f) {
		return ""
	}
	reported := map[string]bool{}
	for i := range f.Problems {
		reported[f.Problems[i].Code] = true
	}
	// The agent names each GPU; only where its list of problems was full is that said here.
	if f.PCIGPUCount != nil && *f.PCIGPUCount > f.GPUCount && !reported[v1alpha1.ProblemGPUNotInKFD] {
		return fmt.Sprintf("the PCI bus has %s and KFD shows %d: the driver did not take all. Look for amdgpu in the "+
			"kernel log.", units.Counted(int(*f.PCIGPUCount), "GPU"), f.GPUCount)
	}
	if f.RenderNodeCount != nil && *f.RenderNodeCount < f.DeviceCount && !reported[v1alpha1.ProblemRenderNodeMissing] {
		return fmt.Sprintf("KFD shows %s and DRM has render nodes for %d: the others cannot be opened. "+
			"Look for drm in the kernel log.", units.Counted(int(f.DeviceCount), "device"), *f.RenderNodeCount)
	}
	if node == nil || f.DeviceCount == 0 {
		return "" // without a device the agent's own problem says more
	}
	devices := int64(f.DeviceCount)
	allocatable, offered := quantity(node.Status.Allocatable, resource)
	capacity, known := quantity(node.Status.Capacity, resource)
	shows := fmt.Sprintf("KFD shows %s, the device plugin offers %d of %s",
		units.Counted(int(devices), "device"), allocatable, resource)
	if known {
		shows += fmt.Sprintf(" (capacity %d)", capacity)
	}
	switch {
	case allocatable == devices && (!known || capacity == devices):
		return ""
	case !offered && !known || known && capacity == 0:
		return shows + ": " + nothingOffered(f, node, resource)
	case known && capacity > allocatable && capacity == devices:
		return fmt.Sprintf("%s: %s to it. Look at its log, and at `dmesg` for this GPU.",
			shows, unhealthy(capacity-allocatable))
	case max(allocatable, capacity) > devices:
		return shows + ": a GPU was lost, or the mode changed after the plugin started. Look at `dmesg`; " +
			"restart the device plugin on the node."
	}
	return shows + ": it does not know of all. Restart it on the node, unless AMD_GPU_DEVICE_COUNT or its " +
		"configuration holds devices back: then name these nodes in members.exclude."
}

func unhealthy(n int64) string {
	if n == 1 {
		return "one is unhealthy"
	}
	return fmt.Sprintf("%d are unhealthy", n)
}

// nothingOffered says why a node with devices may offer none of the resource.
func nothingOffered(f *v1alpha1.NodeFacts, node *corev1.Node, resource string) string {
	var others []string
	for _, name := range slices.Sorted(maps.Keys(node.Status.Capacity)) {
		if n := node.Status.Capacity[name]; string(name) != resource &&
			strings.HasPrefix(string(name), amdResources) && n.Value() > 0 {
			others = append(others, fmt.Sprintf("%d of %s", n.Value(), name))
		}
	}
	mode, _, _ := strings.Cut(f.Partition, "/")
	switch {
	case len(others) > 0:
		return fmt.Sprintf("it offers %s instead. Set runtime.pod.gpuResourceName to that name, or the plugin's "+
			"resource naming strategy to single.", strings.Join(others, ", "))
	case mode == "CPX":
		// https://github.com/ROCm/k8s-device-plugin/issues/184
		return fmt.Sprintf("in partition mode %s some versions of the plugin find all devices and register none "+
			"(ROCm/k8s-device-plugin#184). Use another version of it, or mode SPX or DPX.", f.Partition)
	}
	return "it has not registered. Check that its pod runs on the node."
}

// quantity is a resource's number; not there is not zero.
func quantity(list corev1.ResourceList, name string) (int64, bool) {
	q, there := list[corev1.ResourceName(name)]
	return q.Value(), there
}

package nodefacts

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/testkit"
)

func TestCountMismatch(t *testing.T) {
	const gpu = v1alpha1.ResourceGPU
	cpx := func(f *v1alpha1.NodeFacts) {
		f.DeviceCount, f.RenderNodeCount, f.Partition = 64, ptr.To(int32(64)), "CPX/NPS4"
	}
	for name, tc := range map[string]struct {
		change                func(*v1alpha1.NodeFacts)
		allocatable, capacity corev1.ResourceList
		resource              string
		words                 string
	}{
		"all alike":        {nil, testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, ""},
		"capacity unknown": {nil, testkit.Resources(gpu, "8"), nil, gpu, ""},
		"one unhealthy": {nil, testkit.Resources(gpu, "7"), testkit.Resources(gpu, "8"), gpu,
			"KFD shows 8 devices, the device plugin offers 7 of amd.com/gpu (capacity 8): one is unhealthy to it"},
		"two unhealthy": {nil, testkit.Resources(gpu, "6"), testkit.Resources(gpu, "8"), gpu, "2 are unhealthy"},
		"plugin knows less": {nil, testkit.Resources(gpu, "7"), testkit.Resources(gpu, "7"), gpu,
			"it does not know of all"},
		"plugin knows more": {func(f *v1alpha1.NodeFacts) {
			f.DeviceCount, f.GPUCount = 7, 7
			f.PCIGPUCount = ptr.To(int32(7))
		}, testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu,
			"KFD shows 7 devices, the device plugin offers 8"},
		"no plugin": {nil, testkit.Resources("cpu", "96"), testkit.Resources("cpu", "96"), gpu,
			"it has not registered"},
		"plugin left": {nil, testkit.Resources(gpu, "0"), testkit.Resources(gpu, "0"), gpu,
			"(capacity 0): it has not registered"},
		"all unhealthy": {nil, testkit.Resources(gpu, "0"), testkit.Resources(gpu, "8"), gpu, "8 are unhealthy"},
		"CPX":           {cpx, testkit.Resources(gpu, "64"), testkit.Resources(gpu, "64"), gpu, ""},
		"CPX, none": {cpx, testkit.Resources(gpu, "0"), testkit.Resources(gpu, "0"), gpu,
			"ROCm/k8s-device-plugin#184"},
		"CPX, GPUs counted": {cpx, testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu,
			"KFD shows 64 devices, the device plugin offers 8"},
		"CPX by its name": {cpx, testkit.Resources("amd.com/cpx_nps4", "64"),
			testkit.Resources("amd.com/cpx_nps4", "64"), "amd.com/cpx_nps4", ""},
		"CPX, other name": {cpx, testkit.Resources("amd.com/cpx_nps4", "64"),
			testkit.Resources("amd.com/cpx_nps4", "64"), gpu, "it offers 64 of amd.com/cpx_nps4 instead"},
		"PCI has more": {func(f *v1alpha1.NodeFacts) { f.PCIGPUCount = ptr.To(int32(9)) },
			testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, "the PCI bus has 9 GPUs and KFD shows 8"},
		"PCI has more, named": {func(f *v1alpha1.NodeFacts) {
			f.PCIGPUCount = ptr.To(int32(9))
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemGPUNotInKFD}}
		}, testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, ""},
		"fewer render nodes": {func(f *v1alpha1.NodeFacts) { f.RenderNodeCount = ptr.To(int32(7)) },
			testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu,
			"KFD shows 8 devices and DRM has render nodes for 7"},
		"nothing else is known": {func(f *v1alpha1.NodeFacts) { f.RenderNodeCount, f.PCIGPUCount = nil, nil },
			testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, ""},
		"GPUs hidden": {func(f *v1alpha1.NodeFacts) {
			f.DeviceCount = 4
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityError, Code: v1alpha1.ProblemGPUHidden}}
		}, testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, ""},
		"a NIC's file unreadable": {func(f *v1alpha1.NodeFacts) {
			f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning, Code: v1alpha1.ProblemSysfsUnreadable,
				Path: "sys/class/infiniband/mlx5_0/ports/1/state"}}
		}, testkit.Resources(gpu, "7"), testkit.Resources(gpu, "8"), gpu, "the device plugin offers 7"},
		"no device": {func(f *v1alpha1.NodeFacts) { f.DeviceCount, f.GPUCount, f.PCIGPUCount = 0, 0, nil },
			testkit.Resources(gpu, "8"), testkit.Resources(gpu, "8"), gpu, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := testkit.Facts(testkit.Now)
			if tc.change != nil {
				tc.change(f)
			}
			node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: tc.allocatable, Capacity: tc.capacity}}
			got := CountMismatch(f, node, tc.resource)
			if (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
				t.Errorf("%q, expected %q", got, tc.words)
			}
		})
	}
	if got := CountMismatch(testkit.Facts(testkit.Now), nil, gpu); got != "" {
		t.Errorf("without a Node: %q", got)
	}
}

func TestLabelMismatch(t *testing.T) {
	type labels = map[string]string
	for name, tc := range map[string]struct {
		labels labels
		change func(*v1alpha1.NodeFacts)
		words  string
	}{
		"none": {labels{"gpu": "yes", "amd.com/other": "x"}, nil, ""},
		"all right": {labels{"amd.com/gpu.device-id": "74a1",
			"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.driver-version": "6.14.5",
			"amd.com/gpu.cu-count": "304", "amd.com/gpu.vram": "192G", "amd.com/compute-memory-partition": "spx_nps1"},
			nil, ""},
		"counted": {labels{"beta.amd.com/gpu.device-id.74a1": "8", "beta.amd.com/gpu.device-id": "74a1",
			"beta.amd.com/gpu.vram.192G": "8"}, nil, ""},
		"device id": {labels{"amd.com/gpu.device-id": "75a3"}, nil,
			"label device-id says 75a3 (MI355X) and KFD shows MI300X"},
		"device id, beta": {labels{"beta.amd.com/gpu.device-id.74a5": "8"}, nil, "74a5 (MI325X)"},
		"two device ids": {labels{"amd.com/gpu.device-id.74a1": "4", "amd.com/gpu.device-id.74a5": "4"},
			nil, "MI325X"},
		"new device id": {labels{"amd.com/gpu.device-id": "7fff"}, nil, ""},
		"seven counted": {labels{"beta.amd.com/gpu.device-id.74a1": "7"}, nil,
			"counts 7 and KFD shows 8 devices"},
		"GPUs counted in CPX": {labels{"beta.amd.com/gpu.device-id.74a1": "8"},
			func(f *v1alpha1.NodeFacts) { f.DeviceCount = 64 }, ""},
		"product": {labels{"amd.com/gpu.product-name": "AMD_Instinct_MI325_OAM"}, nil,
			"AMD_Instinct_MI325_OAM and KFD shows MI300X"},
		"product without MI": {labels{"amd.com/gpu.product-name": "Aqua_Vanjaram"}, nil, ""},
		"virtual function": {labels{"amd.com/gpu.device-id": "74b5",
			"amd.com/gpu.product-name": "AMD_Instinct_MI300X_VF"},
			func(f *v1alpha1.NodeFacts) { f.GPUModel = "MI300X VF" }, ""},
		"MI250": {labels{"amd.com/gpu.device-id": "7408", "amd.com/gpu.product-name": "AMD_Instinct_MI250X"},
			func(f *v1alpha1.NodeFacts) { f.GPUModel = "MI250" }, ""},
		"mixed models": {labels{"amd.com/gpu.device-id": "75a3"},
			func(f *v1alpha1.NodeFacts) { f.GPUModel = "mixed" }, ""},
		"driver": {labels{"amd.com/gpu.driver-version": "6.10.5"}, nil,
			"says 6.10.5 and the kernel has 6.14.5 loaded"},
		"driver in tree": {labels{"amd.com/gpu.driver-version": ""}, nil, ""},
		"driver not known": {labels{"amd.com/gpu.driver-version": "6.10.5"},
			func(f *v1alpha1.NodeFacts) { f.Driver = v1alpha1.DriverFacts{Kind: "Unknown"} }, ""},
		"driver's source": {labels{"amd.com/gpu.driver-src-version": "A27B"},
			func(f *v1alpha1.NodeFacts) { f.Driver.SrcVersion = "B27B" }, "A27B"},
		"partition": {labels{"amd.com/compute-memory-partition": "cpx_nps4"}, nil,
			"cpx_nps4 and the kernel shows SPX/NPS1"},
		"partition not known": {labels{"amd.com/compute-memory-partition": "cpx_nps4"},
			func(f *v1alpha1.NodeFacts) { f.Partition = Unknown }, ""},
		"compute mode not known": {labels{"amd.com/compute-memory-partition": "spx_nps1"},
			func(f *v1alpha1.NodeFacts) { f.Partition = "unknown/NPS1" }, ""},
		"memory mode not known": {labels{"amd.com/compute-memory-partition": "spx_nps1"},
			func(f *v1alpha1.NodeFacts) { f.Partition = "SPX/unknown" }, ""},
		"known half differs": {labels{"amd.com/compute-memory-partition": "cpx_nps4"},
			func(f *v1alpha1.NodeFacts) { f.Partition = "SPX/unknown" }, "cpx_nps4 and the kernel shows SPX/unknown"},
		"seven counted, a NIC's file unreadable": {labels{"beta.amd.com/gpu.device-id.74a1": "7"},
			func(f *v1alpha1.NodeFacts) {
				f.Problems = []v1alpha1.Problem{{Severity: v1alpha1.SeverityWarning,
					Code: v1alpha1.ProblemSysfsUnreadable, Path: "sys/class/infiniband/mlx5_0/node_type"}}
			}, "counts 7"},
		"memory": {labels{"amd.com/gpu.vram": "256G"}, nil, "says 256G and GPU 0000:05:00.0 has 192 GiB"},
		"memory of partitions": {labels{"amd.com/gpu.vram": "24G"},
			func(f *v1alpha1.NodeFacts) { f.DeviceCount = 64 }, ""},
		"nonsense": {labels{"amd.com/gpu.vram": "much", "amd.com/gpu.device-id.": "8",
			"amd.com/gpu.device-id.74a1": "some", "beta.amd.com/gpu.vram.": "1"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := testkit.Facts(testkit.Now)
			f.GPUs[0].VRAMMiB = ptr.To(int64(196592))
			if tc.change != nil {
				tc.change(f)
			}
			if got := LabelMismatch(f, tc.labels); (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
				t.Errorf("%q, expected %q", got, tc.words)
			}
		})
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("amd.com/gpu.device-id", "74a1", "beta.amd.com/gpu.vram.192G", "8")
	f.Add("amd.com/gpu.product-name", "AMD_Instinct_MI300X", "amd.com/compute-memory-partition", "cpx_nps4")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		labels := map[string]string{k1: v1, k2: v2}
		first := LabelMismatch(testkit.Facts(testkit.Now), labels)
		if first != LabelMismatch(testkit.Facts(testkit.Now), labels) {
			t.Error("the same labels say something else the second time")
		}
		if first != "" && !strings.Contains(k1+k2, "amd.com/") {
			t.Errorf("%q of labels that are not AMD's", first)
		}
	})
}

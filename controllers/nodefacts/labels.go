package nodefacts

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/units"
	"rcclx.io/commgroup-operator/rcclx/compat"
)

// AMD's node labeller writes amd.com/gpu.KIND=VALUE where all GPUs share the value and amd.com/gpu.KIND.VALUE=COUNT
// where they do not; with the prefix beta.amd.com/ always the second form, and in newer versions both. driver-version,
// driver-src-version and compute-memory-partition have the first form only (ROCm/k8s-device-plugin
// cmd/k8s-node-labeller/main.go). It reads the node once, when it starts.
const (
	labelGPU       = "amd.com/gpu."
	labelPartition = "amd.com/compute-memory-partition"
)

// labelledValues are the values of each kind of label, with the number of devices that have each; 0 where no label
// counts them. Nil where the labeller has written none.
func labelledValues(labels map[string]string) map[string]map[string]int {
	var out map[string]map[string]int
	for key, value := range labels {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(key, "beta."), labelGPU)
		if !ok || value == "" {
			continue
		}
		kind, shared, counts := strings.Cut(rest, ".")
		count := 0
		if counts {
			var err error
			if count, err = strconv.Atoi(value); err != nil || shared == "" {
				continue
			}
			value = shared
		}
		if out == nil {
			out = map[string]map[string]int{}
		}
		if out[kind] == nil {
			out[kind] = map[string]int{}
		}
		out[kind][value] = max(out[kind][value], count)
	}
	return out
}

// LabelMismatch says which label of the node contradicts its facts; empty where none does, or a side is not known.
// Labels only ever are a remark: the facts are what the kernel shows now.
func LabelMismatch(f *v1alpha1.NodeFacts, labels map[string]string) string {
	values := labelledValues(labels)
	if values == nil && labels[labelPartition] == "" {
		return ""
	}
	single := f.GPUModel != Unknown && f.GPUModel != "mixed" && f.GPUModel != ""
	ids := values["device-id"]
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if model := compat.ModelOfDeviceID(id); single && model != "" && !sameModel(model, f.GPUModel) {
			return fmt.Sprintf("label device-id says %s (%s) and KFD shows %s", id, model, f.GPUModel)
		}
	}
	if len(ids) == 1 {
		for id, count := range ids {
			// In a partition mode some versions count GPUs, others devices.
			if count > 0 && f.DeviceCount > 0 && gpusCertain(f) && count != int(f.GPUCount) &&
				count != int(f.DeviceCount) {
				return fmt.Sprintf("label device-id.%s counts %d and KFD shows %s",
					id, count, units.Counted(int(f.DeviceCount), "device"))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values["product-name"])) {
		if single && !sameModel(name, f.GPUModel) {
			return fmt.Sprintf("label product-name says %s and KFD shows %s", name, f.GPUModel)
		}
	}
	if version := labels[labelGPU+"driver-version"]; version != "" && f.Driver.Version != "" &&
		version != f.Driver.Version {
		return fmt.Sprintf("label driver-version says %s and the kernel has %s loaded", version, f.Driver.Version)
	}
	if source := labels[labelGPU+"driver-src-version"]; source != "" && f.Driver.SrcVersion != "" &&
		source != f.Driver.SrcVersion {
		return fmt.Sprintf("label driver-src-version says %s and the kernel has %s loaded", source, f.Driver.SrcVersion)
	}
	if mode := labels[labelPartition]; mode != "" && strings.Count(f.Partition, "/") == 1 &&
		ModesContradict(strings.ToUpper(strings.Replace(mode, "_", "/", 1)), f.Partition) {
		return fmt.Sprintf("label %s says %s and the kernel shows %s", labelPartition, mode, f.Partition)
	}
	return vramMismatch(f, values["vram"])
}

// vramMismatch compares the memory of whole GPUs: the labeller takes each device's own, in GiB, rounded.
func vramMismatch(f *v1alpha1.NodeFacts, sizes map[string]int) string {
	if len(sizes) != 1 || f.DeviceCount != f.GPUCount || len(f.GPUs) == 0 || f.GPUs[0].VRAMMiB == nil {
		return ""
	}
	for text := range sizes {
		gib, err := strconv.ParseInt(strings.TrimSuffix(text, "G"), 10, 64)
		have := (*f.GPUs[0].VRAMMiB + 512) >> 10
		// The two read it from different files of the kernel, which may differ by what the driver keeps for itself.
		if err == nil && gib > 0 && gib < 1<<20 && max(gib, have)-min(gib, have) > 1+have/50 {
			return fmt.Sprintf("label vram says %s and GPU %s has %d GiB", text, f.GPUs[0].PCIAddress, have)
		}
	}
	return ""
}

var modelWord = regexp.MustCompile(`MI[0-9]+[A-Z]*`)

// sameModel compares the model words (MI300X) in two names. Names without one are not compared. MI250 and MI250X share
// a device id.
func sameModel(a, b string) bool {
	words := func(s string) []string {
		found := modelWord.FindAllString(strings.ToUpper(s), -1)
		for i := range found {
			if found[i] == "MI250X" {
				found[i] = "MI250"
			}
		}
		return found
	}
	left, right := words(a), words(b)
	if len(left) == 0 || len(right) == 0 {
		return true
	}
	return slices.ContainsFunc(left, func(word string) bool { return slices.Contains(right, word) })
}

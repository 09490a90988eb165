package controllers

import (
	"cmp"
	"slices"
	"strconv"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/words"
)

const (
	maxInventory = 32
	unknownValue = "unknown"
)

// Properties of the inventory (InventoryItem.Property).
const (
	propROCm          = "ROCmVersion"
	propDriver        = "DriverVersion"
	propKernel        = "KernelRelease"
	propModel         = "GPUModel"
	propGFX           = "GFXTarget"
	propPartition     = "Partition"
	propLibrary       = "Library"
	propMesh          = "Mesh"
	propContainerROCm = "ContainerROCm" // of the run's image: what jobs with it use
	propHostRCCL      = "HostRCCL"
	propFirmware      = "Firmware"
	propDevices       = "Devices" // compared, not listed: the API names the listed ones
)

var inventoryOrder = []string{propROCm, propDriver, propKernel, propModel, propGFX, propPartition, propLibrary, propMesh,
	propContainerROCm, propHostRCCL, propFirmware}

// census counts the values of each property over the nodes whose facts hold. Nodes stay in rank order.
type census map[string]map[string][]string

func (c census) add(property, value, node string) {
	values := c[property]
	if values == nil {
		values = map[string][]string{}
		c[property] = values
	}
	value = words.Shorten(cmp.Or(value, unknownValue), 128)
	values[value] = append(values[value], node)
}

func takeCensus(reporting []*v1alpha1.CommNode, outcomes []outcome) census {
	c := census{}
	for _, cn := range reporting {
		f, node := cn.Status.Facts, cn.Spec.NodeName
		c.add(propROCm, rocmValue(&f.ROCm), node)
		c.add(propDriver, driverValue(&f.Driver), node)
		c.add(propKernel, f.KernelRelease, node)
		c.add(propModel, f.GPUModel, node)
		c.add(propGFX, f.GFXTarget, node)
		c.add(propPartition, f.Partition, node)
		c.add(propMesh, f.XGMI.Mesh, node)
		c.add(propDevices, strconv.Itoa(int(f.DeviceCount)), node)
		// Hosts without a RCCL are usual, and older kernels tell no firmware: only what is known is listed.
		if f.ROCm.RCCLVersion != "" {
			c.add(propHostRCCL, f.ROCm.RCCLVersion, node)
		}
		if fw := platformFirmware(f.Firmware); fw != "" {
			c.add(propFirmware, fw, node)
		}
	}
	for i := range outcomes {
		if r := outcomes[i].report; r != nil && r.Library != nil {
			c.add(propLibrary, libraryValue(r.Library), outcomes[i].node)
		}
		if version := containerROCm(outcomes[i].report); version != "" {
			c.add(propContainerROCm, version, outcomes[i].node)
		}
	}
	return c
}

// rocmValue: hosts without ROCm are usual, since images bring their own; that is a value of its own, not unknown.
func rocmValue(r *v1alpha1.ROCmFacts) string {
	switch r.State {
	case "Found":
		return r.Version
	case "NotFound":
		return "not installed"
	}
	return unknownValue
}

// containerROCm is the version in the container of the node's run; "" where it is not known.
func containerROCm(r *v1alpha1.NodeRunStatus) string {
	if r == nil || r.ROCm == nil || r.ROCm.State != "Found" {
		return ""
	}
	return r.ROCm.Version
}

func platformFirmware(f *v1alpha1.FirmwareFacts) string {
	if f == nil {
		return ""
	}
	return labelled(", ", "MEC", f.MEC, "SDMA", f.SDMA)
}

func driverValue(d *v1alpha1.DriverFacts) string {
	switch d.Kind {
	case "DKMS":
		return d.Version
	case "InTree", "BuiltIn":
		return cmp.Or(d.Version, d.Kind+" "+cmp.Or(d.SrcVersion, "without version"))
	case "NotLoaded":
		return "not loaded"
	}
	return cmp.Or(d.Version, unknownValue)
}

func libraryValue(l *v1alpha1.LibraryFacts) string {
	value := l.Flavor + " " + l.Version
	if l.Imitates != "" {
		value = l.Flavor + " (" + l.Imitates + ") " + l.Version
	}
	if l.BuildHash != "" {
		value += " " + l.BuildHash
	}
	return value
}

// inventory lists the census, the values that most nodes have first.
func inventory(c census) []v1alpha1.InventoryItem {
	var out []v1alpha1.InventoryItem
	for _, property := range inventoryOrder {
		for _, value := range valuesByCount(c[property]) {
			nodes := c[property][value]
			out = append(out, v1alpha1.InventoryItem{Property: property, Value: value, Nodes: int32(len(nodes)), Example: nodes[0]})
		}
	}
	if len(out) > maxInventory {
		// Rare values of one property must not push out another property.
		slices.SortStableFunc(out, func(a, b v1alpha1.InventoryItem) int { return cmp.Compare(b.Nodes, a.Nodes) })
		out = out[:maxInventory]
	}
	return out
}

// valuesByCount are the values, the most frequent first; of equals, the one that sorts first.
func valuesByCount(values map[string][]string) []string {
	keys := words.SortedKeys(values)
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(len(values[b]), len(values[a])) })
	return keys
}

package compatible

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/controllers/nodefacts"
	"rcclx.io/commgroup-operator/internal/clip"
)

const maxInventory = 32

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

var inventoryOrder = []string{propROCm, propDriver, propKernel, propModel, propGFX, propPartition, propLibrary,
	propMesh, propContainerROCm, propHostRCCL, propFirmware}

// Census counts the values of each property over the nodes whose facts hold. Nodes stay in rank order.
type Census map[string]map[string][]string

func (c Census) add(property, value, node string) {
	values := c[property]
	if values == nil {
		values = map[string][]string{}
		c[property] = values
	}
	value = clip.Head(cmp.Or(value, nodefacts.Unknown), 128)
	values[value] = append(values[value], node)
}

// TakeCensus counts what the reporting members and the runs' containers have.
func TakeCensus(reporting []*v1alpha1.CommNode, outcomes []judge.Outcome) Census {
	c := Census{}
	for _, cn := range reporting {
		f, node := cn.Status.Facts, cn.Name
		c.add(propROCm, nodefacts.ROCmValue(&f.ROCm), node)
		c.add(propDriver, nodefacts.DriverValue(&f.Driver), node)
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
		if fw := nodefacts.PlatformFirmware(f.Firmware); fw != "" {
			c.add(propFirmware, fw, node)
		}
	}
	for i := range outcomes {
		if r := outcomes[i].Report; r != nil && r.Library != nil {
			c.add(propLibrary, libraryValue(r.Library), outcomes[i].Node)
		}
		if version := nodefacts.ContainerROCm(outcomes[i].Report); version != "" {
			c.add(propContainerROCm, version, outcomes[i].Node)
		}
	}
	return c
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

// Inventory lists the census, the values that most nodes have first.
func Inventory(c Census) []v1alpha1.InventoryItem {
	var out []v1alpha1.InventoryItem
	for _, property := range inventoryOrder {
		for _, value := range valuesByCount(c[property]) {
			nodes := c[property][value]
			out = append(out,
				v1alpha1.InventoryItem{Property: property, Value: value, Nodes: int32(len(nodes)), Example: nodes[0]})
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
	keys := slices.Sorted(maps.Keys(values))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(len(values[b]), len(values[a])) })
	return keys
}

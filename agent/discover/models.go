package discover

import "fmt"

// fabric says how the GPUs of a model reach each other.
type fabric string

const (
	fabricNone    fabric = "None"    // PCIe only
	fabricMesh    fabric = "Mesh"    // every GPU of the node one hop from every other, one hive
	fabricBridge  fabric = "Bridge"  // PCIe cards, joined by xGMI bridges in hives of up to four where fitted
	fabricHops    fabric = "Hops"    // one hive, some pairs several hops apart (MI250, MI250X)
	fabricUnknown fabric = "Unknown" // a model that this table does not know
)

// Model is what is known of a PCI device id.
type Model struct {
	DeviceID uint16
	Name     string
	GFX      string
	Fabric   fabric
	// PlatformGPUs is how many of it a server has; 0 where that differs (cards, virtual functions).
	PlatformGPUs int
	// TwoDies says that a package holds two PCI devices (GCDs).
	TwoDies bool
	// XCDs is the number of compute dies that partition modes share out; 0 where the model has no partitions.
	XCDs int
	// VF is a virtual function: RAS, memory partition and other files are absent in the guest.
	VF bool

	known bool // the table has the device id
}

// models is the table of PCI device ids, from ROCmValidationSuite src/gpu_util.cpp, k8s-device-plugin amdgpu.ids,
// gpu-operator's NFD rule and RCCL's topology models; platform sizes from AMD's product pages. 0x740c is sold as MI250
// and as MI250X; its fabric is the same.
var models = []Model{
	{DeviceID: 0x6860, Name: "MI25", GFX: "gfx900", Fabric: fabricNone},
	{DeviceID: 0x66a1, Name: "MI50/MI60", GFX: "gfx906", Fabric: fabricBridge},
	{DeviceID: 0x738c, Name: "MI100", GFX: "gfx908", Fabric: fabricBridge},
	{DeviceID: 0x738e, Name: "MI100", GFX: "gfx908", Fabric: fabricBridge},
	{DeviceID: 0x7408, Name: "MI250X", GFX: "gfx90a", Fabric: fabricHops, TwoDies: true},
	{DeviceID: 0x740c, Name: "MI250", GFX: "gfx90a", Fabric: fabricHops, TwoDies: true},
	{DeviceID: 0x740f, Name: "MI210", GFX: "gfx90a", Fabric: fabricBridge},
	{DeviceID: 0x7410, Name: "MI210 VF", GFX: "gfx90a", Fabric: fabricBridge, VF: true},
	{DeviceID: 0x74a0, Name: "MI300A", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 4, XCDs: 6},
	{DeviceID: 0x74a1, Name: "MI300X", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 8},
	{DeviceID: 0x74a2, Name: "MI308X", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 4},
	{DeviceID: 0x74a5, Name: "MI325X", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 8},
	{DeviceID: 0x74a8, Name: "MI308X HF", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 4},
	{DeviceID: 0x74a9, Name: "MI300X HF", GFX: "gfx942", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 8},
	{DeviceID: 0x74b5, Name: "MI300X VF", GFX: "gfx942", Fabric: fabricMesh, XCDs: 8, VF: true},
	{DeviceID: 0x74b6, Name: "MI308X VF", GFX: "gfx942", Fabric: fabricMesh, XCDs: 4, VF: true},
	{DeviceID: 0x74b9, Name: "MI325X VF", GFX: "gfx942", Fabric: fabricMesh, XCDs: 8, VF: true},
	{DeviceID: 0x74bc, Name: "MI308X HF VF", GFX: "gfx942", Fabric: fabricMesh, XCDs: 4, VF: true},
	{DeviceID: 0x74bd, Name: "MI300X HF VF", GFX: "gfx942", Fabric: fabricMesh, XCDs: 8, VF: true},
	{DeviceID: 0x75a0, Name: "MI350X", GFX: "gfx950", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 8},
	{DeviceID: 0x75a3, Name: "MI355X", GFX: "gfx950", Fabric: fabricMesh, PlatformGPUs: 8, XCDs: 8},
	{DeviceID: 0x75a8, Name: "MI350P", GFX: "gfx950", Fabric: fabricNone},
	{DeviceID: 0x75b0, Name: "MI350X VF", GFX: "gfx950", Fabric: fabricMesh, XCDs: 8, VF: true},
	{DeviceID: 0x75b3, Name: "MI355X VF", GFX: "gfx950", Fabric: fabricMesh, XCDs: 8, VF: true},
	{DeviceID: 0x75b8, Name: "MI350P VF", GFX: "gfx950", Fabric: fabricNone, VF: true},
	{DeviceID: 0x75c1, Name: "MI450X", Fabric: fabricUnknown},
}

var modelByID = func() map[uint16]*Model {
	m := make(map[uint16]*Model, len(models))
	for i := range models {
		models[i].known = true
		m[models[i].DeviceID] = &models[i]
	}
	return m
}()

// LookupModel returns what is known of a PCI device id of vendor 0x1002. An id that the table does not have gives a
// model named "unknown (0x....)" and false: a newer GPU is reported, not hidden, and named by its board where that
// states a name.
func LookupModel(deviceID uint64) (Model, bool) {
	if deviceID <= 0xffff {
		if m, ok := modelByID[uint16(deviceID)]; ok {
			return *m, true
		}
	}
	return Model{DeviceID: uint16(deviceID & 0xffff), Name: fmt.Sprintf("unknown (0x%04x)", deviceID),
		Fabric: fabricUnknown}, false
}

// partitionable says whether GPUs of the model can have partition modes. For one of these that shows none, or one that
// the table does not know, the mode is unknown; for the others there is none.
func (m *Model) partitionable() bool {
	return m.XCDs > 0 || !m.known || m.Fabric == fabricUnknown || m.GFX == "gfx942" || m.GFX == "gfx950"
}

// selfName is what a model that the table does not know says of itself, with its id.
func (m *Model) selfName(productName string) string {
	if m.known || productName == "" {
		return m.Name
	}
	return fmt.Sprintf("%s (0x%04x)", productName, m.DeviceID)
}

// function says whether GPUs of the model are whole devices or virtual functions of one.
func (m *Model) function() string {
	switch {
	case !m.known:
		return FunctionUnknown
	case m.VF:
		return FunctionVirtual
	}
	return FunctionPhysical
}

// partitionMode names a compute partition mode by the compute dies in each partition (num_xcc) and in the whole GPU;
// "" where the numbers fit no mode.
func partitionMode(xcdsPerPartition, xcds int) string {
	switch {
	case xcds <= 0 || xcdsPerPartition <= 0 || xcds%xcdsPerPartition != 0:
		return ""
	case xcdsPerPartition == xcds:
		return "SPX"
	case xcdsPerPartition == 1:
		return "CPX"
	}
	switch xcds / xcdsPerPartition {
	case 2:
		return "DPX"
	case 3:
		return "TPX"
	case 4:
		return "QPX"
	}
	return ""
}

// partitionsOf is how many partitions a mode makes of a GPU; 0 where unknown.
func partitionsOf(mode string, xcds int) int {
	switch mode {
	case "SPX":
		return 1
	case "DPX":
		return 2
	case "TPX":
		return 3
	case "QPX":
		return 4
	case "CPX":
		return xcds
	}
	return 0
}

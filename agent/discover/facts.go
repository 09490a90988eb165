package discover

import (
	"time"

	"k8s.io/utils/clock"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// Facts is everything that a scan found. A nil pointer, an empty string or an absent entry means "not known", never
// zero; Unread says what could not be read and why.
type Facts struct {
	Origin       v1alpha1.Origin `json:"origin"`
	ObservedTime time.Time       `json:"observedTime"`

	KernelRelease string       `json:"kernelRelease,omitempty"`
	BootID        string       `json:"bootID,omitempty"`
	Driver        DriverFacts  `json:"driver"`
	ROCm          ROCmFacts    `json:"rocm"`
	Host          HostSettings `json:"hostSettings"`

	// Generation is KFD's topology generation after the scan; GenerationStable says that it did not change during it.
	Generation       *uint64 `json:"generation,omitempty"`
	GenerationStable bool    `json:"generationStable"`
	Scans            int     `json:"scans"`

	// Model, GFXTarget and Partition that all GPUs share, else "mixed", else "unknown".
	Model     string `json:"model"`
	GFXTarget string `json:"gfxTarget"`
	Partition string `json:"partition"`
	// PartitionSource: Reported by sysfs, or Derived from the compute dies of each KFD node.
	PartitionSource string `json:"partitionSource,omitempty"`

	// GPUs are physical, ordered by PCI address; Devices are KFD's GPU nodes, of which a partitioned GPU has several.
	GPUs    []GPU    `json:"gpus"`
	Devices []Device `json:"devices"`
	// Links between GPU devices, directed.
	Links []Link `json:"links"`
	Mesh  Mesh   `json:"mesh"`
	// PCIGPUs are AMD's data-centre GPUs on the PCI bus, whether a driver took them or not; nil where the bus was
	// unreadable.
	PCIGPUs []PCIGPU `json:"pciGPUs,omitempty"`
	// RenderNodes counts the DRM render nodes of the devices that exist; nil where sys/class/drm was unreadable.
	RenderNodes *int `json:"renderNodes,omitempty"`
	// Modules counts OAM packages or cards; nil where it is not known which GPUs share one.
	Modules *int `json:"modules,omitempty"`
	// Function: Physical, Virtual, Mixed or Unknown.
	Function string `json:"function,omitempty"`
	// NICs are the RDMA devices, by name.
	NICs []NIC `json:"nics,omitempty"`
	// HiddenNodes are KFD nodes whose files answer EPERM: GPUs outside this container's device cgroup.
	HiddenNodes []int `json:"hiddenNodes,omitempty"`
	// UnreadableNodes are KFD nodes of which not even the PCI address could be read, for another reason than EPERM.
	UnreadableNodes []int `json:"unreadableNodes,omitempty"`

	// LostGPUs are the PCI addresses of GPUs that were there in this boot and are gone, LostLinks the pairs of GPUs,
	// lost ones too, whose xGMI link is. A scan knows of neither: the monitor adds them, from what it saw before.
	LostGPUs  []string    `json:"-"`
	LostLinks [][2]string `json:"-"`

	Problems []v1alpha1.Problem `json:"problems"`
	Unread   []Unread           `json:"unread,omitempty"`

	pciReadable bool
	kfdPresent  bool
	sysClass    Class // why sys/ could not be listed; "" where it could
	kfdClass    Class // why KFD's topology could not be listed
	nodesClass  Class // why its nodes could not be listed
	moduleClass Class // why sys/module/amdgpu could not be listed
	modulesSeen bool  // sys/module itself could be listed
	linkRecords []linkRecord
	// linksUnread are the KFD nodes of which some link is there but could not be read.
	linksUnread map[int]bool
	hiveOrder   hiveOrders
	// renderMinors are the DRM render nodes that exist; nil where they could not be listed.
	renderMinors map[uint64]bool
	pciAddresses map[string]bool // every function on the PCI bus
}

// DriverFacts is the amdgpu kernel driver.
type DriverFacts struct {
	// Kind: DKMS, InTree, BuiltIn, NotLoaded or Unknown.
	Kind       string `json:"kind"`
	Version    string `json:"version,omitempty"`
	SrcVersion string `json:"srcVersion,omitempty"`
	InitState  string `json:"initState,omitempty"`
}

// The driver kinds.
const (
	DriverDKMS      = "DKMS"
	DriverInTree    = "InTree"
	DriverBuiltIn   = "BuiltIn"
	DriverNotLoaded = "NotLoaded"
	DriverUnknown   = "Unknown"
)

// ROCmFacts is the ROCm user space in the root.
type ROCmFacts struct {
	// State: Found, NotFound, Ambiguous (several installs, none of them at the usual path) or Unreadable.
	State string `json:"state"`
	// Version without the build number, and the file that gave it.
	Version string `json:"version,omitempty"`
	Source  string `json:"source,omitempty"`
	// LostLink is where LostLinkPath (opt/rocm or opt/rocm/core) leads to, if that is not in this root: which
	// installation is in use is then not known.
	LostLink     string `json:"lostLink,omitempty"`
	LostLinkPath string `json:"lostLinkPath,omitempty"`
	// HIPVersion and RCCLVersion of the libraries in the same installation, without loading them; "" where not known.
	HIPVersion  string `json:"hipVersion,omitempty"`
	RCCLVersion string `json:"rcclVersion,omitempty"`
	// Sources are all that were looked at and exist, in the order in which they count.
	Sources []ROCmSource `json:"sources,omitempty"`

	rivals []rival
}

// ROCmSource is one file that tells a ROCm version.
type ROCmSource struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	// Raw is the content, at most 64 bytes of it.
	Raw   string `json:"raw,omitempty"`
	Error string `json:"error,omitempty"`
}

// The ROCm states.
const (
	ROCmFound      = "Found"
	ROCmNotFound   = "NotFound"
	ROCmAmbiguous  = "Ambiguous"
	ROCmUnreadable = "Unreadable"
)

// HostSettings are the kernel settings that RCCL looks at when it starts.
type HostSettings struct {
	// NUMABalancing is kernel.numa_balancing; RCCL wants 0.
	NUMABalancing *int64 `json:"numaBalancing,omitempty"`
	// IOMMU is what becomes of the addresses that the GPUs use: Passthrough, Off or Translated; "" is not known.
	IOMMU string `json:"iommu,omitempty"`
	// IOMMUSource told it, or is the last that was read and did not: sys/kernel/iommu_groups or proc/cmdline.
	IOMMUSource string `json:"iommuSource,omitempty"`
	// IOMMUWord of the kernel's command line has the last word on it there, for example iommu=pt; "" where none has.
	IOMMUWord string `json:"iommuWord,omitempty"`
	// TranslatedGPUs are those whose IOMMU group translates; only of source sys/kernel/iommu_groups.
	TranslatedGPUs []string `json:"translatedGPUs,omitempty"`
}

// What an IOMMU does with the GPUs' addresses (HostSettings.IOMMU).
const (
	IOMMUPassthrough = "Passthrough" // it leaves them as they are
	IOMMUOff         = "Off"         // none is in use
	IOMMUTranslated  = "Translated"
)

// GPU is one physical GPU: one PCI function 0. A GCD of an MI250 is a PCI device of its own and counts as one.
type GPU struct {
	PCIAddress string `json:"pciAddress"`
	DeviceID   string `json:"deviceID"`
	Model      string `json:"model"`
	GFXTarget  string `json:"gfxTarget,omitempty"`
	// Nodes are the KFD nodes of its partitions.
	Nodes []int `json:"nodes"`
	// ExpectedPartitions by its mode; 0 where unknown.
	ExpectedPartitions int    `json:"expectedPartitions,omitempty"`
	ComputePartition   string `json:"computePartition,omitempty"`
	MemoryPartition    string `json:"memoryPartition,omitempty"`
	PartitionDerived   bool   `json:"partitionDerived,omitempty"`
	// HiveID is the xGMI hive; 0 is "in no hive", nil is not known.
	HiveID *uint64 `json:"hiveID,omitempty"`
	// HiveNodes is how many GPUs the driver lists in the hive, this one included (xgmi_num_hops).
	HiveNodes      *int    `json:"hiveNodes,omitempty"`
	XGMIPhysicalID *uint64 `json:"xgmiPhysicalID,omitempty"`
	NUMANode       *int32  `json:"numaNode,omitempty"`
	NUMAUnknown    bool    `json:"numaUnknown,omitempty"` // the kernel says -1
	VRAMBytes      *uint64 `json:"vramBytes,omitempty"`
	UniqueID       string  `json:"uniqueID,omitempty"`
	// xGMI and WAFL error counters since the driver was loaded (ras/xgmi_wafl_err_count).
	XGMIUncorrectableErrors *uint64 `json:"xgmiUncorrectableErrors,omitempty"`
	XGMICorrectableErrors   *uint64 `json:"xgmiCorrectableErrors,omitempty"`
	PCIe                    PCIe    `json:"pcie,omitzero"`
	// ProductName that the board's FRU EEPROM states (product_name; amdgpu_fru_eeprom.c); "" where it has none.
	ProductName string `json:"productName,omitempty"`
	// Module is the OAM package that it is a die of; nil where each GPU is a module of its own, or that is not known.
	Module *int `json:"module,omitempty"`
	// PCIPath is the directory of its PCI device below sys/devices, from which nearness follows; "" where not known.
	PCIPath string `json:"pciPath,omitempty"`
	// NIC is the nearest RDMA device, and NICPath how near (Switch, Host, NUMA or Far); "" where not known.
	NIC     string `json:"nic,omitempty"`
	NICPath string `json:"nicPath,omitempty"`
	// RAS are the error counters of each block that has them (ras/<block>_err_count), since the driver was loaded.
	RAS map[string]ErrorCounts `json:"ras,omitempty"`
	// RetiredPages of its memory, reserved or about to be (ras/gpu_vram_bad_pages, flags R and P); nil where not known.
	RetiredPages *int `json:"retiredPages,omitempty"`
	// Metrics is gpu_metrics; nil where there is none or its revision is not known (Unread says so).
	Metrics *Metrics `json:"metrics,omitempty"`
	// Complete is false where KFD's properties of one of its nodes were not readable in whole.
	Complete bool `json:"complete"`

	model Model
	// hops and links to each GPU of its hive, in the hive's own order (xgmi_num_hops, xgmi_num_links); nil where not
	// known.
	hops, links []uint8
	noDomain    bool // KFD does not state the PCI domain (old kernels), so the address is not sure
	rasUnread   bool // an error counter is there and could not be read
	// rasFiles are its files that count errors, readable or not; nil where it has no ras directory, or that was
	// unreadable.
	rasFiles map[string]bool
	vanished bool   // not one file of its PCI directory could be found
	iommu    string // what its IOMMU group does; "" where the kernel does not say
	// unreservedPages are bad pages of its memory that the driver could not take out of use.
	unreservedPages int
}

// PCIe is the link of a GPU to its host. Speeds are in MT/s.
type PCIe struct {
	SpeedMTps    *int64 `json:"speedMTps,omitempty"`
	MaxSpeedMTps *int64 `json:"maxSpeedMTps,omitempty"`
	Width        *int64 `json:"width,omitempty"`
	MaxWidth     *int64 `json:"maxWidth,omitempty"`
}

// ErrorCounts are the counters of one block since the driver was loaded.
type ErrorCounts struct {
	Uncorrectable uint64 `json:"ue"`
	Correctable   uint64 `json:"ce"`
	// Deferred is nil where the block does not count them (before MI300, and all blocks but umc).
	Deferred *uint64 `json:"de,omitempty"`
}

// Metrics is what is used of gpu_metrics (drivers/gpu/drm/amd/include/kgd_pp_interface.h). A nil field is one that this
// revision does not have, or that the firmware marks as not available.
type Metrics struct {
	// Revision is format.content, for example 1.7.
	Revision string `json:"revision"`
	// HotspotCelsius and MemoryCelsius are whole degrees.
	HotspotCelsius *int64 `json:"hotspotCelsius,omitempty"`
	MemoryCelsius  *int64 `json:"memoryCelsius,omitempty"`
	// SocketPowerWatts averaged by the firmware.
	SocketPowerWatts *int64 `json:"socketPowerWatts,omitempty"`
	// ThrottleStatus is a bit mask of present causes (up to 1.5); ThrottleAccumulators count residency since the driver
	// was loaded by cause (1.6 and up), and mean something only by their increase against AccumulationCounter.
	ThrottleStatus       *uint64           `json:"throttleStatus,omitempty"`
	ThrottleAccumulators map[string]uint64 `json:"throttleAccumulators,omitempty"`
	AccumulationCounter  *uint64           `json:"accumulationCounter,omitempty"`
	PCIeWidth            *int64            `json:"pcieWidth,omitempty"`
	PCIeSpeedMTps        *int64            `json:"pcieSpeedMTps,omitempty"`
	// PCIeReplays since the driver was loaded; pcie_replay_count gives it where the revision does not.
	PCIeReplays   *uint64 `json:"pcieReplays,omitempty"`
	XGMIWidth     *int64  `json:"xgmiWidth,omitempty"`
	XGMISpeedGbps *int64  `json:"xgmiSpeedGbps,omitempty"`
	// XGMIReadKB and XGMIWriteKB by port, since the driver was loaded. A port's index is not a peer's.
	XGMIReadKB  []uint64 `json:"xgmiReadKB,omitempty"`
	XGMIWriteKB []uint64 `json:"xgmiWriteKB,omitempty"`
	// XGMIPorts by port: Up, Down or Unknown. All down, or all not available, is Unknown: guests of several VFs say so.
	XGMIPorts []string `json:"xgmiPorts,omitempty"`
	// Partitions that the firmware runs.
	Partitions *int64 `json:"partitions,omitempty"`
}

// NIC is one RDMA device.
type NIC struct {
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	// PCIAddress and PCIPath of its device; "" where not known.
	PCIAddress string `json:"pciAddress,omitempty"`
	PCIPath    string `json:"pciPath,omitempty"`
	// VendorID and DeviceID, for example 0x15b3 and 0x1021, and the product by them; "" where not known.
	VendorID string `json:"vendorID,omitempty"`
	DeviceID string `json:"deviceID,omitempty"`
	Product  string `json:"product,omitempty"`
	// LinkLayer: InfiniBand, Ethernet or Unknown. State: Active, Init, Armed, Down or Unknown.
	LinkLayer string `json:"linkLayer"`
	State     string `json:"state"`
	// PhysState of the link below it in the kernel's word, for example Polling or Disabled; "" where not known, and of
	// a port that is Active.
	PhysState string `json:"physState,omitempty"`
	// RateMbps of its first port, 10^6 bits a second.
	RateMbps *int64 `json:"rateMbps,omitempty"`
	NUMANode *int32 `json:"numaNode,omitempty"`

	virtual         bool // made by software (rxe, siw)
	virtualFunction bool // a virtual function whose physical one is here, too
}

// How near a NIC is to a GPU.
const (
	NearSwitch = "Switch" // they share a PCIe switch
	NearHost   = "Host"   // they share the host bridge
	NearNUMA   = "NUMA"   // the same NUMA node
	NearFar    = "Far"    // another NUMA node
)

// Device is one GPU node of KFD.
type Device struct {
	Node        int     `json:"node"`
	PCIAddress  string  `json:"pciAddress"`
	Partition   int     `json:"partition"`
	GPUID       *uint64 `json:"gpuID,omitempty"`
	RenderMinor *uint64 `json:"renderMinor,omitempty"`
	XCDs        *uint64 `json:"xcds,omitempty"`
	// ComputeUnits of this node.
	ComputeUnits *uint64 `json:"computeUnits,omitempty"`
	GFXTarget    string  `json:"gfxTarget,omitempty"`
	HiveID       *uint64 `json:"hiveID,omitempty"`
	FWVersion    *uint64 `json:"mecFirmware,omitempty"`
	SDMAVersion  *uint64 `json:"sdmaFirmware,omitempty"`
	Complete     bool    `json:"complete"`
}

// LinkType is HSA_IOLINKTYPE (hsakmttypes.h) in a word.
type LinkType string

// The link types that join GPUs.
const (
	LinkXGMI  LinkType = "XGMI" // 11
	LinkPCIe  LinkType = "PCIE" // 2
	LinkOther LinkType = "OTHER"
)

// Link is one directed link between two GPU devices, as KFD tells it.
type Link struct {
	From int      `json:"from"` // KFD nodes
	To   int      `json:"to"`
	Type LinkType `json:"type"`
	// Weight is KFD's cost: 15 for each xGMI hop of the firmware's routing.
	Weight uint64 `json:"weight"`
	// Hops is weight/15 for xGMI between unpartitioned GPUs; nil where the weight does not tell.
	Hops *uint64 `json:"hops,omitempty"`
	// MinBandwidthMBps and MaxBandwidthMBps are what the driver states; nil where it states none (0). MB is 10^6 bytes.
	MinBandwidthMBps *uint64 `json:"minBandwidthMBps,omitempty"`
	MaxBandwidthMBps *uint64 `json:"maxBandwidthMBps,omitempty"`
	// Indirect links lead over the CPU (p2p_links).
	Indirect bool `json:"indirect,omitempty"`
}

// Mesh is the state of xGMI between the physical GPUs.
type Mesh struct {
	// State: Full, Incomplete, NotApplicable or Unknown.
	State string `json:"state"`
	// Hives counts the hives that the readable GPUs are in.
	Hives int `json:"hives"`
	// Links counts directed pairs of GPUs joined by xGMI.
	Links         int  `json:"links"`
	ExpectedLinks *int `json:"expectedLinks,omitempty"`
	// LinkBandwidthMBps is the commonest stated bandwidth of one xGMI link.
	LinkBandwidthMBps *uint64 `json:"linkBandwidthMBps,omitempty"`
	// Pairs is the best way between each two GPUs, by their order in Facts.GPUs; nil for a GPU itself or no known way.
	Pairs [][]*Link `json:"-"`

	// detours counts those that take several hops, or none that the firmware knows, where the model has direct links.
	detours int
	// devicePairs counts the directed xGMI links between the devices of two GPUs, or of one GPU.
	devicePairs map[[2]int]int
}

// The states of a mesh.
const (
	MeshFull          = "Full"
	MeshIncomplete    = "Incomplete"
	MeshNotApplicable = "NotApplicable"
	MeshUnknown       = "Unknown"
)

// PCIGPU is a data-centre GPU on the PCI bus.
type PCIGPU struct {
	PCIAddress string `json:"pciAddress"`
	DeviceID   string `json:"deviceID"`
	Model      string `json:"model"`
	// Driver that it is bound to, for example amdgpu or vfio-pci; "" where none is, or that is not known.
	Driver string `json:"driver,omitempty"`
}

// Unread is one thing that could not be read.
type Unread struct {
	Path    string `json:"path"`
	Class   Class  `json:"class"`
	Message string `json:"message"`
	// revision: a gpu_metrics of a revision that this version does not know.
	revision bool
}

// What the GPUs are (Facts.Function).
const (
	FunctionPhysical = "Physical"
	FunctionVirtual  = "Virtual" // SR-IOV virtual functions in a guest
	FunctionMixed    = "Mixed"
	FunctionUnknown  = "Unknown"
)

// Words for what GPUs do not share or nobody knows.
const (
	Mixed         = "mixed"
	Unknown       = "unknown"
	NotApplicable = "NotApplicable"
)

// Options of a scan; the zero value is usable.
type Options struct {
	// Clock for deadlines and the observed time; the real one by default.
	Clock clock.WithTicker
	// ReadDeadline for one file; 2 s by default. A GPU in reset can block a read for seconds.
	ReadDeadline time.Duration
	// Parallel is the most reads at once; 4 by default.
	Parallel int
	// ExpectedGPUs is how many physical GPUs the node should have; 0 takes the model's usual number.
	ExpectedGPUs int
	// Proc reads /proc where the root has none: the kernel's values are the same in every container of the host. Nil
	// leaves them unknown, as is right for the tree of another machine.
	Proc FS
	// Simulated marks the facts as simulated even where the root has no simrocm.conf, as a process that the node
	// simulator started must do.
	Simulated bool
	// ROCmPaths are tried before /opt/rocm, relative to the root: $ROCM_PATH and $ROCM_HOME of a workload's container.
	ROCmPaths []string
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ReadDeadline <= 0 {
		o.ReadDeadline = 2 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	return o
}

// Scanner scans one root, again and again. It remembers reads that hang, so that no scan reads such a file again,
// and links, which it reads again when their directory was re-created.
type Scanner struct {
	fs    FS
	opts  Options
	hung  hungReads
	links linkCache
}

// NewScanner makes a Scanner.
func NewScanner(fs FS, opts Options) *Scanner {
	return &Scanner{fs: fs, opts: opts.withDefaults()}
}

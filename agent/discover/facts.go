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
	// PCIGPUs are AMD's data-centre GPUs on the PCI bus, whether a driver took them or not; nil where the bus was unreadable.
	PCIGPUs []PCIGPU `json:"pciGPUs,omitempty"`
	// HiddenNodes are KFD nodes whose files answer EPERM: GPUs outside this container's device cgroup.
	HiddenNodes []int `json:"hiddenNodes,omitempty"`
	// UnreadableNodes are KFD nodes of which not even the PCI address could be read, for another reason than EPERM.
	UnreadableNodes []int `json:"unreadableNodes,omitempty"`

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
	linksUnread bool // some link of a GPU is there but could not be read
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
	// Sources are all that were looked at and exist, in the order in which they count.
	Sources []ROCmSource `json:"sources,omitempty"`
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
	// IOMMUPassthrough says that the kernel's command line has the word iommu=pt.
	IOMMUPassthrough *bool `json:"iommuPassthrough,omitempty"`
}

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
	// Complete is false where KFD's properties of one of its nodes were not readable in whole.
	Complete bool `json:"complete"`

	model Model
}

// PCIe is the link of a GPU to its host. Speeds are in MT/s.
type PCIe struct {
	SpeedMTps    *int64 `json:"speedMTps,omitempty"`
	MaxSpeedMTps *int64 `json:"maxSpeedMTps,omitempty"`
	Width        *int64 `json:"width,omitempty"`
	MaxWidth     *int64 `json:"maxWidth,omitempty"`
}

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
}

// Unread is one thing that could not be read.
type Unread struct {
	Path    string `json:"path"`
	Class   Class  `json:"class"`
	Message string `json:"message"`
}

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
	// Simulated marks the facts as simulated even where the root has no simrocm.conf, as a process that the node simulator
	// started must do.
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

// Scanner scans one root, again and again. It remembers reads that hang, so that no scan reads such a file again.
type Scanner struct {
	fs   FS
	opts Options
	hung hungReads
}

// NewScanner makes a Scanner.
func NewScanner(fs FS, opts Options) *Scanner {
	return &Scanner{fs: fs, opts: opts.withDefaults()}
}

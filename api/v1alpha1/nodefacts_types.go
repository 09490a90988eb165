package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeFacts is what sysfs tells of a node. An absent field is not known, or not there on this model, unless it says
// otherwise.
type NodeFacts struct {
	// observedTime is when the facts were read or last confirmed, by the node's clock. More than 30 s after the API
	// server took them, or 75 s before it, the clock counts as wrong (ClockSkew).
	ObservedTime metav1.Time `json:"observedTime"`
	// validForSeconds is how long the facts hold after the monitor wrote them, by the API server's clock
	// (metadata.managedFields); then they count as unknown.
	ValidForSeconds int32 `json:"validForSeconds"`
	// origin of the facts.
	Origin Origin `json:"origin"`
	// bootID of the node's kernel; results of another boot are stale.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// kernelRelease as uname -r prints it.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	KernelRelease string `json:"kernelRelease,omitempty"`
	// driver is the amdgpu kernel driver.
	Driver DriverFacts `json:"driver"`
	// rocm is the host's ROCm user space, as far as the host's /opt tells it; often there is none, since images bring
	// their own. What jobs of an image use is in status.run.rocm.
	ROCm ROCmFacts `json:"rocm"`
	// gpuModel is the model that all GPUs share, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=64
	GPUModel string `json:"gpuModel"`
	// gfxTarget that all GPUs share, for example gfx942, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=64
	GFXTarget string `json:"gfxTarget"`
	// gpuCount counts the physical GPUs of KFD that could be read; partitions of one GPU count once. It is 0 also where
	// the scan failed, with a problem that says so.
	GPUCount int32 `json:"gpuCount"`
	// deviceCount counts the logical devices of KFD that could be read: partitions count each.
	DeviceCount int32 `json:"deviceCount"`
	// moduleCount counts the OAM packages or cards of these GPUs; an MI250 or MI250X is one with two GPUs. Absent where
	// it is not known which GPUs share one.
	// +optional
	ModuleCount *int32 `json:"moduleCount,omitempty"`
	// pciGPUCount counts data-centre GPUs on the PCI bus, whether a driver took them or not; absent where the bus could
	// not be read.
	// +optional
	PCIGPUCount *int32 `json:"pciGPUCount,omitempty"`
	// renderNodeCount counts the DRM render nodes of the devices; absent where they could not be read.
	// +optional
	RenderNodeCount *int32 `json:"renderNodeCount,omitempty"`
	// function: Physical (bare metal), Virtual (an SR-IOV virtual function in a guest), Mixed or Unknown.
	// +kubebuilder:validation:Enum=Physical;Virtual;Mixed;Unknown
	// +optional
	Function string `json:"function,omitempty"`
	// firmware that the library's rules look at.
	// +optional
	Firmware *FirmwareFacts `json:"firmware,omitempty"`
	// partition mode that all GPUs share, for example SPX/NPS1, or "mixed", or "unknown".
	// +kubebuilder:validation:MaxLength=32
	Partition string `json:"partition"`
	// gpus that could be read, by PCI address.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	GPUs []GPUFacts `json:"gpus,omitempty"`
	// nics are the RDMA devices, by name; absent where there is none, or they could not be listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	NICs []NICFacts `json:"nics,omitempty"`
	// xgmi is the state of the xGMI mesh.
	XGMI XGMIFacts `json:"xgmi"`
	// lostGPUs are the PCI addresses of GPUs that were there in this boot and are gone.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=16
	// +optional
	LostGPUs []string `json:"lostGPUs,omitempty"`
	// linkClasses are the kinds of link between two GPUs that this node has; gpus[].links refers to them by their
	// letter.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	LinkClasses []LinkClass `json:"linkClasses,omitempty"`
	// ras sums up the error counters of all GPUs since the driver was loaded; absent where the kernel has none.
	// +optional
	RAS *RASFacts `json:"ras,omitempty"`
	// problems: what is wrong or could not be read, and why; the worst first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12
	// +optional
	Problems []Problem `json:"problems,omitempty"`
}

// DriverFacts is the amdgpu kernel driver.
type DriverFacts struct {
	// version of the DKMS driver; empty for an in-tree driver, which has none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Version string `json:"version,omitempty"`
	// kind: DKMS, InTree, BuiltIn, NotLoaded or Unknown.
	// +kubebuilder:validation:Enum=DKMS;InTree;BuiltIn;NotLoaded;Unknown
	Kind string `json:"kind"`
	// srcVersion identifies the module's source; an in-tree driver has no other version.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SrcVersion string `json:"srcVersion,omitempty"`
}

// ROCmFacts is a ROCm user space: the host's in facts.rocm, the container's in run.rocm.
type ROCmFacts struct {
	// version, for example 7.0.2; empty where none was found.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Version string `json:"version,omitempty"`
	// source is the file that gave the version, relative to the root.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Source string `json:"source,omitempty"`
	// state: Found, NotFound, Ambiguous (several versions, and nothing says which is used) or Unreadable (a source is
	// there, and none gave a version).
	// +kubebuilder:validation:Enum=Found;NotFound;Ambiguous;Unreadable
	State string `json:"state"`
	// hipVersion of libamdhip64 in the same installation; absent where it is not known.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	HIPVersion string `json:"hipVersion,omitempty"`
	// rcclVersion of librccl in the same installation, for example 2.27.7; absent where it is not known.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	RCCLVersion string `json:"rcclVersion,omitempty"`
}

// FirmwareFacts are versions as KFD writes them, in decimal; "mixed" where GPUs differ, absent where not known.
type FirmwareFacts struct {
	// mec is the compute engine's microcode: RCCLX needs HSA_NO_SCRATCH_RECLAIM=1 below 177 (gfx942) or 24 (gfx950).
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MEC string `json:"mec,omitempty"`
	// sdma is the copy engine's microcode.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	SDMA string `json:"sdma,omitempty"`
}

// NICFacts is one RDMA device.
type NICFacts struct {
	// name of the RDMA device, for example mlx5_0.
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`
	// interface is its network interface; absent where it has none.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Interface string `json:"interface,omitempty"`
	// linkLayer: InfiniBand, Ethernet (RoCE) or Unknown.
	// +kubebuilder:validation:MaxLength=16
	LinkLayer string `json:"linkLayer"`
	// state of its first port as the kernel says it: Active, Init, Armed, Down or Unknown.
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// rateMbps of its first port, 10^6 bits a second; absent where not known.
	// +optional
	RateMbps *int64 `json:"rateMbps,omitempty"`
	// numaNode; absent where the firmware does not say.
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
}

// LinkClass is one kind of link between two GPUs, as KFD states it.
type LinkClass struct {
	// letter that gpus[].links uses: a, b, c and so on, the most frequent first.
	// +kubebuilder:validation:MaxLength=1
	Letter string `json:"letter"`
	// type: XGMI, PCIE or OTHER.
	// +kubebuilder:validation:Enum=XGMI;PCIE;OTHER
	Type string `json:"type"`
	// hops over xGMI; absent over PCIe, and where the weight does not tell.
	// +optional
	Hops *int32 `json:"hops,omitempty"`
	// weight is KFD's cost: 15 for each xGMI hop, 41 for one hop between partitions of two GPUs, 20 to 72 over PCIe.
	Weight int32 `json:"weight"`
	// minMBps is what the driver states of one link of the pair, in 10^6 bytes a second and one direction; absent where
	// it states none. It is no measurement, and by itself no health signal.
	// +optional
	MinMBps *int64 `json:"minMBps,omitempty"`
	// maxMBps is what the driver states of all links of the pair together, likewise.
	// +optional
	MaxMBps *int64 `json:"maxMBps,omitempty"`
	// pairs counts the directed pairs of GPUs with such a link: both ways between two GPUs are 2.
	Pairs int32 `json:"pairs"`
}

// RASFacts are sums over all GPUs and blocks since the driver was loaded. A part that could not be read is not added
// in; unreadable says how many GPUs lack a part.
type RASFacts struct {
	// uncorrectable errors.
	// +optional
	Uncorrectable *int64 `json:"uncorrectable,omitempty"`
	// correctable errors.
	// +optional
	Correctable *int64 `json:"correctable,omitempty"`
	// deferred errors: poisoned data that nobody has used yet (MI300 and newer).
	// +optional
	Deferred *int64 `json:"deferred,omitempty"`
	// retiredPages of the GPUs' memory.
	// +optional
	RetiredPages *int64 `json:"retiredPages,omitempty"`
	// unreadable counts GPUs of which a counter is there and could not be read; absent where there is none.
	// +optional
	Unreadable int32 `json:"unreadable,omitempty"`
}

// GPUFacts is one physical GPU.
type GPUFacts struct {
	// pciAddress, domain:bus:device.function.
	// +kubebuilder:validation:MaxLength=16
	PCIAddress string `json:"pciAddress"`
	// model by device id; what a newer GPU says of itself, with the id. Absent where it is the node's gpuModel.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Model string `json:"model,omitempty"`
	// module is the OAM package that the GPU is a die of, from 0; absent where each GPU is a module of its own.
	// +optional
	Module *int32 `json:"module,omitempty"`
	// devices counts its logical devices; absent where it is one.
	// +optional
	Devices int32 `json:"devices,omitempty"`
	// partition mode; absent where it is the node's.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Partition string `json:"partition,omitempty"`
	// hive is the number of its xGMI hive on this node, from 1; 0 is in none, absent is not known.
	// +optional
	Hive *int32 `json:"hive,omitempty"`
	// numaNode; absent where the firmware does not say.
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// vramMiB of the GPU; absent where unknown.
	// +optional
	VRAMMiB *int64 `json:"vramMiB,omitempty"`
	// nic is the RDMA device nearest to the GPU; absent where none is known to be near.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	NIC string `json:"nic,omitempty"`
	// nicPath says how near: Switch (they share a PCIe switch), Host (the same host bridge), NUMA (the same NUMA node)
	// or Far.
	// +kubebuilder:validation:Enum=Switch;Host;NUMA;Far
	// +optional
	NICPath string `json:"nicPath,omitempty"`
	// links has one character for each GPU of gpus, in their order: the letter of linkClasses of the link to it, "-"
	// for the GPU itself, "?" where no link is known.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Links string `json:"links,omitempty"`
	// lostLinks has one character for each GPU of gpus, then of lostGPUs, in their order: "x" where an xGMI link to it
	// was there in this boot and is gone, "." elsewhere; a row may end early. Absent where no link of this GPU is lost.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	LostLinks string `json:"lostLinks,omitempty"`
}

// XGMIFacts is the state of the xGMI mesh.
type XGMIFacts struct {
	// mesh: Full, Incomplete, NotApplicable (no xGMI by design, or no bridge fitted) or Unknown (something that it
	// depends on could not be read).
	// +kubebuilder:validation:Enum=Full;Incomplete;NotApplicable;Unknown
	Mesh string `json:"mesh"`
	// hives that the GPUs which could be read are in.
	Hives int32 `json:"hives"`
	// links counts the directed pairs of GPUs that xGMI joins, of those that could be read.
	Links int32 `json:"links"`
	// expectedLinks is how many directed pairs the model should have; absent where no expectation is known.
	// +optional
	ExpectedLinks *int32 `json:"expectedLinks,omitempty"`
	// linkBandwidthMBps that the driver states for one link; absent where it states none. It is no health signal.
	// +optional
	LinkBandwidthMBps *int64 `json:"linkBandwidthMBps,omitempty"`
	// uncorrectableErrors of xGMI on all GPUs since the driver was loaded; absent where one of them has no counter.
	// +optional
	UncorrectableErrors *int64 `json:"uncorrectableErrors,omitempty"`
	// correctableErrors of xGMI, likewise.
	// +optional
	CorrectableErrors *int64 `json:"correctableErrors,omitempty"`
}

// Problem is one thing that is wrong or could not be read; it is of the node as a whole where it names no GPU, NIC or
// path.
type Problem struct {
	// severity: Error problems keep a group from being Compatible, Warning ones do not.
	// +kubebuilder:validation:Enum=Error;Warning
	Severity string `json:"severity"`
	// code, one CamelCase word; docs/discovery.md explains each.
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code"`
	// gpu is the PCI address of the GPU that it is about.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	GPU string `json:"gpu,omitempty"`
	// peerGPU is the PCI address of the GPU at the other end of the link that it is about.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	PeerGPU string `json:"peerGPU,omitempty"`
	// gpus are the PCI addresses of the GPUs that it is about, where these are several; of many only some.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=16
	// +optional
	GPUs []string `json:"gpus,omitempty"`
	// nic is the name of the RDMA device that it is about.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	NIC string `json:"nic,omitempty"`
	// path of the file or directory that it is about, below the root.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Path string `json:"path,omitempty"`
	// message says what was seen, what was expected and what to do next.
	// +kubebuilder:validation:MaxLength=400
	Message string `json:"message"`
}

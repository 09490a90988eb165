package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkMode says on which network the ranks of different nodes meet.
// +kubebuilder:validation:Enum=Pod;Host;Multus
type NetworkMode string

// The network modes.
const (
	NetworkPod    NetworkMode = "Pod"
	NetworkHost   NetworkMode = "Host"
	NetworkMultus NetworkMode = "Multus"
)

// AddressFamily is the family of all members' addresses in one communicator.
// +kubebuilder:validation:Enum=Auto;IPv4;IPv6
type AddressFamily string

// The address families. Auto takes IPv4 where every member has such an address, else IPv6, and says why.
const (
	AddressFamilyAuto AddressFamily = "Auto"
	AddressFamilyIPv4 AddressFamily = "IPv4"
	AddressFamilyIPv6 AddressFamily = "IPv6"
)

// TransportRequirement is what must carry the data between nodes.
// +kubebuilder:validation:Enum=Any;RDMA
type TransportRequirement string

// The transport requirements.
const (
	TransportAny  TransportRequirement = "Any"
	TransportRDMA TransportRequirement = "RDMA"
)

// InterfaceSelector names a network interface; each node resolves it for itself and fails its check where it finds
// none.
// +kubebuilder:validation:XValidation:rule="(has(self.cidr) ? 1 : 0) + (has(self.name) ? 1 : 0) + (has(self.pciAddress) ? 1 : 0) == 1",message="network.interface takes exactly one of cidr, name and pciAddress"
type InterfaceSelector struct {
	// cidr that one address of the interface lies in, for example 10.4.0.0/16: works where nodes name their NICs
	// differently.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="network.interface.cidr is not a CIDR: write it like 10.4.0.0/16 or fd00:4::/64"
	// +optional
	CIDR string `json:"cidr,omitempty"`
	// name of the interface, exactly: eth1 does not match eth10 or eth1.100. It is handed to the library as =name.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^\s\x00-\x1f\x7f-\x9f/=^,:]+$`
	// +optional
	Name string `json:"name,omitempty"`
	// pciAddress of the NIC, for example 0000:0c:00.0.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
}

// PortRange is a range of TCP ports, both ends included.
// +kubebuilder:validation:XValidation:rule="self.first <= self.last",message="network.portRange.first must not be larger than last"
type PortRange struct {
	// first port.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	First int32 `json:"first"`
	// last port.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Last int32 `json:"last"`
}

// ResourceCount asks for some of an extended resource, for example rdma/hca.
type ResourceCount struct {
	// name of the resource.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+/[a-zA-Z0-9._-]+$`
	Name string `json:"name"`
	// count of them for each run pod.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Count int32 `json:"count"`
}

// NetworkSpec says how the ranks of different nodes meet. It matters with span Group only.
// +kubebuilder:validation:XValidation:rule="!has(self.multusNetworks) || size(self.multusNetworks) == 0 || (has(self.mode) && self.mode == 'Multus')",message="network.multusNetworks needs network.mode Multus"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Multus' || (has(self.multusNetworks) && size(self.multusNetworks) > 0)",message="network.mode Multus needs network.multusNetworks: name the NetworkAttachmentDefinitions"
type NetworkSpec struct {
	// mode: Pod is the cluster's pod network, Host the node's own (only in namespaces that the operator's configuration
	// allows), Multus adds the networks named in multusNetworks.
	// +kubebuilder:default=Pod
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`
	// multusNetworks are NetworkAttachmentDefinitions, as name or namespace/name, one interface each in their order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	MultusNetworks []string `json:"multusNetworks,omitempty"`
	// rdmaResources that each run pod of the group's stage asks for beside its GPUs, so that the RDMA devices are in
	// the pod. One that runtime.pod.resources names too keeps the count from there; the GPUs' own resource is refused.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RDMAResources []ResourceCount `json:"rdmaResources,omitempty"`
	// interface for the rendezvous and for TCP; absent: the one that carries the pod's address.
	// +optional
	Interface *InterfaceSelector `json:"interface,omitempty"`
	// addressFamily of all members in one communicator.
	// +kubebuilder:default=Auto
	// +optional
	AddressFamily AddressFamily `json:"addressFamily,omitempty"`
	// hcas are the RDMA devices to use, exactly, as device or device:port, for example mlx5_0:1; absent: all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.-]+(:[0-9]{1,3})?$`
	// +optional
	HCAs []string `json:"hcas,omitempty"`
	// gidIndex for RoCE; absent: the library's choice.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	// +optional
	GIDIndex *int32 `json:"gidIndex,omitempty"`
	// portRange that listening ports are taken from, checked to be free before use; absent: the kernel's choice.
	// +optional
	PortRange *PortRange `json:"portRange,omitempty"`
	// requireTransport: RDMA fails a step over several nodes whose data went over TCP.
	// +kubebuilder:default=Any
	// +optional
	RequireTransport TransportRequirement `json:"requireTransport,omitempty"`
}

// NetworkStatus is the network as one node resolved it.
type NetworkStatus struct {
	// interface that was chosen.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	Interface string `json:"interface,omitempty"`
	// addresses of the interface, at most one of each family.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// hcas that are there and up, of those asked for.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	HCAs []string `json:"hcas,omitempty"`
	// message says what of the request the node cannot hold, where that does not keep it from taking part.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
	// clock of the node when it wrote this, so that the controller can tell clocks that are apart.
	// +optional
	Clock *metav1.MicroTime `json:"clock,omitempty"`
}

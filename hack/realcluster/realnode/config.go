// Package realnode is what runs inside a real node of the cluster: the first process of its own network, mount, process
// and host-name namespaces. It makes the node's file system, in which the hardware is simulated, and starts containerd,
// the kubelet, kube-proxy and the device plugin. When it ends, the kernel ends all of that with it.
package realnode

import (
	"encoding/json"
	"fmt"
	"os"
)

// Config describes a node to its first process.
type Config struct {
	Name string `json:"name"`
	// IP is the node's address with the prefix of the nodes' network, Gateway the machine's in it.
	IP, Gateway string
	PrefixBits  int `json:"prefixBits"`
	// PodSubnet is this node's, Routes those of the other nodes by their addresses, ClusterSubnet holds all.
	PodSubnet     string            `json:"podSubnet"`
	ClusterSubnet string            `json:"clusterSubnet"`
	ClusterDNS    string            `json:"clusterDNS"`
	Routes        map[string]string `json:"routes"`
	// CgroupRoot is the node's group in every hierarchy, beginning with a slash.
	CgroupRoot string `json:"cgroupRoot"`
	GPUs       int    `json:"gpus"`
	PauseImage string `json:"pauseImage"`
	// Folders and files of the machine; inside the node they are found at the constants below.
	Root       string `json:"root"`     // where the node's root is put together
	Tree       string `json:"tree"`     // simulated hardware, by nodetree
	Var        string `json:"var"`      // what the node writes
	Logs       string `json:"logs"`     // of its own processes
	Settings   string `json:"settings"` // configuration files and certificates
	Binaries   string `json:"binaries"` // kubelet, kube-proxy
	CNI        string `json:"cni"`      // network plugins
	Fabric     string `json:"fabric"`   // the memory that stands for the network between the nodes' GPUs
	Kubeconfig string `json:"kubeconfig"`
	Proxy      string `json:"proxyKubeconfig"`
	CertFile   string `json:"certFile"`
	KeyFile    string `json:"keyFile"`
	CAFile     string `json:"caFile"`
}

// Paths inside the node.
const (
	InnerSettings = "/realcluster/settings"
	InnerLogs     = "/realcluster/logs"
	InnerBinaries = "/realcluster/bin"
	InnerTree     = "/realcluster/simulated"
	InnerFabric   = "/realcluster/fabric"
	// ContainerdSocket is also reached from the machine, through /proc/PID/root.
	ContainerdSocket = "/run/containerd/containerd.sock"
	kubeletDir       = "/var/lib/kubelet"
	lockDir          = "/run/lock"
)

// GoLine is what the machine's side writes to a node's standard input once the node's network is there.
const GoLine = "go\n"

// ReadConfig reads a node's description.
func ReadConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

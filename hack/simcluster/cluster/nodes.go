package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"rcclx.io/commgroup-operator/hack/simcluster/simnode"
)

// NodeSpec says what node to simulate.
type NodeSpec struct {
	Name string
	// GPUs that the node offers as amd.com/gpu.
	GPUs int64
	// CPU and Memory as Kubernetes quantities.
	CPU, Memory string
	Labels      map[string]string
	// Root is the tree that stands for the node's own file system.
	Root string
}

// NodeRoot is where a node's tree lies in the state directory.
func (s State) NodeRoot(node string) string { return s.Path("nodes", node, "root") }

// WriteNodes issues each node's identity and writes the configuration of the process that simulates them. Node i gets
// the address 127.77.i.1 and its pods the others of that /24.
func (cp *ControlPlane) WriteNodes(specs []NodeSpec, images simnode.Images) error {
	if len(specs) == 0 || len(specs) > 250 {
		return fmt.Errorf("%d nodes asked for: one state directory holds 1 to 250", len(specs))
	}
	config := simnode.Config{Server: cp.Server, Dir: cp.Path("nodes"), ImagesFile: cp.ImagesFile()}
	if dir, err := os.MkdirTemp(filepath.Dir(SharedMemoryPrefix), filepath.Base(SharedMemoryPrefix)); err == nil {
		config.SharedMemoryDir = dir
		if err := os.WriteFile(cp.Path("shm-dir"), []byte(dir), 0o644); err != nil {
			return err
		}
	}
	for i, spec := range specs {
		ip := net.IPv4(127, 77, byte(i+1), 1)
		kubeconfig := cp.Path("nodes", spec.Name, "kubeconfig")
		if err := cp.AddNodeIdentity(spec.Name, ip, kubeconfig); err != nil {
			return err
		}
		if err := os.MkdirAll(spec.Root, 0o755); err != nil {
			return err
		}
		name := "node-" + spec.Name
		config.Nodes = append(config.Nodes, simnode.NodeConfig{
			Name: spec.Name, IP: ip.String(), Root: spec.Root, CPU: spec.CPU, Memory: spec.Memory, GPUs: spec.GPUs, Labels: spec.Labels,
			Kubeconfig: kubeconfig, CertFile: cp.PKI.CertFile(name), KeyFile: cp.PKI.KeyFile(name), CAFile: cp.PKI.CertFile("ca"),
		})
	}
	if err := WriteJSON(cp.ImagesFile(), images); err != nil {
		return err
	}
	return WriteJSON(cp.NodesFile(), config)
}

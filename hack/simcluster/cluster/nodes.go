package cluster

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

// loopbackNet chooses the second number of the cluster's addresses, 127.N.0.0/16. It follows from the state directory,
// so that it is the same each time, and skips those that something listens on: two clusters must not share addresses,
// since their pods listen on the same ports. sockets is /proc/net/tcp.
func loopbackNet(dir, sockets string) byte {
	used := map[byte]bool{}
	for line := range strings.Lines(sockets) {
		fields := strings.Fields(line)
		// The address is in hexadecimal, in the machine's order: 0100007F:1F90 is 127.0.0.1:8080.
		if len(fields) < 2 || len(fields[1]) != 13 || !strings.EqualFold(fields[1][6:8], "7F") {
			continue
		}
		if n, err := strconv.ParseUint(fields[1][4:6], 16, 8); err == nil {
			used[byte(n)] = true
		}
	}
	const first, count = 64, 180
	sum := sha256.Sum256([]byte(dir))
	start := int(sum[0])
	for i := range count {
		if n := byte(first + (start+i)%count); !used[n] {
			return n
		}
	}
	return byte(first + start%count)
}

// WriteNodes issues each node's identity and writes the configuration of the process that simulates them. Node i gets
// the address 127.N.i.1 and its pods the others of that /24.
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
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return err
	}
	second := loopbackNet(cp.Dir, string(sockets))
	for i, spec := range specs {
		ip := net.IPv4(127, second, byte(i+1), 1)
		kubeconfig := cp.Path("nodes", spec.Name, "kubeconfig")
		if err := cp.AddNodeIdentity(spec.Name, ip, kubeconfig); err != nil {
			return err
		}
		if err := os.MkdirAll(spec.Root, 0o755); err != nil {
			return err
		}
		name := "node-" + spec.Name
		config.Nodes = append(config.Nodes, simnode.NodeConfig{
			Name: spec.Name, IP: ip.String(), Root: spec.Root, CPU: spec.CPU, Memory: spec.Memory, GPUs: spec.GPUs,
			Labels:     spec.Labels,
			Kubeconfig: kubeconfig, CertFile: cp.PKI.CertFile(name), KeyFile: cp.PKI.KeyFile(name),
			CAFile: cp.PKI.CertFile("ca"),
		})
	}
	if err := WriteJSON(cp.ImagesFile(), images); err != nil {
		return err
	}
	return WriteJSON(cp.NodesFile(), config)
}

// Package simnode stands for Kubernetes nodes without a container runtime: it registers Node objects, each under its
// own identity, and runs the pods bound to them as local processes, as faithfully as processes can. What differs from a
// real node is listed in hack/simcluster/README.md.
package simnode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// NodeConfig describes one simulated node.
type NodeConfig struct {
	Name string `json:"name"`
	// IP is the node's loopback address, 127.x.y.1; its pods get others of the same /24.
	IP string `json:"ip"`
	// Root is the tree that hostPath volumes and the simulated ROCm library see as the node's root.
	Root string `json:"root"`
	// CPU and Memory as Kubernetes quantities; GPUs counts amd.com/gpu.
	CPU    string            `json:"cpu"`
	Memory string            `json:"memory"`
	GPUs   int64             `json:"gpus,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// GPUPodDelaySeconds is how much longer than it has to a pod that asks for GPUs waits for its start.
	GPUPodDelaySeconds int32 `json:"gpuPodDelaySeconds,omitempty"`
	// Kubeconfig is the node's own; CertFile and KeyFile serve its log endpoint; CAFile checks the API server's calls.
	Kubeconfig string `json:"kubeconfig"`
	CertFile   string `json:"certFile"`
	KeyFile    string `json:"keyFile"`
	CAFile     string `json:"caFile"`
}

// Config is all that the node process needs.
type Config struct {
	// Server is the API server's URL, which pods get as KUBERNETES_SERVICE_HOST and _PORT.
	Server string       `json:"server"`
	Nodes  []NodeConfig `json:"nodes"`
	// Dir is where each node keeps its pods and logs: DIR/NODE.
	Dir string `json:"dir"`
	// SharedMemoryDir holds memory-backed volumes; empty means that they lie among the others.
	SharedMemoryDir string `json:"sharedMemoryDir,omitempty"`
	// ImagesFile maps image names to Images.
	ImagesFile string `json:"imagesFile"`
}

// FabricDir stands for the network between the nodes: the simulated ranks of all pods with GPUs meet there.
func (c Config) FabricDir() string {
	if c.SharedMemoryDir != "" {
		return filepath.Join(c.SharedMemoryDir, ".fabric") // no node has such a name
	}
	return filepath.Join(c.Dir, ".fabric")
}

// ReadConfig reads a Config from a file.
func ReadConfig(path string) (Config, error) {
	var c Config
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if len(c.Nodes) == 0 {
		return c, fmt.Errorf("%s names no node", path)
	}
	return c, nil
}

// Image stands for a container image: a directory tree and what an image's configuration says.
type Image struct {
	Dir        string   `json:"dir"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Env        []string `json:"env,omitempty"`
}

// Images by name.
type Images map[string]Image

// ReadImages reads the map from a file; a file that is not there holds none.
func ReadImages(path string) (Images, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return Images{}, nil
	}
	if err != nil {
		return nil, err
	}
	var images Images
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return images, nil
}

// Find looks an image up as container runtimes name them: a missing tag means latest, a missing registry docker.io.
func (i Images) Find(name string) (Image, bool) {
	name = strings.TrimPrefix(name, "docker.io/")
	name = strings.TrimPrefix(name, "library/")
	if !strings.Contains(filepath.Base(name), ":") {
		name += ":latest"
	}
	image, ok := i[name]
	return image, ok
}

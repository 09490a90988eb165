package realnode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the files in the node's settings folder.
const (
	containerdFile = "containerd.toml"
	// innerSpec is made in the node, from what its containerd says.
	innerSpec      = "/run/containerd-default/container.json"
	kubeletFile    = "kubelet.yaml"
	proxyFile      = "kube-proxy.yaml"
	cniFile        = "cni/10-bridge.conflist"
	resolvFile     = "resolv.conf"
	nodeKubeconfig = "node.kubeconfig"
	proxyConfig    = "kube-proxy.kubeconfig"
	certFile       = "node.crt"
	keyFile        = "node.key"
	caFile         = "ca.crt"
	// imagePrefix is what containerd calls an image without a registry.
	imagePrefix = "docker.io/library/"
)

// WriteSettings writes the configuration of all that runs in the node. Paths in it are those inside the node.
func WriteSettings(c Config) error {
	for _, copied := range []struct{ from, to string }{
		{c.Kubeconfig, nodeKubeconfig}, {c.Proxy, proxyConfig}, {c.CertFile, certFile}, {c.KeyFile, keyFile},
		{c.CAFile, caFile},
	} {
		data, err := os.ReadFile(copied.from)
		if err != nil {
			return err
		}
		if err := writeSetting(c, copied.to, string(data), 0o600); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		containerdFile: containerdSettings(c), kubeletFile: kubeletSettings(c), proxyFile: proxySettings(c),
		cniFile:    cniSettings(c),
		resolvFile: "# Names are asked at the cluster's own DNS address.\n",
	} {
		if err := writeSetting(c, name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func writeSetting(c Config, name, text string, mode os.FileMode) error {
	path := filepath.Join(c.Settings, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

func inner(name string) string { return filepath.Join(InnerSettings, name) }

// containerdSettings are for containerd 1.6, Debian 12's.
func containerdSettings(c Config) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Without CAP_SYS_RESOURCE runc cannot set a negative oom_score_adj, and every sandbox would fail.
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/realcluster/cni"
  conf_dir = %q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  # What every container of this node is given: see containerSpec.
  base_runtime_spec = %q
`, ContainerdSocket, imagePrefix+c.PauseImage, filepath.Dir(inner(cniFile)), innerSpec)
}

func kubeletSettings(c Config) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  x509: {clientCAFile: %[1]s}
  webhook: {enabled: true}
  anonymous: {enabled: false}
authorization: {mode: Webhook}
tlsCertFile: %[2]s
tlsPrivateKeyFile: %[3]s
containerRuntimeEndpoint: unix://%[4]s
cgroupDriver: cgroupfs
cgroupRoot: %[5]s
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
# Nothing is evicted, and no image is removed: the machine's disk and memory are everybody's.
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
clusterDomain: cluster.local
clusterDNS: [%[6]s]
resolvConf: %[7]s
volumePluginDir: %[8]s/volumeplugins
staticPodPath: ""
# The status is what tests wait for.
nodeStatusUpdateFrequency: 5s
shutdownGracePeriod: 0s
logging: {format: text}
`, inner(caFile), inner(certFile), inner(keyFile), ContainerdSocket, c.CgroupRoot, c.ClusterDNS,
		inner(resolvFile), kubeletDir)
}

// proxySettings leave the machine's own limits of tracked connections as they are.
func proxySettings(c Config) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s}
hostnameOverride: %s
mode: iptables
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
`, inner(proxyConfig), c.Name, c.ClusterSubnet)
}

func cniSettings(c Config) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "realcluster",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/networks", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}
  ]
}
`, c.PodSubnet)
}

// Places in a container, chosen where no image has anything.
const (
	containerTree   = "/run/simrocm"
	containerFabric = "/run/simrocm-fabric"
	treeVariable    = "SIMROCM_ROOT"
	fabricVariable  = "SIMROCM_SHM_DIR"
	visibleVariable = "HIP_VISIBLE_DEVICES"
)

// containerSpec changes containerd's default for this node: a container sees the node's /sys, where real nodes'
// containers see their kernel's, and is told that the hardware is simulated. So nothing on such a node takes it for
// real.
func containerSpec(defaults []byte) ([]byte, error) {
	var spec map[string]any
	if err := json.Unmarshal(defaults, &spec); err != nil {
		return nil, fmt.Errorf("containerd's default container: %w", err)
	}
	process, ok := spec["process"].(map[string]any)
	mounts, hasMounts := spec["mounts"].([]any)
	if !ok || !hasMounts {
		return nil, fmt.Errorf("containerd's default container has no process or no mounts: %.200s", defaults)
	}
	env, _ := process["env"].([]any)
	process["env"] = append(env, treeVariable+"="+containerTree)
	mounts = slices.DeleteFunc(mounts, func(m any) bool {
		fields, _ := m.(map[string]any)
		at, _ := fields["destination"].(string)
		return at == "/sys" || strings.HasPrefix(at, "/sys/")
	})
	bind := func(source, destination string) map[string]any {
		return map[string]any{"destination": destination, "type": "bind", "source": source,
			"options": []string{"rbind", "ro", "nosuid", "nodev", "noexec"}}
	}
	spec["mounts"] = append(mounts, bind("/sys", "/sys"), bind(InnerTree, containerTree))
	return json.MarshalIndent(spec, "", "  ")
}

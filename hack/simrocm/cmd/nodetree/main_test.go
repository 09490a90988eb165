package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// build makes the tree in memory.
func build(args string) (*nodetree.Tree, error) {
	_, n, err := parse(append([]string{"--dir", "D"}, strings.Fields(args)...))
	if err != nil {
		return nil, err
	}
	return nodetree.Generate(n)
}

func TestRunWrites(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"--dir", dir, "--model", "MI300A"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "sys/bus/pci/devices/0003:01:00.0/device"))
	if err != nil || string(data) != "0x74a0\n" {
		t.Errorf("device id %q, %v", data, err)
	}
}

// TestFlags: each flag shows in the file that it is about.
func TestFlags(t *testing.T) {
	const gpu3 = "sys/bus/pci/devices/0000:65:00.0/"
	for _, c := range []struct {
		args       string
		file, want string // want "": no such file
	}{
		{"--model MI355X", "simrocm.conf", "model = MI355X\n"},
		{"--partition CPX/NPS4", gpu3 + "current_memory_partition", "NPS4\n"},
		{"--partition CPX --missing-partition 7=1", "sys/class/kfd/kfd/topology/nodes/65/properties", ""},
		{"--link 3-6=pcie", "simrocm.conf", "link.3-6 = pcie\n"},
		{"--link 3>6=none", "sys/class/kfd/kfd/topology/nodes/5/io_links/6/properties", "node_to 9\n"},
		{"--link 3>6=none", "sys/class/kfd/kfd/topology/nodes/8/io_links/4/properties", "node_to 5\n"},
		{"--link 1-4=32000", "sys/class/kfd/kfd/topology/nodes/3/io_links/4/properties", "max_bandwidth 32000\n"},
		{"--missing-gpu 3", gpu3 + "device", ""},
		{"--unbound-gpu 3", gpu3 + "unique_id", ""},
		{"--no-render-node 3", "sys/class/drm/renderD152/device/device", ""},
		{"--numa-unknown 3", gpu3 + "numa_node", "-1\n"},
		{"--hive 3=2", gpu3 + "xgmi_num_links", "00 \n"},
		{"--hive 3=0", gpu3 + "xgmi_num_links", ""},
		{"--retired-pages 3=1", gpu3 + "ras/gpu_vram_bad_pages", " : R\n"},
		{"--firmware 3=170", "sys/class/kfd/kfd/topology/nodes/5/properties", "fw_version 170\n"},
		{"--device-id 3=0x74a5", gpu3 + "device", "0x74a5\n"},
		{"--pcie-width 3=8", gpu3 + "current_link_width", "8\n"},
		{"--ras 3:umc=1,2,3", gpu3 + "ras/umc_err_count", "ue: 1\nce: 2\nde: 3\n"},
		{"--port-down 3=2 --metrics 1.8", gpu3 + "gpu_metrics",
			"\x01\x00\x01\x00\x00\x00\x01\x00\x01\x00\x01\x00\x01\x00\xff\xff"},
		{"--throttle 3=7", gpu3 + "gpu_metrics", "\x40\x42\x0f\x00\x00\x00\x00\x00\x07\x00\x00\x00"},
		{"--metrics none", gpu3 + "gpu_metrics", ""},
		{"--nics 2 --nic-kind Pensando --nic-down 1", "sys/class/infiniband/ionic_1/ports/1/state", "1: DOWN\n"},
		{"--fault no-rdma,slow-nic:1:50", "simrocm.conf", "fault = no-rdma,slow-nic:1:50\n"},
		{"--nic-down 1", "simrocm.conf", "/16\ninterface.enp95s0np0 = 10.18."},
		{"", "sys/class/infiniband/mlx5_3/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a13:"},
		{"", "sys/class/infiniband/mlx5_3/ports/1/gid_attrs/types/3", "RoCE v2\n"},
		{"--nic-kind InfiniBand", "sys/class/infiniband/mlx5_3/ports/1/gids/1", ""},
		{"", "proc/self/limits", "Max locked memory         unlimited            unlimited            bytes"},
		{"--locked-memory 8388608", "proc/self/limits", "Max locked memory         8388608 "},
		{"--generation 9", "sys/class/kfd/kfd/topology/generation_id", "9\n"},
		{"--rocm none", "opt/rocm/.info/version", ""},
		{"--rocm 6.4.1-83", "opt/rocm/include/rccl/rccl.h", "NCCL_VERSION_CODE 22203\n"},
		{"--driver InTree", "sys/module/amdgpu/version", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			tree, err := build(c.args)
			if err != nil {
				t.Fatal(err)
			}
			data, err := tree.ReadFile(c.file)
			switch {
			case c.want == "" && err == nil:
				t.Errorf("%s is there: %q", c.file, data)
			case c.want != "" && !strings.Contains(string(data), c.want):
				t.Errorf("%s is %.200q (%v), want %q in it", c.file, data, err, c.want)
			}
		})
	}
}

func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--link 3=pcie": "is not A-B=VALUE", "--link 1-2=fast": "bandwidth in MB/s", "--missing-gpu 8": "GPUs 0 to 7",
		"--missing-gpu x": "invalid",
		"--hive 3":        "is not GPU=NUMBER", "--ras 3:umc=1": "is not GPU:BLOCK=UE,CE,DE",
		"--ras 3:abc=1,2,3": "no RAS block",
		"--partition TPX":   "no partition mode", "--nic-down 8": "NIC 8", "more": "no other arguments",
	} {
		if _, err := build(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

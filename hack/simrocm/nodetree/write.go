package nodetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tree collects the files of a node; the first error stops the rest.
type tree struct {
	dir     string
	node    *Node
	product *product
	err     error
}

// Write writes the node's tree into dir, which is made if missing. A tree that is there already is replaced: sys, proc,
// opt and simrocm.conf below dir are removed first, other files stay. Errors name the file.
func Write(dir string, n Node) error {
	p, err := n.validate()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "simrocm.conf")); errors.Is(err, fs.ErrNotExist) {
		for _, part := range []string{"sys", "proc", "opt"} {
			// A tree without the mark of simulation may be a real root.
			if _, err := os.Lstat(filepath.Join(dir, part)); err == nil {
				return fmt.Errorf("%s has %s but no simrocm.conf, so it is not a simulated node; choose another directory", dir, part)
			}
		}
	}
	for _, part := range []string{"sys", "proc", "opt"} {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	t := &tree{dir: dir, node: &n, product: p}
	t.file("simrocm.conf", strings.TrimSuffix(n.conf(p), "\n")) // first: it marks the directory as ours
	t.host()
	t.kfd()
	for i := range n.GPUs {
		if !n.GPUs[i].Missing {
			t.pci(i)
		}
	}
	t.network()
	return t.err
}

// file writes text and a line break, as sysfs does.
func (t *tree) file(path, text string) {
	if t.err != nil {
		return
	}
	full := filepath.Join(t.dir, path)
	if t.err = os.MkdirAll(filepath.Dir(full), 0o755); t.err == nil {
		t.err = os.WriteFile(full, []byte(text+"\n"), 0o644)
	}
}

func (t *tree) folder(path string) {
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Join(t.dir, path), 0o755)
	}
}

// symlink makes path point at target, both relative to the root, by a relative link as in sysfs.
func (t *tree) symlink(path, target string) {
	if t.err != nil {
		return
	}
	full := filepath.Join(t.dir, path)
	if t.err = os.MkdirAll(filepath.Dir(full), 0o755); t.err != nil {
		return
	}
	relative, err := filepath.Rel(filepath.Dir(path), target)
	if err != nil {
		t.err = err
		return
	}
	t.err = os.Symlink(relative, full)
}

func (t *tree) host() {
	n := t.node
	t.file("proc/cmdline", n.KernelCommand)
	t.file("proc/sys/kernel/osrelease", n.KernelRelease)
	t.file("proc/sys/kernel/numa_balancing", fmt.Sprint(n.NUMABalancing))
	t.file("proc/sys/kernel/random/boot_id", n.BootID)
	if n.ROCm != "" {
		t.file("opt/rocm/.info/version", n.ROCm)
	}
	t.folder("sys/class/kfd/kfd/proc") // no process uses the GPUs
	t.folder("sys/module/amdgpu")
	if n.Driver != DriverBuiltIn {
		t.file("sys/module/amdgpu/initstate", "live")
		t.file("sys/module/amdgpu/srcversion", fmt.Sprintf("%023X", t.product.gfxVersion))
	}
	if n.Driver == DriverDKMS {
		t.file("sys/module/amdgpu/version", n.DriverVersion)
	}
}

func (t *tree) pci(i int) {
	n, p, g := t.node, t.product, t.node.GPUs[i]
	dir := "sys/bus/pci/devices/" + g.PCIAddress + "/"
	width := g.PCIeWidth
	if width == 0 {
		width = 16
	}
	id := fmt.Sprintf("0x%04x", p.deviceID)
	driver := "DRIVER=amdgpu\n"
	if g.Unbound {
		driver = ""
	}
	for _, f := range [][2]string{
		{"vendor", "0x1002"}, {"device", id}, {"subsystem_device", id}, {"revision", "0x00"}, {"class", p.pciClass},
		{"numa_node", fmt.Sprint(g.NUMANode)},
		{"current_link_speed", p.pcieSpeed}, {"max_link_speed", p.pcieSpeed},
		{"current_link_width", fmt.Sprint(width)}, {"max_link_width", "16"},
		{"uevent", fmt.Sprintf("%sPCI_CLASS=%s\nPCI_ID=1002:%04X\nPCI_SUBSYS_ID=1002:%04X\nPCI_SLOT_NAME=%s",
			driver, strings.TrimPrefix(p.pciClass, "0x"), p.deviceID, p.deviceID, g.PCIAddress)},
	} {
		t.file(dir+f[0], f[1])
	}
	if g.Unbound {
		return // the rest belongs to the driver
	}
	t.symlink("sys/module/amdgpu/drivers/pci:amdgpu/"+g.PCIAddress, dir)
	card, render := fmt.Sprintf("card%d", 1+i*minorsPerGPU), fmt.Sprintf("renderD%d", firstRenderMinor+i*minorsPerGPU)
	for _, name := range []string{card, render} {
		t.folder(dir + "drm/" + name)
		t.symlink("sys/class/drm/"+name+"/device", dir)
	}
	hwmon := fmt.Sprintf("%shwmon/hwmon%d/", dir, 2+i)
	clean := "ue: 0\nce: 0"
	for _, f := range [][2]string{
		{"unique_id", fmt.Sprintf("%016x", g.UniqueID)},
		{"mem_info_vram_total", fmt.Sprint(p.vramBytes)}, {"pcie_replay_count", "0"},
		{"fw_version/mec_fw_version", fmt.Sprintf("0x%08x", p.firmware)},
		{"ras/gfx_err_count", clean}, {"ras/sdma_err_count", clean}, {"ras/xgmi_wafl_err_count", clean},
		{"ras/umc_err_count", fmt.Sprintf("ue: %d\nce: 0\nde: 0", g.UncorrectableErrors)},
		{"xgmi_device_id", fmt.Sprint(t.node.number("xgmi " + g.PCIAddress))},
		{"xgmi_physical_id", fmt.Sprint(i % p.hiveSize)},
		{"xgmi_hive_info/xgmi_hive_id", fmt.Sprint(t.hive(i))},
	} {
		t.file(dir+f[0], f[1])
	}
	t.file(hwmon+"name", "amdgpu")
	for _, f := range [][2]string{{"temp2_label", "junction"}, {"temp2_input", "42000"}, {"temp3_label", "mem"}, {"temp3_input", "38000"}} {
		t.file(hwmon+f[0], f[1])
	}
	if p.xcds > 1 {
		t.file(dir+"current_compute_partition", string(n.Partition))
		t.file(dir+"available_compute_partition", p.partitionModes())
		t.file(dir+"current_memory_partition", "NPS1")
		t.file(dir+"available_memory_partition", p.partitionMemory)
	}
	t.xgmiPeers(i, dir)
	if n.Partition == CPX {
		for part := 1; part < int(p.xcds); part++ { //nolint:gosec // at most 8
			t.folder(fmt.Sprintf("sys/devices/platform/amdgpu_xcp_%d", i*(minorsPerGPU-1)+part-1))
		}
	}
}

func (p *product) partitionModes() string {
	switch p.xcds {
	case 8:
		return "SPX, DPX, QPX, CPX"
	case 6:
		return "SPX, TPX, CPX"
	default:
		return "SPX, DPX, CPX"
	}
}

// xgmiPeers writes hops and links to the hive's members, two hex digits each in the order of the hive. Bits 7:6 of the
// hops say the kind of link (1: xGMI3).
func (t *tree) xgmiPeers(i int, dir string) {
	var hops, links strings.Builder
	first := i / t.product.hiveSize * t.product.hiveSize
	kindBits := 0
	if t.product.xcds > 1 {
		kindBits = 0x40
	}
	member := 0
	for o := first; o < min(first+t.product.hiveSize, len(t.node.GPUs)); o++ {
		if t.node.GPUs[o].Unbound || t.node.GPUs[o].Missing {
			continue
		}
		member++
		t.symlink(fmt.Sprintf("%sxgmi_hive_info/node%d", dir, member), "sys/bus/pci/devices/"+t.node.GPUs[o].PCIAddress)
		if o == i {
			hops.WriteString("00 ")
			links.WriteString("00 ")
			continue
		}
		kind, distance, _, _ := t.node.link(t.product, i, o)
		_, _, count := t.product.link(i, o)
		if kind != LinkXGMI || distance > 1 {
			count = 0
		}
		if kind != LinkXGMI {
			distance = 0
		}
		fmt.Fprintf(&hops, "%02x ", distance|kindBits)
		fmt.Fprintf(&links, "%02x ", count)
	}
	t.file(dir+"xgmi_num_hops", hops.String())
	t.file(dir+"xgmi_num_links", links.String())
}

func (t *tree) network() {
	for i, c := range nics[:min(max(t.node.NICs, 0), len(nics))] {
		numa := fmt.Sprint(i * t.product.sockets / len(nics))
		uevent := "DRIVER=mlx5_core\nPCI_SLOT_NAME=" + c.address
		for _, f := range [][2]string{
			{"sys/class/net/" + c.netName + "/device/vendor", "0x15b3"},
			{"sys/class/net/" + c.netName + "/device/device", "0x1021"},
			{"sys/class/net/" + c.netName + "/device/numa_node", numa},
			{"sys/class/net/" + c.netName + "/device/uevent", uevent},
			{"sys/class/net/" + c.netName + "/operstate", "up"},
			{"sys/class/net/" + c.netName + "/speed", "400000"},
			{"sys/class/infiniband/" + c.rdmaName + "/node_type", "1: CA"},
			{"sys/class/infiniband/" + c.rdmaName + "/device/numa_node", numa},
			{"sys/class/infiniband/" + c.rdmaName + "/device/uevent", uevent},
			{"sys/class/infiniband/" + c.rdmaName + "/ports/1/state", "4: ACTIVE"},
			{"sys/class/infiniband/" + c.rdmaName + "/ports/1/phys_state", "5: LinkUp"},
			{"sys/class/infiniband/" + c.rdmaName + "/ports/1/rate", "400 Gb/sec (4X NDR)"},
			{"sys/class/infiniband/" + c.rdmaName + "/ports/1/link_layer", "Ethernet"},
		} {
			t.file(f[0], f[1])
		}
	}
}

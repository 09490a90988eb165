package nodetree

import (
	"path"
	"strconv"
	"strings"
	"testing"
)

// TestSharedBridges: the depth at which each GPU's nearest NIC parts from it.
func TestSharedBridges(t *testing.T) {
	for model, want := range map[string]struct{ gpu, nic, shared string }{
		"MI300X": {"0000:2b:00.0", "0000:2f:00.0", "../../../devices/pci0000:26/0000:26:01.1/0000:27:00.0"},
		"MI350X": {"0000:f9:00.0", "0000:fd:00.0", "../../../devices/pci0000:f4/0000:f4:01.1/0000:f5:00.0"},
		"MI210":  {"0000:63:00.0", "0000:71:00.0", "../../../devices/pci0000:60"},
		"MI350P": {"0000:03:00.0", "0000:11:00.0", "../../../devices/pci0000:00"},
		"MI250": {"0000:59:00.0", "0000:5a:00.0",
			"../../../devices/pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:01.0/0000:52:00.0"},
		"MI250X":    {"0000:c1:00.0", "0000:c2:00.0", "../../../devices/pci0000:c0"},
		"MI300A":    {"0002:01:00.0", "0002:05:00.0", "../../../devices/pci0002:00"},
		"MI300X VF": {"0021:00:00.0", "0111:00:00.0", "../../../devices"},
	} {
		t.Run(model, func(t *testing.T) {
			tree := generate(t, healthy(t, model))
			gpu, errGPU := tree.ReadLink("sys/bus/pci/devices/" + want.gpu)
			nic, errNIC := tree.ReadLink("sys/bus/pci/devices/" + want.nic)
			if errGPU != nil || errNIC != nil {
				t.Fatal(errGPU, errNIC)
			}
			a, b := strings.Split(gpu, "/"), strings.Split(nic, "/")
			same := 0
			for same < min(len(a), len(b)) && a[same] == b[same] {
				same++
			}
			if got := strings.Join(a[:same], "/"); got != want.shared {
				t.Errorf("GPU at %s\nNIC at %s\nshare %s, want %s", gpu, nic, got, want.shared)
			}
			for _, part := range a[5:] { // every bridge is on the bus, too
				if target, err := tree.ReadLink("sys/bus/pci/devices/" + part); err != nil ||
					!strings.HasSuffix(target, "/"+part) {
					t.Errorf("%s on the bus: %q, %v", part, target, err)
				}
			}
		})
	}
}

// TestPCIAddressesAreUnique: no two devices of a node at one address, whatever the model.
func TestPCIAddressesAreUnique(t *testing.T) {
	for _, model := range Models() {
		tree := generate(t, healthy(t, model))
		seen := map[string]string{}
		for _, name := range tree.Files() {
			if base, isClass := strings.CutSuffix(name, "/class"); isClass &&
				strings.HasPrefix(name, "sys/devices/pci") {
				address := path.Base(base)
				if other, twice := seen[address]; twice {
					t.Errorf("%s: %s is both %s and %s", model, address, other, base)
				}
				seen[address] = base
			}
		}
	}
}

// TestPortNumbersAreMutual: each line of xgmi_port_num has its like at the other end.
func TestPortNumbersAreMutual(t *testing.T) {
	tree := generate(t, healthy(t, "MI300X"))
	seen := map[string]bool{}
	for _, gpu := range gpusOnBus(t, tree) {
		for line := range strings.Lines(text(t, tree, "sys/bus/pci/devices/"+gpu+"/xgmi_port_num")) {
			seen[strings.TrimSpace(line)] = true
		}
	}
	if len(seen) != 56 {
		t.Errorf("%d ports, want 56", len(seen))
	}
	for line := range seen {
		from, to, _ := strings.Cut(line, " ->  ")
		if !seen[to+" ->  "+from] {
			t.Errorf("%q has no way back", line)
		}
	}
}

// TestMetrics reads back a few fields by the offsets of the C structs.
func TestMetrics(t *testing.T) {
	for revision, c := range map[string]struct{ size, hotspot, pcieSpeed int }{
		"1.3": {120, 6, 76}, "1.4": {288, 4, 50}, "1.5": {360, 4, 114}, "1.6": {1664, 4, 62}, "1.7": {2208, 4, 70},
		"1.8": {3872, 4, 70},
	} {
		n := healthy(t, "MI300X")
		n.MetricsRevision = revision
		data := text(t, generate(t, n), "sys/bus/pci/devices/0000:05:00.0/gpu_metrics")
		u16 := func(at int) int { return int(data[at]) | int(data[at+1])<<8 }
		if len(data) != c.size || u16(0) != c.size || data[2] != 1 || "1."+strconv.Itoa(int(data[3])) != revision {
			t.Errorf("%s: %d bytes, header % x", revision, len(data), data[:4])
		}
		if u16(c.hotspot) != 42 || u16(c.pcieSpeed) != 320 {
			t.Errorf("%s: hotspot %d, PCIe speed %d", revision, u16(c.hotspot), u16(c.pcieSpeed))
		}
	}
	n := healthy(t, "MI355X")
	if data := text(t, generate(t, n),
		"sys/bus/pci/devices/0000:05:00.0/gpu_metrics"); len(data) != int(data[0])|int(data[1])<<8 || data[3] != 9 {
		t.Errorf("1.9: %d bytes, header % x", len(data), data[:4])
	}
	n.MetricsRevision = NoMetrics
	absent(t, generate(t, n), "sys/bus/pci/devices/0000:05:00.0/gpu_metrics")
}

// TestVirtualFunctions: what a guest does not see is not there.
func TestVirtualFunctions(t *testing.T) {
	tree := generate(t, healthy(t, "MI300X VF"))
	const dir = "sys/bus/pci/devices/0011:00:00.0/"
	absent(t, tree, dir+"ras", dir+"unique_id", dir+"product_name", dir+"current_memory_partition")
	if got := text(t, tree, dir+"device"); got != "0x74b5\n" {
		t.Errorf("device id %q", got)
	}
	if got := keys(text(t, tree, "sys/class/kfd/kfd/topology/nodes/2/properties")); got["unique_id"] != "0" ||
		got["domain"] != "17" || got["location_id"] != "0" {
		t.Errorf("unique_id %s, domain %s, location_id %s", got["unique_id"], got["domain"], got["location_id"])
	}
}

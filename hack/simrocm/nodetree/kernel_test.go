package nodetree

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestPortNumbers: xgmi_port_num counts the members of the hive from 1 (amdgpu_xgmi_show_connected_port_num), by their
// place in the hive, not on the server.
func TestPortNumbers(t *testing.T) {
	const gpu0, gpu5 = "sys/bus/pci/devices/0000:05:00.0/xgmi_port_num",
		"sys/bus/pci/devices/0000:a5:00.0/xgmi_port_num"
	mesh := "01:00 ->  02:00\n01:01 ->  03:00\n01:02 ->  04:00\n01:03 ->  05:00\n01:04 ->  06:00\n01:05 ->  07:00\n" +
		"01:06 ->  08:00\n"
	for _, c := range []struct {
		name, model string
		change      func(*Node)
		file, want  string
	}{
		{"mesh of eight", "MI300X", func(*Node) {}, gpu0, mesh},
		{"GPU 5", "MI300X", func(*Node) {}, gpu5, "06:00 ->  01:04\n06:01 ->  02:04\n06:02 ->  03:04\n" +
			"06:03 ->  04:04\n06:04 ->  05:04\n06:05 ->  07:05\n06:06 ->  08:05\n"},
		{"GPU 5 in the second of two hives", "MI300X", func(n *Node) {
			for i := range n.GPUs {
				n.GPUs[i].Hive = 1 + i/4
			}
		}, gpu5, "02:04 ->  01:04\n02:05 ->  03:05\n02:06 ->  04:05\n"},
		{"GPU 0 is gone: members move up, ports stay", "MI300X", func(n *Node) { n.GPUs[0].Missing = true }, gpu5,
			"05:01 ->  01:04\n05:02 ->  02:04\n05:03 ->  03:04\n05:04 ->  04:04\n05:05 ->  06:05\n05:06 ->  07:05\n"},
		{"two links a pair", "MI300A", func(*Node) {}, "sys/bus/pci/devices/0001:01:00.0/xgmi_port_num",
			"02:00 ->  01:00\n02:01 ->  01:01\n02:02 ->  03:02\n02:03 ->  03:03\n02:04 ->  04:02\n02:05 ->  04:03\n"},
	} {
		n := healthy(t, c.model)
		c.change(&n)
		if got := text(t, generate(t, n), c.file); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// TestPartitionsHaveCards: each partition device has a card and a render node, spare ones, too, and both lead back to
// it.
func TestPartitionsHaveCards(t *testing.T) {
	for model, want := range map[string]int{"MI300X": 64, "MI300A": 32, "MI210": 8, "MI300X VF": 64} {
		tree := generate(t, healthy(t, model))
		names, err := tree.ReadDir("sys/class/drm")
		if err != nil {
			t.Fatal(err)
		}
		cards, renders := 0, 0
		for _, name := range names {
			device, err := tree.Resolve("sys/class/drm/" + name + "/device")
			if err != nil || path.Dir(path.Dir(resolved(t, tree, "sys/class/drm/"+name))) != device {
				t.Errorf("%s: %s is not of its device %s (%v)", model, name, device, err)
			}
			if strings.HasPrefix(name, "card") {
				cards++
			} else {
				renders++
			}
		}
		if cards != want || renders != want {
			t.Errorf("%s: %d cards, %d render nodes, want %d", model, cards, renders, want)
		}
	}
	tree := generate(t, healthy(t, "MI300X"))
	for device, want := range map[string][]string{
		"sys/devices/platform/amdgpu_xcp_0":  {"card2", "renderD129"},
		"sys/devices/platform/amdgpu_xcp_54": {"card63", "renderD190"},
		// Minors of cards end at 63; the next one is beyond those of render nodes.
		"sys/devices/platform/amdgpu_xcp_55": {"card192", "renderD191"},
		"sys/bus/pci/devices/0000:2b:00.0":   {"card9", "renderD136"},
	} {
		if got, err := tree.ReadDir(device + "/drm"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has %v (%v), want %v", device, got, err, want)
		}
	}
}

func resolved(t *testing.T, tree *Tree, name string) string {
	t.Helper()
	found, err := tree.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestLinkFoldersAreThere: KFD makes both folders of links for each node.
func TestLinkFoldersAreThere(t *testing.T) {
	for _, model := range []string{"MI250X", "MI300X", "MI350P"} {
		tree := generate(t, healthy(t, model))
		nodes, err := tree.ReadDir("sys/class/kfd/kfd/topology/nodes")
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range nodes {
			for _, folder := range []string{"io_links", "p2p_links"} {
				dir := "sys/class/kfd/kfd/topology/nodes/" + node
				links, err := tree.ReadDir(dir + "/" + folder)
				if count := keys(text(t, tree, dir+"/properties"))[folder+"_count"]; err != nil ||
					fmt.Sprint(len(links)) != count {
					t.Errorf("%s: node %s has %d %s (%v), its properties say %s",
						model, node, len(links), folder, err, count)
				}
			}
		}
	}
}

// TestPCIFunctions: each function has what pci-sysfs.c shows of any, and is found as RCCL finds it, by the class of its
// bus.
func TestPCIFunctions(t *testing.T) {
	for _, model := range Models() {
		n := healthy(t, model)
		n.GPUs[0].PCIeWidth, n.GPUs[0].NUMANode = 8, -1
		tree := generate(t, n)
		names, err := tree.ReadDir("sys/bus/pci/devices")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			place := resolved(t, tree, "sys/bus/pci/devices/"+name)
			for _, file := range []string{"vendor", "device", "subsystem_vendor", "subsystem_device",
				"class", "revision", "numa_node", "max_link_speed", "max_link_width", "current_link_speed",
				"current_link_width"} {
				text(t, tree, place+"/"+file)
			}
			if found := resolved(t, tree, place+"/subsystem"); found != "sys/bus/pci" {
				t.Errorf("%s: subsystem of %s is %s", model, name, found)
			}
			bus := "sys/class/pci_bus/" + name[:strings.LastIndex(name, ":")]
			if found := resolved(t, tree, bus+"/../../"+name); found != place {
				t.Errorf("%s: %s by its bus is %s, want %s", model, name, found, place)
			}
			if found := resolved(t, tree, bus+"/device"); found != path.Dir(place) {
				t.Errorf("%s: the bridge of %s is %s, want %s", model, bus, found, path.Dir(place))
			}
		}
		gpu := resolved(t, tree, "sys/bus/pci/devices/"+n.GPUs[0].PCIAddress)
		if above := path.Dir(gpu); !strings.HasPrefix(path.Base(above), "pci") {
			if width, numa := text(t, tree, above+"/current_link_width"),
				text(t, tree, above+"/numa_node"); width != "8\n" || numa != "-1\n" {
				t.Errorf("%s: the port above GPU 0 has width %q, NUMA node %q", model, width, numa)
			}
			if most := text(t, tree, above+"/max_link_width"); most != "16\n" {
				t.Errorf("%s: the port above GPU 0 has at most %q", model, most)
			}
		}
	}
}

// TestNUMANodes: the nodes' distances are KFD's weights, their CPUs those of KFD and of the buses.
func TestNUMANodes(t *testing.T) {
	const root = "sys/devices/system/node/"
	tree := generate(t, healthy(t, "MI300X"))
	for file, want := range map[string]string{
		root + "online": "0-1\n", root + "node0/distance": "10 32\n", root + "node1/distance": "32 10\n",
		root + "node1/cpulist":                           "96-191\n",
		root + "node1/cpumap":                            "ffffffff,ffffffff,ffffffff,00000000,00000000,00000000\n",
		root + "node0/cpumap":                            "00000000,00000000,00000000,ffffffff,ffffffff,ffffffff\n",
		"sys/class/pci_bus/0000:05/cpulistaffinity":      "0-95\n",
		"sys/class/pci_bus/0000:e7/cpulistaffinity":      "96-191\n",
		"sys/class/pci_bus/0000:e7/device/numa_node":     "1\n",
		"sys/bus/pci/devices/0000:e7:00.0/vbios_version": "113-SIMULATED-000\n",
	} {
		if got := text(t, tree, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	kfd := keys(text(t, tree, "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties"))["size_in_bytes"]
	if meminfo := text(t, tree, root+"node1/meminfo"); kfd != "1081914286080" ||
		!strings.Contains(meminfo, "MemTotal:       1056556920 kB") {
		t.Errorf("KFD has %s bytes, the node %s", kfd, meminfo)
	}
	if got := text(t, generate(t, healthy(t, "MI250X")), root+"online"); got != "0\n" {
		t.Errorf("one socket: %q", got)
	}
}

// TestPartitionConfig: engines by partition, as the driver shares them out.
func TestPartitionConfig(t *testing.T) {
	for _, c := range []struct {
		model  string
		mode   PartitionMode
		memory string
		want   map[string]string
	}{
		{"MI300X", SPX, "NPS1", map[string]string{"supported_xcp_configs": "SPX, DPX, QPX, CPX",
			"supported_nps_configs": "NPS1", "xcp_config": "SPX", "xcc/num_inst": "8", "xcc/num_shared": "1",
			"dma/num_inst": "16", "dec/num_inst": "4", "jpeg/num_shared": "1"}},
		{"MI300X", CPX, "NPS4", map[string]string{"supported_nps_configs": "NPS1, NPS4", "xcp_config": "CPX",
			"xcc/num_inst": "1", "dma/num_inst": "2", "dec/num_inst": "1", "dec/num_shared": "2"}},
		{"MI300A", TPX, "NPS1", map[string]string{"supported_xcp_configs": "SPX, TPX, CPX", "xcc/num_inst": "2",
			"dma/num_inst": "4", "dec/num_inst": "1", "dec/num_shared": "1"}},
	} {
		n := healthy(t, c.model)
		n.Partition, n.MemoryPartition = c.mode, c.memory
		tree := generate(t, n)
		for file, want := range c.want {
			if got := text(t, tree,
				"sys/bus/pci/devices/"+n.GPUs[0].PCIAddress+"/compute_partition_config/"+file); got != want+"\n" {
				t.Errorf("%s %s: %s is %q, want %q", c.model, c.mode, file, got, want)
			}
		}
	}
	absent(t, generate(t, healthy(t, "MI210")), "sys/bus/pci/devices/0000:03:00.0/compute_partition_config")
}

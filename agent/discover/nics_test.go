package discover

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func testReader(fs FS) *reader {
	return &reader{fs: fs, hung: &hungReads{}, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
}

// rdma is a tree with one RDMA device of a NIC, as mlx5 shows it.
func rdma(name string, change map[string]string) memFS {
	const slot = "0000:09:00.0"
	dir := rdmaDir + "/" + name
	m := memFS{
		dir + "/device/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:1021\nPCI_SLOT_NAME=" + slot +
			"\nMODALIAS=pci:v000015B3\n",
		dir + "/device/vendor": "0x15b3\n", dir + "/device/device": "0x1021\n", dir + "/device/numa_node": "1\n",
		dir + "/device/net/enp9s0np0/mtu": "9000\n",
		dir + "/ports/1/state":            "4: ACTIVE\n", dir + "/ports/1/phys_state": "5: LinkUp\n",
		dir + "/ports/1/rate": "400 Gb/sec (4X NDR)\n", dir + "/ports/1/link_layer": "Ethernet\n",
		pciDir + "/" + slot: "../../../devices/pci0000:00/0000:00:01.1/" + slot,
	}
	for file, text := range change {
		path := dir + "/" + file
		for name := range m {
			if text == "" && under(path)(name) {
				delete(m, name)
			}
		}
		if text != "" {
			m[path] = text
		}
	}
	return m
}

func TestReadNICs(t *testing.T) {
	good := NIC{Name: "mlx5_0", Interface: "enp9s0np0", PCIAddress: "0000:09:00.0",
		PCIPath: "pci0000:00/0000:00:01.1/0000:09:00.0", VendorID: "0x15b3", DeviceID: "0x1021", Product: "ConnectX-7",
		LinkLayer: "Ethernet", State: "Active", RateMbps: ptr.To(int64(400000)), NUMANode: ptr.To(int32(1))}
	with := func(change func(*NIC)) []NIC {
		n := good
		change(&n)
		return []NIC{n}
	}
	same := func(*NIC) {}
	for name, c := range map[string]struct {
		tree   memFS
		want   []NIC
		unread string
	}{
		"no RDMA in the kernel": {memFS{"sys/class/net/lo/mtu": "65536"}, []NIC{}, ""},
		"part of a sysfs":       {memFS{"sys/class/kfd/x": ""}, nil, ""},
		"no device":             {memFS{rdmaDir: "", rdmaDir + "/.hidden/x": ""}, []NIC{}, ""},
		"class unreadable":      {memFS{rdmaDir: "!EPERM", rdmaDir + "/x": ""}, nil, "Forbidden " + rdmaDir},
		"RoCE":                  {rdma("mlx5_0", nil), with(same), ""},
		"InfiniBand, no interface": {rdma("mlx5_0",
			map[string]string{"ports/1/link_layer": "InfiniBand", "device/net": ""}),
			with(func(n *NIC) { n.LinkLayer, n.Interface = "InfiniBand", "" }), ""},
		"another vendor and unknown link": {rdma("mlx5_0", map[string]string{"device/uevent": "PCI_ID=1234:1021\n" +
			"PCI_SLOT_NAME=0000:09:00.0", "ports/1/link_layer": "Unspecified"}),
			with(func(n *NIC) { n.VendorID, n.Product, n.LinkLayer = "0x1234", "", "Unknown" }), ""},
		"Thor 2, an old kernel's uevent": {rdma("mlx5_0", map[string]string{
			"device/uevent": "PCI_SLOT_NAME=0000:09:00.0", "device/vendor": "0x14e4", "device/device": "0x1760"}),
			with(func(n *NIC) { n.VendorID, n.DeviceID, n.Product = "0x14e4", "0x1760", "BCM57608 (Thor 2)" }), ""},
		"down": {rdma("mlx5_0", map[string]string{"ports/1/state": "1: DOWN",
			"ports/1/phys_state": "2: Polling", "ports/1/rate": "10 Gb/sec (4X SDR)"}),
			with(func(n *NIC) { n.State, n.PhysState, n.RateMbps = "Down", "Polling", ptr.To(int64(10000)) }), ""},
		"NUMA node not known": {rdma("mlx5_0", map[string]string{"device/numa_node": "-1"}),
			with(func(n *NIC) { n.NUMANode = nil }), ""},
		"second port only": {rdma("mlx5_0", map[string]string{"ports/1": "", "ports/2/state": "3: ARMED"}),
			with(func(n *NIC) { n.State, n.PhysState, n.LinkLayer, n.RateMbps = "Armed", "", "Unknown", nil }), ""},
		"first of two ports": {rdma("mlx5_0",
			map[string]string{"ports/10/state": "1: DOWN", "ports/2/state": "1: DOWN"}), with(same), ""},
		"state unreadable": {rdma("mlx5_0", map[string]string{"ports/1/state": "!EIO"}),
			with(func(n *NIC) { n.State, n.PhysState = "Unknown", "LinkUp" }),
			"Failed " + rdmaDir + "/mlx5_0/ports/1/state"},
		"state half written": {rdma("mlx5_0", map[string]string{"ports/1/state": "4"}),
			with(func(n *NIC) { n.State, n.PhysState = "Unknown", "LinkUp" }),
			"Malformed " + rdmaDir + "/mlx5_0/ports/1/state"},
		"ports unreadable": {rdma("mlx5_0", map[string]string{"ports": "!EPERM"}),
			with(func(n *NIC) { n.State, n.PhysState, n.LinkLayer, n.RateMbps = "Unknown", "", "Unknown", nil }),
			"Forbidden " + rdmaDir + "/mlx5_0/ports"},
		"address unreadable": {rdma("mlx5_0", map[string]string{"device/uevent": "!EPERM"}),
			with(func(n *NIC) { n.PCIAddress, n.PCIPath = "", "" }), "Forbidden " + rdmaDir + "/mlx5_0/device/uevent"},
		"sub-function": {rdma("mlx5_0", map[string]string{"device/uevent": "MODALIAS=auxiliary:mlx5_core.sf"}).
			with(rdmaDir+"/mlx5_0",
				"../../devices/pci0000:00/0000:00:01.1/0000:09:00.0/mlx5_core.sf.2/infiniband/mlx5_0"), with(same), ""},
		"plain directory on the bus": {rdma("mlx5_0", nil).without(pciDir + "/0000:09:00.0"),
			with(func(n *NIC) { n.PCIPath = "" }), ""},
		"virtual function": {rdma("mlx5_0", map[string]string{"device/uevent": "PCI_ID=15B3:101E\n" +
			"PCI_SLOT_NAME=0000:09:00.0"}).with(pciDir+"/0000:09:00.0/physfn", "../0000:09:00.1"),
			with(func(n *NIC) { n.DeviceID, n.Product, n.virtualFunction = "0x101e", "ConnectX VF", true }), ""},
		"virtual function in a guest": {rdma("mlx5_0",
			map[string]string{"device/uevent": "PCI_ID=15B3:101E\nPCI_SLOT_NAME=0000:09:00.0"}),
			with(func(n *NIC) { n.DeviceID, n.Product = "0x101e", "ConnectX VF" }), ""},
		"siw": {memFS{rdmaDir + "/siw0": "../../devices/virtual/infiniband/siw0",
			rdmaDir + "/siw0/ports/1/state": "4: ACTIVE"},
			[]NIC{{Name: "siw0", LinkLayer: "Unknown", State: "Active", virtual: true}}, ""},
		"rxe with the device of its NIC": {rdma("rxe0",
			map[string]string{"parent": "enp9s0np0", "ports/1/rate": "1 Gb/sec (1X SDR)"}),
			[]NIC{{Name: "rxe0", Interface: "enp9s0np0", LinkLayer: "Ethernet", State: "Active",
				RateMbps: ptr.To(int64(1000)), virtual: true}}, ""},
		"interface by its PCI address": {rdma("mlx5_0", map[string]string{"device/net": ""}).
			with(netDir+"/eth0/device/uevent", "PCI_SLOT_NAME=0000:0a:00.0").
			with(netDir+"/eth1/device/uevent", "PCI_SLOT_NAME=0000:09:00.0").with(netDir+"/lo/mtu", "65536"),
			with(func(n *NIC) { n.Interface = "eth1" }), ""},
		"representors beside the interface": {rdma("mlx5_0", map[string]string{"device/net/enp9s0npf0vf0/mtu": "1500",
			"device/net/a0/mtu": "1500", "ports/1/gid_attrs/ndevs/0": "enp9s0np0\n"}), with(same), ""},
		"several interfaces, none named": {rdma("mlx5_0", map[string]string{"device/net/eth10/mtu": "1",
			"device/net/eth2/mtu": "1", "device/net/enp9s0np0": "", "ports/1/gid_attrs/ndevs/0": "!EINVAL"}),
			with(func(n *NIC) { n.Interface = "eth2" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, unread := readNICs(testReader(c.tree))
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(NIC{})); diff != "" {
				t.Errorf("NICs (-want +got):\n%s", diff)
			}
			lines := make([]string, 0, len(unread))
			for _, u := range unread {
				lines = append(lines, string(u.Class)+" "+u.Path)
			}
			if got := strings.Join(lines, ", "); got != c.unread {
				t.Errorf("unread %q, want %q", got, c.unread)
			}
		})
	}
}

func (m memFS) with(name, text string) memFS {
	m[name] = text
	return m
}

func (m memFS) without(name string) memFS {
	delete(m, name)
	return m
}

// TestManyNICs: the order is the natural one of the names, and a host full of virtual functions is bounded and said.
func TestManyNICs(t *testing.T) {
	m := memFS{}
	for i := range maxNICs + 3 {
		maps.Copy(m, rdma("mlx5_"+numeral(i), nil))
	}
	nics, unread := readNICs(testReader(m))
	if len(nics) != maxNICs || nics[2].Name != "mlx5_2" || nics[10].Name != "mlx5_10" ||
		nics[maxNICs-1].Name != "mlx5_127" {
		t.Errorf("%d NICs, the last %s", len(nics), nics[len(nics)-1].Name)
	}
	if len(unread) != 1 || unread[0].Class != ClassFailed ||
		!strings.Contains(unread[0].Error(), "131 RDMA devices are more than 128") {
		t.Errorf("unread %v", unread)
	}
}

func numeral(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return numeral(n/10) + numeral(n%10)
}

func TestNICParsers(t *testing.T) {
	type result struct {
		value any
		err   bool
	}
	check := func(what, text string, value any, err error, want result) {
		t.Helper()
		if (err != nil) != want.err || (err == nil && value != want.value) {
			t.Errorf("%s(%q) = %v, %v; want %+v", what, text, value, err, want)
		}
		if err != nil && Classify(err) != ClassMalformed {
			t.Errorf("%s(%q): class %s", what, text, Classify(err))
		}
	}
	for text, want := range map[string]result{"4: ACTIVE\n": {"Active", false}, "1: DOWN": {"Down", false},
		"2: INIT": {"Init", false}, "3: ARMED": {"Armed", false}, "0: NOP": {"Unknown", false},
		"5: ACTIVE_DEFER": {"Unknown", false}, "9: LATER": {"Unknown", false}, "": {nil, true}, "ACTIVE": {nil, true},
		"4:": {nil, true}, "-4: ACTIVE": {nil, true}, "4: " + strings.Repeat("A", 65): {nil, true}} {
		v, err := parsePortState([]byte(text))
		check("parsePortState", text, v, err, want)
	}
	for text, want := range map[string]result{"5: LinkUp\n": {"LinkUp", false}, "3: Disabled": {"Disabled", false},
		"7: Phy Test": {"Phy Test", false}, "9: <unknown>": {"", false}, "": {nil, true}, "LinkUp": {nil, true},
		"5: Li\x1b[31mnk": {"Li[31mnk", false}} {
		v, err := parsePhysState([]byte(text))
		check("parsePhysState", text, v, err, want)
	}
	for text, want := range map[string]result{"400 Gb/sec (4X NDR)\n": {int64(400000), false},
		"2.5 Gb/sec (1X SDR)": {int64(2500), false}, "800 Gb/sec (8X NDR)": {int64(800000), false},
		"100 Gb/sec (4X EDR)": {int64(100000), false}, "0 Gb/sec (0X)": {int64(0), false}, "": {nil, true},
		"400": {nil, true}, " Gb/sec": {nil, true}, ".5 Gb/sec": {nil, true}, "2. Gb/sec": {nil, true},
		"-1 Gb/sec": {nil, true}, "1e3 Gb/sec": {nil, true}, "1234567 Gb/sec": {nil, true}, "400 Mb/sec": {nil, true}} {
		v, err := parsePortRate([]byte(text))
		check("parsePortRate", text, v, err, want)
	}
	for text, want := range map[string]result{"InfiniBand\n": {"InfiniBand", false}, "Ethernet": {"Ethernet", false},
		"Unknown": {"Unknown", false}, "Carrier pigeon": {"Unknown", false}, " \n": {nil, true}} {
		v, err := parseLinkLayer([]byte(text))
		check("parseLinkLayer", text, v, err, want)
	}
	nic := pciSlot{"0000:09:00.0", "0x15b3", "0x1021"}
	for text, want := range map[string]result{"DRIVER=x\nPCI_ID=15B3:1021\nPCI_SLOT_NAME=0000:09:00.0\nX=y": {nic,
		false}, "PCI_SLOT_NAME=10000:e1:1f.7": {pciSlot{address: "10000:e1:1f.7"}, false}, "": {pciSlot{}, false},
		"DRIVER=mlx5": {pciSlot{}, false}, "PCI_ID=15B3:1021": {pciSlot{}, false}, "PCI_SLOT_NAME=": {nil, true},
		"PCI_SLOT_NAME=0000:09:00.8": {nil, true}, "PCI_SLOT_NAME=../../etc": {nil, true},
		"PCI_SLOT_NAME=0000:9:00.0": {nil, true}, "XPCI_SLOT_NAME=0000:09:00.0": {pciSlot{}, false},
		"PCI_ID=15B3\nPCI_SLOT_NAME=0000:09:00.0": {nil, true}, "PCI_ID=15B3:10211": {nil, true}} {
		v, err := parseSlot([]byte(text))
		check("parseSlot", text, v, err, want)
	}
}

func TestDevicesPath(t *testing.T) {
	const link = pciDir + "/0000:05:00.0"
	for target, want := range map[string]string{
		"../../../devices/pci0000:00/0000:00:01.1/0000:05:00.0":              "pci0000:00/0000:00:01.1/0000:05:00.0",
		"/sys/devices/pci0000:00/0000:05:00.0":                               "pci0000:00/0000:05:00.0",
		"../../../devices/LNXSYSTM:00/VMBUS:00/f0a1/pci0101:00/0101:00:00.0": "", // another device than the link's
		"../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0": "",
		"../../../../../../devices/pci0000:00/0000:05:00.0":                  "", // above the root
		"/host/sys/devices/pci0000:00/0000:05:00.0":                          "",
		"../../../devices/0000:05:00.0":                                      "", // no host bridge
		"../../../devices/platform/pci/0000:05:00.0":                         "",
		"": "",
		"../../../devices/" + strings.Repeat("a/", 600) + "pci0000:00/0000:05:00.0":       "",
		"../../../devices/platform/40000000.pcie/pci0004:00/0004:00:00.0/../0000:05:00.0": "platform/40000000.pcie/pci0004:00/0000:05:00.0",
	} {
		if got := devicesPath(link, target); got != want {
			t.Errorf("%q gives %q, want %q", target, got, want)
		}
	}
	hyperv := "../../../devices/LNXSYSTM:00/VMBUS:00/f0a1/pci0101:00/0101:00:00.0"
	if got := devicesPath(pciDir+"/0101:00:00.0", hyperv); got != "LNXSYSTM:00/VMBUS:00/f0a1/pci0101:00/0101:00:00.0" {
		t.Errorf("Hyper-V: %q", got)
	}
}

// TestPCIPathOnDisk: links of a tree on disk, relative and absolute, and plain directories.
func TestPCIPathOnDisk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sys/devices/pci0000:00/0000:00:01.1/0000:05:00.0/vendor", []byte("0x1002"))
	write(t, dir, pciDir+"/0000:07:00.0/vendor", []byte("0x1002"))
	for name, target := range map[string]string{"0000:05:00.0": "../../../devices/pci0000:00/0000:00:01.1/0000:05:00.0",
		"0000:06:00.0": "/sys/devices/pci0000:00/0000:06:00.0"} {
		if err := os.Symlink(target, filepath.Join(dir, pciDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var unread []*ReadError
	r := testReader(openRoot(t, dir))
	got := map[string]string{}
	for _, address := range []string{"0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"} {
		got[address] = readPCIPath(r, address, &unread)
	}
	want := map[string]string{"0000:05:00.0": "pci0000:00/0000:00:01.1/0000:05:00.0",
		"0000:06:00.0": "pci0000:00/0000:06:00.0", "0000:07:00.0": "", "0000:08:00.0": ""}
	if diff := cmp.Diff(want, got); diff != "" || len(unread) > 0 {
		t.Errorf("paths (-want +got):\n%s\nunread %v", diff, unread)
	}
}

// TestNaturalOrder: numbers in names count as numbers, and the order is total.
func TestNaturalOrder(t *testing.T) {
	ordered := []string{"", "a", "bnxt_re0", "bnxt_re01", "bnxt_re2", "bnxt_re10", "bnxt_rea", "mlx5_0", "mlx5_0f1",
		"mlx5_1", "mlx5_10", "mlx5_bond_0", "mlx10_0"}
	for i := range ordered {
		for j := range ordered {
			if got := naturalLess(ordered[i], ordered[j]); got != (i < j) {
				t.Errorf("naturalLess(%q, %q) = %v", ordered[i], ordered[j], got)
			}
		}
	}
}

func FuzzNICParsers(f *testing.F) {
	for _, seed := range []string{"4: ACTIVE\n", "5: LinkUp\n", "400 Gb/sec (4X NDR)\n", "2.5 Gb/sec (1X SDR)",
		"Ethernet\n", "PCI_SLOT_NAME=0000:09:00.0\n", "../../../devices/pci0000:00/0000:00:01.1/0000:09:00.0", "",
		"\x00", "4: \xff", "99999999999999999999: X"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := parsePortState(data); err == nil &&
			!map[string]bool{PortActive: true, PortInit: true, PortArmed: true, PortDown: true, PortUnknown: true}[s] {
			t.Errorf("state %q", s)
		}
		if s, err := parsePhysState(data); err == nil && (len(s) > 32 || s != printable([]byte(s), 32)) {
			t.Errorf("phys state %q", s)
		}
		if n, err := parsePortRate(data); err == nil && (n < 0 || n > 1e9) {
			t.Errorf("rate %d", n)
		}
		if s, err := parseLinkLayer(data); err == nil && s != LinkInfiniBand && s != LinkEthernet && s != LinkUnknown {
			t.Errorf("link layer %q", s)
		}
		if s, err := parseSlot(data); err == nil && s != (pciSlot{}) &&
			(!isPCIAddress(s.address) || (s.vendor == "") != (s.device == "")) {
			t.Errorf("slot %+v", s)
		}
		if p := devicesPath(pciDir+"/0000:09:00.0", string(data)); p != "" &&
			(strings.Contains("/"+p+"/", "/../") || !strings.HasSuffix(p, "/0000:09:00.0")) {
			t.Errorf("path %q", p)
		}
		half := len(data) / 2
		a, b := string(data[:half]), string(data[half:])
		if a != b && naturalLess(a, b) == naturalLess(b, a) {
			t.Errorf("no order between %q and %q", a, b)
		}
	})
}

// FuzzReadNICs: whatever a tree says, the read ends, names are kept, and what is not known stays empty.
func FuzzReadNICs(f *testing.F) {
	f.Add("mlx5_0", "PCI_SLOT_NAME=0000:09:00.0", "../../../devices/pci0000:00/0000:00:01.1/0000:09:00.0", "4: ACTIVE",
		"400 Gb/sec (4X NDR)", "0x15b3")
	f.Add("mlx5_2", "PCI_ID=15B3:101E\nPCI_SLOT_NAME=0000:09:00.0", "", "1: DOWN", "", "")
	f.Add("rxe0", "", "../../devices/virtual/infiniband/rxe0", "", "", "!EPERM")
	f.Fuzz(func(t *testing.T, name, uevent, link, state, rate, vendor string) {
		if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
			return
		}
		dir := rdmaDir + "/" + name
		nics, _ := readNICs(testReader(memFS{dir: link, dir + "/device/uevent": uevent, dir + "/device/vendor": vendor,
			dir + "/ports/1/state": state, dir + "/ports/1/rate": rate, pciDir + "/0000:09:00.0": link}))
		if len(nics) != 1 || nics[0].Name != name || nics[0].State == "" || nics[0].LinkLayer == "" {
			t.Fatalf("NICs %+v", nics)
		}
		if n := nics[0]; n.virtual && (n.PCIAddress != "" || n.NUMANode != nil) {
			t.Errorf("a software device with hardware: %+v", n)
		}
		facts := &Facts{GPUs: []GPU{{PCIAddress: "0000:05:00.0", PCIPath: "pci0000:00/0000:00:01.1/0000:05:00.0"}},
			NICs: nics}
		assignNICs(facts)
		if g := facts.GPUs[0]; (g.NIC == "") != (g.NICPath == "") {
			t.Errorf("NIC %q, path %q", g.NIC, g.NICPath)
		}
	})
}

// TestNICsOfAScan: the facts of a scan carry the NICs, the nearest one of each GPU, and what is wrong with them.
func TestNICsOfAScan(t *testing.T) {
	dir := generate(t, "MI300X", nil)
	f := scan(t, openRoot(t, dir), Options{})
	if len(f.NICs) != 8 {
		t.Fatalf("%d NICs", len(f.NICs))
	}
	for i := range f.NICs {
		if n := &f.NICs[i]; n.PCIAddress == "" || n.Interface == "" || n.State != PortActive ||
			n.LinkLayer == LinkUnknown || n.RateMbps == nil {
			t.Errorf("NIC %+v", n)
		}
	}
	used := map[string]bool{}
	for i := range f.GPUs {
		if f.GPUs[i].NIC == "" || used[f.GPUs[i].NIC] {
			t.Errorf("GPU%d has NIC %q (%s)", i, f.GPUs[i].NIC, f.GPUs[i].NICPath)
		}
		used[f.GPUs[i].NIC] = true
	}
	if got := problemLines(f); len(got) > 0 {
		t.Errorf("problems of a healthy node: %v", got)
	}
	port := rdmaDir + "/" + f.NICs[3].Name + "/ports/1/"
	write(t, dir, port+"state", []byte("1: DOWN\n"))
	write(t, dir, port+"phys_state", []byte("2: Polling\n"))
	f = scan(t, openRoot(t, dir), Options{})
	if diff := cmp.Diff([]string{"Warning NICDown " + f.NICs[3].Name}, problemLines(f)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if !strings.Contains(f.Verdict(), "healthy: 8 x MI300X") ||
		!strings.Contains(f.Verdict(), "1 warning: NICDown "+f.NICs[3].Name+": Its port is Down (Polling)") {
		t.Errorf("verdict: %s", f.Verdict())
	}
}

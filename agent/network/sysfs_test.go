package network

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcclx.io/commgroup-operator/agent/discover"
)

// tree writes files below a new root; a value that begins with "->" is a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(content) > 2 && content[:2] == "->" {
			err = os.Symlink(content[2:], path)
		} else {
			err = os.WriteFile(path, []byte(content+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	nic    = "sys/devices/pci0000:00/0000:00:01.1/0000:0c:00.0"
	auxNIC = "sys/devices/pci0000:00/0000:00:01.1/0000:0d:00.0/mlx5_core.sf.2"
)

func rdmaTree(t *testing.T) string {
	return tree(t, map[string]string{
		nic + "/uevent": "DRIVER=mlx5_core\nPCI_ID=15B3:1021\n" +
			"PCI_SLOT_NAME=0000:0c:00.0",
		nic + "/net/eth1/operstate":                          "up",
		nic + "/net/eth1/device":                             "->../../../0000:0c:00.0",
		nic + "/infiniband/mlx5_0/device":                    "->../../../0000:0c:00.0",
		nic + "/infiniband/mlx5_0/ports/1/state":             "4: ACTIVE",
		nic + "/infiniband/mlx5_0/ports/1/link_layer":        "Ethernet",
		nic + "/infiniband/mlx5_0/ports/1/gids/0":            "fe80:0000:0000:0000:9a03:9bff:fe00:0001",
		nic + "/infiniband/mlx5_0/ports/1/gids/1":            "0000:0000:0000:0000:0000:0000:0000:0000",
		nic + "/infiniband/mlx5_0/ports/1/gids/2":            "fe80:0000:0000:0000:0000:0000:0000:0000",
		nic + "/infiniband/mlx5_0/ports/1/gids/3":            "0000:0000:0000:0000:0000:ffff:0a04:0007",
		nic + "/infiniband/mlx5_0/ports/1/gids/4":            "text",
		nic + "/infiniband/mlx5_0/ports/1/gid_attrs/types/0": "IB/RoCE v1",
		nic + "/infiniband/mlx5_0/ports/1/gid_attrs/types/3": "RoCE v2",
		nic + "/infiniband/mlx5_0/ports/10/state":            "1: DOWN",
		nic + "/infiniband/mlx5_0/ports/2/state":             "2: INIT",
		nic + "/infiniband/mlx5_0/ports/2/link_layer":        "InfiniBand",
		auxNIC + "/infiniband/mlx5_1/ports/1/state":          "3: ARMED",
		"sys/class/infiniband/mlx5_0":                        "->../../devices/pci0000:00/0000:00:01.1/0000:0c:00.0/infiniband/mlx5_0",
		"sys/class/infiniband/mlx5_1":                        "->../../devices/pci0000:00/0000:00:01.1/0000:0d:00.0/mlx5_core.sf.2/infiniband/mlx5_1",
		"sys/class/infiniband/rxe0/parent":                   "eth0",
		"sys/class/infiniband_verbs/abi_version":             "6",
		"sys/class/infiniband_verbs/uverbs0/ibdev":           "mlx5_0",
		"sys/class/infiniband_verbs/uverbs1/ibdev":           "mlx5_1",
		"dev/infiniband/uverbs0":                             "",
		"sys/class/net/eth1":                                 "->../../devices/pci0000:00/0000:00:01.1/0000:0c:00.0/net/eth1",
		"sys/class/net/eth1.100/lower_eth1":                  "->../eth1",
		"sys/class/net/bond0/bonding/slaves":                 "eth2",
		"sys/class/net/bond0/lower_eth2":                     "->../eth2",
		"sys/class/net/eth2/master":                          "->../bond0",
		"sys/class/net/odd/lower_a":                          "->../a",
		"sys/class/net/odd/lower_b":                          "->../b",
	})
}

func TestReadHCAs(t *testing.T) {
	hcas, err := NodeHost{Root: rdmaTree(t)}.HCAs()
	if err != nil || len(hcas) != 3 {
		t.Fatalf("%d devices: %v", len(hcas), err)
	}
	first, second, soft := hcas[0], hcas[1], hcas[2]
	if first.Name != "mlx5_0" || first.PCIAddress != "0000:0c:00.0" || first.Interface != "eth1" ||
		first.DeviceFile != "/dev/infiniband/uverbs0" || !first.Usable {
		t.Errorf("first: %+v", first)
	}
	var ports []int
	for _, p := range first.Ports {
		ports = append(ports, p.Number)
	}
	if !slices.Equal(ports, []int{1, 2, 10}) {
		t.Fatalf("ports %v", ports)
	}
	p := first.Ports[0]
	want := []GID{{0, netip.MustParseAddr("fe80::9a03:9bff:fe00:1"), "IB/RoCE v1"},
		{3, netip.MustParseAddr("10.4.0.7"), "RoCE v2"}}
	if p.State != discover.PortActive || p.LinkLayer != discover.LinkEthernet || p.GIDTableSize != 5 ||
		!slices.Equal(p.GIDs, want) {
		t.Errorf("port 1: %+v", p)
	}
	if p := first.Ports[1]; p.State != discover.PortInit || p.LinkLayer != discover.LinkInfiniBand ||
		p.GIDTableSize != 0 {
		t.Errorf("port 2: %+v", p)
	}
	if p := first.Ports[2]; p.State != discover.PortDown || p.LinkLayer != discover.LinkUnknown {
		t.Errorf("port 10: %+v", p)
	}
	if second.PCIAddress != "0000:0d:00.0" || second.Usable || second.DeviceFile != "/dev/infiniband/uverbs1" ||
		second.Ports[0].State != discover.PortArmed {
		t.Errorf("a sub-function whose file is not in the pod: %+v", second)
	}
	if soft.PCIAddress != "" || len(soft.Ports) != 0 || !soft.Usable {
		t.Errorf("a software device without a file that is known: %+v", soft)
	}
}

func TestReadHCAsOfOtherKernels(t *testing.T) {
	if hcas, err := (NodeHost{Root: tree(t,
		map[string]string{"sys/class/net/lo/operstate": "unknown"})}).HCAs(); err != nil || hcas != nil {
		t.Errorf("without RDMA: %v, %v", hcas, err)
	}
	if _, err := readHCAs(failing{}, nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("unreadable: %v", err)
	}
	files := map[string]string{}
	for k := range maxHCAs + 1 {
		files["sys/class/infiniband/x"+string(rune('0'+k/10))+string(rune('0'+k%10))+"/node_type"] = ""
	}
	if _, err := (NodeHost{Root: tree(t, files)}).HCAs(); err == nil {
		t.Error("more devices than can be looked at are not told")
	}
	if _, err := (NodeHost{Root: filepath.Join(t.TempDir(), "none")}).HCAs(); err == nil {
		t.Error("a root that is not there is not told")
	}
}

// failing is a file system that nothing may be read of.
type failing struct{}

func (failing) ReadFile(string) ([]byte, error)  { return nil, fs.ErrPermission }
func (failing) ReadDir(string) ([]string, error) { return nil, fs.ErrPermission }
func (failing) ReadLink(string) (string, error)  { return "", fs.ErrPermission }

func TestReadInterface(t *testing.T) {
	root, err := discover.OpenRoot(rdmaTree(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for name, want := range map[string]Interface{
		"eth1":     {PCIAddress: "0000:0c:00.0"},
		"eth1.100": {Parent: "eth1"},
		"bond0":    {},
		"eth2":     {Master: "bond0"},
		"odd":      {},
		"none":     {},
	} {
		got := Interface{Name: name}
		readInterface(root, &got)
		if got.PCIAddress != want.PCIAddress || got.Parent != want.Parent || got.Master != want.Master {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The machine that the test runs on has a loopback interface with its address.
func TestInterfacesOfThisMachine(t *testing.T) {
	all, err := NodeHost{}.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	k := slices.IndexFunc(all, func(i Interface) bool { return i.Loopback })
	if k < 0 {
		t.Skip("no loopback interface here")
	}
	if !slices.Contains(all[k].Addresses, netip.MustParsePrefix("127.0.0.1/8")) || !all[k].Up {
		t.Errorf("loopback is %+v", all[k])
	}
}

func TestPrefixOf(t *testing.T) {
	mapped := net.IPNet{IP: net.ParseIP("10.0.0.7"), Mask: net.CIDRMask(120, 128)} // 16 bytes
	for _, tc := range []struct {
		want string
		addr net.Addr
	}{
		{"10.0.0.7/24", &net.IPNet{IP: net.ParseIP("10.0.0.7").To4(), Mask: net.CIDRMask(24, 32)}},
		{"10.0.0.7/24", &mapped},
		{"fd00::7/64", &net.IPNet{IP: net.ParseIP("fd00::7"), Mask: net.CIDRMask(64, 128)}},
	} {
		if p, ok := prefixOf(tc.addr); !ok || p.String() != tc.want {
			t.Errorf("%v gives %v, want %s", tc.addr, p, tc.want)
		}
	}
	for _, a := range []net.Addr{&net.TCPAddr{}, &net.IPNet{},
		&net.IPNet{IP: net.ParseIP("10.0.0.7").To4(), Mask: net.IPMask{255, 0, 255, 0}}} {
		if p, ok := prefixOf(a); ok {
			t.Errorf("%v gives %v", a, p)
		}
	}
}

package network

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// memHost is a node in memory.
type memHost struct {
	interfaces     []Interface
	interfacesErr  error
	hcas           []HCA
	hcasErr        error
	busy           map[int]error
	first, last    int
	localPortsErr  error
	sockets        []Socket
	socketsErr     error
	portFreeCalled int
}

func (h *memHost) Interfaces() ([]Interface, error) { return h.interfaces, h.interfacesErr }
func (h *memHost) HCAs() ([]HCA, error)             { return h.hcas, h.hcasErr }
func (h *memHost) LocalPorts() (int, int, error)    { return h.first, h.last, h.localPortsErr }
func (h *memHost) Sockets() ([]Socket, error)       { return h.sockets, h.socketsErr }
func (h *memHost) PortFree(_ netip.Addr, port int) error {
	h.portFreeCalled++
	return h.busy[port]
}

var errDenied = errors.New("denied for the test")

func addresses(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for k, text := range list {
		out[k] = netip.MustParsePrefix(text)
	}
	return out
}

// node has the interfaces and RDMA devices of a typical GPU server, and one odd case of each kind.
func node() *memHost {
	gids := []GID{{0, netip.MustParseAddr("fe80::9a03:9bff:fe00:1"), "IB/RoCE v1"},
		{3, netip.MustParseAddr("10.4.0.7"), "RoCE v2"}}
	port := func(state, layer string) []HCAPort {
		return []HCAPort{{Number: 1, State: state, LinkLayer: layer, GIDTableSize: 256, GIDs: gids}}
	}
	return &memHost{
		first: 32768, last: 60999,
		interfaces: []Interface{
			{Name: "lo", Up: true, Loopback: true, Addresses: addresses("127.0.0.1/8", "::1/128")},
			{Name: "eth0", Up: true, Addresses: addresses("10.0.0.7/24", "fd00::7/64", "fe80::7/64")},
			{Name: "eth1", Up: true, PCIAddress: "0000:0c:00.0", Addresses: addresses("10.4.0.7/16")},
			{Name: "eth1.100", Up: true, Parent: "eth1", Addresses: addresses("10.5.0.7/16")},
			{Name: "eth2", PCIAddress: "0000:22:00.0", Addresses: addresses("10.6.0.7/16")},
			{Name: "eth3", Up: true, PCIAddress: "0000:33:00.0", Addresses: addresses("fe80::3/64")},
			{Name: "eth4", Up: true, PCIAddress: "0000:44:00.0", Master: "bond0"},
			{Name: "eth5", Up: true, Addresses: addresses("10.7.0.1/24", "10.8.0.1/24")},
			{Name: "eth6", Up: true, Addresses: addresses("10.9.0.1/24")},
			{Name: "eth7", Up: true, Addresses: addresses("10.9.0.2/24")},
			{Name: "net,1", Up: true, Addresses: addresses("10.10.0.1/24")},
			{Name: "eth8", Up: true, PCIAddress: "0000:88:00.0"},
			{Name: "eth9", Up: true, PCIAddress: "0000:99:00.0", Addresses: addresses("10.11.0.1/24")},
			{Name: "eth9r0", Up: true, PCIAddress: "0000:99:00.0"},
			{Name: "v6only", Up: true, Addresses: addresses("fd00:4::7/64", "fe80::9/64")},
		},
		hcas: []HCA{
			{Name: "mlx5_0", Interface: "eth1", Usable: true, Ports: port(discover.PortActive, discover.LinkEthernet)},
			{Name: "mlx5_1", Usable: true, Ports: port(discover.PortActive, discover.LinkInfiniBand)},
			{Name: "mlx5_2", Usable: true, Ports: port(discover.PortDown, discover.LinkEthernet)},
			{Name: "mlx5_3", Usable: true, Ports: port(discover.PortInit, discover.LinkInfiniBand)},
			{Name: "mlx5_4", Usable: false, DeviceFile: "/dev/infiniband/uverbs4",
				Ports: port(discover.PortActive, discover.LinkEthernet)},
			{Name: "mlx5_5", Usable: true},
			{Name: "mlx5_6", Usable: true, Ports: []HCAPort{{Number: 1, State: discover.PortDown},
				{Number: 2, State: discover.PortActive, LinkLayer: discover.LinkEthernet}}},
		},
	}
}

func byCIDR(cidr string) *api.InterfaceSelector   { return &api.InterfaceSelector{CIDR: cidr} }
func byName(name string) *api.InterfaceSelector   { return &api.InterfaceSelector{Name: name} }
func byPCI(address string) *api.InterfaceSelector { return &api.InterfaceSelector{PCIAddress: address} }
func portRange(first, last int32) *api.PortRange  { return &api.PortRange{First: first, Last: last} }
func inUse(first, last int) map[int]error         { return portsWith(first, last, syscall.EADDRINUSE) }
func gid(index int32) *int32                      { return ptr.To(index) }
func own(name, value string) []api.EnvVar         { return []api.EnvVar{{Name: name, Value: value}} }
func portsWith(first, last int, err error) map[int]error {
	busy := map[int]error{}
	for p := first; p <= last; p++ {
		busy[p] = err
	}
	return busy
}

// wantProblem checks the reason, and that the message names the node and has the words.
func wantProblem(t *testing.T, p *Problem, reason string, words ...string) {
	t.Helper()
	if p == nil {
		t.Fatalf("no problem, want %s", reason)
	}
	if p.Reason != reason {
		t.Errorf("reason %s, want %s: %s", p.Reason, reason, p.Message)
	}
	for _, w := range append(words, "Node node-a: ") {
		if !strings.Contains(p.Message, w) {
			t.Errorf("message lacks %q: %s", w, p.Message)
		}
	}
	if len(p.Message) > 1024 {
		t.Errorf("message has %d bytes, status.session.message holds 1024", len(p.Message))
	}
}

package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
)

// Host is what a node says of its network. All of it is as the rank processes see it: in a pod, the pod's own
// interfaces.
type Host interface {
	// Interfaces in the kernel's order, each with its addresses in the kernel's order.
	Interfaces() ([]Interface, error)
	// HCAs are the RDMA devices, by name; none where the kernel has none.
	HCAs() ([]HCA, error)
	// PortFree says whether a TCP port of an address can be listened on now; the error is the kernel's.
	PortFree(addr netip.Addr, port int) error
	// LocalPorts is the range that the kernel takes ports from for who asks for any.
	LocalPorts() (first, last int, err error)
	// Sockets are the TCP sockets that have a local port.
	Sockets() ([]Socket, error)
}

// Interface is one network interface.
type Interface struct {
	Name string
	// Up: the interface is up and has a link (IFF_RUNNING), as the library asks for.
	Up       bool
	Loopback bool
	// PCIAddress of its device, 0000:0c:00.0; empty for software ones (VLAN, bond, veth) and where it is not known.
	PCIAddress string
	// Master is the bond or bridge that it is a part of; empty for none.
	Master string
	// Parent is the interface that a VLAN or macvlan rides on; empty for none.
	Parent string
	// Addresses with their networks.
	Addresses []netip.Prefix
}

// HCA is one RDMA device.
type HCA struct {
	Name string
	// PCIAddress and Interface of its device; empty where not known.
	PCIAddress string
	Interface  string
	// DeviceFile is the verbs device, /dev/infiniband/uverbs0; empty where not known. Sysfs shows devices that a pod
	// may not open, so that Usable says whether the file is there.
	DeviceFile string
	Usable     bool
	Ports      []HCAPort
}

// HCAPort is one port of an RDMA device.
type HCAPort struct {
	Number int
	// State: discover.PortActive and its like. LinkLayer: discover.LinkInfiniBand, LinkEthernet (RoCE) or LinkUnknown.
	State, LinkLayer string
	// GIDTableSize is the number of entries of the GID table, GIDs those that are not zero.
	GIDTableSize int
	GIDs         []GID
}

// GID is one entry of a port's GID table.
type GID struct {
	Index   int
	Address netip.Addr
	// Type is the kernel's word: "IB/RoCE v1" or "RoCE v2"; empty where not known.
	Type string
}

// Socket is the local side of a TCP socket.
type Socket struct {
	Address netip.Addr
	Port    int
	State   SocketState
}

// SocketState is what a socket does, as far as it matters for its port.
type SocketState string

// The socket states.
const (
	Listening SocketState = "listening"
	Connected SocketState = "connected"
	Closing   SocketState = "closing"
)

// NodeHost reads the machine or pod that the process runs in. Root stands for the root of the kernel's /sys and /dev
// where the hardware is simulated; interfaces and ports are always the process's own.
type NodeHost struct{ Root string }

// Interfaces implements Host.
func (h NodeHost) Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	root, err := h.openRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	out := make([]Interface, 0, len(all))
	for _, i := range all {
		x := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0,
			Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if p, ok := prefixOf(a); ok {
				x.Addresses = append(x.Addresses, p)
			}
		}
		readInterface(root, &x)
		out = append(out, x)
	}
	return out, nil
}

func prefixOf(a net.Addr) (netip.Prefix, bool) {
	ip, ok := a.(*net.IPNet)
	if !ok {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(ip.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	bits, size := ip.Mask.Size() // 0, 0 for a mask with holes
	if size == 0 {
		return netip.Prefix{}, false
	}
	if addr = addr.Unmap(); addr.Is4() && size == 128 { // an IPv4 address in IPv6's form
		bits -= 96
	}
	p := netip.PrefixFrom(addr, bits)
	return p, p.IsValid()
}

// HCAs implements Host.
func (h NodeHost) HCAs() ([]HCA, error) {
	root, err := h.openRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return readHCAs(root, func(name string) bool {
		_, err := os.Stat(filepath.Join("/", h.Root, name))
		return err == nil
	})
}

// PortFree implements Host. It asks for the port alone: the library asks with SO_REUSEPORT (NCCL src/misc/socket.cc
// ncclSocketListen), with which two ranks of one user would get one port and half of the connections each.
func (NodeHost) PortFree(addr netip.Addr, port int) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, uint16(port)))) //nolint:gosec // callers keep to 1-65535
	if err != nil {
		return err
	}
	return l.Close()
}

// LocalPorts implements Host.
func (NodeHost) LocalPorts() (first, last int, err error) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range" // for IPv6, too
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read the kernel's range of ports: %w", err)
	}
	return parseLocalPorts(data)
}

// maxSocketBytes of a list of sockets are read: some 400,000 sockets.
const maxSocketBytes = 64 << 20

// Sockets implements Host.
func (NodeHost) Sockets() ([]Socket, error) {
	var all []Socket
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/self/net/" + name)
		if err != nil {
			if name == "tcp6" && os.IsNotExist(err) { // a kernel without IPv6
				continue
			}
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
		sockets, err := parseSockets(io.LimitReader(f, maxSocketBytes))
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: /proc/self/net/%s: %w", name, err)
		}
		all = append(all, sockets...)
	}
	return all, nil
}

type closingFS interface {
	discover.FS
	Close() error
}

func (h NodeHost) openRoot() (closingFS, error) {
	root, err := discover.OpenRoot("/" + strings.TrimPrefix(h.Root, "/"))
	if err != nil {
		return nil, fmt.Errorf("open the root of /sys: %w", err)
	}
	return root, nil
}

package network

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
)

const (
	netDir   = "sys/class/net"
	rdmaDir  = "sys/class/infiniband"
	verbsDir = "sys/class/infiniband_verbs"
	// maxHCAs, maxPorts and maxGIDs bound what is read where a host has made many virtual functions.
	maxHCAs  = 128
	maxPorts = 16
	maxGIDs  = 1024
)

// readInterface adds what sysfs tells of an interface. A file that is not there leaves the field empty: most interfaces
// have no device, and a simulated tree may not have the pod's own.
func readInterface(fs discover.FS, i *Interface) {
	dir := netDir + "/" + i.Name
	i.PCIAddress = pciOf(fs, dir)
	if target, err := fs.ReadLink(dir + "/master"); err == nil {
		i.Master = path.Base(target)
	}
	// lower_NAME is a link to what an interface is stacked on (net/core/dev.c, netdev_adjacent_sysfs_add); a bond or
	// bridge has one for each of its parts and is no sub-interface of them.
	names, err := fs.ReadDir(dir)
	if err != nil {
		return
	}
	if slices.Contains(names, "bonding") || slices.Contains(names, "bridge") {
		return
	}
	var lower []string
	for _, name := range names {
		if parent, ok := strings.CutPrefix(name, "lower_"); ok {
			lower = append(lower, parent)
		}
	}
	if len(lower) == 1 {
		i.Parent = lower[0]
	}
}

// pciOf is the PCI address of a class device: from its device's uevent, else from where its device's directory is (a
// sub-function is on the auxiliary bus, below its PCI device).
func pciOf(fs discover.FS, dir string) string {
	if data, err := fs.ReadFile(dir + "/device/uevent"); err == nil {
		for line := range strings.Lines(string(data)) {
			if slot, ok := strings.CutPrefix(strings.TrimSpace(line), "PCI_SLOT_NAME="); ok && isPCIAddress(slot) {
				return slot
			}
		}
	}
	for _, link := range []string{dir, dir + "/device"} {
		target, err := fs.ReadLink(link)
		if err != nil {
			continue
		}
		parts := strings.Split(target, "/")
		for i := len(parts) - 1; i >= 0; i-- {
			if isPCIAddress(parts[i]) {
				return parts[i]
			}
		}
	}
	return ""
}

// pciAddress is domain:bus:device.function in lower-case hexadecimal, as the kernel writes it; the domain has four
// digits or more.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func isPCIAddress(s string) bool { return pciAddress.MatchString(s) }

// readHCAs lists the RDMA devices, by name. exists says whether a path from the root is there.
func readHCAs(fs discover.FS, exists func(name string) bool) ([]HCA, error) {
	names, err := fs.ReadDir(rdmaDir)
	if err != nil {
		if discover.Classify(err) == discover.ClassMissing { // a kernel without RDMA
			return nil, nil
		}
		return nil, fmt.Errorf("list RDMA devices: /%s: %w", rdmaDir, err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") })
	sort.Strings(names)
	if len(names) > maxHCAs {
		return nil, fmt.Errorf("list RDMA devices: /%s has %d, more than %d", rdmaDir, len(names), maxHCAs)
	}
	files := verbsFiles(fs)
	out := make([]HCA, 0, len(names))
	for _, name := range names {
		dir := rdmaDir + "/" + name
		d := HCA{Name: name, PCIAddress: pciOf(fs, dir), Interface: interfaceOf(fs, dir), DeviceFile: files[name]}
		d.Usable = d.DeviceFile == "" || exists(d.DeviceFile)
		if d.Ports, err = readPorts(fs, dir); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// verbsFiles are the device files that user space opens, by RDMA device (drivers/infiniband/core/uverbs_main.c). Empty
// where the kernel does not show them.
func verbsFiles(fs discover.FS) map[string]string {
	files := map[string]string{}
	names, err := fs.ReadDir(verbsDir)
	if err != nil {
		return files
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "uverbs") {
			continue // abi_version
		}
		if data, err := fs.ReadFile(verbsDir + "/" + name + "/ibdev"); err == nil {
			files[strings.TrimSpace(string(data))] = "/dev/infiniband/" + name
		}
	}
	return files
}

// interfaceOf is the network interface of an RDMA device, where it has exactly one.
func interfaceOf(fs discover.FS, dir string) string {
	names, err := fs.ReadDir(dir + "/device/net")
	if err != nil {
		return ""
	}
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") })
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

func readPorts(fs discover.FS, dir string) ([]HCAPort, error) {
	names, err := fs.ReadDir(dir + "/ports")
	if err != nil {
		if discover.Classify(err) == discover.ClassMissing {
			return nil, nil
		}
		return nil, fmt.Errorf("list ports: /%s/ports: %w", dir, err)
	}
	var ports []HCAPort
	for _, number := range numbers(names) {
		if len(ports) == maxPorts {
			break
		}
		at := fmt.Sprintf("%s/ports/%d", dir, number)
		p := HCAPort{Number: number, State: discover.PortUnknown, LinkLayer: discover.LinkUnknown}
		if data, err := fs.ReadFile(at + "/state"); err == nil {
			p.State = parsePortState(data)
		}
		if data, err := fs.ReadFile(at + "/link_layer"); err == nil {
			p.LinkLayer = parseLinkLayer(data)
		}
		readGIDs(fs, at, &p)
		ports = append(ports, p)
	}
	return ports, nil
}

// readGIDs reads the entries that are not zero. An entry without an interface answers EINVAL for its type
// (drivers/infiniband/core/sysfs.c, show_port_gid_attr_gid_type).
func readGIDs(fs discover.FS, port string, p *HCAPort) {
	names, err := fs.ReadDir(port + "/gids")
	if err != nil {
		return
	}
	indexes := numbers(names)
	p.GIDTableSize = len(indexes)
	for _, index := range indexes[:min(len(indexes), maxGIDs)] {
		data, err := fs.ReadFile(fmt.Sprintf("%s/gids/%d", port, index))
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(strings.TrimSpace(string(data)))
		if err != nil || zeroGID(addr) {
			continue
		}
		g := GID{Index: index, Address: addr.Unmap()}
		if data, err := fs.ReadFile(fmt.Sprintf("%s/gid_attrs/types/%d", port, index)); err == nil {
			g.Type = strings.TrimSpace(string(data))
		}
		p.GIDs = append(p.GIDs, g)
	}
}

// zeroGID: all zero, or a link-local prefix without an identifier, as an unused entry reads (the library's validGid,
// NCCL src/transport/net_ib.cc).
func zeroGID(a netip.Addr) bool {
	b := a.As16()
	zero := func(part []byte) bool { return !slices.ContainsFunc(part, func(c byte) bool { return c != 0 }) }
	return zero(b[:]) || b[0] == 0xfe && b[1] == 0x80 && zero(b[2:])
}

// parsePortState reads ports/N/state by its number (enum ib_port_state, include/rdma/ib_verbs.h): "4: ACTIVE".
func parsePortState(data []byte) string {
	number, _, _ := strings.Cut(strings.TrimSpace(string(data)), ":")
	switch number {
	case "1":
		return discover.PortDown
	case "2":
		return discover.PortInit
	case "3":
		return discover.PortArmed
	case "4":
		return discover.PortActive
	}
	return discover.PortUnknown
}

func parseLinkLayer(data []byte) string {
	switch strings.TrimSpace(string(data)) {
	case discover.LinkInfiniBand:
		return discover.LinkInfiniBand
	case discover.LinkEthernet:
		return discover.LinkEthernet
	}
	return discover.LinkUnknown
}

// numbers are the names that are numbers, ascending.
func numbers(names []string) []int {
	var out []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	sort.Ints(out)
	return out
}

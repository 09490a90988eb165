package discover

import (
	"bytes"
	"fmt"
	"path"
	"sort"
	"strings"
)

const (
	rdmaDir = "sys/class/infiniband"
	netDir  = "sys/class/net"
	// maxNICs bounds what is read where a host has made many virtual functions.
	maxNICs = 128
)

// The link layers and the states of a NIC's port.
const (
	LinkInfiniBand = "InfiniBand"
	LinkEthernet   = "Ethernet" // RoCE
	LinkUnknown    = "Unknown"

	PortActive  = "Active"
	PortInit    = "Init"
	PortArmed   = "Armed"
	PortDown    = "Down"
	PortUnknown = "Unknown"
)

// readNICs reads the RDMA devices, in the natural order of their names; nil where they could not be listed. The errors
// are of what is there and could not be read. A kernel without RDMA has no sys/class/infiniband, and then there is no
// device; a tree that has no network interfaces either is a part of a sysfs that does not tell.
func readNICs(r *reader) ([]NIC, []*ReadError) {
	names, rerr := r.dir(rdmaDir)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			return nil, []*ReadError{rerr}
		}
		if _, rerr = r.dir(netDir); rerr == nil {
			return []NIC{}, nil
		}
		if rerr.Class != ClassMissing {
			return nil, []*ReadError{rerr}
		}
		return nil, nil
	}
	sort.Slice(names, func(i, j int) bool { return naturalLess(names[i], names[j]) })
	var unread []*ReadError
	if len(names) > maxNICs {
		unread = append(unread, &ReadError{Path: rdmaDir, Class: ClassFailed,
			Err: fmt.Errorf("%d RDMA devices are more than %d; the rest was not read", len(names), maxNICs)})
		names = names[:maxNICs]
	}
	nics := make([]NIC, 0, len(names))
	bySlot := &netIndex{}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		nics = append(nics, readNIC(r, name, bySlot, &unread))
	}
	return nics, unread
}

func readNIC(r *reader, name string, bySlot *netIndex, unread *[]*ReadError) NIC {
	dir := rdmaDir + "/" + name
	n := NIC{Name: name, LinkLayer: LinkUnknown, State: PortUnknown}
	before := len(*unread)
	// rxe alone has a file of this name, and some kernels show the device of the NIC below as its own (rxe_verbs.c,
	// parent_show).
	_, rerr := r.file(dir + "/parent")
	n.virtual = rerr == nil
	if slot := field(r, dir+"/device/uevent", parseSlot, unread); slot != nil && !n.virtual {
		n.PCIAddress, n.VendorID, n.DeviceID = slot.address, slot.vendor, slot.device
	}
	if n.PCIAddress == "" && !n.virtual {
		// A sub-function's device is on the auxiliary bus, below its PCI device; a software device (rxe, siw) is below
		// none.
		n.PCIAddress, n.virtual = slotOfLink(r, dir, unread)
		n.virtual = n.virtual || (n.PCIAddress == "" && len(*unread) == before)
	}
	if !n.virtual {
		if n.VendorID == "" {
			n.VendorID, n.DeviceID = readID(r, dir+"/device/vendor", unread), readID(r, dir+"/device/device", unread)
		}
		n.Product = nicProducts[n.VendorID+":"+n.DeviceID]
		if numa := field(r, dir+"/device/numa_node", parseNUMANode, unread); numa != nil {
			n.NUMANode = *numa
		}
	}
	if n.PCIAddress != "" {
		n.PCIPath = readPCIPath(r, n.PCIAddress, unread)
		if n.Product == "" || strings.HasSuffix(n.Product, " VF") {
			// The host's view of a virtual function links to the physical one (drivers/pci/iov.c); in a guest there is
			// no link.
			_, rerr := r.link(pciDir + "/" + n.PCIAddress + "/physfn")
			n.virtualFunction = rerr == nil
		}
	}
	n.readPort(r, dir, unread)
	n.Interface = n.findInterface(r, dir, bySlot, unread)
	return n
}

func readID(r *reader, path string, unread *[]*ReadError) string {
	if v := field(r, path, parseHexFile, unread); v != nil {
		return fmt.Sprintf("0x%04x", *v)
	}
	return ""
}

// slotOfLink takes the PCI address from where the device's directory really is; software says that it is below
// devices/virtual.
func slotOfLink(r *reader, dir string, unread *[]*ReadError) (slot string, software bool) {
	target, rerr := r.link(dir)
	if rerr != nil {
		if rerr.Class != ClassMissing && rerr.Class != ClassUnsupported { // EINVAL: a plain directory in a copied tree
			*unread = append(*unread, rerr)
		}
		return "", false
	}
	parts := strings.Split(target, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if isPCIAddress(parts[i]) {
			return parts[i], false
		}
	}
	return "", strings.Contains(target, "devices/virtual/")
}

// readPort reads the device's first port.
func (n *NIC) readPort(r *reader, dir string, unread *[]*ReadError) {
	names, rerr := r.dir(dir + "/ports")
	if rerr != nil {
		if rerr.Class != ClassMissing {
			*unread = append(*unread, rerr)
		}
		return
	}
	ports := numbers(names)
	if len(ports) == 0 {
		return
	}
	port := fmt.Sprintf("%s/ports/%d/", dir, ports[0])
	if s := field(r, port+"state", parsePortState, unread); s != nil {
		n.State = *s
	}
	if n.State != PortActive { // of an active port it tells no more
		if s := field(r, port+"phys_state", parsePhysState, unread); s != nil {
			n.PhysState = *s
		}
	}
	if s := field(r, port+"link_layer", parseLinkLayer, unread); s != nil {
		n.LinkLayer = *s
	}
	if rate := field(r, port+"rate", parsePortRate, unread); rate != nil && *rate > 0 {
		n.RateMbps = rate
	}
}

// findInterface gives the device's network interface; of several (ports, or representors of virtual functions) the one
// that the first port's GID table names, else the first by name.
func (n *NIC) findInterface(r *reader, dir string, bySlot *netIndex, unread *[]*ReadError) string {
	names, rerr := r.dir(dir + "/device/net")
	if rerr != nil {
		if rerr.Class != ClassMissing {
			*unread = append(*unread, rerr)
			return ""
		}
		if n.PCIAddress == "" {
			return ""
		}
		names = bySlot.of(r, n.PCIAddress, unread)
	}
	sort.Slice(names, func(i, j int) bool { return naturalLess(names[i], names[j]) })
	names = dropHidden(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	// An entry without a device answers EINVAL (drivers/infiniband/core/sysfs.c, print_ndev).
	if data, rerr := r.file(dir + "/ports/1/gid_attrs/ndevs/0"); rerr == nil {
		for _, name := range names {
			if name == string(bytes.TrimSpace(data)) {
				return name
			}
		}
	}
	return names[0]
}

func dropHidden(names []string) []string {
	kept := names[:0]
	for _, name := range names {
		if !strings.HasPrefix(name, ".") {
			kept = append(kept, name)
		}
	}
	return kept
}

// netIndex finds network interfaces by PCI address; it is made when first asked, since a host with many pods has many
// interfaces.
type netIndex struct {
	bySlot map[string][]string
}

func (x *netIndex) of(r *reader, slot string, unread *[]*ReadError) []string {
	if x.bySlot == nil {
		x.bySlot = map[string][]string{}
		names, rerr := r.dir(netDir)
		if rerr != nil && rerr.Class != ClassMissing {
			*unread = append(*unread, rerr)
		}
		for _, name := range names {
			if s := field(r, netDir+"/"+name+"/device/uevent", parseSlot, unread); s != nil && s.address != "" {
				x.bySlot[s.address] = append(x.bySlot[s.address], name)
			}
		}
	}
	return append([]string(nil), x.bySlot[slot]...)
}

// readPCIPath gives the directory of a PCI device below sys/devices, by the link of the PCI bus; "" where the tree has
// a plain directory in its place, or the link leads elsewhere.
func readPCIPath(r *reader, address string, unread *[]*ReadError) string {
	link := pciDir + "/" + address
	target, rerr := r.link(link)
	if rerr != nil {
		if rerr.Class != ClassMissing && rerr.Class != ClassUnsupported { // EINVAL: no link
			*unread = append(*unread, rerr)
		}
		return ""
	}
	return devicesPath(link, target)
}

// devicesPath resolves the target of a link of the PCI bus: ../../../devices/pci0000:00/0000:00:01.1/0000:05:00.0 or
// the same from the root. "" where that is not a device below sys/devices with the link's own name.
func devicesPath(link, target string) string {
	if len(target) > 1024 {
		return ""
	}
	if !strings.HasPrefix(target, "/") {
		target = path.Join("/", path.Dir(link), target)
	}
	rest, below := strings.CutPrefix(path.Clean(target), "/sys/devices/")
	if !below || path.Base(rest) != path.Base(link) || len(pciTrail(rest)) < 2 {
		return ""
	}
	return rest
}

// pciSlot is what a uevent file tells of a PCI device: its address, and its ids as 0x15b3; "" where it does not.
type pciSlot struct{ address, vendor, device string }

// parseSlot reads PCI_SLOT_NAME and PCI_ID of a uevent file (drivers/pci/pci-driver.c, pci_uevent); the zero value
// where the device is not on the PCI bus.
func parseSlot(data []byte) (pciSlot, error) {
	var s pciSlot
	for _, line := range bytes.Split(data, []byte{'\n'}) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{'='})
		switch string(key) {
		case "PCI_SLOT_NAME":
			if s.address = string(value); !isPCIAddress(s.address) {
				return pciSlot{}, malformedf("PCI_SLOT_NAME %.32q is not a PCI address", value)
			}
		case "PCI_ID":
			vendor, device, _ := strings.Cut(strings.ToLower(string(value)), ":")
			if len(vendor) != 4 || len(device) != 4 || !isHex(vendor) || !isHex(device) {
				return pciSlot{}, malformedf("PCI_ID %.32q is not vendor:device", value)
			}
			s.vendor, s.device = "0x"+vendor, "0x"+device
		}
	}
	if s.address == "" {
		return pciSlot{}, nil
	}
	return s, nil
}

// isPCIAddress: domain:bus:device.function in lower-case hexadecimal; the domain has four digits or more (VMD,
// Hyper-V).
func isPCIAddress(text string) bool {
	domain, rest, found := strings.Cut(text, ":")
	return found && len(domain) >= 4 && len(domain) <= 8 && isHex(domain) && len(rest) == 7 &&
		isHex(rest[:2]) && rest[2] == ':' && isHex(rest[3:5]) && rest[5] == '.' && rest[6] >= '0' && rest[6] <= '7'
}

func isHex(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return text != ""
}

// parseNumbered reads "4: ACTIVE", as the port's state files have it.
func parseNumbered(data []byte) (uint64, string, error) {
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return 0, "", errEmpty
	}
	number, word, found := bytes.Cut(text, []byte(": "))
	if !found || len(word) > 64 {
		return 0, "", malformedf("%.32q is not \"number: word\"", text)
	}
	n, err := parseUint(number)
	if err != nil {
		return 0, "", malformedf("%.32q is not \"number: word\"", text)
	}
	return n, strings.TrimSpace(printable(word, 32)), nil
}

// parsePortState reads ports/N/state by its number (enum ib_port_state, include/rdma/ib_verbs.h). Numbers that are none
// of the four, such as 5 (ACTIVE_DEFER), are Unknown.
func parsePortState(data []byte) (string, error) {
	n, _, err := parseNumbered(data)
	if err != nil {
		return "", err
	}
	switch n {
	case 1:
		return PortDown, nil
	case 2:
		return PortInit, nil
	case 3:
		return PortArmed, nil
	case 4:
		return PortActive, nil
	}
	return PortUnknown, nil
}

// parsePhysState reads ports/N/phys_state: Sleep, Polling, Disabled, PortConfigurationTraining, LinkUp,
// LinkErrorRecovery or Phy Test (drivers/infiniband/core/sysfs.c, phys_state_show); "" where the kernel has no word.
func parsePhysState(data []byte) (string, error) {
	_, word, err := parseNumbered(data)
	if err != nil || word == "<unknown>" {
		return "", err
	}
	return word, nil
}

// parseLinkLayer reads ports/N/link_layer: InfiniBand, Ethernet, or Unknown for any other.
func parseLinkLayer(data []byte) (string, error) {
	switch text := string(bytes.TrimSpace(data)); text {
	case "":
		return "", errEmpty
	case LinkInfiniBand, LinkEthernet:
		return text, nil
	}
	return LinkUnknown, nil
}

// parsePortRate reads "400 Gb/sec (4X NDR)" or "2.5 Gb/sec (1X SDR)" as Mbit/s (drivers/infiniband/core/sysfs.c,
// rate_show).
func parsePortRate(data []byte) (int64, error) { return parseThousandths(data, " Gb/sec") }

// naturalLess orders names with their numbers as numbers: mlx5_2 before mlx5_10.
func naturalLess(a, b string) bool {
	whole, wholeB := a, b
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return a[0] < b[0]
			}
			a, b = a[1:], b[1:]
			continue
		}
		p, q := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(p) != len(q) {
			return len(p) < len(q)
		}
		if p != q {
			return p < q
		}
		a, b = a[len(x):], b[len(y):]
	}
	if a == "" && b == "" {
		return whole < wholeB // 01 and 1
	}
	return a == ""
}

func leadingDigits(text string) string {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	return text[:end]
}

// nicProducts names NICs by vendor and device id. Sources: the PCI tables of the Linux drivers mlx5_core
// (mellanox/mlx5/core/main.c), bnxt_en (broadcom/bnxt/bnxt.c), ionic (pensando/ionic/ionic_bus_pci.c) and ice
// (intel/ice/ice_devids.h), all below drivers/net/ethernet. Thor 2 and Pollara are the product names that Broadcom and
// AMD use for these chips; AMD's other Pensando cards have the same id.
var nicProducts = map[string]string{
	"0x15b3:0x1013": "ConnectX-4", "0x15b3:0x1014": "ConnectX-4 VF",
	"0x15b3:0x1015": "ConnectX-4 Lx", "0x15b3:0x1016": "ConnectX-4 Lx VF",
	"0x15b3:0x1017": "ConnectX-5", "0x15b3:0x1018": "ConnectX-5 VF",
	"0x15b3:0x1019": "ConnectX-5 Ex", "0x15b3:0x101a": "ConnectX-5 Ex VF",
	"0x15b3:0x101b": "ConnectX-6", "0x15b3:0x101c": "ConnectX-6 VF",
	"0x15b3:0x101d": "ConnectX-6 Dx", "0x15b3:0x101e": "ConnectX VF", "0x15b3:0x101f": "ConnectX-6 Lx",
	"0x15b3:0x1021": "ConnectX-7", "0x15b3:0x1023": "ConnectX-8", "0x15b3:0x1025": "ConnectX-9",
	"0x15b3:0xa2d2": "BlueField", "0x15b3:0xa2d3": "BlueField VF", "0x15b3:0xa2d6": "BlueField-2",
	"0x15b3:0xa2dc": "BlueField-3", "0x15b3:0xa2df": "BlueField-4",
	"0x14e4:0x1750": "BCM57508 (Thor)", "0x14e4:0x1751": "BCM57504 (Thor)", "0x14e4:0x1752": "BCM57502 (Thor)",
	"0x14e4:0x1760": "BCM57608 (Thor 2)", "0x14e4:0x1761": "BCM57604 (Thor 2)", "0x14e4:0x1762": "BCM57602 (Thor 2)",
	"0x14e4:0x1763": "BCM57601 (Thor 2)",
	"0x1dd8:0x1002": "Pensando/Pollara", "0x1dd8:0x1003": "Pensando VF",
	"0x8086:0x1591": "E810-C", "0x8086:0x1592": "E810-C", "0x8086:0x1593": "E810-C",
	"0x8086:0x1599": "E810-XXV", "0x8086:0x159a": "E810-XXV", "0x8086:0x159b": "E810-XXV",
}

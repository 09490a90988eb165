package discover

import (
	"bytes"
	"path"
	"strconv"
	"strings"
)

// maxHiveNodes is the most GPUs that a hive's firmware knows (amdgpu_psp.h, AMDGPU_XGMI_MAX_CONNECTED_NODES).
const maxHiveNodes = 64

// hopsMask takes the hops out of an entry of xgmi_num_hops; bits 7:6 are the kind of link (amdgpu_xgmi.c,
// amdgpu_xgmi_get_hops_count).
const hopsMask = 7

// parseHiveList reads xgmi_num_hops and xgmi_num_links: two hexadecimal digits for each GPU of the hive, itself
// included, in the hive's own order (amdgpu_xgmi.c, amdgpu_xgmi_show_num_hops).
func parseHiveList(data []byte) ([]uint8, error) {
	fields := bytes.Fields(data)
	switch {
	case len(fields) == 0:
		return nil, errEmpty
	case len(fields) > maxHiveNodes:
		return nil, malformedf("%d entries are more than a hive's %d GPUs", len(fields), maxHiveNodes)
	}
	list := make([]uint8, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseUint(string(f), 16, 8)
		if err != nil {
			return nil, malformedf("%.64q is not a list of two hexadecimal digits for each GPU", data)
		}
		list[i] = uint8(n)
	}
	return list, nil
}

// readHiveOrder gives the PCI addresses of a hive's GPUs in the driver's order: xgmi_hive_info has a link node1 to
// nodeN for each, made in the order in which they joined (amdgpu_xgmi.c, amdgpu_xgmi_sysfs_add_dev_info). Nil where
// there are no such links, as in a copied tree, or where they are not one for each number: after a GPU was unbound they
// can be wrong.
func readHiveOrder(r *reader, address string, unread *[]*ReadError) []string {
	dir := pciDir + "/" + address + "/xgmi_hive_info"
	names, rerr := r.dir(dir)
	if rerr != nil {
		if rerr.Class != ClassMissing {
			*unread = append(*unread, rerr)
		}
		return nil
	}
	nodes := 0
	for _, name := range names {
		if isNodeName(name) {
			nodes++
		}
	}
	if nodes == 0 || nodes > maxHiveNodes {
		return nil
	}
	order := make([]string, 0, nodes)
	for i := 1; i <= nodes; i++ {
		target, rerr := r.link(dir + "/node" + strconv.Itoa(i))
		if rerr != nil {
			if rerr.Class != ClassMissing && rerr.Class != ClassUnsupported { // EINVAL: no link
				*unread = append(*unread, rerr)
			}
			return nil
		}
		member := path.Base(target)
		if !isPCIAddress(member) {
			return nil
		}
		order = append(order, member)
	}
	return order
}

func isNodeName(name string) bool {
	digits, found := strings.CutPrefix(name, "node")
	if !found {
		return false
	}
	_, err := parseUint([]byte(digits))
	return err == nil
}

// hiveOrders list the PCI addresses of each hive's GPUs in the driver's order, by hive; one whose order is not known is
// absent.
type hiveOrders map[uint64][]string

// fitting keeps the orders that agree with what is known otherwise: each GPU of the hive is in it once, its lists
// have an entry for each member, and its own entry is 0. The lists come from the firmware, the order from the driver;
// where they do not fit, no entry can be given to a pair.
func (o hiveOrders) fitting(gpus []GPU) hiveOrders {
	fit := hiveOrders{}
	for id, members := range hives(gpus) {
		order := o[id]
		place := map[string]int{}
		for i, address := range order {
			place[address] = i
		}
		good := len(order) > 0 && len(place) == len(order)
		for _, i := range members {
			g := &gpus[i]
			at, listed := place[g.PCIAddress]
			good = good && listed
			for _, list := range [][]uint8{g.hops, g.links} {
				good = good && (list == nil || (len(list) == len(order) && listed && list[at]&hopsMask == 0))
			}
		}
		if good {
			fit[id] = order
		}
	}
	return fit
}

// peerView is what a GPU's own PCI directory says of its way to another GPU of the hive; nil is not known.
type peerView struct{ hops, links *uint8 }

// view gives what GPU a says of GPU b.
func (o hiveOrders) view(a, b *GPU) peerView {
	var v peerView
	if a.HiveID == nil {
		return v
	}
	for at, address := range o[*a.HiveID] {
		if address != b.PCIAddress {
			continue
		}
		if a.hops != nil {
			hops := a.hops[at] & hopsMask
			v.hops = &hops
		}
		if a.links != nil {
			v.links = &a.links[at]
		}
	}
	return v
}

// absentMembers are GPUs that the driver's own list of a hive has and KFD does not.
func (o hiveOrders) absentMembers(gpus []GPU) []string {
	here := map[string]bool{}
	for i := range gpus {
		here[gpus[i].PCIAddress] = true
	}
	var absent []string
	for i := range gpus { // by GPU, so that the order is always the same
		id := gpus[i].HiveID
		if id == nil {
			continue
		}
		for _, address := range o[*id] {
			if !here[address] {
				here[address] = true
				absent = append(absent, address)
			}
		}
	}
	return absent
}

package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

const (
	// maxInterfaceName is IFNAMSIZ without its zero: longer names are alternative ones, which the library cannot match.
	maxInterfaceName = 15
	// maxCandidates that a message lists.
	maxCandidates = 8
)

// Request is what a group asks of one node's network.
type Request struct {
	// Node that the messages name.
	Node string
	// Spec as the CommGroup has it.
	Spec api.NetworkSpec
	// PodIP is the pod's own address; empty outside of Kubernetes.
	PodIP string
	// Ranks on this node.
	Ranks int
	// Own are the variables that a user set for the ranks. A typed field of Spec wins over a variable; where the field
	// is absent the variable holds.
	Own []api.EnvVar
}

// own is a user's own variable.
func (r *Request) own(name string) (string, bool) {
	for _, e := range r.Own {
		if e.Name == name && e.Value != "" {
			return e.Value, true
		}
	}
	return "", false
}

// Resolve finds what the request means on this node and checks that it can be used now. The status lacks the clock,
// which is the caller's. The first thing that is wrong is the Problem: it names the node, what was asked for, what is
// there, and the next step.
func Resolve(h Host, r Request) (api.NetworkStatus, *Problem) {
	interfaces, err := h.Interfaces()
	if err != nil {
		return api.NetworkStatus{}, r.problem(api.ReasonSysfsUnreadable,
			"its network interfaces could not be listed: %v. Look at the pod's log and its security profile.", err)
	}
	chosen, asked, problem := r.choose(interfaces)
	if problem != nil {
		return api.NetworkStatus{}, problem
	}
	st := api.NetworkStatus{Interface: chosen.Name}
	addresses, problem := r.addresses(chosen, asked)
	if problem != nil {
		return api.NetworkStatus{}, problem
	}
	for _, a := range addresses {
		st.Addresses = append(st.Addresses, a.String())
	}
	if st.HCAs, problem = r.hcas(h); problem != nil {
		return api.NetworkStatus{}, problem
	}
	if st.Message, problem = r.ports(h, interfaces, addresses); problem != nil {
		return api.NetworkStatus{}, problem
	}
	if r.Spec.Mode == api.NetworkMultus && r.Spec.Interface == nil && carries(chosen, r.PodIP) {
		st.Message = fmt.Sprintf("mode Multus without network.interface: the rendezvous and TCP go over the pod "+
			"network's %s, not over the networks of multusNetworks; name one with network.interface to change that.",
			chosen.Name)
	}
	return st, nil
}

// carries says whether the interface has the pod's address.
func carries(i *Interface, podIP string) bool {
	ip, err := netip.ParseAddr(podIP)
	return err == nil && slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr() == ip.Unmap() })
}

// choose gives the interface, and how it was asked for.
func (r *Request) choose(interfaces []Interface) (chosen *Interface, asked string, _ *Problem) {
	var matches []*Interface
	selector := r.Spec.Interface
	switch {
	case selector == nil:
		return r.chooseDefault(interfaces)
	case selector.CIDR != "":
		asked = "network.interface.cidr " + selector.CIDR
		cidr, err := netip.ParsePrefix(selector.CIDR)
		if err != nil {
			return nil, asked, r.problem(api.ReasonInterfaceNotFound,
				"%s is not a CIDR: write it like 10.4.0.0/16 or fd00:4::/64.", asked)
		}
		matches = matching(interfaces, func(i *Interface) bool {
			return slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool {
				return cidr.Masked().Contains(a.Addr())
			})
		})
	case selector.Name != "":
		asked = "network.interface.name " + selector.Name
		if len(selector.Name) > maxInterfaceName {
			return nil, asked,
				r.problem(api.ReasonInterfaceNotFound, "%s has %d characters; the kernel's names have at most %d, "+
					"and the library does not know alternative names. Take the name that `ip -br link` shows first.",
					asked, len(selector.Name), maxInterfaceName)
		}
		matches = matching(interfaces, func(i *Interface) bool { return i.Name == selector.Name })
	default:
		asked = "network.interface.pciAddress " + selector.PCIAddress
		matches = matching(interfaces, func(i *Interface) bool {
			return i.PCIAddress != "" && i.PCIAddress == strings.ToLower(selector.PCIAddress)
		})
	}
	if len(matches) == 0 {
		return nil, asked, r.problem(api.ReasonInterfaceNotFound, "%s matches no interface; there are %s. %s",
			asked, describe(interfaces), r.whereToLook())
	}
	up := slices.DeleteFunc(slices.Clone(matches), func(i *Interface) bool { return !i.Up })
	if len(up) == 0 {
		return nil, asked, r.problem(api.ReasonInterfaceNotUsable, "%s is %s, which is down or has no link; "+
			"the library passes over it. Look at its cable and at `ip link show %s`.",
			asked, matches[0].Name, matches[0].Name)
	}
	// Of a NIC with several interfaces (representors of virtual functions) those without an address are not meant.
	if addressed := slices.DeleteFunc(slices.Clone(up), func(i *Interface) bool {
		return len(i.Addresses) == 0
	}); len(addressed) > 0 {
		up = addressed
	}
	if len(up) > 1 {
		return nil, asked, r.problem(api.ReasonInterfaceAmbiguous,
			"%s matches %d interfaces: %s; expected one. Narrow the CIDR, or name one with network.interface.name.",
			asked, len(up), describePointers(up))
	}
	return r.usable(interfaces, up[0], asked)
}

// chooseDefault: the interface that a user's own variable means to the library, else the one that carries the pod's
// address, else, outside of Kubernetes, the library's own choice.
func (r *Request) chooseDefault(interfaces []Interface) (*Interface, string, *Problem) {
	names, own := r.own(envSocketInterface)
	if !own && r.PodIP != "" {
		asked := "the pod's address " + r.PodIP
		ip, err := netip.ParseAddr(r.PodIP)
		if err != nil {
			return nil, asked, r.problem(api.ReasonInterfaceNotFound,
				"POD_IP is %q, which is no address. It is set from status.podIP: look at the pod.", r.PodIP)
		}
		ip = ip.Unmap()
		found := matching(interfaces, func(i *Interface) bool {
			return slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr() == ip })
		})
		if len(found) == 0 && ip.IsLoopback() { // all of 127.0.0.0/8 is the loopback interface's
			found = matching(interfaces, func(i *Interface) bool { return i.Loopback })
		}
		if len(found) == 0 {
			return nil, asked, r.problem(api.ReasonInterfaceNotFound,
				"no interface carries %s; there are %s. Name one with network.interface.", asked, describe(interfaces))
		}
		return r.usable(interfaces, found[0], asked)
	}
	asked := "the library's own choice"
	if own {
		asked = envSocketInterface + "=" + names
	}
	need := preflight.Need{}
	for _, e := range r.Own {
		need.Environ = append(need.Environ, e.Name+"="+e.Value)
	}
	if f := familyVariable(r.Spec.AddressFamily); f != "" {
		need.Environ = append([]string{envSocketFamily + "=" + f}, need.Environ...)
	}
	b, ok := preflight.Bootstrap(forBootstrap(interfaces), need)
	if !ok {
		return nil, asked, r.problem(api.ReasonInterfaceNotFound,
			"%s is no interface that runs; there are %s. Set network.interface.", asked, describe(interfaces))
	}
	i := slices.IndexFunc(interfaces, func(i Interface) bool { return i.Name == b.Interface })
	return r.usable(interfaces, &interfaces[i], asked)
}

// usable checks that an interface can be told to the library and reached by other nodes.
func (r *Request) usable(interfaces []Interface, i *Interface, asked string) (*Interface, string, *Problem) {
	podIP, _ := netip.ParseAddr(r.PodIP)
	switch {
	case !i.Up:
		return nil, asked, r.problem(api.ReasonInterfaceNotUsable,
			"%s is on %s, which is down or has no link; the library passes over it. Look at `ip link show %s`.",
			asked, i.Name, i.Name)
	case i.Loopback && !podIP.IsLoopback(): // simulated nodes share one machine's loopback
		return nil, asked, r.problem(api.ReasonInterfaceNotUsable,
			"%s is the loopback interface %s, which other nodes do not reach. Set network.interface to one of: %s.",
			asked, i.Name, describePointers(matching(interfaces, func(o *Interface) bool {
				return o.Up && !o.Loopback && len(o.Addresses) > 0
			})))
	case strings.ContainsAny(i.Name, ",:^=") || len(i.Name) > maxInterfaceName:
		return nil, asked, r.problem(api.ReasonInterfaceNotUsable, "%s is %q, a name that the library cannot read "+
			"from %s, where , : ^ and = have a meaning. Rename the interface.", asked, i.Name, envSocketInterface)
	case i.Master != "" && len(i.Addresses) == 0:
		return nil, asked, r.problem(api.ReasonInterfaceNotUsable,
			"%s is %s, a part of %s, and has no address of its own. Set network.interface.name to %s.",
			asked, i.Name, i.Master, i.Master)
	case len(i.Addresses) == 0:
		return nil, asked, r.problem(api.ReasonNoAddressOfFamily,
			"%s is %s, which has no address. Give it one, or choose another with network.interface.", asked, i.Name)
	}
	return i, asked, nil
}

// whereToLook: a pod has only its own interfaces, which is what most often surprises.
func (r *Request) whereToLook() string {
	if cmp.Or(r.Spec.Mode, api.NetworkPod) == api.NetworkPod {
		return "With network.mode Pod the pod sees its own interfaces only, not the node's NICs: use mode Multus or " +
			"Host for those, or correct the selector."
	}
	return "Correct the selector, or give the interface an address (`ip -br address` on the node)."
}

// family that was asked for, by the field or else by a user's own variable; Auto or empty for any.
func (r *Request) family() api.AddressFamily {
	if f := r.Spec.AddressFamily; f != "" && f != api.AddressFamilyAuto {
		return f
	}
	switch v, _ := r.own(envSocketFamily); v {
	case "AF_INET":
		return api.AddressFamilyIPv4
	case "AF_INET6":
		return api.AddressFamilyIPv6
	}
	return r.Spec.AddressFamily
}

// addresses are those that ranks will listen on: of each family the first, which is the one that the library takes
// (NCCL src/misc/socket.cc findInterfaces).
func (r *Request) addresses(i *Interface, asked string) ([]netip.Addr, *Problem) {
	var v4, v6, linkLocal netip.Addr
	for _, a := range i.Addresses {
		switch addr := a.Addr(); {
		case addr.Is4() && !v4.IsValid():
			v4 = addr
		case addr.Is6() && !v6.IsValid() && !linkLocal.IsValid() && addr.IsLinkLocalUnicast():
			linkLocal = addr
		case addr.Is6() && !v6.IsValid() && !linkLocal.IsValid() && !addr.IsLoopback():
			v6 = addr
		}
	}
	family := r.family()
	if s := r.Spec.Interface; s != nil && s.CIDR != "" {
		cidr := netip.MustParsePrefix(s.CIDR).Masked() // choose has parsed it
		first := v4
		if cidr.Addr().Is6() {
			first = v6
		}
		if !cidr.Contains(first) {
			if first.IsValid() && (family == "" || family == api.AddressFamilyAuto || familyOf(first) == family) {
				return nil, r.problem(api.ReasonInterfaceNotUsable,
					"%s is in the network of a further address of %s, but the library listens on the first, %s. "+
						"Make the other one the first, or choose by a CIDR that holds %s.", asked, i.Name, first, first)
			}
			if !first.IsValid() && cidr.Addr().Is6() && linkLocal.IsValid() {
				return nil, r.linkLocalOnly(asked, i, linkLocal)
			}
		}
		if family == "" || family == api.AddressFamilyAuto { // who names a network means its family
			family = familyOf(cidr.Addr())
		}
	}
	var out []netip.Addr
	if v4.IsValid() && family != api.AddressFamilyIPv6 {
		out = append(out, v4)
	}
	if v6.IsValid() && family != api.AddressFamilyIPv4 {
		out = append(out, v6)
	}
	switch {
	case len(out) > 0:
		return out, nil
	case linkLocal.IsValid() && family != api.AddressFamilyIPv4:
		return nil, r.linkLocalOnly(asked, i, linkLocal)
	}
	return nil, r.problem(api.ReasonNoAddressOfFamily,
		"%s has no %s address, it has %s. Give it one, or set network.addressFamily.",
		i.Name, cmp.Or(string(family), "usable"), addressList(i))
}

func (r *Request) linkLocalOnly(asked string, i *Interface, a netip.Addr) *Problem {
	return r.problem(api.ReasonNoAddressOfFamily, "%s is %s, whose first IPv6 address, the one that the library "+
		"takes, is link-local (%s): it holds on one link and with an interface's name beside it, which the peers do "+
		"not get. Give the interface a global or unique local address, and that first.", asked, i.Name, a)
}

func familyOf(a netip.Addr) api.AddressFamily {
	if a.Is4() {
		return api.AddressFamilyIPv4
	}
	return api.AddressFamilyIPv6
}

func matching(interfaces []Interface, is func(*Interface) bool) []*Interface {
	var out []*Interface
	for k := range interfaces {
		if is(&interfaces[k]) {
			out = append(out, &interfaces[k])
		}
	}
	return out
}

func forBootstrap(interfaces []Interface) []preflight.Interface {
	out := make([]preflight.Interface, len(interfaces))
	for k, i := range interfaces {
		out[k] = preflight.Interface{Name: i.Name, Running: i.Up, Loopback: i.Loopback}
		for _, a := range i.Addresses {
			out[k].Addresses = append(out[k].Addresses, a.Addr())
		}
	}
	return out
}

// describe lists interfaces for a message: "eth0 (10.0.0.4/24), eth1.100 on eth1 (down)".
func describe(interfaces []Interface) string {
	return describePointers(matching(interfaces, func(*Interface) bool { return true }))
}

func describePointers(interfaces []*Interface) string {
	if len(interfaces) == 0 {
		return "none"
	}
	var parts []string
	for k, i := range interfaces {
		if k == maxCandidates {
			parts = append(parts, fmt.Sprintf("and %d more", len(interfaces)-k))
			break
		}
		var in []string
		if i.PCIAddress != "" {
			in = append(in, i.PCIAddress)
		}
		if list := addressList(i); list != "no address" {
			in = append(in, list)
		}
		if !i.Up {
			in = append(in, "down")
		}
		part := i.Name
		if i.Parent != "" {
			part += " on " + i.Parent
		}
		if len(in) > 0 {
			part += " (" + strings.Join(in, " ") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func addressList(i *Interface) string {
	if len(i.Addresses) == 0 {
		return "no address"
	}
	var list []string
	for k, a := range i.Addresses {
		if k == 4 {
			list = append(list, "...")
			break
		}
		list = append(list, a.String())
	}
	return strings.Join(list, " ")
}

package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/rcclx"
)

const (
	envSocketInterface = "NCCL_SOCKET_IFNAME"
	envSocketFamily    = "NCCL_SOCKET_FAMILY"
)

// The address families.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

// BootstrapAddress is where a rank listens for its peers while they form a communicator.
type BootstrapAddress struct {
	Interface string
	Address   netip.Addr
	Loopback  bool
	// Family is IPv4 or IPv6; a rank reaches only peers of the same.
	Family string
}

func (b BootstrapAddress) String() string {
	return fmt.Sprintf("%s address %s of %s", b.Family, b.Address, b.Interface)
}

// Bootstrap chooses the address as the library does (rccl src/misc/socket.cc ncclFindInterfaces): the interfaces that
// NCCL_SOCKET_IFNAME names, else the first that begins with ib, else any but docker, lo and virbr, else docker, lo and
// virbr. Not running ones and IPv6's loopback address do not count; the kernel lists IPv4 addresses first. What
// NCCL_COMM_ID adds is left out: a run makes its own unique ids. ok is false where there is none: the library fails.
func Bootstrap(interfaces []Interface, need Need) (b BootstrapAddress, ok bool) {
	family := ""
	switch v, _ := need.variable(envSocketFamily); v {
	case "AF_INET":
		family = IPv4
	case "AF_INET6":
		family = IPv6
	}
	if names, set := need.variable(envSocketInterface); set && len(names) > 1 {
		return firstAddress(interfaces, names, family)
	}
	for _, names := range []string{"ib", "^docker,lo,virbr", "docker", "lo", "virbr"} {
		if b, ok := firstAddress(interfaces, names, family); ok {
			return b, true
		}
	}
	return BootstrapAddress{}, false
}

func firstAddress(interfaces []Interface, names, family string) (BootstrapAddress, bool) {
	match := nameMatcher(names)
	for _, f := range []string{IPv4, IPv6} {
		if family != "" && family != f {
			continue
		}
		for _, i := range interfaces {
			if !i.Running || !match(i.Name) {
				continue
			}
			for _, a := range i.Addresses {
				if a.Is4() == (f == IPv4) && (f == IPv4 || !a.IsLoopback()) {
					return BootstrapAddress{Interface: i.Name, Address: a, Loopback: i.Loopback, Family: f}, true
				}
			}
		}
	}
	return BootstrapAddress{}, false
}

// nameMatcher reads a list of interface names: "^" excludes, "=" asks for whole names, else a prefix will do; what
// follows a colon is a port (rccl src/misc/utils.cc parseStringList, matchIfList).
func nameMatcher(list string) func(name string) bool {
	list, not := strings.CutPrefix(list, "^")
	list, exact := strings.CutPrefix(list, "=")
	var refs []string
	for entry := range strings.SplitSeq(list, ",") {
		if ref, _, _ := strings.Cut(entry, ":"); ref != "" {
			refs = append(refs, ref)
		}
	}
	return func(name string) bool {
		matches := len(refs) == 0
		for _, ref := range refs {
			matches = matches || name == ref || !exact && strings.HasPrefix(name, ref)
		}
		return matches != not
	}
}

// checkAddressFamily: the ranks of a node share its network and their variables, so that one look is for all of them.
func checkAddressFamily(f NodeFacts, need Need) Finding {
	if f.InterfacesError != "" {
		return found(AddressFamily, Unknown, -1, "%s", f.InterfacesError)
	}
	names, _ := need.variable(envSocketInterface)
	family, _ := need.variable(envSocketFamily)
	b, ok := Bootstrap(f.Interfaces, need)
	stopped, okStopped := Bootstrap(allRunning(f.Interfaces), need)
	switch {
	case !ok && okStopped && need.Flavor != rcclx.FlavorRCCLXDev:
		return found(AddressFamily, Warning, -1, "only the %s would do for %s=%q and %s=%q, and it is not running: "+
			"older libraries listen there, newer ones find no interface among %s", stopped,
			envSocketInterface, names, envSocketFamily, family, describe(f.Interfaces))
	case !ok:
		return found(AddressFamily, Failed, -1, "no running interface for %s=%q and %s=%q among %s", envSocketInterface,
			names, envSocketFamily, family, describe(f.Interfaces))
	// for communicators over several nodes; those of one node say nothing of it
	case b.Loopback && need.Nodes > 1 && !need.onLoopback():
		return found(AddressFamily, Failed, -1,
			"ranks would listen on the %s, which other nodes do not reach; interfaces are %s", b,
			describe(f.Interfaces))
	case b.Loopback && len(names) < 2:
		return found(AddressFamily, Warning, -1,
			"ranks listen on the %s, the only one: enough on one node, not for several", b)
	case family != "" && family != "AF_INET" && family != "AF_INET6":
		return found(AddressFamily, Warning, -1,
			"ranks listen on the %s, but %s is %q, which the library ignores: it knows AF_INET and AF_INET6", b,
			envSocketFamily, family)
	}
	return met(AddressFamily, "all ranks listen on the %s", b)
}

// allRunning are the interfaces as a library sees them that does not ask whether they run (RCCL 2.21).
func allRunning(interfaces []Interface) []Interface {
	out := slices.Clone(interfaces)
	for i := range out {
		out[i].Running = true
	}
	return out
}

func describe(interfaces []Interface) string {
	if len(interfaces) == 0 {
		return "no interfaces"
	}
	parts := make([]string, 0, len(interfaces))
	for _, i := range interfaces {
		state := ""
		if !i.Running {
			state = " (not running)"
		}
		addrs := make([]string, 0, len(i.Addresses))
		for _, a := range i.Addresses {
			addrs = append(addrs, a.String())
		}
		parts = append(parts, strings.TrimSpace(i.Name+" "+strings.Join(addrs, " "))+state)
		if len(parts) == 8 {
			parts = append(parts, "...")
			break
		}
	}
	return strings.Join(parts, ", ")
}

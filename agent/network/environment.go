package network

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// The library's variables (NCCL src/misc/socket.cc, src/bootstrap.cc, src/transport/net_ib.cc, src/debug.cc).
const (
	envSocketInterface = "NCCL_SOCKET_IFNAME"
	envSocketFamily    = "NCCL_SOCKET_FAMILY"
	envHCA             = "NCCL_IB_HCA"
	envGIDIndex        = "NCCL_IB_GID_INDEX"
	envNoRDMA          = "NCCL_IB_DISABLE"
	envCommID          = "NCCL_COMM_ID"
	envDebug           = "NCCL_DEBUG"
	envDebugSubsystems = "NCCL_DEBUG_SUBSYS"
	envDebugFile       = "NCCL_DEBUG_FILE"
)

// Environment are the variables that every rank of the node gets, sorted by name; they win over the user's own of the
// same names, which Resolve has taken into account. family is the one that all members agreed on; Auto leaves it to the
// library. The names are given in the exact form: without the = the library takes them for prefixes, and eth1 means
// eth1.100 too.
func Environment(r Request, st api.NetworkStatus, family api.AddressFamily) []rcclx.EnvVar {
	var env []rcclx.EnvVar
	if len(r.Spec.HCAs) > 0 {
		env = append(env, rcclx.EnvVar{Name: envHCA, Value: "=" + strings.Join(st.HCAs, ",")})
	}
	if r.Spec.GIDIndex != nil {
		env = append(env, rcclx.EnvVar{Name: envGIDIndex, Value: strconv.Itoa(int(*r.Spec.GIDIndex))})
	}
	if f := familyVariable(family); f != "" {
		env = append(env, rcclx.EnvVar{Name: envSocketFamily, Value: f})
	}
	if st.Interface != "" {
		env = append(env, rcclx.EnvVar{Name: envSocketInterface, Value: "=" + st.Interface})
	}
	slices.SortFunc(env, func(a, b rcclx.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return env
}

// familyVariable is the family in the library's words; empty for any.
func familyVariable(f api.AddressFamily) string {
	switch f {
	case api.AddressFamilyIPv4:
		return "AF_INET"
	case api.AddressFamilyIPv6:
		return "AF_INET6"
	}
	return ""
}

// Address is the one that the node's ranks listen on, of the family that all members agreed on; the first where that is
// Auto.
func Address(st api.NetworkStatus, family api.AddressFamily) (netip.Addr, bool) {
	for _, text := range st.Addresses {
		a, err := netip.ParseAddr(text)
		if err == nil && (family == "" || family == api.AddressFamilyAuto || familyOf(a) == family) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// RendezvousEnvironment pins the port on which a communicator forms. Only the process of its rank 0 gets it, before it
// makes the unique id: the library then puts this address into the id, and the other ranks read it there (NCCL
// src/bootstrap.cc bootstrapGetUniqueId).
func RendezvousEnvironment(addr netip.Addr, port int) rcclx.EnvVar {
	return rcclx.EnvVar{Name: envCommID, Value: netip.AddrPortFrom(addr, uint16(port)).String()} //nolint:gosec // PickPort keeps to 1-65535
}

// LogEnvironment makes the library log what TransportLog reads, on standard output: the devices found, the network
// chosen, and one line for each channel when it is connected. Nothing is logged while collectives run. A user's own
// level and subsystems are kept where they say more; a file of their own would hide the log.
func LogEnvironment(own []api.EnvVar) []rcclx.EnvVar {
	r := Request{Own: own}
	level := "INFO"
	if v, _ := r.own(envDebug); strings.EqualFold(v, "TRACE") || strings.EqualFold(v, "ABORT") {
		level = v
	}
	subsystems := "INIT,NET"
	if v, ok := r.own(envDebugSubsystems); ok && !strings.HasPrefix(v, "^") {
		for name := range strings.SplitSeq(v, ",") {
			if name != "" && !slices.ContainsFunc(strings.Split(subsystems, ","), func(s string) bool {
				return strings.EqualFold(s, name)
			}) {
				subsystems += "," + name
			}
		}
	}
	return []rcclx.EnvVar{{Name: envDebug, Value: level}, {Name: envDebugFile, Value: ""},
		{Name: envDebugSubsystems, Value: subsystems}}
}

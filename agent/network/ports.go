package network

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// portsPerRank is the least number of ports in a range for each rank of the node. A rank listens for its ring, for its
// peers, for its proxy and for RAS, and makes a few connections for each; with TCP each channel to another node needs
// more.
const portsPerRank = 16

// ports checks the range that was asked for. In a pod with a network of its own the pod's net.ipv4.ip_local_port_range
// holds every port that the library takes; in the node's network nothing can but the node's own range, and only the
// rendezvous port can be pinned: then the message says so.
func (r *Request) ports(h Host, interfaces []Interface, addresses []netip.Addr) (message string, _ *Problem) {
	ask := r.Spec.PortRange
	if ask == nil {
		return "", nil
	}
	first, last := int(ask.First), int(ask.Last)
	if need := portsPerRank * max(r.Ranks, 1); last-first+1 < need {
		return "", r.problem(api.ReasonPortRangeNotUsable, "network.portRange %d-%d has %d ports; "+
			"%d ranks need at least %d, and over TCP more. Make it larger, for example %d-%d.",
			first, last, last-first+1, r.Ranks, need, first, min(first+64*portsPerRank-1, 65535))
	}
	lo, hi, err := h.LocalPorts()
	if err != nil {
		return "", r.problem(api.ReasonPortRangeNotUsable, "network.portRange is set, but what range the kernel uses "+
			"could not be read: %v. Leave portRange out, or look at the pod's security profile.", err)
	}
	held := lo >= first && hi <= last
	if r.Spec.Mode != api.NetworkHost {
		if !held {
			return "", r.problem(api.ReasonPortRangeNotUsable, "network.portRange is %d-%d, "+
				"but the kernel takes ports from %d-%d here: the pod's net.ipv4.ip_local_port_range is not in force. "+
				"Look at the pod's securityContext.sysctls, or leave portRange out.", first, last, lo, hi)
		}
		return "", r.checkFree(h, addresses, first, last)
	}
	for _, a := range addresses {
		if other := sameNetworkBefore(interfaces, a); other != "" {
			return "", r.problem(api.ReasonPortRangeNotUsable, "network.portRange in mode Host pins the rendezvous "+
				"by its address %s, and then the library listens on the first interface of that network, "+
				"which is %s. Take one of them out of the network, or leave portRange out.", a, other)
		}
	}
	if problem := r.checkFree(h, addresses, first, last); problem != nil || held {
		return "", problem
	}
	return fmt.Sprintf("Of the ports only the rendezvous is in network.portRange %d-%d: in mode Host the library "+
		"takes all others from the node's own %d-%d (net.ipv4.ip_local_port_range).", first, last, lo, hi), nil
}

// sameNetworkBefore is the interface that the library would take for an address of NCCL_COMM_ID, where it is not the
// one that has the address: the first in the kernel's order, IPv4 first, whose network holds it (NCCL
// src/misc/socket.cc ncclFindInterfaceMatchSubnet).
func sameNetworkBefore(interfaces []Interface, a netip.Addr) string {
	for _, i := range interfaces {
		for _, p := range i.Addresses {
			if p.Addr() == a {
				return ""
			}
			if p.Addr().Is4() == a.Is4() && p.Masked().Contains(a) {
				return i.Name
			}
		}
	}
	return ""
}

// checkFree says what holds the range where nothing of it is left.
func (r *Request) checkFree(h Host, addresses []netip.Addr, first, last int) *Problem {
	if len(addresses) == 0 {
		return nil
	}
	_, problem := r.pick(h, addresses[0], first, last, "")
	return problem
}

// PickPort takes a port of the range for one communicator. key names run, task and communicator: it decides where in
// the range the search starts, so that two runs seldom try the same port. A port counts as free when it could be
// listened on. Between this and the library's own listening another process can take it; then the library says that the
// address is in use, and the caller picks again with another key.
func PickPort(h Host, r Request, addr netip.Addr, key string) (int, *Problem) {
	if r.Spec.PortRange == nil {
		return 0, r.problem(api.ReasonPortRangeNotUsable, "a port was asked for without network.portRange. Set it.")
	}
	return r.pick(h, addr, int(r.Spec.PortRange.First), int(r.Spec.PortRange.Last), key)
}

// pick gives the first free port from where the key says.
func (r *Request) pick(h Host, addr netip.Addr, first, last int, key string) (int, *Problem) {
	size := last - first + 1
	if first < 1 || last > 65535 || size < 1 {
		return 0, r.problem(api.ReasonPortRangeNotUsable, "network.portRange %d-%d is no range of ports. Correct it.",
			first, last)
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	start := int(hash.Sum64() % uint64(size)) //nolint:gosec // size is 1-65535
	var other error
	busy := 0
	for k := range size {
		port := first + (start+k)%size
		switch err := h.PortFree(addr, port); {
		case err == nil:
			return port, nil
		case errors.Is(err, syscall.EADDRINUSE):
			busy++
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return 0, r.problem(api.ReasonInterfaceNotUsable, "nothing can listen on %s: %v. The address went away "+
				"after it was found; the next run looks again.", addr, err)
		default:
			other = err
		}
	}
	seen := ""
	if other != nil {
		seen = fmt.Sprintf(" %d others could not be listened on: %v.", size-busy, other)
	}
	return 0, r.problem(api.ReasonPortRangeNotUsable, "none of the %d ports %d-%d is free on %s: "+
		"%d are in use%s.%s Make network.portRange larger, move it, or end what holds them (ss -tlnp).",
		size, first, last, addr, busy, holders(h, addr, first, last), seen)
}

// holders counts the sockets that hold ports of a range, by what they do.
func holders(h Host, addr netip.Addr, first, last int) string {
	sockets, err := h.Sockets()
	if err != nil {
		return fmt.Sprintf(" (by what is not known: %v)", err)
	}
	count := map[SocketState]int{}
	for _, s := range sockets {
		if s.Port >= first && s.Port <= last && (s.Address.IsUnspecified() || s.Address == addr) {
			count[s.State]++
		}
	}
	var parts []string
	for _, state := range []SocketState{Listening, Connected, Closing} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	if len(parts) == 0 {
		return " (by sockets of another network namespace or without a state)"
	}
	return " (sockets: " + strings.Join(parts, ", ") + ")"
}

// parseLocalPorts reads "32768\t60999".
func parseLocalPorts(data []byte) (first, last int, err error) {
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("%.64q is not two ports", data)
	}
	if first, err = strconv.Atoi(fields[0]); err == nil {
		last, err = strconv.Atoi(fields[1])
	}
	if err != nil || first < 0 || first > last || last > 65535 {
		return 0, 0, fmt.Errorf("%.64q is not a range of ports", data)
	}
	return first, last, nil
}

// parseSockets reads /proc/net/tcp or tcp6 (net/ipv4/tcp_ipv4.c get_tcp4_sock): "0: 0100007F:1F90 00000000:0000 0A
// ...". Lines that are not of that form are left out.
func parseSockets(r io.Reader) ([]Socket, error) {
	var out []Socket
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 4 {
			continue
		}
		addr, port, ok := parseEndpoint(string(fields[1]))
		if !ok || port == 0 {
			continue
		}
		s := Socket{Address: addr, Port: port, State: Connected}
		switch string(fields[3]) { // include/net/tcp_states.h
		case "0A":
			s.State = Listening
		// FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING
		case "04", "05", "06", "07", "08", "09", "0B":
			s.State = Closing
		}
		out = append(out, s)
	}
	return out, lines.Err()
}

// parseEndpoint reads an address as the kernel prints its words: each 32 bits in the machine's order, which is little
// endian on every machine with these GPUs.
func parseEndpoint(text string) (netip.Addr, int, bool) {
	head, tail, found := strings.Cut(text, ":")
	raw, err := hex.DecodeString(head)
	port, perr := strconv.ParseUint(tail, 16, 16)
	if !found || err != nil || perr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, 0, false
	}
	for word := range slices.Chunk(raw, 4) {
		binary.BigEndian.PutUint32(word, binary.LittleEndian.Uint32(word))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr.Unmap(), int(port), true
}

package stage

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/controllers/judge"
	"rcclx.io/commgroup-operator/internal/clip"
	"rcclx.io/commgroup-operator/internal/explain"
	"rcclx.io/commgroup-operator/internal/units"
)

// network that all present members share.
func (g *planner) network() networkChoice {
	participants := g.present()
	if g.choice != nil && g.choiceOf == len(participants) { // members only leave
		return *g.choice
	}
	members := make([]memberNetwork, len(participants))
	for i, s := range participants {
		members[i].Node = s.name
		if s.report != nil {
			members[i].Status = s.report.Network
		}
	}
	choice := familyFor(g.agreedFamily(), members)
	g.choice, g.choiceOf = &choice, len(participants)
	return choice
}

// agreedFamily is the one that tasks were given out with, and stays whoever leaves: what is searched for may lie in it.
// Before the first task it is what the spec asks for.
func (g *planner) agreedFamily() v1alpha1.AddressFamily {
	for _, s := range g.participants {
		if s == nil || s.session == nil {
			continue
		}
		if f := s.session.AddressFamily; f == v1alpha1.AddressFamilyIPv4 || f == v1alpha1.AddressFamilyIPv6 {
			return f
		}
	}
	return g.in.Group.Spec.Network.AddressFamily
}

// memberNetwork is what one member's agent said of its network; Status is nil where it said nothing.
type memberNetwork struct {
	Node   string
	Status *v1alpha1.NetworkStatus
}

// networkChoice is the network of all members of a stage. Reason is empty where they agree; else Message says who lacks
// what.
type networkChoice struct {
	// Family of all members' addresses, never Auto where Reason is empty.
	Family v1alpha1.AddressFamily
	// Text for status.span.network: the family, why, and what nodes cannot hold.
	Text            string
	Reason, Message string
}

// maxNetworkText is what status.span.network holds.
const maxNetworkText = 512

// familyFor picks one address family for all members, since a rank reaches only peers of its own: the one that was
// asked for, else IPv4 where every member has such an address, else IPv6. A member that said nothing of its network has
// neither.
func familyFor(requested v1alpha1.AddressFamily, members []memberNetwork) networkChoice {
	lacks := map[v1alpha1.AddressFamily][]string{}
	for _, m := range members {
		has := familiesOf(m.Status)
		for _, f := range []v1alpha1.AddressFamily{v1alpha1.AddressFamilyIPv4, v1alpha1.AddressFamilyIPv6} {
			if !slices.Contains(has, f) {
				lacks[f] = append(lacks[f], m.Node)
			}
		}
	}
	v4, v6 := lacks[v1alpha1.AddressFamilyIPv4], lacks[v1alpha1.AddressFamilyIPv6]
	choice := networkChoice{}
	why := ""
	switch {
	case len(members) == 0:
		return networkChoice{Reason: v1alpha1.ReasonMixedAddressFamilies,
			Message: "No member has said which addresses it has. Wait for the members, or look at their pods."}
	case requested == v1alpha1.AddressFamilyIPv4 || requested == v1alpha1.AddressFamilyIPv6:
		if missing := lacks[requested]; len(missing) > 0 {
			return networkChoice{Reason: v1alpha1.ReasonMixedAddressFamilies, Message: fmt.Sprintf(
				"network.addressFamily is %s, but %d of %d members have no such address on their interface: %s. "+
					"Give them one, choose another interface with network.interface, or set addressFamily to Auto.",
				requested, len(missing), len(members), explain.Names(missing, 5))}
		}
		choice.Family, why = requested, "as network.addressFamily asks"
	case len(v4) == 0:
		choice.Family, why = v1alpha1.AddressFamilyIPv4,
			fmt.Sprintf("all %d members have such an address", len(members))
	case len(v6) == 0:
		choice.Family, why = v1alpha1.AddressFamilyIPv6,
			fmt.Sprintf("%d of %d members have no IPv4 address: %s", len(v4), len(members), explain.Names(v4, 3))
	default:
		return networkChoice{Reason: v1alpha1.ReasonMixedAddressFamilies, Message: fmt.Sprintf(
			"No address family that every member has: %d of %d have no IPv4 address (%s), %d no IPv6 address (%s). "+
				"Ranks of different families cannot meet: choose the interface with network.interface, "+
				"or leave those nodes out with members.exclude.",
			len(v4), len(members), explain.Names(v4, 3), len(v6), explain.Names(v6, 3))}
	}
	if a, nodes := sameAddress(choice.Family, members); len(nodes) > 1 {
		return networkChoice{Reason: v1alpha1.ReasonDuplicateAddress, Message: fmt.Sprintf(
			"%d members say that they have the address %s: %s. Peers would reach one of them for all. "+
				"Look at how the network gives out addresses (with Multus: an IPAM that knows all nodes, for example "+
				"whereabouts, not host-local with one range), or choose another interface with network.interface.",
			len(nodes), a, explain.Names(nodes, 5))}
	}
	choice.Text = fmt.Sprintf("%s, %s. %s", choice.Family, why, interfacesText(members))
	if note := firstNote(members); note != "" {
		choice.Text += " " + note
	}
	choice.Text = clip.Head(strings.TrimSpace(choice.Text), maxNetworkText)
	return choice
}

// sameAddress is the first address of the family that several members have, and who they are. Loopback addresses are
// alike everywhere: the pods of simulated nodes are on one machine.
func sameAddress(family v1alpha1.AddressFamily, members []memberNetwork) (netip.Addr, []string) {
	owners := make(map[netip.Addr]string, len(members))
	for _, m := range members {
		a, ok := addressOf(m.Status, family)
		if !ok || a.IsLoopback() {
			continue
		}
		if _, taken := owners[a]; !taken {
			owners[a] = m.Node
			continue
		}
		var nodes []string
		for _, o := range members {
			if b, ok := addressOf(o.Status, family); ok && b == a {
				nodes = append(nodes, o.Node)
			}
		}
		return a, nodes
	}
	return netip.Addr{}, nil
}

func addressOf(st *v1alpha1.NetworkStatus, family v1alpha1.AddressFamily) (netip.Addr, bool) {
	if st == nil {
		return netip.Addr{}, false
	}
	for _, text := range st.Addresses {
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err == nil && a.Is4() == (family == v1alpha1.AddressFamilyIPv4) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func familiesOf(st *v1alpha1.NetworkStatus) []v1alpha1.AddressFamily {
	if st == nil {
		return nil
	}
	var out []v1alpha1.AddressFamily
	for _, text := range st.Addresses {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case a.Unmap().Is4():
			out = append(out, v1alpha1.AddressFamilyIPv4)
		default:
			out = append(out, v1alpha1.AddressFamilyIPv6)
		}
	}
	return out
}

// interfacesText says which interfaces the members use, the most common first: "Interfaces eth1 (14), ens3f0 (2)."
func interfacesText(members []memberNetwork) string {
	count := map[string]int{}
	for _, m := range members {
		if m.Status != nil && m.Status.Interface != "" {
			count[m.Status.Interface]++
		}
	}
	names := make([]string, 0, len(count))
	for name := range count {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	if len(names) == 0 {
		return ""
	}
	parts := make([]string, 0, 4)
	for k, name := range names {
		if k == 4 {
			parts = append(parts, fmt.Sprintf("%d more", len(names)-k))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", name, count[name]))
	}
	return "Interfaces " + strings.Join(parts, ", ") + "."
}

// firstNote is the first thing that a member could not hold, and how many have one.
func firstNote(members []memberNetwork) string {
	first, notes := "", 0
	for _, m := range members {
		if m.Status == nil || m.Status.Message == "" {
			continue
		}
		if notes++; notes == 1 {
			first = fmt.Sprintf("Node %s: %s", m.Node, m.Status.Message)
		}
	}
	if notes > 1 {
		first += fmt.Sprintf(" So on %d nodes.", notes)
	}
	return first
}

// MemberTransport is what carried one member's data to other nodes (TaskCommunicatorStatus.Transport), and what its
// agent says of it, empty where that is nothing.
type MemberTransport struct{ Node, Transport, Said string }

// worseTransport is how much speaks against a transport: what is not known is worse than RDMA, and what is known to be
// none is worse still. Agents of other versions may have words that are not known here.
func worseTransport(a, b string) int {
	rank := func(transport string) int {
		switch transport {
		case judge.TransportRDMA:
			return 0
		case judge.TransportTCP:
			return 2
		case judge.TransportMixed:
			return 3
		}
		return 1
	}
	return rank(a) - rank(b)
}

// joinTransports is what carried the data where part of it went one way and part another.
func joinTransports(a, b string) string {
	known := func(t string) bool {
		return t == judge.TransportRDMA || t == judge.TransportTCP || t == judge.TransportMixed
	}
	switch {
	case a == b && known(a):
		return a
	case known(a) && known(b):
		return judge.TransportMixed
	}
	return judge.TransportUnknown
}

// TransportChoice is what carried a group's data, and whether that is what was asked for.
type TransportChoice struct {
	// Transport is RDMA, TCP, Mixed or Unknown.
	Transport string
	// Verdict is Pass, Fail where data went over TCP against requireTransport, or Inconclusive where that is not known.
	Verdict         v1alpha1.Verdict
	Reason, Message string
}

// TransportFor holds what the members' logs say against what was asked for. Nothing said is never RDMA, and never TCP.
func TransportFor(required v1alpha1.TransportRequirement, members []MemberTransport) TransportChoice {
	var other, unknown, said []string
	count := map[string]int{}
	for _, m := range members {
		switch m.Transport {
		case judge.TransportRDMA:
		case judge.TransportTCP, judge.TransportMixed:
			other = append(other, m.Node)
			if m.Said != "" {
				said = append(said,
					"on "+m.Node+": "+strings.TrimPrefix(units.Unnamed(m.Said, m.Node), "between nodes: "))
			}
		default:
			unknown = append(unknown, m.Node)
		}
		count[m.Transport]++
	}
	choice := TransportChoice{Transport: judge.TransportUnknown, Verdict: v1alpha1.VerdictPass}
	switch {
	case count[judge.TransportMixed] > 0 || count[judge.TransportTCP] > 0 && count[judge.TransportRDMA] > 0:
		choice.Transport = judge.TransportMixed
	case len(unknown) > 0 || len(members) == 0:
	case count[judge.TransportTCP] > 0:
		choice.Transport = judge.TransportTCP
	default:
		choice.Transport = judge.TransportRDMA
	}
	if required != v1alpha1.TransportRDMA {
		return choice
	}
	switch {
	case len(other) > 0:
		choice.Verdict, choice.Reason = v1alpha1.VerdictFail, v1alpha1.ReasonTransportFallback
		choice.Message = fmt.Sprintf("network.requireTransport is RDMA, but data of %d of %d nodes went over TCP: %s.",
			len(other), len(members), explain.Names(other, 5))
		if len(said) > 0 {
			what := said[0]
			if len(other) == 1 {
				what = strings.TrimPrefix(what, "on "+other[0]+": ") // it was just named
			}
			choice.Message += " By its agent: " + explain.Sentence(clip.Sentences(what, 300))
		} else {
			choice.Message += " Look at the RDMA resources and the memlock limit of their pods, and at " +
				"`ibv_devinfo` on those nodes."
		}
	case len(unknown) > 0 || len(members) == 0:
		choice.Verdict, choice.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive
		choice.Message = fmt.Sprintf("network.requireTransport is RDMA, but what carried the data of %d of "+
			"%d nodes is not known, as their library's log does not say: %s. Look at the logs of their pods.",
			len(unknown), len(members), explain.Names(unknown, 5))
	}
	return choice
}

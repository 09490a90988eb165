package stage

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

func addressed(addresses ...[]string) []memberNetwork {
	out := make([]memberNetwork, len(addresses))
	for k, list := range addresses {
		out[k] = memberNetwork{Node: fmt.Sprintf("n%d", k), Status: &v1alpha1.NetworkStatus{Interface: "eth0"}}
		for _, text := range list { // of each member its own
			if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() {
				for range k {
					a = a.Next()
				}
				text = a.String()
			}
			out[k].Status.Addresses = append(out[k].Status.Addresses, text)
		}
	}
	return out
}

func TestFamilyFor(t *testing.T) {
	both, v4, v6 := []string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.2"}, []string{"fd00::2"}
	silent := memberNetwork{Node: "mute"}
	noted := addressed(v4, v4, v4)
	noted[1].Status.Message, noted[2].Status.Message, noted[2].Status.Interface = "only the rendezvous is "+
		"in the range.", "x", "eth1"
	many := addressed(slices.Repeat([][]string{v4}, 300)...)
	for k := range many {
		many[k].Status.Interface = fmt.Sprintf("eth%03d", k)
		many[k].Status.Message = strings.Repeat("m", 256)
	}
	for name, tc := range map[string]struct {
		requested v1alpha1.AddressFamily
		members   []memberNetwork
		family    v1alpha1.AddressFamily
		words     []string // of the text, or of the message where there is no family
	}{
		"all have both": {"", addressed(both, both), v1alpha1.AddressFamilyIPv4,
			[]string{"IPv4, all 2 members have such an address", "Interfaces eth0 (2)."}},
		"auto is said": {v1alpha1.AddressFamilyAuto, addressed(both, v4), v1alpha1.AddressFamilyIPv4,
			[]string{"IPv4"}},
		"one has IPv6 only": {"", addressed(both, v6), v1alpha1.AddressFamilyIPv6,
			[]string{"IPv6, 1 of 2 members have no IPv4 address: n1"}},
		"IPv6 is asked for": {v1alpha1.AddressFamilyIPv6, addressed(both, v6), v1alpha1.AddressFamilyIPv6,
			[]string{"as network.addressFamily asks"}},
		"an IPv4 in IPv6's form": {"", addressed([]string{"::ffff:10.0.0.1"}, v4), v1alpha1.AddressFamilyIPv4, nil},
		"notes": {"", noted, v1alpha1.AddressFamilyIPv4,
			[]string{"Interfaces eth0 (2), eth1 (1).", "Node n1: only the rendezvous is in the range. So on 2 nodes."}},
		"many": {"", many, v1alpha1.AddressFamilyIPv4,
			[]string{"eth000 (1), eth001 (1), eth002 (1), eth003 (1), 296 more."}},
		"mixed": {"", addressed(v4, v6), "",
			[]string{"1 of 2 have no IPv4 address (n1), 1 no IPv6 address (n0)", "network.interface"}},
		"IPv4 is asked for": {v1alpha1.AddressFamilyIPv4, addressed(both, v6), "",
			[]string{"1 of 2 members have no such address", "n1"}},
		"one said nothing":    {"", append(addressed(both), silent), "", []string{"mute"}},
		"one said no address": {"", addressed(both, nil), "", []string{"n1"}},
		"one said nonsense":   {"", addressed(both, []string{"eth0"}), "", []string{"n1"}},
		"nobody":              {"", nil, "", []string{"No member has said"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := familyFor(tc.requested, tc.members)
			if got.Family != tc.family || (got.Reason == "") != (tc.family != "") ||
				(got.Text != "") != (tc.family != "") {
				t.Fatalf("got %+v, want family %q", got, tc.family)
			}
			text := got.Text
			if tc.family == "" {
				text = got.Message
				if got.Reason != v1alpha1.ReasonMixedAddressFamilies {
					t.Errorf("reason %s", got.Reason)
				}
			}
			for _, w := range tc.words {
				if !strings.Contains(text, w) {
					t.Errorf("lacks %q: %s", w, text)
				}
			}
			if len(text) > maxNetworkText {
				t.Errorf("text has %d bytes", len(text))
			}
		})
	}
}

func TestNoTwoMembersHaveOneAddress(t *testing.T) {
	twice := addressed([]string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1", "fd00::1"},
		[]string{"10.0.0.1", "fd00::1"})
	twice[2].Status.Addresses[0] = twice[1].Status.Addresses[0]
	got := familyFor(v1alpha1.AddressFamilyAuto, twice)
	if got.Reason != v1alpha1.ReasonDuplicateAddress || got.Family != "" ||
		!strings.Contains(got.Message, "2 members say that they have the address 10.0.0.2: n1, n2.") {
		t.Errorf("got %+v", got)
	}
	// In the other family they differ.
	if got := familyFor(v1alpha1.AddressFamilyIPv6, twice); got.Family != v1alpha1.AddressFamilyIPv6 {
		t.Errorf("IPv6: %+v", got)
	}
	if got := familyFor("",
		addressed([]string{"127.0.0.1"}, []string{"127.0.0.1"})); got.Family != v1alpha1.AddressFamilyIPv4 {
		t.Errorf("simulated nodes on loopback: %+v", got)
	}
}

func TestTransportFor(t *testing.T) {
	said := func(words ...string) []MemberTransport {
		out := make([]MemberTransport, len(words))
		for k, w := range words {
			out[k] = MemberTransport{Node: fmt.Sprintf("n%d", k), Transport: w,
				Said: fmt.Sprintf("node n%d: between nodes: %s over lo", k, w)}
		}
		return out
	}
	for name, tc := range map[string]struct {
		members   []MemberTransport
		transport string
		verdict   v1alpha1.Verdict // where RDMA is required
		reason    string
		words     []string
	}{
		"all RDMA": {said("RDMA", "RDMA"), "RDMA", v1alpha1.VerdictPass, "", nil},
		"all TCP": {said("TCP", "TCP"), "TCP", v1alpha1.VerdictFail, v1alpha1.ReasonTransportFallback,
			[]string{"2 of 2 nodes", "n0, n1. By its agent: on n0: TCP over lo."}},
		"one fell back": {said("RDMA", "TCP", "RDMA"), "Mixed", v1alpha1.VerdictFail,
			v1alpha1.ReasonTransportFallback, []string{"1 of 3 nodes", "TCP: n1. By its agent: TCP over lo."}},
		"one is mixed": {said("RDMA", "Mixed"), "Mixed", v1alpha1.VerdictFail,
			v1alpha1.ReasonTransportFallback, []string{"n1"}},
		"all mixed": {said("Mixed"), "Mixed", v1alpha1.VerdictFail, v1alpha1.ReasonTransportFallback, nil},
		"one says nothing": {said("RDMA", ""), "Unknown", v1alpha1.VerdictInconclusive,
			v1alpha1.ReasonInconclusive, []string{"1 of 2 nodes", "n1"}},
		"one is unknown": {said("Unknown", "RDMA"), "Unknown", v1alpha1.VerdictInconclusive,
			v1alpha1.ReasonInconclusive, []string{"n0"}},
		"TCP and unknown": {said("TCP", "Unknown"), "Unknown", v1alpha1.VerdictFail,
			v1alpha1.ReasonTransportFallback, []string{"1 of 2 nodes", "n0"}},
		"TCP, RDMA and unknown": {said("TCP", "RDMA", ""), "Mixed", v1alpha1.VerdictFail,
			v1alpha1.ReasonTransportFallback, []string{"1 of 3 nodes", "n0"}},
		"a word never heard of": {said("RDMA", "Quantum"), "Unknown", v1alpha1.VerdictInconclusive,
			v1alpha1.ReasonInconclusive, []string{"n1"}},
		"nobody": {nil, "Unknown", v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TransportFor(v1alpha1.TransportAny, tc.members); got.Transport != tc.transport ||
				got.Verdict != v1alpha1.VerdictPass || got.Reason != "" {
				t.Errorf("any will do: %+v, want %s", got, tc.transport)
			}
			got := TransportFor(v1alpha1.TransportRDMA, tc.members)
			if got.Transport != tc.transport || got.Verdict != tc.verdict || got.Reason != tc.reason ||
				(got.Message != "") != (tc.reason != "") {
				t.Errorf("RDMA is required: %+v", got)
			}
			for _, w := range tc.words {
				if !strings.Contains(got.Message, w) {
					t.Errorf("lacks %q: %s", w, got.Message)
				}
			}
		})
	}
}

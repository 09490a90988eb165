package network

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestResolve(t *testing.T) {
	allUp := []string{"mlx5_0:1", "mlx5_1:1", "mlx5_6:2"}
	for name, tc := range map[string]struct {
		spec    api.NetworkSpec
		podIP   string
		own     []api.EnvVar
		change  func(*memHost)
		face    string
		address []string
		hcas    []string
		message string // a part of the status' message
		reason  string
		words   []string
	}{
		"the pod's address": {podIP: "10.0.0.7", face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"the pod's IPv6 address": {podIP: "fd00:4::7", face: "v6only",
			address: []string{"fd00:4::7"}, hcas: allUp},
		"IPv6 asked for": {podIP: "10.0.0.7", spec: api.NetworkSpec{AddressFamily: api.AddressFamilyIPv6},
			face: "eth0", address: []string{"fd00::7"}, hcas: allUp},
		"IPv4 asked for": {podIP: "10.0.0.7", spec: api.NetworkSpec{AddressFamily: api.AddressFamilyIPv4},
			face: "eth0", address: []string{"10.0.0.7"}, hcas: allUp},
		"a simulated pod on loopback": {podIP: "127.3.0.9", face: "lo", address: []string{"127.0.0.1"}, hcas: allUp},
		"without Kubernetes":          {face: "eth0", address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"a person's own variable": {podIP: "10.0.0.7", own: own(envSocketInterface, "=eth6"), face: "eth6",
			address: []string{"10.9.0.1"}, hcas: allUp},
		"a field wins over a variable": {podIP: "10.0.0.7", own: own(envSocketInterface, "=eth6"),
			spec: api.NetworkSpec{Interface: byName("eth1")}, face: "eth1", address: []string{"10.4.0.7"}, hcas: allUp},
		"by CIDR": {podIP: "10.0.0.7", spec: api.NetworkSpec{Interface: byCIDR("10.4.0.0/16")},
			face: "eth1", address: []string{"10.4.0.7"}, hcas: allUp},
		"by a CIDR with host bits": {spec: api.NetworkSpec{Interface: byCIDR("10.4.0.7/16")}, face: "eth1",
			address: []string{"10.4.0.7"}, hcas: allUp},
		"by IPv6 CIDR means IPv6": {spec: api.NetworkSpec{Interface: byCIDR("fd00::/64")}, face: "eth0",
			address: []string{"fd00::7"}, hcas: allUp},
		"by name, not its VLAN": {spec: api.NetworkSpec{Interface: byName("eth1")}, face: "eth1",
			address: []string{"10.4.0.7"}, hcas: allUp},
		"a VLAN by name": {spec: api.NetworkSpec{Interface: byName("eth1.100")}, face: "eth1.100",
			address: []string{"10.5.0.7"}, hcas: allUp},
		"by PCI address, capitals": {spec: api.NetworkSpec{Interface: byPCI("0000:0C:00.0")}, face: "eth1",
			address: []string{"10.4.0.7"}, hcas: allUp},
		"by PCI, not the representor": {spec: api.NetworkSpec{Interface: byPCI("0000:99:00.0")}, face: "eth9",
			address: []string{"10.11.0.1"}, hcas: allUp},
		"HCAs and a GID": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{HCAs: []string{"mlx5_1:1", "mlx5_0"}, GIDIndex: gid(3)}, face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: []string{"mlx5_1:1", "mlx5_0"}},
		"all HCAs with that GID": {podIP: "10.0.0.7", spec: api.NetworkSpec{GIDIndex: gid(3)}, face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp[:2]},
		"a family of their own": {podIP: "10.0.0.7", own: own(envSocketFamily, "AF_INET6"), face: "eth0",
			address: []string{"fd00::7"}, hcas: allUp},
		"a family of their own, IPv4": {podIP: "10.0.0.7", own: own(envSocketFamily, "AF_INET"), face: "eth0",
			address: []string{"10.0.0.7"}, hcas: allUp},
		"a family that is none": {podIP: "10.0.0.7", own: own(envSocketFamily, "IPv6"), face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"the field's family wins": {podIP: "10.0.0.7", own: own(envSocketFamily, "AF_INET6"),
			spec: api.NetworkSpec{AddressFamily: api.AddressFamilyIPv4}, face: "eth0",
			address: []string{"10.0.0.7"}, hcas: allUp},
		"devices of their own": {podIP: "10.0.0.7", own: own(envHCA, "=mlx5_1,mlx5_6:2,mlx5_0:2"),
			face: "eth0", address: []string{"10.0.0.7", "fd00::7"}, hcas: []string{"mlx5_1:1", "mlx5_6:2"}},
		"all devices but theirs": {podIP: "10.0.0.7", own: own(envHCA, "^mlx5_1"), face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: []string{"mlx5_0:1", "mlx5_6:2"}},
		"a prefix of devices": {podIP: "10.0.0.7", own: own(envHCA, "mlx5"), face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"RDMA not switched off": {podIP: "10.0.0.7", own: own(envNoRDMA, "0"),
			spec: api.NetworkSpec{RequireTransport: api.TransportRDMA}, face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"RDMA switched off": {podIP: "10.0.0.7", own: own(envNoRDMA, "1"),
			spec: api.NetworkSpec{RequireTransport: api.TransportRDMA}, reason: api.ReasonHCANotUsable,
			words: []string{"NCCL_IB_DISABLE=1"}},
		"RDMA required, theirs are none": {podIP: "10.0.0.7", own: own(envHCA, "bnxt_re0"),
			spec: api.NetworkSpec{RequireTransport: api.TransportRDMA}, reason: api.ReasonHCANotFound,
			words: []string{"NCCL_IB_HCA=bnxt_re0", "mlx5_0:1"}},
		"no RDMA at all": {podIP: "10.0.0.7", change: func(h *memHost) { h.hcas = nil }, face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}},
		"RDMA not readable, not asked for": {podIP: "10.0.0.7", change: func(h *memHost) { h.hcasErr = errDenied },
			face: "eth0", address: []string{"10.0.0.7", "fd00::7"}},
		"ports in force": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30999)},
			change: func(h *memHost) { h.first, h.last = 30000, 30999 },
			face:   "eth0", address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp},
		"Multus without an interface": {podIP: "10.0.0.7", spec: api.NetworkSpec{Mode: api.NetworkMultus}, face: "eth0",
			address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp, message: "pod network's eth0"},
		"Multus with one": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{Mode: api.NetworkMultus, Interface: byName("eth1")}, face: "eth1",
			address: []string{"10.4.0.7"}, hcas: allUp},
		"Multus with a variable of their own": {podIP: "10.0.0.7", spec: api.NetworkSpec{Mode: api.NetworkMultus},
			own: own(envSocketInterface, "=eth1"), face: "eth1", address: []string{"10.4.0.7"}, hcas: allUp},
		"ports on the node's network": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{Mode: api.NetworkHost, PortRange: portRange(30000, 30999)},
			face: "eth0", address: []string{"10.0.0.7", "fd00::7"}, hcas: allUp,
			message: "only the rendezvous is in network.portRange 30000-30999"},

		"interfaces not readable": {change: func(h *memHost) { h.interfacesErr = errDenied },
			reason: api.ReasonSysfsUnreadable, words: []string{"denied for the test"}},
		"no interface of the CIDR": {spec: api.NetworkSpec{Interface: byCIDR("192.168.0.0/16")},
			reason: api.ReasonInterfaceNotFound,
			words:  []string{"cidr 192.168.0.0/16", "eth0 (10.0.0.7/24", "eth1.100 on eth1", "mode Pod"}},
		"on the node too": {spec: api.NetworkSpec{Mode: api.NetworkHost, Interface: byCIDR("192.168.0.0/16")},
			reason: api.ReasonInterfaceNotFound, words: []string{"Correct the selector"}},
		"not a CIDR": {spec: api.NetworkSpec{Interface: byCIDR("10.4.0.0")}, reason: api.ReasonInterfaceNotFound,
			words: []string{"is not a CIDR"}},
		"a prefix of names": {spec: api.NetworkSpec{Interface: byName("eth")}, reason: api.ReasonInterfaceNotFound,
			words: []string{"network.interface.name eth matches no interface"}},
		"name too long": {spec: api.NetworkSpec{Interface: byName("enp200s0f1np1v0xx")},
			reason: api.ReasonInterfaceNotFound, words: []string{"17 characters", "at most 15"}},
		"no such PCI": {spec: api.NetworkSpec{Interface: byPCI("0000:ff:00.0")},
			reason: api.ReasonInterfaceNotFound, words: []string{"eth1 (0000:0c:00.0 10.4.0.7/16)"}},
		"down by CIDR": {spec: api.NetworkSpec{Interface: byCIDR("10.6.0.0/16")}, reason: api.ReasonInterfaceNotUsable,
			words: []string{"eth2", "down"}},
		"down by name": {spec: api.NetworkSpec{Interface: byName("eth2")}, reason: api.ReasonInterfaceNotUsable,
			words: []string{"ip link show eth2"}},
		"two of one CIDR": {spec: api.NetworkSpec{Interface: byCIDR("10.9.0.0/24")},
			reason: api.ReasonInterfaceAmbiguous, words: []string{"eth6 (10.9.0.1/24), eth7 (10.9.0.2/24)"}},
		"VLAN and its NIC": {spec: api.NetworkSpec{Interface: byCIDR("10.4.0.0/15")},
			reason: api.ReasonInterfaceAmbiguous, words: []string{"eth1.100 on eth1"}},
		"a second address": {spec: api.NetworkSpec{Interface: byCIDR("10.8.0.0/24")},
			reason: api.ReasonInterfaceNotUsable, words: []string{"eth5", "listens on the first, 10.7.0.1"}},
		"part of a bond": {spec: api.NetworkSpec{Interface: byName("eth4")}, reason: api.ReasonInterfaceNotUsable,
			words: []string{"a part of bond0"}},
		"no address": {spec: api.NetworkSpec{Interface: byPCI("0000:88:00.0")},
			reason: api.ReasonNoAddressOfFamily, words: []string{"eth8"}},
		"link-local only": {spec: api.NetworkSpec{Interface: byName("eth3")}, reason: api.ReasonNoAddressOfFamily,
			words: []string{"fe80::3", "link-local"}},
		"link-local before a global one": {spec: api.NetworkSpec{Interface: byName("eth3"),
			AddressFamily: api.AddressFamilyIPv6},
			reason: api.ReasonNoAddressOfFamily, words: []string{"first IPv6 address", "fe80::3"},
			change: func(h *memHost) { h.interfaces[5].Addresses = addresses("fe80::3/64", "fd00:3::3/64") }},
		"link-local before a global one, IPv4 beside it": {spec: api.NetworkSpec{Interface: byName("eth3")},
			face: "eth3", address: []string{"10.3.0.3"}, hcas: allUp, change: func(h *memHost) {
				h.interfaces[5].Addresses = addresses("fe80::3/64", "fd00:3::3/64", "10.3.0.3/16")
			}},
		"a CIDR of what stands behind a link-local one": {spec: api.NetworkSpec{Interface: byCIDR("fd00:3::/64")},
			reason: api.ReasonNoAddressOfFamily, words: []string{"fe80::3"},
			change: func(h *memHost) { h.interfaces[5].Addresses = addresses("fe80::3/64", "fd00:3::3/64") }},
		"link-local CIDR": {spec: api.NetworkSpec{Interface: byCIDR("fe80::3/128")},
			reason: api.ReasonNoAddressOfFamily, words: []string{"link-local"}},
		"loopback by name": {podIP: "10.0.0.7", spec: api.NetworkSpec{Interface: byName("lo")},
			reason: api.ReasonInterfaceNotUsable, words: []string{"do not reach", "eth0"}},
		"a name with comma": {spec: api.NetworkSpec{Interface: byCIDR("10.10.0.0/24")},
			reason: api.ReasonInterfaceNotUsable, words: []string{`"net,1"`}},
		"no IPv6 there": {spec: api.NetworkSpec{Interface: byName("eth1"),
			AddressFamily: api.AddressFamilyIPv6},
			reason: api.ReasonNoAddressOfFamily, words: []string{"no IPv6 address", "10.4.0.7/16"}},
		"no IPv4 there": {podIP: "fd00:4::7", spec: api.NetworkSpec{AddressFamily: api.AddressFamilyIPv4},
			reason: api.ReasonNoAddressOfFamily, words: []string{"v6only", "no IPv4"}},
		"pod's address is nowhere": {podIP: "10.99.0.1", reason: api.ReasonInterfaceNotFound,
			words: []string{"10.99.0.1"}},
		"pod's address is text": {podIP: "node-a", reason: api.ReasonInterfaceNotFound, words: []string{"no address"}},
		"own variable finds none": {podIP: "10.0.0.7", own: own(envSocketInterface, "=ib0"),
			reason: api.ReasonInterfaceNotFound, words: []string{"NCCL_SOCKET_IFNAME==ib0"}},

		"no such HCA": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_9:1"}},
			reason: api.ReasonHCANotFound, words: []string{"mlx5_9:1", "mlx5_0:1 Active RoCE"}},
		"no prefix of an HCA": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5"}},
			reason: api.ReasonHCANotFound},
		"no such port": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_0:2"}},
			reason: api.ReasonHCANotFound, words: []string{"no port 2"}},
		"HCA down": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_2:1"}},
			reason: api.ReasonHCANotUsable, words: []string{"is Down; expected Active", "cable"}},
		"HCA without a manager": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_3"}},
			reason: api.ReasonHCANotUsable, words: []string{"subnet manager"}},
		"HCA not in the pod": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_4:1"}},
			reason: api.ReasonHCANotUsable, words: []string{"/dev/infiniband/uverbs4", "rdmaResources"}},
		"HCA without a port": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_5"}},
			reason: api.ReasonHCANotUsable, words: []string{"no port"}},
		"an active port of two": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_6"}},
			face: "eth0", address: []string{"10.0.0.7", "fd00::7"}, hcas: []string{"mlx5_6"}},
		"GID empty": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{HCAs: []string{"mlx5_0:1"}, GIDIndex: gid(5)}, reason: api.ReasonGIDNotUsable,
			words: []string{"gidIndex 5 is empty", "3 (10.4.0.7 RoCE v2)"}},
		"GID past the end": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{HCAs: []string{"mlx5_0:1"}, GIDIndex: gid(255)}, change: func(h *memHost) {
				h.hcas[0].Ports[0].GIDTableSize = 16
			}, reason: api.ReasonGIDNotUsable, words: []string{"past the table's 16 entries"}},
		"GIDs not readable": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{HCAs: []string{"mlx5_6:2"}, GIDIndex: gid(3)}, reason: api.ReasonGIDNotUsable,
			words: []string{"could not be read"}},
		"HCAs not readable, a GID asked for": {podIP: "10.0.0.7", spec: api.NetworkSpec{GIDIndex: gid(3)},
			change: func(h *memHost) { h.hcasErr = errDenied }, reason: api.ReasonSysfsUnreadable,
			words: []string{"denied for the test"}},
		"HCAs not readable, RDMA required": {podIP: "10.0.0.7",
			spec:   api.NetworkSpec{RequireTransport: api.TransportRDMA},
			change: func(h *memHost) { h.hcasErr = errDenied }, reason: api.ReasonSysfsUnreadable},
		"HCAs not readable": {podIP: "10.0.0.7", spec: api.NetworkSpec{HCAs: []string{"mlx5_0"}},
			change: func(h *memHost) { h.hcasErr = errDenied }, reason: api.ReasonSysfsUnreadable},
		"RDMA required, none": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{RequireTransport: api.TransportRDMA}, change: func(h *memHost) { h.hcas = nil },
			reason: api.ReasonHCANotFound, words: []string{"there are none", "rdmaResources"}},
		"RDMA required, down": {podIP: "10.0.0.7", spec: api.NetworkSpec{RequireTransport: api.TransportRDMA,
			Mode: api.NetworkHost}, change: func(h *memHost) { h.hcas = h.hcas[2:4] },
			reason: api.ReasonHCANotFound, words: []string{"mlx5_2:1 Down RoCE", "cables"}},
		"RDMA required, not in the pod": {podIP: "10.0.0.7", spec: api.NetworkSpec{RequireTransport: api.TransportRDMA},
			change: func(h *memHost) { h.hcas = h.hcas[4:5] },
			reason: api.ReasonHCANotFound, words: []string{"not in the pod", "rdmaResources"}},

		"ports not in force": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30999)},
			reason: api.ReasonPortRangeNotUsable, words: []string{"32768-60999", "sysctls"}},
		"too few ports": {podIP: "10.0.0.7",
			spec: api.NetworkSpec{PortRange: portRange(30000, 30099)}, reason: api.ReasonPortRangeNotUsable,
			words: []string{"100 ports; 8 ranks need at least 128", "30000-31023"}},
		"range not readable": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30999)},
			change: func(h *memHost) { h.localPortsErr = errDenied },
			reason: api.ReasonPortRangeNotUsable, words: []string{"denied"}},
		"all ports in use": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30199)},
			change: func(h *memHost) {
				h.first, h.last, h.busy = 30000, 30199, inUse(30000, 30199)
				a := addresses("10.0.0.7/32", "10.4.0.7/32", "0.0.0.0/0")
				h.sockets = []Socket{{a[0].Addr(), 30000, Listening}, {a[1].Addr(), 30001, Listening},
					{a[2].Addr(), 30002, Listening}, {a[0].Addr(), 30003, Closing}, {a[0].Addr(), 40000, Connected}}
			}, reason: api.ReasonPortRangeNotUsable, words: []string{"none of the 200 ports 30000-30199",
				"200 are in use (sockets: 2 listening, 1 closing)", "ss -tlnp"}},
		"an address that went": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30199)},
			change: func(h *memHost) {
				h.first, h.last, h.busy = 30000, 30199, portsWith(30000, 30199, syscall.EADDRNOTAVAIL)
			}, reason: api.ReasonInterfaceNotUsable, words: []string{"10.0.0.7"}},
		"ports that may not be had": {podIP: "10.0.0.7", spec: api.NetworkSpec{PortRange: portRange(30000, 30199)},
			change: func(h *memHost) {
				h.first, h.last, h.busy, h.socketsErr = 30000, 30199, portsWith(30000, 30199, syscall.EACCES), errDenied
			}, reason: api.ReasonPortRangeNotUsable,
			words: []string{"0 are in use", "200 others", "permission denied"}},
		"rendezvous on another's network": {spec: api.NetworkSpec{Mode: api.NetworkHost,
			Interface: byName("eth7"), PortRange: portRange(30000, 30999)},
			reason: api.ReasonPortRangeNotUsable, words: []string{"10.9.0.2", "eth6"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := node()
			if tc.change != nil {
				tc.change(h)
			}
			st, problem := Resolve(h, Request{Node: "node-a", Spec: tc.spec, PodIP: tc.podIP, Ranks: 8, Own: tc.own})
			if tc.reason != "" {
				wantProblem(t, problem, tc.reason, tc.words...)
				if st.Interface != "" || len(st.Addresses) > 0 {
					t.Errorf("a status beside a problem: %+v", st)
				}
				return
			}
			if problem != nil {
				t.Fatal(problem)
			}
			if st.Interface != tc.face || !slices.Equal(st.Addresses, tc.address) || !slices.Equal(st.HCAs, tc.hcas) {
				t.Errorf("got %s %v %v, want %s %v %v",
					st.Interface, st.Addresses, st.HCAs, tc.face, tc.address, tc.hcas)
			}
			if !strings.Contains(st.Message, tc.message) || tc.message == "" && st.Message != "" ||
				len(st.Message) > 256 {
				t.Errorf("message %q (%d bytes), want %q", st.Message, len(st.Message), tc.message)
			}
		})
	}
}

// A node with more ports up than a status holds keeps the first of them.
func TestResolveBoundsHCAs(t *testing.T) {
	h := node()
	h.hcas = nil
	for range 40 {
		h.hcas = append(h.hcas, HCA{Name: "mlx5_" + strings.Repeat("x", len(h.hcas)), Usable: true,
			Ports: []HCAPort{{Number: 1, State: discover.PortActive}}})
	}
	st, problem := Resolve(h, Request{Node: "node-a", PodIP: "10.0.0.7", Ranks: 8})
	if problem != nil || len(st.HCAs) != maxStatusHCAs {
		t.Errorf("%d HCAs, problem %v", len(st.HCAs), problem)
	}
}

func TestEnvironment(t *testing.T) {
	st := api.NetworkStatus{Interface: "eth1", Addresses: []string{"10.4.0.7", "fd00::7"},
		HCAs: []string{"mlx5_0:1", "mlx5_1"}}
	for name, tc := range map[string]struct {
		spec   api.NetworkSpec
		family api.AddressFamily
		want   []string
	}{
		"nothing asked for": {want: []string{"NCCL_SOCKET_IFNAME==eth1"}},
		"auto":              {family: api.AddressFamilyAuto, want: []string{"NCCL_SOCKET_IFNAME==eth1"}},
		"all": {spec: api.NetworkSpec{HCAs: st.HCAs, GIDIndex: gid(3)}, family: api.AddressFamilyIPv6,
			want: []string{"NCCL_IB_GID_INDEX=3", "NCCL_IB_HCA==mlx5_0:1,mlx5_1", "NCCL_SOCKET_FAMILY=AF_INET6",
				"NCCL_SOCKET_IFNAME==eth1"}},
		"IPv4, GID 0": {spec: api.NetworkSpec{GIDIndex: gid(0)}, family: api.AddressFamilyIPv4,
			want: []string{"NCCL_IB_GID_INDEX=0", "NCCL_SOCKET_FAMILY=AF_INET", "NCCL_SOCKET_IFNAME==eth1"}},
	} {
		var got []string
		for _, e := range Environment(Request{Spec: tc.spec}, st, tc.family) {
			got = append(got, e.Name+"="+e.Value)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	for family, want := range map[api.AddressFamily]string{"": "10.4.0.7", api.AddressFamilyAuto: "10.4.0.7",
		api.AddressFamilyIPv4: "10.4.0.7", api.AddressFamilyIPv6: "fd00::7"} {
		if got, ok := Address(st, family); !ok || got.String() != want {
			t.Errorf("family %q: address %s, want %s", family, got, want)
		}
	}
	if _, ok := Address(api.NetworkStatus{Addresses: []string{"10.4.0.7", "text"}}, api.AddressFamilyIPv6); ok {
		t.Error("an IPv6 address of a node that has none")
	}
	a, _ := Address(st, api.AddressFamilyIPv6)
	if e := RendezvousEnvironment(a, 30001); e.Name != "NCCL_COMM_ID" || e.Value != "[fd00::7]:30001" {
		t.Errorf("rendezvous %+v", e)
	}
	a, _ = Address(st, api.AddressFamilyIPv4)
	if e := RendezvousEnvironment(a, 30001); e.Value != "10.4.0.7:30001" {
		t.Errorf("rendezvous %+v", e)
	}
}

func TestLogEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		own               []api.EnvVar
		level, subsystems string
	}{
		"none":             {nil, "INFO", "INIT,NET"},
		"less":             {own(envDebug, "WARN"), "INFO", "INIT,NET"},
		"more":             {own(envDebug, "TRACE"), "TRACE", "INIT,NET"},
		"others":           {own(envDebugSubsystems, "COLL,net,GRAPH"), "INFO", "INIT,NET,COLL,GRAPH"},
		"all but":          {own(envDebugSubsystems, "^COLL"), "INFO", "INIT,NET"},
		"a file of theirs": {own(envDebugFile, "log.%h"), "INFO", "INIT,NET"},
	} {
		got := map[string]string{}
		for _, e := range LogEnvironment(tc.own) {
			got[e.Name] = e.Value
		}
		if got[envDebug] != tc.level || got[envDebugSubsystems] != tc.subsystems ||
			got[envDebugFile] != "" || len(got) != 3 {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

package network

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

func TestPickPort(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.7")
	r := Request{Node: "node-a", Spec: api.NetworkSpec{PortRange: portRange(30000, 30999)}}
	seen := map[int]string{}
	collisions := 0
	for _, key := range []string{"run-1/group-1/group", "run-1/group-2/group", "run-2/group-1/group",
		"run-1/mesh-dp-1/dp/0", "run-1/mesh-dp-1/dp/1", "run-1/mesh-dp-1/dp/2"} {
		port, problem := PickPort(node(), r, addr, key)
		if problem != nil || port < 30000 || port > 30999 {
			t.Fatalf("%s: port %d, %v", key, port, problem)
		}
		if again, _ := PickPort(node(), r, addr, key); again != port {
			t.Errorf("%s: port %d, then %d: not the same for the same key", key, port, again)
		}
		if seen[port] != "" {
			collisions++
		}
		seen[port] = key
	}
	if collisions > 1 {
		t.Errorf("%d of 6 keys share a port of 1000", collisions)
	}
	// The only free port is found from wherever the search starts.
	for _, free := range []int{30000, 30500, 30999} {
		h := node()
		h.busy = inUse(30000, 30999)
		delete(h.busy, free)
		if port, problem := PickPort(h, r, addr, "run-1/group-1/group"); port != free || problem != nil {
			t.Errorf("port %d, want %d: %v", port, free, problem)
		}
		if h.portFreeCalled > 1000 {
			t.Errorf("asked %d times for 1000 ports", h.portFreeCalled)
		}
	}
	h := node()
	h.busy = inUse(30000, 30999)
	_, problem := PickPort(h, r, addr, "k")
	wantProblem(t, problem, api.ReasonPortRangeNotUsable, "1000 ports 30000-30999", "10.0.0.7", "network namespace")
	h.socketsErr = errDenied
	_, problem = PickPort(h, r, addr, "k")
	wantProblem(t, problem, api.ReasonPortRangeNotUsable, "not known: denied for the test")
	_, problem = PickPort(h, Request{Node: "node-a"}, addr, "k")
	wantProblem(t, problem, api.ReasonPortRangeNotUsable, "without network.portRange")
	_, problem = PickPort(h,
		Request{Node: "node-a", Spec: api.NetworkSpec{PortRange: portRange(30000, 29999)}}, addr, "k")
	wantProblem(t, problem, api.ReasonPortRangeNotUsable, "is no range")
}

// On the real kernel: a port that is listened on is not free, and free again once closed; its holder is seen.
func TestPortFreeOnLoopback(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		t.Skipf("nothing can listen on loopback here: %v", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	h := NodeHost{}
	if err := h.PortFree(addr, port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("port %d is listened on, but PortFree says %v", port, err)
	}
	r := Request{Node: "node-a", Spec: api.NetworkSpec{PortRange: portRange(int32(port), int32(port))}} //nolint:gosec // a port
	_, problem := PickPort(h, r, addr, "k")
	wantProblem(t, problem, api.ReasonPortRangeNotUsable, "1 are in use (sockets: 1 listening")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.PortFree(addr, port); err != nil {
		t.Errorf("port %d was closed, but PortFree says %v", port, err)
	}
	if err := h.PortFree(netip.MustParseAddr("192.0.2.1"), port); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("an address of the documentation's network: %v", err)
	}
	if first, last, err := h.LocalPorts(); err != nil || first < 1 || last < first {
		t.Errorf("local ports %d-%d: %v", first, last, err)
	}
}

func TestParseLocalPorts(t *testing.T) {
	if first, last, err := parseLocalPorts([]byte("32768\t60999\n")); first != 32768 || last != 60999 || err != nil {
		t.Errorf("%d-%d: %v", first, last, err)
	}
	for _, bad := range []string{"", "32768", "a b", "60999 32768", "1 65536", "-1 5", "1 2 3"} {
		if first, last, err := parseLocalPorts([]byte(bad)); err == nil {
			t.Errorf("%q gives %d-%d", bad, first, last)
		}
	}
}

const tcpList = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0700000A:7530 0800000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0700000A:7531 0800000A:D431 06 00000000:00000000 00:00000000 00000000     0        0 3
   3: broken
   4: 0700000A:0000 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4
`

func TestParseSockets(t *testing.T) {
	got, err := parseSockets(strings.NewReader(tcpList + "0: 0000000000000000FFFF00000700000A:7532 0 0A\n" +
		"1: B80D01200000000000000000010000000:1 0 0A\n2: B80D0120000000000000000001000000:1F91 0 0A\n"))
	a := netip.MustParseAddr
	want := []Socket{{a("127.0.0.1"), 8080, Listening}, {a("10.0.0.7"), 30000, Connected},
		{a("10.0.0.7"), 30001, Closing}, {a("10.0.0.7"), 30002, Listening}, {a("2001:db8::1"), 8081, Listening}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add([]byte(tcpList))
	f.Add([]byte("0: 0000000000000000FFFF00000700000A:7532 0 0A\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sockets, err := parseSockets(bytes.NewReader(data))
		if err != nil {
			return // a line longer than the scanner's buffer
		}
		if len(sockets) > bytes.Count(data, []byte("\n"))+1 {
			t.Fatalf("%d sockets of %d lines", len(sockets), bytes.Count(data, []byte("\n"))+1)
		}
		for _, s := range sockets {
			if s.Port < 1 || s.Port > 65535 || !s.Address.IsValid() || s.Address.Is4In6() {
				t.Errorf("socket %+v", s)
			}
		}
	})
}

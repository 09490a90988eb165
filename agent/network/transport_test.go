package network

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// logOf puts the library's prefix before each line. Texts are as the format strings of the sources give them: NCCL 2.18
// to 2.30 and RCCL 2.21 to 2.28 (src/transport/net_ib.cc, net_ib_rocm.cc, net_socket.cc, net.cc, p2p.cc, shm.cc,
// src/init.cc).
func logOf(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		mark := "NCCL INFO "
		if text, ok := strings.CutPrefix(l, "WARN "); ok {
			mark, l = "misc/ibvwrap.cc:261 NCCL WARN ", text
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "node-a:71:93 [3] %s%s\n", mark, l)
	}
	return b.String()
}

// parseTransport reads a whole log.
func parseTransport(r io.Reader, local []int) (Transport, error) {
	l := NewTransportLog(local)
	_, err := io.Copy(l, r)
	return l.Transport(), err
}

func TestParseTransport(t *testing.T) {
	local := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for name, tc := range map[string]struct {
		log     string
		local   []int
		carrier Carrier
		chosen  Carrier
		devices []string
		direct  int
		causes  []string // parts
		text    string
	}{
		"InfiniBand, NCCL 2.18": {log: logOf("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
			"Using network IB", "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/1/GDRDMA",
			"Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA",
			"Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read"), local: local,
			carrier: RDMA, chosen: RDMA, devices: []string{"mlx5_0:1/IB", "mlx5_1:1/IB"}, direct: 2,
			text: "RDMA over mlx5_0:1/IB, mlx5_1:1/IB, 2 of 2 channels with GPUDirect"},
		"RoCE, RCCL 2.21": {log: logOf("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_2:1/RoCE [RO]; OOB ens3:10.0.0.1<0>",
			"Using network IB",
			"Channel 05/0 : 7[c1000] -> 8[5000] [send] via NET/IB/1/GDRDMA comm 0x55d0c0a0 nRanks 16",
			"Channel 05 : 1[26000] -> 2[46000] via SHM/direct/direct comm 0x55d0c0a0 nRanks 16"),
			local: local, carrier: RDMA, chosen: RDMA, devices: []string{"mlx5_2:1/RoCE"}, direct: 1},
		"merged devices, 2.21": {log: logOf("NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} "+
			"[2]mlx5_4:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA",
			"Channel 01/0 : 7[7] -> 8[0] [send] via NET/IB/2/GDRDMA"), carrier: RDMA, chosen: UnknownCarrier,
			devices: []string{"mlx5_0:1/RoCE+mlx5_1:1/RoCE", "mlx5_4:1/RoCE"}, direct: 2},
		"virtual devices, 2.28": {log: logOf("NET/IB : Made virtual device [0] name=mlx5_0 speed=400000 ndevs=1",
			"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
			"NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2 rail=0 plane=0",
			"Using network IB", "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/2(3)/GDRDMA(PCI)/Shared"),
			carrier: RDMA, chosen: RDMA, devices: []string{"mlx5_0+mlx5_1"}, direct: 1},
		"AMD's NICs, RCCLX": {log: logOf("WARN NET/IB : Failed to open ionicdv symbols. "+
			"Advance features like AINIC UD load balancing will be disabled.",
			"NET/IB : Using [0]ionic_0:1/RoCE [1]ionic_1:1/RoCE [RO]; OOB ens3:10.0.0.1<0>", "Using network ROCM-IB",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/ROCM-IB/1/GDRDMA comm 0x1 nRanks 16"),
			carrier: RDMA, chosen: RDMA, devices: []string{"ionic_1:1/RoCE"}, direct: 1},
		"AMD's plugin": {log: logOf("NET/Plugin: Loaded net plugin RCCL-ANP (v10)",
			"NET/IB : Using [0]ionic_0:1/RoCE; OOB ens3:10.0.0.1<0>", "Using network RCCL-ANP",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/RCCL-ANP/0/GDRDMA comm 0x1 nRanks 16"),
			carrier: RDMA, chosen: RDMA, devices: []string{"ionic_0:1/RoCE"}, direct: 1},
		"TCP, no device": {log: logOf("NET/IB : No device found.", "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>",
			"NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fd00::1<0>", "Using network Socket",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/1",
			"Channel 01/0 : 7[7] -> 8[0] [send] via NET/Socket/1/Shared"),
			carrier: TCP, chosen: TCP, devices: []string{"eth1"}, causes: []string{"no RDMA device"},
			text: "TCP over eth1: the library found no RDMA device"},
		"TCP, no libibverbs": {log: logOf("Failed to open libibverbs.so[.1]",
			"NET/Socket : Using [0]eth0:10.0.0.1<0>", "Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: TCP, chosen: UnknownCarrier, devices: []string{"eth0"}, causes: []string{"rdma-core"}},
		"TCP, locked memory": {log: logOf("WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: TCP, chosen: UnknownCarrier, devices: []string{"Socket/0"}, causes: []string{"memlock limit"}},
		"TCP, not opened": {log: logOf("WARN NET/IB : Unable to open device mlx5_0",
			"WARN Call to ibv_open_device failed", "Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: TCP, chosen: UnknownCarrier, devices: []string{"Socket/0"},
			causes: []string{"mlx5_0: the pod may not open it", "Call to ibv_open_device failed"}},
		"mixed": {log: logOf("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA",
			"Channel 01/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: MixedCarrier, chosen: UnknownCarrier, devices: []string{"IB/0", "Socket/0"}, direct: 1},
		"RDMA through host memory": {log: logOf("GDRDMA not enabled. Could not find memory_peers "+
			"directory or peer_memory symbol", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0"),
			carrier: RDMA, chosen: UnknownCarrier, devices: []string{"IB/0"},
			causes: []string{"host memory (GDRDMA not enabled", "host memory (NET/IB : GPU Direct"}},
		"a far NIC alone without GPUDirect": {log: logOf("NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_9'",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA"),
			carrier: RDMA, chosen: UnknownCarrier, devices: []string{"IB/0"}, direct: 1},
		"one device of two is bad, RDMA works": {log: logOf("WARN NET/IB : Unable to open device mlx5_9",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA"),
			carrier: RDMA, chosen: UnknownCarrier, devices: []string{"IB/0"}, direct: 1},
		"within the node only": {log: logOf("NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket",
			"Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0"), local: local, carrier: UnknownCarrier, chosen: TCP,
			text: "Unknown (the library chose Socket, but no channel to another node was logged)"},
		"a plugin that may go either way": {log: logOf("Using network AWS Libfabric",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA"),
			carrier: UnknownCarrier, chosen: UnknownCarrier, devices: []string{"AWS Libfabric/0"}},
		"a plugin and TCP": {log: logOf("Channel 00/0 : 7[7] -> 8[0] [send] via NET/UCX/0",
			"Channel 01/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: MixedCarrier, chosen: UnknownCarrier, devices: []string{"Socket/0", "UCX/0"}},
		"nothing": {log: "", carrier: UnknownCarrier, chosen: UnknownCarrier, text: "Unknown"},
		"other output": {log: "{\"rank\":0}\nChannel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0\n",
			carrier: UnknownCarrier, chosen: UnknownCarrier},
		"half a line": {log: strings.TrimSuffix(logOf("Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"), "\n"),
			carrier: TCP, chosen: UnknownCarrier, devices: []string{"Socket/0"}},
		"broken lines": {log: logOf("Channel 00/0 : 7[7] -> [send] via NET/IB/0",
			"Channel 00/0 : x[7] -> 8[0] via NET/IB/0", "Channel 00/0 7[7] -> 8[0] via NET/IB/0",
			"Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB", "Channel 00/0 : 7[7] -> 8[0] [send] via NET//0",
			"NET/IB : Using [x]a [-1]b [", "NET/IB : Made virtual device 7", "NET/IB : Using [0]={"),
			carrier: UnknownCarrier, chosen: UnknownCarrier},
		"a line without an end": {log: strings.Repeat("x", 1<<16) + "NCCL INFO Channel 00/0 : " +
			"7[7] -> 8[0] [send] via NET/IB/0\n" + logOf("Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"),
			carrier: TCP, chosen: UnknownCarrier, devices: []string{"Socket/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTransport(strings.NewReader(tc.log), tc.local)
			if err != nil {
				t.Fatal(err)
			}
			slow, err := parseTransport(iotest.OneByteReader(strings.NewReader(tc.log)), tc.local)
			if err != nil || fmt.Sprintf("%+v", slow) != fmt.Sprintf("%+v", got) {
				t.Errorf("byte by byte %+v, at once %+v", slow, got)
			}
			if got.Carrier != tc.carrier || got.Chosen != tc.chosen || !slices.Equal(got.Devices, tc.devices) ||
				got.GPUDirect != tc.direct {
				t.Errorf("got %+v", got)
			}
			if len(got.Causes) != len(tc.causes) {
				t.Fatalf("causes %q, want %q", got.Causes, tc.causes)
			}
			for k, c := range tc.causes {
				if !strings.Contains(got.Causes[k], c) {
					t.Errorf("cause %q lacks %q", got.Causes[k], c)
				}
			}
			if !strings.HasPrefix(got.String(), tc.text) {
				t.Errorf("text %q, want %q", got, tc.text)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	rdma := Transport{Carrier: RDMA, Chosen: RDMA, Network: "IB", RDMAChannels: 2, GPUDirect: 1,
		Devices: []string{"mlx5_0:1/IB"}}
	tcp := Transport{Carrier: TCP, Chosen: TCP, Network: "Socket", TCPChannels: 1, Devices: []string{"eth0"},
		Causes: []string{"x"}}
	inside := Transport{Carrier: UnknownCarrier, Chosen: RDMA, Network: "IB", P2PChannels: 4, SHMChannels: 1,
		Causes: []string{"x"}}
	if got := Join(rdma, inside, rdma); got.Carrier != RDMA || got.Chosen != RDMA || got.Network != "IB" ||
		got.RDMAChannels != 4 || got.GPUDirect != 2 || got.P2PChannels != 4 || got.SHMChannels != 1 ||
		len(got.Devices) != 1 || len(got.Causes) != 0 {
		t.Errorf("RDMA: %+v", got)
	}
	if got := Join(rdma, tcp); got.Carrier != MixedCarrier || got.Chosen != MixedCarrier ||
		got.Network != "IB+Socket" || len(got.Devices) != 2 || len(got.Causes) != 1 {
		t.Errorf("mixed: %+v", got)
	}
	if got := Join(inside); got.Carrier != UnknownCarrier || got.Chosen != RDMA {
		t.Errorf("inside: %+v", got)
	}
	if got := Join(); got.Carrier != UnknownCarrier || got.Chosen != UnknownCarrier {
		t.Errorf("none: %+v", got)
	}
	many := Transport{RDMAChannels: 1}
	for k := range 40 {
		many.addDevice(fmt.Sprintf("mlx5_%02d:1/IB", k))
	}
	if got := Join(many).String(); !strings.HasSuffix(got, "mlx5_07:1/IB and 24 more, 0 of 1 channels with GPUDirect") {
		t.Errorf("many devices: %s", got)
	}
}

// Memory and results stay bounded and consistent whatever the log says.
func FuzzTransportLog(f *testing.F) {
	f.Add([]byte(logOf("NET/IB : Using [0]={[0] mlx5_0:1/RoCE, "+
		"[1] mlx5_1:1/RoCE} [2]mlx5_4:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "Using network IB",
		"Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/2(3)/GDRDMA(PCI)/Shared comm 0x1 nRanks 16")), uint8(3))
	f.Add([]byte(logOf("WARN Call to ibv_reg_mr failed with error Cannot allocate memory", "NET/Socket : Using "+
		"[0]eth0:fe80::1%eth0<0>", "Channel 01/0 : 0[0] -> 8[0] [receive] via NET/Socket/0")), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		l := NewTransportLog([]int{0, 1})
		for rest := data; len(rest) > 0; {
			n := min(len(rest), int(cut)+1)
			if written, err := l.Write(rest[:n]); written != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", written, n, err)
			}
			rest = rest[n:]
			if len(l.line) > maxLineBytes || len(l.devices) > 256 || len(l.channels) > 256 {
				t.Fatalf("keeps %d bytes, %d devices, %d channels", len(l.line), len(l.devices), len(l.channels))
			}
		}
		got := l.Transport()
		if again := l.Transport(); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", got) {
			t.Errorf("asked twice: %+v, then %+v", got, again)
		}
		if len(got.Devices) > maxStatusHCAs || len(got.Causes) > maxCauses || got.GPUDirect > got.RDMAChannels {
			t.Errorf("out of bounds: %+v", got)
		}
		switch lines := bytes.Count(data, []byte("Channel ")); {
		case got.RDMAChannels+got.TCPChannels+got.OtherChannels+got.P2PChannels+got.SHMChannels > lines:
			t.Errorf("more channels than lines: %+v", got)
		case got.Carrier == RDMA && (got.RDMAChannels == 0 || got.TCPChannels+got.OtherChannels > 0),
			got.Carrier == TCP && got.TCPChannels == 0:
			t.Errorf("a carrier that no channel shows: %+v", got)
		}
	})
}

func TestRequireRDMA(t *testing.T) {
	findings := []preflight.Finding{{Name: preflight.SharedMemory, State: preflight.Warning, Message: "small"},
		{Name: preflight.LockedMemory, State: preflight.Warning, Message: "8 MiB"}}
	if got := RequireRDMA(api.NetworkSpec{}, findings); preflight.FirstFailed(got) != nil {
		t.Errorf("failed although TCP will do: %v", got)
	}
	got := RequireRDMA(api.NetworkSpec{RequireTransport: api.TransportRDMA}, findings)
	failed := preflight.FirstFailed(got)
	if failed == nil || failed.Name != preflight.LockedMemory ||
		!strings.Contains(failed.Message, "requireTransport is RDMA") || !strings.Contains(failed.Message, "8 MiB") {
		t.Errorf("got %v", got)
	}
	if findings[1].State != preflight.Warning {
		t.Error("changed the caller's findings")
	}
	met := []preflight.Finding{{Name: preflight.LockedMemory, State: preflight.Met}}
	if preflight.FirstFailed(RequireRDMA(api.NetworkSpec{RequireTransport: api.TransportRDMA}, met)) != nil {
		t.Error("failed although memory may be locked")
	}
}

// TestWhereToLookIsTold: of data that went over TCP without a cause in the log a user learns where to look; a cause
// that is known is told alone, and of RDMA and of what is not known there is nothing to add.
func TestWhereToLookIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		of   Transport
		want int
	}{
		"TCP":              {Transport{Carrier: TCP}, 1},
		"mixed":            {Transport{Carrier: MixedCarrier}, 1},
		"TCP with a cause": {Transport{Carrier: TCP, Causes: []string{"x"}}, 1},
		"RDMA":             {Transport{Carrier: RDMA}, 0},
		"unknown":          {Transport{Carrier: UnknownCarrier}, 0},
	} {
		tc.of.TellNext()
		if got := tc.of.Causes; len(got) != tc.want || name != "TCP with a cause" && tc.want > 0 &&
			!strings.Contains(tc.of.String(), "memlock") || name == "TCP with a cause" && got[0] != "x" {
			t.Errorf("%s: %q", name, tc.of)
		}
	}
}

// TestBesideAnUnknownPluginRDMAIsUnknown: RDMA is only what all channels between nodes took; a plugin may take any way.
func TestBesideAnUnknownPluginRDMAIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		rdma, tcp, other int
		want             Carrier
	}{{1, 0, 0, RDMA}, {8, 0, 1, UnknownCarrier}, {0, 0, 1, UnknownCarrier}, {0, 1, 1, MixedCarrier},
		{1, 1, 0, MixedCarrier}, {0, 1, 0, TCP}, {0, 0, 0, UnknownCarrier}} {
		if got := Join(Transport{RDMAChannels: tc.rdma, TCPChannels: tc.tcp,
			OtherChannels: tc.other}); got.Carrier != tc.want {
			t.Errorf("%d channels of RDMA, %d of TCP, %d of others are %s, want %s",
				tc.rdma, tc.tcp, tc.other, got.Carrier, tc.want)
		}
	}
}

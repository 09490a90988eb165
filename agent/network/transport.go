package network

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// Carrier is what carried the data between nodes.
type Carrier string

// The carriers. Unknown: the log does not tell. Mixed: some channels went one way and some the other.
const (
	RDMA           Carrier = "RDMA"
	TCP            Carrier = "TCP"
	MixedCarrier   Carrier = "Mixed"
	UnknownCarrier Carrier = "Unknown"
)

// Transport is what the library's log says of how data travelled.
type Transport struct {
	// Carrier between nodes, by the channels that were connected to other nodes; Unknown where the log shows none.
	Carrier Carrier
	// Chosen is the carrier of the network that the library said it would use, a weaker sign; Unknown where it said
	// none.
	Chosen Carrier
	// Network is the library's word for it: IB, Socket, or a plugin's name.
	Network string
	// Devices that channels used, as mlx5_0:1/RoCE or eth0; their index where the log does not name them. At most 32.
	Devices []string
	// Channels to other nodes by carrier, and within the node.
	RDMAChannels, TCPChannels, OtherChannels, P2PChannels, SHMChannels int
	// GPUDirect are those of the channels to other nodes on which the NIC reads and writes GPU memory itself.
	GPUDirect int
	// Causes say why the library did not use RDMA, or not GPU memory directly, in its own words explained; at most 4.
	Causes []string
}

// String is the transport for a message: "RDMA over mlx5_0:1/RoCE, mlx5_1:1/RoCE, 16 of 16 channels with GPUDirect".
func (t Transport) String() string {
	text := string(t.Carrier)
	if t.Carrier == UnknownCarrier && t.Chosen != UnknownCarrier {
		text = fmt.Sprintf("Unknown (the library chose %s, but no channel to another node was logged)", t.Network)
	}
	if len(t.Devices) > 0 {
		devices := strings.Join(t.Devices[:min(len(t.Devices), maxCandidates)], ", ")
		if len(t.Devices) > maxCandidates {
			devices += fmt.Sprintf(" and %d more", len(t.Devices)-maxCandidates)
		}
		text += " over " + devices
	}
	if t.RDMAChannels > 0 {
		text += fmt.Sprintf(", %d of %d channels with GPUDirect", t.GPUDirect, t.RDMAChannels)
	}
	if len(t.Causes) > 0 {
		text += ": " + strings.Join(t.Causes, "; ")
	}
	return text
}

// Join is the transport of several ranks of one communicator.
func Join(all ...Transport) Transport {
	out := Transport{Carrier: UnknownCarrier, Chosen: UnknownCarrier}
	for _, t := range all {
		out.RDMAChannels += t.RDMAChannels
		out.TCPChannels += t.TCPChannels
		out.OtherChannels += t.OtherChannels
		out.P2PChannels += t.P2PChannels
		out.SHMChannels += t.SHMChannels
		out.GPUDirect += t.GPUDirect
		out.Network = joinWords(out.Network, t.Network)
		out.Chosen = joinCarriers(out.Chosen, t.Chosen)
		for _, d := range t.Devices {
			out.addDevice(d)
		}
		for _, c := range t.Causes {
			out.addCause(c)
		}
	}
	out.settle()
	return out
}

// joinWords adds a network's name to those of other ranks.
func joinWords(all, name string) string {
	switch {
	case all == "":
		return name
	case name == "" || slices.Contains(strings.Split(all, "+"), name):
		return all
	}
	return all + "+" + name
}

func joinCarriers(a, b Carrier) Carrier {
	switch {
	case a == UnknownCarrier || a == b || a == "":
		return b
	case b == UnknownCarrier || b == "":
		return a
	}
	return MixedCarrier
}

func (t *Transport) addDevice(d string) {
	if len(t.Devices) < maxStatusHCAs && !slices.Contains(t.Devices, d) {
		t.Devices = append(t.Devices, d)
		slices.Sort(t.Devices)
	}
}

const maxCauses = 4

func (t *Transport) addCause(c string) {
	if len(t.Causes) < maxCauses && !slices.Contains(t.Causes, c) {
		t.Causes = append(t.Causes, c)
	}
}

// settle decides the carrier by the channels to other nodes, and drops causes that did no harm.
func (t *Transport) settle() {
	switch {
	case t.TCPChannels > 0 && t.RDMAChannels+t.OtherChannels > 0:
		t.Carrier = MixedCarrier
	case t.TCPChannels > 0:
		t.Carrier = TCP
	case t.RDMAChannels > 0 && t.OtherChannels == 0:
		t.Carrier = RDMA
	default:
		t.Carrier = UnknownCarrier
	}
	t.Causes = slices.DeleteFunc(t.Causes, func(c string) bool {
		direct := strings.HasPrefix(c, noGPUDirect)
		return direct && t.GPUDirect > 0 || !direct && t.Carrier == RDMA
	})
}

// TellNext adds where to look, for who needs RDMA, where data went over TCP and the log gives no cause.
func (t *Transport) TellNext() {
	if (t.Carrier == TCP || t.Carrier == MixedCarrier) && len(t.Causes) == 0 {
		t.addCause("the library's log gives no cause: look at the pod's RDMA resources (network.rdmaResources), " +
			"its memlock limit, and `ibv_devinfo` on the node")
	}
}

// maxLineBytes of a line are read; the library's own lines have at most 1,024 (NCCL src/debug.cc).
const maxLineBytes = 4096

// TransportLog reads the library's log as it is written and keeps what it says of the transport, in bounded memory. It
// is an io.WriteCloser that never fails or blocks. It is not safe for concurrent use.
type TransportLog struct {
	// local are the ranks of this node: a channel between two of them does not tell what is between nodes. Nil: every
	// channel over the network counts.
	local map[int]bool

	t        Transport
	line     []byte
	devices  map[string]string // name by network and index: "IB/3"
	channels []string          // devices that channels used, as "IB/3"
}

// NewTransportLog reads the log of one rank. local are the ranks of its communicator on this node.
func NewTransportLog(local []int) *TransportLog {
	l := &TransportLog{t: Transport{Carrier: UnknownCarrier, Chosen: UnknownCarrier}, devices: map[string]string{}}
	if len(local) > 0 {
		l.local = map[int]bool{}
		for _, r := range local {
			l.local[r] = true
		}
	}
	return l
}

// Write takes the next piece of the log.
func (l *TransportLog) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		piece := rest
		if end >= 0 {
			piece, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		if room := maxLineBytes - len(l.line); len(piece) > room {
			piece = piece[:room]
		}
		l.line = append(l.line, piece...)
		if end >= 0 {
			l.take(string(l.line))
			l.line = l.line[:0]
		}
	}
	return len(p), nil
}

// Close takes a last line without an end.
func (l *TransportLog) Close() error {
	if len(l.line) > 0 {
		l.take(string(l.line))
		l.line = l.line[:0]
	}
	return nil
}

// Transport is what the log has said so far.
func (l *TransportLog) Transport() Transport {
	_ = l.Close()
	t := l.t
	t.Causes = slices.Clone(t.Causes)
	for _, key := range l.channels {
		network, index, _ := strings.Cut(key, "/")
		name, ok := l.devices[key]
		if !ok && carrierOf(network) == RDMA { // AMD's networks list their devices as IB's
			name, ok = l.devices["IB/"+index]
		}
		if !ok {
			name = key
		}
		t.addDevice(name)
	}
	t.settle()
	return t
}

// take reads one line: "host:pid:tid [device] NCCL INFO text", with a file's name before WARN.
func (l *TransportLog) take(line string) {
	text := ""
	for _, mark := range []string{"NCCL INFO ", "NCCL WARN "} {
		if _, after, found := strings.Cut(line, mark); found {
			text = strings.TrimSpace(after)
			break
		}
	}
	switch {
	case text == "":
	case strings.HasPrefix(text, "NET/IB : Using"):
		l.takeDevices("IB", strings.TrimPrefix(text, "NET/IB : Using"))
	case strings.HasPrefix(text, "NET/Socket : Using"):
		l.takeDevices("Socket", strings.TrimPrefix(text, "NET/Socket : Using"))
	case strings.HasPrefix(text, "NET/IB : Made virtual device "):
		l.takeVirtual(strings.TrimPrefix(text, "NET/IB : Made virtual device "))
	case strings.HasPrefix(text, "Using network "):
		l.t.Network = bounded(strings.TrimSpace(strings.TrimPrefix(text, "Using network ")))
		l.t.Chosen = carrierOf(l.t.Network)
	case strings.HasPrefix(text, "Channel "):
		l.takeChannel(text)
	default:
		if cause := causeOf(text); cause != "" {
			l.t.addCause(cause)
		}
	}
}

// takeDevices reads " [0]mlx5_0:1/RoCE [1]={[1] mlx5_1:1/RoCE, ...} [RO]; OOB eth0:10.0.0.1<0>": merged devices of 2.21
// to 2.23 are in braces.
func (l *TransportLog) takeDevices(network, text string) {
	text, _, _ = strings.Cut(text, "; OOB")
	for text != "" && len(l.devices) < 256 {
		_, after, found := strings.Cut(text, "[")
		if !found {
			return
		}
		number, rest, found := strings.Cut(after, "]")
		index, err := strconv.Atoi(number)
		if !found || err != nil || index < 0 {
			text = after
			continue
		}
		name := rest
		if merged, ok := strings.CutPrefix(rest, "={"); ok {
			name, text, _ = strings.Cut(merged, "}")
			name = mergedName(name)
		} else if at := strings.Index(rest, " ["); at >= 0 {
			name, text = rest[:at], rest[at:]
		} else {
			text = ""
		}
		name = strings.TrimSpace(name)
		if network == "Socket" { // eth0:10.0.0.1<0>
			name, _, _ = strings.Cut(name, ":")
		}
		if name != "" {
			l.devices[fmt.Sprintf("%s/%d", network, index)] = bounded(name)
		}
	}
}

// mergedName makes "mlx5_0:1/RoCE+mlx5_1:1/RoCE" of "[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE".
func mergedName(text string) string {
	var names []string
	for part := range strings.SplitSeq(text, "[") {
		if _, name, found := strings.Cut(part, "]"); found {
			names = append(names, strings.Trim(name, " ,"))
		}
	}
	return strings.Join(names, "+")
}

// takeVirtual reads "[8] name=mlx5_0+mlx5_1 speed=400000 ndevs=2" (2.24 and later).
func (l *TransportLog) takeVirtual(text string) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
	index, err := strconv.Atoi(number)
	_, name, found := strings.Cut(rest, "name=")
	if err != nil || !found || len(l.devices) >= 256 {
		return
	}
	name, _, _ = strings.Cut(name, " ")
	l.devices[fmt.Sprintf("IB/%d", index)] = bounded(name)
}

// takeChannel reads "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/7(3)/GDRDMA/Shared" and its like: RCCL writes the
// PCI address in hexadecimal in the brackets, and the communicator behind.
func (l *TransportLog) takeChannel(text string) {
	_, text, ok := strings.Cut(text, " : ")
	ends, via, okVia := strings.Cut(text, " via ")
	from, rest, okFrom := cutRank(ends)
	_, rest, okArrow := strings.Cut(rest, "-> ")
	to, _, okTo := cutRank(rest)
	if !ok || !okVia || !okFrom || !okArrow || !okTo {
		return
	}
	via, _, _ = strings.Cut(via, " comm ")
	inside := l.local != nil && l.local[from] && l.local[to]
	switch {
	case strings.HasPrefix(via, "P2P/"):
		l.t.P2PChannels++
	case strings.HasPrefix(via, "SHM"):
		l.t.SHMChannels++
	case strings.HasPrefix(via, "NET/") && !inside:
		l.takeNet(strings.TrimPrefix(via, "NET/"))
	}
}

// takeNet reads "IB/7(3)/GDRDMA(PCI)/Shared"; a plugin's name may hold spaces.
func (l *TransportLog) takeNet(via string) {
	name, rest, _ := strings.Cut(via, "/")
	device, flags, _ := strings.Cut(rest, "/")
	device, _, _ = strings.Cut(device, "(")
	if _, err := strconv.Atoi(device); err != nil || name == "" {
		return
	}
	direct := slices.ContainsFunc(strings.Split(flags, "/"), func(f string) bool {
		return strings.HasPrefix(f, "GDRDMA")
	})
	switch carrierOf(name) {
	case RDMA:
		l.t.RDMAChannels++
		if direct {
			l.t.GPUDirect++
		}
	case TCP:
		l.t.TCPChannels++
	default:
		l.t.OtherChannels++
	}
	if key := bounded(name + "/" + device); len(l.channels) < 256 && !slices.Contains(l.channels, key) {
		l.channels = append(l.channels, key)
	}
}

// cutRank reads the rank before "[".
func cutRank(text string) (rank int, rest string, ok bool) {
	number, rest, found := strings.Cut(strings.TrimSpace(text), "[")
	rank, err := strconv.Atoi(number)
	return rank, rest, found && err == nil && rank >= 0
}

// bounded keeps what the library says short.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), 96)], "") }

// carrierOf knows the networks that are built in and the plugins that carry data one way only. Libfabric and UCX may go
// over either, so that they stay unknown.
func carrierOf(network string) Carrier {
	switch {
	// net_ib.cc; RCCL's for AMD's own NICs, net_ib_rocm.cc
	case network == "IB" || network == "ROCM-IB" || network == "IB-CAST":
		return RDMA
	// nccl-rdma-sharp-plugins; AMD's plugin for its own NICs
	case strings.HasPrefix(network, "IBext") || network == "RCCL-ANP":
		return RDMA
	case network == "Socket": // net_socket.cc
		return TCP
	}
	return UnknownCarrier
}

// noGPUDirect begins the causes why data goes through host memory.
const noGPUDirect = "data goes through host memory"

// causeOf explains the library's words on why RDMA is not used (NCCL src/transport/net_ib.cc, src/misc/ibvwrap.cc,
// src/misc/ibvsymbols.cc; RCCL src/transport/net_ib.cc); empty for all others.
func causeOf(text string) string {
	switch {
	case strings.HasPrefix(text, "NET/IB : No device found"):
		return "the library found no RDMA device: ask for the devices with network.rdmaResources, and look whether " +
			"the image has libibverbs and the NIC's provider"
	case strings.HasPrefix(text, "Failed to open libibverbs.so"):
		return "the image has no libibverbs (Failed to open libibverbs.so): install rdma-core in the runtime image"
	case strings.HasPrefix(text, "NET/IB : Unable to open device"):
		return bounded(text) + ": the pod may not open it; ask for it with network.rdmaResources"
	case strings.HasPrefix(text, "Call to ibv_") && strings.Contains(text, "Cannot allocate memory"):
		return "memory could not be registered for RDMA (" + bounded(text) +
			"): raise the memlock limit in the container runtime"
	case strings.HasPrefix(text, "Call to ibv_") && strings.Contains(text, " failed"):
		return bounded(text)
	case strings.Contains(text, "GPU Direct RDMA Disabled for HCA"),
		strings.Contains(text, "Could not find memory_peers directory"):
		return noGPUDirect + " (" + bounded(text) +
			"): load the peer memory module of the NIC's driver, or use a kernel with DMA-BUF"
	}
	return ""
}

// RequireRDMA makes warnings failures that mean that RDMA will not work, for a group that requires it: registration of
// memory fails silently where little may be locked, and the library goes over TCP.
func RequireRDMA(spec api.NetworkSpec, findings []preflight.Finding) []preflight.Finding {
	if spec.RequireTransport != api.TransportRDMA {
		return findings
	}
	out := slices.Clone(findings)
	for k := range out {
		if f := &out[k]; f.Name == preflight.LockedMemory && f.State == preflight.Warning {
			f.State = preflight.Failed
			f.Message = "network.requireTransport is RDMA, for which memory must be locked: " + f.Message
		}
	}
	return out
}

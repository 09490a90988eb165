// Command nodetree writes the tree of a simulated node:
//
//	go run ./hack/simrocm/cmd/nodetree --dir D --model MI300X --name sim-0 --fault hang:3
//
// --fault is of the simulated library; what the tree itself shows wrong has flags of its own, which may be repeated:
//
//	go run ./hack/simrocm/cmd/nodetree --dir D --partition CPX/NPS4 --missing-partition 7=1 --ras 0:umc=2,0,1
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodetree:", err)
		os.Exit(1)
	}
}

// change is one flag's change of the node.
type change func(*nodetree.Node) error

func run(args []string) error {
	dir, n, err := parse(args)
	if err != nil {
		return err
	}
	return nodetree.Write(dir, n)
}

// parse gives the directory and the node that the flags ask for.
func parse(args []string) (string, nodetree.Node, error) {
	flags := flag.NewFlagSet("nodetree", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory to write into")
	model := flags.String("model", "MI300X", "one of "+strings.Join(nodetree.Models(), ", "))
	name := flags.String("name", "sim-node-0", "name of the node")
	fault := flags.String("fault", "none", "slow-link:A-B:PERCENT, hang:R, wrong-data:R, init-abort:R, init-hang:R, "+
		"destroy-hang:R, segfault:R, late:R:MS, garbage-version:N, missing-symbol:NAME, low-memory:MIB or none; "+
		"over several nodes slow-nic:GPU:PERCENT, slow-node-net:PERCENT, slow-pair-nodes:NODE:PERCENT, "+
		"hang-pair-nodes:NODE, hang-across, die-across, wrong-across, no-rdma; several with commas")
	flavor := flags.String("flavor", "rcclx-dev", "rccl, rccl-dda, rcclx-dev or rcclx-stable")
	rocm := flags.String("rocm", "", "ROCm version on the host; \"none\" for no ROCm, empty for the model's default")
	driver := flags.String("driver", string(nodetree.DriverDKMS), "DKMS, InTree or BuiltIn")
	partition := flags.String("partition", string(nodetree.SPX),
		"SPX, DPX, TPX, QPX or CPX, and after a slash NPS1, NPS2 or NPS4, as the model has them")
	nics := flags.Int("nics", -1, "number of RDMA devices; -1 for as many as the model's server has")
	nicKind := flags.String("nic-kind", "",
		"Ethernet, InfiniBand, Broadcom or Pensando; empty for the model's usual one")
	generation := flags.Uint64("generation", 0, "generation of KFD's topology; 0 for the usual one")
	locked := flags.Int64("locked-memory", 0, "bytes that a process may lock; 0 for no limit")
	metrics := flags.String("metrics", "", "revision of gpu_metrics, 1.3 to 1.9, or none; empty for the model's")
	var changes []change
	add := func(name, usage string, parse func(string) (change, error)) {
		flags.Func(name, usage, func(text string) error {
			c, err := parse(text)
			changes = append(changes, c)
			return err
		})
	}
	add("link", "A-B=pcie, A-B=none or A-B=MBPS (KFD's bandwidth); A>B for one way only", parseLink)
	add("missing-gpu", "GPU that fell off the bus", forGPU(func(g *nodetree.GPU) { g.Missing = true }))
	add("unbound-gpu", "GPU that is on the PCI bus but not in KFD", forGPU(func(g *nodetree.GPU) { g.Unbound = true }))
	add("no-render-node", "GPU without a DRM render node", forGPU(func(g *nodetree.GPU) { g.NoRenderNode = true }))
	add("numa-unknown", "GPU whose numa_node is -1", forGPU(func(g *nodetree.GPU) { g.NUMANode = -1 }))
	add("missing-partition", "GPU=COUNT partitions that KFD lacks", forNumber(func(g *nodetree.GPU, n uint64) { g.MissingPartitions = int(n) })) //nolint:gosec // checked by Write
	add("hive", "GPU=N: its xGMI hive from 1, or 0 for in none", forNumber(func(g *nodetree.GPU, n uint64) {
		if g.Hive = int(n); n == 0 { //nolint:gosec // a small number
			g.Hive = -1
		}
	}))
	add("retired-pages", "GPU=COUNT memory pages that were retired", forNumber(func(g *nodetree.GPU, n uint64) { g.RetiredPages = int(n) })) //nolint:gosec // a small number
	add("firmware", "GPU=VERSION of its MEC firmware", forNumber(func(g *nodetree.GPU, n uint64) { g.Firmware = n }))
	add("device-id", "GPU=ID, for example 3=0x74a5", forNumber(func(g *nodetree.GPU, n uint64) { g.DeviceID = n }))
	add("port-down", "GPU=PORT: an xGMI port that gpu_metrics states as down",
		forNumber(func(g *nodetree.GPU, n uint64) {
			g.DownPorts = append(g.DownPorts, int(n)) //nolint:gosec // checked by Write
		}))
	add("pcie-width", "GPU=LANES in use", forNumber(func(g *nodetree.GPU, n uint64) { g.PCIeWidth = int(n) })) //nolint:gosec // a small number
	add("throttle", "GPU=N: gpu_metrics counts N ticks of the power limit, or has that mask of causes (up to 1.5)",
		forNumber(func(g *nodetree.GPU, n uint64) {
			g.ThrottleStatus = uint32(n)                              //nolint:gosec // cut to the field's width
			g.ThrottleResidency = map[string]uint32{"ppt": uint32(n)} //nolint:gosec // cut to the field's width
		}))
	add("ras", "GPU:BLOCK=UNCORRECTABLE,CORRECTABLE,DEFERRED error counts", parseErrors)
	add("nic-down", "RDMA device whose port is down", func(text string) (change, error) {
		nic, err := strconv.Atoi(text)
		return func(n *nodetree.Node) error { n.DownNICs = append(n.DownNICs, nic); return nil }, err
	})
	if err := flags.Parse(args); err != nil {
		return "", nodetree.Node{}, err
	}
	if *dir == "" || flags.NArg() > 0 {
		return "", nodetree.Node{}, fmt.Errorf("--dir is required, and no other arguments")
	}
	n, err := nodetree.Defaults(*model)
	if err != nil {
		return "", nodetree.Node{}, err
	}
	n.Name, n.Fault, n.Flavor = *name, *fault, *flavor
	compute, memory, _ := strings.Cut(*partition, "/")
	n.Driver, n.Partition, n.MemoryPartition = nodetree.Driver(*driver), nodetree.PartitionMode(compute), memory
	n.Generation, n.MetricsRevision, n.LockedMemoryBytes = *generation, *metrics, *locked
	if *nics >= 0 {
		n.NICs = *nics
	}
	if *nicKind != "" {
		n.NICKind = nodetree.NICKind(*nicKind)
	}
	switch *rocm {
	case "":
	case "none":
		n.ROCm = ""
	default:
		n.ROCm = *rocm
	}
	for _, c := range changes {
		if err := c(&n); err != nil {
			return "", nodetree.Node{}, err
		}
	}
	return *dir, n, nil
}

// onGPU makes a change of one GPU, which must be there.
func onGPU(ordinal int, do func(*nodetree.GPU)) change {
	return func(n *nodetree.Node) error {
		if ordinal < 0 || ordinal >= len(n.GPUs) {
			return fmt.Errorf("GPU %d, but the node has GPUs 0 to %d", ordinal, len(n.GPUs)-1)
		}
		do(&n.GPUs[ordinal])
		return nil
	}
}

// forGPU reads a GPU's ordinal.
func forGPU(do func(*nodetree.GPU)) func(string) (change, error) {
	return func(text string) (change, error) {
		ordinal, err := strconv.Atoi(text)
		return onGPU(ordinal, do), err
	}
}

// forNumber reads GPU=NUMBER.
func forNumber(do func(*nodetree.GPU, uint64)) func(string) (change, error) {
	return func(text string) (change, error) {
		gpu, value, ok := strings.Cut(text, "=")
		ordinal, errGPU := strconv.Atoi(gpu)
		number, errNumber := strconv.ParseUint(value, 0, 32)
		if !ok || errGPU != nil || errNumber != nil {
			return nil, fmt.Errorf("%q is not GPU=NUMBER", text)
		}
		return onGPU(ordinal, func(g *nodetree.GPU) { do(g, number) }), nil
	}
}

// parseErrors reads GPU:BLOCK=UE,CE,DE.
func parseErrors(text string) (change, error) {
	key, counts, ok := strings.Cut(text, "=")
	gpu, block, colon := strings.Cut(key, ":")
	ordinal, err := strconv.Atoi(gpu)
	values := strings.Split(counts, ",")
	if !ok || !colon || err != nil || len(values) != 3 {
		return nil, fmt.Errorf("%q is not GPU:BLOCK=UE,CE,DE", text)
	}
	var n [3]uint64
	for i, value := range values {
		if n[i], err = strconv.ParseUint(value, 10, 64); err != nil {
			return nil, fmt.Errorf("%q is not GPU:BLOCK=UE,CE,DE", text)
		}
	}
	return onGPU(ordinal, func(g *nodetree.GPU) {
		if g.Errors == nil {
			g.Errors = map[string]nodetree.ErrorCounts{}
		}
		g.Errors[block] = nodetree.ErrorCounts{Uncorrectable: n[0], Correctable: n[1], Deferred: n[2]}
	}), nil
}

// parseLink reads A-B=VALUE, or A>B=VALUE for one way.
func parseLink(text string) (change, error) {
	pair, value, ok := strings.Cut(text, "=")
	first, second, dash := strings.Cut(pair, "-")
	l := nodetree.Link{Kind: nodetree.LinkXGMI}
	if !dash {
		first, second, dash = strings.Cut(pair, ">")
		l.OneWay = true
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	if !ok || !dash || errA != nil || errB != nil {
		return nil, fmt.Errorf("link %q is not A-B=VALUE or A>B=VALUE", text)
	}
	l.A, l.B = a, b
	if value == "pcie" || value == "none" {
		l.Kind = nodetree.LinkKind(value)
	} else {
		mbps, err := strconv.ParseInt(value, 10, 64)
		if err != nil || mbps <= 0 {
			return nil, fmt.Errorf("link %q: want pcie, none or a bandwidth in MB/s", text)
		}
		l.BandwidthMBps = mbps
	}
	return func(n *nodetree.Node) error { n.Links = append(n.Links, l); return nil }, nil
}

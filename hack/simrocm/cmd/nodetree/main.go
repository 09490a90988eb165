// Command nodetree writes the tree of a simulated node:
//
//	go run ./hack/simrocm/cmd/nodetree --dir D --model MI300X --name sim-0 --fault hang:3
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

func run(args []string) error {
	flags := flag.NewFlagSet("nodetree", flag.ExitOnError)
	dir := flags.String("dir", "", "directory to write into")
	model := flags.String("model", "MI300X", "one of "+strings.Join(nodetree.Models(), ", "))
	name := flags.String("name", "sim-node-0", "name of the node")
	fault := flags.String("fault", "none", "slow-link:A-B:PERCENT, hang:R, wrong-data:R, init-abort:R, init-hang:R, destroy-hang:R, segfault:R, late:R:MS, garbage-version:N, missing-symbol:NAME, low-memory:MIB or none")
	flavor := flags.String("flavor", "rcclx-dev", "rccl, rccl-dda, rcclx-dev or rcclx-stable")
	rocm := flags.String("rocm", "", "ROCm version on the host; \"none\" for no ROCm, empty for the model's default")
	driver := flags.String("driver", string(nodetree.DriverDKMS), "DKMS, InTree or BuiltIn")
	partition := flags.String("partition", string(nodetree.SPX), "SPX or CPX")
	missing := flags.Int("missing-gpu", -1, "ordinal of a GPU that fell off the bus")
	unbound := flags.Int("unbound-gpu", -1, "ordinal of a GPU that is on the PCI bus but not in KFD")
	var links []nodetree.Link
	flags.Func("link", "A-B=pcie, A-B=none or A-B=MBPS (KFD's bandwidth); may be repeated", func(text string) error {
		l, err := parseLink(text)
		links = append(links, l)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("--dir is required, and no other arguments")
	}
	n, err := nodetree.Defaults(*model)
	if err != nil {
		return err
	}
	n.Name, n.Fault, n.Flavor, n.Links = *name, *fault, *flavor, links
	n.Driver, n.Partition = nodetree.Driver(*driver), nodetree.PartitionMode(*partition)
	switch *rocm {
	case "":
	case "none":
		n.ROCm = ""
	default:
		n.ROCm = *rocm
	}
	for ordinal, mark := range map[int]func(*nodetree.GPU){
		*missing: func(g *nodetree.GPU) { g.Missing = true },
		*unbound: func(g *nodetree.GPU) { g.Unbound = true },
	} {
		if ordinal >= len(n.GPUs) {
			return fmt.Errorf("GPU %d, but the node has GPUs 0 to %d", ordinal, len(n.GPUs)-1)
		}
		if ordinal >= 0 {
			mark(&n.GPUs[ordinal])
		}
	}
	return nodetree.Write(*dir, n)
}

func parseLink(text string) (nodetree.Link, error) {
	pair, value, ok := strings.Cut(text, "=")
	first, second, dash := strings.Cut(pair, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	if !ok || !dash || errA != nil || errB != nil {
		return nodetree.Link{}, fmt.Errorf("link %q is not A-B=VALUE", text)
	}
	switch value {
	case "pcie", "none":
		return nodetree.Link{A: a, B: b, Kind: nodetree.LinkKind(value)}, nil
	}
	mbps, err := strconv.ParseInt(value, 10, 64)
	if err != nil || mbps <= 0 {
		return nodetree.Link{}, fmt.Errorf("link %q: want pcie, none or a bandwidth in MB/s", text)
	}
	return nodetree.Link{A: a, B: b, Kind: nodetree.LinkXGMI, BandwidthMBps: mbps}, nil
}

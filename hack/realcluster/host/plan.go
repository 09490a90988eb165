// Package host makes the real nodes of a cluster on this machine, and removes exactly what it made.
package host

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"rcclx.io/commgroup-operator/hack/simcluster/cluster"
)

// The cluster's networks: nodes, pods (a /24 a node), and the Services' DNS address, at which nobody listens.
const (
	nodeNetwork = "10.77.0.0/24"
	podNetwork  = "10.244.0.0/16"
	// serviceNetwork is the control plane's own range.
	serviceNetwork = "10.96.0.0/16"
	dnsAddress     = "10.96.0.10"
	firstNode      = 11
	// MaxNodes is what names and addresses have room for; a small machine takes far fewer.
	MaxNodes = 16
)

// bridgeName is a global name: one cluster at a time on a machine.
const bridgeName = "cg-e2e"

// planFile tells of all that is made beyond the state directory, and is written before any of it is made.
const planFile = "realcluster.json"

// Plan is what a cluster makes on the machine outside its state directory.
type Plan struct {
	Bridge  string
	Gateway netip.Addr
	Bits    int
	Nodes   []NodePlan
	// SwitchedOn are the controllers that a version 2 root group does not give to its groups before, by mount.
	SwitchedOn map[string][]string
	// Fabric is the folder in memory that the nodes share.
	Fabric string
}

// NodePlan is a node's part.
type NodePlan struct {
	Name string
	IP   netip.Addr
	// Veth is the machine's end of the node's cable.
	Veth      string
	PodSubnet netip.Prefix
	// Cgroup is the node's group in each hierarchy, beginning with a slash.
	Cgroup string
}

// NewPlan names what a cluster of n nodes needs.
func NewPlan(n int) (Plan, error) {
	if n < 1 || n > MaxNodes {
		return Plan{}, fmt.Errorf("%d nodes asked for: 1 to %d", n, MaxNodes)
	}
	nodes := netip.MustParsePrefix(nodeNetwork)
	p := Plan{Bridge: bridgeName, Gateway: nodes.Addr().Next(), Bits: nodes.Bits(),
		Fabric: cluster.SharedMemoryPrefix + rand.Text()}
	address := nodes.Addr().As4()
	subnet := netip.MustParsePrefix(podNetwork).Addr().As4()
	for i := range n {
		address[3] = byte(firstNode + i)
		subnet[2] = byte(i + 1)
		p.Nodes = append(p.Nodes, NodePlan{
			Name: fmt.Sprintf("e2e-node-%d", i), IP: netip.AddrFrom4(address),
			Veth:      fmt.Sprintf("%s-%d", bridgeName, i),
			PodSubnet: netip.PrefixFrom(netip.AddrFrom4(subnet), 24), Cgroup: fmt.Sprintf("/commgroup-e2e-%d", i),
		})
	}
	return p, nil
}

// Save writes the plan into the state directory.
func (p Plan) Save(state cluster.State) error { return cluster.WriteJSON(state.Path(planFile), p) }

// LoadPlan reads it; fs.ErrNotExist means that nothing was made.
func LoadPlan(state cluster.State) (Plan, error) {
	var p Plan
	data, err := os.ReadFile(state.Path(planFile))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", state.Path(planFile), err)
	}
	return p, nil
}

// alias marks the bridge as the one of a state directory.
func alias(state cluster.State) string { return "commgroup realcluster of " + state.Dir }

// bridgeAlias reads the mark of a bridge; fs.ErrNotExist means that there is no such interface.
func bridgeAlias(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/sys/class/net", name, "ifalias"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fs.ErrNotExist
	}
	return trimLine(string(data)), err
}

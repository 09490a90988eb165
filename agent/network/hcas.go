package network

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcclx.io/commgroup-operator/agent/discover"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// hcas checks the RDMA devices that were asked for, or finds those that are up.
func (r *Request) hcas(h Host) ([]string, *Problem) {
	required := r.Spec.RequireTransport == api.TransportRDMA
	if v, ok := r.own(envNoRDMA); ok && v != "0" && required {
		return nil, r.problem(api.ReasonHCANotUsable, "network.requireTransport is RDMA, but runtime.env has %s=%s, "+
			"which switches RDMA off. Remove the variable.", envNoRDMA, v)
	}
	devices, err := h.HCAs()
	if err != nil {
		if len(r.Spec.HCAs) > 0 || required || r.Spec.GIDIndex != nil {
			return nil, r.problem(api.ReasonSysfsUnreadable,
				"its RDMA devices could not be listed: %v. Look at the pod's log and its security profile.", err)
		}
		return nil, nil
	}
	if len(r.Spec.HCAs) == 0 {
		return r.allHCAs(devices, required)
	}
	var out []string
	for _, asked := range r.Spec.HCAs {
		name, problem := r.checkHCA(devices, asked)
		if problem != nil {
			return nil, problem
		}
		out = append(out, name)
	}
	return out, nil
}

// allHCAs are the ports that the library will find by itself: those that are active.
func (r *Request) allHCAs(devices []HCA, required bool) ([]string, *Problem) {
	var out []string
	wanted := r.ownHCAs()
	for k := range devices {
		d := &devices[k]
		for _, p := range d.Ports {
			if p.State != discover.PortActive || !d.Usable || len(out) == maxStatusHCAs || !wanted(d.Name, p.Number) {
				continue
			}
			if problem := r.checkGID(d, &p); problem != nil {
				if required {
					return nil, problem
				}
				continue
			}
			out = append(out, fmt.Sprintf("%s:%d", d.Name, p.Number))
		}
	}
	if list, own := r.own(envHCA); own && len(out) == 0 && required {
		return nil, r.problem(api.ReasonHCANotFound,
			"network.requireTransport is RDMA, but no RDMA device of %s=%s in runtime.env is usable; there are %s. %s",
			envHCA, list, describeHCAs(devices), r.howToGetHCAs(devices))
	}
	if len(out) == 0 && required {
		return nil, r.problem(api.ReasonHCANotFound,
			"network.requireTransport is RDMA, but no RDMA device is usable; there are %s. %s",
			describeHCAs(devices), r.howToGetHCAs(devices))
	}
	return out, nil
}

// ownHCAs reads a user's own list of devices as the library does: "^" excludes, "=" asks for whole names, else a
// prefix will do, and what follows a colon is a port (NCCL src/misc/utils.cc parseStringList, matchIfList). Without one
// every device is meant.
func (r *Request) ownHCAs() func(name string, port int) bool {
	list, _ := r.own(envHCA)
	list, not := strings.CutPrefix(list, "^")
	list, exact := strings.CutPrefix(list, "=")
	type entry struct {
		name string
		port int // -1 for any
	}
	var entries []entry
	for text := range strings.SplitSeq(list, ",") {
		name, port, hasPort := strings.Cut(text, ":")
		if name == "" {
			continue
		}
		e := entry{name, -1}
		if hasPort {
			e.port, _ = strconv.Atoi(port) // as atoi, what is no number is 0
		}
		entries = append(entries, e)
	}
	return func(name string, port int) bool {
		matches := len(entries) == 0
		for _, e := range entries {
			same := name == e.name || !exact && strings.HasPrefix(name, e.name)
			matches = matches || same && (e.port == -1 || e.port == port)
		}
		return matches != not
	}
}

// maxStatusHCAs is what a status holds.
const maxStatusHCAs = 32

func (r *Request) checkHCA(devices []HCA, asked string) (string, *Problem) {
	name, port, _ := strings.Cut(asked, ":")
	k := slices.IndexFunc(devices, func(d HCA) bool { return d.Name == name })
	if k < 0 {
		return "", r.problem(api.ReasonHCANotFound, "network.hcas names %s, which is not there; there are %s. %s",
			asked, describeHCAs(devices), r.howToGetHCAs(devices))
	}
	d := &devices[k]
	if !d.Usable {
		return "", r.problem(api.ReasonHCANotUsable,
			"%s is known to the kernel, but its file %s is not in the pod, so that the library cannot open it "+
				"and goes over TCP. Ask for it with network.rdmaResources (the RDMA device plugin's resource).",
			d.Name, d.DeviceFile)
	}
	var first *HCAPort
	for j := range d.Ports {
		p := &d.Ports[j]
		if port != "" && fmt.Sprint(p.Number) != port {
			continue
		}
		if first == nil || first.State != discover.PortActive && p.State == discover.PortActive {
			first = p
		}
	}
	switch {
	case first == nil && port != "":
		return "",
			r.problem(api.ReasonHCANotFound, "network.hcas names %s, but %s has no port %s: %s. Correct the port.",
				asked, d.Name, port, describeHCAs(devices[k:k+1]))
	case first == nil:
		return "", r.problem(api.ReasonHCANotUsable, "%s shows no port. Look at `rdma link show %s`.", d.Name, d.Name)
	case first.State != discover.PortActive:
		return "", r.problem(api.ReasonHCANotUsable, "port %d of %s is %s; expected %s. %s",
			first.Number, d.Name, first.State, discover.PortActive, linkAdvice(first.State, d))
	}
	if problem := r.checkGID(d, first); problem != nil {
		return "", problem
	}
	return asked, nil
}

func linkAdvice(state string, d *HCA) string {
	if state == discover.PortInit || state == discover.PortArmed {
		return "It has a link and waits for the subnet manager: check that one runs on this fabric (sminfo)."
	}
	return fmt.Sprintf("Check its cable and switch port (rdma link show %s), or leave it out of network.hcas.", d.Name)
}

// checkGID checks the entry of the GID table that the library is told to use.
func (r *Request) checkGID(d *HCA, p *HCAPort) *Problem {
	if r.Spec.GIDIndex == nil {
		return nil
	}
	index := int(*r.Spec.GIDIndex)
	if p.GIDTableSize == 0 {
		return r.problem(api.ReasonGIDNotUsable, "the GID table of port %d of %s could not be read, "+
			"so network.gidIndex %d is not known to be right. Leave gidIndex out, or look at `rdma link show %s`.",
			p.Number, d.Name, index, d.Name)
	}
	if slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.Index == index }) {
		return nil
	}
	var there []string
	for _, g := range p.GIDs {
		if len(there) == maxCandidates {
			there = append(there, "...")
			break
		}
		there = append(there, strings.TrimSpace(fmt.Sprintf("%d (%s %s)", g.Index, g.Address, g.Type)))
	}
	what := "is empty"
	if index >= p.GIDTableSize {
		what = fmt.Sprintf("is past the table's %d entries", p.GIDTableSize)
	}
	return r.problem(api.ReasonGIDNotUsable, "network.gidIndex %d %s on port %d of %s; filled are %s. "+
		"Take one of these (RoCE v2 with the address that the peers reach), or leave gidIndex out.",
		index, what, p.Number, d.Name, cmp.Or(strings.Join(there, ", "), "none"))
}

func (r *Request) howToGetHCAs(devices []HCA) string {
	if slices.ContainsFunc(devices, func(d HCA) bool { return !d.Usable }) {
		return "The files of devices are not in the pod: ask for them with network.rdmaResources."
	}
	if len(r.Spec.RDMAResources) == 0 && r.Spec.Mode != api.NetworkHost {
		return "Ask for the devices with network.rdmaResources, and check the NICs' driver on the node."
	}
	return "Check the NICs' driver and cables on the node (`rdma link`)."
}

// describeHCAs lists devices for a message: "mlx5_0:1 Active RoCE, mlx5_1:1 Down".
func describeHCAs(devices []HCA) string {
	var parts []string
	for _, d := range devices {
		if len(parts) >= maxCandidates {
			parts = append(parts, "...")
			break
		}
		for _, p := range d.Ports {
			kind := p.LinkLayer
			if kind == discover.LinkEthernet {
				kind = "RoCE"
			}
			part := fmt.Sprintf("%s:%d %s %s", d.Name, p.Number, p.State, kind)
			if !d.Usable {
				part += " not in the pod"
			}
			parts = append(parts, part)
		}
		if len(d.Ports) == 0 {
			parts = append(parts, d.Name+" without a port")
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

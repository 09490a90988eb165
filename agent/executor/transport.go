package executor

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"rcclx.io/commgroup-operator/agent/network"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/rcclx"
)

// request is what the session asks of the node's network.
func (s *Session) request(seen Seen) network.Request {
	return network.Request{Node: s.Name, Spec: seen.Network, PodIP: s.podIP(), Ranks: int(seen.Session.Ranks),
		Own: seen.Plan.Env}
}

// environment are the group's own variables, then what ranks need to use the network as it was resolved and to log
// which transport they take; later ones win. The address family that all agreed on is in the assignment: the controller
// puts it there.
func (s *Session) environment(seen Seen, st api.NetworkStatus, family api.AddressFamily) []api.EnvVar {
	out := slices.Clone(seen.Plan.Env)
	r := s.request(seen)
	for _, e := range append(network.Environment(r, st, family), network.LogEnvironment(seen.Plan.Env)...) {
		out = append(out, envVar(e))
	}
	return out
}

func envVar(e rcclx.EnvVar) api.EnvVar { return api.EnvVar{Name: e.Name, Value: e.Value} }

// rendezvous gives what only the process of rank 0 gets: the port to form the communicator on, where the group names a
// range that only this can hold it to. taken are those that other communicators of the task have.
func (s *Session) rendezvous(seen Seen, st api.NetworkStatus, key string,
	taken map[int]bool) ([]string, *network.Problem) {
	spec := &seen.Network
	if spec.Mode != api.NetworkHost || spec.PortRange == nil {
		return nil, nil
	}
	addr, ok := network.Address(st, spec.AddressFamily)
	if !ok {
		return nil, &network.Problem{Reason: api.ReasonNoAddressOfFamily,
			Message: fmt.Sprintf("Node %s: interface %s has no address of family %s",
				s.Name, st.Interface, spec.AddressFamily)}
	}
	for try := 0; ; try++ {
		port, problem := network.PickPort(s.Network, s.request(seen), addr, fmt.Sprintf("%s/%d", key, try))
		if problem != nil {
			return nil, problem
		}
		// Twice the same port is a collision of hashes; so often it means that nothing else is free.
		if taken[port] && try < 64 {
			continue
		}
		if taken[port] {
			return nil,
				&network.Problem{Reason: api.ReasonPortRangeNotUsable, Message: fmt.Sprintf("Node %s: no port of "+
					"%d-%d is left for this communicator beside %d others of the task. Make network.portRange larger.",
					s.Name, spec.PortRange.First, spec.PortRange.Last, len(taken))}
		}
		taken[port] = true
		e := network.RendezvousEnvironment(addr, port)
		return []string{e.Name + "=" + e.Value}, nil
	}
}

// transports reads the logs of a communicator's ranks while they are written, so that nothing of them is kept.
type transports struct {
	local []int
	mu    sync.Mutex
	logs  []*network.TransportLog
}

func newTransports(c api.TaskCommunicator) *transports {
	t := &transports{}
	for _, r := range c.Ranks {
		t.local = append(t.local, int(r))
	}
	return t
}

// output is supervise.Team.Output.
func (t *transports) output(int) io.WriteCloser {
	log := network.NewTransportLog(t.local)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, log)
	return log
}

// result is what carried the data of all ranks. It is for the time after they have ended.
func (t *transports) result() network.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []network.Transport
	for _, l := range t.logs {
		all = append(all, l.Transport())
	}
	return network.Join(all...)
}

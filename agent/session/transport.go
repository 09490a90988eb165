package session

import (
	"io"
	"sync"

	api "rcclx.io/commgroup-operator/api/v1alpha1"
)

// The words for what carried data to other nodes (TaskCommunicatorStatus.Transport).
const (
	transportMixed   = "Mixed"
	transportUnknown = "Unknown"
)

// Network is what a session asks of its node's network.
type Network interface {
	// Resolve finds the interface, its addresses and the RDMA devices, and checks them. A problem names its reason.
	Resolve(a api.SessionAssignment) (api.NetworkStatus, *Problem)
	// Variables are what ranks on several nodes need of the environment to use what was resolved, and to log which transport
	// they take.
	Variables(a api.SessionAssignment, st api.NetworkStatus) []api.EnvVar
	// Transport reads the log of one rank to its end, and says what carried its data to other nodes.
	Transport(log io.Reader) string
}

// Problem is why a node cannot take part.
type Problem struct{ Reason, Message string }

// environment are the group's own variables, then those of the network, which win.
func (l *loop) environment(a api.SessionAssignment, st api.NetworkStatus) []api.EnvVar {
	return append(append([]api.EnvVar(nil), a.Env...), l.Network.Variables(a, st)...)
}

// transports reads the logs of a communicator's ranks while they are written, so that nothing of them is kept.
type transports struct {
	network Network
	mu      sync.Mutex
	group   sync.WaitGroup
	found   map[string]bool
}

func newTransports(n Network) *transports { return &transports{network: n, found: map[string]bool{}} }

// output is runner.Team.Output. What is written to it is read at once by a goroutine of its own, to the end.
func (t *transports) output(int) io.WriteCloser {
	r, w := io.Pipe()
	t.group.Go(func() {
		found := t.network.Transport(r)
		_, _ = io.Copy(io.Discard, r)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.found[found] = true
	})
	return w
}

// result is what the ranks have used that say so, since not every rank has a channel to another node: Mixed where they
// differ, Unknown where none says. It waits for the ends of the logs.
func (t *transports) result() string {
	t.group.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.found, transportUnknown)
	if len(t.found) > 1 {
		return transportMixed
	}
	for one := range t.found {
		return one
	}
	return transportUnknown
}

package executor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rcclx.io/commgroup-operator/agent/network"
	"rcclx.io/commgroup-operator/agent/preflight"
	api "rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
	"rcclx.io/commgroup-operator/internal/simtest"
)

// patience bounds what a test waits for.
const patience = 90 * time.Second

// memoryLink is a CommTask in memory.
type memoryLink struct {
	mu      sync.Mutex
	seen    Seen
	see     func(Seen)
	reports []api.SessionStatus
	changed chan struct{} // has something after each report
	// answer, where set, decides on each report before it is taken; n counts the attempts from 0.
	answer   func(n int, s api.SessionStatus) error
	attempts int
}

func newMemoryLink(a api.SessionAssignment) *memoryLink {
	return &memoryLink{seen: Seen{Session: &a, Plan: testPlan(), BudgetBytes: mostBytes},
		changed: make(chan struct{}, 1)}
}

func (m *memoryLink) Follow(ctx context.Context, see func(Seen)) {
	m.mu.Lock()
	m.see = see
	see(m.copy())
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.see = nil
	m.mu.Unlock()
}

func (m *memoryLink) copy() Seen {
	s := m.seen
	s.Session, s.Reported = s.Session.DeepCopy(), s.Reported.DeepCopy()
	return s
}

// change changes what the CommTask says.
func (m *memoryLink) change(f func(*Seen)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.seen)
	if m.see != nil {
		m.see(m.copy())
	}
}

func (m *memoryLink) ReportSession(_ context.Context, s api.SessionStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts++
	if m.answer != nil {
		if err := m.answer(m.attempts-1, s); err != nil {
			return err
		}
	}
	m.seen.Reported = s.DeepCopy()
	m.reports = append(m.reports, s)
	select {
	case m.changed <- struct{}{}:
	default:
	}
	return nil
}

// wait returns the first report, of those that were and will be, that is as asked for.
func (m *memoryLink) wait(t *testing.T, what string, is func(api.SessionStatus) bool) api.SessionStatus {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		m.mu.Lock()
		for _, s := range m.reports {
			if is(s) {
				m.mu.Unlock()
				return s
			}
		}
		last := "none"
		if n := len(m.reports); n > 0 {
			last = fmt.Sprintf("%+v %+v", m.reports[n-1], m.reports[n-1].Task)
		}
		m.mu.Unlock()
		select {
		case <-m.changed:
		case <-timer.C:
			t.Fatalf("no report is %s; the last is %s", what, last)
		}
	}
}

func (m *memoryLink) waitReady(t *testing.T) api.SessionStatus {
	t.Helper()
	return m.wait(t, "ready", func(s api.SessionStatus) bool { return s.State == api.SessionReady })
}

func (m *memoryLink) waitFinished(t *testing.T, id string) api.NodeTaskStatus {
	t.Helper()
	return *m.wait(t, id+" finished", func(s api.SessionStatus) bool {
		return s.Task != nil && s.Task.ID == id && s.Task.Phase == api.TaskFinished
	}).Task
}

// waitIDs waits for the unique ids of all communicators of the task that are named.
func (m *memoryLink) waitIDs(t *testing.T, id string, names ...string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	m.wait(t, fmt.Sprintf("%s with ids of %v", id, names), func(s api.SessionStatus) bool {
		if s.Task == nil || s.Task.ID != id {
			return false
		}
		for _, c := range s.Task.Communicators {
			if len(c.UniqueID) > 0 {
				found[c.Name] = c.UniqueID
			}
		}
		for _, n := range names {
			if found[n] == nil {
				return false
			}
		}
		return true
	})
	return found
}

const interfaceName = "sim0"

// simulatedRoot is the root of a simulated node with RDMA and the interface that its session meets others on.
func simulatedRoot(t testing.TB, name, fault string) string {
	t.Helper()
	root := simtest.Node(t, func(n *nodetree.Node) { n.Name, n.Fault = name, fault })
	conf, err := os.OpenFile(filepath.Join(root, "simrocm.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conf.Close() }()
	if _, err := fmt.Fprintf(conf, "interface.%s = 10.9.0.1/16\n", interfaceName); err != nil {
		t.Fatal(err)
	}
	return root
}

// preflightHost is a simulated node without the machine's own interfaces and limits.
type preflightHost struct {
	preflight.PodHost
	memlock int64
}

func (preflightHost) Interfaces() ([]preflight.Interface, error) {
	return []preflight.Interface{{Name: interfaceName, Running: true,
		Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}}, nil
}
func (h preflightHost) LockedMemoryLimitBytes() (int64, error) { return h.memlock, nil }
func (preflightHost) SharedMemoryFreeBytes() (int64, error)    { return 1 << 30, nil }

// networkHost is a node's network without the machine's interfaces.
type networkHost struct{ network.NodeHost }

func (networkHost) Interfaces() ([]network.Interface, error) {
	return []network.Interface{{Name: interfaceName, Up: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/16")}}}, nil
}

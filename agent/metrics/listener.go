package metrics

import (
	"net"
	"sync"
)

const (
	// maxConnections bounds what is kept in memory for strangers: some 40 KiB a connection with TLS.
	maxConnections = 512
	// maxOfPeer keeps one stranger from taking all of them.
	maxOfPeer = 16
)

// Bounded is a listener that closes connections at once where there are too many, over all or of one address.
func Bounded(l net.Listener) net.Listener {
	return &bounded{Listener: l, open: map[string]int{}}
}

type bounded struct {
	net.Listener
	mu   sync.Mutex
	all  int
	open map[string]int
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			peer = c.RemoteAddr().String()
		}
		if b.take(peer) {
			return &counted{Conn: c, end: sync.OnceFunc(func() { b.give(peer) })}, nil
		}
		_ = c.Close()
	}
}

func (b *bounded) take(peer string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxConnections || b.open[peer] >= maxOfPeer {
		return false
	}
	b.all++
	b.open[peer]++
	return true
}

func (b *bounded) give(peer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.open[peer]--; b.open[peer] == 0 {
		delete(b.open, peer)
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}

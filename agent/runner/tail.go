package runner

import "sync"

// tailBytes is what is kept of each output stream of a rank.
const tailBytes = 4096

// tail keeps the last tailBytes that were written to it. It is safe for use by several goroutines.
type tail struct {
	mu   sync.Mutex
	data []byte
	cut  bool
}

// Write implements io.Writer; it never fails, so that a talkative library cannot block on its own log.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) >= tailBytes {
		t.cut = t.cut || len(t.data) > 0 || len(p) > tailBytes
		t.data = append(t.data[:0], p[len(p)-tailBytes:]...)
		return n, nil
	}
	if over := len(t.data) + len(p) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
		t.cut = true
	}
	t.data = append(t.data, p...)
	return n, nil
}

// String returns what was kept; where the start is missing, the first line is left out, since it is cut.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.cut {
		return string(t.data)
	}
	for i, b := range t.data {
		if b == '\n' && i+1 < len(t.data) {
			return "[...]\n" + string(t.data[i+1:])
		}
	}
	return "[...]" + string(t.data)
}

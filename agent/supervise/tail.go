package supervise

import (
	"bytes"
	"slices"
	"sync"
)

// tailBytes is what is kept of each output stream of a rank.
const tailBytes = 4096

// tail keeps the last tailBytes that were written to it. It is safe for use by several goroutines.
//
// A library that calls abort() in a rank makes the Go runtime print the stacks of all goroutines, which no setting
// keeps it from; a tail stops there, so that the library's own last words stay.
type tail struct {
	mu     sync.Mutex
	data   []byte
	cut    bool
	frozen bool
}

// Write implements io.Writer; it never fails, so that a talkative library cannot block on its own log.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// In parts smaller than the tail, so that a crash is seen before what follows pushes it out.
	for part := range slices.Chunk(p, tailBytes/8) {
		if t.frozen {
			break
		}
		if over := len(t.data) + len(part) - tailBytes; over > 0 {
			t.data = append(t.data[:0], t.data[over:]...)
			t.cut = true
		}
		t.data = append(t.data, part...)
		t.freezeAtCrash()
	}
	return len(p), nil
}

// freezeAtCrash ends the tail behind the two lines that a Go crash by a signal begins with:
//
//	SIGABRT: abort
//	PC=0x40e8ce m=0 sigcode=0
func (t *tail) freezeAtCrash() {
	i := bytes.Index(t.data, []byte("\nPC=0x"))
	if i < 0 {
		return
	}
	line := t.data[bytes.LastIndexByte(t.data[:i], '\n')+1 : i]
	end := bytes.IndexByte(t.data[i+1:], '\n')
	if bytes.HasPrefix(line, []byte("SIG")) && end >= 0 {
		t.data = t.data[:i+1+end+1]
		t.frozen = true
	}
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

package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxHungReads bounds the reads that may hang at once, and so the threads that they hold. A node of 64 devices
	// whose files all hang stays below it, so that what does not hang is read all the same.
	maxHungReads = 512
	// maxHungPerTask is how many files of one GPU may hang before the rest of it is left unread.
	maxHungPerTask = 3
)

// errAbandoned ends a task whose worker was given up while a read of it hung.
var errAbandoned = errors.New("worker was abandoned")

// hungReads remembers the files whose read never came back, over scans: such a file is not read a second time.
type hungReads struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func (h *hungReads) add(path string, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since == nil {
		h.since = map[string]time.Time{}
	}
	h.since[path] = since
}

func (h *hungReads) remove(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, path)
}

// hungGroup is the directory of a GPU or of a KFD node that a path lies in: one driver answers for all of it.
func hungGroup(path string) string {
	for _, dir := range [...]string{pciDir, nodesDir} {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			return path[:len(dir)+1+len(name)]
		}
	}
	return ""
}

// check returns an error where the path hangs or too much hangs already.
func (h *hungReads) check(path string, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.since) == 0 {
		return nil
	}
	if since, hangs := h.since[path]; hangs {
		return errTimeout{fmt.Sprintf("read has not returned for %s", now.Sub(since).Round(time.Second))}
	}
	if group := hungGroup(path); group != "" {
		n := 0
		for other := range h.since {
			if hungGroup(other) == group {
				n++
			}
		}
		if n > maxHungPerTask {
			return errTimeout{fmt.Sprintf("not read: %d other files of this directory hang", n)}
		}
	}
	if len(h.since) >= maxHungReads {
		return errTimeout{fmt.Sprintf("not read: %d other reads hang", len(h.since))}
	}
	return nil
}

// reader does the reads of one worker, one at a time, in the worker's own goroutine. A watchdog shared by all workers
// looks at mu's fields; that costs a read about 0.1 us, where a goroutine and timer for each read would cost several.
type reader struct {
	fs    FS
	hung  *hungReads
	clock clock.PassiveClock

	mu        sync.Mutex
	path      string // being read, "" between reads
	since     time.Time
	abandoned bool

	base   string // directory that is open as baseFS; "" for none
	baseFS FS

	answers int // reads that found something, an error other than ENOENT included

	refuse bool // too many files of this task hung: read no more of them
}

func (r *reader) begin(path string) error {
	now := r.clock.Now()
	if err := r.hung.check(path, now); err != nil {
		return err
	}
	if r.refuse {
		return errTimeout{"not read: other files of this GPU hang"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned {
		return errAbandoned
	}
	r.path, r.since = path, now
	return nil
}

func (r *reader) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := r.path
	r.path = ""
	if r.abandoned {
		if path != "" {
			r.hung.remove(path)
		}
		return errAbandoned
	}
	return nil
}

// giveUp abandons the worker if its read is older than the deadline; the path is then known to hang.
func (r *reader) giveUp(now time.Time, deadline time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned || r.path == "" || now.Sub(r.since) < deadline {
		return false
	}
	r.abandoned = true
	r.hung.add(r.path, r.since)
	return true
}

func (r *reader) gone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned
}

func (r *reader) fail(path string, err error) *ReadError {
	e := &ReadError{Path: path, Class: Classify(err), Err: err}
	if e.Class != ClassMissing {
		r.answers++
	}
	return e
}

// within opens a directory for the files of it that are read until the function that it returns is called. Its identity
// is nil where it could not be opened so; then each file says why.
func (r *reader) within(dir string) (id *DirID, done func()) {
	done = func() {}
	fs, ok := r.fs.(subdirs)
	if !ok || r.begin(dir) != nil {
		return nil, done
	}
	sub, err := fs.Sub(dir)
	var identity DirID
	if err == nil {
		identity, err = sub.ID()
		if gone := r.end(); err != nil || gone != nil {
			_ = sub.Close()
			return nil, done
		}
		r.base, r.baseFS = dir+"/", sub
		return &identity, func() {
			r.base, r.baseFS = "", nil
			_ = sub.Close()
		}
	}
	_ = r.end()
	return nil, done
}

func (r *reader) file(path string) ([]byte, *ReadError) {
	if err := r.begin(path); err != nil {
		return nil, r.fail(path, err)
	}
	fs, name := r.fs, path
	if r.base != "" && strings.HasPrefix(path, r.base) {
		fs, name = r.baseFS, path[len(r.base):]
	}
	data, err := fs.ReadFile(name)
	if gone := r.end(); gone != nil {
		err = gone
	}
	if err != nil {
		return nil, r.fail(path, err)
	}
	r.answers++
	return data, nil
}

func (r *reader) dir(path string) ([]string, *ReadError) {
	if err := r.begin(path); err != nil {
		return nil, r.fail(path, err)
	}
	names, err := r.fs.ReadDir(path)
	if gone := r.end(); gone != nil {
		err = gone
	}
	if err != nil {
		return nil, r.fail(path, err)
	}
	r.answers++
	return names, nil
}

func (r *reader) link(path string) (string, *ReadError) {
	if err := r.begin(path); err != nil {
		return "", r.fail(path, err)
	}
	target, err := r.fs.ReadLink(path)
	if gone := r.end(); gone != nil {
		err = gone
	}
	if err != nil {
		return "", r.fail(path, err)
	}
	r.answers++
	return target, nil
}

// stream gives a file's content to use, piece by piece, until use is content or limit bytes were read; whole says that
// all of it was given or use was content before. The pieces are only valid during the call. One deadline holds for all
// of it.
func (r *reader) stream(name string, limit int, use func(chunk []byte) (more bool)) (whole bool, rerr *ReadError) {
	if err := r.begin(name); err != nil {
		return false, r.fail(name, err)
	}
	whole, err := streamFile(r.fs, name, limit, use)
	if gone := r.end(); gone != nil {
		err = gone
	}
	if err != nil {
		return false, r.fail(name, err)
	}
	return whole, nil
}

func streamFile(fsys FS, name string, limit int, use func(chunk []byte) bool) (whole bool, err error) {
	opener, ok := fsys.(streamFS)
	if !ok {
		data, err := fsys.ReadFile(name)
		if err != nil {
			return false, err
		}
		return !use(data[:min(len(data), limit)]) || len(data) <= limit, nil
	}
	f, err := opener.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, min(limit, 16<<10))
	for left := limit; ; {
		n, err := f.Read(buf[:min(len(buf), max(left, 1))])
		if n > left {
			return false, nil // a byte beyond the limit: there is more
		}
		left -= n
		if n > 0 && !use(buf[:n]) {
			return true, nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// toEnd reads a file of at most limit bytes until a read gives nothing, where file takes a short read for the end.
func (r *reader) toEnd(name string, limit int) ([]byte, *ReadError) {
	var data []byte
	whole, rerr := r.stream(name, limit, func(chunk []byte) bool {
		data = append(data, chunk...)
		return true
	})
	if rerr == nil && !whole {
		rerr = r.fail(name, malformedf("file is larger than %d bytes", limit))
	}
	return data, rerr
}

// runAll does task(0) .. task(n-1) on a few workers and returns their results in order. A worker whose read misses the
// deadline is given up, and another does its task again, without the file that hangs. It returns ctx's error, and then
// no results, when ctx ends first.
func runAll[T any](ctx context.Context, s *Scanner, n int, task func(*reader, int) T) ([]T, error) {
	type job struct{ index, hung int }
	type outcome struct {
		job   job
		value T
	}
	type worker struct {
		reader *reader
		job    job
	}
	results := make([]T, n)
	done := 0
	jobs := make(chan job, n+n*(maxHungPerTask+1))
	outcomes := make(chan outcome)
	stop := make(chan struct{})
	defer close(stop)
	var (
		mu      sync.Mutex // guards the job of every worker
		workers []*worker
	)
	start := func() {
		w := &worker{reader: &reader{fs: s.fs, hung: &s.hung, clock: s.opts.Clock}, job: job{index: -1}}
		workers = append(workers, w)
		go func() {
			for {
				var j job
				select {
				case <-stop:
					return
				case j = <-jobs:
				}
				mu.Lock()
				w.job = j
				mu.Unlock()
				w.reader.refuse = j.hung > maxHungPerTask
				value := task(w.reader, j.index)
				if w.reader.gone() {
					return
				}
				select {
				case <-stop:
					return
				case outcomes <- outcome{job: j, value: value}:
				}
			}
		}()
	}
	for i := range n {
		jobs <- job{index: i}
	}
	for range min(n, s.opts.Parallel) {
		start()
	}
	tick := s.opts.Clock.NewTicker(max(s.opts.ReadDeadline/4, time.Millisecond))
	defer tick.Stop()
	for done < n {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case o := <-outcomes:
			results[o.job.index] = o.value
			done++
		case <-tick.C():
			now := s.opts.Clock.Now()
			for _, w := range workers { // start appends; the range keeps to those that were there
				if !w.reader.giveUp(now, s.opts.ReadDeadline) {
					continue
				}
				mu.Lock()
				j := w.job
				mu.Unlock()
				jobs <- job{index: j.index, hung: j.hung + 1}
				start()
			}
		}
	}
	return results, nil
}

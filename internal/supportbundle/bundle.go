// Package supportbundle gathers what somebody who helps with a CommGroup needs, and nothing secret, into one archive
// that is read without a cluster. What could not be gathered is listed with the reason: a part that is missing is never
// passed over.
package supportbundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/internal/report"
)

// The bounds of a bundle.
const (
	defaultDeadline     = 3 * time.Minute
	defaultItemDeadline = 20 * time.Second
	defaultLogBytes     = 1 << 20
	defaultMaxPods      = 40
	defaultMaxNodes     = 256
	maxTotalBytes       = 192 << 20
	parallel            = 6
	pageSize            = 500
	maxEvents           = 5000
)

// Options say what to gather and within which bounds; zero values are the defaults.
type Options struct {
	Namespace, Name string
	// SystemNamespace is looked into where Deployments of all namespaces may not be listed.
	SystemNamespace string
	// Deadline of the whole bundle, and ItemDeadline of each part.
	Deadline, ItemDeadline time.Duration
	// LogBytes of each container's log, its end; MaxPods whose logs and MaxNodes whose objects are taken, the worst
	// first.
	LogBytes          int
	MaxPods, MaxNodes int
	Now               time.Time
	Version           string
	// Progress gets a line for each part; nil says nothing.
	Progress func(string)
}

func (o Options) withDefaults() Options {
	o.SystemNamespace = cmp.Or(o.SystemNamespace, "commgroup-system")
	o.Deadline, o.ItemDeadline = cmp.Or(o.Deadline, defaultDeadline), cmp.Or(o.ItemDeadline, defaultItemDeadline)
	o.LogBytes, o.MaxPods, o.MaxNodes = cmp.Or(o.LogBytes, defaultLogBytes), cmp.Or(o.MaxPods, defaultMaxPods),
		cmp.Or(o.MaxNodes, defaultMaxNodes)
	return o
}

// Clients talk to the cluster.
type Clients struct {
	Kube   kubernetes.Interface
	Groups client.Client
}

// File is one file of the bundle.
type File struct {
	Path string
	Data []byte
}

// Missing is a part that is not in the bundle, and why.
type Missing struct {
	Path, What, Why string
}

// Bundle is what was gathered.
type Bundle struct {
	Files   []File
	Missing []Missing
	// Notes are bounds that cut something.
	Notes []string
	total int
	mu    sync.Mutex
}

// ErrNoGroup says that the API server knows no such CommGroup.
var ErrNoGroup = errors.New("no such CommGroup")

// Collect gathers a bundle. It fails only where there is no such CommGroup; what else goes wrong is in Missing.
func Collect(ctx context.Context, c Clients, o Options) (*Bundle, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Deadline)
	defer cancel()
	g := &gatherer{Clients: c, o: o, b: &Bundle{}}
	if err := g.basics(ctx); err != nil {
		return nil, err
	}
	g.rest(ctx)
	g.podLogsLeft()
	g.b.finish(o, g.caseWords())
	return g.b, nil
}

// add puts a file into the bundle, less what looks like a secret.
func (b *Bundle) add(path string, data []byte) {
	clean := []byte(scrub(string(data)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total+len(clean) > maxTotalBytes {
		b.Missing = append(b.Missing,
			Missing{path, "file", fmt.Sprintf("the bundle is full: it holds at most %d MiB", maxTotalBytes>>20)})
		return
	}
	b.total += len(clean)
	b.Files = append(b.Files, File{path, clean})
}

func (b *Bundle) miss(path, what string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Missing = append(b.Missing, Missing{path, what, scrub(err.Error())})
}

func (b *Bundle) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Notes = append(b.Notes, fmt.Sprintf(format, args...))
}

// finish brings everything into an order that does not depend on which answer came first.
func (b *Bundle) finish(o Options, words string) {
	slices.SortFunc(b.Missing, func(x, y Missing) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.What, y.What))
	})
	slices.SortFunc(b.Files, func(x, y File) int { return cmp.Compare(x.Path, y.Path) })
	slices.Sort(b.Notes)
	b.Files = append([]File{{"summary.md", []byte(summary(b, o, words))}}, b.Files...)
	for i := range b.Files { // these are read on a terminal, and hold what nodes and containers wrote
		if f := &b.Files[i]; slices.Contains([]string{".md", ".txt", ".log"}, path.Ext(f.Path)) {
			f.Data = []byte(report.Visible(string(f.Data)))
		}
	}
}

// Write writes the bundle as a tar archive, packed with gzip, with one folder in it.
func (b *Bundle) Write(w io.Writer, folder string, now time.Time) error {
	packed := gzip.NewWriter(w)
	out := tar.NewWriter(packed)
	for _, f := range b.Files {
		head := &tar.Header{Name: folder + "/" + f.Path, Mode: 0o644, Size: int64(len(f.Data)), ModTime: now,
			Format: tar.FormatPAX}
		if err := out.WriteHeader(head); err != nil {
			return fmt.Errorf("writing %s: %w", f.Path, err)
		}
		if _, err := out.Write(f.Data); err != nil {
			return fmt.Errorf("writing %s: %w", f.Path, err)
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return packed.Close()
}

// item is one part that is gathered on its own.
type item struct {
	path, what string
	get        func(context.Context) ([]byte, error)
}

// run gathers items side by side, each within its deadline. An item that gives nothing and no error is left out.
func (g *gatherer) run(ctx context.Context, items []item) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, it := range items {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wait.Done() }()
			within, cancel := context.WithTimeout(ctx, g.o.ItemDeadline)
			defer cancel()
			data, err := it.get(within)
			switch {
			case err != nil && ctx.Err() != nil:
				err = fmt.Errorf("the bundle's deadline of %s was over; allow more with --timeout: %w",
					g.o.Deadline, err)
			case err != nil && within.Err() != nil:
				err = fmt.Errorf("no answer within %s: %w", g.o.ItemDeadline, err)
			}
			if err != nil {
				g.b.miss(it.path, it.what, err)
				g.say("missing: " + it.path)
				return
			}
			if data != nil {
				g.b.add(it.path, data)
				g.say(it.path)
			}
		}()
	}
	wait.Wait()
}

func (g *gatherer) say(line string) {
	if g.o.Progress != nil {
		g.b.mu.Lock()
		defer g.b.mu.Unlock()
		g.o.Progress(line)
	}
}

// fileName is a name that is safe within an archive.
func fileName(s string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
	if strings.Trim(safe, ".") == "" {
		return "_" + safe
	}
	return safe
}

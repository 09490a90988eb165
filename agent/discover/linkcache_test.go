package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestLinksAreReadAgain: links are taken from the scan before only while their directory is the same, and at every
// tenth scan not even then.
func TestLinksAreReadAgain(t *testing.T) {
	dir := generate(t, "MI300X", nil)
	s := NewScanner(openRoot(t, dir), Options{})
	links := func() int {
		t.Helper()
		f, err := s.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return f.Mesh.Links
	}
	for range 2 { // a directory is remembered from the second scan on that sees it
		if n := links(); n != 56 {
			t.Fatalf("%d links", n)
		}
	}
	// KFD never writes a file of links in place. Where it happens all the same, it shows within ten scans.
	file := filepath.Join(dir, nodesDir, "2/io_links/1/properties")
	before, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(before), "type 11") {
		t.Fatalf("%v in %s", err, before)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(before), "type 11", "type 2", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for scan := 3; scan <= 2*rereadLinks && seen == 0; scan++ {
		if links() != 56 {
			seen = scan
		}
	}
	if seen < 4 || seen > rereadLinks+1 {
		t.Errorf("a link that was written in place showed at scan %d, want the cache to hold it until scan %d",
			seen, rereadLinks+1)
	}
	// A topology that was re-created shows at once.
	n, err := nodetree.Defaults("MI300X")
	if err != nil {
		t.Fatal(err)
	}
	n.Name, n.Links = "sim-node-0",
		[]nodetree.Link{{A: 1, B: 2, Kind: nodetree.LinkPCIe}, {A: 3, B: 4, Kind: nodetree.LinkPCIe}}
	if err := nodetree.Write(dir, n); err != nil {
		t.Fatal(err)
	}
	if got := links(); got != 52 {
		t.Errorf("%d links after the topology was made anew, want 52", got)
	}
}

// TestUnreadLinksAreNotRemembered: a file that could not be read is tried again at the next scan.
func TestUnreadLinksAreNotRemembered(t *testing.T) {
	dir := generate(t, "MI300X", nil)
	file := filepath.Join(dir, nodesDir, "2/io_links/1/properties")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewScanner(openRoot(t, dir), Options{})
	f, err := s.Scan(t.Context())
	if err != nil || len(f.Unread) != 1 {
		t.Fatalf("%v, unread %v", err, f.Unread)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = s.Scan(t.Context()); err != nil || len(f.Unread) != 0 || f.Mesh.State != MeshFull {
		t.Errorf("%v, unread %v, mesh %s", err, f.Unread, f.Mesh.State)
	}
}

// TestHalfMadeTopologyIsNotRemembered: a scan that comes while KFD still fills a directory of links does not hold the
// next one to what it saw, whether the generation rises before that (a GPU goes) or after it (a GPU comes).
func TestHalfMadeTopologyIsNotRemembered(t *testing.T) {
	for name, rises := range map[string]bool{"the generation rose before": false, "the generation rises after": true} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := generate(t, "MI300X", nil)
			links := filepath.Join(dir, nodesDir, "2/io_links")
			apart := filepath.Join(t.TempDir(), "1")
			if err := os.Rename(filepath.Join(links, "1"), apart); err != nil {
				t.Fatal(err)
			}
			s := NewScanner(sameIDs{openRoot(t, dir)}, Options{})
			if f, err := s.Scan(t.Context()); err != nil || f.Mesh.State == MeshFull {
				t.Fatalf("%v, mesh %s of a tree that lacks a link", err, f.Mesh.State)
			}
			if err := os.Rename(apart, filepath.Join(links, "1")); err != nil {
				t.Fatal(err)
			}
			if rises {
				write(t, dir, topologyDir+"/generation_id", []byte("77\n"))
			}
			if f, err := s.Scan(t.Context()); err != nil || f.Mesh.State != MeshFull {
				t.Errorf("%v, mesh %s", err, f.Mesh.State)
			}
		})
	}
}

// sameIDs gives every directory one identity for ever: a sysfs does so while a directory is filled.
type sameIDs struct{ *RootFS }

type sameID struct{ SubFS }

func (f sameIDs) Sub(dir string) (SubFS, error) {
	sub, err := f.RootFS.Sub(dir)
	return sameID{sub}, err
}

func (sameID) ID() (DirID, error) { return DirID{Inode: 1}, nil }

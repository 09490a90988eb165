package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/hack/simrocm/nodetree"
)

// TestContradictions: files that contradict each other are an error that names the GPU, never a healthy node; and what
// is not there to be read makes nothing else broken.
func TestContradictions(t *testing.T) {
	const gpu, node = "0000:2b:00.0", "3"
	for name, c := range map[string]struct {
		mode   nodetree.PartitionMode
		damage func(t *testing.T, dir string)
		want   []string
		mesh   string
	}{
		"mode says one device, KFD has eight": {nodetree.CPX, func(t *testing.T, dir string) {
			write(t, dir, pciDir+"/"+gpu+"/current_compute_partition", []byte("SPX\n"))
		}, []string{"Error MixedPartitions " + gpu, "Error MixedPartitions " + gpu}, MeshFull},
		"another target": {nodetree.SPX, func(t *testing.T, dir string) {
			rewrite(t, dir, nodePath(node+"/properties"), "gfx_target_version 90402", "gfx_target_version 90500")
		}, []string{"Error MixedModels " + gpu}, MeshFull},
		"PCI and KFD disagree on the model": {nodetree.SPX, func(t *testing.T, dir string) {
			write(t, dir, pciDir+"/"+gpu+"/device", []byte("0x75a3\n"))
		}, []string{"Error MixedModels " + gpu}, MeshFull},
		"the GPU's files are gone behind the bus's link": {nodetree.SPX, func(t *testing.T, dir string) {
			target, err := filepath.EvalSymlinks(filepath.Join(dir, pciDir, gpu))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(target); err != nil {
				t.Fatal(err)
			}
		}, []string{"Error GPULost " + gpu}, MeshFull},
		"a virtual function's PCIe link": {nodetree.SPX, func(t *testing.T, dir string) {
			write(t, dir, pciDir+"/"+gpu+"/current_link_width", []byte("0\n"))
			write(t, dir, pciDir+"/"+gpu+"/current_link_speed", []byte("Unknown\n"))
		}, []string{}, MeshFull},
		"an empty generation": {nodetree.SPX, func(t *testing.T, dir string) {
			write(t, dir, topologyDir+"/generation_id", nil)
		}, []string{"Error SysfsUnreadable " + topologyDir + "/generation_id"}, MeshFull},
		"no directory of links": {nodetree.SPX, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, nodePath(node+"/io_links"))); err != nil {
				t.Fatal(err)
			}
		}, []string{"Error SysfsUnreadable " + nodePath(node+"/io_links")}, MeshUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			dir := generate(t, "MI300X", func(n *nodetree.Node) { n.Partition = c.mode })
			c.damage(t, dir)
			f := scan(t, openRoot(t, dir), Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" || f.Mesh.State != c.mesh ||
				f.Proven() != (len(c.want) == 0) {
				t.Errorf("mesh %s, proven %v, problems (-want +got):\n%s", f.Mesh.State, f.Proven(), diff)
			}
		})
	}
}

func rewrite(t *testing.T, dir, file, old, now string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%v: no %q in %s", err, old, file)
	}
	write(t, dir, file, []byte(strings.ReplaceAll(string(data), old, now)))
}

// TestMarkThatCannotBeRead: a tree whose mark of simulation is there in whatever form is simulated.
func TestMarkThatCannotBeRead(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"loop":      func(path string) error { return os.Symlink(simulationMark, path) },
	} {
		dir := generate(t, "MI300X", nil)
		mark := filepath.Join(dir, simulationMark)
		if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
		if err := make(mark); err != nil {
			t.Fatal(err)
		}
		if f := scan(t, openRoot(t, dir), Options{}); f.Origin != v1alpha1.OriginSimulated {
			t.Errorf("%s: origin %s", name, f.Origin)
		}
	}
}

// TestHungGPUsHideNothingElse: however many files of GPUs hang, what does not hang is still read.
func TestHungGPUsHideNothingElse(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	h := &hungReads{}
	for _, gpu := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for _, file := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} {
			path := pciDir + "/" + gpu + "/" + file
			if err := h.check(path, clock.Now()); err == nil {
				h.add(path, clock.Now())
			}
		}
	}
	if len(h.since) != 8*(maxHungPerTask+1) {
		t.Errorf("%d reads hang of 8 GPUs, want %d of each at most", len(h.since), maxHungPerTask+1)
	}
	for _, path := range []string{simulationMark, "sys", nodePath("2/gpu_id"), pciDir + "/i/vendor", "proc/cmdline"} {
		if err := h.check(path, clock.Now()); err != nil {
			t.Errorf("%s is refused: %v", path, err)
		}
	}
}

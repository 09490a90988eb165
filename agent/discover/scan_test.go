package discover

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

const healthyTree = "synthetic/mi300x-8x-spx-64000.txtar"

// TestNoGPUs tells apart why a node shows none.
func TestNoGPUs(t *testing.T) {
	kfd := memFS{topologyDir + "/generation_id": "1", nodesDir + "/0/gpu_id": "0",
		nodesDir + "/0/properties": "simd_count 0\n"}
	pci := memFS{pciDir + "/0000:05:00.0/vendor": "0x1002", pciDir + "/0000:05:00.0/class": "0x120000",
		pciDir + "/0000:05:00.0/device": "0x74a1", pciDir + "/0000:00:00.0/vendor": "0x8086"}
	noGPUOnPCI := memFS{pciDir + "/0000:00:00.0/vendor": "0x8086", pciDir + "/0000:00:01.0/vendor": "0x1002",
		pciDir + "/0000:00:01.0/class": "0x030000", pciDir + "/0000:00:01.0/device": "0x1638"}
	modules := memFS{"sys/module/kvm/initstate": "live"}
	amdgpu := memFS{moduleDir + "/initstate": "live", moduleDir + "/version": "6.14.14"}
	join := func(trees ...memFS) memFS {
		all := memFS{}
		for _, tree := range trees {
			for name, text := range tree {
				all[name] = text
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		tree memFS
		want string
		text string
	}{
		"empty root":               {memFS{"etc/passwd": ""}, "SysfsUnreadable sys", "Mount it there"},
		"sys forbidden":            {memFS{"sys": "!EPERM", "sys/x": ""}, "SysfsUnreadable sys", "Forbidden"},
		"sys of nothing":           {memFS{"sys/block/x": ""}, "SysfsUnreadable sys", "not a host's sysfs"},
		"driver not loaded":        {join(modules, pci), "DriverNotLoaded", "1 GPUs are on the PCI bus"},
		"no driver and no GPU":     {join(modules, noGPUOnPCI), "NoGPUs", "not loaded"},
		"module without KFD":       {join(modules, amdgpu, pci), "DriverNotLoaded", "CONFIG_HSA_AMD"},
		"KFD with CPUs only":       {kfd, "NoGPUs", "only CPUs"},
		"KFD did not take the GPU": {join(kfd, amdgpu, pci), "NoGPUs", "the driver did not take them"},
		"KFD's nodes forbidden":    {join(kfd, memFS{nodesDir: "!EPERM"}), "SysfsUnreadable " + nodesDir, "privileged"},
		"KFD forbidden": {memFS{topologyDir: "!EPERM", topologyDir + "/x": ""},
			"SysfsUnreadable " + topologyDir, "privileged"},
		"no KFD, module dir unknown": {pci, "DriverNotLoaded", "modprobe"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, c.tree, Options{})
			if len(f.Problems) == 0 || strings.TrimSpace(f.Problems[0].Code+" "+f.Problems[0].Subject()) != c.want ||
				!strings.Contains(f.Problems[0].Message, c.text) {
				t.Errorf("problems %v; want %q with %q", f.Problems, c.want, c.text)
			}
			if f.Mesh.State != MeshUnknown || f.Model != Unknown || f.Healthy() {
				t.Errorf("mesh %s, model %s, healthy %v: nothing is known of no GPU",
					f.Mesh.State, f.Model, f.Healthy())
			}
			checkNodeFacts(t, f)
		})
	}
}

// TestHiddenGPUs: KFD answers EPERM for GPUs outside the device cgroup; such a GPU is neither absent nor broken.
func TestHiddenGPUs(t *testing.T) {
	root := memTree(t, healthyTree)
	for name, c := range map[string]struct {
		hidden      []string
		gpus        int
		nodes, mesh string
	}{
		"one":  {[]string{"4"}, 7, "(4)", "Unknown"},
		"most": {[]string{"3", "4", "5", "6", "7", "8", "9"}, 1, "(3,4,5,6,7,8,9)", "Unknown"},
		"all":  {[]string{"2", "3", "4", "5", "6", "7", "8", "9"}, 0, "(2,3,4,5,6,7,8,9)", "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, hookFS{root, func(file string) error {
				for _, n := range c.hidden {
					if under(nodePath(n))(file) && file != nodePath(n) {
						return syscall.EPERM
					}
				}
				return nil
			}}, Options{})
			if diff := cmp.Diff([]string{"Error GPUHidden"}, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if len(f.GPUs) != c.gpus || f.Mesh.State != c.mesh || len(f.HiddenNodes) != len(c.hidden) {
				t.Errorf("%d GPUs, mesh %s, hidden %v", len(f.GPUs), f.Mesh.State, f.HiddenNodes)
			}
			if m := f.Problems[0].Message; !strings.Contains(m, "hidden from this container by its device cgroup") ||
				!strings.Contains(m, c.nodes) {
				t.Errorf("message %q", f.Problems[0].Message)
			}
		})
	}
}

// TestErrorsAreNotZero: whatever keeps a value from being read, it stays unknown, and the right thing is said.
func TestErrorsAreNotZero(t *testing.T) {
	root := memTree(t, healthyTree)
	gpu := pciDir + "/0000:05:00.0/"
	for name, c := range map[string]struct {
		file string
		err  error
		want []string
	}{
		"RAS unsupported": {gpu + "ras/xgmi_wafl_err_count", syscall.EINVAL,
			[]string{"Warning ErrorCountUnreadable " + gpu + "ras/xgmi_wafl_err_count"}},
		"RAS missing": {gpu + "ras/xgmi_wafl_err_count", syscall.ENOENT, []string{}},
		"RAS busy": {gpu + "ras/xgmi_wafl_err_count", errBusyText,
			[]string{"Warning ErrorCountUnreadable " + gpu + "ras/xgmi_wafl_err_count"}},
		"partition in reset": {gpu + "current_compute_partition", syscall.EPERM,
			[]string{"Warning PartitionUnreadable " + gpu + "current_compute_partition"}},
		"link fails": {nodePath("3/io_links/2/properties"), syscall.EIO,
			[]string{"Error SysfsUnreadable " + nodePath("3/io_links/2/properties")}},
		"links fail": {nodePath("3/io_links"), syscall.EIO,
			[]string{"Error SysfsUnreadable " + nodePath("3/io_links")}},
		"properties fail": {nodePath("3/properties"), syscall.EIO,
			[]string{"Error SysfsUnreadable " + nodePath("3/properties")}},
		"VRAM fails": {gpu + "mem_info_vram_total", syscall.EIO,
			[]string{"Warning SysfsUnreadable " + gpu + "mem_info_vram_total"}},
		"PCI bus unreadable": {pciDir, syscall.EPERM, []string{"Warning SysfsUnreadable " + pciDir}},
		"driver version": {moduleDir + "/version", syscall.EIO,
			[]string{"Warning SysfsUnreadable " + moduleDir + "/version"}},
		"simrocm.conf hidden": {simulationMark, syscall.EACCES, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, hookFS{root, func(file string) error {
				if file == c.file {
					return c.err
				}
				return nil
			}}, Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			n := checkNodeFacts(t, f)
			switch {
			case strings.Contains(c.file, "/ras/"):
				if f.GPUs[0].XGMIUncorrectableErrors != nil || n.XGMI.UncorrectableErrors != nil ||
					n.XGMI.CorrectableErrors != nil {
					t.Error("an unread counter became a number")
				}
			case strings.Contains(c.file, "/nodes/3"):
				if f.Mesh.State == MeshFull {
					t.Error("mesh is Full though a part of it was not read")
				}
			case c.file == moduleDir+"/version":
				if f.Driver.Kind != DriverUnknown {
					t.Errorf("driver is %s though its version was not read", f.Driver.Kind)
				}
			case c.file == simulationMark:
				if f.Origin != v1alpha1.OriginSimulated {
					t.Error("a mark that is there but not readable was taken for none")
				}
			}
		})
	}
}

// TestNeverReadsXGMIError: reading it clears the counter on MI200 and older.
func TestNeverReadsXGMIError(t *testing.T) {
	tree := memTree(t, healthyTree)
	tree[pciDir+"/0000:05:00.0/xgmi_error"] = "0\n"
	var mu sync.Mutex
	scan(t, hookFS{tree, func(file string) error {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(file, "xgmi_error") {
			t.Errorf("read %s", file)
		}
		return nil
	}}, Options{})
}

// hungFS blocks the reads of some files until they are released, and counts them.
type hungFS struct {
	FS
	mu      sync.Mutex
	hang    map[string]bool
	reads   map[string]int
	blocked chan string
	release chan struct{}
}

func (h *hungFS) ReadFile(name string) ([]byte, error) {
	h.mu.Lock()
	h.reads[name]++
	hang := h.hang[name]
	h.mu.Unlock()
	if hang {
		h.blocked <- name
		<-h.release
	}
	return h.FS.ReadFile(name)
}

// TestHungRead: a read that does not return costs its deadline once; the rest of the node is reported, and the file is
// not read again until it comes back.
func TestHungRead(t *testing.T) {
	file := pciDir + "/0000:7d:00.0/ras/xgmi_wafl_err_count"
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	fs := &hungFS{FS: memTree(t, healthyTree), hang: map[string]bool{file: true}, reads: map[string]int{},
		blocked: make(chan string, 1), release: make(chan struct{})}
	// one worker: a jump of the clock must not hit the reads of others
	s := NewScanner(fs, Options{Clock: clock, Parallel: 1})
	advanced := make(chan struct{})
	go func() {
		defer close(advanced)
		<-fs.blocked
		clock.Step(3 * time.Second)
	}()
	f, err := s.Scan(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	<-advanced
	want := []string{"Error ReadTimeout " + file}
	if diff := cmp.Diff(want, problemLines(f)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if len(f.GPUs) != 8 || f.Mesh.State != MeshFull || f.GPUs[4].XGMIUncorrectableErrors != nil ||
		f.GPUs[4].NUMANode == nil {
		t.Errorf("%d GPUs, mesh %s, GPU 4 %+v", len(f.GPUs), f.Mesh.State, f.GPUs[4])
	}
	if f, err = s.Scan(context.Background()); err != nil { // nothing steps the clock: the file must not be tried
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, problemLines(f)); diff != "" || !strings.Contains(f.Problems[0].Message, "3s") {
		t.Errorf("second scan: %v", f.Problems)
	}
	if fs.reads[file] != 1 {
		t.Errorf("the hung file was read %d times", fs.reads[file])
	}
	fs.mu.Lock()
	fs.hang = nil
	fs.mu.Unlock()
	close(fs.release)
	for s.hung.check(file, clock.Now()) != nil { // the abandoned reader still has to say that it came back
		runtime.Gosched()
	}
	if f, err = s.Scan(context.Background()); err != nil || len(f.Problems) > 0 ||
		f.GPUs[4].XGMIUncorrectableErrors == nil {
		t.Errorf("after the read came back: %v, %v", f.Problems, err)
	}
}

// TestScanEnds: a scan ends with its context, also where everything hangs.
func TestScanEnds(t *testing.T) {
	fs := &hungFS{FS: memFS{"sys/x": ""}, hang: map[string]bool{simulationMark: true}, reads: map[string]int{},
		blocked: make(chan string, 1), release: make(chan struct{})}
	defer close(fs.release)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-fs.blocked
		cancel()
	}()
	if f, err := Scan(ctx, fs, Options{}); !errors.Is(err, context.Canceled) || f != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestTopologyChanges: the scan starts over when KFD's topology changed under it, three times at most.
func TestTopologyChanges(t *testing.T) {
	root := memTree(t, healthyTree)
	for name, c := range map[string]struct{ changes, scans int }{"once": {1, 2}, "always": {99, 3}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			reads := 0
			f := scan(t, generationFS{root, func() string {
				mu.Lock()
				defer mu.Unlock()
				reads++
				return strings.Repeat("1", min(reads/2, c.changes)+1)
			}}, Options{})
			if f.Scans != c.scans || f.GenerationStable != (name == "once") {
				t.Errorf("%d scans, stable %v", f.Scans, f.GenerationStable)
			}
			if name == "always" {
				if diff := cmp.Diff([]string{"Warning TopologyUnstable " + topologyDir + "/generation_id"},
					problemLines(f)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

type generationFS struct {
	FS
	next func() string
}

func (g generationFS) ReadFile(name string) ([]byte, error) {
	if name == topologyDir+"/generation_id" {
		return []byte(g.next()), nil
	}
	return g.FS.ReadFile(name)
}

func TestHostSettings(t *testing.T) {
	healthy := memTree(t, healthyTree)
	healthy["proc/sys/kernel/numa_balancing"], healthy["proc/cmdline"] = "1\n", "quiet iommu=nopt\n"
	f := scan(t, healthy, Options{})
	if diff := cmp.Diff([]string{"Warning NUMABalancing proc/sys/kernel/numa_balancing",
		"Warning IOMMUNotPassthrough proc/cmdline"}, problemLines(f)); diff != "" {
		t.Error(diff)
	}
	// A root without proc takes the kernel's values from elsewhere only when it is told where.
	tree := memFS{"sys/x": ""}
	own := memFS{"proc/sys/kernel/osrelease": "6.8.0\n", "proc/sys/kernel/random/boot_id": "b-1\n"}
	if f := scan(t, tree, Options{}); f.KernelRelease != "" || f.BootID != "" {
		t.Errorf("another machine's tree got kernel %q, boot %q", f.KernelRelease, f.BootID)
	}
	if f := scan(t, tree, Options{Proc: own}); f.KernelRelease != "6.8.0" || f.BootID != "b-1" {
		t.Errorf("kernel %q, boot %q", f.KernelRelease, f.BootID)
	}
}

func TestExpectedGPUs(t *testing.T) {
	root := memTree(t, "synthetic/mi300x-gpu-gone.txtar")
	noList := hookFS{root, func(file string) error {
		if strings.HasSuffix(file, "xgmi_num_hops") {
			return syscall.ENOENT
		}
		return nil
	}}
	for _, c := range []struct {
		expected int
		want     []string
		mesh     string
	}{{0, []string{"Warning GPUMissing"}, MeshIncomplete}, {8, []string{"Error GPUMissing"}, MeshIncomplete},
		{7, []string{}, MeshFull}} {
		f := scan(t, noList, Options{ExpectedGPUs: c.expected})
		if diff := cmp.Diff(c.want, problemLines(f)); diff != "" || f.Mesh.State != c.mesh {
			t.Errorf("expected %d: mesh %s, problems (-want +got):\n%s", c.expected, f.Mesh.State, diff)
		}
	}
}

func TestROCmOrder(t *testing.T) {
	for name, c := range map[string]struct {
		tree    memFS
		version string
		source  string
	}{
		"TheRock": {memFS{"opt/rocm/core/.info/version": "10.0.0"}, "10.0.0", "opt/rocm/core/.info/version"},
		"package before core": {memFS{"opt/rocm/.info/version": "7.2.4", "opt/rocm/core/.info/version": "10.0.0"},
			"7.2.4", "opt/rocm/.info/version"},
		"versioned core": {memFS{"opt/rocm/core-10.0/.info/version": "10.0.0"}, "10.0.0",
			"opt/rocm/core-10.0/.info/version"},
		"one versioned": {memFS{"opt/rocm-6.3.3/.info/version": "6.3.3-74"}, "6.3.3",
			"opt/rocm-6.3.3/.info/version"},
		"two of one version": {memFS{"opt/rocm-6.3/.info/version": "6.3.3-74",
			"opt/rocm-6.3.3/.info/version": "6.3.3-74"}, "6.3.3", "opt/rocm-6.3/.info/version"},
		"library link": {memFS{"opt/rocm/lib/librocm-core.so.1": "librocm-core.so.1.0.60401"}, "6.4.1",
			"opt/rocm/lib/librocm-core.so.1"},
		"garbage, then header": {memFS{"opt/rocm/.info/version": "?", "opt/rocm/include/rocm_version.h": "#define " +
			"ROCM_VERSION_MAJOR 6\n#define ROCM_VERSION_MINOR 4\n#define ROCM_VERSION_PATCH 0\n"},
			"6.4.0", "opt/rocm/include/rocm_version.h"},
		"own path before usual": {memFS{"opt/mine/.info/version": "7.0.0", "opt/rocm/.info/version": "6.0.0"}, "7.0.0",
			"opt/mine/.info/version"},
	} {
		f := scan(t, c.tree, Options{ROCmPaths: []string{"", "/opt/mine"}})
		if f.ROCm.State != ROCmFound || f.ROCm.Version != c.version || f.ROCm.Source != c.source {
			t.Errorf("%s: %+v; want %s from %s", name, f.ROCm, c.version, c.source)
		}
	}
}

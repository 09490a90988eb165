package discover

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func TestReadRAS(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:05:00.0/"
	const ras = dir + "ras/"
	for name, c := range map[string]struct {
		tree   memFS
		want   map[string]ErrorCounts
		pages  *badPages
		unread []string // class and path below ras
	}{
		"no directory": {tree: memFS{}},
		"forbidden":    {tree: memFS{dir + "ras": "!EPERM"}, unread: []string{"Forbidden "}},
		"nothing that counts": {tree: memFS{ras + "features": "feature mask: 0x1\n", ras + "schema": "schema: 0x1\n",
			ras + "_err_count": "ue: 1\nce: 1\n", ras + "version": "table version: 0x1\n"}},
		"all kinds": {
			tree: memFS{ras + "umc_err_count": "ue: 0\nce: 4\nde: 2\n", ras + "gfx_err_count": "ue: 1\nce: 0\n",
				ras + "xgmi_wafl_err_count": "ue: 0\nce: 0\n", ras + "sdma_err_count": "Query currently inaccessible\n",
				ras + "mca_err_count": "!EINVAL", ras + "hdp_err_count": "ue: x\n",
				ras + "gpu_vram_bad_pages": "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n" +
					"0x027f5d53 : 0x00001000 : F\n"},
			want: map[string]ErrorCounts{"umc": {Correctable: 4, Deferred: ptr.To[uint64](2)},
				"gfx": {Uncorrectable: 1}, "xgmi_wafl": {}},
			pages:  &badPages{retired: 2, unreserved: 1},
			unread: []string{"Malformed hdp_err_count", "Unsupported mca_err_count", "Busy sdma_err_count"}},
		"pages unreadable": {tree: memFS{ras + "gpu_vram_bad_pages": "!EIO", ras + "gfx_err_count": "ue: 0\nce: 0\n"},
			want: map[string]ErrorCounts{"gfx": {}}, unread: []string{"Failed gpu_vram_bad_pages"}},
		"no bad page": {tree: memFS{ras + "gpu_vram_bad_pages": ""}, pages: &badPages{}},
	} {
		t.Run(name, func(t *testing.T) {
			var unread []*ReadError
			got := readRAS(testReader(c.tree), dir, &unread)
			if diff := cmp.Diff(c.want, got.blocks); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.pages, got.pages, cmp.AllowUnexported(badPages{})); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
			var lines []string
			for _, u := range unread {
				lines = append(lines,
					string(u.Class)+" "+strings.TrimPrefix(strings.TrimPrefix(u.Path, dir+"ras"), "/"))
			}
			if diff := cmp.Diff(c.unread, lines); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
			var g GPU
			got.apply(&g)
			if _, ok := c.want["xgmi_wafl"]; ok != (g.XGMIUncorrectableErrors != nil) ||
				ok != (g.XGMICorrectableErrors != nil) {
				t.Errorf("xGMI counters %v, %v", g.XGMIUncorrectableErrors, g.XGMICorrectableErrors)
			}
			if (c.pages == nil) != (g.RetiredPages == nil) {
				t.Errorf("retired pages %v", g.RetiredPages)
			}
		})
	}
}

func TestParseBadPages(t *testing.T) {
	for text, want := range map[string]badPages{"": {}, "\n": {}, "0x1 : 0x1000 : R": {retired: 1},
		"0x1:0x1000:P\n0x2 : 0x1000 : F\n": {retired: 1, unreserved: 1}} {
		if got, err := parseBadPages([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"0x1", "0x1 : 0x1000", "0x1 : 0x1000 : X", "0x1 : 0x1000 :", "page : 0x1000 : R",
		"0x1 : size : R", "0x1 : 0x1000 : R R", "0x1 : 0x1000 : R\n0x", ": : R"} {
		if got, err := parseBadPages([]byte(text)); Classify(err) != ClassMalformed || got != (badPages{}) {
			t.Errorf("%q is %+v (%v), want it malformed and nothing counted", text, got, err)
		}
	}
}

func FuzzBadPages(f *testing.F) {
	fuzz(f, []string{"", "0x027f5d43 : 0x00001000 : R\n", "0x1 : 0x1000 : F\n0x2 : 0x1000 : P", "::",
		"Query currently inaccessible"}, func(b []byte) error {
		pages, err := parseBadPages(b)
		if lines := strings.Count(string(b), "\n") + 1; pages.retired < 0 || pages.unreserved < 0 ||
			pages.retired+pages.unreserved > lines {
			return errUnexpected
		}
		return err
	})
}

// TestCounterProblems: what each counter makes of a node of two or four GPUs.
func TestCounterProblems(t *testing.T) {
	ports := func(letters string) *Metrics {
		m := &Metrics{Revision: "1.7"}
		for _, l := range letters {
			m.XGMIPorts = append(m.XGMIPorts,
				map[rune]string{'U': XGMIPortUp, 'D': XGMIPortDown, '?': XGMIPortUnknown}[l])
		}
		return m
	}
	for name, c := range map[string]struct {
		change func(gpus []GPU)
		want   []string // severity, code, subject
		text   []string // parts of the messages
	}{
		"zero": {func(g []GPU) {
			g[0].RAS = map[string]ErrorCounts{"umc": {Deferred: ptr.To[uint64](0)}}
			g[0].RetiredPages = ptr.To(0)
		}, nil, nil},
		"only CEs": {func(g []GPU) { g[0].RAS = map[string]ErrorCounts{"umc": {Correctable: 9}} }, nil, nil},
		"UEs of two blocks": {func(g []GPU) {
			g[1].RAS = map[string]ErrorCounts{"umc": {Uncorrectable: 3}, "gfx": {Uncorrectable: 1}}
		}, []string{"Error UncorrectableErrors 0000:01:00.0"}, []string{"gfx 1, umc 3"}},
		"xGMI has its own code": {func(g []GPU) {
			g[0].RAS = map[string]ErrorCounts{RASBlockXGMI: {Uncorrectable: 2}}
			g[0].XGMIUncorrectableErrors = ptr.To[uint64](2)
		}, []string{"Error XGMIUncorrectableErrors 0000:00:00.0"}, []string{"2 uncorrectable xGMI errors"}},
		"deferred": {func(g []GPU) { g[0].RAS = map[string]ErrorCounts{"umc": {Deferred: ptr.To[uint64](5)}} },
			[]string{"Warning DeferredErrors 0000:00:00.0"}, []string{"umc 5"}},
		"retired pages": {func(g []GPU) { g[0].RetiredPages = ptr.To(7) },
			[]string{"Warning RetiredPages 0000:00:00.0"}, []string{"7 pages of its memory are retired;"}},
		"pages in use": {func(g []GPU) { g[0].RetiredPages, g[0].unreservedPages = ptr.To(0), 2 },
			[]string{"Warning RetiredPages 0000:00:00.0"}, []string{"2 bad pages could not be taken out of use"}},
		"one port down": {func(g []GPU) {
			g[0].Metrics, g[1].Metrics, g[2].Metrics, g[3].Metrics = ports("UUU"), ports("UUU"),
				ports("UDU"), ports("UUU")
		}, []string{"Warning XGMIPortDown 0000:02:00.0"}, []string{"port 1 is down here"}},
		"the same port down on most": {func(g []GPU) {
			g[0].Metrics, g[1].Metrics, g[2].Metrics, g[3].Metrics = ports("UD"), ports("UD"), ports("UD"), ports("UU")
		}, nil, nil},
		"half is not most": {func(g []GPU) {
			g[0].Metrics, g[1].Metrics, g[2].Metrics, g[3].Metrics = ports("UD"), ports("UD"), ports("UU"), ports("UU")
		}, nil, nil},
		"unknown is not down": {func(g []GPU) {
			g[0].Metrics, g[1].Metrics, g[2].Metrics = ports("UU"), ports("UU"), ports("??")
		}, nil, nil},
		"guests are not judged": {func(g []GPU) {
			for i := range g {
				g[i].model.VF, g[i].Metrics = true, ports("UU")
			}
			g[2].Metrics = ports("UD")
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Facts{GPUs: []GPU{{PCIAddress: "0000:00:00.0"}, {PCIAddress: "0000:01:00.0"},
				{PCIAddress: "0000:02:00.0"}, {PCIAddress: "0000:03:00.0"}}}
			c.change(f.GPUs)
			var l problemList
			checkCounters(&l, f)
			f.Problems = l
			if diff := cmp.Diff(append([]string{}, c.want...), problemLines(f)); diff != "" {
				t.Fatalf("problems (-want +got):\n%s", diff)
			}
			for i, text := range c.text {
				if !strings.Contains(l[i].Message, text) || len(l[i].Message) > 400 {
					t.Errorf("message %q of %d characters, want %q in it", l[i].Message, len(l[i].Message), text)
				}
			}
		})
	}
}

// TestCountersOfATree reads a whole generated node with faults in the files themselves.
func TestCountersOfATree(t *testing.T) {
	tree := memTree(t, healthyTree)
	const gpu = "sys/bus/pci/devices/0000:2b:00.0/"
	tree[gpu+"ras/umc_err_count"] = "ue: 2\nce: 0\nde: 1\n"
	tree[gpu+"ras/gfx_err_count"] = "Query currently inaccessible\n"
	tree[gpu+"ras/gpu_vram_bad_pages"] = "0x1 : 0x1000 : R\n"
	blob := metricsBlob(1, 7, 2208)
	put16(blob, 264, 1, 1, 1, 0, 1, 1, 1, 0xffff)
	tree[gpu+"gpu_metrics"] = string(blob)
	f := scan(t, tree, Options{})
	want := []string{"Error UncorrectableErrors 0000:2b:00.0", "Warning ErrorCountUnreadable " + gpu +
		"ras/gfx_err_count", "Warning DeferredErrors 0000:2b:00.0", "Warning RetiredPages 0000:2b:00.0"}
	if diff := cmp.Diff(want, problemLines(f)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	g := f.GPUs[1]
	if _, read := g.RAS["gfx"]; read || g.Metrics == nil || g.Metrics.XGMIPorts[3] != XGMIPortDown ||
		*g.RetiredPages != 1 {
		t.Errorf("GPU %+v with metrics %+v", g.RAS, g.Metrics)
	}
}

var errUnexpected = errors.New("more pages than lines")

// TestCountersNobodyReads: an error counter that cannot be read, or that one GPU does not have, is never a silent zero.
func TestCountersNobodyReads(t *testing.T) {
	const second = "/0000:2b:00.0"
	missing := func(f FS, part string) FS { // without what has the text in its path
		return withoutFS{f, func(name string) bool { return strings.Contains(name, part) }}
	}
	failing := func(f FS, err error, parts ...string) FS {
		return hookFS{f, func(name string) error {
			for _, part := range parts {
				if strings.Contains(name, part) {
					return err
				}
			}
			return nil
		}}
	}
	for name, c := range map[string]struct {
		model      string
		tree       func(FS) FS
		want       []string
		text       string // part of the first message
		unreadable int32
		cells      map[int]string // UE cells by GPU
	}{
		"all unsupported": {"MI300X", func(f FS) FS { return failing(f, syscall.EINVAL, "/ras/") },
			[]string{"Warning ErrorCountUnreadable " + pciDir + "/0000:05:00.0/ras/gfx_err_count"},
			"of 8 of the 8 GPUs", 8, map[int]string{0: "?", 7: "?"}},
		"two blocks of one GPU": {"MI300X", func(f FS) FS {
			return failing(f, syscall.EINVAL, second+"/ras/umc_err", second+"/ras/xgmi_wafl_err")
		}, []string{"Warning ErrorCountUnreadable " + pciDir + second + "/ras/umc_err_count"},
			"2 error counters of 1 of the 8 GPUs", 1, map[int]string{0: "0", 1: "0+?"}},
		"two kinds of failure are one problem": {"MI300X", func(f FS) FS {
			return failing(failing(f, syscall.EINVAL, second+"/ras/umc_err"), syscall.EIO, second+"/ras/gfx_err")
		}, []string{"Warning ErrorCountUnreadable " + pciDir + second + "/ras/gfx_err_count"},
			"2 error counters of 1", 1, nil},
		"directory forbidden": {"MI300X", func(f FS) FS { return failing(f, syscall.EPERM, second+"/ras") },
			[]string{"Warning ErrorCountUnreadable " + pciDir + second + "/ras"}, "Run privileged", 1,
			map[int]string{0: "0", 1: "?"}},
		"directory of one GPU missing": {"MI300X", func(f FS) FS { return missing(f, second+"/ras") },
			[]string{"Warning ErrorCountUnreadable 0000:2b:00.0"}, "1 GPUs have no error counters", 0,
			map[int]string{0: "0", 1: "?"}},
		"block of one GPU missing": {"MI300X", func(f FS) FS { return missing(f, second+"/ras/umc_err") },
			[]string{"Warning ErrorCountUnreadable 0000:2b:00.0"}, "ras/umc_err_count", 0,
			map[int]string{0: "0", 1: "0+?"}},
		"no GPU has any": {"MI300X", func(f FS) FS { return missing(f, "/ras") }, []string{}, "", 0,
			map[int]string{0: "?", 7: "?"}},
		"virtual functions": {"MI300X VF", func(f FS) FS { return f }, []string{}, "", 0, map[int]string{0: "none"}},
		"block that most have not": {"MI300X", func(f FS) FS { return onlyOn(f, "/ras/umc_err", second) }, []string{},
			"", 0, map[int]string{0: "0", 1: "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := scan(t, c.tree(inMemory(t, c.model, nil)), Options{})
			if diff := cmp.Diff(c.want, problemLines(f)); diff != "" {
				t.Fatalf("problems (-want +got):\n%s", diff)
			}
			if len(c.want) > 0 &&
				(!strings.Contains(f.Problems[0].Message, c.text) || len(f.Problems[0].Message) > 400) {
				t.Errorf("message %q lacks %q, or is longer than 400", f.Problems[0].Message, c.text)
			}
			if len(c.want) > 0 && !strings.Contains(f.Verdict(), "ErrorCountUnreadable") {
				t.Errorf("the verdict rests on counters that nobody read: %s", f.Verdict())
			}
			unreadable := int32(0)
			if r := f.NodeFacts(0).RAS; r != nil {
				unreadable = r.Unreadable
			}
			if unreadable != c.unreadable {
				t.Errorf("unreadable %d, want %d", unreadable, c.unreadable)
			}
			for gpu, want := range c.cells {
				if got := rasCells(f, gpu)[0]; got != want {
					t.Errorf("GPU%d shows %s uncorrectable errors, want %s", gpu, got, want)
				}
			}
		})
	}
}

// withoutFS hides what gone says.
type withoutFS struct {
	FS
	gone func(name string) bool
}

func (w withoutFS) ReadFile(name string) ([]byte, error) {
	if w.gone(name) {
		return nil, syscall.ENOENT
	}
	return w.FS.ReadFile(name)
}

func (w withoutFS) ReadDir(name string) ([]string, error) {
	if w.gone(name) {
		return nil, syscall.ENOENT
	}
	names, err := w.FS.ReadDir(name)
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return w.gone(name + "/" + n) }), err
}

// onlyOn hides what has the text in its path, except below one GPU.
func onlyOn(f FS, part, gpu string) FS {
	return withoutFS{f, func(name string) bool { return strings.Contains(name, part) && !strings.Contains(name, gpu) }}
}

// linesFS gives a file as sysfs gives gpu_vram_bad_pages: each read has as many whole lines as fit it and a page of the
// kernel.
type linesFS struct{ memFS }

func (f linesFS) ReadFile(name string) ([]byte, error) {
	data, err := f.memFS.ReadFile(name)
	return data[:bytes.LastIndexByte(data[:min(len(data), 4096)], '\n')+1], err
}

func (f linesFS) Open(name string) (io.ReadCloser, error) {
	data, err := f.memFS.ReadFile(name)
	return &linesReader{data}, err
}

type linesReader struct{ left []byte }

func (r *linesReader) Close() error { return nil }

func (r *linesReader) Read(p []byte) (int, error) {
	n := bytes.LastIndexByte(r.left[:min(len(r.left), len(p), 4096)], '\n') + 1
	copy(p, r.left[:n])
	if r.left = r.left[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestManyBadPages: a list of bad pages that does not fit one read of sysfs is read to its end.
func TestManyBadPages(t *testing.T) {
	const dir, pages = "sys/bus/pci/devices/0000:05:00.0/", 3000
	tree := memFS{dir + "ras/gpu_vram_bad_pages": strings.Repeat("0x027f5d43 : 0x00001000 : R\n", pages)}
	var unread []*ReadError
	if got := readRAS(testReader(linesFS{tree}), dir, &unread); got.pages == nil || got.pages.retired != pages ||
		len(unread) > 0 {
		t.Errorf("%+v, unread %v", got.pages, unread)
	}
}

package discover

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// metricsBlob makes a gpu_metrics of all ones, that is nothing available, with a true header.
func metricsBlob(format, content byte, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 0xff
	}
	binary.LittleEndian.PutUint16(b, uint16(size))
	b[2], b[3] = format, content
	return b
}

func put16(b []byte, offset int, values ...uint16) {
	for i, v := range values {
		binary.LittleEndian.PutUint16(b[offset+2*i:], v)
	}
}

func put32(b []byte, offset int, values ...uint32) {
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[offset+4*i:], v)
	}
}

func put64(b []byte, offset int, values ...uint64) {
	for i, v := range values {
		binary.LittleEndian.PutUint64(b[offset+8*i:], v)
	}
}

// Offsets here are written out again from the C struct, not taken from the parser's table.
func TestParseMetricsRevisions(t *testing.T) {
	kb := func(from uint64) []uint64 {
		return []uint64{from, from + 1, from + 2, from + 3, from + 4, from + 5, from + 6, from + 7}
	}
	ports := []string{"Up", "Up", "Up", "Down", "Up", "Up", "Unknown", "Up"}
	common := func(revision string) Metrics {
		return Metrics{Revision: revision, HotspotCelsius: ptr.To[int64](71), MemoryCelsius: ptr.To[int64](62),
			SocketPowerWatts: ptr.To[int64](740), PCIeWidth: ptr.To[int64](16), PCIeSpeedMTps: ptr.To[int64](32000)}
	}
	fabric := func(m *Metrics) {
		m.XGMIWidth, m.XGMISpeedGbps, m.PCIeReplays = ptr.To[int64](16), ptr.To[int64](32), ptr.To[uint64](5)
		m.XGMIReadKB, m.XGMIWriteKB = kb(100), kb(200)
	}
	residency := func(m *Metrics) {
		m.AccumulationCounter = ptr.To[uint64](1000)
		m.ThrottleAccumulators = map[string]uint64{ThrottleProchot: 1, ThrottlePower: 2, ThrottleSocketHot: 3,
			ThrottleVRHot: 4, ThrottleMemoryHot: 5}
		m.Partitions = ptr.To[int64](8)
	}
	for name, c := range map[string]struct {
		content byte
		size    int
		fill    func(b []byte)
		want    func(m *Metrics)
	}{
		"1.3": {3, 120,
			func(b []byte) { put16(b, 6, 71, 62); put16(b, 22, 740); put32(b, 68, 0x10); put16(b, 74, 16, 320) },
			func(m *Metrics) { m.ThrottleStatus = ptr.To[uint64](0x10) }},
		"1.4": {4, 288, func(b []byte) {
			put16(b, 4, 71, 62)
			put16(b, 10, 740)
			put32(b, 40, 0)
			put16(b, 48, 16, 320, 16, 32)
			put64(b, 88, 5)
			put64(b, 104, append(kb(100), kb(200)...)...)
		}, func(m *Metrics) { fabric(m); m.ThrottleStatus = ptr.To[uint64](0) }},
		"1.5": {5, 360, func(b []byte) {
			put16(b, 4, 71, 62)
			put16(b, 10, 740)
			put32(b, 104, 7)
			put16(b, 112, 16, 320, 16, 32)
			put64(b, 152, 5)
			put64(b, 176, append(kb(100), kb(200)...)...)
		}, func(m *Metrics) { fabric(m); m.ThrottleStatus = ptr.To[uint64](7) }},
		"1.6": {6, 1664, func(b []byte) {
			put16(b, 4, 71, 62)
			put16(b, 10, 740)
			put32(b, 32, 1000, 1, 2, 3, 4, 5)
			put16(b, 60, 16, 320, 16, 32)
			put64(b, 104, 5)
			put64(b, 128, append(kb(100), kb(200)...)...)
			put16(b, 306, 8)
		}, func(m *Metrics) { fabric(m); residency(m) }},
		"1.7": {7, 2208, func(b []byte) {
			put16(b, 4, 71, 62)
			put16(b, 10, 740)
			put32(b, 40, 1000, 1, 2, 3, 4, 5)
			put16(b, 68, 16, 320, 16, 32)
			put64(b, 112, 5)
			put64(b, 136, append(kb(100), kb(200)...)...)
			put16(b, 264, 1, 1, 1, 0, 1, 1, 0xffff, 1)
			put16(b, 338, 8)
		}, func(m *Metrics) { fabric(m); residency(m); m.XGMIPorts = ports }},
		"1.8": {8, 3872, func(b []byte) {
			put16(b, 4, 71, 62)
			put16(b, 10, 740)
			put32(b, 40, 1000, 1, 2, 3, 4, 5)
			put16(b, 68, 16, 320, 16, 32)
			put64(b, 112, 5)
			put64(b, 136, append(kb(100), kb(200)...)...)
			put16(b, 264, 1, 1, 1, 0, 1, 1, 0xffff, 1)
			put16(b, 338, 8)
		}, func(m *Metrics) { fabric(m); residency(m); m.XGMIPorts = ports }},
	} {
		t.Run(name, func(t *testing.T) {
			blob := metricsBlob(1, c.content, c.size)
			empty, err := parseMetrics(blob)
			if err != nil {
				t.Fatal(err)
			}
			nothing := &Metrics{Revision: name}
			if c.content >= 7 {
				nothing.XGMIPorts = []string{"Unknown", "Unknown", "Unknown", "Unknown", "Unknown", "Unknown",
					"Unknown", "Unknown"}
			}
			if diff := cmp.Diff(nothing, empty); diff != "" {
				t.Errorf("all ones is not nothing (-want +got):\n%s", diff)
			}
			c.fill(blob)
			want := common(name)
			c.want(&want)
			got, err := parseMetrics(append(blob, 0, 0, 0)) // what follows the struct is not its business
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for cut := range len(blob) {
				if _, err := parseMetrics(blob[:cut]); Classify(err) != ClassMalformed {
					t.Fatalf("cut to %d bytes: %v, want it malformed", cut, err)
				}
			}
		})
	}
}

func TestParseMetricsOdd(t *testing.T) {
	for name, c := range map[string]struct {
		data  []byte
		class Class
		text  string
	}{
		"empty":       {nil, ClassMalformed, "empty"},
		"three bytes": {[]byte{120, 0, 1}, ClassMalformed, "fewer than its header"},
		"size lies": {append([]byte{0xff, 0xff}, metricsBlob(1, 7, 2208)[2:]...), ClassMalformed,
			"states 65535 bytes and has 2208"},
		"another format":   {metricsBlob(2, 3, 120), ClassUnsupported, "revision 2.3"},
		"a newer content":  {metricsBlob(1, 10, 400), ClassUnsupported, "revision 1.10"},
		"an older content": {metricsBlob(1, 2, 112), ClassUnsupported, "revision 1.2"},
		"early 1.6": {metricsBlob(1, 6, 384), ClassUnsupported,
			"revision 1.6 with 384 bytes, where this version knows 1664"},
		"attributes, no sum": {metricsBlob(1, 9, 6), ClassMalformed, "needs 8"},
	} {
		_, err := parseMetrics(c.data)
		if Classify(err) != c.class || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: class %q, %v; want %q and %q", name, Classify(err), err, c.class, c.text)
		}
	}
	if err := error(errRevision{"9.9"}); !errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v does not count as unsupported", err)
	}
}

// rawAttribute is one attribute of gpu_metrics 1.9 with its values as bytes.
type rawAttribute struct {
	unit, kind, id uint64
	values         []byte
}

// attributesBlob makes a gpu_metrics 1.9 with a true header.
func attributesBlob(attributes ...rawAttribute) []byte {
	b := []byte{0, 0, 1, 9}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(attributes)))
	for _, a := range attributes {
		instances := uint64(len(a.values) / attributeBytes[a.kind])
		b = binary.LittleEndian.AppendUint64(b, a.unit<<24|a.kind<<20|a.id<<10|instances)
		b = append(b, a.values...)
	}
	binary.LittleEndian.PutUint16(b, uint16(len(b)))
	return b
}

func TestParseAttributes(t *testing.T) {
	u16 := func(values ...uint16) []byte {
		b := make([]byte, 2*len(values))
		put16(b, 0, values...)
		return b
	}
	u32 := func(v uint32) []byte { b := make([]byte, 4); put32(b, 0, v); return b }
	u64 := func(values ...uint64) []byte { b := make([]byte, 8*len(values)); put64(b, 0, values...); return b }
	blob := attributesBlob(
		rawAttribute{2, 3, attrHotspot, u16(0xfff6)},    // s16: -10
		rawAttribute{2, 2, attrMemory, u16(0xffff)},     // not available
		rawAttribute{3, 4, attrPower, u32(1400)},        //
		rawAttribute{0, 6, 900, u64(1, 2, 3)},           // an id of the future
		rawAttribute{0, 4, attrAccumulation, u32(5000)}, //
		rawAttribute{0, 4, attrAccumulation + 2, u32(40)},
		rawAttribute{0, 4, attrAccumulation + 5, u32(50)},
		rawAttribute{0, 0, attrPCIeWidth, []byte{16}},
		rawAttribute{unitGTps, 2, attrPCIeSpeed, u16(64)},
		rawAttribute{0, 2, attrXGMIWidth, u16(16)},
		rawAttribute{unitTenthGTps, 2, attrXGMISpeed, u16(384)},
		rawAttribute{0, 6, attrReplays, u64(3)},
		rawAttribute{9, 6, attrXGMIRead, u64(7, 8)},
		rawAttribute{9, 6, attrXGMIWrite, u64(7, 1<<64-1)},
		rawAttribute{0, 2, attrXGMIStatus, u16(1, 0, 0xffff, 1)},
		rawAttribute{0, 2, attrPartitions, u16(4)},
	)
	want := &Metrics{Revision: "1.9", HotspotCelsius: ptr.To[int64](-10),
		SocketPowerWatts: ptr.To[int64](1400), AccumulationCounter: ptr.To[uint64](5000),
		ThrottleAccumulators: map[string]uint64{ThrottlePower: 40, ThrottleMemoryHot: 50},
		PCIeWidth:            ptr.To[int64](16), PCIeSpeedMTps: ptr.To[int64](64000), XGMIWidth: ptr.To[int64](16),
		XGMISpeedGbps: ptr.To[int64](38), PCIeReplays: ptr.To[uint64](3), XGMIReadKB: []uint64{7, 8},
		XGMIPorts: []string{"Up", "Down", "Unknown", "Up"}, Partitions: ptr.To[int64](4)}
	got, err := parseMetrics(blob)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for cut := range len(blob) {
		short := append([]byte{}, blob[:cut]...)
		if cut >= 2 {
			binary.LittleEndian.PutUint16(short, uint16(cut)) // the header is true: the list itself is cut
		}
		if _, err := parseMetrics(short); Classify(err) != ClassMalformed {
			t.Fatalf("cut to %d bytes: %v, want it malformed", cut, err)
		}
	}
	for name, b := range map[string][]byte{
		"negative count": append(append([]byte{}, blob[:4]...),
			append([]byte{0xff, 0xff, 0xff, 0xff}, blob[8:]...)...),
		"count lies":         append(append([]byte{}, blob[:4]...), append([]byte{0xa0, 0x86, 1, 0}, blob[8:]...)...),
		"unknown type":       {16, 0, 1, 9, 1, 0, 0, 0, 1, 0, 0x80, 0, 0, 0, 0, 0},
		"too many values":    {16, 0, 1, 9, 1, 0, 0, 0, 0xff, 3, 0x60, 0, 0, 0, 0, 0},
		"value is not there": {16, 0, 1, 9, 1, 0, 0, 0, 1, 0, 0x20, 0, 0, 0, 0, 0},
	} {
		if _, err := parseMetrics(b); Classify(err) != ClassMalformed {
			t.Errorf("%s: %v, want it malformed", name, err)
		}
	}
}

func TestPortStates(t *testing.T) {
	at := func(values ...int64) []*int64 {
		list := make([]*int64, len(values))
		for i := range values {
			if values[i] >= 0 {
				list[i] = &values[i]
			}
		}
		return list
	}
	for name, c := range map[string]struct{ in, want string }{
		"up":          {"11", "UU"},
		"one down":    {"10", "UD"},
		"disabled":    {"1-", "U?"},
		"odd":         {"12", "U?"},
		"all down":    {"00", "??"},
		"all missing": {"--", "??"},
		"none":        {"", ""},
	} {
		var values []int64
		for _, r := range c.in {
			values = append(values, map[rune]int64{'0': 0, '1': 1, '2': 2, '-': -1}[r])
		}
		got := ""
		for _, s := range portStates(at(values...)) {
			got += map[string]string{XGMIPortUp: "U", XGMIPortDown: "D", XGMIPortUnknown: "?"}[s]
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestReadMetrics(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:05:00.0/"
	known := string(metricsBlob(1, 3, 120))
	for name, c := range map[string]struct {
		tree    memFS
		want    *Metrics
		classes []Class
	}{
		"missing": {memFS{}, nil, nil},
		"1.3 and its replays": {memFS{dir + "gpu_metrics": known, dir + "pcie_replay_count": "4\n"},
			&Metrics{Revision: "1.3", PCIeReplays: ptr.To[uint64](4)}, nil},
		"1.3 alone": {memFS{dir + "gpu_metrics": known}, &Metrics{Revision: "1.3"}, nil},
		"replays unreadable": {memFS{dir + "gpu_metrics": known, dir + "pcie_replay_count": "!EIO"},
			&Metrics{Revision: "1.3"}, []Class{ClassFailed}},
		"a guest":   {memFS{dir + "gpu_metrics": "!EINVAL"}, nil, []Class{ClassUnsupported}},
		"forbidden": {memFS{dir + "gpu_metrics": "!EPERM"}, nil, []Class{ClassForbidden}},
		"unknown":   {memFS{dir + "gpu_metrics": string(metricsBlob(9, 9, 2208))}, nil, []Class{ClassUnsupported}},
		"empty":     {memFS{dir + "gpu_metrics": ""}, nil, []Class{ClassMalformed}},
	} {
		var unread []*ReadError
		got := readMetrics(testReader(c.tree), dir, &unread)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		var classes []Class
		for _, u := range unread {
			classes = append(classes, u.Class)
		}
		if diff := cmp.Diff(c.classes, classes); diff != "" {
			t.Errorf("%s: unread (-want +got):\n%s", name, diff)
		}
	}
}

// TestRawMetrics: each gpu_metrics of the fixtures, with its exact content.
func TestRawMetrics(t *testing.T) {
	dir := filepath.Join(fixtures(t), "synthetic", "raw")
	files, err := filepath.Glob(filepath.Join(dir, "gpu_metrics-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no gpu_metrics among the fixtures (%v)", err)
	}
	read := []uint64{0, 1259, 1, 1, 1, 1141, 9774, 1069}
	written := []uint64{0, 1074, 1, 1, 1, 4109, 1134, 1262}
	allUp := []string{"Up", "Up", "Up", "Up", "Up", "Up", "Up", "Up"}
	base := func(revision string, change func(*Metrics)) *Metrics {
		m := &Metrics{Revision: revision, HotspotCelsius: ptr.To[int64](47), MemoryCelsius: ptr.To[int64](41),
			SocketPowerWatts: ptr.To[int64](182), PCIeWidth: ptr.To[int64](16),
			PCIeSpeedMTps: ptr.To[int64](32000), XGMIWidth: ptr.To[int64](16), XGMISpeedGbps: ptr.To[int64](32),
			PCIeReplays: ptr.To[uint64](0), XGMIReadKB: read, XGMIWriteKB: written}
		if change != nil {
			change(m)
		}
		return m
	}
	newer := func(change func(*Metrics)) func(*Metrics) {
		return func(m *Metrics) {
			m.Partitions, m.XGMIPorts = ptr.To[int64](1), allUp
			if change != nil {
				change(m)
			}
		}
	}
	want := map[string]*Metrics{
		"v1_3": {Revision: "1.3", HotspotCelsius: ptr.To[int64](47), MemoryCelsius: ptr.To[int64](41),
			SocketPowerWatts: ptr.To[int64](182), ThrottleStatus: ptr.To[uint64](0), PCIeWidth: ptr.To[int64](16),
			PCIeSpeedMTps: ptr.To[int64](32000)},
		"v1_4":     base("1.4", func(m *Metrics) { m.ThrottleStatus = ptr.To[uint64](0) }),
		"v1_5":     base("1.5", func(m *Metrics) { m.ThrottleStatus = ptr.To[uint64](0) }),
		"v1_6":     base("1.6", func(m *Metrics) { m.Partitions = ptr.To[int64](1) }),
		"v1_7":     base("1.7", newer(nil)),
		"v1_7-hot": base("1.7", newer(func(m *Metrics) { m.HotspotCelsius = ptr.To[int64](107) })),
		"v1_7-link3-down-slow": base("1.7", newer(func(m *Metrics) {
			m.XGMISpeedGbps, m.XGMIPorts = ptr.To[int64](16), []string{"Up", "Up", "Up", "Down", "Up", "Up", "Up", "Up"}
		})),
		"v1_8": base("1.8", newer(nil)),
		"v1_9": {Revision: "1.9", HotspotCelsius: ptr.To[int64](47), MemoryCelsius: ptr.To[int64](41),
			SocketPowerWatts: ptr.To[int64](182), PCIeWidth: ptr.To[int64](16),
			PCIeSpeedMTps: ptr.To[int64](32000), XGMIWidth: ptr.To[int64](16), XGMISpeedGbps: ptr.To[int64](32),
			XGMIPorts: allUp, Partitions: ptr.To[int64](1)},
	}
	classes := map[string]Class{"3bytes": ClassMalformed, "empty": ClassMalformed,
		"size-lies": ClassMalformed, "truncated": ClassMalformed,
		"unknown-revision": ClassUnsupported, "v1_9-count-lies": ClassMalformed, "v1_9-count-negative": ClassMalformed}
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Base(file), "gpu_metrics-")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMetrics(data)
		if _, known := want[name]; !known && classes[name] == "" {
			t.Errorf("%s has no case", name)
		}
		if Classify(err) != classes[name] {
			t.Errorf("%s: class %q (%v), want %q", name, Classify(err), err, classes[name])
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUnknownMetricsAreToldOnce: eight GPUs, one problem, which names the revision.
func TestUnknownMetricsAreToldOnce(t *testing.T) {
	f := &Facts{}
	for _, address := range []string{"0000:05:00.0", "0000:2b:00.0"} {
		var unread []*ReadError
		dir := pciDir + "/" + address + "/"
		readMetrics(testReader(memFS{dir + "gpu_metrics": string(metricsBlob(9, 9, 64))}), dir, &unread)
		f.addUnread(unread...)
	}
	f.addUnread(&ReadError{Path: "x/gpu_metrics", Class: ClassUnsupported, Err: syscall.EOPNOTSUPP}) // a guest's
	var l problemList
	checkCounters(&l, f)
	if len(l) != 1 || l[0].Code != v1alpha1.ProblemMetricsUnsupported || l[0].Severity != v1alpha1.SeverityWarning ||
		!strings.Contains(l[0].Message, "revision 9.9") || !strings.Contains(l[0].Message, "on 2 GPUs") {
		t.Errorf("problems %+v", l)
	}
}

func FuzzMetrics(f *testing.F) {
	seeds := []string{"", "\x01", "\x78\x00\x01\x03",
		string(attributesBlob(rawAttribute{0, 2, attrXGMIStatus, []byte{1, 0, 0, 0}}))}
	for content, layout := range metricsLayouts {
		seeds = append(seeds, string(metricsBlob(1, content, layout.size)))
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMetrics(data)
		if (m == nil) != (err != nil) {
			t.Fatalf("%v with %v", m, err)
		}
		if class := Classify(err); err != nil && class != ClassMalformed && class != ClassUnsupported {
			t.Errorf("class %s of %v", class, err)
		}
		if err != nil {
			return
		}
		down := 0
		for _, p := range m.XGMIPorts {
			if p == XGMIPortDown {
				down++
			}
		}
		if down > 0 && down == len(m.XGMIPorts) {
			t.Errorf("all of %d ports are down", down)
		}
	})
}

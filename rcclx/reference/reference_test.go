package reference

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"rcclx.io/commgroup-operator/internal/audience"
	"rcclx.io/commgroup-operator/rcclx"
)

var mi300x = Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 8, Nodes: 1, Flavor: rcclx.FlavorRCCL}

// at8G is a measurement of what AMD's acceptance mark is of.
func at8G(mbps int64) Measurement {
	k := allReduce8G
	k.Statistic = ""
	return Measurement{Key: k, MedianMBps: mbps, MinMBps: mbps - 1000, MaxMBps: mbps + 1000, P5MBps: mbps - 500}
}

// TestProfiles: each mark has its source, and no two of those that are compared are for the same thing.
func TestProfiles(t *testing.T) {
	type place struct {
		Kind
		Key
		Place
	}
	seen, names := map[place]string{}, map[string]bool{}
	for _, p := range profiles {
		if p.Source == "" || p.Says == "" || p.Remark == "" || p.MarkMBps < 0 ||
			p.MarkMBps == 0 && p.Kind != NotComparable || names[p.Name] || len(p.Name) > 40 {
			t.Errorf("%+v", p)
		}
		names[p.Name] = true
		if p.Kind == NotComparable {
			continue
		}
		if k := p.Key; k != k.normal() || k.SizeBytes <= 0 || p.Place.Model == "" || p.Place.Partition == "" ||
			p.Place.Ranks == 0 || p.Place.Nodes == 0 || p.Place.Nodes > 1 && p.Place.Transport == "" {
			t.Errorf("%s leaves a part of its key open", p.Name)
		}
		if other := seen[place{p.Kind, p.Key, p.Place}]; other != "" {
			t.Errorf("%s and %s are for the same", p.Name, other)
		}
		seen[place{p.Kind, p.Key, p.Place}] = p.Name
	}
	for name, mark := range map[string]int64{"amd-acceptance-mi300x": 304_000, "amd-acceptance-mi350x": 350_000,
		"amd-acceptance-mi355x-2-nodes": 350_000} {
		i := slices.IndexFunc(profiles, func(p Profile) bool { return p.Name == name })
		if i < 0 || profiles[i].MarkMBps != mark || profiles[i].Key.SizeBytes != 8_589_934_592 ||
			profiles[i].Key.Placement != rcclx.InPlace || profiles[i].Kind != Acceptance {
			t.Errorf("%s: %+v", name, profiles[max(i, 0)])
		}
	}
}

// TestDocumented: docs/thresholds.md lists each mark with its number and source.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/thresholds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range profiles {
		line := ""
		for l := range strings.Lines(string(text)) {
			if strings.Contains(l, "`"+p.Name+"`") {
				line = l
			}
		}
		mark := "| none |"
		if p.MarkMBps > 0 {
			mark = fmt.Sprintf("| %g |", float64(p.MarkMBps)/1000)
		}
		if !strings.Contains(line, mark) || !strings.Contains(line, string(p.Kind)) {
			t.Errorf("docs/thresholds.md has no line of %s with its mark %g GB/s and kind %s: %q",
				p.Name, float64(p.MarkMBps)/1000, p.Kind, line)
		}
	}
}

// TestFindIsExact: any one part that differs, or is not known, gives no mark.
func TestFindIsExact(t *testing.T) {
	if p, ok := Find(allReduce8G, mi300x); !ok || p.Name != "amd-acceptance-mi300x" {
		t.Fatalf("%+v %v", p, ok)
	}
	other := mi300x
	other.Flavor, other.Transport = rcclx.FlavorRCCLXDev, RDMA
	if _, ok := Find(allReduce8G, other); !ok {
		t.Error("flavor, and a transport within one node, must not matter")
	}
	for name, change := range map[string]func(k *Key, p *Place){
		"variant":            func(k *Key, _ *Place) { k.Variant = rcclx.DDA },
		"collective":         func(k *Key, _ *Place) { k.Collective = rcclx.AllGather },
		"datatype":           func(k *Key, _ *Place) { k.Datatype = rcclx.BFloat16 },
		"placement":          func(k *Key, _ *Place) { k.Placement = rcclx.OutOfPlace },
		"default placement":  func(k *Key, _ *Place) { k.Placement = "" },
		"size":               func(k *Key, _ *Place) { k.SizeBytes = 8_000_000_000 },
		"statistic":          func(k *Key, _ *Place) { k.Statistic = Max },
		"model":              func(_ *Key, p *Place) { p.Model = "MI300X VF" },
		"no model":           func(_ *Key, p *Place) { p.Model = "" },
		"partition":          func(_ *Key, p *Place) { p.Partition = "CPX/NPS1" },
		"unknown partition":  func(_ *Key, p *Place) { p.Partition = "" },
		"ranks":              func(_ *Key, p *Place) { p.Ranks = 4 },
		"nodes":              func(_ *Key, p *Place) { p.Nodes = 2 },
		"two nodes over TCP": func(_ *Key, p *Place) { p.Ranks, p.Nodes, p.Transport = 16, 2, TCP },
	} {
		k, p := allReduce8G, mi300x
		change(&k, &p)
		if got, ok := Find(k, p); ok {
			t.Errorf("%s: found %s", name, got.Name)
		}
	}
	two := Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 16, Nodes: 2, Transport: RDMA}
	if p, ok := Find(allReduce8G, two); !ok || p.Name != "amd-acceptance-mi300x-2-nodes" {
		t.Errorf("%+v %v", p, ok)
	}
}

func TestNearest(t *testing.T) {
	small := at8G(1)
	small.SizeBytes, small.Datatype, small.Placement = 64<<20, rcclx.BFloat16, ""
	for _, tc := range []struct {
		at       Place
		measured []Measurement
		want     []string
	}{
		{mi300x, []Measurement{small}, []string{"amd-acceptance-mi300x, is 304.0 GB/s for Baseline " +
			"AllReduce Float32 8589934592 B in place with 8 ranks on 1 node of MI300X in SPX/NPS1",
			"datatypes: [Float32], placements: [InPlace], a size of 8589934592 B (the largest was 67108864 B)"}},
		{Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 4, Nodes: 1}, []Measurement{at8G(1)},
			[]string{"4 ranks instead of 8 (spec.ranksPerNode)", "exactly this was not measured"}},
		{Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 32, Nodes: 4, Transport: TCP}, nil,
			[]string{"amd-acceptance-mi300x-2-nodes", "32 ranks instead of 16, 4 nodes instead of 2, transport TCP " +
				"instead of RDMA, which benchmark cannot change", "set benchmark.thresholds of your own"}},
		{mi300x, nil, []string{"add it to benchmark.collectives"}},
		{Place{Model: "MI308X", Nodes: 1}, nil, []string{"no built-in reference is known for MI308X over 1 node"}},
		{Place{Nodes: 3}, nil, []string{"GPUs of an unknown model over 3 nodes"}},
	} {
		lines := Nearest(tc.measured, tc.at, audience.Pod)
		text := strings.Join(lines, "\n")
		for _, w := range tc.want {
			if !strings.Contains(text, w) {
				t.Errorf("%+v: %q lacks %q", tc.at, text, w)
			}
		}
		if slices.ContainsFunc(lines, func(l string) bool { return len(l) > maxCauseBytes }) || len(lines) > 3 {
			t.Errorf("too long: %q", lines)
		}
	}
}

// TestPartlySo: where a part of the place may be what a threshold names, it is not passed over; and one that is left
// out is always told, whatever others apply to other measurements.
func TestPartlySo(t *testing.T) {
	place := Place{Model: "MI300X", Partition: "SPX/NPS1", Ranks: 16, Nodes: 2, Transport: RDMA,
		Flavor: rcclx.FlavorRCCL}
	trivial := Threshold{Key: allReduce8G, MinMBps: 1}
	trivial.Key.SizeBytes = 1 << 20
	small := at8G(2000)
	small.SizeBytes = 1 << 20
	for name, tc := range map[string]struct {
		where  Place // of the threshold
		change func(*Place)
		state  State
		mode   Mode
		words  string
	}{
		"transport, some over TCP": {Place{Transport: RDMA}, func(p *Place) { p.Transport = "Mixed" }, NotMeasured,
			Enforce, "it names transport RDMA, and this is Mixed"},
		"partition, one GPU apart": {Place{Partition: "SPX/NPS1"}, func(p *Place) { p.Partition = "mixed" },
			NotMeasured, Enforce, "it names partition SPX/NPS1, and this is mixed"},
		"model": {Place{Model: "MI300X"}, func(p *Place) { p.Model = "mixed" }, NotMeasured, Enforce, "model MI300X"},
		"flavor": {Place{Flavor: rcclx.FlavorRCCL}, func(p *Place) { p.Flavor = "mixed" }, NotMeasured,
			Enforce, "flavor rccl"},
		"all over TCP": {Place{Transport: RDMA}, func(p *Place) { p.Transport = TCP }, NotMeasured, Report,
			"the nearest is for transport RDMA, and this is TCP"},
		"as named": {Place{Transport: RDMA}, func(*Place) {}, NotMet, Enforce, ""},
		"in small letters": {Place{Model: "mi300x", Partition: "spx/nps1", Transport: "rdma"}, func(*Place) {},
			NotMet, Enforce, ""},
		"compute mode alone": {Place{Partition: "SPX"}, func(*Place) {}, NotMet, Enforce, ""},
		"memory mode alone":  {Place{Partition: "nps1"}, func(*Place) {}, NotMet, Enforce, ""},
		"another compute mode": {Place{Partition: "CPX"}, func(*Place) {}, NotMeasured, Report,
			"the nearest is for partition CPX, and this is SPX/NPS1"},
		"part of a word": {Place{Model: "MI300"}, func(*Place) {}, NotMeasured, Report,
			"the nearest is for model MI300, and this is MI300X"},
	} {
		at := place
		tc.change(&at)
		got := Evaluate(Input{Place: at, References: Off, Measurements: []Measurement{small, at8G(2000)},
			Thresholds: []Threshold{{Key: allReduce8G, Place: tc.where, MinMBps: 180_000}, trivial}})
		if len(got) != 2 || got[0].State != tc.state || got[0].Mode != tc.mode ||
			!strings.Contains(strings.Join(got[0].Causes, " "), tc.words) || got[1].State != Met {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Of two for one measurement the nearer one is named; where another one applies to it, none.
	far, near := Threshold{Key: allReduce8G, Place: Place{Model: "MI325X", Ranks: 8}, MinMBps: 1},
		Threshold{Key: allReduce8G, Place: Place{Ranks: 32}, MinMBps: 1}
	for _, both := range [][]Threshold{{far, near}, {near, far}} {
		got := Evaluate(Input{Place: place, References: Off, Measurements: []Measurement{at8G(2000)}, Thresholds: both})
		if len(got) != 1 || !strings.HasSuffix(got[0].Causes[0], "the nearest is for 32 ranks, and these are 16") {
			t.Errorf("%+v", got)
		}
	}
	if got := Evaluate(Input{Place: place, References: Off, Measurements: []Measurement{at8G(2000)},
		Thresholds: []Threshold{far, near, {Key: allReduce8G, MinMBps: 1}}}); len(got) != 1 || got[0].State != Met {
		t.Errorf("%+v", got)
	}
}

// TestMarksThatCount: what is NotComparable is never compared, not even with exactly its key and place; an Acceptance
// mark goes before what a machine showed; and a percentage of a mark is rounded up.
func TestMarksThatCount(t *testing.T) {
	for _, p := range profiles {
		if p.Kind != NotComparable {
			continue
		}
		for _, placement := range []rcclx.Placement{p.Key.Placement, rcclx.InPlace, rcclx.OutOfPlace} {
			m := Measurement{Key: p.Key, MedianMBps: 1}
			m.Placement, m.Statistic = placement, ""
			for _, c := range Evaluate(Input{Place: p.Place, Measurements: []Measurement{m}}) {
				if c.Source == p.Name {
					t.Errorf("%s was compared: %+v", p.Name, c)
				}
			}
			if got, ok := Find(m.Key, p.Place); ok && got.Name == p.Name {
				t.Errorf("%s was found", p.Name)
			}
		}
	}
	mi350x := mi300x
	mi350x.Model = "MI350X"
	if p, _ := Find(allReduce8G, mi350x); p.Name != "amd-acceptance-mi350x" {
		t.Errorf("%+v", p)
	}
	k := allReduce8G
	k.Placement, k.Statistic = rcclx.OutOfPlace, ""
	for mbps, want := range map[int64]State{119_120: NotMet, 119_121: Met} { // 33 % of 360970 are 119120.1
		got := Evaluate(Input{Place: mi350x, References: Off, Measurements: []Measurement{{Key: k, MedianMBps: mbps}},
			Thresholds: []Threshold{{Key: k, MinPercent: 33}}})
		if len(got) != 1 || got[0].State != want {
			t.Errorf("%d: %+v", mbps, got)
		}
	}
}

// TestStatistics: each statistic is held against its own number.
func TestStatistics(t *testing.T) {
	for s, want := range map[Statistic]int64{"": 300_000, Median: 300_000, Min: 299_000, Max: 301_000, P5: 299_500} {
		k := allReduce8G
		k.Statistic = s
		for least, state := range map[int64]State{want: Met, want + 1: NotMet} {
			got := Evaluate(Input{Place: mi300x, Measurements: []Measurement{at8G(300_000)}, References: Off,
				Thresholds: []Threshold{{Key: k, MinMBps: least}}})
			if len(got) != 1 || got[0].State != state || got[0].MeasuredMBps != want || got[0].ExpectedMBps != least ||
				!strings.HasSuffix(got[0].Measurement, statisticWords[k.normal().Statistic]) {
				t.Errorf("%s at least %d: %+v", s, least, got)
			}
		}
	}
}

// TestMeshPart: for communicators that ran beside others only thresholds hold that name their ranks or nodes, and no
// mark.
func TestMeshPart(t *testing.T) {
	th := Threshold{Key: allReduce8G, MinMBps: 400_000}
	in := Input{Place: mi300x, Measurements: []Measurement{at8G(300_000)}, Part: true, Thresholds: []Threshold{th}}
	if got := Evaluate(in); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	in.Thresholds[0].Place.Ranks = 8
	if got := Evaluate(in); len(got) != 1 || got[0].State != NotMet {
		t.Errorf("%+v", got)
	}
	in.Thresholds[0].Place.Ranks = 16
	if got := Evaluate(in); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestReferencesOfAllKinds(t *testing.T) {
	oneGiB := at8G(310_000)
	oneGiB.SizeBytes = 1 << 30
	got := Evaluate(Input{Place: mi300x, Measurements: []Measurement{oneGiB, at8G(300_000)}})
	if len(got) != 2 || got[0].Source != "amd-acceptance-mi300x" || got[0].State != NotMet || got[0].Mode != Enforce ||
		got[0].Percent != 98 {
		t.Errorf("%+v", got)
	}
	if i := got[1]; i.Source != "seen-mi300x-1g" || i.State != Met || i.Mode != Report || i.Percent != 96 {
		t.Errorf("an informative mark within 5 %%: %+v", i)
	}
	oneGiB.MedianMBps = 300_000
	if got = Evaluate(Input{Place: mi300x, Measurements: []Measurement{oneGiB}}); got[0].State != NotMet ||
		got[0].Mode != Report {
		t.Errorf("an informative mark fails nothing: %+v", got)
	}
	none := at8G(0)
	if got = Evaluate(Input{Place: mi300x, Measurements: []Measurement{none}}); got[0].State != NotMeasured ||
		got[0].Mode != Enforce || got[0].MeasuredMBps != 0 {
		t.Errorf("what was measured without a time is no pass: %+v", got)
	}
}

// TestEachCause: each rule speaks where it should, and only there.
func TestEachCause(t *testing.T) {
	healthy := Symptom{Place: mi300x, Key: allReduce8G, Percent: 95, Mesh: "Full", GPUs: 8}
	cases := map[string]func(s *Symptom){
		"slow link":             func(s *Symptom) { s.SlowLink = "a<->b moves 1 MB/s" },
		"setting not in effect": func(s *Symptom) { s.Key.Variant, s.NotInEffect = rcclx.DDA, "RankCount" },
		"TCP":                   func(s *Symptom) { s.Place.Nodes, s.Place.Transport = 2, TCP },
		"xGMI not used":         func(s *Symptom) { s.Percent = 8 },
		"mesh incomplete":       func(s *Symptom) { s.Mesh = "Incomplete" },
		"NUMABalancing":         func(s *Symptom) { s.Warnings = []Warning{{Name: "NUMABalancing"}} },
		"IOMMU":                 func(s *Symptom) { s.Warnings = []Warning{{Name: "IOMMU"}} },
		"GPUBusy":               func(s *Symptom) { s.Warnings = []Warning{{Name: "GPUBusy"}} },
		"LockedMemory":          func(s *Symptom) { s.Warnings = []Warning{{Name: "LockedMemory"}} },
		"throttled":             func(s *Symptom) { s.Throttled = "GPU x" },
		"own variables":         func(s *Symptom) { s.Env = []string{"NCCL_DEBUG", "NCCL_ALGO"} },
		"library version":       func(s *Symptom) { s.Place.Model, s.VersionCode = "MI250", 23004 },
		"fewer ranks":           func(s *Symptom) { s.Place.Ranks = 4 },
		"partition":             func(s *Symptom) { s.Place.Partition = "CPX/NPS4" },
		"virtual function":      func(s *Symptom) { s.Place.Model = "MI300X VF" },
		"FP8":                   func(s *Symptom) { s.Key.Variant = rcclx.LowPrecision },
		"unsteady":              func(s *Symptom) { s.SpreadPercent = 12 },
		"large only":            func(s *Symptom) { s.Shape = LargeOnly },
		"flat":                  func(s *Symptom) { s.Shape = Flat },
		"all sizes":             func(s *Symptom) { s.Shape = AllSizes },
		"network":               func(s *Symptom) { s.Place.Nodes, s.Place.Transport = 2, RDMA },
		"other warnings":        func(s *Symptom) { s.Warnings = []Warning{{Name: "ROCmVersion"}} },
	}
	for _, r := range rules {
		change := cases[r.name]
		if r.name == "usual" {
			continue
		}
		if change == nil {
			t.Errorf("no case for %s", r.name)
			continue
		}
		if text := r.says(healthy); text != "" {
			t.Errorf("%s speaks of a healthy node: %s", r.name, text)
		}
		sick := healthy
		change(&sick)
		if r.says(sick) == "" {
			t.Errorf("%s does not speak of %+v", r.name, sick)
		}
		causes := Causes(sick)
		if len(causes) < 2 || causes[0] != limited(r.says(sick)) {
			t.Errorf("%s is not the likeliest of %q", r.name, causes)
		}
	}
	// All at once: four, and none longer than the API takes.
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := healthy
		for _, change := range cases {
			if r.IntN(2) == 0 {
				change(&s)
			}
		}
		causes := Causes(s)
		if len(causes) == 0 || len(causes) > maxCauses ||
			slices.ContainsFunc(causes, func(c string) bool { return len(c) > maxCauseBytes }) {
			t.Fatalf("%+v: %q", s, causes)
		}
	}
}

func TestShape(t *testing.T) {
	series := func(mbps ...int64) []Measurement {
		var out []Measurement
		for i, v := range mbps {
			m := at8G(v)
			m.SizeBytes = 1 << (20 + 2*i)
			out = append(out, m)
		}
		return out
	}
	for _, tc := range []struct {
		mbps []int64
		want Shape
	}{
		{[]int64{100, 200, 290, 300}, ""},
		{[]int64{100, 350, 340, 300}, LargeOnly},
		{[]int64{100, 290, 300, 300}, Flat},
		{[]int64{100, 0, 290, 300}, ""},
		{[]int64{300}, ""},
	} {
		all := series(tc.mbps...)
		if got := (Input{Measurements: all}).shape(all[len(all)-1]); got != tc.want {
			t.Errorf("%v: %q, expected %q", tc.mbps, got, tc.want)
		}
	}
	all := series(100, 200, 290, 300)
	for least, want := range map[int64]Shape{90: LargeOnly, 110: AllSizes} {
		if got := (Input{Place: mi300x, Measurements: all,
			Thresholds: []Threshold{{Key: all[0].Key, MinMBps: least}}}).shape(all[3]); got != want {
			t.Errorf("a threshold of %d at a smaller size: %q, expected %q", least, got, want)
		}
	}
}

// TestEvaluateProperties: whatever is thrown at it, what decides comes first, what was measured has its numbers, what
// was not has none and a reason.
func TestEvaluateProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	key := func() Key {
		return Key{Variant: rcclx.Variant(pick("", "Baseline", "DDA")),
			Collective: rcclx.Collective(pick("AllReduce", "AllGather")),
			Datatype:   rcclx.Datatype(pick("Float32", "BFloat16")),
			Placement:  rcclx.Placement(pick("", "OutOfPlace", "InPlace")),
			SizeBytes:  []int64{1 << 20, size8G}[r.IntN(2)]}
	}
	place := func() Place {
		return Place{Model: pick("", "MI300X", "MI350X"), Partition: pick("", "SPX/NPS1", "unknown"),
			Ranks: []int{0, 8, 16}[r.IntN(3)], Nodes: r.IntN(3), Transport: pick("", RDMA, TCP),
			Flavor: rcclx.Flavor(pick("", "rccl"))}
	}
	for range 5000 {
		in := Input{Place: place(), References: Mode(pick("", "Off", "Report", "Enforce")), Part: r.IntN(4) == 0}
		for range r.IntN(4) {
			m := Measurement{Key: key(), MedianMBps: int64(r.IntN(3)) * 200_000}
			m.MinMBps = m.MedianMBps / 2
			in.Measurements = append(in.Measurements, m)
		}
		for range r.IntN(4) {
			th := Threshold{Key: key(), Place: place(), MinMBps: 1 + int64(r.IntN(500_000))}
			th.Key.Statistic = Statistic(pick("", "Median", "Min", "P5"))
			if r.IntN(3) == 0 {
				th.MinMBps, th.MinPercent = 0, 1+r.IntN(200)
			}
			in.Thresholds = append(in.Thresholds, th)
		}
		got := Evaluate(in)
		if !slices.IsSortedFunc(got, Worse) {
			t.Fatalf("not sorted: %+v", got)
		}
		for _, c := range got {
			measured := c.State != NotMeasured
			if measured != (c.MeasuredMBps > 0 && c.ExpectedMBps > 0) || c.State != Met && len(c.Causes) == 0 ||
				len(c.Causes) > maxCauses || len(c.Measurement) > 160 || len(c.Source) > 64 {
				t.Fatalf("%+v of %+v", c, in)
			}
			if c.Mode != Enforce && c.Mode != Report {
				t.Fatalf("mode %q", c.Mode)
			}
		}
	}
}

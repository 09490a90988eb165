package rcclx

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

var preferred = Settings{DDA: DDASettings{Mode: ModePreferred}, LowPrecision: LowPrecisionSettings{Mode: ModePreferred}}

// gainsAt builds a series: at each size the gain in percent of each of four members, who all see the same.
func gainsAt(gains map[int64]int64) ABSeries {
	s := ABSeries{Placement: OutOfPlace}
	for size, percent := range gains {
		p := ABPoint{SizeBytes: size, Members: 4}
		for range 4 {
			p.GainsPPM = append(p.GainsPPM, percent*10_000)
			p.NoisePPM = append(p.NoisePPM, 10_000)
		}
		s.Points = append(s.Points, p)
	}
	return s
}

func judged(t *testing.T, v Variant, c Collective, d Datatype, series ...ABSeries) Worth {
	t.Helper()
	in := WorthInput{Flavor: FlavorRCCLXDev, Settings: preferred, Ranks: 8, GFX: "gfx942", Variant: v, Collective: c,
		Datatype: d, Series: series}
	if v == LowPrecision {
		e := int64(62_500)
		in.ErrorPPM, in.Data = &e, Usability{State: Usable}
	}
	w, ok := JudgeWorth(in)
	if !ok {
		t.Fatalf("%s %s %s: nothing to judge", v, c, d)
	}
	return w
}

func TestWorthOfDDA(t *testing.T) {
	for name, tc := range map[string]struct {
		gains map[int64]int64
		// change alters the points, by size ascending.
		change    func(points []ABPoint)
		state     string
		bands     []Band
		proven    int64
		recommend string
		words     string
	}{
		"wins small, loses large": {
			gains: map[int64]int64{kib: 50, 64 * kib: 40, mib: 20, 4 * mib: -10, 16 * mib: -20, 64 * mib: -90},
			state: WorthMixed, bands: []Band{{kib, mib, OutcomeWins, 40}, {4 * mib, 16 * mib, OutcomeLoses, -15}},
			proven:    mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576", words: "Of 5 sizes 3 faster, up to 50 % less time at " +
				"1 KiB, and 2 slower, up to 20 % more time at 16 MiB."},
		"loses everywhere": {
			gains: map[int64]int64{kib: -5, mib: -50, 16 * mib: -10},
			state: WorthNo, bands: []Band{{kib, 16 * mib, OutcomeLoses, -10}}, recommend: "off",
			words: "Slower than Baseline at 3 of 3 sizes, up to 50 % more time at 1 MiB"},
		"wins everywhere it acts": {
			gains: map[int64]int64{kib: 50, mib: 20, 16 * mib: 10, 64 * mib: 0},
			state: WorthYes, bands: []Band{{kib, 16 * mib, OutcomeWins, 20}}, proven: 16 * mib,
			recommend: "dda.allReduceTreeMaxBytes=16777216", words: "Above 16 MiB nothing is proven."},
		"noise": {
			gains: map[int64]int64{kib: 2, mib: -2, 16 * mib: 1},
			state: WorthNo, bands: []Band{{kib, 16 * mib, OutcomeEven, 1}}, proven: 16 * mib, recommend: "off",
			words: "No change beyond noise at 3 sizes"},
		"even ones between and behind": {
			gains: map[int64]int64{kib: 10, 4 * kib: 0, 16 * kib: 10, mib: 1, 16 * mib: -9},
			state: WorthMixed, bands: []Band{{kib, kib, OutcomeWins, 10}, {4 * kib, 4 * kib, OutcomeEven, 0}, {16 * kib,
				16 * kib, OutcomeWins, 10}, {mib, mib, OutcomeEven, 1}, {16 * mib, 16 * mib, OutcomeLoses, -9}},
			proven: mib, recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"limit under flat's": {
			gains: map[int64]int64{kib: 10, 64 * kib: 10, 128 * kib: -9},
			state: WorthMixed,
			bands: []Band{{kib, 64 * kib, OutcomeWins, 10}, {128 * kib, 128 * kib, OutcomeLoses, -9}}, proven: 64 * kib,
			recommend: "dda.allReduceFlatMaxBytes=65536 dda.allReduceTreeMaxBytes=65536"},
		"flat loses, tree wins": {
			gains: map[int64]int64{kib: -10, 64 * kib: -10, mib: 30, 16 * mib: 20},
			state: WorthMixed, bands: []Band{{kib, 64 * kib, OutcomeLoses, -10}, {mib, 16 * mib, OutcomeWins, 25}},
			recommend: "off", words: "Its flat path loses: run again with dda.allReduceFlatMaxBytes=0"},
		"a size without numbers": {
			gains: map[int64]int64{kib: 50, mib: 20, 16 * mib: 10}, change: func(p []ABPoint) { p[1].GainsPPM = nil },
			state: WorthUnknown, bands: []Band{{kib, 16 * mib, OutcomeWins, 30}}, proven: kib,
			words: "1 size, first 1 MiB"},
		"a size that half the members lack": {
			gains: map[int64]int64{kib: 50, mib: 20}, change: func(p []ABPoint) { p[1].GainsPPM = p[1].GainsPPM[:2] },
			state: WorthUnknown, bands: []Band{{kib, kib, OutcomeWins, 50}}, proven: kib},
		"a size that one member lacks": {
			gains: map[int64]int64{kib: 50, mib: 20}, change: func(p []ABPoint) { p[1].GainsPPM = p[1].GainsPPM[:3] },
			state: WorthYes, bands: []Band{{kib, mib, OutcomeWins, 35}}, proven: mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"a size that was left out": {
			gains:  map[int64]int64{kib: 50, mib: 20, 16 * mib: 10},
			change: func(p []ABPoint) { p[1].GainsPPM, p[1].LeftOut = nil, true },
			state:  WorthYes, bands: []Band{{kib, 16 * mib, OutcomeWins, 30}},
			proven: 16 * mib, recommend: "dda.allReduceTreeMaxBytes=16777216",
			words: "Numbers of 1 more measured sizes are not in the reports."},
		"the smallest left out": {
			gains:  map[int64]int64{kib: 50, mib: 20},
			change: func(p []ABPoint) { p[0].GainsPPM, p[0].LeftOut = nil, true },
			state:  WorthUnknown, bands: []Band{{mib, mib, OutcomeWins, 20}}},
		"the largest left out": {
			gains:  map[int64]int64{kib: 50, mib: 20, 16 * mib: 10},
			change: func(p []ABPoint) { p[2].GainsPPM, p[2].LeftOut = nil, true },
			state:  WorthYes, bands: []Band{{kib, mib, OutcomeWins, 35}}, proven: mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"a loss is a loss although another size is missing": {
			gains: map[int64]int64{kib: -50, mib: 20, 16 * mib: 10}, change: func(p []ABPoint) { p[2].GainsPPM = nil },
			state: WorthMixed, bands: []Band{{kib, kib, OutcomeLoses, -50}, {mib, mib, OutcomeWins, 20}},
			recommend: "off"},
		"members apart": {
			gains:  map[int64]int64{kib: 50, mib: 10},
			change: func(p []ABPoint) { p[1].GainsPPM = []int64{20_000, 60_000, 140_000, 180_000} },
			state:  WorthYes, bands: []Band{{kib, kib, OutcomeWins, 50}, {mib, mib, OutcomeEven, 10}}, proven: mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"repeats apart": {
			gains: map[int64]int64{kib: 50, mib: 10}, change: func(p []ABPoint) { p[1].NoisePPM = []int64{120_000} },
			state: WorthYes, bands: []Band{{kib, kib, OutcomeWins, 50}, {mib, mib, OutcomeEven, 10}}, proven: mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"too much noise tells nothing": {
			gains: map[int64]int64{kib: 50, mib: 10}, change: func(p []ABPoint) { p[1].NoisePPM = []int64{300_000} },
			state: WorthUnknown, bands: []Band{{kib, kib, OutcomeWins, 50}}, proven: kib},
		"one member that tells no noise: a gain of 4 % is none": {
			gains:  map[int64]int64{kib: 4, mib: 5},
			change: func(p []ABPoint) { blind(p) },
			state:  WorthYes, bands: []Band{{kib, kib, OutcomeEven, 4}, {mib, mib, OutcomeWins, 5}}, proven: mib,
			recommend: "dda.allReduceTreeMaxBytes=1048576"},
		"one member that tells no noise: a loss of 4 % is one": {
			gains:  map[int64]int64{kib: 50, mib: -4},
			change: func(p []ABPoint) { blind(p) },
			state:  WorthMixed, bands: []Band{{kib, kib, OutcomeWins, 50}, {mib, mib, OutcomeLoses, -4}}, proven: kib,
			recommend: "dda.allReduceFlatMaxBytes=1024 dda.allReduceTreeMaxBytes=1024"},
	} {
		t.Run(name, func(t *testing.T) {
			series := gainsAt(tc.gains)
			slices.SortFunc(series.Points, func(a, b ABPoint) int { return int(a.SizeBytes - b.SizeBytes) })
			if tc.change != nil {
				tc.change(series.Points)
			}
			w := judged(t, DDA, AllReduce, BFloat16, series)
			if w.State != tc.state || w.ProvenMaxBytes != tc.proven || !slices.Equal(w.Bands(8), tc.bands) {
				t.Errorf("%s, proven to %d, bands %+v; expected %s, %d, %+v",
					w.State, w.ProvenMaxBytes, w.Bands(8), tc.state, tc.proven, tc.bands)
			}
			a := Advise(FlavorRCCLXDev, preferred, []Worth{w}, Job{}, 8)[0]
			if a.Recommend != tc.recommend || !strings.Contains(a.Message, tc.words) {
				t.Errorf("recommends %q (%s), expected %q and the words %q",
					a.Recommend, a.Message, tc.recommend, tc.words)
			}
			if w.MemoryBytes == nil || *w.MemoryBytes != 32*mib {
				t.Errorf("memory %v", w.MemoryBytes)
			}
		})
	}
}

func blind(points []ABPoint) {
	for i := range points {
		points[i].GainsPPM, points[i].NoisePPM, points[i].Members = points[i].GainsPPM[:1], nil, 1
	}
}

// TestWorthNeedsAnEffect: where the setting changes no call, there is nothing to judge.
func TestWorthNeedsAnEffect(t *testing.T) {
	in := WorthInput{Flavor: FlavorRCCLXDev, Settings: preferred, Ranks: 8, Variant: DDA, Collective: AllGather,
		Datatype: BFloat16, Series: []ABSeries{gainsAt(map[int64]int64{kib: 50})}}
	if w, ok := JudgeWorth(in); ok {
		t.Errorf("AllGather has no DDA in open builds: %+v", w)
	}
	in.Collective = AllReduce
	in.Ranks = 4
	if w, ok := JudgeWorth(in); ok {
		t.Errorf("four ranks have no DDA: %+v", w)
	}
	in.Ranks, in.Flavor = 8, FlavorUnknown
	if w, _ := JudgeWorth(in); w.State != WorthUnknown ||
		Advise(FlavorUnknown, preferred, []Worth{w}, Job{}, 8)[0].Recommend != "" {
		t.Errorf("of an unknown library: %+v", w)
	}
	in.Flavor, in.WrongElements = FlavorRCCLXDev, 3
	w, _ := JudgeWorth(in)
	if a := Advise(in.Flavor, preferred, []Worth{w}, Job{}, 8)[0]; a.State != WorthNo || a.Recommend != "off" ||
		!strings.Contains(a.Message, "3 wrong elements") {
		t.Errorf("%+v", a)
	}
}

// TestPlacementThatLoses: a job's placement is not known, so that one that loses decides.
func TestPlacementThatLoses(t *testing.T) {
	out, in := gainsAt(map[int64]int64{kib: 50, mib: 20}), gainsAt(map[int64]int64{kib: 30, mib: -10})
	in.Placement = InPlace
	w := judged(t, DDA, AllReduce, BFloat16, out, in)
	if want := []Band{{kib, kib, OutcomeWins, 40}, {mib, mib, OutcomeLoses, -10}}; !slices.Equal(w.Bands(8), want) {
		t.Errorf("%+v", w.Bands(8))
	}
	// One that gains nothing takes nothing from the other's gain, in whatever order they come; the noise is the larger
	// one.
	even := gainsAt(map[int64]int64{kib: 0})
	even.Points[0].NoisePPM = []int64{40_000, 40_000, 40_000, 40_000}
	for _, series := range [][]ABSeries{{gainsAt(map[int64]int64{kib: 50}), even},
		{even, gainsAt(map[int64]int64{kib: 50})}} {
		w := judged(t, DDA, AllReduce, BFloat16, series...)
		if w.State != WorthYes || w.Sizes[0].Outcome != OutcomeWins || w.Sizes[0].NoisePPM != 40_000 {
			t.Errorf("%+v", w.Sizes)
		}
	}
}

func TestChooseDDA(t *testing.T) {
	of := func(d Datatype, gains map[int64]int64) Worth { return judged(t, DDA, AllReduce, d, gainsAt(gains)) }
	unknown := of(Float16, map[int64]int64{kib: 50})
	unknown.State = WorthUnknown
	own := 4 * kib
	for name, tc := range map[string]struct {
		all      []Worth
		settings Settings
		tree     int64 // zero: off
		flat     int64 // zero: left alone
		why      string
	}{
		"nothing measured": {nil, preferred, 0, 0, "no size at which DDA acts was measured"},
		"the datatype that ends first bounds": {[]Worth{of(BFloat16, map[int64]int64{kib: 50, mib: 20, 16 * mib: 10}),
			of(Float32, map[int64]int64{kib: 50, mib: 20, 16 * mib: -10})},
			preferred, mib, 0, "it ends at 1 MiB, since AllReduce Float32 is slower above"},
		"one loses from the start": {[]Worth{of(BFloat16, map[int64]int64{kib: 50}),
			of(Float32, map[int64]int64{kib: -10})},
			preferred, 0, 0, "AllReduce Float32 is slower than Baseline already at the smallest"},
		"one is even": {[]Worth{of(BFloat16, map[int64]int64{kib: 50, mib: 10}),
			of(Float32, map[int64]int64{kib: 0, mib: 0})}, preferred, mib, 0, "the largest size that was measured"},
		"all even": {[]Worth{of(BFloat16, map[int64]int64{kib: 0})}, preferred, 0, 0,
			"at no measured size"},
		"gains only where it loses too": {[]Worth{of(BFloat16, map[int64]int64{kib: 0, mib: -10, 16 * mib: 20})},
			preferred, 0, 0, "up to 1 KiB it gains nothing"},
		"one is not known": {[]Worth{of(BFloat16, map[int64]int64{kib: 50}), unknown}, preferred, 0, 0,
			"not known whether it pays for AllReduce Float16"},
		"a person's flat limit stays": {[]Worth{of(BFloat16, map[int64]int64{kib: 50, mib: 20})},
			Settings{DDA: DDASettings{Mode: ModePreferred, AllReduceFlatMaxBytes: &own}}, mib, own, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ChooseDDA(FlavorRCCLXDev, tc.settings, tc.all)
			value := func(p *int64) int64 {
				if p == nil {
					return 0
				}
				return *p
			}
			if got.On != (tc.tree != 0) || value(got.TreeMaxBytes) != tc.tree || value(got.FlatMaxBytes) != tc.flat ||
				!strings.Contains(got.Why, tc.why) {
				t.Errorf("%+v tree %d flat %d", got, value(got.TreeMaxBytes), value(got.FlatMaxBytes))
			}
		})
	}
}

// jobs are those of one node, with results of FP8 that they can use.
func jobs(change func(*Job)) Job {
	j := Job{Data: map[Collective]Usability{}}
	for _, c := range Collectives() {
		j.Data[c] = Usability{State: Usable}
	}
	if change != nil {
		change(&j)
	}
	return j
}

// lost are jobs with losses of one collective, of which they accept some.
func lost(c Collective, losses []Loss, accepted ...Loss) Job {
	return jobs(func(j *Job) { j.Data[c], j.Accepted = Usability{NotUsable, losses}, accepted })
}

func TestChooseLowPrecision(t *testing.T) {
	fp8 := func(c Collective, d Datatype, gains map[int64]int64, of ...Job) Worth {
		w := judged(t, LowPrecision, c, d, gainsAt(gains))
		for _, job := range of {
			w.Data = job.UsabilityOf(c)
			w.State = w.state(FlavorRCCLXDev)
		}
		return w
	}
	large := map[int64]int64{4 * mib: 0, 16 * mib: 10, 64 * mib: 27}
	noError := fp8(AllReduce, BFloat16, large)
	noError.ErrorPPM, noError.State = nil, WorthUnknown
	dda := judged(t, DDA, AllReduce, BFloat16, gainsAt(map[int64]int64{kib: 50, 16 * mib: 30}))
	short := dda // of another datatype it loses earlier, so that its limit lies below
	short.ProvenMaxBytes = mib
	noisy := dda
	noisy.Sizes = slices.Clone(dda.Sizes)
	noisy.Sizes[1].NoisePPM = 250_000
	tail, both := []Loss{LossTail}, []Loss{LossOverflow, LossUnderflow}
	for name, tc := range map[string]struct {
		all []Worth
		c   Collective
		on  bool
		why string
		job Job
	}{
		"wins": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllReduce, true, "", jobs(nil)},
		"loses at its least size": {[]Worth{fp8(ReduceScatter,
			BFloat16, map[int64]int64{16 * mib: -10, 64 * mib: 20})},
			ReduceScatter, false, "ReduceScatter BFloat16 takes 10 % more time at 16 MiB", jobs(nil)},
		"AllGather's way peer to peer": {[]Worth{fp8(AllGather, BFloat16,
			map[int64]int64{kib: -66, 4 * mib: -50, 16 * mib: 10, 64 * mib: 20})},
			AllGather, false, "takes 66 % more time at 1 KiB, where it goes peer to peer", jobs(nil)},
		"AllGather of small ones even": {[]Worth{fp8(AllGather, BFloat16,
			map[int64]int64{kib: 0, 4 * mib: 1, 16 * mib: 10})}, AllGather, true, "", jobs(nil)},
		"fp16 AllGather goes peer too": {[]Worth{fp8(AllGather, BFloat16, map[int64]int64{kib: 0, 16 * mib: 10}),
			fp8(AllGather, Float16, map[int64]int64{64 * mib: -30})},
			AllGather, false, "AllGather Float16 takes 30 %", jobs(nil)},
		"fp16 AllGather even": {[]Worth{fp8(AllGather, BFloat16, map[int64]int64{kib: 0, 16 * mib: 10}),
			fp8(AllGather, Float16, map[int64]int64{kib: 0, 64 * mib: 1})}, AllGather, true, "", jobs(nil)},
		"only fp16 measured": {[]Worth{fp8(AllGather, Float16, map[int64]int64{kib: 0, 64 * mib: 1})},
			AllGather, false, "no datatype that it quantises", jobs(nil)},
		"one datatype gains nothing": {[]Worth{fp8(AllReduce, BFloat16, map[int64]int64{16 * mib: 0}),
			fp8(AllReduce, Float32, large)},
			AllReduce, false, "AllReduce BFloat16 gains nothing for its error", jobs(nil)},
		"error not measured": {[]Worth{noError}, AllReduce, false,
			"not known whether it pays", jobs(nil)},
		"not measured": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllToAll, false,
			"no size at which it acts", jobs(nil)},
		"takes the call from faster DDA": {[]Worth{dda, fp8(AllReduce, BFloat16, large)}, AllReduce, false,
			"at 16 MiB, which FP8 would take from DDA, DDA takes 20 % less", jobs(nil)},
		"AllGather below 16 MiB is not known": {[]Worth{fp8(AllGather,
			BFloat16, map[int64]int64{16 * mib: 10, 64 * mib: 20})},
			AllGather, false, "no AllGather BFloat16 below 16 MiB was measured, which go peer to peer", jobs(nil)},
		"of one datatype not known": {[]Worth{fp8(AllGather, BFloat16, map[int64]int64{kib: 0, 16 * mib: 10}),
			fp8(AllGather, Float16, map[int64]int64{64 * mib: 1})},
			AllGather, false, "no AllGather Float16 below 16 MiB", jobs(nil)},
		"faster DDA ends before": {[]Worth{short, fp8(AllReduce, BFloat16, large)}, AllReduce,
			true, "", jobs(nil)},
		"faster DDA, within noise": {[]Worth{noisy, fp8(AllReduce, BFloat16, large)}, AllReduce,
			true, "", jobs(nil)},
		"jobs over nodes": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllReduce, false,
			"measured within one node only", jobs(func(j *Job) { j.OverNodes = true })},
		"wrong elements at odd counts": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllReduce, false,
			"no multiple of 128 x ranks (TailHazard)", lost(AllReduce, tail)},
		"of another collective": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllReduce, true, "",
			lost(ReduceScatter, tail)},
		"at odd counts that no job has": {[]Worth{fp8(AllReduce, BFloat16, large)}, AllReduce, true, "",
			lost(AllReduce, tail, LossTail)},
		"lost values": {[]Worth{fp8(AllToAll, BFloat16, large)}, AllToAll, false,
			"became NaN or infinite, or were clipped (Overflow); a mean error over 6.25 %", lost(AllToAll, both)},
		"one of two losses accepted": {[]Worth{fp8(AllToAll, BFloat16, large)}, AllToAll, false,
			"a mean error over 6.25 %", lost(AllToAll, both, LossOverflow)},
		"both losses accepted": {[]Worth{fp8(AllToAll, BFloat16, large)}, AllToAll, true, "",
			lost(AllToAll, both, both...)},
		"data not checked": {[]Worth{fp8(AllToAll, BFloat16, large)}, AllToAll, false,
			"was not checked in full", Job{Accepted: Losses()}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ChooseLowPrecision(tc.all, []Collective{tc.c},
				ChooseDDA(FlavorRCCLXDev, preferred, tc.all), tc.job)[0]
			if got.On != tc.on || !strings.Contains(got.Why, tc.why) {
				t.Errorf("%+v", got)
			}
		})
	}
	w := fp8(AllReduce, BFloat16, large)
	if *w.MemoryBytes != 128<<20*18 {
		t.Errorf("memory %d", *w.MemoryBytes)
	}
	a := Advise(FlavorRCCLXDev, preferred, []Worth{w}, jobs(nil), 8)[0]
	if a.Recommend != "on" || !strings.Contains(a.Message, "largest error is 6.25 %") ||
		!strings.Contains(a.Message, "Above 64 MiB nothing is proven.") ||
		!strings.Contains(a.Message, "It takes 2.25 GiB of device memory in each communicator, and 128 MiB more for "+
			"each rank over 8; over several nodes it was not measured.") {
		t.Errorf("%+v", a)
	}
	for name, tc := range map[string]struct {
		job       Job
		recommend string
		words     []string
	}{
		"hazard": {lost(AllReduce, tail), "off", []string{"AllReduce gave results that are not usable: " +
			"wrong elements at counts that are no multiple of 128 x ranks (TailHazard).", "Never slower"}},
		"hazard, padded": {lost(AllReduce, tail, LossTail), "on",
			[]string{"Accepted by the spec: wrong elements at counts", "(TailHazard)."}},
		"lost values": {lost(AllReduce, both), "off",
			[]string{"AllReduce gave results that are not usable: values beyond FP8's range became NaN or infinite, " +
				"or were clipped (Overflow); a mean error over 6.25 %, since small values became zero (Underflow)."}},
		"lost values, accepted": {lost(AllReduce, both, both...), "on",
			[]string{"Accepted by the spec: values beyond FP8's range"}},
		"not checked": {Job{}, "", []string{"Not known: the data of AllReduce was not checked in full."}},
		"over several nodes": {jobs(func(j *Job) { j.OverNodes = true }), "off",
			[]string{"Off all the same: it was measured within one node only"}},
	} {
		w := fp8(AllReduce, BFloat16, large, tc.job)
		got := Advise(FlavorRCCLXDev, preferred, []Worth{w}, tc.job, 8)[0]
		if got.Recommend != tc.recommend {
			t.Errorf("%s: recommends %q", name, got.Recommend)
		}
		for _, word := range tc.words {
			if !strings.Contains(got.Message, word) {
				t.Errorf("%s: %q lacks %q", name, got.Message, word)
			}
		}
	}
}

// TestWhatNobodyMeasured: a setting that acts on sizes which no run measured says so, and DDA is off where its flat
// path was not measured at all.
func TestWhatNobodyMeasured(t *testing.T) {
	small, large := map[int64]int64{kib: 30, 16 * mib: 30}, map[int64]int64{16 * mib: 30, 64 * mib: 30}
	for _, tc := range []struct {
		w    Worth
		want string
	}{
		{judged(t, DDA, AllReduce, BFloat16, gainsAt(small)), "below 1 KiB nothing is proven"},
		{judged(t, LowPrecision, AllReduce, BFloat16, gainsAt(large)), "above 64 MiB nothing is proven"},
		{judged(t, LowPrecision, AllReduce, BFloat16, gainsAt(map[int64]int64{64 * mib: 30})),
			"below 64 MiB and above 64 MiB nothing is proven"},
		{judged(t, LowPrecision, AllGather, BFloat16, gainsAt(small)),
			"below 1 KiB and above 16 MiB nothing is proven"},
		{Worth{Variant: LowPrecision}, ""},
	} {
		if got := tc.w.Unproven(); got != tc.want {
			t.Errorf("%q, expected %q", got, tc.want)
		}
	}
	w := judged(t, DDA, AllReduce, BFloat16, gainsAt(large))
	if got := ChooseDDA(FlavorRCCLXDev, preferred, []Worth{w}); got.On || !strings.Contains(got.Why,
		"measured from 16 MiB on, and not by its flat path, which takes sizes up to 200 KiB") {
		t.Errorf("%+v", got)
	}
	if a := Advise(FlavorRCCLXDev, preferred, []Worth{w}, Job{}, 8)[0]; a.Recommend != "off" ||
		!strings.Contains(a.Message, "no size up to 200 KiB was measured") {
		t.Errorf("%+v", a)
	}
	tree := preferred
	tree.DDA.AllReduceFlatMaxBytes = new(int64) // no flat path
	if got := ChooseDDA(FlavorRCCLXDev, tree, []Worth{w}); !got.On {
		t.Errorf("%+v", got)
	}
}

// TestErrorOfFP8IsMeasured: a gain that no error stands against is not known to be worth it.
func TestErrorOfFP8IsMeasured(t *testing.T) {
	in := WorthInput{Flavor: FlavorRCCLXDev, Settings: preferred, Ranks: 8, GFX: "gfx942", Variant: LowPrecision,
		Collective: AllReduce, Datatype: BFloat16, Series: []ABSeries{gainsAt(map[int64]int64{16 * mib: 20})}}
	w, _ := JudgeWorth(in)
	if w.State != WorthUnknown || Advise(in.Flavor, preferred, []Worth{w}, Job{}, 8)[0].Recommend != "" {
		t.Errorf("%+v", w)
	}
}

// TestChoicesNeverLose holds choices on random series against the numbers themselves: no size that is worse than
// Baseline beyond noise is within them, nothing is chosen that was not measured, and what is on wins somewhere.
func TestChoicesNeverLose(t *testing.T) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, seed))
	sizes := Sizes(kib, 64*mib, 4)
	ddaOn, fp8On := 0, 0
	for round := range 150 {
		flavor := []Flavor{FlavorRCCLXDev, FlavorRCCLXDev, FlavorRCCLDDA}[random.IntN(3)]
		settings := preferred
		var all []Worth
		job := jobs(func(j *Job) {
			c := Collectives()[random.IntN(len(Collectives()))]
			j.Data[c] = []Usability{{}, {State: UsabilityUnknown}, {NotUsable, []Loss{LossOverflow}},
				{NotUsable, []Loss{LossUnderflow}}}[random.IntN(4)]
			j.Accepted = []Loss{LossUnderflow}
		})
		measured := map[Variant]map[Collective][]ABSeries{DDA: {}, LowPrecision: {}}
		for _, v := range []Variant{DDA, LowPrecision} {
			for _, c := range Collectives() {
				bias := random.Int64N(500_000) - 150_000
				for _, d := range []Datatype{BFloat16, Float32, Float16}[:1+random.IntN(3)] {
					s := randomSeries(random, sizes, bias)
					w, ok := JudgeWorth(WorthInput{Flavor: flavor, Settings: settings, Ranks: 8, GFX: "gfx942",
						Variant: v, Collective: c, Datatype: d, Series: []ABSeries{s}, ErrorPPM: &bias,
						Data: job.UsabilityOf(c)})
					if !ok {
						continue
					}
					all = append(all, w)
					kept := ABSeries{}
					for _, p := range s.Points {
						if slices.ContainsFunc(w.Sizes, func(x SizeWorth) bool { return x.SizeBytes == p.SizeBytes }) {
							kept.Points = append(kept.Points, p)
						}
					}
					measured[v][c] = append(measured[v][c], kept)
				}
			}
		}
		dda := ChooseDDA(flavor, settings, all)
		if dda.On {
			ddaOn++
			won := false
			for c, series := range measured[DDA] {
				for _, s := range series {
					largest := int64(0)
					for _, p := range s.Points {
						largest = max(largest, p.SizeBytes)
						gain, noise := plainly(p)
						if p.SizeBytes <= *dda.TreeMaxBytes && gain <= -noise {
							t.Fatalf("round %d: DDA up to %d, and %s at %d is %d ppm worse, noise %d",
								round, *dda.TreeMaxBytes, c, p.SizeBytes, -gain, noise)
						}
						won = won || p.SizeBytes <= *dda.TreeMaxBytes && gain >= noise
					}
					if *dda.TreeMaxBytes > largest {
						t.Fatalf("round %d: DDA up to %d, measured up to %d", round, *dda.TreeMaxBytes, largest)
					}
				}
			}
			if !won || dda.FlatMaxBytes != nil && *dda.FlatMaxBytes > *dda.TreeMaxBytes {
				t.Fatalf("round %d: %+v wins nowhere, or flat is over tree", round, dda)
			}
		}
		for _, choice := range ChooseLowPrecision(all, Collectives(), dda, job) {
			if !choice.On {
				continue
			}
			if data := job.UsabilityOf(choice.Collective); data.State != Usable {
				t.Fatalf("round %d: FP8 is on for %s, whose results are %+v", round, choice.Collective, data)
			}
			fp8On++
			for _, s := range measured[LowPrecision][choice.Collective] {
				for _, p := range s.Points {
					if gain, noise := plainly(p); gain <= -noise {
						t.Fatalf("round %d: FP8 for %s, and at %d it is %d ppm worse, noise %d",
							round, choice.Collective, p.SizeBytes, -gain, noise)
					}
				}
			}
		}
		for _, a := range Advise(flavor, settings, all, Job{}, 8) {
			if len(a.Recommend) > maxRecommendBytes || len(a.Message) > maxAdviceBytes || a.Message == "" ||
				len(a.Bands(8)) > 8 || len(a.MissingBytes) > 0 && a.State == WorthYes {
				t.Fatalf("round %d: %+v", round, a)
			}
		}
	}
	if ddaOn < 10 || fp8On < 10 {
		t.Fatalf("DDA was on %d times, FP8 %d times: the property was hardly tried", ddaOn, fp8On)
	}
}

func randomSeries(random *rand.Rand, sizes []int64, bias int64) ABSeries {
	s := ABSeries{Placement: OutOfPlace}
	scatter := 1 + random.Int64N(60_000)
	members := 1 + random.IntN(5)
	for _, size := range sizes {
		p := ABPoint{SizeBytes: size, Members: members, LeftOut: random.IntN(2) == 0}
		center := bias + random.Int64N(200_000) - 100_000
		for range members {
			if random.IntN(40) == 0 {
				continue
			}
			p.GainsPPM = append(p.GainsPPM, center+random.Int64N(2*scatter)-scatter)
			if random.IntN(2) == 0 {
				p.NoisePPM = append(p.NoisePPM, random.Int64N(60_000))
			}
		}
		s.Points = append(s.Points, p)
	}
	return s
}

// plainly is the median gain and the noise, written down once more and apart from the code under test.
func plainly(p ABPoint) (gain, noise int64) {
	middle := func(v []int64) float64 {
		v = slices.Sorted(slices.Values(v))
		return (float64(v[(len(v)-1)/2]) + float64(v[len(v)/2])) / 2
	}
	m := middle(p.GainsPPM)
	n := 30_000.0
	if len(p.NoisePPM) > 0 {
		n = math.Max(n, middle(p.NoisePPM))
	}
	if len(p.GainsPPM) > 1 {
		apart := make([]int64, 0, len(p.GainsPPM))
		for _, g := range p.GainsPPM {
			apart = append(apart, int64(math.Abs(float64(g)-m)))
		}
		n = math.Max(n, 2*1.4826*middle(apart))
	}
	// A part per million of rounding either way is no fault.
	return int64(m), int64(n) + 3
}

// TestBandsAreBounded: a zigzag is no pattern.
func TestBandsAreBounded(t *testing.T) {
	w := Worth{}
	for i := range 20 {
		w.Sizes = append(w.Sizes, SizeWorth{SizeBytes: int64(i + 1),
			Outcome: []string{OutcomeWins, OutcomeEven, OutcomeLoses}[i%3], GainPPM: 10_000})
	}
	bands := w.Bands(8)
	if len(bands) != 8 || bands[7].MaxBytes != 20 || bands[7].Outcome != OutcomeLoses ||
		bands[0] != (Band{1, 1, OutcomeWins, 1}) {
		t.Errorf("%+v", bands)
	}
}

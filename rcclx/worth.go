package rcclx

import (
	"math"
	"slices"
)

// Outcomes of a variant against Baseline at a size, or over a band of sizes.
const (
	OutcomeWins  = "Wins"
	OutcomeLoses = "Loses"
	OutcomeEven  = "Even"
)

// States of Worth. Mixed: faster at some sizes and slower at others.
const (
	WorthYes     = "Worth"
	WorthMixed   = "Mixed"
	WorthNo      = "NotWorth"
	WorthUnknown = "Unknown"
)

// What a change of latency must reach to count, in parts per million of Baseline's latency.
const (
	// evenPPM: a smaller change is none. Two runs of the same plan on the same idle node differ by up to so much.
	evenPPM = 30_000
	// blindPPM is asked of a gain, but not of a loss, where no noise was told: what a run takes as confirmed.
	blindPPM = 50_000
	// tooNoisyPPM: where noise is larger, a size tells nothing.
	tooNoisyPPM = 250_000
	// madToSigma makes a median absolute deviation a standard deviation, for values that are distributed normally.
	madToSigma = 1.4826
)

// ABPoint is one message size of a variant beside Baseline, over the members of a group.
type ABPoint struct {
	SizeBytes int64
	// GainsPPM of the members that measured both sides, each with itself: Baseline's latency minus the variant's, in
	// parts per million of Baseline's. 200,000 is a fifth less time.
	GainsPPM []int64
	// NoisePPM of the members that told it: the coefficients of variation of both latencies, added up.
	NoisePPM []int64
	// Members that should have measured the size.
	Members int
	// LeftOut: all that have no numbers measured the size, and left it out of their report for space.
	LeftOut bool
}

// measured says whether more than half of the members measured the size.
func (p ABPoint) measured() bool { return len(p.GainsPPM) > 0 && 2*len(p.GainsPPM) > p.Members }

// ABSeries is a variant beside Baseline in one placement, with all sizes that were to be measured.
type ABSeries struct {
	Placement Placement
	Points    []ABPoint
}

// WorthInput is what a judgement of one setting for one collective and datatype rests on.
type WorthInput struct {
	// Flavor whose gates hold, Settings as the run had them, Ranks of the one node, and GFX as in Call.
	Flavor   Flavor
	Settings Settings
	Ranks    int
	GFX      string

	Variant    Variant
	Collective Collective
	Datatype   Datatype
	Series     []ABSeries
	// ErrorPPM is the largest relative error with FP8; nil where it was not measured.
	ErrorPPM *int64
	// WrongElements of the variant, without those that the library is known to lose.
	WrongElements int64
	// Data is, for FP8, whether the results of the collective are usable, with what the jobs' owner accepts.
	Data Usability
}

// SizeWorth is one size of a Worth.
type SizeWorth struct {
	SizeBytes int64
	Outcome   string
	// GainPPM is the members' median, and NoisePPM what it had to reach.
	GainPPM, NoisePPM int64
}

// Band is a range of neighbouring sizes with one outcome.
type Band struct {
	MinBytes, MaxBytes int64
	Outcome            string
	// MedianGainPercent over the sizes: 20 is a fifth less time.
	MedianGainPercent int64
}

// Worth says whether a setting pays for one collective and datatype.
type Worth struct {
	Variant    Variant
	Collective Collective
	Datatype   Datatype
	State      string
	// Sizes at which the setting changes the way of a call and which were measured, ascending.
	Sizes []SizeWorth
	// ProvenMaxBytes is the largest measured size up to which every size wins or is even; zero where the smallest loses
	// or is not known.
	ProvenMaxBytes int64
	// MissingBytes are sizes that should have been measured and were not, or with too much noise; LeftOut counts those
	// that were measured and whose numbers nobody kept.
	MissingBytes []int64
	LeftOut      int
	// ErrorPPM as given. MemoryBytes that the setting costs each rank; nil where it is not known.
	ErrorPPM    *int64
	MemoryBytes *int64
	// WrongElements and Data as given.
	WrongElements int64
	Data          Usability
}

// JudgeWorth says whether a setting pays. ok is false where the setting changes nothing at any size that was to be
// measured.
func JudgeWorth(in WorthInput) (w Worth, ok bool) {
	w = Worth{Variant: in.Variant, Collective: in.Collective, Datatype: in.Datatype, ErrorPPM: in.ErrorPPM,
		WrongElements: in.WrongElements, Data: in.Data, MemoryBytes: settingMemory(in)}
	points := map[int64][]ABPoint{}
	for _, s := range in.Series {
		for _, p := range s.Points {
			points[p.SizeBytes] = append(points[p.SizeBytes], p)
		}
	}
	var sizes []int64
	for size := range points {
		if in.Acts(size) {
			sizes = append(sizes, size)
		}
	}
	if len(sizes) == 0 {
		return Worth{}, false
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		s, known, leftOut := judgeSize(size, points[size])
		switch {
		case known:
			w.Sizes = append(w.Sizes, s)
		case leftOut && len(w.Sizes) > 0: // below the smallest known size nothing is known
			w.LeftOut++
		default:
			w.MissingBytes = append(w.MissingBytes, size)
		}
	}
	w.ProvenMaxBytes = w.provenMaxBytes()
	w.State = w.state(in.Flavor)
	return w, true
}

// Acts says whether the setting may change the way of a call of this size. FP8's AllGather does so below FP8's least
// size, too: it goes peer to peer there.
func (in WorthInput) Acts(sizeBytes int64) bool {
	call := Call{Collective: in.Collective, Datatype: in.Datatype, SizeBytes: sizeBytes, Ranks: in.Ranks,
		Nodes: 1, GFX: in.GFX}
	with, _ := ExpectedPath(in.Flavor, in.Variant, in.Settings, call)
	base, _ := ExpectedPath(in.Flavor, Baseline, in.Settings, call)
	return with == PathUnknown || with != base
}

// settingMemory is what the library allocates for the setting on each device; nil where that is not known.
func settingMemory(in WorthInput) *int64 {
	if !in.Flavor.rcclx() || in.Variant == DDA && in.Flavor != FlavorRCCLXDev {
		return nil
	}
	var calls []MemoryCall
	for _, s := range in.Series {
		for _, p := range s.Points {
			calls = append(calls, MemoryCall{in.Collective, in.Datatype, s.Placement, p.SizeBytes})
		}
	}
	bytes := MemoryNeed(in.Flavor, in.Variant, in.Settings, in.Ranks, calls).LibraryBytes
	return &bytes
}

// judgeSize holds one size against Baseline, over all placements: a loss in one of them is a loss, since a job's
// placement is not known.
func judgeSize(size int64, placements []ABPoint) (s SizeWorth, known, leftOut bool) {
	var gains, noises []int64
	for _, p := range placements {
		if !p.measured() {
			if !p.LeftOut {
				return SizeWorth{}, false, false
			}
			continue
		}
		gain, noise, blind := p.gainAndNoise()
		if noise > tooNoisyPPM {
			return SizeWorth{}, false, false
		}
		least := noise
		if blind {
			least = max(least, blindPPM)
		}
		outcome := OutcomeEven
		switch {
		case gain >= least:
			outcome = OutcomeWins
		case gain <= -noise:
			outcome = OutcomeLoses
		}
		gains, noises = append(gains, gain), append(noises, noise)
		if s.Outcome == "" || outcome == OutcomeLoses || s.Outcome == OutcomeEven {
			s.Outcome = outcome
		}
	}
	if len(gains) == 0 {
		return SizeWorth{}, false, true
	}
	s.SizeBytes, s.GainPPM, s.NoisePPM = size, median(gains), slices.Max(noises)
	if s.Outcome == OutcomeLoses {
		s.GainPPM = slices.Min(gains)
	}
	return s, true, false
}

// gainAndNoise are the members' median gain, and what a change must reach to be more than noise: evenPPM, what the
// repeats of one member scatter, and twice what the members do, so that a setting that wins does so on the middle 95 of
// 100 members. blind says that neither scatter is known.
func (p ABPoint) gainAndNoise() (gain, noise int64, blind bool) {
	gain = median(p.GainsPPM)
	noise = evenPPM
	blind = len(p.NoisePPM) == 0
	if len(p.NoisePPM) > 0 {
		noise = max(noise, median(p.NoisePPM))
	}
	if len(p.GainsPPM) > 1 {
		blind = false
		apart := make([]int64, len(p.GainsPPM))
		for i, g := range p.GainsPPM {
			apart[i] = max(g-gain, gain-g)
		}
		noise = max(noise, int64(2*madToSigma*float64(median(apart))))
	}
	return gain, noise, blind
}

// provenMaxBytes is the largest measured size before the first one that loses or is not known.
func (w *Worth) provenMaxBytes() int64 {
	if w.WrongElements > 0 {
		return 0
	}
	limit := int64(0)
	for _, s := range w.Sizes {
		if s.Outcome == OutcomeLoses || len(w.MissingBytes) > 0 && s.SizeBytes > w.MissingBytes[0] {
			break
		}
		limit = s.SizeBytes
	}
	return limit
}

func (w *Worth) state(f Flavor) string {
	wins, loses := w.has(OutcomeWins), w.has(OutcomeLoses)
	switch {
	case unknownFlavor(f):
		return WorthUnknown
	case w.WrongElements > 0, w.quantised() && w.Data.State == NotUsable:
		return WorthNo // however fast
	case wins && loses:
		return WorthMixed
	case loses:
		return WorthNo
	case len(w.MissingBytes) > 0 || len(w.Sizes) == 0:
		return WorthUnknown
	case w.quantised() && (w.ErrorPPM == nil || w.Data.State != Usable):
		return WorthUnknown // a gain that nobody can hold an error against
	case wins:
		return WorthYes
	}
	return WorthNo
}

// quantised says whether FP8 casts the values.
func (w *Worth) quantised() bool {
	return w.Variant == LowPrecision && KnowsLowPrecision(w.Collective, w.Datatype)
}

func (w *Worth) has(outcome string) bool {
	return slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool { return s.Outcome == outcome })
}

// winsUpTo says whether a size of at most limitBytes wins.
func (w *Worth) winsUpTo(limitBytes int64) bool {
	return slices.ContainsFunc(w.Sizes, func(s SizeWorth) bool {
		return s.Outcome == OutcomeWins && s.SizeBytes <= limitBytes
	})
}

// Bands are the sizes joined where neighbours have one outcome. More than most bands are no pattern: the last ones are
// joined, and lose where one of them does.
func (w *Worth) Bands(most int) []Band {
	var bands []Band
	var gains [][]int64
	for _, s := range w.Sizes {
		last := len(bands) - 1
		if last < 0 || bands[last].Outcome != s.Outcome && len(bands) < most {
			bands, gains = append(bands, Band{MinBytes: s.SizeBytes, Outcome: s.Outcome}), append(gains, nil)
			last++
		}
		b := &bands[last]
		switch {
		case b.Outcome == s.Outcome:
		case s.Outcome == OutcomeLoses || b.Outcome == OutcomeLoses:
			b.Outcome = OutcomeLoses
		default:
			b.Outcome = OutcomeEven
		}
		b.MaxBytes = s.SizeBytes
		gains[last] = append(gains[last], s.GainPPM)
	}
	for i := range bands {
		bands[i].MedianGainPercent = percentOf(median(gains[i]))
	}
	return bands
}

// percentOf rounds parts per million to percent, halves away from zero.
func percentOf(ppm int64) int64 { return int64(math.Round(float64(ppm) / 1e4)) }

// median of values, which must not be empty; of two in the middle, the mean. The values are left as they are.
func median(values []int64) int64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2
}

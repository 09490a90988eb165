// Package results is the form in which measurements leave this machine: what agent bench measured, and what agent
// import read from rccl-tests' or nccl-tests' output (package perftests). It prints that form as a table, CSV or JSON.
package results

import (
	"math"
	"slices"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
	"rcclx.io/commgroup-operator/rcclx/reference"
)

// The sources of a report.
const (
	SourceBench     = "agent bench"
	SourceRCCLTests = "rccl-tests"
	SourceNCCLTests = "nccl-tests"
)

// Report is one run on one machine or of one rccl-tests program.
type Report struct {
	// Source says who measured: "agent bench", "rccl-tests" or "nccl-tests".
	Source string `json:"source"`
	// Input is the file that an imported report was read from, and the run in it where there are several.
	Input string `json:"input,omitempty"`
	// Format is how an imported input was recognised; empty for agent bench.
	Format Format `json:"format,omitzero"`
	// Node is the machine that measured; empty where the source does not tell.
	Node string `json:"node,omitempty"`
	// Time of the run's start; zero where the source does not tell.
	Time time.Time `json:"time,omitzero"`
	// Simulated is set where no GPU was measured.
	Simulated bool `json:"simulated"`
	// Library that was measured; nil where the source does not tell.
	Library *rcclx.LibraryInfo `json:"library,omitempty"`
	// Ranks of the communicator and Nodes that it reaches over; zero where the source does not tell.
	Ranks   int      `json:"ranks,omitempty"`
	Nodes   int      `json:"nodes,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Results []Result `json:"results"`
	// Pairs of ranks, each measured by send and receive; empty where none was.
	Pairs []Pair `json:"pairs,omitempty"`
	// Settings: requested against effective, where known.
	Settings []rcclx.Effective `json:"settings,omitempty"`
	// Environment that each variant's ranks had beside what they inherit, where known.
	Environment map[rcclx.Variant][]rcclx.EnvVar `json:"environment,omitempty"`
	// InitNanoseconds is the slowest rank's time to form the communicator, by variant.
	InitNanoseconds map[rcclx.Variant]int64 `json:"initNanoseconds,omitempty"`
	// Checks of Baseline against published marks for exactly what was measured: none is a verdict here. Empty where the
	// source does not tell what the GPUs are.
	Checks []reference.Check `json:"checks,omitempty"`
	// Warnings are what a reader must know beside the numbers.
	Warnings []string `json:"warnings,omitempty"`
	// Failure ended the run; nil where it ran to its end.
	Failure *Failure `json:"failure,omitempty"`
}

// Format is the dialect of an imported input.
type Format struct {
	// Program and Version as the program names itself, such as rccl-tests and 2.17.9-develop:1a2b3c4; empty where it
	// does not.
	Program string `json:"program,omitempty"`
	Version string `json:"version,omitempty"`
	// Form is "text", "csv", "json list" (rccl-tests -Z json), "json lines" (the same until July 2025) or "json object"
	// (-J).
	Form string `json:"form"`
	// Columns of text, as its header names them.
	Columns []string `json:"columns,omitempty"`
	// Prefix that a launcher or log put before the first line; empty where there is none.
	Prefix string `json:"prefix,omitempty"`
}

// Device is the GPU of a rank.
type Device struct {
	Rank    int `json:"rank"`
	Ordinal int `json:"ordinal"`
	// PCIAddress as the source writes it: nccl-tests and rccl-tests leave out the function.
	PCIAddress string `json:"pciAddress,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Pair is what was measured between two ranks that sent to and received from each other at the same time.
type Pair struct {
	RankA     int   `json:"rankA"`
	RankB     int   `json:"rankB"`
	SizeBytes int64 `json:"sizeBytes"`
	// BandwidthMBps of the slower direction, in 10^6 bytes per second.
	BandwidthMBps int64 `json:"bandwidthMBps"`
	WrongElements int64 `json:"wrongElements"`
}

// Failure is why a run ended before its end.
type Failure struct {
	Variant rcclx.Variant `json:"variant,omitempty"`
	// Kind is a runner.FailureKind, Code a rank.Code…; both empty where the source does not tell.
	Kind string `json:"kind,omitempty"`
	Code string `json:"code,omitempty"`
	// Step that failed: "preconditions", "load", "init", "destroy", or a measurement's name.
	Step string `json:"step,omitempty"`
	// Rank to name and the GPU that it is on; nil and empty where no single one is.
	Rank   *int   `json:"rank,omitempty"`
	Device string `json:"device,omitempty"`
	// Message says what was seen, what was expected and what to do.
	Message string `json:"message"`
	// Ranks says what each rank was doing, by rank.
	Ranks []RankState `json:"ranks,omitempty"`
	// DetectedNanoseconds is how long after a rank's death or a missed deadline it was noticed, FreedNanoseconds how
	// long after that the last rank was gone and its GPU free; zero where not known.
	DetectedNanoseconds int64 `json:"detectedNanoseconds,omitempty"`
	FreedNanoseconds    int64 `json:"freedNanoseconds,omitempty"`
	// RAS is what the library's RAS service said of the communicator; empty where it was not asked.
	RAS string `json:"ras,omitempty"`
	// LogTail is the end of what the named rank, or the program, logged.
	LogTail string `json:"logTail,omitempty"`
	// Next is what to do, where the message does not say.
	Next string `json:"next,omitempty"`
}

// RankState is what one rank was doing when a run failed.
type RankState struct {
	Rank   int    `json:"rank"`
	Device string `json:"device"`
	Doing  string `json:"doing"`
	// Exit says how its process ended; empty where the agent ended it.
	Exit string `json:"exit,omitempty"`
}

// Result is one measurement over all ranks.
type Result struct {
	Variant    rcclx.Variant    `json:"variant,omitempty"`
	Collective rcclx.Collective `json:"collective"`
	Datatype   rcclx.Datatype   `json:"datatype"`
	// Op is Sum, Prod, Max, Min or Avg; empty where the collective does not reduce.
	Op string `json:"op,omitempty"`
	// Root of Broadcast and Reduce.
	Root      int             `json:"root,omitempty"`
	Placement rcclx.Placement `json:"placement"`
	// SizeBytes as rccl-tests counts it (the larger of send and receive), CountElements as the call takes it.
	SizeBytes     int64 `json:"sizeBytes"`
	CountElements int64 `json:"countElements"`
	// Latency of one call, that of the slowest rank in each statistic. Imported results have none of it but with a
	// report per iteration: the one time that they give is a mean.
	Latency rcclx.LatencyStats `json:"latency"`
	// MeanLatencyNanoseconds is the mean over the ranks' medians, the nearest to what rccl-tests and nccl-tests show:
	// the mean over ranks of each rank's mean. Of imported results it is just that.
	MeanLatencyNanoseconds int64 `json:"meanLatencyNanoseconds,omitempty"`
	// LaunchNanoseconds is the slowest rank's median time on the CPU to launch one call; zero where not measured.
	LaunchNanoseconds int64 `json:"launchNanoseconds,omitempty"`
	// AlgBandwidthMBps and BusBandwidthMBps by rccl-tests' definitions, in 10^6 bytes per second with three decimals,
	// from the median latency, or from MeanLatencyNanoseconds where there is no median. Zero, which is left out, means
	// that it is not known; a bus bandwidth is not over one rank.
	AlgBandwidthMBps float64 `json:"algBandwidthMBps,omitempty"`
	BusBandwidthMBps float64 `json:"busBandwidthMBps,omitempty"`
	// MeanAlgBandwidthMBps and MeanBusBandwidthMBps are the same from MeanLatencyNanoseconds: the ones to hold against
	// rccl-tests' and nccl-tests'.
	MeanAlgBandwidthMBps float64 `json:"meanAlgBandwidthMBps,omitempty"`
	MeanBusBandwidthMBps float64 `json:"meanBusBandwidthMBps,omitempty"`
	// Checks of the data, one for each kind: counts summed over the ranks, the largest error of a rank. Empty where
	// nothing was checked.
	Checks []rcclx.CheckResult `json:"checks,omitempty"`
	// ExpectedPath that the gates predict; Hazard says where the library is known to lose data.
	ExpectedPath rcclx.Path `json:"expectedPath,omitempty"`
	Hazard       string     `json:"hazard,omitempty"`
	// HazardElements are those of the wrong elements that lie in what the hazard loses: a warning, and no failure.
	HazardElements int64 `json:"hazardElements,omitempty"`
}

// Unexplained is the number of wrong elements that no known hazard of the library explains.
func (r Result) Unexplained() int64 {
	wrong, _ := r.Wrong()
	return wrong - r.HazardElements
}

// Wrong is the number of wrong elements, and whether anything was checked at all.
func (r Result) Wrong() (elements int64, checked bool) {
	for _, c := range r.Checks {
		elements += c.WrongElements
		checked = checked || c.CheckedElements > 0
	}
	return elements, checked
}

// SetBandwidths fills the four bandwidths in from the size and the latencies.
func (r *Result) SetBandwidths(ranks int) {
	r.MeanAlgBandwidthMBps, r.MeanBusBandwidthMBps = Bandwidths(r.Collective, r.SizeBytes,
		r.MeanLatencyNanoseconds, ranks)
	r.AlgBandwidthMBps, r.BusBandwidthMBps = r.MeanAlgBandwidthMBps, r.MeanBusBandwidthMBps
	if median := r.Latency.MedianNanoseconds; median > 0 {
		r.AlgBandwidthMBps, r.BusBandwidthMBps = Bandwidths(r.Collective, r.SizeBytes, median, ranks)
	}
}

// Bandwidths are those of AlgBandwidthMBps and BusBandwidthMBps in package rcclx, in 10^6 bytes per second, with three
// decimals where those are of whole numbers: 8 B in 20 us are 0.4 MB/s. Zero where not known, and never where measured.
func Bandwidths(c rcclx.Collective, sizeBytes, latencyNanoseconds int64, ranks int) (alg, bus float64) {
	if sizeBytes <= 0 || latencyNanoseconds <= 0 {
		return 0, 0
	}
	alg = float64(sizeBytes) * 1e3 / float64(latencyNanoseconds)
	return rounded(alg), rounded(alg * rcclx.BusFactor(c, ranks))
}

// rounded keeps three decimals, and all of what would be zero with them.
func rounded(mbps float64) float64 {
	if r := math.Round(mbps*1e3) / 1e3; r > 0 {
		return r
	}
	return mbps
}

// Key is what results of several sizes have in common.
type Key struct {
	Variant    rcclx.Variant
	Collective rcclx.Collective
	Datatype   rcclx.Datatype
	Op         string
	Root       int
	Placement  rcclx.Placement
}

// Key of the series that the result belongs to.
func (r Result) Key() Key {
	return Key{r.Variant, r.Collective, r.Datatype, r.Op, r.Root, r.Placement}
}

// Series are the results of one key, in the order in which they were measured.
type Series struct {
	Key     Key
	Results []Result
}

// Group puts results of one key together, keys in the order of their first result.
func Group(all []Result) []Series {
	var out []Series
	for _, r := range all {
		i := slices.IndexFunc(out, func(s Series) bool { return s.Key == r.Key() })
		if i < 0 {
			i = len(out)
			out = append(out, Series{Key: r.Key()})
		}
		out[i].Results = append(out[i].Results, r)
	}
	return out
}

// Good says whether a report has no failure, no wrong element but those of known hazards, and at least one result.
func (r Report) Good() bool {
	return r.Failure == nil && len(r.Results)+len(r.Pairs) > 0 &&
		!slices.ContainsFunc(r.Results, func(x Result) bool { return x.Unexplained() > 0 }) &&
		!slices.ContainsFunc(r.Pairs, func(p Pair) bool { return p.WrongElements > 0 })
}

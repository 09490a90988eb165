package results

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/rcclx"
)

// missing stands where there is no number.
const missing = "-"

// simulatedMark stands beside every simulated number.
const simulatedMark = "SIMULATED"

// Statistic is the one of a result's latencies that a table's time and bandwidths are of.
type Statistic string

// The statistics. Mean is the mean over the ranks' medians, the others are of the slowest rank.
const (
	Median Statistic = "median"
	Min    Statistic = "min"
	Max    Statistic = "max"
	P95    Statistic = "p95"
	Mean   Statistic = "mean"
)

// Statistics are all of them.
func Statistics() []Statistic { return []Statistic{Median, Min, Max, P95, Mean} }

// ParseStatistic reads a statistic's name.
func ParseStatistic(text string) (Statistic, error) {
	for _, s := range Statistics() {
		if strings.EqualFold(text, string(s)) {
			return s, nil
		}
	}
	return "", fmt.Errorf("statistic %q is not known: use median, min, max, p95 or mean", text)
}

// Of gives the statistic of a result in nanoseconds; zero where it is missing.
func (s Statistic) Of(r Result) int64 {
	switch s {
	case Min:
		return r.Latency.MinNanoseconds
	case Max:
		return r.Latency.MaxNanoseconds
	case P95:
		return r.Latency.P95Nanoseconds
	case Mean:
		return r.MeanLatencyNanoseconds
	}
	return r.Latency.MedianNanoseconds
}

// bandwidths of a result by the statistic. Those that the result carries are taken as they are: a source that gives no
// time precise enough has its own.
func (s Statistic) bandwidths(r Result, ranks int) (alg, bus float64) {
	switch t := s.Of(r); {
	case t <= 0:
		return 0, 0
	case s == Median:
		return r.AlgBandwidthMBps, r.BusBandwidthMBps
	case s == Mean:
		return r.MeanAlgBandwidthMBps, r.MeanBusBandwidthMBps
	default:
		return Bandwidths(r.Collective, r.SizeBytes, t, ranks)
	}
}

// shown gives the statistic that a table's rows are of, and its name there. Where a source gives one time alone, as
// rccl-tests and nccl-tests do, the table shows that, and does not call it a median.
func (s Statistic) shown(all []Result) (Statistic, string) {
	alone := !slices.ContainsFunc(all, func(r Result) bool {
		return r.Latency.MedianNanoseconds > 0 || r.MeanLatencyNanoseconds <= 0
	})
	if alone && (s == Median || s == Mean) {
		return Mean, "time"
	}
	return s, string(s)
}

// hasSpread says whether the coefficient of variation was measured: over one repeat there is none.
func hasSpread(l rcclx.LatencyStats) bool { return l.Repeats > 1 }

func microseconds(nanoseconds int64) string {
	if nanoseconds <= 0 {
		return missing
	}
	return strconv.FormatFloat(float64(nanoseconds)/1e3, 'f', 2, 64)
}

// gigabytes gives a bandwidth in GB/s, 10^9 bytes per second, as rccl-tests does, with one more digit.
func gigabytes(mbps float64) string {
	if mbps <= 0 {
		return missing
	}
	digits := 3
	if mbps < 10 { // small messages, of which they show too little
		digits = 6
	}
	return strconv.FormatFloat(mbps/1e3, 'f', digits, 64)
}

func percent(ppm int64) string { return strconv.FormatFloat(float64(ppm)/1e4, 'f', 2, 64) }

func orMissing(text string) string {
	if text == "" {
		return missing
	}
	return text
}

// word keeps a cell one word, so that a row can be split at spaces.
func word(text string) string { return orMissing(strings.Join(strings.Fields(text), "_")) }

// plural puts a number before a word.
func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// RuntimeVersion renders HIP's code, major*10^7 + minor*10^5 + patch (hip_version.h), or CUDA's, major*1000 + minor*10
// (cuda_runtime_api.h); empty for zero.
func RuntimeVersion(lib rcclx.LibraryInfo) string {
	v := lib.RuntimeVersionCode
	switch {
	case v <= 0:
		return ""
	case lib.Flavor == rcclx.FlavorNCCL:
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return fmt.Sprintf("%d.%d.%d", v/10_000_000, v/100_000%100, v%100_000)
}

// WriteJSON writes a report, or a list of them, as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

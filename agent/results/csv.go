package results

import (
	"encoding/csv"
	"io"
	"strconv"

	"rcclx.io/commgroup-operator/rcclx"
)

// cell is the value of a column; empty where it is missing.
type cell func(p Report, r Result) string

// column of the CSV form.
type column struct {
	name  string
	value cell
}

// columns of the CSV form. docs/bench.md says what each is; new ones go to the end, so that programs that read by
// position go on to work.
var columns = []column{
	{"simulated", func(p Report, _ Result) string { return strconv.FormatBool(p.Simulated) }},
	{"source", func(p Report, _ Result) string { return p.Source }},
	{"input", func(p Report, _ Result) string { return p.Input }},
	{"time", func(p Report, _ Result) string { return timeText(p.Time) }},
	{"library_flavor", ofLibrary(func(l rcclx.LibraryInfo) string { return string(l.Flavor) })},
	{"library_version", ofLibrary(version)},
	{"library_build_hash", ofLibrary(func(l rcclx.LibraryInfo) string { return l.BuildHash })},
	{"ranks", func(p Report, _ Result) string { return positive(int64(p.Ranks)) }},
	{"nodes", func(p Report, _ Result) string { return positive(int64(p.Nodes)) }},
	{"variant", func(_ Report, r Result) string { return string(r.Variant) }},
	{"collective", func(_ Report, r Result) string { return string(r.Collective) }},
	{"datatype", func(_ Report, r Result) string { return string(r.Datatype) }},
	{"op", func(_ Report, r Result) string { return r.Op }},
	{"root", func(_ Report, r Result) string { return rootText(r, "") }},
	{"placement", func(_ Report, r Result) string { return string(r.Placement) }},
	{"size_bytes", func(_ Report, r Result) string { return decimal(r.SizeBytes) }},
	{"count_elements", func(_ Report, r Result) string { return decimal(r.CountElements) }},
	{"latency_median_ns", func(_ Report, r Result) string { return positive(r.Latency.MedianNanoseconds) }},
	{"latency_min_ns", func(_ Report, r Result) string { return positive(r.Latency.MinNanoseconds) }},
	{"latency_max_ns", func(_ Report, r Result) string { return positive(r.Latency.MaxNanoseconds) }},
	{"latency_p95_ns", func(_ Report, r Result) string { return positive(r.Latency.P95Nanoseconds) }},
	{"latency_cv_ppm", func(_ Report, r Result) string {
		if !hasSpread(r.Latency) {
			return ""
		}
		return decimal(r.Latency.CoefficientOfVariationPPM)
	}},
	{"latency_mean_of_ranks_ns", func(_ Report, r Result) string { return positive(r.MeanLatencyNanoseconds) }},
	{"launch_ns", func(_ Report, r Result) string { return positive(r.LaunchNanoseconds) }},
	{"repeats", func(_ Report, r Result) string { return positive(int64(r.Latency.Repeats)) }},
	{"iterations_per_repeat",
		func(_ Report, r Result) string { return positive(int64(r.Latency.IterationsPerRepeat)) }},
	{"alg_bandwidth_mbps", func(_ Report, r Result) string { return megabytes(r.AlgBandwidthMBps) }},
	{"bus_bandwidth_mbps", func(_ Report, r Result) string { return megabytes(r.BusBandwidthMBps) }},
	{"mean_alg_bandwidth_mbps", func(_ Report, r Result) string { return megabytes(r.MeanAlgBandwidthMBps) }},
	{"mean_bus_bandwidth_mbps", func(_ Report, r Result) string { return megabytes(r.MeanBusBandwidthMBps) }},
	{"checked_elements", checked(func(c rcclx.CheckResult) int64 { return c.CheckedElements }, sum)},
	{"wrong_elements", checked(func(c rcclx.CheckResult) int64 { return c.WrongElements }, sum)},
	{"nan_elements", measuredError(func(c rcclx.CheckResult) int64 { return c.NaNElements }, sum)},
	{"overflow_elements", measuredError(func(c rcclx.CheckResult) int64 { return c.OverflowElements }, sum)},
	{"unwritten_elements", measuredError(func(c rcclx.CheckResult) int64 { return c.UnwrittenElements }, sum)},
	{"max_relative_error_ppm", measuredError(func(c rcclx.CheckResult) int64 { return c.MaxRelativeErrorPPM }, most)},
	{"mean_relative_error_ppm", measuredError(func(c rcclx.CheckResult) int64 { return c.MeanRelativeErrorPPM }, most)},
	{"expected_path", func(_ Report, r Result) string { return string(r.ExpectedPath) }},
	{"hazard", func(_ Report, r Result) string { return r.Hazard }},
	{"hazard_elements", func(_ Report, r Result) string {
		if _, checked := r.Wrong(); r.Hazard == "" || !checked {
			return ""
		}
		return decimal(r.HazardElements)
	}},
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// positive is a number that zero means missing of.
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return decimal(n)
}

// megabytes is a bandwidth in 10^6 bytes per second with three decimals, and in another form where those would be
// zeros.
func megabytes(mbps float64) string {
	switch {
	case mbps <= 0:
		return ""
	case mbps < 0.001:
		return strconv.FormatFloat(mbps, 'g', 4, 64)
	}
	return strconv.FormatFloat(mbps, 'f', 3, 64)
}

func ofLibrary(f func(rcclx.LibraryInfo) string) cell {
	return func(p Report, _ Result) string {
		if p.Library == nil {
			return ""
		}
		return f(*p.Library)
	}
}

func version(l rcclx.LibraryInfo) string {
	if l.VersionCode <= 0 {
		return ""
	}
	return l.VersionString()
}

// rooted says whether a collective has a root.
func rooted(c rcclx.Collective) bool { return c == rcclx.Broadcast || c == rcclx.Reduce }

func rootText(r Result, without string) string {
	if !rooted(r.Collective) {
		return without
	}
	return strconv.Itoa(r.Root)
}

func sum(a, b int64) int64  { return a + b }
func most(a, b int64) int64 { return max(a, b) }

// checked combines a number of each check; missing where nothing was checked.
func checked(of func(rcclx.CheckResult) int64, combine func(a, b int64) int64) cell {
	return func(_ Report, r Result) string {
		var n int64
		for _, c := range r.Checks {
			n = combine(n, of(c))
		}
		if _, any := r.Wrong(); !any {
			return ""
		}
		return decimal(n)
	}
}

// measuredError is checked for what only agent bench looks at: a check of an unknown kind of data comes from elsewhere.
func measuredError(of func(rcclx.CheckResult) int64, combine func(a, b int64) int64) cell {
	return func(p Report, r Result) string {
		for _, c := range r.Checks {
			if c.Data == "" {
				return ""
			}
		}
		return checked(of, combine)(p, r)
	}
}

// WriteCSV writes one header row and one row for each result of all reports, quoted as RFC 4180 says, with lines that
// end in a newline alone. An empty cell is a missing value. Warnings, failures and pairs have no row.
func WriteCSV(w io.Writer, reports ...Report) error {
	out := csv.NewWriter(w)
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.name
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for _, p := range reports {
		for _, r := range p.Results {
			for i, c := range columns {
				row[i] = Printable(c.value(p, r))
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

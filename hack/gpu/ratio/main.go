// Command ratio holds several runs of agent bench against several of rccl-tests or nccl-tests (read by agent import)
// that were taken in turns on one machine, and prints ours over theirs for each measurement.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"rcclx.io/commgroup-operator/agent/results"
	"rcclx.io/commgroup-operator/rcclx"
)

const usage = `usage: ratio OURS.json... -- THEIRS.json...
Each file is what agent bench -o json or agent import -o json printed. Latency is what rccl-tests shows: the mean over
the ranks. Of several runs the median counts, and the range is shown, since a single run says nothing on a noisy machine`

// key names one measurement.
type key struct {
	collective rcclx.Collective
	datatype   rcclx.Datatype
	placement  rcclx.Placement
	sizeBytes  int64
}

// sample is the mean latency over the ranks and the bus bandwidth that follows from it, of one run each.
type sample struct {
	nanoseconds []int64
	ranks       int
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ratio:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	at := slices.Index(args, "--")
	if at < 1 || at == len(args)-1 {
		return errors.New(usage)
	}
	ours, err := read(args[:at])
	if err != nil {
		return err
	}
	theirs, err := read(args[at+1:])
	if err != nil {
		return err
	}
	return print(out, ours, theirs)
}

func read(files []string) (map[key]*sample, error) {
	all := map[key]*sample{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		reports, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s is not what agent bench or agent import printed: %w", file, err)
		}
		for _, report := range reports {
			if report.Failure != nil {
				return nil, fmt.Errorf("%s: the run failed, so it is not compared: %s", file, report.Failure.Message)
			}
			if err := add(all, report); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return all, nil
}

// decode reads one report, as agent bench prints, or a list of them, as agent import does.
func decode(data []byte) ([]results.Report, error) {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		var all []results.Report
		return all, json.Unmarshal(data, &all)
	}
	var one results.Report
	err := json.Unmarshal(data, &one)
	return []results.Report{one}, err
}

func add(all map[key]*sample, report results.Report) error {
	for _, r := range report.Results {
		if wrong, checked := r.Wrong(); checked && wrong > 0 {
			return fmt.Errorf("%s %s %d B has %d wrong elements", r.Collective, r.Datatype, r.SizeBytes, wrong)
		}
		k := key{r.Collective, r.Datatype, r.Placement, r.SizeBytes}
		if all[k] == nil {
			all[k] = &sample{ranks: report.Ranks}
		}
		latency := r.MeanLatencyNanoseconds
		if latency == 0 {
			latency = r.Latency.MedianNanoseconds
		}
		if latency > 0 {
			all[k].nanoseconds = append(all[k].nanoseconds, latency)
		}
	}
	return nil
}

func (s *sample) median() int64 {
	sorted := slices.Sorted(slices.Values(s.nanoseconds))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (s *sample) String() string {
	us := func(ns int64) string { return fmt.Sprintf("%.2f", float64(ns)/1e3) }
	return fmt.Sprintf("%s (%s..%s)", us(s.median()), us(slices.Min(s.nanoseconds)), us(slices.Max(s.nanoseconds)))
}

// print writes the table; measurements that one side lacks are named, never dropped.
func print(out io.Writer, ours, theirs map[key]*sample) error {
	var keys []key
	for k := range ours {
		keys = append(keys, k)
	}
	for k := range theirs {
		if ours[k] == nil {
			keys = append(keys, k)
		}
	}
	order := rcclx.AllCollectives()
	slices.SortFunc(keys, func(a, b key) int {
		if a.collective != b.collective {
			return slices.Index(order, a.collective) - slices.Index(order, b.collective)
		}
		if a.placement != b.placement {
			return len(b.placement) - len(a.placement)
		}
		return int(min(max(a.sizeBytes-b.sizeBytes, -1), 1))
	})
	missing := map[string][]int64{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "collective\tdatatype\tplacement\tsize (B)\truns\tours (us)\ttheirs (us)\tdifference "+
		"(us)\tours busbw (GB/s)\ttheirs\tours/theirs\t")
	for _, k := range keys {
		o, t := ours[k], theirs[k]
		name := fmt.Sprintf("%s\t%s\t%s\t%d", k.collective, k.datatype, k.placement, k.sizeBytes)
		if o == nil || t == nil || len(o.nanoseconds) == 0 || len(t.nanoseconds) == 0 {
			group := fmt.Sprintf("%s %s %s", k.collective, k.datatype, k.placement)
			missing[group] = append(missing[group], k.sizeBytes)
			continue
		}
		a, b := o.median(), t.median()
		bus := func(ns int64) float64 {
			return float64(rcclx.BusBandwidthMBps(k.collective, k.sizeBytes, ns, o.ranks)) / 1e3
		}
		_, _ = fmt.Fprintf(w, "%s\t%d+%d\t%s\t%s\t%+.2f\t%.2f\t%.2f\t%.3f\t\n", name, len(o.nanoseconds),
			len(t.nanoseconds), o, t, float64(a-b)/1e3, bus(a), bus(b), float64(b)/float64(a))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(missing)) {
		_, _ = fmt.Fprintf(out, "measured by one side only: %s at %d bytes\n", group, missing[group])
	}
	return nil
}

// Command metricsdoc prints docs/metrics.md: the contract of internal/metrics, and how to scrape it.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"strings"

	"rcclx.io/commgroup-operator/internal/metrics"
)

// The page around the tables.
//
//go:embed head.md
var head string

func main() {
	if err := write(os.Stdout, metrics.All()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(w io.Writer, all []metrics.Metric) error {
	var b strings.Builder
	b.WriteString(head)
	for _, part := range []struct {
		source metrics.Source
		title  string
	}{{metrics.Manager, "Metrics of the manager"}, {metrics.Agent, "Metrics of the monitors"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | unit | labels | what | series |\n|---|---|---|---|---|---|\n",
			part.title)
		for _, m := range all {
			if m.Source == part.source {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n",
					m.Name, m.Kind, unit(m.Name), labels(m.Labels), cell(m.Help), cell(m.Series))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unit is told by the name's end, as Prometheus' conventions have it.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []struct{ suffix, unit string }{
		{"_bytes_per_second", "bytes/s"}, {"_timestamp_seconds", "s since 1970"}, {"_gpu_seconds", "GPU s"},
		{"_seconds", "s"}, {"_ratio", "ratio"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

// labels leaves out the group's, which the page tells of once.
func labels(names []string) string {
	var out []string
	for _, n := range names {
		if n != metrics.LabelGroupNamespace && n != metrics.LabelGroup {
			out = append(out, "`"+n+"`")
		}
	}
	return strings.Join(out, ", ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

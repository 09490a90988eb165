package report

import (
	"fmt"
	"io"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/checks"
	"rcclx.io/commgroup-operator/internal/units"
)

// Checks prints measurements against what was expected, the worst first, and what to look at for those that were not
// met.
func Checks(w io.Writer, all []v1alpha1.PerformanceCheck) error {
	rows := [][]string{{"STATE", "MEASURED GB/s", "EXPECTED GB/s", "PERCENT", "SOURCE", "NODE", "MEASUREMENT"}}
	for i := range all {
		c := &all[i]
		state := string(c.State)
		if c.Mode == v1alpha1.JudgingReport && c.State != v1alpha1.CheckMet {
			state += " (only reported)"
		}
		percent := unknown
		if c.Percent != nil {
			percent = fmt.Sprintf("%d %%", *c.Percent)
		}
		rows = append(rows, []string{state, optionalGBps(c.MeasuredMBps), optionalGBps(c.ExpectedMBps), percent,
			c.Source, orUnknown(c.Node), c.Measurement})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if len(all) >= checks.Max {
		if _, err := fmt.Fprintf(w,
			"These are the worst %d; a status has no room for more, and what is not here did no worse.\n",
			checks.Max); err != nil {
			return err
		}
	}
	for i := range all {
		c := &all[i]
		if len(c.Causes) == 0 {
			continue
		}
		head := "look at"
		if c.State == v1alpha1.CheckNotMeasured {
			head = "why"
		}
		if _, err := fmt.Fprintf(w, "%s: %s:\n", Sizes(c.Measurement), head); err != nil {
			return err
		}
		for _, cause := range c.Causes {
			if _, err := fmt.Fprintln(w, wrap(w, cause)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Baseline prints what the group's baseline is made of, in one line.
func Baseline(w io.Writer, b *v1alpha1.BaselineStatus) error {
	text := fmt.Sprintf("baseline of %s since %s: %s",
		units.Counted(int64(b.Runs), "run"), b.Since.UTC().Format("2006-01-02 15:04 UTC"), b.Key)
	if b.Previous != "" {
		text += "; before: " + b.Previous
	}
	_, err := fmt.Fprintln(w, wrap(w, text))
	return err
}

func optionalGBps(mbps *int64) string {
	if mbps == nil {
		return unknown
	}
	return units.GBps(*mbps)
}

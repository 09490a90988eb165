package report

import (
	"cmp"
	"fmt"
	"io"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/compare"
	"rcclx.io/commgroup-operator/internal/units"
)

// Compare prints run A beside run B: what was different, what each measurement gained or lost, and what that comes to.
func Compare(w io.Writer, c *compare.Comparison) error {
	if c.A.Status.Origin == v1alpha1.OriginSimulated || c.B.Status.Origin == v1alpha1.OriginSimulated {
		if _, err := fmt.Fprintln(w, Paint(w, Warn, SimulatedNotice)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "run A: %s\nrun B: %s\n", runWords(c.A), runWords(c.B)); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		all   []compare.Difference
	}{{"NOT OF ONE KIND: a change below is no gain or loss", c.Kinds}, {"What was different", c.Changes}} {
		if len(part.all) == 0 {
			continue
		}
		if err := Title(w, part.title); err != nil {
			return err
		}
		rows := [][]string{{"WHAT", "RUN A", "RUN B"}}
		for _, d := range part.all {
			rows = append(rows, []string{d.What, d.A, d.B})
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	for i := range c.Series {
		if err := compareSeries(w, &c.Series[i]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", wrap(w, c.Verdict()))
	return err
}

func runWords(r *v1alpha1.CommRun) string {
	text := fmt.Sprintf("%s/%s %s, %s", orUnknown(r.Namespace), orUnknown(r.Spec.GroupName), r.Status.ID,
		cmp.Or(string(r.Status.Verdict), "no verdict"))
	if r.Status.Trigger != "" {
		text += ", " + r.Status.Trigger
	}
	if !r.Status.StartTime.IsZero() {
		text += r.Status.StartTime.UTC().Format(", 2006-01-02 15:04 UTC")
	}
	return text
}

func compareSeries(w io.Writer, s *compare.Series) error {
	if err := Title(w, s.Name+" (bus bandwidth in GB/s = 10^9 bytes/s)"); err != nil {
		return err
	}
	rows := [][]string{{"SIZE", "RUN A", "RUN B", "CHANGE", "NOISE", "OUTCOME"}}
	for _, r := range s.Rows {
		change := unknown
		if r.ChangePercent != nil {
			change = fmt.Sprintf("%+.1f %%", *r.ChangePercent)
		}
		rows = append(rows, []string{units.Bytes(r.SizeBytes), optionalGBps(r.AMBps), optionalGBps(r.BMBps), change,
			fmt.Sprintf("%d %%", r.NoisePercent), string(r.Outcome)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if s.WrongA == 0 && s.WrongB == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "  elements wrong: %d in run A, %d in run B\n", s.WrongA, s.WrongB)
	return err
}

// Runs lists CommRuns, in their order.
func Runs(w io.Writer, all []v1alpha1.CommRun) error {
	rows := [][]string{{"RUN", "VERDICT", "TRIGGER", "ORIGIN", "COMMRUN"}}
	for i := range all {
		r := &all[i]
		rows = append(rows, []string{r.Status.ID, orUnknown(string(r.Status.Verdict)), r.Status.Trigger,
			orUnknown(string(r.Status.Origin)), r.Name})
	}
	return table(w, rows)
}

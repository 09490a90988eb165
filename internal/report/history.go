package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/state"
	"rcclx.io/commgroup-operator/internal/units"
)

// GroupFigure is what a past run reached over the group, with the nodes where they were not all members.
func GroupFigure(h *v1alpha1.RunSummary) string {
	text := optionalGBps(h.GroupBusBandwidthMBps)
	if h.GroupNodes > 0 && !strings.HasSuffix(h.Members, fmt.Sprint("/", h.GroupNodes)) {
		text += fmt.Sprintf(" on %d nodes", h.GroupNodes)
	}
	return text
}

// History prints the last runs, the newest first, where they point, and what of the day's budget is used.
func History(w io.Writer, s *state.Status) error {
	rows := [][]string{{"RUN", "TRIGGER", "VERDICT", "REASON", "STARTED", "TOOK", "MEMBERS", "GPU-MINUTES", "BUS GB/s",
		"GROUP GB/s", "CULPRIT"}}
	for i := range s.History {
		h := &s.History[i]
		took := unknown
		if h.FinishTime != nil {
			took = h.FinishTime.Sub(h.StartTime.Time).Round(time.Second).String()
		}
		verdict := cmp.Or(string(h.Verdict), "aborted")
		rows = append(rows, []string{h.ID, h.Trigger, verdict, orUnknown(h.Reason),
			h.StartTime.UTC().Format("2006-01-02 15:04 UTC"), took, orUnknown(h.Members), fmt.Sprint(h.GPUMinutes),
			optionalGBps(h.BusBandwidthMBps), GroupFigure(h), orUnknown(h.Culprit)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if s.Trend != "" {
		text := "trend of the bus bandwidth under the present baseline: " + string(s.Trend)
		if s.Trend == v1alpha1.TrendUnknown {
			text += " (it takes three runs that measured the same)"
		}
		if _, err := fmt.Fprintln(w, wrap(w, text)); err != nil {
			return err
		}
	}
	if b := s.Budget; b != nil {
		_, err := fmt.Fprintln(w, wrap(w, fmt.Sprintf("budget of %s (UTC): %d of %s used by runs that are over",
			b.Day, b.UsedGPUMinutes, units.Counted(b.LimitGPUMinutes, "GPU-minute"))))
		return err
	}
	return nil
}
